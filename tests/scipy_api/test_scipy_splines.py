"""Splines and grids of `scipy.interpolate` in traced code: conditions at the ends, integrals, and tensor products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from along import check_along
from scipy import interpolate
from scipy.sparse.linalg import spsolve

import tracegrad as tg
from tracegrad.errors import UnsupportedError

KNOTS = np.array([0.0, 0.7, 1.1, 2.0, 2.6, 3.3])
Y = np.sin(KNOTS) + 0.2 * KNOTS
Q = np.array([-0.2, 0.1, 0.9, 1.5, 2.4, 3.1, 3.5])
EVEN = np.arange(10.0) * 0.5 - 1.0
PAIR = np.stack([Y, np.cos(KNOTS)], axis=1)
SPLINE, PCHIP = interpolate.CubicSpline(KNOTS, Y), interpolate.PchipInterpolator(KNOTS, Y)
BASES = interpolate.BSpline(EVEN, Y, 3)
FITPACK, TCK = interpolate.UnivariateSpline(KNOTS, Y, s=0), interpolate.splrep(KNOTS, Y)
GRID, ROWS = np.sin(np.arange(42.0)).reshape(6, 7), (KNOTS, np.arange(7.0) * 0.6)
CUBIC = interpolate.RegularGridInterpolator(ROWS, GRID, "cubic", solver=spsolve)
AT = np.array([[0.3, 0.4], [1.7, 2.1], [2.8, 2.9]])


def bases(c: Any, extrapolate: Any = True) -> Any:
    return interpolate.BSpline(EVEN, c, 3, extrapolate=extrapolate)


CASES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "two orders": (lambda y: interpolate.CubicSpline(KNOTS, y, bc_type=((1, y[0]), (2, 0.1)))(Q), Y),
    "two names": (lambda y: interpolate.CubicSpline(KNOTS, y, bc_type=("natural", "not-a-knot"))(Q, 1), Y),
    "ends of two columns": (
        lambda y: interpolate.CubicSpline(KNOTS, y.T, 1, ((1, y[0]), (2, np.array([1.0, 2.0]))))(Q),
        PAIR,
    ),
    "antiderivative": (lambda y: interpolate.CubicSpline(KNOTS, y).antiderivative(2)(Q), Y),
    "antiderivative, points": (lambda x: SPLINE.antiderivative()(x) + PCHIP.derivative(-1)(x), Q),
    "integrate": (lambda y: interpolate.PchipInterpolator(KNOTS, y).integrate(3.5, 0.4), Y),
    "integrate, bounds": (lambda x: SPLINE.integrate(x[1], x[3]) * PCHIP.integrate(x[2], 2.0), Q),
    "integrate, columns": (lambda y: interpolate.CubicHermiteSpline(KNOTS, y, 2 * y).integrate(0.1, 2.9), PAIR),
    "integrate, bases": (lambda c: bases(c).integrate(-0.5, 3.0) + bases(c, False).integrate(-0.9, 2.1), Y),
    "PPoly": (lambda c: interpolate.PPoly(c.reshape(2, 3), [0, 1.0, 2.0, 2.5]).antiderivative()(Q), Y),
    "bases at even knots": (lambda c: bases(c)(Q), Y),
    "bases, periodic": (lambda c: bases(c, "periodic")(2 * Q), Y),
    "bases at points": (lambda x: BASES(x) + BASES(x, 1), Q + 0.01),
    "UnivariateSpline": (lambda x: FITPACK(x) + FITPACK(x, 1), Q),
    "splev": (lambda x: interpolate.splev(x, TCK) * interpolate.splev(x, TCK, der=1), Q),
    "splev, coefficients": (lambda c: interpolate.splev(Q, (EVEN, np.concatenate([c, np.zeros(4)]), 3)), Y),
    "interpn": (lambda v: interpolate.interpn(ROWS, v, AT, bounds_error=False), GRID),
    "grid, slinear": (lambda v: interpolate.RegularGridInterpolator(ROWS, v, "slinear", solver=spsolve)(AT), GRID),
    "grid, cubic": (lambda v: interpolate.RegularGridInterpolator(ROWS, v, "cubic", solver=spsolve)(AT), GRID),
    "grid, quintic": (lambda v: interpolate.RegularGridInterpolator(ROWS, v, "quintic", solver=spsolve)(AT), GRID),
    "grid, cubic at points": (lambda x: CUBIC(x), AT),
    "grid, one point": (lambda x: CUBIC(x[0]), AT),
    "grid of one axis": (lambda y: interpolate.RegularGridInterpolator((KNOTS,), y)(Q[1:6]), Y),
    "grid of three axes and columns": (
        lambda y: interpolate.RegularGridInterpolator(
            (KNOTS,) * 3, np.einsum("i,j,kl->ijkl", y[:, 0], y[:, 1], y), "cubic", solver=spsolve
        )([[0.1, 0.2, 0.3], [1.0, 2.0, 0.5]]),
        PAIR,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_are_scipys_and_derivatives_those_of_differences(name: str) -> None:
    check_along(*CASES[name], name, (1e-10, 1e-11), (1e-7, 1e-8), (1e-5, 1e-6))


def test_bases_that_do_not_extrapolate_are_nan_where_scipys_are() -> None:
    f = tg.trace(lambda c: bases(c, False)(np.linspace(-1.2, 4.0, 27)))
    np.testing.assert_allclose(f(Y), f.__wrapped__(Y), rtol=1e-12)


@pytest.mark.parametrize(
    ("f", "what"),
    [
        (lambda y: bases(y).antiderivative(), r"scipy\.interpolate\.BSpline\.antiderivative"),
        (lambda y: interpolate.CubicSpline(KNOTS, y).roots(), r"scipy\.interpolate\.CubicSpline\.roots"),
        (lambda y: interpolate.splev(y, TCK, ext=1), r"ext= of scipy\.interpolate\.splev"),
        (lambda y: interpolate.interpn(ROWS, GRID * y[0], AT, "pchip"), r"scipy\.interpolate\.interpn with method="),
    ],
)
def test_what_is_not_known_is_refused_by_name(f: Any, what: str) -> None:
    with pytest.raises(UnsupportedError, match=what):
        tg.trace(f)(Y)
