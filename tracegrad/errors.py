"""The exceptions of tracegrad, and where in the user's code they come from.

Each class is also the built-in (or NumPy) class a NumPy user would catch: a bad shape is a `ValueError`, a bad
dtype a `TypeError`. `user_location` finds the file and line outside tracegrad and NumPy that led here, so that an
error in a graph built long before can still name the line that wrote it.
"""

from __future__ import annotations

import functools
import os
import sys

__all__ = [
    "CacheWarning",
    "DTypeError",
    "ShapeError",
    "TraceError",
    "TracegradError",
    "UnsupportedError",
    "VerifyError",
    "located",
    "user_file",
    "user_location",
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


class CacheWarning(UserWarning):
    """The disk cache could not be used; compilation went on without it."""


_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


@functools.cache
def user_file(filename: str) -> bool:
    """Whether code of this file is the user's: neither tracegrad's nor NumPy's nor frozen."""
    inside_numpy = f"{os.sep}numpy{os.sep}" in filename and "site-packages" in filename
    return not filename.startswith((_PACKAGE, "<frozen")) and not inside_numpy


def user_location() -> str:
    """`file:line` of the innermost frame outside tracegrad and NumPy, or an empty string."""
    frame = sys._getframe(1)
    while frame is not None:
        if user_file(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""


def located(message: str, location: str = "") -> str:
    """`message` followed by the user's file and line."""
    location = location or user_location()
    return f"{message} ({location})" if location else message
