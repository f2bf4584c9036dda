"""What masks say together, and sums of what they have divided: the same with less."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from graphs import f64

from tracegrad.avals import Aval
from tracegrad.ir import Graph, build, run
from tracegrad.ops.elementwise.table import accumulate, logical_and, logical_not, logical_or, multiply, negative, where
from tracegrad.ops.indexing.dynamic_slice import dynamic_slice, dynamic_update_slice
from tracegrad.ops.shape.linear import broadcast_to, full, pad, reshape, slice
from tracegrad.passes import simplify

BOOL = np.dtype(bool)
N, M = 3, 4
ROW, COLUMN, WHOLE = Aval((M,), BOOL), Aval((N, 1), BOOL), Aval((N, M), BOOL)


def window(value: bool) -> Any:
    """A mask that is `value` in a window and not beside it."""
    inside = full(shape=(N - 1, M - 1), value=value, dtype="bool")
    return pad(inside, low=(1, 1), high=(0, 0), interior=(0, 0), value=not value)


def masks(row: Any, column: Any, whole: Any) -> list[Any]:
    """Masks of one shape, some of which are the same, or the contrary, in another way."""
    row = reshape(row, shape=(1, M))
    results = [broadcast_to(x, shape=(N, M)) for x in (row, logical_not(row), column, logical_not(column))]
    results += [logical_not(results[0]), logical_not(results[2]), whole, window(True), window(False)]
    return results


def given() -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.uniform(size=x.shape) < 0.5 for x in (ROW, COLUMN, WHOLE)]


def nodes(graph: Graph) -> int:
    return len(graph.nodes)


@pytest.mark.parametrize("seed", range(150))
def test_random_logic(seed: int) -> None:
    draw = random.Random(seed)

    def said(row: Any, column: Any, whole: Any) -> list[Any]:
        known = masks(row, column, whole)
        for _ in range(draw.randint(1, 8)):
            x, y = draw.choice(known), draw.choice(known[-4:] if draw.random() < 0.6 else known)
            known.append(draw.choice([logical_and, logical_or])(x, y) if draw.random() < 0.85 else logical_not(x))
        return [known[-1], *draw.sample(known, 2)]

    graph = build(said, [ROW, COLUMN, WHOLE])
    short = simplify(graph)
    for k in range(4):
        rng = np.random.default_rng(k)
        xs = [rng.uniform(size=x.shape) < rng.uniform() for x in (ROW, COLUMN, WHOLE)]
        for got, want in zip(run(short, xs), run(graph, xs)):
            np.testing.assert_array_equal(got, want)


Said = Callable[[Any, Any, Any], Any]
LOGIC: dict[str, tuple[Said, int]] = {
    "asked twice": (lambda a, b, c: logical_and(logical_and(a, b), a), 1),
    "one of several": (lambda a, b, c: logical_or(a, logical_and(b, a)), 0),
    "never": (lambda a, b, c: logical_and(logical_and(a, b), logical_not(b)), 1),
    "always": (lambda a, b, c: logical_or(logical_not(a), a), 1),
    "on both sides": (lambda a, b, c: logical_or(logical_and(a, b), logical_and(a, logical_not(b))), 0),
    "beyond": (lambda a, b, c: logical_or(a, logical_and(logical_not(a), b)), 1),
    "everywhere, in parts": (
        lambda a, b, c: logical_or(logical_or(logical_not(a), logical_and(a, logical_not(b))), logical_and(a, b)),
        1,
    ),
    "in a window and beside it": (
        lambda a, b, c: logical_or(logical_or(window(True), a), logical_not(window(True))),
        1,
    ),
}


@pytest.mark.parametrize("name", LOGIC)
def test_logic_that_is_said_with_less(name: str) -> None:
    said, most = LOGIC[name]
    graph = build(lambda a, b, c: [said(a, b, c)], [WHOLE] * 3)
    short = simplify(graph)
    assert nodes(short) <= most
    for bits in range(8):
        xs = [np.full(WHOLE.shape, bool(bits >> k & 1)) for k in range(3)]
        np.testing.assert_array_equal(run(short, xs)[0], run(graph, xs)[0])


# -- sums ----------------------------------------------------------------------------------------------------------
def parts(x: Any, known: list[Any], draw: random.Random, deep: int = 0) -> list[Any]:
    """What masks divide `x` in."""
    if deep == 3 or draw.random() < 0.3:
        return [x]
    chance = draw.random()
    if chance < 0.2:
        zeros = full(shape=(N - 1, M - 1), value=0.0, dtype="float64")
        inside = slice(x, start=(1, 1), stop=(N, M), step=(1, 1))
        inside = pad(inside, low=(1, 1), high=(0, 0), interior=(0, 0), value=0.0)
        return [inside, *parts(dynamic_update_slice(x, zeros, 1, 1, step=(1, 1)), known, draw, deep + 1)]
    if chance < 0.4:
        inside = slice(x, start=(1, 1), stop=(N, M), step=(1, 1))
        inside = pad(inside, low=(1, 1), high=(0, 0), interior=(0, 0), value=0.0)
        return [inside, *parts(where(window(True), 0.0, x), known, draw, deep + 1)]
    mask = draw.choice(known) if draw.random() < 0.7 else logical_and(*draw.sample(known, 2))
    sides = where(mask, x, 0.0), where(mask, 0.0, x)
    return [y for side in sides for y in parts(side, known, draw, deep + 1)]


@pytest.mark.parametrize("seed", range(100))
def test_what_was_divided_is_put_together(seed: int) -> None:
    draw = random.Random(seed)
    changes = draw.random() < 0.5

    def total(row: Any, column: Any, whole: Any, x: Any, y: Any) -> list[Any]:
        result = parts(multiply(x, y), masks(row, column, whole), draw)
        if changes:
            result.insert(draw.randrange(len(result)), draw.choice([negative(result[0]), where(whole, y, 0.0), y]))
        draw.shuffle(result)
        while len(result) > 1:
            result.insert(draw.randrange(len(result) - 1), accumulate(result.pop(), result.pop(0)))
        return result

    graph = build(total, [ROW, COLUMN, WHOLE, f64(N, M), f64(N, M)])
    short = simplify(graph)
    rng = np.random.default_rng(seed)
    for k in range(3):
        rng = np.random.default_rng(k)
        masked = [rng.uniform(size=x.shape) < 0.5 for x in (ROW, COLUMN, WHOLE)]
        xs = [*masked, *rng.normal(size=(2, N, M))]
        np.testing.assert_allclose(run(short, xs)[0], run(graph, xs)[0], rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("seed", range(100))
def test_random_choices_of_choices(seed: int) -> None:
    """To the bit: this may be code of a user's."""
    draw = random.Random(seed)

    def chosen(row: Any, column: Any, whole: Any, x: Any, y: Any) -> list[Any]:
        known = masks(row, column, whole)
        known += [draw.choice([logical_and, logical_or])(*draw.sample(known, 2)) for _ in range(4)]
        results = [multiply(x, 2.0), negative(y), multiply(x, y)]
        for _ in range(draw.randint(2, 6)):
            sides = [draw.choice([*results[-3:], 0.0, -0.0, 1.0]), draw.choice(results[-3:])]
            draw.shuffle(sides)
            results.append(where(draw.choice(known), *sides))
            if draw.random() < 0.3:
                results.append(multiply(results[-1], y))
        return [results[-1]]

    graph = build(chosen, [ROW, COLUMN, WHOLE, f64(N, M), f64(N, M)])
    short = simplify(graph)
    for k in range(4):
        rng = np.random.default_rng(k)
        masked = [rng.uniform(size=x.shape) < 0.5 for x in (ROW, COLUMN, WHOLE)]
        xs = [*masked, *rng.choice([-1.5, -0.0, 0.0, 2.5], size=(2, N, M))]
        (got,), (want,) = run(short, xs), run(graph, xs)
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


