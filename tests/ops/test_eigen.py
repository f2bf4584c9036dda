"""Eigenvalues of matrices that are not symmetric, zeros of polynomials, complex order, and Lambert's function.

Vectors are compared by what does not depend on their phases, or where they are real.
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
import scipy.linalg as la
import scipy.special as sp
from along import differences, replayed

import tracegrad as tg
from tracegrad.numpy_api.registry import FUNCTIONS

RNG = np.random.default_rng(0)
A, B = RNG.standard_normal((2, 4, 4))
W = RNG.standard_normal(4)
T = RNG.standard_normal((4, 4))
SPREAD = np.diag(3.0 * np.arange(1, 5)) + 0.3 * A  # whose eigenvalues are real
PAIRS = np.array([1.0, 2.0, 3.0, 4.5, 2.0])  # of zeros that are not


def mixed(x: Any) -> Any:
    w, v = np.linalg.eig(x)
    return np.sum(np.abs(np.exp(w)) * W) + np.sum(np.abs(v) ** 3 * B)


def of_scipy(x: Any) -> Any:
    w, v = la.eig(x)
    return np.sum(np.abs(v) ** 3 * B) + np.sum(w.imag**2 + np.cos(la.eigvals(x).real))


CASES: dict[str, tuple[Any, Any]] = {
    "eig": (mixed, A),
    # From 2.5 on, NumPy gives complex numbers even where they are all real.
    "eig, real": (lambda x: np.sum(np.linalg.eig(x)[1].real ** 2 * B) + np.linalg.eig(x).eigenvalues.real @ W, SPREAD),
    "eig of complex numbers": (lambda x: mixed(x + 1j * np.sin(x)), A),
    "eigvals": (lambda x: np.sum(np.abs(np.linalg.eigvals(x) + 1j) * W[0]), A),
    "eigvals of a stack": (lambda x: np.sum(np.abs(np.linalg.eigvals(np.stack([x, x.T @ x + B]))) ** 3), A),
    "scipy": (of_scipy, A),
    "scipy, real": (of_scipy, SPREAD),
    "roots": (lambda p: np.sum(np.abs(np.roots(p) - 0.3j) ** 3), PAIRS),
    "real roots": (lambda p: np.sum(np.roots(p) ** 3), np.array([1.0, -6.0, 11.0, -6.0])),
    "poly": (lambda x: np.sum(np.poly(x) ** 2), A),
    "poly of complex roots": (lambda x: np.sum(np.abs(np.poly(x[0] + 1j * x[1])) ** 2), A),
    "sort_complex": (lambda x: np.sum(np.sort_complex(np.cos(x) + 1j * x).imag * W), A),
    "sort_complex of reals": (lambda x: np.sum(np.sort_complex(x).real ** 2 * W), A),
    "lambertw": (lambda x: np.sum(np.abs(sp.lambertw(x + 1j * np.cos(x))) ** 2), A),
    "lambertw, branches": (lambda x: np.sum(sp.lambertw(x + 1j * np.cos(x), [0, 1, -2, 0]).imag ** 2), A),
}


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives_of_both_orders(name: str, jit: bool) -> None:
    f, x = CASES[name]
    t = T.ravel()[: x.size].reshape(x.shape)
    derivative = tg.grad(f)
    with contextlib.nullcontext() if jit else tg.disable_jit():
        assert tg.trace(f)(x) == pytest.approx(f(x), rel=1e-13)
        along = np.sum(derivative(x) * t)
        assert along == pytest.approx(differences(f, x, t), rel=1e-6)
        assert float(tg.jvp(f, (x,), (t,))[1]) == pytest.approx(along, rel=1e-10)
        if jit and name not in ("eig", "real roots", "lambertw"):
            return
        with replayed():
            bent = np.sum(tg.jvp(derivative, (x,), (t,))[1] * t)
        assert bent == pytest.approx(differences(lambda y: np.sum(derivative(y) * t), x, t), rel=1e-5)


VALUES = {
    "np.linalg.eig(x)": [A, SPREAD, A.astype("f"), A + 1j * B, np.stack([A, SPREAD]), np.eye(2, dtype=int)],
    "np.linalg.eigvals(x)": [A, SPREAD, SPREAD.astype("f"), A - 1j * B, np.stack([SPREAD, SPREAD])],
    "np.roots(x)": [PAIRS, W.astype("f"), [0, 0, 1, -3, 2, 0, 0], [2.0], [0.0, 0.0], [1.0, 0.0], W + 1j],
    "np.poly(x)": [A, SPREAD, A + 1j * B, W + 1j, np.array([1j, -1j, 2.0])],
    "np.sort_complex(x)": [
        A,
        A.astype("f"),
        np.arange(3, dtype=np.int8),
        np.array([[2 + 1j, 2 - 1j, 1 + 5j]]),
        np.array([np.nan + 1j, 3, 1 + 1j * np.nan, 1j, complex(np.nan, np.nan)]),
    ],
    "la.eig(x)": [A, SPREAD, A + 1j * B],
    "la.eigvals(x)": [A, SPREAD.astype("f"), A + 1j * B],
    "la.eig(x, right=False)": [SPREAD],
    "sp.lambertw(x)": [W, W + 1j, (W + 1j).astype(np.complex64), np.zeros(1, complex)],
    "sp.lambertw(x, -1)": [W + 1j],
}


@pytest.mark.parametrize("call", VALUES)
def test_values_dtypes_and_classes_are_numpys(call: str) -> None:
    for x in map(np.asarray, VALUES[call]):
        # A function for each, since whether results are real is another path.
        scope = {"np": np, "la": la, "sp": sp}
        f = eval(f"lambda x: {call}", scope)
        want, result = f(x), tg.trace(f)(x)
        assert type(result) is type(want)
        for ours, theirs in zip(result, want) if isinstance(want, tuple) else [(result, want)]:
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), (call, x)
            np.testing.assert_allclose(ours, theirs, rtol=2e-6 if theirs.dtype.char in "fF" else 1e-13, atol=1e-13)


def test_a_matrix_whose_eigenvalues_stop_being_real_takes_another_path() -> None:
    transposed = tg.trace(lambda x: np.linalg.eigvals(x) * 2)
    for x in (SPREAD, A, SPREAD, A):
        result = transposed(x)
        assert result.dtype == np.linalg.eigvals(x).dtype
        np.testing.assert_array_equal(result, np.linalg.eigvals(x) * 2)
    # From 2.5 on, NumPy gives complex numbers for both.
    assert transposed.cache_info().traces == 1 + (np.linalg.eigvals(SPREAD).dtype.kind == "f")


def test_gradients_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    for x in (A, A + 1j * B):
        derivative = tg.grad(mixed)(x)
        t = torch.tensor(x, requires_grad=True)
        w, v = torch.linalg.eig(t)
        loss = (w.exp().abs() * torch.tensor(W)).sum() + (v.abs() ** 3 * torch.tensor(B)).sum()
        loss.backward()
        np.testing.assert_allclose(derivative, t.grad.numpy(), rtol=1e-10, atol=1e-12)


def test_the_derivative_of_lambertw_at_0_is_1() -> None:
    z = np.array([0j, 1 + 0j])
    w = sp.lambertw(z[1])
    result = tg.jvp(lambda z: sp.lambertw(z), (z,), (np.ones(2, complex),))[1]
    np.testing.assert_allclose(result, [1, w / (1 + w)], rtol=1e-14)


def test_a_batch_of_complex_matrices() -> None:
    def size(x: Any) -> Any:
        return np.sum(np.abs(np.linalg.eigvals(x + 1j * B)) ** 3)

    stack = np.stack([A, SPREAD])
    np.testing.assert_allclose(tg.vmap(size)(stack), [size(A), size(SPREAD)], rtol=1e-12)
    np.testing.assert_allclose(tg.vmap(tg.grad(size))(stack), [tg.grad(size)(x) for x in stack], rtol=1e-10)


def test_batches_of_real_matrices_have_complex_eigenvalues() -> None:
    x = np.stack([A, SPREAD, B])
    w, v = tg.vmap(np.linalg.eig)(x)
    assert w.dtype == v.dtype == np.complex128
    np.testing.assert_allclose(x @ v, v * w[:, None, :], atol=1e-12)
    np.testing.assert_allclose(tg.vmap(np.linalg.eigvals)(x), np.linalg.eigvals(x), rtol=1e-12)
    np.testing.assert_allclose(tg.vmap(np.roots)(x[:, 0]), [np.roots(p) for p in x[:, 0]], rtol=1e-12)

    def norm(a: Any) -> Any:
        return np.sum(np.abs(np.linalg.eigvals(a)) ** 3)

    for k, gradient in enumerate(tg.vmap(tg.grad(norm))(x)):
        np.testing.assert_allclose(np.sum(gradient * T), differences(norm, x[k], T), rtol=1e-7)
    transposed = tg.vmap(lambda a: tg.jvp(tg.grad(norm), (a,), (T,))[1])(x)
    np.testing.assert_allclose(transposed[0], tg.jvp(tg.grad(norm), (A,), (T,))[1], rtol=1e-9)


def test_matrices_that_are_none_are_refused() -> None:
    for function in (np.linalg.eig, np.linalg.eigvals):
        assert function in FUNCTIONS
        with pytest.raises(np.linalg.LinAlgError, match="square"):
            tg.trace(lambda x: function(x))(A[:3])  # noqa: B023
    with pytest.raises(ValueError, match="rank-1"):
        tg.trace(lambda x: np.roots(x))(A)
    with pytest.raises(ValueError, match="1d or non-empty square 2d"):
        tg.trace(lambda x: np.poly(x))(A[:3])
