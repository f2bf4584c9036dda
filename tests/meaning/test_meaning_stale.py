"""Nothing goes stale: whatever a traced function reads of the world is read again at each call."""

from __future__ import annotations

import array
import builtins
import collections
import contextvars
import dataclasses
import datetime
import decimal
import functools
import importlib
import json
import operator
import os
import secrets
import sys
import threading
import time
import types
import uuid
from collections import ChainMap
from collections.abc import Callable
from types import MappingProxyType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.sparse
from meaning import attempt, compare, program
from scipy.interpolate import CubicSpline
from sklearn.linear_model import LinearRegression

import tracegrad as tg

X = np.array([1.0, -2.0, 3.0])
K: Any = 2.0


# -- absence and presence ----------------------------------------------------------------------------------------------
@program
def test_getattr_with_a_default(trace: Any) -> Any:
    o = SimpleNamespace()

    @trace
    def f(x: Any) -> Any:
        return x * getattr(o, "k", 2.0) + getattr(o, "offset", None or 0.0)

    yield f(X)
    o.k = 5.0
    yield f(X)
    o.offset = X
    yield f(X)
    del o.k
    yield f(X)


@program
def test_hasattr(trace: Any) -> Any:
    class Model:
        pass

    m = Model()

    @trace
    def f(x: Any) -> Any:
        return x * 3 if hasattr(m, "bias") else x

    yield f(X)
    m.bias = 1.0
    yield f(X)
    del m.bias
    yield f(X)
    Model.bias = 1.0
    yield f(X)
    del Model.bias
    yield f(X)


@program
def test_attribute_error_is_caught(trace: Any) -> Any:
    class Model:
        pass

    m = Model()

    @trace
    def f(x: Any) -> Any:
        try:
            return x * m.scale
        except AttributeError:
            return x

    yield f(X)
    m.scale = 4.0
    yield f(X)


@program
def test_in_and_get_of_a_dict(trace: Any) -> Any:
    config = {"a": 1.0}

    @trace
    def f(x: Any) -> Any:
        y = x * 2 if "bias" in config else x
        return y + config.get("shift", 0.5)

    yield f(X)
    config["bias"] = True
    yield f(X)
    config["shift"] = X
    yield f(X)
    del config["bias"]
    yield f(X)


@program
def test_in_of_a_list_a_set_and_a_tuple(trace: Any) -> Any:
    modes, flags = ["a"], {"x"}
    order: Any = (1, 2)

    @trace
    def f(x: Any) -> Any:
        return x + ("b" in modes) + 2.0 * ("y" in flags) + 4.0 * (3 in order)

    yield f(X)
    modes.append("b")
    yield f(X)
    flags.add("y")
    yield f(X)
    order = (1, 2, 3)
    yield f(X)
    flags.discard("y")
    yield f(X)


@program
def test_a_missing_item_is_caught(trace: Any) -> Any:
    cache: Any = {}

    @trace
    def f(x: Any) -> Any:
        try:
            return x * cache["k"]
        except KeyError:
            return x

    yield f(X)
    cache["k"] = 3.0
    yield f(X)


@program
def test_a_missing_item_of_a_list_is_caught(trace: Any) -> Any:
    items: Any = []

    @trace
    def f(x: Any) -> Any:
        try:
            return x * items[0]
        except IndexError:
            return x

    yield f(X)
    items.append(3.0)
    yield f(X)


@program
def test_a_name_defined_later(trace: Any) -> Any:
    def read(x: Any) -> Any:
        try:
            return x * LATER  # type: ignore[name-defined]
        except NameError:
            return x

    f = trace(read)
    try:
        yield f(X)
        globals()["LATER"] = 3.0
        yield f(X)
        globals()["LATER"] = X
        yield f(X)
    finally:
        del globals()["LATER"]
    yield f(X)


