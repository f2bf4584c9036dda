"""The exceptions of tracegrad, and where in the user's code they come from.

Each class is also the built-in (or NumPy) class a NumPy user would catch: a bad shape is a `ValueError`, a bad
dtype a `TypeError`. `user_location` finds the file and line outside tracegrad and NumPy that led here, so that an
error in a graph built long before can still name the line that wrote it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import warnings
from collections.abc import Iterator

__all__ = [
    "MADE",
    "READ_ONLY",
    "WARNED",
    "CacheWarning",
    "CapacityError",
    "DTypeError",
    "DerivativeWarning",
    "PerformanceWarning",
    "ShapeError",
    "TraceError",
    "TracegradError",
    "UnsupportedError",
    "VerifyError",
    "holding",
    "in_package",
    "located",
    "user_file",
    "user_location",
    "warn_of_constant",
]


class TracegradError(Exception):
    """Base of every error that tracegrad raises on purpose."""


class ShapeError(TracegradError, ValueError):
    """Shapes, axes or indices that do not fit together."""


class DTypeError(TracegradError, TypeError):
    """A dtype an op or a transform is not defined for."""


class TraceError(TracegradError, TypeError):
    """A value or an action that a trace cannot record."""


class UnsupportedError(TracegradError, NotImplementedError):
    """A NumPy function, argument or object that tracegrad does not implement."""


class VerifyError(TracegradError):
    """A graph that breaks a rule of the IR; a defect of tracegrad itself."""


class CapacityError(TracegradError, RuntimeError):
    """A loop made more turns than there is room for what a derivative keeps of them."""


class CacheWarning(UserWarning):
    """The disk cache could not be used; compilation went on without it."""


class DerivativeWarning(UserWarning):
    """A Python number was taken of a value that is being differentiated: what is computed from it is a constant."""


class PerformanceWarning(UserWarning):
    """A traced function gives the right answers and takes its time over them, for a reason that can be removed."""


_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
# The file name of code that tracegrad makes as text.
MADE = "<tracegrad>"
# What NumPy says of an update of an array that is read-only; what such an array is `frozen` for.
READ_ONLY = "assignment destination is read-only"


def in_package(filename: str) -> bool:
    """Whether code of this file is tracegrad's."""
    return filename.startswith(_PACKAGE)


@functools.cache
def user_file(filename: str) -> bool:
    """Whether code of this file is the user's: neither tracegrad's nor NumPy's nor frozen."""
    inside_numpy = f"{os.sep}numpy{os.sep}" in filename and "site-packages" in filename
    return not filename.startswith((_PACKAGE, "<frozen", MADE)) and not inside_numpy


def user_location() -> str:
    """`file:line` of the innermost frame outside tracegrad and NumPy, or an empty string.

    Installed packages between the user's code and tracegrad are passed over, unless there is nothing else.
    """
    found, frame = "", sys._getframe(1)
    while frame is not None:
        filename = frame.f_code.co_filename
        if user_file(filename):
            found = found or f"{filename}:{frame.f_lineno}"
            if "site-packages" not in filename:
                return f"{filename}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return found


def warn_of_constant(asked: str) -> None:
    """Warn that the number that `asked` gives is a constant for the derivative under way."""
    message = (
        f"{asked} of a value that is being differentiated gives a number without a derivative: what is computed from "
        "it counts as a constant; compute with the value itself, or say stop_gradient(x) if that is meant"
    )
    WARNED.count += 1
    if WARNED.held is None:
        warnings.warn(located(message), DerivativeWarning, stacklevel=2)
    else:
        WARNED.held.append(located(message))


class _Warned(threading.local):
    """How often this thread was warned so, how often a Tensor refused to be an ndarray for the like reason, and the
    messages that are held back."""

    count = refused = 0
    held: list[str] | None = None


WARNED = _Warned()


@contextlib.contextmanager
def holding() -> Iterator[list[str]]:
    """Within the block, such warnings are held back; after it, those that are still in the list are given."""
    before, WARNED.held = WARNED.held, []
    told = WARNED.held
    try:
        yield told
    finally:
        WARNED.held = before
        for message in told:
            if before is None:
                warnings.warn(message, DerivativeWarning, stacklevel=3)
            else:
                before.append(message)


def located(message: str, location: str = "") -> str:
    """`message` followed by the user's file and line."""
    location = location or user_location()
    return f"{message} ({location})" if location else message
