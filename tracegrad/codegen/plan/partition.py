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
from tracegrad.codegen.loopir.blocking import block_size, cut
from tracegrad.codegen.loopir.kernel import Kernel, Reduce
from tracegrad.codegen.loopir.steps import CallStep, Launch, Matmul
from tracegrad.codegen.plan.region_steps import Nested
from tracegrad.codegen.plan.strip_fusion import StripFusion
from tracegrad.settings import disabled
from tracegrad.target.tuning import TUNING

if TYPE_CHECKING:
    from tracegrad.codegen.plan.program_plan import Plan

CHUNK_COST = TUNING.threads.chunk_cost
MAX_REDUCED_CHUNKS = TUNING.threads.max_reduced_chunks
MAX_LONG_CHUNKS = TUNING.threads.max_long_reduced_chunks
LEAST_ELEMENTS = TUNING.threads.min_chunk_elements
MIN_REDUCED_ROWS = TUNING.threads.min_reduced_rows
MAX_PARTIAL_ELEMENTS = TUNING.threads.max_partial_elements
MIN_SPLIT_ROW = TUNING.threads.min_split_row
RUN = TUNING.threads.min_run_bytes
TOGETHER = TUNING.threads.shared_load_rows


def chunked_loop(kernel: Kernel, sizes: dict[str, int]) -> int:
    """The number of the loop to partition: the outermost loop by default. It is a long innermost loop if there are
    fewer rows than tiles for several threads. It is also the innermost loop if all results reduce over the outermost
    loop and none over the innermost, and partial results are large compared with the loads."""
    last = len(kernel.loops) - 1
    reductions = [x for x in kernel.body if isinstance(x, Reduce)]
    if last < 1 or is_serial(kernel):
        return 0
    outer, inner = kernel.loops[0].var, kernel.loops[last].var
    rows, columns = (kernel.loops[i].extent.evaluate(sizes) for i in (0, last))
    if not reductions:
        return last if columns >= MIN_SPLIT_ROW and rows < 4 * _together(kernel) > 4 else 0
    if any(outer not in x.over or inner in x.over for x in reductions):
        return 0
    return last if columns >= MIN_SPLIT_ROW and (rows < MIN_REDUCED_ROWS or columns > MAX_PARTIAL_ELEMENTS) else 0


def partition(plan: Plan) -> None:
    """Partition every kernel into chunks, and estimate the cost of the plan."""
    sizes, threads = plan.arguments.sizes, not disabled("parallel-kernels")
    for step in plan.steps:
        if isinstance(step, Matmul):
            plan.cost += 2 * math.prod(p.evaluate(sizes) for p in step.sizes) // 16
        elif isinstance(step, Nested):
            plan.cost += step.cost()
        elif isinstance(step, CallStep) and (is_native(step.node) or is_ordering(step.node)):
            plan.cost += 8 * sum([x.aval.size for x in step.node.operands])
        elif isinstance(step, Launch):
            plan.cost += _cut_kernel(step, sizes, threads)
    for fusion in plan.strip_fusions:
        _cut_fusion(plan, fusion, threads)


def _cut_kernel(step: Launch, sizes: dict[str, int], threads: bool) -> int:
    """Partition a kernel into chunks; returns its cost."""
    kernel = step.kernel
    extents = [loop.extent.evaluate(sizes) for loop in kernel.loops] or [1]
    rows = extents.pop(kernel.chunked)
    row_cost = max(1, math.prod(extents) * max(kernel.cost, 1))
    cost = rows * row_cost
    size = rows
    if not step.serial and kernel.loops:
        size = _chunk_rows(math.prod(extents), row_cost)
        if step.partials:
            size = max(size, _min_chunk_rows(rows, [step], sizes))
        if kernel.chunked:
            widest = max(dtype_named(dtype).itemsize for dtype, _ in kernel.buffers.values())
            size = max(size, min(RUN // widest, -(-rows // 4)))
        elif rows >= 4 * (together := _together(kernel)):
            size = -(-size // together) * together
    step.blocks = cut(rows, size, cost, threads)
    return cost + (step.bytes.evaluate(sizes) // 16 if step.copies else 0)


def _together(kernel: Kernel) -> int:
    """The number of rows that one thread should run together."""
    if Reduce in map(type, kernel.body):
        return TOGETHER
    tiles = tiles_of(kernel)
    return tiles.rows if tiles is not None and len(kernel.loops) == 2 else 1


def _chunk_rows(elements: int, cost: int) -> int:
    """The number of rows of a chunk, for rows with this number of elements and this cost."""
    enough = -(-LEAST_ELEMENTS // max(elements, 1))
    return block_size(CHUNK_COST, cost, min(enough, 16 * CHUNK_COST // cost))


def _min_chunk_rows(rows: int, steps: list[Launch], sizes: dict[str, int]) -> int:
    """The minimum rows of a chunk that writes partial results."""
    longest = max([sum(size.evaluate(sizes) for size in step.partials.values()) for step in steps])
    return -(-rows // (MAX_REDUCED_CHUNKS if longest < 64 else MAX_LONG_CHUNKS))


def _cut_fusion(plan: Plan, fusion: StripFusion, threads: bool) -> None:
    """Partition the rows of a strip fusion into chunks of some strips, the same for all of its steps."""
    sizes = plan.arguments.sizes
    steps = [step for i in fusion.steps if isinstance(step := plan.steps[i], Launch)]
    counts = [math.prod(x.extent.evaluate(sizes) for x in step.kernel.loops) for step in steps]
    cost = sum([n * max(step.kernel.cost, 1) for n, step in zip(counts, steps)])
    rows = _chunk_rows(max(counts) // fusion.rows, -(-cost // fusion.rows))
    if any(step.partials for step in steps):
        rows = max(rows, _min_chunk_rows(fusion.rows, steps, sizes))
    rows = max(-(-rows // fusion.strip), 1) * fusion.strip
    fusion.blocks = cut(fusion.rows, rows, cost, threads)
    for step, unit in zip(steps, fusion.units):
        step.blocks = fusion.blocks._replace(size=rows * unit)
