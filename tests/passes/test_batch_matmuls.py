"""Products of all iterations of a loop at once: the same numbers, by fewer calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.ir import Graph
from tracegrad.passes import join_products_of_iterations, optimize, simplify
from tracegrad.passes.loops import batch_matmuls

rng = np.random.default_rng(0)

T, P, D, H = 30, 8, 20, 24
ROWS, INTO, AGAIN, BIAS = (T, P, D), (D, H), (H, H), (H,)


def recurrent(xs: Any, w: Any, u: Any, b: Any) -> Any:
    h = np.zeros((xs.shape[1], u.shape[0]), xs.dtype)
    for x in xs:
        h = np.tanh(x @ w + h @ u + b)
    return np.sum(h**2)


def transposed(xs: Any, w: Any, u: Any, b: Any) -> Any:
    h = np.zeros((xs.shape[1], u.shape[0]), xs.dtype)
    for x in xs:
        h = np.tanh(x @ w.T + h @ u.T + b)
    return np.sum(h**2)


def from_the_end(xs: Any, w: Any, u: Any, b: Any) -> Any:
    h = np.zeros((xs.shape[1], u.shape[0]), xs.dtype)
    for x in xs[::-1]:
        h = np.tanh(x @ w + h @ u + b)
    return np.sum(h**2)


def all_states(xs: Any, w: Any, u: Any, b: Any) -> Any:
    h, result = np.zeros((xs.shape[1], u.shape[0]), xs.dtype), []
    for x in xs:
        z = x @ w
        h = np.tanh(z + h @ u + b)
        result.append(h * z)
    return np.sum(np.stack(result) ** 2)


def two_layers(xs: Any, w: Any, u: Any, b: Any) -> Any:
    h = g = np.zeros((xs.shape[1], u.shape[0]), xs.dtype)
    for x in xs:
        h = np.tanh(x @ w + h @ u + b)
        g = np.tanh(h @ u + g @ u)
    return np.sum(g**2)


def of_halves(xs: Any, w: Any, u: Any, b: Any) -> Any:
    """Rows of another shape than those of the product."""
    h = np.zeros((2 * xs.shape[1], u.shape[0]), xs.dtype)
    for x in xs:
        h = np.tanh(x.reshape(2 * x.shape[0], -1) @ w[: w.shape[0] // 2] + h @ u + b)
    return np.sum(h**2)


def scanned(xs: Any, w: Any, u: Any, b: Any) -> Any:
    def turn(h: Any, x: Any) -> Any:
        h = np.tanh(x @ w + h @ u + b)
        return h, h[0]

    h, rows = tg.scan(turn, np.zeros((xs.shape[1], u.shape[0]), xs.dtype), xs)
    return np.sum(h**2) + np.sum(np.sin(rows))


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "recurrent": (recurrent, (ROWS, INTO, AGAIN, BIAS)),
    "transposed": (transposed, (ROWS, INTO[::-1], AGAIN, BIAS)),
    "from the end": (from_the_end, (ROWS, INTO, AGAIN, BIAS)),
    "all states": (all_states, (ROWS, INTO, AGAIN, BIAS)),
    "two layers": (two_layers, (ROWS, INTO, AGAIN, BIAS)),
    "of halves": (of_halves, ((T, P, 2 * D), (2 * D, H), AGAIN, BIAS)),
    "scanned": (scanned, (ROWS, INTO, AGAIN, BIAS)),
}
each_program = pytest.mark.parametrize("name", PROGRAMS)


@pytest.fixture(autouse=True)
def _worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that products of a size that tests are quick with are joined."""
    monkeypatch.setattr(batch_matmuls, "LEAST", 1000)


def given(name: str, dtype: str = "float64") -> list[Any]:
    return [(rng.normal(size=shape) / 4).astype(dtype) for shape in PROGRAMS[name][1]]


def in_bodies(graph: Graph) -> list[tuple[int, ...]]:
    """The shapes of the products in the bodies of loops."""
    bodies = [node.regions[0] for node in graph.nodes if node.regions]
    return sorted(x.aval.shape for body in bodies for x in body.everywhere() if x.name == "matmul")


@each_program
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_values_are_those_of_numpy(name: str, dtype: str) -> None:
    f, args = PROGRAMS[name][0], given(name, dtype)
    if name != "scanned":
        np.testing.assert_allclose(tg.trace(f)(*args), f(*args), rtol=1e-11 if dtype == "float64" else 1e-4)


