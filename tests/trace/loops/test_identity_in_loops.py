"""Loops with arrays instead of lists, in functions that tell the elements apart, or hand out some of them as well."""

from __future__ import annotations

import operator

import numpy as np
import pytest

import tracegrad as tg

P = np.array([1.0, 0.5])
ITERATIONS = 300

pytestmark = pytest.mark.usefixtures("folds")


# -- elements that are compared --------------------------------------------------------------------
def same(a, b):
    return a is b


def same_id(a, b):
    return id(a) == id(b)


def inside(x, xs):
    return any(x is y for y in xs)


def compared_in_a_callee(p, alike=same):
    s, result = p * 1.0, [p * 2]
    for _ in range(ITERATIONS):
        s = s * 1.0005 if not alike(result[-1], s) else s * 1.0004
        result.append(s)
    return np.sum(np.array(result) ** 2)


def compared_by_id(p):
    return compared_in_a_callee(p, same_id)


def compared_by_operator(p):
    return compared_in_a_callee(p, operator.is_)


def compared_by_memory(p):
    return compared_in_a_callee(p, np.shares_memory)


def compared_in_a_generator(p):
    return compared_in_a_callee(p, lambda x, y: inside(x, (y,)))


def trajectory(p):
    s, result = p * 1.0, []
    for _ in range(ITERATIONS):
        s = s * 1.0005
        result.append(s)
    return result, s


def compared_by_the_caller(p):
    result, s = trajectory(p)
    return np.sum(np.array(result) ** 2) * (2.0 if result[-1] is s else 1.0)


def compared_behind_the_loop(p):
    result, s = trajectory(p)
    return np.sum(np.array(result) ** 2) * (2.0 if same(result[-1], s) else 1.0)


def compared_by_memory_behind_the_loop(p):
    result, s = trajectory(p)
    return np.sum(np.array(result) ** 2) * (2.0 if np.shares_memory(result[-1], s) else 1.0)


def one_object_in_two_iterations(p):
    s, result = p * 1.0, []
    for i in range(ITERATIONS):
        result.append(s)
        if i % 2:
            s = s * 1.0005
    return np.sum(np.array(result) ** 2) * (1 + sum(same(result[i], result[i + 1]) for i in range(8)))


def numbers_compared(p):
    x, result = p[0], []
    for _ in range(ITERATIONS):
        x = x * 0.999
        result.append(x)
    return sum(result) * (2.0 if same(result[-1], x) else 1.0)


COMPARED = [
    compared_in_a_callee,
    compared_by_id,
    compared_by_operator,
    compared_by_memory,
    compared_in_a_generator,
    compared_by_the_caller,
    compared_behind_the_loop,
    compared_by_memory_behind_the_loop,
    one_object_in_two_iterations,
    numbers_compared,
]


@pytest.mark.parametrize("f", COMPARED, ids=lambda f: f.__name__)
def test_elements_that_are_compared_are_those_that_were_appended(f):
    traced = tg.trace(f)
    for p in (P, P * 1.3):
        np.testing.assert_allclose(traced(p), f(p), rtol=1e-12)


# -- elements that are handed out ------------------------------------------------------------------
class Box:
    """What holds things."""


def all_and_the_last(p):
    return trajectory(p)


def all_and_a_view_of_the_last(p):
    result, s = trajectory(p)
    return result, s[:1]


def one_twice(p):
    s, result = p * 1.0, []
    for i in range(ITERATIONS):
        result.append(s)
        if i % 2:
            s = s * 1.0005
    return result


def one_again_where_a_step_is_rejected(p):
    s, result = p * 1.0, []
    for i in range(ITERATIONS):
        new = s * 1.0005 + 0.1 * np.sin(i + s)
        if np.sin(9 * new[0]) > 0.2:
            s = new
        result.append(s)
    return result


def in_a_box(p):
    s, result, box = p * 1.0, [], Box()
    for _ in range(ITERATIONS):
        s = s * 1.0005
        result.append(s)
        box.last = s
    box.found = result
    return box


def in_two_lists(p):
    s, result, other = p * 1.0, [], []
    for _ in range(ITERATIONS):
        s = s * 1.0005
        result.append(s)
        other.append(s)
    return result, other


def twice_in_an_element(p):
    s, result = p * 1.0, []
    for _ in range(ITERATIONS):
        s = s * 1.0005
        result.append((s, s))
    return result


def one_that_was_read(p):
    results = [p * 1.0]
    last = results[0]
    for _ in range(ITERATIONS):
        results.append(results[-1] * 1.0005)
        last = results[-1]
    return results, last


