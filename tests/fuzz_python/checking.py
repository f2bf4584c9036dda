"""Runs a program plainly and traced while its world changes, and compares values, derivatives and effects."""

from __future__ import annotations

import abc
import bisect
import collections
import contextlib
import contextvars
import copy
import dataclasses
import enum
import functools
import heapq
import itertools
import math
import operator
import sys
import threading
import types
import typing
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from meaning import seen, tell_apart
from random_programs import interpreted

import tracegrad as tg
from fuzz_python.writer import Program
from tracegrad.errors import TraceError, UnsupportedError

__all__ = ["Invalid", "check"]

Array = Any
STEP = 1e-6
# The calls: which argument, which int, and what changes before.
CALLS = ((0, 1, ""), (1, 1, ""), (2, 1, "change 0"), (3, 2, ""), (4, 2, "change 1"), (0, 1, "change 2"), (1, 0, ""))
# Those after which the derivative is compared with differences: a first one, one of a hit, some after changes.
COMPARED = (0, 1, 3, 5)
MODULES = (
    abc,
    bisect,
    collections,
    contextlib,
    contextvars,
    copy,
    dataclasses,
    enum,
    functools,
    heapq,
    itertools,
    math,
    operator,
    threading,
    types,
    typing,
    weakref,
)
PACKAGE = "/site-packages/fuzzed/package.py"
REFUSED = (UnsupportedError, TraceError)
CAUGHT = (ValueError, LookupError, ArithmeticError, RuntimeError, AttributeError, TypeError)


class Invalid(Exception):
    """The program is none that Python runs."""


class Different(AssertionError):
    """What differs, and where."""


@functools.cache
def _package() -> types.CodeType:
    return compile((Path(__file__).parent / "package.py").read_text(), PACKAGE, "exec")


def argument(k: int) -> Array:
    return np.cos(np.arange(3.0) * 1.7 + 0.3 + 0.61803 * k)


def _module(name: str, code: types.CodeType, **known: Any) -> types.ModuleType:
    """A module, which is imported in the place of one that was before."""
    module = sys.modules[name] = types.ModuleType(name)
    module.__file__ = code.co_filename
    vars(module).update(known)
    exec(code, vars(module))
    return module


class World:
    """A program's module, newly imported; `function` is what is called, and `called` what that is in the end."""

    def __init__(self, code: types.CodeType, program: Program):
        package = _module("fuzzed.package", _package())
        self.program = program
        known = {"np": np, "package": package} | {module.__name__: module for module in MODULES}
        self.space = vars(_module("fuzzed.module", code, **known))
        self.f = self.space["f"]

    def loss(self, x: Array, n: int) -> Any:
        """A number that depends on all arrays of the result, and all that it depends on."""
        arrays, facts = self.f(x, n)
        return sum((np.sum(a * (0.3 + 0.4 * k)) for k, a in enumerate(arrays)), 0.0), (arrays, facts)

    def change(self, kind: str) -> None:
        for text in self.program.of(kind) if kind else ():
            exec(text, self.space)

    def state(self) -> list[Any]:
        return [seen(eval(text, self.space)) for text in self.program.of("state")]


def _calls(world: World, call: Callable[[Array, int], Any], last: int = len(CALLS), step: Array = 0.0) -> Iterator[Any]:
    """What can be seen of each call, or of those before `last` and of that at a point further on."""
    for k, (at, n, change) in enumerate(CALLS[: last + 1]):
        world.change(change)
        x = argument(at) + (step if k == last else 0.0)
        try:
            result = call(x, n)
        except (*REFUSED, tg.errors.PerformanceWarning):
            raise
        except CAUGHT as error:
            result = _raised(error)
        yield result, seen(x), world.state()


@dataclasses.dataclass(frozen=True)
class Caught:
    """An exception that a call raised: classes of a program are others in each world, so their names are compared."""

    name: str
    args: Any = None


def _raised(error: Exception) -> Caught:
    kind = next(kind for kind in type(error).__mro__ if kind.__module__.partition(".")[0] != tg.__name__)
    own = kind.__module__ == "fuzzed.module"
    return Caught(kind.__name__, seen([*error.args]) if own else None)


def _good(x: Any) -> bool:
    return bool(np.all(np.isfinite(x)) and np.max(np.abs(x), initial=0.0) < 1e3)


