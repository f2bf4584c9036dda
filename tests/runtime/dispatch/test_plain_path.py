"""Derivatives of calls that are not compiled: what a trace can do is done there too, once, and errors say why."""

from __future__ import annotations

import array
import ast
import cmath
import collections
import contextlib
import copy
import ctypes
import dataclasses
import decimal
import fractions
import functools
import io
import json
import math
import pickle
import random
import re
import statistics
import struct
import subprocess
import sys
import threading
import time
import tomllib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

import tracegrad as tg
from tracegrad.torch.tape.backward.functional import eager_vjp
from tracegrad.trace.values import tracer

X = np.array([0.3, 0.7, 1.1])
LOCK = threading.Lock()


@pytest.fixture(autouse=True)
def _quietly() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tg.PerformanceWarning)
        yield


def filled(x: Any) -> Any:
    z = np.zeros(3)
    z[0] = x[0] ** 2
    z[1:] += x[1:]
    return np.sum(z)


def in_place(x: Any) -> Any:
    x[0] *= x[1]
    return np.sum(x**2)


class Halved:
    def __init__(self, x: Any) -> None:
        self.x = np.array([x[0], 1.0, x[2]])

    def value(self) -> Any:
        return math.tanh(self.x[0] * self.x[2])


LINES: dict[str, Callable[[Any], Any]] = {
    "array": lambda x: np.sum(np.array([x[0], 1.0]) ** 2),
    "stack of a list": lambda x: np.sum([x[0] ** 2, x[1]]),
    "asarray": lambda x: np.sum(np.asarray([x, 2.0 * x]) ** 3),
    "filled": filled,
    "in place": lambda x: in_place(x.copy()),
    "math": lambda x: math.sin(x[0]) * math.hypot(x[1], x[2]),
    "float": lambda x: float(x[0]) ** 2 * float(x[1]),
    "item": lambda x: x[0].item() * sum(x.tolist()),
    "scipy.stats": lambda x: np.sum(norm.logpdf(x)),
    "scipy.special": lambda x: logsumexp(np.array([x[0], x[1] * x[2]])),
    "an object": lambda x: Halved(x).value(),
    "a mask": lambda x: np.sum(x[x > 0.5] ** 2),
    "a branch": lambda x: x[0] ** 2 if x[1] > 0.5 else x[2],
    "a loop": lambda x: sum(math.exp(v) * v for v in x),
    "max": lambda x: max(float(x[0]), float(x[1])) * x[2],
}


