"""Kernels that read or write across memory, as one that transposes: where its rows collide, they go stretch by stretch.

A row of what such a kernel writes takes an element of each of many lines of the cache, and the next row the elements
beside them. Lines that are a multiple of a large power of two apart share so few places in the cache that each has left
it by then: to transpose 2048 by 2048 elements takes five times as long as 2000 by 2000. So the innermost loop runs over
a stretch, for all turns of the loops around it, and then over the next: its lines stay until they are used up.
"""

from __future__ import annotations

from typing import Any

from tracegrad import llvmir as ir
from tracegrad.codegen.instr.scalar import I64
from tracegrad.codegen.instr.support import loop
from tracegrad.codegen.kernels.loop_order import is_serial
from tracegrad.codegen.loopir.kernel import Kernel, Reduce, accesses
from tracegrad.codegen.loopir.polynomial import Poly

__all__ = ["in_stretches", "steps_across"]

STRETCH = 8  # elements
COLLIDING = 512


def steps_across(kernel: Kernel) -> list[Poly]:
    """How far the innermost loop goes across memory, in elements, where a loop around it goes along; nothing where the
    order of the turns matters."""
    if len(kernel.loops) < 2 or kernel.chunked == len(kernel.loops) - 1 or kernel.loops[-1].extent.value is not None:
        return []
    every = accesses(kernel.body)
    if is_serial(kernel) or any(isinstance(x, Reduce) for x in every):
        return []
    steps = [[x.address.coefficient(each.var) for each in kernel.loops] for x in every]
    across = [inner for *around, inner in steps if inner.value is None and 1 in [x.value for x in around]]
    return list(dict.fromkeys(across))


def in_stretches(b: ir.IRBuilder, extent: Any, steps: list[Any], write: Any) -> None:
    """Write `write(first, last)` for each stretch of the innermost loop, which has `extent` turns; all are one, if no
    step makes lines collide."""
    size = ir.Constant(I64, STRETCH)
    largest: ir.Value = ir.Constant(I64, 1 << 62)
    for step in steps:
        apart = b.icmp_signed("!=", b.and_(step, ir.Constant(I64, COLLIDING - 1)), ir.Constant(I64, 0))
        largest = b.select(apart, largest, size)

    def one(k: Any) -> None:
        first = b.mul(k, largest)
        rest = b.sub(extent, first)
        write(first, b.select(b.icmp_signed("<", rest, largest), extent, b.add(first, largest)))

    count = b.add(b.sdiv(b.sub(extent, ir.Constant(I64, 1)), largest), ir.Constant(I64, 1))
    loop(b, b.select(b.icmp_signed(">", extent, ir.Constant(I64, 0)), count, ir.Constant(I64, 0)), one)
