"""Products of arrays that lie in any order: NumPy's numbers, and no copies where BLAS needs none."""

from __future__ import annotations

from collections.abc import Callable
from inspect import getsource
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.codegen.loopir.steps import Launch, Matmul
from tracegrad.codegen.plan.planner import plan

rng = np.random.default_rng(0)

B, T, H, E, S = 3, 11, 2, 10, 12


def heads(x: Any) -> Any:
    """Rows of H heads beside each other, head by head."""
    *_, t, d = x.shape
    return x.reshape(B, t, H, d // H).transpose(0, 2, 1, 3)


Q, K, V = (B, T, H * E), (B, S, H * E), (B, S, H * E)
W, M = (E * H, 13), (B, E, 14)

# A function, shapes, and how many kernels there are besides the products.
CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]], int]] = {
    "a transposed matrix": (lambda x, y: x.T @ y, [(20, 30), (20, 40)], 0),
    "two of them": (lambda x, y: x.T @ y.T, [(20, 30), (40, 20)], 0),
    "a transposed product": (lambda x, y: (x @ y).T, [(30, 20), (20, 40)], 0),
    "of transposed ones": (lambda x, y: (x.T @ y.T).T, [(20, 30), (40, 20)], 0),
    "a stack of transposed ones": (lambda x, y: x.swapaxes(1, 2) @ y, [(B, 20, 30), (B, 20, 40)], 0),
    "a stack in another order": (lambda x, y: x.transpose(1, 0, 2) @ y, [(20, B, 30), (B, 30, 40)], 0),
    "two orders": (lambda x, y: x.transpose(1, 0, 2) @ y.transpose(2, 0, 1), [(20, B, 30), (30, 40, B)], 1),
    "a matrix for all": (lambda x, y: x @ y, [(20, 30), (B, 30, 40)], 0),
    "a transposed matrix for all": (lambda x, y: x.T @ y, [(30, 20), (B, H, 30, 40)], 0),
    "some for all": (lambda x, y: x[:, None] @ y, [(B, 20, 30), (B, H, 30, 40)], 0),
    "others for all": (lambda x, y: x @ y, [(B, H, 20, 30), (H, 30, 40)], 0),
    "heads": (lambda q, k: heads(q) @ heads(k).swapaxes(-1, -2), [Q, K], 0),
    "heads, put together": (
        lambda q, k, v: (heads(q) @ heads(k).swapaxes(-1, -2) @ heads(v)).transpose(0, 2, 1, 3).reshape(B, T, H * E),
        [Q, K, V],
        0,
    ),
    "heads, put together and multiplied": (
        lambda s, v, w: (s @ heads(v)).transpose(0, 2, 1, 3).reshape(B * T, H * E) @ w,
        [(B, H, T, S), V, W],
        0,
    ),
    "heads of what is computed": (lambda q, k: heads(np.tanh(q)) @ heads(k).swapaxes(-1, -2), [Q, K], 1),
    "heads that are used twice": (
        lambda q, k: (heads(q) @ heads(k).swapaxes(-1, -2), heads(q).sum(-1)),
        [Q, K],
        2,
    ),
    "a transposed product that is used twice": (
        lambda x, y: ((x @ y).T, np.tanh(x @ y)),
        [(30, 20), (20, 40)],
        1,
    ),
    "three runs": (
        lambda x, y: x.transpose(2, 0, 4, 1, 3) @ y,
        [(2, 20, 3, 30, 4), (3, 2, 4, 30, 10)],
        1,
    ),
    "einsum": (lambda x, y: np.einsum("bthe,bshe->bhts", x, y), [(B, T, H, E), (B, S, H, E)], 1),  # in NumPy's order
    "einsum of sums": (lambda x, y: np.einsum("bhts,bshe->bthe", x, y), [(B, H, T, S), (B, S, H, E)], 0),
    "einsum of matrices": (lambda x, y: np.einsum("bij,bjk->bik", x, y), [(B, 9, 10), (B, 10, 11)], 0),
    "einsum of turned ones": (lambda x, y: np.einsum("jbi,kbj->bik", x, y), [(9, B, 10), (11, B, 9)], 0),
    "einsum, turned": (lambda x, y: np.einsum("bij,bjk->kbi", x, y), [(B, 9, 10), (B, 10, 11)], 0),
    "a stack of one": (lambda x, y: x.transpose(1, 2, 0) @ y, [(20, 1, 30), (1, 20, 40)], 0),
    "rows of one": (lambda x, y: x.transpose(1, 0, 2) @ y, [(9, B, 1), (B, 1, 9)], 1),
    "nothing": (lambda x, y: x.transpose(1, 0, 2) @ y, [(20, 0, 30), (0, 30, 40)], 0),
    "sums of nothing": (lambda x, y: x.transpose(1, 0, 2) @ y, [(20, B, 0), (B, 0, 40)], 0),
    "transposed sums of nothing": (lambda x, y: (x @ y).T, [(20, 0), (0, 40)], 0),
}

