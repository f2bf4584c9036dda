"""What Python's own library answers by more than its arguments is asked again at each call, or the call runs plainly.

Each row asks something that the world decides, and changes that. The truth is plain Python.
"""

from __future__ import annotations

import configparser
import csv
import datetime
import faulthandler
import gc
import getpass
import importlib
import inspect
import json
import locale
import logging
import mimetypes
import os
import platform
import re
import shutil
import signal
import socket
import string
import sys
import tempfile
import textwrap
import threading
import time
import tracemalloc
import typing
import unicodedata
import urllib.parse
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.trace.proxies import standard_library

resource = pytest.importorskip("resource", reason="changes the state of a POSIX process")
X = np.array([1.0, -2.0, 3.0])
MODES = {"trace": tg.trace, "grad": lambda f: tg.grad(lambda x: np.sum(f(x)))}


# -- changes of the world --------------------------------------------------------------------------------------
@contextmanager
def environment(**variables: str) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            os.environ.pop(name, None)
        os.environ.update(before)


@contextmanager
def folder() -> Iterator[None]:
    before = os.getcwd()
    os.chdir("/")
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def zone() -> Iterator[None]:
    with environment(TZ="XYZ5"):
        time.tzset()
        yield
    time.tzset()


def setting(get: Callable[[], Any], put: Callable[[Any], Any], value: Any) -> Callable[[], Any]:
    @contextmanager
    def changed() -> Iterator[None]:
        before = get()
        put(value)
        try:
            yield
        finally:
            put(before)

    return changed


def attribute(owner: Any, name: str, value: Any) -> Callable[[], Any]:
    return setting(lambda: getattr(owner, name), lambda x: setattr(owner, name, x), value)


@contextmanager
def running() -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def tracing_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


@contextmanager
def dialect() -> Iterator[None]:
    csv.register_dialect("of_a_test")
    try:
        yield
    finally:
        csv.unregister_dialect("of_a_test")


class Held:
    finalizer: Any


def documented(a: int, b: float = 2.0) -> float:
    """Short."""
    return a * b


HELD, LOGGER, MOMENT = Held(), logging.getLogger("tracegrad.tests.library"), datetime.datetime(2020, 1, 1)
PLACE, ARRAY = Path("some") / "place", np.array([1 / 3])


FILE = Path(tempfile.gettempdir()) / f"library_of_a_test_{os.getpid()}.ini"


def configured() -> float:
    parser = configparser.ConfigParser()
    parser.read(FILE)
    return parser.getfloat("a", "k", fallback=1.0)


@contextmanager
def written() -> Iterator[None]:
    FILE.write_text("[a]\nk = 5\n")
    try:
        yield
    finally:
        FILE.unlink()


HELD.finalizer = weakref.finalize(HELD, int)


@contextmanager
def finalized() -> Iterator[None]:
    HELD.finalizer()
    yield
    HELD.finalizer = weakref.finalize(HELD, int)


def numeric(category: int = locale.LC_NUMERIC) -> str:
    return locale.setlocale(category)


Row = tuple[Callable[[], float], Callable[[], AbstractContextManager[None]]]

