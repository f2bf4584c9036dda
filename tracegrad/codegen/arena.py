"""Places for blocks of memory whose lives are known."""

from __future__ import annotations

from typing import Any

__all__ = ["Arena"]


class Arena:
    """First-fit placement of blocks whose lives are known."""

    def __init__(self) -> None:
        self.top = 0
        self.taken: dict[Any, tuple[int, int]] = {}

    def take(self, name: Any, size: int) -> int:
        size = -(-max(size, 1) // 64) * 64
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
