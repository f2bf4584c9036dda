"""Loops that count, within loops: what a derivative keeps of them, and for how many iterations there is room."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.analysis.trip_count import max_iterations
from tracegrad.avals import aval_of
from tracegrad.control.while_op import ROOMS, room_for, while_loop
from tracegrad.ir import build
from tracegrad.ir.loop_view import LoopView
from tracegrad.ops.elementwise import table as ew

rng = np.random.default_rng(5)


def eliminated(a: Any, n: int) -> Any:
    """LU without pivots, in place of a copy."""

    def column(k: Any, a: Any) -> Any:
        def row(i: Any, a: Any) -> Any:
            a = a.copy()
            factor = a[i, k] / a[k, k]

            def element(j: Any, a: Any) -> Any:
                a = a.copy()
                a[i, j] -= factor * a[k, j]
                return a

            a = tg.fori_loop(k + 1, n, element, a)
            a[i, k] = factor
            return a

        return tg.fori_loop(k + 1, n, row, a)

    return tg.fori_loop(0, n, column, a)


def substituted(a: Any, n: int) -> Any:
    """The solution of a triangular system, from the last row: its loops within are empty, or count down."""

    def row(iteration: Any, x: Any) -> Any:
        i = n - 1 - iteration

        def term(c: Any) -> Any:
            j, total = c
            # Where there is no iteration, this index would be out of range.
            return j - 1, total + a[i, j] * x[j] * np.cos(a[i + 1, 0])

        x = x.copy()
        _, total = tg.while_loop(lambda c: c[0] > i, term, (n - 1, 0.0 * x[0]))
        x[i] = (1.0 - total) / a[i, i]
        return x

    return tg.fori_loop(0, n, row, np.zeros(n) + 0.0 * a[0])


def swept(a: Any, n: int) -> Any:
    """Gauss-Seidel over the lower triangle, each loop within with a limit of its own."""

    def row(i: Any, a: Any) -> Any:
        def element(c: Any) -> Any:
            j, a = c
            a = a.copy()
            a[i, j] = 0.3 * (a[i - 1, j] + a[i, j - 1]) + np.sin(a[i, j])
            return j + 1, a

        return tg.while_loop(lambda c: c[0] <= i, element, (1, a))[1]

    return tg.fori_loop(1, n, row, a)


def factored(a: Any, n: int) -> Any:
    """Cholesky's factor: the loops within read what the loops around them update."""

    def column(j: Any, low: Any) -> Any:
        def row(i: Any, low: Any) -> Any:
            rest = tg.fori_loop(0, j, lambda k, s: s - low[i, k] * low[j, k], a[i, j])
            low = low.copy()
            low[i, j] = rest / low[j, j]
            return low

        square = tg.fori_loop(0, j, lambda k, s: s - low[j, k] * low[j, k], a[j, j])
        low = low.copy()
        low[j, j] = np.sqrt(square)
        return tg.fori_loop(j + 1, n, row, low)

    return tg.fori_loop(0, n, column, np.zeros((n, n)) + 0.0 * a)


def differences(f: Callable[[Any], Any], a: Any) -> Any:
    result = np.empty_like(a)
    for at in np.ndindex(a.shape):
        step = np.zeros_like(a)
        step[at] = 1e-6
        result[at] = (f(a + step) - f(a - step)) / 2e-6
    return result


@pytest.mark.parametrize("f", [eliminated, substituted, swept, factored], ids=lambda f: f.__name__)
def test_derivatives_of_loops_whose_bounds_count(f: Any) -> None:
    n = 5
    a, w = rng.random((n, n)) + n * np.eye(n), rng.random(n)

    def loss(a: Any) -> Any:
        return np.sum(np.sin(f(a, n)) * w)

    first = tg.grad(loss)
    want = differences(loss, a)
    with room_for(1):  # which is not asked for
        np.testing.assert_allclose(first(a), want, atol=1e-8)
    assert first.cache_info().traces == 1
    if f is eliminated:
        batch = np.stack([a, a.T])
        np.testing.assert_allclose(tg.vmap(first)(batch), [first(x) for x in batch], rtol=1e-12)
    if f is swept:
        t = rng.standard_normal((n, n))
        step = (first(a + 1e-6 * t) - first(a - 1e-6 * t)) / 2e-6
        np.testing.assert_allclose(tg.grad(lambda a: np.sum(first(a) * t))(a), step, atol=1e-7)


