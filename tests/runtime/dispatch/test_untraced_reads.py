"""Classes, and code that traces run as it is: what they read from outside is guarded all the same."""

import argparse
import collections
import dataclasses
import types
import typing

import numpy as np
import pytest

import tracegrad as tg

X = np.arange(1.0, 4.0)
SCALE = 2.0


@pytest.fixture(autouse=True)
def _restore(monkeypatch):
    monkeypatch.setitem(globals(), "SCALE", 2.0)


class Config:
    rate = 2.0
    weights = np.ones(3)
    table: typing.ClassVar = {"decay": 0.5}

    class Inner:
        shift = 1.0

    @staticmethod
    def activation(x):
        return np.tanh(x)


class Special(Config):
    pass


@dataclasses.dataclass
class Layer:
    w: np.ndarray
    gain = 1.0

    def __call__(self, x):
        return x * self.w * SCALE * self.gain


class Pair(typing.NamedTuple):
    w: np.ndarray

    def apply(self, x):
        return scaled(x * self.w)


class Plain:
    def __init__(self, w):
        self.w = w

    @property
    def doubled(self):
        return self.w * SCALE

    def apply(self, x):
        return x * self.doubled


def scaled(x):
    return x * SCALE


def test_attributes_of_classes_are_seen(monkeypatch):
    functions = [
        (lambda x: x * Config.rate, Config, "rate", 3.0),
        (lambda x: x * Special.rate, Config, "rate", 3.0),
        (lambda x: x * getattr(Special, "rate"), Special, "rate", 4.0),  # noqa: B009
        (lambda x: x * Config.weights, Config, "weights", np.full(3, 5.0)),
        (lambda x: x + Config.Inner.shift, Config.Inner, "shift", 7.0),
        (lambda x: Config.activation(x), Config, "activation", staticmethod(np.sin)),
    ]
    for f, owner, name, value in functions:
        g = tg.trace(f)
        np.testing.assert_allclose(g(X), f(X), rtol=1e-14)
        g(X)
        assert g.cache_info().traces == 1
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, value, raising=False)
            np.testing.assert_allclose(g(X), f(X), rtol=1e-14)
        np.testing.assert_allclose(g(X), f(X), rtol=1e-14)


def test_containers_that_classes_hold_are_seen_through(monkeypatch):
    g = tg.trace(lambda x: x * Config.table["decay"])
    np.testing.assert_array_equal(g(X), X * 0.5)
    monkeypatch.setitem(Config.table, "decay", 0.25)
    np.testing.assert_array_equal(g(X), X * 0.25)


@pytest.mark.parametrize(
    "owner", [Layer(np.ones(3)), Pair(np.ones(3)), Plain(np.ones(3))], ids=lambda x: type(x).__name__
)
def test_methods_that_run_as_they_are_have_their_globals_guarded(owner, monkeypatch):
    global SCALE
    cls = type(owner)

    def use(p, x):
        return p(x) if cls is Layer else p.apply(x)

    calls = [(tg.trace(lambda x: use(owner, x)), ()), (tg.trace(lambda x: use(cls(x * 1), x)), ())]
    if cls is not Plain:
        calls.append((tg.trace(use), (owner,)))
    first = [g(*args, X) for g, args in calls]
    SCALE = 5.0
    for (g, args), before in zip(calls, first):
        np.testing.assert_allclose(g(*args, X), before * 2.5, rtol=1e-14)
        g(*args, X)
        assert g.cache_info().traces == 2


def test_class_attributes_and_methods_of_arguments_are_seen(monkeypatch):
    g = tg.trace(lambda p, x: p(x))
    layer = Layer(np.ones(3))
    np.testing.assert_array_equal(g(layer, X), X * 2)
    monkeypatch.setattr(Layer, "gain", 3.0)
    np.testing.assert_array_equal(g(layer, X), X * 6)
    monkeypatch.setattr(Layer, "__call__", lambda self, x: x)
    np.testing.assert_array_equal(g(layer, X), X)


def test_the_type_of_an_object_has_its_attributes(monkeypatch):
    class Model:
        gain = 2.0

        def forward(self, x):
            return x * type(self).gain * self.__class__.gain

    model = Model()
    g = tg.trace(model.forward)
    np.testing.assert_array_equal(g(X), X * 4)
    Model.gain = 3.0
    np.testing.assert_array_equal(g(X), X * 9)


