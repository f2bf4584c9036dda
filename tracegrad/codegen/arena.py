"""Places for blocks of memory whose lives are known."""

from __future__ import annotations

from typing import Any

__all__ = ["Arena"]

LINE, PAGE = 64, 4096


class Arena:
    """First-fit placement of blocks whose lives are known.

    Blocks of a page or more have an odd number of lines of the cache. Of blocks of one size, which lie one behind the
    other, no two then begin at the same place of a page: they would share a small part of the cache, and a kernel that
    reads one behind where it writes another would wait for that.
    """

    def __init__(self) -> None:
        self.top = 0
        self.taken: dict[Any, tuple[int, int]] = {}

    def take(self, name: Any, size: int) -> int:
        lines = -(-max(size, 1) // LINE)
        size = LINE * (lines if size < PAGE else lines | 1)
        offset = 0
        for begin, end in sorted(self.taken.values()):
            if offset + size <= begin:
                break
            offset = max(offset, end)
        self.taken[name] = (offset, offset + size)
        self.top = max(self.top, offset + size)
        return offset

    def give(self, name: Any) -> None:
        self.taken.pop(name, None)
