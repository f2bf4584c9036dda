"""Elementwise ops, one statement each; `tracegrad.ops.core.elementwise_op` documents the format.

In a rule, `t` is the cotangent (or tangent), `ans` the result; rules are linear in `t` and written in ops. To mask an
operand out, a rule uses `where`, never a product with 0, because 0 * inf is nan.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tracegrad.avals import is_literal
from tracegrad.ops.core.elementwise_op import Elementwise, float_loop, promote, same_loop
from tracegrad.ops.core.elementwise_op import elementwise as op
from tracegrad.ops.core.half_rounding import HALF
from tracegrad.ops.core.op import AS_WRITTEN, HOLOMORPHIC, TABLE, DispatchLevel
from tracegrad.ops.core.samples import integers, uniform
from tracegrad.ops.elementwise.limits import limited
from tracegrad.ops.numerics import accurate as precise
from tracegrad.ops.numerics import accurate_derivatives as precise_derivatives
from tracegrad.ops.shape.linear import stop_gradient, zeros_like

BOOL = np.dtype(bool)

# Named by rules above their definitions.
absolute: Elementwise
cos: Elementwise
cosh: Elementwise
cospi: Elementwise
divide: Elementwise
equal: Elementwise
floor_divide: Elementwise
greater: Elementwise
hypot: Elementwise
isfinite: Elementwise
isinf: Elementwise
isnan: Elementwise
less: Elementwise
less_equal: Elementwise
log: Elementwise
logical_and: Elementwise
logical_or: Elementwise
multiply: Elementwise
negative: Elementwise
not_equal: Elementwise
power: Elementwise
sech2: Elementwise
sigmoid: Elementwise
sign: Elementwise
sinc: Elementwise
sqrt: Elementwise
where: Elementwise


def _identity_rule(t: Any, ans: Any, *operands: Any) -> Any:
    return t


def _scipy(name: str) -> Any:
    """A SciPy special function, imported on the first call, because the import is slow."""

    def call(*args: Any) -> Any:
        import scipy.special

        return getattr(scipy.special, name)(*args)

    return call


def exponent(x: Any, y: Any) -> Any:
    """`y`, with 1 for 0 where x is 0 or nan: the derivative of x**0 in x is 0 there, not 0 * x**-1."""
    if is_literal(y):
        return y or 1
    return where(logical_and(logical_or(equal(x, 0), not_equal(x, x)), equal(y, 0)), 1, y)


def _divisor_rule(t: Any, ans: Any, x: Any, y: Any) -> Any:
    if t.dtype.kind == "c":  # the same, with the signs of zeros that PyTorch has
        return multiply(divide(negative(t), y), ans)
    return negative(multiply(divide(t, y), ans))  # the rule of x has the quotient too


def power_in_base(x: Any, y: Any) -> Any:
    """y * x**(y - 1), and 0 where y is 0."""
    return multiply(y, power(x, subtract(exponent(x, y), 1)))


def power_in_exponent(ans: Any, x: Any) -> Any:
    """ans * log(x), and 0 where the power `ans` is 0, or x is 0 and the power finite: 0**0 is 1 nearby."""
    plain = logical_and(equal(x, 0), isfinite(ans))
    return where(equal(ans, 0), 0.0, multiply(ans, log(where(plain, 1.0, x))))


def derivative_of_power(derivative: Any, x: Any, y: Any, operand: str) -> Any:
    """The derivative of x**y in the base or the exponent, with its own derivatives; of `ans` for Tensors."""
    uses_ans = operand == "exponent" and getattr(derivative, "level", None) in (
        DispatchLevel.TENSOR,
        DispatchLevel.TRACED_TENSOR,
    )
    return derivative if uses_ans else limited(derivative, x, y, rule=f"power_in_{operand}")


def _died_away(x: Any, y: Any) -> Any:
    """x * y, for an exponential y: an infinite x does not count if y is 0."""
    return where(equal(y, 0), 0.0, multiply(x, y))


def _times_log_in_y(t: Any, x: Any, y: Any) -> Any:
    """t * x / y; 0 where both are 0, with an infinite derivative in x."""
    none = logical_and(equal(x, 0), equal(y, 0))
    quotient = divide(multiply(t, x), where(none, 1.0, y))
    if is_literal(x):
        return quotient
    return where(none, multiply(t, sqrt(where(none, add(x, 0.0), 1.0))), quotient)


# -- arithmetic --------------------------------------------------------------------------------
add = op("add(x, y)", np.add, "x + y", _identity_rule, _identity_rule, moves=True, doc="x + y")
accumulate = op("accumulate(x, y)", np.add, "x + y", _identity_rule, _identity_rule,
                moves=True, doc="x + y, in a sum whose terms may be added in any order")  # fmt: skip
subtract = op("subtract(x, y)", np.subtract, "x - y", _identity_rule, lambda t, ans, x, y: negative(t),
              moves=True, doc="x - y")  # fmt: skip
multiply = op("multiply(x, y)", np.multiply, "x * y",
              lambda t, ans, x, y: multiply(t, y),
              lambda t, ans, x, y: multiply(t, x), on_complex=HOLOMORPHIC, doc="x * y")  # fmt: skip
divide = op("divide(x, y)", np.divide, "x / y",
            lambda t, ans, x, y: divide(t, y),
            _divisor_rule, domain=(1, 3), on_complex=HOLOMORPHIC, doc="x / y")  # fmt: skip
negative = op("negative(x)", np.negative, "-x", lambda t, ans, x: negative(t), moves=True, doc="-x")


def _power(x: Any, y: Any) -> Any:
    result = np.power(x, y)
    if is_literal(y) or y.dtype.kind != "f" or not (y.size == 1 or 0 in y.strides) or not (half := y == 0.5).any():
        return result
    # NumPy treats an exponent with stride 0 as a number, with another result for 0.5. The result must not depend on the
    # memory layout of an operand.
    with np.errstate(all="ignore"):
        return np.where(half, np.sqrt(np.where(np.equal(x, -np.inf), np.inf, x) + 0.0), result).astype(result.dtype)


power = op("power(x, y)", _power, "power(x, y)",
           lambda t, ans, x, y: multiply(t, derivative_of_power(power_in_base(x, y), x, y, "base")),
           lambda t, ans, x, y: multiply(t, derivative_of_power(power_in_exponent(ans, x), x, y, "exponent")),
           domain=(0.5, 3), loop=np.power, on_complex=HOLOMORPHIC,
           doc="x to the power y; integer powers of negative numbers are real, a literal 0.5 is sqrt")  # fmt: skip


def power_of_half(x: Any) -> Any:
    """`x` to the power 0.5 as in C: 0.0 and inf for -0.0 and -inf, where sqrt is -0.0 and nan."""
    return sqrt(add(where(equal(x, -math.inf), math.inf, x), 0.0))


square = op("square(x)", np.square, "x * x", lambda t, ans, x: multiply(t, multiply(x, 2)),
            on_complex=HOLOMORPHIC, doc="x * x")  # fmt: skip
reciprocal = op("reciprocal(x)", np.reciprocal, "1 / x", lambda t, ans, x: negative(multiply(t, square(ans))),
                domain=(1, 3), on_complex=HOLOMORPHIC, doc="1 / x")  # fmt: skip
remainder = op("remainder(x, y)", np.remainder, "remainder(x, y)", _identity_rule,
               lambda t, ans, x, y: negative(multiply(t, floor_divide(x, y))), domain=(1, 3),
               doc="x - y * floor(x / y), with the sign of y")  # fmt: skip
floor_divide = op("floor_divide(x, y)", np.floor_divide, "floor_divide(x, y)", domain=(1, 3), doc="floor(x / y)")
# -- exponential ---------------------------------------------------------------------------------
exp = op("exp(x)", np.exp, "exp(x)", lambda t, ans, x: multiply(t, ans), on_complex=HOLOMORPHIC, doc="e to the power x")
exp2 = op("exp2(x)", np.exp2, "exp2(x)", lambda t, ans, x: multiply(t, multiply(ans, math.log(2))),
          on_complex=HOLOMORPHIC, doc="2 to the power x")  # fmt: skip
expm1 = op("expm1(x)", np.expm1, "expm1(x)", lambda t, ans, x: multiply(t, exp(x)),
           on_complex=HOLOMORPHIC, doc="exp(x) - 1, precise near 0")  # fmt: skip
log = op("log(x)", np.log, "log(x)", lambda t, ans, x: divide(t, x), domain=(0.5, 3),
         on_complex=HOLOMORPHIC, doc="natural logarithm")  # fmt: skip
log2 = op("log2(x)", np.log2, "log2(x)", lambda t, ans, x: divide(t, multiply(x, math.log(2))), domain=(0.5, 3),
          on_complex=HOLOMORPHIC, doc="logarithm to base 2")  # fmt: skip
log10 = op("log10(x)", np.log10, "log10(x)", lambda t, ans, x: divide(t, multiply(x, math.log(10))), domain=(0.5, 3),
           on_complex=HOLOMORPHIC, doc="logarithm to base 10")  # fmt: skip
log1p = op("log1p(x)", np.log1p, "log1p(x)", lambda t, ans, x: divide(t, add(x, 1)), domain=(-0.5, 3),
           on_complex=HOLOMORPHIC, doc="log(1 + x), precise near 0")  # fmt: skip
sqrt = op("sqrt(x)", np.sqrt, "sqrt(x)", lambda t, ans, x: divide(multiply(t, 0.5), ans), domain=(0.5, 3),
          on_complex=HOLOMORPHIC, doc="square root")  # fmt: skip
rsqrt = op("rsqrt(x)", lambda x: 1 / np.sqrt(x), "1 / sqrt(x)",
           lambda t, ans, x: multiply(multiply(t, -0.5), multiply(ans, square(ans))),
           loop=float_loop, domain=(0.5, 3), on_complex=HOLOMORPHIC, doc="1 / sqrt(x)")  # fmt: skip
cbrt = op("cbrt(x)", np.cbrt, "cbrt(x)", lambda t, ans, x: divide(divide(t, ans), multiply(ans, 3)), domain=(0.5, 3),
          doc="cube root")  # fmt: skip
sigmoid = op("sigmoid(x)", precise.sigmoid, "sigmoid(x)",
             lambda t, ans, x: multiply(t, multiply(ans, sigmoid(negative(x)))),
             loop=float_loop, doc="1 / (1 + exp(-x))")  # fmt: skip
gauss = op("gauss(x)", lambda x: precise.gauss(x, 1), "gauss(x)",
           lambda t, ans, x: multiply(t, multiply(_died_away(x, ans), -2)),
           loop=float_loop, doc="exp(-x**2), precise where it is small")  # fmt: skip
gauss_half = op("gauss_half(x)", lambda x: precise.gauss(x, 0.5), "gauss_half(x)",
                lambda t, ans, x: negative(multiply(t, _died_away(x, ans))),
                loop=float_loop, doc="exp(-x**2 / 2), precise where it is small")  # fmt: skip
erf = op("erf(x)", _scipy("erf"), "erf(x)", lambda t, ans, x: multiply(t, multiply(gauss(x), 2 / math.sqrt(math.pi))),
         loop=float_loop, doc="error function")  # fmt: skip
erfc = op("erfc(x)", precise.erfc, "erfc(x)",
          lambda t, ans, x: multiply(t, multiply(gauss(x), -2 / math.sqrt(math.pi))),
          loop=float_loop, doc="1 - erf(x), precise where it is small")  # fmt: skip
ndtr = op("ndtr(x)", precise.ndtr, "ndtr(x)",
          lambda t, ans, x: multiply(t, multiply(gauss_half(x), 1 / math.sqrt(2 * math.pi))),
          loop=float_loop, doc="the probability that a standard normal variable is below x")  # fmt: skip
xlogy = op("xlogy(x, y)", _scipy("xlogy"), "where(x == 0, where(y != y, y, 0), x * log(y))",
           lambda t, ans, x, y: where(logical_and(equal(x, 0), less_equal(y, 0)), 0.0, multiply(t, log(y))),
           lambda t, ans, x, y: _times_log_in_y(t, x, y),
           loop=float_loop, domain=(0.5, 3), doc="x * log(y), 0 where x is 0")  # fmt: skip


def _exp_share(x: Any, y: Any) -> Any:
    """exp(x) / (exp(x) + exp(y)); the rounding error of x - y (Knuth's two-sum) is included if y is greater."""
    difference = where(logical_or(not_equal(x, y), isfinite(x)), subtract(x, y), 0.0)
    of_y = subtract(x, difference)
    lost = add(subtract(x, add(difference, of_y)), subtract(of_y, y))
    counts = logical_and(isfinite(lost), less(difference, 0))
    return multiply(sigmoid(difference), add(stop_gradient(where(counts, lost, 0.0)), 1))


logaddexp = op("logaddexp(x, y)", np.logaddexp,
               "where(x == y, x + 0.6931471805599453, maximum(x, y) + log1p(exp(-absolute(x - y))))",
               lambda t, ans, x, y: multiply(t, _exp_share(x, y)),
               lambda t, ans, x, y: multiply(t, _exp_share(y, x)),
               doc="log(exp(x) + exp(y))")  # fmt: skip

# -- trigonometric ---------------------------------------------------------------------------------
sin = op("sin(x)", np.sin, "sin(x)", lambda t, ans, x: multiply(t, cos(x)), on_complex=HOLOMORPHIC, doc="sine")
cos = op("cos(x)", np.cos, "cos(x)", lambda t, ans, x: negative(multiply(t, sin(x))),
         on_complex=HOLOMORPHIC, doc="cosine")  # fmt: skip
tan = op("tan(x)", np.tan, "tan(x)", lambda t, ans, x: multiply(t, add(square(ans), 1)),
         domain=(-1, 1), on_complex=HOLOMORPHIC, doc="tangent")  # fmt: skip
_REDUCED = "(x - 2 * rint(x * 0.5))"  # exact, from -1 to 1
_FOLDED = f"where({_REDUCED} < 0, -1 - {_REDUCED}, 1 - {_REDUCED})"
_SINPI = f"sin(3.141592653589793 * where(absolute({_REDUCED}) <= 0.5, {_REDUCED}, {_FOLDED}))"
sinpi = op("sinpi(x)", precise.sinpi, _SINPI,
           lambda t, ans, x: multiply(t, multiply(cospi(x), math.pi)), loop=float_loop, doc="sin(pi * x)")  # fmt: skip
cospi = op("cospi(x)", precise.cospi, f"sin(3.141592653589793 * (0.5 - absolute({_REDUCED})))",
           lambda t, ans, x: multiply(t, multiply(sinpi(x), -math.pi)), loop=float_loop, doc="cos(pi * x)")  # fmt: skip


def _sinc_bend(x: Any) -> Any:
    """The second derivative of sinc, near 0 by its Taylor series, which has correct derivatives there."""
    near = less(absolute(x), 0.16)
    far = where(near, 1.0, x)
    squared = square(where(near, x, 0.0))
    series: Any = 0.0
    for k in range(9, 0, -1):
        series = add(
            multiply(squared, series), (-1) ** k * math.pi ** (2 * k) / (2 * k + 1) / math.factorial(2 * k - 2)
        )
    derivative = divide(sinc_derivative(far), far)
    return where(near, series, negative(add(multiply(sinc(far), math.pi**2), multiply(derivative, 2))))


sinc_derivative = op("sinc_derivative(x)", precise_derivatives.sinc_derivative, "sinc_derivative(x)",
                lambda t, ans, x: multiply(t, _sinc_bend(x)), loop=float_loop, doc="the slope of sinc")  # fmt: skip
sinc = op("sinc(x)", precise.sinc, f"where(x == 0, 1, {_SINPI} / (x * 3.141592653589793))",
          lambda t, ans, x: multiply(t, sinc_derivative(x)), loop=float_loop, doc="sin(pi * x) / (pi * x)")  # fmt: skip


def _one_minus_square(x: Any) -> Any:
    """1 - x**2, accurate near -1 and 1."""
    return multiply(subtract(1, x), add(x, 1))


def _cosine_of_arcsin(x: Any) -> Any:
    """sqrt(1 - x**2); for complex numbers on the side of the branch cuts given by the signs of zeros."""
    if x.dtype.kind != "c":
        return sqrt(_one_minus_square(x))
    return multiply(sqrt(negative(subtract(x, 1))), sqrt(subtract(x, -1)))


arcsin = op("arcsin(x)", np.arcsin, "arcsin(x)", lambda t, ans, x: divide(t, _cosine_of_arcsin(x)),
            domain=(-0.9, 0.9), on_complex=HOLOMORPHIC, doc="inverse sine")  # fmt: skip
arccos = op("arccos(x)", np.arccos, "arccos(x)", lambda t, ans, x: negative(divide(t, _cosine_of_arcsin(x))),
            domain=(-0.9, 0.9), on_complex=HOLOMORPHIC, doc="inverse cosine")  # fmt: skip


def _arctan_rule(t: Any, ans: Any, x: Any) -> Any:
    if x.dtype.kind == "c":
        return divide(t, add(square(x), 1))
    far = isinf(x)  # 0 times the derivative of the square is nan there
    return where(far, 0.0, divide(t, add(square(where(far, 0.0, x)), 1)))


arctan = op("arctan(x)", np.arctan, "arctan(x)", _arctan_rule, on_complex=HOLOMORPHIC, doc="inverse tangent")


def _is_infinite(x: Any) -> Any:
    return False if is_literal(x) else isinf(x)


def _unless_odd(odd: Any, x: Any) -> Any:
    return x if is_literal(x) else where(odd, 1.0, x)


def _over_square(x: Any, y: Any) -> Any:
    """x / (x**2 + y**2) without the squares, which may overflow or underflow, and 0 at the origin and infinity."""
    odd = logical_or(logical_and(equal(x, 0), equal(y, 0)), logical_or(_is_infinite(x), _is_infinite(y)))
    x, y = _unless_odd(odd, x), _unless_odd(odd, y)
    distance = hypot(x, y)
    return where(odd, 0.0, divide(divide(x, distance), distance))


arctan2 = op("arctan2(x, y)", np.arctan2, "arctan2(x, y)",
             lambda t, ans, x, y: multiply(t, _over_square(y, x)),
             lambda t, ans, x, y: negative(multiply(t, _over_square(x, y))),
             domain=(0.5, 2), doc="angle of the point (y, x); its slope at the origin is 0")  # fmt: skip
_HYPOT = (
    "where(isinf(x), absolute(x), where(isinf(y), absolute(y), where(maximum(absolute(x), absolute(y)) == 0, 0, "
    "maximum(absolute(x), absolute(y))"
    " * sqrt(1 + (minimum(absolute(x), absolute(y)) / maximum(absolute(x), absolute(y)))"
    " * (minimum(absolute(x), absolute(y)) / maximum(absolute(x), absolute(y)))))))"
)
hypot = op("hypot(x, y)", np.hypot, _HYPOT,
           lambda t, ans, x, y: multiply(t, divide(x, where(equal(ans, 0), 1.0, ans))),
           lambda t, ans, x, y: multiply(t, divide(y, where(equal(ans, 0), 1.0, ans))),
           domain=(0.5, 2), doc="sqrt(x**2 + y**2); its slope at the origin is 0")  # fmt: skip

# -- hyperbolic --------------------------------------------------------------------------------------
sinh = op("sinh(x)", np.sinh, "sinh(x)", lambda t, ans, x: multiply(t, cosh(x)),
          on_complex=HOLOMORPHIC, doc="hyperbolic sine")  # fmt: skip
cosh = op("cosh(x)", np.cosh, "cosh(x)", lambda t, ans, x: multiply(t, sinh(x)),
          on_complex=HOLOMORPHIC, doc="hyperbolic cosine")  # fmt: skip


def _tanh_rule(t: Any, ans: Any, x: Any) -> Any:
    return multiply(t, subtract(1, square(ans)) if t.dtype.kind == "c" else sech2(x))


tanh = op("tanh(x)", np.tanh, "tanh(x)", _tanh_rule, on_complex=HOLOMORPHIC, doc="hyperbolic tangent")
sech2 = op("sech2(x)", precise.sech2, "sech2(x)", lambda t, ans, x: multiply(multiply(t, multiply(ans, tanh(x))), -2),
           loop=float_loop, doc="1 / cosh(x)**2, the slope of tanh")  # fmt: skip


def _root(x: Any, squared: Any) -> Any:
    """The square root of x**2 + 1 or x**2 - 1; abs(x) where the 1 is negligible and the square may overflow."""
    if x.dtype.kind == "c":
        return sqrt(squared)
    size = absolute(x)
    return where(greater(size, 100.0 if x.dtype == HALF else 1e8), size, sqrt(squared))


arcsinh = op("arcsinh(x)", np.arcsinh, "arcsinh(x)", lambda t, ans, x: divide(t, _root(x, add(square(x), 1))),
             on_complex=HOLOMORPHIC, doc="inverse hyperbolic sine")  # fmt: skip


def _arccosh_rule(t: Any, ans: Any, x: Any) -> Any:
    if x.dtype.kind == "c":  # the root of the product is not the product of the roots
        return divide(t, multiply(sqrt(subtract(x, 1)), sqrt(subtract(x, -1))))
    return divide(t, _root(x, multiply(subtract(x, 1), add(x, 1))))


arccosh = op("arccosh(x)", np.arccosh, "arccosh(x)", _arccosh_rule,
             domain=(1.5, 3), on_complex=HOLOMORPHIC, doc="inverse hyperbolic cosine")  # fmt: skip
arctanh = op("arctanh(x)", np.arctanh, "arctanh(x)", lambda t, ans, x: divide(t, _one_minus_square(x)),
             domain=(-0.9, 0.9), on_complex=HOLOMORPHIC, doc="inverse hyperbolic tangent")  # fmt: skip


# -- pieces ----------------------------------------------------------------------------------------------
def _direction(x: Any) -> Any:
    return TABLE["sgn"](x) if x.dtype.kind == "c" else sign(x)


absolute = op("absolute(x)", np.absolute, "absolute(x)", lambda t, ans, x: multiply(t, _direction(x)),
              on_complex=AS_WRITTEN, doc="magnitude")  # fmt: skip
sign = op("sign(x)", np.sign, "sign(x)", piecewise_constant=True, doc="-1, 0 or 1")
floor = op("floor(x)", np.floor, "floor(x)", piecewise_constant=True, doc="largest integer not above x")
ceil = op("ceil(x)", np.ceil, "ceil(x)", piecewise_constant=True, doc="smallest integer not below x")
trunc = op("trunc(x)", np.trunc, "trunc(x)", piecewise_constant=True, doc="integer part of x")
rint = op("rint(x)", np.rint, "rint(x)", piecewise_constant=True, doc="nearest integer, ties to even")
signbit = op("signbit(x)", np.signbit, "copysign(1, x) < 0", doc="whether x is negative, or -0.0")
copysign = op("copysign(x, y)", np.copysign, "copysign(x, y)",
              lambda t, ans, x, y: multiply(t, multiply(sign(x), sign(ans))),
              lambda t, ans, x, y: zeros_like(t), domain=(0.5, 2), doc="magnitude of x, sign of y")  # fmt: skip
_FMOD = "remainder(absolute(x), absolute(y))"
fmod = op("fmod(x, y)", np.fmod, f"copysign({_FMOD}, x)",
          _identity_rule, lambda t, ans, x, y: negative(multiply(t, trunc(divide(x, y)))), domain=(1, 3),
          doc="x - y * trunc(x / y), with the sign of x")  # fmt: skip
flat = op("flat(x, y)", lambda x, y: np.array(x), "x", _identity_rule, lambda t, ans, x, y: zeros_like(t),
          loop=same_loop, on_complex=AS_WRITTEN, doc="x, as a function of y whose slope is 0")  # fmt: skip


def _extremum_share(t: Any, beaten: Any, operand: Any, other: Any) -> Any:
    """The share of `t`: half for equal operands, 0 if `operand` is beaten, else all, as it is for a nan."""
    return where(equal(operand, other), multiply(t, 0.5), where(beaten, 0.0, t))


maximum = op("maximum(x, y)", np.maximum, "maximum(x, y)",
             lambda t, ans, x, y: _extremum_share(t, less(x, y), x, y),
             lambda t, ans, x, y: _extremum_share(t, less(y, x), y, x),
             doc="the larger, nan if either is; ties share the cotangent")  # fmt: skip
minimum = op("minimum(x, y)", np.minimum, "minimum(x, y)",
             lambda t, ans, x, y: _extremum_share(t, greater(x, y), x, y),
             lambda t, ans, x, y: _extremum_share(t, greater(y, x), y, x),
             doc="the smaller, nan if either is; ties share the cotangent")  # fmt: skip


def _clamped_low(x: Any, low: Any) -> Any:
    return np.where(np.less(x, low), low, x)


def _clamped_high(x: Any, high: Any) -> Any:
    return np.where(np.greater(x, high), high, x)


clamp_min = op("clamp_min(x, low)", _clamped_low, "where(x < low, low, x)",
               lambda t, ans, x, low: where(less(x, low), 0.0, t),
               lambda t, ans, x, low: where(less(x, low), t, 0.0),
               loop=same_loop, doc="x, at least low; the slope on the bound is that of x")  # fmt: skip
clamp_max = op("clamp_max(x, high)", _clamped_high, "where(x > high, high, x)",
               lambda t, ans, x, high: where(greater(x, high), 0.0, t),
               lambda t, ans, x, high: where(greater(x, high), t, 0.0),
               loop=same_loop, doc="x, at most high; the slope on the bound is that of x")  # fmt: skip
clamp = op("clamp(x, low, high)", lambda x, low, high: _clamped_high(_clamped_low(x, low), high),
           "where(where(x < low, low, x) > high, high, where(x < low, low, x))",
           lambda t, ans, x, low, high: where(less(x, low), 0.0, where(greater(x, high), 0.0, t)),
           lambda t, ans, x, low, high: where(less(x, low), where(greater(low, high), 0.0, t), 0.0),
           lambda t, ans, x, low, high: where(greater(clamp_min(x, low), high), t, 0.0),
           loop=same_loop, doc="x, at least low, then at most high; on a bound the slope is that of x")  # fmt: skip


def _unless(beaten: Any, bound: Any, t: Any, other: Any) -> Any:
    """`other` if `bound` is nan, or determines the result instead of an operand, else `t`."""
    return where(beaten if is_literal(bound) else logical_or(beaten, isnan(bound)), other, t)


at_least = op("at_least(x, low)", np.maximum, "maximum(x, low)",
              lambda t, ans, x, low: _unless(less(x, low), low, t, 0.0),
              lambda t, ans, x, low: _unless(less(x, low), low, 0.0, t),
              doc="the larger as `maximum` has it; the slope on the bound is that of x")  # fmt: skip
at_most = op("at_most(x, high)", np.minimum, "minimum(x, high)",
             lambda t, ans, x, high: _unless(greater(x, high), high, t, 0.0),
             lambda t, ans, x, high: _unless(greater(x, high), high, 0.0, t),
             doc="the smaller as `minimum` has it; the slope on the bound is that of x")  # fmt: skip


def _where_loop(condition: Any, x: Any, y: Any) -> Any:
    dtype = promote((x, y))
    return BOOL, dtype, dtype, dtype


where = op("where(condition, x, y)", np.where, "where(condition, x, y)",
           None,
           lambda t, ans, condition, x, y: where(condition, t, 0.0),
           lambda t, ans, condition, x, y: where(condition, 0.0, t),
           loop=_where_loop, domain=None, moves=True, doc="x where the condition holds, else y")  # fmt: skip

where.linear_in("x", "y")


@where.def_samples
def _() -> Any:
    for dtype in ("float64", "float32"):
        yield (
            (uniform((3, 4)) > 0, uniform((3, 4), seed=1, dtype=dtype), uniform((3, 4), seed=2, dtype=dtype)),
            {},
        )
    yield (uniform((3, 4)) > 0, integers((3, 4), -9, 9), integers((3, 4), -9, 9, seed=1)), {}


# -- comparison and logic --------------------------------------------------------------------------------
equal = op("equal(x, y)", np.equal, "x == y", on_complex=AS_WRITTEN, doc="x == y")
not_equal = op("not_equal(x, y)", np.not_equal, "x != y", on_complex=AS_WRITTEN, doc="x != y")
less = op("less(x, y)", np.less, "x < y", doc="x < y")
less_equal = op("less_equal(x, y)", np.less_equal, "x <= y", doc="x <= y")
greater = op("greater(x, y)", np.greater, "x > y", doc="x > y")
greater_equal = op("greater_equal(x, y)", np.greater_equal, "x >= y", doc="x >= y")


def _logic(n: int) -> Any:
    def loop(*dtypes: Any) -> Any:
        return (BOOL,) * (n + 1)

    return loop


logical_and = op("logical_and(x, y)", np.logical_and, "logical_and(x, y)", loop=_logic(2), domain=None,
                 on_complex=AS_WRITTEN, doc="x and y")  # fmt: skip
logical_or = op("logical_or(x, y)", np.logical_or, "logical_or(x, y)", loop=_logic(2), domain=None,
                on_complex=AS_WRITTEN, doc="x or y")  # fmt: skip
logical_xor = op("logical_xor(x, y)", np.logical_xor, "x != y", loop=_logic(2), domain=None,
                 on_complex=AS_WRITTEN, doc="x or y, not both")  # fmt: skip
logical_not = op("logical_not(x)", np.logical_not, "logical_not(x)", loop=_logic(1), domain=None,
                 on_complex=AS_WRITTEN, doc="not x")  # fmt: skip


def _boolean_tables() -> Any:
    yield (np.array([True, True, False, False]), np.array([True, False, True, False])), {}


for _op in (logical_and, logical_or, logical_xor):
    _op.def_samples(_boolean_tables)
logical_not.def_samples(lambda: [((np.array([True, False]),), {})])

isnan = op("isnan(x)", np.isnan, "x != x", on_complex=AS_WRITTEN, doc="whether x is nan")
isfinite = op("isfinite(x)", np.isfinite, "isfinite(x)",
              on_complex=AS_WRITTEN, doc="whether x is neither infinite nor nan")  # fmt: skip
isinf = op("isinf(x)", np.isinf, "isinf(x)", on_complex=AS_WRITTEN, doc="whether x is infinite")

for _op in (accumulate, add, equal, logical_and, logical_or, logical_xor, multiply, not_equal):
    _op.commutative = True
for _op in (absolute, at_least, at_most, ceil, clamp, clamp_max, clamp_min, copysign, flat, floor, maximum, minimum,
            negative, rint, sign, trunc, where):  # fmt: skip
    _op.exact = True