each_case = pytest.mark.parametrize("name", CASES)


def arrays(name: str, dtype: str) -> list[Any]:
    return [rng.normal(size=shape).astype(dtype) for shape in CASES[name][1]]


def close(got: Any, want: Any) -> None:
    tolerance = 1e-12 if want.dtype == np.float64 else 1e-4
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@each_case
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_products_are_those_of_numpy(name: str, dtype: str) -> None:
    f, xs = CASES[name][0], arrays(name, dtype)
    got, want = tg.trace(f)(*xs), f(*xs)
    for x, y in zip(got, want) if isinstance(want, tuple) else [(got, want)]:
        close(x, y)


@each_case
def test_what_blas_can_read_and_write_is_not_copied(name: str) -> None:
    f, _, kernels = CASES[name]
    steps = plan(tg.trace(f).explain(*arrays(name, "float64")).optimized).steps
    assert sum(isinstance(step, Launch) for step in steps) == kernels


@each_case
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int32", "int64"])
def test_products_of_integers_and_booleans_are_kernels(name: str, dtype: str) -> None:
    """BLAS does not know them, and NumPy's loops read a factor column by column."""
    f, xs = CASES[name][0], [rng.integers(0, 100, x.shape).astype(dtype) for x in arrays(name, "float64")]
    if "tanh" in getsource(f):
        pytest.skip("a product of floats")
    got, want = tg.trace(f)(*xs), f(*xs)
    for x, y in zip(got, want) if isinstance(want, tuple) else [(got, want)]:
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)
    assert all(isinstance(step, Launch) for step in plan(tg.trace(f).explain(*xs).optimized).steps)


def test_two_transposed_matrices_are_read_along_their_rows() -> None:
    """As is the product of which theirs is the transposed one."""
    x, y = (rng.integers(0, 9, shape) for shape in ((20, 30), (40, 20)))
    one, transposed = plan(tg.trace(lambda x, y: x.T @ y.T).explain(x, y).optimized).steps
    (other,) = plan(tg.trace(lambda x, y: y @ x).explain(x, y).optimized).steps
    assert isinstance(transposed, Launch)
    assert transposed.kernel.cost == 2  # which moves elements
    assert one.kernel.signature()[0] == other.kernel.signature()[0]  # type: ignore[union-attr]


def total(f: Any, *xs: Any) -> Any:
    result = f(*xs)
    return sum(np.sum(np.sin(x)) for x in (result if isinstance(result, tuple) else (result,)))


@each_case
def test_derivatives_of_products(name: str) -> None:
    f, xs = CASES[name][0], arrays(name, "float64")
    which = tuple(range(len(xs)))
    derivatives = tg.grad(lambda *xs: total(f, *xs), which)(*xs)
    directions = [rng.normal(size=x.shape) for x in xs]
    for k in which:
        moved = [x + 1e-30j * d if i == k else x for i, (x, d) in enumerate(zip(xs, directions))]
        np.testing.assert_allclose(np.sum(derivatives[k] * directions[k]), total(f, *moved).imag / 1e-30, rtol=1e-9)


@each_case
def test_products_in_a_loop(name: str) -> None:
    """There machine code has the distances, not words."""
    f, xs = CASES[name][0], arrays(name, "float64")

    def repeated(*xs: Any) -> Any:
        result = 0.0
        for k in range(20):
            result = result + total(f, *[x * (1 + 0.1 * k) for x in xs])
        return result

    np.testing.assert_allclose(tg.trace(repeated)(*xs), repeated(*xs), rtol=1e-11)


