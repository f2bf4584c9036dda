"""The place of an extremum, found in the pass that finds the extremum.

`argmax` is made of two kernels: one reduces rows to their extrema, and one looks in each row for the first element that
is equal, or nan (`early_exit.py`). Where nothing else reads the extrema, one kernel does both, `reduce first_maximum`.
Rows of few vectors, or across memory, and short elements stay with two: there one pass is not quicker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracegrad.avals import dtype_named
from tracegrad.codegen.kernels.early_exit import Search, first_of
from tracegrad.codegen.kernels.vectorize import dependent
from tracegrad.codegen.loopir.kernel import FIRST, Compute, Kernel, Load, Operand, Reduce
from tracegrad.codegen.loopir.polynomial import Poly
from tracegrad.codegen.loopir.steps import Launch
from tracegrad.codegen.plan.inline_one_hot_scatter import leave_out

if TYPE_CHECKING:
    from tracegrad.codegen.plan.planner import Plan

__all__ = ["find_in_one_pass"]

WIDE = 4  # bytes of an element, which are enough to number those of a row
SHORTEST = 256  # bytes of a row: the vectors of a turn, wherever they are longest
LONGEST = 1 << 31  # elements of a row
_FIRST_OF = {what: name for name, what in FIRST.items()}


def find_in_one_pass(made: Plan) -> None:
    """Let one kernel find extrema and their places, where a plan has two for that."""
    for step in [x for x in made.steps if isinstance(x, Launch)]:
        extremum = _extremum(step, made.arguments.sizes)
        if extremum is None or made.memory[extremum.buffer] != "temp":
            continue
        others = [x for x in made.steps if extremum.buffer in x.buffers and x is not step]
        if len(others) == 1 and (kernel := _joined(made, step.kernel, extremum, others[0])) is not None:
            others[0].kernel = kernel  # type: ignore[union-attr]
            leave_out(made, step, extremum.buffer)


def _extremum(step: Launch, sizes: dict[str, int]) -> Reduce | None:
    """What a kernel reduces each of its rows to, if these are such that it is worth it, and it does nothing else."""
    kernel = step.kernel
    last, inner = kernel.body[-1] if kernel.body else None, len(kernel.loops) - 1
    if not isinstance(last, Reduce) or last.combiner not in _FIRST_OF or inner < 1 or kernel.chunked == inner:
        return None
    var, extent = kernel.loops[inner]
    reads = [x for x in kernel.body if isinstance(x, Load)]
    bytes_of = [dtype_named(dtype).itemsize for dtype in (last.value.dtype, *(x.out.dtype for x in reads))]
    along = all(x.address.coefficient(var).value in (-1, 0, 1) for x in reads) and last.over == (var,)
    size = extent.evaluate(sizes)
    return last if along and min(bytes_of) >= WIDE and SHORTEST // bytes_of[0] <= size < LONGEST else None


def _joined(made: Plan, kernel: Kernel, extremum: Reduce, search: Any) -> Kernel | None:
    """What finds at once the places that `search` looks for, if these are the first of the extrema."""
    if not isinstance(search, Launch) or search.kernel.loops != kernel.loops or search.kernel.chunked != kernel.chunked:
        return None
    *elements, _ = kernel.body
    *rest, found = search.kernel.body
    var, extent = kernel.loops[-1]
    if rest[: len(elements)] != elements or not isinstance(found, Reduce) or found.combiner != "minimum":
        return None
    looks = first_of(search.kernel, found.value, dependent(rest, var))
    if looks is None or looks.all or looks.place != Poly.symbol(var) or not _is_for(looks, extremum, rest):
        return None
    if _value(made, looks.missing) < extent.evaluate(made.arguments.sizes) - 1:
        return None
    first = Reduce(found.buffer, found.address, _FIRST_OF[extremum.combiner], extremum.value, found.over, found.size)
    buffers = {name: x for name, x in search.kernel.buffers.items() if name != extremum.buffer}
    return Kernel(buffers, kernel.loops, [*elements, first], kernel.cost + 1, kernel.chunked)


def _is_for(looks: Search, extremum: Reduce, body: list[Any]) -> bool:
    """Whether what a kernel looks for are elements that are equal to extrema, or the first nan."""
    loads = [x for x in body if isinstance(x, Load)]
    read = [x.out for x in loads if (x.buffer, x.address) == (extremum.buffer, extremum.address)]
    pair: tuple[Operand, ...] | None = looks.alike
    if pair is None and extremum.value.dtype[0] != "f":
        (wanted,) = [x for x in body if getattr(x, "out", None) == looks.wanted]
        pair = wanted.args if isinstance(wanted, Compute) and wanted.op == "eq" else None
    return pair is not None and len(read) == 1 and {*pair} == {extremum.value, read[0]}


def _value(made: Plan, x: Operand | None) -> int:
    assert x is not None
    return int(made.arguments.constants[x.name][1] if x.name else x.value)
