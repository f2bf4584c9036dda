"""Emit bit-level float operations as LLVM IR: nextafter, spacing, frexp, conversion to and from half precision.

Except in `half_value`, the operand is a float, and its bits are read as an integer ordered by magnitude. Values are
scalars or vectors of float or double. No operation raises, and the results for inf, nan and 0 are equal to NumPy's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracegrad import llvmir as ir
from tracegrad.codegen.vecmath.lanes import element_of, number, shaped
from tracegrad.target.cpu import converts_halves


class _Float:
    """A float `x` as its bits: `sign`, and `magnitude`, an integer in the order of absolute values."""

    def __init__(self, b: ir.IRBuilder, x: ir.IRValue):
        self.b, self.x = b, x
        width, self.digits = (64, 52) if isinstance(element_of(x.type), ir.DoubleType) else (32, 23)
        self.t = shaped(ir.IntType(width), x)
        self.bits = b.bitcast(x, self.t)
        self.top = 1 << (width - 1)
        self.infinity = ((1 << (width - 1 - self.digits)) - 1) << self.digits
        self.sign = b.and_(self.bits, self.int(self.top))
        self.magnitude = b.and_(self.bits, self.int(self.top - 1))

    def int(self, value: int) -> Any:
        return number(self.t, value)

    def is_zero(self) -> ir.IRValue:
        return self.b.icmp_unsigned("==", self.magnitude, self.int(0))

    def is_finite(self) -> ir.IRValue:
        return self.b.icmp_unsigned("<", self.magnitude, self.int(self.infinity))

    def signed(self, magnitude: object) -> ir.IRValue:
        """The float with this magnitude and the sign of `x`."""
        return self.b.bitcast(self.b.or_(magnitude, self.sign), self.x.type)


def _nextafter(b: ir.IRBuilder, x: ir.IRValue, y: ir.IRValue) -> ir.IRValue:
    """The next float after `x` in the direction of `y` (nextafter): its magnitude is one more or one less."""
    from_, to = _Float(b, x), _Float(b, y)
    outwards = b.icmp_unsigned("==", b.fcmp_ordered(">", y, x), b.fcmp_ordered(">", x, number(x.type, 0.0)))
    step = b.select(outwards, from_.int(1), from_.int(-1))
    moved = from_.signed(b.add(from_.magnitude, step))
    tiny = b.bitcast(b.or_(to.sign, from_.int(1)), x.type)
    moved = b.select(from_.is_zero(), tiny, moved)
    moved = b.select(b.fcmp_ordered("==", x, y), y, moved)
    return b.select(b.fcmp_unordered("uno", x, y), b.fadd(x, y), moved)


def _spacing(b: ir.IRBuilder, x: ir.IRValue) -> ir.IRValue:
    """The distance from `x` to the next float away from zero; nan for inf and nan."""
    of = _Float(b, x)
    beyond = b.fsub(of.signed(b.add(of.magnitude, of.int(1))), x)
    beyond = b.select(of.is_zero(), b.bitcast(of.int(1), x.type), beyond)
    return b.select(of.is_finite(), beyond, b.fsub(x, x))


def _normalize(b: ir.IRBuilder, x: Any) -> tuple[_Float, ir.IRValue, ir.IRValue]:
    """Normalize `x`: a normal number, its exponent, and whether `x` has an exponent (0, inf and nan do not)."""
    of = _Float(b, x)
    lifted = b.fmul(x, number(x.type, 2.0 ** (of.digits + 2)))
    small = b.icmp_unsigned("<", of.magnitude, of.int(1 << of.digits))
    normal = _Float(b, b.select(small, lifted, x))
    bias = (of.infinity >> of.digits) // 2 - 1
    exponent = b.lshr(normal.magnitude, of.int(of.digits))
    exponent = b.sub(exponent, b.select(small, of.int(bias + of.digits + 2), of.int(bias)))
    return normal, exponent, b.and_(of.is_finite(), b.not_(of.is_zero()))


def _mantissa(b: ir.IRBuilder, x: ir.IRValue) -> ir.IRValue:
    """The mantissa of frexp, from 0.5 to 1 in magnitude; 0, inf and nan are returned as they are."""
    normal, _, has = _normalize(b, x)
    half = ((normal.infinity >> normal.digits) // 2 - 1) << normal.digits
    digits = b.and_(normal.bits, normal.int((1 << normal.digits) - 1))
    return b.select(has, normal.signed(b.or_(digits, normal.int(half))), x)


def _exponent(b: ir.IRBuilder, x: object) -> ir.IRValue:
    """The exponent of frexp, a 32-bit integer; 0 for 0, inf and nan."""
    of, exponent, has = _normalize(b, x)
    result = b.select(has, exponent, of.int(0))
    return result if element_of(of.t).width == 32 else b.trunc(result, shaped(ir.IntType(32), x))


# -- half precision: 10 digits, exponents from -14 to 15 ---------------------------------------------------------------
HALF, BITS = ir.HalfType(), ir.IntType(16)


def _is_converted(t: ir.IRType) -> bool:
    """Whether an instruction converts this type to half precision. Doubles have none; two conversions round twice."""
    return converts_halves() and isinstance(element_of(t), ir.FloatType)


class _HalfRounding(_Float):
    """A float to be rounded to half precision: the bits of 1.0 (`one`) and of an exponent step (`unit`), the number of
    digits to cut, and the rounded magnitude if it is a normal half (`near`, as bits) or not (`shifted`)."""

    def __init__(self, b: ir.IRBuilder, x: ir.IRValue):
        super().__init__(b, x)
        self.unit, self.cut = self.infinity & -self.infinity, self.digits - 10
        self.one = self.infinity // self.unit // 2 * self.unit
        odd = b.and_(b.lshr(self.magnitude, self.int(self.cut)), self.int(1))
        self.near = b.add(self.magnitude, b.add(odd, self.int((1 << (self.cut - 1)) - 1)))
        # Denormal halves have the spacing to which a sum with `shift` is rounded.
        self.shift = number(x.type, 2.0 ** (self.digits - 24))
        self.shifted = b.fadd(b.bitcast(self.magnitude, x.type), self.shift)

    def choose(self, *, normal: ir.IRValue, small: ir.IRValue, infinite: ir.IRValue, nan: ir.IRValue) -> object:
        """Select the rounded magnitude (ties to even)."""
        b, limit = self.b, self.int(self.one + 16 * self.unit)
        result = b.select(b.icmp_unsigned("<", self.near, limit), normal, infinite)
        result = b.select(b.icmp_unsigned("<", self.magnitude, self.int(self.one - 14 * self.unit)), small, result)
        return b.select(b.icmp_unsigned(">", self.magnitude, self.int(self.infinity)), nan, result)


def _round_to_half(b: ir.IRBuilder, x: Any) -> object:
    """The half-precision number nearest to `x`, as a float of the type of `x`."""
    if _is_converted(x.type):
        return b.fpext(b.fptrunc(x, shaped(HALF, x)), x.type)
    of = _HalfRounding(b, x)
    return of.signed(
        of.choose(
            normal=b.and_(of.near, of.int(-1 << of.cut)),
            small=b.bitcast(b.fsub(of.shifted, of.shift), of.t),
            infinite=of.int(of.infinity),
            nan=b.or_(of.magnitude, of.int(of.unit >> 1)),
        )
    )


def _half_bits(b: ir.IRBuilder, x: Any) -> object:
    """The bits of `x` rounded to half precision. A nan from half precision has its payload again."""
    if _is_converted(x.type):
        return b.bitcast(b.fptrunc(x, shaped(HALF, x)), shaped(BITS, x))
    of = _HalfRounding(b, x)
    payload = b.sub(b.lshr(of.magnitude, of.int(of.cut)), of.int((of.infinity >> of.cut) - 0x7C00))
    bits = of.choose(
        normal=b.sub(b.lshr(of.near, of.int(of.cut)), of.int((of.one - 15 * of.unit) >> of.cut)),
        small=b.sub(b.bitcast(of.shifted, of.t), b.bitcast(of.shift, of.t)),
        infinite=of.int(0x7C00),
        nan=b.select(b.icmp_unsigned("==", payload, of.int(0x7C00)), of.int(0x7E00), payload),
    )
    sign = b.lshr(of.sign, of.int(element_of(of.t).width - 16))
    return b.trunc(b.or_(bits, sign), shaped(BITS, x))


_HALF_OF_ONE, _BIAS = 0x3F000000, (127 - 15) << 23


def half_value(b: ir.IRBuilder, x: ir.IRValue) -> ir.IRValue:
    """The float with the half-precision bits `x`."""
    if converts_halves():
        return b.fpext(b.bitcast(x, shaped(HALF, x)), shaped(ir.FloatType(), x))
    t, real = shaped(ir.IntType(32), x), shaped(ir.FloatType(), x)
    extended = b.zext(x, t)
    magnitude = b.and_(extended, number(t, 0x7FFF))
    shifted = b.shl(magnitude, number(t, 13))
    bias = b.select(b.icmp_unsigned("<", magnitude, number(t, 0x7C00)), number(t, _BIAS), number(t, 2 * _BIAS))
    small = b.fsub(b.bitcast(b.or_(magnitude, number(t, _HALF_OF_ONE)), real), number(real, 0.5))
    is_small = b.icmp_unsigned("<", magnitude, number(t, 0x400))
    result = b.select(is_small, b.bitcast(small, t), b.add(shifted, bias))
    sign = b.shl(b.and_(extended, number(t, 0x8000)), number(t, 16))
    return b.bitcast(b.or_(result, sign), real)


OF_FLOATS: dict[str, Callable[..., Any]] = {
    "nextafter": _nextafter,
    "spacing": _spacing,
    "mantissa": _mantissa,
    "exponent": _exponent,
    "round_to_half": _round_to_half,
    "half_bits": _half_bits,
}
