"""Programs with objects under several names: what leaves a function, and what was several objects and is one now."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from meaning import attempt, program

import tracegrad as tg


class Box:
    """An object with attributes."""

    def __init__(self, **given: Any) -> None:
        self.__dict__.update(given)


@dataclasses.dataclass
class State:
    n: float
    w: Any


@pytest.mark.filterwarnings("ignore:.*shares memory with something else:tracegrad.PerformanceWarning")
@program
def test_a_dict_that_is_two_arguments(trace: Any) -> Any:
    @trace
    def f(p: Any, q: Any) -> Any:
        p["a"] = p["a"] + 1.0
        q["a"] = q["a"] * 3.0
        return p["a"] + q["a"]

    p, q = {"a": np.ones(2)}, {"a": np.ones(2)}
    for first, second in ((p, q), (p, q), (p, p), (p, p), (q, p), (p, q)):
        yield f(first, second), p, q


@pytest.mark.filterwarnings("ignore:.*shares memory with something else:tracegrad.PerformanceWarning")
@program
def test_a_list_that_is_two_arguments(trace: Any) -> Any:
    @trace
    def f(p: Any, q: Any) -> Any:
        p[0] = p[0] + 1.0
        q[0] = q[0] * 3.0
        return p[0] + q[0]

    p, q = [np.ones(2)], [np.ones(2)]
    for first, second in ((p, p), (p, q), (p, q), (q, q), (q, p)):
        yield f(first, second), p, q


@pytest.mark.filterwarnings("ignore:.*shares memory with something else:tracegrad.PerformanceWarning")
@program
def test_a_dataclass_that_is_two_arguments(trace: Any) -> Any:
    @trace
    def f(a: Any, b: Any, x: Any) -> Any:
        a.n += 1
        b.n *= 3
        a.w = a.w + x
        return x * a.n + b.w

    a, b = State(1.0, np.ones(2)), State(1.0, np.zeros(2))
    for first, second in ((a, b), (a, b), (a, a), (a, a), (b, a), (a, b)):
        yield f(first, second, np.ones(2)), a, b


@pytest.mark.filterwarnings("ignore:.*shares memory with something else:tracegrad.PerformanceWarning")
@program
def test_an_argument_that_is_read_as_a_captured_variable_too(trace: Any) -> Any:
    params, log = {"n": np.ones(2)}, [1.0]

    @trace
    def f(p: Any, x: Any) -> Any:
        p["n"] = p["n"] + x
        return params["n"] * 2.0

    @trace
    def g(seen: Any, x: Any) -> Any:
        log.append(x.sum())
        return x * seen[-1]

    other = {"n": np.ones(2)}
    for p in (params, params, other, other, params):
        yield f(p, np.ones(2)), params, other
    for seen in (log, [1.0, 2.0], log, [1.0, 2.0, 3.0], [1.0, 2.0, 4.0]):
        yield g(seen, np.ones(2)), log


@pytest.mark.filterwarnings("ignore:.*shares memory with something else:tracegrad.PerformanceWarning")
@program
def test_captured_containers_that_become_one(trace: Any) -> Any:
    box = Box(a={"n": 1}, b={"n": 1}, c=[], d=[], e=State(1.0, 0), f=State(1.0, 0))

    @trace
    def f(x: Any) -> Any:
        box.a["n"] += 1
        box.b["n"] *= 2
        return x * box.a["n"]

    @trace
    def g(x: Any) -> Any:
        box.c.append(x.sum())
        box.d.append(x[0])
        box.c.append(7.0)

    @trace
    def h(x: Any) -> Any:
        a, b = box.e, box.f
        a.n += 1
        b.n *= 3
        return x * a.n

    for iteration in range(9):
        if iteration == 3:
            box.b, box.d, box.f = box.a, box.c, box.e
        if iteration == 6:
            box.b, box.d, box.f = {"n": 5}, [], State(2.0, 0)
        x = np.ones(2) * iteration
        yield f(x), g(x), h(x), box.a, box.b, box.c, box.d, box.e, box.f


@program
def test_what_was_done_before_numpy_refuses_stays_done(trace: Any) -> Any:
    box = Box(n=0, log=[], w=np.zeros(2))

    @trace
    def f(x: Any, i: Any) -> Any:
        box.w += x
        box.n += 1
        y = box.w[int(i)]
        box.log.append(y)
        box.w *= 2.0
        return y

    @trace
    def g(x: Any) -> Any:
        box.n += 1
        box.log.append(int("three") if box.n > 9 else box.n)
        return np.moveaxis(x, 0, x.ndim + box.n - 10)

    for i in (0, 1, 5, 0, -4, 1):
        yield attempt(f, np.ones(2), i), box
    for n in (1, 2, 1, 3):
        yield attempt(g, np.ones((2,) * n)), box


# -- what leaves -------------------------------------------------------------------------------------------------------
LEAVING: dict[str, Any] = {
    "twice": lambda y: (y, y),
    "the whole and its parts": lambda y: (y[1:], y, y.T, y[:, 0], y[::-1]),
    "parts that overlap": lambda y: (y[:2, :2], y[:, 1:], y[1:]),
    "parts that do not": lambda y: (y[0], y[1]),
    "a part twice": lambda y: (y[1:], [y[1:]], y[1:, :2]),
    "one part in two places": lambda y: (lambda v: (v, {"b": v, "a": [v]}))(y[1:]),
    "ravelled": lambda y: (y.ravel(), y, y.ravel("K"), y.ravel("F"), y.reshape(-1)),
    "repeated": lambda y: (np.broadcast_to(y[0], y.shape),),
    "repeated, and itself": lambda y: (np.broadcast_to(y[0], y.shape), y),
    "a diagonal": lambda y: (np.diagonal(y),),
    "a number": lambda y: (lambda n: (n, n))(np.array(y.sum())),
    "an element": lambda y: (y[0, 0], y[0, 0:1], y),
    "a part of what is then updated": lambda y: (y[1:], y.__imul__(3.0)),
    "a view of a view": lambda y: (y[1:].T, y.T[:, 1:], y[None, 1:]),
}


def relations(*arrays: Any) -> list[Any]:
    return [(x.flags.writeable, [(np.shares_memory(x, y), x is y) for y in arrays]) for x in arrays]


@pytest.mark.parametrize("owned", [True, False], ids=["new", "given"])
@pytest.mark.parametrize("name", LEAVING)
def test_arrays_that_leave_share_memory_as_in_numpy(name: str, owned: bool) -> None:
    log: list[Any] = []
    box: dict[str, Any] = {}

    def f(x: Any) -> Any:
        result = LEAVING[name](np.copy(x, "K") if owned else x)
        box["last"] = result
        log.append(result[0])
        return result

    def left(f: Any, x: Any) -> list[Any]:
        log.clear()
        result = tg.tree.leaves([f(x), log, box["last"]])
        return [y for y in result if isinstance(y, np.ndarray)] + [x]

    traced = tg.trace(f)
    rows = np.arange(12.0)
    for x in (rows.reshape(3, 4), rows.reshape(4, 3).T, np.arange(24.0).reshape(3, 8)[:, ::2], rows.reshape(3, 4)):
        for _ in range(3):
            expected, result = left(f, x.copy("K")), left(traced, x.copy("K"))
            assert relations(*result) == relations(*expected)
            for a, b in zip(expected, result, strict=True):
                np.testing.assert_array_equal(a, b)
            strided = left(f, x), left(traced, x)
            assert relations(*strided[0]) == relations(*strided[1])


def test_parts_that_do_not_overlap_leave_alone() -> None:
    f = tg.trace(lambda x: np.split(x * 2.0, 2))
    a, b = f(np.ones(4))
    assert a.base is None
    assert b.base is None


@program
def test_an_object_that_is_in_a_dict_of_another_order_twice(trace: Any) -> Any:
    store = {"b": [1.0], "a": [2.0]}

    @trace
    def f(x: Any) -> Any:
        y = [x * 2.0]
        store.clear()
        store["c"] = y
        store["b"] = (y, 1)
        store["a"] = y
        return y

    for k in range(3):
        result = f(np.ones(2) * k)
        yield result, store, result is store["c"], store["a"] is store["b"][0]
