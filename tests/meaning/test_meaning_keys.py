"""Containers from outside that are asked with traced keys are asked again at each call, present or absent."""

from __future__ import annotations

import collections
import dataclasses
import math
import os
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from meaning import compare, program

import tracegrad as tg

X = np.array([1.0, 2.0, -1.0])


def _get(d: Any, k: Any) -> Any:
    return d.get(k, -1.0)


def _get_one(d: Any) -> Any:
    return d.get("k", 1.0)


def _contains(d: Any, k: Any) -> Any:
    return 3.0 if k in d else -1.0


def _item(d: Any, k: Any) -> Any:
    try:
        return d[k]
    except KeyError:
        return -1.0


def _pair(d: Any, k: Any) -> Any:
    return d.get((k, 1), -1.0) + (2.0 if (k, 1) in d else 0.0)


def _of_two(d: Any, k: Any) -> Any:
    return d.get(k, d.get(k + 1, -1.0))


QUESTIONS: list[Callable[[Any, Any], Any]] = [_get, _contains, _item, _pair, _of_two]
MAPPINGS: dict[str, Callable[[], Any]] = {
    "dict": dict,
    "OrderedDict": collections.OrderedDict,
    "Counter": collections.Counter,
    "ChainMap": lambda: collections.ChainMap({}, {9: 4.0}),
    "defaultdict": lambda: collections.defaultdict(None),
}
KEYS: dict[str, Callable[[Any], Any]] = {
    "an int": lambda k: k,
    "a float": float,
    "of an array": lambda k: int(np.array([0.0, 1.0, 2.0])[k]),
}


@pytest.mark.parametrize("kind", MAPPINGS)
@pytest.mark.parametrize("question", QUESTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("decorate", [tg.trace, lambda f: tg.trace(tg.trace(f))], ids=["traced", "nested"])
def test_a_key_that_was_absent_is_asked_for_again(kind: str, question: Any, decorate: Any) -> None:
    mapping = MAPPINGS[kind]()

    def f(k: Any, x: Any) -> Any:
        return x * question(mapping, k)

    def seen(call: Any) -> list[Any]:
        mapping.clear()
        results = [call(1, X), call(1, X)]
        mapping[1], mapping[(1, 1)] = 5.0, 7.0
        results += [call(1, X), call(2, X)]
        mapping[2] = 6.0
        results += [call(1, X), call(2, X), call(1.0, X), call(True, X)]
        del mapping[1], mapping[(1, 1)]
        return [*results, call(1, X), call(0, X), call(2, X)]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tg.PerformanceWarning)  # one that answers differently many times is told of
        np.testing.assert_array_equal(seen(decorate(f)), seen(f))


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("derivative", ["grad", "jvp", "disabled"])
def test_derivatives_ask_again_too(question: Any, derivative: str) -> None:
    mapping: dict[Any, float] = {}

    def f(x: Any, k: Any) -> Any:
        return x * x * question(mapping, k)

    def slope(k: int) -> Any:
        if derivative == "jvp":
            return tg.jvp(lambda x: f(x, k), (3.0,), (1.0,))[1]
        if derivative == "grad":
            return tg.grad(f)(3.0, k)
        with tg.disable_jit():
            return tg.grad(f)(3.0, k)

    for change in ({}, {1: 5.0}, {1: 6.0, (1, 1): 2.0}, {2: 3.0}):
        mapping.clear()
        mapping.update(change)
        assert slope(1) == 6.0 * question(mapping, 1)


@program
def test_memos_are_filled_and_found(trace: Any) -> Any:
    memo: dict[Any, Any] = {}

    @trace
    def f(k: Any, x: Any) -> Any:
        if k not in memo:
            memo[k] = x * 2
        return memo[k] + 1

    yield f(1, 2.0), dict(memo)
    yield f(1, 9.0), dict(memo)
    yield f(3, 1.0), dict(memo)
    del memo[1]
    yield f(1, 5.0), f(3, 7.0), dict(memo)
    memo[1] = 8.0
    yield f(1, 5.0), dict(memo)


