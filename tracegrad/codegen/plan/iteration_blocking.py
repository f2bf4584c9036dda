"""Block the iterations of a scan body: which strategy is legal, and how large the blocks are.

The first legal strategy is chosen:

- *strips* (strip-mining with loop interchange). If the body is elementwise, the loop over rows may be moved outside the
  time loop. Carries then remain in the first-level cache between iterations, and threads share the rows once instead
  of in every iteration.
- *wavefronts* (wavefront, time-skewed tiling). A row of the carry of a stencil depends on a few rows of the previous
  iteration only, so an iteration may begin before the previous one has ended. In wavefront w, iteration t computes
  chunk w - t of the rows. It reads adjacent chunks only, which iteration t - 1 has computed in this wavefront or
  before. It overwrites the values of iteration t - 2, which are not read any more. Arrays larger than the cache are
  thus streamed once for several iterations. Wavefronts are for one thread: with several, each iteration's rows are
  shared.
- *shares* (parallel iterations, DOALL). If the only carries are induction variables, each thread runs some iterations
  and writes their rows, in temporary memory of its own (`tracegrad.codegen.program.region_function`).

All strategies compute the same elements in another order, so bits do not change. Kernels without rows (a counter, a
step size) run again for every block of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

from tracegrad.avals import dtype_named
from tracegrad.codegen.kernels.loop_order import is_serial
from tracegrad.codegen.loopir.blocking import SERIAL, SHARES, STRIPS, WAVEFRONTS, IterationBlocking, block_size
from tracegrad.codegen.loopir.kernel import Kernel, Reduce, accesses
from tracegrad.codegen.loopir.polynomial import ONE, ZERO, Poly
from tracegrad.codegen.loopir.steps import Launch, Matmul
from tracegrad.codegen.plan.program_plan import Plan, functions_of, plans_of
from tracegrad.ir import GraphNode
from tracegrad.ops.elementwise.table import add
from tracegrad.settings import disabled
from tracegrad.target.tuning import TUNING

STRIP_BYTES = TUNING.strips.scan_bytes
SHORTEST = TUNING.strips.min_scan_rows
SHARE = TUNING.strips.scan_share
MIN_WAVEFRONT_BYTES = TUNING.strips.min_wavefront_bytes
CHUNK = TUNING.strips.wavefront_chunk_bytes
CACHE = TUNING.strips.wavefront_bytes
MAX_WAVEFRONT_COST = TUNING.strips.max_wavefront_cost
MAX_WAVEFRONT_ITERATIONS = TUNING.strips.max_wavefront_iterations


def blocking_of(body: Plan) -> IterationBlocking:
    """The blocking of the iterations of a region; its strategy does not depend on sizes."""
    if not body.is_scanned:
        return SERIAL
    dependences, reasons = _Dependences(body), dict[str, str]()
    for name, strategy in STRATEGIES.items():
        reason = "it is disabled" if disabled(strategy.optimization) else next(strategy.obstacles(dependences), "")
        if not reason:
            return strategy.sized(dependences, reasons)
        reasons[name] = reason
    return IterationBlocking(reasons=reasons)


# -- legality --------------------------------------------------------------------------------------------------
class _Dependences:
    """The kernels of a loop body over rows, and the arrays through which its rows depend on each other.

    `written` are the arrays whose rows the body computes, and `carried` those of the previous iteration that it
    replaces. `repeated` are the kernels without rows.
    """

    def __init__(self, body: Plan):
        self.plan, self.sizes = body, body.arguments.sizes
        self.launches = [step for step in body.steps if isinstance(step, Launch)]
        symbolic = [any(x.extent.value is None for x in step.kernel.loops) for step in self.launches]
        self.kernels = [step.kernel for step, has_rows in zip(self.launches, symbolic) if has_rows]
        self.repeated = [step.kernel for step, has_rows in zip(self.launches, symbolic) if not has_rows]
        self.spaces = {(x.loops[0].extent, math.prod([y.extent for y in x.loops[1:]], start=ONE)) for x in self.kernels}
        self.written = {name for x in self.kernels for name, (_, use) in x.buffers.items() if use == "out"}
        ends = zip(body.graph.inputs[: body.carries], body.graph.outputs)
        self.carried = {body.buffers[x] for x, y in ends if body.buffers[y] in self.written}

    def distances(self, names: set[str]) -> set[Poly]:
        """The distances, in elements, at which a kernel accesses these arrays from its own row-major index."""
        result = set()
        for kernel in self.kernels:
            index = _iteration_index(kernel)
            result |= {x.address - index for x in accesses(kernel.body) if x.buffer in names}
        return result

    @cached_property
    def row_obstacle(self) -> str:
        """Why rows cannot run in blocks, or ""."""
        return next(_against_rows(self), "")

    @property
    def space(self) -> tuple[int, int]:
        """The number of rows, and of the elements of a row."""
        ((rows, row_size),) = self.spaces
        return rows.evaluate(self.sizes), max(row_size.evaluate(self.sizes), 1)

    @property
    def row_cost(self) -> int:
        return self.space[1] * sum(kernel.cost for kernel in self.kernels)

    @property
    def repeated_cost(self) -> int:
        """The cost of the kernels without rows, which run again for every block."""
        return sum(kernel.cost * math.prod(x.extent.value or 0 for x in kernel.loops) for kernel in self.repeated)

    @property
    def amortizing_rows(self) -> int:
        """The rows of a block that cost enough for the kernels that run again."""
        return SHARE * self.repeated_cost // max(self.row_cost, 1)


def _iteration_index(kernel: Kernel) -> Poly:
    """The row-major index of a kernel's iteration."""
    index, stride = ZERO, ONE
    for loop in reversed(kernel.loops):
        index, stride = index + Poly.symbol(loop.var) * stride, stride * loop.extent
    return index