def locked(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def call(x: Any) -> Any:
        with LOCK:
            return f(x)

    return call


def caught(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def call(x: Any) -> Any:
        try:
            x.take(len(x) + 2)
        except IndexError:
            return f(x)
        return 0.0 * np.sum(x)

    return call


class Clock:
    """Its code is run by traced code that makes it."""

    def run(self, f: Callable[[Any], Any], x: Any) -> Any:
        begun = time.time()
        y = f(x)
        return y if time.time() >= begun else None


class Decides:
    """What its attributes mean, code of its own decides."""

    scale = 1.0

    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name)

    def run(self, f: Callable[[Any], Any], x: Any) -> Any:
        return f(x) * self.scale


DECIDES = Decides()
PLACES: dict[str, Callable[[Callable[[Any], Any]], Callable[[Any], Any]]] = {
    "behind a lock": locked,
    "after a caught error": caught,
    "beside a clock": lambda f: lambda x: Clock().run(f, x),
    "in an object that decides": lambda f: lambda x: DECIDES.run(f, x),
}


def differences(f: Callable[[Any], Any]) -> Any:
    return np.array([(f(X + d) - f(X - d)) / 2e-5 for d in 1e-5 * np.eye(3)])


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", LINES)
def test_a_derivative_that_is_not_compiled_is_that_of_differences(name: str, place: str) -> None:
    f = PLACES[place](LINES[name])
    want = differences(f)
    for _ in range(2):
        value, derivative = tg.value_and_grad(f)(X)
        np.testing.assert_allclose(value, f(X), rtol=1e-12)
        np.testing.assert_allclose(derivative, want, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("state", ["raise", "call"])
def test_where_numpy_is_to_raise_derivatives_are_what_they_are(name: str, state: Any) -> None:
    before = np.seterrcall(lambda *_: None)
    try:
        with np.errstate(all=state):
            np.testing.assert_allclose(tg.grad(LINES[name])(X), differences(LINES[name]), rtol=1e-7, atol=1e-9)
    finally:
        np.seterrcall(before)


@pytest.mark.parametrize("name", ["array", "filled", "math", "scipy.stats"])
def test_so_are_those_of_all_transforms(name: str) -> None:
    plain, f = LINES[name], locked(LINES[name])
    want, curve = tg.grad(plain)(X), tg.hessian(plain)(X)
    np.testing.assert_allclose(tg.jacrev(f)(X), want, rtol=1e-12)
    np.testing.assert_allclose(tg.jacfwd(f)(X), want, rtol=1e-12)
    np.testing.assert_allclose(tg.hessian(f)(X), curve, rtol=1e-12)
    np.testing.assert_allclose(tg.jvp(f, (X,), (np.ones(3),))[1], want.sum(), rtol=1e-12)
    np.testing.assert_allclose(tg.vjp(f, X)[1](2.0)[0], 2.0 * want, rtol=1e-12)
    np.testing.assert_allclose(tg.linearize(f, X)[1](np.ones(3)), want.sum(), rtol=1e-12)


class Model:
    def __init__(self) -> None:
        self.weight, self.calls = np.array([1.0, 2.0, 3.0]), 0

    def loss(self, x: Any) -> Any:
        self.calls += 1
        z = np.zeros(3)
        z[0] = math.sin(x[0]) * self.weight[1]
        return np.sum(z * self.weight)


def test_an_object_among_the_arguments_is_that_object() -> None:
    model = Model()
    derivative = tg.grad(Model.loss, argnums=1)
    for calls in (1, 2):
        np.testing.assert_allclose(derivative(model, X), [2.0 * math.cos(X[0]), 0.0, 0.0], rtol=1e-12)
        assert model.calls == calls
        assert type(model.weight) is np.ndarray


def test_what_such_a_call_does_it_does_once_up_to_its_error() -> None:
    log: list[Any] = []
    place, counts = np.zeros(2), {"n": 0}

    def f(x: Any, k: int) -> Any:
        with LOCK:
            counts["n"] += 1
            log.append(float(x[0]))
            place[1] = x[1]
            if k == 7:
                raise KeyError("seven", x[1])
            return x[k] ** 2

    derivative = tg.grad(f)
    for n, (k, error) in enumerate([(7, KeyError), (9, IndexError), (1, None), (7, KeyError)], 1):
        place[:] = 0.0
        if error is None:
            np.testing.assert_allclose(derivative(X, k), [0.0, 2 * X[1], 0.0])
        else:
            with pytest.raises(error) as raised:
                derivative(X, k)
            assert error is IndexError or raised.value.args == ("seven", X[1])
        assert log == [X[0]] * n
        assert all(type(x) is float for x in log)
        assert counts == {"n": n}
        assert place.tolist() == [0.0, X[1]]
        assert not LOCK.locked()


def test_files_are_written_and_clocks_and_random_numbers_read_once(tmp_path: Path) -> None:
    path = tmp_path / "log"

    def f(x: Any) -> Any:
        with path.open("a") as log:
            log.write(f"{x[0]:.1f}\n")
        np.save(tmp_path / "x.npy", x)
        return np.sum(np.array([x[0], 1.0]) ** 2) * random.random()

    for n in (1, 2):
        random.seed(5)
        factor = random.Random(5).random()
        np.testing.assert_allclose(tg.grad(f)(X), [2 * X[0] * factor, 0.0, 0.0], rtol=1e-12)
        assert path.read_text() == "0.3\n" * n
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), X)


