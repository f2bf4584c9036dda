"""Fuse argmin and argmax with the min or max reduction of the same rows.

`argmax` is lowered to two kernels. One reduces rows to their extrema; the other searches each row for the first element
that is equal, or nan (`early_exit.py`). If no other step reads the extrema, one kernel does both, `reduce
first_maximum`. One pass is not faster for rows of few vectors, strided rows, and short elements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracegrad.avals import dtype_named
from tracegrad.codegen.kernels.early_exit import LaneSearch, first_of
from tracegrad.codegen.kernels.vectorize import dependent
from tracegrad.codegen.loopir.kernel import FIRST, Compute, Kernel, Load, Operand, Reduce
from tracegrad.codegen.loopir.polynomial import Poly
from tracegrad.codegen.loopir.steps import Launch
from tracegrad.codegen.plan.overwrite import BufferUses
from tracegrad.target.tuning import TUNING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracegrad.codegen.plan.program_plan import Plan

MIN_INDEXED_BYTES = 4  # minimum bytes of an element: lanes hold an index of the row
SHORTEST = TUNING.fusion.min_arg_row_bytes
LONGEST = 1 << 31  # maximum elements of a row, exclusive
_FIRST_OF = {what: name for name, what in FIRST.items()}


def fuse_arg_reductions(plan: Plan) -> None:
    """Fuse each kernel that reduces rows to extrema with the kernel that searches for their indices."""
    for step in [x for x in plan.steps if isinstance(x, Launch)]:
        extremum = _extremum(step, plan.arguments.sizes)
        if extremum is None or not plan.is_temporary(extremum.buffer):
            continue
        uses = BufferUses(plan)
        others = uses.others(extremum.buffer, step)
        if len(others) == 1 and (kernel := _joined(plan, step.kernel, extremum, others[0])) is not None:
            others[0].kernel = kernel  # type: ignore[union-attr]
            uses.remove(step, extremum.buffer)


def _extremum(step: Launch, sizes: dict[str, int]) -> Reduce | None:
    """The row reduction of a kernel, if it is the kernel's only result and the fusion is profitable."""
    kernel = step.kernel
    last, inner = kernel.body[-1] if kernel.body else None, len(kernel.loops) - 1
    if not isinstance(last, Reduce) or last.combiner not in _FIRST_OF or inner < 1 or kernel.chunked == inner:
        return None
    var, extent = kernel.loops[inner]
    reads = [x for x in kernel.body if isinstance(x, Load)]
    bytes_of = [dtype_named(dtype).itemsize for dtype in (last.value.dtype, *(x.out.dtype for x in reads))]
    along = all(x.address.coefficient(var).value in (-1, 0, 1) for x in reads) and last.over == (var,)
    size = extent.evaluate(sizes)
    return last if along and min(bytes_of) >= MIN_INDEXED_BYTES and SHORTEST // bytes_of[0] <= size < LONGEST else None


def _joined(plan: Plan, kernel: Kernel, extremum: Reduce, search: object) -> Kernel | None:
    """The fused kernel, if `search` finds the first index of each extremum; else None."""
    if not isinstance(search, Launch) or search.kernel.loops != kernel.loops or search.kernel.chunked != kernel.chunked:
        return None
    *elements, _ = kernel.body
    *rest, result = search.kernel.body
    var, extent = kernel.loops[-1]
    if rest[: len(elements)] != elements or not isinstance(result, Reduce) or result.combiner != "minimum":
        return None
    lane_search = first_of(search.kernel, result.value, dependent(rest, var))
    if (
        lane_search is None
        or lane_search.all
        or lane_search.match_index != Poly.symbol(var)
        or not _is_for(lane_search, extremum, rest)
    ):
        return None
    if _value(plan, lane_search.missing) < extent.evaluate(plan.arguments.sizes) - 1:
        return None
    first = Reduce(
        result.buffer, result.address, _FIRST_OF[extremum.combiner], extremum.value, result.over, result.size
    )
    buffers = {name: x for name, x in search.kernel.buffers.items() if name != extremum.buffer}
    return Kernel(buffers, kernel.loops, [*elements, first], kernel.cost + 1, kernel.chunked)


def _is_for(lane_search: LaneSearch, extremum: Reduce, body: Sequence[object]) -> bool:
    """Whether a search is for elements equal to the extrema, or the first nan."""
    loads = [x for x in body if isinstance(x, Load)]
    read = [x.out for x in loads if (x.buffer, x.address) == (extremum.buffer, extremum.address)]
    pair: tuple[Operand, ...] | None = lane_search.alike
    if pair is None and extremum.value.dtype[0] != "f":
        (wanted,) = [x for x in body if getattr(x, "out", None) == lane_search.wanted]
        pair = wanted.args if isinstance(wanted, Compute) and wanted.op == "eq" else None
    return pair is not None and len(read) == 1 and {*pair} == {extremum.value, read[0]}


def _value(plan: Plan, x: Operand | None) -> int:
    assert x is not None
    return int(plan.arguments.constants[x.name][1] if x.name else x.value)
