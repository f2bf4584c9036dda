"""`scipy.linalg` in traced code: Riccati's and Lyapunov's equations, factors of tall, wide and complex matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg as la
from along import check_along, differences, named, replayed

import tracegrad as tg

A = np.array([[0.9, 1.0, 0.5, 0.2], [-0.4, 0.3, 0.8, 0.6], [0.7, 0.2, 0.5, 0.1], [0.2, 0.3, -0.8, 0.4]])
S = np.array([[4.0, 1.0, 0.5, 0.2], [1.0, 5.0, 0.4, 0.6], [0.5, 0.4, 6.0, 0.1], [0.2, 0.6, 0.1, 7.0]])
B = np.array([[1.0, 2.0], [0.5, -1.0], [0.3, 0.8], [2.0, 0.1]])
R, I2 = np.array([[2.0, 0.3], [0.3, 1.0]]), np.eye(2)


def sym(x: Any) -> Any:
    return (x + x.T) / 2


CASES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "solve_continuous_are": (lambda x: la.solve_continuous_are(x, B, S, R), A),
    "solve_continuous_are, costs": (lambda x: la.solve_continuous_are(A, x[:, :2], sym(x) + S, sym(x[:2, :2]) + R), A),
    "solve_continuous_are, across": (lambda x: la.solve_continuous_are(A, B, S, R, s=0.1 * x[:, :2]), A),
    "solve_discrete_are": (lambda x: la.solve_discrete_are(x, B, S, R), A),
    "solve_discrete_are, costs": (lambda x: la.solve_discrete_are(A, x[:, :2], sym(x) + S, sym(x[:2, :2]) + R), A),
    "solve_discrete_are, across": (lambda x: la.solve_discrete_are(A, B, S, R, s=0.1 * x[:, :2]), A),
    "solve_discrete_lyapunov": (lambda x: la.solve_discrete_lyapunov(0.4 * x, sym(x)), A),
    "solve_discrete_lyapunov, bilinear": (lambda x: la.solve_discrete_lyapunov(0.4 * x, S, method="bilinear"), A),
    "cosm": (lambda x: la.cosm(x) + la.sinm(x), A),
    "tanm": (lambda x: la.tanm(0.3 * x), A),
    "coshm": (lambda x: la.coshm(x) + la.sinhm(x) @ la.tanhm(x), A),
    "matmul_toeplitz": (lambda x: la.matmul_toeplitz((x[0], x[1]), x) + la.matmul_toeplitz(x[2], B)[:, :1], A),
    "lu of a tall matrix": (lambda x: np.concatenate([la.lu(x)[1], la.lu(x, permute_l=True)[0], la.lu(x)[2]]), B),
    "lu of a wide matrix": (lambda x: la.lu(x.T)[1] @ la.lu(x.T)[2] ** 2, B),
    "lu, order": (lambda x: la.lu(x, p_indices=True)[1][la.lu(x, p_indices=True)[0]], A),
    "qr, pivoting": (lambda x: np.concatenate(la.qr(x, pivoting=True)[:2]), A),
    "qr, pivoting, tall": (lambda x: la.qr(x, pivoting=True, mode="economic")[1] + la.qr(x, pivoting=True)[2], B),
    "eigh, some": (lambda x: la.eigh(sym(x), subset_by_index=[1, 2])[1] ** 2, S),
    "eigvalsh, some": (lambda x: la.eigvalsh(sym(x), subset_by_index=[0, 1]), S),
    "eigh, AB": (lambda x: np.abs(la.eigh(sym(x), S + np.eye(4) * x[0, 0], type=2)[1]), A),
    "eigh, BA": (lambda x: la.eigh(sym(x), S, type=3, lower=False)[1] ** 2 + la.eigvalsh(sym(x), S, type=3), S),
    "lstsq, residuals": (lambda x: la.lstsq(x, A[0])[1] + la.lstsq(x, A)[1], B),
}


@pytest.mark.parametrize("name", CASES)
def test_values_are_scipys_and_derivatives_those_of_differences(name: str) -> None:
    check_along(*CASES[name], name, (1e-9, 1e-11), (1e-7, 1e-7), (1e-5, 1e-5))


def test_riccatis_solution_has_third_derivatives() -> None:
    def value(t: Any) -> Any:
        return np.sum(la.solve_continuous_are(A * t, B, S, R))

    with replayed():
        third, second = tg.grad(tg.grad(tg.grad(value))), tg.grad(tg.grad(value))
        assert third(1.1) == pytest.approx((second(1.1 + 1e-4) - second(1.1 - 1e-4)) / 2e-4, rel=1e-6)


@pytest.mark.parametrize("solve", [la.solve_continuous_are, la.solve_discrete_are])
def test_what_solves_riccatis_equation_is_compiled(solve: Any) -> None:
    f = tg.trace(lambda q: np.trace(solve(A, B, q, R)), tiered=False)
    for q in (S, 2 * S):
        assert f(q) == pytest.approx(np.trace(solve(A, B, q, R)), rel=1e-10)
    assert f.cache_info().traces == 1


def lu_alone(z: Any) -> Any:
    permuted, lower, upper = la.lu(z)
    return np.concatenate([permuted @ lower, upper])


Z = A + 1j * np.roll(S, 1) / 3
BANDS = np.array([[0.0, 0.5j, -0.3], [3.0, 4.0, 3.5 + 1j], [0.5, 0.1j, 0.0]])
OF_COMPLEX: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "lu": (lu_alone, Z),
    "lu of a tall matrix": (lambda z: np.concatenate(la.lu(z, permute_l=True)), Z[:, :3]),
    "lu_solve": (lambda z: la.lu_solve(la.lu_factor(z), z[0]), Z),
    "lu_solve, adjoint": (lambda z: la.lu_solve(la.lu_factor(z), B, trans=2), Z),
    "solve_banded": (lambda z: la.solve_banded((1, 1), z, z[0] + 1.0), BANDS),
    "solve_sylvester": (lambda z: la.solve_sylvester(z, S + z, B @ B.T), Z),
    "solve_continuous_lyapunov": (lambda z: la.solve_continuous_lyapunov(z, S * 1j), Z),
    "solve_discrete_lyapunov": (lambda z: la.solve_discrete_lyapunov(0.2 * z, S), Z),
    "qr, pivoting": (lambda z: la.qr(z, pivoting=True, mode="r")[0], Z),
    "cosm": (lambda z: la.cosm(0.3 * z) + la.sinm(0.3 * z), Z),
}


@pytest.mark.parametrize("name", OF_COMPLEX)
def test_complex_matrices_have_scipys_values_and_derivatives_of_differences(name: str) -> None:
    f, z = OF_COMPLEX[name]
    v = np.cos(np.arange(z.size)).reshape(z.shape) * (1 + 0.5j)
    v = v * (z != 0)

    def of(z: Any) -> Any:
        y = f(z)
        return np.sum(np.real(y) ** 2 + np.imag(y) * np.cos(np.arange(y.size)).reshape(y.shape))

    with replayed():
        np.testing.assert_allclose(tg.trace(named(f, name))(z), f(z), rtol=1e-10, atol=1e-12)
        derivative, want = tg.grad(named(of, name))(z), differences(of, z, v)
        assert np.sum(np.real(np.conj(derivative) * v)) == pytest.approx(want, rel=1e-7, abs=1e-8)
        assert tg.jvp(named(of, name), (z,), (v,))[1] == pytest.approx(want, rel=1e-7, abs=1e-8)


SINGULAR = {
    "zeros": np.zeros((2, 2)),
    "a number": np.zeros((1, 1)),
    "a diagonal": np.diag([1.0, 0.0]),
    "lower rank": np.array([[2.0, 1.0], [4.0, 2.0]]),
    "nearly": np.diag([1.0, 1e-310]),
}
OF_SINGULAR: dict[str, tuple[Callable[[Any], Any], tuple[str, ...]]] = {
    "sqrtm": (la.sqrtm, tuple(SINGULAR)),
    "logm": (la.logm, ("zeros", "a number", "a diagonal")),
    "solve_sylvester": (lambda x: la.solve_sylvester(x, x.T, x + np.eye(len(x))), ("zeros", "a number", "a diagonal")),
    "solve_continuous_lyapunov": (lambda x: la.solve_continuous_lyapunov(x, x), tuple(SINGULAR)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OF_SINGULAR)
def test_there_is_no_derivative_where_what_is_solved_is_singular(name: str) -> None:
    function, where = OF_SINGULAR[name]
    weights = np.array([[1.0, 0.3], [-0.7, 2.0]])

    def weighted(x: Any) -> Any:
        return np.sum(function(x) * weights[: len(x), : len(x)])

    def along(x: Any) -> Any:
        return tg.jvp(weighted, (x,), (np.ones(x.shape),))[1]

    for at in where:
        x = SINGULAR[at]
        derivative = tg.grad(weighted)
        results = [derivative(x), along(x)]
        with tg.disable_jit():
            results += [derivative(x), along(x), tg.jvp(derivative, (x,), (np.ones(x.shape),))[1]]
        for i, each in enumerate(results):
            assert np.isnan(each).any(), (at, i, each)


@pytest.mark.filterwarnings("ignore")
def test_a_derivative_that_a_singular_matrix_has_is_kept() -> None:
    # Along what a square root of lower rank stays in, and of a logarithm of a number that is small.
    np.testing.assert_allclose(tg.grad(lambda x: np.sum(la.sqrtm(x)))(np.ones((2, 2))), np.full((2, 2), 2**-1.5))
    small = np.diag([1.0, 1e-20])
    np.testing.assert_allclose(tg.grad(lambda x: np.trace(la.logm(x)))(small), np.diag([1.0, 1e20]), atol=1e-9)


@pytest.mark.filterwarnings("ignore")
def test_the_value_of_riccatis_equation_is_scipys_where_newtons_steps_are_singular() -> None:
    def solved(x: Any) -> Any:
        return la.solve_continuous_are(x, x, np.eye(2), np.eye(2))

    x = np.ones((2, 2))
    np.testing.assert_allclose(tg.trace(solved)(x), solved(x), rtol=1e-9)
    assert np.isnan(tg.grad(lambda x: np.sum(solved(x) * A[:2, :2]))(x)).any()
