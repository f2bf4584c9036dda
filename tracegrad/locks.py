"""Fork-safe locks: locks that are free in a forked child, whatever other threads of its parent held.

A forked child runs only the thread that forked, so nothing would release a lock that another thread holds. These locks
are held while a function is traced and compiled, too long for a fork to wait. Single operations change the data that
they protect, so a child finds no half-done trace, and makes its own. A half-done import would never complete in the
child; a fork therefore waits for the imports of tracegrad, and for its late imports.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
import time
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tracegrad.cpython.instruction_set import ENTERS_BLOCKS_AT_ONCE
from tracegrad.cpython.module_locks import modules_being_imported, pause_imports, resume_imports
from tracegrad.platform.processes import at_fork

__all__ = ["cached_property", "new_lock", "reentrant_lock", "wait_for_imports"]

_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_PACKAGES = ("tracegrad.", "numpy.", "scipy.", "llvmlite.", "numba.")


_RLock: Any = type(threading.RLock())


class _SignalSafeLock(_RLock):  # type: ignore[misc]  # final for type checkers
    """Lock that an exception of a signal handler does not leave held between `__enter__` and the block."""

    def __enter__(self) -> bool:
        before = self._recursion_count()
        try:
            return bool(self.acquire())
        except BaseException:
            if self._recursion_count() > before:
                self.release()
            raise


def reentrant_lock() -> threading.RLock:
    """Make a reentrant lock for `with` statements."""
    lock: threading.RLock = threading.RLock() if ENTERS_BLOCKS_AT_ONCE else _SignalSafeLock()
    return lock


def new_lock() -> AbstractContextManager[object]:
    """Make a reentrant lock whose state in a forked child is that of the forking thread.

    >>> with new_lock() as held:
    ...     held
    True
    """
    lock = reentrant_lock()
    _locks.add(lock)
    return lock


if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from functools import cached_property
else:

    class cached_property(functools.cached_property):
        """`functools.cached_property` whose lock, which Python has until 3.11, is free in a forked child."""

        def __init__(self, func: Any) -> None:
            super().__init__(func)
            if hasattr(self, "lock"):
                self.lock = new_lock()


def _reinit_foreign_locks() -> None:
    for lock in _locks:
        if not lock._is_owned():
            lock._at_fork_reinit()


def _of_packages(names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(_PACKAGES)]


def wait_for_imports() -> None:
    """Wait until no other thread imports a module of these packages."""
    for name in _of_packages(modules_being_imported()):
        if name in sys.modules:
            importlib.import_module(name)


def _wait_for_late_imports() -> None:
    """Wait for imports that began while this fork waited for the locks that it now holds.

    An import that itself needs one of these locks would wait for ever, so the fork waits for at most a second. Imports
    do not pause any longer than this looks at them: the fork may yet wait for locks of others, such as that of logging,
    and the thread that holds one of these may import.
    """
    deadline = time.monotonic() + 1.0
    while _are_late() and time.monotonic() < deadline:
        time.sleep(1e-4)


def _are_late() -> bool:
    pause_imports()  # a thread that is about to hold the lock of a module holds it first
    try:
        return bool(_of_packages(modules_being_imported()))
    finally:
        resume_imports()


at_fork(before=_wait_for_late_imports, in_child=_reinit_foreign_locks)  # registered first: our last before a fork
