"""Affine forms and intervals of integers, compared with the integers."""

from __future__ import annotations

import operator

import numpy as np
import pytest
from graphs import i64
from hypothesis import given, settings
from hypothesis import strategies as st

from tracegrad.analysis.affine import AffineForm, affine_of, combined
from tracegrad.analysis.intervals import ANY, corners, meet, powers, quotients, range_of, scaled
from tracegrad.ir import GraphNode, build, run
from tracegrad.ops.elementwise import table as ew

OPS = (ew.add, ew.subtract, ew.multiply, ew.maximum, ew.minimum)
Step = tuple[int, int, int]
STEPS = st.lists(
    st.tuples(st.integers(0, len(OPS) - 1), st.integers(0, 99), st.integers(-9, 9)), min_size=1, max_size=6
)


def built(steps: list[Step]):  # type: ignore[no-untyped-def]
    """A graph of integers; negative operands are literals."""

    def fn(x, y):  # type: ignore[no-untyped-def]
        values = [x, y]
        for op, first, second in steps:
            other = values[second % len(values)] if second >= 0 else second
            values.append(OPS[op](values[first % len(values)], other))
        return values[-1:]

    return build(fn, [i64(), i64()])


def test_forms_are_sums_of_symbols() -> None:
    x, y = AffineForm.symbol("x"), AffineForm.symbol("y", 2, 1)
    assert x.plus(y, -1) == AffineForm(-1, {"x": 1, "y": -2}) != x
    assert hash(x.plus(y)) == hash(y.plus(x))
    assert x.plus(AffineForm(4)).minus(x) == 4
    assert x.minus(y) is None
    assert x.plus(y).renamed({"y": "x"}) == AffineForm(1, {"x": 3})
    assert combined(ew.multiply, [x, AffineForm(0)]) == AffineForm(0)
    assert combined(ew.multiply, [AffineForm(3), y]) == AffineForm(3, {"y": 6})
    assert combined(ew.multiply, [x, y]) is None
    assert combined(ew.negative, [y]) == AffineForm(-1, {"y": -2})


@settings(max_examples=60, deadline=None)
@given(STEPS, st.integers(-9, 9), st.integers(-9, 9))
def test_the_form_of_a_node_has_its_value(steps: list[Step], x: int, y: int) -> None:
    graph = built(steps)
    form = affine_of(graph.outputs[0], lambda node: AffineForm.symbol(node) if node.op is None else None)
    if form is not None:
        values: dict[GraphNode, int] = dict(zip(graph.inputs, (x, y)))
        value = form.constant + sum(values[symbol] * k for symbol, k in form.terms.items())
        assert value == run(graph, [np.int64(x), np.int64(y)])[0]


@settings(max_examples=60, deadline=None)
@given(STEPS, st.integers(-9, 9), st.integers(-9, 9), st.integers(0, 5))
def test_the_value_of_a_node_is_in_its_interval(steps: list[Step], x: int, y: int, room: int) -> None:
    graph = built(steps)
    known = {graph.inputs[0]: (float(x - room), float(x)), graph.inputs[1]: (float(y), float(y + room))}
    low, high = range_of(graph.outputs[0], known)
    assert low <= run(graph, [np.int64(x), np.int64(y)])[0] <= high


def test_an_unknown_interval_times_zero_is_zero() -> None:
    graph = build(lambda x: [ew.multiply(x, 0)], [i64()])
    assert range_of(graph.outputs[0]) == (0, 0) == scaled(ANY, 0)


def test_a_value_that_may_wrap_is_unknown() -> None:
    graph = build(lambda x: [ew.add(x, 2**62)], [i64()])
    assert range_of(graph.outputs[0], {graph.inputs[0]: (0, 1)}) == ANY


@pytest.mark.parametrize(
    ("rule", "function", "least"),
    [
        (corners(operator.mul), operator.mul, -4),
        (corners(operator.sub), operator.sub, -4),
        (quotients, operator.floordiv, 1),
        (powers, operator.pow, 0),
    ],
)
def test_rules_of_operations(rule, function, least: int) -> None:  # type: ignore[no-untyped-def]
    for a in range(-4, 4):
        for c in range(least, 4):
            low, high = rule((a, a + 2), (c, c + 2))
            values = [function(x, y) for x in range(a, a + 3) for y in range(c, c + 3)]
            assert low <= min(values) <= max(values) <= high
    assert meet((0, 5), (3, 9)) == (3, 5)
    assert scaled((1, 4), -2) == (-8, -2)
