"""Python's garbage collector while a trace is made, and while modules are imported.

A trace makes hundreds of thousands of objects that all live until it ends. Python looks through all that lives each
time it has grown by a quarter, which is a third of the time of a large trace, and finds nothing. So it is to do that a
hundred times less often. Young objects, among which is the garbage of the user's code, it looks through when there are
some thousands of them: most of what a trace and a plan are made of is gone by then. The collector is one for all
threads, so they are counted: the last to end its trace gives back what the user's process had.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from weakref import WeakSet

__all__ = ["at_rest", "impatient", "patient", "thresholds"]

_PATIENCE, _YOUNG = 1000, 20_000

Thresholds = tuple[int, int, int]


class _Within:
    """A thread within one of the contexts. It is gone with the context, also where an interrupt came as that ended."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()


class _Share:
    """What the threads of this process want of the one collector that they have."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.patient: WeakSet[_Within] = WeakSet()
        self.impatient: WeakSet[_Within] = WeakSet()
        self.before: Thresholds = gc.get_threshold()
        self.ours: Thresholds = self.before

    @contextmanager
    def within(self, those: WeakSet[_Within]) -> Iterator[None]:
        """While this thread is one of those."""
        one = _Within()
        try:
            self._change(lambda: those.add(one))
            yield
        finally:
            self._change(lambda: those.discard(one))

    def forked(self) -> None:
        """In a new process, which has one thread of all."""
        thread = threading.get_ident()
        for those in (self.patient, self.impatient):
            for one in list(those):
                if one.thread != thread:
                    self._change(partial(those.discard, one))
        self.lock.release()

    def _change(self, change: Callable[[], None]) -> None:
        """What the user's code has set in the meantime stays until no thread is patient."""
        with self.lock:
            found = gc.get_threshold()
            if not self.patient and found != self.ours:
                self.before = self.ours = found
            change()
            if found == self.ours:
                self.ours = self._wanted()
                gc.set_threshold(*self.ours)

    def _wanted(self) -> Thresholds:
        young, middle, old = self.before
        if not self.patient:
            return self.before
        if young and not self.impatient:  # 0: never
            young = max(young, _YOUNG)
        return (young, middle, max(old, _PATIENCE))


_share = _Share()


def patient() -> AbstractContextManager[None]:
    """While objects are made that live on; what the user's code sets in the meantime stays."""
    return _share.within(_share.patient)


def impatient() -> AbstractContextManager[None]:
    """While objects are made that are garbage at the end, within `patient`: young ones are looked through as usual."""
    return _share.within(_share.impatient)


@contextmanager
def at_rest() -> Iterator[None]:
    """While modules are imported, all of whose objects live on: Python looks through none of them, and takes them for
    old from then on, unless the user keeps objects aside by `gc.freeze`.

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
    """`gc.get_threshold()` as the user's process has it.

    >>> with patient():
    ...     thresholds() == gc.get_threshold()
    False
    >>> thresholds() == gc.get_threshold()
    True
    """
    now = gc.get_threshold()
    return _share.before if now == _share.ours else now


if hasattr(os, "register_at_fork"):
    _lock = _share.lock
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_share.forked)
