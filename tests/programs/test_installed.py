"""Whose code it is does not depend on where it lies: one source as an installed package, in a zip file, in no file.

The truth is plain Python's value and a derivative by hand.
"""

from __future__ import annotations

import importlib
import sys
import types
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad import nn, settings
from tracegrad.trace.sources.code_origin import is_user_class, is_user_code, is_user_file, is_user_function

SOURCE = """
import collections
import dataclasses
import functools
import math

import numpy as np

STATE = {"rate": 1.0}
RATE = 1.0
REGISTRY = {}
calls = []

def with_array(x):
    return np.sum(np.array([x[0], 2.0 * x[1]]) ** 2)

def with_asarray(x):
    return np.sum(np.asarray(x, dtype=float) ** 2)

def with_store(x):
    z = np.zeros(2)
    z[0] = x[0] ** 2
    z[1] = x[1]
    return np.sum(z)

def with_math(x):
    return math.exp(x[0]) * x[1]

def with_float(x):
    return float(x[0]) * x[1]

def with_fill(x):
    return np.sum(np.full(2, x[0]) * x)

def with_branch(x):
    return x[0] ** 2 if x[0] > 0 else x[1]

def scaled(x):
    calls.append(1)
    return np.sum(x) * STATE["rate"] * RATE

def registered(x):
    return REGISTRY["current"](x)

def power(p):
    def loss(x):
        return np.sum(x ** p)
    return loss

def bare(fun):
    def wrapper(*args):
        return 2.0 * fun(*args)
    return wrapper

def wrapped(fun):
    @functools.wraps(fun)
    def wrapper(*args):
        return 2.0 * fun(*args)
    return wrapper

@functools.lru_cache
def exponent(name):
    return STATE[name]

def cached(x):
    return np.sum(x ** exponent("exponent"))

@dataclasses.dataclass
class Model:
    p: float

    def loss(self, x):
        return np.sum(x ** self.p)

Pair = collections.namedtuple("Pair", "a b")
"""

_X = np.array([1.5, 2.0])
_GRADIENTS = {
    "with_array": [3.0, 16.0],
    "with_asarray": [3.0, 4.0],
    "with_store": [3.0, 1.0],
    "with_math": [2.0 * np.exp(1.5), np.exp(1.5)],
    "with_float": [2.0, 1.5],
    "with_fill": [5.0, 1.5],
    "with_branch": [3.0, 0.0],
}


def _import(folder: Path, name: str) -> types.ModuleType:
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))


def installed(tmp_path: Path, name: str, source: str) -> types.ModuleType:
    """The source as a package in a folder of installed ones."""
    folder = tmp_path / "lib" / "site-packages"
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(source)
    return _import(folder, name)


def zipped(tmp_path: Path, name: str, source: str) -> types.ModuleType:
    with zipfile.ZipFile(tmp_path / "packages.zip", "w") as file:
        file.writestr(f"{name}.py", source)
    return _import(tmp_path / "packages.zip", name)


def mine(tmp_path: Path, name: str, source: str) -> types.ModuleType:
    (tmp_path / f"{name}.py").write_text(source)
    return _import(tmp_path, name)


def executed(_: Path, name: str, source: str) -> types.ModuleType:
    """The source in no file, as a notebook's."""
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, f"<{name}>", "exec"), module.__dict__)
    return module


