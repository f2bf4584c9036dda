"""Derivatives of quotients of gamma functions, in ops, with reflection at poles.

If gamma(z) has a pole and the function has the value 0, its value times digamma(z), 0 times infinity, has a limit:
1 / gamma(z) = gamma(1 - z) * sin(pi * z) / pi has no infinite factor.
"""

from __future__ import annotations

import math
from typing import Any

from tracegrad.avals import LITERALS
from tracegrad.ops.elementwise.table import (
    add,
    cospi,
    divide,
    equal,
    floor,
    greater,
    less,
    logical_and,
    logical_not,
    logical_or,
    multiply,
    negative,
    sinpi,
    sqrt,
    square,
    subtract,
    where,
)
from tracegrad.ops.special.scipy_special import apply, digamma
from tracegrad.typing import Array, Number


def _psi(x: Array | Number) -> Array:
    return apply("digamma", x) if type(x) in LITERALS else digamma(x)


def reciprocal_gamma(ans: Array, x: Array) -> Array:
    low = less(x, 0.5)
    left, rest = where(low, x, 0.25), where(low, subtract(1.0, x), 0.75)
    reflected = subtract(multiply(apply("gamma", rest), cospi(left)), multiply(ans, digamma(rest)))
    return where(low, reflected, negative(multiply(ans, digamma(where(low, 0.75, x)))))


def _binom_below(n: Any, z: Array) -> tuple[Array, ...]:
    """The condition for reflecting 1 / gamma(z), the value of 1 - z there, and beta(n + 1, 1 - z) * cos(pi * z)."""
    usual = float(n > -1) if type(n) in LITERALS else greater(n, -1.0)
    low = logical_and(less(z, 0.5), usual)
    inside, rest = where(low, z, 0.25), where(low, subtract(1.0, z), 0.75)
    first = add(n, 1.0) if type(n) in LITERALS else where(low, add(n, 1.0), 1.0)
    return low, rest, multiply(apply("beta", first, rest), cospi(inside))


def binom_n(ans: Array, n: Array, k: float) -> Array:
    z = add(subtract(n, k), 1.0)
    low, rest, reflection = _binom_below(n, z)
    above = _psi(add(n, 1.0))
    reflected = add(multiply(ans, subtract(above, digamma(rest))), reflection)
    return where(low, reflected, multiply(ans, subtract(above, digamma(where(low, 0.75, z)))))


def binom_k(ans: Array, n: float, k: Array) -> Array:
    z, w = add(subtract(n, k), 1.0), add(k, 1.0)
    low, rest, reflection = _binom_below(n, z)
    below, other, back = _binom_below(n, w)
    of_z, of_w = digamma(where(low, 0.75, z)), digamma(where(below, 0.75, w))
    result = multiply(ans, subtract(of_z, of_w))
    result = where(below, add(multiply(ans, subtract(of_z, digamma(other))), back), result)
    return where(low, subtract(multiply(ans, subtract(digamma(rest), of_w)), reflection), result)


def _between_whole(a: Any, m: Any) -> Array:
    """pi / tan(pi * a) - pi / tan(pi * (a + m)), which is 0 for integers m; there by its derivative in m."""
    beyond, height = subtract(m, floor(m)), sinpi(a)
    pole = equal(height, 0.0)
    bend = square(divide(math.pi, where(pole, 1.0, height)))
    return where(pole, sqrt(beyond), multiply(beyond, bend))


def poch_a(ans: Array, a: Array, m: Any) -> Array:
    """The derivative of gamma(a + m) / gamma(a) in a: with the lower gamma reflected, or with both for integers m."""
    both = add(a, m)
    low, lower = less(a, 0.5), less(both, 0.5)
    whole = float(m == int(m)) if type(m) in LITERALS else equal(floor(m), m)
    twice = logical_and(logical_and(low, lower), whole)
    once = logical_and(logical_and(low, logical_not(twice)), less(both, 170.0))
    rest = where(low, subtract(1.0, a), 0.75)
    safe = where(once, both, 0.75)
    reflection = multiply(multiply(apply("gamma", safe), apply("gamma", where(once, rest, 0.75))), cospi(a))
    reflected = add(multiply(ans, subtract(digamma(safe), digamma(rest))), reflection)
    paired = subtract(digamma(where(twice, subtract(1.0, both), 0.75)), digamma(rest))
    paired = multiply(ans, paired if type(m) in LITERALS else add(paired, _between_whole(a, m)))
    is_reflected = logical_or(once, twice)
    plain = multiply(ans, subtract(digamma(where(is_reflected, 0.75, both)), digamma(where(is_reflected, 0.75, a))))
    return where(once, reflected, where(twice, paired, plain))
