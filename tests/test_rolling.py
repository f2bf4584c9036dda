"""Loops that were recorded turn by turn are rolled: the same numbers and derivatives, from one turn's code."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.rolling.repeats import Run, runs

N = 30


class Program(NamedTuple):
    """A function with a scalar result, its arguments, and how many loops its graph has."""

    fun: Callable[..., Any]
    args: tuple[Any, ...]
    scans: int


PROGRAMS: dict[str, Program] = {}


def program(*args: Any, scans: int = 1) -> Callable[[Any], Any]:
    """Enter a function into the table."""

    def enter(fun: Any) -> Any:
        PROGRAMS[fun.__name__] = Program(fun, args, scans)
        return fun

    return enter


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape)


X = np.linspace(0.1, 0.9, 4)


@program(X)
def the_same_again(x: Any) -> Any:
    for _ in range(N):
        x = x + 0.1 * (np.sin(x) * x - x**3)
    return np.sum(x)


@program(X)
def numbers_of_the_counter(x: Any) -> Any:
    for i in range(N):
        x = x + 0.1 * i * np.sin(x) * (-1) ** i
    return np.sum(x)


@program(X)
def a_schedule_in_a_list(x: Any) -> Any:
    for rate in [1.0 / (i + 1) ** 1.5 for i in range(N)]:
        x = x - rate * np.sin(x) * x
    return np.sum(x)


@program(X, random(N, 4))
def rows_by_number(x: Any, a: Any) -> Any:
    for i in range(N):
        x = np.tanh(x * 0.9 + a[i])
    return np.sum(x)


@program(X, random(N, 4))
def rows_themselves(x: Any, a: Any) -> Any:
    for row in a:
        x = np.tanh(x * 0.9 + row) + x**2 * 0.1
    return np.sum(x)


@program(X, random(N, 4))
def rows_from_the_end(x: Any, a: Any) -> Any:
    for i, row in enumerate(reversed(a)):
        x = np.tanh(x * 0.9 + row) + 0.01 * i
    return np.sum(x)


@program(X, random(4, N))
def columns(x: Any, a: Any) -> Any:
    for i in range(N):
        x = np.tanh(x * 0.9 + a[:, i])
    return np.sum(x)


@program(X, random(2 * N + 2, 6))
def every_second_row_and_the_one_before(x: Any, a: Any) -> Any:
    for i in range(1, 2 * N, 2):
        x = np.tanh(x * 0.9 + a[i, 1:-1] * a[i - 1, 2:])
    return np.sum(x)


@program(X, random(N, 4), random(N, 4, seed=1))
def zipped(x: Any, a: Any, b: Any) -> Any:
    for u, v in zip(a, b):
        x = np.tanh(x * u + v)
    return np.sum(x)


@program(X)
def the_turn_before_last(x: Any) -> Any:
    a, b = x, 2.0 * x
    for _ in range(2 * N):
        a, b = b, np.sin(a + b) * a
    return np.sum(a * b)


@program(X, random(N, 4))
def a_list_that_is_stacked(x: Any, a: Any) -> Any:
    seen = []
    for i in range(N):
        x = np.tanh(x * 0.9 + a[i])
        seen.append(x)
    return np.sum(np.stack(seen) ** 2 * np.arange(4.0))


@program(X, random(N, 4), scans=2)
def a_list_that_is_summed(x: Any, a: Any) -> Any:
    losses = []
    for i in range(N):
        x = np.tanh(x * 0.9 + a[i])
        losses.append(np.sum(x**2))
    return sum(losses)


@program(X)
def some_of_a_list(x: Any) -> Any:
    seen = []
    for _ in range(N):
        x = np.sin(x) * 1.1 + x * x * 0.1
        seen.append(x)
    return np.sum(seen[3]) + np.sum(seen[-1] * seen[-2])


@program([random(4, 4, seed=i) * 0.3 for i in range(N)], X)
def layers(weights: Any, x: Any) -> Any:
    for w in weights:
        x = np.tanh(w @ x) + x
    return np.sum(x)


@program({f"w{i}": random(4, seed=i) for i in range(N)}, X)
def items(weights: Any, x: Any) -> Any:
    for w in weights.values():
        x = np.tanh(w * x + x * x)
    return np.sum(x)


@program(X)
def recursion(x: Any) -> Any:
    def descend(x: Any, n: int) -> Any:
        return x if n == 0 else descend(np.sin(x) * 1.1 - x * x * 0.1, n - 1)

    return np.sum(descend(x, N))


@program(X)
def while_with_a_counter(x: Any) -> Any:
    i = 0
    while i < N:
        x = np.sin(x) * 1.1 + 0.1 * x * x
        i += 1
    return np.sum(x)


@program(X, scans=2)
def nested(x: Any) -> Any:
    for _ in range(12):
        for _ in range(N):
            x = x + 0.01 * np.sin(x) * x
        x = x * 0.5 + np.cos(x) * 0.1
    return np.sum(x)


@program(X, scans=2)
def another_turn_in_between(x: Any) -> Any:
    for i in range(2 * N):
        y = np.sin(x) * 1.1 + 0.1 * x * x
        x = 2.0 * y - x if i == N else y
    return np.sum(x)


@program(X)
def a_first_turn_that_differs(x: Any) -> Any:
    momentum = None
    for _ in range(N):
        g = np.sin(x) * x
        momentum = g if momentum is None else 0.9 * momentum + g
        x = x - 0.1 * momentum
    return np.sum(x)


@dataclass
class State:
    """What a loop carries."""

    place: Any
    speed: Any


@program(X)
def a_dataclass_that_is_carried(x: Any) -> Any:
    state = State(x, np.zeros(4))
    for _ in range(N):
        speed = state.speed - 0.1 * np.sin(state.place)
        state = State(state.place + 0.1 * speed, speed)
    return np.sum(state.place * state.speed)


@program(np.linspace(0.0, 1.0, 20))
def an_array_updated_in_place(u: Any) -> Any:
    u = u.copy()
    for _ in range(N):
        u[1:-1] = u[1:-1] + 0.2 * (u[2:] - 2.0 * u[1:-1] + u[:-2])
    return np.sum(u**2)


@program(np.linspace(0.0, 1.0, 20))
def two_arrays_that_change_places(u: Any) -> Any:
    before = u
    for _ in range(N):
        after = np.zeros(20)
        after[1:-1] = 2 * u[1:-1] - before[1:-1] + 0.1 * (u[2:] - 2.0 * u[1:-1] + u[:-2])
        before, u = u, after
    return np.sum(u**2)


@program(X[:2], random(4, 4), random(4, 4, seed=1))
def runge_kutta(start: Any, w: Any, v: Any) -> Any:
    y, h = np.concatenate([start, start]), 0.05

    def f(y: Any) -> Any:
        return v @ np.tanh(w @ y) * 0.3

    for _ in range(N):
        k1 = f(y)
        k2 = f(y + h / 2 * k1)
        k3 = f(y + h / 2 * k2)
        k4 = f(y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return np.sum(y**2)


@program(X)
def adam(x: Any) -> Any:
    m, v = np.zeros(4), np.zeros(4)
    for t in range(1, N + 1):
        g = np.cos(x) * x
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
        x = x - 0.01 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.99**t)) + 1e-8)
    return np.sum(x)


@program(0.05)
def a_gradient_in_each_turn(rate: float) -> Any:
    slope = tg.grad(lambda w: np.sum(np.tanh(w * X) ** 2))
    w = np.ones(4)
    for _ in range(N):
        w = w - rate * slope(w)
    return np.sum(w)


@program(1.7)
def numbers_of_python(x: float) -> float:
    y = x
    for i in range(N):
        y = 0.5 * (y + x / (y + 1.0)) + 0.001 * i
    return y


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
    gradient = tg.grad(case.fun, argnums=every)(*case.args)
    along = sum(np.sum(g * d) for g, d in zip(tg.tree.leaves(gradient), tg.tree.leaves(by)))
    np.testing.assert_allclose(tangent, along, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["the_same_again", "rows_by_number", "a_list_that_is_summed", "nested", "runge_kutta"])
def test_second_derivatives_are_differences_of_gradients(name: str) -> None:
    fun, args, _ = PROGRAMS[name]
    by, step = directions(args)[0], 1e-6
    low, high = (tg.grad(fun)(args[0] + s * by, *args[1:]) for s in (-step, step))
    found = tg.hvp(fun, (args[0],), (by,)) if len(args) == 1 else tg.grad(
        lambda x: np.sum(tg.grad(fun)(x, *args[1:]) * by)
    )(args[0])  # fmt: skip
    np.testing.assert_allclose(found, (high - low) / (2 * step), rtol=1e-5, atol=1e-7)


def test_examples_of_a_batch() -> None:
    x = random(3, 4, seed=3) * 0.3
    found = tg.vmap(the_same_again)(x)
    np.testing.assert_allclose(found, [the_same_again(row) for row in x], rtol=1e-12)


def test_a_thousand_turns_are_the_code_of_ten() -> None:
    def turns(n: int) -> Any:
        def fun(x: Any) -> Any:
            for _ in range(n):
                x = x + 0.01 * (np.sin(x) * x - x**3)
            return np.sum(x)

        return fun

    def code(n: int) -> Any:
        return tg.grad(turns(n)).explain(X).kernels

    assert [str(k) for k in code(1000)] == [str(k) for k in code(60)]


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


def test_short_loops_stay_as_they_are() -> None:
    @tg.trace
    def fun(x: Any) -> Any:
        for _ in range(7):
            x = x + 0.1 * np.sin(x)
        return x

    assert scans(fun.graph(X)) == 0


def test_effects_of_turns_are_kept() -> None:
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
    assert list(runs([9, 1, 2, 1, 2, 1, 2, 5, 5, 5, 8], 3)) == [Run(7, 1, 3), Run(1, 2, 6)]
    # A turn that has a token several times.
    assert Run(0, 4, 12) in list(runs([1, 1, 2, 1] * 3, 3))


def shrinking(x: Any) -> Any:
    total = 0.0
    for i in range(1, N):
        total = total + np.sum(np.sin(x[:i]) ** 2)
    return total


def crossing(x: Any) -> Any:
    values = [x * 0.1 * k for k in range(N)]
    for i in range(N):
        values[(7 * i) % N] = np.sin(values[i]) * values[(i * i) % N] + values[(3 * i * i) % N]
    return np.sum(np.stack(values))


@pytest.mark.parametrize(
    ("fun", "said"),
    [
        (the_same_again, r"scan of 30 turns of \d+ nodes at .*test_rolling.py:\d+"),
        (shrinking, r"unrolled at .*test_rolling.py:\d+: 29 times sin, of 29 shapes"),
        (crossing, r"unrolled at .*test_rolling.py:\d+: \d+ turns of \d+ nodes: .* does not read the same .*"),
    ],
    ids=["rolled", "shapes", "reads"],
)
def test_explain_tells_of_loops_and_why_they_are_unrolled(fun: Any, said: str) -> None:
    loops = tg.trace(fun).explain(np.linspace(0.1, 0.9, N)).loops
    assert any(re.fullmatch(said, line) for line in loops), loops