def _has_independent_rows(kernel: Kernel) -> bool:
    return not kernel.chunked and not is_serial(kernel) and not any(isinstance(x, Reduce) for x in kernel.body)


def _against_rows(body: _Dependences) -> Iterator[str]:
    if len(body.launches) < len(body.plan.steps):
        yield "a step is no kernel"
    if any(step.base for step in body.launches):
        yield "an array is partially updated"
    if not body.kernels:
        yield "no kernel has rows"
    if not all(map(_has_independent_rows, body.kernels)):
        yield "a kernel reduces rows, or computes them in order"
    if len(body.spaces) > 1:
        yield "kernels have different rows"
    if any(not (body.written | body.carried).isdisjoint(kernel.buffers) for kernel in body.repeated):
        yield "a kernel without rows accesses an array of rows"
    if body.distances(body.written) - {ZERO}:
        yield "a row depends on other rows of its iteration"


def _against_strips(body: _Dependences) -> Iterator[str]:
    if body.row_obstacle:
        yield body.row_obstacle
    if body.distances(body.carried) - {ZERO}:
        yield "a row depends on other rows of the previous iteration"


def _against_wavefronts(body: _Dependences) -> Iterator[str]:
    if body.row_obstacle:
        yield body.row_obstacle
    if body.plan.in_place:
        yield "a carry is updated in place"
    if not 0 < len(body.carried) == body.plan.carries:
        yield "a carry has no rows"
    if any(kernel.cost >= MAX_WAVEFRONT_COST for kernel in body.kernels):
        yield "a kernel is compute-bound"
    if not all(distance.symbols <= body.sizes.keys() for distance in body.distances(body.carried)):
        yield "a row depends on rows of the previous iteration at an unknown distance"


def _against_shares(body: _Dependences) -> Iterator[str]:
    # A call of NumPy would wait for the GIL, held by the thread that waits for all iterations.
    if any("callback" in functions_of(step) for each in plans_of(body.plan) for step in each.steps):
        yield "NumPy is called"
    if None in _growths(body.plan).values():
        yield "a carry is no induction variable"


def _growths(body: Plan) -> dict[int, int | None]:
    """The integer by which each carry grows in each iteration, or None (induction variables)."""
    return {k: _growth(body.graph.inputs[k], body.graph.outputs[k]) for k in range(body.carries)}


def _growth(before: GraphNode, after: GraphNode) -> int | None:
    if after.op is not add or before not in after.inputs or before.aval.shape or before.aval.dtype != "int64":
        return None
    increments = [x for x in after.inputs if type(x) is int]
    return increments[0] if increments else None


# -- sizes -----------------------------------------------------------------------------------------------------
def _strips(body: _Dependences, reasons: dict[str, str]) -> IterationBlocking:
    rows, each = body.space
    width = 8 * len(body.written | body.carried) * each
    size = block_size(STRIP_BYTES, width, body.amortizing_rows, -(-SHORTEST // each))
    cost = rows * body.row_cost + body.repeated_cost
    return IterationBlocking(STRIPS, rows, min(size, max(rows, 1)), cost, reasons=reasons)


def _wavefronts(body: _Dependences, reasons: dict[str, str]) -> IterationBlocking:
    rows, each = body.space
    itemsizes = {name: dtype_named(dtype).itemsize for x in body.kernels for name, (dtype, _) in x.buffers.items()}
    width = each * sum(itemsizes.values())
    reach = max(abs(x.evaluate(body.sizes)) for x in [ZERO, *body.distances(body.carried)])
    size = min(block_size(CHUNK, width, -(-reach // each), body.amortizing_rows), max(rows, 1))
    depth = min(MAX_WAVEFRONT_ITERATIONS, CACHE // (size * width) - 1) if rows * width >= MIN_WAVEFRONT_BYTES else 1
    return IterationBlocking(WAVEFRONTS, rows, size, depth=max(depth, 1), reasons=reasons)


def _shares(body: _Dependences, reasons: dict[str, str]) -> IterationBlocking:
    counters = {k: n for k, n in _growths(body.plan).items() if n is not None}
    return IterationBlocking(SHARES, counters=counters, symbolic_sizes=_has_symbolic_sizes(body.plan), reasons=reasons)


def _has_symbolic_sizes(plan: Plan) -> bool:
    """Whether a step of a plan, or of its regions, has arrays of symbolic sizes."""
    sizes: list[Poly] = []
    for step in (step for each in plans_of(plan) for step in each.steps):
        if isinstance(step, Launch):
            sizes += [loop.extent for loop in step.kernel.loops]
        elif isinstance(step, Matmul):
            sizes += step.sizes
    return any(size.value is None for size in sizes)


class _Strategy(NamedTuple):
    """A strategy: its name in `settings.disable`, what makes it illegal, and the blocking if it is legal."""

    optimization: str
    obstacles: Callable[[_Dependences], Iterator[str]]
    sized: Callable[[_Dependences, dict[str, str]], IterationBlocking]


STRATEGIES = {
    STRIPS: _Strategy("strip-mining", _against_strips, _strips),
    WAVEFRONTS: _Strategy("wavefront-tiling", _against_wavefronts, _wavefronts),
    SHARES: _Strategy("parallel-iterations", _against_shares, _shares),
}
