"""What a loop keeps for its derivative, and leaves where it was: read there, if nothing writes it later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from graphs import f64, i64
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs import interpreted

import tracegrad as tg
from tracegrad import passes
from tracegrad.control import scan
from tracegrad.ir import Graph, build, parse, run
from tracegrad.ops.core.forms import Repeat, While
from tracegrad.ops.elementwise.table import add, multiply, sin
from tracegrad.ops.indexing.dynamic_slice import dynamic_slice, dynamic_update_slice
from tracegrad.ops.indexing.gather_scatter import gather
from tracegrad.ops.shape.fill import arange
from tracegrad.ops.shape.linear import full

rng = np.random.default_rng(4)
N = 9
X = 0.2 * rng.normal(size=(N, N))
X = X @ X.T + np.eye(N)


pytestmark = pytest.mark.usefixtures("folds")


class Program(NamedTuple):
    fun: Callable[[Any], Any]
    kept: int


PROGRAMS: dict[str, Program] = {}


def keeps(count: int) -> Callable[[Any], Any]:
    """Enter a function whose derivative keeps so many windows, of several elements, of all iterations of its two
    loops."""

    def enter(fun: Any) -> Any:
        PROGRAMS[fun.__name__] = Program(fun, count)
        return fun

    return enter


def kept(f: Any, x: Any) -> int:
    """How many windows of several elements are kept for each turn of a loop within a loop."""
    result = 0
    for node in tg.grad(f).explain(x).optimized.nodes:
        if isinstance(node.op.form, Repeat | While):
            body, carries = dict(node.params)["body"], dict(node.params)["carries"]
            for y in body.outputs[carries:]:
                inner = y.operands[0] if y.result_index is not None else y
                if inner.is_multi_result and isinstance(inner.op.form, Repeat | While):
                    region, n = dict(inner.params)["body"], dict(inner.params)["carries"]
                    within = (
                        region.outputs[y.result_index - isinstance(inner.op.form, While)]
                        if y.result_index >= n
                        else None
                    )
                    result += within is not None and within.op is dynamic_slice and within.aval.size > 1
    return result


# -- what is left ----------------------------------------------------------------------------------------------
@keeps(0)
def rows_up_to_the_iteration(a: Any) -> Any:
    f = np.zeros_like(a)
    for i in range(N):
        for j in range(i):
            f[i, j] = (a[i, j] - f[i, :j] @ f[j, :j]) / f[j, j]
        f[i, i] = np.sqrt(a[i, i] - np.sum(f[i, :i] ** 2))
    return np.sum(f**2 * a)


@keeps(0)
def both_sides_of_a_choice(a: Any) -> Any:
    f = np.zeros_like(a)
    for i in range(N):
        for j in range(i + 1):
            s = a[i, j] - f[i, :j] @ f[j, :j]
            if i == j:
                f[i, j] = np.sqrt(s)
            else:
                f[i, j] = s / f[j, j]
    return np.sum(np.log(np.diag(f)))


@keeps(0)
def rows_from_the_iteration_on(a: Any) -> Any:
    """From the last row and column back."""
    f = np.zeros_like(a)
    for i in range(N - 1, -1, -1):
        for j in range(N - 1, -1, -1):
            f[i, j] = np.tanh(a[i, j] + f[i, j + 1 :] @ a[j, j + 1 :])
    return np.sum(f**2)


@keeps(0)
def columns(a: Any) -> Any:
    f = np.zeros_like(a)
    for i in range(N):
        for j in range(N):
            f[j, i] = np.sin(a[j, i] + f[:j, i] @ a[:j, i])
    return np.sum(f**2 * a)


# -- what is not -----------------------------------------------------------------------------------------------
@keeps(1)
def with_the_element_of_the_iteration(a: Any) -> Any:
    f = a.copy()
    for i in range(N):
        for j in range(i + 1):
            f[i, j] = np.sin(f[i, : j + 1] @ a[j, : j + 1])
    return np.sum(f**2)


@keeps(1)
def rows_written_in_later_iterations(a: Any) -> Any:
    f = a.copy()
    for i in range(N):
        for j in range(N):
            f[i, j] = 0.5 * np.sum(np.sin(f[j, :j]))
    return np.sum(f**2)


@keeps(1)
def rows_written_after_the_loop_within(a: Any) -> Any:
    f = a.copy()
    for i in range(N):
        for j in range(i + 1):
            f[i, j] = np.sin(a[i, j] + np.sum(f[i, :j] ** 2))
        f[i] = f[i] * a[0]
    return np.sum(f**2)


@keeps(1)
def an_element_written_beside(a: Any) -> Any:
    f = a.copy()
    for i in range(N):
        for j in range(i + 1):
            f[i, j] = np.sin(a[i, j] + np.sum(f[i, :j] ** 2))
            f[i, 0] = 0.9 * f[i, 0]
    return np.sum(f**2)


@keeps(1)
def backwards_through_what_is_written(a: Any) -> Any:
    f = a.copy()
    for i in range(N):
        for m in range(N):
            j = N - 1 - m
            f[i, j] = np.sin(a[i, j] + np.sum(f[i, :j] ** 2))
    return np.sum(f**2)


@pytest.fixture(params=PROGRAMS)
def case(request: pytest.FixtureRequest) -> Program:
    return PROGRAMS[request.param]


def fresh(f: Any) -> Any:
    return lambda a: f(a.copy())


def test_what_is_left_is_not_kept(case: Program) -> None:
    assert kept(fresh(case.fun), X) == case.kept


def test_gradients_are_those_of_differences(case: Program) -> None:
    f, direction = fresh(case.fun), rng.normal(size=X.shape)
    value, gradient = tg.value_and_grad(f)(X)
    derivative = (f(X + 1e-6 * direction) - f(X - 1e-6 * direction)) / 2e-6
    np.testing.assert_allclose(value, f(X), rtol=1e-12)
    np.testing.assert_allclose(np.sum(gradient * direction), derivative, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", ["rows_up_to_the_iteration", "with_the_element_of_the_iteration"])
def test_second_derivatives_are_those_of_differences(name: str) -> None:
    f, (u, v) = fresh(PROGRAMS[name].fun), rng.normal(size=(2, N, N))
    gradient = tg.grad(f)
    second = tg.grad(lambda a: np.sum(gradient(a) * u))(X)
    derivative = np.sum((gradient(X + 1e-6 * v) - gradient(X - 1e-6 * v)) * u) / 2e-6
    np.testing.assert_allclose(np.sum(second * v), derivative, rtol=1e-5, atol=1e-7)


def reading_kept(read: Any) -> Graph:
    """A loop that writes rows and keeps them but for their first elements, and one that is given these and numbers."""

    def write(b: Any, k: Any, x: Any) -> list[Any]:
        b = dynamic_update_slice(b, dynamic_slice(sin(x), k, 0, sizes=(1, N), step=(1, 1)), k, 0, step=(1, 1))
        return [b, dynamic_slice(b, k, 1, sizes=(1, N - 1), step=(1, 1))]

    def add_rows(total: Any, place: Any, kept: Any) -> list[Any]:
        return [add(total, read(kept, place))]

    writing, adding = (
        build(write, [f64(N, N), i64(), f64(N, N)]),
        build(add_rows, [f64(1, N - 1), i64(), f64(N, 1, N - 1)]),
    )

    def both_loops(x: Any, places: Any) -> list[Any]:
        iterations = arange(start=0, step=1, length=N, dtype="int64")
        b, kept = scan(multiply(x, 0.0), iterations, x, body=writing, carries=1, xs=1, length=N, reverse=False)
        zeros = full(shape=(1, N - 1), value=0.0, dtype="float64")
        return [b, *scan(zeros, places, kept, body=adding, carries=1, xs=1, length=N, reverse=False)]

    return build(both_loops, [f64(N, N), i64(N)])


def test_places_are_counted_as_before() -> None:
    """Negative ones from the end; others fail."""
    graph = reading_kept(lambda kept, place: gather(kept, place, axes=(0,)))
    fast = passes.optimize(graph)
    assert not any(x.op is not None and x.op is gather for node in fast.nodes for y in node.regions for x in y.nodes)
    for places in (np.arange(N), np.arange(N) - N, -1 - np.arange(N)):
        for got, want in zip(run(fast, [X, places]), run(graph, [X, places])):
            np.testing.assert_array_equal(got, want)
    for wrong in (N, -N - 1):
        with pytest.raises(IndexError):
            run(fast, [X, np.array([0] * (N - 1) + [wrong])])


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_loops_over_random_windows(data: st.DataObject) -> None:
    """Two loops that read parts of rows up to a number, or from one on, and write an element before or after."""
    which = st.sampled_from(["i", "j"])
    row, column, of, bound = [data.draw(which) for _ in range(4)]
    more, shift = data.draw(st.integers(-1, 1)), data.draw(st.integers(0, 1))
    up, early = data.draw(st.booleans()), data.draw(st.booleans())
    full, down = data.draw(st.booleans()), data.draw(st.booleans())

    def f(a: Any) -> Any:
        a = a.copy()
        for i in range(1, 8):
            for m in range(1, 8 if full else i):
                j = 8 - m if down else m
                at = {"i": i, "j": j}
                if early:
                    a[at[row] + shift, at[column]] *= 0.9
                k = at[bound] + more
                part = a[at[of], :k] if up else a[at[of], k:]
                a[at[row] + shift, at[column]] += 0.1 * np.sum(np.sin(part))
        return np.sum(a**2)

    x, direction = rng.normal(size=(2, N, N))
    with interpreted():
        value, gradient = tg.value_and_grad(f)(x)
    np.testing.assert_allclose(value, f(x), rtol=1e-10)
    derivative = (f(x + 1e-6 * direction) - f(x - 1e-6 * direction)) / 2e-6
    np.testing.assert_allclose(np.sum(gradient * direction), derivative, rtol=1e-5, atol=1e-6)


# -- the text before and after ---------------------------------------------------------------------------------
BEFORE = """graph(%0: f64[9]) {
  %1 = arange() {dtype='int64', length=8, start=1, step=1} : i64[8]
  %2, %3 = scan(%0, %1) {carries=1, length=8, reverse=False, xs=1} : f64[9], f64[8,1]
    body(%0: f64[9], %1: i64[]) {
      %2 = subtract(%1, 1) : i64[]
      %3 = dynamic_slice(%0, %2) {sizes=(1,), step=(1,)} : f64[1]
      %4 = sin(%3) : f64[1]
      %5 = dynamic_update_slice(%0, %4, %1) {step=(1,)} : f64[9]
      return %5, %3
    }
  %4 = full() {dtype='float64', shape=(1,), value=1.0} : f64[1]
  %5, = scan(%4, %3) {carries=1, length=8, reverse=True, xs=1} : f64[1],
    body(%0: f64[1], %1: f64[1]) {
      %2 = cos(%1) : f64[1]
      %3 = multiply(%0, %2) : f64[1]
      return %3
    }
  return %2, %5
}"""
AFTER = """graph(%0: f64[9]) {
  %1 = arange() {dtype='int64', length=8, start=1, step=1} : i64[8]
  %2, = scan(%0, %1) {carries=1, length=8, reverse=False, xs=1} : f64[9],
    body(%0: f64[9], %1: i64[]) {
      %2 = subtract(%1, 1) : i64[]
      %3 = dynamic_slice(%0, %2) {sizes=(1,), step=(1,)} : f64[1]
      %4 = sin(%3) : f64[1]
      %5 = dynamic_update_slice(%0, %4, %1) {step=(1,)} : f64[9]
      return %5
    }
  %3 = full() {dtype='float64', shape=(1,), value=1.0} : f64[1]
  %4 = arange() {dtype='int64', length=8, start=0, step=1} : i64[8]
  %5, = scan(%3, %4, %2) {carries=1, length=8, reverse=True, xs=1} : f64[1],
    body(%0: f64[1], %1: i64[], %2: f64[9]) {
      %3 = maximum(%1, 0) : i64[]
      %4 = minimum(%3, 8) : i64[]
      %5 = dynamic_slice(%2, %4) {sizes=(1,), step=(1,)} : f64[1]
      %6 = cos(%5) : f64[1]
      %7 = multiply(%0, %6) : f64[1]
      return %7
    }
  return %2, %5
}"""


def test_rows_of_a_residual_become_windows_of_the_final_array() -> None:
    before = parse(BEFORE)
    after = passes.read_what_is_left(before)
    assert str(after) == AFTER
    x = rng.normal(size=9)
    for a, b in zip(run(before, [x]), run(after, [x]), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("index", ["add(%1, 0)", "multiply(%1, 1)", "multiply(%1, %1)", "maximum(%1, 3)"])
def test_a_window_that_may_be_written_later_stays_stored(index: str) -> None:
    graph = parse(BEFORE.replace("subtract(%1, 1)", index))
    assert passes.read_what_is_left(graph) is graph
