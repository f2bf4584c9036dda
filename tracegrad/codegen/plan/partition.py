"""Partition the chunked loop of a kernel into chunks for the thread pool (grain size).

The partition depends on the sizes alone, so bits do not depend on the number of threads. A chunk is some iterations of
one loop: the outermost, or the innermost if all results reduce over the outermost and rows are long.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tracegrad.avals import dtype_named
from tracegrad.codegen.kernels.loop_order import is_serial
from tracegrad.codegen.kernels.transpose_tiling import tiles_of
from tracegrad.codegen.libs.linear_algebra import is_native
from tracegrad.codegen.libs.sorting import is_ordering
from tracegrad.codegen.loopir.kernel import Kernel, Reduce
from tracegrad.codegen.loopir.steps import Call, Launch, Matmul
from tracegrad.codegen.plan.parallel_iterations import PARALLEL_COST
from tracegrad.codegen.plan.region_steps import Nested
from tracegrad.codegen.plan.strip_fusion import Band
from tracegrad.settings import disabled

if TYPE_CHECKING:
    from tracegrad.codegen.plan.planner import Plan

__all__ = ["chunked_loop", "cut"]

CHUNK_COST = 131072  # cost units of one chunk
MOST_CHUNKS = 64  # maximum chunks of a kernel that reduces across chunks
MOST_PARTIAL = 16  # the same, if the partial results are long
LEAST_ELEMENTS = 4096  # minimum elements of a chunk: in smaller ones, prefetches hit lines of other threads
FEW_ROWS = 512  # minimum rows of a reduction across chunks: with fewer, partial results are too large in comparison
LONGEST_ROW = 1 << 15  # maximum elements of a partial result per chunk
LONG_ROW = 4096  # minimum elements of a row that is partitioned
RUN = 1 << 14  # minimum bytes of a part of a row, if there are four: shorter runs are not prefetched
TOGETHER = 8  # rows of one thread that share loads


def chunked_loop(kernel: Kernel, sizes: dict[str, int]) -> int:
    """The number of the loop to partition. It is the outermost loop by default. It is the innermost if all results
    reduce over the outermost, none over a long innermost, and partial results are large compared with the loads; or if
    there are fewer rows than tiles for several threads."""
    last = len(kernel.loops) - 1
    reductions = [x for x in kernel.body if isinstance(x, Reduce)]
    if last < 1 or is_serial(kernel):
        return 0
    outer, inner = kernel.loops[0].var, kernel.loops[last].var
    rows, columns = (kernel.loops[i].extent.evaluate(sizes) for i in (0, last))
    if not reductions:
        return last if columns >= LONG_ROW and rows < 4 * _together(kernel) > 4 else 0
    if any(outer not in x.over or inner in x.over for x in reductions):
        return 0
    return last if columns >= LONG_ROW and (rows < FEW_ROWS or columns > LONGEST_ROW) else 0


def cut(plan: Plan) -> None:
    """Partition every kernel into chunks, and initialize the accumulators that chunks share."""
    sizes = plan.arguments.sizes
    for i, step in enumerate(plan.steps):
        if isinstance(step, Matmul):
            plan.cost += 2 * math.prod(p.evaluate(sizes) for p in step.sizes) // 16
        elif isinstance(step, Nested):
            plan.cost += step.cost()
        elif isinstance(step, Call) and (is_native(step.node) or is_ordering(step.node)):
            plan.cost += 8 * sum([x.aval.size for x in step.node.operands])
        elif isinstance(step, Launch):
            plan.cost += _cut_kernel(step, sizes)
            plan.fills[i] = step.fills
    for band in plan.bands:
        _cut_band(plan, band)


def _cut_kernel(step: Launch, sizes: dict[str, int]) -> int:
    """Partition a kernel into chunks; returns its cost."""
    kernel = step.kernel
    extents = [loop.extent.evaluate(sizes) for loop in kernel.loops] or [1]
    rows = extents.pop(kernel.chunked)
    row_cost = max(1, math.prod(extents) * max(kernel.cost, 1))
    cost = rows * row_cost
    if step.serial or not kernel.loops:
        step.rows = rows
    else:
        step.rows = _rows_of_chunk(math.prod(extents), row_cost)
        if step.partials:
            step.rows = max(step.rows, _fewest_rows(rows, [step], sizes))
        if kernel.chunked:
            wide = max(dtype_named(dtype).itemsize for dtype, _ in kernel.buffers.values())
            step.rows = max(step.rows, min(RUN // wide, -(-rows // 4)))
        elif rows >= 4 * (together := _together(kernel)):
            step.rows = -(-step.rows // together) * together
    step.chunks = max(1, -(-rows // step.rows)) if rows else 1
    step.parallel = step.chunks > 1 and cost >= PARALLEL_COST and not disabled("parallel-kernels")
    return cost + (step.bytes.evaluate(sizes) // 16 if step.copies else 0)


def _together(kernel: Kernel) -> int:
    """The number of rows that one thread should run together."""
    if Reduce in map(type, kernel.body):
        return TOGETHER
    tiles = tiles_of(kernel)
    return tiles.rows if tiles is not None and len(kernel.loops) == 2 else 1


def _rows_of_chunk(elements: int, cost: int) -> int:
    """The number of rows of a chunk, given the elements and the cost of a row."""
    enough = -(-LEAST_ELEMENTS // max(elements, 1))
    return max(CHUNK_COST // cost, min(enough, 16 * CHUNK_COST // cost), 1)


def _fewest_rows(rows: int, steps: list[Launch], sizes: dict[str, int]) -> int:
    """The minimum rows of a chunk that leaves partial results."""
    longest = max([sum(size.evaluate(sizes) for size in step.partials.values()) for step in steps])
    return -(-rows // (MOST_CHUNKS if longest < 64 else MOST_PARTIAL))


def _cut_band(plan: Plan, band: Band) -> None:
    """Partition the rows of a band into chunks of some strips, the same for all of its steps."""
    sizes = plan.arguments.sizes
    steps = [step for i in band.steps if isinstance(step := plan.steps[i], Launch)]
    counts = [math.prod(x.extent.evaluate(sizes) for x in step.kernel.loops) for step in steps]
    cost = sum([n * max(step.kernel.cost, 1) for n, step in zip(counts, steps)])
    rows = _rows_of_chunk(max(counts) // band.rows, -(-cost // band.rows))
    if any(step.partials for step in steps):
        rows = max(rows, _fewest_rows(band.rows, steps, sizes))
    rows = max(-(-rows // band.strip), 1) * band.strip
    for step, unit in zip(steps, band.units):
        step.rows, step.chunks = rows * unit, -(-band.rows // rows)
        step.parallel = step.chunks > 1 and cost >= PARALLEL_COST and not disabled("parallel-kernels")
