"""Run scan iterations in parallel when the only loop-carried values are induction variables (DOALL).

Each thread runs some iterations and writes their rows, so bits do not depend on the number of threads. A thread takes
temporary memory that no other thread uses: see `tracegrad.codegen.program.region_function`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracegrad.codegen.loopir.polynomial import Poly
from tracegrad.codegen.loopir.steps import Launch, Matmul
from tracegrad.ir import GraphNode
from tracegrad.ops.elementwise.table import add
from tracegrad.settings import disabled
from tracegrad.target.tuning import TUNING
from tracegrad.utils.lazy_dataclass import record

if TYPE_CHECKING:
    from tracegrad.codegen.plan.program_plan import Plan

PARALLEL_COST = TUNING.threads.min_parallel_cost
SHARE_COST = TUNING.threads.share_cost
MAX_SHARES = TUNING.threads.max_shares
ROOM = TUNING.threads.max_iteration_bytes


@record(frozen=True)
class ParallelIterations:
    """A parallel loop body: the increment of each carry, and whether its arrays have symbolic sizes. Threads may run a
    loop over arrays of symbolic sizes also inside another loop."""

    counters: dict[int, int]
    symbolic_sizes: bool

    def __str__(self) -> str:
        notes = [f"carry {k} grows by {n}" for k, n in self.counters.items()] + ["wide"] * self.symbolic_sizes
        return f" ({', '.join(notes)})" if notes else ""


def iterations_of(body: Plan) -> ParallelIterations | None:
    """The parallelization of a loop body, or None if its iterations depend on each other."""
    if disabled("parallel-iterations"):
        return None
    graph = body.graph
    growths = {k: _growth(graph.inputs[k], graph.outputs[k]) for k in range(body.carries)}
    counters = {k: n for k, n in growths.items() if n is not None}
    # A call of NumPy would wait for the GIL, held by the thread that waits for all iterations.
    has_callbacks = any(name.field == "callback" for name in body.values)
    return (
        None
        if has_callbacks or len(counters) < len(growths)
        else ParallelIterations(counters, _has_symbolic_sizes(body))
    )


def _growth(before: GraphNode, after: GraphNode) -> int | None:
    """The integer by which a carry grows in each iteration, or None (induction variable)."""
    if after.op is not add or before not in after.inputs or before.aval.shape or before.aval.dtype != "int64":
        return None
    increments = [x for x in after.inputs if type(x) is int]
    return increments[0] if increments else None


def _has_symbolic_sizes(plan: Plan) -> bool:
    """Whether a step of a plan, or of its regions, has arrays of symbolic sizes."""
    sizes: list[Poly] = []
    for step in plan.steps:
        if isinstance(step, Launch):
            sizes += [loop.extent for loop in step.kernel.loops]
        elif isinstance(step, Matmul):
            sizes += step.sizes
        elif any(_has_symbolic_sizes(region) for region in getattr(step, "regions", {}).values()):
            return True
    return any(size.value is None for size in sizes)


def iterations_of_share(length: int, cost: int, room: int) -> int:
    """The number of `length` iterations of this cost that a thread runs at a time; `room` is the memory of one share,
    in bytes.

    >>> iterations_of_share(1000, 100, 0), iterations_of_share(1000, 1000, 0), iterations_of_share(1000, 10**6, 0)
    (1000, 131, 16)
    """
    if length * cost < PARALLEL_COST:
        return max(length, 1)
    max_shares = max(1, min(MAX_SHARES, ROOM // max(room, 1)))
    return max(SHARE_COST // max(cost, 1), -(-length // max_shares), 1)
