"""Least squares, fits of curves and minima of functions of a number of `scipy.optimize` in traced code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from along import HALF, check_found, differences, named, replayed, weighted
from scipy import optimize

import tracegrad as tg
from tracegrad.errors import UnsupportedError

P, V = np.array([0.7, 1.2]), np.array([0.3, -0.5])
TIMES = np.linspace(0.0, 2.0, 7)
COVARIANCE = np.diag(0.1 + 0.7 * TIMES) + 0.05
LATE = np.where(TIMES > 1.8, 1.0, 0.0)
LM: dict[str, Any] = {"xtol": 1e-14, "ftol": 1e-14}
EXACT: dict[str, Any] = {"xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15}
# Solvers find minima to half of the digits, some 1e-8, and differences are off by that over their step.
STEP, NOISE = 1e-2, 2e-6


def samples(p: Any) -> Any:
    return p[1] * np.exp(-p[0] * TIMES) + 0.05 * np.sin(5.0 * TIMES)


def curve(x: Any, a: Any, b: Any) -> Any:
    return a * np.exp(-b * x)


def slopes(x: Any, a: Any, b: Any) -> Any:
    return np.stack([np.exp(-b * x), -a * x * np.exp(-b * x)], axis=1)


def raised(x: Any, a: Any, b: Any, c: Any) -> Any:
    return a * np.exp(-b * x) + c


def decay(x: Any) -> Any:
    return x[1] * np.exp(-x[0] * TIMES)


def steepness(x: Any) -> Any:
    return np.stack([-x[1] * TIMES * np.exp(-x[0] * TIMES), np.exp(-x[0] * TIMES)], axis=1)


def table(p: Any) -> tuple[Any, Any]:
    rows = np.array([[1.0, p[0], 0.3], [0.2, 1.0, p[1]], [1.0, 1.0, 0.1], [0.3, p[1], 2.0]])
    return rows, np.array([1.0, 2.0 * p[0], -p[1], 0.5])


CASES: dict[str, Callable[[Any], Any]] = {
    "curve_fit": lambda p: optimize.curve_fit(curve, TIMES, samples(p), **LM)[0],
    "curve_fit, covariance": lambda p: optimize.curve_fit(
        curve, TIMES * p[0], samples(p), [1.0, 1.0], jac=slopes, **LM)[1],
    "curve_fit, sigma": lambda p: optimize.curve_fit(
        curve, TIMES, samples(p), [1.0, 1.0], 0.1 + p[0] * TIMES, absolute_sigma=True, jac=slopes, **LM)[0],
    "curve_fit, a matrix of sigma": lambda p: optimize.curve_fit(
        curve, TIMES, samples(p), [1.0, 1.0], COVARIANCE, jac=slopes, **LM)[0],
    "curve_fit, bounds": lambda p: optimize.curve_fit(
        raised, TIMES, samples(p), bounds=([0.0, 0.0, 0.1 * p[0]], [5.0, 3.0, 1.0]), method="dogbox", **EXACT)[0],
    "curve_fit, bounds that are not reached": lambda p: optimize.curve_fit(
        raised, TIMES, samples(p), bounds=([0.0, 0.0, 0.2 * p[0]], [5.0, 3.0, 1.0]), **EXACT)[0],
    "least_squares, bounds": lambda p: optimize.least_squares(
        lambda x: decay(x) - samples(p), [0.2, 1.0], bounds=([0.0, 0.0], [p[0] * 0.5, np.inf]), **EXACT).x,
    **{f"least_squares, {loss}": (lambda p, loss=loss: (lambda found: found.x + found.cost)(optimize.least_squares(
        lambda x: decay(x) - samples(p) - LATE, [0.5, 1.0], steepness, loss=loss, f_scale=0.3, **EXACT)))
       for loss in ("huber", "soft_l1", "cauchy", "arctan")},
    "nnls": lambda p: optimize.nnls(*table(p))[0],
    "nnls, the norm": lambda p: optimize.nnls(*table(p))[1],
    "minimize_scalar": lambda p: optimize.minimize_scalar(
        lambda x, c: (x - p[0]) ** 4 + c * x**2, bracket=(0.0, p[0]), args=(p[1],), tol=1e-12).x,
    "minimize_scalar, bounded": lambda p: optimize.minimize_scalar(
        lambda x: (x - p[0]) ** 4 + p[1] * x**2, bounds=(-1.0, 2.0), options={"xatol": 1e-11}).x,
    "minimize_scalar, at a bound": lambda p: optimize.minimize_scalar(
        lambda x: (x - p[0]) ** 4 + p[1] * x**2, bounds=(1.0, 2.0), method="bounded").fun,
    "fsolve": lambda p: optimize.fsolve(
        lambda x: [x[0] ** 2 + p[0] * x[1] - 3.0, x[1] ** 3 - p[1] * x[0]], [1.0, 1.0], xtol=1e-14),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values_are_scipys_and_derivatives_those_of_differences(name: str) -> None:
    f = named(CASES[name], name)
    check_found(f, P)
    of = weighted(f, name)
    derivative = tg.grad(of)
    assert np.sum(derivative(P) * V) == pytest.approx(differences(of, P, V, STEP), rel=1e-6, abs=NOISE)
    want = differences(lambda p: np.sum(derivative(p) * V), P, V, STEP)
    with replayed():
        assert tg.jvp(of, (P,), (V,))[1] == pytest.approx(np.sum(derivative(P) * V), rel=1e-7)
        assert V @ tg.hessian(of)(P) @ V == pytest.approx(want, rel=1e-5, abs=NOISE)


WEIGHTS: dict[str, Callable[[Any], Any]] = {
    "huber": lambda z: np.where(z <= 1.0, 1.0, 1.0 / np.sqrt(np.where(z <= 1.0, 1.0, z))),
    "soft_l1": lambda z: 1.0 / np.sqrt(1.0 + z),
    "cauchy": lambda z: 1.0 / (1.0 + z),
    "arctan": lambda z: 1.0 / (1.0 + z**2),
}


@pytest.mark.parametrize("loss", WEIGHTS)
def test_derivatives_of_a_robust_fit_are_those_of_the_root_of_its_gradient(loss: str) -> None:
    def rest(x: Any, p: Any) -> Any:
        return decay(x) - samples(p) - LATE

    def fitted(p: Any) -> Any:
        result = optimize.least_squares(rest, [0.5, 1.0], steepness_of, args=(p,), loss=loss, f_scale=0.3, **EXACT)
        return np.sum(V * result.x)

    def steepness_of(x: Any, p: Any) -> Any:
        return steepness(x)

    def gradient(x: Any, p: Any) -> Any:
        r = rest(x, p)
        return steepness(x).T @ (WEIGHTS[loss]((r / 0.3) ** 2) * r)

    def root(p: Any) -> Any:
        near = optimize.least_squares(rest, [0.5, 1.0], args=(P,), loss=loss, f_scale=0.3).x
        return np.sum(V * optimize.root(gradient, near, args=(p,), tol=1e-15).x)

    derivative = tg.grad(named(root, loss))
    assert derivative(P) @ V == pytest.approx(differences(root, P, V, 2e-3), rel=1e-8)
    np.testing.assert_allclose(tg.grad(named(fitted, loss))(P), derivative(P), rtol=1e-6)
    with replayed():
        np.testing.assert_allclose(tg.hessian(named(fitted, loss))(P), tg.hessian(named(root, loss))(P), rtol=1e-5)


@pytest.mark.parametrize("name", ["curve_fit, sigma", "least_squares, bounds", "nnls", "minimize_scalar"])
def test_derivatives_without_jit_are_the_same(name: str) -> None:
    compiled = tg.jacrev(CASES[name])(P)
    with tg.disable_jit():
        np.testing.assert_allclose(tg.jacrev(CASES[name])(P), compiled, rtol=HALF, atol=1e-12)


def test_each_of_a_batch_is_fitted() -> None:
    derivative = tg.jacobian(CASES["curve_fit, sigma"])
    points = np.stack([P, P + 0.01])
    np.testing.assert_allclose(tg.vmap(derivative)(points), [derivative(p) for p in points], rtol=1e-7)


def test_the_facts_of_a_fit_are_scipys() -> None:
    def f(p: Any) -> Any:
        result = optimize.least_squares(lambda x: decay(x) - samples(p), [0.2, 1.0], bounds=([0, 0], [p[0] / 2, 9]))
        scalar = optimize.minimize_scalar(lambda x: (x - p[0]) ** 4 + p[1] * x**2)
        return (
            result.cost,
            result.fun,
            result.active_mask,
            result.nfev,
            result.status,
            scalar.fun,
            scalar.nit,
            scalar.nfev,
        )

    with tg.disable_jit():  # who rounds otherwise may take another number of steps
        ours, _ = tg.jvp(f, (P,), (V,))
    for got, want in zip(ours, f(P)):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    ("f", "what"),
    [
        (lambda p: optimize.curve_fit(curve, TIMES, samples(p), full_output=True), r"full_output= of"),
        (lambda p: optimize.least_squares(lambda x: x - p, [1.0], loss=np.sqrt), r"least_squares with a loss="),
        (lambda p: optimize.fsolve(lambda x: x - p, p, full_output=True), r"full_output= of scipy\.optimize\.fsolve"),
    ],
)
def test_what_is_not_known_is_refused_by_name(f: Any, what: str) -> None:
    with pytest.raises(UnsupportedError, match=what):
        tg.trace(f)(P)
