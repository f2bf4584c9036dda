"""Exceptions of tracegrad, and the lines of user code that they come from.

Each class is also the built-in (or NumPy) class that a NumPy user would catch: a wrong shape is a `ValueError`, a wrong
dtype a `TypeError`. `user_location` finds the file and line outside tracegrad and NumPy that led to the call, so that
an error in a graph can name the line that recorded it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import warnings
from collections.abc import Iterator
from typing import Any

from tracegrad.cpython.frames import frame_at, is_raised_by_statement, traceback_of
from tracegrad.platform.files import INSTALLED, parts

__all__ = [
    "GENERATED_PREFIX",
    "OVERLAPPING",
    "PACKAGE",
    "RANDOMNESS",
    "READ_ONLY",
    "WARNED",
    "CacheWarning",
    "CapacityError",
    "DTypeError",
    "DerivativeWarning",
    "LostDerivativeError",
    "PerformanceWarning",
    "ShapeError",
    "TraceError",
    "TracegradError",
    "UnsupportedError",
    "VerifyError",
    "holding",
    "in_package",
    "is_internal",
    "located",
    "lost",
    "numpys",
    "plainly",
    "uncaught",
    "user_file",
    "user_location",
    "warn_of_constant",
]


class TracegradError(Exception):
    """Base class of the errors that tracegrad raises."""


def numpys(cls: type) -> object:
    """Return the class that NumPy, or PyTorch, raises where tracegrad raises `cls`."""
    return vars(cls).get("_numpys", cls)


class _AsNumPys:
    """Error whose class, in traced code, is the built-in exception that NumPy raises."""

    __slots__ = ()

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        traced = type(frame_at(1).f_globals) is not dict  # the trace looks up the names of traced code
        return numpys(type(self)) if traced else type(self)


class ShapeError(_AsNumPys, TracegradError, ValueError):
    """Shapes, axes or indices do not fit together.

    It is a ValueError, as in NumPy.

    Examples
    --------
    >>> import numpy as np
    >>> import tracegrad as tg
    >>> try:
    ...     tg.trace(lambda x: x + np.ones(3))(np.ones(2))
    ... except tg.ShapeError as error:
    ...     print(isinstance(error, ValueError))
    True
    """

    _numpys: Any = ValueError


class DTypeError(_AsNumPys, TracegradError, TypeError):
    """An op or a transform is not defined for the dtype.

    It is a TypeError, as in NumPy.

    Examples
    --------
    >>> import tracegrad as tg
    >>> try:
    ...     tg.grad(lambda x: x * x)(3)
    ... except tg.DTypeError as error:
    ...     print(isinstance(error, TypeError))
    True
    """

    _numpys: Any = TypeError


class TraceError(TracegradError, TypeError):
    """A trace cannot record a value or an action.

    The text names the line, and a way out. It is a TypeError.
    """


class LostDerivativeError(TraceError):
    """A value with a derivative would continue as a value without one.

    The derivative of later results would then be 0, which is wrong. Examples are C code that reads the number, `float`
    outside of a trace, pickling, and an ndarray that stores the number.

    Notes
    -----
    The text names the line, and the code that takes the value. If a constant is intended, use `stop_gradient(x)`. A
    function that reads numbers needs a rule by `custom_vjp`. Printing, logging, formatting, comparing and indexing lose
    no derivative.

    Examples
    --------
    >>> import math
    >>> import tracegrad as tg
    >>> try:
    ...     tg.grad(lambda x: x * math.nextafter(x, 9.0))(2.0)
    ... except tg.LostDerivativeError as error:
    ...     print(str(error)[:67])
    nextafter takes the number of a value that is being differentiated,
    >>> print(tg.grad(lambda x: x * math.nextafter(tg.stop_gradient(x), 9.0))(2.0))
    2.0000000000000004
    """


class UnsupportedError(TracegradError, NotImplementedError):
    """tracegrad does not implement a NumPy function, an argument or an object.

    It is a NotImplementedError.
    """

    on_tape = True  # whether the eager tape may still run the call

    @classmethod
    def everywhere(cls, text: str) -> UnsupportedError:
        """Make the error for operations that the tape does not support either."""
        error = cls(located(text))
        error.on_tape = False
        return error


class VerifyError(TracegradError):
    """A graph breaks a rule of the IR, because of a defect of tracegrad."""


class CapacityError(TracegradError, RuntimeError):
    """A loop made more iterations than the memory for its residuals allows.

    It is a RuntimeError.
    """


class CacheWarning(UserWarning):
    """The disk cache cannot be used; compilation continues without it."""


class DerivativeWarning(UserWarning):
    """A Python number was taken from a Tensor that requires grad, so results are constants, as in PyTorch.

    A transform of a function of ndarrays raises `LostDerivativeError` instead.
    """


class PerformanceWarning(UserWarning):
    """The result of a traced function is right but slow, for a reason that the user can remove."""


# The folder of tracegrad, with a trailing separator.
# As in the file names of code, which begin with an entry of `sys.path` as it is.
PACKAGE = os.path.dirname(__file__) + os.sep
_LIBRARY = os.path.dirname(os.__file__) + os.sep
_LIBRARIES = frozenset(["scipy", "numba", "llvmlite"])
# The file name of generated source code.
GENERATED_PREFIX = "<tracegrad"
# NumPy's error text for an update of a read-only array; also the value of `frozen` of a read-only traced array.
READ_ONLY = "assignment destination is read-only"
RANDOMNESS = (
    "vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' "
    "randomness flags on vmap or perform the randomness operation out of vmap"
)
OVERLAPPING = "a view by as_strided whose elements overlap"  # another value of `frozen`


def in_package(filename: str) -> bool:
    """Whether code of this file is tracegrad's."""
    return filename.startswith(PACKAGE)


