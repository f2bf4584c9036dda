"""The part of a loop of vectors in which all guards hold: it needs no masks, nor anything to compute them.

A stencil is guarded at both ends of a row, and in the first and the last rows. Whether a row is guarded, and where its
part begins and ends, is known before the loop. What lies before that part and behind it, and rows that have none, run
with the guards.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from tracegrad.codegen.loops import Guard, flattened
from tracegrad.codegen.poly import Poly
from tracegrad.codegen.scalar_llvm import I64

if TYPE_CHECKING:
    from tracegrad.codegen.vector_llvm import VectorLoop

__all__ = ["Inside", "inside_of", "part_inside"]


class Inside(NamedTuple):
    """Where guards hold: those of which that is known, by identity; the bounds of the loop's variable; and what has to
    be within other bounds, whatever the variable is."""

    guards: frozenset[int]
    bounds: dict[tuple[Poly, Poly], None]
    tests: dict[tuple[Poly, Poly], None]


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
        guards.add(id(x))
        for low, high, step in apart:
            (bounds if step == 1 else tests)[low, high] = None
    return Inside(frozenset(guards), bounds, tests) if bounds else None


def part_inside(loop: VectorLoop, found: Inside, low: Any, end: Any, width: int) -> tuple[Any, Any]:
    """Where the part begins and ends, in whole turns of `width` from `low` on and no further than `end`; where there is
    none, at `end`."""
    b, zero = loop.b, I64(0)

    def least(x: Any, y: Any) -> Any:
        return b.select(b.icmp_signed("<", x, y), x, y)

    def most(x: Any, y: Any) -> Any:
        return b.select(b.icmp_signed("<", x, y), y, x)

    lows, highs = ([loop.scalar(p) for p in dict.fromkeys(pair[k] for pair in found.bounds)] for k in range(2))
    first = b.sub(reduce(most, lows, low), low)
    first = b.add(low, b.and_(b.add(first, I64(width - 1)), I64(-width)))
    last = reduce(least, highs, end)
    size = b.and_(most(b.sub(last, first), zero), I64(-width))
    for least_, most_ in found.tests:
        holds = b.and_(b.icmp_signed("<=", loop.scalar(least_), zero), b.icmp_signed(">", loop.scalar(most_), zero))
        size = b.select(holds, size, zero)
    there = b.icmp_signed(">", size, zero)
    return b.select(there, first, end), b.select(there, b.add(first, size), end)
