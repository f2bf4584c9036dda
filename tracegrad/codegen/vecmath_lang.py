"""The small language that the bodies of `vecmath` are written in: scalar LLVM IR behind Python operators.

A `Real` is a float64 or float32 SSA value, a `Bits` the integer of the same width, a `Mask` a one-bit truth
value. Operators emit one instruction each; nothing is folded, reordered or contracted, and no fast-math
flag is set, so a body means exactly what it says, in either format and in either of a loop's vector body
and scalar tail. A Python number beside a `Real` becomes a constant of its format. There is no control flow:
a choice is a `select`.

Two-word numbers (`Pair`, an unevaluated sum `hi + lo`) carry what one rounding would lose. The error-free
sums and products are those of Dekker (1971) and of Knuth; see Muller et al., Handbook of Floating-Point
Arithmetic, chapter 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar
from weakref import WeakSet

from llvmlite import ir

from tracegrad.records import record

__all__ = [
    "FORMATS",
    "Bits",
    "Format",
    "Mask",
    "Pair",
    "Real",
    "absolute",
    "call_where",
    "copysign",
    "divide_by_pair",
    "divide_pair",
    "fast_two_sum",
    "fma",
    "horner",
    "multiply_pairs",
    "or_itself_if_tiny",
    "round_half_even",
    "round_to_integer",
    "select",
    "share_rare_functions",
    "sqrt",
    "two_product",
]

T = TypeVar("T")


@record(frozen=True)
class Format:
    """A floating-point format: its LLVM types and the integers that describe its encoding."""

    name: str
    real: ir.Type
    word: ir.IntType
    mantissa: int
    bias: int

    @property
    def shifter(self) -> float:
        """1.5 * 2**mantissa: adding it rounds a small number to an integer, kept in the sum's low bits."""
        return 1.5 * 2.0**self.mantissa

    @property
    def tiny(self) -> float:
        """The least normal number."""
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


@record(frozen=True, eq=False)
class _Lane:
    builder: ir.IRBuilder
    format: Format
    value: ir.Value


class Mask(_Lane):
    """A truth value."""

    def __and__(self, other: Mask) -> Mask:
        return Mask(self.builder, self.format, self.builder.and_(self.value, other.value))

    def __or__(self, other: Mask) -> Mask:
        return Mask(self.builder, self.format, self.builder.or_(self.value, other.value))

    def __invert__(self) -> Mask:
        return Mask(self.builder, self.format, self.builder.not_(self.value))


class Bits(_Lane):
    """An integer as wide as the format; `.real` reads it as a number."""

    def _lift(self, other: Bits | int) -> ir.Value:
        if isinstance(other, Bits):
            return other.value
        return ir.Constant(self.format.word, other & ((1 << self.format.width) - 1))

    def _emit(self, instruction: Callable[..., ir.Value], other: Bits | int) -> Bits:
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
        """Shift in zeros (an arithmetic shift of 64-bit lanes does not exist before AVX-512)."""
        return self._emit(self.builder.lshr, count)

    def constant(self, number: int) -> Bits:
        return Bits(self.builder, self.format, self._lift(number))

    def equals(self, other: Bits | int) -> Mask:
        return Mask(self.builder, self.format, self.builder.icmp_unsigned("==", self.value, self._lift(other)))

    @property
    def real(self) -> Real:
        return Real(self.builder, self.format, self.builder.bitcast(self.value, self.format.real))


class Real(_Lane):
    """A number; comparisons are false for NaN."""

    def _lift(self, other: Real | float) -> ir.Value:
        return other.value if isinstance(other, Real) else ir.Constant(self.format.real, float(other))

    def constant(self, number: float) -> Real:
        return Real(self.builder, self.format, self._lift(number))

    def pick(self, table: Mapping[str, T]) -> T:
        """The entry of a per-format table."""
        return table[self.format.name]

    def _emit(self, instruction: Callable[..., ir.Value], a: ir.Value, b: ir.Value) -> Real:
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
        """The lesser of this and `bound`; NaN stays."""
        return select(self > bound, bound, self)

    def at_least(self, bound: float) -> Real:
        """The greater of this and `bound`; NaN stays."""
        return select(self < bound, bound, self)


def _intrinsic(name: str, first: Real, *others: Real | float) -> Real:
    real, builder = first.format.real, first.builder
    arguments = [first.value, *(first._lift(other) for other in others)]
    signature = ir.FunctionType(real, [real] * len(arguments))
    function = builder.module.declare_intrinsic(f"llvm.{name}", [real], signature)
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
    """`yes` where the condition holds, else `no`; both are computed."""
    constant = Real(condition.builder, condition.format, condition.value)._lift
    value = condition.builder.select(condition.value, constant(yes), constant(no))
    return Real(condition.builder, condition.format, value)


def or_itself_if_tiny(x: Real, result: Real) -> Real:
    """`x` where a function x + O(x**2) rounds to x: keeps -0.0, and the last bit of a denormal."""
    return select(absolute(x) < 2.0 ** -(x.format.mantissa + 8), x, result)


def horner(x: Real, coefficients: Sequence[float]) -> Real:
    """c0 + c1*x + c2*x**2 + ... by Horner's scheme; a long one as two in x**2, side by side: less waiting."""
    if len(coefficients) >= 12:
        square = x * x
        return fma(horner(square, coefficients[1::2]), x, horner(square, coefficients[0::2]))
    total = fma(x, coefficients[-1], coefficients[-2])
    for coefficient in reversed(coefficients[:-2]):
        total = fma(total, x, coefficient)
    return total