@functools.cache
def user_file(filename: str) -> bool:
    """Whether code of this file is the user's: neither tracegrad's nor NumPy's nor frozen."""
    inside_numpy = "numpy" in parts(filename) and is_installed(filename)
    return not filename.startswith((PACKAGE, "<frozen", GENERATED_PREFIX)) and not inside_numpy


def is_installed(filename: str) -> bool:
    """Whether code of this file belongs to an installed package."""
    return not INSTALLED.isdisjoint(parts(filename))


def user_frame() -> Any:
    """Return the innermost frame of user code that has called tracegrad; None if there is none."""
    frame: Any = frame_at(2)
    while frame is not None and not user_file(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def is_internal(error: BaseException) -> bool:
    """Whether an exception comes from a fault in tracegrad's own code, as far as can be known.

    An internal exception was raised by an instruction of tracegrad, not by a `raise`, on names and objects of
    tracegrad. Exceptions of operations of NumPy and Python on the user's objects are the user's.
    """
    frames = list(traceback_of(error))
    if not frames or not frames[-1][0].f_code.co_filename.startswith(PACKAGE):
        return False
    frame, instruction = frames[-1]
    if isinstance(error, AssertionError):
        return not error.args  # an AssertionError with a text comes from a function that compares for the user
    if is_raised_by_statement(frame.f_code, instruction):
        return False
    if isinstance(error, AttributeError):
        return _is_package_type(error.obj)
    return isinstance(error, NameError) or (isinstance(error, KeyError) and any(map(_is_package_type, error.args)))


def _is_package_type(x: object) -> bool:
    kind = x if isinstance(x, type) else type(x)
    return kind.__module__.partition(".")[0] == "tracegrad"


def user_location() -> str:
    """Return `file:line` of the innermost frame outside tracegrad and NumPy, or an empty string.

    Installed packages and Python's library between the user's code and tracegrad are skipped, unless there is nothing
    else.
    """
    return _locations()[-1]


def _locations() -> tuple[str, str]:
    """Return `file:line` of the innermost frame outside tracegrad, and of the innermost frame of user code.

    The first skips the libraries whose public names tracegrad implements, and may be in an installed package.
    """
    inner, result, frame = "", "", frame_at(2)
    while frame is not None:
        filename = frame.f_code.co_filename
        if user_file(filename):
            location, installed = f"{filename}:{frame.f_lineno}", is_installed(filename)
            result = result or location
            of_python = filename.startswith(_LIBRARY) and not installed
            inner = inner or (location if not of_python and _LIBRARIES.isdisjoint(parts(filename)) else "")
            if not (installed or of_python):
                return inner or location, location
        frame = frame.f_back  # type: ignore[assignment]
    return inner or result, result


def lost(operation: str, consequence: str = "", advice: str = "") -> LostDerivativeError:
    """Return the error for a number taken of a differentiated value.

    The caller raises it; if the user's code catches it, it is raised at the end of the transform.
    """
    text = consequence or (
        "takes the number of a value that is being differentiated, and what is computed from that would have no "
        "derivative"
    )
    usual = "say stop_gradient(x) if a constant is meant, or give a function that reads numbers a rule by custom_vjp"
    advice = advice or usual
    error = LostDerivativeError(located(f"{operation} {text}; {advice}"))
    WARNED.lost = error
    return error


@contextlib.contextmanager
def uncaught() -> Iterator[None]:
    """Raise the error again at the end of the block, if code within has caught it."""
    before, WARNED.lost = WARNED.lost, None
    try:
        yield
    except Exception as error:
        if WARNED.lost is not None and error is not WARNED.lost:  # C code raised another one in its place
            raise WARNED.lost from error
        raise
    else:
        if WARNED.lost is not None:
            raise WARNED.lost
    finally:
        WARNED.lost = before


@contextlib.contextmanager
def plainly(why: str) -> Iterator[None]:
    """Context manager for a call that runs as plain Python: errors of tracegrad also give the reason."""
    try:
        yield
    except TracegradError as error:
        adds_reason = why and error.args and isinstance(error.args[0], str) and _PLAINLY not in error.args[0]
        if adds_reason:
            error.args = (f"{error.args[0]}; {_PLAINLY}, because {why}", *error.args[1:])
        raise


_PLAINLY = "the call runs as plain Python"


def warn_of_constant(operation: str) -> None:
    """Warn that the number that `operation` gives is a constant for the active derivative."""
    message = (
        f"{operation} of a value that is being differentiated gives a number without a derivative: what is computed "
        "from "
        "it counts as a constant; compute with the value itself, or say stop_gradient(x) if that is meant"
    )
    WARNED.count += 1
    if WARNED.held is None:
        warnings.warn(located(message), DerivativeWarning, stacklevel=2)
    else:
        WARNED.held.append(located(message))


class _Warned(threading.local):
    """Lost derivatives of this thread: the number of warnings, and the number of refused conversions of Tensors.

    `held` has the warnings that are held back, and `lost` the last error.
    """

    count = refused = 0
    held: list[str] | None = None
    lost: LostDerivativeError | None = None


WARNED = _Warned()


@contextlib.contextmanager
def holding() -> Iterator[list[str]]:
    """Context manager that holds warnings back; warnings still in the list at its end are issued."""
    before, WARNED.held = WARNED.held, []
    pending = WARNED.held
    try:
        yield pending
    finally:
        WARNED.held = before
        for message in pending:
            if before is None:
                warnings.warn(message, DerivativeWarning, stacklevel=3)
            else:
                before.append(message)


def located(message: str, location: str = "") -> str:
    """Return `message` followed by the user's file and line, after the line of an installed package in between."""
    if not location:
        inner, location = _locations()
        location = location if inner == location else f"{inner}, called at {location}"
    return f"{message} ({location})" if location else message
