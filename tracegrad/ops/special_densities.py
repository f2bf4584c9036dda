"""The densities of the gamma, the beta and Student's t distribution, in ops: the slopes of incomplete functions."""

from __future__ import annotations

import math
from typing import Any

from tracegrad.ops.elementwise import (
    add,
    divide,
    equal,
    exp,
    log,
    log1p,
    logical_and,
    multiply,
    negative,
    square,
    subtract,
    where,
    xlogy,
)
from tracegrad.ops.special import apply, lgamma

__all__ = ["beta_density", "gamma_density", "t_density"]


def gamma_density(a: Any, x: Any) -> Any:
    return exp(subtract(subtract(xlogy(subtract(a, 1.0), x), x), lgamma(a)))


def beta_density(a: Any, b: Any, x: Any) -> Any:
    return exp(subtract(add(xlogy(subtract(a, 1.0), x), _xlog1m(subtract(b, 1.0), x)), apply("betaln", a, b)))


def _xlog1m(n: Any, x: Any) -> Any:
    edge = logical_and(equal(n, 0.0), equal(x, 1.0))
    return multiply(where(edge, 0.0, n), log1p(negative(where(edge, 0.0, x))))


def t_density(df: Any, t: Any) -> Any:
    half = multiply(add(df, 1.0), 0.5)
    scale = subtract(subtract(lgamma(half), lgamma(multiply(df, 0.5))), multiply(log(multiply(df, math.pi)), 0.5))
    return exp(subtract(scale, multiply(half, log1p(divide(square(t), df)))))