@program
def test_setdefault_under_a_traced_key(trace: Any) -> Any:
    memo: dict[Any, Any] = {}

    @trace
    def f(k: Any, x: Any) -> Any:
        return memo.setdefault(k, x * 2)

    yield f(1, 2.0), f(1, 3.0), f(2, 5.0), dict(memo)
    memo.clear()
    yield f(1, 4.0), dict(memo)


@program
def test_recursion_over_a_memo_in_a_default(trace: Any) -> Any:
    def fibonacci(n: Any, x: Any, seen: Any = {}) -> Any:  # noqa: B006
        if n in seen:
            return seen[n]
        seen[n] = x if n < 2 else fibonacci(n - 1, x) + fibonacci(n - 2, x)
        return seen[n]

    assert fibonacci.__defaults__ is not None
    f = trace(fibonacci)
    yield f(5, 1.0), f(5, 2.0), f(6, 2.0)
    fibonacci.__defaults__[0].clear()
    yield f(5, 3.0), f(6, 3.0)


@program
def test_sets_asked_for_traced_numbers(trace: Any) -> Any:
    members = {7}

    @trace
    def f(k: Any, x: Any) -> Any:
        return x * (2.0 if k in members else 1.0), members

    yield f(1, X)[0], f(7, X)[0]
    members.add(1)
    yield f(1, X)[0], f(7, X)[0]
    members.discard(7)
    yield f(1, X)[0], f(7, X)[0]


@program
def test_a_default_is_made_once_under_a_traced_key(trace: Any) -> Any:
    groups: Any = collections.defaultdict(list)

    @trace
    def f(k: Any, x: Any) -> Any:
        groups[k].append(x)
        return len(groups[k]) + x

    yield f(1, 2.0), f(1, 3.0), f(2, 3.0), dict(groups)
    groups.clear()
    yield f(1, 2.0), dict(groups)


def test_a_defaultdict_asked_whether_a_key_is_absent_makes_no_item() -> None:
    groups: Any = collections.defaultdict(float)
    f = tg.trace(lambda k, x: x * (1.0 if k in groups else 2.0))
    for _ in range(3):
        f(1, X)
    assert dict(groups) == {}


class OwnDefault(collections.defaultdict[Any, Any]):
    pass


class Missing(dict[Any, Any]):
    def __missing__(self, key: Any) -> Any:
        self[key] = float(key)
        return self[key]


WITH_DEFAULTS: dict[str, Callable[[], Any]] = {
    "defaultdict": lambda: collections.defaultdict(float),
    "a class of a defaultdict": lambda: OwnDefault(float),
    "Counter": collections.Counter,
    "__missing__": Missing,
    "ChainMap": lambda: collections.ChainMap(collections.defaultdict(float), {1: 2.0}),
}


@pytest.mark.parametrize("mode", ["traced", "disabled", "tensors"])
@pytest.mark.parametrize("writes", [False, True], ids=["reads", "writes"])
@pytest.mark.parametrize("kind", WITH_DEFAULTS)
def test_looking_at_what_was_read_makes_no_item(kind: str, writes: bool, mode: str) -> None:
    def emptied(trace: Any) -> Any:
        items = WITH_DEFAULTS[kind]()

        @trace
        def f(x: Any) -> Any:
            k = int(x[0] > 0)
            if writes:
                items[k] += 2.0
            return x * items[k] + items[1]

        for g in (f, trace(lambda x: f(x) + 1.0)):
            for sign in (1, 1, 1, -1, -1, 1):
                yield g(sign * X), list(items.items())
            for sign in (-1, -1, 1):
                items.clear()
                yield g(sign * X), list(items.items())
            items.pop(1, None)
            yield g(X), list(items.items())

    compare(emptied, mode)


def test_a_call_that_fails_to_fit_and_says_why_makes_no_item() -> None:
    groups: Any = collections.defaultdict(float, {1: 2.0})
    f = tg.trace(lambda x: x * (groups[1] if len(groups) else 5.0))
    np.testing.assert_array_equal(f(X), 2.0 * X)
    groups.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        f.explain(X)
    assert dict(groups) == {}
    np.testing.assert_array_equal(f(X), 5.0 * X)


