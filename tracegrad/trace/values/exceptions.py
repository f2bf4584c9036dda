"""Exceptions that end a trace: whose they are, and whether Python would have raised just these.

A function may raise while it is traced, as it may in Python. What then counts is its own run on the arguments: tracers
can be in the exception's arguments, and operations that were only recorded might have raised before. Only what a
statement of the traced code raised with nothing but plain values is taken as it is.
"""

from __future__ import annotations

import functools
import opcode
import signal
from collections.abc import Iterator
from types import CodeType, FrameType, FunctionType
from typing import Any

import numpy as np

from tracegrad.errors import TracegradError, UnsupportedError, in_package, user_file
from tracegrad.settings import settings
from tracegrad.trace.builder.abort import RunsPlainly
from tracegrad.trace.bytecode.exception_regions import Namespace

__all__ = ["is_interrupt", "is_of_loops", "is_ours", "is_plain", "is_pythons"]

_RAISE = opcode.opmap["RAISE_VARARGS"]
_PLAIN = (str, bytes, bool, int, float, complex, type(None))


def is_interrupt(error: BaseException) -> bool:
    """Whether a signal handler raised it, so that it says nothing of the code that was interrupted."""
    handlers = {_code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    return any(frame.f_code in handlers for frame, _ in _frames(error))


def _code(function: Any) -> CodeType | None:
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__func__", function)
    if not isinstance(function, FunctionType) and callable(function):
        function = type(function).__call__
    found = getattr(function, "__code__", None)
    return found if isinstance(found, CodeType) else None


def is_ours(error: BaseException) -> bool:
    """Whether tracegrad raised it on purpose: a `TracegradError`, or a `raise` in its own code."""
    if isinstance(error, TracegradError):
        return True
    frame, at = list(_frames(error))[-1]
    return in_package(frame.f_code.co_filename) and frame.f_code.co_code[at] == _RAISE


def _is_unforeseen(error: BaseException) -> bool:
    """Whether it was raised in tracegrad's code, and not on purpose."""
    frame, _ = list(_frames(error))[-1]
    return in_package(frame.f_code.co_filename) and not is_ours(error)


def is_of_loops(error: BaseException) -> bool:
    """Whether an exception may come of loops that are rolled, so that a trace without has another answer. A fault of
    tracegrad's own is raised where graphs are verified, as they are in its tests."""
    unforeseen = _is_unforeseen(error)
    if unforeseen and settings.verify:
        raise error
    return unforeseen or isinstance(error, UnsupportedError | LookupError)


def is_pythons(error: BaseException) -> bool:
    """Whether Python raises this where it runs the code: a `raise` of the traced code has, or an operation, or we on
    purpose in their place. What else C code raises may be about traced values that it does not take."""
    if isinstance(error, IndexError | ArithmeticError | NameError | StopIteration | np.linalg.LinAlgError):
        return True
    if isinstance(error, KeyError) and _holds_plain_values(error):
        return True
    if type(error).__module__ == "statistics":  # which is given the values
        return True
    frame, at = list(_frames(error))[-1]
    stated = isinstance(frame.f_globals, Namespace) and frame.f_code.co_code[at] == _RAISE
    return not isinstance(error, RunsPlainly) and (stated or is_ours(error))


def is_plain(error: BaseException) -> bool:
    """Whether a `raise` or an `assert` of the traced code raised it, and it has nothing in it of the trace."""
    frame, at = list(_frames(error))[-1]
    code = frame.f_code
    if not user_file(code.co_filename) or not isinstance(frame.f_globals, Namespace) or code.co_code[at] != _RAISE:
        return False
    return all(_holds_plain_values(e) for e in _chain(error))


def _frames(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    step = error.__traceback__
    while step is not None:
        yield step.tb_frame, step.tb_lasti
        step = step.tb_next


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The exception and those it came from."""
    found: list[BaseException] = []
    waiting = [error]
    while waiting:
        error = waiting.pop()
        if error is not None and error not in found:
            found.append(error)
            waiting += [error.__cause__, error.__context__]
    return iter(found)


def _holds_plain_values(error: BaseException) -> bool:
    values = (*error.args, *vars(error).values())
    return not isinstance(error, TracegradError) and all(type(x) in _PLAIN for x in values)
