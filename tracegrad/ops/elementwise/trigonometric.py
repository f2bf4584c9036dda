"""Define the trigonometric and hyperbolic ops, and `hypot`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tracegrad.avals import is_literal
from tracegrad.ops.core.elementwise_op import Elementwise, float_loop
from tracegrad.ops.core.elementwise_op import elementwise as op
from tracegrad.ops.core.half_rounding import HALF
from tracegrad.ops.core.op import HOLOMORPHIC
from tracegrad.ops.elementwise.arithmetic import absolute, add, divide, multiply, negative, sqrt, square, subtract
from tracegrad.ops.elementwise.comparison import equal, greater, isinf, less, logical_and, logical_or, where
from tracegrad.ops.numerics import accurate as precise
from tracegrad.ops.numerics import accurate_derivatives as precise_derivatives
from tracegrad.typing import Array, Number

# Named by rules above their definitions.
cos: Elementwise
cosh: Elementwise
cospi: Elementwise
hypot: Elementwise
sech2: Elementwise
sinc: Elementwise

sin = op("sin(x)", np.sin, "sin(x)", lambda t, ans, x: multiply(t, cos(x)), on_complex=HOLOMORPHIC, doc="sine")
cos = op(
    "cos(x)", np.cos, "cos(x)", lambda t, ans, x: negative(multiply(t, sin(x))), on_complex=HOLOMORPHIC, doc="cosine"
)
tan = op(
    "tan(x)",
    np.tan,
    "tan(x)",
    lambda t, ans, x: multiply(t, add(square(ans), 1)),
    domain=(-1, 1),
    on_complex=HOLOMORPHIC,
    doc="tangent",
)
_REDUCED = "(x - 2 * rint(x * 0.5))"  # exact, from -1 to 1
_FOLDED = f"where({_REDUCED} < 0, -1 - {_REDUCED}, 1 - {_REDUCED})"
_SINPI = f"sin(3.141592653589793 * where(absolute({_REDUCED}) <= 0.5, {_REDUCED}, {_FOLDED}))"
sinpi = op(
    "sinpi(x)",
    precise.sinpi,
    _SINPI,
    lambda t, ans, x: multiply(t, multiply(cospi(x), math.pi)),
    loop=float_loop,
    doc="sin(pi * x)",
)
cospi = op(
    "cospi(x)",
    precise.cospi,
    f"sin(3.141592653589793 * (0.5 - absolute({_REDUCED})))",
    lambda t, ans, x: multiply(t, multiply(sinpi(x), -math.pi)),
    loop=float_loop,
    doc="cos(pi * x)",
)


def _sinc_bend(x: Array) -> Array:
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


sinc_derivative = op(
    "sinc_derivative(x)",
    precise_derivatives.sinc_derivative,
    "sinc_derivative(x)",
    lambda t, ans, x: multiply(t, _sinc_bend(x)),
    loop=float_loop,
    doc="the derivative of sinc",
)
sinc = op(
    "sinc(x)",
    precise.sinc,
    f"where(x == 0, 1, {_SINPI} / (x * 3.141592653589793))",
    lambda t, ans, x: multiply(t, sinc_derivative(x)),
    loop=float_loop,
    doc="sin(pi * x) / (pi * x)",
)


def _one_minus_square(x: Array) -> Array:
    """1 - x**2, accurate near -1 and 1."""
    return multiply(subtract(1, x), add(x, 1))


def _cosine_of_arcsin(x: Array) -> Array:
    """sqrt(1 - x**2); for complex numbers on the side of the branch cuts given by the signs of zeros."""
    if x.dtype.kind != "c":
        return sqrt(_one_minus_square(x))
    return multiply(sqrt(negative(subtract(x, 1))), sqrt(subtract(x, -1)))


arcsin = op(
    "arcsin(x)",
    np.arcsin,
    "arcsin(x)",
    lambda t, ans, x: divide(t, _cosine_of_arcsin(x)),
    domain=(-0.9, 0.9),
    on_complex=HOLOMORPHIC,
    doc="inverse sine",
)
arccos = op(
    "arccos(x)",
    np.arccos,
    "arccos(x)",
    lambda t, ans, x: negative(divide(t, _cosine_of_arcsin(x))),
    domain=(-0.9, 0.9),
    on_complex=HOLOMORPHIC,
    doc="inverse cosine",
)


def _arctan_rule(t: Array, ans: Array, x: Array) -> Array:
    if x.dtype.kind == "c":
        return divide(t, add(square(x), 1))
    far = isinf(x)  # 0 times the derivative of the square is nan there
    return where(far, 0.0, divide(t, add(square(where(far, 0.0, x)), 1)))


arctan = op("arctan(x)", np.arctan, "arctan(x)", _arctan_rule, on_complex=HOLOMORPHIC, doc="inverse tangent")


def _is_infinite(x: Array | Number) -> Any:
    return False if is_literal(x) else isinf(x)


def _unless_odd(odd: Array, x: Array | Number) -> Any:
    return x if is_literal(x) else where(odd, 1.0, x)


def _over_square(x: Array, y: Array) -> Array:
    """x / (x**2 + y**2) without the squares, which may overflow or underflow, and 0 at the origin and infinity."""
    odd = logical_or(logical_and(equal(x, 0), equal(y, 0)), logical_or(_is_infinite(x), _is_infinite(y)))
    x, y = _unless_odd(odd, x), _unless_odd(odd, y)
    distance = hypot(x, y)
    return where(odd, 0.0, divide(divide(x, distance), distance))


arctan2 = op(
    "arctan2(x, y)",
    np.arctan2,
    "arctan2(x, y)",
    lambda t, ans, x, y: multiply(t, _over_square(y, x)),
    lambda t, ans, x, y: negative(multiply(t, _over_square(x, y))),
    domain=(0.5, 2),
    doc="angle of the point (y, x); its slope at the origin is 0",
)
_HYPOT = (
    "where(isinf(x), absolute(x), where(isinf(y), absolute(y), where(maximum(absolute(x), absolute(y)) == 0, 0, "
    "maximum(absolute(x), absolute(y))"
    " * sqrt(1 + (minimum(absolute(x), absolute(y)) / maximum(absolute(x), absolute(y)))"
    " * (minimum(absolute(x), absolute(y)) / maximum(absolute(x), absolute(y)))))))"
)
hypot = op(
    "hypot(x, y)",
    np.hypot,
    _HYPOT,
    lambda t, ans, x, y: multiply(t, divide(x, where(equal(ans, 0), 1.0, ans))),
    lambda t, ans, x, y: multiply(t, divide(y, where(equal(ans, 0), 1.0, ans))),
    domain=(0.5, 2),
    doc="sqrt(x**2 + y**2); its slope at the origin is 0",
)
sinh = op(
    "sinh(x)", np.sinh, "sinh(x)", lambda t, ans, x: multiply(t, cosh(x)), on_complex=HOLOMORPHIC, doc="hyperbolic sine"
)
cosh = op(
    "cosh(x)",
    np.cosh,
    "cosh(x)",
    lambda t, ans, x: multiply(t, sinh(x)),
    on_complex=HOLOMORPHIC,
    doc="hyperbolic cosine",
)


def _tanh_rule(t: Array, ans: Array, x: Array) -> Array:
    return multiply(t, subtract(1, square(ans)) if t.dtype.kind == "c" else sech2(x))


tanh = op("tanh(x)", np.tanh, "tanh(x)", _tanh_rule, on_complex=HOLOMORPHIC, doc="hyperbolic tangent")
sech2 = op(
    "sech2(x)",
    precise.sech2,
    "sech2(x)",
    lambda t, ans, x: multiply(multiply(t, multiply(ans, tanh(x))), -2),
    loop=float_loop,
    doc="1 / cosh(x)**2, the derivative of tanh",
)


def _root(x: Array, squared: Array) -> Array:
    """The square root of x**2 + 1 or x**2 - 1; abs(x) where the 1 is negligible and the square may overflow."""
    if x.dtype.kind == "c":
        return sqrt(squared)
    size = absolute(x)
    return where(greater(size, 100.0 if x.dtype == HALF else 1e8), size, sqrt(squared))


arcsinh = op(
    "arcsinh(x)",
    np.arcsinh,
    "arcsinh(x)",
    lambda t, ans, x: divide(t, _root(x, add(square(x), 1))),
    on_complex=HOLOMORPHIC,
    doc="inverse hyperbolic sine",
)


def _arccosh_rule(t: Array, ans: Array, x: Array) -> Array:
    if x.dtype.kind == "c":  # the root of the product is not the product of the roots
        return divide(t, multiply(sqrt(subtract(x, 1)), sqrt(subtract(x, -1))))
    return divide(t, _root(x, multiply(subtract(x, 1), add(x, 1))))


arccosh = op(
    "arccosh(x)",
    np.arccosh,
    "arccosh(x)",
    _arccosh_rule,
    domain=(1.5, 3),
    on_complex=HOLOMORPHIC,
    doc="inverse hyperbolic cosine",
)
arctanh = op(
    "arctanh(x)",
    np.arctanh,
    "arctanh(x)",
    lambda t, ans, x: divide(t, _one_minus_square(x)),
    domain=(-0.9, 0.9),
    on_complex=HOLOMORPHIC,
    doc="inverse hyperbolic tangent",
)
