"""Where a kernel reads and writes while its chunked loop goes on: which elements of a buffer belong to an iteration."""

from __future__ import annotations

from typing import NamedTuple

from tracegrad.codegen.loops import Check, Kernel, accesses, flattened
from tracegrad.codegen.poly import Poly

__all__ = ["Footprint", "footprints"]


class Footprint(NamedTuple):
    """In iteration i of the chunked loop, elements from step * i + low to step * i + high are accessed."""

    step: int
    low: int
    high: int


def footprints(kernel: Kernel, sizes: dict[str, int]) -> dict[str, list[Footprint | None]]:
    """The accesses to each buffer; None is one of which nothing is known."""
    found: dict[str, list[Footprint | None]] = {name: [] for name in kernel.buffers}
    ranges = {loop.var: (0, max(loop.extent.evaluate(sizes) - 1, 0)) for loop in kernel.loops}
    for x in flattened(kernel.body):
        if isinstance(x, Check):
            ranges[x.out.name] = (0, max(x.size.evaluate(sizes) - 1, 0))
    for x in accesses(kernel.body):
        found[x.buffer].append(_footprint(x.address, kernel.across_chunks, ranges, sizes))
    return found


def _footprint(address: Poly, var: str, ranges: dict[str, tuple[int, int]], sizes: dict[str, int]) -> Footprint | None:
    step = low = high = 0
    for monomial, c in address.terms.items():
        unknown = []
        for s in monomial:
            if s in sizes:
                c *= sizes[s]
            else:
                unknown.append(s)
        if unknown == [var]:
            step += c
        elif not unknown:
            low, high = low + c, high + c
        elif len(unknown) == 1 and unknown[0] in ranges:
            ends = [c * end for end in ranges[unknown[0]]]
            low, high = low + min(ends), high + max(ends)
        else:
            return None
    return Footprint(step, low, high)
