"""`numpy.polynomial`, whose functions and classes are read as a user's own are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from along import check_along, replayed
from numpy.polynomial import (
    Chebyshev,
    Hermite,
    HermiteE,
    Laguerre,
    Legendre,
    Polynomial,
    chebyshev,
    hermite,
    hermite_e,
    laguerre,
    legendre,
    polynomial,
)

import tracegrad as tg

C = np.array([0.5, 1.2, -0.3])
T = np.linspace(0.0, 3.0, 6)
OUTSIDE = Polynomial([1.0, 2.0, 3.0])

CASES: dict[str, Callable[[Any], Any]] = {
    "polyval": lambda c: polynomial.polyval(0.7, c),
    "polyval at a traced point": lambda c: polynomial.polyval(c, [1.0, 2.0, 3.0]),
    "by its whole name": lambda c: np.polynomial.polynomial.polyval(0.7, c) * np.polynomial.Chebyshev(c)(0.3),
    "polyder": polynomial.polyder,
    "polyint": lambda c: polynomial.polyint(c, 2, [0.5, 1.0]),
    "polymul": lambda c: polynomial.polymul(c, c),
    "polydiv": lambda c: np.concatenate(polynomial.polydiv(polynomial.polymul(c, c), c[:2])),
    "polyadd": lambda c: polynomial.polyadd(c, c[:2]),
    "polypow": lambda c: polynomial.polypow(c, 3),
    "polyroots": lambda c: np.sort(np.abs(polynomial.polyroots(c))),
    "polyfromroots": polynomial.polyfromroots,
    "polyvander": lambda c: polynomial.polyvander(c, 3),
    "polyfit": lambda c: polynomial.polyfit(T, np.sin(c[0] * T) + c[1], 3, w=1 + T),
    "chebval": lambda c: chebyshev.chebval(0.3, c),
    "chebmul": lambda c: chebyshev.chebmul(c, c),
    "cheb2poly": chebyshev.cheb2poly,
    "legval": lambda c: legendre.legval(T, c),
    "legder": legendre.legder,
    "hermval": lambda c: hermite.hermval(T, c),
    "hermeval": lambda c: hermite_e.hermeval(T, c),
    "lagint": laguerre.lagint,
    "Polynomial": lambda c: Polynomial(c)(T) * (Polynomial(c) * Polynomial([1, 2]) - 3)(0.3),
    "Chebyshev": lambda c: Chebyshev(c, domain=[0, 2]).integ()(T) + Chebyshev(c).deriv()(0.3),
    "Legendre": lambda c: Legendre(c)(T) - (Legendre(c) - Legendre.basis(1))(0.2),
    "Hermite": lambda c: (Hermite(c) ** 2)(0.3),
    "HermiteE": lambda c: HermiteE(c).linspace(4)[1],
    "Laguerre": lambda c: Laguerre(c).truncate(2)(c),
    "fit of a class": lambda c: Chebyshev.fit(T, np.sin(c[0] * T), 2)(c[1:]),
    "a polynomial from outside": lambda c: OUTSIDE(c) * OUTSIDE.deriv()(c[0]),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives_are_those_of_differences(name: str) -> None:
    check_along(CASES[name], C, name, (1e-12, 1e-12), (1e-7, 1e-9), (1e-6, 1e-8))


@pytest.mark.parametrize("name", ["polymul", "Chebyshev", "a polynomial from outside"])
def test_without_a_compiler_they_are_the_same(name: str) -> None:
    with tg.disable_jit():
        check_along(CASES[name], C, name, (1e-12, 1e-12), (1e-7, 1e-9))


def test_other_coefficients_of_a_polynomial_from_outside_are_noticed() -> None:
    held = Polynomial([1.0, 2.0])
    derivative = tg.grad(lambda x: held(x) ** 2)
    with replayed():
        assert derivative(2.0) == 2 * 5.0 * 2.0
        held.coef[1] = 3.0
        assert derivative(2.0) == 2 * 7.0 * 3.0
        held.coef = np.array([1.0, 2.0, 1.0])
        assert derivative(2.0) == 2 * 9.0 * 6.0
