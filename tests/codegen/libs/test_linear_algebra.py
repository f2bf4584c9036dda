"""Factorizations and solvers that compiled code calls without Python, against NumPy and SciPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import tracegrad as tg
from tracegrad.codegen.libs import linear_algebra
from tracegrad.codegen.plan.planner import plan
from tracegrad.codegen.program.encode import encode_program
from tracegrad.ops.linalg.solve import solve_triangular
from tracegrad.runtime.threads import pool
from tracegrad.settings import settings

rng = np.random.default_rng(0)


@pytest.fixture
def thread_counts() -> Iterator[tuple[int, ...]]:
    before = settings.thread_count()
    yield 1, 2, 4
    pool.set_num_threads(before)


def positive(*shape: int, dtype: str = "float64") -> Any:
    x = rng.normal(size=shape)
    return (x @ x.swapaxes(-1, -2) + shape[-1] * np.eye(shape[-1])).astype(dtype)


def native_calls(f: Any, *args: Any) -> list[str]:
    """The calls of a compiled function that need no Python."""
    orders = encode_program(plan(tg.trace(f).explain(*args).optimized))
    return [str(o.function).split(".")[1] for o in orders if str(o.function).startswith(linear_algebra.NATIVE)]


def close(got: Any, want: Any, dtype: str) -> None:
    assert got.dtype == want.dtype
    tolerance = 1e-12 if dtype == "float64" else 1e-4
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


dtypes = pytest.mark.parametrize("dtype", ["float64", "float32"])
sizes = pytest.mark.parametrize("n", [1, 7, 17, 131, 150])
stacks = pytest.mark.parametrize("lead", [(), (3,), (2, 2)])


@dtypes
@sizes
@stacks
def test_a_cholesky_factor_is_that_of_numpy(n: int, lead: tuple[int, ...], dtype: str) -> None:
    x = positive(*lead, n, n, dtype=dtype)
    f = tg.trace(np.linalg.cholesky)
    close(f(x), np.linalg.cholesky(x), dtype)
    assert np.all(np.triu(f(x), 1) == 0)
    assert native_calls(np.linalg.cholesky, x) == ["cholesky"]


@dtypes
@sizes
@stacks
@pytest.mark.parametrize("columns", [0, 1, 5, 200])
def test_a_system_has_the_solutions_of_numpy(n: int, lead: tuple[int, ...], columns: int, dtype: str) -> None:
    a = (rng.normal(size=(*lead, n, n)) + n * np.eye(n)[::-1]).astype(dtype)  # rows are exchanged
    b = rng.normal(size=(*lead, n, columns)).astype(dtype)
    close(tg.trace(np.linalg.solve)(a, b), np.linalg.solve(a, b), dtype)
    assert native_calls(np.linalg.solve, a, b) == ["solve"][:columns]


@dtypes
@sizes
@pytest.mark.parametrize("columns", [1, 5, 200])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("unit", [True, False])
def test_a_triangular_system_reads_one_triangle(
    n: int, columns: int, lower: bool, transposed: bool, unit: bool, dtype: str
) -> None:
    params = {"lower": lower, "transposed": transposed, "unit": unit}

    def f(a: Any, b: Any) -> Any:
        return solve_triangular(a, b, **params)

    a = (rng.normal(size=(n, n)) / n + 2 * np.eye(n)).astype(dtype)
    b = rng.normal(size=(n, columns)).astype(dtype)
    want = scipy.linalg.solve_triangular(a, b, lower=lower, trans=int(transposed), unit_diagonal=unit)
    other = np.triu(np.ones((n, n), bool), 1) if lower else np.tril(np.ones((n, n), bool), -1)
    a[other] = np.nan
    close(tg.trace(f)(a, b), want, dtype)
    stack = tg.trace(f)(np.stack([a, 2 * a]), np.stack([b, 2 * b]))
    close(stack[0], want, dtype)
    assert native_calls(f, a, b) == ["solve_triangular"]


@dtypes
@pytest.mark.parametrize("n", [1, 7, 64, 65, 131, 200, 300])
@pytest.mark.parametrize("lead", [(), (2,)])
def test_the_derivative_of_a_factor_is_that_of_the_formula(n: int, lead: tuple[int, ...], dtype: str) -> None:
    """Murray's equation 10, with all of its products, on the graph's own derivative by halves."""
    x, ct = positive(*lead, n, n, dtype=dtype), rng.normal(size=(*lead, n, n)).astype(dtype)
    f = tg.grad(lambda x, ct: np.sum(np.linalg.cholesky(x) * ct))
    factor = np.linalg.cholesky(x.astype("float64"))
    inner = np.tril(factor.swapaxes(-1, -2) @ ct) * (1 - 0.5 * np.eye(n))
    inverse = np.linalg.inv(factor)
    whole = inverse.swapaxes(-1, -2) @ inner @ inverse
    want = ((whole + whole.swapaxes(-1, -2)) / 2).astype(dtype)
    close(f(x, ct), want, dtype)
    np.testing.assert_array_equal(f(x, ct), f(x, ct).swapaxes(-1, -2))
    assert native_calls(f, x, ct) == ["cholesky", "cholesky_pullback"]


@pytest.mark.parametrize("upper", [False, True])
def test_one_triangle_is_read_and_the_other_may_hold_anything(upper: bool) -> None:
    x, ct = positive(90, 90), rng.normal(size=(90, 90))
    garbage = np.where(upper == np.tri(90, dtype=bool).T, x, np.nan)
    np.fill_diagonal(garbage, np.diag(x))

    def f(x: Any) -> Any:
        return np.sum(np.linalg.cholesky(x, upper=upper) * ct)

    close(tg.trace(f)(garbage), f(x), "float64")
    close(tg.grad(f)(garbage), tg.grad(f)(x), "float64")
    h = 1e-6 * (ct + ct.T)
    np.testing.assert_allclose(np.sum(tg.grad(f)(x) * h), (f(x + h) - f(x - h)) / 2, rtol=1e-6)


def test_second_derivatives_of_a_factor_are_those_of_differences() -> None:
    x, u, v = positive(70, 70), *rng.normal(size=(2, 70, 70))
    u, v = u + u.T, v + v.T

    def slope(x: Any) -> Any:
        return np.sum(tg.grad(lambda x: np.sum(np.sin(np.linalg.cholesky(x))))(x) * u)

    h = 1e-5
    want = (slope(x + h * v) - slope(x - h * v)) / (2 * h)
    np.testing.assert_allclose(np.sum(tg.grad(slope)(x) * v), want, rtol=1e-6)
    np.testing.assert_allclose(tg.jvp(slope, (x,), (v,))[1], want, rtol=1e-6)


def test_a_zero_on_the_diagonal_of_a_triangle_is_no_error() -> None:
    a = np.tril(np.ones((40, 40)))
    a[3, 3] = 0.0
    x = tg.trace(lambda a, b: solve_triangular(a, b, lower=True, transposed=False, unit=False))(a, np.ones((40, 1)))
    assert np.isfinite(x[:3]).all()
    assert not np.isfinite(x[3:]).any()


@pytest.mark.parametrize("n", [1, 30])
def test_what_cannot_be_factored_raises_as_in_numpy_and_what_can_is_factored_afterwards(n: int) -> None:
    good, bad = positive(n, n), -np.eye(n)
    f, g = tg.trace(lambda x: np.linalg.cholesky(x) + 1.0), tg.trace(lambda a, b: np.linalg.solve(a, b) + 1.0)
    for _ in range(3):
        np.testing.assert_allclose(f(good), np.linalg.cholesky(good) + 1.0, rtol=1e-12)
        with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
            f(bad)
        np.testing.assert_allclose(g(good, np.ones(n)), np.linalg.solve(good, np.ones(n)) + 1.0, rtol=1e-12)
        with pytest.raises(np.linalg.LinAlgError, match="Singular"):
            g(0 * good, np.ones(n))


def test_large_general_systems_are_left_to_numpy() -> None:
    a = np.eye(linear_algebra.MAX_ROWS + 1, dtype="float32")
    assert native_calls(np.linalg.solve, a, a[:, 0]) == []


def test_bits_do_not_depend_on_the_number_of_threads(thread_counts: tuple[int, ...]) -> None:
    a, b = positive(300, 300), rng.normal(size=(300, 300))

    def f(a: Any, b: Any) -> Any:
        factor = np.linalg.cholesky(a)
        derivative = tg.grad(lambda a: np.sum(np.linalg.cholesky(a) * b))(a)
        return derivative, factor, np.linalg.solve(factor, b), np.linalg.solve(factor.T, b), np.linalg.solve(a, b)

    results = []
    for count in thread_counts:
        pool.set_num_threads(count)
        results.append(tg.trace(f)(a, b))
    for other in results[1:]:
        for x, y in zip(results[0], other):
            np.testing.assert_array_equal(x, y)
    calls = ["cholesky", "cholesky_pullback", "solve", "solve_triangular", "solve_triangular"]
    assert sorted(native_calls(f, a, b)) == calls


@dtypes
def test_systems_with_a_cholesky_factor_are_triangular(dtype: str) -> None:
    a, b = positive(2, 20, 20, dtype=dtype), rng.normal(size=(2, 20, 3)).astype(dtype)

    def f(a: Any, b: Any) -> Any:
        factor = np.linalg.cholesky(a)
        return np.linalg.solve(factor.swapaxes(-1, -2), np.linalg.solve(factor, b))

    close(tg.trace(f)(a, b), np.linalg.solve(a, b), dtype)
    names = [node.name for node in tg.trace(f).explain(a, b).optimized.nodes]
    assert "solve" not in names
    assert names.count("solve_triangular") == 2


def likelihood(t: Any, x: Any, y: Any) -> Any:
    """Of a Gaussian process."""
    z = x * np.exp(-t[0])
    squares = np.sum(z * z, 1)
    k = np.exp(t[1] - 0.5 * (squares[:, None] + squares - 2 * z @ z.T)) + np.exp(t[2]) * np.eye(len(y))
    factor = np.linalg.cholesky(k)
    half = np.linalg.solve(factor, y)
    return -0.5 * half @ half - np.sum(np.log(np.diagonal(factor))) + 0.1 * y @ np.linalg.solve(k, y)


def test_the_derivative_of_a_likelihood() -> None:
    t, x, y = np.array([0.1, 0.2, -1.0]), rng.normal(size=(50, 3)), rng.normal(size=50)
    value, derivatives = tg.value_and_grad(likelihood)(t, x, y)
    np.testing.assert_allclose(value, likelihood(t, x, y), rtol=1e-12)
    steps = 1e-5 * np.eye(3)
    differences = [(likelihood(t + h, x, y) - likelihood(t - h, x, y)) / 2e-5 for h in steps]
    np.testing.assert_allclose(derivatives, differences, rtol=1e-7)


SPECIAL = {
    "exchanged rows": [[0.0, 1.0], [1.0, 0.0]],
    "a negative zero": [[-0.0, 1.0], [1.0, 0.0]],
    "signs": np.diag([1.0, -2.0, 3.0, -4.0]),
    "nan": [[np.nan, 1.0], [1.0, 2.0]],
    "nan beside": [[1.0, np.nan], [1.0, 2.0]],
    "infinity": [[np.inf, 1.0], [1.0, 2.0]],
    "a product too large": np.eye(30) * 1e30,
    "a product too small": np.eye(30) * 1e-30,
    "rows that are alike": [[1.0, 2.0], [2.0, 4.0]],
    "zeros": np.zeros((3, 3)),
    "one of several": np.stack([np.eye(2), np.zeros((2, 2))]),
    "nothing": np.zeros((0, 0)),
    "none": np.zeros((0, 3, 3)),
}


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128"])
@pytest.mark.parametrize("name", [*SPECIAL, "any", "transposed", "several"])
def test_determinants_and_inverses_are_those_of_numpy(name: str, dtype: str) -> None:
    random = {
        "any": rng.normal(size=(9, 9)),
        "transposed": rng.normal(size=(9, 9)).T,
        "several": positive(2, 3, 40, 40),
    }
    a = np.asarray({**SPECIAL, **random}[name]).astype(dtype)
    with np.errstate(all="ignore"):
        for f in (np.linalg.det, np.linalg.slogdet):
            for got, want in zip(np.atleast_1d(*_several(tg.trace(f)(a))), np.atleast_1d(*_several(f(a)))):
                assert got.dtype == want.dtype
                np.testing.assert_allclose(got, want, rtol=1e-4 if dtype == "float32" else 1e-10)
        try:
            want = np.linalg.inv(a)
        except np.linalg.LinAlgError as error:
            with pytest.raises(np.linalg.LinAlgError, match=str(error)):
                tg.trace(np.linalg.inv)(a)
        else:
            np.testing.assert_allclose(tg.trace(np.linalg.inv)(a), want, rtol=2e-3 if dtype == "float32" else 1e-9)
    if dtype != "complex128" and a.size:
        assert native_calls(np.linalg.det, a) == native_calls(np.linalg.slogdet, a) == ["lu"]
        assert native_calls(lambda a: np.linalg.inv(a) * 2 if a.ndim else a, a) == ["solve"]


def _several(x: Any) -> tuple[Any, ...]:
    return (*x, 0.0) if isinstance(x, tuple) else (x, 0.0)


def test_in_a_loop_python_is_asked() -> None:
    a, b = positive(5, 20, 20), rng.normal(size=(20, 2))

    def f(a: Any, b: Any) -> Any:
        for k in range(5):
            b = np.linalg.solve(a[k], b)
        return b

    want = b
    for matrix in a:
        want = np.linalg.solve(matrix, want)
    np.testing.assert_allclose(tg.trace(f)(a, b), want, rtol=1e-10)

    def volumes(a: Any) -> Any:
        total = 0.0
        for k in range(len(a)):
            total = 0.5 * np.linalg.det(a[k] + 1e-6 * total)
        return total

    many = positive(40, 4, 4)
    np.testing.assert_allclose(tg.trace(volumes)(many), volumes(many), rtol=1e-10)
    assert native_calls(volumes, many) == ["lu"]  # for the last iteration, behind the loop


@dtypes
@stacks
@pytest.mark.parametrize("n", [1, 7, 64, 65, 131, 200])
def test_a_matrix_is_factored_once_for_all_that_is_asked_of_it(n: int, lead: tuple[int, ...], dtype: str) -> None:
    a = (rng.normal(size=(*lead, n, n)) + n**0.5 * np.eye(n)[::-1]).astype(dtype)  # rows are exchanged
    b, c = rng.normal(size=(2, *lead, n, 3)).astype(dtype)

    def f(a: Any, b: Any, c: Any) -> Any:
        transposed = a.swapaxes(-1, -2)
        return np.linalg.solve(a, b), np.linalg.solve(transposed, c), np.linalg.inv(a), *np.linalg.slogdet(transposed)

    for got, want in zip(tg.trace(f)(a, b, c), f(*[x.astype("float64") for x in (a, b, c)])):
        scale = np.max(np.abs(want))
        np.testing.assert_allclose(got / scale, want / scale, atol=1e-11 if dtype == "float64" else 2e-3)
    assert sorted(native_calls(f, a, b, c)) == ["lu", "lu_solve", "lu_solve", "lu_solve"]


def test_the_derivative_of_a_solution_needs_no_second_factorization() -> None:
    a, b = rng.normal(size=(80, 80)) + 9 * np.eye(80), rng.normal(size=80)

    def f(a: Any, b: Any) -> Any:
        return np.sum(np.linalg.solve(a, b) ** 2) + np.linalg.slogdet(a)[1]

    gradient = tg.grad(f, argnums=(0, 1))
    t, u = rng.normal(size=(80, 80)), rng.normal(size=80)
    h = 1e-6
    want = (f(a + h * t, b + h * u) - f(a - h * t, b - h * u)) / (2 * h)
    got = gradient(a, b)
    np.testing.assert_allclose(np.sum(got[0] * t) + got[1] @ u, want, rtol=1e-6)
    assert native_calls(gradient, a, b).count("lu") == 1
    assert "solve" not in native_calls(gradient, a, b)


def test_a_singular_matrix_that_is_factored_for_several_raises_as_in_numpy() -> None:
    f = tg.trace(lambda a, b: (np.linalg.solve(a, b), np.linalg.inv(a)))
    good, bad = positive(20, 20), np.ones((20, 20))
    for _ in range(3):
        close(f(good, bad)[1], np.linalg.inv(good), "float64")
        with pytest.raises(np.linalg.LinAlgError, match="Singular"):
            f(bad, good)
    g = tg.trace(lambda a: (*np.linalg.slogdet(a), *np.linalg.slogdet(a.T)))
    assert [float(x) for x in g(0 * good)] == [0.0, -np.inf, 0.0, -np.inf]
