"""Functions of `functools.lru_cache`, plainly and traced: an answer is what Python's cache has."""

from __future__ import annotations

import functools
import warnings
from typing import Any, ClassVar

import numpy as np
import pytest
from meaning import attempt, program

import tracegrad as tg

X = np.array([1.0, 2.0])


class Inner:
    k = 2.0


class Model:
    rates: ClassVar = {"a": 1.0}

    def __init__(self) -> None:
        self.inner = Inner()

    def rate(self) -> float:
        return float(self.rates["a"] * self.inner.k)


MODEL, TABLE, OTHER = Model(), {"a": [1.0, 2.0]}, {"a": 1.0}
plainly = pytest.mark.filterwarnings("ignore:.*has a cache|.*the cache of:tracegrad.errors.PerformanceWarning")


@program
def test_what_a_cached_function_does_it_does_once(trace: Any) -> Any:
    calls = []

    @functools.cache
    def scaled(n: int, k: int = 2) -> int:
        calls.append(n)
        return n * k

    f = trace(lambda x: x * scaled(3) + scaled(3, k=4))
    for _ in range(3):
        yield f(X), list(calls)
    scaled.cache_clear()
    yield f(X), list(calls)
    assert scaled.cache_info().currsize == 2


@plainly
@program
def test_a_cached_function_that_counts_its_calls_with_traced_numbers(trace: Any) -> Any:
    calls, n = [], 0

    @functools.lru_cache(maxsize=2)
    def counted(v: Any) -> Any:
        nonlocal n
        n += 1
        calls.append(v)
        return v * n

    f = trace(lambda x: x * counted(float(x[0])))
    g = trace(lambda x, v: x * counted(v))
    for v in (1.0, 1.0, 2.0, 3.0, 1.0, 1.0):
        yield f(np.array([v, 2.0])), list(calls), n
    for v in (1.0, 2.0, 1, True, 3.0):
        yield g(X, v), list(calls), n
    counted.cache_clear()
    yield g(X, 1.0), list(calls), n


@program
def test_a_cache_that_is_older_than_what_its_function_reads(trace: Any) -> Any:
    scale = 2.0

    @functools.cache
    def scaled(n: Any, *, more: Any = 0) -> Any:
        return n * scale + more

    f = trace(lambda x, n: x * scaled(n, more=1) + scaled(3))
    for n in (3, 4, 3):
        yield f(X, n)
    scale = 5.0
    for n in (4, 5, 3):
        yield f(X, n)
    scaled.cache_clear()
    for n in (4, 5, 3):
        yield f(X, n)


@program
def test_a_cached_method(trace: Any) -> Any:
    class Model:
        k = 2.0

        @functools.cache  # noqa: B019
        def full(self, n: int) -> Any:
            return np.full(n, self.k)

        @trace
        def step(self, x: Any) -> Any:
            return x * self.full(2)

    m, other = Model(), Model()
    yield m.step(X)
    m.k = 5.0
    yield m.step(X), other.step(X)
    Model.full.cache_clear()
    yield m.step(X), m.step(X)


@plainly
@program
def test_a_cached_function_reads_what_was_just_written(trace: Any) -> Any:
    class Model:
        k = 2.0

    m, k = Model(), 1

    @functools.cache
    def scaled(n: int) -> float:
        return n * m.k * k

    @trace
    def f(x: Any, n: int) -> Any:
        m.k += 1.0
        return x * scaled(n)

    @trace
    def g(x: Any, n: int) -> Any:
        nonlocal k
        k = k + 1
        return x * scaled(n)

    for n in (3, 3, 4):
        yield f(X, n), g(X, n + 1), m.k, k
    scaled.cache_clear()
    yield f(X, 3), g(X, 3), m.k, k


@plainly
@program
def test_exceptions_are_in_no_cache(trace: Any) -> Any:
    calls = []

    @functools.cache
    def positive(n: int) -> int:
        if n < 0:
            calls.append(n)
            raise ValueError("negative", n)
        return n

    @trace
    def f(x: Any, n: int) -> Any:
        try:
            return x * positive(n)
        except ValueError:
            return x - 1

    g, h = trace(lambda x, n: x * positive(n)), trace(lambda x: x * positive(-2))
    for n in (1, -1, -1, 2):
        yield f(X, n), attempt(g, X, n, text=True), attempt(h, X, text=True), list(calls)


