"""Allocate offsets of buffers in the arena from their live intervals (static memory planning)."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tracegrad.target.cache_lines import BLOCK_OFFSET, LINE, PAGE
from tracegrad.target.tuning import TUNING

MAX_IMPROVED_BLOCKS = TUNING.memory.max_improved_blocks


class Arena:
    """A first-fit allocator of blocks with known live intervals; `improve` places the blocks again if there are gaps.

    Blocks of one size, a page or more, are consecutive, each `BLOCK_OFFSET` cache lines further into a page than the
    one before. At the same offset of a page all of them would share few cache sets. There is also a stall if a kernel
    stores a few lines ahead of its loads in another page: the CPU assumes that the next load reads the stored value (4K
    aliasing).
    """

    def __init__(self) -> None:
        self.top = 0
        self.names: list[Any] = []  # of all blocks, in allocation order
        self.allocated: dict[Any, tuple[int, int]] = {}
        self._intervals: list[tuple[int, int]] = []  # allocated intervals, sorted
        self._numbers: dict[Any, int] = {}  # of the allocated blocks
        self._lives: list[list[int]] = []  # size, and the first and the last moment, of each block
        self._clock = self._live = self._peak = 0

    def allocate(self, name: object, size: int) -> int:
        size = room_for(size)
        number = len(self._lives)
        self.names.append(name)
        offset = _first_fit(self._intervals, size)
        self.allocated[name] = (offset, offset + size)
        insort(self._intervals, self.allocated[name])
        self.top = max(self.top, offset + size)
        self._numbers[name] = number
        self._clock += 1
        self._lives.append([size, self._clock, 2**62])
        self._live += size
        self._peak = max(self._peak, self._live)
        return offset

    def free(self, name: object) -> None:
        interval = self.allocated.pop(name, None)
        if interval is not None:
            del self._intervals[bisect_left(self._intervals, interval)]
            self._live -= interval[1] - interval[0]
            self._clock += 1
            self._lives[self._numbers.pop(name)][2] = self._clock

    def free_all(self, names: Iterable[object]) -> None:
        """Free the blocks of these names that are allocated, in the order of their allocation."""
        for name in sorted([x for x in names if x in self.allocated], key=self._numbers.__getitem__):
            self.free(name)

    def improve(self) -> dict[Any, int]:
        """Place all blocks again if the arena becomes smaller; returns the new offsets by name, or an empty table.

        The arena cannot be smaller than the live bytes at one moment. If it is larger, the blocks are placed in other
        orders: the largest first, or the longest-lived first. Each gets the lowest offset that is free during its life.
        """
        if self.top == self._peak or len(self._lives) > MAX_IMPROVED_BLOCKS:
            return {}
        lives = [(size, first, min(last, self._clock + 1)) for size, first, last in self._lives]
        top, offsets = self.top, list[int]()
        for order in (lambda x: -x[0], lambda x: -x[0] * (x[2] - x[1]), lambda x: x[1] - x[2]):
            result = _placed(lives, order)
            if result[0] < top:
                top, offsets = result
            if top == self._peak:
                break
        self.top = top
        return dict(zip(self.names, offsets))


def room_for(size: int) -> int:
    """The bytes reserved for a block of this size: whole cache lines, so that the next block begins at the right
    offset."""
    lines = -(-max(size, 1) // LINE)
    step = PAGE if size >= 16 * PAGE else PAGE // 4  # for small blocks, a page would waste memory
    return LINE * (lines if size < PAGE else lines + (BLOCK_OFFSET - lines) % (step // LINE))


def _placed(lives: Sequence[tuple[int, int, int]], order: Callable[[Any], int]) -> tuple[int, list[int]]:
    """The size of the arena and the offsets of the blocks, if they are placed in this order."""
    offsets = [0] * len(lives)
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first and last moment, in order
    for number in sorted(range(len(lives)), key=lambda k: order(lives[k])):
        size, first, last = lives[number]
        offset = 0
        for low, high, a, b in placed:  # first fit among the blocks alive at the same time
            if high > offset and a < last and first < b:
                if offset + size <= low:
                    break
                offset = high
        offsets[number] = offset
        insort(placed, (offset, offset + size, first, last))
    return max(high for _, high, _, _ in placed), offsets


def _first_fit(intervals: Iterable[tuple[int, int]], size: int) -> int:
    """The lowest offset of a gap of this size between intervals sorted by their start."""
    offset = 0
    for begin, end in intervals:
        if offset + size <= begin:
            break
        if end > offset:
            offset = end
    return offset
