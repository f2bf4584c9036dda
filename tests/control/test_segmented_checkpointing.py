"""Loops whose derivative would keep too much of their iterations: in segments, with the same values and derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.control.scan_op import scan
from tracegrad.control.segmented_checkpointing import ResidualSizes
from tracegrad.ir import parse, run
from tracegrad.passes import join_segments

X = np.linspace(0.3, 0.9, 4)
ROWS = np.sin(np.arange(400.0)).reshape(100, 4)
MATRIX = np.sin(np.arange(16.0)).reshape(4, 4) * 0.4


def _all_sorts(v: Any, w: Any, rows: Any, reverse: bool = False) -> Any:
    """A carry, a counter, one that only the last iteration reads, rows, constants, and stacked results."""

    def turn(carry: Any, row: Any) -> Any:
        c, n, total = carry
        new = np.tanh(MATRIX @ c + row * w) + 0.01 * n * v
        return (new, n + 1, total + row[0]), (new * c, row[1] * np.exp(w))

    (last, _, total), (ys, zs) = tg.scan(turn, (v, 0, 0.0), rows, reverse=reverse)
    return last.sum() * total + (ys * rows).sum() + (zs[1:] * zs[:-1]).sum()


def _nested(v: Any, w: Any, rows: Any) -> Any:
    def turn(c: Any, row: Any) -> Any:
        inner = tg.scan(lambda a, _: (np.sin(a) * w + row, None), c, length=30)[0]
        return tg.cond(np.sum(inner) > 0.0, np.cos, lambda a: a * w, inner), None

    return tg.scan(turn, v, rows)[0].sum()


def _rolled(v: Any, w: Any, rows: Any) -> Any:
    for row in rows:
        v = np.sin(v * w) + row * v
    return v.sum()


def _in_place(v: Any, w: Any, rows: Any) -> Any:
    u = v.copy()
    for row in rows:
        u[1:-1] += w[0] * (u[2:] * row[1] + np.sin(u[:-2]) - 2.0 * u[1:-1])
    return (u**2).sum()


def _without_carry(v: Any, w: Any, rows: Any) -> Any:
    return tg.map(lambda r: np.exp(np.sin(r * v) * w), rows).sum()


FUNCTIONS = [_all_sorts, _nested, _rolled, _in_place, _without_carry]
every_function = pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__.strip("_"))


def divided(f: Callable[..., Any], bound: int, *args: Any) -> Any:
    with tg.settings.override(loop_memory=bound):
        return f(*args)


def assert_same(found: Any, want: Any) -> None:
    for a, b in zip(tg.tree.leaves(found), tg.tree.leaves(want), strict=True):
        assert np.array_equal(a, b)


def scans(graph: Any) -> list[int]:
    """The lengths of all loops."""
    return [dict(node.params)["length"] for node in graph.everywhere() if node.name == "scan"]


def largest(graph: Any) -> int:
    """The size of the largest value."""
    return max(aval.size for x in graph.everywhere() for aval in (x.aval if x.is_multi_result else [x.aval]))


# -- values and derivatives ----------------------------------------------------------------------
@every_function
@pytest.mark.parametrize(("length", "bound"), [(100, 1000), (97, 1000), (97, 1)])
def test_gradients_are_those_of_the_whole_loop_to_the_bit(f: Any, length: int, bound: int) -> None:
    gradient = tg.grad(f, argnums=(0, 1, 2))
    args = (X, X[::-1] + 0.2, ROWS[:length])
    want = gradient(*args)
    assert_same(divided(gradient, bound, *args), want)


@pytest.mark.parametrize("length", [100, 97, 1])
def test_loops_from_the_end_are_divided_from_the_end(length: int) -> None:
    gradient = tg.grad(lambda *args: _all_sorts(*args, reverse=True), argnums=(0, 1, 2))
    args = (X, X[::-1] + 0.2, ROWS[:length])
    assert_same(divided(gradient, 1000, *args), gradient(*args))


def test_second_derivatives_and_forward_mode() -> None:
    w, weight = X[::-1] + 0.2, np.array([1.0, -2.0, 0.5, 3.0])
    first = tg.grad(lambda v: _rolled(v, w, ROWS[:37]))
    second = tg.grad(lambda v: np.sum(first(v) * weight))
    result = divided(lambda: [second(X), tg.jvp(first, (X,), (weight,))[1]], 300)
    np.testing.assert_allclose(result, [second(X)] * 2, rtol=1e-9)
    np.testing.assert_allclose(result[0], second(X), rtol=1e-13)


def test_batches_count_as_often_as_they_have_examples() -> None:
    points = X * np.array([[1.0], [0.7], [1.3]])
    w, rows = X[::-1] + 0.2, ROWS[:60]
    one = tg.grad(_rolled)
    many = tg.vmap(one, in_axes=(0, None, None))
    want = np.array([one(v, w, rows) for v in points])
    saved = 60 * 4 * 8
    assert max(scans(divided(lambda: one.graph(points[0], w, rows), saved))) == 60
    assert max(scans(divided(lambda: many.graph(points, w, rows), saved))) < 60
    np.testing.assert_allclose(divided(many, saved, points, w, rows), want, rtol=1e-13)
    outside = tg.grad(lambda v: tg.vmap(_rolled, in_axes=(0, None, None))(v, w, rows).sum())
    np.testing.assert_allclose(divided(outside, 1000, points), want, rtol=1e-13)


def test_tensors_and_loops_that_a_traced_function_gives_the_tape() -> None:
    step = tg.trace(lambda t: tg.scan(lambda c, r: (tg.sin(c * t) + r, None), t, tg.tensor(ROWS))[0].sum())

    def slope() -> Any:
        t = tg.tensor(X, requires_grad=True)
        step(t).backward()
        return t.grad.numpy()

    np.testing.assert_array_equal(divided(slope, 1000), slope())


def _as_long_as(v: Any, w: Any, n: Any) -> Any:
    last, _ = tg.while_loop(lambda s: s[1] < n, lambda s: (np.sin(s[0] * w) + 0.01 * s[1] * v, s[1] + 1), (v, 0))
    return (last**2).sum()


@pytest.mark.parametrize("bound", [1500, 100])
def test_loops_that_a_condition_ends_are_divided_too(bound: int) -> None:
    gradient, w = tg.grad(_as_long_as, argnums=(0, 1)), X[::-1] * 0.5
    counts = (5, 0, 1, 127, 128, 129, 600)
    want = [gradient(X, w, n) for n in counts]
    traces = gradient.cache_info().traces
    with tg.settings.override(loop_memory=bound):
        for n, derivative in zip(counts, want):
            for a, b in zip(gradient(X, w, n), derivative, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-12)
        optimized = gradient.explain(X, w, 5).optimized
        assert largest(optimized) < 128 * 4
    assert gradient.cache_info().traces <= 2 * traces


def test_loops_that_a_condition_ends_have_second_derivatives_and_batches() -> None:
    w, n = X[::-1] * 0.5, np.array([3, 70, 0])
    second = tg.grad(lambda v: np.sum(tg.grad(_as_long_as)(v, w, 37) * X))
    many = tg.vmap(lambda n: tg.grad(_as_long_as)(X, w, n))
    np.testing.assert_allclose(divided(second, 1000, X), second(X), rtol=1e-12)
    np.testing.assert_allclose(divided(many, 1000, n), many(n), rtol=1e-12)


# -- what is kept ----------------------------------------------------------------------
def test_a_loop_of_a_value_and_that_of_its_derivative_are_divided_as_one() -> None:
    both = tg.value_and_grad(lambda v: tg.scan(lambda c, _: (np.sin(c) * v, None), v, length=100)[0].sum())
    optimized = divided(lambda: both.explain(X).optimized, 1000)
    # The segments, the iterations of one; backwards the segments, the iterations again, and their derivative.
    assert scans(optimized) == [10, 10, 10, 10, 10]
    whole = both.explain(X).optimized
    assert scans(whole) == [100, 100]
    assert [largest(optimized), largest(whole)] == [40, 400]


def test_carries_that_the_derivative_does_not_need_are_not_kept() -> None:
    def f(v: Any) -> Any:
        out = np.zeros((1000, 4))
        for i in range(1000):
            v = np.sin(v) * 1.1
            out[i] = v
        return (out**2).sum()

    with tg.settings.override(loop_memory=8000):
        graph = tg.grad(f).explain(X).optimized
        assert largest(graph) <= 4000
    assert_same(divided(tg.grad(f), 8000, X), tg.grad(f)(X))


def test_a_loop_is_left_whole_if_its_segments_would_begin_with_as_much(capsys: pytest.CaptureFixture[str]) -> None:
    # The derivative needs one number of each iteration, and an iteration all of the history.
    def f(v: Any) -> Any:
        out = np.zeros(500)
        out[0] = v
        for i in range(1, 500):
            out[i] = np.sin(out[i - 1]) + v
        return out[-1]

    with tg.settings.override(loop_memory=2000, log="loops"):
        result = tg.grad(f)(0.5)
    assert result == tg.grad(f)(0.5)
    assert "begin with as much" in capsys.readouterr().err


def test_what_is_kept_is_least() -> None:
    for start, iteration, length in [(8, 8, 1000), (8, 800, 1000), (80, 8, 1000), (8, 8, 997), (8, 8, 3)]:
        sizes = ResidualSizes(start, iteration)
        best = min(length // k * start + k * iteration for k in range(1, length + 1))
        assert sizes.memory(length, 1) <= max(1.25 * best, best + start + iteration)
        assert sizes.levels(length, length * iteration) == 0
    assert [ResidualSizes(8, 8).levels(10**6, bound) for bound in (10**6, 10**4, 1)] == [1, 2, 3]
    assert ResidualSizes(8000, 8).levels(1000, 1) == 0


# -- the setting and the message ----------------------------------------------------------------------
def test_a_change_of_the_setting_holds_from_the_next_call_on(capsys: pytest.CaptureFixture[str]) -> None:
    gradient = tg.grad(lambda *args: _rolled(*args))  # what `tg.grad(_rolled)` is, other tests have called
    want = gradient(X, X, ROWS)
    with tg.settings.override(log="loops", loop_memory=1000):
        for _ in range(2):
            assert_same(gradient(X, X, ROWS), want)
        assert gradient.cache_info().traces == 2
        said = [line for line in capsys.readouterr().err.splitlines() if "loop_memory" in line]
        assert len(said) == 1
        assert "100 iterations at " in said[0]
        assert "test_segmented_checkpointing.py:" in said[0]
        assert "would keep 3.125 KiB" in said[0]
        assert "in segments of 10 iterations they keep 640 bytes" in said[0]
    for _ in range(2):
        assert_same(gradient(X, X, ROWS), want)
    assert gradient.cache_info().traces <= 3


SEGMENTS = """  {out}, = scan(%0, {rows}) {{carries=1, length={segments}, reverse=False, xs=1}} : f64[],
    body(%0: f64[], %1: f64[{iterations}]) {{
      %2, = scan(%0, %1) {{carries=1, length={iterations}, reverse=False, xs=1}} : f64[],
        body(%0: f64[], %1: f64[]) {{
          %2 = multiply(%0, %1) : f64[]
          return %2
        }}
      return %2
    }}