def test_an_error_there_says_why_the_call_is_not_compiled() -> None:
    f = locked(lambda x: np.sum(x) * math.nextafter(x[0], 7.0))
    with pytest.raises(
        tg.LostDerivativeError, match=r"nextafter takes .*py:\d+\).*plain Python, because .*lock.*py:\d+"
    ):
        tg.grad(f)(X)


@pytest.mark.filterwarnings("ignore::tracegrad.PerformanceWarning")
def test_a_fault_of_tracegrads_own_is_told_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(tracer, "cast")
    f = tg.trace(lambda x: float(x) * 2)
    assert f(np.float32(3.0)) == 6.0
    told = str(f.explain(np.float32(3.0)))
    assert re.search(r"NameError: name 'cast' .*, which is an internal error of tracegrad: .* \(.*py:\d+\)", told)


@pytest.mark.filterwarnings("ignore::tracegrad.PerformanceWarning")
@pytest.mark.parametrize(
    "f",
    [
        lambda x: missing * x,  # type: ignore[name-defined]  # noqa: F821
        lambda x: {"a": x}["b"],
        lambda x: {}[x],
        lambda x: [x].nothing,  # type: ignore[attr-defined]
        lambda x: tg.tensor(x).nothing,
        lambda x: np.testing.assert_array_equal(x, 7.0),
    ],
)
def test_errors_of_the_users_are_not_told_as_tracegrads(f: Any) -> None:
    traced = tg.trace(f)
    with pytest.raises(Exception) as plain:  # noqa: PT011 whatever it is
        f(1.0)
    with pytest.raises(plain.type):
        traced(1.0)
    told = str(traced.explain(1.0))
    assert f"tracing it raised {plain.type.__name__}" in told
    assert "internal error" not in told


LABELS = {0.3: "low", 0.7: "high"}
MEMO: dict[Any, Any] = {0.3: 0.027, (0.3, 2): 0.027, "0.3": 0.027}
DEFAULT = collections.defaultdict(float, {0.3: 0.027})


def executed(text: str) -> Any:
    space: dict[str, Any] = {}
    exec(text, space)
    return space["y"]


def printed(x: Any) -> str:
    file = io.StringIO()
    with contextlib.redirect_stdout(file):
        print(x)  # noqa: T201
    return file.getvalue()


def saved(x: Any) -> Any:
    file = io.BytesIO()
    np.save(file, x)
    file.seek(0)
    return np.load(file)


def answered(text: str) -> str:
    return subprocess.run([sys.executable, "-S", "-c", text], check=True, capture_output=True, text=True).stdout


def remembered(key: Any, memo: dict[Any, Any]) -> Any:
    if key not in memo:
        memo[key] = key**3
    return memo[key]


@functools.cache
def cube_of_text(text: str) -> float:
    return float(text) ** 3


def by_digits(text: str) -> float:
    result = 0.0
    for digit in text.replace(".", ""):
        result = 10.0 * result + (ord(digit) - ord("0"))
    return result