# Compiled, and asked again.
ASKED: dict[str, Row] = {
    "expandvars": (lambda: len(os.path.expandvars("$OF_A_TEST")), lambda: environment(OF_A_TEST="abcdef")),
    "expanduser": (lambda: len(os.path.expanduser("~/a")), lambda: environment(HOME="/abcdefghijk")),
    "Path.home": (lambda: len(str(Path.home())), lambda: environment(HOME="/abcdefghijk")),
    "Path.expanduser": (lambda: len(str(Path("~/a").expanduser())), lambda: environment(HOME="/abcdefghijk")),
    "getuser": (lambda: len(getpass.getuser()), lambda: environment(LOGNAME="abcdefghijklmnopq")),
    "get_exec_path": (lambda: len(os.get_exec_path()), lambda: environment(PATH=os.environ["PATH"] + ":/zz:/yy")),
    "which": (lambda: float(shutil.which("sh") is None) + 1, lambda: environment(PATH="/nowhere")),
    "getcwd": (lambda: len(os.getcwd()), folder),
    "getcwdb": (lambda: len(os.getcwdb()), folder),
    "abspath": (lambda: len(os.path.abspath("a")), folder),
    "realpath": (lambda: len(os.path.realpath("a", strict=False)), folder),
    "relpath": (lambda: len(os.path.relpath("/usr/lib/a")), folder),
    "Path.cwd": (lambda: len(str(Path.cwd())), folder),
    "Path.absolute": (lambda: len(str(PLACE.absolute().parent)), folder),
    "Path.resolve": (lambda: len(str(Path("a").resolve())), folder),
    "fromtimestamp": (lambda: datetime.datetime.fromtimestamp(86400 * 3).hour + 1, zone),
    "timestamp": (lambda: MOMENT.timestamp() % 99991, zone),
    "astimezone": (lambda: MOMENT.replace(tzinfo=datetime.UTC).astimezone().hour + 1, zone),
    "mktime": (lambda: time.mktime((2020, 1, 1, 0, 0, 0, 0, 0, 0)) % 99991, zone),
    "getlocale": (
        lambda: float(locale.getlocale(locale.LC_NUMERIC)[1] is None) + 1,
        setting(numeric, lambda x: locale.setlocale(locale.LC_NUMERIC, x), "C.UTF-8"),
    ),
    "int_max_str_digits": (
        sys.get_int_max_str_digits,
        setting(sys.get_int_max_str_digits, sys.set_int_max_str_digits, 5000),
    ),
    "recursionlimit": (
        lambda: sys.getrecursionlimit(),
        setting(sys.getrecursionlimit, sys.setrecursionlimit, 5432),
    ),
    "coroutine origins": (
        lambda: sys.get_coroutine_origin_tracking_depth() + 1,
        setting(sys.get_coroutine_origin_tracking_depth, sys.set_coroutine_origin_tracking_depth, 3),
    ),
    "gc.get_debug": (lambda: gc.get_debug() + 1, setting(gc.get_debug, gc.set_debug, gc.DEBUG_UNCOLLECTABLE)),
    "getrlimit": (
        lambda: resource.getrlimit(resource.RLIMIT_CORE)[0] + 2,
        setting(
            lambda: resource.getrlimit(resource.RLIMIT_CORE),
            lambda x: resource.setrlimit(resource.RLIMIT_CORE, x),
            (0, resource.getrlimit(resource.RLIMIT_CORE)[1]),
        ),
    ),
    "getdefaulttimeout": (
        lambda: socket.getdefaulttimeout() or 1.0,
        setting(socket.getdefaulttimeout, socket.setdefaulttimeout, 3.0),
    ),
    "getsignal": (
        lambda: float(signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL) + 1,
        setting(lambda: signal.getsignal(signal.SIGUSR1), lambda x: signal.signal(signal.SIGUSR1, x), signal.SIG_IGN),
    ),
    "getLevelName": (
        lambda: len(logging.getLevelName(33)),
        setting(lambda: "Level 33", lambda x: logging.addLevelName(33, x), "OF A TEST"),
    ),
    "logger.level": (lambda: LOGGER.level + 1, setting(lambda: LOGGER.level, LOGGER.setLevel, 10)),
    "getLogger": (
        lambda: logging.getLogger("tracegrad.tests.library").level + 1,
        setting(lambda: 0, LOGGER.setLevel, 10),
    ),
    "guess_type": (
        lambda: len(mimetypes.guess_type("a.zzz")[0] or "") + 1,
        setting(
            lambda: None,
            lambda x: mimetypes.add_type(x, ".zzz") if x else mimetypes.types_map.pop(".zzz", None),
            "abc/d",
        ),
    ),
    "gettempdir": (lambda: len(tempfile.gettempdir()), attribute(tempfile, "tempdir", "/abcdefghijklmnop")),
    "is_tracing": (lambda: float(tracemalloc.is_tracing()) + 1, tracing_memory),
    "active_count": (lambda: threading.active_count(), running),
    "text of an array": (
        lambda: len(str(ARRAY)) + len(f"{ARRAY}"),
        setting(np.get_printoptions, lambda x: np.set_printoptions(**x), {"precision": 2}),
    ),
    "text of a list of arrays": (
        lambda: len(str([ARRAY])),
        setting(np.get_printoptions, lambda x: np.set_printoptions(**x), {"precision": 2}),
    ),
    "__annotations__": (
        lambda: len(documented.__annotations__),
        attribute(documented, "__annotations__", {"a": int, "b": float, "c": int, "return": float}),
    ),
    "type hints": (
        lambda: float(typing.get_type_hints(documented)["b"] is float) + 1,
        setting(
            lambda: documented.__annotations__["b"], lambda x: documented.__annotations__.__setitem__("b", x), "int"
        ),
    ),
    "__defaults__": (lambda: documented.__defaults__[0], attribute(documented, "__defaults__", (5.0,))),
    "a default": (lambda: documented(3), attribute(documented, "__defaults__", (5.0,))),
    "signature": (
        lambda: len(inspect.signature(documented).parameters),
        setting(
            lambda: None,
            lambda x: setattr(documented, "__signature__", x) if x else delattr(documented, "__signature__"),
            inspect.signature(lambda a, b, c: 0),
        ),
    ),
    "getattr_static": (
        lambda: inspect.getattr_static(HELD, "weight", 2.0) + inspect.getattr_static(Held, "more", 1.0),
        setting(lambda: 2.0, lambda x: setattr(HELD, "weight", x), 5.0),
    ),
    "getattr_static of a class": (
        lambda: inspect.getattr_static(Held, "other", 2.0) + inspect.getattr_static(HELD, "other", 1.0),
        setting(lambda: None, lambda x: setattr(Held, "other", x) if x else delattr(Held, "other"), 5.0),
    ),
    "__doc__": (lambda: len(documented.__doc__ or ""), attribute(documented, "__doc__", "Something longer.")),
    "getdoc": (lambda: len(inspect.getdoc(documented) or ""), attribute(documented, "__doc__", "Something longer.")),
    "__name__": (lambda: len(documented.__name__), attribute(documented, "__name__", "another_name")),
}

