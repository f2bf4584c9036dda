"""Define exponentials, logarithms, roots, and the error functions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import is_literal
from tracegrad.ops.core.elementwise_op import Elementwise, float_loop
from tracegrad.ops.core.elementwise_op import elementwise as op
from tracegrad.ops.core.op import HOLOMORPHIC
from tracegrad.ops.elementwise.arithmetic import add, divide, log, multiply, negative, sqrt, square, subtract
from tracegrad.ops.elementwise.comparison import (
    equal,
    isfinite,
    less,
    less_equal,
    logical_and,
    logical_or,
    not_equal,
    where,
)
from tracegrad.ops.numerics import accurate as precise
from tracegrad.ops.shape.linear import stop_gradient
from tracegrad.typing import Array, Number

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand


# Named by rules above their definitions.
sigmoid: Elementwise


def _scipy(name: str) -> Any:
    """A SciPy special function, imported on the first call, because the import is slow."""

    def call(*args: Operand) -> Any:
        import scipy.special

        return getattr(scipy.special, name)(*args)

    return call


def _died_away(x: Array, y: Array) -> Array:
    """x * y, for an exponential y: an infinite x does not count if y is 0."""
    return where(equal(y, 0), 0.0, multiply(x, y))


def _times_log_in_y(t: Array, x: Array | Number, y: Array) -> Array:
    """t * x / y; 0 where both are 0, with an infinite derivative in x."""
    none = logical_and(equal(x, 0), equal(y, 0))
    quotient = divide(multiply(t, x), where(none, 1.0, y))
    if is_literal(x):
        return quotient
    return where(none, multiply(t, sqrt(where(none, add(x, 0.0), 1.0))), quotient)


exp = op("exp(x)", np.exp, "exp(x)", lambda t, ans, x: multiply(t, ans), on_complex=HOLOMORPHIC, doc="e to the power x")
exp2 = op(
    "exp2(x)",
    np.exp2,
    "exp2(x)",
    lambda t, ans, x: multiply(t, multiply(ans, math.log(2))),
    on_complex=HOLOMORPHIC,
    doc="2 to the power x",
)
expm1 = op(
    "expm1(x)",
    np.expm1,
    "expm1(x)",
    lambda t, ans, x: multiply(t, exp(x)),
    on_complex=HOLOMORPHIC,
    doc="exp(x) - 1, precise near 0",
)
log2 = op(
    "log2(x)",
    np.log2,
    "log2(x)",
    lambda t, ans, x: divide(t, multiply(x, math.log(2))),
    domain=(0.5, 3),
    on_complex=HOLOMORPHIC,
    doc="logarithm to base 2",
)
log10 = op(
    "log10(x)",
    np.log10,
    "log10(x)",
    lambda t, ans, x: divide(t, multiply(x, math.log(10))),
    domain=(0.5, 3),
    on_complex=HOLOMORPHIC,
    doc="logarithm to base 10",
)
log1p = op(
    "log1p(x)",
    np.log1p,
    "log1p(x)",
    lambda t, ans, x: divide(t, add(x, 1)),
    domain=(-0.5, 3),
    on_complex=HOLOMORPHIC,
    doc="log(1 + x), precise near 0",
)
rsqrt = op(
    "rsqrt(x)",
    lambda x: 1 / np.sqrt(x),
    "1 / sqrt(x)",
    lambda t, ans, x: multiply(multiply(t, -0.5), multiply(ans, square(ans))),
    loop=float_loop,
    domain=(0.5, 3),
    on_complex=HOLOMORPHIC,
    doc="1 / sqrt(x)",
)
cbrt = op(
    "cbrt(x)",
    np.cbrt,
    "cbrt(x)",
    lambda t, ans, x: divide(divide(t, ans), multiply(ans, 3)),
    domain=(0.5, 3),
    doc="cube root",
)
sigmoid = op(
    "sigmoid(x)",
    precise.sigmoid,
    "sigmoid(x)",
    lambda t, ans, x: multiply(t, multiply(ans, sigmoid(negative(x)))),
    loop=float_loop,
    doc="1 / (1 + exp(-x))",
)
gauss = op(
    "gauss(x)",
    lambda x: precise.gauss(x, 1),
    "gauss(x)",
    lambda t, ans, x: multiply(t, multiply(_died_away(x, ans), -2)),
    loop=float_loop,
    doc="exp(-x**2), precise where it is small",
)
gauss_half = op(
    "gauss_half(x)",
    lambda x: precise.gauss(x, 0.5),
    "gauss_half(x)",
    lambda t, ans, x: negative(multiply(t, _died_away(x, ans))),
    loop=float_loop,
    doc="exp(-x**2 / 2), precise where it is small",
)
erf = op(
    "erf(x)",
    _scipy("erf"),
    "erf(x)",
    lambda t, ans, x: multiply(t, multiply(gauss(x), 2 / math.sqrt(math.pi))),
    loop=float_loop,
    doc="error function",
)
erfc = op(
    "erfc(x)",
    precise.erfc,
    "erfc(x)",
    lambda t, ans, x: multiply(t, multiply(gauss(x), -2 / math.sqrt(math.pi))),
    loop=float_loop,
    doc="1 - erf(x), precise where it is small",
)
ndtr = op(
    "ndtr(x)",
    precise.ndtr,
    "ndtr(x)",
    lambda t, ans, x: multiply(t, multiply(gauss_half(x), 1 / math.sqrt(2 * math.pi))),
    loop=float_loop,
    doc="the probability that a standard normal variable is below x",
)
xlogy = op(
    "xlogy(x, y)",
    _scipy("xlogy"),
    "where(x == 0, where(y != y, y, 0), x * log(y))",
    lambda t, ans, x, y: where(logical_and(equal(x, 0), less_equal(y, 0)), 0.0, multiply(t, log(y))),
    lambda t, ans, x, y: _times_log_in_y(t, x, y),
    loop=float_loop,
    domain=(0.5, 3),
    doc="x * log(y), 0 where x is 0",
)


def _exp_share(x: Array, y: Array) -> Array:
    """exp(x) / (exp(x) + exp(y)); the rounding error of x - y (Knuth's two-sum) is included if y is greater."""
    difference = where(logical_or(not_equal(x, y), isfinite(x)), subtract(x, y), 0.0)
    of_y = subtract(x, difference)
    lost = add(subtract(x, add(difference, of_y)), subtract(of_y, y))
    counts = logical_and(isfinite(lost), less(difference, 0))
    return multiply(sigmoid(difference), add(stop_gradient(where(counts, lost, 0.0)), 1))


logaddexp = op(
    "logaddexp(x, y)",
    np.logaddexp,
    "where(x == y, x + 0.6931471805599453, maximum(x, y) + log1p(exp(-absolute(x - y))))",
    lambda t, ans, x, y: multiply(t, _exp_share(x, y)),
    lambda t, ans, x, y: multiply(t, _exp_share(y, x)),
    doc="log(exp(x) + exp(y))",
)
