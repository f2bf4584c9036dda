"""LU factors, general eigenvalues, reflectors and low-rank approximations against SciPy and their equations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg

import tracegrad as tg
from tracegrad import linalg
from tracegrad.typing import NDArray

RNG = np.random.default_rng(2)
SHAPES = [(3, 3), (2, 4, 4), (5, 3), (2, 3, 5), (1, 1), (0, 0), (0, 3, 3)]


def matrix(shape: tuple[int, ...], is_complex: bool = False) -> NDArray:
    x = RNG.normal(size=shape)
    return x + 1j * RNG.normal(size=shape) if is_complex else x


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_lu_factors_are_those_of_lapack(shape: tuple[int, ...], traced: bool) -> None:
    def run(x: Any) -> Any:
        packed, pivots, info = linalg.lu_factor_ex(x)
        return packed, pivots, info, *tg.lu_unpack(packed, pivots), *linalg.lu(x)

    x = matrix(shape)
    packed, pivots, info, *parts = (tg.trace(run) if traced else run)(tg.tensor(x))
    assert (pivots.dtype, info.dtype, info.shape) == (np.int32, np.int32, shape[:-2])
    assert not info.any()
    for i in np.ndindex(shape[:-2]):
        if x[i].size:
            expected, order, _ = scipy.linalg.lapack.dgetrf(x[i])
            np.testing.assert_allclose(packed[i], expected, atol=1e-14)
            np.testing.assert_array_equal(pivots[i], order + 1)
    for P, L, U in (parts[:3], parts[3:]):
        np.testing.assert_allclose(P @ L @ U, x, atol=1e-14)
        np.testing.assert_array_equal(L, np.tril(L))
        np.testing.assert_array_equal(U, np.triu(U))


@pytest.mark.parametrize("is_complex", [False, True])
def test_lu_factors_solve_equations(is_complex: bool) -> None:
    a, b = matrix((2, 3, 3), is_complex), matrix((1, 3, 2), is_complex)
    adjoint = np.conj(np.swapaxes(a, -1, -2))
    LU, pivots = linalg.lu_factor(tg.tensor(a))
    right = np.swapaxes(b, -1, -2)
    solve = linalg.lu_solve
    np.testing.assert_allclose(a @ solve(LU, pivots, tg.tensor(b)).numpy(), b + 0 * a[..., :2], atol=1e-13)
    np.testing.assert_allclose(adjoint @ solve(LU, pivots, tg.tensor(b), adjoint=True).numpy(), b + 0 * a[..., :2])
    np.testing.assert_allclose(solve(LU, pivots, tg.tensor(right), left=False).numpy() @ a, right + 0 * a[:, :2])
    x = solve(LU, pivots, tg.tensor(right), left=False, adjoint=True).numpy()
    np.testing.assert_allclose(x @ adjoint, right + 0 * a[:, :2])
    leaf = tg.tensor(a, requires_grad=True)
    assert tg.autograd.gradcheck(lambda a: tg.tensor(b).lu_solve(*tg.lu(a)), [leaf])


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 3)])
def test_derivatives_of_factors(shape: tuple[int, ...]) -> None:
    leaf = tg.tensor(matrix(shape), requires_grad=True)
    assert tg.autograd.gradcheck(lambda x: linalg.lu_factor(x)[0], [leaf])
    assert tg.autograd.gradcheck(lambda x: linalg.lu(x)[1:], [leaf])
    if shape[0] >= shape[1]:
        tau = tg.tensor(RNG.random(shape[1]), requires_grad=True)
        assert tg.autograd.gradcheck(linalg.householder_product, [leaf, tau])
    if shape == (3, 3):
        assert tg.autograd.gradcheck(lambda x: linalg.eigvals(x).abs(), [leaf])
        assert tg.autograd.gradcheck(lambda x: linalg.eig(x)[1].abs(), [leaf])


@pytest.mark.parametrize("traced", [False, True])
def test_eigenvalues_are_complex_and_solve_their_equation(traced: bool) -> None:
    for x in (matrix((2, 3, 3)), np.diag([1.0, 2.0]), matrix((4, 4), True), np.zeros((0, 0))):
        values, vectors = (tg.trace(linalg.eig) if traced else linalg.eig)(tg.tensor(x))
        assert values.dtype == vectors.dtype == np.complex128
        np.testing.assert_allclose(x @ vectors.numpy(), vectors.numpy() * values.numpy()[..., None, :], atol=1e-13)
        np.testing.assert_allclose(linalg.eigvals(tg.tensor(x)), values, atol=1e-13)
    assert linalg.eig(tg.eye(2, dtype=tg.float32)).eigenvalues.dtype == np.complex64


@pytest.mark.parametrize("is_complex", [False, True])
def test_reflectors_of_lapack_are_multiplied(is_complex: bool) -> None:
    for shape in ((4, 3), (3, 3), (2, 0)):
        x = matrix(shape, is_complex)
        if x.size:
            (packed, tau), _ = scipy.linalg.qr(x, mode="raw")
            expected = scipy.linalg.qr(x, mode="economic")[0]
        else:
            packed, tau, expected = x, x[0], x
        result = linalg.householder_product(tg.tensor(np.asarray(packed)), tg.tensor(tau))
        np.testing.assert_allclose(result, expected, atol=1e-14)
        np.testing.assert_array_equal(tg.orgqr(tg.tensor(np.asarray(packed)), tg.tensor(tau)), result)


@pytest.mark.parametrize("shape", [(8, 5), (5, 8), (2, 6, 6)])
def test_matrices_of_low_rank_have_their_factors(shape: tuple[int, ...]) -> None:
    x = matrix((*shape[:-1], 2)) @ matrix((*shape[:-2], 2, shape[-1])) + 3.0
    low = tg.tensor(x - 3.0, requires_grad=True)
    for call in (tg.svd_lowrank, tg.trace(lambda A, q: tg.svd_lowrank(A, q))):
        U, S, V = call(low, q=2)
        np.testing.assert_allclose((U * S[..., None, :] @ V.mT).detach(), x - 3.0, atol=1e-12)
        np.testing.assert_allclose(S.detach(), np.linalg.svd(x - 3.0)[1][..., :2])
    U, S, V = tg.svd_lowrank(tg.tensor(x), 2, M=tg.full(shape, 3.0))
    np.testing.assert_allclose((U * S[..., None, :] @ V.mT), x - 3.0, atol=1e-12)
    U, S, V = tg.pca_lowrank(tg.tensor(x), q=2)
    centered = x - x.mean(-2, keepdims=True)
    np.testing.assert_allclose((U * S[..., None, :] @ V.mT), centered, atol=1e-12)
    (gradient,) = tg.autograd.grad(tg.svd_lowrank(low, 2)[1].sum(), low)
    u, _, v = np.linalg.svd(x - 3.0, full_matrices=False)
    np.testing.assert_allclose(gradient, u[..., :2] @ v[..., :2, :], atol=1e-10)


@pytest.mark.filterwarnings("ignore:Diagonal number")  # SciPy's warning of a singular matrix
@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: linalg.lu(x, pivot=False), RuntimeError, "LU without pivoting is not implemented on the CPU"),
        (lambda x: linalg.lu_factor(x, pivot=False), RuntimeError, "LU without pivoting"),
        (lambda x: linalg.lu_factor_ex(0 * x, check_errors=True), RuntimeError, r"U\[1,1\] is zero"),
        (lambda x: linalg.lu_solve(x, tg.ones(2).long(), x), RuntimeError, "pivots should be int32"),
        (lambda x: linalg.householder_product(x[:1], x[0]), RuntimeError, "greater than or equal to input.shape"),
        (lambda x: linalg.householder_product(x, tg.ones(3)), RuntimeError, "greater than or equal to tau.shape"),
        (lambda x: linalg.eig(x[:1]), RuntimeError, "square"),
        (lambda x: tg.pca_lowrank(x, q=3), ValueError, "must be non-negative integer and not greater than min"),
        (lambda x: tg.pca_lowrank(x, niter=-1), ValueError, "niter"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call(tg.eye(2))


@pytest.mark.filterwarnings("ignore:Diagonal number")
def test_the_first_zero_pivot_is_numbered() -> None:
    x = tg.stack([tg.eye(3), tg.diag(tg.tensor([1.0, 0.0, 0.0]))])
    assert linalg.lu_factor_ex(x).info.tolist() == [0, 2]
    assert tg.lu(x, get_infos=True)[2].tolist() == [0, 2]
