"""Threads of compiled code: whether the C library has POSIX threads, their CPUs, and its clock."""

from __future__ import annotations

import sys

_CLOCK_MONOTONIC = {"darwin": 6}  # Apple's <time.h>; 1 for Linux and Android


def has_posix_threads() -> bool:
    """Whether compiled code can call `pthread_create`, `sched_yield` and `clock_gettime`.

    Microsoft's C library has none of them.
    """
    return sys.platform != "win32"


def has_cpu_sets() -> bool:
    """Whether compiled code can call `sched_getcpu` and `pthread_setaffinity_np`: with glibc and musl, not on macOS."""
    return sys.platform == "linux"


def monotonic_clock() -> int | None:
    """The number of the monotonic clock for `clock_gettime`; None if there is no such function.

    >>> import time
    >>> monotonic_clock() == getattr(time, "CLOCK_MONOTONIC", None)
    True
    """
    return _CLOCK_MONOTONIC.get(sys.platform, 1) if has_posix_threads() else None