@program
def test_keys_that_have_no_hash(trace: Any) -> Any:
    double = functools.cache(lambda v: v * 2)
    yield attempt(trace(lambda x: double(x)), X, text=True)
    yield attempt(trace(lambda x: double([1.0]) * x), X, text=True)
    yield attempt(trace(lambda x: double(x.sum()) * x), X)


@program
def test_a_cached_recursion(trace: Any) -> Any:
    @functools.cache
    def fib(n: int) -> int:
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    f = trace(lambda x, n: x * fib(n))
    for n in (5, 60, 60, 3):
        yield f(X, n)


@program
def test_a_mutable_answer(trace: Any) -> Any:
    table, history = functools.cache(np.zeros), functools.cache(lambda n: [n])

    @trace
    def f(x: Any) -> Any:
        table(2)[:] += x
        history(3).append(1)
        return table(2) * len(history(3))

    for _ in range(3):
        yield f(X), table(2).copy(), list(history(3))
    table.cache_clear()
    history.cache_clear()
    yield f(X), table(2).copy(), list(history(3))
    yield trace(lambda: table(2))() is table(2)


@plainly
@program
def test_a_cache_that_is_emptied_or_looked_at(trace: Any) -> Any:
    double = functools.cache(lambda v: v * 2)

    @trace
    def f(x: Any) -> Any:
        if x[0] > 1.5:
            double.cache_clear()
        return x * double(3) * double.cache_info().currsize

    for v in (1.0, 2.0, 1.0):
        yield f(X * v)


def test_a_derivative_goes_through_a_cached_function() -> None:
    square = functools.cache(lambda v: v * v)
    gradient = tg.grad(lambda v: square(v) * 3.0)
    for v in (2.0, 3.0):
        assert gradient(v) == 6.0 * v
    decayed = functools.cache(lambda step: 0.1 * 0.9**step)
    rate = tg.trace(lambda step: decayed(step))
    for step in range(5):
        np.testing.assert_allclose(rate(step), 0.1 * 0.9**step, rtol=1e-15)
    assert rate.cache_info().traces == 1


@functools.cache
def by_method(n: int) -> float:
    return n * MODEL.rate()


@functools.cache
def by_class(n: int) -> float:
    return n * Model().rates["a"]


@functools.cache
def by_default(n: int, held: Any = (TABLE, 3)) -> float:
    return float(n * held[0]["a"][0])


def helper() -> float:
    return TABLE["a"][1]


@functools.cache
def by_helper(n: int) -> float:
    return n * helper()


@functools.cache
def by_argument(m: Any, n: int) -> float:
    return float(m.rate()) * n


@functools.cache
def of_another(n: int) -> float:
    return n * OTHER["a"]


def writes_inner() -> None:
    MODEL.inner.k += 1.0


def writes_class() -> None:
    Model.rates["a"] += 1.0


def writes_table() -> None:
    TABLE["a"][0] += 1.0
    TABLE["a"][1] += 1.0


@plainly
@pytest.mark.parametrize("write", [writes_inner, writes_class, writes_table])
@pytest.mark.parametrize("asked", [by_method, by_class, by_default, by_helper, by_argument, of_another])
def test_a_cached_function_comes_to_what_was_written_on_any_way(write: Any, asked: Any) -> None:
    args = (MODEL,) if asked is by_argument else ()

    def f(x: Any, n: int) -> Any:
        write()
        return x * asked(*args, n)

    results = []
    for function in (f, tg.trace(f)):
        MODEL.inner.k, Model.rates["a"], TABLE["a"] = 2.0, 1.0, [1.0, 2.0]
        asked.cache_clear()
        results.append(
            [(function(X, n).tolist(), MODEL.inner.k, dict(Model.rates), list(TABLE["a"])) for n in (3, 3, 4)]
        )
    assert results[0] == results[1]