"""


@pytest.mark.parametrize("sizes", [[(3, 2), (2, 3)], [(2, 3), (3, 2)]])
def test_of_several_segments_that_fit_a_loop_gets_the_first_whatever_their_hashes(sizes: list[tuple[int, int]]) -> None:
    loops = [
        SEGMENTS.format(out=f"%{5 + k}", rows="%2" if segments == 3 else "%3", segments=segments, iterations=iterations)
        for k, (segments, iterations) in enumerate(sizes)
    ]
    graph = parse(f"""graph(%0: f64[], %1: f64[7], %2: f64[3,2], %3: f64[2,3]) {{
  %4, = scan(%0, %1) {{carries=1, length=7, reverse=False, xs=1}} : f64[],
    body(%0: f64[], %1: f64[]) {{
      %2 = multiply(%0, %1) : f64[]
      return %2
    }}
{"".join(loops)}  return %4, %5, %6
}}""")
    joined = join_segments(graph)
    first = next(node for node in joined.nodes if node.op is scan)
    assert dict(first.params)["length"] == sizes[0][0]
    arrays = [np.array(2.0), *(np.sin(np.arange(float(np.prod(n)))).reshape(n) + 1.5 for n in (7, (3, 2), (2, 3)))]
    assert [x.tolist() for x in run(joined, arrays)] == [x.tolist() for x in run(graph, arrays)]
