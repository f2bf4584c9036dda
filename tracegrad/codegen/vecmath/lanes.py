"""Build LLVM types, constants and intrinsics for one value or for a vector with the same code."""

from __future__ import annotations

from functools import cache
from typing import Any

from tracegrad import llvmir as ir
from tracegrad.codegen.loopir.kernel import ALL, ANY

_REDUCE = {
    "f": {"add": "fadd", "mul": "fmul", "maximum": "fmax", "minimum": "fmin"},
    "i": {"add": "add", "mul": "mul", "maximum": "smax", "minimum": "smin"},
    "u": {"add": "add", "mul": "mul", "maximum": "umax", "minimum": "umin"},
    "b": dict.fromkeys(ANY, "or") | dict.fromkeys(ALL, "and"),
}


def element_of(t: object) -> Any:
    """The type of one lane of `t`."""
    return t.element if isinstance(t, ir.VectorType) else t


def lanes_of(t: ir.IRType) -> int:
    """The number of lanes of `t`; 0 for a scalar type."""
    return t.count if isinstance(t, ir.VectorType) else 0


@cache
def of_lanes(t: ir.IRType, lanes: int) -> Any:
    """The vector of `lanes` values of type `t`, or `t` itself for 0 lanes."""
    return ir.VectorType(t, lanes) if lanes else t


def shaped(t: ir.IRType, like: Any) -> Any:
    """The scalar type `t`, or a vector of it with the number of lanes of the value `like`."""
    return of_lanes(t, lanes_of(like.type))


def number(t: Any, value: float) -> Any:
    """The constant `value` of type `t`, broadcast to each lane of a vector."""
    if not isinstance(t, ir.VectorType):
        return ir.IRConstant(t, value)
    return ir.TextConstant(t, f"splat ({t.element} {ir.IRConstant(t.element, value).ref})")


def splat(b: ir.IRBuilder, x: Any, lanes: int) -> ir.IRValue:
    """Broadcast the scalar `x` to all lanes."""
    t = of_lanes(x.type, lanes)
    anything, zeros = ir.TextConstant(t, "poison"), ir.IRConstant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
    return b.shuffle_vector(b.insert_element(anything, x, ir.IRConstant(ir.IntType(32), 0)), anything, zeros)


def numbered(t: ir.IRType) -> ir.IRValue:
    """The vector of lane numbers (0, 1, 2, ...)."""
    return ir.IRConstant(t, list(range(t.count)))


def prefetch(b: ir.IRBuilder, at: ir.IRValue, writes: bool = False, locality: int = 3) -> None:
    """Prefetch the cache line at a pointer, which need not be valid, into all caches, or only into the outer ones."""
    i32, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
    function = b.module.intrinsic("prefetch", [pointer], ir.VoidType(), [pointer, i32, i32, i32])
    b.call(function, [b.bitcast(at, pointer), i32(int(writes)), i32(locality), i32(1)])


def horizontal(b: ir.IRBuilder, combiner: str, dtype: str, lanes: ir.IRValue) -> ir.IRValue:
    """Reduce the lanes of a vector of partial results to a scalar."""
    t = lanes.type.element
    name = f"vector.reduce.{_REDUCE[dtype[0]][combiner]}"
    if dtype[0] == "f" and combiner in ("add", "mul"):
        function = b.module.intrinsic(name, [lanes.type], t, [t, lanes.type])
        return b.call(function, [ir.IRConstant(t, -0.0 if combiner == "add" else 1.0), lanes], fastmath=("reassoc",))
    function = b.module.intrinsic(name, [lanes.type], t, [lanes.type])
    return b.call(function, [lanes], fastmath=("nnan", "nsz") if dtype[0] == "f" else ())


def first_lane(b: ir.IRBuilder, booleans: list[ir.IRValue]) -> tuple[ir.IRValue, ir.IRValue]:
    """The number of the first true lane of several vectors, and whether there is none."""
    count = booleans[0].type.count
    whole = ir.IntType(max(count * len(booleans), 32))
    bits: ir.IRValue = whole(0)
    for k, x in enumerate(booleans):
        lane_bits = b.zext(b.bitcast(x, ir.IntType(count)), whole)
        bits = b.or_(bits, b.shl(lane_bits, whole(k * count))) if k else lane_bits
    i64 = ir.IntType(64)
    first = b.cttz(bits, ir.IRConstant(ir.IntType(1), 0))
    first = b.zext(first, i64) if bits.type.width < 64 else b.trunc(first, i64)
    return first, b.icmp_unsigned("==", bits, ir.IRConstant(bits.type, 0))