@program
def test_a_cached_function_is_asked_on_a_condition_where_its_cache_knows_the_answer(trace: Any) -> Any:
    calls: list[int] = []

    @functools.lru_cache(maxsize=2)
    def small(n: int) -> int:
        calls.append(n)
        return n * 2

    @functools.cache
    def large(n: int) -> int:
        calls.append(-n)
        return n * 3

    @trace
    def f(x: Any) -> Any:
        if x[0] > 0:
            return x * small(3) + large(5)
        return x

    for k in range(3):
        for first in (1.0, -1.0, 1.0):
            yield f(np.array([first, 2.0])), list(calls)
        if k == 0:
            small(4), small(5), small(6), large(7)
        else:
            small.cache_clear()
            large.cache_clear()
        yield f(np.array([-1.0, 2.0])), list(calls)


def test_a_cached_function_ends_no_trace_for_what_was_written_elsewhere() -> None:
    table, calls = {"b a": (1, 0)}, {"n": 0}

    class Recipe:
        def __init__(self, axes: tuple[int, ...]):
            self.axes = axes

    @functools.lru_cache(maxsize=256)
    def recipe(pattern: str) -> Recipe:
        return Recipe(table[pattern])

    @tg.trace
    def f(x: Any) -> Any:
        calls["n"] += 1
        y = np.sum(x.transpose(recipe("b a").axes) ** 2)
        if y > 0:
            y = y + np.sum(x.transpose(recipe("b a").axes))
        return y

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it runs as plain Python
        for k in range(4):
            assert f(np.ones((2, 3)) + k) == 6 * (1 + k) ** 2 + 6 * (1 + k)
    assert calls["n"] == 4
    assert f.cache_info().traces <= 2


@program
def test_what_a_cache_has_is_one_object_which_may_be_changed(trace: Any) -> Any:
    @functools.cache
    def table(k: int) -> Any:
        return np.arange(2.0) * k

    @functools.cache
    def parts(k: int) -> Any:
        return [k, k * 0.5]

    @trace
    def f(x: Any, n: int) -> Any:
        t, p = table(n + 10), parts(n + 10)
        t[0] += 1.0
        p.append(1.0)
        return x * table(n + 10) + sum(parts(n + 10)), t is table(n + 10), p is parts(n + 10)

    @trace
    def g(x: Any, n: int) -> Any:
        a, b = table(n), table(1)
        b[1] = 5.0
        return x * a, a is b

    for n in (1, 1, 2, 3, 1):
        yield f(X, n), g(X, n), table(n + 10), parts(n + 10)


@program
def test_a_cache_that_was_emptied_is_asked_for_nothing_but_what_is_called(trace: Any) -> Any:
    calls: list[int] = []

    @functools.lru_cache
    def rate(k: int) -> float:
        calls.append(k)
        return k * 0.5 + len(calls)

    @functools.cache
    def two(k: int, m: str) -> float:
        calls.append(-k)
        return k * 0.5 + len(m)

    @trace
    def f(x: Any) -> Any:
        key = int(np.floor(x[0]))
        return x * rate(key) + two(key, "a")

    for k, n in enumerate((1, 2, 1, 3, 3, 2, 1, 1, 4, 2)):
        if k in (3, 5, 8):
            rate.cache_clear()
            two.cache_clear()
        yield f(X * n), list(calls)


@program
def test_a_function_with_a_cache_is_not_asked_for_a_call_that_is_another_one(trace: Any) -> Any:
    asked: list[int] = []

    @functools.lru_cache
    def scaled(k: int) -> float:
        asked.append(k)
        return k * gain

    def f(x: Any, n: int) -> Any:
        return x * scaled(n) * len(names)

    def slope(x: Any, n: int) -> Any:
        if trace is not tg.trace:
            return f(np.ones(3), n)
        return tg.jvp(lambda x: f(x, n), (x,), (np.ones(3),))[1]

    gain, names = 0.5, {"a"}
    for n in (1, 2, 1):
        yield slope(np.ones(3), n), asked
    scaled.cache_clear()
    names.add("b")
    for n in (2, 1, 3):  # the trace for 1 knows numbers that have changed, but not for 2
        yield slope(np.ones(3), n), asked
    gain = 0.7
    scaled.cache_clear()
    for n in (3, 1, 2):
        yield slope(np.ones(3), n), asked