@program
def test_a_closure_variable_defined_later(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        try:
            return x * late
        except NameError:
            return x

    yield f(X)
    late = 3.0
    yield f(X)
    del late
    yield f(X)
    late = X
    yield f(X)


@program
def test_a_built_in_shadowed_later(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        return sum([x, x]) + abs(-1.0) + len("abc")

    try:
        yield f(X)
        globals()["sum"] = lambda xs: xs[0]
        yield f(X)
        globals()["len"] = lambda x: 10.0
        yield f(X)
    finally:
        del globals()["sum"], globals()["len"]
    yield f(X)


@program
def test_a_built_in_replaced(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        return max(x[0], 0.5) * round(2.7)

    before = builtins.round
    yield f(X)
    try:
        builtins.round = lambda x: 10.0  # type: ignore[assignment]
        yield f(X)
    finally:
        builtins.round = before
    yield f(X)


@program
def test_names_through_globals(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        space = globals()
        y = x * space["K"]
        if "EXTRA" in space:
            y = y + 1.0
        return y + space.get("MORE", 0.0)

    try:
        yield f(X)
        globals()["K"] = 3.0
        yield f(X)
        globals()["EXTRA"] = 1
        yield f(X)
        globals()["MORE"] = X
        yield f(X)
    finally:
        globals()["K"] = 2.0
        globals().pop("EXTRA", None)
        globals().pop("MORE", None)
    yield f(X)


@program
def test_vars_of_an_object(trace: Any) -> Any:
    o = SimpleNamespace(a=1.0)

    @trace
    def f(x: Any) -> Any:
        return sum((v * x for v in vars(o).values()), 0.0) + ("b" in o.__dict__)

    yield f(X)
    o.a = 2.0
    yield f(X)
    o.b = X
    yield f(X)


# -- mappings ----------------------------------------------------------------------------------------------------------
@program
def test_a_chain_map(trace: Any) -> Any:
    defaults, own = {"lr": 0.5, "w": X}, {}
    settings = ChainMap(own, defaults)

    @trace
    def f(x: Any) -> Any:
        return x * settings["lr"] * settings["w"] + settings.get("b", 0.0) + ("c" in settings)

    yield f(X)
    own["lr"] = 2.0
    yield f(X)
    defaults["w"] = X + 1
    yield f(X)
    own["b"] = 3.0
    yield f(X)
    settings.maps.insert(0, {"lr": 7.0, "c": 1})
    yield f(X)
    settings = settings.parents
    yield f(X)


@program
def test_a_mapping_proxy(trace: Any) -> Any:
    real = {"lr": 0.5, "w": X}
    settings = MappingProxyType(real)

    @trace
    def f(x: Any) -> Any:
        return x * settings["lr"] * settings["w"] + settings.get("b", 0.0) + len(settings)

    yield f(X)
    real["lr"] = 2.0
    yield f(X)
    real["w"] = X + 1
    yield f(X)
    real["b"] = 3.0
    yield f(X)


@program
def test_a_mapping_proxy_shows_what_the_call_writes(trace: Any) -> Any:
    class Own(dict[str, Any]):
        pass

    kinds = dict, collections.OrderedDict, functools.partial(collections.defaultdict, float), Own, collections.UserDict
    real: Any = [kind(a=1.0) for kind in kinds]
    shown: Any = [MappingProxyType(x) for x in real]

    @trace
    def f(x: Any, n: int, i: int) -> Any:
        view = shown[i]
        before = len(view)
        real[i][f"k{n}"] = n * 0.5
        real[i]["a"] = x
        return view["a"] * view.get("b", 1.0) + len(view), before, list(view), "k2" in view, [*view.values()]

    for i in range(5):
        yield f(X, 1, i), f(X, 1, i), f(X, 2, i)
        real[i]["b"] = 3.0
        yield f(X, 2, i), f(X, 2, i), list(real[i])


@program
def test_the_namespace_of_a_class(trace: Any) -> Any:
    class Config:
        lr = 0.5

    @trace
    def f(x: Any) -> Any:
        return x * Config.__dict__["lr"] + vars(Config).get("shift", 0.0) * x

    yield f(X)
    Config.lr = 2.0
    yield f(X)
    Config.shift = 1.0
    yield f(X)


@program
def test_subclasses_of_dict_and_friends(trace: Any) -> Any:
    class Settings(dict):  # type: ignore[type-arg]
        __getattr__ = dict.__getitem__

    s, counter = Settings(lr=0.5), collections.Counter("aab")
    ordered, default = collections.OrderedDict(a=1.0), collections.defaultdict(float, a=1.0)
    user = collections.UserDict(a=1.0)

    @trace
    def f(x: Any) -> Any:
        return x * s.lr * counter["a"] + sum(ordered.values()) + default["a"] + user["a"] + len(user)

    yield f(X)
    s["lr"] = 2.0
    yield f(X)
    counter.update("a")
    yield f(X)
    ordered["b"] = 2.0
    yield f(X)
    default["a"] = 3.0
    yield f(X)
    user["a"] = 3.0
    yield f(X)
    user["b"] = 3.0
    yield f(X)


@program
def test_environment_variables(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        y = x * float(os.environ.get("TG_TEST_SCALE", "1"))
        if "TG_TEST_FLAG" in os.environ:
            y = y + 1.0
        if os.getenv("TG_TEST_MODE") == "square":
            y = y * y
        try:
            return y * float(os.environ["TG_TEST_LAST"])
        except KeyError:
            return y

    names = ("TG_TEST_SCALE", "TG_TEST_FLAG", "TG_TEST_MODE", "TG_TEST_LAST")
    try:
        yield f(X)
        for name, value in zip(names, ("3", "", "square", "0.5")):
            os.environ[name] = value
            yield f(X)
        os.environ["TG_TEST_SCALE"] = "4"
        yield f(X)
        os.environ["TG_TEST_LAST"] = "5"
        yield f(X)
    finally:
        for name in names:
            os.environ.pop(name, None)
    yield f(X)


# -- functions ---------------------------------------------------------------------------------------------------------
@program
def test_attributes_of_a_function(trace: Any) -> Any:
    def helper(x: Any) -> Any:
        return x * helper.scale + getattr(helper, "shift", 0.0)

    helper.scale = 2.0

    @trace
    def f(x: Any) -> Any:
        return helper(x) + (1.0 if hasattr(helper, "flag") else 0.0)

    yield f(X)
    helper.scale = 3.0
    yield f(X)
    helper.scale = X
    yield f(X)
    helper.shift = 1.0
    yield f(X)
    helper.flag = True
    yield f(X)
    del helper.shift
    yield f(X)


@program
def test_a_missing_attribute_of_a_function_is_caught(trace: Any) -> Any:
    def helper(x: Any) -> Any:
        try:
            return x * helper.table
        except AttributeError:
            return x

    f = trace(lambda x: helper(x))
    yield f(X)
    helper.table = X
    yield f(X)


@program
def test_code_and_defaults_of_a_helper_are_replaced(trace: Any) -> Any:
    def helper(x: Any, k: Any = 2.0, *, b: Any = 1.0) -> Any:
        return x * k + b

    def other(x: Any, k: Any = 2.0, *, b: Any = 1.0) -> Any:
        return x - k - b

    f = trace(lambda x: helper(x))
    yield f(X)
    helper.__defaults__ = (5.0,)
    yield f(X)
    helper.__defaults__ = (X,)
    yield f(X)
    helper.__kwdefaults__ = {"b": 7.0}
    yield f(X)
    helper.__kwdefaults__["b"] = 8.0
    yield f(X)
    helper.__code__ = other.__code__
    yield f(X)


@program
def test_code_and_defaults_of_the_function_itself_are_replaced(trace: Any) -> Any:
    def step(x: Any, k: Any = 2.0, *, b: Any = 1.0) -> Any:
        return x * k + b

    def other(x: Any, k: Any = 2.0, *, b: Any = 1.0) -> Any:
        return x - k - b

    f = trace(step)
    yield f(X)
    step.__defaults__ = (5.0,)
    yield f(X)
    step.__kwdefaults__ = {"b": 7.0}
    yield f(X)
    step.__code__ = other.__code__
    yield f(X)


@program
def test_methods_are_replaced(trace: Any) -> Any:
    class Model:
        k = 2.0

        def forward(self, x: Any) -> Any:
            return self.scaled(x) + self.shift + self.static(x) + self.of_class(x)

        def scaled(self, x: Any) -> Any:
            return x * self.k

        @property
        def shift(self) -> Any:
            return 1.0

        @staticmethod
        def static(x: Any) -> Any:
            return x

        @classmethod
        def of_class(cls, x: Any) -> Any:
            return x * cls.k

        def __call__(self, x: Any) -> Any:
            return self.forward(x)

    m = Model()
    f = trace(lambda x: m(x))
    yield f(X)
    Model.scaled = lambda self, x: x - self.k
    yield f(X)
    Model.shift = property(lambda self: 5.0)
    yield f(X)
    Model.static = staticmethod(lambda x: x * 7)
    yield f(X)
    Model.of_class = classmethod(lambda cls, x: x * 9)
    yield f(X)
    Model.__call__ = lambda self, x: x
    yield f(X)
    m.scaled = lambda x: x * 100
    Model.__call__ = lambda self, x: self.forward(x)
    yield f(X)
    m.__class__ = type("Other", (Model,), {"__call__": lambda self, x: x * 1000.0})
    yield f(X)


@program
def test_a_base_class_changes(trace: Any) -> Any:
    class Base:
        k = 2.0

        def scaled(self, x: Any) -> Any:
            return x * self.k

    class Child(Base):
        pass

    c = Child()
    f = trace(lambda x: c.scaled(x))
    yield f(X)
    Base.k = 3.0
    yield f(X)
    Child.k = 4.0
    yield f(X)
    Base.scaled = lambda self, x: x + self.k
    yield f(X)
    Child.scaled = lambda self, x: x - self.k
    yield f(X)
    c.k = 10.0
    yield f(X)


@program
def test_a_partial_and_a_bound_method_are_exchanged(trace: Any) -> Any:
    class Model:
        def __init__(self, k: float):
            self.k = k

        def scaled(self, x: Any) -> Any:
            return x * self.k

    g: Any = functools.partial(np.add, 1.0)
    h: Any = Model(2.0).scaled
    f = trace(lambda x: g(x) + h(x))
    yield f(X)
    g = functools.partial(np.add, 2.0)
    yield f(X)
    h = Model(5.0).scaled
    yield f(X)
    h.__self__.k = 7.0
    yield f(X)


# -- modules -----------------------------------------------------------------------------------------------------------
def _changes(f: Any, module: Any) -> Any:
    """What a function of the names of a module gives while these change."""
    vars(module).update(K=2.0, W=X, work=np.sin)
    vars(module).pop("EXTRA", None)
    yield f(X)
    module.K = 3.0
    yield f(X)
    module.W = X + 1
    yield f(X)
    module.W[:] = 5.0
    yield f(X)
    module.work = np.cos
    yield f(X)
    module.EXTRA = 1.0
    yield f(X)
    del module.EXTRA
    yield f(X)


@pytest.fixture(params=["userconf", "tg_test_module"])
def module(request: Any) -> Any:
    """A module without a file, and one with a file of the user's."""
    result: Any = types.ModuleType(request.param)
    if request.param == "tg_test_module":
        result.__file__ = __file__
    sys.modules[request.param] = result
    yield result
    del sys.modules[request.param]


def test_attributes_of_modules(module: Any) -> None:
    def read(x: Any) -> Any:
        return module.work(x * module.K) * module.W + (1.0 if hasattr(module, "EXTRA") else 0.0)

    compare(lambda trace: _changes(trace(read), module), "traced")


def test_attributes_of_modules_by_getattr(module: Any) -> None:
    def read(x: Any) -> Any:
        get = functools.partial(getattr, module)
        return get("work")(x * get("K")) * get("W") + getattr(module, "EXTRA", 0.0)

    compare(lambda trace: _changes(trace(read), module), "traced")


def test_names_imported_inside(module: Any) -> None:
    def read(x: Any) -> Any:
        if module.__name__ == "userconf":
            from userconf import K, W, work
        else:
            from tg_test_module import K, W, work
        return work(x * K) * W

    compare(lambda trace: _changes(trace(read), module), "traced")


def test_names_that_may_be_missing_imported_inside(module: Any) -> None:
    def read(x: Any) -> Any:
        try:
            if module.__name__ == "userconf":
                from userconf import EXTRA
            else:
                from tg_test_module import EXTRA
        except ImportError:
            return x
        return x + EXTRA

    compare(lambda trace: _changes(trace(read), module), "traced")


def test_modules_imported_inside(module: Any) -> None:
    def read(x: Any) -> Any:
        if module.__name__ == "userconf":
            import userconf as m
        else:
            import tg_test_module as m
        return m.work(x * m.K) * m.W + (1.0 if hasattr(m, "EXTRA") else 0.0)

    compare(lambda trace: _changes(trace(read), module), "traced")


def test_modules_imported_by_name(module: Any) -> None:
    def read(x: Any) -> Any:
        m = importlib.import_module(module.__name__)
        return m.work(x * m.K) * m.W + (1.0 if hasattr(m, "EXTRA") else 0.0)

    compare(lambda trace: _changes(trace(read), module), "traced")


def test_modules_found_in_sys(module: Any) -> None:
    def read(x: Any) -> Any:
        m = sys.modules[module.__name__]
        return m.work(x * m.K) * m.W + (1.0 if "nowhere" in sys.modules else 0.0)

    compare(lambda trace: _changes(trace(read), module), "traced")


def test_another_module_of_the_same_name(module: Any) -> None:
    def read(x: Any) -> Any:
        if module.__name__ == "userconf":
            import userconf as m
        else:
            import tg_test_module as m
        return x * m.K

    f = tg.trace(read)
    module.K = 2.0
    np.testing.assert_array_equal(f(X), X * 2)
    other: Any = types.ModuleType(module.__name__)
    other.K = 3.0
    sys.modules[module.__name__] = other
    np.testing.assert_array_equal(f(X), X * 3)


@program
def test_a_module_is_replaced(trace: Any) -> Any:
    codec: Any = json

    @trace
    def f(x: Any) -> Any:
        return x * len(codec.dumps([1]))

    yield f(X)
    codec = SimpleNamespace(dumps=lambda x: "abcd")
    yield f(X)


@program
def test_settings_of_the_interpreter(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        return x * (sys.getrecursionlimit() % 7) + len(sys.argv) + (sys.flags.optimize or 0)

    before = sys.getrecursionlimit()
    yield f(X)
    try:
        sys.setrecursionlimit(before + 1)
        yield f(X)
        sys.argv.append("more")
        yield f(X)
    finally:
        sys.setrecursionlimit(before)
        sys.argv.remove("more")
    yield f(X)


# -- context -----------------------------------------------------------------------------------------------------------
@program
def test_context_variables(trace: Any) -> Any:
    scale: Any = contextvars.ContextVar("scale")
    shift: Any = contextvars.ContextVar("shift", default=1.0)

    @trace
    def f(x: Any) -> Any:
        try:
            x = x * scale.get()
        except LookupError:
            x = -x
        return x + shift.get() + scale.get(0.5)

    yield f(X)
    token = scale.set(3.0)
    yield f(X)
    shift.set(X)
    yield f(X)
    yield contextvars.Context().run(f, X)
    scale.reset(token)
    yield f(X)


@program
def test_thread_locals(trace: Any) -> Any:
    local = threading.local()

    class Own(threading.local):
        scale = 1.0

    own = Own()

    @trace
    def f(x: Any) -> Any:
        return x * getattr(local, "scale", 1.0) * own.scale + hasattr(local, "flag")

    def elsewhere() -> None:
        local.scale = 10.0
        results.append(f(X))

    results: list[Any] = []
    yield f(X)
    local.scale = 2.0
    yield f(X)
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    yield results[0]
    own.scale = 3.0
    yield f(X)
    local.flag = 1
    yield f(X)
    del local.scale
    yield f(X)


@program
def test_error_states(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        return x * (2.0 if np.geterr()["divide"] == "ignore" else 1.0)

    yield f(X)
    with np.errstate(divide="ignore"):
        yield f(X)
        with np.errstate(divide="warn"):
            yield f(X)
        yield f(X)
    before = np.seterr(divide="ignore")
    yield f(X)
    np.seterr(**before)
    yield f(X)


@program
def test_an_error_state_of_the_function_itself(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        with np.errstate(divide="ignore"):
            return x * (2.0 if np.geterr()["divide"] == "ignore" else 1.0)

    for _ in range(3):
        yield f(X), np.geterr()


# -- objects of installed packages -------------------------------------------------------------------------------------
DECIMALS: dict[str, Any] = {
    "made in the function": lambda: float(decimal.Decimal(1) / decimal.Decimal(3)),
    "from outside": lambda: float(K_DECIMAL / 3),
    "negated": lambda: float(-K_DECIMAL),
    "summed": lambda: float(sum([K_DECIMAL, K_DECIMAL])),
    "in a list": lambda: float(KS_DECIMAL[0] * KS_DECIMAL[1]),
    "by operator": lambda: float(operator.truediv(K_DECIMAL, 3)),
    "a function of its own": lambda: float(K_DECIMAL.sqrt()),
    "rounded": lambda: float(round(K_DECIMAL, 1)),
    "the context": lambda: decimal.getcontext().prec,
    "a local context": lambda: _prec(decimal.localcontext()),
}
K_DECIMAL = decimal.Decimal("1.25006")
KS_DECIMAL = [decimal.Decimal("1.25006"), decimal.Decimal("1.00003")]


def _prec(context: Any) -> float:
    with context as now:
        return float(now.prec)


@pytest.mark.filterwarnings("ignore:.*decimal.getcontext hands out settings")
@pytest.mark.parametrize("mode", ["traced", "disabled"])
@pytest.mark.parametrize("name", DECIMALS)
def test_decimals_are_computed_in_the_context_of_the_call(name: str, mode: str) -> None:
    def script(trace: Any) -> Any:
        of = DECIMALS[name]

        @trace
        def f(x: Any) -> Any:
            return x * of()

        for prec, rounding in ((28, decimal.ROUND_HALF_EVEN), (3, decimal.ROUND_HALF_EVEN), (3, decimal.ROUND_UP)):
            with decimal.localcontext() as now:
                now.prec, now.rounding = prec, rounding
                yield f(X)

    compare(script, mode)


@program
def test_a_decimal_context_a_fraction_and_a_path(trace: Any) -> Any:
    import decimal
    import fractions
    import pathlib

    third, path = fractions.Fraction(1, 3), pathlib.PurePath("a/b")

    @trace
    def f(x: Any) -> Any:
        return x * float(third) + len(path.parts) + float(decimal.Decimal("1.5"))

    yield f(X)
    third = fractions.Fraction(2, 3)
    yield f(X)
    path = path / "c"
    yield f(X)


# -- what cannot be seen -----------------------------------------------------------------------------------------------
def _read_file(x: Any) -> Any:
    with open(__file__) as file:
        return x * len(file.read())


_batches = iter([X, X + 1, X + 2])
_generator = (x for x in [X, X + 1])
_lines = enumerate([X, X])
REFUSED = {
    "time": lambda x: x * time.time(),
    "perf_counter": lambda x: x * time.perf_counter(),
    "monotonic": lambda x: x * time.monotonic_ns(),
    "process_time": lambda x: x * time.process_time(),
    "now": lambda x: x * datetime.datetime.now().timestamp(),
    "utcnow": lambda x: x * datetime.datetime.today().second,
    "today": lambda x: x * datetime.date.today().day,
    "localtime": lambda x: x * time.localtime().tm_sec,
    "urandom": lambda x: x * os.urandom(1)[0],
    "secrets": lambda x: x * secrets.randbelow(3),
    "token": lambda x: x * len(secrets.token_hex(3)),
    "uuid4": lambda x: x * uuid.uuid4().int,
    "next": lambda x: x * next(_batches),
    "next with a default": lambda x: x * next(_batches, 0.0),
    "for": lambda x: x * sum(y for y in _batches),
    "generator": lambda x: x * next(_generator),
    "send": lambda x: x * _generator.send(None),
    "__next__": lambda x: x * _batches.__next__(),
    "enumerate": lambda x: x * next(y for _, y in _lines),
    "list": lambda x: x * len(list(_batches)),
    "zip": lambda x: x * len(list(zip(_batches, [1, 2]))),
    "open": _read_file,
    "load": lambda x: x * np.load("w.npy"),
    "loadtxt": lambda x: x * np.loadtxt("w.txt"),
    "fromfile": lambda x: x * np.fromfile("w.txt"),
    "input": lambda x: x * float(input()),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_seen_is_refused_with_the_line(name: str) -> None:
    f = REFUSED[name]
    with pytest.raises(tg.errors.UnsupportedError, match=r"test_meaning_stale\.py:\d+") as result:
        tg.trace(f)(X)
    assert "instead" in str(result.value) or "outside" in str(result.value), result.value


def test_a_clock_imported_by_name_is_refused() -> None:
    now = time.perf_counter
    with pytest.raises(tg.errors.UnsupportedError, match="perf_counter"):
        tg.trace(lambda x: x * now())(X)


@program
def test_iterators_made_inside_are_read(trace: Any) -> Any:
    rows = [X, X + 1]

    @trace
    def f(x: Any) -> Any:
        it = iter(rows)
        first = next(it)
        rest = list(it)
        squares = (r * r for r in rest)
        return x * first + sum(squares) + next(it, 5.0) + sum(a * b for a, b in zip(rows, reversed(rows)))

    yield f(X)
    rows.append(X * 3)
    yield f(X)


# -- many --------------------------------------------------------------------------------------------------------------
@dataclasses.dataclass
class Options:
    a: Any = 1.0
    b: Any = 2.0
    name: str = "one"


@program
def test_fields_of_a_dataclass(trace: Any) -> Any:
    o = Options()

    @trace
    def f(x: Any) -> Any:
        return x * o.a + getattr(o, "c", 0.0) + (o.name == "two")

    yield f(X)
    o.a = X
    yield f(X)
    o.name = "two"
    yield f(X)
    o.c = 5.0
    yield f(X)
    o.b = 77.0
    yield f(X)
    o = Options(3.0)
    yield f(X)


def traces_of(f: Any, calls: int = 20) -> int:
    for _ in range(calls):
        f(X)
    return int(f.cache_info().traces)


def test_many_guards_are_checked_on_the_fast_path() -> None:
    big = dataclasses.make_dataclass("Big", [(f"f{i}", float, float(i)) for i in range(44)])()
    mine, flags, queue = Options(), {"a", "b"}, collections.deque([1.0, 2.0])
    proxy, counter = MappingProxyType({"a": 1.0}), collections.OrderedDict(a=1.0)

    @tg.trace
    def f(x: Any) -> Any:
        total = x * big.f3 + sum(vars(big).values()) + mine.a + mine.b
        return total + len(flags) + ("a" in flags) + queue[-1] + proxy["a"] + counter["a"]

    misses = None
    for _ in range(5):
        f(X)
        assert misses in (None, f.cache_info()[2:4]), "the slow path was asked"
        misses = f.cache_info()[2:4]
    expected = f(X)
    for change in (
        lambda: setattr(big, "f40", 41.0),
        lambda: setattr(mine, "b", 3.0),
        lambda: flags.add("c"),
        lambda: queue.append(3.0),
        lambda: counter.update(a=2.0),
    ):
        change()
        result = f(X)
        assert np.all(result != expected)
        np.testing.assert_allclose(result, f.__wrapped__(X))
        expected = result


def test_an_equal_value_is_no_other_value() -> None:
    space = {"k": 1234567.0, "n": 10**6, "s": "some text"}
    f = tg.trace(lambda x: x * space["k"] + space["n"] + len(space["s"]))
    f(X)
    hits = f.cache_info().hits
    for _ in range(5):
        space.update(k=float("1234567"), n=int("1000000"), s="".join(["some", " text"]))
        f(X)
    assert f.cache_info()[:3] == (1, 0, hits)
    for k in (1234567, True, -0.0, 0.0, np.float64(1234567.0)):
        space["k"] = k
        np.testing.assert_array_equal(f(X), f.__wrapped__(X))


# -- objects of installed packages -------------------------------------------------------------------------------------
@program
def test_the_data_of_a_sparse_matrix(trace: Any) -> Any:
    matrix: Any = scipy.sparse.csr_array(np.array([[1.0, 0, 2], [0, 3, 0], [0, 0, 4]]))

    @trace
    def f(x: Any) -> Any:
        dense = matrix.toarray()
        return dense @ x + np.sum(matrix.data * 2.0) * x

    yield f(X)
    yield f(X + 1)
    matrix.data[0] = 10.0
    yield f(X)
    matrix.data = matrix.data * 2
    yield f(X)
    matrix = matrix.T.tocsr()
    yield f(X)


@program
def test_the_data_of_a_sparse_matrix_alone(trace: Any) -> Any:
    matrix: Any = scipy.sparse.coo_array(np.array([[1.0, 0], [0, 3.0]]))

    @trace
    def f(x: Any) -> Any:
        return x[:2] * matrix.data

    yield f(X)
    matrix.data[0] = 10.0
    yield f(X)
    matrix.data = matrix.data * 2
    yield f(X)


@program
def test_attributes_of_an_installed_object(trace: Any) -> Any:
    fitted: Any = LinearRegression().fit(np.eye(3), X)

    @trace
    def by_attribute(x: Any) -> Any:
        return x @ fitted.coef_ + fitted.intercept_

    yield by_attribute(X)
    fitted.fit(np.eye(3), X * 2)
    yield by_attribute(X)
    fitted.coef_[0] = 9.0
    yield by_attribute(X)
    fitted.intercept_ = 5.0
    yield by_attribute(X)


@pytest.mark.filterwarnings("ignore:.*reads a _local, whose state a trace cannot see")
@program
def test_methods_of_an_installed_object_that_reads_its_thread(trace: Any) -> Any:
    fitted: Any = LinearRegression().fit(np.eye(3), X)

    @trace
    def by_method(x: Any) -> Any:
        return x + fitted.predict([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])

    yield by_method(X)
    fitted.fit(np.eye(3), X * 2)
    yield by_method(X)
    fitted.coef_[0] = 9.0
    yield by_method(X)
    fitted.intercept_ = 5.0
    yield by_method(X)


@program
def test_an_interpolator(trace: Any) -> Any:
    spline: Any = CubicSpline(np.arange(4.0), np.arange(4.0) ** 2)
    f = trace(lambda x: x + spline([0.0, 1.0, 2.0]))
    yield f(X)
    spline.c *= 2.0
    yield f(X)
    spline = CubicSpline(np.arange(4.0), np.arange(4.0) ** 3)
    yield f(X)


@pytest.mark.parametrize("held", [array.array("d", [1.0, 2.0]), memoryview(b"12")])
def test_buffers_are_refused(held: Any) -> None:
    with pytest.raises(tg.errors.UnsupportedError, match=r"use np.asarray.*test_meaning_stale\.py:\d+"):
        tg.trace(lambda x: x * held[0])(X)


class Holder:
    """A class with all that may hold an object, a class or a function of the user's."""

    class Scaled:
        shared = 1.0

        def __init__(self, k: float):
            self.k = k

        def times(self, x: Any) -> Any:
            return x * self.k * self.shared * FACTOR

    one = Scaled(2.0)
    table: ClassVar[dict[str, Any]] = {"one": Scaled(2.0), "class": Scaled, "function": lambda x: x * FACTOR}
    several: ClassVar[list[Any]] = [Scaled(2.0), [Scaled(3.0)]]
    pair = (Scaled(2.0), 1.0)
    part = functools.partial(lambda k, x: x * k * FACTOR, 2.0)
    method = one.times


FACTOR = 1.0
HELD: dict[str, Callable[[Any], Any]] = {
    "object": lambda x: Holder.one.times(x),
    "dict": lambda x: Holder.table["one"].times(x),
    "class in a dict": lambda x: Holder.table["class"](2.0).times(x),
    "function in a dict": lambda x: Holder.table["function"](x),
    "list": lambda x: Holder.several[0].times(x) + Holder.several[1][0].times(x),
    "tuple": lambda x: Holder.pair[0].times(x) * Holder.pair[1],
    "partial": lambda x: Holder.part(x),
    "method": lambda x: Holder.method(x),
    "instance": lambda x: Holder().table["one"].times(x),
    "subclass": lambda x: type("Inner", (Holder,), {}).table["one"].times(x),
}


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("mode", ["traced", "disabled"])
def test_what_classes_hold_is_read_at_each_call(held: str, mode: str) -> None:
    def script(trace: Any) -> Any:
        global FACTOR
        FACTOR, Holder.Scaled.shared = 1.0, 1.0
        objects = [Holder.one, Holder.table["one"], *Holder.pair[:1], Holder.several[0]]
        for each in objects:
            each.k = 2.0
        f = trace(HELD[held])
        yield f(X), f(X)
        FACTOR = 3.0
        yield f(X), f(X)
        Holder.Scaled.shared = 0.5
        yield f(X), f(X)
        for each in objects:
            each.k = 7.0
        yield f(X), f(X)

    compare(script, mode)


@program
def test_what_classes_hold_is_written_at_each_call(trace: Any) -> Any:
    class Pool:
        known: ClassVar[dict[Any, Any]] = {}
        log: ClassVar[list[Any]] = []

        def __new__(cls, key: Any) -> Any:
            if key not in cls.known:
                cls.known[key] = result = object.__new__(cls)
                result.uses, result.last = 0, None
            return cls.known[key]

    @trace
    def f(x: Any, key: Any) -> Any:
        pooled = Pool(key)
        pooled.uses += 1
        pooled.last = x * pooled.uses
        Pool.log.append(key)
        return pooled.last

    for k in range(4):
        yield f(X + k, 1), Pool(1).uses, Pool(1).last, Pool.log
    for k in range(2):
        yield f(X + k, 2), f(X, 1), Pool(2).last, Pool(1) is Pool(1), Pool(1) is Pool(2)
    Pool(1).uses = 10
    yield f(X, 1), Pool(1).uses
    Pool.known.clear()
    yield f(X, 1), f(X, 1), Pool(1).uses, Pool.log


@program
def test_classes_registered_by_their_bases(trace: Any) -> Any:
    class Base:
        registry: ClassVar[dict[str, Any]] = {}
        k = 1.0

        def __init_subclass__(cls, k: float = 1.0) -> None:
            cls.k, Base.registry[cls.__name__] = k, cls

        def run(self, x: Any) -> Any:
            return x * self.k

    class First(Base, k=2.0):
        pass

    class Second(First):
        def run(self, x: Any) -> Any:
            return super().run(x) + 1.0

    @trace
    def f(x: Any, name: str) -> Any:
        return Base.registry[name]().run(x), sorted(Base.registry)

    yield f(X, "First"), f(X, "Second"), f(X, "First")
    First.k = 3.0
    yield f(X, "First"), f(X, "Second")
    Second.k = 4.0
    yield f(X, "First"), f(X, "Second")

    class First(Base, k=5.0):  # type: ignore[no-redef]
        pass

    yield f(X, "First"), f(X, "Second")
    del Base.registry["Second"]
    yield f(X, "First"), attempt(f, X, "Second")


@program
def test_descriptors_of_pythons_around_methods(trace: Any) -> Any:
    class Model:
        factor = 1.0

        def __init__(self) -> None:
            self.k = 2.0

        @functools.cached_property
        def doubled(self) -> float:
            return self.k * 2.0 * FACTOR

        def power(self, x: Any, k: float) -> Any:
            return x * self.k * k * FACTOR

        half = functools.partialmethod(power, k=0.5)

        @functools.singledispatchmethod
        def dispatched(self, x: Any) -> Any:
            return x * self.k * FACTOR

        @dispatched.register
        def _(self, x: str) -> Any:
            return len(x) * self.k * FACTOR

    def uses(model: Any, x: Any) -> Any:
        return x * model.doubled, model.half(x), model.dispatched("abc"), "doubled" in vars(model)

    global FACTOR
    FACTOR = 1.0
    model = Model()
    inside = trace(lambda x: uses(Model(), x))
    outside = trace(lambda x: (x * model.doubled, model.half(x)))
    for _ in range(2):
        yield inside(X), outside(X), "doubled" in vars(model)
        yield inside(X), outside(X)
        FACTOR = 3.0
        yield inside(X), outside(X)
        model.k = 7.0
        yield inside(X), outside(X)
        del model.doubled
        yield inside(X), outside(X)
        model.doubled = 1.5
        yield inside(X), outside(X)
        model = Model()


@program
def test_a_cached_property_sees_what_was_written_before(trace: Any) -> Any:
    class Model:
        k = 2.0

        @functools.cached_property
        def doubled(self) -> Any:
            return self.k * 2.0

    @trace
    def f(model: Any, x: Any) -> Any:
        model.k = model.k + 1.0
        return x * model.doubled, model.doubled

    @trace
    def g(x: Any) -> Any:
        held.k = x[0]
        return x * held.doubled

    for _ in range(2):
        held = Model()
        yield f(held, X), f(held, X), vars(held)
        held = Model()
        yield g(X), g(X + 1), vars(held)


@program
def test_what_an_object_has_itself_comes_before_descriptors_that_only_read(trace: Any) -> Any:
    class Reads:
        def __get__(self, instance: Any, owner: Any) -> Any:
            return FACTOR

    class Model:
        k = Reads()

    global FACTOR
    FACTOR, model = 2.0, Model()
    f = trace(lambda x: x * model.k)
    yield f(X), f(X)
    vars(model)["k"] = 5.0
    yield f(X), f(X)
    del model.k
    FACTOR = 3.0
    yield f(X), f(X)


@program
def test_what_a_function_of_singledispatch_has_registered_is_asked_again(trace: Any) -> Any:
    @functools.singledispatch
    def weight(x: Any) -> Any:
        return 2.0

    f = trace(lambda x: x * weight.dispatch(int)(1) + len(weight.registry))
    yield f(X), f(X)
    weight.register(int, lambda x: FACTOR)
    yield f(X), f(X)


@program
def test_lists_and_dicts_that_were_several_may_become_one(trace: Any) -> Any:
    xs, ys, table, other = [1.0], [1.0], {"k": 1.0}, {"k": 1.0}

    @trace
    def f(x: Any) -> Any:
        return x * 2 if xs is ys else x * (5 if table is other else 3)

    yield f(X), f(X)
    table = other
    yield f(X), f(X)
    ys = xs
    yield f(X), f(X)
    ys = [1.0]
    yield f(X), f(X)


@program
def test_a_module_that_was_not_there_is_imported_once_it_is(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        try:
            import module_of_a_test  # type: ignore[import-not-found]

            return x * module_of_a_test.k
        except ImportError:
            return x

    yield f(X), f(X)
    result: Any = types.ModuleType("module_of_a_test")
    result.k = 4.0
    sys.modules["module_of_a_test"] = result
    try:
        yield f(X), f(X)
    finally:
        del sys.modules["module_of_a_test"]
    yield f(X), f(X)


@pytest.mark.parametrize("digits", [3, 28])
def test_constants_are_computed_with_in_the_context_of_the_call(digits: int) -> None:
    third = tg.trace(lambda x, d: x * float(d / 3), static_argnames="d")
    for precision in (digits, 5, digits):
        with decimal.localcontext(prec=precision):
            wanted = X * float(decimal.Decimal(1) / 3)
            np.testing.assert_array_equal(third(X, decimal.Decimal(1)), wanted)
