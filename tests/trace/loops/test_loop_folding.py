"""Long loops over a `range` or an array are folded: a few iterations are recorded, and one loop is made of them."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from loops import random

import tracegrad as tg
from benchmarks.bench_factorizations import cholesky_by_elements, lu_by_elements
from tracegrad.trace.rewriting import call_sites

counters: Any = importlib.import_module("tracegrad.trace.loops.range_counter")
N = 12


pytestmark = pytest.mark.usefixtures("folds")


class Program(NamedTuple):
    """A function with a scalar result, an argument, and how many nodes its graph has at most."""

    fun: Callable[..., Any]
    x: Any
    nodes: int


PROGRAMS: dict[str, Program] = {}


def program(x: Any, nodes: int) -> Callable[[Any], Any]:
    """Enter a function into the table."""

    def enter(fun: Any) -> Any:
        PROGRAMS[fun.__name__] = Program(fun, x, nodes)
        return fun

    return enter


POSITIVE = random(N, N) @ random(N, N).T + N * np.eye(N)


@program(random(N), 30)
def one_loop(x: Any) -> Any:
    for i in range(40):
        x = x + 0.01 * i * np.sin(x) * (-1) ** i
    return np.sum(x)


@program(random(40), 4000)
def filtered(x: Any) -> Any:
    # The loops within cannot be folded, for lists are asked for their elements.
    b, a, y = [0.2, 0.3, 0.1], [1.0, -0.5, 0.25], np.zeros_like(x)
    for n in range(len(x)):
        total = 0.0
        for k in range(3):
            if n - k >= 0:
                total += b[k] * x[n - k]
        for k in range(1, 3):
            if n - k >= 0:
                total -= a[k] * y[n - k]
        y[n] = total
    return np.sum(y**2)


@program(random(N), 70)
def counts_along(x: Any) -> Any:
    n, k = 5, 0
    for i in range(30, 2, -2):
        x = x + 0.0001 * n * np.sin(x) * i - 0.001 * k
        n, k = n + 3, k - 1
    return np.sum(x) * n + k


@program(random(N), 60)
def numbers_that_python_checks(x: Any) -> Any:
    s = float(x[0])
    for i in range(2, 40):
        s = s / (1.0 + 0.9**i) + x[i % N] / i
    return s


@program(random(N, N), 40)
def gauss_seidel(u: Any) -> Any:
    u = u.copy()
    for _ in range(4):
        for i in range(1, N - 1):
            for j in range(1, N - 1):
                u[i, j] = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])
    return np.sum(u**2)


program(POSITIVE, 90)(lu_by_elements)
program(POSITIVE, 70)(cholesky_by_elements)


@program(random(N), 40)
def downwards_with_steps(x: Any) -> Any:
    for i in range(N - 1, 0, -2):
        x[i - 1] += 0.5 * x[i] * i
    return np.sum(x**2)


@program(random(N), 60)
def another_iteration_in_between(x: Any) -> Any:
    for i in range(30):
        x = x * 0.5 + np.cos(x) * 0.1 * i if i % 5 == 2 else x + 0.01 * np.sin(x)
    return np.sum(x)


@program(random(N), 60)
def left_by_break(x: Any) -> Any:
    for i in range(1000):  # noqa: B007
        x = 0.5 * x + 0.1
        if np.max(np.abs(x)) < 0.25:
            break
    return np.sum(x) * (i + 1)


@program(random(N), 40)
def counted_by_the_way(x: Any) -> Any:
    n, last = 0, 0
    for i in range(5, 50, 3):
        n, last = n + 2, i
        x = np.sin(x) + 0.01 * n
    return np.sum(x) * n + last


@program(random(N), 60)
def a_triangle(x: Any) -> Any:
    total = 0.0
    for i in range(N):
        for j in range(i, N):
            total = total + x[i] * x[j] * (j - i)
    return total


@program(random(40, 3), 25)
def over_rows(a: Any) -> Any:
    x = 0.1 * np.ones(3)
    for row in a:
        x = np.tanh(row) + 0.5 * x * row
    return np.sum(x)


@program(random(40, 3), 30)
def rows_that_are_updated(a: Any) -> Any:
    x = 0.1 * np.ones(3)
    for row in a:
        row += x
        x = np.tanh(row) + 0.1 * x
    return np.sum(a**2)


@program(random(40, 3), 70)
def rows_that_are_updated_before_they_come(a: Any) -> Any:
    n = 0
    for row in a:
        a[-1 - n] += 0.1 * row
        n = n + 1
    return np.sum(a**2)


@program(random(40, 3), 30)
def an_array_with_another_name_soon(a: Any) -> Any:
    x = np.ones(3)
    for row in a:
        a = 0.9 * a + 0.1 * row
        x = np.sin(x) + row
    return np.sum(x) + np.sum(a)


@program(random(20), 80)
def elements_within_elements(x: Any) -> Any:
    s = 0.0
    for a in x:
        for b in x:
            s = 0.9 * s + np.sin(a * b)
    return s


@program(random(40, 3), 80)
def rows_up_to_one(a: Any) -> Any:
    s = 0.0
    for row in a:
        if row[0] > 2.0:
            break
        s = 0.9 * s + (np.sum(row) if row[1] > 0.0 else row[2])
    return s


@program(random(40, 3), 40)
def several_at_once(a: Any) -> Any:
    x = 0.1 * np.ones(3)
    for row, other, k in zip(a, np.cos(a), range(3, 90, 2)):
        x = np.sin(x) + row * other + 0.01 * k
    return np.sum(x)


@program(random(40, 3), 50)
def numbered_rows(a: Any) -> Any:
    for i, row in enumerate(a, 1):
        row += 0.1 * a[i % 7] * i
    return np.sum(a**2)


@program(random(N), 40)
def backwards_over_all(x: Any) -> Any:
    for i in reversed(range(1, len(x))):
        x[i - 1] += 0.5 * x[i] * i
    return np.sum(x**2)


@program(random(N, N), 170)
def long_bodies(x: Any) -> Any:
    y, s = np.zeros((N, N)), 0.1 * x[0]  # whose instructions take more than a byte to jump over
    for _ in range(30):
        y[1:-1, 1:-1] = (y[2:, 1:-1] + y[:-2, 1:-1] + y[1:-1, 2:] + y[1:-1, :-2] + 0.1 * x[1:-1, 1:-1]) / 4
        y[-1, :] = -0.2 * y[-2, :] + 0.1
        across = (x[1:-1, 2:] - x[1:-1, :-2]) / 2
        spread = x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2] - 4 * x[1:-1, 1:-1]
        x[1:-1, 1:-1] += 0.1 * (0.3 * spread - y[1:-1, 1:-1] * across)
    for row in x:
        s[1:-1] = 0.3 * (s[2:] + s[:-2] + s[1:-1]) + 0.1 * (row[2:] + row[:-2] + row[1:-1])
        s[1:-1] = 0.3 * (s[2:] + s[:-2] + s[1:-1]) + 0.1 * (row[2:] * row[:-2] * row[1:-1])
        s[1:-1] = 0.3 * (s[2:] + s[:-2] + s[1:-1]) + 0.1 * (row[2:] - row[:-2] - row[1:-1])
        s[0] = 0.5 * s[-1] + row[1] * row[2]
    return np.sum(y) + np.sum(s**2)


@pytest.fixture(params=PROGRAMS)
def case(request: pytest.FixtureRequest) -> Program:
    return PROGRAMS[request.param]


def test_folded_loops_give_what_numpy_gives(case: Program) -> None:
    traced = tg.trace(case.fun)
    np.testing.assert_allclose(traced(case.x.copy()), case.fun(case.x.copy()), rtol=1e-12)
    assert sum(1 for _ in traced.graph(case.x.copy()).everywhere()) <= case.nodes


def test_gradients_are_those_of_differences(case: Program) -> None:
    direction = random(*case.x.shape, seed=1)
    gradient = tg.grad(lambda x: case.fun(x.copy()))(case.x)
    low, high = (case.fun(case.x + step * direction) for step in (-1e-6, 1e-6))
    np.testing.assert_allclose(np.sum(gradient * direction), (high - low) / 2e-6, rtol=2e-6, atol=1e-8)


def test_the_first_iteration_is_one_of_the_loop_whatever_it_begins_with() -> None:
    def fun(x: Any, k: int) -> Any:
        total, y = 0.0, x
        for i in range(40):
            x, y = x + 0.1 * np.sin(y), x * 0.9
            total, k = total + np.sum(x) * i, k + 2
        return total * k

    x = random(N)
    traced = tg.trace(tg.value_and_grad(fun))
    loops = [node for node in traced.graph(x, 3).everywhere() if node.name == "scan"]
    assert {dict(loop.params)["length"] for loop in loops} == {40}
    value, gradient = traced(x, 3)
    np.testing.assert_allclose(value, fun(x, 3), rtol=1e-12)
    step = 1e-6 * random(N, seed=2)
    np.testing.assert_allclose(gradient @ step, (fun(x + step, 3) - fun(x - step, 3)) / 2.0, rtol=1e-6)


def test_loops_with_long_bodies_are_seen() -> None:
    code = PROGRAMS["long_bodies"].fun.__code__
    assert len(call_sites.counted_loops(code)) == len(set(call_sites.iterated(code).values())) == 1


# -- what cannot be folded --------------------------------------------------------------------------------
def test_a_list_asked_at_each_iteration_is_recorded_iteration_by_iteration() -> None:
    rates = [0.1 / (k + 1) for k in range(40)]

    def fun(x: Any) -> Any:
        for i in range(40):
            x = x - rates[i] * np.sin(x)
        return x

    x = random(3)
    np.testing.assert_allclose(tg.trace(fun)(x), fun(x), rtol=1e-12)


def test_a_loop_goes_on_from_where_another_way_has_led() -> None:
    def fun(x: Any) -> Any:
        n = 0.0
        for i in range(len(x)):
            if x[i] > 0:
                n = n + x[i - 1]
        return n

    traced = tg.value_and_grad(fun)
    x = random(20)
    for k in range(20):
        at = np.where(np.arange(20) < k, -1.0, 1.0) * np.abs(x)
        for y in (at, at[::-1], np.roll(at, k // 2)):
            value, derivative = traced(y)
            np.testing.assert_allclose(value, fun(y), rtol=1e-12)
            np.testing.assert_array_equal(derivative, np.roll(y > 0, -1))


def first_row_goes_one_way(x: Any) -> Any:
    """Of the first iteration, with a loop of one iteration within, it cannot be told that there are two ways."""
    total = 0.0
    for i in range(N):
        for j in range(i + 1):
            if x[i, j] > 0:
                total = total + np.sin(x[i, j]) * x[j, i]
            else:
                total = 0.5 * total
                total -= x[i, j]
    return total


def first_rows_go_other_ways(x: Any) -> Any:
    """And what is done before the loop within differs, too."""
    total = 0.0
    for i in range(N):
        if x[i, 0] > x[0, i]:
            total = total * x[i, i]
        for j in range(i + 1):
            if x[i, j] > 0:
                total = total + np.sin(x[i, j]) * x[j, i]
            elif x[j, i] > 0:
                total = 0.5 * total - x[i, j]
    return total


@pytest.mark.parametrize("fun", [first_row_goes_one_way, first_rows_go_other_ways])
def test_first_iterations_that_do_not_show_all_ways(fun: Any) -> None:
    traced, direction = tg.value_and_grad(fun), random(N, N, seed=1)
    sign = np.sign(random(N, N, seed=2))
    for k in range(0, N, 3):
        for of_first in (1.0, -1.0, sign):
            x = np.abs(random(N, N)) * np.where(np.arange(N)[:, None] <= k, of_first, sign)
            value, derivative = traced(x)
            np.testing.assert_allclose(value, fun(x), rtol=1e-12)
            change = (fun(x + 1e-7 * direction) - fun(x - 1e-7 * direction)) / 2e-7
            np.testing.assert_allclose(np.sum(derivative * direction), change, rtol=1e-5, atol=1e-6)


def as_far_as_the_outermost(x: Any) -> Any:
    s = x[0]
    for outer in range(9):
        for i in range(10):
            for k in range(outer // 3):
                s = 0.9 * s + x[i] * x[k]
    return s


def from_the_middle_as_far_as_the_outermost(x: Any) -> Any:
    s = x[0]
    for outer in range(9):
        for i in range(10):
            for k in range(i, i + outer // 3):
                s = 0.9 * s + x[i] * x[k]
    return s


def with_another_kind_at_first(x: Any) -> Any:
    s = 0.0
    for outer in range(1, 10):
        for i in range(10):
            for k in range(outer):
                s = 0.9 * s + x[i] * x[k]
    return s


@pytest.mark.parametrize(
    "fun", [as_far_as_the_outermost, from_the_middle_as_far_as_the_outermost, with_another_kind_at_first]
)
def test_loops_of_so_many_iterations_as_the_outermost_says(fun: Any) -> None:
    x = random(20)
    np.testing.assert_allclose(tg.trace(fun)(x), fun(x), rtol=1e-12)
    assert sum(1 for _ in tg.trace(fun).graph(x).everywhere()) < 60


def test_what_a_way_of_a_loop_within_has_counted_is_no_answer_for_the_iterations_of_the_outermost() -> None:
    def fun(x: Any) -> Any:
        s = x[0]
        for outer in range(9):
            for i in range(10):
                if x[i] > 1:
                    for k in range(outer // 3):
                        s = 0.9 * s + x[i] * x[k]
                else:
                    s = s * 0.97 + 0.1
        return s

    traced = tg.trace(fun)
    for x in np.random.default_rng(3).uniform(0.1, 2.0, (8, 20)):
        np.testing.assert_allclose(traced(x), fun(x), rtol=1e-12)


def test_states_that_grow_are_recorded_iteration_by_iteration() -> None:
    def fun(x: Any) -> Any:
        history = []
        for i in range(30):
            x = x * 0.9 + i
            history.append(x)
        return sum(history), len(history)

    x = random(3)
    for result, wanted in zip(tg.trace(fun)(x), fun(x)):
        np.testing.assert_allclose(result, wanted, rtol=1e-12)


def test_rows_that_are_kept_are_views() -> None:
    def fun(a: Any) -> Any:
        last = a[0]
        for row in a:
            row *= 0.5 + last
            last = row
        last += 1.0
        return a

    a = random(20, 3)
    np.testing.assert_allclose(tg.trace(fun)(a.copy()), fun(a.copy()), rtol=1e-12)


def test_what_is_no_array_comes_as_in_python() -> None:
    def fun(a: Any) -> Any:
        s = 0.0
        for row, rate in zip(a, [0.1, 0.2, 0.3] * 4):
            s = 0.9 * s + rate * np.sum(row)
        for k, rate in enumerate([0.1, 0.2, 0.3] * 4):
            s = 0.9 * s + rate * a[k, 0]
        for row in reversed(a):
            s = 0.9 * s + row[1]
        for rows in zip(a, a, strict=True):
            s = 0.9 * s + rows[0][2] * rows[1][0]
        return s

    a = random(20, 3)
    np.testing.assert_allclose(tg.trace(fun)(a), fun(a), rtol=1e-12)

    @tg.trace
    def unequal(a: Any) -> Any:
        s = 0.0
        for x, y in zip(a, a[:3], strict=True):
            s = s + x @ y
        return s

    with pytest.raises(ValueError, match="shorter"):
        unequal(a)


def test_comprehensions_are_recorded_iteration_by_iteration() -> None:
    def fun(x: Any) -> Any:
        several = [x * j for _ in range(2) for j in range(30)]
        several += [a * b for a in x for b in x]
        return sum(several), len(several)

    x = random(7)
    for result, wanted in zip(tg.trace(fun)(x), fun(x)):
        np.testing.assert_allclose(result, wanted, rtol=1e-12)


def test_arithmetic_that_fails_in_a_iteration_raises_what_python_raises() -> None:
    def fun(x: float, a: float) -> Any:
        for i in range(40):
            x = x - 0.1 * a**i / x
        return x

    traced = tg.trace(fun)
    for x, a in ((3.0, 0.5), (2.0, 0.25), (3.0, 1e10), (0.0, 1.0), (1.0, 0.3)):
        try:
            wanted: Any = fun(x, a)
        except ArithmeticError as error:
            with pytest.raises(type(error), match=str(error.args[-1])):
                traced(x, a)
        else:
            np.testing.assert_allclose(traced(x, a), wanted, rtol=1e-12)


def test_an_index_out_of_range_in_a_late_iteration_raises() -> None:
    @tg.trace
    def fun(x: Any) -> Any:
        for i in range(40):
            x[i % N] += x[i]
        return x

    with pytest.raises(IndexError, match="out of bounds"):
        fun(random(N))


@pytest.mark.parametrize("first", [0, 4])
def test_all_iterations_tell_what_they_tell(first: int, capsys: pytest.CaptureFixture[str]) -> None:
    @tg.trace
    def fun(x: Any) -> Any:
        for i in range(20):
            x = x * 0.9 + i
            if i % 5 == first:
                print(i)  # noqa: T201
        return x

    fun(random(3))
    assert capsys.readouterr().out.split() == [str(k) for k in range(first, 20, 5)]


def test_a_loop_that_cannot_be_rolled_is_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "MAX_RECORDED_NODES", 1_000_000)
    result = tg.trace(lu_by_elements).graph(POSITIVE)
    assert sum(1 for _ in result.everywhere()) <= PROGRAMS["lu_by_elements"].nodes


def test_an_order_in_memory_from_outside_keeps_no_iteration_before_the_loop() -> None:
    matrix = random(2, 2)

    def powers(a: Any) -> Any:
        p = 0.1 * matrix
        for x in np.linspace(0.5, 1.0, 40):
            p = p @ np.outer(a, a) * x + 0.2
        return np.sum(np.ravel(p) * np.arange(4.0))

    traced, a = tg.trace(powers), random(2)
    assert "length=40, reverse=False" in str(traced.graph(a))
    for _ in range(2):
        np.testing.assert_allclose(traced(a), powers(a), rtol=1e-12)
        matrix = np.asfortranarray(matrix)


def test_rotations_that_are_made_if_they_are_needed_are_one_program() -> None:
    def rotated(m: Any) -> Any:
        a = m + m.T
        n = len(a)
        for _ in range(8):
            for p in range(n - 1):
                for q in range(p + 1, n):
                    if abs(a[p, q]) > 1e-14:
                        ratio = (a[q, q] - a[p, p]) / (2 * a[p, q])
                        t = np.sign(ratio) / (abs(ratio) + np.sqrt(ratio**2 + 1))
                        c = 1 / np.sqrt(t * t + 1)
                        s = t * c
                        first, second = a[:, p].copy(), a[:, q].copy()
                        a[:, p], a[:, q] = c * first - s * second, s * first + c * second
                        first, second = a[p].copy(), a[q].copy()
                        a[p], a[q] = c * first - s * second, s * first + c * second
        return np.sum(np.exp(0.1 * np.diag(a)) * np.arange(1.0, n + 1))

    traced, m = tg.trace(rotated), random(8, 8)
    for scale in (1.0, 0.01, 3.0):
        np.testing.assert_allclose(traced(scale * m), rotated(scale * m), rtol=1e-10)
    assert len(str(traced.graph(m))) < 40_000
    near = [(rotated(m + d) - rotated(m - d)) / 2e-6 for d in 1e-6 * np.eye(64).reshape(64, 8, 8)]
    np.testing.assert_allclose(tg.grad(rotated)(m).ravel(), near, rtol=1e-5, atol=1e-6)
    assert traced.cache_info().traces == 1


def test_of_an_array_that_a_iteration_hands_on_the_derivative_keeps_the_element_that_it_reads() -> None:
    def orthogonal(a: Any) -> Any:
        n = len(a)
        q, r = np.zeros((n, n)), np.zeros((n, n))
        for j in range(n):
            v = a[:, j].copy()
            for i in range(j):
                r[i, j] = q[:, i] @ a[:, j]
                v = v - r[i, j] * q[:, i]
            r[j, j] = np.sqrt(v @ v)
            q[:, j] = v / r[j, j]
        return np.sum(q**3) + np.sum(np.log(np.diag(r)))

    a = random(N, N)
    derivative = tg.grad(orthogonal)
    near = [(orthogonal(a + d) - orthogonal(a - d)) / 2e-6 for d in 1e-6 * np.eye(N * N).reshape(N * N, N, N)]
    np.testing.assert_allclose(derivative(a).ravel(), near, rtol=1e-5, atol=1e-6)
    shapes = re.findall(r"f64\[([\d,]+)\]", str(derivative.explain(a).optimized))
    assert max(np.prod(list(map(int, shape.split(",")))) for shape in shapes) <= N**3


def test_derivatives_keep_no_number_of_a_loop_around() -> None:
    graph = tg.grad(lambda x: cholesky_by_elements(x.copy())).explain(POSITIVE).optimized
    args = [x for x in graph.everywhere() if x.result_index is not None]
    assert len(args) > 4
    assert not any(x.aval.shape and x.aval.dtype.kind == "i" for x in args)