def test_masks_within_masks_leave_nothing_of_the_parts() -> None:
    def total(row: Any, column: Any, whole: Any, x: Any) -> list[Any]:
        first, _, second, *_ = masks(row, column, whole)
        x = negative(x)
        one = logical_and(first, second)
        inside = where(first, where(second, where(one, x, 0.0), 0.0), 0.0)
        zeros = full(shape=(N - 1, M - 1), value=0.0, dtype="float64")
        part = slice(x, start=(1, 1), stop=(N, M), step=(1, 1))
        part = pad(part, low=(1, 1), high=(0, 0), interior=(0, 0), value=0.0)
        beside = dynamic_update_slice(x, zeros, 1, 1, step=(1, 1))
        return [accumulate(where(one, 0.0, x), inside), accumulate(beside, part)]

    graph = build(total, [ROW, COLUMN, WHOLE, f64(N, M)])
    short = simplify(graph)
    assert [node.op for node in short.nodes] == [negative]
    xs = [*given(), np.random.default_rng(1).normal(size=(N, M))]
    for got, want in zip(run(short, xs), run(graph, xs)):
        np.testing.assert_array_equal(got, want)


def test_two_masks_and_a_window_leave_nothing_of_the_parts() -> None:
    def total(row: Any, column: Any, whole: Any, x: Any, k: Any) -> list[Any]:
        first, _, second, *_ = masks(row, column, whole)
        x = negative(x)
        beside = where(window(True), 0.0, x)
        more = dynamic_slice(x, k, 0, sizes=(1, M), step=(1, 1))
        before = dynamic_slice(beside, k, 0, sizes=(1, M), step=(1, 1))
        beside = dynamic_update_slice(beside, accumulate(before, more), k, 0, step=(1, 1))
        inside = slice(x, start=(1, 1), stop=(N, M), step=(1, 1))
        inside = pad(inside, low=(1, 1), high=(0, 0), interior=(0, 0), value=0.0)
        divided = accumulate(where(first, 0.0, x), where(second, 0.0, where(first, x, 0.0)))
        again = accumulate(divided, where(second, where(first, x, 0.0), 0.0))
        return [accumulate(beside, inside), again]

    graph = build(total, [ROW, COLUMN, WHOLE, f64(N, M), Aval((), np.dtype(np.int64))])
    short = simplify(graph)
    assert not any(node.op in (where, pad) for node in short.nodes)
    xs = [*given(), np.random.default_rng(1).normal(size=(N, M)), np.array(1)]
    for got, want in zip(run(short, xs), run(graph, xs)):
        np.testing.assert_allclose(got, want, rtol=1e-15)


@pytest.mark.parametrize("same", [False, True])
def test_a_part_is_added_to_a_sum_with_a_number(same: bool) -> None:
    def total(row: Any, column: Any, whole: Any, x: Any) -> list[Any]:
        x = multiply(x, x)
        other = where(whole if same else broadcast_to(column, shape=(N, M)), 0.0, x)
        return [accumulate(accumulate(where(whole, x, 0.0), 0.5), other)]

    graph = build(total, [ROW, COLUMN, WHOLE, f64(N, M)])
    row, column, whole = given()
    x = np.random.default_rng(2).normal(size=(N, M))
    want = np.where(whole, x * x, 0.0) + 0.5 + np.where(whole if same else column, 0.0, x * x)
    np.testing.assert_allclose(run(simplify(graph), [row, column, whole, x])[0], want, rtol=1e-15)
