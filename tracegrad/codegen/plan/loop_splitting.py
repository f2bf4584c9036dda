"""Split a kernel whose guards select a part of a loop into one kernel per part (index-set splitting).

An element of a concatenation belongs to one operand, so it has a guard per operand. If all guards of a kernel only
select the part (concatenate, stack, roll), one kernel per part replaces it. The kernels of the parts have no guards and
are as fast as a copy. The start and the length of a part are run-time values, so equal parts share a compilation unit.

A kernel may also reduce its stored values, for example to column sums of the gate cotangents of a recurrent cell. It is
split if its body is expensive. One more kernel then reads the stored values again for the sums.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tracegrad.codegen.kernels.interleaved_access import InterleavedAccesses
from tracegrad.codegen.kernels.loop_order import arrange
from tracegrad.codegen.kernels.vectorize import vectors_of
from tracegrad.codegen.loopir.kernel import (
    BoundsCheck,
    Compute,
    GuardBlock,
    Index,
    Kernel,
    KernelLoop,
    Load,
    Operand,
    Reduce,
    Statement,
    Store,
    Substitution,
    ValueRenaming,
    flattened,
    operands,
    polynomials,
)
from tracegrad.codegen.loopir.polynomial import Poly
from tracegrad.codegen.loopir.scalar_templates import COST
from tracegrad.codegen.loopir.steps import Launch
from tracegrad.target.tuning import TUNING

if TYPE_CHECKING:
    from tracegrad.codegen.lower.lower import RuntimeArguments
    from tracegrad.codegen.plan.program_plan import Plan

MAX_SPLIT_PARTS = TUNING.fusion.max_split_parts
_SPLITTABLE = frozenset([Load, Store, Compute, Index, GuardBlock])
HEAVY = TUNING.fusion.min_guarded_cost

LoopRange = tuple[int, int]  # the range [begin, end) of a loop


def split_kernels(plan: Plan) -> None:
    """Replace each kernel that can be split by the kernels of its parts."""
    for i, step in reversed(list(enumerate(plan.steps))):
        if isinstance(step, Launch) and step.is_separate_function and not step.base:
            parts = [part for x in _split_stores(step.kernel) for part in split(x, plan.arguments)]
            if parts != [step.kernel]:
                plan.steps[i : i + 1] = [_launch(x, step) for x in parts]


def _launch(part: Kernel, whole: Launch) -> Launch:
    partials = {name: size for name, size in whole.partials.items() if name in part.buffers}
    return Launch(whole.group, part, False, partials)


def _split_stores(kernel: Kernel) -> list[Kernel]:
    """One kernel per store, if the kernel has too many guards and no store depends on another."""
    stores = [x for x in kernel.body if isinstance(x, Store)]
    kinds = [type(x) for x in kernel.body]
    if kinds.count(GuardBlock) <= MAX_SPLIT_PARTS or len(stores) < 2 or not _SPLITTABLE.issuperset(kinds):
        return [kernel]
    bodies = [_needed([x for x in kernel.body if x is store or not isinstance(x, Store)]) for store in stores]
    if sum(map(len, bodies)) != len(kernel.body):
        return [kernel]
    results = []
    for body in bodies:
        accessed = {x.buffer for x in flattened(body) if isinstance(x, Load | Store)}
        buffers = {b: use for b, use in kernel.buffers.items() if b in accessed}
        results.append(Kernel(buffers, kernel.loops, body, _cost(flattened(body)), kernel.chunked))
    return results


def split(kernel: Kernel, arguments: RuntimeArguments) -> list[Kernel]:
    """Split a kernel into its parts, and the sums of its stores; `kernel` alone if it cannot be split."""
    if kernel.cost >= HEAVY and (both := _without_sums(kernel)) is not None:
        stores, sums = both
        result = split(stores, arguments)
        return [kernel] if result == [stores] else [*result, sums]
    body = flattened(kernel.body)
    guards = [x for x in body if isinstance(x, GuardBlock)]
    if not 0 < len(guards) <= MAX_SPLIT_PARTS:
        return [kernel]
    if not (_SPLITTABLE | {BoundsCheck}).issuperset(map(type, body)):
        return [kernel]
    cuts = _cuts(kernel, guards, arguments.sizes)
    if cuts is None or _is_interleaved(kernel):
        return [kernel]
    columns = _is_of_columns(kernel, cuts)
    if not columns and _fragments_rows(kernel, cuts):
        return [kernel]
    # Padding with one constant is a single guard: it is split into interior and boundary, row by row.
    max_parts = MAX_SPLIT_PARTS if len(guards) > 1 and _only_moves(kernel) else len(guards) + 1
    if not 1 < math.prod(len(x) - 1 for x in cuts.values()) <= max_parts:
        return [kernel]
    boxes = itertools.product(*(itertools.pairwise(x) for x in cuts.values()))
    try:
        parts = [_PartBuilder(kernel, cuts, dict(zip(cuts, box)), arguments, columns) for box in boxes]
        return [_side_by_side([x.kernel() for x in parts])] if columns else [x.kernel() for x in parts]
    except _Unclear:
        return [kernel]


def _without_sums(kernel: Kernel) -> tuple[Kernel, Kernel] | None:
    """Separate the stores of a kernel from its sums of stored values; None if it has other reductions, or none."""
    sums = [x for x in kernel.body if isinstance(x, Reduce)]
    stored = {x.value.name: x for x in kernel.body if isinstance(x, Store) and x.value.name}
    if not sums or any(x.scatters or x.value.name not in stored for x in sums):
        return None
    read = [stored[name] for name in dict.fromkeys([x.value.name for x in sums])]
    loads = [Load(x.value, x.buffer, x.address) for x in read]
    sum_buffers = {x.buffer for x in sums}
    of_stores = {name: how for name, how in kernel.buffers.items() if name not in sum_buffers}
    of_sums = {x.buffer: (kernel.buffers[x.buffer][0], "in") for x in read} | {
        b: kernel.buffers[b] for b in sum_buffers
    }
    rest: list[Statement] = [x for x in kernel.body if not isinstance(x, Reduce)]
    body = _numbered([*loads, *sums])
    return (
        Kernel(of_stores, kernel.loops, rest, kernel.cost - len(sums)),
        Kernel(of_sums, kernel.loops, body, _cost(body), kernel.chunked),
    )


class _Unclear(Exception):
    """An address depends on the part, or parts have different loops."""


def _is_interleaved(kernel: Kernel) -> bool:
    """Whether vectors store interleaved pairs: run-time addresses would hide that they are adjacent, and vectors
    resolve guards by masks."""
    return vectors_of(kernel) is not None and bool(InterleavedAccesses(kernel, kernel.loops[-1].var).stores)


def _cuts(kernel: Kernel, guards: Sequence[GuardBlock], sizes: dict[str, int]) -> dict[str, list[int]] | None:
    """The bounds of the parts of each loop; None if a guard tests another condition."""
    extents = {x.var: x.extent.evaluate(sizes) for x in kernel.loops}
    table = {var: {0, n} for var, n in extents.items()}
    for low, value, high, step in (r for x in guards for r in x.ranges):
        var, rest = _linear(value, extents)
        if step != 1 or not var or not all(p.symbols <= sizes.keys() for p in (low, high, rest)):
            return None
        for end in (low - rest, high - rest):
            table[var].add(min(max(end.evaluate(sizes), 0), extents[var]))
    return {var: sorted(ends) for var, ends in table.items()}


def _fragments_rows(kernel: Kernel, cuts: dict[str, list[int]]) -> bool:
    """Whether the parts would be row pieces that are too short, or too cheap for another pass over all rows. A kernel
    that only moves data reads and writes each element once in any case."""
    *outer, inner = (len(cuts[loop.var]) > 2 for loop in kernel.loops)
    is_short = kernel.loops[-1].extent.value is not None
    again = kernel.cost < HEAVY and not _only_moves(kernel)
    return inner and (is_short or (bool(outer) and not any(outer) and again))


def _only_moves(kernel: Kernel) -> bool:
    return not any(isinstance(x, Compute) for x in flattened(kernel.body))


def _is_of_columns(kernel: Kernel, cuts: dict[str, list[int]]) -> bool:
    """Whether only the innermost, short loop is split: each element or pair of a row is moved separately."""
    if len(kernel.loops) < 2:
        return False
    *outer, inner = kernel.loops
    size = inner.extent.value
    if size != 2 and not _only_moves(kernel):
        return False
    return size is not None and len(cuts[inner.var]) == size + 1 and all(len(cuts[x.var]) == 2 for x in outer)


def _side_by_side(kernels: list[Kernel]) -> Kernel:
    """Merge kernels with the same loops: common instructions once, and the stores last, because other kernels may load
    the same buffers."""
    first = kernels[0]
    if any([x.loops, x.chunked] != [first.loops, first.chunked] for x in kernels):
        raise _Unclear
    body: list[Statement] = []
    for x in kernels:
        body += _numbered(x.body, len(body))
    buffers = {b: use for x in kernels for b, use in x.buffers.items()}
    body = _numbered(_once(body))
    return Kernel(buffers, first.loops, body, _cost(body), first.chunked)


def _cost(body: list[Statement]) -> int:
    return sum([COST.get(x.op, 1) if isinstance(x, Compute) else 1 for x in body])


def _once(body: list[Statement]) -> list[Statement]:
    """Remove duplicate instructions; stores come last."""
    known: dict[Statement, Operand] = {}
    same: dict[str, Operand] = {}
    symbols: dict[str, Poly] = {}
    to = Substitution(same, symbols)
    result, stores = list[Statement](), list[Statement]()
    for x in body:
        x = x.map_operands(to)
        if isinstance(x, Store | Reduce):
            stores.append(x)
            continue
        first = known.setdefault(replace(x, out=Operand("", x.out.dtype)), x.out)
        if first is x.out:
            result.append(x)
        else:
            same[x.out.name], symbols[x.out.name] = first, Poly.symbol(first.name)
    return result + stores


def _linear(value: Poly, variables: Any) -> tuple[str, Poly]:
    """Decompose a value into one of the variables and the rest; the variable is "" if that is not possible."""
    (var, *others) = sorted(value.symbols & set(variables)) or [""]
    rest = value - Poly.symbol(var) if var else value
    return ("", rest) if others or var in rest.symbols else (var, rest)


class _PartBuilder:
    """Builder of the kernel for one part: iterations `box` of each loop."""

    def __init__(
        self,
        whole: Kernel,
        cuts: dict[str, list[int]],
        box: dict[str, LoopRange],
        arguments: RuntimeArguments,
        columns: bool,
    ):
        self.whole, self.cuts, self.box, self.arguments, self.columns = whole, cuts, box, arguments, columns
        self.start: dict[str, Poly] = {}
        self.values: dict[str, Operand] = {}

    def kernel(self) -> Kernel:
        loops = [x for loop in self.whole.loops for x in self._loop(loop)]
        moved = {
            var: start + (Poly.symbol(var) if any(x.var == var for x in loops) else 0)
            for var, start in self.start.items()
        }
        resolved = Substitution(symbols=moved).body(_needed(self._resolved(self.whole.body)))
        body = [self._placed(x) for x in resolved]
        if any(p.symbols & self.values.keys() for p in polynomials(body)):
            raise _Unclear
        accessed = {x.buffer for x in body if isinstance(x, Load | Store)}
        buffers = {b: use for b, use in self.whole.buffers.items() if b in accessed}
        return arrange(Kernel(buffers, loops, _numbered(body), _cost(body)))

    def _placed(self, x: object) -> Any:
        """Replace the loop-invariant part of an instruction's address by one run-time value."""
        match x:
            case Load():
                return replace(x, address=self._parted(x.address, plain=True))
            case Store():
                return replace(x, address=self._parted(x.address))
            case Index():
                return replace(x, value=self._parted(x.value))
        return x

    def _parted(self, p: Poly, plain: bool = False) -> Poly:
        """`p` with one run-time offset, or none if it is 0 and the text may be `plain`. Column offsets remain."""
        if self.columns:
            return p
        fixed = {m: c for m, c in p.terms.items() if self.arguments.sizes.keys() >= set(m)}
        begin = Poly(fixed).evaluate(self.arguments.sizes)
        changing = Poly({m: c for m, c in p.terms.items() if m not in fixed})
        return changing if plain and not begin else changing + self.arguments.bound_argument(begin)

    def _loop(self, loop: KernelLoop) -> list[KernelLoop]:
        """The loop over this part; no loop for a single iteration of a small loop."""
        if len(self.cuts[loop.var]) == 2:
            return [loop]
        low, high = self.box[loop.var]
        self.start[loop.var] = Poly.constant(low)
        if loop.extent.value is not None:
            return [KernelLoop(loop.var, Poly.constant(high - low))] if high - low > 1 else []
        return [KernelLoop(loop.var, self.arguments.bound_argument(high - low))]

    def _resolved(self, body: list[Statement]) -> list[Statement]:
        """The instructions without guards: `values` has the value of each guard."""
        results: list[Statement] = []
        for x in body:
            x = x.map_operands(Substitution(self.values))
            if not isinstance(x, GuardBlock):
                results.append(x)
            elif all(map(self._holds, x.ranges)):
                results += self._resolved(x.body)
                self.values[x.out.name] = self.values.get(x.result.name, x.result)
            else:
                self.values[x.out.name] = x.fill
        return results

    def _holds(self, r: tuple[Poly, Poly, Poly, Poly]) -> bool:
        low, value, high, _ = r
        var, rest = _linear(value, self.box)
        first = self.box[var][0] + rest.evaluate(self.arguments.sizes)
        return low.evaluate(self.arguments.sizes) <= first < high.evaluate(self.arguments.sizes)


def _needed(body: list[Statement]) -> list[Statement]:
    """The stores and checks, and the instructions they depend on (dead code elimination)."""
    needed: set[str] = set()
    results = []
    for x in reversed(body):
        if isinstance(x, Store | Reduce | BoundsCheck) or x.out.name in needed:
            needed |= {o.name for o in operands([x])}.union(*(p.symbols for p in polynomials([x])))
            results.append(x)
    return results[::-1]


def _numbered(body: list[Statement], start: int = 0) -> list[Statement]:
    """The instructions with values numbered from `start` on."""
    named = [x.out for x in body if not isinstance(x, Store | Reduce)]
    return ValueRenaming({out.name: out._replace(name=f"v{k}") for k, out in enumerate(named, start)}).body(body)
