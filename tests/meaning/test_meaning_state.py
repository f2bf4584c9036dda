"""Traced code means what Python means: state that functions read and write, run plainly and traced."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

import numpy as np
import pytest
from meaning import attempt, program

import tracegrad as tg

STEP = 0
LOG: list[Any] = []
BEST: Any = None


@program
def test_an_attribute_that_decays(trace: Any) -> Any:
    class Annealing:
        def __init__(self) -> None:
            self.T = 1.0

        def step(self, x: Any) -> Any:
            self.T *= 0.9
            return np.sum(np.tanh(x) * self.T)

    walker = Annealing()
    step = trace(walker.step)
    for _ in range(4):
        yield step(np.arange(3.0)), walker.T
    walker.T = 5.0
    yield step(np.arange(3.0)), walker.T


@program
def test_a_counter_in_a_dict(trace: Any) -> Any:
    stats = {"n": 0, "other": "text"}

    @trace
    def f(x: Any) -> Any:
        stats["n"] += 1
        return x * stats["n"]

    for _ in range(4):
        yield f(np.ones(2)), stats
    stats["n"] = 10
    yield f(np.ones(2)), stats


@program
def test_a_history(trace: Any) -> Any:
    history: list[Any] = []

    @trace
    def f(x: Any) -> Any:
        loss = np.sum(x * x)
        history.append(loss)
        return loss * 2

    for k in range(4):
        yield f(np.ones(2) * k), history


def test_a_history_does_not_make_a_trace_for_each_length() -> None:
    history: list[Any] = []

    @tg.trace
    def f(x: Any) -> Any:
        history.append(np.sum(x))
        return x * 2

    for _ in range(10):
        f(np.ones(3))
    assert len(history) == 10
    assert f.cache_info().traces == 1


@program
def test_the_best_so_far(trace: Any) -> Any:
    class Search:
        best = np.inf
        where: Any = None

    search = Search()

    @trace
    def f(x: Any) -> Any:
        v = np.sum((x - 1) ** 2)
        if v < search.best:
            search.best = v
            search.where = x.copy()
        return v

    for k in (3.0, 2.0, 5.0, 1.5, 1.2, 7.0):
        yield f(np.full(2, k)), search.best, search.where


@program
def test_global_and_nonlocal_counters(trace: Any) -> Any:
    global STEP
    STEP, seen = 0, 0

    @trace
    def f(x: Any) -> Any:
        global STEP
        nonlocal seen
        STEP += 1
        seen += 2
        return x * STEP / (1.0 + seen)

    for _ in range(4):
        yield f(np.ones(2)), STEP, seen
    STEP = 100
    yield f(np.ones(2)), STEP, seen


@program
def test_running_statistics(trace: Any) -> Any:
    class BatchNorm:
        def __init__(self, n: int) -> None:
            self.mean, self.var, self.count = np.zeros(n), np.ones(n), 0
            self.training = True

        def __call__(self, x: Any) -> Any:
            if self.training:
                m, v = x.mean(axis=0), x.var(axis=0)
                self.mean = 0.9 * self.mean + 0.1 * m
                self.var = 0.9 * self.var + 0.1 * v
                self.count += 1
            else:
                m, v = self.mean, self.var
            return (x - m) / np.sqrt(v + 1e-5)

    bn = BatchNorm(3)
    f = trace(bn)
    x = np.arange(12.0).reshape(4, 3)
    for k in range(3):
        yield f(x * k), bn.mean, bn.var, bn.count
    bn.training = False
    yield f(x), bn.mean, bn.var, bn.count


@program
def test_an_argument_dict_that_is_rebound(trace: Any) -> Any:
    params = {"w": np.ones(3), "b": np.zeros(2)}

    @trace
    def step(params: Any, g: Any, lr: float) -> Any:
        for k in params:
            params[k] = params[k] - lr * g[k]
        return params["w"].sum()

    grads = {"w": np.arange(3.0), "b": np.ones(2)}
    for _ in range(3):
        yield step(params, grads, 0.1), params, grads


@program
def test_argument_lists_and_dataclasses(trace: Any) -> Any:
    @dataclasses.dataclass
    class State:
        x: Any
        n: int = 0

    @trace
    def f(state: Any, items: Any) -> Any:
        state.x = state.x * 2
        state.n += 1
        items.append(state.x + 1)
        items[0] = 5.0
        return state.n

    state, items = State(np.ones(2)), [1.0, np.zeros(2)]
    yield f(state, items), state, items
    yield f(state, items[:2]), state, items


@program
def test_a_cache_dict(trace: Any) -> Any:
    cache: dict[Any, Any] = {}
    w = np.arange(3.0)

    def kernel(n: int) -> Any:
        if n not in cache:
            cache[n] = np.exp(w * n)
        return cache[n]

    @trace
    def f(x: Any) -> Any:
        return x * kernel(2)

    for _ in range(3):
        yield f(np.ones(3)), cache
    w[:] = 0.0
    yield f(np.ones(3)), cache
    cache.clear()
    yield f(np.ones(3)), cache


@program
def test_an_attribute_computed_at_first_use(trace: Any) -> Any:
    class Model:
        def __init__(self) -> None:
            self.w, self._norm = np.arange(1.0, 4.0), None

        @property
        def norm(self) -> Any:
            if self._norm is None:
                self._norm = np.sqrt(np.sum(self.w**2))
            return self._norm

    model = Model()
    f = trace(lambda x: x / model.norm)
    for _ in range(3):
        yield f(np.ones(3)), model._norm
    model.w, model._norm = np.ones(3), None
    yield f(np.ones(3)), model._norm
    yield model.norm * 2


@program
def test_two_attributes_change_places(trace: Any) -> Any:
    class Pair:
        pass

    pair = Pair()
    pair.a, pair.b = np.zeros(2), np.ones(3)  # type: ignore[attr-defined]

    @trace
    def swap(x: Any) -> Any:
        pair.a, pair.b = pair.b, pair.a  # type: ignore[attr-defined]
        return x + 1

    a = pair.a  # type: ignore[attr-defined]
    for _ in range(3):
        yield swap(np.ones(1)), pair.a, pair.b, pair.a is a  # type: ignore[attr-defined]


@program
def test_objects_that_are_made_inside(trace: Any) -> Any:
    class Result:
        def __init__(self, x: Any, label: str) -> None:
            self.x, self.label = x, label

    class Holder:
        last: Any = None

    holder, results = Holder(), {}

    @trace
    def f(x: Any) -> Any:
        holder.last = Result(x * 2, "two")
        results[len(results)] = {"deep": [Result(x + 1, "one")]}
        return Result(np.sum(x), "sum")

    for k in range(3):
        yield f(np.ones(2) * k), holder.last, results
        yield holder.last.x + 1


@program
def test_sets_and_deques(trace: Any) -> Any:
    names, window, calls = {"a"}, collections.deque([1.0, 2.0], maxlen=3), collections.Counter()

    @trace
    def f(x: Any, name: str = "b") -> Any:
        names.add("c")
        window.append(2.0)
        calls["f"] += 1
        return x * len(names)

    @trace
    def g(x: Any) -> Any:
        window.append(np.sum(x))
        return x + 1

    @trace
    def mean(x: Any) -> Any:
        return x * sum(window) / len(window)

    for k in range(3):
        yield f(np.ones(2)), names, list(window), dict(calls)
        yield g(np.ones(2) * k), list(window)
        yield mean(np.ones(2)), window.maxlen


@program
def test_appending_and_reading_one_list(trace: Any) -> Any:
    xs = [np.ones(2)]

    @trace
    def f(x: Any) -> Any:
        xs.append(x * 2)
        total = xs[0] + xs[-1]
        xs.insert(0, x)
        return total * len(xs)

    for k in range(3):
        yield f(np.full(2, float(k))), xs


@program
def test_items_and_attributes_are_deleted(trace: Any) -> Any:
    class Thing:
        pass

    thing, table = Thing(), {"a": 1.0, "b": 2.0}
    thing.x, thing.y = 1.0, 2.0  # type: ignore[attr-defined]

    @trace
    def f(x: Any) -> Any:
        del thing.x  # type: ignore[attr-defined]
        b = table.pop("b")
        table["c"] = b + 1
        return x * b

    yield attempt(f, np.ones(2)), thing, table
    thing.x, table["b"] = 3.0, 7.0  # type: ignore[attr-defined]
    yield attempt(f, np.ones(2)), thing, table
    yield attempt(f, np.ones(2)), thing, table


@program
def test_what_was_done_before_an_exception_stays(trace: Any) -> Any:
    done: list[Any] = []

    class Thing:
        n = 0

    thing = Thing()

    @trace
    def f(x: Any) -> Any:
        done.append(x * 2)
        thing.n += 1
        if x[0] > 1:
            raise ValueError("too large")
        thing.n += 10
        return x + 1

    for k in (0.0, 2.0, 0.5, 3.0):
        yield attempt(f, np.full(2, k), text=True), done, thing.n


@program
def test_state_of_classes_and_functions(trace: Any) -> Any:
    class Model:
        calls = 0
        log: list[Any] = []  # noqa: RUF012

    def helper(x: Any) -> Any:
        helper.calls += 1  # type: ignore[attr-defined]
        return x * 2

    helper.calls = 0  # type: ignore[attr-defined]

    @trace
    def f(x: Any) -> Any:
        Model.calls += 1
        Model.log.append(np.sum(x))
        return helper(x) + Model.calls

    for _ in range(3):
        yield f(np.ones(2)), Model.calls, Model.log, helper.calls  # type: ignore[attr-defined]


@program
def test_a_schedule_that_counts_its_steps(trace: Any) -> Any:
    class Adam:
        def __init__(self) -> None:
            self.t, self.m, self.v = 0, np.zeros(2), np.zeros(2)

        def update(self, w: Any, g: Any) -> Any:
            self.t += 1
            self.m = 0.9 * self.m + 0.1 * g
            self.v = 0.999 * self.v + 0.001 * g * g
            m, v = self.m / (1 - 0.9**self.t), self.v / (1 - 0.999**self.t)
            return w - 0.1 * m / (np.sqrt(v) + 1e-8)

    adam, w = Adam(), np.array([3.0, -2.0])
    step = trace(lambda w: adam.update(w, 2 * w))
    for _ in range(5):
        w = step(w)
        yield w, adam.t, adam.m
    adam.t = 0
    yield step(w), adam.t


@program
def test_values_keep_their_identity(trace: Any) -> Any:
    class Thing:
        pass

    thing, other, saved = Thing(), Thing(), {"a": np.ones(2)}

    @trace
    def f(x: Any) -> Any:
        thing.x = x  # type: ignore[attr-defined]
        thing.other = other  # type: ignore[attr-defined]
        thing.kept = saved  # type: ignore[attr-defined]
        thing.new = x * 2  # type: ignore[attr-defined]
        return thing.new, saved, x  # type: ignore[attr-defined]

    for _ in range(2):
        x = np.ones(3)
        new, table, same = f(x)
        yield thing.x is x, thing.other is other, thing.kept is saved, thing.new is new, table is saved, same is x  # type: ignore[attr-defined]


@program
def test_slots_properties_and_setters(trace: Any) -> Any:
    class Slotted:
        __slots__ = ("n", "x")

        def __init__(self) -> None:
            self.n, self.x = 0, np.zeros(2)

    class Checked:
        _scale = 1.0

        @property
        def scale(self) -> Any:
            return self._scale

        @scale.setter
        def scale(self, value: Any) -> None:
            self._scale = value * 2

    slotted, checked = Slotted(), Checked()

    @trace
    def f(x: Any) -> Any:
        slotted.n += 1
        slotted.x = slotted.x + x
        checked.scale = checked.scale + 1.0
        return x * checked.scale * slotted.n

    for _ in range(3):
        yield f(np.ones(2)), slotted.n, slotted.x, checked.scale


def test_a_gradient_repeats_the_effects_of_its_function_once() -> None:
    losses: list[Any] = []

    def loss(w: Any) -> Any:
        value = np.sum(w**2)
        losses.append(value)
        return value

    gradient = tg.value_and_grad(loss)
    for k in range(1, 4):
        value, g = gradient(np.full(2, float(k)))
        np.testing.assert_allclose(g, 2.0 * k)
        assert losses[-1] == value
        assert type(losses[-1]) is np.float64
    assert len(losses) == 3


def test_explaining_a_function_does_nothing_to_its_world() -> None:
    calls: list[Any] = []

    @tg.trace
    def f(x: Any) -> Any:
        calls.append(x.sum())
        return x

    f.explain(np.ones(2))
    f.graph(np.ones(2))
    assert calls == []


def test_an_interrupt_leaves_the_world_as_it_was() -> None:
    class Thing:
        n = 0

    thing, calls, fail = Thing(), [], [True]

    @tg.trace
    def f(x: Any) -> Any:
        thing.n += 1
        calls.append(x)
        if fail[0]:
            raise KeyboardInterrupt
        return x * thing.n

    with pytest.raises(KeyboardInterrupt):
        f(np.ones(2))
    assert (thing.n, calls) == (0, [])
    fail[0] = False
    np.testing.assert_array_equal(f(np.ones(2)), np.ones(2))
