"""Like terms of sums of cotangents: how far graphs shrink, and what of a float's meaning stays."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from graphs import f32, f64
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tracegrad as tg
from tracegrad import passes
from tracegrad.avals import Aval
from tracegrad.control.scan_op import scan
from tracegrad.ir import Graph, build, run, verify
from tracegrad.ops.elementwise.table import accumulate, add, multiply, negative, sin, square, subtract, where
from tracegrad.passes.algebra.collect_terms import MAX_COLLECTED_TERMS


def names(graph: Graph) -> list[str]:
    return [node.name for node in graph.nodes]


def simplified(fn: Any, *avals: Any) -> Graph:
    return verify(passes.simplify(build(lambda *xs: [fn(*xs)], avals)))


# -- how far graphs shrink -----------------------------------------------------------------------------------
DERIVATIVES: dict[str, tuple[Any, int, int, Any]] = {
    "sin(x) * exp(x), 8th": (lambda x: np.sin(x) * np.exp(x), 8, 19, lambda x: 16 * np.sin(x) * np.exp(x)),
    "tanh(x), 4th": (
        np.tanh,
        4,
        15,
        lambda x: 8 * np.tanh(x) * (2 - 3 * np.tanh(x) ** 2) / np.cosh(x) ** 2,
    ),
    "x**5 * sin(x), 5th": (
        lambda x: x**5 * np.sin(x),
        5,
        41,
        lambda x: (x**5 - 200 * x**3 + 600 * x) * np.cos(x) + (25 * x**4 - 600 * x**2 + 120) * np.sin(x),
    ),
    "exp(-x**2), 6th": (
        lambda x: np.exp(-(x**2)),
        6,
        57,
        lambda x: (64 * x**6 - 480 * x**4 + 720 * x**2 - 120) * np.exp(-(x**2)),
    ),
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_higher_derivatives_have_few_nodes_and_are_right(name: str) -> None:
    fn, order, most, expected = DERIVATIVES[name]
    for _ in range(order):
        fn = tg.grad(fn)
    # Of an array: beside Python's arithmetic there would be the question whether it is that of the machine.
    optimized = fn.explain(np.array(0.7)).optimized
    assert len(optimized.nodes) <= most
    for x in (-2.1, 0.0, 0.7, 1.9):
        assert fn(x) == pytest.approx(expected(x), rel=1e-11, abs=1e-11)


def test_terms_that_cancel_leave_nothing_but_their_nans() -> None:
    def fn(x: Any, y: Any) -> Any:
        less = accumulate(y, negative(x))
        return accumulate(accumulate(accumulate(x, y), less), accumulate(less, x))

    graph = simplified(fn, f64(6), f64(6))
    assert names(graph) == ["multiply", "subtract", "add"]
    x = np.array([1.0, 1.0, np.inf, -np.inf, np.nan, 0.0])
    y = np.array([2.0, np.inf, 1.0, np.inf, 1.0, -0.0])
    np.testing.assert_array_equal(run(graph, [x, y])[0], [6.0, np.inf, np.nan, np.nan, np.nan, 0.0])


def test_equal_sums_become_one_in_whatever_order_they_were_made() -> None:
    def fn(x: Any, y: Any, z: Any) -> Any:
        return multiply(accumulate(accumulate(x, y), z), accumulate(x, accumulate(y, z)))

    assert names(simplified(fn, f64(3), f64(3), f64(3))) == ["add", "add", "square"]


def test_what_the_coefficients_have_in_common_is_a_factor() -> None:
    def fn(x: Any, y: Any) -> Any:
        return accumulate(multiply(accumulate(x, y), 4.0), accumulate(multiply(x, 2.0), multiply(y, -10.0)))

    graph = simplified(fn, f64(3), f64(3))
    assert names(graph) == ["subtract", "multiply", "subtract", "add"]
    assert run(graph, [np.array([1.0, 2.0, 3.0]), np.ones(3)])[0].tolist() == [0.0, 6.0, 12.0]


def test_constants_are_collected() -> None:
    graph = simplified(lambda x: accumulate(accumulate(x, 2.0), accumulate(x, 3.0)), f64(3))
    assert [(node.name, *node.inputs[1:]) for node in graph.nodes] == [("multiply", 2.0), ("add", 5.0)]


def test_terms_without_likes_stay_as_they_are() -> None:
    def fn(x: Any, y: Any, z: Any) -> Any:
        return accumulate(accumulate(z, negative(y)), accumulate(x, sin(y)))

    graph = simplified(fn, f64(3), f64(3), f64(3))
    assert names(graph) == ["subtract", "sin", "add", "add"]


def test_a_sum_that_others_need_is_not_taken_apart() -> None:
    def fn(*xs: Any) -> list[Any]:
        total = xs[0]
        for x in xs[1:]:
            total = accumulate(total, x)
        return [total, *(sin(accumulate(total, x)) for x in xs)]

    graph = passes.simplify(build(fn, [f64(3)] * 8))
    assert len(graph.nodes) == 7 + 2 * 8


# -- what stays ------------------------------------------------------------------------------------------------
SPECIAL = [0.0, -0.0, 1.0, -3.0, np.inf, -np.inf, np.nan]


def sums(kinds: str) -> Any:
    """Programs of three values: each step adds to, subtracts from, negates or multiplies earlier values."""
    step = st.tuples(st.sampled_from(kinds), st.integers(0, 99), st.integers(0, 99))
    return st.lists(step, min_size=2, max_size=12)


def graph_of(program: Any, aval: Any) -> Graph:
    def fn(*xs: Any) -> list[Any]:
        values = list(xs)
        for kind, i, j in program:
            x, y = values[i % len(values)], values[j % len(values)]
            match kind:
                case "+":
                    values.append(accumulate(x, y))
                case "-":
                    values.append(accumulate(x, negative(y)))
                case "n":
                    values.append(negative(x))
                case "*":
                    values.append(multiply(x, float(j % 4 + 1)))
                case "c":
                    values.append(accumulate(x, float(j % 3)))
        return values[-2:]

    return build(fn, [aval] * 3)


@settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), max_examples=300)
@given(program=sums("++--n*c"))
@np.errstate(all="ignore")
def test_collected_sums_keep_every_special_value(program: Any) -> None:
    """The values are small whole numbers, zeros, infinities and nan, so sums of any order are equal; 0.0 is -0.0."""
    arrays = [np.array(c) for c in zip(*itertools.product(SPECIAL, repeat=3))]
    graph = graph_of(program, f64(len(arrays[0])))
    after = verify(passes.simplify(graph))
    assert len(after.nodes) <= len(graph.nodes)
    for got, want in zip(run(after, arrays), run(graph, arrays)):
        np.testing.assert_array_equal(got, want)


@settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), max_examples=200)
@given(program=sums("++*"))
@np.errstate(all="ignore")
def test_sums_without_signs_keep_the_sign_of_zero_as_well(program: Any) -> None:
    arrays = [np.array(c) for c in zip(*itertools.product(SPECIAL, repeat=3))]
    graph = graph_of(program, f64(len(arrays[0])))
    for got, want in zip(run(passes.simplify(graph), arrays), run(graph, arrays)):
        np.testing.assert_array_equal(np.signbit(got) & (got == 0), np.signbit(want) & (want == 0))


def test_the_order_of_a_users_sum_stays() -> None:
    """The rounding error of a sum, as Knuth computes it: x + y - x is not y."""

    def error(x: Any, y: Any) -> Any:
        total = x + y
        part = total - x
        return (x - (total - part)) + (y - part)

    x, y = np.array([1.0, 1e16, 0.1]), np.array([1e-20, 1.0, 0.2])
    assert tg.trace(error)(x, y).tolist() == [1e-20, 1.0, error(0.1, 0.2)]
    assert names(simplified(lambda x, y: subtract(add(x, y), x), f64(3), f64(3))) == ["add", "subtract"]


def test_what_a_user_adds_to_a_derivative_is_the_users_sum() -> None:
    graph = simplified(lambda x, y: add(accumulate(x, y), x), f64(3), f64(3))
    assert names(graph) == ["add", "add"]


@pytest.mark.parametrize("aval", [f32(3), f64(3)], ids=str)
def test_coefficients_are_numbers_of_the_dtype(aval: Any) -> None:
    def fn(x: Any) -> list[Any]:
        total = x
        for _ in range(60):
            total = accumulate(accumulate(total, total), x)
        return [total]

    x = np.array([1.0, 0.3, -7.0], aval.dtype)
    graph = passes.simplify(build(fn, [aval]))
    assert len(graph.nodes) <= 16
    np.testing.assert_allclose(run(graph, [x])[0], (2.0**61 - 1) * x, rtol=1e-6)
    for node in graph.nodes:
        assert all(c == aval.dtype.type(c) for c in node.inputs if type(c) is float)


def test_only_whole_literals_are_coefficients() -> None:
    graph = simplified(lambda x: accumulate(multiply(x, 0.1), multiply(x, 0.2)), f64(3))
    assert names(graph) == ["multiply", "multiply", "add"]
    graph = simplified(lambda x: accumulate(accumulate(multiply(x, math.inf), x), multiply(x, math.nan)), f64(3))
    assert len(graph.nodes) == 4


@pytest.mark.parametrize(
    ("fn", "left"),
    [
        (lambda c, x, y: accumulate(where(c, x, 0.0), where(c, 0.0, y)), ["where"]),
        (lambda c, x, y: accumulate(where(c, 0.0, y), where(c, x, 0.0)), ["where"]),
        (lambda c, x, y: accumulate(where(c, x, 0.0), where(c, 0.0, x)), []),
        (lambda c, x, y: accumulate(where(c, x, 0.0), where(c, y, 0.0)), ["where", "where", "add"]),
        (lambda c, x, y: accumulate(where(c, x, 0.0), where(c, 1.0, y)), ["where", "where", "add"]),
        (lambda c, x, y: add(where(c, x, 0.0), where(c, 0.0, y)), ["where", "where", "add"]),
    ],
)
def test_halves_of_a_choice_are_one_and_nothing_else_is(fn: Any, left: list[str]) -> None:
    graph = build(lambda *xs: [fn(*xs)], [Aval((4,), np.dtype(bool)), f64(4), f64(4)])
    after = verify(passes.simplify(graph))
    assert names(after) == left
    c, x, y = np.array([True, True, False, False]), np.array([1.5, np.nan, 3.0, np.inf]), np.array([np.inf, 2, -4, 0.0])
    np.testing.assert_array_equal(run(after, [c, x, y]), run(graph, [c, x, y]))


def test_integers_and_complex_numbers_stay() -> None:
    for dtype in ("int64", "complex128"):
        graph = simplified(lambda x: accumulate(accumulate(x, x), accumulate(x, x)), Aval((3,), np.dtype(dtype)))
        assert names(graph) == ["add", "add"]


def test_many_terms_cost_linear_time() -> None:
    def fn(*xs: Any) -> list[Any]:
        total = xs[0]
        for x in xs[1:] + xs[::-1]:
            total = accumulate(total, x)
        return [total]

    graph = passes.simplify(build(fn, [f64()] * 2000))
    assert len(graph.nodes) <= 2 * 2000
    short = passes.simplify(build(fn, [f64()] * (MAX_COLLECTED_TERMS - 1)))
    assert len(short.nodes) == MAX_COLLECTED_TERMS - 1


def test_sums_inside_a_region_are_collected() -> None:
    body = build(lambda h: [accumulate(accumulate(h, h), accumulate(h, h)), square(h)], [f64(3)])
    graph = build(lambda h: [scan(h, body=body, carries=1, xs=0, length=4, reverse=False)[0]], [f64(3)])
    (region,) = passes.simplify(graph).nodes[0].regions
    assert sorted(names(region)) == ["multiply", "square"]
