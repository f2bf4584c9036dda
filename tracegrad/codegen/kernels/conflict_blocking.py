"""Block the innermost loop of a kernel that strides across memory, against conflicts of cache sets.

A row written across memory uses one element of each of many cache lines, and the next row uses their next elements.
Cache lines whose distance is a multiple of a large power of two share few cache sets, so they are evicted before the
next row. The innermost loop therefore runs over one block for all iterations of the outer loops, then over
the next block: its lines stay in the cache until they are used up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracegrad import llvmir as ir
from tracegrad.codegen.instr.scalar import I64
from tracegrad.codegen.instr.support import loop
from tracegrad.codegen.kernels.loop_order import is_serial
from tracegrad.codegen.loopir.kernel import Kernel, Reduce, accesses
from tracegrad.codegen.loopir.polynomial import Poly
from tracegrad.target.tuning import TUNING

if TYPE_CHECKING:
    from collections.abc import Callable


CONFLICT_BLOCK = TUNING.transposition.conflict_block
COLLIDING = TUNING.transposition.conflict_stride


def strides_across(kernel: Kernel) -> list[Poly]:
    """The strides, in elements, with which the innermost loop crosses memory that an outer loop runs along. Empty if
    the order of iterations matters."""
    if len(kernel.loops) < 2 or kernel.chunked == len(kernel.loops) - 1 or kernel.loops[-1].extent.value is not None:
        return []
    if "conflict-blocking" in kernel.disabled:
        return []
    every = accesses(kernel.body)
    if is_serial(kernel) or any(isinstance(x, Reduce) for x in every):
        return []
    strides = [[x.address.coefficient(each.var) for each in kernel.loops] for x in every]
    across = [inner for *around, inner in strides if inner.value is None and 1 in [x.value for x in around]]
    return list(dict.fromkeys(across))


def in_conflict_blocks(
    b: ir.IRBuilder, extent: ir.IRValue, strides: list[ir.IRValue], write: Callable[..., object]
) -> None:
    """Emit `write(first, last)` for each block of the innermost loop, which has `extent` iterations. There is one block
    if no stride causes cache conflicts."""
    size = ir.IRConstant(I64, CONFLICT_BLOCK)
    largest: ir.IRValue = ir.IRConstant(I64, 1 << 62)
    for stride in strides:
        conflict_free = b.icmp_signed("!=", b.and_(stride, ir.IRConstant(I64, COLLIDING - 1)), ir.IRConstant(I64, 0))
        largest = b.select(conflict_free, largest, size)

    def one(k: ir.Phi) -> None:
        first = b.mul(k, largest)
        rest = b.sub(extent, first)
        write(first, b.select(b.icmp_signed("<", rest, largest), extent, b.add(first, largest)))

    count = b.add(b.sdiv(b.sub(extent, ir.IRConstant(I64, 1)), largest), ir.IRConstant(I64, 1))
    loop(b, b.select(b.icmp_signed(">", extent, ir.IRConstant(I64, 0)), count, ir.IRConstant(I64, 0)), one)
