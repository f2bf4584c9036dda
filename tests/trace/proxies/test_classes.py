"""Methods of the user's classes in traced code, of objects made there and of dataclasses: they run as other code."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import pytest
from along import differences, named, replayed
from meaning import program

import tracegrad as tg
from tracegrad.trace.sources import class_patching


class Filled:
    def __init__(self, x: Any):
        self.x, self.sums = x, np.zeros(3)
        self.sums[0] = x[0] ** 2

    def total(self) -> Any:
        self.sums[1] += self.x[1]
        return np.sum(self.sums**2)


class Halved(Filled):
    def __init__(self, x: Any):
        super().__init__(x / 2)

    @property
    def largest(self) -> Any:
        return max(float(v) for v in self.x)

    @classmethod
    def of_exponentials(cls, x: Any) -> Any:
        return cls(np.array([math.exp(v) for v in x]))

    @staticmethod
    def first(x: Any) -> Any:
        y = np.empty(2)
        y[:] = x[0]
        return y.sum()

    def __add__(self, other: Any) -> Any:
        y = np.zeros(3)
        y += self.x * other.x
        return Halved(y)

    def __getattr__(self, name: str) -> Any:
        if name != "computed":
            raise AttributeError(name)
        return np.float64(self.x[0]) * self.x[1]


@dataclasses.dataclass
class Doubling:
    x: Any
    iterations: float = 0.0

    def until(self, bound: float) -> Any:
        while self.x[0] < bound:
            self.x = self.x * 2
            self.iterations += 1
        return self.x.sum()


class Row(NamedTuple):
    x: Any

    def cells(self) -> Any:
        out = np.zeros(3)
        for k in range(3):
            out[k] = self.x[k] ** 2
        return out.sum()


def inherited(x: Any) -> Any:
    return Halved(x).total() * Halved(x).largest


METHODS: dict[str, Callable[[Any], Any]] = {
    "array_of_the_object": lambda x: Filled(x).total(),
    "base": inherited,
    "class": lambda x: Halved.of_exponentials(x).total(),
    "static": lambda x: Halved.first(x) * x[1],
    "special": lambda x: (Halved(x) + Halved(x)).total(),
    "fallback": lambda x: Halved(x).computed,
    "loop": lambda x: Doubling(x).until(9.0) ** 2,
    "namedtuple": lambda x: Row(x).cells() * x[0],
}


@pytest.mark.parametrize("eager", [False, True], ids=["compiled", "eager"])
@pytest.mark.parametrize("name", METHODS)
def test_derivatives_pass_through_methods_of_objects_made_inside(name: str, eager: bool) -> None:
    f, x, v = METHODS[name], np.array([1.3, 0.7, 0.4]), np.array([0.3, -0.5, 0.1])
    with tg.disable_jit() if eager else nullcontext(), replayed():
        assert np.vdot(tg.grad(named(f, name))(x), v) == pytest.approx(differences(f, x, v), rel=1e-8)
        derivative = tg.jvp(named(f, name), (x,), (v,))[1]
        assert derivative == pytest.approx(differences(f, x, v), rel=1e-8)


@pytest.mark.parametrize("name", METHODS)
def test_methods_of_objects_made_inside_take_other_values_without_another_trace(name: str) -> None:
    f = tg.trace(named(METHODS[name], name))
    with replayed():
        for x in (np.array([1.3, 0.7, 0.4]), np.array([1.2, 0.8, 0.1])):
            assert f(x) == pytest.approx(METHODS[name](x), rel=1e-12)
    assert f.cache_info().traces == 1


def test_a_dataclass_that_is_passed_runs_its_methods_too() -> None:
    def f(held: Any) -> Any:
        return held.until(5.0) + Row(held.x).cells()

    x, v = np.array([1.3, 0.7, 0.4]), np.array([0.3, -0.5, 0.1])
    with replayed():
        derivatives = tg.grad(f)(Doubling(x))
    assert np.vdot(derivatives.x, v) == pytest.approx(differences(lambda x: f(Doubling(x)), x, v), rel=1e-8)


COUNT, LOG = 0, [0.0]


@program
def test_methods_write_to_globals_and_classes(trace: Any) -> Iterator[Any]:
    global COUNT
    COUNT, LOG[:] = 0, [0.0]

    class Noted:
        made = 0

        def __init__(self, x: Any):
            global COUNT
            COUNT += 1
            Noted.made += 1
            self.x = x

        def note(self) -> Any:
            LOG.append(self.x[0])
            return self.x * COUNT

    @trace
    def f(x: Any) -> Any:
        return Noted(x).note()

    for k in range(4):
        yield f(np.ones(2) * k), COUNT, Noted.made, list(LOG)


def test_a_class_has_its_own_functions_again_after_a_trace() -> None:
    before = dict(vars(Halved))

    def f(x: Any, fails: bool) -> Any:
        y = Halved(x).total()
        if fails:
            raise ArithmeticError("as wanted")
        return y

    tg.trace(f)(np.ones(3), False)
    with pytest.raises(ArithmeticError, match="as wanted"):
        tg.trace(f)(np.ones(3), True)
    assert all(vars(Halved)[name] is x for name, x in before.items())
    assert not class_patching._TRACES


def test_another_thread_computes_numbers_while_a_trace_has_the_class() -> None:
    seen: list[Any] = []
    lent = class_patching.ClassPatches()
    lent.patch(Halved, lambda *_: False)
    try:
        thread = threading.Thread(target=lambda: seen.append(Halved(np.ones(3)).total()))
        thread.start()
        thread.join()
        again = class_patching.ClassPatches()
        again.patch(Halved, lambda *_: False)
        again.restore()
        assert class_patching.genuine(vars(Filled)["total"]) is not vars(Filled)["total"], "the first still has it"
    finally:
        lent.restore()
    assert seen == [pytest.approx(Halved(np.ones(3)).total())]
    assert class_patching.genuine(vars(Filled)["total"]) is vars(Filled)["total"]


def test_objects_made_of_the_class_of_one_have_derivatives() -> None:
    class Scaled:
        def __init__(self, parts: Any) -> None:
            self.parts = np.array([parts[0], parts[1]])

        def times(self, x: Any) -> Any:
            return self.__class__([self.parts[0] * x, self.parts[1]])

        def twice(self, x: Any) -> Any:
            return type(self)([self.parts[0] * x * x, self.parts[1]])

        @classmethod
        def made(cls, x: Any) -> Any:
            return cls([x, 1.0])

    held = Scaled([1.0, 2.0])
    for f, want in ((held.times, 1.0), (held.twice, 4.0), (held.made, 1.0)):
        assert tg.grad(lambda x, f=f: f(x).parts[0])(2.0) == want


def test_a_class_given_first_is_read_again_when_it_has_changed() -> None:
    class Model:
        scale = 1.0

    @tg.trace
    def scaled(cls: Any, x: Any) -> Any:
        return x * cls.scale

    x = np.arange(3.0)
    for scale in (1.0, 1.0, 2.0, 5.0):
        Model.scale = scale
        np.testing.assert_array_equal(scaled(Model, x), x * scale)


def test_a_boolean_that_is_transposed_around_is_one() -> None:
    def f(x: Any) -> Any:
        return x * (3.0 if not x else 2.0), not x

    for x in (0.0, 2.0):
        assert tg.trace(f)(x) == f(x)
