"""Hooks that Python calls by itself run as other traced code: for objects made inside, and for objects from outside."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from along import named
from meaning import program

import tracegrad as tg

FACTOR, CALLS, LOG = 1.0, 0, [0]


def counted(v: Any) -> Any:
    """Reads a global, writes another, changes a list, and branches on what it is given."""
    global CALLS
    CALLS += 1
    LOG.append(CALLS)
    return v * FACTOR * (3.0 if isinstance(v, np.ndarray) else 2.0)


def sine(v: Any) -> Any:
    return math.sin(v) if not isinstance(v, np.ndarray) else np.sin(v) * (2.0 if v.__class__ is np.ndarray else 5.0)


def hooks_of(conv: Callable[[Any], Any]) -> dict[str, Any]:  # noqa: C901 (a table)
    """For each hook, a function of an array or number that gets to its value through the hook; and whether an object
    that was made before can be asked the same."""

    class SetAttr:
        def __init__(self, v: Any):
            self.v = v

        def __setattr__(self, name: str, v: Any) -> None:
            object.__setattr__(self, name, conv(v))

    class SetAttrOfBase(SetAttr):
        def __setattr__(self, name: str, v: Any) -> None:
            super().__setattr__(name, v + v)

    class New:
        v: Any

        def __new__(cls, v: Any) -> Any:
            table = super().__new__(cls)
            table.v = conv(v)
            return table

    class GetAttribute:
        def __init__(self, v: Any):
            self.w = v

        def __getattribute__(self, name: str) -> Any:
            result = object.__getattribute__(self, name)
            return conv(result) if name == "w" else result

        @property
        def v(self) -> Any:
            return self.w

    class GetAttr:
        def __init__(self, v: Any):
            self.w = v

        def __getattr__(self, name: str) -> Any:
            if name != "v":
                raise AttributeError(name)
            return conv(self.w)

    class DelAttr:
        def __init__(self, v: Any):
            self.w, self.v = v, 0.0
            del self.v

        def __delattr__(self, name: str) -> None:
            object.__setattr__(self, name, conv(self.w))

    class Stored:
        def __set_name__(self, owner: Any, name: str) -> None:
            self.name = "_" + name

        def __set__(self, held: Any, v: Any) -> None:
            held.__dict__[self.name] = conv(v)

        def __get__(self, held: Any, owner: Any = None) -> Any:
            return held.__dict__[self.name]

        def __delete__(self, held: Any) -> None:
            held.__dict__[self.name] = conv(held.__dict__[self.name])

    class Set:
        v = Stored()

        def __init__(self, v: Any):
            self.v = v

    class Delete(Set):
        def __init__(self, v: Any):
            super().__init__(v)
            del self.v

    class Lazy:
        def __get__(self, held: Any, owner: Any = None) -> Any:
            return conv(held.w)

    class Get:
        v = Lazy()

        def __init__(self, v: Any):
            self.w = v

    class Meta(type):
        def __call__(cls, v: Any) -> Any:
            table = super().__call__()
            table.v = conv(v)
            return table

        def __instancecheck__(cls, x: Any) -> bool:
            return bool(np.all(conv(x) > -1e9))

    class Called(metaclass=Meta):
        v: Any

    class Item:
        def __class_getitem__(cls, v: Any) -> Any:
            return conv(v)

    class Missing(dict[str, Any]):
        def __init__(self, v: Any):
            super().__init__()
            self.w = v

        def __missing__(self, name: str) -> Any:
            return conv(self.w)

        @property
        def v(self) -> Any:
            return self["absent"]

    class Contains:
        def __init__(self, v: Any):
            self.w = v

        def __contains__(self, x: Any) -> bool:
            self.seen = conv(self.w)
            return True

        @property
        def v(self) -> Any:
            return self.seen if 1 in self else 0.0

    class Index:
        def __init__(self, v: Any):
            self.w = v

        def __index__(self) -> int:
            self.seen = conv(self.w)
            return 1

        @property
        def v(self) -> Any:
            return [0.0, 1.0][self] * self.seen

    class Format:
        def __init__(self, v: Any):
            self.w = v

        def __format__(self, spec: str) -> str:
            self.seen = conv(self.w)
            return spec

        @property
        def v(self) -> Any:
            return self.seen if f"{self:abc}" == "abc" else 0.0

    def subclassed(v: Any) -> Any:
        class Base:
            def __init_subclass__(cls) -> None:
                cls.v = conv(v)  # type: ignore[attr-defined]

        class Derived(Base):
            pass

        return Derived.v  # type: ignore[attr-defined]

    def prepared(v: Any) -> Any:
        class Preparing(type):
            @classmethod
            def __prepare__(cls, name: str, bases: Any, **_: Any) -> Any:
                return {"v": conv(v)}

        class Prepared(metaclass=Preparing):
            pass

        return Prepared.v  # type: ignore[attr-defined]

    class Registering:
        def __init_subclass__(cls) -> None:
            cls.v = conv(2.0)  # type: ignore[attr-defined]

    def registered(v: Any) -> Any:
        class Derived(Registering):
            pass

        return v * Derived.v  # type: ignore[attr-defined]

    class Naming:
        def __set_name__(self, owner: Any, name: str) -> None:
            owner.v = conv(2.0)

    def set_name(v: Any) -> Any:
        class Owner:
            named = Naming()

        return v * Owner.v  # type: ignore[attr-defined]

    class Deleted:
        def __init__(self, v: Any):
            self.v = v

        def __del__(self) -> None:
            conv(1.0)

    outside = [c(np.float64(2.0)) for c in (SetAttr, Set, Delete, Get, GetAttr, GetAttribute, Contains, Index, Format)]

    def read_outside(held: Any) -> Callable[[Any], Any]:
        return lambda v: held.v * v

    def written_outside(held: Any) -> Callable[[Any], Any]:
        def f(v: Any) -> Any:
            held.v = v
            return held.v * 1.0

        return f

    def deleted_outside(held: Any) -> Callable[[Any], Any]:
        def f(v: Any) -> Any:
            held.v = v
            del held.v
            return held.v * 1.0

        return f

    table = {
        c.__name__: lambda v, c=c: c(v).v * 1.0
        for c in (
            SetAttr,
            SetAttrOfBase,
            New,
            GetAttribute,
            GetAttr,
            DelAttr,
            Set,
            Delete,
            Get,
            Called,
            Missing,
            Contains,
            Index,
            Format,
            Deleted,
        )
    }
    return {
        **table,
        "ClassGetItem": lambda v: Item[v] * 1.0,
        "InstanceCheck": lambda v: v * 2.0 if isinstance(v, Called) else v,
        "InitSubclass": subclassed,
        "InitSubclassOutside": registered,
        "Prepare": prepared,
        "SetName": set_name,
        **{f"{type(x).__name__}Outside": read_outside(x) for x in outside},
        "SetAttrWritten": written_outside(outside[0]),
        "SetWritten": written_outside(outside[1]),
        "DeleteWritten": deleted_outside(outside[2]),
    }


class Doubled:
    def __set_name__(self, owner: Any, name: str) -> None:
        self.name = name

    def __set__(self, held: Any, v: Any) -> None:
        held.__dict__[self.name] = v * 2.0

    def __get__(self, held: Any, owner: Any = None) -> Any:
        return held.__dict__[self.name] * 10.0


WRITTEN: list[str] = []


class Logged:
    v = Doubled()

    def __init__(self) -> None:
        self.count = 0

    def __setattr__(self, name: str, v: Any) -> None:
        WRITTEN.append(name)
        super().__setattr__(name, v)

    @property
    def p(self) -> Any:
        return self.__dict__["p"] + 1.0

    @p.setter
    def p(self, v: Any) -> None:
        object.__setattr__(self, "count", self.count + 1)
        self.__dict__["p"] = v * 3.0


@program
def test_what_object_setattr_writes_goes_through_properties_and_descriptors(trace: Any) -> Iterator[Any]:
    WRITTEN.clear()
    held = Logged()

    @trace
    def f(x: Any) -> Any:
        held.v = x
        held.p = x
        return held.v, held.p, held.v + held.p

    for k in range(4):
        yield f(np.ones(2) * k), held.v, held.p, held.count, list(WRITTEN)
        held.v = 7.0


class Table(Mapping[str, Any]):
    def __init__(self, items: Any):
        self.items_held = items

    def __getitem__(self, name: str) -> Any:
        return self.items_held[name]

    def __iter__(self) -> Any:
        return iter(self.items_held)

    def __len__(self) -> int:
        return len(self.items_held)


@program
def test_mapping_patterns_know_mappings_of_the_users(trace: Any) -> Iterator[Any]:
    held = Table({"a": np.ones(2)})

    @trace
    def f(x: Any) -> Any:
        results = []
        for table in (held, Table({"a": x})):
            match table:
                case {"a": np.ndarray() as y}:
                    results.append(x * y * 2.0)
                case _:
                    results.append(x * 0.0)
        return results

    yield f(np.ones(2))
    held.items_held["a"] = np.full(2, 3.0)
    yield f(np.ones(2))


NAMES = list(hooks_of(counted))
# What ends the trace: the reason is said, and the call runs as plain Python.
PLAIN = {"GetAttributeOutside", "Deleted"}


def ran(f: Callable[[Any], Any], x: Any) -> Any:
    """The results of calls between which a global changes, and what the hooks wrote."""
    global FACTOR, CALLS
    FACTOR, CALLS, LOG[:] = 1.0, 0, [0]
    results = []
    for factor in (1.0, 1.0, 5.0, 1.0):
        FACTOR = factor
        results.append((np.array(f(x)), CALLS, list(LOG)))
    return results


@pytest.mark.parametrize("x", [np.array([1.0, 2.0]), np.float64(3.0), 3.0], ids=["array", "float64", "float"])
@pytest.mark.parametrize("name", NAMES)
def test_hooks_read_write_and_branch_as_in_plain_python(name: str, x: Any) -> None:
    plain = ran(hooks_of(counted)[name], x)
    traced = tg.trace(named(hooks_of(counted)[name], name))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = ran(traced, x)
    for (value, calls, log), (other, its_calls, its_log) in zip(plain, result):
        np.testing.assert_allclose(other, value, rtol=1e-14)
        assert (its_calls, its_log) == (calls, log)
    assert bool(said) == (name in PLAIN), [str(w.message) for w in said]


@pytest.mark.parametrize("x", [np.array([0.5, 0.8]), np.float64(0.5)], ids=["array", "float64"])
@pytest.mark.parametrize("name", [name for name in NAMES if name not in PLAIN])
def test_derivatives_pass_through_hooks(name: str, x: Any) -> None:
    def total(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda x: np.sum(f(x))

    f, h, v = total(hooks_of(sine)[name]), 1e-6, np.ones_like(x)
    expected = (f(x + h) - f(x - h)) / (2 * h)
    g = named(total(hooks_of(sine)[name]), name)
    assert np.sum(tg.grad(g)(x)) == pytest.approx(expected, rel=1e-8)
    assert tg.jvp(g, (x,), (v,))[1] == pytest.approx(expected, rel=1e-8)
