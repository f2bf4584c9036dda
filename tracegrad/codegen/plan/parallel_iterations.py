"""Loops whose turns threads share: turns that carry nothing, or only counters, whose values are known beforehand.

Each thread runs some of the turns, and writes the rows of these; so bits do not depend on who ran which. A thread takes
memory for temporary values that no other one is using: see `tracegrad.codegen.program.region_function`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracegrad.codegen.loopir.polynomial import Poly
from tracegrad.codegen.loopir.steps import Launch, Matmul
from tracegrad.ir import Node
from tracegrad.ops.elementwise.table import add
from tracegrad.utils.lazy_dataclass import record

if TYPE_CHECKING:
    from tracegrad.codegen.plan.planner import Plan

__all__ = ["PARALLEL_COST", "Turns", "turns_of", "turns_of_share"]

PARALLEL_COST = 200_000  # below this a loop, or a kernel, runs in the calling thread: some 50 microseconds
SHARE_COST = 131_072  # of the turns that a thread runs at a time: some 30 microseconds
MOST_SHARES = 64
ROOM = 2**26  # bytes of temporary values, for all threads


@record(frozen=True)
class Turns:
    """That threads may share the turns of a body: what each carry grows by, and whether the body is worth it wherever
    it stands, for its arrays have sizes that are not known to be small."""

    counters: dict[int, int]
    wide: bool

    def __str__(self) -> str:
        notes = [f"carry {k} grows by {n}" for k, n in self.counters.items()] + ["wide"] * self.wide
        return f" ({', '.join(notes)})" if notes else ""


def turns_of(body: Plan) -> Turns | None:
    """How threads share the turns of this body of a loop, or None."""
    graph = body.graph
    growths = {k: _growth(graph.inputs[k], graph.outputs[k]) for k in range(body.carries)}
    counters = {k: n for k, n in growths.items() if n is not None}
    # A call of NumPy would wait for the lock that is held by the thread that waits for all turns.
    calls = any(name.rpartition("/")[2] == "callback" for name in body.values)
    return None if calls or len(counters) < len(growths) else Turns(counters, _is_wide(body))


def _growth(before: Node, after: Node) -> int | None:
    """The whole number by which a carry grows in each turn, if it does."""
    if after.op is not add or before not in after.inputs or before.aval.shape or before.aval.dtype != "int64":
        return None
    steps = [x for x in after.inputs if type(x) is int]
    return steps[0] if steps else None


def _is_wide(made: Plan) -> bool:
    """Whether a step of a plan, or of its regions, is over arrays whose sizes are not known to be small."""
    sizes: list[Poly] = []
    for step in made.steps:
        if isinstance(step, Launch):
            sizes += [loop.extent for loop in step.kernel.loops]
        elif isinstance(step, Matmul):
            sizes += step.sizes
        elif any(_is_wide(region) for region in getattr(step, "regions", {}).values()):
            return True
    return any(size.value is None for size in sizes)


def turns_of_share(length: int, cost: int, room: int) -> int:
    """How many of `length` turns of this cost a thread runs at a time; `room` is the memory for one, in bytes.

    >>> turns_of_share(1000, 100, 0), turns_of_share(1000, 1000, 0), turns_of_share(1000, 10**6, 0)
    (1000, 131, 16)
    """
    if length * cost < PARALLEL_COST:
        return max(length, 1)
    most = max(1, min(MOST_SHARES, ROOM // max(room, 1)))
    return max(SHARE_COST // max(cost, 1), -(-length // most), 1)
