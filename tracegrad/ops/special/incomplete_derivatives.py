"""Parameter derivatives of the incomplete gamma and beta functions, by quadrature.

The parameter derivatives of a distribution function F = integral of w are integrals of w times a polynomial in the
derivatives of log(w) (a complete Bell polynomial). All integrals here are over a logarithmic variable, in which w is
log-concave. They run from the argument to where w has died away, on the side where the first derivative has one sign
(over both sides it is 0). The first derivative therefore does not cancel, and its quotient by w at the argument does
not underflow: `gamma_ratio(1, a, x)` is -dx/da of a quantile x, in the tails as well (Figurnov, Mohamed, Mnih: Implicit
Reparameterization Gradients, 2018).

The relative error of the ratios of first derivatives is at most 1e-11, in the tails and for shapes of 0.02 to 2,000.
The polynomials of higher derivatives have roots; their error is as small where nothing cancels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.typing import Array, NDArray

_LEGENDRE = np.polynomial.legendre.leggauss(20)
_DECAY_CUTOFF = 42.0  # the integrand is negligible after a decay by exp(-42)
_NEAR, _FAR = 12, 4  # panels


def blocks(function: Callable[..., object], *xs: Any) -> Array:
    """Apply a function of columns to blocks of some hundred elements."""
    xs = tuple(np.broadcast_arrays(*[np.asarray(x, np.float64) for x in xs]))
    flat = [x.reshape(-1, 1) for x in xs]
    results = [function(*[x[i : i + 512] for x in flat]) for i in range(0, flat[0].size, 512)]
    return np.concatenate([np.empty((0, 1)), *results]).reshape(xs[0].shape)


def nodes(edges: Array) -> tuple[Any, Any]:
    """The Gauss-Legendre nodes and weights between neighbouring `edges`, along the last axis."""
    x, w = _LEGENDRE
    half = 0.5 * np.diff(edges)[..., None]
    points = edges[..., :-1, None] + half * (x + 1.0)
    return points.reshape(*edges.shape[:-1], -1), (half * w).reshape(*edges.shape[:-1], -1)


def died_away(exponent: Callable[[Any], Any], low: Any, high: Any) -> NDArray:
    """Find approximately, by bisection, where a convex function reaches the threshold `_DECAY_CUTOFF`; it is at most 0
    at 0 and above the threshold at `high`."""
    low, high = np.log(low), np.log(high)
    for _ in range(16):
        middle = 0.5 * (low + high)
        enough = exponent(np.exp(middle)) >= _DECAY_CUTOFF
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    result: NDArray = np.exp(high)
    return result


def _edges(end: NDArray, first: NDArray | float, last: NDArray | float) -> Array:
    """Panels from 0 to `end`: short ones between `first` and `last`, where the integrand varies most, and long ones
    elsewhere."""
    last = np.minimum(last, end)
    first = np.broadcast_to(first, end.shape)
    panels = [np.zeros_like(end), first + (last - first) * (np.arange(_NEAR + 1) / _NEAR)]
    long = np.arange(1, _FAR + 1) / _FAR
    if np.any(first > 0):
        panels.insert(1, first * long[:-1])
    else:
        panels.pop(0)
    if np.any(end > last):
        panels.append(last + (end - last) * long)
    return np.concatenate(panels, axis=-1)


def bell(c: list[Array]) -> Array:
    """The complete Bell polynomial of these values: the n-th derivative of exp(f) over exp(f), given the derivatives of
    f."""
    results: list[Any] = [1.0]
    for n in range(len(c)):
        terms = [math.comb(n, i) * results[n - i] * c[i] for i in range(n + 1)]
        results.append(sum(terms[1:], terms[0]))
    result: Array = results[-1]
    return result


def bell_2d(i: int, j: int, c: Callable[[int, int], Any]) -> Any:
    """As `bell`, for the derivative of orders i and j in two variables; `c(i, j)` are the derivatives of f."""
    if i + j == 0:
        return 1.0
    if i == 0:
        return bell([c(0, n) for n in range(1, j + 1)])
    total: Any = 0.0
    for p in range(i):
        for q in range(j + 1):
            factor = math.comb(i - 1, p) * math.comb(j, q)
            total = total + factor * bell_2d(i - 1 - p, j - q, c) * c(p + 1, q)
    return total


def _polygamma(n: int, x: Array) -> NDArray:
    import scipy.special

    result: NDArray = scipy.special.polygamma(n, x) if n else scipy.special.digamma(x)
    return result


# -- gamma -----------------------------------------------------------------------------------------------------
def gamma_ratio(k: int, a: Array, x: Array) -> Array:
    """The `k`-th derivative of gammainc(a, x) in `a`, over the density x**(a - 1) * exp(-x) / gamma(a)."""
    return blocks(lambda a, x: _gamma(k, a, x), a, x)


def _gamma(k: int, a: NDArray, x: NDArray) -> NDArray:
    valid = (a > 0) & (x > 0) & (x < np.inf) & (a < np.inf)
    p, z = np.where(valid, a, 1.0), np.where(valid, x, 1.0)
    constants = [_polygamma(n, p) for n in range(k)]
    y = np.log(z)
    result = np.where(y < constants[0], _gamma_below(k, p, z, y, constants), _gamma_above(k, p, z, y, constants))
    return np.where(valid, result, np.where((x == 0) & (a > 0), 0.0, np.nan))


def _gamma_below(k: int, a: Array, x: Array, y: NDArray, constants: list[Any]) -> NDArray:
    # With t = x * exp(-u), log(w(x) * x) - log(w(t) * t) is this.
    x = np.minimum(x, a)

    def exponent(u: Array) -> Array:
        return (a - x) * u + x * (u + np.expm1(-u))

    end = died_away(exponent, 1e-9, _DECAY_CUTOFF / a + 2.0)
    u, weights = nodes(_edges(end, 0.0, 40.0))
    polynomial = bell([y - u - constants[0], *[-c for c in constants[1:]]])
    result: NDArray = np.exp(y) * np.sum(weights * np.exp(-exponent(u)) * polynomial, axis=-1, keepdims=True)
    return result


def _gamma_above(k: int, a: Array, x: Array, y: Array, constants: list[Any]) -> NDArray:
    y = np.maximum(y, constants[0])
    x = np.exp(y)

    def exponent(u: Array) -> NDArray:
        result: NDArray = (x - a) * u + x * (np.expm1(u) - u)
        return result

    end = died_away(exponent, 1e-9, np.log(8.0 * (x + _DECAY_CUTOFF + a)) - y)
    u, weights = nodes(_edges(end, np.maximum(end - 40.0, 0.0), end))
    polynomial = bell([y + u - constants[0], *[-c for c in constants[1:]]])
    result: NDArray = -x * np.sum(weights * np.exp(-exponent(u)) * polynomial, axis=-1, keepdims=True)
    return result


# -- beta ------------------------------------------------------------------------------------------------------
def beta_ratio(i: int, j: int, a: Array, b: Array, x: Array) -> Array:
    """The derivative of betainc(a, b, x) of orders `i` in `a` and `j` in `b`, over the density x**(a - 1) * (1 - x)**(b
    - 1) / beta(a, b)."""
    return blocks(lambda a, b, x: _beta(i, j, a, b, x), a, b, x)


def _beta(i: int, j: int, a: NDArray, b: NDArray, x: NDArray) -> Any:
    valid = (a > 0) & (b > 0) & (x > 0) & (x < 1)
    inside = [np.where(valid, v, 0.5) for v in (a, b, x)]
    low = _is_low(i, j, *inside)
    p, q, z, rest = inside[0], inside[1], inside[2], 1.0 - inside[2]
    first, second = np.where(low, p, q), np.where(low, q, p)
    share, other = np.where(low, z, rest), np.where(low, rest, z)
    result = _beta_below(i, j, low, first, second, share, other)
    return np.where(valid, result, np.where((a > 0) & (b > 0) & ((x == 0) | (x == 1)), 0.0, np.nan))


def _is_low(i: int, j: int, a: Array, b: Array, x: Array) -> Any:
    """Whether to integrate from 0 to x, where the logarithm has one sign, and not from x to 1."""
    both = _polygamma(0, a + b)
    if not j:
        return np.log(x) < _polygamma(0, a) - both
    if not i:
        return np.log1p(-x) > _polygamma(0, b) - both
    return x * (a + b) < a


def _beta_below(i: int, j: int, low: Array, a: Array, b: Array, x: NDArray, rest: Array) -> NDArray:
    """The integral for the fraction `x` (`rest` is 1 - x); unless `low`, the integral of the other side, with a and b
    exchanged."""

    # With t / (1 - t) = exp(-u) * x / (1 - x), log(w(x) * x * (1 - x)) - log(w(t) * t * (1 - t)) is this.
    def exponent(u: Array) -> Any:
        return a * u + (a + b) * lowered(u)

    def lowered(u: Array) -> NDArray:
        change = x * np.expm1(-u)
        result: NDArray = np.where(change > -0.5, np.log1p(np.maximum(change, -0.5)), np.log(rest + x * np.exp(-u)))
        return result

    beyond = np.log(rest)
    odds = np.log(x) - beyond
    end = died_away(exponent, 1e-9, (_DECAY_CUTOFF - (a + b) * beyond) / a + 2.0)
    u, weights = nodes(_edges(end, np.maximum(odds - 40.0, 0.0), np.maximum(odds, 0.0) + 40.0))
    moved = lowered(u)
    logs = np.log(x) - u - moved, beyond - moved
    both = [_polygamma(n, a + b) for n in range(i + j)]
    per_parameter = [_polygamma(n, a) for n in range(i + j)], [_polygamma(n, b) for n in range(i + j)]

    def derivative(sides: tuple[int, int]) -> Callable[[int, int], Any]:
        def c(p: int, q: int) -> Any:
            n = p + q - 1
            shared = both[n]
            if p and q:
                return shared
            side = sides[0] if p else sides[1]
            return shared - per_parameter[side][n] + (logs[side] if not n else 0.0)

        return c

    polynomial = np.where(low, bell_2d(i, j, derivative((0, 1))), -bell_2d(i, j, derivative((1, 0))))
    result: NDArray = x * rest * np.sum(weights * np.exp(-exponent(u)) * polynomial, axis=-1, keepdims=True)
    return result
