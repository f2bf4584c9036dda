"""Tile stencil loops in time (wavefront, time-skewed tiling): several iterations run on nearby rows.

A row of the carry of a stencil body depends on a few rows of the previous iteration only. An iteration may therefore
begin before the previous one has ended: in wave w, iteration t computes chunk w - t of the rows. It reads adjacent
chunks only, which iteration t - 1 has computed in this wave or before. It overwrites the values of iteration t - 2,
which are not read any more. Arrays larger than the cache are thus streamed once for several iterations. Only the order
in which elements are computed changes.

Waves are for one thread. With several threads, each iteration's rows are shared, and each thread has its own cache.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tracegrad.avals import dtype_named
from tracegrad.codegen.loopir.kernel import Kernel, accesses
from tracegrad.codegen.loopir.polynomial import ONE, Poly
from tracegrad.codegen.loopir.steps import Launch
from tracegrad.codegen.plan.scan_strip_mining import SHARE, is_plain, iteration_index
from tracegrad.settings import disabled
from tracegrad.target.tuning import TUNING
from tracegrad.utils.lazy_dataclass import record

if TYPE_CHECKING:
    from tracegrad.codegen.plan.program_plan import Plan

THREADS = "tg_threads"  # the function that returns the number of threads: i64 ()

MIN_WAVE_BYTES = TUNING.strips.min_wave_bytes
CHUNK = TUNING.strips.wave_chunk_bytes
CACHE = TUNING.strips.wave_bytes
MAX_WAVE_COST = TUNING.strips.max_wave_cost
MAX_WAVE_ITERATIONS = TUNING.strips.max_wave_iterations


@record(frozen=True)
class WavefrontTiling:
    """The wavefront tiling of a body: its rows, the rows of a chunk, and the number of iterations run together (1 if
    that is not profitable)."""

    rows: int
    chunk: int
    depth: int

    @property
    def chunks(self) -> int:
        return -(-self.rows // self.chunk)


def waves_of(plan: Plan) -> WavefrontTiling | None:
    """The wavefront tiling of a loop body, whatever the sizes; None if it is not possible.

    Kernels without rows run again for each chunk, so they must be independent of the other kernels.
    """
    if disabled("wavefront-tiling"):
        return None
    launches = [step for step in plan.steps if isinstance(step, Launch)]
    symbolic = [step.kernel for step in launches if step.is_separate_function]
    constant = [step.kernel for step in launches if not step.is_separate_function]
    if len(launches) < len(plan.steps) or any(step.base for step in launches) or plan.in_place:
        return None
    if (
        not plan.carries
        or not symbolic
        or not all(is_plain(kernel) and kernel.cost < MAX_WAVE_COST for kernel in symbolic)
    ):
        return None
    spaces = {
        (kernel.loops[0].extent, math.prod((x.extent for x in kernel.loops[1:]), start=ONE)) for kernel in symbolic
    }
    written = {name for step in launches if step.is_separate_function for name in step.writes}
    carried = {plan.buffers[x] for x in plan.graph.inputs[: plan.carries]}
    if len(spaces) > 1 or not all(plan.buffers[y] in written for y in plan.graph.outputs[: plan.carries]):
        return None
    if any(not (written | carried).isdisjoint(kernel.buffers) for kernel in constant):
        return None
    reach = _reach(symbolic, written, carried, plan.arguments.sizes)
    if reach is None:
        return None
    ((rows, row_size),) = spaces
    return _sized(plan, rows, row_size, reach, symbolic, constant)


def _reach(symbolic: list[Kernel], written: set[str], carried: set[str], sizes: dict[str, int]) -> int | None:
    """The largest distance between an element and the elements of the previous iteration that it depends on. None if it
    is unknown, or if other written arrays are accessed at another index."""
    result = 0
    for kernel in symbolic:
        index = iteration_index(kernel)
        for x in accesses(kernel.body):
            if x.buffer in written or x.buffer in carried:
                distance = x.address - index
                if not distance.symbols <= sizes.keys() or (distance.terms and x.buffer in written):
                    return None
                result = max(result, abs(distance.evaluate(sizes)))
    return result


def _sized(
    plan: Plan, rows: Poly, row_size: Poly, reach: int, symbolic: list[Kernel], constant: list[Kernel]
) -> WavefrontTiling:
    sizes = plan.arguments.sizes
    count, each = rows.evaluate(sizes), max(row_size.evaluate(sizes), 1)
    itemsizes = {name: dtype_named(dtype).itemsize for k in symbolic for name, (dtype, _) in k.buffers.items()}
    row_bytes = each * sum(itemsizes.values())
    again = sum(kernel.cost * math.prod(x.extent.value or 0 for x in kernel.loops) for kernel in constant)
    enough = SHARE * again // max(each * sum(kernel.cost for kernel in symbolic), 1)
    chunk = min(max(CHUNK // row_bytes, -(-reach // each), enough, 1), max(count, 1))
    depth = min(MAX_WAVE_ITERATIONS, CACHE // (chunk * row_bytes) - 1) if count * row_bytes >= MIN_WAVE_BYTES else 1
    return WavefrontTiling(count, chunk, max(depth, 1))