@pytest.fixture(params=[mine, installed, zipped, executed])
def package(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    place: Callable[..., Any] = request.param
    name = f"placed_{place.__name__}"
    yield place(tmp_path, name, SOURCE)
    sys.modules.pop(name)


@pytest.mark.parametrize("name", _GRADIENTS)
def test_code_has_the_same_derivative_wherever_it_lies(package: Any, name: str) -> None:
    fun = getattr(package, name)
    np.testing.assert_allclose(tg.grad(fun)(_X), _GRADIENTS[name])
    np.testing.assert_allclose(tg.grad(lambda x: fun(x))(_X), _GRADIENTS[name])
    np.testing.assert_allclose(tg.trace(fun)(_X), fun(_X))
    columns = [tg.jvp(fun, (_X,), (each,))[1] for each in np.eye(2)]
    np.testing.assert_allclose(columns, _GRADIENTS[name])


def test_what_a_module_holds_is_read_at_each_call(package: Any) -> None:
    gradient = tg.grad(package.scaled)
    for rate in (1.0, 2.0, 3.0):
        package.STATE["rate"] = rate
        np.testing.assert_array_equal(gradient(_X), [rate, rate])
    package.RATE = 10.0
    np.testing.assert_array_equal(gradient(_X), [30.0, 30.0])


def test_what_code_writes_is_repeated(package: Any) -> None:
    f = tg.trace(package.scaled)
    for _ in range(3):
        f(_X)
    assert package.calls == [1, 1, 1]


def test_a_registry_is_asked_again(package: Any) -> None:
    gradient = tg.grad(package.registered)
    for p in (1.0, 2.0, 3.0):
        package.REGISTRY["current"] = package.power(p)
        np.testing.assert_allclose(gradient(_X), p * _X ** (p - 1))


def test_closures_of_equal_code_have_each_its_own_derivative(package: Any) -> None:
    for p in (1.0, 2.0, 3.0, 4.0):
        np.testing.assert_allclose(tg.grad(package.power(p))(_X), p * _X ** (p - 1))
        np.testing.assert_allclose(tg.grad(package.Model(p).loss)(_X), p * _X ** (p - 1))


@pytest.mark.parametrize("name", ["bare", "wrapped"])
def test_what_a_decorator_makes_has_the_derivative_of_its_function(package: Any, name: str) -> None:
    decorator = getattr(package, name)
    for p in (1.0, 2.0, 3.0, 4.0):
        np.testing.assert_allclose(tg.grad(decorator(lambda x, p=p: np.sum(x**p)))(_X), 2.0 * p * _X ** (p - 1))


def test_a_cached_function_of_a_package_does_not_end_the_trace(package: Any) -> None:
    package.STATE["exponent"] = 3.0
    gradient = tg.grad(package.cached)
    for _ in range(2):
        np.testing.assert_allclose(gradient(_X), 3.0 * _X**2)
    assert gradient.cache_info().traces == 1


def test_classes_are_the_users_wherever_they_lie(package: Any) -> None:
    assert is_user_class(package.Model)
    assert is_user_code(package.Pair)
    assert is_user_function(package.Model.__init__)  # made as text


def test_code_of_python_numpy_scipy_and_numba_is_not_the_users() -> None:
    scipy = importlib.import_module("scipy.optimize")
    for module in (importlib.import_module("json.decoder"), np.lib, scipy, importlib.import_module("numba"), nn):
        assert is_user_file(str(module.__file__)) == (module is nn)
    assert is_user_file(str(pytest.__file__))


def test_classes_in_c_are_nobodys() -> None:
    trees = importlib.import_module("sklearn.tree._tree")
    assert not is_user_code(trees.Tree)


def test_a_fitted_model_of_a_package_answers_as_in_python() -> None:
    scaler = importlib.import_module("sklearn.preprocessing").StandardScaler().fit(np.array([[1.0, 2.0], [2.0, 5.0]]))

    def f(x: Any) -> Any:
        return scaler.transform(x.reshape(1, 2)).sum()

    for k in range(3):
        np.testing.assert_allclose(tg.trace(f)(_X + k), f(_X + k))
        np.testing.assert_allclose(tg.grad(f)(_X + k), 1 / scaler.scale_)


@pytest.mark.parametrize("mode", ["ALWAYS", "IF_NEEDED", "NEVER"])
def test_copies_are_made_as_packages_for_several_versions_of_numpy_ask(mode: str) -> None:
    copy = getattr(getattr(np, "_CopyMode", None), mode, None)
    if copy is None:
        pytest.skip("this NumPy has no such modes")

    def f(x: Any) -> Any:
        np.array(x, copy=copy)[0] = 5.0
        return np.sum(x**2)

    there, here = _X.copy(), _X.copy()
    assert tg.trace(f)(here) == f(there)
    np.testing.assert_array_equal(here, there)


# -- programs that functions share -------------------------------------------------------------------------------------
def test_functions_that_a_decorator_of_tracegrads_made_have_each_its_own_program() -> None:
    for _ in range(2):
        for name in ("sin", "cos", "exp", "sqrt", "tanh"):
            got = tg.vmap(getattr(tg, name))(tg.tensor(_X))
            np.testing.assert_allclose(got.numpy(), getattr(np, name)(_X))
        for name, expected in (("sum", [1, 1]), ("prod", [2, 1.5]), ("mean", [0.5, 0.5]), ("amax", [0, 1])):
            np.testing.assert_allclose(tg.grad(getattr(tg, name))(_X), expected)


def test_closures_of_the_users_share_their_programs() -> None:
    def power(p: float) -> Callable[[Any], Any]:
        return lambda x: np.sum(x**p)

    gradients = [tg.grad(power(p)) for p in (2.0, 2.0, 2.0)]
    for gradient in gradients:
        np.testing.assert_allclose(gradient(_X), 2.0 * _X)
    assert gradients[-1].cache_info().hits == 1  # of what the second has traced: the first keeps its own


def test_an_error_names_the_line_of_the_package_and_that_of_the_user(tmp_path: Path) -> None:
    source = (
        "import numpy as np\n\ndef inner(x):\n    return np.reshape(x, (3, 5))\n\ndef outer(x):\n    return inner(x)\n"
    )
    package: Any = installed(tmp_path, "placed_lines", source)
    try:
        with pytest.raises(tg.TracegradError, match=r"placed_lines/__init__\.py:4.*test_installed\.py:\d+"):
            tg.grad(lambda x: package.outer(x))(_X)
    finally:
        sys.modules.pop("placed_lines")


# -- packages that are not to be traced -------------------------------------------------------------------------------
@pytest.mark.filterwarnings("ignore::tracegrad.PerformanceWarning")
def test_an_opaque_package_is_called_plainly_and_refuses_derivatives(tmp_path: Path) -> None:
    name = "placed_opaque"
    package: Any = installed(tmp_path, name, SOURCE)
    before = settings.opaque_packages
    try:
        tg.opaque(name)
        f = tg.trace(lambda x: package.scaled(x) + package.Model(2.0).loss(x))
        for rate in (1.0, 2.0, 3.0):
            package.STATE["rate"] = rate
            np.testing.assert_allclose(f(_X), rate * _X.sum() + np.sum(_X**2))
        assert package.calls == [1, 1, 1]
        for fun in (package.scaled, lambda x: package.with_float(x)):
            with pytest.raises(tg.LostDerivativeError, match=r"placed_opaque, which is opaque.*stop_gradient"):
                tg.grad(fun)(_X)
        saved = tg.grad(lambda x: np.sum(x) * package.with_float(tg.stop_gradient(x)))
        np.testing.assert_allclose(saved(_X), [3.0, 3.0])
        assert not is_user_class(package.Model)
    finally:
        settings.opaque_packages = before
        sys.modules.pop(name)


@pytest.mark.filterwarnings("ignore::tracegrad.PerformanceWarning")
def test_pandas_is_opaque_without_being_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pandas", raising=False)
    package: Any = installed(tmp_path, "pandas", SOURCE)
    try:
        f = tg.trace(lambda x: package.scaled(x))
        for rate in (1.0, 2.0):
            package.STATE["rate"] = rate
            np.testing.assert_allclose(f(_X), rate * _X.sum())
        with pytest.raises(tg.TraceError, match="pandas, which is opaque"):
            tg.grad(package.scaled)(_X)
        result = tg.trace(lambda x: package.Model(2.0).loss(x))
        np.testing.assert_allclose(result(_X), np.sum(_X**2))
    finally:
        sys.modules.pop("pandas")


def test_code_that_compares_with_a_class_of_an_opaque_package_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "pandas", raising=False)
    package: Any = installed(tmp_path, "pandas", SOURCE)
    try:

        def f(x: Any) -> Any:
            if isinstance(x, package.Model) or type(x) is package.Model or issubclass(type(x), (package.Model, int)):
                x = x.rate
            return np.sum(x**2)

        g = tg.grad(f)
        for k in range(3):
            np.testing.assert_allclose(g(_X + k), 2 * (_X + k))
        assert g.cache_info().traces == 1
    finally:
        sys.modules.pop("pandas")


