"""Places for blocks of memory whose lives are known."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tracegrad.codegen.target.cache_lines import LINE, PAGE, STEP

__all__ = ["Arena", "room_for"]

MOST_BLOCKS = 400  # beyond, a better placement is not looked for: that takes longer the more there are, squared


class Arena:
    """First-fit placement of blocks whose lives are known, and where that leaves gaps, a better one afterwards.

    Blocks of one size, a page or more, lie one behind the other, each `STEP` lines further into a page than the one
    before. At the same place of a page all of them would share a small part of the cache. And where a kernel writes a
    few lines ahead of where it reads, in another page, the processor takes what it reads next for what it has just
    written, and waits.
    """

    def __init__(self) -> None:
        self.top = 0
        self.names: list[Any] = []  # of all blocks, in the order in which they were taken
        self.taken: dict[Any, tuple[int, int]] = {}
        self._places: list[tuple[int, int]] = []  # those that are taken, in order
        self._numbers: dict[Any, int] = {}  # of the blocks that are taken
        self._lives: list[list[int]] = []  # size, and the first and the last moment, of each block
        self._moment = self._live = self._most = 0

    def take(self, name: Any, size: int) -> int:
        size = room_for(size)
        number = len(self._lives)
        self.names.append(name)
        offset = _first_fit(self._places, size)
        self.taken[name] = (offset, offset + size)
        insort(self._places, self.taken[name])
        self.top = max(self.top, offset + size)
        self._numbers[name] = number
        self._moment += 1
        self._lives.append([size, self._moment, 2**62])
        self._live += size
        self._most = max(self._most, self._live)
        return offset

    def give(self, name: Any) -> None:
        place = self.taken.pop(name, None)
        if place is not None:
            del self._places[bisect_left(self._places, place)]
            self._live -= place[1] - place[0]
            self._moment += 1
            self._lives[self._numbers.pop(name)][2] = self._moment

    def give_all(self, names: Iterable[Any]) -> None:
        """Give those of these back that are taken, in the order in which they were."""
        for name in sorted([x for x in names if x in self.taken], key=self._numbers.__getitem__):
            self.give(name)

    def improve(self) -> dict[Any, int]:
        """The places of all blocks that were taken, by their names, by which the arena is smaller, which it is then;
        none if none are found.

        No arena is smaller than what lives at one moment. Where this one is larger, the largest blocks get their places
        first, or those that live longest, each as low as the others allow that live at the same time."""
        if self.top == self._most or len(self._lives) > MOST_BLOCKS:
            return {}
        lives = [(size, first, min(last, self._moment + 1)) for size, first, last in self._lives]
        top, offsets = self.top, list[int]()
        for order in (lambda x: -x[0], lambda x: -x[0] * (x[2] - x[1]), lambda x: x[1] - x[2]):
            found = _placed(lives, order)
            if found[0] < top:
                top, offsets = found
            if top == self._most:
                break
        self.top = top
        return dict(zip(self.names, offsets))


def room_for(size: int) -> int:
    """The bytes that a block of this size takes: whole lines, so many that the next block begins where it should."""
    lines = -(-max(size, 1) // LINE)
    step = PAGE if size >= 16 * PAGE else PAGE // 4  # of small blocks, that would leave too much unused
    return LINE * (lines if size < PAGE else lines + (STEP - lines) % (step // LINE))


def _placed(lives: Sequence[tuple[int, int, int]], order: Callable[[Any], int]) -> tuple[int, list[int]]:
    """The size of the arena in which blocks have got their places in this order, and their offsets."""
    offsets = [0] * len(lives)
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first and last moment, in order
    for number in sorted(range(len(lives)), key=lambda k: order(lives[k])):
        size, first, last = lives[number]
        offset = 0
        for low, high, a, b in placed:  # as `_first_fit` does, of those that live at the same time
            if high > offset and a < last and first < b:
                if offset + size <= low:
                    break
                offset = high
        offsets[number] = offset
        insort(placed, (offset, offset + size, first, last))
    return max(high for _, high, _, _ in placed), offsets


def _first_fit(taken: Iterable[tuple[int, int]], size: int) -> int:
    """The lowest offset of a gap of this size between intervals that are sorted by where they begin."""
    offset = 0
    for begin, end in taken:
        if offset + size <= begin:
            break
        if end > offset:
            offset = end
    return offset