LOSING: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "pickle": ("pickling", lambda x: pickle.loads(pickle.dumps(x**2)).sum()),
    "pickle of a number": ("pickling", lambda x: pickle.loads(pickle.dumps(float(x[0])))),
    "struct": (r"float\(\)", lambda x: struct.unpack("d", struct.pack("d", x[0]))[0]),
    "array": (r"float\(\)|C code", lambda x: array.array("d", [x[0]])[0]),
    "ctypes": (r"float\(\)", lambda x: ctypes.c_double(float(x[0])).value),
    "str": ("float of a text", lambda x: float(str(x[0]))),
    "an f-string": ("float of a text", lambda x: float(f"{x[0] / 3}")),
    "%": ("float of a text", lambda x: float("%.17g" % x[0])),  # noqa: UP031
    "% of a dict": ("float of a text", lambda x: float("%(v)s" % {"v": x[0]})),  # noqa: UP031
    "a part of a text": ("float of a text", lambda x: float(f"at {x[0]} of 1".split()[1])),
    "another sign": ("float of a text", lambda x: float("-" + str(x[0]))),
    "mapped": ("float64 of a text", lambda x: sum(map(np.float64, [str(v) for v in x]))),
    "a complex number": ("complex of a text", lambda x: complex(str(x[0])).real),
    "an array": ("fromstring of a text", lambda x: np.fromstring(str(x).strip("[]"), sep=" ").sum()),
    "eval": ("eval of a text", lambda x: eval(f"{float(x[0])} * 2 + 1")),
    "exec": ("exec of a text", lambda x: executed(f"y = {float(x[0])} * 2")),
    "json": ("loads of a text", lambda x: json.loads(json.dumps({"all": x.tolist()}))["all"][0]),
    "hex": (r"hex\(\)", lambda x: float.fromhex(float(x[0]).hex())),
    "a decimal number of a text": ("Decimal of a text", lambda x: float(decimal.Decimal(str(x[0])) * 2)),
    "a fraction of a text": ("Fraction of a text", lambda x: float(fractions.Fraction(f"{x[0]}") * 2)),
    "print": ("float of a text", lambda x: float(printed(x[0]))),
    "a file": ("numpy.load of what was written", lambda x: saved(x**2).sum()),
    "another process": ("subprocess.run of a text", lambda x: float(answered(f"print({x[0]} * 2)"))),
    "a parser": ("what reads a text", lambda x: tomllib.loads(f"y = {np.sin(x[0])}")["y"]),
    "bits": (r"view\(float64\)", lambda x: (x.view(np.int64) + 1).view(np.float64).sum()),
    "a memo dict": ("a dict .* asked", lambda x: remembered(float(x[0]), MEMO)),
    "a memo of tuples": ("a dict .* asked", lambda x: remembered((float(x[0]), 2), MEMO)),
    "a memo of texts": ("a dict .* asked", lambda x: remembered(f"{x[0]}", MEMO)),
    "a memo with a default": ("a dict .* asked", lambda x: DEFAULT[float(x[0])]),
    "a cache of texts": ("float of a text", lambda x: cube_of_text(str(x[0]))),
    "literal_eval": ("literal_eval of a text", lambda x: ast.literal_eval(repr(float(x[0])))),
    "a fraction": ("as_integer_ratio", lambda x: float(fractions.Fraction(float(x[0])))),
    "decimal": (r"float\(\)", lambda x: float(decimal.Decimal(float(x[0])))),
    "cmath": (r"complex\(\)", lambda x: cmath.exp(x[0]).real),
    "statistics": ("mode", lambda x: statistics.mode([float(v) for v in x])),
    "several numbers of statistics": ("multimode", lambda x: statistics.multimode(x)[0]),
    "digits": ("what reads a text", lambda x: by_digits(str(np.sin(x[0])))),
    "whole numbers of digits": ("what reads a text", lambda x: int(str(np.sin(x[0])).replace(".", "")) * x[1]),
    "digits behind the point": ("what reads a text", lambda x: int(str(np.sin(x[0]) + 3.0).split(".")[1]) * x[1]),
}


@pytest.mark.parametrize("name", LOSING)
@pytest.mark.parametrize("place", ["compiled", "behind a lock"])
@pytest.mark.parametrize("transform", [tg.grad, tg.jacfwd], ids=["grad", "jacfwd"])
def test_what_loses_a_derivative_is_named(name: str, place: str, transform: Any) -> None:
    taken_by, f = LOSING[name]
    with pytest.raises(tg.LostDerivativeError, match=rf"{taken_by}.*stop_gradient.*test_plain_path\.py:\d+"):
        transform(PLACES[place](f) if place in PLACES else f)(X)