# What nobody knows how to ask again, or may do something: the call runs as plain Python.
PLAINLY: dict[str, Row] = {
    "threading.enumerate": (lambda: len(threading.enumerate()), running),
    "csv.list_dialects": (lambda: len(csv.list_dialects()), dialect),
    "locale.setlocale": (
        lambda: len(locale.setlocale(locale.LC_NUMERIC)),
        setting(numeric, lambda x: locale.setlocale(locale.LC_NUMERIC, x), "C.UTF-8"),
    ),
    "csv.field_size_limit": (
        lambda: csv.field_size_limit() / 10,
        setting(csv.field_size_limit, csv.field_size_limit, 1000),
    ),
    "threading.stack_size": (
        lambda: threading.stack_size() + 1,
        setting(threading.stack_size, threading.stack_size, 1 << 20),
    ),
    "configparser.ConfigParser": (configured, written),
    "finalize": (lambda: float(HELD.finalizer.alive) + 1, finalized),
    "faulthandler.enable": (
        lambda: float(faulthandler.is_enabled() and not faulthandler.enable()) + 1,
        setting(faulthandler.is_enabled, lambda on: faulthandler.enable() if on else faulthandler.disable(), False),
    ),
}


def answers(f: Callable[..., Any], changed: Callable[[], AbstractContextManager[None]]) -> list[Any]:
    results = [f(X), f(X)]
    with changed():
        results += [f(X), f(X)]
    return [*results, f(X)]


def check(row: Row, mode: str) -> list[Any]:
    """That the answers are plain Python's; the warnings."""
    asked, changed = row

    def f(x: Any) -> Any:
        return x * asked()

    plain = answers(f if mode == "trace" else lambda x: np.full_like(x, asked()), changed)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        traced = answers(MODES[mode](f), changed)
    np.testing.assert_allclose(traced, plain, rtol=1e-12)
    return [x.message for x in told if issubclass(x.category, tg.PerformanceWarning)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ASKED)
def test_what_the_library_answers_is_asked_again(name: str, mode: str) -> None:
    assert check(ASKED[name], mode) == []


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", PLAINLY)
def test_what_is_not_known_of_the_library_runs_plainly_and_is_named(name: str, mode: str) -> None:
    told = check(PLAINLY[name], mode)
    assert len(told) == 1
    assert name in str(told[0])


@pytest.mark.parametrize("name", [*ASKED, *PLAINLY])
def test_each_row_changes_what_is_asked(name: str) -> None:
    asked, changed = (ASKED | PLAINLY)[name]
    before = asked()
    with changed():
        assert name in ("getrlimit", "faulthandler.enable") or asked() != before