@pytest.mark.parametrize("cls", [types.SimpleNamespace, argparse.Namespace])
def test_namespaces_are_seen_through(cls):
    space = cls(k=2.0, w=np.ones(3))
    g = tg.trace(lambda x: x * space.k * space.w + vars(space)["k"])
    np.testing.assert_array_equal(g(X), X * 2 + 2)
    space.w = np.full(3, 3.0)
    np.testing.assert_array_equal(g(X), X * 6 + 2)
    assert g.cache_info().traces == 1
    space.k = 5.0
    np.testing.assert_array_equal(g(X), X * 15 + 5)


def test_the_dict_of_an_object_is_seen_through():
    model = Plain(np.ones(3))
    g = tg.trace(lambda x: x * sum(np.sum(v) for v in vars(model).values()))
    np.testing.assert_array_equal(g(X), X * 3)
    model.b = np.ones(2)
    np.testing.assert_array_equal(g(X), X * 5)
    model.b = np.ones(2) * 2
    np.testing.assert_array_equal(g(X), X * 7)
    assert g.cache_info().traces == 2


class Mine(list):
    pass


@pytest.mark.parametrize(
    ("result", "read", "change"),
    [
        (lambda: {1, 2}, lambda c: 2.0 if 3 in c else 1.0, lambda c: c.add(3)),
        (lambda: collections.deque([1.0]), lambda c: c[0], lambda c: c.append(c.popleft() + 1)),
        (lambda: collections.Counter(a=1), lambda c: c["a"], lambda c: c.update("a")),
        (lambda: Mine([1.0]), lambda c: c[0], lambda c: c.__setitem__(0, 2.0)),
    ],
    ids=["set", "deque", "Counter", "list subclass"],
)
def test_collections_are_guarded_as_a_whole(result, read, change):
    held = result()
    g = tg.trace(lambda x: x * read(held))
    for _ in range(3):
        np.testing.assert_array_equal(g(X), X)
    assert g.cache_info().traces == 1
    change(held)
    for _ in range(2):
        np.testing.assert_array_equal(g(X), X * 2)
    assert g.cache_info().traces == 2


def test_arrays_in_a_deque_are_inputs():
    held = collections.deque([np.ones(3)])
    g = tg.trace(lambda x: x * held[0])
    np.testing.assert_array_equal(g(X), X)
    held[0] = np.full(3, 2.0)
    np.testing.assert_array_equal(g(X), X * 2)
    assert g.cache_info().traces == 1


def test_what_a_method_changes_itself_it_changes_at_each_call():
    class Counted:
        made = 0

        def __init__(self):
            Counted.made += 1

    g = tg.trace(lambda x: (Counted(), x * 2)[1])
    for _ in range(3):
        np.testing.assert_array_equal(g(X), X * 2)
    assert Counted.made == 3


@pytest.mark.parametrize("cls", [Layer, Pair])
def test_dataclasses_and_namedtuples_take_the_hot_path(cls):
    held = cls(np.ones(3))
    g = tg.value_and_grad(lambda p, x: np.sum(p.w * x * held.w))
    for k in range(4):
        value, derivative = g(cls(np.full(3, float(k))), X)
        assert type(derivative) is cls
        assert value == 6.0 * k
        np.testing.assert_array_equal(derivative.w, X)
    assert g.cache_info()[:4] == (1, 0, 0, 1)


def test_globals_named_as_a_field_is_are_not_looked_at(monkeypatch):
    g = tg.trace(lambda x: Layer(x)(x))
    for k in range(3):
        monkeypatch.setitem(globals(), "w", k)
        np.testing.assert_array_equal(g(X), X * X * SCALE)
    assert g.cache_info().traces == 1


def test_one_guard_looks_for_all_names_that_a_class_does_not_have():
    class Asked:
        def __init__(self):
            self.held = {f"w{k}": float(k) for k in range(20)}

        def __getattr__(self, name):
            return self.__dict__["held"][name]

    asked = Asked()
    g = tg.trace(lambda x: x * (asked.w3 + asked.w4 + asked.w5) * sum(asked.held[f"w{k}"] for k in range(20)))
    np.testing.assert_array_equal(g(X), X * 12 * 190)
    told = [line for line in str(g.explain(X)).splitlines() if "Asked has under" in line]
    assert len(told) == 1
    assert " names that were not there is None" in told[0]
    Asked.w4 = 10.0
    np.testing.assert_array_equal(g(X), X * 18 * 190)
    del Asked.w4
    np.testing.assert_array_equal(g(X), X * 12 * 190)
    assert g.cache_info().traces == 2
