"""Pause Python's cyclic garbage collector during tracing and imports.

A trace makes many objects that live until it ends, so full collections cost time and find nothing. `patient` raises
the thresholds of the youngest and the oldest generation. Collections of young objects still run, because much
garbage of user code and of the compiler is young. The collector is shared by all threads, so the
module counts the threads that trace. The last one restores the thresholds of the user's process.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from weakref import WeakSet

from tracegrad.locks import reentrant_lock
from tracegrad.platform.processes import at_fork

# The raised thresholds of the oldest generation (collections) and of the youngest (objects).
_PATIENCE, _YOUNG = 1000, 20_000

Thresholds = tuple[int, int, int]


class _Within:
    """Weakly referenced marker of a thread inside a context; it disappears with the context, even after an
    interrupt."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()


class _ThresholdState:
    """Collector thresholds shared by the threads of this process."""

    def __init__(self) -> None:
        self.lock = reentrant_lock()
        self.patient: WeakSet[_Within] = WeakSet()
        self.impatient: WeakSet[_Within] = WeakSet()
        self.before: Thresholds = gc.get_threshold()
        self.applied: Thresholds = self.before

    @contextmanager
    def within(self, threads: WeakSet[_Within]) -> Iterator[None]:
        """Register this thread for the duration of the block."""
        one = _Within()
        try:
            self._change(lambda: threads.add(one))
            yield
        finally:
            self._change(lambda: threads.discard(one))

    def forked(self) -> None:
        """Forget the other threads in a forked child."""
        thread = threading.get_ident()
        for threads in (self.patient, self.impatient):
            for one in list(threads):
                if one.thread != thread:
                    self._change(partial(threads.discard, one))
        self.lock.release()

    def _change(self, change: Callable[[], None]) -> None:
        """Apply a change and update the thresholds; thresholds that user code has set in the meantime become the
        base."""
        with self.lock:
            result = gc.get_threshold()
            if not self.patient and result != self.applied:
                self.before = self.applied = result
            change()
            if result == self.applied:
                self.applied = self._wanted()
                gc.set_threshold(*self.applied)

    def _wanted(self) -> Thresholds:
        young, middle, old = self.before
        if not self.patient:
            return self.before
        if young and not self.impatient:  # 0 disables collection
            young = max(young, _YOUNG)
        return (young, middle, max(old, _PATIENCE))


_share = _ThresholdState()


def patient() -> AbstractContextManager[None]:
    """Raise the thresholds while long-lived objects are made (context manager); user settings made inside persist."""
    return _share.within(_share.patient)


def impatient() -> AbstractContextManager[None]:
    """Restore the usual collection of young objects inside `patient`, while short-lived objects are made."""
    return _share.within(_share.impatient)


@contextmanager
def at_rest() -> Iterator[None]:
    """Disable collection during imports, whose objects all live on, and move the objects to the oldest generation,
    unless user code uses `gc.freeze`.

    >>> with at_rest():
    ...     gc.isenabled()
    False
    >>> gc.isenabled()
    True
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if gc.get_freeze_count() == 0:
            gc.freeze()
            gc.unfreeze()
        gc.enable()


def thresholds() -> Thresholds:
    """`gc.get_threshold()` as set by the user's process.

    >>> with patient():
    ...     thresholds() == gc.get_threshold()
    False
    >>> thresholds() == gc.get_threshold()
    True
    """
    now = gc.get_threshold()
    return _share.before if now == _share.applied else now


at_fork(_share.lock.acquire, _share.lock.release, _share.forked)
