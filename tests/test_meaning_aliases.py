"""Programs in which what was several objects while a function was traced is one object in a later call, or once was."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from meaning import attempt, program


class Box:
    """An object with attributes."""

    def __init__(self, **given: Any) -> None:
        self.__dict__.update(given)


@dataclasses.dataclass
class State:
    n: float
    w: Any


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

    for turn in range(9):
        if turn == 3:
            box.b, box.d, box.f = box.a, box.c, box.e
        if turn == 6:
            box.b, box.d, box.f = {"n": 5}, [], State(2.0, 0)
        x = np.ones(2) * turn
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