ELEMENT, ARGUMENTS, ELEMENTS = typing.TypeVar("ELEMENT"), typing.ParamSpec("ARGUMENTS"), typing.TypeVarTuple("ELEMENTS")
ALONE = {
    "paths": lambda: len(os.path.join("a", os.path.basename("b/c"))) + len(os.path.splitext("a.b")[1]),
    "texts": lambda: len(string.capwords("a b")) + len(textwrap.dedent(" a")) + len(re.sub("a", "b", "aaa")),
    "json": lambda: json.loads(json.dumps([3.0]))[0],
    "platform": lambda: len(platform.system()),
    "url": lambda: len(urllib.parse.quote("a b")),
    "unicode": lambda: len(unicodedata.name("a")),
    "predicates": lambda: float(inspect.isfunction(documented)) + inspect.isclass(Held),
    "signature": lambda: inspect.signature(documented).bind(3).arguments["a"],
    "type variables": lambda: typing.cast(ELEMENT, 2.0) + len((ARGUMENTS, ELEMENTS)),
    "collect": lambda: gc.collect() * 0.0 + 1.0,
    "lock": lambda: float(threading.Lock().acquire()),
}


@pytest.mark.parametrize("name", ALONE)
def test_functions_of_their_arguments_are_compiled(name: str) -> None:
    asked: Any = ALONE[name]
    traced = tg.trace(lambda x: x * asked())
    with warnings.catch_warnings():
        warnings.simplefilter("error", tg.PerformanceWarning)
        np.testing.assert_allclose([traced(X), traced(X)], [X * asked()] * 2)


def test_a_validator_that_asks_for_the_signature_is_compiled_and_follows_the_function() -> None:
    def checked(f: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            bound = inspect.signature(f).bind(*args, **kwargs)
            bound.apply_defaults()
            for name, value in bound.arguments.items():
                if f.__annotations__.get(name) is float and not isinstance(value, float):
                    raise TypeError(name)
            return f(*bound.args, **bound.kwargs)

        return call

    def loss(x: Any, k=2.0) -> Any:  # type: ignore[no-untyped-def]
        return np.sum(x * x) * k

    loss.__annotations__["k"] = float
    derivative = tg.grad(checked(loss))
    with warnings.catch_warnings():
        warnings.simplefilter("error", tg.PerformanceWarning)
        np.testing.assert_allclose(derivative(X), 4 * X)
        loss.__defaults__ = (3.0,)
        np.testing.assert_allclose(derivative(X), 6 * X)
        with pytest.raises(TypeError, match="k"):
            derivative(X, 2)
        loss.__annotations__["k"] = int
        np.testing.assert_allclose(derivative(X, 2), 4 * X)


def test_a_traced_number_is_no_question_that_can_be_asked_again() -> None:
    def f(x: Any) -> Any:
        return x * len(locale.str(float(np.sum(x))))

    with pytest.warns(tg.PerformanceWarning, match="the answer of str"):
        np.testing.assert_allclose([tg.trace(f)(X), tg.trace(f)(X + 0.25)], [f(X), f(X + 0.25)])


def test_a_call_that_sleeps_or_starts_a_thread_does_so_each_time() -> None:
    done = []

    @tg.trace
    def f(x: Any) -> Any:
        thread = threading.Thread(target=done.append, args=(1,))
        thread.start()
        thread.join()
        return x * 2

    with pytest.warns(tg.PerformanceWarning, match=r"threading\.Thread"):
        f(X)
    f(X)
    assert done == [1, 1]


def test_the_tables_name_functions_and_classes_that_are_there() -> None:
    later = {"SetPointerType", "exception", "fatal", "uname"}  # not in all versions
    tables = (
        standard_library._FUNCTIONS,
        standard_library._REREAD_FUNCTIONS,
        standard_library._EXCEPTED,
        standard_library._CLASSES,
    )
    for module, names in [item for table in tables for item in table.items()]:
        if module != "os.path":
            module = {"threading": "_thread"}.get(module, module)
        held: Any = importlib.import_module(module)
        missing = [x for x in names.split() if not hasattr(held, x) and not hasattr(sys.modules["threading"], x)]
        assert set(missing) <= later, module
