"""Distances of every metric, and what else of SciPy's takes unusual arguments, in traced code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from along import check_along, differences, named, replayed, weighted
from scipy import integrate, optimize, special
from scipy.spatial import distance

import tracegrad as tg
from tracegrad.errors import UnsupportedError

M = np.array([[0.3, 1.2, 0.4], [0.9, 0.1, 0.7], [1.1, 0.5, 0.2], [0.6, 0.8, 1.5], [0.05, 0.33, 0.6], [1.2, 0.9, 0.15]])
Y, V = M[:2] * 1.3 + 0.05, np.array([1.0, 2.0, 0.5])
VI = np.diag(V) + 0.1
SPAN, TIMES = (0.0, 2.0), np.array([0.3, 1.9, 0.8])
EXACTLY = {"rtol": 1e-10, "atol": 1e-12}


def power(u: Any, v: Any, p: float = 1.5) -> Any:
    return np.sum(np.abs(u - v) ** p)


def grown(t: Any, y: Any) -> Any:
    return np.array([0.5 * y[1], -y[0] * t])


CASES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "seuclidean": (lambda x: distance.cdist(x, Y, "seuclidean"), M),
    "seuclidean, variances": (lambda v: distance.pdist(M, "seuclidean", V=v), V),
    "mahalanobis": (lambda x: distance.cdist(x, x[:2] * 1.1 + 0.1, "mahalanobis"), M),
    "mahalanobis, inverse": (lambda x: distance.pdist(x, "mahalanobis", VI=VI), M),
    "jensenshannon": (lambda x: distance.cdist(x, Y, "jensenshannon") + distance.jensenshannon(x[0], x[1], 2.0), M),
    "jensenshannon, columns": (lambda x: distance.jensenshannon(x, x[::-1] ** 2), M),
    "jensenshannon, axis": (lambda x: distance.jensenshannon(x[:2], Y, axis=-1, keepdims=True), M),
    **{f"{m}, weights": (lambda x, m=m: distance.cdist(x, Y, m, w=V), M) for m in (
        "euclidean", "sqeuclidean", "cityblock", "canberra", "braycurtis", "cosine", "correlation", "minkowski")},
    "another name": (lambda x: distance.cdist(x, Y, "sqe") + distance.cdist(x, Y, "mi", p=3), M),
    "a function": (lambda x: distance.cdist(x[:3], Y, power), M),
    "a function, with arguments": (lambda x: distance.pdist(x[:3], power, p=2.5), M),
    "a function of scipy's": (lambda x: distance.pdist(x, distance.cityblock), M),
    "two vectors": (lambda x: distance.minkowski(x[0], x[1], 3, V) + distance.mahalanobis(x[2], x[1], VI)
                    + distance.seuclidean(x[0], x[2], V) + distance.euclidean(x[0], x[3], w=V), M),
    "logsumexp, signs": (
        lambda x: np.multiply(*special.logsumexp(x, axis=1, b=[1.0, -2.0, 0.5], return_sign=True, keepdims=True)), M),
    "logsumexp of complex numbers": (lambda x: np.real(special.logsumexp(x * (1 + 0.5j), 0)), M),
    "lists": (lambda x: special.gammaln([x[0, 0], 2.0]) + special.xlogy([1.0, x[1, 1]], (x[0, 1], 3.0)), M),
    "rosen": (lambda x: optimize.rosen(x[0]) + optimize.rosen_der(x[1]) + optimize.rosen_hess(x[2])
              @ optimize.rosen_hess_prod(x[3], x[4]) + optimize.rosen(x), M),
    "comb with repetition": (lambda x: special.comb(x, 2, repetition=True), M),
    "dense output": (lambda x: integrate.solve_ivp(
        grown, SPAN, x[0, :2], dense_output=True, **EXACTLY).sol(TIMES * x[1, 0]), M),
    "dense output at a time, backwards": (lambda x: integrate.solve_ivp(
        grown, SPAN[::-1], x[0, :2], dense_output=True, **EXACTLY).sol(x[0, 0]), M),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values_are_scipys_and_derivatives_those_of_differences(name: str) -> None:
    check_along(*CASES[name], name, (1e-10, 1e-12), (1e-7, 1e-7))


@pytest.mark.parametrize("name", ["seuclidean", "mahalanobis", "jensenshannon", "a function", "logsumexp, signs"])
def test_second_derivatives_are_those_of_differences(name: str) -> None:
    f, x = CASES[name]
    v, derivative = np.cos(np.arange(x.size)).reshape(x.shape), tg.grad(weighted(f, name))
    with replayed():
        second = tg.grad(named(lambda x: np.sum(derivative(x) * v), name))(x)
        assert np.sum(second * v) == pytest.approx(differences(lambda x: np.sum(derivative(x) * v), x, v), rel=1e-6)


def test_a_complex_system_has_the_solution_and_the_derivative_of_its_phase() -> None:
    def turned(speed: Any) -> Any:
        result = integrate.solve_ivp(
            lambda t, y, w: -1j * w * y, SPAN, [1.0, 2j], t_eval=[0.5, 2.0], args=(speed,), dense_output=True, **EXACTLY
        )
        return np.concatenate([result.y, result.sol(TIMES)], axis=1)

    times = np.array([0.5, 2.0, *TIMES])
    want = np.array([[1.0], [2j]]) * np.exp(-0.7j * times)
    with replayed():
        got = tg.trace(turned)(0.7)
        _, derivative = tg.jvp(turned, (0.7,), (1.0,))
        pulled = tg.grad(lambda w: np.imag(turned(w))[0, 1])(0.7)
    assert got.dtype == np.complex128
    np.testing.assert_allclose(got, want, atol=1e-8)
    np.testing.assert_allclose(derivative, -1j * times * want, atol=1e-7)
    assert pulled == pytest.approx(np.imag(-2j * want[0, 1]), rel=1e-6)


@pytest.mark.parametrize(
    ("f", "what"),
    [
        (lambda x: optimize.root(lambda z: z * 1j - x, [1.0]).x, "complex numbers in what a solver of SciPy's"),
        (
            lambda x: integrate.quad(lambda t: np.exp(1j * t * x), 0, 1)[0],
            "complex numbers in what a solver of SciPy's",
        ),
        (lambda x: distance.cdist(M, M * x, "chebyshev", w=V), r"cdist with metric='chebyshev' and w"),
    ],
)
def test_what_would_lose_a_part_is_refused_by_name(f: Any, what: str) -> None:
    with pytest.raises(UnsupportedError, match=what):
        tg.trace(f)(1.5)