def test_the_layout_is_that_of_the_program_and_not_of_its_sizes() -> None:
    """One machine code of a loop serves all sizes, so distances follow from them."""

    def f(q: Any, k: Any) -> Any:
        result = 0.0
        for _ in range(20):
            b, t, d = q.shape
            first, second = (x.reshape(b, t, 2, d // 2).transpose(0, 2, 1, 3) for x in (q, k))
            q = q + 0.01 * (first @ second.swapaxes(-1, -2) @ second).transpose(0, 2, 1, 3).reshape(q.shape)
            result = result + np.sum(q)
        return result

    traced = tg.trace(f)
    for b, t, d in ((3, 9, 20), (4, 20, 18), (2, 33, 40)):
        q, k = rng.normal(size=(2, b, t, d)) * 0.1
        np.testing.assert_allclose(traced(q, k), f(q, k), rtol=1e-11)


def test_a_product_that_is_transposed_and_added_to_something() -> None:
    x, y, z = rng.normal(size=(30, 20)), rng.normal(size=(20, 40)), rng.normal(size=(40, 30))

    def f(x: Any, y: Any, z: Any) -> Any:
        old = np.tanh(z)
        return (old + (x @ y).T) @ x, (y.T @ x.T - np.cos(z)) @ x

    for got, want in zip(tg.trace(f)(x, y, z), f(x, y, z)):
        close(got, want)


def test_a_product_that_is_written_transposed_says_so() -> None:
    result = plan(tg.trace(lambda x, y: (x @ y).T.reshape(-1)).explain(np.ones((30, 20)), np.ones((20, 40))).optimized)
    (step,) = result.steps
    assert isinstance(step, Matmul)
    assert (step.x[1], step.y[1]) == (True, True)


def test_a_product_that_a_kernel_reads_transposed_is_written_so() -> None:
    """Its rows lie in memory as they are summed; what a product reads lies either way."""
    x, y, z = rng.normal(size=(3, 20, 30)), rng.normal(size=(3, 30, 40)), rng.normal(size=(3, 20, 50))

    def rows(x: Any, y: Any) -> Any:
        return np.sum((x @ y).transpose(2, 0, 1) ** 2, axis=2)

    def factor(x: Any, y: Any, z: Any) -> Any:
        return (x @ y).swapaxes(1, 2) @ z

    read, multiplied = tg.trace(rows), tg.trace(factor)
    close(read(x, y), rows(x, y))
    close(multiplied(x, y, z), factor(x, y, z))
    first, second, *_ = read.explain(x, y).kernels
    assert first.startswith("matmul b2 = b1.T @ b0.T")
    assert "load b2[i2 + i1*s0]" in second
    assert multiplied.explain(x, y, z).kernels[0].startswith("matmul b3 = b0 @ b1")


@pytest.mark.parametrize("shape", [(7, 40, 20), (2, 3, 40, 20), (0, 40, 20), (1, 40, 20)])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_sums_of_stacks_of_products_are_one_product(shape: tuple[int, ...], dtype: str) -> None:
    x, y = (rng.normal(size=(*shape[:-1], n)).astype(dtype) for n in (shape[-1], 30))
    lead = tuple(range(len(shape) - 2))

    def f(x: Any, y: Any) -> Any:
        return np.sum(x.swapaxes(-1, -2) @ y, axis=lead)

    tolerance = 1e-11 if dtype == "float64" else 1e-3
    np.testing.assert_allclose(tg.trace(f)(x, y), f(x, y), rtol=tolerance, atol=tolerance)
    products = [node for node in tg.trace(f).explain(x, y).optimized.nodes if node.name == "matmul"]
    assert [node.aval.size for node in products] == [20 * 30]


def test_a_stack_of_products_that_is_used_is_summed_as_it_is() -> None:
    x, y = rng.normal(size=(7, 40, 20)), rng.normal(size=(7, 40, 30))

    def f(x: Any, y: Any) -> Any:
        product = x.swapaxes(-1, -2) @ y
        return product, np.sum(product, axis=0)

    for got, want in zip(tg.trace(f)(x, y), f(x, y)):
        np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-11)
    products = [node for node in tg.trace(f).explain(x, y).optimized.nodes if node.name == "matmul"]
    assert [node.aval.shape for node in products] == [(7, 20, 30)]


@pytest.mark.parametrize(
    ("shapes", "ops"),
    [
        (((4, 3), (3, 5)), ["matmul"]),
        (((2, 4, 3), (2, 3, 5)), ["matmul"]),
        (((4, 3), (3,)), ["reshape", "matmul", "reshape"]),
        (((2, 4, 3), (3, 5)), ["reshape", "matmul", "reshape"]),
        (((4, 3), (2, 3, 5)), ["broadcast_to", "matmul"]),
    ],
)
def test_nothing_is_recorded_that_leaves_a_factor_or_a_product_as_it_is(shapes: Any, ops: list[str]) -> None:
    x, y = (rng.normal(size=shape) for shape in shapes)
    traced = tg.trace(lambda x, y: x @ y)
    assert [node.name for node in traced.graph(x, y).nodes] == ops
    np.testing.assert_allclose(traced(x, y), x @ y, rtol=1e-12)
