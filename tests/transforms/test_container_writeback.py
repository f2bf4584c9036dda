"""What a function writes to the containers among its arguments is written where a derivative of it is taken, too."""

from __future__ import annotations

import collections
import copy
import dataclasses
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.errors import UnsupportedError


@dataclasses.dataclass
class State:
    w: Any
    n: float = 0.0


def _of_dict(p: Any) -> Any:
    p["n"] = 1.5
    p["w"] = p["w"] * 2
    p["same"] = p["b"]
    del p["old"]
    return (p["w"] ** 2).sum() + p["b"].sum()


def _of_list(p: Any) -> Any:
    p.append(2.0)
    p[0] = p[0] * 3
    p.insert(0, p[1])
    return (p[0] * p[1]).sum()


def _of_object(p: Any) -> Any:
    p.n = p.n + 5.0
    p.w = p.w * p.n
    p.seen = (p.w, "seen")
    return (p.w**2).sum()


def _of_nested(p: Any) -> Any:
    p["inner"].n = p["x"].sum()
    p["moved"] = p["inner"]
    p["list"].append(p["x"] * 2)
    return p["moved"].n * p["list"][-1].sum()


def _of_order(p: Any) -> Any:
    p.move_to_end("a")
    p["a"] = p["a"] * p["b"]
    return p["a"].sum()


def _and_raises(p: Any) -> Any:
    p["w"] = p["w"] * 2
    p["n"] = 3.0
    raise KeyError(5)


W, B = np.array([1.0, 2.0, 3.0]), np.array([0.5, -1.0, 2.0])
CASES: dict[str, tuple[Callable[[Any], Any], Callable[[], Any]]] = {
    "dict": (_of_dict, lambda: {"w": W.copy(), "b": B.copy(), "old": 1.0}),
    "list": (_of_list, lambda: [W.copy(), B.copy()]),
    "object": (_of_object, lambda: State(W.copy(), 1.0)),
    "nested": (_of_nested, lambda: {"inner": State(W.copy()), "x": B.copy(), "list": [1.0]}),
    "ordered": (_of_order, lambda: collections.OrderedDict(a=W.copy(), b=B.copy())),
    "raises": (_and_raises, lambda: {"w": W.copy(), "b": B.copy()}),
}
WAYS: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "grad": lambda f: tg.grad(f),
    "plainly": lambda f: tg.disable_jit()(tg.grad(f)),
    "jvp": lambda f: lambda p: tg.jvp(f, (p,), (tg.tree.map(np.ones_like, p),)),
    "vjp": lambda f: lambda p: tg.vjp(f, p),
    "jacobian": lambda f: tg.jacfwd(f),
    "second": lambda f: tg.grad(lambda p: tg.tree.leaves(tg.grad(f)(p))[0].sum()),
    "tape": lambda f: lambda p: _by_the_tape(f, p),
}


def _by_the_tape(f: Any, p: Any) -> Any:
    """The gradient where a trace is given up."""

    def locked(p: Any) -> Any:
        np.array([0.0]).tofile(os.devnull)
        return f(p)

    return tg.disable_jit()(tg.grad(locked))(p)


def _attempted(f: Any, *args: Any) -> Any:
    try:
        return f(*args)
    except KeyError as error:
        return error.args


def _look(x: Any) -> Any:
    """What can be seen of a container, with which of its parts are one object."""
    numbers: dict[int, int] = {}

    def look(x: Any) -> Any:
        if isinstance(x, np.ndarray | float):
            same = 0 if type(x) is float else numbers.setdefault(id(x), len(numbers))
            return same, type(x), np.asarray(x).tolist()
        if isinstance(x, dict):
            return type(x), [(k, look(each)) for k, each in x.items()]
        if isinstance(x, list | tuple):
            return type(x), [look(each) for each in x]
        return (type(x), look(vars(x))) if isinstance(x, State) else x

    return look(x)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES)
def test_what_is_written_to_an_argument_is_there_behind_the_call(case: str, way: str) -> None:
    f, make = CASES[case]
    plain, derived = make(), make()
    _attempted(f, plain)
    _attempted(WAYS[way](f), derived)
    assert _look(derived) == _look(plain)


def test_the_derivative_is_that_of_plain_python() -> None:
    gradient = tg.grad(_of_dict)({"w": W.copy(), "b": B.copy(), "old": 1.0})
    np.testing.assert_allclose(gradient["w"], 8 * W)
    np.testing.assert_allclose(gradient["b"], np.ones(3))


def _one(p: Any, q: Any, x: Any) -> Any:
    p["w"] = p["w"] * 3.0
    return (q["w"] * x).sum()


def _other(p: Any, q: Any, x: Any) -> Any:
    q["w"] = q["w"] * 3.0
    return (p["w"] * x).sum()


@pytest.mark.filterwarnings("ignore:.*shares memory with something else:tracegrad.PerformanceWarning")
@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("f", [_one, _other])
def test_a_container_that_is_two_arguments_is_one_or_refused_by_name(f: Any, jit: bool) -> None:
    for argnum in range(3):
        both = {"w": W.copy()}
        gradient = tg.value_and_grad(f, argnums=argnum)
        gradient = gradient if jit else tg.disable_jit()(gradient)
        if argnum < 2:
            with pytest.raises(UnsupportedError, match=r"a dict that is differentiated.*is written to; pass a copy"):
                gradient(both, both, B)
            continue
        value, derivative = gradient(both, both, B)
        assert value == pytest.approx(f(*([{"w": W.copy()}] * 2), B))
        np.testing.assert_allclose(derivative, 3 * W)
        np.testing.assert_allclose(both["w"], 3 * W)


@pytest.mark.filterwarnings("ignore:.*shares memory with something else:tracegrad.PerformanceWarning")
@pytest.mark.parametrize("jit", [True, False])
def test_an_array_that_is_part_of_two_arguments_is_refused_where_one_is_written(jit: bool) -> None:
    def f(x: Any, y: Any) -> Any:
        x[1] = x[0] * 5
        return (y * y).sum() + x.sum()

    for argnum in (0, 1):
        gradient = tg.value_and_grad(f, argnums=argnum)
        with pytest.raises(UnsupportedError, match=r"shares memory with something else.*pass a copy"):
            (gradient if jit else tg.disable_jit()(gradient))(whole := W.copy(), whole[1:])
        np.testing.assert_array_equal(whole, W)


def test_a_derivative_within_another_writes_once() -> None:
    def inner(p: Any) -> Any:
        p["n"] = p["n"] + 1.0
        return (p["w"] ** 2).sum() * p["n"]

    def outer(p: Any) -> Any:
        derivatives = tg.grad(inner)(p)
        p["n"] = p["n"] * 10.0
        return (derivatives["w"] ** 2).sum()

    p = {"w": W.copy(), "n": 0.0}
    gradient = tg.grad(outer)(p)
    assert p["n"] == 10.0
    np.testing.assert_allclose(gradient["w"], 8 * W)


def test_an_argument_that_is_only_read_is_left_alone() -> None:
    p = {"w": W.copy(), "parts": [B.copy(), State(W.copy())]}
    before, seen = copy.deepcopy(p), [id(x) for x in (p["w"], p["parts"], *p["parts"], p["parts"][1].w)]
    tg.grad(lambda p: (p["w"] * p["parts"][0]).sum() + p["parts"][1].w.sum())(p)
    assert _look(p) == _look(before)
    assert [id(x) for x in (p["w"], p["parts"], *p["parts"], p["parts"][1].w)] == seen
