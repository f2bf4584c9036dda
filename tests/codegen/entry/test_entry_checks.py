"""What entry points look at themselves: NumPy's error state, variables, and the containers that inputs are in."""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import gc
import os
import sys
import threading
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.codegen.entry.signature import EntrySpec, InputSpec, OutputSpec
from tracegrad.runtime.compile import jit
from tracegrad.runtime.dispatch import dispatcher
from tracegrad.runtime.execution.entry_callable import MISS, make_callable, make_portable, watching

BIG = np.full(3, 1e300)
ONES = np.ones(3)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the functions called on the slow path."""
    results: list[str] = []
    real = dispatcher.Dispatcher._call

    def call(self: Any, args: Any, kwargs: Any) -> Any:
        results.append(self.name)
        return real(self, args, kwargs)

    monkeypatch.setattr(dispatcher.Dispatcher, "_call", call)
    return results


def warmed(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`f` traced, with a fast path for such calls."""
    traced = tg.trace(f)
    traced(*args, **kwargs)
    traced(*args, **kwargs)
    return traced


# -- NumPy's error state -----------------------------------------------------------------------------------------------
def squared() -> Any:
    return warmed(lambda x: x * x, ONES)


def raises(f: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
    try:
        f(*args, **kwargs)
    except FloatingPointError:
        return True
    return False


@pytest.mark.filterwarnings("ignore:overflow")
def test_traps_are_those_of_the_block() -> None:
    f = squared()
    for _ in range(3):
        assert not raises(f, BIG)
        with np.errstate(over="raise"):
            assert raises(f, BIG)
            with np.errstate(over="ignore"):
                assert not raises(f, BIG)
            assert raises(f, BIG)


def test_traps_hold_for_calls_with_keywords_and_dicts() -> None:
    f = warmed(lambda x, y: x * y, ONES, y=ONES)
    g = warmed(lambda p: p["x"] * p["y"], {"x": ONES, "y": ONES})
    with np.errstate(over="raise"):
        assert raises(f, BIG, y=BIG)
        assert raises(g, {"x": BIG, "y": BIG})


def test_harmless_states_keep_the_fast_path(slow: list[str]) -> None:
    f = squared()
    slow.clear()
    for kind in ("ignore", "warn", "ignore"):
        with np.errstate(divide=kind):
            for _ in range(3):
                f(ONES)
    assert slow == []


def test_a_state_that_is_gone_is_not_taken_for_one_at_its_address() -> None:
    f = squared()
    for _ in range(200):
        with np.errstate(over="ignore"):
            assert not raises(f, BIG)
        with np.errstate(over="raise"):
            assert raises(f, BIG)


def test_traps_are_those_of_the_thread() -> None:
    f, result = squared(), []
    ready, done = threading.Event(), threading.Event()

    def other() -> None:
        with np.errstate(over="raise"):
            ready.set()
            done.wait(60)
            result.append(raises(f, BIG))

    thread = threading.Thread(target=other)
    thread.start()
    ready.wait(60)
    with np.errstate(over="ignore"):
        result.append(raises(f, BIG))
        done.set()
        thread.join(60)
        result.append(raises(f, BIG))
    assert result == [False, True, False]


def test_traps_are_those_of_the_context() -> None:
    f = squared()
    with np.errstate(over="raise"):
        strict = contextvars.copy_context()
    with np.errstate(over="ignore"):
        mild = contextvars.copy_context()
        for _ in range(3):
            assert not raises(f, BIG)
            assert strict.run(raises, f, BIG)
            assert not mild.run(raises, f, BIG)
    with np.errstate(over="raise"):
        assert raises(f, BIG)
        assert not mild.run(raises, f, BIG)


def test_traps_are_those_of_the_task() -> None:
    f = squared()

    async def asked(kind: Any) -> list[bool]:
        results = []
        with np.errstate(over=kind):
            for _ in range(5):
                await asyncio.sleep(0)
                results.append(raises(f, BIG))
        return results

    async def main() -> list[list[bool]]:
        return await asyncio.gather(asked("raise"), asked("ignore"), asked("raise"))

    assert asyncio.run(main()) == [[True] * 5, [False] * 5, [True] * 5]


@pytest.mark.filterwarnings("ignore:overflow")
def test_traps_of_a_suspended_generator_hold_as_numpy_has_them() -> None:
    f = squared()

    def generator() -> Iterator[None]:
        with np.errstate(over="raise"):
            yield

    suspended = generator()
    next(suspended)
    assert raises(f, BIG) == raises(np.multiply, BIG, BIG)
    suspended.close()
    assert not raises(f, BIG)


# -- variables ---------------------------------------------------------------------------------------------------------
SCALE: Any = 1.5


def scaled(x: Any) -> Any:
    return x * SCALE


def test_an_equal_number_of_the_same_type_keeps_the_fast_path(slow: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    f = warmed(scaled, ONES)
    slow.clear()
    monkeypatch.setitem(globals(), "SCALE", float("1.5"))
    np.testing.assert_array_equal(f(ONES), ONES * 1.5)
    assert slow == []


@pytest.mark.parametrize(
    ("before", "after"),
    [(1, 1.0), (1, True), (1.0, np.float32(1)), (0.0, -0.0), (1.0, float("nan")), (float("nan"), 1.0), (2, 2**70)],
)
def test_another_number_is_seen(before: Any, after: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.arange(1.0, 4.0)
    monkeypatch.setitem(globals(), "SCALE", before)
    f = warmed(scaled, x)
    for number in (after, before, after):
        monkeypatch.setitem(globals(), "SCALE", number)
        mine, theirs = f(x), scaled(x)
        np.testing.assert_array_equal(mine, theirs)
        np.testing.assert_array_equal(np.signbit(mine), np.signbit(theirs))
        assert mine.dtype == theirs.dtype


def made_in(space: dict[str, Any]) -> Any:
    exec("def f(x): return sum((x, x)) * factor(2.0)", space)
    return space["f"]


def test_names_are_those_of_their_namespace_whatever_its_size() -> None:
    space: dict[str, Any] = {"factor": float}
    f = warmed(made_in(space), ONES)
    for i in range(1000):
        space[f"name{i}"] = i
    np.testing.assert_array_equal(f(ONES), ONES * 4)
    space["sum"] = len
    assert f(ONES) == 4.0
    del space["sum"]
    np.testing.assert_array_equal(f(ONES), ONES * 4)
    space["factor"] = lambda x: x + 1
    np.testing.assert_array_equal(f(ONES), ONES * 6)
    del space["factor"]
    with pytest.raises(NameError, match="factor"):
        f(ONES)


def test_a_changed_built_in_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.factor", float, raising=False)
    f = warmed(made_in({}), ONES)
    np.testing.assert_array_equal(f(ONES), ONES * 4)
    monkeypatch.setattr("builtins.factor", lambda x: x + 1)
    np.testing.assert_array_equal(f(ONES), ONES * 6)
    monkeypatch.delattr("builtins.factor")
    with pytest.raises(NameError, match="factor"):
        f(ONES)


class Posing:
    """A key with the hash of a name, which must not be compared with it in vain."""

    def __hash__(self) -> int:
        return hash("sum")

    def __eq__(self, other: object) -> bool:
        raise ZeroDivisionError


def test_keys_that_raise_when_they_are_compared_do_no_harm() -> None:
    space: dict[Any, Any] = {"factor": float}
    f = warmed(made_in(space), ONES)
    space[Posing()] = None
    with pytest.raises(ZeroDivisionError):
        space["f"](ONES)
    with pytest.raises(ZeroDivisionError):
        f(ONES)


def test_a_cell_that_is_emptied_is_seen() -> None:
    space: dict[str, Any] = {}
    exec("def outer(number):\n    def f(x): return x * number\n    return f", space)
    f = space["outer"](3.0)
    g = warmed(f, ONES)
    f.__closure__[0].cell_contents = float("3.0")
    np.testing.assert_array_equal(g(ONES), ONES * 3)
    f.__closure__[0].cell_contents = 4.0
    np.testing.assert_array_equal(g(ONES), ONES * 4)
    del f.__closure__[0].cell_contents
    with pytest.raises(NameError, match="number"):
        g(ONES)


def test_environment_variables_that_come_and_go_are_seen(monkeypatch: pytest.MonkeyPatch, slow: list[str]) -> None:
    monkeypatch.delenv("TRACEGRAD_TEST_FACTOR", raising=False)
    f = warmed(lambda x: x * float(os.environ.get("TRACEGRAD_TEST_FACTOR", "1")), ONES)
    slow.clear()
    f(ONES)
    assert slow == []
    for text, factor in (("2", 2), ("3", 3), ("2", 2)):
        monkeypatch.setenv("TRACEGRAD_TEST_FACTOR", text)
        np.testing.assert_array_equal(f(ONES), ONES * factor)
        np.testing.assert_array_equal(f(ONES), ONES * factor)
    monkeypatch.delenv("TRACEGRAD_TEST_FACTOR")
    np.testing.assert_array_equal(f(ONES), ONES)


def test_a_block_without_compilation_is_seen(slow: list[str]) -> None:
    f, g = squared(), warmed(scaled, ONES)
    slow.clear()
    with tg.disable_jit():
        f(ONES), g(ONES)
    assert len(slow) == 2
    f(ONES), g(ONES)
    assert len(slow) == 2


# -- containers --------------------------------------------------------------------------------------------------------
def listed(p: Any) -> Any:
    """Depends on everything there is to know of a container."""
    items = list(p.items()) if isinstance(p, dict) else [*enumerate(p)]
    total = 0.0
    for i, (key, x) in enumerate(items):
        total = total + x * (i + 1) * (len(key) if isinstance(key, str) else key + 10)
    return total * (2 if type(p) in (list, dict) else 3)


class Text(str):
    __slots__ = ()


X, Y, Z = (np.arange(3.0) + i for i in range(3))


@pytest.mark.parametrize(
    "other",
    [
        {"bb": Y, "a": X, "ccc": Z},
        {"a": X, "bb": Y},
        {"a": X, "bb": Y, "ccc": Z, "dddd": X},
        {"a": X, "bb": Y, "cccc": Z},
        {"a": X, 7: Y, "ccc": Z},
        {"a": X, "bb": 2.0, "ccc": Z},
        {"a": X, "bb": 2, "ccc": Z},
        {"a": X, "bb": np.float64(2), "ccc": Z},
        {"a": X, "bb": Y[::-1], "ccc": Z},
        {"a": X, "bb": Y.astype(np.float32), "ccc": Z},
        {"a": X, "bb": (Y, Z)[0], "ccc": Z},
        {"a": X, Text("bb"): Y, "ccc": Z},
        {"a": X, "".join(["b", "b"]): Y, "ccc": Z},
        {},
        OrderedDict({"a": X, "bb": Y, "ccc": Z}),
        [X, Y, Z],
        (X, Y, Z),
        [X, Y],
        [X, Y, 2.0],
    ],
)
@pytest.mark.parametrize("first", [{"a": X, "bb": Y, "ccc": Z}, {"ccc": Z, "a": X, "bb": Y}, [X, Y, Z], (X, Y, Z)])
def test_what_is_in_a_container_is_found_as_python_finds_it(first: Any, other: Any) -> None:
    f = warmed(listed, first)
    for args in (other, first, other):
        np.testing.assert_array_equal(f(args), listed(args))
    g = warmed(lambda x, p, y, q: x + listed(p) * y + listed(q), X, first, Y, first)
    for args in (other, first, other):
        np.testing.assert_array_equal(g(X, args, Y, first), X + listed(args) * Y + listed(first))


@pytest.mark.parametrize(
    "given", [{"a": X, "bb": Y}, {"ccc": Z, "a": X, "bb": Y, "d": X, "ee": Y}, [X, Y], (X, Y, 2.5)]
)
def test_containers_keep_the_fast_path(given: Any, slow: list[str]) -> None:
    f = warmed(listed, given)
    slow.clear()
    same = {"".join(key): x for key, x in given.items()} if isinstance(given, dict) else type(given)([*given])
    np.testing.assert_array_equal(f(same), listed(given))
    nested = warmed(lambda p: listed(p["layer"]) + listed(p["rest"]), {"layer": given, "rest": [X]})
    slow.clear()
    np.testing.assert_array_equal(nested({"layer": same, "rest": [X]}), listed(given) + listed([X]))
    assert slow == []


def test_an_item_that_is_returned_is_the_item_itself() -> None:
    f = warmed(lambda p: (p["a"], p["bb"] * 2), {"a": X, "bb": Y})
    mine, theirs = f({"a": Z, "bb": Y}), Z
    assert mine[0] is theirs


@pytest.mark.filterwarnings("ignore:.*shares memory with something else:tracegrad.PerformanceWarning")
def test_an_item_that_is_updated_is_the_item_itself() -> None:
    def f(p: Any) -> Any:
        p["a"] += p["bb"]
        return p["a"].sum()

    g = warmed(f, {"a": X.copy(), "bb": Y})
    p = {"a": X.copy(), "bb": Y}
    assert g(p) == (X + Y).sum()
    np.testing.assert_array_equal(p["a"], X + Y)
    p = {"a": (both := X.copy()), "bb": both}
    g(p)
    np.testing.assert_array_equal(both, X + X)


@pytest.mark.parametrize("other", [{"a": X, "b": Y}, {"b": Y, "a": X}, {"a": X, "b": None}, {"a": X}, 1.0])
def test_no_reference_is_left_behind(other: Any) -> None:
    x, y = X.copy(), Y.copy()
    f = warmed(lambda p, x: p["a"] * p["b"] + x, {"a": x, "b": y}, x)
    entry = type(f).__call__.__globals__["entry"]
    options = {"a": x, "b": y}
    f(options, x)
    gc.collect()
    before = [sys.getrefcount(z) for z in (x, y, X, Y, options, MISS)]
    for _ in range(100):
        f(options, x)
        entry(x, other)
    gc.collect()
    assert [sys.getrefcount(z) for z in (x, y, X, Y, options, MISS)] == before


CALLS = """
define i32 @tg_run(ptr %v, ptr %p) {
  %f = load ptr, ptr %v
  call void %f()
  ret i32 0
}
"""


def test_what_is_in_a_container_lives_as_long_as_the_call() -> None:
    seen = []

    def during() -> None:
        options.clear()
        gc.collect()
        seen.append(alive() is not None)

    function = ctypes.PYFUNCTYPE(None)(during)
    float64 = np.dtype(np.float64)
    spec = EntrySpec((InputSpec(float64, 1),), (OutputSpec(float64, 0),), returns_tuple=False)
    code = jit.load_object(jit.compile_ir(CALLS, "test"))
    address = ctypes.cast(function, ctypes.c_void_p).value
    result = make_callable(code, spec, input_shapes=[(3,)], output_shapes=[()], values=[address or 0])
    key = "x"
    entry = watching(result, [], [1, id(dict), 1, id(key), 0], key)
    options = {key: X.copy()}
    alive = weakref.ref(options[key])
    entry(options)
    assert seen == [True]
    assert alive() is None


def test_the_portable_way_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracegrad.runtime.execution.image.make_callable", make_portable)
    f = warmed(listed, {"a": X, "bb": Y})
    assert isinstance(type(f).__call__.__globals__["entry"], types.FunctionType)
    for args in ({"bb": Y, "a": X}, {"a": X, "bb": Y}, [X, Y]):
        np.testing.assert_array_equal(f(args), listed(args))
    g = squared()
    with np.errstate(over="raise"):
        assert raises(g, BIG)
    h = warmed(lambda x, y: x * y, ONES, y=ONES)
    with np.errstate(over="raise"):
        assert raises(h, BIG, y=BIG)
    with tg.disable_jit():
        np.testing.assert_array_equal(f({"a": X}), listed({"a": X}))


# -- arrays that are written to ----------------------------------------------------------------------------------------
STORE = np.zeros(3)


def stored(x: Any, y: Any) -> Any:
    STORE[...] = x + y
    return STORE.sum() + x.sum()


@pytest.mark.filterwarnings("ignore:.*shares memory with something else:tracegrad.PerformanceWarning")
@pytest.mark.parametrize("place", [0, 1])
def test_what_is_written_shares_memory_with_no_argument_or_the_call_is_run_plainly(
    place: int, slow: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = np.zeros(9)
    monkeypatch.setitem(globals(), "STORE", memory[3:6])
    f = warmed(stored, X, Y)
    slow.clear()
    for start, overlaps in ((0, False), (6, False), (1, True), (3, True), (5, True)):
        memory[:] = range(9)
        args = [Y, Y]
        args[place] = memory[start : start + 3]
        before = memory.copy()
        theirs = stored(*args)
        after, memory[:] = memory.copy(), before
        assert f(*args) == theirs
        np.testing.assert_array_equal(memory, after)
        assert bool(slow) == overlaps
        slow.clear()


@pytest.mark.filterwarnings("ignore:.*cannot be written to:tracegrad.PerformanceWarning")
def test_what_is_written_is_writeable(monkeypatch: pytest.MonkeyPatch) -> None:
    f = warmed(stored, X, Y)
    store = np.zeros(3)
    monkeypatch.setitem(globals(), "STORE", store)
    f(X, Y)
    np.testing.assert_array_equal(store, X + Y)
    store[:] = 0
    store.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        f(X, Y)
    assert not store.any()


# -- state in one place ------------------------------------------------------------------------------------------------
class Base:
    scale = 2.0


class Between(Base):
    pass


class Other:
    scale = 5.0


class Model(Between):
    pass


MODEL: Any = Model()


def of_class(x: Any) -> Any:
    return x * MODEL.scale


def test_an_attribute_of_a_class_is_found_where_python_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    f = warmed(of_class, ONES)
    for place, number in ((Base, 3.0), (Between, 4.0), (Model, 5.0), (MODEL, 6.0)):
        monkeypatch.setattr(place, "scale", number, raising=False)
        np.testing.assert_array_equal(f(ONES), ONES * number)
        np.testing.assert_array_equal(f(ONES), ONES * number)
    monkeypatch.undo()
    np.testing.assert_array_equal(f(ONES), ONES * 2)
    Model.__bases__ = (Other,)
    try:
        np.testing.assert_array_equal(f(ONES), ONES * 5)
    finally:
        Model.__bases__ = (Between,)
    np.testing.assert_array_equal(f(ONES), ONES * 2)
    monkeypatch.setitem(globals(), "MODEL", Between())
    np.testing.assert_array_equal(f(ONES), ONES * 2)


TABLE: dict[Any, Any] = {"a": 2.0}


def test_a_key_that_is_missed_says_nothing_of_the_others(slow: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "TABLE", {"a": 2.0})
    f = warmed(lambda x: x * (3.0 if "b" in TABLE else TABLE.get("c", 2.0)), ONES)
    slow.clear()
    TABLE["d"] = TABLE["a"] = 7.0
    np.testing.assert_array_equal(f(ONES), ONES * 2)
    assert slow == []
    TABLE["c"] = 4.0
    np.testing.assert_array_equal(f(ONES), ONES * 4)
    TABLE["b"] = None
    np.testing.assert_array_equal(f(ONES), ONES * 3)
    TABLE.clear()
    np.testing.assert_array_equal(f(ONES), ONES * 2)


def test_a_key_that_is_missed_and_then_written_is_where_python_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: Any) -> Any:
        if "b" not in TABLE:
            TABLE["b"] = x * 2
        TABLE["last"] = len(TABLE)
        return TABLE["b"] + len(TABLE)

    seen = []
    for result in (f, tg.trace(f)):
        monkeypatch.setitem(globals(), "TABLE", {"a": 2.0})
        results = []
        for i in range(4):
            results.append(result(X + i).tolist())
            if i == 1:
                del TABLE["b"]
        seen.append((results, list(TABLE), TABLE["last"], TABLE["b"].tolist()))
    assert seen[0] == seen[1]


@pytest.mark.filterwarnings("ignore:.*shares memory with something else:tracegrad.PerformanceWarning")
def test_the_portable_way_looks_at_what_is_written(slow: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracegrad.runtime.execution.image.make_callable", make_portable)
    memory = np.zeros(6)
    monkeypatch.setitem(globals(), "STORE", memory[:3])
    f = warmed(stored, X, Y)
    slow.clear()
    f(X, Y)
    assert slow == []
    f(X, memory[1:4])
    assert slow == ["stored"]
