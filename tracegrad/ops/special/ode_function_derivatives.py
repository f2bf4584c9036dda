"""Derivatives of special functions defined by a differential equation or an integral, in ops.

If SciPy's function returns a solution and its derivative, the equation gives the derivative of the second.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tracegrad.ops.elementwise.table import (
    absolute,
    add,
    cos,
    cosh,
    derivative_of_power,
    divide,
    equal,
    less,
    multiply,
    negative,
    power_in_base,
    power_in_exponent,
    sqrt,
    square,
    subtract,
    where,
)
from tracegrad.ops.special.scipy_special import apply
from tracegrad.ops.special.shape_parameter_derivatives import Derivative
from tracegrad.typing import Array

if TYPE_CHECKING:
    from tracegrad.ops.core.elementwise_op import Elementwise


_NOT_IN_SCIPY = "SciPy has no function for it"
_DEGREE = math.pi / 180


def _same(name: str, *first: float) -> Derivative:
    """The derivative is the value of another function."""
    return lambda ans, x: apply(name, *first, x)


def over(y: Array, x: Array, limit: float) -> Array:
    """y / x, with its limit at 0."""
    zero = equal(x, 0.0)
    return where(zero, limit, divide(y, where(zero, 1.0, x)))


def _difference_from_one(sign: float, name: str, x: Array) -> Array:
    """The difference of j0 or i0 from 1, over x: near 0 by its Taylor series, which has correct derivatives there."""
    near = less(absolute(x), 0.5)
    far, inside = where(near, 1.0, x), where(near, x, 0.0)
    squared = multiply(square(inside), sign / 4)
    series: Any = 0.0
    for k in range(9, 0, -1):
        series = multiply(add(series, 1.0), multiply(squared, 1 / k**2)) if k > 1 else add(series, 1.0)
    quotient = divide(multiply(subtract(apply(name, far), 1.0), sign), far)
    return where(near, multiply(series, multiply(inside, 0.25)), quotient)


def _kelvin(sign: float, other: str, derivative: str, limit: float) -> tuple[Derivative, Derivative]:
    """The derivatives of a Kelvin function and of its derivative, by DLMF 10.61: y'' = sign * other - y' / x."""
    return (
        _same(derivative),
        lambda ans, x: subtract(multiply(apply(other, x), sign), over(ans, x, limit)),
    )


def _root(x: Array) -> Array:
    below = less(x, 0.0)
    return where(below, 0.0, sqrt(where(below, 1.0, x)))


def _cylinder(name: str, bend: Callable[[Any, Any], Any]) -> dict[str, tuple[Derivative, ...]]:
    """The derivatives of a parabolic cylinder function and of its derivative: y'' = bend(v, x) * y."""
    return {
        f"{name}.0": (_NOT_IN_SCIPY, lambda ans, v, x: apply(f"{name}.1", v, x)),
        f"{name}.1": (_NOT_IN_SCIPY, lambda ans, v, x: multiply(bend(v, x), apply(f"{name}.0", v, x))),
    }


def _mathieu(
    name: str, value: str, iteration: Elementwise, sign: float, unit: float
) -> dict[str, tuple[Derivative, ...]]:
    """The derivatives of a Mathieu function and of its derivative: y'' = sign * (a - 2 q c(2 x)) * y,
    where c is cos or cosh."""

    def bent(ans: Array, m: Array, q: Array, x: Array) -> Array:
        swing = multiply(multiply(q, 2.0), iteration(multiply(x, 2.0 * unit)))
        bend = subtract(apply(value, m, q), swing)
        return multiply(multiply(bend, apply(f"{name}.0", m, q, x)), sign * unit)

    return {
        f"{name}.0": (_NOT_IN_SCIPY, _NOT_IN_SCIPY, lambda ans, m, q, x: multiply(apply(f"{name}.1", m, q, x), unit)),
        f"{name}.1": (_NOT_IN_SCIPY, _NOT_IN_SCIPY, bent),
    }


def _lpmv(ans: Array, m: Array, v: Array, x: Array) -> Array:
    below = multiply(add(v, m), apply("lpmv", m, subtract(v, 1.0), x))
    return divide(subtract(below, multiply(multiply(v, x), ans)), subtract(1.0, square(x)))


def _carlson(*positions: int) -> Derivative:
    """The derivative of elliprf in the last of these arguments, by DLMF 19.18."""
    return lambda ans, *xs: multiply(apply("elliprd", *[xs[i] for i in positions]), -1 / 6)


