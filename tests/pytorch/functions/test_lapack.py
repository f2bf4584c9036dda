"""Results with error codes, LDL factors and reflectors against LAPACK's equations, eager and traced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad import linalg
from tracegrad.typing import NDArray

RNG = np.random.default_rng(4)
DTYPES = ["float32", "float64", "complex64", "complex128"]
MODES: dict[str, Any] = {"eager": lambda f: f, "traced": tg.trace}


def stack(dtype: str, *shape: int) -> NDArray:
    x = RNG.standard_normal(shape)
    return (x + 1j * RNG.standard_normal(shape) if dtype.startswith("c") else x).astype(dtype)


def close(x: Any, y: Any) -> None:
    rtol = 1e-4 if x.dtype in (tg.float32, tg.complex64) else 1e-11
    np.testing.assert_allclose(np.asarray(x.detach()), np.asarray(y.detach()), rtol, rtol)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_cannot_be_factored_has_a_code_and_no_gradient(dtype: str, mode: str) -> None:
    a = stack(dtype, 4, 3, 3)
    a = a @ np.conj(np.swapaxes(a, -1, -2)) + np.eye(3, dtype=dtype)
    a[1] *= -1
    a[2, 1:] = 0

    def run(x: Any) -> Any:
        (L, info), upper = linalg.cholesky_ex(x), linalg.cholesky_ex(x, upper=True).L
        inverse, zero_pivots = linalg.inv_ex(x)
        solution, codes = linalg.solve_ex(x, x[:, 0])
        from_right, _ = linalg.solve_ex(x, x[:, :1], left=False)
        return L, info, upper, inverse, zero_pivots, solution, codes, from_right

    x = tg.tensor(a, requires_grad=True)
    L, info, upper, inverse, zero_pivots, solution, codes, from_right = MODES[mode](run)(x)
    assert (info.tolist(), zero_pivots.tolist(), codes.tolist()) == ([0, 1, 2, 0], [0, 0, 2, 0], [0, 0, 2, 0])
    good, regular = [0, 3], [0, 1, 3]
    close(L[good] @ L[good].mH, x[good])
    close(upper[good], L[good].mH)
    close(inverse[regular] @ x[regular], tg.eye(3, dtype=x.dtype).expand(3, 3, 3))
    close((x[regular] @ solution[regular, :, None])[..., 0], x[regular, 0])
    close(from_right[regular] @ x[regular], x[regular, :1])
    for nothing in (inverse, solution, from_right):
        assert nothing[2].isnan().all()
    linalg.cholesky_ex(x).L[good].abs().sum().backward()
    assert x.grad is not None
    assert x.grad[[1, 2]].abs().max() == 0
    assert x.grad.isfinite().all()


def test_gradients_are_those_of_the_functions_without_codes() -> None:
    a = stack("float64", 2, 3, 3)
    x = tg.tensor(a @ np.swapaxes(a, -1, -2) + np.eye(3), requires_grad=True)
    y = tg.tensor(stack("float64", 2, 3, 2), requires_grad=True)
    pairs: list[tuple[Any, Any]] = [
        (lambda: linalg.cholesky_ex(x).L, lambda: linalg.cholesky(x)),
        (lambda: linalg.inv_ex(x).inverse, lambda: linalg.inv(x)),
        (lambda: linalg.solve_ex(x, y).result, lambda: linalg.solve(x, y)),
    ]
    for pair in pairs:
        first, second = (tg.autograd.grad((f() ** 2).sum(), x) for f in pair)
        close(first[0], second[0])
    assert tg.autograd.gradcheck(lambda x, y: linalg.solve_ex(x, y).result, (x, y))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_ldl_factors_solve_their_systems(dtype: str, hermitian: bool, mode: str) -> None:
    a = stack(dtype, 2, 4, 4)
    a = a + (np.conj(np.swapaxes(a, -1, -2)) if hermitian else np.swapaxes(a, -1, -2))
    b = tg.tensor(stack(dtype, 3, 1, 4, 2))

    def run(x: Any, b: Any) -> Any:
        LD, pivots, info = linalg.ldl_factor_ex(x, hermitian=hermitian)
        return linalg.ldl_solve(LD, pivots, b, hermitian=hermitian), pivots, info

    x, pivots, info = MODES[mode](run)(tg.tensor(a), b)
    assert (pivots.dtype, info.tolist(), x.shape) == (tg.int32, [0, 0], (3, 2, 4, 2))
    assert set(pivots.abs().reshape(-1).tolist()) <= {1, 2, 3, 4}
    close(tg.tensor(a) @ x, b.expand(3, 2, 4, 2))
    assert linalg.ldl_factor(tg.tensor(a), hermitian=hermitian).pivots.shape == (2, 4)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", [(5, 3), (2, 3, 5), (4, 4), (1, 1)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_reflectors_multiply_as_the_whole_orthogonal_factor(dtype: str, shape: tuple[int, ...], mode: str) -> None:
    def run(x: Any) -> Any:
        a, tau = tg.geqrf(x)
        R = a.triu()
        return tg.ormqr(a, tau, R), a.ormqr(tau, x, transpose=True), R, tg.ormqr(a, tau, R.mH, False, True)

    x = tg.tensor(stack(dtype, *shape))
    product, back, R, adjoint = MODES[mode](run)(x)
    close(product, x)
    close(back, R)
    close(adjoint, x.mH)


def test_products_with_reflectors_have_gradients() -> None:
    a, tau = tg.geqrf(tg.tensor(stack("float64", 4, 3)))
    inputs = [x.detach().requires_grad_() for x in (a, tau, tg.tensor(stack("float64", 4, 2)))]
    for transpose in (False, True):
        assert tg.autograd.gradcheck(lambda a, tau, b, t=transpose: tg.ormqr(a, tau, b, transpose=t), inputs)


@pytest.mark.parametrize("shape", [(0, 2, 2), (2, 0, 0)])
def test_empty_matrices_have_empty_factors(shape: tuple[int, ...]) -> None:
    x = tg.zeros(shape)
    for factors in (linalg.cholesky_ex(x), linalg.inv_ex(x), linalg.ldl_factor_ex(x)):
        assert factors[0].shape == shape
        assert factors.info.tolist() == [0] * shape[0]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: linalg.cholesky_ex(-x, check_errors=True), r"\(Batch element 0\): .*leading minor of order 1 is"),
        (lambda x: linalg.inv_ex(0 * x[0], check_errors=True), "linalg.inv_ex: The diagonal element 1 is zero"),
        (lambda x: linalg.solve_ex(0 * x, x, check_errors=True), r"\(Batch element 0\): The solver failed because"),
        (lambda x: linalg.ldl_factor_ex(0 * x, check_errors=True), r"Factor D\[1,1\] is zero"),
        (lambda x: linalg.cholesky_ex(x[:, :1]), "batches of square matrices"),
        (lambda x: linalg.ldl_solve(x, tg.ones(2, 3), x), "Expected pivots to be integers. Got Double"),
        (
            lambda x: linalg.ldl_solve(x, tg.ones(2, 3).int(), x[:, :2]),
            "each A matrix is 3 by 3 but each b",
        ),
        (lambda x: tg.ormqr(x, tg.ones(2, 3), x[:, :2]), r"other.shape\[-2\] must be equal to input.shape\[-2\]"),
        (lambda x: tg.ormqr(x, tg.ones(2, 4), x), "tau.shape"),
        (lambda x: tg.geqrf(x[0, 0]), "at least 2 dimensions"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call: Any, text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        call(tg.eye(3).expand(2, 3, 3))
