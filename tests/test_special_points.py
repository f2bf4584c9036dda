"""Derivatives of functions of one number at zeros, infinities, nan, the ends of domains and where formulas
have removable singularities: of the first and second order, by every way, against the limits that mpmath has.

A derivative is the limit, or nan where that has no formula, and each such place is named below with the reason.
`pytest tests/test_special_points.py --points` compiles every function, not one of eight.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest
import scipy.special as sp
import scipy.stats as st

import tracegrad as tg

INF, NAN = float("inf"), float("nan")
ALL = [0.0, -0.0, INF, -INF, NAN]
FROM_0 = [0.0, INF, NAN]
UP_TO_1 = [0.0, -0.0, 1.0, -1.0, NAN]
UNIT = [0.0, 1.0, NAN]


def _below(x: Any) -> Any:
    return mp.erfc(-x / mp.sqrt(2)) / 2


def _power(p: float) -> Callable[[Any], Any]:
    return lambda x: x**p


def _spherical(order: float) -> Callable[[Any], Any]:
    return lambda x: mp.sqrt(mp.pi / 2 / x) * mp.besselj(order + 0.5, x)


# Each function as users write it, as mpmath has it, and the points.
FUNCTIONS: dict[str, tuple[Callable[[Any], Any], list[float]]] = {
    "np.exp(x)": (mp.exp, ALL),
    "np.exp2(x)": (lambda x: mp.power(2, x), ALL),
    "np.expm1(x)": (mp.expm1, ALL),
    "np.log(x)": (mp.log, FROM_0),
    "np.log2(x)": (lambda x: mp.log(x, 2), FROM_0),
    "np.log10(x)": (mp.log10, FROM_0),
    "np.log1p(x)": (lambda x: mp.log(1 + x), [-1.0, 0.0, -0.0, INF, NAN]),
    "np.sqrt(x)": (mp.sqrt, FROM_0),
    "np.cbrt(x)": (lambda x: mp.sign(x) * mp.cbrt(abs(x)), ALL),
    "x**2": (_power(2), [0.0, -0.0, INF, -INF]),
    "x**3": (_power(3), ALL),
    "x**4": (_power(4), ALL),
    "x**1.5": (_power(1.5), FROM_0),
    "x**2.5": (_power(2.5), FROM_0),
    "x**-0.5": (_power(-0.5), FROM_0),
    "x**-1": (_power(-1), [INF, -INF, NAN]),
    "x**-2": (_power(-2), ALL),
    "np.reciprocal(x)": (_power(-1), [INF, -INF, NAN]),
    "2.0**x": (lambda x: mp.power(2, x), ALL),
    "0.5**x": (lambda x: mp.power(0.5, x), ALL),
    "np.float_power(x, 3)": (_power(3), ALL),
    "np.sin(x)": (mp.sin, [0.0, -0.0, NAN]),
    "np.tan(x)": (mp.tan, [0.0, -0.0, NAN]),
    "np.sinh(x)": (mp.sinh, ALL),
    "np.cosh(x)": (mp.cosh, ALL),
    "np.tanh(x)": (mp.tanh, ALL),
    "np.arcsinh(x)": (mp.asinh, ALL),
    "np.arccosh(x)": (mp.acosh, [1.0, INF, NAN]),
    "np.arctanh(x)": (mp.atanh, UP_TO_1),
    "np.arcsin(x)": (mp.asin, UP_TO_1),
    "np.arccos(x)": (mp.acos, UP_TO_1),
    "np.arctan(x)": (mp.atan, ALL),
    "np.arctan2(x, 1.0)": (mp.atan, ALL),
    "np.hypot(x, 1.0)": (lambda x: mp.sqrt(x * x + 1), [x for x in ALL if abs(x) != INF]),
    "np.hypot(x, 0.0)": (abs, [1.0, -2.0]),
    "np.sinc(x)": (mp.sincpi, [*ALL, 1.0]),
    "np.logaddexp(x, 0.0)": (lambda x: mp.log(1 + mp.exp(x)), ALL),
    "np.logaddexp2(x, 0.0)": (lambda x: mp.log(1 + mp.power(2, x), 2), ALL),
    "np.i0(x)": (lambda x: mp.besseli(0, x), [0.0, -0.0, NAN]),
    "sp.expit(x)": (lambda x: 1 / (1 + mp.exp(-x)), ALL),
    "sp.logit(x)": (lambda x: mp.log(x / (1 - x)), [*UNIT, 0.5]),
    "sp.log_expit(x)": (lambda x: -mp.log(1 + mp.exp(-x)), ALL),
    "sp.erf(x)": (mp.erf, ALL),
    "sp.erfc(x)": (mp.erfc, ALL),
    "sp.erfcx(x)": (lambda x: mp.exp(x * x) * mp.erfc(x), [0.0, -0.0, 11.9, 12.1, 1e3, 1e5, -INF, NAN]),
    "sp.erfi(x)": (mp.erfi, [0.0, -0.0, NAN]),
    "sp.erfinv(x)": (mp.erfinv, [0.0, -0.0, NAN]),
    "sp.dawsn(x)": (lambda x: mp.sqrt(mp.pi) / 2 * mp.exp(-x * x) * mp.erfi(x), [0.0, -0.0, 11.9, 12.1, -20.0, NAN]),
    "sp.ndtr(x)": (_below, ALL),
    "sp.log_ndtr(x)": (lambda x: mp.log(_below(x)), [0.0, -0.0, -20.0, -100.0, INF, NAN]),
    "sp.entr(x)": (lambda x: -x * mp.log(x), [0.0, 1.0, NAN]),
    "sp.rel_entr(x, 2.0)": (lambda x: x * mp.log(x / 2), [0.0, 2.0, NAN]),
    "sp.rel_entr(2.0, x)": (lambda x: 2 * mp.log(2 / x), [2.0, NAN]),
    "sp.kl_div(x, 2.0)": (lambda x: x * mp.log(x / 2) - x + 2, [0.0, 2.0, NAN]),
    "sp.kl_div(2.0, x)": (lambda x: 2 * mp.log(2 / x) - 2 + x, [2.0, NAN]),
    "sp.xlogy(x, 3.0)": (lambda x: x * mp.log(3), [0.0, -0.0, INF, -INF]),
    "sp.xlogy(2.0, x)": (lambda x: 2 * mp.log(x), FROM_0),
    "sp.gamma(x)": (mp.gamma, [1.0, 2.0, NAN]),
    "sp.gammaln(x)": (mp.loggamma, [1.0, 2.0, 0.0, NAN]),
    "sp.digamma(x)": (mp.digamma, [1.0, NAN]),
    "sp.rgamma(x)": (mp.rgamma, [0.0, -1.0, -2.0, 1.0, -0.5, 0.3, INF, NAN]),
    "sp.binom(5.0, x)": (lambda x: mp.binomial(5, x), [0.0, 5.0, 6.0, 2.0, NAN]),
    "sp.binom(x, 2.0)": (lambda x: x * (x - 1) / 2, [0.0, 1.0, 2.0, 0.3, NAN]),
    "sp.binom(4.0, x)": (lambda x: mp.binomial(4, x), [-1.0, -2.5, 2.5, 5.0, 5.5, 7.0]),
    "sp.binom(x, 3.5)": (lambda x: mp.binomial(x, 3.5), [0.5, 1.0, 2.5, 4.0]),
    "sp.poch(x, 2.0)": (lambda x: x * (x + 1), [0.0, -1.0, -2.0, -3.5, 1.0, NAN]),
    "sp.poch(x, 1.5)": (lambda x: mp.rf(x, 1.5), [0.0, -1.0, -2.0, -3.2, 1.0]),
    "sp.gammainc(1.0, x)": (lambda x: 1 - mp.exp(-x), [0.0, INF, NAN]),
    "sp.gammainc(2.0, x)": (lambda x: 1 - mp.exp(-x) * (1 + x), [0.0, INF, NAN]),
    "sp.gammainc(3.0, x)": (lambda x: 1 - mp.exp(-x) * (1 + x + x * x / 2), [0.0, INF]),
    "sp.gammaincinv(x, 0.0)": (lambda a: a * 0, [1.0, 2.0]),
    "sp.betainc(3.0, 2.0, x)": (lambda x: 4 * x**3 - 3 * x**4, [*UNIT]),
    "sp.bdtrik(0.2, 1.0, x)": (lambda p: p * 0, [0.5, 0.6]),
    "sp.pdtrik(0.2, x)": (lambda m: m * 0, [0.5, 1.0]),
    "sp.stdtr(2.0, x)": (lambda t: t / 2 / mp.sqrt(2 + t * t), [0.0, INF, -INF]),
    "sp.betainc(1.0, 2.0, x)": (lambda x: 1 - (1 - x) ** 2, [*UNIT]),
    "sp.betainc(2.0, 1.0, x)": (lambda x: x**2, [*UNIT]),
    "sp.exp1(x)": (mp.e1, FROM_0),
    "sp.sici(x)[0]": (mp.si, [0.0, -0.0, INF, -INF, NAN]),
    "sp.sici(x)[1]": (mp.ci, [1.0, INF, NAN]),
    "sp.shichi(x)[0]": (mp.shi, [0.0, -0.0, NAN]),
    "sp.j0(x)": (lambda x: mp.besselj(0, x), [0.0, -0.0, NAN]),
    "sp.j1(x)": (lambda x: mp.besselj(1, x), [0.0, -0.0, NAN]),
    "sp.jv(2.0, x)": (lambda x: mp.besselj(2, x), [0.0, NAN]),
    "sp.iv(0.0, x)": (lambda x: mp.besseli(0, x), [0.0, NAN]),
    "sp.i0e(x)": (lambda x: mp.exp(-x) * mp.besseli(0, x), [2.0, INF, NAN]),
    "sp.i1e(x)": (lambda x: mp.exp(-abs(x)) * mp.besseli(1, x), [0.0, INF, NAN]),
    "sp.k0e(x)": (lambda x: mp.exp(x) * mp.besselk(0, x), [2.0, INF, NAN]),
    "sp.k1e(x)": (lambda x: mp.exp(x) * mp.besselk(1, x), [2.0, INF, NAN]),
    "sp.spherical_jn(0, x)": (mp.sinc, [0.0, NAN]),
    "sp.spherical_jn(1, x)": (_spherical(1), [0.0, NAN]),
    "sp.spherical_jn(2, x)": (_spherical(2), [0.0, NAN]),
    "sp.struve(0.0, x)": (lambda x: mp.struveh(0, x), [0.0, NAN]),
    "sp.struve(1.0, x)": (lambda x: mp.struveh(1, x), [0.0, NAN]),
    "sp.modstruve(0.0, x)": (lambda x: mp.struvel(0, x), [0.0, NAN]),
    "sp.ellipk(x)": (mp.ellipk, [0.0, -INF, NAN]),
    "sp.ellipkm1(x)": (lambda p: mp.ellipk(1 - p), [1.0, 0.5, INF, NAN]),
    "sp.ellipe(x)": (mp.ellipe, [0.0, NAN]),
    "sp.ellipkinc(0.7, x)": (lambda m: mp.ellipf(0.7, m), [0.0, -0.0, 0.009, 0.011, 0.989, 0.999, 1.0, 1.009, NAN]),
    "sp.ellipeinc(0.7, x)": (lambda m: mp.ellipe(0.7, m), [0.0, -0.0, 0.009, 0.011, 0.989, 0.999, 1.0, 1.009, NAN]),
    "sp.ellipkinc(-4.0, x)": (lambda m: mp.ellipf(-4, m), [0.0, 0.009, 0.3]),
    "sp.ellipeinc(-4.0, x)": (lambda m: mp.ellipe(-4, m), [0.0, 0.009, 0.3]),
    "sp.exprel(x)": (lambda x: mp.expm1(x) / x, [0.0, -0.0, -INF, NAN]),
    "sp.boxcox(2.0, x)": (lambda p: (mp.mpf(2) ** p - 1) / p, [0.0, NAN]),
    "sp.boxcox(0.0, x)": (lambda p: -1 / p, [1.0, 2.0]),
    "sp.boxcox(x, 2.0)": (lambda x: (x * x - 1) / 2, [0.0, 1.0]),
    "sp.boxcox1p(x, 3.0)": (lambda x: ((x + 1) ** 3 - 1) / 3, [-1.0, 0.0]),
    "sp.inv_boxcox(2.0, x)": (lambda p: (1 + 2 * p) ** (1 / p), [0.0, -0.0, 0.04, 0.06, 1.0]),
    "sp.inv_boxcox1p(0.5, x)": (lambda p: (1 + p / 2) ** (1 / p) - 1, [0.0, 0.19, 0.21, 1.0]),
    "sp.powm1(x, 1.0)": (lambda x: x - 1, [0.0, 1.0]),
    "sp.powm1(0.0, x)": (lambda x: x * 0 - 1, [1.0, 2.0]),
    "sp.it2j0y0(x)[0]": (lambda x: mp.quad(lambda t: (1 - mp.besselj(0, t)) / t, [0, x]), [0.0, 0.4, 0.6]),
    "sp.it2i0k0(x)[0]": (lambda x: mp.quad(lambda t: (mp.besseli(0, t) - 1) / t, [0, x]), [0.0, 0.4, 0.6]),
    "sp.airye(x)[2]": (lambda x: mp.airybi(x), [-1.0, -2.0]),
    "sp.huber(1.0, x)": (lambda r: r * r / 2, [0.0, -0.0]),
    "sp.pseudo_huber(x, 2.0)": (lambda d: d * (mp.sqrt(d * d + 4) - d), [1.0, 3.0]),
    "sp.pseudo_huber(1.0, x)": (lambda r: mp.sqrt(1 + r * r) - 1, [0.0, -0.0, NAN]),
    "sp.eval_legendre(2, x)": (lambda x: mp.legendre(2, x), [0.0, 1.0, -1.0]),
    "sp.eval_chebyt(3, x)": (lambda x: mp.chebyt(3, x), [0.0, 1.0, -1.0, NAN]),
    "sp.eval_chebyt(0.5, x)": (lambda x: mp.chebyt(0.5, x), [0.0, 0.4, 1.0]),
    "sp.eval_chebyu(0.5, x)": (lambda x: mp.chebyu(0.5, x), [0.0, 0.4]),
    "sp.eval_legendre(0.5, x)": (lambda x: mp.legendre(0.5, x), [0.0, 0.4, 1.0]),
    "sp.eval_legendre(-1.0, x)": (lambda x: x * 0 + 1, [0.0, 0.4]),
    "sp.eval_laguerre(0.5, x)": (lambda x: mp.laguerre(0.5, 0, x), [0.0, 0.4]),
    "sp.eval_genlaguerre(0.5, 1.0, x)": (lambda x: mp.laguerre(0.5, 1, x), [0.0, 0.4]),
    "sp.eval_gegenbauer(0.5, 1.5, x)": (lambda x: mp.gegenbauer(0.5, 1.5, x), [0.0, 0.4]),
    "sp.eval_jacobi(0.5, 1.0, 2.0, x)": (lambda x: mp.jacobi(0.5, 1, 2, x), [0.0, 0.4]),
    "st.norm.logpdf(x)": (lambda x: -x * x / 2, [0.0, -0.0, INF, -INF]),
    "st.norm.logcdf(x)": (lambda x: mp.log(_below(x)), [0.0, -0.0, -20.0, INF, NAN]),
    "st.norm.logsf(x)": (lambda x: mp.log(_below(-x)), [0.0, -0.0, 20.0, -INF, NAN]),
    "st.norm.pdf(x)": (mp.npdf, ALL),
    "st.norm.cdf(x)": (_below, ALL),
    "st.gamma.logpdf(1.7, x)": (lambda a: (a - 1) * mp.log(mp.mpf(1.7)) - mp.loggamma(a), [1.0, 2.0]),
    "st.gamma.pdf(x, 1.0)": (lambda x: mp.exp(-x), [0.0, INF]),
    "st.gamma.pdf(x, 2.0)": (lambda x: x * mp.exp(-x), [0.0, INF]),
    "st.gamma.pdf(x, 3.0)": (lambda x: x * x * mp.exp(-x) / 2, [0.0]),
    "st.gamma.pdf(0.0, x)": (lambda a: a * 0, [2.0, 3.0]),
    "st.gamma.ppf(x, 0.5)": (lambda q: mp.erfinv(q) ** 2, [0.0]),
    "st.gamma.ppf(x, 1.0)": (lambda q: -mp.log(1 - q), [0.0, 1.0]),
    "st.gamma.logcdf(x, 1.0)": (lambda x: mp.log(1 - mp.exp(-x)) if x > 0 else NAN, [0.0, INF]),
    "st.expon.logcdf(x)": (lambda x: mp.log(1 - mp.exp(-x)) if x > 0 else NAN, [0.0, INF]),
    "st.pareto.logcdf(x, 2.0)": (lambda x: mp.log(1 - x**-2) if x > 1 else NAN, [1.0, INF]),
    "st.lognorm.logpdf(x, 1.0)": (lambda x: -(mp.log(x) ** 2) / 2 - mp.log(x) if x > 0 else NAN, [0.0]),
    "st.laplace.cdf(x)": (lambda x: mp.exp(x) / 2 if x < 0 else 1 - mp.exp(-x) / 2, [0.0, -0.0, INF, -INF]),
    "st.laplace.sf(x)": (lambda x: mp.exp(-x) / 2 if x > 0 else 1 - mp.exp(x) / 2, [0.0, -0.0, INF, -INF]),
    "st.laplace.logcdf(x)": (lambda x: mp.log(mp.exp(x) / 2 if x < 0 else 1 - mp.exp(-x) / 2), [INF]),
    "st.weibull_min.pdf(x, 3.0)": (lambda x: 3 * x * x * mp.exp(-(x**3)), [0.0, INF]),
    "st.weibull_min.cdf(x, 3.0)": (lambda x: 1 - mp.exp(-(x**3)), [INF]),
    "st.rayleigh.pdf(x)": (lambda x: x * mp.exp(-x * x / 2), [0.0, INF]),
    "st.chi2.pdf(x, 4.0)": (lambda x: x * mp.exp(-x / 2) / 4, [0.0, INF]),
    "st.f.pdf(x, 4.0, 2.0)": (lambda x: 8 * x * (1 + 2 * x) ** -3, [0.0, INF]),
    "st.f.cdf(x, 2.0, 2.0)": (lambda x: x / (1 + x), [INF]),
    "st.cauchy.pdf(x)": (lambda x: 1 / (mp.pi * (1 + x * x)), [INF, -INF, 0.0]),
    "st.cauchy.cdf(x)": (lambda x: mp.atan(x) / mp.pi + 0.5, [INF, -INF, 0.0]),
    "st.t.pdf(x, 2.0)": (lambda t: (2 + t * t) ** mp.mpf(-1.5), [INF, -INF, 0.0]),
    "st.t.logpdf(x, 2.0)": (lambda t: -1.5 * mp.log(2 + t * t), [INF, 0.0]),
    "st.t.ppf(x, 2.0)": (lambda q: (2 * q - 1) / mp.sqrt(2 * q * (1 - q)), [0.5, 0.0, 1.0]),
    "st.logistic.pdf(x)": (lambda x: 1 / (2 + mp.exp(x) + mp.exp(-x)), [INF, -INF, 0.0]),
    "st.gumbel_r.cdf(x)": (lambda x: mp.exp(-mp.exp(-x)), [INF, 0.0]),
    "st.beta.pdf(x, 1.0, 2.0)": (lambda x: 2 * (1 - x), [0.0, 1.0]),
    "st.beta.pdf(x, 3.0, 2.0)": (lambda x: 12 * x * x * (1 - x), [0.0, 1.0]),
    "st.beta.logpdf(0.3, x, 2.0)": (lambda a: a * mp.log(mp.mpf(0.3)) - mp.log(mp.beta(a, 2)), [1.0, 2.0]),
    "st.chi2.pdf(x, 2.0)": (lambda x: mp.exp(-x / 2) / 2, [0.0]),
    "st.weibull_min.pdf(x, 1.0)": (lambda x: mp.exp(-x), [0.0]),
    "st.t.cdf(x, 2.0)": (lambda t: t / 2 / mp.sqrt(2 + t * t), [0.0]),
    "st.cauchy.logpdf(x)": (lambda x: -mp.log(1 + x * x), [0.0, -0.0, INF]),
    "st.logistic.logpdf(x)": (lambda x: -x - 2 * mp.log(1 + mp.exp(-x)), ALL),
    "st.gumbel_r.logpdf(x)": (lambda x: -x - mp.exp(-x), [0.0, INF]),
    "st.poisson.logpmf(0, x)": (lambda m: -m, [0.0]),
    "st.binom.logpmf(0, 3, x)": (lambda p: 3 * mp.log(1 - p), [0.0]),
    "st.binom.pmf(1, 3, x)": (lambda p: 3 * p * (1 - p) ** 2, [0.0, 1.0]),
    "st.bernoulli.logpmf(1, x)": (mp.log, [1.0]),
    "st.binom.pmf(0, 2, x)": (lambda p: (1 - p) ** 2, [0.0, 1.0]),
    "st.binom.cdf(0, 2, x)": (lambda p: (1 - p) ** 2, [0.0, 1.0]),
    "st.poisson.pmf(1, x)": (lambda m: m * mp.exp(-m), [0.0]),
    "st.poisson.pmf(2, x)": (lambda m: m * m * mp.exp(-m) / 2, [0.0]),
    "st.poisson.cdf(1, x)": (lambda m: (1 + m) * mp.exp(-m), [0.0]),
    "st.nbinom.pmf(1, 2.0, x)": (lambda p: 2 * p * p * (1 - p), [1.0]),
    "st.geom.pmf(2, x)": (lambda p: p * (1 - p), [1.0]),
    "st.geom.cdf(2, x)": (lambda p: 1 - (1 - p) ** 2, [1.0]),
}

# Where a derivative is nan though there is a limit: the function, the point and the order, by the reason.
UNKNOWN: dict[str, dict[str, tuple[list[float], tuple[int, ...]]]] = {
    "the function itself is nan, or jumps": {
        "np.sinc(x)": ([INF, -INF], (1, 2)),
    },
    "the rule multiplies what vanishes by what is infinite": {
        "st.norm.logcdf(x)": ([-INF], (2,)),
        "st.norm.logsf(x)": ([INF], (2,)),
        "st.t.logpdf(x, 2.0)": ([INF], (1, 2)),
        "st.cauchy.logpdf(x)": ([INF], (1, 2)),
    },
    "the slope of a quantile is the reciprocal of a density, which is infinite": {
        "st.gamma.ppf(x, 0.5)": ([0.0], (2,)),
        "sp.gammaincinv(x, 0.0)": ([1.0, 2.0], (2,)),
    },
}


def _is_unknown(text: str, x: float, order: int) -> bool:
    rows = [row[text] for row in UNKNOWN.values() if text in row]
    return any(x in points and order in orders for points, orders in rows)


def limit(function: Callable[[Any], Any], x: float, order: int) -> float | None:
    """The derivative at points ever nearer to `x`, if both sides that belong to the domain have the same limit."""
    if np.isinf(x):
        return _side(function, x, 0, order)
    sides = [_side(function, x, sign, order) for sign in (-1, 1)]
    known = [side for side in sides if side is not None]
    if not known or any(np.isnan(side) for side in known):
        return None
    return known[0] if np.allclose(known[0], known[-1], rtol=1e-3, atol=1e-6) else None


def _side(function: Callable[[Any], Any], x: float, sign: int, order: int) -> float | None:
    """None outside of the domain, nan where nothing can be said."""
    values = []
    for k in (5, 10, 15):
        step = mp.mpf(10) ** -k
        at = mp.sign(x) / step if np.isinf(x) else mp.mpf(x) + sign * step
        h = abs(at) * mp.mpf(10) ** -15 if np.isinf(x) else step * mp.mpf(10) ** -15
        try:
            low, middle, high = (function(at + i * h) for i in (-1, 0, 1))
            value = (high - low) / (2 * h) if order == 1 else (high - 2 * middle + low) / (h * h)
        except (ValueError, ZeroDivisionError):
            return None
        if mp.im(value):
            return None
        values.append(mp.re(value))
    first, second, last = values
    if abs(last) > 5 * abs(second) > 25 * abs(first) or (abs(last) > 10 and _is_even(first, second, last)):
        return float(mp.sign(last)) * INF
    if abs(last) < abs(second) / 5 < abs(first) / 25:
        return 0.0
    return float(last) if mp.almosteq(second, last, 1e-4, 1e-8) else NAN


def _is_even(first: Any, second: Any, last: Any) -> bool:
    """Whether a logarithm grows."""
    return bool(abs(second) > abs(first) and mp.almosteq(last - second, second - first, 1e-2))


def _every_way(function: Callable[[Any], Any], x: Any, order: int, compiled: bool) -> list[Any]:
    """By reverse and forward mode without compilation, and if asked for replayed and compiled."""

    def nth(f: Callable[[Any], Any]) -> Any:
        slope = tg.grad(lambda x: np.sum(f(x)))
        return slope if order == 1 else tg.grad(lambda x: np.sum(slope(x)))

    def forward() -> Any:
        before = function if order == 1 else tg.grad(lambda x: np.sum(function(x)))
        return tg.jvp(before, (x,), (np.ones_like(x),))[1]

    with tg.disable_jit():
        results = [nth(function)(x), forward()]
    if compiled:
        of_program = nth(function)
        results += [of_program(x), of_program(x), forward()]
    return results


def _is_chosen(text: str) -> bool:
    """Whether a function is compiled in every run of the tests: one of eight."""
    return zlib.crc32(text.encode()) % 8 == 0


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("text", FUNCTIONS)
def test_a_derivative_is_the_limit_or_nan(text: str, order: int, request: pytest.FixtureRequest) -> None:
    exact, points = FUNCTIONS[text]
    function = eval(f"lambda x: {text}", {"np": np, "sp": sp, "st": st})
    with np.errstate(all="ignore"):
        compiled = request.config.getoption("--points") or _is_chosen(text)
        results = np.array(_every_way(function, np.array(points), order, compiled))
    with mp.workdps(120):  # a second difference takes twice the digits of a step
        for x, found in zip(points, results.T, strict=True):
            expected = NAN if np.isnan(x) else limit(exact, x, order)
            if expected is None:
                continue
            if _is_unknown(text, x, order):
                assert np.isnan(found).all(), f"{text} at {x} has its derivative {found}: it is unknown no more"
            elif np.isinf(expected):  # where each way has its own indefinite forms
                assert not np.isfinite(found).any(), (x, found, expected)
                assert not (found == -expected).any(), (x, found, expected)
            else:
                np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-10, err_msg=f"{text} at {x}")


@pytest.mark.parametrize("base", [NAN, 0.0, -0.0, INF, -INF, -2.0])
def test_the_power_zero_is_constant_whatever_the_base_is(base: float) -> None:
    x, zero = np.array([base, base]), np.array([0.0, 0.0])
    for f in (tg.trace(lambda x, y: np.power(x, y).sum()), lambda x, y: np.power(x, y).sum()):
        for _ in range(3):
            np.testing.assert_array_equal(tg.grad(f)(x, zero), zero)
    v = tg.tensor(x, requires_grad=True)
    (v ** tg.tensor(zero)).sum().backward()
    np.testing.assert_array_equal(v.grad, zero)


# x**y in both: where the base is 0 or infinite, and where neither is. The domain is that of its logarithm.
IN_BOTH = [
    (0.0, 0.0), (0.0, 0.5), (0.0, 1.0), (0.0, 1.5), (0.0, 2.0), (0.0, -1.0), (-0.0, 0.5), (-0.0, 1.0), (-0.0, 3.0),
    (INF, 0.0), (INF, 0.5), (INF, 1.0), (INF, 2.0), (INF, -1.0), (1.0, 0.0), (1.0, 1.0), (1.0, 2.0), (2.0, 0.5),
    (NAN, 1.0), (NAN, 0.0), (2.0, NAN),
]  # fmt: skip


def _mixed_ways(power: Callable[[Any, Any], Any], x: Any, y: Any) -> list[Any]:
    """The slopes in the base of those in the exponent, and the other way round."""

    def in_base(x: Any, y: Any) -> Any:
        return tg.grad(lambda x: np.sum(power(x, y)))(x)

    def in_exponent(x: Any, y: Any) -> Any:
        return tg.grad(lambda y: np.sum(power(x, y)))(y)

    def forward(x: Any, y: Any) -> Any:
        return tg.jvp(lambda y: tg.jvp(lambda x: power(x, y), (x,), (np.ones_like(x),))[1], (y,), (np.ones_like(y),))[1]

    return [
        tg.grad(lambda x: np.sum(in_exponent(x, y)))(x),
        tg.grad(lambda y: np.sum(in_base(x, y)))(y),
        tg.jvp(lambda x: in_exponent(x, y), (x,), (np.ones_like(x),))[1],
        forward(x, y),
    ]


def _student(df: Any, t: Any) -> Any:
    scale = mp.gamma((df + 1) / 2) / mp.sqrt(mp.pi * df) / mp.gamma(df / 2)
    return 0.5 + t * scale * mp.hyp2f1(0.5, (df + 1) / 2, 1.5, -t * t / df)


# Functions of two numbers that have a mixed derivative at these points.
OF_TWO: dict[str, tuple[Callable[[Any, Any], Any], list[tuple[float, float]]]] = {
    "sp.powm1(x, y)": (mp.power, [(1.0, 0.0), (2.0, 0.0), (0.5, -0.0), (2.0, 1.5)]),
    "sp.poch(x, y)": (mp.rf, [(0.37, 0.0), (0.37, -1.0), (0.2, 1.0), (0.7, 0.0), (1.3, 0.4)]),
    "sp.stdtr(x, y)": (_student, [(1.0, 0.0), (2.0, -0.0), (4.5, 0.0), (2.0, 0.7)]),
    "st.t.logcdf(y, x)": (lambda df, t: mp.log(_student(df, t)), [(1.0, 0.0), (2.0, 0.0), (4.5, -0.3)]),
    "st.t.sf(y, x)": (lambda df, t: -_student(df, t), [(1.0, 0.0), (2.0, 0.0), (4.5, -0.3)]),
    "sp.betainc(1.0, x, y)": (lambda b, x: -((1 - x) ** b), [(1.0, 0.0), (2.0, 0.0), (3.0, 0.3)]),
    "sp.betainc(x, 1.0, y)": (lambda a, x: x**a, [(1.0, 1.0), (2.0, 1.0), (0.5, 1.0), (2.0, 0.4)]),
    "sp.betaincc(1.0, x, y)": (lambda b, x: (1 - x) ** b, [(1.0, 0.0), (2.0, 0.0)]),
    "sp.gammainc(x, y)": (lambda a, x: mp.gammainc(a, 0, x, regularized=True), [(1.0, 0.7), (2.5, 3.0)]),
}


@pytest.mark.parametrize("text", OF_TWO)
def test_a_mixed_derivative_of_a_special_function_is_the_limit_in_both_orders(text: str) -> None:
    exact, points = OF_TWO[text]
    function = eval(f"lambda x, y: {text}", {"sp": sp, "st": st})
    x, y = np.array(points).T.copy()
    with tg.disable_jit():
        results = _mixed_ways(function, x, y)
    if _is_chosen(text):
        results += _mixed_ways(tg.trace(function), x, y)
    with mp.workdps(40):
        expected = [float(mp.diff(exact, (mp.mpf(a), mp.mpf(b)), (1, 1))) for a, b in points]
    for found in results:
        np.testing.assert_allclose(found, expected, rtol=1e-8)


@pytest.mark.parametrize("power", [np.power, np.float_power, lambda x, y: x**y], ids=["power", "float_power", "**"])
def test_the_mixed_derivative_of_a_power_is_the_limit(power: Callable[[Any, Any], Any]) -> None:
    x, y = np.array(IN_BOTH).T.copy()
    with np.errstate(all="ignore"):
        with tg.disable_jit():
            results = _mixed_ways(power, x, y)
        for _ in range(2):
            results += _mixed_ways(tg.trace(power), x, y)
        results += [tg.vmap(lambda x, y, k=k: _mixed_ways(power, x, y)[k])(x, y) for k in range(2)]
    with mp.workdps(120):
        for k, (base, exponent) in enumerate(IN_BOTH):
            slope: Callable[[Any], Any] = lambda x, p=exponent: mp.power(x, p) * mp.log(x)  # noqa: E731
            expected = NAN if np.isnan(base + exponent) else _side(slope, base, 1, 1)
            assert expected is not None
            found = [result[k] for result in results]
            np.testing.assert_allclose(found, expected, rtol=1e-12, err_msg=f"at {base}**{exponent}")


def test_the_mixed_derivative_of_a_power_of_tensors_is_the_limit_where_it_is_asked_by_way_of_the_base() -> None:
    # The slope in the exponent is a function of the answer, as PyTorch's; by way of it, PyTorch has nan at 0.
    x = tg.tensor([0.0, 0.0, 0.0, 2.0], requires_grad=True)
    y = tg.tensor([1.0, 0.5, 2.0, 3.0], requires_grad=True)
    (slope,) = tg.autograd.grad((x**y).sum(), x, create_graph=True)
    (mixed,) = tg.autograd.grad(slope.sum(), y)
    np.testing.assert_allclose(mixed, [-INF, -INF, 0.0, 4 * (1 + 3 * np.log(2.0))], rtol=1e-6)


def test_the_second_derivative_of_a_power_of_broadcast_operands() -> None:
    x, y, step = np.array([1.3, 0.7, 1.0]), np.arange(6.0).reshape(2, 3) * 0.3 + 0.5, 1e-5
    slopes = tg.grad(lambda x, y: (x**y).sum(), argnums=(0, 1))
    second = tg.hessian(lambda x, y: (x**y).sum(), argnums=(0, 1))(x, y)
    for k, d in enumerate(np.eye(3) * step):
        up, down = slopes(x + d, y), slopes(x - d, y)
        np.testing.assert_allclose(second[0][0][k], (up[0] - down[0]) / (2 * step), rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(second[1][0][..., k], (up[1] - down[1]) / (2 * step), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("of", "by"), [("float32", "float64"), ("float64", "float32"), ("float32", "int64")])
def test_second_derivatives_of_a_power_of_tensors_have_the_dtypes_of_the_operands(of: str, by: str) -> None:
    x = tg.tensor(np.array([2.0, 3.0], of), requires_grad=True)
    y = tg.tensor(np.array([2, 3], by))
    inputs = [x, y.requires_grad_()] if by != "int64" else [x]
    for first in inputs:
        (slope,) = tg.autograd.grad((x**y).sum(), first, create_graph=True)
        found = tg.autograd.grad(slope.sum(), inputs)
        assert [v.dtype for v in found] == [v.dtype for v in inputs]
    np.testing.assert_allclose(tg.autograd.grad((x**y).sum(), x)[0], [4.0, 27.0])
    z = tg.tensor([1.0 + 1.0j, 2.0], requires_grad=True)
    (slope,) = tg.autograd.grad((z ** tg.tensor([2.0, 3.0])).real.sum(), z, create_graph=True)
    np.testing.assert_allclose(tg.autograd.grad(slope.real.sum(), z)[0], [2.0, 12.0])