def _wright(ans: Array, a: Array, b: Array, x: Array) -> Array:
    return divide(apply("wright_bessel", a, add(a, b), x), apply("wright_bessel", a, b, x))


_PLAIN = {
    "itj0y0": ("j0", "y0"),
    "iti0k0": ("i0", "k0"),
    "itairy": ("airy.0", "airy.2"),
}

OF_FUNCTIONS: dict[str, tuple[Derivative, ...]] = {
    **{f"{name}.{i}": (_same(of),) for name, ofs in _PLAIN.items() for i, of in enumerate(ofs)},
    "itairy.2": (lambda ans, x: apply("airy.0", negative(x)),),
    "itairy.3": (lambda ans, x: apply("airy.2", negative(x)),),
    "it2j0y0.0": (lambda ans, x: _difference_from_one(-1.0, "j0", x),),
    "it2j0y0.1": (lambda ans, x: divide(apply("y0", x), negative(x)),),
    "it2i0k0.0": (lambda ans, x: _difference_from_one(1.0, "i0", x),),
    "it2i0k0.1": (lambda ans, x: divide(apply("k0", x), negative(x)),),
    "itstruve0": (_same("struve", 0.0),),
    "itmodstruve0": (_same("modstruve", 0.0),),
    "it2struve0": (lambda ans, x: negative(over(apply("struve", 0.0, x), x, 2 / math.pi)),),
    "jve": (
        _NOT_IN_SCIPY,
        lambda ans, v, x: multiply(subtract(apply("jve", subtract(v, 1.0), x), apply("jve", add(v, 1.0), x)), 0.5),
    ),
    "yve": (
        _NOT_IN_SCIPY,
        lambda ans, v, x: multiply(subtract(apply("yve", subtract(v, 1.0), x), apply("yve", add(v, 1.0), x)), 0.5),
    ),
    **dict(zip(("ber", "berp"), ((f,) for f in _kelvin(-1.0, "bei", "berp", 0.0)))),
    **dict(zip(("bei", "beip"), ((f,) for f in _kelvin(1.0, "ber", "beip", 0.5)))),
    **dict(zip(("ker", "kerp"), ((f,) for f in _kelvin(-1.0, "kei", "kerp", math.inf)))),
    **dict(zip(("kei", "keip"), ((f,) for f in _kelvin(1.0, "ker", "keip", math.inf)))),
    "airye.0": (lambda ans, x: add(apply("airye.1", x), multiply(_root(x), ans)),),
    "airye.1": (lambda ans, x: add(multiply(x, apply("airye.0", x)), multiply(_root(x), ans)),),
    "airye.2": (lambda ans, x: subtract(apply("airye.3", x), multiply(_root(x), ans)),),
    "airye.3": (lambda ans, x: subtract(multiply(x, apply("airye.2", x)), multiply(_root(x), ans)),),
    "cotdg": (lambda ans, x: multiply(add(square(ans), 1.0), -_DEGREE),),
    "elliprf": (_carlson(1, 2, 0), _carlson(0, 2, 1), _carlson(0, 1, 2)),
    "elliprc": (_carlson(1, 1, 0), lambda ans, x, y: multiply(apply("elliprd", x, y, y), -1 / 3)),
    "lpmv": (_NOT_IN_SCIPY, _NOT_IN_SCIPY, _lpmv),
    **_cylinder("pbdv", lambda v, x: subtract(subtract(multiply(square(x), 0.25), v), 0.5)),
    **_cylinder("pbvv", lambda v, x: subtract(subtract(multiply(square(x), 0.25), v), 0.5)),
    **_cylinder("pbwa", lambda a, x: subtract(a, multiply(square(x), 0.25))),
    **_mathieu("mathieu_cem", "mathieu_a", cos, -1.0, _DEGREE),
    **_mathieu("mathieu_sem", "mathieu_b", cos, -1.0, _DEGREE),
    **_mathieu("mathieu_modcem1", "mathieu_a", cosh, 1.0, 1.0),
    **_mathieu("mathieu_modcem2", "mathieu_a", cosh, 1.0, 1.0),
    **_mathieu("mathieu_modsem1", "mathieu_b", cosh, 1.0, 1.0),
    **_mathieu("mathieu_modsem2", "mathieu_b", cosh, 1.0, 1.0),
    "powm1": (
        lambda ans, x, y: derivative_of_power(power_in_base(x, y), x, y, "base"),
        lambda ans, x, y: derivative_of_power(power_in_exponent(add(ans, 1.0), x), x, y, "exponent"),
    ),
    "log_wright_bessel": (_NOT_IN_SCIPY, _NOT_IN_SCIPY, _wright),
}
