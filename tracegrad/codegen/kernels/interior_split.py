"""Split an innermost loop into its guard-free interior and the boundary (index-set splitting).

A stencil has guards at both ends of a row, and in the first and the last rows. The bounds of the interior of each row
are computed before the loop. Iterations before and after the interior, and rows without one, run with the guards. In
a plain loop, LLVM's vectorizer can vectorize only the guard-free interior.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial, reduce
from typing import Any, NamedTuple

from tracegrad import llvmir as ir
from tracegrad.codegen.instr.scalar import I64
from tracegrad.codegen.instr.support import smaller
from tracegrad.codegen.kernels.loop_order import is_serial
from tracegrad.codegen.kernels.vectorize import LIGHTEST, dependent
from tracegrad.codegen.loopir.kernel import BoundsCheck, GuardBlock, Kernel, Reduce, flattened
from tracegrad.codegen.loopir.polynomial import Poly


class Interior(NamedTuple):
    """The interior of a loop: the guards known to hold in it, by identity; the bounds of the loop variable; and the
    loop-invariant ranges that must hold."""

    guards: frozenset[int]
    bounds: dict[tuple[Poly, Poly], None]
    tests: dict[tuple[Poly, Poly], None]


class LoopSegment(NamedTuple):
    """Iterations of a plain loop: their bounds, the known outcomes of guards, by identity, and whether there are many
    iterations."""

    low: Poly
    high: Poly
    known: dict[int, bool]
    long: bool


def interior_of(kernel: Kernel, var: str, varying: Collection[str]) -> Interior | None:
    """The interior in which guards of a loop over `var` hold, if any lane-dependent guard has a known range."""
    if "interior-splitting" in kernel.disabled:
        return None
    guards, bounds, tests = set[int](), dict[tuple[Poly, Poly], None](), dict[tuple[Poly, Poly], None]()
    for x in flattened(kernel.body):
        if not isinstance(x, GuardBlock) or x.out.name not in varying:
            continue
        ranges = [
            (low - value.without(var), high - value.without(var), value.coefficient(var))
            for low, value, high, _ in x.ranges
        ]
        if any(
            coefficient not in (0, 1) or (low.symbols | high.symbols) & set(varying)
            for low, high, coefficient in ranges
        ):
            continue
        if any(every != 1 for *_, every in x.ranges):
            continue
        guards.add(id(x))
        for low, high, coefficient in ranges:
            (bounds if coefficient == 1 else tests)[low, high] = None
    return Interior(frozenset(guards), bounds, tests) if bounds else None


def holds(b: ir.IRBuilder, scalar: Callable[[Poly], ir.IRValue], guard: GuardBlock) -> ir.IRValue:
    """Whether a guard holds in an iteration."""
    tests = []
    for low, value, high, step in guard.ranges:
        v, lo, hi = map(scalar, (value, low, high))
        tests += [b.icmp_signed(">=", v, lo), b.icmp_signed("<", v, hi)]
        if step != 1:
            tests.append(b.icmp_signed("==", b.urem(b.sub(v, lo), scalar(step)), I64(0)))
    return reduce(b.and_, tests)


def interior_bounds(
    b: ir.IRBuilder,
    scalar: Callable[[Poly], ir.IRValue],
    interior: Interior,
    low: ir.IRValue,
    end: ir.IRValue,
    width: int,
) -> tuple[Any, Any]:
    """The bounds of the interior, in whole steps of `width` from `low` to at most `end`; an empty interior is at `end`.
    `scalar` emits loop-invariant values."""
    zero = I64(0)

    def maximum(x: ir.IRValue, y: ir.IRValue) -> ir.IRValue:
        return b.select(b.icmp_signed("<", x, y), y, x)

    lows, highs = ([scalar(p) for p in dict.fromkeys(pair[k] for pair in interior.bounds)] for k in range(2))
    first = b.sub(reduce(maximum, lows, low), low)
    first = b.add(low, b.and_(b.add(first, I64(width - 1)), I64(-width)))
    last = reduce(partial(smaller, b), highs, end)
    size = b.and_(maximum(b.sub(last, first), zero), I64(-width))
    for lower, upper in interior.tests:
        inside = b.and_(b.icmp_signed("<=", scalar(lower), zero), b.icmp_signed(">", scalar(upper), zero))
        size = b.select(inside, size, zero)
    is_nonempty = b.icmp_signed(">", size, zero)
    return b.select(is_nonempty, first, end), b.select(is_nonempty, b.add(first, size), end)


def loop_segments(
    b: ir.IRBuilder, scalar: Callable[[Poly], ir.IRValue], kernel: Kernel, low: Any, high: Any
) -> list[LoopSegment]:
    """The parts of the innermost loop: interior, boundary before it, boundary after it. A loop that is short, expensive
    or serial is one part."""
    whole = [LoopSegment(low, high, {}, True)]
    loop = kernel.loops[-1]
    if loop.extent.value is not None or kernel.cost > LIGHTEST or is_serial(kernel):
        return whole
    if any(isinstance(x, Reduce | BoundsCheck) for x in flattened(kernel.body)):
        return whole
    result = interior_of(kernel, loop.var, dependent(kernel.body, loop.var))
    if result is None:
        return whole
    first, last = interior_bounds(b, scalar, result, low, high, 1)
    is_single = len(result.guards) == 1  # so it does not hold outside
    outside = dict.fromkeys(result.guards, False) if is_single else {}
    ends = [LoopSegment(low, first, outside, is_single), LoopSegment(last, high, outside, is_single)]
    return [LoopSegment(first, last, dict.fromkeys(result.guards, True), True), *ends]
