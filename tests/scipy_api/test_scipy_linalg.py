"""`scipy.linalg` in traced code: SciPy's values, first and second derivatives by differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg as la
from along import differences, named, replayed

import tracegrad as tg
from tracegrad.errors import UnsupportedError

A = np.array([[3.0, 1.0, 0.5, 0.2], [-0.4, 0.3, 4.0, 0.6], [0.7, 5.0, 0.5, 0.1], [0.2, 0.3, -0.8, 6.0]])
S = np.array([[4.0, 1.0, 0.5, 0.2], [1.0, 5.0, 0.4, 0.6], [0.5, 0.4, 6.0, 0.1], [0.2, 0.6, 0.1, 7.0]])
T = np.diag([1.0, 2.0, 4.0, 9.0]) + 0.3
B = np.array([[1.0, 2.0], [0.5, -1.0], [0.3, 0.8], [2.0, 0.1]])
BANDS = np.array([[0.0, 0.5, -0.3, 0.4], [3.0, 4.0, 3.5, 5.0], [0.5, 0.1, -0.4, 0.0], [0.2, 0.4, 0.0, 0.0]])


def sym(x: Any) -> Any:
    return (x + x.T) / 2


# The function, and where it is looked at.
CASES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "cholesky": (lambda x: la.cholesky(sym(x)), S),
    "cholesky, lower": (lambda x: la.cholesky(sym(x), lower=True), S),
    "cho_factor": (lambda x: la.cho_factor(sym(x))[0], S),
    "cho_factor, lower": (lambda x: la.cho_factor(sym(x), lower=True)[0], S),
    "cho_solve": (lambda x: la.cho_solve(la.cho_factor(sym(x)), B), S),
    "cho_solve of a vector": (lambda x: la.cho_solve((la.cholesky(sym(x), lower=True), True), x[0]), S),
    "solve": (lambda x: la.solve(x, B), A),
    "solve of a vector": (lambda x: la.solve(x, x[0] * 2), A),
    "solve, transposed": (lambda x: la.solve(x, B, transposed=True), A),
    "solve, positive definite": (lambda x: la.solve(sym(x), B, assume_a="pos"), S),
    "solve, positive definite, lower": (lambda x: la.solve(sym(x), B, assume_a="pos", lower=True), S),
    "solve, symmetric": (lambda x: la.solve(sym(x), B, assume_a="sym"), S),
    "solve, triangular": (lambda x: la.solve(x, B, assume_a="upper triangular"), np.triu(S)),
    "solve_triangular": (lambda x: la.solve_triangular(x, B), np.triu(S)),
    "solve_triangular, lower": (lambda x: la.solve_triangular(x, B, trans="T", lower=True), np.tril(S)),
    "solve_triangular, unit": (lambda x: la.solve_triangular(x, B, unit_diagonal=True), np.triu(S)),
    "solve_banded": (lambda x: la.solve_banded((2, 1), x, B), BANDS),
    "solveh_banded": (lambda x: la.solveh_banded(x[1:], B[:, 0], lower=True), BANDS),
    "solveh_banded, upper": (lambda x: la.solveh_banded(x, B), BANDS[:2]),
    "solve_toeplitz": (lambda x: la.solve_toeplitz(x[0], x[1]), S),
    "solve_toeplitz of two": (lambda x: la.solve_toeplitz((x[0], x[0] / 2 + 2), x[1]), S),
    "solve_circulant": (lambda x: la.solve_circulant(x[0], x[1]), S),
    "lu": (lambda x: np.concatenate(la.lu(x)), A),
    "lu, permuted": (lambda x: np.concatenate(la.lu(x, permute_l=True)), A),
    "lu_factor": (lambda x: la.lu_factor(x)[0], A),
    "lu_solve": (lambda x: la.lu_solve(la.lu_factor(x), B), A),
    "lu_solve, transposed": (lambda x: la.lu_solve(la.lu_factor(x), B[:, 0], trans=1), A),
    "qr": (lambda x: np.concatenate(la.qr(x)), A),
    "qr, full": (lambda x: la.qr(x[:, :2])[1], A),
    "qr, economic": (lambda x: np.concatenate(la.qr(x[:, :2], mode="economic")), A),
    "qr, r": (lambda x: la.qr(x, mode="r")[0], A),
    "svd": (lambda x: np.abs(la.svd(x)[0]) * la.svd(x)[1], A),
    "svd, values": (lambda x: la.svd(x, compute_uv=False), A),
    "svdvals": (la.svdvals, A),
    "eigh": (lambda x: np.abs(la.eigh(sym(x))[1]) * la.eigh(sym(x))[0], S),
    "eigh of two": (lambda x: np.abs(la.eigh(sym(x), T)[1]) + la.eigh(np.diag(B[:, 0]), sym(x))[0], S),
    "eigh of two, values": (lambda x: la.eigh(sym(x), T, eigvals_only=True, lower=False), S),
    "eig_banded": (lambda x: np.abs(la.eig_banded(x)[1]) * la.eig_banded(x)[0], BANDS[:2]),
    "eig_banded, lower": (lambda x: la.eig_banded(x, True, True, select="i", select_range=(1, 2)), BANDS[1:]),
    "eigvals_banded": (lambda x: la.eigvals_banded(x, select="v", select_range=(0.0, 4.2)), BANDS[:2]),
    "eigh_tridiagonal": (lambda x: np.abs(la.eigh_tridiagonal(x[0], x[1, :3], select="i", select_range=(0, 2))[1]), S),
    "eigvalsh_tridiagonal": (lambda x: la.eigvalsh_tridiagonal(x[0], x[1, :3]), S),
    "eigvalsh": (lambda x: la.eigvalsh(sym(x)), S),
    "expm": (lambda x: la.expm(x / 4), A),
    "logm": (la.logm, S),
    "sqrtm": (la.sqrtm, S),
    "inv": (la.inv, A),
    "inv, positive definite": (lambda x: la.inv(sym(x), assume_a="pos"), S),
    "det": (la.det, A),
    "pinv": (lambda x: la.pinv(x[:, :2]), A),
    "pinvh": (lambda x: la.pinvh(sym(x)), S),
    "null_space": (lambda x: la.null_space(x[:2]) @ la.null_space(x[:2]).T, A),
    "lstsq": (lambda x: la.lstsq(x[:, :2], B)[0], A),
    "norm": (la.norm, A),
    "norm, nuclear": (lambda x: la.norm(x, "nuc"), A),
    "solve_sylvester": (lambda x: la.solve_sylvester(x, S, B @ B.T), A),
    "solve_continuous_lyapunov": (lambda x: la.solve_continuous_lyapunov(x, B @ B.T), A),
    "block_diag": (lambda x: la.block_diag(x, 3.0, x[0]), A),
    "toeplitz": (lambda x: la.toeplitz(x[0], x[1, :3]), A),
    "toeplitz of one": (lambda x: la.toeplitz(x[0]), A),
    "circulant": (lambda x: la.circulant(x[0]), A),
    "hankel": (lambda x: la.hankel(x[0]) + la.hankel(x[0], x[1]), A),
}


def weighted(f: Callable[[Any], Any], name: str) -> Callable[[Any], Any]:
    """A sum of the elements of `f`, with weights, as a function of its own."""

    def summed(x: Any) -> Any:
        y = f(x)
        return np.sum(y * np.cos(np.arange(y.size)).reshape(y.shape))

    return named(summed, name)


def direction(x: Any) -> Any:
    """One that keeps the zeros of triangular and banded matrices, which are not read or decide what is."""
    return np.where(x == 0, 0.0, np.sin(1.0 + np.arange(x.size)).reshape(x.shape))


@pytest.mark.parametrize("name", CASES)
def test_values_are_scipys_and_derivatives_those_of_differences(name: str) -> None:
    f, x = CASES[name]
    np.testing.assert_allclose(tg.trace(f)(x), f(x), rtol=1e-11, atol=1e-12)
    of, v = weighted(f, name), direction(x)
    derivative = tg.grad(of)
    want = differences(of, x, v)
    assert np.sum(derivative(x) * v) == pytest.approx(want, rel=1e-7, abs=1e-8)
    with replayed():
        assert tg.jvp(of, (x,), (v,))[1] == pytest.approx(want, rel=1e-7, abs=1e-8)
        second = tg.grad(lambda x: np.sum(derivative(x) * v))(x)
    assert np.sum(second * v) == pytest.approx(
        differences(lambda x: np.sum(derivative(x) * v), x, v), rel=1e-6, abs=1e-7
    )


Z = B + 1j * np.cos(B)


def her(x: Any) -> Any:
    z = x + 1j * np.cos(x)
    return z @ z.conj().T + np.eye(4)


def turned(x: Any) -> Any:
    return x + 1j * np.sin(x)


# Of complex numbers, where what is transposed is conjugated or not.
OF_COMPLEX: dict[str, Callable[[Any], Any]] = {
    "cho_solve": lambda x: la.cho_solve(la.cho_factor(her(x)), Z),
    "cho_solve, lower": lambda x: la.cho_solve(la.cho_factor(her(x), lower=True), Z),
    "solve, positive": lambda x: la.solve(her(x), Z, assume_a="pos"),
    "solve, symmetric": lambda x: la.solve(turned(x) + turned(x).T, Z, assume_a="sym"),
    "solve_triangular, conjugated": lambda x: la.solve_triangular(np.tril(turned(x)), Z, trans="C", lower=True),
    "solve_triangular, transposed": lambda x: la.solve_triangular(np.triu(turned(x)), Z, trans=1),
    "toeplitz": lambda x: la.toeplitz(turned(x)[0]) @ Z,
    "eigh of two": lambda x: la.eigh(turned(x) + turned(x).conj().T, her(x), eigvals_only=True) + 0j,
    "vectors of two": lambda x: np.abs(la.eigh(turned(x) + turned(x).conj().T, her(x), lower=False)[1]) + 0j,
}


@pytest.mark.parametrize("name", OF_COMPLEX)
def test_complex_matrices_are_conjugated_where_scipy_does(name: str) -> None:
    def f(x: Any) -> Any:
        z = OF_COMPLEX[name](x)
        return np.stack([z.real, z.imag])

    f = named(f, name)
    np.testing.assert_allclose(tg.trace(f)(A), f(A), rtol=1e-11, atol=1e-12)
    of, v = weighted(f, name), direction(A)
    derivative = tg.grad(of)
    want = differences(of, A, v)
    assert np.sum(derivative(A) * v) == pytest.approx(want, rel=1e-7, abs=1e-8)
    assert tg.jvp(of, (A,), (v,))[1] == pytest.approx(want, rel=1e-7, abs=1e-8)
    second = tg.grad(lambda x: np.sum(derivative(x) * v))(A)
    assert np.sum(second * v) == pytest.approx(
        differences(lambda x: np.sum(derivative(x) * v), A, v), rel=1e-6, abs=1e-7
    )


def test_the_two_triangles_of_a_symmetric_matrix_are_one_in_its_derivative() -> None:
    derivative = tg.grad(lambda a: np.sum(la.cholesky(a, lower=True)))(S)
    np.testing.assert_array_equal(derivative, derivative.T)


def test_the_kind_of_matrix_that_is_refused_raises_as_scipy_does() -> None:
    with pytest.raises(np.linalg.LinAlgError):
        tg.trace(lambda x: la.cholesky(x))(-S)
    with pytest.raises(ValueError, match="incompatible shapes"):
        tg.trace(lambda x: la.solve(x, np.ones(3)))(S)


@pytest.mark.parametrize(
    ("f", "what"),
    [
        (lambda x: la.qr(x, mode="raw"), r"scipy\.linalg\.qr with mode='raw'"),
        (lambda x: la.eigh(x, subset_by_value=[0, 9]), r"the argument subset_by_value= of scipy\.linalg\.eigh"),
        (lambda x: la.solve_continuous_are(x, B, S, T[:2, :2], e=S), r"e= of scipy\.linalg\.solve_continuous_are"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(f: Any, what: str) -> None:
    with pytest.raises(UnsupportedError, match=what):
        tg.trace(f)(S)


def test_a_gaussian_process_is_written_as_with_scipy() -> None:
    x, y = np.linspace(0.0, 1.0, 12), np.sin(np.linspace(0.0, 3.0, 12))

    def likelihood(log_scale: Any) -> Any:
        k = np.exp(-0.5 * ((x[:, None] - x) / np.exp(log_scale)) ** 2) + 0.1 * np.eye(12)
        factor = la.cho_factor(k, lower=True, overwrite_a=True, check_finite=False)
        return 0.5 * y @ la.cho_solve(factor, y) + np.sum(np.log(np.diag(factor[0])))

    exact = (likelihood(-0.5 + 1e-5) - likelihood(-0.5 - 1e-5)) / 2e-5
    assert tg.grad(likelihood)(-0.5) == pytest.approx(exact, rel=1e-7)