def test_a_function_that_makes_a_transform_asks_an_object_for_an_absent_key() -> None:
    class Module:
        def __init__(self) -> None:
            self.extra: dict[str, float] = {}

    module = Module()

    def helper(x: Any) -> Any:
        return tg.grad(lambda y: np.sum(y**2) * _get_one(module.extra))(x)

    for _ in range(3):
        np.testing.assert_array_equal(helper(X), 2.0 * X)
    module.extra["k"] = 5.0
    np.testing.assert_array_equal(helper(X), 10.0 * X)


class Named:
    """A key that compares by value."""

    def __init__(self, name: Any):
        self.name = name

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and bool(self.name == other.name)


class AllAlike(Named):
    """A key whose hash says nothing."""

    def __hash__(self) -> int:
        return 1


@dataclasses.dataclass(frozen=True)
class Frozen:
    name: Any


class Pair(NamedTuple):
    name: Any
    other: int = 0


KEYS: dict[str, Callable[[Any], Any]] = {
    "hash": Named,
    "same hash": AllAlike,
    "dataclass": Frozen,
    "namedtuple": Pair,
    "frozenset": lambda n: frozenset({n}),
    "in a tuple": lambda n: (Named(n), 0),
    "in an object": lambda n: Named((n, Frozen(n))),
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_made_of_traced_numbers_are_asked_for_again(kind: str) -> None:
    def script(trace: Any) -> Any:
        make = KEYS[kind]
        table = {make(0): 2.0, make(9): 1.0}

        @trace
        def got(x: Any, n: Any) -> Any:
            return x * table.get(make(n), 5.0)

        @trace
        def contained(x: Any, n: Any) -> Any:
            return x * (3.0 if make(n) in table else 4.0)

        @trace
        def read(x: Any, n: Any) -> Any:
            try:
                return x * table[make(n)]
            except KeyError:
                return x * 9.0

        def all_of(n: Any) -> Any:
            return got(X, n), contained(X, n), read(X, n)

        yield from map(all_of, (0, 2, 2, 3, 2))
        for added in ({make(2): 7.0}, {make(2): 8.0, make(0): 0.5}, {}):
            table.update(added)
            if not added:
                table.clear()
            yield from map(all_of, (2, 3, 2, 0))

    compare(script, "traced")
    compare(script, "disabled")


@pytest.mark.parametrize("kind", KEYS)
def test_keys_made_of_traced_numbers_are_written(kind: str) -> None:
    def script(trace: Any) -> Any:
        make = KEYS[kind]
        table: dict[Any, Any] = {}

        @trace
        def put(x: Any, n: Any) -> Any:
            table[make(n)] = x * n
            return x

        for n in (2, 2, 3, 2, 3):
            yield put(X + n, n), [make(k) in table for k in range(5)], list(table.values())

    compare(script, "traced")
    compare(script, "disabled")


SCALE: Any = 2.0


def scaled(x: Any) -> Any:
    return x * SCALE


@pytest.mark.filterwarnings("ignore::tracegrad.PerformanceWarning")
@program
def test_functions_are_keys_and_are_in_sets(trace: Any) -> Any:
    global SCALE
    SCALE = 2.0
    weights: Any = {scaled: 2.0, os.getcwd: 3.0, math.sin: 4.0, os.path.join: 5.0}
    held = {scaled}
    asked = [
        trace(lambda x: x * weights[scaled] + weights.get(os.getcwd, 0.0)),
        trace(lambda x: x * weights.get(math.sin, 0.0) + (scaled in weights) * 2.0 + (os.path.join in weights)),
        trace(lambda x: x * (scaled in held)),
        trace(lambda x: sum(w for f, w in weights.items() if f is scaled) * x),
        trace(lambda x: sum(f(x) for f in held)),
    ]
    yield [f(X) for f in asked], [f(X) for f in asked]
    SCALE, weights[scaled] = 3.0, 7.0
    yield [f(X) for f in asked]
    del weights[math.sin]
    held.clear()
    yield [f(X) for f in asked]


@program
def test_what_is_put_under_a_function_is_found_there(trace: Any) -> Any:
    totals: Any = {}

    @trace
    def f(x: Any) -> Any:
        totals[scaled] = totals.get(scaled, 0.0) + x.sum()
        return x * totals[scaled]

    yield f(X), [*totals.values()], scaled in totals
    yield f(X), [*totals.values()], scaled in totals
