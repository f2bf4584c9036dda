"""Trees of points of `scipy.spatial`, and routines of `scipy.linalg.blas` and `lapack`, in traced code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from along import check_along, replayed
from scipy import spatial
from scipy.linalg import blas, lapack

import tracegrad as tg
from tracegrad.errors import UnsupportedError

DATA = np.random.default_rng(2).normal(size=(30, 3))
X = np.random.default_rng(3).normal(size=(4, 3))
TREE, C_TREE = spatial.KDTree(DATA), spatial.cKDTree(DATA)
M = np.array([[1.0, 0.5, -0.3], [0.2, 2.0, 0.7], [0.9, -0.4, 3.0]])

CASES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "query": (lambda x: TREE.query(x)[0], X),
    "query, several": (lambda x: C_TREE.query(x, k=3)[0], X),
    "query, which": (lambda x: TREE.query(x, k=[2, 4], p=1)[0], X),
    "query, largest": (lambda x: TREE.query(x, p=np.inf)[0], X),
    "query, a bound": (lambda x: np.minimum(TREE.query(x, k=3, distance_upper_bound=0.9)[0], 2.0), X),
    "query, one point": (lambda x: spatial.KDTree(DATA).query(x[0], k=2, p=3)[0], X),
    "traced points": (lambda x: spatial.KDTree(x[1:]).query(x[:1], k=2)[0], X),
    "gathered": (lambda x: x[:, 0] * DATA[TREE.query(x)[1], 0], X),
    "dgemm": (lambda x: blas.dgemm(2.0, x, M, 0.5, x, trans_a=1), M),
    "dgemv": (lambda x: blas.dgemv(2.0, x, x[0], trans=1), M),
    "ddot": (lambda x: blas.ddot(x[0], x[1]) + blas.dnrm2(x[1]) + blas.dasum(x[2]), M),
}


@pytest.mark.parametrize("name", CASES)
def test_values_are_scipys_and_derivatives_those_of_differences(name: str) -> None:
    check_along(*CASES[name], name, (1e-12, 1e-14), (1e-7, 1e-8), (1e-6, 1e-6))


def test_the_numbers_of_neighbours_are_scipys_at_each_call() -> None:
    f = tg.trace(lambda x: TREE.query(x, k=4, distance_upper_bound=1.0))
    for x in (X, X[::-1] * 0.5, X + 0.7):
        for ours, theirs in zip(f(x), TREE.query(x, k=4, distance_upper_bound=1.0)):
            assert ours.dtype == theirs.dtype
            np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    with replayed():
        assert tg.trace(lambda x: TREE.n * x)(1.0) == 30


def test_a_batch_is_asked_point_by_point() -> None:
    with replayed():
        result = tg.vmap(lambda x: TREE.query(x, k=2)[0])(X)
    np.testing.assert_allclose(result, TREE.query(X, k=2)[0], rtol=1e-12)


@pytest.mark.parametrize(
    ("f", "what"),
    [
        (lambda x: TREE.query_ball_point(x, 0.5), r"scipy\.spatial\.KDTree\.query_ball_point .*use KDTree\.query"),
        (lambda x: spatial.KDTree(x).query_pairs(0.5), r"scipy\.spatial\.KDTree\.query_pairs"),
        (lambda x: spatial.KDTree(x, boxsize=1.0), r"boxsize= of scipy\.spatial\.KDTree"),
        (lambda x: lapack.dpotrf(x), r"routine dpotrf of scipy\.linalg .*use scipy\.linalg\.cholesky"),
        (lambda x: blas.dtrsm(1.0, x, x), r"routine dtrsm of scipy\.linalg .*use scipy\.linalg\.solve_triangular"),
    ],
)
def test_what_is_not_known_is_refused_with_what_to_use(f: Any, what: str) -> None:
    with pytest.raises(UnsupportedError, match=what):
        tg.trace(f)(M)


def test_what_is_not_traced_is_scipys() -> None:
    with replayed():
        result = tg.trace(lambda x: x * lapack.dpotrf([[4.0]])[0] + spatial.KDTree([[0.0], [1.0]]).query([0.8])[0])(
            X[0]
        )
    np.testing.assert_allclose(result, [X[0] * 2.0 + 0.2], rtol=1e-12)