def test_the_value_and_its_gradient_run_the_loop_once_forwards() -> None:
    a = rng.random((20, 20)) + 20 * np.eye(20)
    graph = tg.value_and_grad(lambda a: np.sum(np.diagonal(eliminated(a, 20)))).explain(a).optimized
    assert [node.name for node in graph.nodes].count("scan") == 2


def test_what_a_loop_within_reads_is_kept_and_not_the_array_that_it_is_in() -> None:
    a = rng.random((9, 9)) + 9 * np.eye(9)
    graph = tg.grad(lambda a: np.sum(factored(a, 9))).explain(a).optimized
    saved = [aval.size for x in graph.everywhere() if x.is_multi_result for aval in x.aval]  # type: ignore[union-attr]
    assert max(saved) <= 9 * 8 * 8


def test_a_sum_that_a_loop_begins_with_zeros_begins_with_what_it_is_added_to() -> None:
    a, b = rng.random((9, 9)), rng.random(9)

    def f(a: Any) -> Any:
        y = tg.scan(lambda c, i: (np.sin(c * a[i, i]) + a[8 - i, 2], None), 1.0, np.arange(9))[0]
        return y + np.sum(a[0] * b)

    first = tg.grad(f)
    np.testing.assert_allclose(first(a), differences(f, a), atol=1e-8)
    wide = [x for x in first.explain(a).optimized.nodes if x.name == "add" and x.aval.shape == (9, 9)]  # type: ignore[union-attr]
    assert not wide


def test_a_limit_of_the_call_is_no_trace_of_its_own_unless_there_is_no_room() -> None:
    power = tg.grad(lambda x, n: tg.fori_loop(0, n, lambda i, c: c * x + i, 1.0))
    results = [power(0.9, np.int64(n)) for n in (3, 0, 60, 1)]
    want = [differences(lambda x, n=n: _power(x[0], n), np.array([0.9]))[0] for n in (3, 0, 60, 1)]
    np.testing.assert_allclose(results, want, rtol=1e-6)
    assert power.cache_info().traces == 1


def _power(x: float, n: int) -> float:
    c = 1.0
    for i in range(n):
        c = c * x + i
    return c


CONDITIONS = [
    (ew.less, 1, False, 7),
    (ew.less_equal, 1, False, 8),
    (ew.greater, 1, True, 7),
    (ew.greater_equal, 1, True, 8),
    (ew.greater, -1, False, 6),
    (ew.greater_equal, -1, False, 7),
    (ew.less, -1, True, 6),
    (ew.less_equal, -1, True, 7),
    (ew.less, -1, False, 0),
    (ew.greater, 1, False, 0),
    (ew.less, 2, False, 0),
    (ew.equal, 1, False, 0),
]


@pytest.mark.parametrize(("op", "step", "transposed", "most"), CONDITIONS)
def test_how_many_iterations_there_may_be(op: Any, step: int, transposed: bool, most: int) -> None:
    avals = [aval_of(np.int64(0))] * 2
    cond = build(lambda i, stop: [op(stop, i) if transposed else op(i, stop)], avals)
    body = build(lambda i, stop: [ew.add(i, step)], avals)
    ranges = [(0, 2), (5, 7)] if step > 0 else [(5, 8), (2, 4)]
    assert max_iterations(ranges, LoopView(while_loop, body, 1, cond=cond)) == most
    if most:
        start, stop = (ranges[0][0], ranges[1][1]) if step > 0 else (ranges[0][1], ranges[1][0])
        count = while_loop(np.array(start), np.array(stop), cond=cond, body=body, carries=1, capacity=0)[1]
        assert count == most
    assert ROOMS.iterations == 64