def appended_before_it_changes(p):
    s, result = p * 1.0, []
    for _ in range(ITERATIONS):
        result.append(s)
        s = s * 1.0005
    return result, s


def pairs(p):
    x, v, result = p * 1.0, p * 0.1, []
    for _ in range(ITERATIONS):
        v = v - 0.01 * x
        x = x + 0.01 * v
        result.append((x, v))
    return result


def arrays(x):
    if isinstance(x, np.ndarray):
        return [x]
    return [a for part in (vars(x).values() if isinstance(x, Box) else x) for a in arrays(part)]


def memory(xs):
    """By array, the first one that it has memory of."""
    starts = [x.__array_interface__["data"][0] for x in xs]
    return [starts.index(x) for x in starts]


HANDED = [
    all_and_the_last,
    all_and_a_view_of_the_last,
    one_twice,
    one_again_where_a_step_is_rejected,
    in_a_box,
    in_two_lists,
    twice_in_an_element,
    one_that_was_read,
    appended_before_it_changes,
    pairs,
]


@pytest.mark.parametrize("f", HANDED, ids=lambda f: f.__name__)
def test_elements_that_are_handed_out_are_one_object_where_they_were(f):
    traced = tg.trace(f)
    for p in (P, P * 1.3):
        result, expected = arrays(traced(p)), arrays(f(p))
        assert memory(result) == memory(expected)
        for x, y in zip(result, expected):
            np.testing.assert_allclose(x, y, rtol=1e-9)


@pytest.mark.parametrize("f", [appended_before_it_changes, pairs], ids=lambda f: f.__name__)
def test_arrays_that_are_others_in_each_iteration_are_handed_out_of_a_closed_loop(f):
    assert [n.op.name for n in tg.trace(f).explain(P).graph.nodes if n.regions] == ["scan"]


# -- elements that are read by a traced number -----------------------------------------------------
def kept_by_a_callee(ws):
    def keep(box, w):
        box.w = w

    box, s = Box(), np.zeros(2)
    for i in range(len(ws)):
        keep(box, ws[i])
        s = s * 0.5 + ws[i] if s[0] > 0 else s * 0.3 + ws[i]
    return s, box


def kept_behind_a_test(ws):
    box, s = Box(), np.zeros(2)
    for i in range(len(ws)):
        s = s * 0.5 + ws[i] if s[0] > 0 else s * 0.3 + ws[i]
        box.w = ws[i]
    return s, box


def read_and_compared(ws, alike=same):
    s, first = np.zeros(2), ws[0]
    for i in range(len(ws)):
        s = s * 0.5 + ws[i] if s[0] > 0 else s * 0.3 + ws[i]
        if alike(ws[i], first):
            s = s + 1
    return s, Box()


def read_and_compared_by_operator(ws):
    return read_and_compared(ws, operator.is_)


def read_and_known_by_id(ws):
    def name(w):
        return names[id(w)]

    s, names = np.zeros(2), {id(w): k for k, w in enumerate(ws)}
    for i in range(len(ws)):
        s = s * 0.5 + ws[i] if s[0] > 0 else s * 0.3 + ws[i]
        s = s + name(ws[i])
    return s, Box()


class Seen:
    def __init__(self):
        self.last = None

    def again(self, w):
        result = float(self.last is w)
        self.last = w
        return result


def compared_by_a_method(ws):
    seen, s = Seen(), np.zeros(2)
    seen.again(ws[0])
    for i in range(len(ws)):
        s = s * 0.5 + ws[i] if s[0] > 0 else s * 0.3 + ws[i]
        s = s + seen.again(ws[i])
    return s, Box()


def numbers_read_and_compared(ws):
    steps, s = [0.5, 1.5, 2.5, 3.5], np.zeros(2)
    for i in range(4):
        s = s * steps[i] + ws[i] if s[0] > 0 else s * 0.3 + ws[i]
        if same(steps[i], steps[0]):
            s = s + 1
    return s, Box()


READ = [
    kept_by_a_callee,
    kept_behind_a_test,
    read_and_compared,
    read_and_compared_by_operator,
    read_and_known_by_id,
    compared_by_a_method,
    numbers_read_and_compared,
]


@pytest.mark.parametrize("f", READ, ids=lambda f: f.__name__)
def test_elements_that_are_read_are_those_of_the_list(f):
    traced = tg.trace(f)
    for seed in range(3):
        ws = [np.random.default_rng((seed, k)).normal(size=2) for k in range(7)]
        (s, box), (expected, other) = traced(ws), f(ws)
        np.testing.assert_allclose(s, expected, rtol=1e-12)
        assert all(x is y for x, y in zip(arrays(box), arrays(other), strict=True))
