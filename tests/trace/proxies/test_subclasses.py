"""Subclasses of ndarray, and objects that NumPy asks by its protocols, in traced code: as in plain NumPy, or refused by
name where a derivative would have to be of that class."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from along import named
from meaning import program

import tracegrad as tg

pytestmark = pytest.mark.filterwarnings("ignore::tracegrad.PerformanceWarning")
X = np.array([1.0, 2.0])


class Tagged(np.ndarray):
    """Has an attribute, which results inherit, and a method."""

    tag: float

    def __new__(cls, values: Any, tag: float = 3.0) -> Any:
        result = np.asarray(values).view(cls)
        result.tag = tag
        return result

    def __array_finalize__(self, like: Any) -> None:
        self.tag = getattr(like, "tag", 1.0)

    def total(self) -> float:
        return float(np.sum(np.asarray(self))) * self.tag


class Doubling(np.ndarray):
    """Its universal functions give twice what they would."""

    def __array_ufunc__(self, ufunc: Any, method: str, *xs: Any, **kw: Any) -> Any:
        return 2 * getattr(ufunc, method)(*[np.asarray(x) for x in xs], **kw)


class Seven(np.ndarray):
    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return 7.0


class Shifted(np.ndarray):
    def __getitem__(self, index: Any) -> Any:
        return np.asarray(self)[index] + 100.0


class Wrapped(np.ndarray):
    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return np.asarray(array) * 10.0


class Times(np.ndarray):
    def __mul__(self, other: Any) -> Any:
        return np.asarray(self) * other + 5.0

    __rmul__ = __mul__


class HasArray:
    def __init__(self, v: Any):
        self.v = v

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self.v, dtype=dtype)


class First(HasArray):
    __array_priority__ = 2000.0

    def __mul__(self, other: Any) -> Any:
        return other * 3.0

    __rmul__ = __mul__


class NoFunctions:
    __array_ufunc__ = None

    def __rmul__(self, other: Any) -> Any:
        return other * 4.0

    def __radd__(self, other: Any) -> Any:
        return other * 5.0


class HasFunctions:
    def __array_ufunc__(self, ufunc: Any, method: str, *xs: Any, **kw: Any) -> Any:
        return np.sum([np.sum(x) for x in xs if x is not self]) * 6.0

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return 8.0


class Scalar(np.float64):
    def __mul__(self, other: Any) -> Any:
        return 11.0 * other

    __rmul__ = __mul__


TAGGED = Tagged(X)
DOUBLING, SEVEN, SHIFTED, WRAPPED, TIMES = (X.view(c) for c in (Doubling, Seven, Shifted, Wrapped, Times))
HAS, FIRST, NONE, BOTH, SCALAR = HasArray(X), First(X), NoFunctions(), HasFunctions(), Scalar(2.0)
LOCK = threading.Lock()
CONSTANT = HasArray(np.array([1, 0]))

CASES: dict[str, Callable[[Any], Any]] = {
    "attribute": lambda x: x * TAGGED.tag,
    "method": lambda x: x * TAGGED.total(),
    "isinstance": lambda x: x * (isinstance(TAGGED, Tagged) + 1),
    "type": lambda x: x * (1 + (type(TAGGED * 2) is Tagged)),
    "times": lambda x: TAGGED * x,
    "times, reflected": lambda x: x * TAGGED,
    "attribute of a result": lambda x: (TAGGED * x).tag * x,
    "ones_like": lambda x: np.ones_like(TAGGED).tag * x,
    "subok": lambda x: np.array(TAGGED, subok=True).tag * x,
    "asarray": lambda x: np.asarray(TAGGED) * x,
    "asanyarray": lambda x: np.asanyarray(TAGGED).tag * x,
    "viewed inside": lambda x: (x * 2).view(Tagged).tag * x,
    "made inside": lambda x: Tagged(x * 2).tag * x,
    "made of constants": lambda x: Tagged(np.zeros(2)).total() * x + Tagged([1.0, 2.0]).total(),
    "returned": lambda x: Tagged(x),
    "viewed and doubled": lambda x: x.view(Doubling) * 2,
    "ufunc": lambda x: DOUBLING * x,
    "ufunc, reflected": lambda x: x * DOUBLING,
    "sin": lambda x: np.sin(DOUBLING) * x,
    "sum": lambda x: np.sum(DOUBLING) * x,
    "matmul": lambda x: DOUBLING @ x,
    "add": lambda x: np.add(x, DOUBLING),
    "concatenate": lambda x: np.concatenate([x, DOUBLING]),
    "where": lambda x: np.where(DOUBLING > 0, x, 0),
    "function": lambda x: np.sum(SEVEN) * x,
    "function of both": lambda x: np.concatenate([x, SEVEN]),
    "dot": lambda x: np.dot(x, SEVEN),
    "item": lambda x: x * SHIFTED[0],
    "index": lambda x: x[SHIFTED.astype(int) - 1],
    "wrap": lambda x: np.add(WRAPPED, x),
    "operator": lambda x: x * TIMES,
    "operator, reflected": lambda x: TIMES * x,
    "has array": lambda x: np.asarray(HAS) * x,
    "has array, operator": lambda x: x * HAS + HAS,
    "has array, add": lambda x: np.add(x, HAS),
    "has array, joined": lambda x: np.concatenate([x, HAS]),
    "has array, sin": lambda x: x + np.sin(HAS),
    "has array, matmul": lambda x: x @ HAS,
    "has array, index": lambda x: x[CONSTANT] * x[HasArray([True, False])],
    "has the traced array": lambda x: x * HasArray(x),
    "has the traced array, asarray": lambda x: np.asarray(HasArray(x)) * 2,
    "has the traced array, sum": lambda x: np.sum(HasArray(x)),
    "priority": lambda x: x * FIRST,
    "no functions": lambda x: x * NONE + (x + NONE),
    "no functions, element": lambda x: x[0] * NONE,
    "no functions, multiply": lambda x: np.multiply(x, NONE),
    "own functions": lambda x: x * BOTH,
    "own functions, add": lambda x: np.add(x, BOTH),
    "own functions, first": lambda x: np.add(BOTH, x),
    "own functions, joined": lambda x: np.concatenate([x, BOTH]),
    "own functions, dot": lambda x: np.dot(BOTH, x),
    "own functions, chosen": lambda x: np.where(x > 0, x, BOTH),
    "scalar": lambda x: x * SCALAR,
    "scalar, reflected": lambda x: SCALAR * x,
}


def told(f: Callable[[], Any]) -> Any:
    try:
        result = f()
    except TypeError as error:
        return "TypeError", str(error)
    return type(result).__name__, np.array(np.asarray(result))


@pytest.mark.parametrize("name", CASES)
def test_values_and_classes_are_those_of_plain_numpy(name: str) -> None:
    f = CASES[name]
    traced = tg.trace(named(lambda x: f(x), name))
    for x in (X, X, X + 1.0):
        np.testing.assert_equal(told(lambda x=x: traced(x)), told(lambda x=x: f(x)))
    with tg.disable_jit():
        np.testing.assert_equal(told(lambda: traced(X)), told(lambda: f(X)))


def plainly(f: Callable[[Any], Any], x: Any) -> Any:
    """`f(x)` in a call that no trace can be made of."""
    with LOCK:
        return f(x)


# What is differentiated cannot be of these classes, and no code of theirs can be given it.
REFUSED = {
    "times",
    "times, reflected",
    "attribute of a result",
    "viewed inside",
    "made inside",
    "returned",
    "viewed and doubled",
    "ufunc",
    "ufunc, reflected",
    "matmul",
    "add",
    "concatenate",
    "function of both",
    "dot",
    "wrap",
    "operator",
    "scalar",
    "has the traced array, sum",
    "no functions, multiply",
}


@pytest.mark.parametrize("name", CASES)
def test_derivatives_are_right_or_refused_by_name(name: str) -> None:
    f = named(lambda x: np.sum(CASES[name](x)), name)
    derivatives = (
        tg.grad(f),
        lambda x: [tg.jvp(f, (x,), (e,))[1] for e in np.eye(2)],
        lambda x: tg.vjp(f, x)[1](1.0)[0],
    )
    if name in REFUSED:
        for derivative in (*derivatives, tg.disable_jit()(tg.grad(f))):
            with pytest.raises((tg.TracegradError, TypeError), match=r"class|derivative|ufuncs"):
                derivative(X)
        return
    derivatives = (*derivatives, tg.disable_jit()(tg.grad(f)), tg.grad(named(lambda x: plainly(f, x), name)))
    expected = [float(f(X + e) - f(X - e)) / 2e-6 for e in np.eye(2) * 1e-6]
    for derivative in derivatives:
        np.testing.assert_allclose(derivative(X), expected, rtol=1e-7, atol=1e-7)


@program
def test_a_subclass_from_outside_keeps_its_class_when_the_world_changes(trace: Any) -> Iterator[Any]:
    held = {"u": Tagged([1.0, 2.0], 4.0)}

    @trace
    def f(x: Any) -> Any:
        u = held["u"]
        return (x * getattr(u, "tag", 0.5), isinstance(u, Tagged), held["u"])

    for new in (held["u"], np.ones(2), Tagged([5.0], 6.0), np.ones(2)):
        held["u"] = new
        result = f(np.ones(2))
        yield result, type(result[2]).__name__, result[2] is new


@program
def test_arguments_of_a_subclass_keep_their_class(trace: Any) -> Iterator[Any]:
    @trace
    def f(x: Any, y: Any) -> Any:
        return (x * 2.0, np.sum(x), getattr(x, "tag", 0.0), isinstance(y, np.ma.MaskedArray), np.mean(y))

    masked = np.ma.array([1.0, 2.0], mask=[True, False])
    for x, y in ((X, X), (TAGGED, X), (X, X), (DOUBLING, masked), (X, masked), (X, np.eye(2).view(np.matrix))):
        result = f(x, y)
        yield result, type(result[0]).__name__


@program
def test_what_a_hook_of_a_subclass_does_it_does_at_each_call(trace: Any) -> Iterator[Any]:
    log: list[Any] = []

    class Logged(np.ndarray):
        def __array_finalize__(self, like: Any) -> None:
            log.append(type(like).__name__)

    held = X.view(Logged)

    @trace
    def outside(x: Any) -> Any:
        return x + np.asarray(held[:1] * 2.0)

    @trace
    def inside(x: Any) -> Any:
        result = np.ones(2).view(Logged)
        return x + len(log) + np.asarray(result + 1.0)

    for _ in range(3):
        yield outside(np.ones(2)), len(log)
        yield inside(np.ones(2)), len(log)


@pytest.mark.filterwarnings("error")
def test_a_memory_map_is_an_array_like_others(tmp_path: Any) -> None:
    held = np.memmap(tmp_path / "held", dtype=float, mode="w+", shape=2)
    held[:] = 3.0
    f = tg.trace(lambda x: np.sum(held * x) + held[0])
    for _ in range(3):
        assert f(X) == np.sum(held * X) + held[0]
        held += 1.0
    np.testing.assert_array_equal(tg.grad(f)(X), held)
    assert tg.trace(np.sum)(held) == np.sum(held)


def test_a_unit_is_refused_by_name_and_the_text_says_what_to_write() -> None:
    def f(x: Any, p: Any) -> Any:
        return np.sum(x**2) * p

    length = Tagged([1.0, 2.0])
    for derivative in (tg.grad(f), tg.vmap(f, in_axes=(0, None)), lambda x, p: tg.jvp(f, (x, p), (X, 1.0))):
        with pytest.raises(
            tg.UnsupportedError, match=r"x is a Tagged, of a subclass of ndarray.*np\.asarray\(x\).*outside"
        ):
            derivative(length, 2.0)
    assert tg.grad(lambda x, p: x.total() * p, argnums=1)(length, 2.0) == 9.0
    assert tg.grad(lambda p: f(np.asarray(length), p))(2.0) == 5.0


class Labelled:
    """An index with labels, as pandas has them, which gives its elements as an array that is read-only."""

    def __init__(self, values: Any):
        self.values = np.asarray(values)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        result = np.asarray(self.values, dtype=dtype).view()
        result.flags.writeable = False
        return result


PLACES, MASK = Labelled([0, 2]), Labelled([True, False, True])


@program
def test_an_index_that_gives_a_read_only_array(trace: Any) -> Iterator[Any]:
    @trace
    def f(x: Any) -> Any:
        y = x * 2.0
        y[MASK] = 7.0
        return x[PLACES], x[MASK], y

    for k in range(3):
        yield f(np.arange(3.0) + k)


@pytest.mark.parametrize("key", [PLACES, MASK])
def test_derivatives_at_an_index_that_gives_a_read_only_array(key: Any) -> None:
    def f(x: Any) -> Any:
        return np.sum(x[key] ** 2)

    x = np.array([1.0, 2.0, 3.0])
    for derivative in (tg.grad(f), lambda x: tg.vjp(f, x)[1](1.0)[0], tg.disable_jit()(tg.grad(f))):
        np.testing.assert_array_equal(derivative(x), [2.0, 0.0, 6.0])


@program
def test_arrays_that_traced_code_makes_read_only(trace: Any) -> Iterator[Any]:
    @trace
    def f(x: Any) -> Any:
        y = x * 2.0
        y.flags.writeable = False
        z = x + 1.0
        z.flags["WRITEABLE"] = False
        results = [y.flags.writeable, z.flags.writeable, x.copy().flags.writeable]
        for each in (y, z):
            try:
                each[0] = 1.0
            except ValueError:
                results.append(False)
        return results, y + z

    for _ in range(2):
        yield f(np.ones(3))


def _of_maps(x: Any) -> Any:
    return np.sum(x**2) if isinstance(x, np.memmap) else np.sum(x)


def _of_exactly_maps(x: Any) -> Any:
    return np.sum(x**2) if type(x) is np.memmap else np.sum(x)


def _of_files(x: Any) -> Any:
    return np.sum(x**2) if hasattr(x, "filename") else np.sum(x)


def _of_modes(x: Any) -> Any:
    try:
        return np.sum(x**2) if x.mode else np.sum(x)
    except AttributeError:
        return np.sum(x)


def _matched(x: Any) -> Any:
    match x:
        case np.memmap():
            return np.sum(x**2)
        case np.ndarray():
            return np.sum(x)


@functools.singledispatch
def _dispatched(x: Any) -> Any:
    return np.sum(x)


@_dispatched.register
def _(x: np.memmap) -> Any:
    return np.sum(x**2)


ASKING = [_of_maps, _of_exactly_maps, _of_files, _of_modes, _matched, lambda x: _dispatched(x)]


@pytest.mark.parametrize("function", ASKING)
def test_what_asks_whether_an_array_is_a_memory_map_is_answered_as_in_python(function: Any, tmp_path: Any) -> None:
    held = np.memmap(tmp_path / "held", dtype=float, mode="w+", shape=3)
    held[:] = [1.0, 2.0, 3.0]
    f = tg.trace(function)
    for x in (np.asarray(held), held, np.asarray(held), held):
        assert f(x) == function(x)
    for jit in (True, False):
        with contextlib.nullcontext() if jit else tg.disable_jit():
            for derivative in (
                tg.grad(function),
                lambda x: tg.vmap(function)(x[None]),
                lambda x: tg.jvp(function, (x,), (np.ones(3),)),
            ):
                with pytest.raises(tg.UnsupportedError, match=r"memmap.*np\.asarray\(x\)"):
                    derivative(held)
            np.testing.assert_array_equal(tg.grad(function)(np.asarray(held)), np.ones(3))


def test_a_variable_that_holds_another_class_of_array_is_another_trace(tmp_path: Any) -> None:
    held = np.memmap(tmp_path / "held", dtype=float, mode="w+", shape=2)
    held[:] = 3.0
    plain, now = np.full(2, 3.0), [np.full(2, 3.0)]

    def f(x: Any) -> Any:
        return np.sum(x * now[0]) if isinstance(now[0], np.memmap) else np.sum(x) + now[0][0]

    traced, derivative = tg.trace(f), tg.grad(f)
    for now[0] in (plain, held, plain, held):
        assert traced(X) == f(X)
        np.testing.assert_array_equal(derivative(X), [3.0, 3.0] if now[0] is held else [1.0, 1.0])
