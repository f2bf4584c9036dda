"""Define the expression language of `vecmath`: Python operators that emit LLVM IR.

A `Real` is a float64 or float32 SSA value, a `Bits` the integer of the same width, a `Mask` a one-bit boolean; or
vectors of them. Each operator emits one instruction, without folding, reordering, contraction or fast-math flags. A
body therefore has the same meaning in either format, for one value or a vector. A Python number next to a `Real`
becomes a constant of its format. There is no control flow: a choice is a `select`. `cold_paths` has the exceptions.

Two-word numbers (`DoubleWord`, an unevaluated sum `hi + lo`) carry the digits that one rounding would lose. The
error-free sums and products are by Dekker (1971) and by Knuth; see Muller et al., Handbook of Floating-Point
Arithmetic, chapter 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple, TypeVar

from tracegrad import llvmir as ir
from tracegrad.codegen.vecmath.lanes import element_of, lanes_of, number, of_lanes
from tracegrad.utils.lazy_dataclass import record

T = TypeVar("T")


@record(frozen=True)
class Format:
    """A floating-point format: its LLVM types, possibly vectors, and the integers that describe its encoding."""

    name: str
    real: ir.IRType
    word: ir.IRType
    mantissa: int
    bias: int

    @property
    def shifter(self) -> float:
        """1.5 * 2**mantissa: adding it rounds a small number to an integer in the low bits of the sum."""
        return 1.5 * 2.0**self.mantissa

    @property
    def tiny(self) -> float:
        """The smallest normal number."""
        return 2.0 ** (1 - self.bias)

    @property
    def width(self) -> int:
        return self.mantissa + self.bias.bit_length() + 2

    @property
    def sign_bit(self) -> int:
        return 1 << (self.width - 1)


FORMATS: Mapping[str, Format] = {
    "f64": Format("f64", ir.DoubleType(), ir.IntType(64), 52, 1023),
    "f32": Format("f32", ir.FloatType(), ir.IntType(32), 23, 127),
}
_OF_TYPE = {str(form.real): form for form in FORMATS.values()}


def format_of(t: ir.IRType) -> Format:
    """The format of values of type `t`, or of its lanes; KeyError for other types."""
    return _format(str(element_of(t)), lanes_of(t))


@cache
def _format(name: str, lanes: int) -> Format:
    form = _OF_TYPE[name]
    if not lanes:
        return form
    return Format(form.name, of_lanes(form.real, lanes), of_lanes(form.word, lanes), form.mantissa, form.bias)


@record(frozen=True, eq=False)
class _Lane:
    builder: ir.IRBuilder
    format: Format
    value: ir.IRValue


class Mask(_Lane):
    """A boolean."""

    def __and__(self, other: Mask) -> Mask:
        return Mask(self.builder, self.format, self.builder.and_(self.value, other.value))

    def __or__(self, other: Mask) -> Mask:
        return Mask(self.builder, self.format, self.builder.or_(self.value, other.value))

    def __invert__(self) -> Mask:
        return Mask(self.builder, self.format, self.builder.not_(self.value))


class Bits(_Lane):
    """An integer as wide as the format; `.real` reads it as a number."""

    def _lift(self, other: Bits | int) -> ir.IRValue:
        if isinstance(other, Bits):
            return other.value
        lifted: ir.IRValue = number(self.format.word, other & ((1 << self.format.width) - 1))
        return lifted

    def _emit(self, instruction: Callable[..., ir.IRValue], other: Bits | int) -> Bits:
        return Bits(self.builder, self.format, instruction(self.value, self._lift(other)))

    def __add__(self, other: Bits | int) -> Bits:
        return self._emit(self.builder.add, other)

    def __sub__(self, other: Bits | int) -> Bits:
        return self._emit(self.builder.sub, other)

    def __and__(self, other: Bits | int) -> Bits:
        return self._emit(self.builder.and_, other)

    def __or__(self, other: Bits | int) -> Bits:
        return self._emit(self.builder.or_, other)

    def __xor__(self, other: Bits | int) -> Bits:
        return self._emit(self.builder.xor, other)

    def __lshift__(self, count: int) -> Bits:
        return self._emit(self.builder.shl, count)

    def __rshift__(self, count: int) -> Bits:
        """Logical shift right (64-bit lanes have no arithmetic shift before AVX-512)."""
        return self._emit(self.builder.lshr, count)

    def saturating_rsub(self, whole: int) -> Bits:
        """`whole` minus this, as unsigned integers with saturation at 0."""
        t, builder = self.format.word, self.builder
        function = builder.module.intrinsic("usub.sat", [t], t, [t, t])
        return Bits(builder, self.format, builder.call(function, [self._lift(whole), self.value]))

    def constant(self, number: int) -> Bits:
        return Bits(self.builder, self.format, self._lift(number))

    def equals(self, other: Bits | int) -> Mask:
        return Mask(self.builder, self.format, self.builder.icmp_unsigned("==", self.value, self._lift(other)))

    def below(self, bound: int) -> Mask:
        """Whether this is less than `bound`, as unsigned integers."""
        return Mask(self.builder, self.format, self.builder.icmp_unsigned("<", self.value, self._lift(bound)))

    @property
    def real(self) -> Real:
        return Real(self.builder, self.format, self.builder.bitcast(self.value, self.format.real))


class Real(_Lane):
    """A number; comparisons are false for NaN."""

    def _lift(self, other: Real | float) -> ir.IRValue:
        return other.value if isinstance(other, Real) else number(self.format.real, float(other))

    def constant(self, number: float) -> Real:
        return Real(self.builder, self.format, self._lift(number))

    def pick(self, table: Mapping[str, T]) -> T:
        """The entry of a per-format table."""
        return table[self.format.name]

    def _emit(self, instruction: Callable[..., ir.IRValue], a: ir.IRValue, b: ir.IRValue) -> Real:
        return Real(self.builder, self.format, instruction(a, b))

    def __add__(self, other: Real | float) -> Real:
        return self._emit(self.builder.fadd, self.value, self._lift(other))

    def __sub__(self, other: Real | float) -> Real:
        return self._emit(self.builder.fsub, self.value, self._lift(other))

    def __mul__(self, other: Real | float) -> Real:
        return self._emit(self.builder.fmul, self.value, self._lift(other))

    def __truediv__(self, other: Real | float) -> Real:
        return self._emit(self.builder.fdiv, self.value, self._lift(other))

    def __radd__(self, other: float) -> Real:
        return self.constant(other) + self

    def __rsub__(self, other: float) -> Real:
        return self.constant(other) - self

    def __rmul__(self, other: float) -> Real:
        return self.constant(other) * self

    def __rtruediv__(self, other: float) -> Real:
        return self.constant(other) / self

    def __neg__(self) -> Real:
        return Real(self.builder, self.format, self.builder.fneg(self.value))

    def _compare(self, relation: str, other: Real | float) -> Mask:
        return Mask(self.builder, self.format, self.builder.fcmp_ordered(relation, self.value, self._lift(other)))

    def __lt__(self, other: Real | float) -> Mask:
        return self._compare("<", other)

    def __le__(self, other: Real | float) -> Mask:
        return self._compare("<=", other)

    def __gt__(self, other: Real | float) -> Mask:
        return self._compare(">", other)

    def __ge__(self, other: Real | float) -> Mask:
        return self._compare(">=", other)

    def equals(self, other: Real | float) -> Mask:
        return self._compare("==", other)

    @property
    def bits(self) -> Bits:
        return Bits(self.builder, self.format, self.builder.bitcast(self.value, self.format.word))

    def at_most(self, bound: float) -> Real:
        """The minimum of this and `bound`; NaN is propagated."""
        return select(self > bound, bound, self)

    def at_least(self, bound: float) -> Real:
        """The maximum of this and `bound`; NaN is propagated."""
        return select(self < bound, bound, self)


def _intrinsic(name: str, first: Real, *others: Real | float) -> Real:
    real, builder = first.format.real, first.builder
    arguments = [first.value, *(first._lift(other) for other in others)]
    function = builder.module.intrinsic(name, [real], real, [real] * len(arguments))
    return Real(builder, first.format, builder.call(function, arguments))


def fma(a: Real, b: Real | float, c: Real | float) -> Real:
    """a * b + c, rounded once."""
    return _intrinsic("fma", a, b, c)


def sqrt(x: Real) -> Real:
    return _intrinsic("sqrt", x)


def round_half_even(x: Real) -> Real:
    return _intrinsic("rint", x)


def absolute(x: Real) -> Real:
    return _intrinsic("fabs", x)


def copysign(magnitude: Real, sign: Real) -> Real:
    return _intrinsic("copysign", magnitude, sign)


def select(condition: Mask, yes: Real | float, no: Real | float) -> Real:
    """`yes` if the condition holds, else `no`; both are computed."""
    constant = Real(condition.builder, condition.format, condition.value)._lift
    value = condition.builder.select(condition.value, constant(yes), constant(no))
    return Real(condition.builder, condition.format, value)


def or_itself_if_tiny(x: Real, result: Real) -> Real:
    """`x` if a function x + O(x**2) rounds to x: preserves -0.0, and the last bit of a denormal."""
    return select(absolute(x) < 2.0 ** -(x.format.mantissa + 8), x, result)


def horner(x: Real, coefficients: Sequence[float]) -> Real:
    """c0 + c1*x + c2*x**2 + ... by Horner's scheme; a long one as two interleaved ones in x**2, for shorter latency."""
    if len(coefficients) >= 11:
        square = x * x
        return fma(horner(square, coefficients[1::2]), x, horner(square, coefficients[0::2]))
    total = fma(x, coefficients[-1], coefficients[-2])
    for coefficient in reversed(coefficients[:-2]):
        total = fma(total, x, coefficient)
    return total


