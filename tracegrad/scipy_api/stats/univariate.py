"""Table of univariate distributions of `scipy.stats`, in functions of NumPy and SciPy.

Each row describes a standard variable (location 0, scale 1) with shape parameters: the log-density; and the
distribution function, the survival function and the quantile function where closed forms exist.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tracegrad.avals import is_literal
from tracegrad.numpy_api.registry import UFUNCS
from tracegrad.ops.shape.linear import stop_gradient
from tracegrad.scipy_api.registry import SHADOWS
from tracegrad.scipy_api.special import call
from tracegrad.typing import Array

Function = Callable[..., Any]

_LOG_2PI, _LOG_PI = math.log(2 * math.pi), math.log(math.pi)


def of_special(name: str) -> Function:
    return SHADOWS.get(f"scipy.special.{name}") or UFUNCS.get(name) or (lambda *xs: call(name, *xs))


gammaln, betaln, ndtr, ndtri, log_ndtr = map(of_special, ("gammaln", "betaln", "ndtr", "ndtri", "log_ndtr"))
xlogy, xlog1py = map(of_special, ("xlogy", "xlog1py"))
gammainc, gammaincc, gammaincinv = map(of_special, ("gammainc", "gammaincc", "gammaincinv"))
betainc, betaincc, betaincinv = map(of_special, ("betainc", "betaincc", "betaincinv"))


def xlog1my(x: Array, y: Array) -> Array:
    """Compute x * log(1 - y), and 0 if x is 0 and y is not nan."""
    result: Array = xlog1py(x, -y)
    return result


@dataclass(frozen=True)
class Law:
    """Univariate distribution: functions of a standard variable, and its support.

    `log` is the log-density, `cdf` the distribution function, `sf` the survival function, with their logarithms, and
    `ppf` and `isf` are the inverses. `low` and `high` are the ends of the support, for some a function of the
    parameters.
    """

    log: Function
    cdf: Function | None = None
    sf: Function | None = None
    ppf: Function | None = None
    isf: Function | None = None
    logcdf: Function | None = None
    logsf: Function | None = None
    low: float = -math.inf
    high: float = math.inf
    signs: tuple[bool, ...] = ()  # for each parameter, whether it may be 0
    max_values: tuple[float, ...] = ()  # for each parameter, its largest value
    whole: tuple[bool, ...] = ()  # for each parameter, whether it is an integer
    open: bool = False  # whether the density is 0 at `low`
    powers: Function | None = None  # the density by its factors, which may be 0 or infinite


def _t_log(z: Array, df: Array) -> Array:
    half = (df + 1.0) * 0.5
    result: Array = gammaln(half) - gammaln(df * 0.5) - 0.5 * (np.log(df) + _LOG_PI) - half * np.log1p(z * z / df)
    return result


def _f_log(z: Array, n: Array, m: Array) -> Array:
    n, m = n * 0.5, m * 0.5
    result: Array = n * np.log(n) + m * np.log(m) + xlogy(n - 1.0, z) - (n + m) * np.log(m + n * z) - betaln(n, m)
    return result


def _f_share(z: Array, n: Array, m: Array) -> Array:
    return n * z / (m + n * z)


def _t_ppf(q: Array, df: Array) -> Array:
    none = q == 0.0  # SciPy's stdtrit returns inf there
    return np.where(none, np.log(np.where(none, q, 1.0)), call("stdtrit", df, np.where(none, 0.5, q)))


def _gamma_powers(z: Array, a: Array) -> Array:
    result: Array = z ** (a - 1.0) * np.exp(-z - gammaln(a))
    return result


def _beta_powers(z: Array, a: Array, b: Array) -> Array:
    result: Array = z ** (a - 1.0) * (1.0 - z) ** (b - 1.0) * np.exp(-betaln(a, b))
    return result


def _f_powers(z: Array, n: Array, m: Array) -> Array:
    n, m = n * 0.5, m * 0.5
    result: Array = z ** (n - 1.0) * np.exp(n * np.log(n) + m * np.log(m) - (n + m) * np.log(m + n * z) - betaln(n, m))
    return result


def _f_ppf(q: Array, n: Array, m: Array) -> Array:
    y = betaincinv(n * 0.5, m * 0.5, q)
    result: Array = m * y / (n * (1.0 - y))
    return result


def _f_isf(q: Array, n: Array, m: Array) -> Array:
    rest = betaincinv(m * 0.5, n * 0.5, q)
    result: Array = m * (1.0 - rest) / (n * rest)
    return result


def _cauchy_ppf(q: Array) -> Array:
    outer = np.minimum(q, 1.0 - q) < 0.25
    tail = 1.0 / np.tan(math.pi * np.where(outer, np.minimum(q, 1.0 - q), 0.25))
    return np.where(outer, np.where(q < 0.5, -tail, tail), np.tan(math.pi * (np.where(outer, 0.5, q) - 0.5)))


def _laplace_cdf(z: Array) -> Array:
    above = z > 0
    return np.where(above, 1.0 - 0.5 * np.exp(-np.where(above, z, 0.0)), 0.5 * np.exp(np.where(above, 0.0, z)))


def _laplace_ppf(q: Array) -> Array:
    upper = q > 0.5
    return np.where(upper, -np.log(2.0 * (1.0 - np.where(upper, q, 0.75))), np.log(2.0 * np.where(upper, 0.25, q)))


def _logistic_log(z: Array) -> Array:
    return z - 2.0 * np.logaddexp(z, 0.0)


def _gumbel_log(z: Array) -> Array:
    return -z - np.exp(-z)


CONTINUOUS: dict[str, Law] = {
    "norm": Law(lambda z: -0.5 * z * z - 0.5 * _LOG_2PI, ndtr, lambda z: ndtr(-z), ndtri, lambda q: -ndtri(q),
                log_ndtr, lambda z: log_ndtr(-z)),
    "halfnorm": Law(lambda z: -0.5 * z * z + 0.5 * math.log(2 / math.pi),
                    lambda z: of_special("erf")(z / math.sqrt(2)), lambda z: 2.0 * ndtr(-z),
                    lambda q: ndtri(0.5 * (1.0 + q)), lambda q: -ndtri(0.5 * q), low=0.0),
    "t": Law(_t_log, lambda z, df: call("stdtr", df, z), lambda z, df: call("stdtr", df, -z),
             _t_ppf, lambda q, df: -_t_ppf(q, df)),
    "gamma": Law(lambda z, a: xlogy(a - 1.0, z) - z - gammaln(a), lambda z, a: gammainc(a, z),
                 lambda z, a: gammaincc(a, z), lambda q, a: gammaincinv(a, q),
                 lambda q, a: call("gammainccinv", a, q), low=0.0, powers=_gamma_powers),
    "invgamma": Law(lambda z, a: -(a + 1.0) * np.log(z) - gammaln(a) - 1.0 / z, lambda z, a: gammaincc(a, 1.0 / z),
                    lambda z, a: gammainc(a, 1.0 / z), lambda q, a: 1.0 / call("gammainccinv", a, q),
                    lambda q, a: 1.0 / gammaincinv(a, q), low=0.0, open=True),
    "beta": Law(lambda z, a, b: xlogy(a - 1.0, z) + xlog1my(b - 1.0, z) - betaln(a, b),
                lambda z, a, b: betainc(a, b, z), lambda z, a, b: betaincc(a, b, z),
                lambda q, a, b: betaincinv(a, b, q), lambda q, a, b: call("betainccinv", a, b, q), low=0.0, high=1.0,
                powers=_beta_powers),
    "expon": Law(lambda z: -z, lambda z: -np.expm1(-z), lambda z: np.exp(-z), lambda q: -np.log1p(-q),
                 lambda q: -np.log(q), logsf=lambda z: -z, low=0.0),
    "uniform": Law(lambda z: z * 0.0, lambda z: z, lambda z: 1.0 - z, lambda q: q, lambda q: 1.0 - q,
                   low=0.0, high=1.0),
    "lognorm": Law(lambda z, s: -0.5 * (np.log(z) / s) ** 2 - np.log(z) - np.log(s) - 0.5 * _LOG_2PI,
                   lambda z, s: ndtr(np.log(z) / s), lambda z, s: ndtr(-np.log(z) / s),
                   lambda q, s: np.exp(s * ndtri(q)), lambda q, s: np.exp(-s * ndtri(q)),
                   lambda z, s: log_ndtr(np.log(z) / s), lambda z, s: log_ndtr(-np.log(z) / s), low=0.0, open=True),
    "laplace": Law(lambda z: -np.abs(z) - math.log(2), _laplace_cdf, lambda z: _laplace_cdf(-z), _laplace_ppf,
                   lambda q: -_laplace_ppf(q)),
    "logistic": Law(_logistic_log, of_special("expit"), lambda z: of_special("expit")(-z), of_special("logit"),
                    lambda q: -of_special("logit")(q),
                    lambda z: -np.logaddexp(-z, 0.0), lambda z: -np.logaddexp(z, 0.0)),
    "cauchy": Law(lambda z: -_LOG_PI - np.log1p(z * z), lambda z: np.arctan2(1.0, -z) / math.pi,
                  lambda z: np.arctan2(1.0, z) / math.pi, _cauchy_ppf, lambda q: -_cauchy_ppf(q)),
    "chi2": Law(lambda z, df: xlogy(df * 0.5 - 1.0, z) - 0.5 * z - gammaln(df * 0.5) - df * (0.5 * math.log(2)),
                lambda z, df: gammainc(df * 0.5, z * 0.5), lambda z, df: gammaincc(df * 0.5, z * 0.5),
                lambda q, df: 2.0 * gammaincinv(df * 0.5, q), lambda q, df: 2.0 * call("gammainccinv", df * 0.5, q),
                low=0.0, powers=lambda z, df: 0.5 * _gamma_powers(0.5 * z, df * 0.5)),
    "f": Law(_f_log, lambda z, n, m: betainc(n * 0.5, m * 0.5, _f_share(z, n, m)),
             lambda z, n, m: betaincc(n * 0.5, m * 0.5, _f_share(z, n, m)), _f_ppf, _f_isf, low=0.0,
             powers=_f_powers),
    "weibull_min": Law(lambda z, c: np.log(c) + xlogy(c - 1.0, z) - z**c, lambda z, c: -np.expm1(-(z**c)),
                       lambda z, c: np.exp(-(z**c)), lambda q, c: (-np.log1p(-q)) ** (1.0 / c),
                       lambda q, c: (-np.log(q)) ** (1.0 / c),
                       logsf=lambda z, c: -(z**c), low=0.0, powers=lambda z, c: c * z ** (c - 1.0) * np.exp(-(z**c))),
    "pareto": Law(lambda z, b: np.log(b) - (b + 1.0) * np.log(z), lambda z, b: 1.0 - z ** (-b),
                  lambda z, b: z ** (-b), lambda q, b: (1.0 - q) ** (-1.0 / b), lambda q, b: q ** (-1.0 / b), low=1.0),
    "rayleigh": Law(lambda z: np.log(z) - 0.5 * z * z, lambda z: -np.expm1(-0.5 * z * z),
                    lambda z: np.exp(-0.5 * z * z), lambda q: np.sqrt(-2.0 * np.log1p(-q)),
                    lambda q: np.sqrt(-2.0 * np.log(q)), low=0.0, powers=lambda z: z * np.exp(-0.5 * z * z)),
    "gumbel_r": Law(_gumbel_log, lambda z: np.exp(-np.exp(-z)), lambda z: -np.expm1(-np.exp(-z)),
                    lambda q: -np.log(-np.log(q)), lambda q: -np.log(-np.log1p(-q)), lambda z: -np.exp(-z)),
    "gumbel_l": Law(lambda z: _gumbel_log(-z), lambda z: -np.expm1(-np.exp(z)), lambda z: np.exp(-np.exp(z)),
                    lambda q: np.log(-np.log1p(-q)), lambda q: np.log(-np.log(q)), logsf=lambda z: -np.exp(z)),
}  # fmt: skip


def _combinations(k: Array, n: Array) -> Array:
    result: Array = gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)
    return result


def _binom_log(k: Array, n: Array, p: Array) -> Array:
    result: Array = _combinations(k, n) + xlogy(k, p) + xlog1my(n - k, p)
    return result


def _draws(k: Array, n: Array) -> Array:
    result: Array = gammaln(k + n) - gammaln(k + 1.0) - gammaln(n)
    return result


def _nbinom_log(k: Array, n: Array, p: Array) -> Array:
    return _draws(k, n) + n * np.log(p) + xlog1my(k, p)


def _binom_cdf(k: Array, n: Array, p: Array) -> Array:
    last = k >= n
    return np.where(last, 1.0, betaincc(np.where(last, 1.0, k + 1.0), np.where(last, 1.0, n - k), p))


def _binom_sf(k: Array, n: Array, p: Array) -> Array:
    last = k >= n
    return np.where(last, 0.0, betainc(np.where(last, 1.0, k + 1.0), np.where(last, 1.0, n - k), p))


def _geom_cdf(k: Array, p: Array) -> Array:
    last = p == 1.0
    return np.where(last, 1.0 - (1.0 - p) ** k, -np.expm1(np.log1p(-np.where(last, 0.5, p)) * k))


def _geom_sf(k: Array, p: Array) -> Array:
    last = p == 1.0
    return np.where(last, (1.0 - p) ** k, np.exp(np.log1p(-np.where(last, 0.5, p)) * k))


_DISCRETE: dict[str, Law] = {
    "poisson": Law(
        lambda k, mu: xlogy(k, mu) - gammaln(k + 1.0) - mu,
        lambda k, mu: gammaincc(k + 1.0, mu),
        lambda k, mu: gammainc(k + 1.0, mu),
        signs=(True,),
        low=0.0,
        powers=lambda k, mu: mu**k * np.exp(-mu - gammaln(k + 1.0)),
    ),
    "binom": Law(
        _binom_log,
        _binom_cdf,
        _binom_sf,
        signs=(True, True),
        max_values=(math.inf, 1.0),
        whole=(True, False),
        low=0.0,
        powers=lambda k, n, p: p**k * (1.0 - p) ** (n - k) * np.exp(_combinations(k, n)),
    ),
    "bernoulli": Law(
        lambda k, p: xlogy(k, p) + xlog1my(1.0 - k, p),
        lambda k, p: np.where(k >= 1, 1.0, 1.0 - p),
        lambda k, p: np.where(k >= 1, 0.0, p),
        signs=(True,),
        max_values=(1.0,),
        low=0.0,
        high=1.0,
        powers=lambda k, p: p**k * (1.0 - p) ** (1.0 - k),
    ),
    "nbinom": Law(
        _nbinom_log,
        lambda k, n, p: betainc(n, k + 1.0, p),
        lambda k, n, p: betaincc(n, k + 1.0, p),
        max_values=(math.inf, 1.0),
        low=0.0,
        powers=lambda k, n, p: p**n * (1.0 - p) ** k * np.exp(_draws(k, n)),
    ),
    "geom": Law(
        lambda k, p: xlog1my(k - 1.0, p) + np.log(p),
        _geom_cdf,
        _geom_sf,
        max_values=(1.0,),
        low=1.0,
        powers=lambda k, p: (1.0 - p) ** (k - 1.0) * p,
    ),
}


def _inverse(name: str, which: str) -> Function:
    """Make a quantile function of a discrete distribution, a step function without derivative."""
    return lambda *xs: call(f"_{name}_{which}", *[x if is_literal(x) else stop_gradient(x) for x in xs])


DISCRETE = {name: replace(row, ppf=_inverse(name, "ppf"), isf=_inverse(name, "isf")) for name, row in _DISCRETE.items()}
