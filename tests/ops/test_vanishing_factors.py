"""x * log(y) where x is 0: the value is 0, and the derivative in x is log(y), in every density that is made of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.special as sp
import scipy.stats

import tracegrad as tg

ZEROS = [0.0, -0.0]
POINTS = [0.25, 0.5, 1.0, 3.0, 1e-300, 1e300]


@pytest.mark.parametrize("x", ZEROS)
@pytest.mark.parametrize("y", POINTS)
@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "disabled"])
def test_the_derivative_of_xlogy_in_x_is_the_logarithm(x: float, y: float, compiled: bool) -> None:
    def both() -> list[Any]:
        f, g = (lambda x, y: sp.xlogy(x, y)), (lambda x, y: sp.xlog1py(x, y))
        results = []
        for h, y_ in ((f, y), (g, y)):
            gradient = tg.grad(h, argnums=(0, 1))
            results += [*gradient(x, y_), tg.jvp(h, (x, y_), (1.0, 0.0))[1]]
            results.append(tg.grad(lambda y, h=h: tg.grad(h)(x, y))(y_))
        return results

    if compiled:
        results = both()
    else:
        with tg.disable_jit():
            results = both()
    log, log1p = float(mpmath.log(y)), float(mpmath.log1p(y))
    expected = [log, 0.0, log, 1 / y, log1p, 0.0, log1p, 1 / (1 + y)]
    np.testing.assert_allclose(results, expected, rtol=1e-14)


@pytest.mark.parametrize("function", [sp.xlogy, sp.xlog1py])
def test_values_are_scipys_with_the_signs_of_zeros(function: Any) -> None:
    special = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 1e-300, np.inf, -np.inf, np.nan])
    x, y = (a.ravel() for a in np.meshgrid(special, special))
    with np.errstate(all="ignore"):
        expected = function(x, y)
    traced = tg.trace(lambda x, y: function(x, y))
    for _ in range(2):
        result = traced(x, y)
        np.testing.assert_array_equal(result, expected)
        zero = expected == 0
        np.testing.assert_array_equal(np.signbit(result[zero]), np.signbit(expected[zero]))


def test_where_the_logarithm_is_not_finite_nothing_leaks() -> None:
    for x, y in ((0.0, 0.0), (0.0, -1.0), (0.0, np.inf)):
        assert tg.grad(lambda x, y=y: sp.xlogy(x, y))(x) == 0.0
    assert np.isnan(tg.grad(lambda x: sp.xlogy(x, np.nan))(0.0))


# Densities at parameters where a factor of theirs vanishes, and which parameter.
DENSITIES: dict[str, tuple[Callable[[Any], Any], float]] = {
    "gamma": (lambda a: scipy.stats.gamma.logpdf(1.7, a), 1.0),
    "beta a": (lambda a: scipy.stats.beta.logpdf(0.3, a, 2.0), 1.0),
    "beta b": (lambda b: scipy.stats.beta.logpdf(0.3, 2.0, b), 1.0),
    "chi2": (lambda k: scipy.stats.chi2.logpdf(1.7, k), 2.0),
    "weibull_min": (lambda c: scipy.stats.weibull_min.logpdf(1.7, c), 1.0),
    "f": (lambda d: scipy.stats.f.logpdf(1.7, d, 5.0), 2.0),
    "dirichlet": (lambda a: scipy.stats.dirichlet.logpdf(np.array([0.2, 0.3, 0.5]), a * np.ones(3)), 1.0),
    "bernoulli": (lambda p: scipy.stats.bernoulli.logpmf(0, p), 0.3),
}


@pytest.mark.parametrize("name", DENSITIES)
def test_log_densities_have_derivatives_at_their_usual_starting_values(name: str) -> None:
    f, at = DENSITIES[name]
    h = 1e-5
    first, second = (f(at + h) - f(at - h)) / (2 * h), (f(at + 1e-3) - 2 * f(at) + f(at - 1e-3)) / 1e-6
    derivative = tg.grad(lambda a: f(a))
    np.testing.assert_allclose(derivative(at), first, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(tg.jvp(lambda a: f(a), (at,), (1.0,))[1], first, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(tg.grad(derivative)(at), second, rtol=1e-4, atol=1e-5)


def test_betainc_has_a_mixed_second_derivative_at_an_exponent_of_zero() -> None:
    def in_x(b: Any) -> Any:
        return tg.grad(lambda x: sp.betainc(2.0, b, x))(0.3)

    h = 1e-5
    np.testing.assert_allclose(tg.grad(in_x)(1.0), (in_x(1.0 + h) - in_x(1.0 - h)) / (2 * h), rtol=1e-7)
