"""`x.__class__` of a traced value is that of what it stands for: with `match`, dispatch, visitors, and unseen code."""

from __future__ import annotations

import functools
import numbers
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from meaning import program

import tracegrad as tg

OPERANDS: dict[str, Any] = {
    "array": np.array([1.0, 2.0]),
    "no_axes": np.array(3.0),
    "one": np.ones(1),
    "none": np.ones((0, 2)),
    "float64": np.float64(2.0),
    "float32": np.float32(2.0),
    "int64": np.int64(2),
    "bool_": np.bool_(True),
    "complex128": np.complex128(2j),
    "float": 2.0,
    "int": 2,
    "bool": True,
    "complex": 2j,
    "str": "a",
    "list": [2.0],
    "tuple": (1.0, np.ones(2)),
    "dict": {"a": np.ones(2)},
}


class Point:
    __match_args__ = ("x", "y")

    def __init__(self, x: Any, y: Any):
        self.x, self.y = x, y


def matched(x: Any) -> Any:
    match x:
        case np.ndarray(shape=(2,)) as found:
            return "two", found * 2.0
        case np.ndarray(ndim=0):
            return "no axes", x * 2.0
        case np.ndarray():
            return "array", x * 3.0
        case np.float64() as found:
            return "float64", found * 4.0
        case np.integer() | np.bool_():
            return "integer", x + 1
        case np.generic():
            return "generic", x + x
        case _:
            return matched_number(x)


def matched_number(x: Any) -> Any:
    match x:
        case bool(found):
            return "bool", not found
        case int(found):
            return "int", found * 5
        case float(found):
            return "float", found * 6
        case _:
            return matched_otherwise(x)


def matched_otherwise(x: Any) -> Any:
    match x:
        case complex() as found:
            return "complex", found * 2
        case str():
            return "str", x
        case {"a": np.ndarray() as found}:
            return "mapping", found * 7.0
        case [float(found)]:
            return "one float", found * 8.0
        case [found, np.ndarray()]:
            return "sequence", found * 9.0
        case _:
            return "nothing", 0.0


class Scale:
    @functools.singledispatchmethod
    def apply(self, x: Any) -> Any:
        return "default", x

    @apply.register(np.ndarray)
    def _array(self, x: Any) -> Any:
        return "array", x * 2.0

    @apply.register(float)
    def _float(self, x: Any) -> Any:
        return "float", x * 7.0

    @apply.register(numbers.Integral)
    def _integral(self, x: Any) -> Any:
        return "integral", x * 3


def dispatched(x: Any) -> Any:
    return Scale().apply(x)


class Visitor:
    def visit(self, x: Any) -> Any:
        return getattr(self, "visit_" + x.__class__.__name__, self.generic)(x)

    def generic(self, x: Any) -> Any:
        return "generic", type(x).__name__

    def visit_ndarray(self, x: Any) -> Any:
        return "array", x * 2.0

    def visit_float64(self, x: Any) -> Any:
        return "float64", x * 3.0

    visit_float = visit_float64


def compared(x: Any) -> Any:
    kinds = (np.ndarray, np.float64, np.float32, np.int64, np.bool_, float, int, bool, complex, dict, list)
    return [(x.__class__ is kind, x.__class__ == kind, type(x) is x.__class__) for kind in kinds]


def described(x: Any) -> Any:
    return x.__class__.__name__, getattr(x, "__class__").__name__, x.__class__.__module__  # noqa: B009


ASKED = [matched, dispatched, Visitor().visit, compared, described]


@program
def test_the_class_of_each_kind_of_value_is_the_same(trace: Any) -> Iterator[Any]:
    for ask in ASKED:
        f = trace(lambda x, ask=ask: ask(x))
        for _ in range(2):
            yield [(name, f(x)) for name, x in OPERANDS.items()]


@program
def test_results_of_operations_have_the_class_that_numpy_gives_them(trace: Any) -> Iterator[Any]:
    @trace
    def f(x: Any, y: Any) -> Any:
        results = [x + 1.0, x[0], x.sum(), x[:0], y * 2, float(y), np.zeros(2), x > 0.0, (x > 0.0)[0], x * 1j]
        return [(described(v), v) for v in results]

    yield f(np.ones(2), np.float64(2.0))
    yield f(np.ones(2), np.float64(3.0))


@program
def test_positional_patterns_reach_values_in_objects(trace: Any) -> Iterator[Any]:
    point = Point(np.array([1.0, 2.0]), 3.0)

    @trace
    def f(z: Any) -> Any:
        results = []
        for p in (point, Point(z, z.sum())):
            match p:
                case Point(np.ndarray() as x, np.float64() as y):
                    results.append(("float64", x * y))
                case Point(np.ndarray() as x, float() as y):
                    results.append(("float", x * y))
                case Point():
                    results.append(("point", 0.0))
        return results

    yield f(np.ones(2))
    point.y = np.float64(5.0)
    yield f(np.ones(2))
    point.x = 1.0
    yield f(np.ones(2))


@pytest.mark.parametrize("eager", [False, True], ids=["compiled", "eager"])
@pytest.mark.parametrize("ask", [matched, dispatched, Visitor().visit], ids=["match", "dispatch", "visitor"])
def test_derivatives_pass_through_what_the_class_decides(ask: Any, eager: bool) -> None:
    x = np.array([1.0, 2.0])

    def f(x: Any) -> Any:
        return np.sum(ask(x)[1])

    with tg.disable_jit() if eager else nullcontext():
        np.testing.assert_array_equal(tg.grad(f)(x), 2 * np.ones(2))
        assert tg.jvp(f, (x,), (np.ones(2),))[1] == 4
        np.testing.assert_array_equal(tg.vmap(lambda x: ask(x)[1])(np.ones((3, 2))), 2 * np.ones((3, 2)))