TELLING: dict[str, Callable[[Any], Any]] = {
    "json": lambda x: json.dumps({"x": float(x[0]), "all": x.tolist()}),
    "str": lambda x: (str(x), repr(x[0]), f"{x[1]:.3f}", "%g" % x[2]),  # noqa: UP031
    "rounded": lambda x: float(f"{x[0] / 3:.3f}"),
    "digits of what is rounded": lambda x: [int(part) for part in f"{x[0] / 3:.4f}".split(".")],
    "a first digit": lambda x: (int(str(x[0] + 3.0)[0]), len(str(x))),
    "another text": lambda x: (str(x[0]), float("0.25"), ast.literal_eval("[1.5]")),
    "formats that round": lambda x: (float("%.3f" % x[0]), float(f"{x[1]:>12.4e}")),  # noqa: UP031
    "formats in a message": lambda x: f"at {x}, {x[0]!r}: {x[1]:.17g}" + "%r" % x[2],  # noqa: UP031
    "constants": lambda x: [f"{c * x[0] / 0.3}" for c in (1 / 3, 0.7, math.pi / 6, math.sqrt(0.5), 1e6)],
    "printed": lambda x: printed(x),
    "other decimal numbers": lambda x: (str(x[0]), decimal.Decimal("0.1"), isinstance(1, decimal.Decimal)),
    "code that reads it": lambda x: eval("x[0] * 2", {"x": x}),
    "a key that is absent": lambda x: remembered(float(x[0]), {0.4: 1.0}),
    "a key that is there": lambda x: (x[0] in {0.3: 1.0}, LABELS[float(x[0])]),
    "compared": lambda x: (x > 0.5, math.isclose(x[0], x[1]), x[0] in (1.0, 2.0)),
    "copied": lambda x: copy.deepcopy(x),
}


@pytest.mark.parametrize("name", TELLING)
@pytest.mark.parametrize("place", ["compiled", "behind a lock"])
def test_what_only_tells_of_values_loses_nothing(name: str, place: str) -> None:
    def f(x: Any) -> Any:
        TELLING[name](x)
        others = [0.3, 1 / 3, 0.7, math.pi / 6, math.sqrt(0.5), 1e6]
        return np.sum(x**2) + sum([c * 0.0 * x[0] for c in others])

    np.testing.assert_allclose(tg.grad(PLACES[place](f) if place in PLACES else f)(X), 2 * X)


def test_a_copy_on_the_tape_has_the_derivative() -> None:
    for copied in (copy.copy, copy.deepcopy):
        _, pullback = eager_vjp(lambda x, copied=copied: [copied(x) ** 2], [X])
        np.testing.assert_allclose(pullback([np.ones(3)])[0], 2 * X)


def test_a_derivative_that_is_lost_where_memory_is_shared_says_so() -> None:
    grid = np.zeros((2, 3))
    row = grid.view(np.int64)[0]

    def f(x: Any) -> Any:
        row[1] = 3
        return np.sum(x * grid[0]) * float(x[1])

    why = "the call runs as plain Python, because .*row, which it writes to, shares memory"
    for transform in (tg.grad, lambda f: lambda x: tg.jvp(f, (x,), (np.ones(3),))):
        with pytest.raises(tg.LostDerivativeError, match=why):
            transform(f)(X)
        with tg.disable_jit(), pytest.raises(tg.LostDerivativeError, match=why):
            transform(f)(X)


class Memory:
    last: Any = None
    value: Any = None


def _at_once(memory: Memory, x: Any) -> Any:
    if memory.last is not None and np.array_equal(x, memory.last):
        return memory.value
    memory.last, memory.value = x.copy(), np.sum(x**2)
    return memory.value


def _first_filled(memory: Memory, x: Any) -> Any:
    if memory.last is None or not (x == memory.last).all():
        memory.last, memory.value = x.copy(), np.sum(x**2)
    return memory.value * 2.0


@pytest.mark.parametrize("eager", [False, True], ids=["compiled", "eager"])
@pytest.mark.parametrize("remembering", [_at_once, _first_filled])
def test_a_result_that_is_remembered_for_an_equal_array_loses_its_derivative(remembering: Any, eager: bool) -> None:
    memory = Memory()
    gradient = tg.grad(lambda x: remembering(memory, x))
    with tg.disable_jit() if eager else contextlib.nullcontext():
        first = gradient(X)
        with pytest.raises(tg.LostDerivativeError, match=r"remembered .*stop_gradient"):
            gradient(X)
        np.testing.assert_allclose(gradient(X + 1.0) / (X + 1.0), first / X)


