"""Loops that were recorded iteration by iteration are rolled: the same numbers and derivatives, from one iteration's
code."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import random_loops
from along import replayed
from loops import PROGRAMS, N, Program, X, random, the_same_again

import tracegrad as tg
from tracegrad.ir import parse
from tracegrad.reroll.find_repeats import RepeatRun, runs
from tracegrad.reroll.normalize_first import read_late


@pytest.fixture(params=PROGRAMS)
def case(request: pytest.FixtureRequest) -> Program:
    return PROGRAMS[request.param]


def scans(graph: Any) -> int:
    return sum(node.name == "scan" for node in graph.everywhere())


def directions(args: tuple[Any, ...]) -> list[Any]:
    generator = np.random.default_rng(7)
    return [tg.tree.map(lambda x: generator.normal(size=np.shape(x))[()], x) for x in args]


def moved(args: tuple[Any, ...], by: list[Any], step: float) -> list[Any]:
    return [tg.tree.map(lambda x, d: x + step * d, x, d) for x, d in zip(args, by)]


def test_loops_are_found_and_give_what_numpy_gives(case: Program) -> None:
    traced = tg.trace(case.fun)
    np.testing.assert_allclose(traced(*case.args), case.fun(*case.args), rtol=1e-12)
    assert scans(traced.graph(*case.args)) == case.scans


def test_gradients_are_those_of_differences(case: Program) -> None:
    every = tuple(range(len(case.args)))
    value, gradient = tg.value_and_grad(case.fun, argnums=every)(*case.args)
    np.testing.assert_allclose(value, case.fun(*case.args), rtol=1e-12)
    by, step = directions(case.args), 1e-6
    low, high = (case.fun(*moved(case.args, by, s)) for s in (-step, step))
    along = sum(np.sum(g * d) for g, d in zip(tg.tree.leaves(gradient), tg.tree.leaves(by)))
    np.testing.assert_allclose(along, (high - low) / (2 * step), rtol=2e-6, atol=1e-8)


def test_tangents_agree_with_gradients(case: Program) -> None:
    every = tuple(range(len(case.args)))
    by = directions(case.args)
    _, tangent = tg.jvp(case.fun, case.args, tuple(by))
    with replayed():  # compiled above
        gradient = tg.grad(case.fun, argnums=every)(*case.args)
    along = sum(np.sum(g * d) for g, d in zip(tg.tree.leaves(gradient), tg.tree.leaves(by)))
    np.testing.assert_allclose(tangent, along, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["the_same_again", "rows_by_number", "a_list_that_is_summed", "nested", "runge_kutta"])
def test_second_derivatives_are_differences_of_gradients(name: str) -> None:
    fun, args, _ = PROGRAMS[name]
    by, step = directions(args)[0], 1e-6
    low, high = (tg.grad(fun)(args[0] + s * by, *args[1:]) for s in (-step, step))
    result = (
        tg.hvp(fun, (args[0],), (by,))
        if len(args) == 1
        else tg.grad(lambda x: np.sum(tg.grad(fun)(x, *args[1:]) * by))(args[0])
    )
    np.testing.assert_allclose(result, (high - low) / (2 * step), rtol=1e-5, atol=1e-7)


def test_examples_of_a_batch() -> None:
    x = random(3, 4, seed=3) * 0.3
    result = tg.vmap(the_same_again)(x)
    np.testing.assert_allclose(result, [the_same_again(row) for row in x], rtol=1e-12)


def test_a_thousand_iterations_are_the_code_of_ten() -> None:
    def turns(n: int) -> Any:
        def fun(x: Any) -> Any:
            for _ in range(n):
                x = x + 0.01 * (np.sin(x) * x - x**3)
            return np.sum(x)

        return fun

    def code(n: int) -> Any:
        return tg.grad(turns(n)).explain(X).kernels

    assert [str(k) for k in code(1000)] == [str(k) for k in code(60)]


def test_an_update_in_place_is_carried_alone_from_the_first_iteration_on() -> None:
    def heated(u: Any) -> Any:
        u = u.copy()
        for _ in range(20):
            around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
            u[1:-1, 1:-1] += 0.1 * (around - 4.0 * u[1:-1, 1:-1])
        return np.sum(u**2)

    u, derivative = random(12, 11, seed=8), tg.grad(heated)
    loops = [node for node in derivative.graph(u).everywhere() if node.name == "scan"]
    assert [(dict(x.params)["carries"], dict(x.params)["length"]) for x in loops] == [(1, 20), (1, 20)]
    step = random(12, 11, seed=9) * 1e-6
    difference = (heated(u + step) - heated(u - step)) / 2.0
    np.testing.assert_allclose(np.sum(derivative(u) * step), difference, rtol=1e-7)


def test_backward_inside_a_trace_is_rolled_too() -> None:
    def loss_of(w: Any, x: Any) -> Any:
        for _ in range(N):
            x = tg.tanh(x * w) + 0.1 * x
        return x.sum()

    def gradient(w: Any, x: Any) -> Any:
        w = w.detach().requires_grad_()
        loss_of(w, x).backward()
        return w.grad

    w, x = tg.tensor(X), tg.tensor(X[::-1].copy())
    traced = tg.trace(gradient)
    np.testing.assert_allclose(traced(w, x).numpy(), gradient(w, x).numpy(), rtol=1e-12)
    assert scans(traced.graph(w, x)) == 2


MATRIX = random(4, 4, seed=5) * 0.3


def with_an_array_from_outside(x: Any) -> Any:
    for _ in range(N):
        x = np.tanh(MATRIX.T @ x) + MATRIX[0] * np.outer(x, MATRIX[1])[0]
    return np.sum(x)


def with_parts_of_the_argument(x: Any) -> Any:
    y = x * 0.0
    for _ in range(N):
        y = y + 0.1 * (x[0] * np.sin(y) + x[1:2] - y / (1.0 + x[2] ** 2))
    return np.sum(y)


def with_a_state_that_is_read_often(x: Any) -> Any:
    seen = 0.0 * x[0]
    for _ in range(N):
        x = sum([np.sin(float(k) * x) * MATRIX[k % 4] for k in range(10)]) * 0.1 + x
        seen = seen + np.sum(x**2) * MATRIX[0, 1]
    return seen


@pytest.mark.parametrize(
    "fun", [with_an_array_from_outside, with_parts_of_the_argument, with_a_state_that_is_read_often]
)
def test_what_the_first_iteration_makes_for_all_is_made_before_the_loop(fun: Any) -> None:
    [loop] = [node for node in tg.trace(fun).graph(X).nodes if node.name == "scan"]
    assert dict(loop.params)["length"] == N
    value, gradient = tg.value_and_grad(fun)(X)
    np.testing.assert_allclose(value, fun(X), rtol=1e-12)
    by = np.eye(4) * 1e-6
    derivatives = [(fun(X + d) - fun(X - d)) / 2e-6 for d in by]
    np.testing.assert_allclose(gradient, derivatives, rtol=1e-6, atol=1e-8)


def test_places_may_be_partly_numbers_of_the_trace() -> None:
    def read(a: Any, k: int) -> Any:
        s = a[0, k]
        for i in range(1, len(a)):
            s = np.sin(s) + a[i, k] * a[i - 1, k] + np.cos(a[i, k] * s)
        return s

    def written(a: Any, k: int) -> Any:
        for i in range(1, len(a)):
            a[i, k] = np.sin(a[i - 1, k]) + a[i, k - 1] + np.cos(a[i, k])
        return np.sum(a)

    a = random(20, 3)
    for fun in (read, written):
        traced = tg.trace(fun)
        for k in (0, 1, 2, -1):
            np.testing.assert_allclose(traced(a.copy(), k), fun(a.copy(), k), rtol=1e-12)
        assert scans(traced.graph(a.copy(), 1)) == 1


def test_short_loops_stay_as_they_are() -> None:
    @tg.trace
    def fun(x: Any) -> Any:
        for _ in range(7):
            x = x + 0.1 * np.sin(x)
        return x

    assert scans(fun.graph(X)) == 0


def test_effects_of_iterations_are_kept() -> None:
    history: list[Any] = []

    @tg.trace
    def fun(x: Any) -> Any:
        for _ in range(N):
            x = x + 0.1 * np.sin(x) * x
            history.append(np.sum(x))
        return x

    expected = []
    x = X
    for _ in range(N):
        x = x + 0.1 * np.sin(x) * x
        expected.append(np.sum(x))
    for _ in range(2):
        history.clear()
        fun(X)
        np.testing.assert_allclose(history, expected, rtol=1e-12)


def test_runs_are_maximal_and_short_periods_come_first() -> None:
    assert list(runs([9, 1, 2, 1, 2, 1, 2, 5, 5, 5, 8], 3)) == [RepeatRun(7, 1, 3), RepeatRun(1, 2, 6)]
    # An iteration that has a token several times.
    assert RepeatRun(0, 4, 12) in list(runs([1, 1, 2, 1] * 3, 3))


def turned(x: Any) -> Any:
    total = 0.0
    for i in range(1, N):
        total = total + np.sum(x[:i] * x[:i][::-1])
    return total


def crossing(x: Any) -> Any:
    values = [x * 0.1 * k for k in range(N)]
    for i in range(N):
        values[(7 * i) % N] = np.abs(values[i]) * values[(i * i) % N] + values[(3 * i * i) % N]
    return np.sum(np.stack(values))


@pytest.mark.parametrize(
    ("fun", "said"),
    [
        (the_same_again, r"scan of 30 iterations of \d+ nodes at .*loops.py:\d+"),
        (
            turned,
            r"unrolled at .*test_reroll.py:\d+: 29 times multiply, of 29 shapes: .* parts that lie in other places",
        ),
        (crossing, r"unrolled at .*test_reroll.py:\d+: \d+ iterations of \d+ nodes: .* does not read the same .*"),
    ],
    ids=["rolled", "shapes", "reads"],
)
def test_explain_tells_of_loops_and_why_they_are_unrolled(fun: Any, said: str) -> None:
    loops = tg.trace(fun).explain(np.linspace(0.1, 0.9, N)).loops
    assert any(re.fullmatch(said, line) for line in loops), loops


@pytest.mark.parametrize("seed", [*range(1, 11), 9818])
def test_random_loops(seed: int) -> None:
    assert list(random_loops.faults(seed)) == []


# -- checkpoints of iterations --------------------------------------------------------------------------------
ITERATIONS = 200
SERIES = np.sin(np.arange(4.0 * ITERATIONS)).reshape(ITERATIONS, 4)
WEIGHTS = np.sin(np.arange(16.0)).reshape(4, 4) * 0.4


def a_iteration(x: Any, row: Any) -> Any:
    hidden = np.sin(x * row)
    other = np.tanh(WEIGHTS @ hidden + x)
    return np.exp(-other * other) * x + 0.1 * hidden


def with_rows(step: Any, x: Any) -> Any:
    for row in SERIES:
        x = step(x, row)
    return np.sum(x**2)


def with_the_counter(step: Any, x: Any) -> Any:
    for i in range(ITERATIONS):
        x = step(x, 0.01 * i)
    return np.sum(x**2)


def with_results(step: Any, x: Any) -> Any:
    def turn(x: Any, i: Any) -> Any:
        new = step(x, SERIES[i])
        return new, np.sum(new * x)

    turn, result = tg.checkpoint(turn), []
    for i in range(ITERATIONS):
        x, y = turn(x, i)
        result.append(y)
    return np.sum(np.stack(result)) + np.sum(x)


def of_a_state(step: Any, x: Any) -> Any:
    iteration = tg.checkpoint(lambda s, i: {"x": step(s["x"], s["rate"]), "rate": s["rate"] * 0.99, "n": s["n"] + i})
    state = {"x": x, "rate": 1.0, "n": 0}
    for i in range(ITERATIONS):
        state = iteration(state, i)
    return np.sum(state["x"]) * state["n"]


def in_inner_loops(step: Any, x: Any) -> Any:
    for _ in range(10):
        for row in SERIES[:20]:
            x = step(x, row)
        x = 0.9 * x
    return np.sum(x)


@pytest.mark.parametrize(
    ("fun", "kept"), [(with_rows, 4), (with_the_counter, 4), (with_results, 4), (of_a_state, 5), (in_inner_loops, 4)]
)
def test_the_derivative_of_iterations_that_are_checkpoints_keeps_their_carries_only(fun: Any, kept: int) -> None:
    gradient = tg.grad(lambda x: fun(tg.checkpoint(a_iteration), x))
    graph = gradient.explain(X).optimized
    sizes = [aval.size for node in graph.nodes if node.name == "scan" for aval in node.aval]
    assert sum(size for size in sizes if size > 16) <= kept * ITERATIONS
    assert len(graph.nodes) < 50
    np.testing.assert_allclose(gradient(X), tg.grad(lambda x: fun(a_iteration, x))(X), rtol=1e-12)


def test_a_loop_that_was_long_is_folded_from_the_beginning_by_the_next_function(attempts: list[Any]) -> None:
    def settled(rows: Any, iteration: Any) -> Any:
        x = rows[0]
        for row in rows:
            x = iteration(x, row)
        return np.sum(x)

    def long(x: Any, row: Any) -> Any:
        for k in range(7):
            x = np.tanh(x * row + k) - np.sin(x) * np.cos(row)
        return x

    rows = np.sin(np.arange(120.0)).reshape(60, 2)
    results = [tg.grad(lambda x, k=k: k * settled(x, long))(rows) for k in (1.0, 2.0)]
    assert len(attempts) == 3
    np.testing.assert_allclose(results[1], 2 * results[0], rtol=1e-12)
    assert tg.trace(lambda x: settled(x, lambda x, row: x + row)).explain(rows).loops  # rolled, for it is short
    assert len(attempts) == 4


def test_parts_of_arrays_stand_before_what_first_uses_them() -> None:
    at = "{start=(0,), step=(1,), stop=(%d,)} : f64[%d]"
    text = "\n  ".join(
        [
            "graph(%0: f64[8]) {",
            f"%1 = slice(%0) {at % (6, 6)}",
            f"%2 = slice(%1) {at % (4, 4)}",
            f"%3 = slice(%0) {at % (3, 3)}",
            "%4 = sin(%0) : f64[8]",
            "%5 = add(%2, %2) : f64[4]",
            "%6 = cos(%3) : f64[3]",
            f"%7 = slice(%0) {at % (5, 5)}",
            "%8 = exp(%2) : f64[4]",
            "return %4, %5, %6, %7, %8",
        ]
    )
    graph = parse(f"{text}\n}}")
    names = {node: k for k, node in enumerate(graph.nodes, 1)}
    assert [names[x] for x in read_late(graph.nodes)] == [4, 1, 2, 5, 3, 6, 7, 8]
    without = [x for x in graph.nodes if x.op is not None and x.op.name != "slice"]
    assert read_late(without) == without