STATEFUL = """
import functools

RATE = 2.0
STATE = {"k": 1.0}
calls = []

class Model:
    k = 3.0
    def __init__(self, k):
        self.k = k
    def __call__(self, x):
        return x * self.k * RATE
    @property
    def rate(self):
        return self.k * STATE["k"]
    @staticmethod
    def static(x):
        return x * RATE
    @classmethod
    def of_class(cls, x):
        return x * cls.k

def scaled(x):
    calls.append(x)
    return x * RATE * STATE["k"]

@functools.lru_cache
def cached(n):
    return n * RATE

partly = functools.partial(scaled)
model = Model(2.0)
bound = model.__call__
"""
READERS: dict[str, Callable[[Any, Any], Any]] = {
    "a number": lambda p, x: x * p.RATE,
    "an item": lambda p, x: x * p.STATE["k"],
    "a function": lambda p, x: x * p.scaled(2.0),
    "a partial function": lambda p, x: x * p.partly(2.0),
    "a cache": lambda p, x: x * p.cached(2),
    "an object": lambda p, x: x * p.model(2.0),
    "a property": lambda p, x: x * p.model.rate,
    "a static method": lambda p, x: x * p.Model.static(1.0),
    "a class method": lambda p, x: x * p.Model.of_class(1.0),
    "a new object": lambda p, x: x * p.Model(4.0)(1.0),
    "a bound method": lambda p, x: x * p.bound(1.0),
    "an attribute of a class": lambda p, x: x * p.Model.k,
    "a function for map": lambda p, x: x * sum(map(p.scaled, [1.0, 2.0])),
}


@pytest.mark.filterwarnings("ignore::tracegrad.PerformanceWarning")
@pytest.mark.parametrize("opaque", [True, False])
@pytest.mark.parametrize("name", READERS)
def test_state_that_a_package_reads_is_that_of_each_call(tmp_path: Path, name: str, opaque: bool) -> None:
    package: Any = installed(tmp_path, "placed_state", STATEFUL)
    read = READERS[name]
    try:
        with settings.override(opaque_packages=frozenset({"placed_state"} if opaque else ())):
            value, derivative = tg.trace(lambda x: read(package, x)), tg.grad(lambda x: np.sum(read(package, x)))
            changes: list[Callable[[], Any]] = [
                lambda: None,
                lambda: vars(package).update(RATE=5.0),
                lambda: package.STATE.update(k=7.0),
                lambda: setattr(package.Model, "k", 4.0),
                lambda: setattr(package.model, "k", 9.0),
            ]
            for change in changes:
                change()
                package.cached.cache_clear()
                before = len(package.calls)
                expected = read(package, _X)
                done = len(package.calls) - before
                np.testing.assert_allclose(value(_X), expected)
                np.testing.assert_allclose(derivative(_X), expected / _X)
                assert len(package.calls) - before == 3 * done
    finally:
        sys.modules.pop("placed_state")
