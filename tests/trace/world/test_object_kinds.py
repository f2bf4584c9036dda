"""The tables of object kinds and guard kinds: one example of each row, and the tables of the package's README.md."""

from __future__ import annotations

import array
import collections
import contextlib
import contextvars
import dataclasses
import datetime
import functools
import itertools
import logging
import math
import pathlib
import re
import types
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import tracegrad as tg
from tests.helpers.readme_tables import require_section, table
from tracegrad.trace.world import object_kinds, world
from tracegrad.trace.world.guards import GUARD_KINDS, SourceGuard
from tracegrad.trace.world.object_kinds import KINDS, OTHER, ObjectKind

X = np.array([1.0, 2.0])


class Scaler:
    """An object of a user class."""

    def __init__(self, factor: float = 2.0):
        self.factor = factor

    def scaled(self, x: Any) -> Any:
        return x * self.factor


class Pair(NamedTuple):
    """A named tuple, which is a pytree."""

    first: float = 1.0
    second: float = 2.0


class Names(dict[str, float]):
    """A collection of a user class."""


def double(x: Any) -> Any:
    """A user function."""
    return x * 2.0


@functools.lru_cache
def remembered(n: int) -> float:
    """A function with a cache."""
    return n / 2.0


def numba_function() -> Any:
    numba = pytest.importorskip("numba")
    return numba.njit(double)


def spline() -> Any:
    interpolate = pytest.importorskip("scipy.interpolate")
    return interpolate.CubicSpline(np.arange(4.0), np.arange(4.0) ** 2)


# By name of a row: a function that makes an example, and what traced code does with it and an array.
EXAMPLES: dict[str, tuple[Callable[[], Any], Callable[[Any, Any], Any]]] = {
    "array": (lambda: X + 1.0, lambda held, x: x * held),
    "Tensor": (lambda: tg.tensor(X), lambda held, x: (held * x).sum()),
    "number, text, or other immutable value": (lambda: 3.0, lambda held, x: x * held),
    "random generator": (lambda: np.random.default_rng(0), lambda held, x: x + held.random()),
    "list, dict, set, or deque": (lambda: [1.0, 2.0], lambda held, x: x * held[0]),
    "other mutable collection": (lambda: Names(a=1.0), lambda held, x: x * held["a"]),
    "tuple, named tuple, or registered pytree": (lambda: Pair(), lambda held, x: x * held.second),
    "function": (lambda: double, lambda held, x: held(x)),
    "bound method": (lambda: Scaler().scaled, lambda held, x: held(x)),
    "`functools.partial`": (lambda: functools.partial(double, X), lambda held, x: held() + x),
    "`np.vectorize`": (lambda: np.vectorize(double), lambda held, x: held(x)),
    "function of `functools.lru_cache`": (lambda: remembered, lambda held, x: x * held(3)),
    "module": (lambda: math, lambda held, x: x * held.pi),
    "object of a user class, dataclasses included": (Scaler, lambda held, x: held.scaled(x)),
    "function compiled by Numba": (numba_function, lambda held, x: held(x)),
    "object of Python or of a package": (lambda: re.compile("a+"), lambda held, x: x * len(held.pattern)),
    "function or object that has a replacement": (lambda: math.exp, lambda held, x: x * held(1.0)),
    "object of SciPy that has a replacement": (spline, lambda held, x: held(x)),
    "`pathlib.Path`": (lambda: pathlib.Path("name"), lambda held, x: x * len(held.name)),
    "context variable": (lambda: contextvars.ContextVar("rate", default=2.0), lambda held, x: x * held.get()),
    "logger": (lambda: logging.getLogger("silent"), lambda held, x: x * len(held.name)),
    "`collections.ChainMap`": (lambda: collections.ChainMap({"a": 2.0}), lambda held, x: x * held["a"]),
    "mapping proxy": (lambda: types.MappingProxyType({"a": 2.0}), lambda held, x: x * held["a"]),
    "view of a dict": (lambda: {"a": 2.0}.values(), lambda held, x: x * sum(held)),
    "method of a built-in class": (lambda: {"a": 2.0}.get, lambda held, x: x * held("a")),
    "any other object": (lambda: datetime.date(2000, 1, 2), lambda held, x: x * held.day),
}
# Rows whose objects end the trace.
REFUSED: dict[str, tuple[Callable[[], Any], Callable[[Any, Any], Any]]] = {
    "class or object of a package that `opaque` names": (lambda: pytest.approx(1.0), lambda held, x: x * (held == 1.0)),
    "`array.array` or memory view": (lambda: array.array("d", [1.0]), lambda held, x: x * held[0]),
    "iterator, file, or other object that reading uses up": (itertools.count, lambda held, x: x * next(held)),
}
ROWS = [row for rows in KINDS.values() for row in rows]


