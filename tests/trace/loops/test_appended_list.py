"""Loops that append to lists: closed with arrays for the lists, and never so where something else could see these."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from finite_differences import gradient_of

import tracegrad as tg

histories = importlib.import_module("tracegrad.trace.loops.appended_list")
P = np.array([1.0, 0.5])


def require_as_numpy(f, *inputs, traces=None):
    """The value and gradient of `f` are those of plain Python and of differences, also for further inputs."""
    g = tg.value_and_grad(f)
    for p in inputs:
        before = p.copy()
        value, gradient = g(p)
        np.testing.assert_allclose(value, f(p), rtol=1e-11)
        np.testing.assert_allclose(gradient, gradient_of(f, p), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(p, before)
    if traces is not None:
        assert g.cache_info().traces == traces
    return g


pytestmark = pytest.mark.usefixtures("folds")


@pytest.fixture
def appended(monkeypatch):
    """What was appended to histories."""
    result, append = [], histories.History.append

    def noted(self, x):
        result.append(x)
        append(self, x)

    monkeypatch.setattr(histories.History, "append", noted)
    return result


# -- what is folded --------------------------------------------------------------------------------
def trajectory(p):
    s, result = p * 1.0, []
    for i in range(1000):
        s = s + 0.001 * np.sin(s + 0.01 * i) * p
        result.append(s)
    return np.sum(np.array(result)[::7] ** 2)


def with_first(p):
    s = p * 1.0
    results = [s]
    for _ in range(900):
        s = s + 0.001 * np.sin(s) * p
        results.append(s)
    return np.sum(np.stack(results)[::10] ** 2) + len(results)


def tuples_of_numbers(p):
    x, v = p[0], p[1]
    results = []
    for _ in range(900):
        v = v - 0.01 * x
        x = x + 0.01 * v
        results.append((x, (v, 2.0)))
    return sum(a * b * c for a, (b, c) in results) + len(results[3])


def two_lists(p):
    s, a, b = p * 1.0, [], []
    for _ in range(900):
        s = s * 1.0005
        a.append(s)
        b.append(np.sum(s))
    return np.sum(np.array(a)[::10] ** 2) + b[-1] * b[10] + max(b)


def read_by_the_last(p):
    results = [p[0], p[1]]
    for _ in range(900):
        results.append(results[-1] * 1.0005 - 0.0001 * results[-2])
    return np.sum(np.array(results) ** 2)


def read_by_the_counter(p):
    results = [p * 1.0]
    for i in range(900):
        results.append(results[i] + 0.001 * np.sin(results[i]) * p)
    return np.sum(results[-1] ** 3) + np.sum(np.array(results)[:, 1])


def read_by_two_counters(p):
    results = [p[0], p[0] * p[1]]
    for i in range(2, 700):
        results.append(0.5 * results[i - 1] + 0.4 * results[i - 2])
    return sum(results)


def nested(p):
    s, result = p * 1.0, []
    for _ in range(30):
        for j in range(30):
            s = s + 0.001 * np.cos(s + j)
            result.append(s[0])
        s = s * 0.9
    return np.sum(np.array(result) ** 2)


def rows(p):
    s, result = p * 1.0, []
    for _ in range(30):
        row = []
        for j in range(30):
            s = s + 0.001 * np.cos(s + j)
            row.append(s[0])
        result.append(np.array(row))
    return np.sum(np.array(result) ** 2)


def two_loops(p):
    s, result = p * 1.0, []
    for _ in range(800):
        s = s * 1.0005
        result.append(s)
    for _ in range(900):
        s = s * 0.9995
        result.append(s * s)
    result.append(s)
    return np.sum(np.array(result) ** 2)


def over_arrays(p):
    s, result = p * 1.0, []
    times = np.linspace(0, 1, 900)
    for t, step in zip(times, np.diff(times, append=1.0)):
        s = s + step * np.sin(t * p)
        result.append(s)
    return np.sum(np.array(result)[:, 0] ** 2)


def counters(p):
    s, result = p * 1.0, []
    for i in range(900):
        s = s * 1.0005
        result.append(i)
        result.append(2 * i)
    return np.sum(s) * sum(result) / 1e6 + result[7] + len(result)


FOLDED = [
    trajectory,
    with_first,
    tuples_of_numbers,
    two_lists,
    read_by_the_last,
    read_by_the_counter,
    read_by_two_counters,
    nested,
    rows,
    two_loops,
    over_arrays,
    counters,
]


@pytest.mark.parametrize("f", FOLDED, ids=lambda f: f.__name__)
def test_long_loops_that_append_are_closed(f):
    require_as_numpy(f, P, P * 1.3, traces=1)


@pytest.mark.parametrize("f", [trajectory, read_by_the_last, two_lists], ids=lambda f: f.__name__)
def test_their_iterations_are_not_recorded_one_by_one(f, appended):
    tg.value_and_grad(f)(np.array([1.0, 0.5, 0.2]))  # of another shape than in other tests
    assert 1 <= len(appended) <= 8


def test_second_derivatives_and_tangents_go_through_the_rows():
    hessian = tg.hessian(read_by_the_last)(P)
    gradient = tg.grad(read_by_the_last)
    expected = np.stack([(gradient(P + e) - gradient(P - e)) / 2e-5 for e in 1e-5 * np.eye(2)])
    np.testing.assert_allclose(hessian, expected, rtol=1e-6, atol=1e-6)
    direction = np.array([0.3, -0.7])
    _, tangent = tg.jvp(trajectory, (P,), (direction,))
    np.testing.assert_allclose(tangent, tg.grad(trajectory)(P) @ direction, rtol=1e-10)


# -- numbers of iterations that values decide -----------------------------------------------------------
def halving(p):
    x, result = p[0], []
    while x > 1e-6:
        x = x * 0.9
        result.append(x * p[1])
    return sum(result) + len(result)


def breaking(p):
    x, result = p[0], []
    for _ in range(3000):
        x = x * 0.99
        result.append(x)
        if x < 0.1:
            break
    else:
        return x
    return sum(result) * p[1] + len(result)


def returning(p):
    x, result = p[0], []
    for _ in range(3000):
        x = x * 0.99
        result.append(x)
        if x < 0.1:
            return sum(result) * p[1] + len(result)
    return x


def flagged(p):
    x, result = p[0], []
    while True:
        x = x * 0.99
        result.append(x)
        done = bool(x < 0.1)
        if done:
            break
    return sum(result) * p[1] + len(result)


def adaptive(p):
    t, h, end = 0.0, 0.1, 4.0
    y = np.array([1.0, 0.0])
    times, values = [t], [y]
    while t < end:
        h = min(h, end - t)
        a = np.array([y[1], -p[0] * y[0]])
        b = np.array([y[1] + h * a[1], -p[0] * (y[0] + h * a[0])])
        error = np.max(np.abs(b - a)) * h / 1e-3
        if error <= 1:
            t, y = t + h, y + 0.5 * h * (a + b)
            times.append(t)
            values.append(y)
        h = h * min(2.0, max(0.3, 0.9 / max(error, 1e-9) ** 0.5))
    return np.trapezoid(np.array(values)[:, 0] ** 2, np.array(times)) * p[1] + len(times)


def caught(p):
    x, result = p[0], []
    try:
        while True:
            x = x * 0.9
            result.append(x)
            if x < 0.1:
                raise ValueError("far")
    except ValueError:
        pass
    return sum(result) * p[1] + len(result)


@pytest.mark.parametrize("f", [halving, breaking, returning, flagged, adaptive, caught], ids=lambda f: f.__name__)
def test_the_number_of_elements_is_that_of_each_call(f):
    inputs = [P * np.array(s) for s in ((1, 1), (3, 1), (0.5, 2), (2.9, 0.7), (1, 1))]
    require_as_numpy(f, *inputs)


def test_another_number_of_iterations_is_recorded_in_a_few(appended):
    def thirds(p):
        x, result = p[0], []
        while x > 1e-6:
            x = x * 0.6
            result.append(x * p[1])
        return sum(result)

    g = tg.value_and_grad(thirds)
    for scale in (1.0, 3.0, 10.0, 1e3):
        appended.clear()
        g(P * scale)
        assert 1 <= len(appended) <= 8


# -- what must not be mistaken ---------------------------------------------------------------------
def written_before(p):
    s, result = p * 1.0, []
    for _ in range(180):
        s *= 1.0005
        result.append(s)
    return np.sum(np.array(result)[::10] ** 2)


def written_behind(p):
    s, result = p * 1.0, []
    for _ in range(180):
        result.append(s)
        s += 0.001 * p
    return np.sum(np.array(result)[::10] ** 2)


def view_appended(p):
    u, result = np.zeros((3, 2)), []
    u[1] = p
    for _ in range(180):
        u[0] = u[0] + 0.001 * u[1]
        result.append(u[0])
    return np.sum(np.array(result)[::10] ** 2)


def written_after_the_loop(p):
    s, result = p * 1.0, []
    for _ in range(180):
        s = s * 1.0005
        result.append(s)
    s += 5
    result[3] = result[3] * 7
    result[2][0] = 9.0
    return np.sum(np.array(result) ** 2)


def element_written_in_the_loop(p):
    results = [p * 1.0]
    for _ in range(180):
        results.append(results[-1] * 1.0005)
        y = results[-1]
        y += 0.0001
    return np.sum(np.array(results) ** 2)


def known_by_another_name(p):
    s, result = p * 1.0, []
    other = result
    for _ in range(180):
        s = s * 1.0005
        result.append(s)
    return np.sum(np.array(other) ** 2)


def known_by_a_method(p):
    s, result = p * 1.0, []
    add = result.append
    for i in range(180):
        s = s * 1.0005
        add(s) if i % 2 else result.append(s * 2)
    return np.sum(np.array(result) ** 2)


def held_by_a_dict(p):
    s, result = p * 1.0, []
    out = {"found": result}
    for _ in range(180):
        s = s * 1.0005
        result.append(s)
    return np.sum(np.array(out["found"]) ** 2)


def closed_over(p):
    s, result = p * 1.0, []

    def total():
        return sum(x[0] for x in result)

    for i in range(300):
        s = s * 1.0005 + (total() * 1e-5 if i % 100 == 99 else 0.0)
        result.append(s)
    return np.sum(np.array(result) ** 2)


def asked_for_its_length(p):
    s, result = p * 1.0, []
    while len(result) < 180:
        s = s * 1.0005
        result.append(s)
    return np.sum(np.array(result) ** 2)


def emptied(p):
    s, result = p * 1.0, []
    for _ in range(180):
        s = s * 1.0005
        result.append(s)
        if len(result) > 5:
            result.pop(0)
    return np.sum(np.array(result) ** 2)


def of_two_shapes(p):
    s, result = p * 1.0, []
    for i in range(180):
        s = s * 1.0005
        result.append(s if i < 140 else s[0])
    return sum(np.sum(x) for x in result)


def asked_what_it_is(p):
    x, result = p[0], []
    while True:
        x = x * 0.99
        result.append(x)
        done = bool(x < 0.1)
        if done:
            break
    return sum(result) * p[1] + isinstance(result, list) + (type(result) is list)


def told_apart(p):
    s, result = p * 1.0, [p * 2]
    for _ in range(180):
        s = s * 1.0005 if result[-1] is not s else s * 1.0004
        result.append(s)
    return np.sum(np.array(result) ** 2)


STRANGE = [
    written_before,
    written_behind,
    view_appended,
    written_after_the_loop,
    element_written_in_the_loop,
    known_by_another_name,
    known_by_a_method,
    held_by_a_dict,
    closed_over,
    asked_for_its_length,
    emptied,
    of_two_shapes,
    asked_what_it_is,
    told_apart,
]


@pytest.mark.parametrize("f", STRANGE, ids=lambda f: f.__name__)
def test_what_else_sees_the_list_sees_its_elements(f):
    require_as_numpy(f, P, P * np.array([1.7, 0.9]))


def test_an_element_that_is_not_there_is_an_error_of_python():
    def beyond(p):
        results = [p[0]]
        for i in range(900):
            results.append(results[i + (i > 700)] * 0.999)
        return results[-1]

    with pytest.raises(IndexError, match="list index out of range"):
        tg.grad(beyond)(P)


def test_elements_are_of_the_kinds_that_were_appended():
    @tg.trace
    def f(p):
        x, result = p[0], []
        for i in range(150):
            x = x * 0.999
            result.append((x, i, 0.5 * i, x * p))
        return result

    x, i, half, array = f(P)[60]
    assert (type(x), type(i), type(half), type(array)) == (np.float64, int, float, np.ndarray)
    assert (i, half) == (60, 30.0)
    np.testing.assert_allclose(array, P * 0.999**61, rtol=1e-12)


def test_arguments_that_are_appended_are_returned_themselves():
    @tg.trace
    def f(p, q):
        result, s = [], p[0]
        for _ in range(900):
            s = s * 0.999 + q[0]
            result.append(p)
        return result, s

    result, _ = f(P, P * 2)
    assert len(result) == 900
    assert all(x is P for x in result)


def test_rows_that_are_put_together_again_are_an_array_of_their_own():
    def f(x):
        a = x + 1
        b, c, d = np.array(list(a)), np.stack(list(x)), np.array([*a[1:], a[0]])
        b[0] = 7.0
        c[0] = 3.0
        a[1] = 5.0
        return a, b, c, d, np.stack(list(a), axis=-1)

    for x in (P, np.arange(6.0).reshape(3, 2)):
        before = x.copy()
        for result, expected in zip(tg.trace(f)(x), f(x.copy())):
            np.testing.assert_array_equal(result, expected)
        np.testing.assert_array_equal(x, before)
