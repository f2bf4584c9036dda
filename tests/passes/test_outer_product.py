"""Products with outer products: the same numbers, without a product of matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg

rng = np.random.default_rng(0)
N = 40
U, V, W = rng.normal(size=(3, N))
X, Y = rng.normal(size=(N, 30)), rng.normal(size=(20, N))
A, B = rng.normal(size=(2, 3, N))
C, Z = rng.normal(size=(3, N, 30)), rng.normal(size=(3, N, 20))


def reflected(v: Any, x: Any) -> Any:
    return (np.eye(N) - 2.0 * np.outer(v, v) / (v @ v)) @ x


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "before": (lambda u, v, x: np.outer(u, v) @ x, (U, V, X)),
    "behind": (lambda u, v, y: y @ np.outer(u, v), (U, V, Y)),
    "transposed": (lambda u, v, x: np.outer(u, v).T @ x, (U, V, X)),
    "scaled": (lambda u, v, x: (-2.0 * np.outer(u, v) / u[0]) @ x, (U, V, X)),
    "of three": (lambda u, v, w, y: y @ (np.outer(u, v) * w), (U, V, W, Y)),
    "divided": (lambda u, v, y: y @ (1.0 / np.outer(u, v)), (1 + U**2, 1 + V**2, Y)),
    "equal rows": (lambda u, y: y @ (u * np.ones((N, 1))), (U, Y)),
    "equal columns": (lambda u, y: y @ np.broadcast_to(u[:, None], (N, N)), (U, Y)),
    "reflection": (reflected, (V, X)),
    "diagonal and outer": (lambda u, v, y: y @ (np.diag(W) - np.outer(u, v)), (U, V, Y)),
    "sum of two": (lambda u, v, x: (np.outer(u, v) + np.outer(v, u)) @ x, (U, V, X)),
    "stack": (lambda a, b, z: (a[:, :, None] * b[:, None, :]) @ z, (A, B, Z)),
    "weighted rows": (lambda x, y, w: np.sum((y @ x) * w, axis=1), (X, Y, U[:30])),
    "weighted columns": (lambda x, y, w: np.sum(-(y @ x) * w[:, None] / 3.0, axis=0), (X, Y, U[:20])),
    "weighted rows by columns": (lambda x, y, w: np.sum(w[:, None] * (y @ x), axis=1), (X, Y, U[:20])),
    "scaled sums": (lambda x, y: np.sum(-2.0 * (y @ x), axis=0) / 7.0, (X, Y)),
    "sums of a stack": (lambda a, z: np.sum(np.transpose(z.mT @ a, (2, 0, 1)), axis=0), (C, Z)),
    "sums of rows, axes moved": (lambda a, z: -np.sum(np.transpose(-(z.mT @ a), (1, 2, 0)), axis=0).T, (C, Z)),
    "weighted, axes moved": (lambda a, z, w: np.sum(((z.mT @ a) * w).transpose(1, 0, 2), 2), (C, Z, A[:, None, :30])),
    "bilinear": (lambda x, y, u, v: np.sum(u[:, None] * (y @ x) * v), (X, Y, U[:20], V[:30])),
}


def products(f: Any, *args: Any) -> int:
    graph = tg.trace(f).explain(*args).optimized
    return sum(node.name == "matmul" for node in graph.everywhere())


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_but_vectors_is_multiplied(name: str) -> None:
    f, args = PROGRAMS[name]
    np.testing.assert_allclose(tg.trace(f)(*args), f(*args), rtol=1e-11, atol=1e-11)
    assert products(f, *args) == 0


@pytest.mark.parametrize("name", PROGRAMS)
def test_nor_by_the_derivative(name: str) -> None:
    f, args = PROGRAMS[name]

    def loss(*args: Any) -> Any:
        return np.sum(np.sin(0.1 * f(*args)))

    gradient = tg.grad(loss, argnums=tuple(range(len(args))))
    tangents = [rng.normal(size=x.shape) for x in args]
    derivative = sum(np.sum(g * t) for g, t in zip(gradient(*args), tangents))
    h = 1e-6
    ends = [loss(*[x + sign * h * t for x, t in zip(args, tangents)]) for sign in (1, -1)]
    np.testing.assert_allclose(derivative, (ends[0] - ends[1]) / (2 * h), rtol=1e-6)
    assert products(gradient, *args) == 0


@pytest.mark.parametrize("where", ["u", "v", "x"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_was_not_finite_is_not_finite(where: str, value: float) -> None:
    args = {"u": U.copy(), "v": V.copy(), "x": X.copy()}
    args[where][3] = value
    f = PROGRAMS["before"][0]
    with np.errstate(all="ignore"):
        want = f(*args.values())
    np.testing.assert_array_equal(np.isfinite(tg.trace(f)(*args.values())), np.isfinite(want))


def test_what_is_no_outer_product_is_multiplied_as_it_is() -> None:
    full = rng.normal(size=(N, N))
    assert products(lambda u, v, x: (full + np.outer(u, v)) @ x, U, V, X) == 1
    assert products(lambda u, v, x: np.sin(np.outer(u, v)) @ x, U, V, X) == 1
    assert products(lambda x, y: np.sum(2.0 * (y @ x)), X, Y) == 1
    assert products(lambda x, y: (np.sum(2.0 * (y @ x), axis=0), np.sin(y @ x)), X, Y) == 1
    assert products(lambda x, y: (np.sum(y @ x, axis=0), -(y @ x)), X, Y) == 1
    assert products(lambda x, y: (np.sum(y @ x, axis=0), y @ x), X, Y) == 1
    assert products(lambda x, y: np.sum(y @ x, axis=0), X, Y) == 0
    assert products(lambda u, v, x: np.outer(u, v) @ x, U[:12], V[:12], X[:12, :12]) == 1
    assert products(lambda x, y: np.sum(y @ x, axis=0), X[:12, :14], Y[:18, :12]) == 1
    assert products(lambda x, y: np.sum(y @ x, axis=0), X[:12], Y[:18, :12]) == 0
