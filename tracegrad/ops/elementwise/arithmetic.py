"""Define the arithmetic ops, powers, extrema and bounds, and `log` and `sqrt`, which their rules use."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import is_literal
from tracegrad.ops.core.elementwise_op import Elementwise, same_loop
from tracegrad.ops.core.elementwise_op import elementwise as op
from tracegrad.ops.core.op import AS_WRITTEN, HOLOMORPHIC, TABLE, DispatchLevel
from tracegrad.ops.elementwise.comparison import (
    equal,
    greater,
    isfinite,
    isnan,
    less,
    logical_and,
    logical_or,
    not_equal,
    sign,
    trunc,
    where,
)
from tracegrad.ops.elementwise.limits import limited
from tracegrad.ops.shape.linear import zeros_like
from tracegrad.typing import Array, NDArray, Number

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand


# Named by rules above their definitions.
absolute: Elementwise
divide: Elementwise
floor_divide: Elementwise
log: Elementwise
multiply: Elementwise
negative: Elementwise
power: Elementwise
sqrt: Elementwise


def _identity_rule(t: Array, ans: Array, *operands: Array) -> Array:
    return t


def exponent(x: Array, y: Array | Number) -> Any:
    """`y`, with 1 for 0 where x is 0 or nan: the derivative of x**0 in x is 0 there, not 0 * x**-1."""
    if is_literal(y):
        return y or 1
    return where(logical_and(logical_or(equal(x, 0), not_equal(x, x)), equal(y, 0)), 1, y)


def _divisor_rule(t: Array, ans: Array, x: Array, y: Array) -> Array:
    if t.dtype.kind == "c":  # the same, with the signs of zeros that PyTorch has
        return multiply(divide(negative(t), y), ans)
    return negative(multiply(divide(t, y), ans))  # the rule of x has the quotient too


def power_in_base(x: Array, y: Array) -> Array:
    """y * x**(y - 1), and 0 where y is 0."""
    return multiply(y, power(x, subtract(exponent(x, y), 1)))


def power_in_exponent(ans: Array, x: Array) -> Array:
    """ans * log(x), and 0 where the power `ans` is 0, or x is 0 and the power finite: 0**0 is 1 nearby."""
    plain = logical_and(equal(x, 0), isfinite(ans))
    return where(equal(ans, 0), 0.0, multiply(ans, log(where(plain, 1.0, x))))


def derivative_of_power(derivative: Array, x: Array, y: Array, operand: str) -> Array:
    """The derivative of x**y in the base or the exponent, with its own derivatives; of `ans` for Tensors."""
    uses_ans = operand == "exponent" and getattr(derivative, "level", None) in (
        DispatchLevel.TENSOR,
        DispatchLevel.TRACED_TENSOR,
    )
    return derivative if uses_ans else limited(derivative, x, y, rule=f"power_in_{operand}")


add = op("add(x, y)", np.add, "x + y", _identity_rule, _identity_rule, moves=True, doc="x + y")
accumulate = op(
    "accumulate(x, y)",
    np.add,
    "x + y",
    _identity_rule,
    _identity_rule,
    moves=True,
    doc="x + y, in a sum whose terms may be added in any order",
)
subtract = op(
    "subtract(x, y)", np.subtract, "x - y", _identity_rule, lambda t, ans, x, y: negative(t), moves=True, doc="x - y"
)
multiply = op(
    "multiply(x, y)",
    np.multiply,
    "x * y",
    lambda t, ans, x, y: multiply(t, y),
    lambda t, ans, x, y: multiply(t, x),
    on_complex=HOLOMORPHIC,
    doc="x * y",
)
divide = op(
    "divide(x, y)",
    np.divide,
    "x / y",
    lambda t, ans, x, y: divide(t, y),
    _divisor_rule,
    domain=(1, 3),
    on_complex=HOLOMORPHIC,
    doc="x / y",
)
negative = op("negative(x)", np.negative, "-x", lambda t, ans, x: negative(t), moves=True, doc="-x")


def _power(x: Array, y: Any) -> Any:
    result = np.power(x, y)
    if is_literal(y) or y.dtype.kind != "f" or not (y.size == 1 or 0 in y.strides) or not (half := y == 0.5).any():
        return result
    # NumPy treats an exponent with stride 0 as a number, with another result for 0.5. The result must not depend on the
    # memory layout of an operand.
    with np.errstate(all="ignore"):
        return np.where(half, np.sqrt(np.where(np.equal(x, -np.inf), np.inf, x) + 0.0), result).astype(result.dtype)


power = op(
    "power(x, y)",
    _power,
    "power(x, y)",
    lambda t, ans, x, y: multiply(t, derivative_of_power(power_in_base(x, y), x, y, "base")),
    lambda t, ans, x, y: multiply(t, derivative_of_power(power_in_exponent(ans, x), x, y, "exponent")),
    domain=(0.5, 3),
    loop=np.power,
    on_complex=HOLOMORPHIC,
    doc="x to the power y; integer powers of negative numbers are real, a literal 0.5 is sqrt",
)


def power_of_half(x: Array) -> Array:
    """`x` to the power 0.5 as in C: 0.0 and inf for -0.0 and -inf, where sqrt is -0.0 and nan."""
    return sqrt(add(where(equal(x, -math.inf), math.inf, x), 0.0))


square = op(
    "square(x)", np.square, "x * x", lambda t, ans, x: multiply(t, multiply(x, 2)), on_complex=HOLOMORPHIC, doc="x * x"
)
reciprocal = op(
    "reciprocal(x)",
    np.reciprocal,
    "1 / x",
    lambda t, ans, x: negative(multiply(t, square(ans))),
    domain=(1, 3),
    on_complex=HOLOMORPHIC,
    doc="1 / x",
)
remainder = op(
    "remainder(x, y)",
    np.remainder,
    "remainder(x, y)",
    _identity_rule,
    lambda t, ans, x, y: negative(multiply(t, floor_divide(x, y))),
    domain=(1, 3),
    doc="x - y * floor(x / y), with the sign of y",
)
floor_divide = op("floor_divide(x, y)", np.floor_divide, "floor_divide(x, y)", domain=(1, 3), doc="floor(x / y)")
log = op(
    "log(x)",
    np.log,
    "log(x)",
    lambda t, ans, x: divide(t, x),
    domain=(0.5, 3),
    on_complex=HOLOMORPHIC,
    doc="natural logarithm",
)
sqrt = op(
    "sqrt(x)",
    np.sqrt,
    "sqrt(x)",
    lambda t, ans, x: divide(multiply(t, 0.5), ans),
    domain=(0.5, 3),
    on_complex=HOLOMORPHIC,
    doc="square root",
)


def _direction(x: Array) -> Array:
    return TABLE["sgn"](x) if x.dtype.kind == "c" else sign(x)


absolute = op(
    "absolute(x)",
    np.absolute,
    "absolute(x)",
    lambda t, ans, x: multiply(t, _direction(x)),
    on_complex=AS_WRITTEN,
    doc="magnitude",
)
copysign = op(
    "copysign(x, y)",
    np.copysign,
    "copysign(x, y)",
    lambda t, ans, x, y: multiply(t, multiply(sign(x), sign(ans))),
    lambda t, ans, x, y: zeros_like(t),
    domain=(0.5, 2),
    doc="magnitude of x, sign of y",
)
_FMOD = "remainder(absolute(x), absolute(y))"
fmod = op(
    "fmod(x, y)",
    np.fmod,
    f"copysign({_FMOD}, x)",
    _identity_rule,
    lambda t, ans, x, y: negative(multiply(t, trunc(divide(x, y)))),
    domain=(1, 3),
    doc="x - y * trunc(x / y), with the sign of x",
)
flat = op(
    "flat(x, y)",
    lambda x, y: np.array(x),
    "x",
    _identity_rule,
    lambda t, ans, x, y: zeros_like(t),
    loop=same_loop,
    on_complex=AS_WRITTEN,
    doc="x, as a function of y whose slope is 0",
)


def _extremum_share(t: Array, beaten: Array, operand: Array, other: Array) -> Array:
    """The share of `t`: half for equal operands, 0 if `operand` is beaten, else all, as it is for a nan."""
    return where(equal(operand, other), multiply(t, 0.5), where(beaten, 0.0, t))


maximum = op(
    "maximum(x, y)",
    np.maximum,
    "maximum(x, y)",
    lambda t, ans, x, y: _extremum_share(t, less(x, y), x, y),
    lambda t, ans, x, y: _extremum_share(t, less(y, x), y, x),
    doc="the larger, nan if either is; ties share the cotangent",
)
minimum = op(
    "minimum(x, y)",
    np.minimum,
    "minimum(x, y)",
    lambda t, ans, x, y: _extremum_share(t, greater(x, y), x, y),
    lambda t, ans, x, y: _extremum_share(t, greater(y, x), y, x),
    doc="the smaller, nan if either is; ties share the cotangent",
)


def _clamped_low(x: Array, low: NDArray | float) -> Array:
    return np.where(np.less(x, low), low, x)


def _clamped_high(x: Array, high: NDArray | float) -> Array:
    return np.where(np.greater(x, high), high, x)


clamp_min = op(
    "clamp_min(x, low)",
    _clamped_low,
    "where(x < low, low, x)",
    lambda t, ans, x, low: where(less(x, low), 0.0, t),
    lambda t, ans, x, low: where(less(x, low), t, 0.0),
    loop=same_loop,
    doc="x, at least low; the slope on the bound is that of x",
)
clamp_max = op(
    "clamp_max(x, high)",
    _clamped_high,
    "where(x > high, high, x)",
    lambda t, ans, x, high: where(greater(x, high), 0.0, t),
    lambda t, ans, x, high: where(greater(x, high), t, 0.0),
    loop=same_loop,
    doc="x, at most high; the slope on the bound is that of x",
)
clamp = op(
    "clamp(x, low, high)",
    lambda x, low, high: _clamped_high(_clamped_low(x, low), high),
    "where(where(x < low, low, x) > high, high, where(x < low, low, x))",
    lambda t, ans, x, low, high: where(less(x, low), 0.0, where(greater(x, high), 0.0, t)),
    lambda t, ans, x, low, high: where(less(x, low), where(greater(low, high), 0.0, t), 0.0),
    lambda t, ans, x, low, high: where(greater(clamp_min(x, low), high), t, 0.0),
    loop=same_loop,
    doc="x, at least low, then at most high; on a bound the slope is that of x",
)


def _unless(beaten: Array, bound: Operand, t: Operand, other: Operand) -> Array:
    """`other` if `bound` is nan, or determines the result instead of an operand, else `t`."""
    return where(beaten if is_literal(bound) else logical_or(beaten, isnan(bound)), other, t)


at_least = op(
    "at_least(x, low)",
    np.maximum,
    "maximum(x, low)",
    lambda t, ans, x, low: _unless(less(x, low), low, t, 0.0),
    lambda t, ans, x, low: _unless(less(x, low), low, 0.0, t),
    doc="the larger as `maximum` has it; the slope on the bound is that of x",
)
at_most = op(
    "at_most(x, high)",
    np.minimum,
    "minimum(x, high)",
    lambda t, ans, x, high: _unless(greater(x, high), high, t, 0.0),
    lambda t, ans, x, high: _unless(greater(x, high), high, 0.0, t),
    doc="the smaller as `minimum` has it; the slope on the bound is that of x",
)
for _op in (accumulate, add, multiply):
    _op.commutative = True
for _op in (absolute, at_least, at_most, clamp, clamp_max, clamp_min, copysign, flat, maximum, minimum, negative):
    _op.exact = True