def test_a_branch_on_equality_that_depends_on_the_argument_keeps_its_derivative() -> None:
    origin = np.zeros(3)

    def f(x: Any) -> Any:
        return np.sum(x) if np.array_equal(x, origin) else np.sum(np.sin(x) / x)

    np.testing.assert_array_equal(tg.grad(f)(origin), np.ones(3))
    np.testing.assert_array_equal(tg.grad(lambda x: 1.0 if x == 0.0 else np.sin(x) / x)(0.0), 0.0)


def _scaled_by_class(x: Any) -> Any:
    ROW[1] = 0.5
    return np.sum(x * GRID[0]) * (2.0 if type(x) is np.ndarray else 3.0)


def _scaled_by_bytes(x: Any) -> Any:
    BYTES[1] = 3
    return np.sum(x * GRID[0]) * (2.0 if type(x) is np.ndarray else 3.0)


def _scaled_by_kind(x: Any) -> Any:
    ROW[1] = 0.5
    return np.sum(x * GRID[0]) * (2.0 if isinstance(x, np.ndarray) else 3.0)


GRID = np.zeros((2, 3))
ROW = GRID[0]
BYTES = GRID.view(np.int64)[0]


@pytest.mark.parametrize("jit", [True, False])
def test_where_memory_is_shared_the_class_of_a_value_is_that_of_python_or_refused_by_name(jit: bool) -> None:
    with contextlib.nullcontext() if jit else tg.disable_jit():
        for transform in (tg.grad, lambda f: lambda x: tg.jvp(f, (x,), (np.ones(3),))[1] * np.array([0.0, 1.0, 0.0])):
            for function in (_scaled_by_class, _scaled_by_kind):
                np.testing.assert_array_equal(transform(function)(X), [0.0, 1.0, 0.0])
            with pytest.raises(
                tg.UnsupportedError, match=r"type\(\) .* ask isinstance.*BYTES, which it writes to, shares"
            ):
                transform(_scaled_by_bytes)(X)


def _shows_its_key(key: Any) -> Any:
    """A function whose class is one of its own, as each call of a factory has it."""

    @dataclasses.dataclass(frozen=True)
    class Key:
        k: float

    known, keys = {Key(1.0): 3.0}, [Key(key)]

    def f(x: Any) -> Any:
        return (x * known.get(keys[0], Key(4.0).k)).sum(), repr(keys[0]).rpartition("<locals>.")[2]

    return f


def test_functions_of_a_factory_show_objects_of_their_own_classes() -> None:
    for key, scale in ((1.0, 3.0), (2.0, 4.0), (1.0, 3.0)):
        for transform in (tg.value_and_grad, lambda f, **how: tg.disable_jit()(tg.value_and_grad(f, **how))):
            (value, shown), gradient = transform(_shows_its_key(key), has_aux=True)(X)
            assert (value, shown) == (pytest.approx(scale * X.sum()), f"Key(k={key})")
            np.testing.assert_array_equal(gradient, np.full(3, scale))


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("end", ["known['no key']", "unknown_name", "next(iter([]))", "[][2]", "(1 // 0)"])
def test_what_a_call_has_written_stays_written_where_python_raises(jit: bool, end: str) -> None:
    space: dict[str, Any] = {"grid": np.zeros((2, 3)), "known": {}}
    exec(f"def f(x):\n    grid[0] = x\n    return grid.sum() * {end}", space)
    try:
        space["f"](X)
    except Exception as error:
        wanted = error
    gradient = tg.grad(space["f"])
    space["grid"][:] = 0.0
    with pytest.raises(type(wanted)) as raised:
        (gradient if jit else tg.disable_jit()(gradient))(X)
    assert raised.value.args == wanted.args
    np.testing.assert_array_equal(space["grid"][0], X)


