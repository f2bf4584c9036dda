"""Dynamic programming by elements, as people write it: the loops are folded, and one program serves all inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import tracegrad as tg

SHORT, LONG = 12, 40


class Program(NamedTuple):
    """A function of an array, the shape of that for a problem of size n, and the sizes."""

    fun: Callable[[Any], Any]
    shape: Callable[[int], tuple[int, ...]]
    sizes: tuple[int, ...]


PROGRAMS: dict[str, Program] = {}


def program(shape: Any, *sizes: int) -> Callable[[Any], Any]:
    """Enter a function into the table."""

    def enter(fun: Any) -> Any:
        PROGRAMS[fun.__name__] = Program(fun, shape, sizes or (SHORT,))
        return fun

    return enter


@program(lambda n: (n + 1,), 8, SHORT, LONG)
def products_in_the_best_order(p: Any) -> Any:
    n = len(p) - 1
    m = np.zeros((n, n))
    for length in range(2, n + 1):
        for i in range(n - length + 1):
            j = i + length - 1
            best = np.inf
            for k in range(i, j):
                c = m[i, k] + m[k + 1, j] + p[i] * p[k + 1] * p[j + 1]
                if c < best:
                    best = c
            m[i, j] = best
    return m[0, n - 1]


@program(lambda n: (n + 1,), SHORT, LONG)
def the_best_is_none_at_first(p: Any) -> Any:
    n = len(p) - 1
    m = np.zeros((n, n))
    for length in range(2, n + 1):
        for i in range(n - length + 1):
            j = i + length - 1
            best = None
            for k in range(i, j):
                c = m[i, k] + m[k + 1, j] + p[i] * p[k + 1] * p[j + 1]
                if best is None or c < best:
                    best = c
            m[i, j] = best
    return m[0, n - 1]


@program(lambda n: (n + 1,))
def the_best_is_in_the_array(p: Any) -> Any:
    n = len(p) - 1
    m = np.zeros((n, n))
    split = np.zeros((n, n), dtype=int)
    for length in range(2, n + 1):
        for i in range(n - length + 1):
            j = i + length - 1
            m[i, j] = np.inf
            for k in range(i, j):
                c = m[i, k] + m[k + 1, j] + p[i] * p[k + 1] * p[j + 1]
                if c < m[i, j]:
                    m[i, j] = c
                    split[i, j] = k
    return m[0, n - 1] + p[split[0, n - 1]]


@program(lambda n: (n,))
def the_best_binary_search_tree(q: Any) -> Any:
    n = len(q)
    e = np.zeros((n + 2, n + 1))
    w = np.zeros((n + 2, n + 1))
    for length in range(1, n + 1):
        for i in range(1, n - length + 2):
            j = i + length - 1
            w[i, j] = w[i, j - 1] + q[j - 1]
            best = float("inf")
            for r in range(i, j + 1):
                t = e[i, r - 1] + e[r + 1, j] + w[i, j]
                if t < best:
                    best = t
            e[i, j] = best
    return e[1, n]


@program(lambda n: (n,), SHORT, LONG)
def the_least_and_where(x: Any) -> Any:
    best, best_k = np.inf, -1
    for k in range(len(x)):
        c = x[k] * x[k] - x[k - 1]
        if c < best:
            best, best_k = c, k
    return best * x[best_k] + best_k


@program(lambda n: (n, 3))
def the_greatest_of_short_rows(a: Any) -> Any:
    total = 0.0
    for i in range(a.shape[0]):
        best, at = -np.inf, 0
        for k in range(a.shape[1]):
            if a[i, k] > best:
                best = a[i, k]
                at = k
        total += np.sin(best) * a[i, at]
    return total


@program(lambda n: (9 * n,), SHORT)
def the_most_likely_states(a: Any) -> Any:
    n, t = 9, len(a) // 9
    e = a.reshape(t, n)
    score = e[0].copy()
    back = np.zeros((t, n), dtype=int)
    for s in range(1, t):
        new = np.zeros(n)
        for j in range(n):
            best, arg = -np.inf, 0
            for i in range(n):
                c = score[i] + np.sin(e[s, i] * (i - j))
                if c > best:
                    best, arg = c, i
            new[j] = best + e[s, j]
            back[s, j] = arg
        score = new
    last = 0
    for j in range(1, n):
        if score[j] > score[last]:
            last = j
    path = score[last]
    for s in range(t - 1, 0, -1):
        last = back[s, last]
        path = path + 0.1 * e[s - 1, last]
    return path


@program(lambda n: (2 * n,), 8, SHORT)
def the_distance_of_two_texts(x: Any) -> Any:
    n = len(x) // 2
    a, b = x[:n], x[n:]
    d = np.zeros((n + 1, n + 1))
    for i in range(n + 1):
        d[i, 0] = 0.7 * i
    for j in range(n + 1):
        d[0, j] = 0.7 * j
    for i in range(1, n + 1):
        for j in range(1, n + 1):
            c = d[i - 1, j - 1] + abs(a[i - 1] - b[j - 1])
            if d[i - 1, j] + 0.7 < c:
                c = d[i - 1, j] + 0.7
            if d[i, j - 1] + 0.7 < c:
                c = d[i, j - 1] + 0.7
            d[i, j] = c
    return d[n, n]


@program(lambda n: (n,))
def what_a_bag_can_hold(v: Any) -> Any:
    most = 30
    best = np.zeros(most + 1)
    for i in range(len(v)):
        weight = 2 + (i * 5) % 7
        for c in range(most, 0, -1):
            if c >= weight:
                t = best[c - weight] + v[i]
                if t > best[c]:
                    best[c] = t
    return best[most]


@program(lambda n: (n,))
def the_greatest_sum_that_rises(x: Any) -> Any:
    n = len(x)
    b = np.zeros(n)
    for i in range(n):
        b[i] = x[i]
        for j in range(i):
            if x[j] < x[i] and b[j] + x[i] > b[i]:
                b[i] = b[j] + x[i]
    best = b[0]
    for i in range(1, n):
        if b[i] > best:
            best = b[i]
    return best


@pytest.mark.parametrize(("name", "size"), [(name, n) for name, x in PROGRAMS.items() for n in x.sizes])
def test_one_program_serves_all_inputs(name: str, size: int) -> None:
    fun, shape, _ = PROGRAMS[name]
    traced = tg.value_and_grad(fun)
    before = traced.cache_info().traces  # of other sizes
    generator = np.random.default_rng(size)
    for k in range(6):
        x, direction = generator.uniform(0.2, 2.0, shape(size)), generator.normal(size=shape(size))
        if k in (2, 3):
            x = np.sort(x.ravel())[:: 1 if k == 2 else -1].reshape(x.shape).copy()
        value, derivative = traced(x)
        np.testing.assert_allclose(value, fun(x), rtol=1e-12)
        low, high = (fun(x + step * direction) for step in (-1e-7, 1e-7))
        np.testing.assert_allclose(np.sum(derivative * direction), (high - low) / 2e-7, rtol=1e-5, atol=1e-7)
    assert traced.cache_info().traces == before + 1


def test_ties_and_what_is_no_number_go_as_in_python() -> None:
    for fun, _, _ in (PROGRAMS["the_least_and_where"], PROGRAMS["products_in_the_best_order"]):
        traced = tg.trace(fun)
        for x in (np.ones(13), np.full(13, np.nan), np.where(np.arange(13) == 5, np.nan, 2.0), np.full(13, np.inf)):
            with np.errstate(invalid="ignore"):
                np.testing.assert_allclose(traced(x), fun(x), rtol=1e-12)
        assert traced.cache_info().traces <= 2


def test_what_is_asked_may_be_out_of_range_in_a_late_iteration() -> None:
    def risen(x: Any) -> Any:
        n = 0.0
        for i in range(30):
            if x[i] > x[i + 1]:
                n = n + x[i]
        return n

    traced = tg.trace(risen)
    x = np.cos(np.arange(40.0))
    for y in (x, x[:31], x[::-1], x[:30], x[:12], x[5:36]):
        if len(y) > 30:
            np.testing.assert_allclose(traced(y), risen(y), rtol=1e-12)
        else:
            with pytest.raises(IndexError, match=f"index {len(y)} is out of bounds"):
                traced(y)


@pytest.mark.parametrize("dtype", [float, np.float32, int])
def test_floats_of_either_kind_are_put_into_arrays_of_any_dtype(dtype: Any) -> None:
    def fun(x: Any) -> Any:
        result = np.zeros(4, dtype)
        for i in range(4):
            best = 7.9
            for k in range(i, 10):
                if x[k] < best:
                    best = x[k] * 1.7
            result[i] = best
        return result

    traced = tg.trace(fun)
    x = 3.0 + np.sin(np.arange(10.0))
    for y in (x, 20.0 * x, x[::-1].copy(), -x):
        result = traced(y)
        assert result.dtype == fun(y).dtype
        np.testing.assert_allclose(result, fun(y), rtol=1e-12)
