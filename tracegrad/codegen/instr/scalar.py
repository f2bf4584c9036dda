"""Select LLVM instructions for one scalar operation of the loop IR, on one value or lane by lane on a vector.

Arithmetic is strict IEEE and never reordered. A product is contracted with a sum (FMA) only where `fma.py` says so.
Only reductions have fast-math flags, at the end of the module. `maximum` and `minimum` propagate nan, comparisons are
ordered except `ne`, and integer division by zero gives 0 as in NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tracegrad import llvmir as ir
from tracegrad.codegen import vecmath
from tracegrad.codegen.instr.float_bits import OF_FLOATS, half_value
from tracegrad.codegen.loopir.kernel import FIRST, SCATTERS, STOPS, Reduce
from tracegrad.codegen.vecmath.lanes import element_of, horizontal, lanes_of, number, of_lanes, shaped
from tracegrad.platform.processes import instruction_set
from tracegrad.target.cpu import has_masks_of_bytes

BOOL, I8, I32, I64 = ir.IntType(1), ir.IntType(8), ir.IntType(32), ir.IntType(64)
REASSOCIATE = ("reassoc",)
_NUMBERS = ("nnan", "nsz")

_TYPES: dict[str, Any] = {
    "f64": ir.DoubleType(),
    "f32": ir.FloatType(),
    "bool": BOOL,
    **{f"{s}{n}": ir.IntType(n) for s in "iu" for n in (8, 16, 32, 64)},
}


def llvm_type(dtype: str) -> Any:
    """The type of a scalar in a register."""
    return _TYPES[dtype]


def memory_type(dtype: str) -> ir.IRType:
    """The type of a scalar in memory; a boolean is one byte."""
    return I8 if dtype == "bool" else _TYPES[dtype]


def constant(spelling: str, dtype: str, lanes: int = 0) -> Any:
    """The immediate operand with this spelling."""
    t = of_lanes(_TYPES[dtype], lanes)
    if dtype == "bool":
        return number(t, int(spelling == "True"))
    return number(t, float(spelling) if dtype[0] == "f" else int(spelling))


def constant_of(b: ir.IRBuilder, word: ir.IRValue, dtype: str) -> ir.IRValue:
    """Decode a number of this dtype from the bits of a word; a float is stored as a double."""
    t = llvm_type(dtype)
    if dtype[0] == "f":
        value = b.bitcast(word, ir.DoubleType())
        return value if dtype == "f64" else b.fptrunc(value, t)
    return word if t.width == 64 else b.trunc(word, t)


def operation(b: ir.IRBuilder, op: str, args: list[Any], dtypes: list[str], out: str) -> Any:
    """Emit `op(args)`; `dtypes` are the dtypes of the arguments, `out` the dtype of the result."""
    if op == "cast":
        return cast(b, args[0], dtypes[0], out)
    if op == "where":
        return b.select(*args)
    kind = "b" if dtypes[0] == "bool" else dtypes[0][0]
    emit = _BY_KIND[kind].get(op)
    if emit is not None:
        return emit(b, *args)
    if op in _COMPARE:
        if dtypes[0] != dtypes[1]:
            return _compare_signs(b, op, args[0], args[1], kind == "i")
        return compare(b, op, args[0], args[1], kind)
    return vecmath.call(b, op, *args)


# -- comparisons and casts ---------------------------------------------------------------------------
_COMPARE = {"lt": "<", "le": "<=", "eq": "==", "ne": "!=", "gt": ">", "ge": ">="}


def compare(b: ir.IRBuilder, op: str, x: ir.IRValue, y: ir.IRValue, kind: str) -> ir.IRValue:
    """Emit `x op y` as a boolean."""
    sign = _COMPARE[op]
    if kind == "f":
        return b.fcmp_unordered(sign, x, y) if op == "ne" else b.fcmp_ordered(sign, x, y)
    return b.icmp_signed(sign, x, y) if kind == "i" else b.icmp_unsigned(sign, x, y)


def _compare_signs(b: ir.IRBuilder, op: str, x: ir.IRValue, y: ir.IRValue, x_signed: bool) -> object:
    """Emit `x op y` for one signed and one unsigned operand: NumPy compares 64-bit integers of both kinds by value."""
    less, more = op in ("lt", "le", "ne"), op in ("gt", "ge", "ne")
    negative = b.icmp_signed("<", x if x_signed else y, number(x.type, 0))
    fixed = number(shaped(BOOL, x), int(less if x_signed else more))
    return b.select(negative, fixed, b.icmp_unsigned(_COMPARE[op], x, y))


def cast(b: ir.IRBuilder, x: ir.IRValue, old: str, new: str) -> ir.IRValue:
    """Convert `x` as `ndarray.astype` does."""
    if old == new:
        return x
    to, zero = shaped(_TYPES[new], x), number(x.type, 0.0 if old[0] == "f" else 0)
    if new == "bool":
        return b.fcmp_unordered("!=", x, zero) if old[0] == "f" else b.icmp_unsigned("!=", x, zero)
    if old[0] == "f" and new[0] == "f":
        return b.fpext(x, to) if new == "f64" else b.fptrunc(x, to)
    if old[0] == "f":
        if new in ("u64", "u32"):
            return _unsigned(b, x, to)
        # Converted as C compilers do, so out-of-range values convert as in NumPy.
        whole = b.fptosi(x, to if new == "i64" else shaped(I32, x))
        return whole if new in ("i64", "i32") else b.trunc(whole, to)
    if new[0] == "f":
        return b.sitofp(x, to) if old[0] == "i" else b.uitofp(x, to)
    if _width(to) < _width(x.type):
        return b.trunc(x, to)
    if _width(to) == _width(x.type):
        return x
    return b.sext(x, to) if old[0] == "i" else b.zext(x, to)


_SATURATES = instruction_set() == "aarch64"  # whether a number out of range becomes the nearest integer


def _width(t: ir.IRType) -> int:
    width: int = element_of(t).width
    return width


def _unsigned(b: ir.IRBuilder, x: ir.IRValue, to: ir.IRType) -> ir.IRValue:
    """Convert `x` to an unsigned integer of 32 or 64 bits as NumPy's C code does: negative numbers wrap on x86, and
    become 0 on ARM, except those of double precision as integers of 32 bits."""
    if _SATURATES and (_width(to) == 64 or element_of(x.type) != _TYPES["f64"]):
        return b.call(b.module.intrinsic("fptoui.sat", [to, x.type], to, [x.type]), [x])
    if _SATURATES:
        return b.trunc(b.fptosi(x, shaped(I64, x)), to)
    end = 2 ** (_width(to) - 1)
    low = b.fptosi(x, to)
    high = b.xor(b.fptosi(b.fsub(x, number(x.type, float(end))), to), number(to, -end))
    return b.select(b.fcmp_ordered("<", x, number(x.type, float(end))), low, high)


# -- arithmetic, by kind of dtype ----------------------------------------------------------------------
def _intrinsic(name: str, count: int) -> Callable[..., ir.IRValue]:
    def emit(b: ir.IRBuilder, *args: ir.IRValue) -> ir.IRValue:
        t = args[0].type
        return b.call(b.module.intrinsic(name, [t], t, [t] * count), args)

    return emit


def _extremum(op: str) -> Callable[..., ir.IRValue]:
    """Emit NumPy's extremum, which returns the second of two zeros as the x86 instruction does. A sum propagates nan. A
    second select of `x` would not work, because LLVM would merge both selects and not use the instruction."""

    def emit(b: ir.IRBuilder, x: ir.IRValue, y: ir.IRValue) -> ir.IRValue:
        if _is_zero(y):
            return b.select(b.fcmp_ordered(f"{op}=", y, x), y, x)
        if _is_zero(x):
            return b.select(b.fcmp_ordered(op, x, y), x, y)
        best = b.select(b.fcmp_ordered(op, x, y, flags=("nnan",)), x, y, flags=("nnan",))
        return b.select(b.fcmp_unordered("uno", x, y), b.fadd(x, y), best)

    return emit


def _is_zero(x: ir.IRValue) -> bool:
    return isinstance(x, ir.IRConstant) and x.ref == number(x.type, 0.0).ref


_SECOND_ZERO = instruction_set() == "x86_64"


def multiply_add(b: ir.IRBuilder, x: Any, y: Any, z: ir.IRValue, flags: tuple[str, ...] = ()) -> object:
    """Emit `x * y + z`, rounded once if the target has FMA."""
    t = x.type
    return b.call(b.module.intrinsic("fmuladd", [t], t, [t] * 3), [x, y, z], fastmath=flags)


def _sign_float(b: ir.IRBuilder, x: ir.IRValue) -> ir.IRValue:
    one, zero = number(x.type, 1.0), number(x.type, 0.0)
    down = b.select(
        b.fcmp_ordered("<", x, zero),
        number(x.type, -1.0),
        b.select(b.fcmp_ordered("==", x, zero), zero, x),
    )
    return b.select(b.fcmp_ordered(">", x, zero), one, down)


def _remainder_float(b: ir.IRBuilder, x: ir.IRValue, y: Any) -> ir.IRValue:
    zero = number(x.type, 0.0)
    r = b.frem(x, y)
    other_sign = b.xor(b.fcmp_ordered("<", r, zero), b.fcmp_ordered("<", y, zero))
    moved = b.select(other_sign, b.fadd(r, y), r)
    return b.select(b.fcmp_unordered("!=", r, zero), moved, _intrinsic("copysign", 2)(b, zero, y))


def _floor_divide_float(b: ir.IRBuilder, x: Any, y: Any) -> ir.IRValue:
    zero, one, half = (number(x.type, v) for v in (0.0, 1.0, 0.5))
    r = b.frem(x, y)
    quotient = b.fdiv(b.fsub(x, r), y)
    other_sign = b.xor(b.fcmp_ordered("<", r, zero), b.fcmp_ordered("<", y, zero))
    lower = b.and_(other_sign, b.fcmp_unordered("!=", r, zero))
    quotient = b.select(lower, b.fsub(quotient, one), quotient)
    down = _intrinsic("floor", 1)(b, quotient)
    rounded = b.select(b.fcmp_ordered(">", b.fsub(quotient, down), half), b.fadd(down, one), down)
    signed_zero = _intrinsic("copysign", 2)(b, zero, b.fdiv(x, y))
    result = b.select(b.fcmp_unordered("!=", quotient, zero), rounded, signed_zero)
    return b.select(b.fcmp_ordered("==", y, zero), b.fdiv(x, y), result)


def _finite(op: str) -> Callable[..., ir.IRValue]:
    def emit(b: ir.IRBuilder, x: Any) -> ir.IRValue:
        return b.fcmp_ordered(op, _intrinsic("fabs", 1)(b, x), number(x.type, float("inf")))

    return emit


_FLOAT: dict[str, Callable[..., Any]] = {
    "add": lambda b, x, y: b.fadd(x, y),
    "sub": lambda b, x, y: b.fsub(x, y),
    "mul": lambda b, x, y: b.fmul(x, y),
    "div": lambda b, x, y: b.fdiv(x, y),
    "neg": lambda b, x: b.fneg(x),
    "maximum": _extremum(">") if _SECOND_ZERO else _intrinsic("maximum", 2),
    "minimum": _extremum("<") if _SECOND_ZERO else _intrinsic("minimum", 2),
    "absolute": _intrinsic("fabs", 1),
    "sqrt": _intrinsic("sqrt", 1),
    "floor": _intrinsic("floor", 1),
    "ceil": _intrinsic("ceil", 1),
    "trunc": _intrinsic("trunc", 1),
    "rint": _intrinsic("rint", 1),
    "copysign": _intrinsic("copysign", 2),
    "sign": _sign_float,
    "remainder": _remainder_float,
    "floor_divide": _floor_divide_float,
    "isfinite": _finite("<"),
    "isinf": _finite("=="),
    **OF_FLOATS,
}


def _select_by(op: str, signed: bool) -> Callable[..., ir.IRValue]:
    def emit(b: ir.IRBuilder, x: ir.IRValue, y: ir.IRValue) -> ir.IRValue:
        test = b.icmp_signed if signed else b.icmp_unsigned
        return b.select(test(op, x, y), x, y)

    return emit


def _int(value: int, like: ir.IRValue) -> Any:
    return number(like.type, value)


def _floor_divide_int(b: ir.IRBuilder, x: ir.IRValue, y: ir.IRValue) -> ir.IRValue:
    zero = _int(0, x)
    by_zero = b.icmp_signed("==", y, zero)
    negated = b.icmp_signed("==", y, _int(-1, x))
    safe = b.select(b.or_(by_zero, negated), _int(1, x), y)
    q, r = b.sdiv(x, safe), b.srem(x, safe)
    lower = b.and_(b.icmp_signed("!=", r, zero), b.icmp_signed("<", b.xor(r, safe), zero))
    q = b.select(lower, b.sub(q, _int(1, x)), q)
    return b.select(by_zero, zero, b.select(negated, b.neg(x), q))


def _remainder_int(b: ir.IRBuilder, x: ir.IRValue, y: ir.IRValue) -> ir.IRValue:
    zero = _int(0, x)
    trivial = b.or_(b.icmp_signed("==", y, zero), b.icmp_signed("==", y, _int(-1, x)))
    safe = b.select(trivial, _int(1, x), y)
    r = b.srem(x, safe)
    lower = b.and_(b.icmp_signed("!=", r, zero), b.icmp_signed("<", b.xor(r, safe), zero))
    return b.select(lower, b.add(r, safe), r)


def _divide_unsigned(name: str) -> Callable[..., ir.IRValue]:
    def emit(b: ir.IRBuilder, x: ir.IRValue, y: ir.IRValue) -> ir.IRValue:
        by_zero = b.icmp_unsigned("==", y, _int(0, x))
        return b.select(by_zero, _int(0, x), getattr(b, name)(x, b.select(by_zero, _int(1, x), y)))

    return emit


def _sign_int(b: ir.IRBuilder, x: ir.IRValue) -> ir.IRValue:
    positive = b.zext(b.icmp_signed(">", x, _int(0, x)), x.type)
    return b.sub(positive, b.zext(b.icmp_signed("<", x, _int(0, x)), x.type))


def _shift(name: str) -> Callable[..., ir.IRValue]:
    def emit(b: ir.IRBuilder, x: ir.IRValue, y: ir.IRValue) -> ir.IRValue:
        inside = b.icmp_unsigned("<", y, _int(_width(x.type), x))
        moved = getattr(b, name)(x, b.select(inside, y, _int(0, x)))
        beyond = b.ashr(x, _int(_width(x.type) - 1, x)) if name == "ashr" else _int(0, x)
        return b.select(inside, moved, beyond)

    return emit


_INT: dict[str, Callable[..., Any]] = {
    "add": lambda b, x, y: b.add(x, y),
    "sub": lambda b, x, y: b.sub(x, y),
    "mul": lambda b, x, y: b.mul(x, y),
    "neg": lambda b, x: b.neg(x),
    "absolute": lambda b, x: b.select(b.icmp_signed("<", x, _int(0, x)), b.neg(x), x),
    "maximum": _select_by(">", True),
    "minimum": _select_by("<", True),
    "sign": _sign_int,
    "floor_divide": _floor_divide_int,
    "remainder": _remainder_int,
    "bit_and": lambda b, x, y: b.and_(x, y),
    "bit_or": lambda b, x, y: b.or_(x, y),
    "bit_xor": lambda b, x, y: b.xor(x, y),
    "shift_left": _shift("shl"),
    "shift_right": _shift("ashr"),
    "popcount": ir.IRBuilder.ctpop,
    "isfinite": lambda b, x: number(shaped(BOOL, x), 1),
    "isinf": lambda b, x: number(shaped(BOOL, x), 0),
    **{name: (lambda b, x: x) for name in ("floor", "ceil", "trunc", "rint")},
}
_UNSIGNED = _INT | {
    "absolute": lambda b, x: x,
    "maximum": _select_by(">", False),
    "minimum": _select_by("<", False),
    "sign": lambda b, x: b.zext(b.icmp_unsigned("!=", x, _int(0, x)), x.type),
    "floor_divide": _divide_unsigned("udiv"),
    "remainder": _divide_unsigned("urem"),
    "shift_right": _shift("lshr"),
    "half_value": half_value,
}
_BOOLEAN: dict[str, Callable[..., Any]] = {
    **{name: (lambda b, x, y: b.and_(x, y)) for name in ("logical_and", "mul", "minimum", "bit_and")},
    **{name: (lambda b, x, y: b.or_(x, y)) for name in ("logical_or", "add", "maximum", "bit_or")},
    "logical_not": lambda b, x: b.not_(x),
    "bit_xor": lambda b, x, y: b.xor(x, y),
    "isfinite": lambda b, x: number(shaped(BOOL, x), 1),
    "isinf": lambda b, x: number(shaped(BOOL, x), 0),
    **{name: (lambda b, x: x) for name in ("absolute", "floor", "ceil", "trunc")},
}
_BY_KIND = {"f": _FLOAT, "i": _INT, "u": _UNSIGNED, "b": _BOOLEAN}


# -- reductions --------------------------------------------------------------------------------------------
_COMBINES = SCATTERS | STOPS


def identity(combiner: str, dtype: str, lanes: int = 0) -> Any:
    """The identity of a reduction. In NumPy a sum of -0.0 alone is 0.0."""
    return number(of_lanes(_TYPES[dtype], lanes), _identity(combiner, dtype))


def _identity(combiner: str, dtype: str) -> Any:
    if combiner == "add" or combiner in SCATTERS:
        return 0.0 if dtype[0] == "f" else 0
    if combiner in ("mul", "logical_and", "all"):
        return 1.0 if dtype[0] == "f" else 1
    if combiner in ("logical_or", "any"):
        return 0
    width = 1 if dtype == "bool" else int(dtype[1:])
    lowest = combiner == "maximum"
    if dtype[0] == "f":
        return float("-inf") if lowest else float("inf")
    if dtype[0] == "i":
        edge = 2 ** (width - 1)
        return -edge if lowest else edge - 1
    return 0 if lowest else 2**width - 1


def combine(
    b: ir.IRBuilder,
    combiner: str,
    total: ir.IRValue,
    value: object,
    dtype: str,
    factors: list[ir.IRValue] | tuple[object, ...] = (),
) -> Any:
    """Combine `total` with one more `value`. Sums and products may be reassociated, in an order fixed by the code
    alone.

    A value that is the product of two `factors` is added in one operation.
    """
    if factors:
        first, second = factors
        return multiply_add(b, first, second, total, REASSOCIATE)
    if dtype[0] == "f" and combiner in ("add", "mul"):
        return (b.fadd if combiner == "add" else b.fmul)(total, value, flags=REASSOCIATE)
    return operation(b, _COMBINES.get(combiner, combiner), [total, value], [dtype, dtype], dtype)


def is_extremum(x: Reduce) -> bool:
    """Whether a register holds a float extremum; a second register then holds whether there was a nan."""
    return x.combiner in ("maximum", "minimum") and x.value.dtype[0] == "f"


def registers(x: Reduce, lanes: int = 0) -> list[ir.IRValue]:
    """The initial registers of a reduction; scalars if it returns an index."""
    if x.combiner in FIRST:
        return [identity(FIRST[x.combiner], x.value.dtype), I64(0)]
    start = identity(x.combiner, x.value.dtype, lanes)
    return [start, number(_flags(start.type), 0)] if is_extremum(x) else [start]


def _flags(t: ir.IRType) -> Any:
    """The type of nan flags for values of type `t`. Flags are as wide as the values if vector comparisons give that
    width; otherwise they would be narrowed each time."""
    match_width = lanes_of(t) and not has_masks_of_bytes()
    return of_lanes(ir.IntType(64 if element_of(t) == _TYPES["f64"] else 32) if match_width else BOOL, lanes_of(t))


def extremum(b: ir.IRBuilder, combiner: str, totals: list[ir.IRValue], value: ir.IRValue) -> list[ir.IRValue]:
    """Combine `totals`, the extremum and its nan flag, with one more `value`; cheaper than an extremum that propagates
    nan.

    The total is meaningless once the flag is set. The later of two zeros is returned, as in NumPy for rows shorter than
    its vectors. If the instruction orders zeros, either may be returned.
    """
    total, seen_nan = totals
    flags = ("nnan",) if _SECOND_ZERO else _NUMBERS
    keeps_total = b.fcmp_ordered("<" if combiner == "minimum" else ">", total, value, flags=flags)
    is_nan = b.sext(b.fcmp_unordered("uno", value, value), seen_nan.type)
    return [b.select(keeps_total, total, value, flags=flags), b.or_(seen_nan, is_nan)]


def first(
    b: ir.IRBuilder, x: Reduce, totals: list[ir.IRValue], value: ir.IRValue, index: ir.IRValue
) -> list[ir.IRValue]:
    """Combine `totals`, the extremum and its index, with one more `value` at a later `index`."""
    best, result = totals
    is_better = compare(b, "lt" if FIRST[x.combiner] == "minimum" else "gt", value, best, x.value.dtype[0])
    if x.value.dtype[0] == "f":
        is_better = b.or_(is_better, b.and_(b.fcmp_unordered("uno", value, value), b.fcmp_ordered("ord", best, best)))
    return [b.select(is_better, value, best), b.select(is_better, index, result)]


def reduction_result(b: ir.IRBuilder, x: Reduce, totals: list[ir.IRValue]) -> ir.IRValue:
    """The final result of a reduction with the registers `totals`."""
    value, dtype = totals[0], x.value.dtype
    if x.combiner in FIRST:
        return totals[-1]
    if of_vectors := lanes_of(value.type):
        value = horizontal(b, x.combiner, dtype, value)
    if not is_extremum(x):
        return value
    is_nan = were_nans(b, totals[1])
    if of_vectors:
        is_nan = horizontal(b, "logical_or", "bool", is_nan)
    return b.select(is_nan, ir.IRConstant(value.type, math.nan), value)


def were_nans(b: ir.IRBuilder, flags: ir.IRValue) -> ir.IRValue:
    """Whether there was a nan, in each lane."""
    return flags if element_of(flags.type) == BOOL else b.icmp_signed("!=", flags, number(flags.type, 0))
