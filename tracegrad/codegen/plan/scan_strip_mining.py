"""Strip-mine an elementwise scan body: run all iterations for one strip of elements, then for the next.

If the body of a loop is elementwise, the loop over elements may be moved outside the time loop (loop interchange).
Carries then remain in the first-level cache between iterations, and threads share the elements once instead of in
every iteration. Kernels without elements (a counter, a step size) run for every strip.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tracegrad.codegen.kernels.loop_order import is_serial
from tracegrad.codegen.loopir.kernel import Kernel, Reduce, accesses
from tracegrad.codegen.loopir.polynomial import ONE, ZERO, Poly
from tracegrad.codegen.loopir.steps import Launch
from tracegrad.settings import disabled
from tracegrad.target.tuning import TUNING
from tracegrad.utils.lazy_dataclass import record

if TYPE_CHECKING:
    from tracegrad.codegen.plan.program_plan import Plan

STRIP_BYTES = TUNING.strips.scan_bytes
SHORTEST = TUNING.strips.min_scan_rows
SHARE = TUNING.strips.scan_share


@record(frozen=True)
class Strips:
    """The strips of a body: `rows` rows of `row_elements` elements; the length of a strip; the cost of all rows."""

    rows: int
    row_elements: int
    length: int
    cost: int


def strips_of(plan: Plan) -> Strips | None:
    """The strip-mining of a loop body, whatever the sizes; None if it is not possible."""
    if disabled("strip-mining"):
        return None
    launches = [step for step in plan.steps if isinstance(step, Launch)]
    symbolic = [step.kernel for step in launches if any(x.extent.value is None for x in step.kernel.loops)]
    constant = [step.kernel for step in launches if step.kernel not in symbolic]
    if len(launches) < len(plan.steps) or any(step.base for step in launches):
        return None
    if not symbolic or not all(map(is_plain, symbolic)):
        return None
    spaces = {
        (kernel.loops[0].extent, math.prod((x.extent for x in kernel.loops[1:]), start=ONE)) for kernel in symbolic
    }
    written = {b for kernel in symbolic for b, (_, use) in kernel.buffers.items() if use == "out"}
    carried = {
        plan.buffers[x]
        for x, y in zip(plan.graph.inputs[: plan.carries], plan.graph.outputs)
        if plan.buffers[y] in written
    }
    arrays = written | carried
    if len(spaces) > 1 or any(arrays & set(kernel.buffers) for kernel in constant):
        return None
    if not all(_accesses_own_index(kernel, arrays) for kernel in symbolic):
        return None
    ((rows, row_size),) = spaces
    return _sized(plan, rows, row_size, symbolic, constant, len(arrays))


def _sized(
    plan: Plan, rows: Poly, row_size: Poly, symbolic: list[Kernel], constant: list[Kernel], arrays: int
) -> Strips:
    sizes = plan.arguments.sizes
    count, each = rows.evaluate(sizes), max(row_size.evaluate(sizes), 1)
    row_cost = each * sum(kernel.cost for kernel in symbolic)
    again = sum(kernel.cost * math.prod(x.extent.value or 0 for x in kernel.loops) for kernel in constant)
    length = max(STRIP_BYTES // (8 * arrays * each), SHARE * again // max(row_cost, 1), -(-SHORTEST // each), 1)
    return Strips(count, each, min(length, max(count, 1)), count * row_cost + again)


def is_plain(kernel: Kernel) -> bool:
    """Whether any range of rows may be computed separately."""
    return not kernel.chunked and not is_serial(kernel) and not any(isinstance(x, Reduce) for x in kernel.body)


def _accesses_own_index(kernel: Kernel, arrays: set[str]) -> bool:
    """Whether the kernel accesses the arrays `arrays` at its own row-major index only."""
    index = iteration_index(kernel)
    return all(x.address == index for x in accesses(kernel.body) if x.buffer in arrays)


def iteration_index(kernel: Kernel) -> Poly:
    """The row-major index of a kernel's iteration."""
    index, stride = ZERO, ONE
    for loop in reversed(kernel.loops):
        index, stride = index + Poly.symbol(loop.var) * stride, stride * loop.extent
    return index
