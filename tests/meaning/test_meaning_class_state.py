"""What classes hold of Python's own kinds, and what metaclasses do, plainly and traced."""

from __future__ import annotations

import abc
import collections
import functools
import random
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from meaning import compare, program

import tracegrad as tg

X = np.array([1.0, 2.0])


class Rate:
    def __init__(self, k: float):
        self.k = k


RATE = Rate(1.0)
# How an object is made that a class holds, what traced code does with it, and how it is changed from outside.
HELD: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "a namespace": (lambda: types.SimpleNamespace(k=1.0), lambda h: h.k, lambda h: setattr(h, "k", h.k + 1)),
    "a ChainMap": (
        lambda: collections.ChainMap({}, {"k": 1.0}),
        lambda h: h["k"],
        lambda h: h.maps[1].update(k=h["k"] + 1),
    ),
    "a Counter": (lambda: collections.Counter("aab"), lambda h: h["a"], lambda h: h.update("a")),
    "a Counter that counts": (lambda: collections.Counter(), lambda h: h.update("a") or h["a"], lambda h: h.clear()),
    "a defaultdict": (lambda: collections.defaultdict(float), lambda h: h["k"], lambda h: h.update(k=h["k"] + 1)),
    "a UserDict": (lambda: collections.UserDict(k=1.0), lambda h: h["k"], lambda h: h.update(k=h["k"] + 1)),
    "a weak dict": (
        lambda: weakref.WeakValueDictionary(a=RATE),
        lambda h: h["a"].k if "a" in h else 5.0,
        lambda h: h.pop("a", None),
    ),
    "a weak set": (lambda: weakref.WeakSet([RATE]), len, lambda h: h.clear()),
    "a partial": (  # a method itself since Python 3.14
        lambda: staticmethod(functools.partial(dict, k=2.0)),
        lambda h: h()["k"],
        lambda h: h.keywords.update(k=3.0),
    ),
    "a bytearray": (lambda: bytearray(b"abc"), lambda h: h[0], lambda h: h.__setitem__(0, h[0] + 1)),
    "a generator of random numbers": (
        lambda: np.random.default_rng(0),
        lambda h: h.uniform(),
        lambda h: h.uniform(),
    ),
}


@pytest.mark.filterwarnings("ignore:.*holds weakref:tracegrad.errors.PerformanceWarning")
@pytest.mark.parametrize("name", HELD)
def test_what_a_class_holds_may_change(name: str) -> None:
    make, use, change = HELD[name]

    def script(trace: Any) -> Any:
        class Holder:
            held = make()

        @trace
        def f(x: Any) -> Any:
            return x * use(Holder.held)

        @trace
        def g(x: Any) -> Any:
            return x * use(Holder().held)

        for k in range(5):
            if k in (2, 4):
                change(Holder.held)
            yield f(X), g(X)

    for mode in ("traced", "disabled"):
        compare(script, mode)


def test_random_numbers_of_a_generator_that_a_class_holds_are_no_constants() -> None:
    class Holder:
        held = random.Random(0)

    @tg.trace
    def f(x: Any) -> Any:
        return x * Holder.held.random()

    wanted = random.Random(0)
    with pytest.warns(tg.PerformanceWarning, match="draws random numbers"):
        np.testing.assert_array_equal(f(X), X * wanted.random())
    np.testing.assert_array_equal(f(X), X * wanted.random())


