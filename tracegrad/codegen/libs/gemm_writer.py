"""Write IR for the GEMM generator (`gemm.py`): sizes, pointers, and vectors of a column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tracegrad import llvmir as ir
from tracegrad.codegen.instr.scalar import I64
from tracegrad.codegen.vecmath.lanes import number, numbered, splat

I8, I32 = ir.IntType(8), ir.IntType(32)


class GemmEmitter:
    """Emitter of GEMM code into the builder `b`, which the user of this class sets, with vectors of type `t` and
    `bytes_` bytes."""

    b: ir.IRBuilder

    def __init__(self, module: ir.IRModule, t: ir.IRType, bytes_: int):
        self.module, self.t, self.size = module, t, 8 if isinstance(t, ir.DoubleType) else 4
        self.lanes, self.is_long = bytes_ // self.size, bytes_ >= 64
        self.vector = ir.VectorType(t, self.lanes)

    def room(self, count: int) -> ir.IRValue:
        return self.b.bitcast(self.b.alloca(ir.ArrayType(self.t, count), align=64), self.t.as_pointer())

    def is_plain(self, letter: ir.IRValue) -> ir.IRValue:
        """Whether a matrix is not transposed."""
        lower = self.b.or_(self.b.load(letter), I8(32))
        return self.b.icmp_unsigned("==", lower, I8(ord("n")))

    def quotient_up(self, x: ir.IRValue, y: ir.IRValue | int) -> ir.IRValue:
        y = I64(y) if isinstance(y, int) else y
        return self.b.sdiv(self.b.sub(self.b.add(x, y), I64(1)), y)

    def is_stride_multiple(self, stride: ir.IRValue, bytes_: int) -> ir.IRValue:
        """Whether a column stride is a multiple of `bytes_`."""
        return self.b.icmp_unsigned("==", self.b.and_(self.b.mul(stride, I64(self.size)), I64(bytes_ - 1)), I64(0))

    def at_least_one(self, x: ir.IRValue) -> ir.IRValue:
        return self.b.select(self.b.icmp_signed("<", x, I64(1)), I64(1), x)

    def walk(
        self, count: ir.IRValue, streams: Sequence[tuple[ir.IRValue, ir.IRValue]], body: Callable[..., None]
    ) -> None:
        """Emit a loop of `count` iterations of `body(*pointers)` with running pointers: `streams` are their initial
        values and strides. No pass has to optimize the addresses of the loop."""
        b = self.b
        before = b.block
        inside, after = (b.append_basic_block(name) for name in ("inside", "after"))
        b.cbranch(b.icmp_signed(">", count, I64(0)), inside, after)
        b.position_at_end(inside)
        remaining, pointers = b.phi(I64), [b.phi(start.type) for start, _ in streams]
        body(*pointers)
        following = [b.sub(remaining, I64(1)), *[b.gep(x, [stride]) for x, (_, stride) in zip(pointers, streams)]]
        b.cbranch(b.icmp_signed(">", following[0], I64(0)), inside, after)
        for x, y, z in zip([remaining, *pointers], [count, *[start for start, _ in streams]], following):
            x.add_incoming(y, before)
            x.add_incoming(z, b.block)
        b.position_at_end(after)

    def splat(self, x: ir.IRValue) -> ir.IRValue:
        """Broadcast `x` to all lanes."""
        return splat(self.b, x, self.lanes)

    def at(self, pointer: ir.IRValue, i: int) -> ir.IRValue:
        return self.b.bitcast(self.b.gep(pointer, [I64(i * self.lanes)]), self.vector.as_pointer())

    def load(self, pointer: ir.IRValue, i: int = 0) -> Any:
        return self.b.load(self.at(pointer, i), align=self.size)

    def store(self, x: ir.IRValue, pointer: Any, i: int = 0) -> None:
        self.b.store(x, self.at(pointer, i), align=self.size)

    def below(self, count: object) -> ir.IRValue:
        """The mask of the first `count` lanes, or of all lanes. It is computed in the block that uses it, because LLVM
        would use narrower integers in another block."""
        integer = ir.IntType(8 * self.size)
        count = splat(self.b, self.b.trunc(count, integer) if self.size < 8 else count, self.lanes)
        return self.b.icmp_signed("<", numbered(ir.VectorType(integer, self.lanes)), count)

    def masked(
        self, pointer: ir.IRValue, count: ir.IRValue | None = None, mask: ir.IRValue | None = None
    ) -> ir.IRValue:
        """Load `count` elements, or the lanes of a mask; other lanes are zeros."""
        address, mask = self.at(pointer, 0), self.below(count) if mask is None else mask
        args = [address.type, I32, mask.type, self.vector]
        function = self.module.intrinsic("masked.load", [self.vector, address.type], self.vector, args)
        return self.b.call(function, [address, I32(self.size), mask, number(self.vector, 0.0)])
