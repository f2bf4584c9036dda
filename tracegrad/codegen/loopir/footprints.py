"""Compute access footprints: the elements of each buffer that an iteration of the chunked loop accesses."""

from __future__ import annotations

from typing import NamedTuple

from tracegrad.analysis.intervals import scaled
from tracegrad.codegen.loopir.kernel import ACCESSES, BoundsCheck, Kernel, flattened
from tracegrad.codegen.loopir.polynomial import Poly


class Footprint(NamedTuple):
    """An access footprint: iteration i of the chunked loop accesses elements step * i + low to step * i + high."""

    stride: int
    low: int
    high: int


def footprints(kernel: Kernel, sizes: dict[str, int]) -> dict[str, list[Footprint | None]]:
    """The footprints of the accesses to each buffer; None for an unknown footprint."""
    table: dict[str, list[Footprint | None]] = {name: [] for name in kernel.buffers}
    ranges = {var: (0, max(extent.evaluate(sizes) - 1, 0)) for var, extent in kernel.loops}
    body = flattened(kernel.body)
    for x in body:
        if type(x) is BoundsCheck:
            ranges[x.out.name] = (0, max(x.size.evaluate(sizes) - 1, 0))
    known: dict[Poly, Footprint | None] = {}
    var = kernel.across_chunks
    for x in body:
        if isinstance(x, ACCESSES):
            if x.address not in known:
                known[x.address] = _footprint(x.address, var, ranges, sizes)
            table[x.buffer].append(known[x.address])
    return table


def _footprint(address: Poly, var: str, ranges: dict[str, tuple[int, int]], sizes: dict[str, int]) -> Footprint | None:
    stride = low = high = 0
    for monomial, c in address.terms.items():
        unknown = []
        for s in monomial:
            if s in sizes:
                c *= sizes[s]
            else:
                unknown.append(s)
        if unknown == [var]:
            stride += c
        elif not unknown:
            low, high = low + c, high + c
        elif len(unknown) == 1 and unknown[0] in ranges:
            least, greatest = scaled(ranges[unknown[0]], c)
            low, high = low + least, high + greatest
        else:
            return None
    return Footprint(stride, low, high)
