"""Python's garbage collector while a trace is made, and while modules are imported.

A trace makes hundreds of thousands of objects that all live until it ends. Python looks through all that lives each
time it has grown by a quarter, which is a third of the time of a large trace, and finds nothing. So it is to do that a
hundred times less often. Young objects, among which is the garbage of the user's code, it looks through when there are
some thousands of them: most of what a trace and a plan are made of is gone by then.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["at_rest", "impatient", "patient", "thresholds"]

_PATIENCE, _YOUNG = 1000, 20_000

Thresholds = tuple[int, int, int]


class _Usual:
    """The thresholds that the user's process has, and what they are in the meantime."""

    before: Thresholds = (0, 0, 0)
    now: Thresholds | None = None
    between: Thresholds | None = None


@contextmanager
def patient() -> Iterator[None]:
    """While objects are made that live on; what the user's code sets in the meantime stays."""
    before = gc.get_threshold()
    now = (before[0] and max(before[0], _YOUNG), before[1], _PATIENCE)  # 0: never
    if before[2] >= _PATIENCE:  # another trace is under way, or the user wants it so
        yield
        return
    try:
        _Usual.before, _Usual.now = before, now
        gc.set_threshold(*now)
        yield
    finally:
        if gc.get_threshold() == now:
            gc.set_threshold(*before)


@contextmanager
def impatient() -> Iterator[None]:
    """While objects are made that are garbage at the end, within `patient`: young ones are looked through as usual."""
    before = gc.get_threshold()
    if before != _Usual.now:
        yield
        return
    now = _Usual.between = (*_Usual.before[:2], _PATIENCE)
    gc.set_threshold(*now)
    try:
        yield
    finally:
        if gc.get_threshold() == now:
            gc.set_threshold(*before)


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
    return _Usual.before if now in (_Usual.now, _Usual.between) else now