def noting(row: ObjectKind, names: list[str]) -> ObjectKind:
    """The row, which notes its name when it decides."""

    def stand_in(world: Any, value: Any, source: Any) -> Any:
        try:
            result = row.stand_in(world, value, source)
        except BaseException:
            names.append(row.name)
            raise
        if result is not OTHER:
            names.append(row.name)
        return result

    return dataclasses.replace(row, stand_in=stand_in)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the rows that decide from now on."""
    result: list[str] = []
    for name in ("VALUE_KINDS", "OBJECT_KINDS", "LIBRARY_KINDS"):
        rows = tuple([noting(row, result) for row in getattr(object_kinds, name)])
        for module in (object_kinds, world):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, rows)
    return result


def test_each_row_has_an_example() -> None:
    assert {row.name for row in ROWS} == EXAMPLES.keys() | REFUSED.keys()


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_of_its_kind_and_is_guarded_as_the_row_says(
    name: str, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make, use = EXAMPLES[name]
    held = make()
    guards: list[SourceGuard] = []
    assume = world.World.assume

    def assumed(self: Any, source: Any, kind: str, expected: Any) -> None:
        guards.append(SourceGuard(source, kind, expected))
        assume(self, source, kind, expected)

    monkeypatch.setattr(world.World, "assume", assumed)

    @tg.trace
    def f(x: Any) -> Any:
        return use(held, x)

    expected = use(make() if name == "random generator" else held, X)
    np.testing.assert_allclose(np.asarray(f(X)), np.asarray(expected))
    assert name in names
    assert f.cache_info().traces == 1, "it does not run as plain Python"
    row = next(row for row in ROWS if row.name == name)
    kinds = {guard.kind for guard in guards if str(guard.source) == "the closure variable held"}
    if row in object_kinds.LIBRARY_KINDS or name == "object of Python or of a package":
        assert kinds <= {"is", "state", "keys"}
    else:
        assert kinds <= set(re.findall("`([a-z]+)`", row.guards))


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_trace_can_see_is_refused_by_its_kind(name: str, names: list[str]) -> None:
    make, use = REFUSED[name]
    held = make()
    packages = "_pytest" if "opaque" in name else ""

    @tg.trace
    def f(x: Any) -> Any:
        return use(held, x)

    with (
        tg.settings.override(opaque_packages=packages),
        warnings.catch_warnings(),
        contextlib.suppress(tg.errors.UnsupportedError),
    ):
        warnings.simplefilter("ignore", tg.errors.PerformanceWarning)
        f(X)
        assert f.cache_info().traces == 0
    assert name in names


# By kind of guard: a variable's value, what reads it, and a change that another trace is needed for.
CHANGES: dict[str, tuple[Any, Callable[[Any, Any], Any], Any]] = {
    "is": (double, lambda held, x: held(x), lambda x: x * 3.0),
    "equals": ("a", lambda held, x: x * len(held), "bb"),
    "type": ([1.0, 2.0], lambda held, x: x * len(list(held)), (1.0, 2.0, 3.0)),
    "aval": (X, lambda held, x: x + np.sum(held), np.ones(3)),
    "keys": ((1.0,), lambda held, x: x * len(held), (1.0, 2.0)),
    "items": ({1, 2}, lambda held, x: x * len(held), {1, 2, 3}),
    "state": (np.polynomial.Polynomial([1.0]), lambda held, x: x * held(1.0), np.polynomial.Polynomial([2.0])),
    "absent": ({}, lambda held, x: x * held.get("a", 1.0), {"a": 3.0}),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_changed_value_fails_its_guard(kind: str) -> None:
    held, use, changed = CHANGES[kind]

    @tg.trace
    def f(x: Any) -> Any:
        return use(held, x)

    for _ in range(3):
        np.testing.assert_allclose(f(X), use(held, X))
    held = changed
    for _ in range(3):
        np.testing.assert_allclose(f(X), use(changed, X))


def test_the_kinds_of_guards_have_tests() -> None:
    assert GUARD_KINDS.keys() == CHANGES.keys() | {"same"}  # shared traces have "same" (`test_closure_families`)
    named = {kind for row in ROWS for kind in re.findall("`([a-z]+)`", row.guards)} - {"decimal", "datetime"}
    assert named <= GUARD_KINDS.keys()


def tables() -> str:
    """The tables of README.md."""
    results = [
        table(
            (title, "traced code receives", "guards", "writes"),
            [(x.name, x.receives, x.guards, x.writes) for x in rows],
        )
        for title, rows in KINDS.items()
    ]
    results.append(table(("guard", "holds if the source has"), [(f"`{k}`", x.meaning) for k, x in GUARD_KINDS.items()]))
    return "\n".join(results)


def test_the_readme_has_the_tables(request: pytest.FixtureRequest) -> None:
    require_section("trace/world", "Kinds of objects", tables(), request)
