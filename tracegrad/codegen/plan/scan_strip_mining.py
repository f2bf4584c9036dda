"""Loops that run strip by strip: all turns for some thousand bytes of elements, then all turns for the next.

Where the body of a loop computes element by element, the loop over the elements may go around the loop over the turns.
Then what is carried stays in the first-level cache from turn to turn, and threads share the elements once instead of in
every turn. Kernels that run over no such elements (a counter, a step size) run for every strip.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tracegrad.codegen.kernels.loop_order import is_serial
from tracegrad.codegen.loopir.kernel import Kernel, Reduce, accesses
from tracegrad.codegen.loopir.polynomial import ONE, ZERO, Poly
from tracegrad.codegen.loopir.steps import Launch
from tracegrad.utils.lazy_dataclass import record

if TYPE_CHECKING:
    from tracegrad.codegen.plan.planner import Plan

__all__ = ["SHARE", "Strips", "is_plain", "own_place", "strips_of"]

STRIP_BYTES = 16384  # of all that a strip carries: half of a small first-level cache
SHORTEST = 64  # rows of a strip, so that loops over them are worth their overhead
SHARE = 20  # kernels that run for every strip may take one part in so many of its time


@record(frozen=True)
class Strips:
    """How a body is cut: `rows` rows of `row` elements; the length of a strip; the cost of all rows."""

    rows: int
    row: int
    length: int
    cost: int


def strips_of(made: Plan) -> Strips | None:
    """How to cut the body `made` of a loop into strips, whatever the sizes; or None."""
    launches = [step for step in made.steps if isinstance(step, Launch)]
    wide = [step.kernel for step in launches if any(x.extent.value is None for x in step.kernel.loops)]
    narrow = [step.kernel for step in launches if step.kernel not in wide]
    if len(launches) < len(made.steps) or any(step.base for step in launches):
        return None
    if not wide or not all(map(is_plain, wide)):
        return None
    spaces = {(kernel.loops[0].extent, math.prod((x.extent for x in kernel.loops[1:]), start=ONE)) for kernel in wide}
    written = {b for kernel in wide for b, (_, use) in kernel.buffers.items() if use == "out"}
    carried = {made.buffers[x] for x, y in zip(made.graph.inputs[: made.carries], made.graph.outputs)
               if made.buffers[y] in written}  # fmt: skip
    own = written | carried
    if len(spaces) > 1 or any(own & set(kernel.buffers) for kernel in narrow):
        return None
    if not all(_own_element(kernel, own) for kernel in wide):
        return None
    ((rows, row),) = spaces
    return _sized(made, rows, row, wide, narrow, len(own))


def _sized(made: Plan, rows: Poly, row: Poly, wide: list[Kernel], narrow: list[Kernel], arrays: int) -> Strips:
    sizes = made.arguments.sizes
    count, each = rows.evaluate(sizes), max(row.evaluate(sizes), 1)
    row_cost = each * sum(kernel.cost for kernel in wide)
    again = sum(kernel.cost * math.prod(x.extent.value or 0 for x in kernel.loops) for kernel in narrow)
    length = max(STRIP_BYTES // (8 * arrays * each), SHARE * again // max(row_cost, 1), -(-SHORTEST // each), 1)
    return Strips(count, each, min(length, max(count, 1)), count * row_cost + again)


def is_plain(kernel: Kernel) -> bool:
    """Whether any part of its rows may be computed by itself."""
    return not kernel.chunked and not is_serial(kernel) and not any(isinstance(x, Reduce) for x in kernel.body)


def _own_element(kernel: Kernel, own: set[str]) -> bool:
    """Whether the kernel reads and writes the arrays `own` at the index of its loops only, row-major."""
    place = own_place(kernel)
    return all(x.address == place for x in accesses(kernel.body) if x.buffer in own)


def own_place(kernel: Kernel) -> Poly:
    """The index of the loops of a kernel, row-major."""
    place, stride = ZERO, ONE
    for loop in reversed(kernel.loops):
        place, stride = place + Poly.symbol(loop.var) * stride, stride * loop.extent
    return place