def round_to_integer(x: Real, scale: float, offset: int = 0) -> tuple[Real, Bits]:
    """The integer nearest to `x * scale`, as a number and as the low bits of a word, there plus `offset`.

    For |x * scale| below 2**(mantissa - 2). The bits above the low half of the mantissa are not zero.
    """
    shifter = x.format.shifter + offset
    shifted = fma(x, scale, shifter)
    return shifted - shifter, shifted.bits


class Pair(NamedTuple):
    """The unevaluated sum hi + lo, |lo| at most about an ulp of hi."""

    hi: Real
    lo: Real


def fast_two_sum(a: Real, b: Real) -> Pair:
    """a + b exactly, if |a| >= |b| or a is zero."""
    hi = a + b
    return Pair(hi, b - (hi - a))


def two_product(a: Real, b: Real | float) -> Pair:
    """a * b exactly, unless it underflows."""
    hi = a * b
    return Pair(hi, fma(a, b, -hi))


def multiply_pairs(a: Pair, b: Pair) -> Pair:
    hi = a.hi * b.hi
    return Pair(hi, fma(a.hi, b.hi, -hi) + fma(a.hi, b.lo, a.lo * b.hi))


def divide_pair(numerator: Real, denominator: Pair) -> Pair:
    """The quotient, to about twice the precision."""
    reciprocal = 1.0 / denominator.hi
    hi = numerator * reciprocal
    return Pair(hi, fma(-hi, denominator.lo, fma(-hi, denominator.hi, numerator)) * reciprocal)


def divide_by_pair(numerator: Real, denominator: Pair) -> Real:
    """The quotient, nearly correctly rounded."""
    quotient = divide_pair(numerator, denominator)
    return quotient.hi + quotient.lo


def call_where(condition: Mask, name: str, body: Callable[[Real], Real], x: Real, otherwise: Real) -> Real:
    """body(x) where the condition holds (expected hardly ever), else `otherwise`.

    The one exception to "no control flow": `body` becomes a function of its own, `tg.rare_<name>`. LLVM's
    loop vectorizer leaves a loop with a call in it scalar, unless the callee has a masked vector variant
    (the function attribute `vector-function-abi-variant` of the LLVM Language Reference). With one for two
    lanes only it vectorises wider loops too, and calls the scalar function lane by lane, each call behind a
    test of its lane's bit in the mask.
    """
    builder, form = x.builder, x.format
    function = _rare_function(builder.module, form, name, body)
    before = builder.block
    with builder.if_then(condition.value, likely=False):
        rare = builder.call(function, [x.value])
        inside = builder.block
    result = builder.phi(form.real)
    result.add_incoming(otherwise.value, before)
    result.add_incoming(rare, inside)
    return Real(builder, form, result)


_sharing: WeakSet[ir.Module] = WeakSet()


def share_rare_functions(module: ir.Module) -> None:
    """Leave the functions of `call_where` out of `module`: they take longer to compile than the loops that use them.

    Who loads the module defines their symbols, `tg.rare_<name>.<format>`; see `vecmath.rare_module`.
    """
    _sharing.add(module)


def _rare_function(module: ir.Module, form: Format, name: str, body: Callable[[Real], Real]) -> ir.Function:
    symbol = f"tg.rare_{name}.{form.name}"
    function = ir.Function(module, ir.FunctionType(form.real, [form.real]), symbol)
    if module not in _sharing:
        function.linkage = "internal"
        builder = ir.IRBuilder(function.append_basic_block())
        builder.ret(body(Real(builder, form, function.args[0])).value)

    lanes = 2
    vector, mask = ir.VectorType(form.real, lanes), ir.VectorType(ir.IntType(1), lanes)
    variant = ir.Function(module, ir.FunctionType(vector, [vector, mask]), f"{symbol}.x{lanes}")
    variant.linkage = "internal"
    builder = ir.IRBuilder(variant.append_basic_block())
    result = variant.args[0]
    for lane in (ir.Constant(ir.IntType(32), number) for number in range(lanes)):
        result = builder.insert_element(result, builder.call(function, [builder.extract_element(result, lane)]), lane)
    builder.ret(result)
    # llvmlite checks an attribute against a list of words that lacks some; as a set it takes any.
    # Code that hardly ever runs is not worth the time to optimise it.
    for attribute in ("cold", "nounwind", "willreturn", "memory(none)"):
        set.add(function.attributes, attribute)
        set.add(variant.attributes, attribute)
    for one in (function, variant):
        if not one.is_declaration:
            set.update(one.attributes, ("noinline", "optnone"))
    set.add(function.attributes, f'"vector-function-abi-variant"="_ZGV_LLVM_M{lanes}v_{symbol}({variant.name})"')
    _keep(module, variant)
    return function


def _keep(module: ir.Module, function: ir.Function) -> None:
    """List `function` among those that LLVM must not drop although nothing calls them yet."""
    kept = module.globals.get("llvm.compiler.used")
    if kept is None:
        kept = ir.GlobalVariable(module, ir.ArrayType(ir.IntType(8).as_pointer(), 0), "llvm.compiler.used")
        kept.linkage, kept.section = "appending", "llvm.metadata"
        kept.initializer = ir.Constant(kept.value_type, [])
    pointer = kept.value_type.element
    entries = [*kept.initializer.constant, function.bitcast(pointer)]
    kept.value_type = ir.ArrayType(pointer, len(entries))
    kept.initializer = ir.Constant(kept.value_type, entries)
