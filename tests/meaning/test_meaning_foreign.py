"""Objects whose state traced code cannot see into: what they hold is read again, or the call runs as plain Python."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import dataclasses
import datetime
import enum
import functools
import gc
import hashlib
import heapq
import io
import itertools
import logging
import math
import mmap
import multiprocessing
import os
import pathlib
import queue
import random
import shutil
import sqlite3
import string
import subprocess
import sys
import threading
import time
import warnings
import weakref
import xml.etree.ElementTree
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest.mock import Mock

import numpy as np
import pytest
import scipy.spatial
import scipy.stats
from meaning import compare, program
from scipy.interpolate import CubicSpline
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeRegressor

import tracegrad as tg

X = np.array([1.0, -2.0, 3.0])


def plainly(script: Any) -> Any:
    """A test that compares the program, some of whose calls are not compiled, and say so."""

    @pytest.mark.parametrize("mode", ["traced", "disabled"])
    def test(mode: str) -> None:
        if mode == "disabled":
            compare(script, mode)
            return
        with pytest.warns(tg.PerformanceWarning, match=r"runs as plain Python.*test_meaning_foreign\.py:\d+"):
            compare(script, mode)

    return test


class Struct(ctypes.Structure):
    _fields_ = (("k", ctypes.c_double), ("n", ctypes.c_int))


def _set(x: Any, name: str, value: Any) -> None:
    setattr(x, name, value)


def _fill(q: Any) -> Any:
    for k in range(20):
        q.put(k)
    return q


def _table() -> Any:
    result = sqlite3.connect(":memory:")
    result.execute("create table t (a real)")
    result.execute("insert into t values (3)")
    return result


def _memory() -> Any:
    result = mmap.mmap(-1, 8)
    result[0] = 3
    return result


def _weak() -> tuple[Any, Any]:
    held = Mock(k=2.0)
    return held, weakref.ref(held)


# How to make it, what is computed of it, how it is changed between the calls.
HIDDEN: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "an array of ctypes": (lambda: (ctypes.c_double * 3)(1, 2, 3), lambda a: a[0], lambda a: a.__setitem__(0, 9)),
    "a number of ctypes": (lambda: ctypes.c_double(3), lambda a: a.value, lambda a: _set(a, "value", 9)),
    "a structure": (lambda: Struct(3), lambda a: a.k, lambda a: _set(a, "k", 9)),
    "a field that converts": (lambda: Struct(n=3), lambda a: a.n, lambda a: _set(a, "n", a.n + 2**31)),
    "a shared value": (lambda: multiprocessing.Value("d", 3), lambda a: a.value, lambda a: _set(a, "value", 9)),
    "a memory map": (_memory, lambda a: a[0], lambda a: a.__setitem__(0, 9)),
    "text that is written": (io.StringIO, lambda s: s.write("a") + len(s.getvalue()), lambda s: s.write("b")),
    "text that is printed to": (io.StringIO, lambda s: print("a", file=s) or len(s.getvalue()), lambda s: None),
    "text that is read": (lambda: io.StringIO("12345678"), lambda s: float(s.read(1)), lambda s: None),
    "bytes that are read": (lambda: io.BytesIO(b"12345678"), lambda s: s.read(1)[0], lambda s: None),
    "a queue": (lambda: _fill(queue.Queue()), lambda q: q.get(), lambda q: None),
    "a queue that is filled": (queue.Queue, lambda q: q.put(1) or q.qsize(), lambda q: None),
    "a simple queue": (lambda: _fill(queue.SimpleQueue()), lambda q: q.get(), lambda q: None),
    "a lock": (threading.Lock, lambda lock: lock.locked(), lambda lock: lock.acquire(blocking=False)),
    "a lock that is held": (threading.Lock, lambda lock: lock.acquire(blocking=False), lambda lock: None),
    "an event": (threading.Event, lambda e: e.is_set(), lambda e: e.set()),
    "a semaphore": (lambda: threading.Semaphore(20), lambda s: s.acquire() + s._value, lambda s: None),
    "a hash": (lambda: hashlib.md5(b"a"), lambda h: h.digest()[0], lambda h: h.update(b"b")),
    "an element": (
        lambda: xml.etree.ElementTree.fromstring('<a k="3"/>'),
        lambda e: float(e.get("k")),
        lambda e: e.set("k", "5"),
    ),
    "a database": (
        _table,
        lambda c: c.execute("select a from t").fetchone()[0],
        lambda c: c.execute("update t set a = a + 1"),
    ),
    "an iterator of NumPy's": (lambda: np.nditer(np.arange(9.0)), lambda it: float(next(it)), lambda it: None),
    "a flat iterator": (lambda: np.arange(9.0).flat, lambda it: it[1], lambda it: it.__setitem__(1, 7.0)),
    "a tree": (
        lambda: DecisionTreeRegressor().fit(X[:, None], X * 2),
        lambda m: m.predict([[1.0]])[0],
        lambda m: m.fit(X[:, None], X * 3),
    ),
    "a weak reference": (_weak, lambda pair: pair[1]().k, lambda pair: _set(pair[0], "k", 5.0)),
    "an object that counts its calls": (lambda: Mock(return_value=3.0), lambda m: m() + m.call_count, lambda m: None),
    "a distribution that draws": (lambda: scipy.stats.norm(0, 1), lambda n: n.rvs(), lambda n: None),
    "an exception of the user's": (lambda: Problem(1.0), lambda e: e.args[0], lambda e: _set(e, "args", (5.0,))),
    "a file": (lambda: open(os.devnull, "a"), lambda f: f.write("a") + f.tell(), lambda f: None),  # noqa: SIM115
}


class Problem(Exception):
    pass


@pytest.mark.parametrize("name", HIDDEN)
def test_calls_with_state_that_cannot_be_seen_run_plainly(name: str) -> None:
    make, compute, change = HIDDEN[name]

    def script(trace: Any) -> Any:
        np.random.seed(0)  # noqa: NPY002
        held: Any = make()
        f = trace(lambda x: x * compute(held))
        for _ in range(3):
            yield f(X)
            change(held)
        yield f(X)
        if hasattr(held, "close"):
            held.close()

    plainly(script)("traced")


# As above, of what can be seen: compared, read again, and compiled.
SEEN: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "a bound method of a list": (lambda: [1.0, 2.0], lambda a: a.__getitem__(0), lambda a: a.__setitem__(0, 9.0)),
    "a template": (
        lambda: string.Template("$a"),
        lambda t: float(t.substitute(a=3)),
        lambda t: _set(t, "template", "$a$a"),
    ),
    "a spline": (lambda: CubicSpline(np.arange(4.0), np.arange(4.0)), lambda s: s(1.5), lambda s: s.c.fill(3.0)),
    "an element of a fit": (
        lambda: LinearRegression().fit(X[:, None], X * 2),
        lambda m: m.coef_[0],
        lambda m: m.fit(X[:, None], X * 3),
    ),
    "a polynomial": (lambda: np.polynomial.Polynomial([1.0, 2.0]), lambda p: p(2.0), lambda p: p.coef.fill(5.0)),
    "a tree of points": (lambda: scipy.spatial.cKDTree(np.eye(2)), lambda t: t.query([0.0, 0.0])[0], lambda t: None),
    "a density": (lambda: scipy.stats.norm(0, 1), lambda n: n.pdf(0.5), lambda n: n.rvs()),
    "a counter": (lambda: collections.Counter("aab"), lambda c: c["a"], lambda c: c.update("ab")),
}


@pytest.mark.parametrize("name", SEEN)
def test_state_that_can_be_seen_is_read_at_each_call(name: str) -> None:
    make, compute, change = SEEN[name]

    def script(trace: Any) -> Any:
        held: Any = make()
        f = trace(lambda x: x * compute(held))
        yield f(X)
        yield f(X)
        change(held)
        yield f(X)
        yield f(X)

    compare(script, "traced")
    f = tg.trace(lambda x: x * compute(held))
    held = make()
    f(X)
    f(X)
    assert f.cache_info().traces == 1


# -- what stands for them ----------------------------------------------------------------------------------------------
@program
def test_bound_methods_of_built_in_classes(trace: Any) -> Any:
    items, table, grown, array = [1.0, 2.0], {"a": 1.0}, [0.0], X.copy()
    first, get, grow, total = items.__getitem__, table.get, grown.append, array.sum

    @trace
    def f(x: Any) -> Any:
        grow(x[0])
        return x * first(0) * get("a") + total()

    yield f(X), grown
    items[0], table["a"], array[0] = 9.0, 4.0, 5.0
    yield f(X), grown
    yield f(X + 1), grown


@program
def test_views_of_dicts(trace: Any) -> Any:
    table = {"a": 1.0, "b": 2.0}
    keys, values, items = table.keys(), table.values(), table.items()

    @trace
    def f(x: Any) -> Any:
        return x * len(keys) + sum(values) + sum(v for k, v in items if k != "a")

    yield f(X)
    table["c"] = 5.0
    yield f(X)
    table["a"] = 7.0
    yield f(X)


def test_a_bound_method_of_an_iterator_is_refused() -> None:
    draw = itertools.count().__next__
    with pytest.raises(tg.errors.UnsupportedError, match=r"test_meaning_foreign\.py:\d+"):
        tg.trace(lambda x: x * draw())(X)


@program
def test_heaps(trace: Any) -> Any:
    heap = [3.0, 5.0, 7.0, 9.0]

    @trace
    def f(x: Any) -> Any:
        smallest = heapq.heappop(heap)
        heapq.heappush(heap, smallest + 5.0)
        return x * smallest

    for _ in range(4):
        yield f(X), list(heap)


@program
def test_a_list_is_added_to_another(trace: Any) -> Any:
    held = [1.0, 2.0]

    @trace
    def f(x: Any) -> Any:
        return x * sum([4.0] + held) + sum([*held, 1.0])  # noqa: RUF005

    yield f(X)
    held[0] = 9.0
    yield f(X)


@program
def test_attributes_of_numbers_strings_and_members(trace: Any) -> Any:
    class Length(float):
        unit: Any

    class Name(str):
        weight: Any

    class Kind(enum.Enum):
        A = 1

    length, name, member = Length(3.0), Name("a"), Kind.A
    length.unit, name.weight, member.factor = 1.0, 2.0, 3.0  # type: ignore[attr-defined]

    @trace
    def f(x: Any) -> Any:
        return x * length * length.unit + name.weight * x + Kind.A.factor  # type: ignore[attr-defined]

    yield f(X)
    length.unit = 10.0
    yield f(X)
    name.weight = 20.0
    yield f(X)
    member.factor = 30.0  # type: ignore[attr-defined]
    yield f(X)


class Layer:
    def __init__(self, k: float):
        self.k = k


@plainly
def test_objects_in_sets_and_as_keys(trace: Any) -> Any:
    layers = [Layer(2.0)]
    several, frozen, table = set(layers), frozenset(layers), {layers[0]: 1.0}

    @trace
    def of_a_set(x: Any) -> Any:
        for layer in several:
            layer.k += float(x[0])
        return x * sum(layer.k for layer in several)

    @trace
    def of_a_frozenset(x: Any) -> Any:
        return x * sum(layer.k for layer in frozen)

    @trace
    def of_keys(x: Any) -> Any:
        return x * sum(layer.k * rate for layer, rate in table.items())

    for _ in range(3):
        yield of_a_set(X), layers[0].k, of_a_frozenset(X), of_keys(X)
        layers[0].k += 1.0


@program
def test_items_under_keys_that_are_objects(trace: Any) -> Any:
    layer = Layer(2.0)
    rates, known = {layer: 3.0}, {layer}

    @trace
    def f(x: Any) -> Any:
        return x * rates[layer]

    yield f(X)
    rates[layer] = 5.0
    yield f(X)
    assert known


@plainly
def test_functions_of_the_user_that_packages_call(trace: Any) -> Any:
    k = 2.0
    scaled = scipy.sparse.linalg.LinearOperator((3, 3), matvec=lambda v: v * k)

    @trace
    def f(x: Any) -> Any:
        return x * (scaled @ np.array([1.0, 2.0, 3.0]))

    yield f(X)
    k = 3.0
    yield f(X)


@plainly
def test_a_weak_reference_that_dies(trace: Any) -> Any:
    held: Any = Layer(2.0)
    reference = weakref.ref(held)

    @trace
    def f(x: Any) -> Any:
        return x * 3 if reference() is None else x

    yield f(X)
    held = None
    gc.collect()
    yield f(X)


@program
def test_an_object_that_makes_an_array_of_itself(trace: Any) -> Any:
    class Held:
        values: Any

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.asarray(self.values)

        def __len__(self) -> int:
            return len(self.values)

    held = Held()
    held.values = [1.0, 2.0, 3.0]

    @trace
    def f(x: Any) -> Any:
        return x * held.__len__()

    yield f(X)
    held.values = [1.0]
    yield f(X)


@program
def test_an_object_that_is_converted_by_numpy(trace: Any) -> Any:
    class Held:
        values: Any

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.asarray(self.values)

    held = Held()
    held.values = X.copy()
    f = trace(lambda x: x * np.asarray(held))
    yield f(X)
    held.values = X * 2
    yield f(X)


@plainly
def test_the_name_of_a_thread(trace: Any) -> Any:
    thread = threading.current_thread()
    before = thread.name

    @trace
    def f(x: Any) -> Any:
        return x * len(threading.current_thread().name)

    yield f(X)
    thread.name = "q"
    yield f(X)
    thread.name = before


@program
def test_the_level_of_a_logger(trace: Any) -> Any:
    logger = logging.getLogger("of test_meaning_foreign")

    @trace
    def f(x: Any) -> Any:
        return x * 2 if logger.isEnabledFor(logging.DEBUG) else x

    yield f(X)
    logger.setLevel(logging.DEBUG)
    yield f(X)
    logger.setLevel(logging.ERROR)
    yield f(X)


# -- caches ------------------------------------------------------------------------------------------------------------
@program
def test_a_cached_function_answers_from_its_cache(trace: Any) -> Any:
    scale, calls = 2.0, []

    @functools.lru_cache
    def scaled(k: Any) -> Any:
        calls.append(k)
        return k * scale

    @functools.lru_cache
    def table(n: Any) -> Any:
        return np.arange(n) * 1.0

    @trace
    def f(x: Any) -> Any:
        return x * scaled(3) + table(3)

    yield f(X), calls
    scale = 5.0
    yield f(X), calls
    scaled.cache_clear()
    yield f(X), calls
    table(3)[0] = 7.0
    yield f(X), calls


@program
def test_a_cached_function_that_counts_its_calls(trace: Any) -> Any:
    calls: list[Any] = []

    @functools.lru_cache
    def scaled(k: Any) -> Any:
        calls.append(k)
        return k * 2.0

    @trace
    def f(x: Any, k: Any) -> Any:
        return x * scaled(k)

    for k in (2, 2, 3, 2):
        yield f(X, k), calls


# -- methods that run as they are -----------------------------------------------------------------------------------
COUNT, LOG = 0, []


@dataclasses.dataclass
class Step:
    k: float = 2.0

    def count(self, x: Any) -> Any:
        global COUNT
        COUNT += 1
        return COUNT

    def log(self, x: Any) -> Any:
        LOG.append(x[0])
        return self.k

    def draw(self, x: Any) -> Any:
        return random.random()

    def draw_by_numpy(self, x: Any) -> Any:
        return np.random.rand()  # noqa: NPY002


class Pair(NamedTuple):
    k: float = 2.0
    count = Step.count
    log = Step.log
    draw = Step.draw
    draw_by_numpy = Step.draw_by_numpy


class Items(list[Any]):
    k = 2.0
    count = Step.count
    log = Step.log
    draw = Step.draw
    draw_by_numpy = Step.draw_by_numpy


class Member(enum.Enum):
    A = 1
    count = Step.count
    draw = Step.draw
    draw_by_numpy = Step.draw_by_numpy

    def log(self, x: Any) -> Any:
        LOG.append(x[0])
        return self.value


@pytest.mark.parametrize("method", ["count", "log", "draw", "draw_by_numpy"])
@pytest.mark.parametrize("held", [Step(), Pair(), Items([1.0]), Member.A], ids=lambda x: type(x).__name__)
def test_methods_that_no_trace_sees_change_the_world_at_each_call(held: Any, method: str) -> None:
    def script(trace: Any) -> Any:
        global COUNT
        COUNT = 0
        LOG.clear()
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002
        f = trace(lambda x: x * getattr(held, method)(x))
        for k in range(3):
            yield f(X + k), COUNT, list(LOG)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tg.PerformanceWarning)
        # Where shadows of the methods run, drawing is refused.
        with contextlib.suppress(tg.errors.UnsupportedError) if method.startswith("draw") else contextlib.nullcontext():
            compare(script, "traced")


WAITING: Any = queue.Queue()
NUMBERS = iter(range(1000))


def _ticks() -> float:
    return time.perf_counter()


@dataclasses.dataclass
class Reader:
    k: float = 2.0

    def clock(self) -> Any:
        return time.monotonic_ns()

    def ticks(self) -> Any:
        return _ticks()

    def date(self) -> Any:
        return datetime.datetime.now()

    def queue(self) -> Any:
        return WAITING.get_nowait()

    def iterator(self) -> Any:
        return next(NUMBERS)

    def environment(self) -> Any:
        return os.environ["TRACEGRAD_TEST"]

    def directory(self) -> Any:
        return os.path.exists(os.environ["TRACEGRAD_TEST"])

    def drawn(self) -> Any:
        return np.random.default_rng().random()

    def harmless(self) -> Any:
        return math.sqrt(self.k) + np.sqrt(self.k)


class ReaderPair(NamedTuple):
    k: float = 2.0
    clock, ticks, date, queue, iterator = Reader.clock, Reader.ticks, Reader.date, Reader.queue, Reader.iterator
    environment, directory, drawn = Reader.environment, Reader.directory, Reader.drawn
    harmless = Reader.harmless


READS = [name for name in vars(Reader) if not name.startswith("_") and name not in ("k", "harmless")]


@pytest.mark.parametrize("method", READS)
@pytest.mark.parametrize("result", [Reader, ReaderPair], ids=lambda x: x.__name__)
def test_methods_that_no_trace_sees_read_clocks_and_queues_at_each_call(
    result: Any, method: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    f = tg.trace(lambda x, held: (x, getattr(held, method)()))
    g = tg.trace(lambda x: (x, getattr(result(), method)()))
    WAITING.queue.extend(range(4))
    results = []
    for k in range(4):
        place = tmp_path / str(k % 2)
        monkeypatch.setenv("TRACEGRAD_TEST", str(place))
        if k % 2:
            place.mkdir(exist_ok=True)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            results.append(g(X)[1] if k > 1 else f(X, result())[1])
        if k in (0, 2):
            assert "a method that no trace sees, reads" in str(told[0].message)
    assert results[0] != results[1]
    assert results[2] != results[3]
    assert sys.getprofile() is None


def test_methods_that_only_could_read_a_clock_are_compiled() -> None:
    f = tg.trace(lambda x, held: x * held.harmless() + result.harmless())
    result = ReaderPair()
    for _ in range(2):
        np.testing.assert_allclose(f(X, Reader()), X * 2 * math.sqrt(2.0) + 2 * math.sqrt(2.0))
    assert f.cache_info().traces == 1


# -- the world outside of Python ---------------------------------------------------------------------------------------
@program
def test_whether_a_file_is_there(trace: Any) -> Any:
    place = pathlib.Path(__file__).with_name("nothing of test_meaning_foreign")

    @trace
    def f(x: Any) -> Any:
        inside = pathlib.Path(str(place.parent)) / place.name
        assert isinstance(inside, pathlib.Path)
        return x * (2.0 if place.exists() else 1.0) + inside.is_file() + len(inside.name)

    yield f(X)
    place.touch()
    try:
        yield f(X)
    finally:
        place.unlink()
    yield f(X)


_place = pathlib.Path(__file__)
READ = {
    "read_text": lambda x: x * len(_place.read_text()),
    "Path.open": lambda x: x * len(_place.open().read()),
    "a path made inside": lambda x: x * len(pathlib.Path(str(_place)).read_bytes()),
    "Path.stat": lambda x: x * _place.stat().st_size,
    "iterdir": lambda x: x * len(list(_place.parent.iterdir())),
    "os.stat": lambda x: x * os.stat(_place).st_size,
    "scandir": lambda x: x * len(list(os.scandir(_place.parent))),
    "memmap": lambda x: x * np.memmap("w.npy"),
}


@pytest.mark.parametrize("name", READ)
def test_reading_files_is_refused_with_the_line(name: str) -> None:
    with pytest.raises(tg.errors.UnsupportedError, match=r"read the file outside.*test_meaning_foreign\.py:\d+"):
        tg.trace(READ[name])(X)


WRITTEN = {
    "open": lambda place: open(place, "a").close(),
    "Path.open": lambda place: place.open("a").close(),
    "write_text": lambda place: place.write_text("a"),
    "save": lambda place: np.save(place, X),
    "touch": lambda place: place.touch(),
    "copy": lambda place: shutil.copy(_place, place),
    "run": lambda place: subprocess.run([sys.executable, "-c", f"open({str(place)!r}, 'w')"], check=True),
    "system": lambda place: os.system(f"touch '{place}'"),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_files_are_written_by_each_call(name: str, tmp_path: Any) -> None:
    write, place = WRITTEN[name], tmp_path / "a.npy"

    @tg.trace
    def f(x: Any) -> Any:
        write(place)
        return x * 2

    with pytest.warns(tg.PerformanceWarning, match=r"is to happen at each call"):
        f(X)
    for _ in range(2):
        assert place.exists()
        place.unlink()
        np.testing.assert_array_equal(f(X), X * 2)
    assert place.exists()


# -- what ends a trace -------------------------------------------------------------------------------------------------
@plainly
def test_no_handler_of_the_user_keeps_a_trace_going(trace: Any) -> Any:
    lock = threading.Lock()

    @trace
    def f(x: Any) -> Any:
        try:
            return x * lock.locked()
        except BaseException:
            return x * 100

    yield f(X)
    lock.acquire()
    yield f(X)


def test_what_traced_code_does_to_objects_of_python_is_undone_before_it_runs_plainly() -> None:
    fitted: Any = string.Formatter()
    fitted.coef_, fitted.intercept_ = X.copy(), 0.0
    fitted.history, generator = [1], random.Random(0)
    fitted.generator = generator
    before, coefficients = generator.getstate(), fitted.coef_.copy()

    @tg.trace
    def f(x: Any) -> Any:
        fitted.intercept_ = x[0]
        fitted.coef_ += 1.0
        fitted.history.append(2)
        raise ValueError(fitted.generator.random())

    with pytest.raises(ValueError):  # noqa: PT011
        f(X)
    assert type(fitted.intercept_) is np.float64
    assert fitted.history == [1, 2]
    np.testing.assert_array_equal(fitted.coef_, coefficients + 1.0)
    plain = random.Random(0)
    plain.random()
    assert generator.getstate() == plain.getstate() != before