def round_to_integer(x: Real, scale: float, offset: int = 0) -> tuple[Real, Bits]:
    """The integer nearest to `x * scale`, as a number and as the low bits of a word, plus `offset` in the word.

    For |x * scale| below 2**(mantissa - 2). The bits above the low half of the mantissa are not zero.
    """
    shifter = x.format.shifter + offset
    shifted = fma(x, scale, shifter)
    return shifted - shifter, shifted.bits


class DoubleWord(NamedTuple):
    """The unevaluated sum hi + lo, |lo| at most about an ulp of hi."""

    hi: Real
    lo: Real


def fast_two_sum(a: Real, b: Real) -> DoubleWord:
    """a + b exactly, if |a| >= |b| or a is zero."""
    hi = a + b
    return DoubleWord(hi, b - (hi - a))


def two_sum(a: Real, b: Real) -> DoubleWord:
    """a + b exactly."""
    hi = a + b
    back = hi - a
    return DoubleWord(hi, (a - (hi - back)) + (b - back))


def two_product(a: Real, b: Real | float) -> DoubleWord:
    """a * b exactly, unless it underflows."""
    hi = a * b
    return DoubleWord(hi, fma(a, b, -hi))


def multiply_pairs(a: DoubleWord, b: DoubleWord) -> DoubleWord:
    hi = a.hi * b.hi
    return DoubleWord(hi, fma(a.hi, b.hi, -hi) + fma(a.hi, b.lo, a.lo * b.hi))


def divide_pair(numerator: Real, denominator: DoubleWord) -> DoubleWord:
    """The quotient, to about twice the precision."""
    reciprocal = 1.0 / denominator.hi
    hi = numerator * reciprocal
    return DoubleWord(hi, fma(-hi, denominator.lo, fma(-hi, denominator.hi, numerator)) * reciprocal)


def divide_by_pair(numerator: Real, denominator: DoubleWord) -> Real:
    """The quotient, nearly correctly rounded."""
    quotient = divide_pair(numerator, denominator)
    return quotient.hi + quotient.lo
