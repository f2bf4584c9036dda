"""What `for` loops over a `range` count with in traced code: the position can be seen, and become a traced number."""

from __future__ import annotations

import sys
from typing import Any
from weakref import WeakValueDictionary

from tracegrad.trace.builder import current_trace

__all__ = ["Counter", "counter_of", "counting"]


class Counter:
    """The iterator over a range, which is known by the frame and the instruction that asks it for the next number."""

    __slots__ = ("__weakref__", "at", "step", "stop")

    def __init__(self, numbers: range):
        self.at: Any = numbers.start
        self.stop, self.step = numbers.stop, numbers.step

    def __iter__(self) -> Counter:
        return self

    def __next__(self) -> Any:
        frame = sys._getframe(1)
        _COUNTERS[id(frame), frame.f_lasti] = self
        at = self.at
        if not (at < self.stop if self.step > 0 else at > self.stop):
            raise StopIteration
        self.at = at + self.step
        return at


# Those of loops under way: a loop that begins enters its own.
_COUNTERS: WeakValueDictionary[tuple[int, int], Counter] = WeakValueDictionary()


def counter_of(frame: Any, instruction: int) -> Counter | None:
    """What the loop counts with that this instruction of a frame begins the turns of."""
    return _COUNTERS.get((id(frame), instruction))


def counting(*args: Any) -> Any:
    """`range`, as `for` loops of traced code call it."""
    numbers = range(*args)
    return numbers if current_trace() is None else Counter(numbers)
