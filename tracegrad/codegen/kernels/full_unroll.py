"""Unroll short loops fully: reductions over a few strided elements, as pooling windows, and selections.

Without unrolling, a short loop would surround the innermost loop, and a result would be combined in memory with each
element of its window. Unrolled, an element of the result is a few loads and their combination. Guards that test the
position within an overlapping window are resolved at compile time, also when the elements of a gradient alternate
between windows.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

from tracegrad.codegen.loopir.kernel import (
    Compute,
    Definition,
    GuardBlock,
    GuardRange,
    Index,
    Kernel,
    KernelLoop,
    Load,
    Operand,
    Reduce,
    Statement,
    Store,
    Substitution,
    flattened,
)
from tracegrad.codegen.loopir.polynomial import Poly
from tracegrad.target.tuning import TUNING

MAX_UNROLL_INSTRUCTIONS = TUNING.unrolling.max_instructions
MAX_CHOICE_INSTRUCTIONS = TUNING.unrolling.max_choice_instructions
MAX_UNROLL_COPIES = TUNING.unrolling.max_copies
_OF_CHOICES = frozenset([Compute, Load, Index, GuardBlock, Store])


def unroll_reductions(kernel: Kernel) -> None:
    """Unroll, in place, the short loops of a kernel that all of its results reduce over.

    The iterations of the short loops then follow each other in the body, in their order.
    """
    reductions = [x for x in kernel.body if isinstance(x, Reduce)]
    short = [loop for loop in kernel.loops if loop.extent.value is not None] if reductions else []
    if not short or not _is_plain(kernel.body):
        return
    short = [x for x in short if _may_unroll(kernel, x.var) and _is_alike(kernel, reductions, x.var)]
    _unroll(kernel, short, MAX_UNROLL_INSTRUCTIONS)


def unroll_choices(kernel: Kernel) -> None:
    """Unroll, in place, the short loops of a kernel whose guards test their variables, which resolves the guards.

    If guards test no other variables, `loop_splitting` does the same with one kernel for each part.
    """
    body = flattened(kernel.body)
    if not _OF_CHOICES.issuperset(map(type, body)):
        return
    short = {loop.var for loop in kernel.loops if loop.extent.value is not None}
    tested = [value.symbols for x in body if isinstance(x, GuardBlock) for _, value, _, _ in x.ranges]
    choices = set().union(*[names for names in tested if names <= short])
    if any(not names <= short for names in tested):
        _unroll(kernel, [loop for loop in kernel.loops if loop.var in choices], MAX_CHOICE_INSTRUCTIONS)


def _unroll(kernel: Kernel, short: list[KernelLoop], max_size: int) -> None:
    extents = [loop.extent.value or 0 for loop in short]
    times, size = math.prod(extents), len(flattened(kernel.body))
    if not 1 < times <= MAX_UNROLL_COPIES or len(short) == len(kernel.loops) or size > max_size:
        return
    copies = _UnrolledBody(kernel)
    body = copies.written({loop.var for loop in short}, extents, [loop.var for loop in short])
    if copies.copied > max_size:
        return
    kernel.body[:] = body
    kernel.loops[:] = [loop for loop in kernel.loops if loop not in short]
    kernel.cost = kernel.cost * copies.copied // size


def _is_plain(body: list[Any]) -> bool:
    """Whether a kernel only computes, and reduces each result to an element of its own."""
    for x in flattened(body):
        if not isinstance(x, Compute | Load | Index | GuardBlock | Reduce) or (isinstance(x, Reduce) and x.scatters):
            return False
    return True


def _may_unroll(kernel: Kernel, var: str) -> bool:
    """Whether no access is contiguous along `var`, or all accesses can run along another loop."""
    accesses = [x for x in flattened(kernel.body) if isinstance(x, Load | Reduce)]
    if not any(x.address.coefficient(var).value in (-1, 1) for x in accesses):
        return True
    others = [loop.var for loop in kernel.loops if loop.var != var]
    return any(all(_runs_along(x, other) for x in accesses) for other in others)


def _runs_along(x: Load | Reduce, var: str) -> bool:
    stride = x.address.coefficient(var)
    return stride == 1 if isinstance(x, Reduce) else stride in (0, 1, 2)


def _is_alike(kernel: Kernel, reductions: list[Reduce], var: str) -> bool:
    """Whether all results reduce over a loop; or over all loops that are not short, with an element for each iteration.

    A loop that can be coalesced with another is not unrolled.
    """
    if all(var in x.over for x in reductions):
        return True
    moves = [x for x in flattened(kernel.body) if isinstance(x, Load | Reduce)]
    for loop in kernel.loops:
        if all(x.address.coefficient(var) == x.address.coefficient(loop.var) * loop.extent for x in moves):
            return False
    long = {loop.var for loop in kernel.loops if loop.extent.value is None}
    return bool(long) and all(var not in x.over and long == {*x.over} for x in reductions)


class _UnrolledBody:
    """The body of a kernel, unrolled over some of its loops."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.body: list[Statement] = []
        self.count = self.copied = 0  # numbers of named values and of copied instructions
        self.loads: dict[tuple[str, Poly], Operand] = {}
        self.totals: dict[tuple[int, Poly], Operand] = {}

    def written(self, unrolled: set[str], extents: list[int], names: list[str]) -> list[Statement]:
        for iteration in product(*map(range, extents)):
            _UnrolledIteration(self, {name: Poly.constant(i) for name, i in zip(names, iteration)}).write(
                self.kernel.body
            )
        for (k, address), total in self.totals.items():
            x = self.kernel.body[k]
            assert isinstance(x, Reduce)
            over = tuple(var for var in x.over if var not in unrolled)
            reduced = replace(x, address=address, value=total, over=over)
            self.body.append(reduced if over else Store(x.buffer, address, self._with_identity(x.combiner, total)))
        return self.body

    def _with_identity(self, combiner: str, total: Operand) -> Operand:
        """`total` combined with the identity of its reduction: in NumPy a sum of -0.0 alone is 0.0."""
        if (combiner, total.dtype[0]) != ("add", "f"):
            return total
        return self.emit(Compute(self.new(total), "add", (total, Operand("", total.dtype, "0.0"))))

    def new(self, like: Operand) -> Operand:
        self.count += 1
        return Operand(f"v{self.count - 1}", like.dtype)

    def emit(self, x: Definition) -> Operand:
        self.body.append(x)
        return x.out


