"""What classes of the user's do in copies, as keys, when pickled and by descriptors of `functools` is traced code: what
it reads is read at each call, what it changes is changed at each call, and derivatives pass."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import operator
import pickle
import warnings
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from along import named

import tracegrad as tg

FACTOR, LOG = 1.0, [0]


def conv(v: Any) -> Any:
    """Reads a global, changes a list, and branches on what it is given."""
    LOG[0] += 1
    return v * FACTOR * (3.0 if isinstance(v, np.ndarray) else 2.0)


class Holds:
    def __init__(self, v: Any):
        self.v = v


class Hash(Holds):
    def __hash__(self) -> int:
        self.seen = conv(self.v)
        return 5

    def __eq__(self, other: object) -> bool:
        return True


class Reduce(Holds):
    def __reduce__(self) -> Any:
        return Reduce, (conv(self.v),)


class GetState(Holds):
    def __getstate__(self) -> Any:
        return {"v": conv(self.v)}


class SetState(Holds):
    def __setstate__(self, state: Any) -> None:
        self.v = conv(state["v"])


class Copy(Holds):
    def __copy__(self) -> Any:
        return Copy(conv(self.v))

    def __deepcopy__(self, memo: Any) -> Any:
        return Copy(conv(self.v) * 2.0)


class Length(Holds):
    def __len__(self) -> int:
        self.seen = conv(self.v)
        return 2

    def __bool__(self) -> bool:
        return FACTOR < 2.0


class Methods(Holds):
    @functools.cached_property
    def cached_value(self) -> Any:
        return conv(self.v)

    @functools.lru_cache  # noqa: B019
    def remembered(self) -> Any:
        return 2.0 * FACTOR

    def both(self, a: Any, b: Any = 1.0) -> Any:
        return conv(self.v) * a * b

    partial_method = functools.partialmethod(both, 3.0)
    partial_object = staticmethod(functools.partial(conv))  # without, it is a method since Python 3.14

    @functools.singledispatchmethod
    def chosen(self, a: Any) -> Any:
        return conv(self.v) * 7.0

    @chosen.register
    def _(self, a: int) -> Any:
        return conv(self.v) * 11.0

    getter = property(operator.attrgetter("v"))
    of_lambda = property(lambda self: conv(self.v))


@dataclasses.dataclass
class Data:
    v: Any
    w: Any = dataclasses.field(default_factory=lambda: conv(2.0))

    def __post_init__(self) -> None:
        self.v = conv(self.v)


class Row(list[Any]):
    def __getitem__(self, k: Any) -> Any:
        return conv(super().__getitem__(k))

    def append(self, x: Any) -> None:
        super().append(conv(x))

    def __iter__(self) -> Any:
        return iter([conv(super().__getitem__(0))])


class Table(dict[str, Any]):
    def __getitem__(self, name: str) -> Any:
        return conv(super().__getitem__(name))

    def __setitem__(self, name: str, x: Any) -> None:
        super().__setitem__(name, conv(x))


class Ordered(OrderedDict[str, Any]):
    def __setitem__(self, name: str, x: Any) -> None:
        super().__setitem__(name, conv(x))


class Default(defaultdict[str, Any]):
    def __missing__(self, name: str) -> Any:
        return conv(2.0)


class Queue(deque[Any]):
    def append(self, x: Any) -> None:
        super().append(conv(x))


def hashed(v: Any) -> Any:
    h = Hash(v)
    return {h: v}[Hash(v)] * h.seen


def measured(v: Any) -> Any:
    length = Length(v)
    return len(length) * length.seen * (2.0 if length else 3.0)


OUTSIDE = Methods(2.0)
ROW, TABLE, ORDERED, DEFAULT, QUEUE = Row(), Table(a=2.0), Ordered(a=2.0), Default(), Queue([2.0, 3.0], maxlen=3)
list.extend(ROW, [2.0, 3.0])

CASES: dict[str, Callable[[Any], Any]] = {
    "hash": hashed,
    "set": lambda v: v * len({Hash(v), Hash(v)}),
    "frozenset": lambda v: v * len(frozenset([Hash(v)])),
    "hash()": lambda v: v * hash(Hash(v)),
    "reduce": lambda v: copy.copy(Reduce(v)).v,
    "deep reduce": lambda v: copy.deepcopy(Reduce(v)).v,
    "getstate": lambda v: copy.copy(GetState(v)).v,
    "setstate": lambda v: copy.copy(SetState(v)).v,
    "copy": lambda v: copy.copy(Copy(v)).v,
    "deepcopy": lambda v: copy.deepcopy([Copy(v)])[0].v,
    "len": measured,
    "pickle": lambda v: v * pickle.loads(pickle.dumps(GetState(2.0))).v,
    "cached_property": lambda v: (lambda m: m.cached_value + m.cached_value)(Methods(v)),
    "lru_cache": lambda v: Methods(v).remembered() * v,
    "partialmethod": lambda v: Methods(v).partial_method(b=v),
    "partial": lambda v: Methods(v).partial_object(v),
    "singledispatchmethod": lambda v: Methods(v).chosen("a"),
    "singledispatchmethod, int": lambda v: Methods(v).chosen(3),
    "attrgetter": lambda v: Methods(v).getter * 2.0,
    "lambda": lambda v: Methods(v).of_lambda,
    "partialmethod, outside": lambda v: OUTSIDE.partial_method(b=v),
    "partial, outside": lambda v: OUTSIDE.partial_object(v),
    "singledispatchmethod, outside": lambda v: OUTSIDE.chosen("a") * v,
    "dataclass": lambda v: Data(v).v * Data(v).w,
    "replace": lambda v: dataclasses.replace(Data(v), v=v).v,
    "list, outside": lambda v: ROW[1] * v,
    "list, iterated": lambda v: sum(x * v for x in ROW),
    "dict, outside": lambda v: TABLE["a"] * v,
    "OrderedDict, outside": lambda v: ORDERED["a"] * v,
    "defaultdict, outside": lambda v: DEFAULT["absent"] * v,
    "deque, outside": lambda v: QUEUE[0] * v,
}


def ran(f: Callable[[Any], Any], x: Any) -> Any:
    """The results of calls between which a global changes, and how often the code was run by then."""
    global FACTOR
    LOG[0], result = 0, []
    for factor in (1.0, 1.0, 3.0, 1.0, 3.0):
        FACTOR = factor
        if f is not CASES["lru_cache"]:
            Methods.remembered.cache_clear()
        result.append((np.array(f(x)), LOG[0]))
    FACTOR = 1.0
    return result


@pytest.mark.parametrize("x", [np.array([1.0, 2.0]), 3.0], ids=["array", "float"])
@pytest.mark.parametrize("name", CASES)
def test_code_that_classes_run_reads_and_writes_as_in_plain_python(name: str, x: Any) -> None:
    f = CASES[name]
    plain = ran(f, x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tg.PerformanceWarning)
        traced = ran(tg.trace(named(lambda x: f(x), name)), x)
    for (value, count), (other, its_count) in zip(plain, traced):
        np.testing.assert_allclose(other, value, rtol=1e-14)
        assert its_count == count


@pytest.mark.filterwarnings("ignore::tracegrad.PerformanceWarning")
@pytest.mark.parametrize("name", CASES)
def test_derivatives_pass_through_it(name: str) -> None:
    x, f = np.array([0.5, 0.8]), named(lambda x: np.sum(CASES[name](x)), name)
    expected = [(f(x + h) - f(x - h)) / 2e-6 for h in np.eye(2) * 1e-6]
    np.testing.assert_allclose(tg.grad(f)(x), expected, rtol=1e-8)
    np.testing.assert_allclose([tg.jvp(f, (x,), (v,))[1] for v in np.eye(2)], expected, rtol=1e-8)


def test_collections_of_the_users_are_changed_as_they_are_and_keep_their_attributes() -> None:
    row, queue = Row(), Queue([1.0], maxlen=2)
    list.append(row, 1.0)
    row.label = "row"  # type: ignore[attr-defined]

    def f(x: Any) -> Any:
        row.append(x)
        queue.append(x)
        return x * len(row.label) + len(row)  # type: ignore[attr-defined]

    traced = tg.trace(f)
    for k in range(3):
        np.testing.assert_array_equal(traced(np.full(2, float(k))), np.full(2, 3.0 * k + k + 2))
    assert [np.sum(x) for x in list.__iter__(row)] == [1.0, 0.0, 6.0, 12.0]
    assert (len(queue), queue.maxlen) == (2, 2)
    assert [np.sum(x) for x in queue] == [6.0, 12.0]


class Described:
    @property
    def read(self) -> float:
        return 2.0

    @functools.cached_property
    def kept(self) -> float:
        return 3.0

    @functools.cache  # noqa: B019
    def remembered(self) -> float:
        return 4.0

    @classmethod
    def of_class(cls) -> float:
        return 5.0

    @staticmethod
    def of_none() -> float:
        return 6.0

    def method(self, k: float = 1.0) -> float:
        return 7.0 * k

    twice = functools.partialmethod(method, 2.0)


def test_what_a_class_has_is_of_the_classes_that_it_is_of() -> None:
    def f(x: Any) -> Any:
        output = Described()
        has = {name: v for name, v in vars(Described).items() if name[0] != "_"}
        kinds = [type(v).__name__ for v in has.values()]
        exact = [type(has["read"]) is property, type(has["remembered"]) is type(functools.cache(len))]
        cached = isinstance(has["remembered"], type(functools.cache(len)))
        static = inspect.getattr_static(Described, "of_none")
        values = (
            output.read,
            output.kept,
            output.remembered(),
            static.__func__(),
            has["read"].fget(output),
            output.twice(),
        )
        return x * sum(values), kinds, exact, cached, type(static) is staticmethod

    expected, traced = f(np.ones(2)), tg.trace(f)
    for _ in range(2):
        result = traced(np.ones(2))
        np.testing.assert_array_equal(result[0], expected[0])
        assert result[1:] == expected[1:]
