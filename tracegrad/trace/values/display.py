"""Display traced values to people (logging, debuggers, tracebacks) without leaving guards."""

from __future__ import annotations

from typing import Any

from tracegrad.cpython.frames import frame_at

# Modules that display values: loggers, debuggers, tracebacks, test frameworks.
_WATCHERS = frozenset({"logging", "pdb", "bdb", "ipdb", "IPython", "pydevd", "_pydevd_bundle", "traceback", "_pytest"})


def is_watched() -> bool:
    """Whether a logger, debugger, traceback or test framework is the caller."""
    frame: Any = frame_at(2)
    # `dict.get` is used because the globals of traced code record reads.
    while frame is not None and (name := dict.get(frame.f_globals, "__name__", "")).startswith("tracegrad."):
        frame = frame.f_back
    return frame is not None and name.partition(".")[0] in _WATCHERS


class UnknownText(str):
    """Text of an unknown value: in a region, or after the end of the trace."""

    __slots__ = ()
    __repr__ = str.__str__