class _UnrolledIteration(Substitution):
    """A copy of the body for one iteration, whose loop variables have the values `at`."""

    def __init__(self, copies: _UnrolledBody, at: dict[str, Poly]):
        self.names: dict[str, Operand] = {}
        self.at = dict(at)
        self.renamed: dict[str, Operand] = {}
        super().__init__(self.names, self.at, results=self.renamed)
        self.copies = copies

    def write(self, body: list[Statement]) -> None:
        copies = self.copies
        for k, x in enumerate(body):
            copies.copied += 1
            if isinstance(x, Store):
                copies.body.append(x.map_operands(self))
            elif isinstance(x, Reduce):
                self._add((k, self.poly(x.address)), x.combiner, self.operand(x.value))
            elif isinstance(x, GuardBlock):
                self._define(x.out, self._guard(x))
            elif isinstance(x, Load):
                key = (x.buffer, self.poly(x.address))
                if key not in copies.loads:
                    copies.loads[key] = copies.emit(Load(copies.new(x.out), *key))
                self._define(x.out, copies.loads[key])
            else:
                self.renamed[x.out.name] = copies.new(x.out)
                self._define(x.out, copies.emit(x.map_operands(self)))

    def _define(self, out: Operand, value: Operand) -> None:
        self.names[out.name], self.at[out.name] = value, Poly.symbol(value.name)

    def _guard(self, x: GuardBlock) -> Operand:
        """The value of a guard: its result or its fill, if this iteration decides."""
        ranges = [(self.poly(lo), self.poly(v), self.poly(hi), self.poly(st)) for lo, v, hi, st in x.ranges]
        known = [_is_within(four) for four in ranges]
        if False in known:
            return self.operand(x.fill)
        if None not in known:
            self.write(x.body)
            return self.operand(x.result)
        copies = self.copies
        outside, loads = copies.body, copies.loads
        copies.body, copies.loads = [], dict(loads)
        self.write(x.body)
        within, result = copies.body, self.operand(x.result)
        copies.body, copies.loads = outside, loads
        open_ = tuple([four for four, is_known in zip(ranges, known) if is_known is None])
        return copies.emit(GuardBlock(copies.new(x.out), open_, within, result, self.operand(x.fill)))

    def _add(self, k: tuple[int, Poly], combiner: str, value: Operand) -> None:
        copies, before = self.copies, self.copies.totals.get(k)
        both = Compute(copies.new(value), combiner, (before, value)) if before is not None else None
        copies.totals[k] = value if both is None else copies.emit(both)


def _is_within(four: GuardRange) -> bool | None:
    """Whether the value of a range is in the range; None if that is not known."""
    low, value, high, step = (x.value for x in four)
    if low is None or value is None or high is None or step is None:
        return None
    return low <= value < high and (value - low) % step == 0
