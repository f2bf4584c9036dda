"""Cut a loop into blocks: their size, their number, and whether threads share them (loop blocking).

The chunks of a kernel, the strips of fused kernels and the blocks of a loop body have one record and one cost rule. All
sizes are run-time values, which depend on the sizes of the problem and never on the number of threads.
"""

from __future__ import annotations

from dataclasses import field
from typing import NamedTuple

from tracegrad.target.tuning import TUNING
from tracegrad.utils.lazy_dataclass import record

PARALLEL_COST = TUNING.threads.min_parallel_cost
SHARE_COST = TUNING.threads.share_cost
MAX_SHARES = TUNING.threads.max_shares
ROOM = TUNING.threads.max_iteration_bytes

# The strategies for the iterations of a loop, in order of preference.
STRIPS = "strips"  # all iterations on one strip of rows, then on the next
WAVEFRONTS = "wavefronts"  # several iterations on nearby rows, in skewed order
SHARES = "shares"  # threads share the iterations


class LoopBlocks(NamedTuple):
    """A loop in `number` blocks of `size` iterations, which threads share if it is `parallel`."""

    size: int = 0
    number: int = 1
    parallel: bool = False


def cut(extent: int, size: int, cost: int, threads: bool = True) -> LoopBlocks:
    """Cut a loop of `extent` iterations, which cost `cost` together, into blocks of `size`.

    >>> cut(10, 4, 100), cut(10, 4, 10**9), cut(0, 4, 10**9).number
    (LoopBlocks(size=4, number=3, parallel=False), LoopBlocks(size=4, number=3, parallel=True), 1)
    """
    number = -(-extent // size) if extent else 1
    return LoopBlocks(size, number, threads and number > 1 and cost >= PARALLEL_COST)


def block_size(budget: int, each: int, *minimums: int) -> int:
    """The iterations of a block: those that fit a `budget` of bytes or cost, of which one takes `each`, but no fewer
    than 1 and the `minimums`.

    >>> block_size(1000, 10), block_size(1000, 10, 7, 200), block_size(1000, 5000)
    (100, 200, 1)
    """
    return max(budget // max(each, 1), *minimums, 1)


@record(frozen=True)
class IterationBlocking:
    """How the iterations of a loop body are blocked: by a strategy, or one after the other ("").

    Strips, and the chunks of wavefronts, are blocks of `size` of the `rows` of the arrays, which cost `cost` in one
    iteration. A wavefront has `depth` iterations (1 if wavefronts are not profitable). Shares are blocks of iterations,
    whose number is no property of the body: `counters` has the increments of its carries. Threads may share a loop over
    arrays of symbolic sizes also inside another loop. `reasons` says why each preferred strategy is illegal.
    """

    strategy: str = ""
    rows: int = 0
    size: int = 1
    cost: int = 0
    depth: int = 1
    counters: dict[int, int] = field(default_factory=dict)
    symbolic_sizes: bool = False
    reasons: dict[str, str] = field(default_factory=dict, compare=False)

    def blocks(self, length: int, cost: int, room: int) -> LoopBlocks:
        """The blocks of a loop of `length` iterations, each with this cost and `room` bytes of temporaries."""
        if self.strategy != SHARES:
            return cut(self.rows, self.size, length * self.cost)
        max_shares = max(1, min(MAX_SHARES, ROOM // max(room, 1)))
        is_cheap = length * cost < PARALLEL_COST
        size = max(length, 1) if is_cheap else block_size(SHARE_COST, cost, -(-length // max_shares))
        return cut(length, size, length * cost)

    @property
    def value_names(self) -> tuple[str, str, str]:
        """The names of three run-time values: the extent of the blocked loop, the size and the number of blocks."""
        return _VALUE_NAMES[self.strategy]

    def __str__(self) -> str:
        """Describe the carries, and the sizes, of a loop that threads share."""
        notes = [f"carry {k} grows by {n}" for k, n in self.counters.items()] + ["wide"] * self.symbolic_sizes
        return f" ({', '.join(notes)})" if notes else ""


_VALUE_NAMES = {
    STRIPS: ("rows", "strip", "strips"),
    WAVEFRONTS: ("rows", "chunk", "chunks"),
    SHARES: ("length", "share", "shares"),
}
SERIAL = IterationBlocking()
