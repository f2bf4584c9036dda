"""Products with diagonal matrices and diagonals of products: NumPy's numbers, without a product."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.ir import parse, run
from tracegrad.passes import simplify

rng = np.random.default_rng(0)

# Diagonal matrices of an array of numbers.
MADE: dict[str, Callable[[Any], Any]] = {
    "diag": np.diag,
    "diagflat": np.diagflat,
    "transposed": lambda d: np.diag(d).T,
    "where": lambda d: np.where(np.eye(len(d), dtype=bool), d[:, None], 0.0).astype(d.dtype),
    "where of rows": lambda d: np.where(np.arange(len(d))[:, None] == np.arange(len(d)), d, np.zeros(1, d.dtype)),
    "identity": lambda d: np.eye(len(d), dtype=d.dtype),
    "a multiple": lambda d: -2.5 * np.eye(len(d), dtype=d.dtype),
}
USED: dict[str, Callable[[Any, Any], Any]] = {
    "left": lambda d, a: d @ a,
    "right": lambda d, a: a.T @ d,
    "both": lambda d, a: np.dot(d, a[:, : len(a)]) @ d,
    "of a vector": lambda d, a: d @ a[:, 0],
    "of columns": lambda d, a: np.einsum("ij,jk->ik", d, a[:, :3]),
    "einsum": lambda d, a: np.einsum("ji,jk->ik", d, a),
}
UNUSUAL = {
    "finite": [],
    "inf": [np.inf],
    "-inf and nan": [-np.inf, np.nan],
    "zeros": [-0.0, 0.0],
    "denormal": [5e-324, -1e-310],
}


def compiled_graph(f: Any, *args: Any) -> Any:
    return tg.trace(f).explain(*args).optimized


def is_product(graph: Any) -> bool:
    return any(node.name == "matmul" for node in graph.nodes)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("unusual", UNUSUAL)
@pytest.mark.parametrize("used", USED)
@pytest.mark.parametrize("result", MADE)
def test_products_with_diagonal_matrices_are_those_of_numpy(result: str, used: str, unusual: str, dtype: str) -> None:
    n = 33

    def f(d: Any, a: Any) -> Any:
        return USED[used](MADE[result](d), a)

    d, a = rng.normal(size=n).astype(dtype), rng.normal(size=(n, 40)).astype(dtype)
    for k, x in enumerate(UNUSUAL[unusual]):
        a[3 + k, 5 * k] = d[20 + k] = x
    with np.errstate(all="ignore"):
        want = f(d, a)
    got = tg.trace(f)(d, a)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)
    # The sign of what is too small for a number depends on how it is added to the zeros.
    finite = np.isfinite(want) & ((want != 0) | (unusual != "denormal"))
    np.testing.assert_array_equal(np.signbit(got[finite]), np.signbit(want[finite]))
    assert not is_product(compiled_graph(f, d, a))


EYE = """
graph(%0: f64[40,50]) {
  %1 = arange() {dtype='int64', length=40, start=0, step=1} : i64[40]
  %2 = reshape(%1) {shape=(40, 1)} : i64[40,1]
  %3 = broadcast_to(%2) {shape=(40, 40)} : i64[40,40]
  %4 = broadcast_to(%1) {shape=(40, 40)} : i64[40,40]
  %5 = equal(%3, %4) : bool[40,40]
  %6 = cast(%5) {dtype='float64'} : f64[40,40]
  %7 = multiply(%6, -2.5) : f64[40,40]
  %8 = matmul(%7, %0) : f64[40,50]
  return %8
}
"""


def test_a_multiple_of_the_identity_is_known_in_a_graph() -> None:
    graph = parse(EYE)
    x = rng.normal(size=(40, 50))
    after = simplify(graph)
    assert not is_product(after)
    np.testing.assert_array_equal(run(after, [x])[0], -2.5 * x)


@pytest.mark.parametrize("n", [1, 9, 31, 32])
def test_small_ones_are_multiplied_as_any_others(n: int) -> None:
    d, a = rng.normal(size=n), rng.normal(size=(n, 12))
    f = tg.trace(lambda d, a: np.diag(d) @ a)
    np.testing.assert_allclose(f(d, a), d[:, None] * a, rtol=1e-15)
    assert is_product(f.explain(d, a).optimized) == (1 < n < 32)


# Matrices that have something beside their diagonal, or may have.
OTHERS: dict[str, Callable[[Any], Any]] = {
    "beside it": lambda d: np.diag(d[1:], 1),
    "not zero": lambda d: np.where(np.eye(len(d), dtype=bool), d, 1.0),
    "numbers times zero": lambda d: np.eye(len(d)) * d,
    "an infinite multiple": lambda d: np.inf * np.eye(len(d)),
    "turned": lambda d: np.where(np.arange(len(d))[:, None] == np.arange(len(d))[::-1], d, 0.0),
    "counted from one": lambda d: np.where(np.arange(len(d))[:, None] == np.arange(1, len(d) + 1), d, 0.0),
    "a row": lambda d: np.where(np.arange(len(d)) == np.zeros((len(d), 1)), d, 0.0),
}


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("special", [0.5, np.inf])
def test_what_is_not_known_to_be_diagonal_is_multiplied(name: str, special: float) -> None:
    d, a = rng.normal(size=40), rng.normal(size=(40, 41))
    d[3] = special

    def f(d: Any, a: Any) -> Any:
        return OTHERS[name](d) @ a

    np.testing.assert_allclose(tg.trace(f)(d, a), f(d, a), rtol=1e-13, atol=1e-14)
    assert is_product(compiled_graph(f, d, a))


DIAGONALS: dict[str, Callable[[Any, Any], Any]] = {
    "trace": lambda a, b: np.trace(a @ b),
    "diagonal": lambda a, b: 2 * np.diagonal(a @ b),
    "diag": lambda a, b: -np.diag(a @ b),
    "of the transposed": lambda a, b: 2 * np.diagonal((a @ b).T),
    "einsum": lambda a, b: np.einsum("ii->i", a @ b),
    "of a stack": lambda a, b: 2 * np.diagonal(np.stack([a, 2 * a]) @ np.stack([b, b + 1]), axis1=1, axis2=2),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", DIAGONALS)
def test_the_diagonal_of_a_product_needs_no_product(name: str, dtype: str) -> None:
    a, b = (rng.normal(size=shape).astype(dtype) for shape in ((40, 35), (35, 40)))
    f = DIAGONALS[name]
    tolerance = 1e-13 if dtype == "float64" else 1e-4
    for spoiled in (False, True):
        if spoiled:  # what is not on the diagonal spoils nothing
            a[3, 4], b[5, 6] = np.inf, np.nan
        with np.errstate(invalid="ignore"):
            np.testing.assert_allclose(tg.trace(f)(a, b), f(a, b), rtol=tolerance, atol=tolerance)
    assert not is_product(compiled_graph(f, a, b))


def test_a_product_of_which_more_is_used_is_computed_once() -> None:
    a = rng.normal(size=(40, 40))

    def f(a: Any) -> Any:
        product = a @ a
        return np.trace(product), np.max(product)

    np.testing.assert_allclose(tg.trace(f)(a), f(a), rtol=1e-12)
    assert is_product(compiled_graph(f, a))


def loss(d: Any, a: Any) -> Any:
    return np.sum(np.tanh(a.T @ np.diag(d) @ a)) + np.trace(a @ np.diag(np.cos(d)) @ a.T)


def test_derivatives_are_those_of_the_products() -> None:
    d, a = rng.normal(size=34), 0.1 * rng.normal(size=(34, 34))
    result = tg.grad(loss, (0, 1))(d, a)
    for k, x in enumerate((d, a)):
        direction = rng.normal(size=x.shape)
        args = [d, a]
        args[k] = x + 1e-30j * direction
        np.testing.assert_allclose(np.sum(result[k] * direction), loss(*args).imag / 1e-30, rtol=1e-11)
    hvp = tg.hvp(lambda d: loss(d, a), (d,), (d,))
    np.testing.assert_allclose(
        hvp, (tg.grad(loss)(d * (1 + 1e-6), a) - tg.grad(loss)(d * (1 - 1e-6), a)) / 2e-6, rtol=1e-6
    )