@each_program
def test_derivatives_are_those_of_numpy(name: str) -> None:
    f, args = PROGRAMS[name][0], given(name)
    derivatives = tg.grad(f, (0, 1, 2, 3))(*args)
    value = tg.trace(f)
    for k, x in enumerate(args):
        d = rng.normal(size=x.shape)
        up, down = (value(*args[:k], x + h * d, *args[k + 1 :]) for h in (1e-6, -1e-6))
        np.testing.assert_allclose(np.sum(derivatives[k] * d), (up - down) / 2e-6, rtol=2e-6, atol=1e-8)


@each_program
def test_second_derivatives(name: str) -> None:
    f, args = PROGRAMS[name][0], given(name)
    d = rng.normal(size=args[1].shape)

    def along(w: Any) -> Any:
        return np.sum(tg.grad(f, 1)(args[0], w, *args[2:]) * d)

    up, down = (tg.trace(along)(args[1] + h * d) for h in (1e-6, -1e-6))
    np.testing.assert_allclose(np.sum(tg.grad(along)(args[1]) * d), (up - down) / 2e-6, rtol=1e-5, atol=1e-7)


def test_a_iteration_has_only_the_products_that_the_next_one_waits_for() -> None:
    args = given("recurrent")
    assert in_bodies(tg.trace(recurrent).explain(*args).optimized) == [(P, H)]  # h @ u
    result = tg.grad(recurrent, (1, 2, 3)).explain(*args).optimized
    assert in_bodies(result) == [(P, H), (P, H)]  # and dz @ u.T
    assert sorted(x.aval.shape for x in result.nodes if x.name == "matmul") == [(D, H), (H, H), (T * P, H)]


def test_what_a_user_adds_up_is_added_in_iterations() -> None:
    def f(xs: Any, ys: Any) -> Any:
        total = np.zeros((D, H))
        for x, y in zip(xs, ys):
            total = total + x.T @ y
        return total

    xs, ys = rng.normal(size=(T, P, D)), rng.normal(size=(T, P, H))
    assert in_bodies(tg.trace(f).explain(xs, ys).optimized) == [(D, H)]
    np.testing.assert_allclose(tg.trace(f)(xs, ys), f(xs, ys), rtol=1e-12)


@pytest.mark.parametrize(
    ("what", "value"), [("MIN_BATCHED_ITERATIONS", T + 1), ("MAX_BATCHED_ROWS", P - 1), ("LEAST", 10**6), ("ROOM", 100)]
)
def test_where_it_would_not_pay_nothing_is_done(what: str, value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_matmuls, what, value)
    args = given("recurrent")
    assert in_bodies(tg.grad(recurrent, (1, 2)).explain(*args).optimized) == sorted([(P, H)] * 3 + [(D, H), (H, H)])


def test_the_pass_is_done_at_once() -> None:
    graph = tg.grad(recurrent, (1, 2)).graph(*given("recurrent"))
    once = simplify(join_products_of_iterations(graph))
    twice = simplify(join_products_of_iterations(join_products_of_iterations(graph)))
    assert once == twice
    assert in_bodies(once) != in_bodies(simplify(graph))


def test_nan_and_inf_stay_in_their_rows() -> None:
    f, args = tg.trace(all_states), given("all states")
    args[0][3, 2, 1], args[0][5, 0, 0] = np.nan, np.inf
    with np.errstate(invalid="ignore"):
        assert np.isnan(f(*args)) == np.isnan(all_states(*args))

    def states(xs: Any, w: Any) -> Any:
        return tg.scan(lambda h, x: (h, x @ w), np.zeros(1), xs)[1]

    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(tg.trace(states)(args[0], args[1]), args[0] @ args[1], rtol=1e-12)


def test_a_batch_of_loops() -> None:
    args = given("recurrent")
    ws = np.stack([args[1], 2 * args[1], -args[1]])
    result = tg.trace(tg.vmap(lambda w: tg.grad(recurrent, 1)(args[0], w, *args[2:])))(ws)
    for w, derivative in zip(ws, result):
        np.testing.assert_allclose(derivative, tg.grad(recurrent, 1)(args[0], w, *args[2:]), rtol=1e-9)


def test_the_pipeline_has_it() -> None:
    graph = tg.grad(recurrent, (1, 2)).graph(*given("recurrent"))
    stages: list[Any] = []
    optimize(graph, record=stages)
    assert "join_products_of_iterations" in [name for name, _ in stages]