class _Plain:
    """What a program does plainly."""

    def __init__(self, code: types.CodeType, program: Program):
        self.new = lambda: World(code, program)
        try:
            world = self.new()
            self.calls = [*_calls(world, lambda x, n: seen(world.loss(x, n)[1]))]
        except Exception as error:
            raise Invalid(f"{type(error).__name__}: {error}") from error
        first = self.calls[0][0]
        if isinstance(first, Caught) and first.name in ("AttributeError", "TypeError"):
            raise Invalid("does not run")
        for result, _, _ in self.calls:
            if not isinstance(result, Caught):
                arrays = [a[-1] for a in result[2][0][2]]
                if not all(isinstance(a, np.ndarray | float) and _good(a) for a in arrays):
                    raise Invalid("no small numbers")

    def loss(self, last: int, step: Array) -> float:
        world = self.new()
        *_, (result, _, _) = _calls(world, lambda x, n: world.loss(x, n)[0], last, step)
        if isinstance(result, Caught):
            raise Invalid("raised")
        return float(result)

    @functools.cached_property
    def derivatives(self) -> dict[int, float]:
        """By the calls, the derivatives along a direction; those next to a kink are left out."""
        table = {}
        for k in COMPARED:
            if isinstance(self.calls[k][0], Caught):
                continue
            with contextlib.suppress(Invalid):
                direction = np.cos(np.arange(3.0) + k)
                up, here, down, far, near = (self.loss(k, s * STEP * direction) for s in (1, 0, -1, 100, -100))
                right, left, both, wide = (up - here), (here - down), (up - down) / 2, (far - near) / 200
                if max(abs(right - left), abs(both - wide)) < 1e-3 * STEP * (1 + abs(both) / STEP + abs(here)):
                    table[k] = both / STEP
        return table

    @functools.cached_property
    def curvatures(self) -> dict[int, float]:
        """By the calls, the second derivatives along a direction."""
        table = {}
        for k in self.derivatives:
            with contextlib.suppress(Invalid):
                direction = 1e-3 * np.cos(np.arange(3.0) + k)
                at = [self.loss(k, s * direction) for s in (-2, -1, -0.5, 0, 0.5, 1, 2)]
                wide, both, near = (
                    (at[3 - s] - 2 * at[3] + at[3 + s]) / (w * 1e-3) ** 2 for s, w in ((3, 2), (2, 1), (1, 0.5))
                )
                if max(abs(wide - both), abs(near - both)) < 1e-3 * (1 + abs(both)):
                    table[k] = both
        return table


def _swapped(found: Any) -> Any:
    (_, rest), gradient = found
    return gradient, rest


def _derivative(world: World, transform: str) -> Callable[[Array, int], Any]:
    """A call with its derivative."""
    if transform == "jvp":

        def forward(x: Array, n: int) -> Any:
            k = forward.calls  # type: ignore[attr-defined]
            forward.calls += 1  # type: ignore[attr-defined]
            _, derivative, rest = tg.jvp(lambda x: world.loss(x, n), (x,), (np.cos(np.arange(3.0) + k),), has_aux=True)
            return seen(rest), float(derivative)

        forward.calls = 0  # type: ignore[attr-defined]
        return forward
    both = tg.value_and_grad(world.loss, has_aux=True)
    if transform == "second":

        def twice(x: Array, n: int) -> Any:
            k = twice.calls  # type: ignore[attr-defined]
            twice.calls += 1  # type: ignore[attr-defined]
            direction = np.cos(np.arange(3.0) + k)
            _, curved, rest = tg.jvp(lambda x: _swapped(both(x, n)), (x,), (direction,), has_aux=True)
            return seen(rest), float(np.sum(curved * direction))

        twice.calls = 0  # type: ignore[attr-defined]
        return twice
    both = tg.disable_jit()(both) if transform == "eager" else both

    def backward(x: Array, n: int) -> Any:
        (_, rest), gradient = both(x, n)
        return seen(rest), gradient

    return backward


def _compare(plain: _Plain, what: str, found: Iterator[Any], counts: Counter[str]) -> None:
    for k, (wanted, (got, *effects)) in enumerate(zip(plain.calls, found)):
        derivative = None
        if isinstance(got, tuple) and len(got) == 2:
            got, derivative = got
        tell_apart(
            *[[x.name, x.args] if isinstance(x, Caught) else x for x in (wanted[0], got)], f"{what}, call {k}: result"
        )
        tell_apart(list(wanted[1:]), effects, f"{what}, call {k}: effects")
        if derivative is not None:
            wanted_derivatives, close = (plain.derivatives, 2e-5) if what != "second" else (plain.curvatures, 3e-3)
            along = derivative if np.ndim(derivative) == 0 else float(np.sum(derivative * np.cos(np.arange(3.0) + k)))
            if k in wanted_derivatives:
                counts[f"{what}: derivatives compared"] += 1
                if not abs(along - wanted_derivatives[k]) <= close * (1 + abs(wanted_derivatives[k])):
                    raise Different(f"{what}, call {k}: derivative {along!r} instead of {wanted_derivatives[k]!r}")


def check(program: Program, compiled: bool = False, counts: Counter[str] | None = None) -> None:
    """Raise `Different`, or what a call has raised, where traced calls differ from plain ones; `Invalid` for a program
    that Python does not run. `counts` is told what was compared."""
    counts = Counter() if counts is None else counts
    name = "/site-packages/fuzzed/module.py" if program.installed else "/home/fuzzed/module.py"
    with warnings.catch_warnings(), np.errstate(all="ignore"), nullcontext() if compiled else interpreted():
        warnings.simplefilter("ignore")
        try:
            code = compile(program.text, name, "exec")
        except SyntaxError as error:
            raise Invalid(str(error)) from error
        plain = _Plain(code, program)
        for what in program.ways:
            world = plain.new()
            traced = tg.trace(world.f)
            call = (lambda x, n, f=traced: seen(f(x, n))) if what == "traced" else _derivative(world, what)
            try:
                _compare(plain, what, _calls(world, call), counts)
            except REFUSED as error:
                counts[f"{what}: refused"] += 1
                counts[f"refused: {str(error).splitlines()[0][:110]}"] += 1
            else:
                counts[f"{what}: compared"] += 1
