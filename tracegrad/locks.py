"""Locks that a forked child finds free, whatever other threads of its parent held.

Of a process that forks, only the thread that forks goes on in the child: what another thread holds there, nobody would
ever release. These locks are held while a function is traced and compiled, too long for a fork to wait for. What they
protect is changed by single operations, so a child that finds a trace half done finds none, and makes its own. A module
that is half imported nobody would complete either: a fork waits for tracegrad's, and for those that it imports late.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

__all__ = ["cached_property", "new_lock", "wait_for_imports"]

_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_PACKAGES = ("tracegrad.", "numpy.", "scipy.", "llvmlite.", "numba.")


def new_lock() -> Any:
    """A `threading.RLock`. A forked child has it as the thread that forked had it.

    >>> with new_lock() as held:
    ...     held
    True
    """
    lock: Any = threading.RLock()
    _locks.add(lock)
    return lock


if TYPE_CHECKING:
    from functools import cached_property
else:

    class cached_property(functools.cached_property):
        """Python's, which until Python 3.12 holds a lock, one for all instances, while a value is computed."""

        def __init__(self, func: Any) -> None:
            super().__init__(func)
            if hasattr(self, "lock"):
                self.lock = new_lock()


def _release_those_of_other_threads() -> None:
    for lock in _locks:
        if not lock._is_owned():
            lock._at_fork_reinit()


def wait_for_imports() -> None:
    """Wait until no other thread imports a module of these packages."""
    for name, module in list(sys.modules.items()):
        if name.startswith(_PACKAGES) and getattr(getattr(module, "__spec__", None), "_initializing", False):
            importlib.import_module(name)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_those_of_other_threads)
