"""Derivatives of special functions in their shape parameters, in ops (implicit reparameterization).

The components have no name in SciPy. They are *families*: functions that differ in the orders of derivatives, which are
part of the name: `special(a, x, name="_gammainc_in.2")` is the second derivative of gammainc in `a`, over its density.
NumPy computes the members (`tracegrad.ops.special.incomplete_derivatives`). The derivative of a member is computed from
its neighbours, so derivatives of every order exist.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.avals import LITERALS
from tracegrad.ops.elementwise.limits import RULES, limited
from tracegrad.ops.elementwise.table import (
    absolute,
    add,
    divide,
    equal,
    isinf,
    less,
    log,
    log1p,
    logical_or,
    multiply,
    negative,
    sign,
    square,
    subtract,
    where,
)
from tracegrad.ops.shape.linear import zeros_like
from tracegrad.ops.special.densities import beta_density, gamma_density, t_density
from tracegrad.ops.special.incomplete_derivatives import bell, bell_2d, beta_ratio, gamma_ratio
from tracegrad.ops.special.scipy_special import apply, digamma, polygamma
from tracegrad.typing import Array, Number

Derivative = Callable[..., Any] | str


def _member(family: str, *orders: int) -> str:
    return ".".join([family, *map(str, orders)])


def _psi(n: int, x: Array | Number) -> Any:
    """The derivative of digamma of order `n`."""
    if type(x) in LITERALS:
        import scipy.special

        return float(scipy.special.polygamma(n, x))
    return polygamma(x, n=n) if n else digamma(x)


def _in_the_end(x: Array, end: float, interior: Callable[[Any], Any], nothing: Any) -> Array:
    """`interior(x)`; `nothing`, which is 0, at both ends of the range of `x`, 0 and `end`."""
    outside = logical_or(equal(x, 0.0), equal(x, end))
    return where(outside, nothing, interior(where(outside, 0.5, x)))


def _nothing(rule: str, *xs: Array) -> Array:
    """0 in the shape of the operands, with the derivatives of `rule`."""
    zero = zeros_like(next(x for x in xs if type(x) not in LITERALS))
    return limited(zero, *[add(zero, x) if type(x) in LITERALS else x for x in xs], rule=rule)


def _unmoved(zero: object, *xs: Array) -> Any:
    return zero


def _times_logs(density: Array, logs: Array) -> Array:
    """A density times the derivative of its logarithm in a parameter; 0 where the density is 0."""
    return where(equal(density, 0.0), 0.0, multiply(density, logs))


# -- gamma -----------------------------------------------------------------------------------------------------
def _gamma_logs(k: int, a: Array, x: Array) -> list[Array]:
    """The derivatives in `a` of the logarithm of the density at `x`, of orders 1 to k."""
    return [subtract(log(x), _psi(0, a)) if not n else negative(_psi(n, a)) for n in range(k)]


def _of_gamma(k: int) -> tuple[Derivative, ...]:
    def in_a(ans: Array, a: Array, x: Array) -> Array:
        above = apply(_member("_gammainc_in", k + 1), a, x)
        return subtract(above, multiply(ans, _gamma_logs(1, a, x)[0]))

    def in_x(ans: Array, a: Array, x: Array) -> Array:
        bend = subtract(divide(subtract(a, 1.0), x), 1.0)
        return subtract(bell(_gamma_logs(k, a, x)), multiply(ans, bend))

    return in_a, in_x


def in_gamma(ans: Array, a: Array, x: Array) -> Array:
    """The derivative of gammainc in `a`."""

    def inside(x: Array) -> Array:
        return multiply(apply("_gammainc_in.1", a, x), gamma_density(a, x))

    return _in_the_end(x, np.inf, inside, _nothing("gammainc_in_a", a, x))


RULES["gammainc_in_a"] = (
    _unmoved,
    lambda zero, a, x: _times_logs(gamma_density(a, x), _gamma_logs(1, a, x)[0]),
)


def _of_gamma_quantile(ans: Array, a: Array, y: Array) -> Array:
    return negative(apply("_gammainc_in.1", a, ans))


# -- beta ------------------------------------------------------------------------------------------------------
def _beta_logs(a: Array, b: Array, x: Array) -> Callable[[int, int], Any]:
    both = add(a, b)

    def c(i: int, j: int) -> Any:
        shared = _psi(i + j - 1, both)
        if i and j:
            return shared
        rest = subtract(shared, _psi(i + j - 1, a if i else b))
        if i + j > 1:
            return rest
        return add(rest, log(x) if i else log1p(negative(x)))

    return c


def _of_beta(i: int, j: int) -> tuple[Derivative, ...]:
    def in_shape(di: int, dj: int) -> Derivative:
        def derivative(ans: Array, a: Array, b: Array, x: Array) -> Array:
            above = apply(_member("_betainc_in", i + di, j + dj), a, b, x)
            return subtract(above, multiply(ans, _beta_logs(a, b, x)(di, dj)))

        return derivative

    def in_x(ans: Array, a: Array, b: Array, x: Array) -> Array:
        bend = subtract(divide(subtract(a, 1.0), x), divide(subtract(b, 1.0), subtract(1.0, x)))
        return subtract(bell_2d(i, j, _beta_logs(a, b, x)), multiply(ans, bend))

    return in_shape(1, 0), in_shape(0, 1), in_x


def _in_shape(i: int, j: int) -> Derivative:
    """The derivative of betainc in `a` or in `b`."""
    member, rule = _member("_betainc_in", i, j), f"betainc_in_{'ab'[j]}"

    def derivative(ans: Array, a: Array, b: Array, x: Array) -> Array:
        def inside(x: Array) -> Array:
            return multiply(apply(member, a, b, x), beta_density(a, b, x))

        return _in_the_end(x, 1.0, inside, _nothing(rule, a, b, x))

    def at_an_end(zero: Array, a: Array, b: Array, x: Array) -> Array:
        return _times_logs(beta_density(a, b, x), _beta_logs(a, b, x)(i, j))

    RULES[rule] = _unmoved, _unmoved, at_an_end
    return derivative


IN_BETA = _in_shape(1, 0), _in_shape(0, 1)


def _of_beta_quantile(member: str) -> Derivative:
    return lambda ans, a, b, y: negative(apply(member, a, b, ans))


# -- Student's t -----------------------------------------------------------------------------------------------
def t_ratio(df: Array, t: Array) -> Array:
    """The derivative of stdtr(df, t) in `df`, over the density; by DLMF 8.17 the distribution is a betainc."""
    zero = equal(t, 0.0)
    size = where(zero, 1.0, absolute(t))
    squared = square(size)
    both, half = add(df, squared), multiply(df, 0.5)
    share, rest = divide(df, both), divide(squared, both)
    # The smaller of the two shares determines the other without cancellation.
    small = less(rest, 0.5)
    inner = where(
        small,
        negative(apply("_betainc_in.0.1", 0.5, half, where(small, rest, 0.25))),
        apply("_betainc_in.1.0", half, 0.5, where(small, 0.25, share)),
    )
    # The argument of betainc depends on df too.
    result = divide(add(multiply(inner, divide(square(both), multiply(squared, 2.0))), 1.0), multiply(df, 2.0))
    return where(zero, _nothing("stdtr_in_df", df, t), negative(multiply(multiply(result, size), sign(t))))


def _t_ratio_at_0(zero: Array, df: Array, t: Array) -> Array:
    """The derivative of `t_ratio` in t at 0: the derivative in df of the logarithm of the density there."""
    half = multiply(df, 0.5)
    return subtract(multiply(subtract(_psi(0, add(half, 0.5)), _psi(0, half)), 0.5), divide(0.5, df))


RULES["stdtr_in_df"] = _unmoved, _t_ratio_at_0


def in_t(ans: Array, df: Array, t: Array) -> Array:
    """The derivative of stdtr in `df`."""
    far = isinf(t)
    inside = where(far, 1.0, t)
    return where(far, 0.0, multiply(t_ratio(df, inside), t_density(df, inside)))


# -- what is drawn, as a function of the parameters ------------------------------------------------------------
_CONSTANT = "it is a random number"
VALUES_OF_DRAWN: dict[str, Callable[..., Any]] = {
    "_drawn_gamma": lambda a, x: x,
    "_drawn_beta": lambda a, b, x: x,
    "_drawn_t": lambda df, t: t,
}


def drawn(kind: str, *xs: Array) -> Any:
    """Random numbers as functions of the distribution parameters: the last operand is the drawn value.

    The corresponding quantile function has the same derivatives.
    """
    return apply(f"_drawn_{kind}", *xs)


PARAMETERS: dict[str, tuple[Derivative, ...]] = {
    "gammaincinv": (_of_gamma_quantile,),
    "gammainccinv": (_of_gamma_quantile,),
    "betaincinv": (_of_beta_quantile("_betainc_in.1.0"), _of_beta_quantile("_betainc_in.0.1")),
    "betainccinv": (_of_beta_quantile("_betainc_in.1.0"), _of_beta_quantile("_betainc_in.0.1")),
    "stdtrit": (lambda ans, df, p: negative(t_ratio(df, ans)),),
    "_drawn_gamma": (_of_gamma_quantile, _CONSTANT),
    "_drawn_beta": (_of_beta_quantile("_betainc_in.1.0"), _of_beta_quantile("_betainc_in.0.1"), _CONSTANT),
    "_drawn_t": (lambda ans, df, t: negative(t_ratio(df, ans)), _CONSTANT),
}

# For each family, functions of the orders: one computes the member, the other returns the derivatives of the member.
FAMILIES: dict[str, Callable[..., Any]] = {"_gammainc_in": gamma_ratio, "_betainc_in": beta_ratio}
DERIVATIVES_OF_FAMILIES: dict[str, Callable[..., tuple[Derivative, ...]]] = {
    "_gammainc_in": _of_gamma,
    "_betainc_in": _of_beta,
}
