"""Programs with loops in them, as users write them: what rolling is tried on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import tracegrad as tg

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
def the_iteration_before_last(x: Any) -> Any:
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
def another_iteration_in_between(x: Any) -> Any:
    for i in range(2 * N):
        y = np.sin(x) * 1.1 + 0.1 * x * x
        x = 2.0 * y - x if i == N else y
    return np.sum(x)


@program(X)
def a_first_iteration_that_differs(x: Any) -> Any:
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
def a_gradient_in_each_iteration(rate: float) -> Any:
    derivative = tg.grad(lambda w: np.sum(np.tanh(w * X) ** 2))
    w = np.ones(4)
    for _ in range(N):
        w = w - rate * derivative(w)
    return np.sum(w)


@program(1.7)
def numbers_of_python(x: float) -> float:
    y = x
    for i in range(N):
        y = 0.5 * (y + x / (y + 1.0)) + 0.001 * i
    return y


# -- arrays that are updated in the loop ----------------------------------------------------------------
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


@program(X)
def rows_that_are_written(x: Any) -> Any:
    out = np.zeros((N, 4))
    for i in range(N):
        x = np.sin(x) * 1.1
        out[i] = x
    return np.sum(out**2 * np.arange(4.0))


@program(random(N))
def a_recurrence_along_an_array(a: Any) -> Any:
    a = a.copy()
    for i in range(1, N):
        a[i] = a[i] * 0.5 + np.sin(a[i - 1])
    return np.sum(a**2)


@program(random(N, 6))
def pieces_of_the_row_before(a: Any) -> Any:
    a = a.copy()
    for i in range(1, N):
        a[i, 1:-1] = np.tanh(a[i, 1:-1] * 0.5 + a[i - 1, 2:] * a[i - 1, :-2])
    return np.sum(a**2)


@program(random(7, 8))
def gauss_seidel(u: Any) -> Any:
    u = u.copy()
    for _ in range(2):
        for i in range(1, 6):
            for j in range(1, 7):
                u[i, j] = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])
    return np.sum(u**2)


@program(random(20, 5))
def heat(u: Any) -> Any:
    u = u.copy()
    for _ in range(N):
        u[1:-1, 1:-1] += 0.1 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1])
    return np.sum(u**2)


@program(random(8))
def a_ring_of_rows(x: Any) -> Any:
    ring = np.zeros((5, 8))
    for t in range(N):
        ring[t % 5] = np.tanh(x + ring[(t + 1) % 5] * 0.3)
        x = x + 0.1 * np.sin(x)
    return np.sum(ring * x)


@program(random(N), scans=2)
def a_band_that_is_eliminated(d: Any) -> Any:
    d, c, b = d.copy(), np.full(N, -0.3), 2.0 + np.abs(d)
    for i in range(1, N):
        w = c[i] / b[i - 1]
        b[i] = b[i] - w * c[i - 1]
        d[i] = d[i] - w * d[i - 1]
    x = np.zeros(N)
    x[-1] = d[-1] / b[-1]
    for i in range(N - 2, -1, -1):
        x[i] = (d[i] - c[i] * x[i + 1]) / b[i]
    return np.sum(x**2)


@program(random(N, 4))
def numbers_that_are_written(a: Any) -> Any:
    a = a.copy()
    for i in range(N):
        a[i, 2] = 0.1 * i
        a[i, 1] = 3.0
        a[i, 0] -= np.sin(a[i, 3])
    return np.sum(a**3)


@program(random(100))
def one_element(a: Any) -> Any:
    x = 1.0
    a = a.copy()
    for i in range(10, 10 + N):
        a[7] += a[i] * x
        x = np.sin(x) + 0.5
    return np.sum(a**2)


@program(random(N, 3))
def rows_that_change_places(a: Any) -> Any:
    a = a.copy()
    for i in range(N - 1):
        a[i], a[i + 1] = a[i + 1] * 1.1, a[i].copy() * np.sin(a[i + 1])
    return np.sum(a**2)


@program(random(N + 9, 3))
def windows_that_overlap(a: Any) -> Any:
    means = np.empty((N, 3))
    for i in range(N):
        means[i] = np.mean(a[i : i + 10] ** 2, axis=0)
    return np.sum(np.sin(means))


@program(random(2 * N, 3))
def every_second_element_of_a_window(a: Any) -> Any:
    a = a.copy()
    for i in range(N - 3):
        a[i : i + 6 : 2, 1] = np.sin(a[i + 1 : i + 7 : 2, 0]) - a[i : i + 6 : 2, 1]
    return np.sum(a**2)


@program(random(N))
def an_order_from_a_table(a: Any) -> Any:
    out = np.zeros(N)
    for k in [7 * i % N for i in range(N)]:
        out[k] = out[k - 1] * 0.5 + np.sin(a[k])
    return np.sum(out**2)


# -- arrays that have a size of their own in each iteration ------------------------------------------------------
SQUARE = random(N, N) * 0.1 + np.eye(N)


@program(SQUARE)
def a_triangular_system(a: Any) -> Any:
    x = np.zeros(N)
    for i in range(N):
        x[i] = (1.0 - a[i, :i] @ x[:i]) / a[i, i]
    return np.sum(x**2)


@program(SQUARE)
def a_triangular_system_from_the_end(a: Any) -> Any:
    x = np.zeros(N)
    for i in reversed(range(N)):
        x[i] = (1.0 - np.sum(a[i, i + 1 :] * x[i + 1 :])) / a[i, i]
    return np.sum(x**2)


@program(SQUARE)
def cholesky(a: Any) -> Any:
    low = a @ a.T
    for k in range(N):
        low[k, k] = np.sqrt(low[k, k])
        low[k + 1 :, k] = low[k + 1 :, k] / low[k, k]
        low[k + 1 :, k + 1 :] -= np.outer(low[k + 1 :, k], low[k + 1 :, k])
    return np.sum(np.log(np.diag(low)))


@program(SQUARE)
def elimination(a: Any) -> Any:
    u, low = a.copy(), np.eye(N)
    for k in range(N - 1):
        low[k + 1 :, k] = u[k + 1 :, k] / u[k, k]
        u[k + 1 :, k:] = u[k + 1 :, k:] - low[k + 1 :, k : k + 1] * u[k, k:]
    return np.sum(np.sin(low)) + np.sum(u**2)


@program(SQUARE)
def gram_schmidt(a: Any) -> Any:
    q = np.zeros((N, N))
    for j in range(N):
        v = a[:, j] - q[:, :j] @ (q[:, :j].T @ a[:, j])
        q[:, j] = v / np.sqrt(v @ v)
    return np.sum(q**3)


@program(1.5 + X[:1] * np.arange(N))
def functions_of_what_came_before(a: Any) -> Any:
    x = np.zeros(N)
    for i in range(N):
        x[i] = a[i] + 0.1 * np.sum(np.log(x[:i]) / x[:i]) + (np.mean(1.0 / x[:i]) if i else 0.0)
    return np.sum(x)


@program(random(N))
def greatest_so_far(a: Any) -> Any:
    out = np.zeros(N)
    for i in range(N):
        out[i] = np.max(a[: i + 1]) - np.min(a[i:])
    return np.sum(out**2)


# -- arrays that are shorter in each iteration -----------------------------------------------------------------
@program(np.array([1.0, 0.2, 0.05]))
def a_tree_of_prices(given: Any) -> Any:
    price, volatility, rate = given
    up = np.exp(volatility / np.sqrt(N))
    likely = (np.exp(rate / N) - 1 / up) / (up - 1 / up)
    values = np.maximum(1.05 - price * up ** np.arange(N, -N - 1, -2), 0)
    for k in range(N - 1, -1, -1):
        later = np.exp(-rate / N) * (likely * values[:-1] + (1 - likely) * values[1:])
        values = np.maximum(later, 1.05 - price * up ** np.arange(k, -k - 1, -2))
    return values[0]


@program(random(N) + 3.0)
def differences_of_differences(x: Any) -> Any:
    total = 0.0
    while len(x) > 1:
        x = 0.5 * (x[1:] - x[:-1])
        total = total + np.sin(x[0]) + x[-1] ** 2
    return total


@program(random(2 * N))
def windows_that_end_earlier(x: Any) -> Any:
    total = 0.0
    for _ in range(N - 1):
        x = 0.9 * np.sqrt(0.1 + x[1:-1] ** 2) + 0.1 * x[2:] - 0.2 * x[:-2]
        total = total + np.max(x) + np.mean(x) * x[1]
    return total
