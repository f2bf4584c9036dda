"""How much Python memory something leaves behind each time that it is done."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable

__all__ = ["leaked_blocks"]


def leaked_blocks(action: Callable[[], object], runs: int = 2000) -> int:
    """Blocks of Python memory that so many runs of an action leave behind.

    A leak is one each time that it is looked for: the least of three counts is told. Other threads allocate too; that
    of pytest-xdist keeps the numbers of the tests to come, a block each, when some thousands arrive.
    """
    for _ in range(100):
        action()
    return min((_left_behind(action, runs) for _ in range(3)), key=abs)


def _left_behind(action: Callable[[], object], runs: int) -> int:
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(runs):
        action()
    gc.collect()
    return sys.getallocatedblocks() - before
