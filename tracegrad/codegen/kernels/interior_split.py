"""The part of an innermost loop in which all guards hold: it needs no masks, nor anything to compute them.

A stencil is guarded at both ends of a row, and in the first and the last rows. Whether a row is guarded, and where its
part begins and ends, is known before the loop. What lies before that part and behind it, and rows that have none, run
with the guards. Of a plain loop, only the part without them is one that LLVM's vectoriser can make vectors of.
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
from tracegrad.codegen.loopir.kernel import Check, Guard, Kernel, Reduce, flattened
from tracegrad.codegen.loopir.polynomial import Poly

__all__ = ["Inside", "Part", "holds", "inside_of", "part_inside", "plain_parts"]


class Inside(NamedTuple):
    """Where guards hold: those of which that is known, by identity; the bounds of the loop's variable; and what has to
    be within other bounds, whatever the variable is."""

    guards: frozenset[int]
    bounds: dict[tuple[Poly, Poly], None]
    tests: dict[tuple[Poly, Poly], None]


class Part(NamedTuple):
    """Turns of a plain loop; of guards, by identity, whether they hold, where that is known; whether turns are many."""

    low: Any
    high: Any
    known: dict[int, bool]
    long: bool


def inside_of(body: list[Any], var: str, varying: Collection[str]) -> Inside | None:
    """Where the guards in a loop over `var` hold, if that is known of any that is not the same for all lanes."""
    guards, bounds, tests = set[int](), dict[tuple[Poly, Poly], None](), dict[tuple[Poly, Poly], None]()
    for x in flattened(body):
        if not isinstance(x, Guard) or x.out.name not in varying:
            continue
        apart = [
            (low - value.without(var), high - value.without(var), value.coefficient(var))
            for low, value, high, _ in x.ranges
        ]
        if any(step not in (0, 1) or (low.symbols | high.symbols) & set(varying) for low, high, step in apart):
            continue
        if any(every != 1 for *_, every in x.ranges):
            continue
        guards.add(id(x))
        for low, high, step in apart:
            (bounds if step == 1 else tests)[low, high] = None
    return Inside(frozenset(guards), bounds, tests) if bounds else None


def holds(b: ir.IRBuilder, scalar: Callable[[Poly], Any], guard: Guard) -> Any:
    """Whether a guard holds in a turn of the loops."""
    tests = []
    for low, value, high, step in guard.ranges:
        v, lo, hi = map(scalar, (value, low, high))
        tests += [b.icmp_signed(">=", v, lo), b.icmp_signed("<", v, hi)]
        if step != 1:
            tests.append(b.icmp_signed("==", b.urem(b.sub(v, lo), scalar(step)), I64(0)))
    return reduce(b.and_, tests)


def part_inside(
    b: ir.IRBuilder, scalar: Callable[[Poly], Any], found: Inside, low: Any, end: Any, width: int
) -> tuple[Any, Any]:
    """Where the part begins and ends, in whole turns of `width` from `low` on and no further than `end`; where there is
    none, at `end`. `scalar` emits what is the same for the whole loop."""
    zero = I64(0)

    def most(x: Any, y: Any) -> Any:
        return b.select(b.icmp_signed("<", x, y), y, x)

    lows, highs = ([scalar(p) for p in dict.fromkeys(pair[k] for pair in found.bounds)] for k in range(2))
    first = b.sub(reduce(most, lows, low), low)
    first = b.add(low, b.and_(b.add(first, I64(width - 1)), I64(-width)))
    last = reduce(partial(smaller, b), highs, end)
    size = b.and_(most(b.sub(last, first), zero), I64(-width))
    for least_, most_ in found.tests:
        inside = b.and_(b.icmp_signed("<=", scalar(least_), zero), b.icmp_signed(">", scalar(most_), zero))
        size = b.select(inside, size, zero)
    there = b.icmp_signed(">", size, zero)
    return b.select(there, first, end), b.select(there, b.add(first, size), end)


def plain_parts(b: ir.IRBuilder, scalar: Callable[[Poly], Any], kernel: Kernel, low: Any, high: Any) -> list[Part]:
    """The innermost loop in the order of its parts: that in which guards hold, what lies before it, and behind it. A
    loop that is short or dear, or whose turns have an order, is one part."""
    whole = [Part(low, high, {}, True)]
    loop = kernel.loops[-1]
    if loop.extent.value is not None or kernel.cost > LIGHTEST or is_serial(kernel):
        return whole
    if any(isinstance(x, Reduce | Check) for x in flattened(kernel.body)):
        return whole
    found = inside_of(kernel.body, loop.var, dependent(kernel.body, loop.var))
    if found is None:
        return whole
    first, last = part_inside(b, scalar, found, low, high, 1)
    alone = len(found.guards) == 1  # so it holds nowhere else
    outside = dict.fromkeys(found.guards, False) if alone else {}
    ends = [Part(low, first, outside, alone), Part(last, high, outside, alone)]
    return [Part(first, last, dict.fromkeys(found.guards, True), True), *ends]
