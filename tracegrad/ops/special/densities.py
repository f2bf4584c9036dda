"""Densities of the gamma, beta and Student's t distribution, in ops: the derivatives of incomplete functions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from tracegrad.ops.elementwise.table import (
    absolute,
    add,
    divide,
    equal,
    exp,
    isinf,
    log,
    log1p,
    logical_or,
    multiply,
    negative,
    power,
    square,
    subtract,
    where,
    xlogy,
)
from tracegrad.ops.special.scipy_special import apply, lgamma
from tracegrad.typing import Array


def _piecewise_density(
    interior: Callable[[Any], Any], at_an_end: Callable[[Any], Any], x: Array, inside: float, *ends: Any
) -> Array:
    """A density computed from its logarithm `interior`; at the ends, where the logarithm is infinite, by powers, and 0
    for infinite x."""
    end = functools.reduce(logical_or, [equal(x, y) for y in ends])
    far = isinf(x)
    middle = interior(where(logical_or(end, far), inside, x))
    return where(end, at_an_end(where(end, x, inside)), where(far, 0.0, middle))


def gamma_density(a: Array, x: Array) -> Array:
    exponent, scale = subtract(a, 1.0), lgamma(a)
    return _piecewise_density(
        lambda x: exp(subtract(subtract(xlogy(exponent, x), x), scale)),
        lambda x: multiply(power(x, exponent), exp(negative(add(x, scale)))),
        x,
        1.0,
        0.0,
    )


def beta_density(a: Array, b: Array, x: Array) -> Array:
    first, second, scale = subtract(a, 1.0), subtract(b, 1.0), apply("betaln", a, b)
    return _piecewise_density(
        lambda x: exp(subtract(add(xlogy(first, x), multiply(second, log1p(negative(x)))), scale)),
        lambda x: multiply(multiply(power(x, first), power(subtract(1.0, x), second)), exp(negative(scale))),
        x,
        0.5,
        0.0,
        1.0,
    )


def t_density(df: Array, t: Array) -> Array:
    half, far = multiply(add(df, 1.0), 0.5), isinf(t)
    scale = subtract(subtract(lgamma(half), lgamma(multiply(df, 0.5))), multiply(log(multiply(df, math.pi)), 0.5))
    spread = log1p(divide(square(where(far, 0.0, t)), df))
    return where(far, 0.0, exp(subtract(scale, multiply(half, spread))))


def of_quantile(ans: Array, density: Array) -> Array:
    """The derivative of a quantile: 1 over its density; infinity for an infinite quantile, where the density is 0 in
    all orders."""
    return where(isinf(ans), absolute(ans), divide(1.0, density))


def vanishing(rule: Any) -> Callable[[Any, Any], Any]:
    """The derivative `rule` of a function that has a limit at infinity, although its factors have none or SciPy has no
    value there."""

    def derivative(ans: Array, x: Array) -> Array:
        far = isinf(x)
        return where(far, multiply(ans, 0.0), rule(ans, where(far, 0.5, x)))

    return derivative
