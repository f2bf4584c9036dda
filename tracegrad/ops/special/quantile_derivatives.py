"""Derivatives of quantile functions (inverse distribution functions), in the probability and the parameters.

A quantile y solves F(y, ...) = p for a distribution function F, so its derivatives are quotients of derivatives of F,
written in ops. Each is written over the density, which cancels unless the derivative is in p.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tracegrad.avals import LITERALS
from tracegrad.ops.elementwise.table import (
    add,
    divide,
    equal,
    exp,
    floor,
    less,
    multiply,
    negative,
    square,
    subtract,
    where,
)
from tracegrad.ops.special.densities import beta_density, gamma_density, of_quantile, t_density
from tracegrad.ops.special.scipy_special import apply
from tracegrad.ops.special.shape_parameter_derivatives import Derivative, t_ratio
from tracegrad.typing import Array

_INTEGER_ARGUMENT = "the argument counts, and has no neighbours"
_ROOT_2PI = math.sqrt(2 * math.pi)


def _in_gamma(a: Array, x: Array) -> Array:
    result: Array = apply("_gammainc_in.1", a, x)
    return result


def _in_beta(a: Array, b: Array, x: Array) -> tuple[Any, Any]:
    return apply("_betainc_in.1.0", a, b, x), apply("_betainc_in.0.1", a, b, x)


def _half(x: Array) -> Array:
    return multiply(x, 0.5)


def _above(k: Any) -> Array:
    return add(floor(k), 1.0)


def _whole(n: Any) -> Any:
    """A number of draws, rounded down as in SciPy."""
    return float(math.floor(n)) if type(n) in LITERALS else floor(n)


def _over(x: Any, *others: Any) -> Any:
    for y in others:
        x = divide(x, y)
    return x


# -- counts: the binomial, the negative binomial and the Poisson distribution ------------------------------------
def _bdtr(sign: float) -> Derivative:
    def derivative(ans: Array, k: Any, n: Any, p: Array) -> Array:
        draws = _whole(n)
        inside = less(floor(k), draws)
        rest = where(inside, subtract(draws, floor(k)), 1.0)
        return where(inside, multiply(beta_density(rest, _above(k), subtract(1.0, p)), sign), 0.0)

    return derivative


def _nbdtr(sign: float) -> Derivative:
    return lambda ans, k, n, p: multiply(beta_density(_whole(n), _above(k), p), sign)


def _bdtri(ans: Array, k: Any, n: Any, y: Array) -> Array:
    return divide(-1.0, beta_density(subtract(_whole(n), floor(k)), _above(k), subtract(1.0, ans)))


def _binomial(k: Array, n: float, p: Array) -> tuple[Array, ...]:
    """The derivatives of bdtr in k and n, between integer counts, over the density; and the density, the negative
    derivative in p."""
    a, b, x = subtract(n, k), add(k, 1.0), subtract(1.0, p)
    first, second = _in_beta(a, b, x)
    return subtract(second, first), first, beta_density(a, b, x)


def _solved(
    derivatives: Callable[..., tuple[Any, ...]],
    solved_for: int,
    order: Callable[..., tuple[Any, ...]],
    value: int,
    positions: tuple[int, ...],
) -> tuple[Derivative, ...]:
    """The derivatives of an inverse: `derivatives(*order(ans, *xs))` are those of the function in its operands,
    over the density, and the density. It is solved for the operand `solved_for`; argument `value` is the function
    value, and the others are the operands `positions`."""

    def at(i: int) -> Derivative:
        def derivative(ans: Array, *xs: Array) -> Any:
            *each, density = derivatives(*order(ans, *xs))
            if i == value:
                return _over(1.0, each[solved_for], density)
            return negative(divide(each[positions[i]], each[solved_for]))

        return derivative

    return tuple(at(i) for i in range(len(positions)))


def _from_0(derivatives: tuple[Derivative, ...]) -> tuple[Derivative, ...]:
    """The derivatives of a count that is clipped to 0."""

    def at(derivative: Derivative) -> Derivative:
        assert not isinstance(derivative, str)
        return lambda ans, *xs: where(equal(ans, 0.0), 0.0, derivative(ans, *xs))

    return tuple(map(at, derivatives))


def _of_binomial(k: Array, n: float, p: Array) -> tuple[Array, Array, float, Array]:
    in_k, in_n, density = _binomial(k, n, p)
    return in_k, in_n, -1.0, density


def _of_negative_binomial(k: Any, n: Any, p: Array) -> tuple[Any, ...]:
    in_n, in_k = _in_beta(n, add(k, 1.0), p)
    return in_k, in_n, 1.0, beta_density(n, add(k, 1.0), p)


def _of_poisson(k: Array, m: Array) -> tuple[Array, float, Array]:
    above = add(k, 1.0)
    return negative(_in_gamma(above, m)), -1.0, gamma_density(above, m)


# -- others --------------------------------------------------------------------------------------------------------
def _of_beta(a: Array, b: Array, x: Array) -> tuple[Any, ...]:
    return *_in_beta(a, b, x), 1.0, beta_density(a, b, x)


def _of_gamma(a: Array, b: Array, x: Array) -> tuple[Any, ...]:
    scaled = multiply(a, x)
    return x, _in_gamma(b, scaled), a, gamma_density(b, scaled)


def _of_chi_square(v: Array, x: Array) -> tuple[Any, ...]:
    a, y = _half(v), _half(x)
    return _half(_in_gamma(a, y)), 0.5, gamma_density(a, y)


def _of_f(n: Any, m: Array, x: Array) -> tuple[Any, ...]:
    product = multiply(n, x)
    both = add(m, product)
    share, squared = divide(product, both), square(both)
    first, second = _in_beta(_half(n), _half(m), share)
    in_n = add(_half(first), divide(multiply(x, m), squared))
    in_m = subtract(_half(second), divide(product, squared))
    return in_n, in_m, divide(multiply(n, m), squared), beta_density(_half(n), _half(m), share)


def _of_t(df: Array, t: Array) -> tuple[Any, ...]:
    return t_ratio(df, t), 1.0, t_density(df, t)


def _chdtri(ans: Array, v: Array, p: Array) -> Array:
    return multiply(of_quantile(ans, gamma_density(_half(v), _half(ans))), -2.0)


def _steepness(z: Array) -> Array:
    """The derivative of ndtri at the quantile z."""
    return multiply(exp(_half(square(z))), _ROOT_2PI)


def _z(mean: Array, std: Any, x: Array) -> Array:
    return divide(subtract(x, mean), std)


INVERSES: dict[str, tuple[Derivative, ...]] = {
    "bdtr": (_INTEGER_ARGUMENT, _INTEGER_ARGUMENT, _bdtr(-1.0)),
    "bdtrc": (_INTEGER_ARGUMENT, _INTEGER_ARGUMENT, _bdtr(1.0)),
    "bdtri": (_INTEGER_ARGUMENT, _INTEGER_ARGUMENT, _bdtri),
    "bdtrik": _from_0(_solved(_of_binomial, 0, lambda ans, y, n, p: (ans, n, p), 0, (0, 1, 2))),
    "bdtrin": _solved(_of_binomial, 1, lambda ans, k, y, p: (k, ans, p), 1, (0, 1, 2)),
    "nbdtr": (_INTEGER_ARGUMENT, _INTEGER_ARGUMENT, _nbdtr(1.0)),
    "nbdtrc": (_INTEGER_ARGUMENT, _INTEGER_ARGUMENT, _nbdtr(-1.0)),
    "nbdtri": (
        _INTEGER_ARGUMENT,
        _INTEGER_ARGUMENT,
        lambda ans, k, n, y: divide(1.0, beta_density(_whole(n), _above(k), ans)),
    ),
    "nbdtrik": _from_0(_solved(_of_negative_binomial, 0, lambda ans, y, n, p: (ans, n, p), 0, (0, 1, 2))),
    "nbdtrin": _solved(_of_negative_binomial, 1, lambda ans, k, y, p: (k, ans, p), 1, (0, 1, 2)),
    "pdtri": (_INTEGER_ARGUMENT, lambda ans, k, y: negative(of_quantile(ans, gamma_density(_above(k), ans)))),
    "pdtrik": _from_0(_solved(_of_poisson, 0, lambda ans, p, m: (ans, m), 0, (0, 1))),
    "btdtria": _solved(_of_beta, 0, lambda ans, p, b, x: (ans, b, x), 0, (0, 1, 2)),
    "btdtrib": _solved(_of_beta, 1, lambda ans, a, p, x: (a, ans, x), 1, (0, 1, 2)),
    "gdtria": _solved(_of_gamma, 0, lambda ans, p, b, x: (ans, b, x), 0, (0, 1, 2)),
    "gdtrib": _solved(_of_gamma, 1, lambda ans, a, p, x: (a, ans, x), 1, (0, 1, 2)),
    "gdtrix": _solved(_of_gamma, 2, lambda ans, a, b, p: (a, b, ans), 2, (0, 1, 2)),
    "chdtri": (lambda ans, v, p: negative(_in_gamma(_half(v), _half(ans))), _chdtri),
    "chdtriv": _solved(_of_chi_square, 0, lambda ans, p, x: (ans, x), 0, (0, 1)),
    "fdtri": _solved(_of_f, 2, lambda ans, n, m, p: (n, m, ans), 2, (0, 1, 2)),
    "fdtridfd": _solved(_of_f, 1, lambda ans, n, p, x: (n, ans, x), 1, (0, 1, 2)),
    "stdtridf": _solved(_of_t, 0, lambda ans, p, t: (ans, t), 0, (0, 1)),
    "nrdtrimn": (
        lambda ans, p, std, x: negative(multiply(std, _steepness(_z(ans, std, x)))),
        lambda ans, p, std, x: negative(_z(ans, std, x)),
        lambda ans, p, std, x: add(multiply(ans, 0.0), 1.0),
    ),
    "nrdtrisd": (
        lambda ans, mn, p, x: divide(-1.0, _z(mn, ans, x)),
        lambda ans, mn, p, x: negative(divide(multiply(ans, _steepness(_z(mn, ans, x))), _z(mn, ans, x))),
        lambda ans, mn, p, x: divide(1.0, _z(mn, ans, x)),
    ),
}
