"""Classify exceptions that end a trace: raised by user code, by Python, or by tracegrad.

A traced function may raise as it may in Python. The exception of a real run on the arguments then counts. The
arguments of the traced exception may contain tracers, and earlier recorded operations might have raised first. Only an
exception that a statement of the traced code raised with plain values is used as it is.
"""

from __future__ import annotations

import functools
import signal
from collections.abc import Iterator
from types import CodeType, FunctionType

import numpy as np

from tracegrad.cpython.frames import is_raised_by_statement, traceback_of
from tracegrad.errors import TracegradError, UnsupportedError, in_package, user_file
from tracegrad.settings import settings
from tracegrad.trace.builder.abort import RunsPlainly
from tracegrad.trace.bytecode.exception_regions import Namespace

_PLAIN = (str, bytes, bool, int, float, complex, type(None))


def is_interrupt(error: BaseException) -> bool:
    """Whether a signal handler raised it, so that it does not result from the interrupted code."""
    handlers = {_code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    return any(frame.f_code in handlers for frame, _ in traceback_of(error))


def _code(function: object) -> CodeType | None:
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__func__", function)
    if not isinstance(function, FunctionType) and callable(function):
        function = type(function).__call__
    result = getattr(function, "__code__", None)
    return result if isinstance(result, CodeType) else None


def is_internal_raise(error: BaseException) -> bool:
    """Whether tracegrad raised it on purpose: a `TracegradError`, or a `raise` in its own code."""
    if isinstance(error, TracegradError):
        return True
    frame, at = list(traceback_of(error))[-1]
    return in_package(frame.f_code.co_filename) and is_raised_by_statement(frame.f_code, at)


def _is_unforeseen(error: BaseException) -> bool:
    """Whether it was raised in tracegrad's code unintentionally."""
    frame, _ = list(traceback_of(error))[-1]
    return in_package(frame.f_code.co_filename) and not is_internal_raise(error)


def is_of_loops(error: BaseException) -> bool:
    """Whether an exception may result from loop rerolling, so that a trace without rerolling may succeed. An internal
    error is raised instead where graphs are verified, as in the test suite."""
    unforeseen = _is_unforeseen(error)
    if unforeseen and settings.verify:
        raise error
    return unforeseen or isinstance(error, UnsupportedError | LookupError)


def is_pythons(error: BaseException) -> bool:
    """Whether Python would raise this too: a `raise` of the traced code, an operation, or tracegrad on its behalf.
    Other errors of C code may come from traced values that it does not accept."""
    if isinstance(error, IndexError | ArithmeticError | NameError | StopIteration | np.linalg.LinAlgError):
        return True
    if isinstance(error, KeyError) and _holds_plain_values(error):
        return True
    if type(error).__module__ == "statistics":  # it computes with values
        return True
    frame, at = list(traceback_of(error))[-1]
    stated = isinstance(frame.f_globals, Namespace) and is_raised_by_statement(frame.f_code, at)
    return not isinstance(error, RunsPlainly) and (stated or is_internal_raise(error))


def is_plain(error: BaseException) -> bool:
    """Whether a `raise` or an `assert` of the traced code raised it, and it holds no traced values."""
    frame, at = list(traceback_of(error))[-1]
    code = frame.f_code
    if (
        not user_file(code.co_filename)
        or not isinstance(frame.f_globals, Namespace)
        or not is_raised_by_statement(code, at)
    ):
        return False
    return all(_holds_plain_values(e) for e in _chain(error))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The exception and its causes."""
    results: list[BaseException] = []
    waiting = [error]
    while waiting:
        error = waiting.pop()
        if error is not None and error not in results:
            results.append(error)
            waiting += [error.__cause__, error.__context__]
    return iter(results)


def _holds_plain_values(error: BaseException) -> bool:
    values = (*error.args, *vars(error).values())
    return not isinstance(error, TracegradError) and all(type(x) in _PLAIN for x in values)
