"""Windows that a loop reads and does not write are read before it, and only these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracegrad as tg
from tracegrad.analysis.index_ranges import distances, window_at
from tracegrad.avals import Aval
from tracegrad.ir import Graph, GraphNode
from tracegrad.ops.core.forms import Repeat, While
from tracegrad.ops.elementwise.table import add
from tracegrad.ops.indexing.dynamic_slice import dynamic_slice, dynamic_update_slice
from tracegrad.ops.shape.linear import slice

rng = np.random.default_rng(3)
N = 9
X = 0.3 * rng.normal(size=(N, N)) + np.eye(N)


pytestmark = pytest.mark.usefixtures("folds")


class Program(NamedTuple):
    fun: Callable[[Any], Any]
    taken: int


PROGRAMS: dict[str, Program] = {}


def takes(count: int) -> Callable[[Any], Any]:
    """Enter a function whose loops read so many windows before."""

    def enter(fun: Any) -> Any:
        PROGRAMS[fun.__name__] = Program(fun, count)
        return fun

    return enter


def taken(graph: Graph) -> int:
    """How many windows of arrays that loops update are given to them as they were before."""
    result = 0
    for node in graph.everywhere():
        if isinstance(node.op.form, Repeat | While):  # type: ignore[union-attr]
            carried = node.inputs[: dict(node.params)["carries"]]
            result += sum(
                isinstance(x, GraphNode) and x.op in (slice, dynamic_slice) and x.inputs[0] in carried
                for x in node.inputs
            )
    return result


# -- what is apart ---------------------------------------------------------------------------------------------
@takes(2)
def rows_below(a: Any) -> Any:
    for k in range(N):
        for i in range(k + 1, N):
            a[i, k] /= a[k, k]
            a[i, k + 1 :] -= a[i, k] * a[k, k + 1 :]
    return np.sum(a)


@takes(2)
def elements_below(a: Any) -> Any:
    """The factor, in the innermost loop, the pivot, in the one around it; the element is another one in each
    iteration."""
    for k in range(N):
        for i in range(k + 1, N):
            a[i, k] = a[i, k] / a[k, k]
            for j in range(k + 1, N):
                a[i, j] -= a[i, k] * a[k, j] * np.sin(a[i, k])
    return np.sum(a**2)


@takes(1)
def rows_above(a: Any) -> Any:
    for k in range(N - 1, 0, -1):
        for i in range(k - 1, -1, -1):
            a[i] -= 0.3 * a[k]
    return np.sum(a**2)


@takes(1)
def rows_above_upwards(a: Any) -> Any:
    """Where the loop ends says that the row is not written."""
    for k in range(1, N):
        for i in range(k):
            a[i] -= 0.3 * a[k]
    return np.sum(a**2)


@takes(1)
def rows_below_downwards(a: Any) -> Any:
    for k in range(N):
        for i in range(N - 1, k, -1):
            a[i] -= 0.3 * a[k]
    return np.sum(a**2)


@takes(1)
def first_row(a: Any) -> Any:
    for i in range(1, N):
        a[i] = np.sin(a[i] + a[0])
    return np.sum(a**2)


@takes(1)
def columns(a: Any) -> Any:
    for k in range(N):
        for j in range(k + 1, N):
            a[:, j] += 0.2 * a[:, k]
    return np.sum(a**2)


@takes(1)
def blocks(a: Any) -> Any:
    for k in range(4):
        for i in range(k + 1, 4):
            a[2 * i : 2 * i + 2] += 0.2 * a[:1]
    return np.sum(a**2)


# -- what is not -----------------------------------------------------------------------------------------------
@takes(0)
def the_row_itself(a: Any) -> Any:
    for k in range(N):
        for i in range(k, N):
            a[i] -= 0.3 * a[k]
    return np.sum(a**2)


@takes(0)
def two_rows(a: Any) -> Any:
    """The second is the one that is read, in the last iteration."""
    for k in range(2, N):
        for i in range(k):
            a[i : i + 2] += 0.2 * a[k]
    return np.sum(a**2)


@takes(0)
def in_some_iterations(a: Any) -> Any:
    for k in range(2, N):
        for i in range(k + 1, N):
            a[i] -= 0.3 * a[k]
            if a[i, 0] > 0.2:
                a[k] = a[k] * 0.9
    return np.sum(a**2)


@takes(0)
def in_the_last_iteration(a: Any) -> Any:
    for k in range(N - 1, 0, -1):
        for i in range(k - 1, -1, -1):
            a[k - i] -= 0.3 * a[k]
    return np.sum(a**2)


@takes(0)
def another_row_in_each_iteration(a: Any) -> Any:
    for k in range(N):
        for i in range(k + 1, N):
            a[i] -= 0.3 * a[i - 1]
    return np.sum(a**2)


@takes(0)
def rows_that_wrap(a: Any) -> Any:
    for k in range(N):
        for i in range(k + 1, k + N):
            a[i % N] -= 0.3 * a[k]
    return np.sum(a**2)


@takes(0)
def by_a_loop_within(a: Any) -> Any:
    for k in range(N):
        for i in range(k + 1, N):
            a[i] -= 0.3 * a[k]
            for j in range(i):
                a[j, k] *= 0.9
    return np.sum(a**2)


@takes(0)
def rows_that_are_exchanged(a: Any) -> Any:
    """The array is another one in each iteration."""
    b = np.cos(a)
    for i in range(1, N):
        a[i] = np.sin(a[i] + a[0])
        a, b = b, a
    return np.sum(a**2 * b)


@takes(0)
def last_row_on_some_ways(a: Any) -> Any:
    """What is read on a way is read where that is gone."""
    for i in range(N - 1):
        if a[i, 0] > 0.1:
            a[i] = np.sin(a[i] + a[-1])
        else:
            a[i] = a[i] - 0.5 * a[-1]
    return np.sum(a**2)


@takes(0)
def behind_an_empty_loop(a: Any) -> Any:
    """Where the loop takes no iteration, the row need not be there: the index is checked in the iteration."""
    for k in range(N):
        for i in range(k + 2, N):
            a[i] -= 0.3 * a[k + 1]
    return np.sum(a**2)


ASKING = ("last_row_on_some_ways", "in_some_iterations")  # for values, which a batch has many of


@pytest.fixture(params=PROGRAMS)
def case(request: pytest.FixtureRequest) -> Program:
    return PROGRAMS[request.param]


def fresh(f: Any) -> Any:
    return lambda a: f(a.copy())


def test_what_no_iteration_writes_is_read_before(case: Program) -> None:
    assert taken(tg.trace(fresh(case.fun)).graph(X)) == case.taken


def test_loops_compute_what_numpy_computes(case: Program) -> None:
    f = fresh(case.fun)
    np.testing.assert_allclose(tg.trace(f)(X), f(X), rtol=1e-12)


def test_gradients_are_those_of_differences(case: Program) -> None:
    f, direction = fresh(case.fun), rng.normal(size=X.shape)
    derivative = (f(X + 1e-6 * direction) - f(X - 1e-6 * direction)) / 2e-6
    np.testing.assert_allclose(np.sum(tg.grad(f)(X) * direction), derivative, rtol=1e-6, atol=1e-8)
    if case.taken:
        tangent = tg.jvp(f, (X,), (direction,))[1]
        np.testing.assert_allclose(tangent, derivative, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", [x for x in PROGRAMS if x not in ASKING])
def test_a_batch_of_loops(name: str) -> None:
    f, xs = fresh(PROGRAMS[name].fun), X + 0.1 * rng.normal(size=(3, N, N))
    np.testing.assert_allclose(tg.trace(tg.vmap(f))(xs), [f(x) for x in xs], rtol=1e-12)


# -- parts of what no iteration writes --------------------------------------------------------------------------------
def carried(graph: Graph) -> set[Any]:
    """The shapes of what loops hand on."""
    loops = [x for x in graph.everywhere() if isinstance(x.op.form, Repeat | While)]  # type: ignore[union-attr]
    return {y.aval.shape for x in loops for y in x.operands[: dict(x.params)["carries"]]}


@pytest.mark.parametrize("rows", [1, 6])
def test_derivatives_add_to_small_parts_of_arrays_and_not_to_all(rows: int) -> None:
    def f(w: Any, x: Any) -> Any:
        for _ in range(30):
            x = np.tanh(np.sum(w[1, :rows] * x, 0) + w[0, 2])
        return np.sum(x)

    w, x = 0.3 * rng.normal(size=(2, 6, 4)), rng.normal(size=4)
    derivative, along = tg.grad(f)(w, x), rng.normal(size=w.shape)
    assert np.sum(derivative * along) == pytest.approx(
        (f(w + 1e-6 * along, x) - f(w - 1e-6 * along, x)) / 2e-6, rel=1e-6
    )
    assert w.shape not in carried(tg.grad(f).explain(w, x).optimized)


def test_large_parts_are_read_where_they_are() -> None:
    def f(w: Any, x: Any) -> Any:
        return tg.fori_loop(0, 30, lambda _, x: np.tanh(np.sum(w[1:] * x, 0)), x)

    w, x = rng.normal(size=(6, 4)), rng.normal(size=4)
    (loop,) = [x for x in tg.trace(f).graph(w, x).nodes if isinstance(x.op.form, Repeat | While)]  # type: ignore[union-attr]
    assert slice in [x.op for x in loop.regions[-1].nodes]


# -- loops of control functions, at random places ----------------------------------------------------------------
def test_what_a_loop_function_does_not_write_is_read_before() -> None:
    def f(a: Any) -> Any:
        def turn(i: Any, a: Any) -> Any:
            a = a.copy()
            a[i + 1] += np.sin(a[0])
            return a

        return np.sum(tg.fori_loop(0, N - 1, turn, a) ** 2)

    assert taken(tg.trace(f).graph(X)) == 1
    want = X.copy()
    want[1:] += np.sin(X[0])
    np.testing.assert_allclose(tg.trace(f)(X), np.sum(want**2), rtol=1e-14)


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_loops_over_random_windows(data: st.DataObject) -> None:
    """Two loops, the inner one from or to a number of the outer: it writes at its own number, and reads at that of the
    outer one. What is taken for apart is apart, since the graph computes what NumPy does."""
    small = st.integers(-2, 2)
    begin, end, write, read = [data.draw(small) for _ in range(4)]
    down, from_outer = data.draw(st.booleans()), data.draw(st.booleans())
    wide, broad = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 2))
    step = data.draw(st.integers(1, 3))

    def f(x: Any) -> Any:
        x = x.copy()
        for k in range(2, 10):
            low, high = (k + begin, 9 + end) if from_outer else (2 + begin, k + end)
            if down:
                low, high = high - 1, low - 1
            for i in range(low, high, -step if down else step):
                x[4 + i + write : 4 + i + write + wide] += 0.2 * np.sum(np.sin(x[4 + k + read : 4 + k + read + broad]))
        return np.sum(np.sin(x))

    random = np.random.default_rng(3)
    x = random.normal(size=20)
    value, gradient = tg.value_and_grad(f)(x)
    np.testing.assert_allclose(value, f(x), rtol=1e-12)
    along = random.normal(size=20)
    derivative = (f(x + 1e-6 * along) - f(x - 1e-6 * along)) / 2e-6
    np.testing.assert_allclose(np.sum(gradient * along), derivative, rtol=1e-5, atol=1e-7)


def test_a_place_outside_of_the_array_is_none_of_an_empty_loop() -> None:
    """The row behind the last one is read by no iteration, before the loop neither."""

    def f(a: Any, k: Any) -> Any:
        def turn(c: Any) -> Any:
            i, a = c
            row = dynamic_slice(a, k, 0, sizes=(1, N), step=(1, 1))
            return i + 1, dynamic_update_slice(a, np.sin(row), i, 0, step=(1, 1))

        return np.sum(tg.while_loop(lambda c: c[0] < N, turn, (k + 1, a))[1] ** 2)

    gradient = tg.value_and_grad(f)
    for k in (N - 2, N - 1, N, 2**40, 4):
        want, derivative = X.copy(), 2 * X
        if k < N - 1:
            want[k + 1 :] = np.sin(X[k])
            derivative[k + 1 :] = 0
            derivative[k] += (N - 1 - k) * 2 * np.sin(X[k]) * np.cos(X[k])
        for got, right in zip(gradient(X, np.array(k)), (np.sum(want**2), derivative), strict=True):
            np.testing.assert_allclose(got, right, rtol=1e-12)
    assert taken(tg.trace(f).graph(X, np.array(4))) == 1


# -- distances -------------------------------------------------------------------------------------------------
def test_distances_of_sums() -> None:
    k = GraphNode(None, (), (), Aval((), np.dtype(np.int64)))
    more = GraphNode(add, (GraphNode(add, (k, 3), (), k.aval), -1), (), k.aval)
    assert distances(more, {k: {k: (0, 0), None: (1, 5)}}) == {k: (2, 2), None: (3, 7)}
    assert distances(GraphNode(add, (k, 2**40), (), k.aval), {k: {k: (0, 0)}}) == {}


@pytest.mark.parametrize("sizes", [(1, 1), (2, 1), (1, 3), (4, 2)])
def test_windows_are_apart_if_no_places_are_common(sizes: tuple[int, int]) -> None:
    one, other = sizes
    fixed = window_at([{None: (0, 0)}], [other], [1])
    for low in range(-6, 7):
        for high in range(low, 7):
            window = window_at([{None: (low, high)}], [one], [1])
            places = {low + d + k for d in range(high - low + 1) for k in range(one)}
            want = places.isdisjoint(range(other))
            assert window.is_disjoint(fixed) == fixed.is_disjoint(window) <= want
            if low == high:
                assert window.is_disjoint(fixed) == want
    k = GraphNode(None, (), (), Aval((), np.dtype(np.int64)))
    assert not window_at([{None: (9, 9)}], [one], [1]).is_disjoint(window_at([{k: (0, 0)}], [other], [1]))
