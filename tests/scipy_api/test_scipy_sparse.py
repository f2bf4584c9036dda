"""Sparse matrices of SciPy's in traced code: products and systems, values and slopes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from along import differences, named, replayed, weighted
from scipy import sparse
from scipy.sparse import linalg

import tracegrad as tg
from tracegrad.errors import UnsupportedError
from tracegrad.scipy_api.sparse import Sparse, splu, spsolve

M = np.array([[2.0, 0.3, 0.0], [0.0, 1.5, 0.2], [0.1, 0.2, 1.8]])
X, V = np.array([0.4, -1.1, 0.7]), np.array([0.3, -0.5, 1.1])
ROWS, COLUMNS, FLAT = sparse.csr_array(M), sparse.csc_matrix(M), sparse.coo_array(M[:2])
FACTORS, SOLVE = linalg.splu(COLUMNS), linalg.factorized(COLUMNS)

CASES: dict[str, Callable[[Any], Any]] = {
    "A @ x": lambda x: ROWS @ x**2,
    "A @ x, csc": lambda x: COLUMNS @ x**2,
    "A * x, a matrix": lambda x: COLUMNS * x**2,
    "A @ x, coo, flat": lambda x: FLAT @ x**2,
    "x @ A": lambda x: x**2 @ ROWS,
    "A.T @ x": lambda x: COLUMNS.T @ x**2,
    "dot": lambda x: ROWS.dot(x**2),
    "A @ X": lambda x: ROWS @ np.outer(x, x),
    "X @ A": lambda x: np.outer(x, x) @ COLUMNS,
    "spsolve": lambda x: linalg.spsolve(COLUMNS, x**2),
    "spsolve, several": lambda x: linalg.spsolve(ROWS, np.outer(x, x)),
    "splu": lambda x: linalg.splu(COLUMNS).solve(x**2, "T"),
    "factorized": lambda x: linalg.factorized(COLUMNS)(x**2),
    "splu, outside": lambda x: FACTORS.solve(x**2),
    "factorized, outside": lambda x: SOLVE(x**2),
    "cg": lambda x: linalg.cg(ROWS @ ROWS.T, x**2, rtol=1e-14)[0],
    "gmres": lambda x: linalg.gmres(COLUMNS, x**2, rtol=1e-14)[0],
    "made inside": lambda x: (sparse.diags([1.0, 2.0, 3.0]) @ ROWS + 2.0 * ROWS) @ x**2,
    "asked": lambda x: ROWS.sum() * x**2 + ROWS.toarray() @ x + ROWS[1, 1],
}


@pytest.mark.parametrize("name", CASES)
def test_values_are_scipys_and_derivatives_those_of_differences(name: str) -> None:
    f = named(CASES[name], name)
    np.testing.assert_allclose(tg.trace(f)(X), f(X), rtol=1e-13)
    of = weighted(f, name)
    derivative = tg.grad(of)
    assert derivative(X) @ V == pytest.approx(differences(of, X, V), rel=1e-9)
    with replayed():
        assert tg.jvp(of, (X,), (V,))[1] == pytest.approx(derivative(X) @ V, rel=1e-12)
        assert V @ tg.hessian(of)(X) @ V == pytest.approx(differences(lambda x: derivative(x) @ V, X, V), rel=1e-8)
    with tg.disable_jit():
        np.testing.assert_allclose(tg.grad(of)(X), derivative(X), rtol=1e-12)


@pytest.mark.parametrize("name", ["A @ x", "X @ A", "spsolve", "splu, outside", "cg"])
def test_each_of_a_batch_is_multiplied_and_solved(name: str) -> None:
    points = np.stack([X, X + 0.1])
    np.testing.assert_allclose(tg.vmap(CASES[name])(points), [CASES[name](x) for x in points], rtol=1e-12)


def test_the_elements_of_a_matrix_are_read_at_each_call() -> None:
    held = {"A": sparse.csr_array(M)}
    f = tg.trace(lambda x: held["A"] @ x + linalg.spsolve(held["A"], x))
    for change in (lambda: None, lambda: held["A"].data.fill(2.0), lambda: held.update(A=sparse.csc_array(2.0 * M))):
        change()
        if held["A"].format == "csr":
            held["A"].data[:] += np.arange(held["A"].nnz)
        np.testing.assert_allclose(f(X), held["A"] @ X + linalg.spsolve(held["A"].tocsc(), X), rtol=1e-12)


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csc_array, sparse.csr_matrix])
def test_a_matrix_may_find_out_what_it_is_in_traced_code(kind: Any) -> None:
    """Whether its indices are sorted, and no two equal, SciPy asks when an element is first read, and keeps."""
    matrix = kind(M)

    @tg.trace
    def f(x: Any) -> Any:
        return matrix[1, 1] * x

    assert "_has_canonical_format" not in vars(matrix)
    assert [*f(X)] == [*(1.5 * X)]
    matrix.sum_duplicates()
    assert [*f(X)] == [*(1.5 * X)]
    assert f.cache_info().traces == 1
    matrix[1, 1] = 2.0
    assert [*f(X)] == [*(2.0 * X)]


def test_elements_have_derivatives() -> None:
    places = COLUMNS.indices, COLUMNS.indptr

    def f(data: Any, x: Any) -> Any:
        held = Sparse(COLUMNS, (data, *places), True, lambda: None)
        return np.sum(np.sin(held @ x + held.T @ np.outer(x, x) @ x + spsolve(held, x) + splu(held).solve(x, "T")))

    def plain(data: Any) -> Any:
        matrix = sparse.csc_array((data, *places), shape=(3, 3))
        solved = linalg.spsolve(matrix, X) + linalg.spsolve(matrix.T, X)
        return np.sum(np.sin(matrix @ X + matrix.T @ np.outer(X, X) @ X + solved))

    d, w = COLUMNS.data, np.cos(np.arange(COLUMNS.nnz))
    derivative = tg.grad(lambda data: f(data, X))
    assert derivative(d) @ w == pytest.approx(differences(plain, d, w), rel=1e-9)
    assert tg.jvp(lambda data: f(data, X), (d,), (w,))[1] == pytest.approx(derivative(d) @ w, rel=1e-12)
    second = tg.hessian(lambda data: f(data, X))(d)
    assert w @ second @ w == pytest.approx(differences(lambda v: derivative(v) @ w, d, w), rel=1e-8)
    many = tg.vmap(lambda data: derivative(data))(np.stack([d, d + 0.1]))
    np.testing.assert_allclose(many, [derivative(d), derivative(d + 0.1)], rtol=1e-12)


@pytest.mark.parametrize(
    ("f", "what"),
    [
        (lambda x: sparse.csr_array(np.outer(x, x)), r"scipy\.sparse\.csr_array with traced elements"),
        (lambda x: sparse.diags([x], [0]), r"scipy\.sparse\.diags with traced elements"),
        (lambda x: ROWS.multiply(x), r"scipy\.sparse\.csr_array\.multiply with traced elements"),
        (lambda x: ROWS + np.outer(x, x), r"scipy\.sparse\.csr_array\.__add__ with traced elements"),
        (lambda x: linalg.cg(ROWS, x, M=ROWS)[0], r"scipy\.sparse\.linalg\.cg with callback= or M="),
        (lambda x: linalg.splu(ROWS, "NATURAL").solve(x), r"scipy\.sparse\.linalg\.splu with options"),
    ],
)
def test_what_is_not_known_is_refused_by_name(f: Any, what: str) -> None:
    with pytest.raises(UnsupportedError, match=what):
        tg.trace(f)(X)