@program
def test_the_attributes_that_a_metaclass_answers_for_may_be_set(trace: Any) -> Any:
    answers = {"k3": 3.0}

    class Meta(type):
        def __getattr__(cls, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            return answers.get(name, 1.0)

    class C(metaclass=Meta):
        pass

    functions = [
        lambda x, n: x * C.other,
        lambda x, n: x * getattr(C, f"k{n}"),
        lambda x, n: x * (2 if hasattr(C, "other") else 1) * getattr(C, "_hidden", 7.0),
        lambda x, n: x * type(C()).other,
    ]
    for f in map(trace, functions):
        yield f(X, 3), f(X, 4), f(X, 3)
        C.other, C.k3, C._hidden = 5.0, 6.0, 2.0
        yield f(X, 3), f(X, 4)
        del C.other, C.k3, C._hidden
        answers["other"] = 11.0
        yield f(X, 3), f(X, 4)
        del answers["other"]


@program
def test_what_a_metaclass_does_when_an_attribute_is_set_happens_once(trace: Any) -> Any:
    names: list[str] = []

    class Meta(type):
        def __setattr__(cls, name: str, value: Any) -> None:
            names.append(name)
            super().__setattr__(name, value)

        def __delattr__(cls, name: str) -> None:
            names.append(f"no {name}")
            super().__delattr__(name)

    class C(metaclass=Meta):
        gain = 1.0

    @trace
    def f(x: Any, n: int) -> Any:
        C.gain = n * 0.3
        C.added = n
        y = x * C.gain
        del C.added
        return y

    for n in (1, 1, 2, 3):
        yield f(X, n), list(names), C.gain, list(vars(C))


@program
def test_attributes_that_are_set_and_deleted(trace: Any) -> Any:
    class Local(threading.local):
        k = 2.0

    for local in (threading.local(), Local(), Rate(1.0)):

        @trace
        def f(x: Any, n: int, local: Any = local) -> Any:
            local.k = n * 0.5
            local.last = n
            y = x * local.k
            if n > 1:
                del local.last
            return y

        for n in (1, 1, 2, 3):
            yield f(X, n), local.k, getattr(local, "last", None)


@program
def test_a_function_that_a_decorator_keeps_runs_in_the_trace(trace: Any) -> Any:
    log: list[int] = []

    def base(k: int) -> float:
        log.append(k)
        return k * 2.0

    @functools.wraps(base)
    def wrapper(k: int) -> float:
        return base(k) + 1.0

    class Model:
        @functools.lru_cache  # noqa: B019
        def rate(self, k: int) -> float:
            return base(k)

    model, cached, dispatched = Model(), functools.cache(base), functools.singledispatch(base)
    functions = [
        lambda x, n: x * wrapper.__wrapped__(n),
        lambda x, n: x * cached.__wrapped__(n),
        lambda x, n: x * dispatched.__wrapped__(n),
        lambda x, n: x * model.rate.__wrapped__(model, n),
    ]
    for f in map(trace, functions):
        for n in (1, 1, 2):
            yield f(X, n), list(log)


@program
def test_what_super_leads_to_may_be_exchanged(trace: Any) -> Any:
    class Top:
        rate = 1.0

        @property
        def k(self) -> Any:
            return 1.0

        def method(self) -> Any:
            return 1.0

        @classmethod
        def of_class(cls) -> Any:
            return 1.0

    class Left(Top):
        pass

    class Bottom(Left):
        rate = 2.0

        @property
        def k(self) -> Any:
            return super().k * 2.0

        def method(self) -> Any:
            return super().method() * 2.0

        def rated(self) -> Any:
            return super().rate * self.rate + type(self).__mro__[2].rate

        @classmethod
        def of_class(cls) -> Any:
            return super().of_class() * 2.0

    bottom = Bottom()
    functions = [
        lambda x: x * bottom.k,
        lambda x: x * Bottom().k,
        lambda x: x * bottom.method(),
        lambda x: x * Bottom().method(),
        lambda x: x * bottom.rated(),
        lambda x: x * Bottom().rated(),
        lambda x: x * bottom.of_class(),
        lambda x: x * Bottom.of_class(),
    ]
    traced = [trace(f) for f in functions]
    for owner in (Top, Left, Top):
        yield [f(X) for f in traced], [f(X) for f in traced]
        k = 5.0 if owner is Left else 3.0
        owner.k, owner.rate = property(lambda self, k=k: k), k
        owner.method, owner.of_class = (lambda self, k=k: k), classmethod(lambda cls, k=k: k)
    yield [f(X) for f in traced]
    del Left.k, Left.method
    yield [f(X) for f in traced]


@program
def test_what_super_of_a_class_of_the_traced_code_leads_to_may_be_exchanged(trace: Any) -> Any:
    class Top:
        def method(self) -> Any:
            return 1.0

    @trace
    def f(x: Any) -> Any:
        class Inner(Top):
            def method(self) -> Any:
                return super().method() + 1.0

        return x * Inner().method()

    yield f(X), f(X)
    Top.method = lambda self: 3.0
    yield f(X), f(X)


@program
def test_what_a_singledispatchmethod_chooses_may_be_registered_anew(trace: Any) -> Any:
    class Shown:
        def __init__(self, k: float):
            self.k = k

        @functools.singledispatchmethod
        def show(self, a: Any) -> Any:
            return 0.3

    register = vars(Shown)["show"].register
    register(np.ndarray, lambda self, a: np.sum(a) * self.k)
    shown = Shown(2.0)
    functions = [
        lambda x, n: x * shown.show(n),
        lambda x, n: x * shown.show(x),
        lambda x, n: x * shown.show(x[0]),
        lambda x, n: x * Shown(3.0).show(n),
        lambda x, n: x * Shown(x[0]).show(x),
    ]
    traced = [trace(f) for f in functions]
    changes = [
        lambda: setattr(shown, "k", 3.0),
        lambda: register(int, lambda self, a: a * self.k),
        lambda: register(np.ndarray, lambda self, a: 7.0),
        lambda: register(float, lambda self, a: a + 9.0),
        lambda: setattr(Shown, "show", lambda self, a: 5.0),
    ]
    for change in (lambda: None, *changes):
        change()
        yield [f(X, n) for f in traced for n in (1, 2, 1)]


@program
def test_nobody_but_the_program_asks_an_object_for_attributes(trace: Any) -> Any:
    class Asked:
        def __init__(self, a: Any):
            self.a, self.reads = a, 0

        def __getattribute__(self, name: str) -> Any:
            get = object.__getattribute__
            if name == "a":
                object.__setattr__(self, "reads", get(self, "reads") + 1)
            return get(self, name)

    asked = Asked(1.0)

    def answer(self: Any, name: str) -> Any:
        return asked.a

    @trace
    def f(x: Any) -> Any:
        return x * Asked(x).a

    @trace
    def g(x: Any) -> Any:
        return tg.grad(lambda x: np.sum(Asked(x).a * x))(x)

    for k in range(5):
        yield f(X), g(X), asked.reads
        if k == 2:
            Asked.__getattr__ = answer


def test_what_a_derivative_leaves_outside_is_a_value_where_arrays_from_outside_share_memory() -> None:
    grid, left, held = np.ones((2, 2)), [], {}
    row = grid[0]

    def f(x: Any) -> Any:
        y = x * x + grid.sum(0)
        row[:] = row * 0.5
        left.append(y[1])
        held["last"] = (y, [y[0]])
        return np.sum(y) * (left[0] if len(left) > 1 else 1.0)

    for way in (tg.grad(f), tg.disable_jit()(tg.grad(f)), lambda x: tg.jvp(f, (x,), (np.array([1.0, 0.0]),))[1]):
        grid[:] = 1.0
        left.clear()
        first, second = way(X), way(X)
        np.testing.assert_allclose(np.ravel(first)[0], 2.0)
        np.testing.assert_allclose(np.ravel(second)[0], 2.0 * 6.0)
        assert left == [6.0, 5.5]
        assert all(type(y) is np.float64 for y in (*left, *held["last"][1]))
        assert type(held["last"][0]) is np.ndarray


@program
def test_an_abstract_base_class_may_be_told_of_others(trace: Any) -> Any:
    class Runs(abc.ABC):
        @abc.abstractmethod
        def run(self) -> None: ...

    class Duck:
        k = 3.0

    duck = Duck()

    @trace
    def asked(x: Any) -> Any:
        return x if isinstance(duck, Runs) else x * 2, x if isinstance(Duck(), int | Runs) else x * 3

    @trace
    def asked_of_values(x: Any) -> Any:
        return x if isinstance(x, (int, (str, Runs))) else x * 4, x if issubclass(Duck, Runs) else x * 5

    @trace
    def matched(x: Any) -> Any:
        match duck:
            case Runs():
                return x
            case Duck(k=k):
                return x * k

    @trace
    def matched_values(x: Any) -> Any:
        match x:
            case Runs():
                return x
            case _:
                return x * 6

    def everywhere() -> Any:
        return asked(X), asked_of_values(X), matched(X), matched_values(X)

    yield everywhere(), everywhere()
    Runs.register(Duck)
    yield everywhere(), everywhere()
    Runs.register(np.ndarray)
    yield everywhere(), everywhere()


@program
def test_the_class_of_an_object_may_be_another(trace: Any) -> Any:
    class Base:
        k = 1.0

    class Other(Base):
        k = 2.0

    class Third(Base):
        pass

    held, derived = Base(), Other()

    @trace
    def listed(x: Any) -> Any:
        return x * 2, [c.__name__ for c in type(held).__mro__], [c.__name__ for c in type(derived).__mro__]

    @trace
    def asked(x: Any) -> Any:
        return x if isinstance(held, Other) else x * 2, x if type(held) is Base else x * 3

    @trace
    def named(x: Any) -> Any:
        return x * 2, held.__class__.__name__

    @trace
    def matched(x: Any) -> Any:
        match held:
            case Other(k=k):
                return x * k
            case _:
                return x * 5

    def everywhere() -> Any:
        return listed(X), asked(X), named(X), matched(X)

    yield everywhere(), everywhere()
    held.__class__ = Other
    yield everywhere(), everywhere()
    Other.__bases__ = (Third,)
    yield everywhere(), everywhere()
    held.__class__ = Base
    yield everywhere(), everywhere()


@pytest.mark.filterwarnings("ignore:.*runs as plain Python")
def test_an_object_that_counts_its_reads_counts_each_once_where_arrays_from_outside_share_memory() -> None:
    grid = np.ones((2, 2))
    row = grid[0]

    class Counted:
        def __init__(self) -> None:
            self.k, self.reads = 2.0, 0

        def __getattribute__(self, name: str) -> Any:
            get = object.__getattribute__
            if name == "k":
                object.__setattr__(self, "reads", get(self, "reads") + 1)
            return get(self, name)

    counted = Counted()

    def f(x: Any) -> Any:
        grid[:] += 1.0
        return np.sum(x * row * counted.k)

    derivative = tg.grad(f)
    for n in range(1, 4):
        np.testing.assert_allclose(derivative(X), (n + 1.0) * np.full(2, 2.0))
        assert counted.reads == n
