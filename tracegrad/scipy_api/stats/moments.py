"""Table of means, variances and entropies of univariate distributions.

Each row has three functions of the shape parameters, for location 0 and scale 1; None where SciPy sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.scipy_api.stats.univariate import betaln, gammaln, of_special, xlog1my, xlogy
from tracegrad.typing import Array

Moments = tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any] | None]

_EULER = float(np.euler_gamma)
_digamma, _gamma = of_special("psi"), of_special("gamma")


def _above(x: Array, least: float, function: Callable[[Array], Array], other: float = math.inf) -> Array:
    """Apply a function to elements of x above `least`; return `other` for other elements."""
    inside = x > least
    return np.where(inside, function(np.where(inside, x, least + 1.0)), other)


def _constant(x: float) -> Callable[..., Array | float]:
    """Make a function with the same value for all shape parameters."""
    return lambda *shapes: x if not shapes else x + 0.0 * shapes[0]


def _t_var(df: Array) -> Array:
    return np.where(df > 1.0, _above(df, 2.0, lambda v: v / (v - 2.0)), math.nan)


def _t_entropy(df: Array) -> Array:
    half = 0.5 * (df + 1.0)
    result: Array = half * (_digamma(half) - _digamma(0.5 * df)) + 0.5 * np.log(df) + betaln(0.5 * df, 0.5 + 0.0 * df)
    return result


def _beta_entropy(a: Array, b: Array) -> Array:
    terms = (a - 1.0) * _digamma(a) + (b - 1.0) * _digamma(b)
    result: Array = betaln(a, b) - terms + (a + b - 2.0) * _digamma(a + b)
    return result


def _chi2_entropy(df: Array) -> Array:
    half = 0.5 * df
    result: Array = half + math.log(2) + gammaln(half) + (1.0 - half) * _digamma(half)
    return result


def _f_var(n: Array, m: Array) -> Array:
    return _above(m, 4.0, lambda v: 2.0 * v * v * (n + v - 2.0) / (n * (v - 2.0) ** 2 * (v - 4.0)))


def _f_entropy(n: Array, m: Array) -> Array:
    n, m, ratio = 0.5 * n, 0.5 * m, np.log(m / n)
    terms = (1.0 - n) * _digamma(n) - (1.0 + m) * _digamma(m)
    result: Array = ratio + betaln(n, m) + terms + (n + m) * _digamma(n + m)
    return result


def _weibull_var(c: Array) -> Array:
    result: Array = _gamma(1.0 + 2.0 / c) - _gamma(1.0 + 1.0 / c) ** 2
    return result


def _bit_entropy(p: Array) -> Array:
    result: Array = -xlogy(p, p) - xlog1my(1.0 - p, p)
    return result


MOMENTS: dict[str, Moments] = {
    "norm": (_constant(0.0), _constant(1.0), _constant(0.5 * math.log(2 * math.pi * math.e))),
    "halfnorm": (
        _constant(math.sqrt(2 / math.pi)),
        _constant(1 - 2 / math.pi),
        _constant(0.5 * math.log(math.pi / 2) + 0.5),
    ),
    "t": (lambda df: _above(df, 1.0, lambda v: 0.0 * v), _t_var, _t_entropy),
    "gamma": (lambda a: a, lambda a: a, lambda a: _digamma(a) * (1.0 - a) + a + gammaln(a)),
    "invgamma": (
        lambda a: _above(a, 1.0, lambda v: 1.0 / (v - 1.0)),
        lambda a: _above(a, 2.0, lambda v: 1.0 / ((v - 1.0) ** 2 * (v - 2.0))),
        lambda a: a - (a + 1.0) * _digamma(a) + gammaln(a),
    ),
    "beta": (lambda a, b: a / (a + b), lambda a, b: a * b / ((a + b) ** 2 * (a + b + 1.0)), _beta_entropy),
    "expon": (_constant(1.0), _constant(1.0), _constant(1.0)),
    "uniform": (_constant(0.5), _constant(1 / 12), _constant(0.0)),
    "lognorm": (
        lambda s: np.exp(0.5 * s * s),
        lambda s: np.expm1(s * s) * np.exp(s * s),
        lambda s: 0.5 * (1 + math.log(2 * math.pi)) + np.log(s),
    ),
    "laplace": (_constant(0.0), _constant(2.0), _constant(math.log(2) + 1)),
    "logistic": (_constant(0.0), _constant(math.pi**2 / 3), _constant(2.0)),
    "cauchy": (_constant(math.nan), _constant(math.nan), _constant(math.log(4 * math.pi))),
    "chi2": (lambda df: df, lambda df: 2.0 * df, _chi2_entropy),
    "f": (lambda n, m: _above(m, 2.0, lambda v: v / (v - 2.0)) + 0.0 * n, _f_var, _f_entropy),
    "weibull_min": (lambda c: _gamma(1.0 + 1.0 / c), _weibull_var, lambda c: -_EULER / c - np.log(c) + _EULER + 1.0),
    "pareto": (
        lambda b: _above(b, 1.0, lambda v: v / (v - 1.0)),
        lambda b: _above(b, 2.0, lambda v: v / ((v - 2.0) * (v - 1.0) ** 2)),
        lambda b: 1.0 + 1.0 / b - np.log(b),
    ),
    "rayleigh": (
        _constant(math.sqrt(math.pi / 2)),
        _constant(2 - math.pi / 2),
        _constant(_EULER / 2 + 1 - 0.5 * math.log(2)),
    ),
    "gumbel_r": (_constant(_EULER), _constant(math.pi**2 / 6), _constant(_EULER + 1)),
    "gumbel_l": (_constant(-_EULER), _constant(math.pi**2 / 6), _constant(_EULER + 1)),
    "poisson": (lambda mu: mu, lambda mu: mu, None),
    "binom": (lambda n, p: n * p, lambda n, p: n * p * (1.0 - p), None),
    "bernoulli": (lambda p: p, lambda p: p * (1.0 - p), _bit_entropy),
    "nbinom": (lambda n, p: n * (1.0 - p) / p, lambda n, p: n * (1.0 - p) / (p * p), None),
    "geom": (lambda p: 1.0 / p, lambda p: (1.0 - p) / (p * p), lambda p: _bit_entropy(p) / p),
}