class _Picky:
    """An index that can be compared with its like only."""

    def __index__(self) -> int:
        return 1

    def __eq__(self, other: Any) -> bool:
        return bool(other.own)

    __hash__ = None  # type: ignore[assignment]


def test_an_index_of_the_users_is_not_compared() -> None:
    x = tg.tensor(np.arange(3.0), requires_grad=True)
    x[_Picky()].backward()
    np.testing.assert_array_equal(x.grad.numpy(), [0.0, 1.0, 0.0])
    np.testing.assert_array_equal(tg.disable_jit()(tg.grad(lambda x: x[_Picky()] * 2.0))(X), [0.0, 2.0, 0.0])


@pytest.mark.parametrize("n", [3, 40])
def test_a_result_that_a_loop_finds_among_those_remembered_loses_its_derivative(n: int) -> None:
    keys = [X + k for k in range(n)]
    values = np.array([float(np.sum(x**2)) for x in keys])

    def f(x: Any) -> Any:
        for k in range(n):
            if np.array_equal(x, keys[k]):
                return values[k]
        return np.sum(x**2)

    gradient = tg.grad(f)
    with pytest.raises(tg.LostDerivativeError, match=r"remembered .*stop_gradient"):
        gradient(keys[2])
    np.testing.assert_allclose(gradient(X + 0.5), 2 * (X + 0.5))


def _last_of_dict() -> Any:
    last: dict[str, Any] = {"x": None, "y": None}

    def f(x: Any) -> Any:
        if last["x"] is not None and np.array_equal(last["x"], x):
            y = last["y"]
        else:
            y = (x**2).sum()
            last["x"], last["y"] = x, y
        return y + x.sum()

    return f


def _last_of_class() -> Any:
    class Last:
        x = None
        y = None

    def f(x: Any) -> Any:
        if Last.x is not None and np.allclose(Last.x, x):
            y = Last.y
        else:
            y = x**2
            Last.x, Last.y = x, y
        return (y + x).sum()

    return f


def _pairs() -> Any:
    pairs: list[Any] = []

    def f(x: Any) -> Any:
        for known, y in pairs:
            if np.array_equal(known, x):
                return (y * x).sum()
        y = x**2
        pairs.append((x, y))
        return (y * x).sum()

    return f


def _last_number() -> Any:
    class Last:
        pass

    last = Last()
    last.x, last.y = 0.0, 0.0  # type: ignore[attr-defined]

    def f(x: Any) -> Any:
        if x[0] == last.x:  # type: ignore[attr-defined]
            y = last.y  # type: ignore[attr-defined]
        else:
            y = x[0] ** 3
            last.x, last.y = x[0], y  # type: ignore[attr-defined]
        return y + x.sum()

    return f


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("make", [_last_of_dict, _last_of_class, _pairs, _last_number])
def test_a_part_of_the_result_that_is_remembered_loses_its_derivative(make: Any, jit: bool) -> None:
    f = make()
    gradient = tg.grad(f) if jit else tg.disable_jit()(tg.grad(f))
    fresh, x = make(), np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(gradient(x), tg.grad(fresh)(x))
    for _ in range(2):
        with pytest.raises(tg.LostDerivativeError, match="remembered for these elements"):
            gradient(x)
    np.testing.assert_allclose(gradient(2 * x), tg.grad(make())(2 * x))


def test_a_state_that_a_function_goes_on_from_is_not_remembered() -> None:
    class State:
        m = np.zeros(3)
        least = np.inf

    def f(x: Any) -> Any:
        State.m = 0.9 * State.m + 0.1 * x
        loss = (State.m * x).sum()
        if loss < State.least:
            State.least = loss
        return loss if x[0] > 0.0 else loss * 2

    x, m = np.array([1.0, -2.0, 3.0]), np.zeros(3)
    for _ in range(3):
        np.testing.assert_allclose(tg.grad(f)(x), 0.9 * m + 0.2 * x)
        m = 0.9 * m + 0.1 * x
