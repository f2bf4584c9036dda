"""Traces on disk: another process uses them where nothing that they assume has changed, and there only."""

from __future__ import annotations

import gc
import json
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from remembered import Case, before_and_now, changed, check, same

import tracegrad as tg
from tracegrad.errors import CacheWarning, DerivativeWarning
from tracegrad.ir import to_text
from tracegrad.runtime.compile import fingerprint
from tracegrad.runtime.compile.disk_cache import DiskCache
from tracegrad.runtime.dispatch import trace_store
from tracegrad.runtime.execution.program import machine_code_count
from tracegrad.settings import settings

HELPER = """
    def helper(x):
        return x * 2.0
    def function(x):
        return helper(x) + 1.0
"""
NESTED = """
    class Scale:
        factor = 2.0
        def __init__(self, shift):
            self.shift = shift
        @property
        def twice(self):
            return 2.0 * self.shift
        def __mul__(self, x):
            return x * self.factor + self.twice
        def apply(self, x):
            return inner(self * x)
    def inner(x):
        return np.tanh(x)
    scale = Scale(0.5)
    def function(x):
        return scale.apply(x)
"""
CLOSURE = """
    def outer(k, f):
        def function(x):
            return f(x) * k
        return function
    function = outer(3.0, lambda x: x - 1.0)
"""
DEFAULTS = """
    def helper(x, k=2.0, *, shift=1.0, table=np.array([1.0, 2.0, 3.0])):
        return x * k + shift + table
    def function(x):
        return helper(x)
"""
NUMBER = """
    rate = 2.0
    def function(x):
        return x * rate
"""


def number(before: str, now: str) -> Case:
    """A global variable that another process has with another value; each time for a function of its own."""
    text = NUMBER.replace("x * rate", f'x * rate + 0 * len("{before} {now}")').replace("rate = 2.0", f"rate = {before}")
    return Case(text, text.replace(f"rate = {before}", f"rate = {now}"), int(before != now))


DECAYING = """
    rate = 2.0
    def decay(x):
        global rate
        rate = x
    def function(x):
        return x - rate
"""
TREE = """
    import dataclasses
    from typing import NamedTuple
    @dataclasses.dataclass
    class Parameters:
        w: object
        b: object
        kind: str = dataclasses.field(default="tanh", metadata={"static": True})
        def scaled(self):
            return self.w * 2.0
    class Pair(NamedTuple):
        one: object
        two: object
    arguments = (Parameters(np.ones(3), 2.0), {"x": np.arange(3.0), "y": [1.0, (2.0,)]})
    def function(p, data):
        y = p.scaled() * data["x"] + p.b + data["y"][0]
        return Pair(y, {"p": p.w * 2.0, "n": data["y"][1][0] * 3.0})
"""
BRANCH = """
    rounds = [lambda: None, lambda: arguments[0].__imul__(-1.0)]
    def function(x):
        if x.sum() > 1.0:
            return x * 2.0
        return x - 1.0
"""
EFFECT = """
    seen = []
    state = {"count": 0, "last": None}
    class Model:
        def __init__(self):
            self.steps = 0
    model = Model()
    buffer = np.zeros(3)
    def step(x):
        buffer[:] = x
        model.steps += 1
        state["last"] = x * 2.0
        return buffer + 1.0
    def function(x):
        y = step(x)
        return y, model.steps >= 0, float(state["last"][0]), buffer.copy()
"""
PARTIAL = """
    import functools
    def base(k, x, *, shift):
        return x * k + shift
    function = functools.partial(base, 2.0, shift=np.array([1.0, 2.0, 3.0]))
"""
METHOD = """
    class Model:
        def __init__(self, w):
            self.w, self.kind = w, "tanh"
        def loss(self, x):
            y = self.w * x
            return np.tanh(y) if self.kind == "tanh" else y
    model = Model(np.array([1.0, 2.0, 3.0]))
    function = model.loss
"""
DECORATED = """
    import functools
    def doubled(k):
        def decorate(f):
            @functools.wraps(f)
            def call(x):
                return k * f(x)
            return call
        return decorate
    @doubled(2.0)
    def function(x):
        return x + 1.0
"""
TRACED_HELPER = """
    import tracegrad as tg
    @tg.trace
    def helper(x):
        return scaled(x) + 1.0
    def scaled(x):
        return x * 2.0
    def energy(x):
        return np.sum(x**3)
    slope = tg.grad(energy)
    def function(x):
        return helper(x) + slope(x) + tg.grad(lambda y: np.sum(y * y))(x)
    class plain:
        @staticmethod
        def function(x):
            return scaled(x) + 1.0 + 3.0 * x**2 + 2.0 * x
"""
PARTIAL_WITHIN = """
    import functools
    import tracegrad as tg
    def base(k, x):
        return np.sum(k * x**2)
    loss = functools.partial(base, 2.0)
    def total(x):
        return loss(x) * 2.0
    def function(x):
        return tg.grad(loss)(x) + tg.grad(total)(x)
    class plain:
        @staticmethod
        def function(x):
            return 12.0 * x
"""
TRACED_METHOD = """
    import tracegrad as tg
    class Model:
        def __init__(self):
            self.w = np.array([1.0, 2.0, 3.0])
        @tg.trace
        def step(self, x):
            return self.helped(x) * self.w
        def helped(self, x):
            return x + 1.0
    model = Model()
    def make(tg):
        return model.step
    class plain:
        @staticmethod
        def function(x):
            return model.helped(x) * model.w
"""
CALLABLE = """
    class Model:
        def __init__(self, w):
            self.w = w
        def __call__(self, x):
            return self.w * x
    function = Model(2.0)
"""
STATIC = """
    import enum
    class Mode(enum.Enum):
        SIN = 1.0
        COS = 2.0
    arguments = (np.ones(3), Mode.COS, "mean", 3)
    def make(tg):
        return tg.trace(function, static_argnums=3)
    def function(x, mode, how, n):
        y = np.sin(x) if mode is Mode.SIN else np.cos(x)
        return getattr(np, how)(y) * mode.value * n
"""
TRANSFORMS = """
    def loss(x, y):
        return np.sum(np.sin(x) * y)
    arguments = (np.array([0.25, 0.5, 1.5]), np.array([1.0, 2.0, 3.0]))
    def make(tg):
        derivatives = [tg.grad(loss), tg.grad(tg.grad(lambda s: s**3)), tg.hessian(loss), tg.jacfwd(tg.grad(loss)),
                       tg.value_and_grad(loss, argnums=0), tg.vmap(loss)]
        def all(x, y):
            found = [derivatives[0](x, y), derivatives[1](2.0), derivatives[2](x, y), derivatives[3](x, y)]
            return [*found, derivatives[4](x, y), derivatives[5](x, y)]
        all.cache_info = lambda: sum_of([d.cache_info() for d in derivatives])
        return all
    class sum_of:
        def __init__(self, infos):
            self.traces = sum(info.traces for info in infos)
    def function(x, y):
        h = np.diag(-np.sin(x) * y)
        return [np.cos(x) * y, np.float64(12.0), h, h, (loss(x, y), np.cos(x) * y), np.sin(x) * y]
"""
AXES = """
    arguments = (np.arange(9.0).reshape(3, 3),)
    def total(p):
        return np.sum(p["a"]) * 2.0
    def make(tg):
        totals = tg.vmap(total, in_axes=({"a": 0},))
        def all(x):
            return totals({"a": x})
        all.cache_info = totals.cache_info
        return all
    def function(x):
        return 2.0 * x.sum(1)
"""
CASES = {
    "axes": same(AXES),
    "axes_of_a_dict": Case(AXES, AXES.replace('{"a": 0}', '{"a": 1}').replace("x.sum(1)", "x.sum(0)"), 1),
    "traced_helpers": same(TRACED_HELPER),
    "traced_helper": Case(TRACED_HELPER, TRACED_HELPER.replace("scaled(x) + 1.0", "scaled(x) + 2.0"), 1),
    "traced_helper_of_helper": changed(TRACED_HELPER, "x * 2.0", "x * 3.0"),
    "function_of_a_derivative": Case(
        TRACED_HELPER, TRACED_HELPER.replace("x**3)", "x**3) * 2.0").replace("3.0 * x**2", "6.0 * x**2"), 1
    ),
    "function_within": Case(
        TRACED_HELPER, TRACED_HELPER.replace("y * y)", "y * y * y)").replace("2.0 * x\n", "3.0 * x**2\n"), 1
    ),
    "partials_within": same(PARTIAL_WITHIN),
    "partial_within": Case(PARTIAL_WITHIN, PARTIAL_WITHIN.replace("base, 2.0", "base, 3.0").replace("12.0", "18.0"), 1),
    "traced_methods": same(TRACED_METHOD),
    "traced_method": Case(
        TRACED_METHOD, TRACED_METHOD.replace("* self.w", "/ self.w").replace("* model.w", "/ model.w"), 1
    ),
    "method_of_a_traced_method": changed(TRACED_METHOD, "x + 1.0", "x + 3.0"),
    "callables": same(CALLABLE),
    "callable": changed(CALLABLE, "self.w * x", "self.w + x"),
    "callable_attribute": changed(CALLABLE, "Model(2.0)", "Model(2.5)"),
    "statics": same(STATIC),
    "static_member": changed(STATIC, "COS = 2.0", "COS = 3.0"),
    "static_other_member": changed(STATIC, "Mode.COS,", "Mode.SIN,"),
    "static_text": changed(STATIC, '"mean"', '"sum"'),
    "static_number": changed(STATIC, ", 3)\n", ", 4)\n"),
    "static_number_of_another_type": changed(STATIC, ", 3)\n", ", 3.0)\n"),
    "transforms": same(TRANSFORMS),
    "all_transforms": Case(TRANSFORMS, TRANSFORMS.replace("np.sin(x) * y)", "np.sin(x) * y * 1.0)"), 5),
    "argnums": Case(
        TRANSFORMS, TRANSFORMS.replace("argnums=0", "argnums=1").replace("y), np.cos(x) * y)", "y), np.sin(x))"), 1
    ),
    "nothing": same(HELPER),
    "comment_and_lines": Case(HELPER, "    # moved\n\n\n" + HELPER.replace("def helper", "# why\n    def helper"), 0),
    "helper": changed(HELPER, "x * 2.0", "x * 3.0"),
    "helper_is_another": changed(HELPER + "    other = lambda x: x - 5.0\n", "return helper", "return other"),
    "helper_rebound": changed(HELPER + "    extra = 1\n", "extra = 1", "helper = lambda x: x * 7.0"),
    "helper_gone_to_numpy": changed(HELPER + "    extra = 1\n", "extra = 1", "helper = np.exp"),
    "numpy_is_another": changed(NESTED + "    extra = 1\n", "extra = 1", "np = __import__('math_of_mine')"),
    "objects": same(NESTED),
    "method": changed(NESTED, "inner(self * x)", "inner(self * x) + 1.0"),
    "special_method": changed(NESTED, "x * self.factor +", "x * self.factor -"),
    "property": changed(NESTED, "2.0 * self.shift", "3.0 * self.shift"),
    "class_attribute": changed(NESTED, "factor = 2.0", "factor = 4.0"),
    "attribute": changed(NESTED, "Scale(0.5)", "Scale(0.75)"),
    "attribute_of_instance_hides": changed(NESTED + "    extra = 1\n", "extra = 1", "scale.factor = 9.0"),
    "deep_helper": changed(NESTED, "np.tanh(x)", "np.sinh(x)"),
    "base_class": changed(
        NESTED.replace("class Scale:", "class Base:\n        pass\n    class Scale(Base):"),
        "pass",
        "def __init_subclass__(cls):\n            cls.factor = 7.0",
    ),
    "closures": same(CLOSURE),
    "captured_number": changed(CLOSURE, "3.0", "5.0"),
    "captured_number_of_another_type": changed(CLOSURE, "outer(3.0", "outer(3"),
    "captured_truth": changed(CLOSURE.replace("3.0", "1"), "outer(1", "outer(True"),
    "captured_function": changed(CLOSURE, "x - 1.0", "x - 2.0"),
    "defaults": same(DEFAULTS),
    "default": changed(DEFAULTS, "k=2.0", "k=3.0"),
    "keyword_default": changed(DEFAULTS, "shift=1.0", "shift=-1.0"),
    "default_array_is_read": Case(DEFAULTS, DEFAULTS.replace("3.0])", "4.0])"), 0),
    "default_array_of_another_dtype": changed(DEFAULTS, "3.0])", "3.0], np.float32)"),
    "another_number": number("2.0", "2.5"),
    "a_number_of_another_type": number("2.0", "2"),
    "a_truth": number("1", "True"),
    "minus_zero": changed(NUMBER.replace("2.0", "0.0").replace("x * rate", "np.copysign(x, rate)"), "= 0.0", "= -0.0"),
    "nan": number("2.0", "float('nan')"),
    "nan_again": number("float('nan')", "float('nan')"),
    "number_becomes_array": number("2.0", "np.full(3, 2.0)"),
    "numpy_number": number("np.float64(2.0)", "np.float32(2.0)"),
    "decaying_rate": Case(
        DECAYING + "    rounds = [lambda: None, lambda: decay(3.0), lambda: decay(4.0)]\n",
        DECAYING + "    rounds = [lambda: decay(5.0), lambda: decay(6.0)]\n",
        0,
    ),
    "code_is_replaced": changed(
        HELPER + "    extra = 1\n", "extra = 1", "helper.__code__ = (lambda x: x * 11.0).__code__"
    ),
    "defaults_are_replaced": changed(
        DEFAULTS + "    extra = 1\n", "extra = 1", "helper.__kwdefaults__['shift'] = 12.0"
    ),
    "monkeypatched": changed(NESTED + "    extra = 1\n", "extra = 1", "np.tanh = lambda x: x * 13.0"),
    "trees": same(TREE),
    "static_field": changed(TREE, 'default="tanh"', 'default="relu"'),
    "method_of_a_dataclass": changed(TREE, "self.w * 2.0", "self.w * 3.0"),
    "field_added": changed(TREE, "b: object\n", "b: object\n        c: object = 1.0\n"),
    "branches": same(BRANCH),
    "branch": changed(BRANCH.replace("rounds = ", "others = "), "x * 2.0", "x * 2.5"),
    "effects": same(EFFECT),
    "effect": changed(EFFECT, 'state["last"] = x * 2.0', 'state["last"] = x * 3.0'),
    "buffer_of_another_shape": changed(EFFECT, "np.zeros(3)", "np.zeros((1, 3))[0].astype(np.float32)"),
    "partials": same(PARTIAL),
    "partial": changed(PARTIAL, "base, 2.0", "base, 3.0"),
    "partial_array_is_read": Case(PARTIAL, PARTIAL.replace("[1.0,", "[9.0,"), 0),
    "partial_of_another": changed(PARTIAL, "x * k +", "x * k -"),
    "methods": same(METHOD),
    "weights_are_read": Case(METHOD, METHOD.replace("[1.0,", "[9.0,"), 0),
    "kind_of_model": changed(METHOD, 'w, "tanh"', 'w, "relu"'),
    "decorators": same(DECORATED),
    "decorator": changed(DECORATED, "@doubled(2.0)", "@doubled(3.0)"),
    "decorator_code": changed(DECORATED, "k * f(x)", "k + f(x)"),
    "dtype": changed(NUMBER, "rate = 2.0", "rate = 2.0\n    arguments = (np.ones(3, np.float32),)"),
    "shape": changed(NUMBER, "rate = 2.0", "rate = 2.0\n    arguments = (np.ones(4),)"),
    "environment": Case(
        "    import os\n    def function(x):\n        return x * float(os.environ.get('MINE', '2'))\n",
        "    import os\n    os.environ['MINE'] = '3'\n"
        "    def function(x):\n        return x * float(os.environ.get('MINE', '2'))\n",
        1,
    ),
    "context_variable": Case(
        "    import contextvars\n    mode = contextvars.ContextVar('mode', default=2.0)\n"
        "    def function(x):\n        return x * mode.get()\n",
        "    import contextvars\n    mode = contextvars.ContextVar('mode', default=3.0)\n"
        "    def function(x):\n        return x * mode.get()\n",
        1,
    ),
    "error_state": Case(
        "    def function(x):\n        return x * (2.0 if np.geterr()['under'] == 'ignore' else 3.0)\n",
        "    np.seterr(under='warn')\n"
        "    def function(x):\n        return x * (2.0 if np.geterr()['under'] == 'ignore' else 3.0)\n",
        1,
    ),
    "print_options": changed(
        "    extra = 1\n    def function(x):\n        return x * float(len(str(np.array([1 / 3]))))\n",
        "extra = 1",
        "np.set_printoptions(precision=3)",
    ),
    "set_of_names": Case(
        *2 * ["    def function(x):\n        return x * float(len([k for k in {'a', 'b', 'c', 'd'}][0]))\n"], 1
    ),
    "prints": Case(
        *2
        * [
            "    import io\n    def function(x):\n        print('here', file=sys.stderr)\n"
            "        return x * 2.0\n    import sys\n"
        ],
        1,
    ),
    "list_is_longer": changed(
        "    layers = [2.0, 3.0]\n    def function(x):\n        for k in layers:\n            x = x * k\n"
        "        return x\n",
        "3.0]",
        "3.0, 4.0]",
    ),
    "dict_order": changed(
        "    layers = {'a': 2.0, 'b': 3.0}\n    def function(x):\n        for k in layers.values():\n"
        "            x = x * k + 1.0\n        return x\n",
        "{'a': 2.0, 'b': 3.0}",
        "{'b': 3.0, 'a': 2.0}",
    ),
    "one_object_for_two": changed(
        "    class Box:\n        def __init__(self):\n            self.v = 1.0\n    a, b = Box(), Box()\n"
        "    def function(x):\n        a.v = 1.0\n        b.v = 2.0\n        y = x * a.v\n        a.v = 1.0\n"
        "        b.v = 1.0\n        return y\n",
        "Box(), Box()",
        "(one := Box()), one",
    ),
    "module_of_mine": changed(
        "    import math_of_mine\n    def function(x):\n        return math_of_mine.tanh(x)\n",
        "math_of_mine\n",
        "math_of_others as math_of_mine\n",
    ),
}

OF_MINE = {
    "math_of_mine": "import numpy as np\ndef tanh(x): return np.tanh(x) * 2.0\n",
    "math_of_others": "import numpy as np\ndef tanh(x): return np.tanh(x) * 4.0\n",
}


# What changes the process for all that come after it.
APART = ("monkeypatched", "error_state", "environment", "print_options")


@pytest.fixture(scope="module", params=["compile", "replay"])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Any]]:
    """What each case gives before and now, where the first call compiles, and where NumPy answers it."""
    return before_and_now(tmp_path_factory.mktemp("recall"), CASES, request.param, APART, OF_MINE)


@pytest.mark.parametrize("name", CASES)
def test_a_trace_is_used_again_just_where_nothing_has_changed(both: Any, name: str) -> None:
    check(both[name], CASES[name])


IMPORTS = """
    import sys
    def loss(x):
        return np.sum(np.tanh(x) ** 2)
    def make(tg):
        slope = tg.value_and_grad(loss)
        def made(x):
            slope(x)
            return sorted(name for name in sys.modules if name.startswith("tracegrad.torch.t"))
        made.cache_info = slope.cache_info
        return made
    def function(x):
        return []
"""


@pytest.mark.parametrize("first_call", ["compile", "replay"])
def test_a_trace_from_disk_imports_nothing_that_tensors_need(tmp_path: Path, first_call: str) -> None:
    case = same(IMPORTS)
    check(before_and_now(tmp_path, {"imports": case}, first_call)["imports"], case)


# -- in one process --------------------------------------------------------------------------------------------------
@pytest.fixture
def cache(tmp_path: Path) -> Iterator[DiskCache]:
    """A folder for traces and machine code, in which all calls are kept."""
    folder = str(tmp_path / "cache")
    with settings.override(cache=True, cache_dir=folder, cache_traces=True, first_call="compile"):
        yield DiskCache(folder)


def wave(x: Any) -> Any:
    return np.sin(x) * 2.0


def chosen(x: Any, i: Any) -> Any:
    if x.sum() > 0:
        return x[i] * 2.0
    return x[i] - 1.0


X = np.array([0.25, 0.5, 1.5])


def traces(result: Any, *args: Any) -> int:
    """How often a function is traced for these arguments."""
    result(*args)
    count: int = result.cache_info().traces
    return count


def test_what_was_kept_is_used_by_the_next_traced_function(cache: DiskCache) -> None:
    assert traces(tg.trace(wave), X) == 1
    again = tg.trace(wave)
    assert traces(again, X) == 0
    assert again.cache_info().hits == 1
    assert again(X * 2).tolist() == wave(X * 2).tolist()


@pytest.mark.parametrize("damage", [lambda data: data[:-40], lambda data: data[:90] + b"?" + data[91:], lambda _: b""])
def test_a_damaged_record_is_a_miss(cache: DiskCache, damage: Callable[[bytes], bytes]) -> None:
    assert traces(tg.trace(wave), X) == 1
    assert cache.folder is not None
    records = [path for path in Path(cache.folder).glob("*.tgc") if b'"kind":"trace"' in path.read_bytes()]
    assert len(records) == 1
    records[0].write_bytes(damage(records[0].read_bytes()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CacheWarning)
        assert traces(tg.trace(wave), X) == 1
        assert traces(tg.trace(wave), X) == 0


def test_machine_code_that_is_gone_is_compiled_without_a_trace(cache: DiskCache) -> None:
    def lonely(x: Any) -> Any:
        return np.arctan(x) * np.cosh(x) + 0.125

    assert traces(tg.trace(lonely), X) == 1
    gc.collect()
    assert cache.folder is not None
    for path in Path(cache.folder).glob("*.tgc"):
        if b'"kind":"piece"' in path.read_bytes():
            path.unlink()
    before = machine_code_count()
    assert traces(tg.trace(lonely), X) == 0
    assert machine_code_count() > before


def test_another_version_or_machine_is_a_miss(cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    assert traces(tg.trace(wave), X) == 1
    monkeypatch.setattr(trace_store, "process_key", lambda: "another NumPy")
    assert traces(tg.trace(wave), X) == 1


def test_the_key_of_a_process_has_versions_the_cpu_and_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    plain_key = fingerprint.process_key.__wrapped__()
    for module, name, value in (
        (np, "__version__", "0.1"),
        (sys, "version", "4.0"),
        (fingerprint, "cpu_key", lambda: "another"),
        (fingerprint, "source_stamps", lambda: ["trace/values/tracer.py 1 2"]),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, value)
            assert fingerprint.process_key.__wrapped__() != plain_key
    assert fingerprint.process_key.__wrapped__() == plain_key


@pytest.mark.parametrize("switch", ["cache", "cache_traces"])
def test_each_switch_switches_it_off(cache: DiskCache, switch: str) -> None:
    with settings.override(**{switch: False}):
        assert traces(tg.trace(wave), X) == 1
    assert traces(tg.trace(wave), X) == 1
    with settings.override(**{switch: False}):
        assert traces(tg.trace(wave), X) == 1


def test_packages_that_are_opaque_are_part_of_the_key(cache: DiskCache) -> None:
    assert traces(tg.trace(wave), X) == 1
    with settings.override(opaque_packages=frozenset({"package.of.mine"})):
        assert traces(tg.trace(wave), X) == 1
        assert traces(tg.trace(wave), X) == 0
    assert traces(tg.trace(wave), X) == 0


def test_what_traces_do_not_see_is_not_kept(cache: DiskCache) -> None:
    for function, x in (
        (lambda x: sys.stdout.write("") or x * 2.0, X),
        (lambda x: x * len({1, 2, 3}), X),
        (lambda x: x * len(textwrap.dedent("a")), X),
        (lambda x: x * hash("a"), X),
    ):
        for _ in range(2):
            assert traces(tg.trace(function), x) == 1


def test_who_is_warned_is_warned_in_each_process(cache: DiskCache) -> None:
    for _ in range(2):
        with pytest.warns(DerivativeWarning, match="counts as a constant"):
            tg.trace(lambda t: t.sum() * float(t[0]))(tg.tensor(X, requires_grad=True))


def test_a_debugger_sees_the_function_run(cache: DiskCache) -> None:
    assert traces(tg.trace(wave), X) == 1
    before = sys.gettrace()
    sys.settrace(lambda *_: None)
    try:
        assert traces(tg.trace(wave), X) == 1
    finally:
        sys.settrace(before)


def test_explain_tells_the_same_of_a_trace_that_was_kept(cache: DiskCache) -> None:
    for args in ((X, 1), (-X, 1)):
        first, again = tg.trace(chosen), tg.trace(chosen)
        told = first.explain(*args)
        saved = again.explain(*args)
        for part in ("entry_guards", "world_guards", "value_guards", "groups", "kernels", "graph", "optimized"):
            assert getattr(saved, part) == getattr(told, part)
        assert saved.cache.startswith("trace from disk")
        lines = to_text(saved.graph, locations=True)
        assert "test_trace_store.py:" in lines
        assert lines == to_text(told.graph, locations=True)


def test_explain_tells_the_same_of_captured_arrays(cache: DiskCache) -> None:
    weights = np.ones(3)

    def weighed(x: Any) -> Any:
        return x * weights + X

    told, saved = tg.trace(weighed).explain(X), tg.trace(weighed).explain(X)
    assert saved.cache.startswith("trace from disk")
    assert saved.world_guards == told.world_guards
    assert str(saved.graph) == str(told.graph)


def test_a_call_that_raises_does_so_by_the_function_itself(cache: DiskCache) -> None:
    assert traces(tg.trace(chosen), X, 1) == 1
    again = tg.trace(chosen)
    with pytest.raises(IndexError, match="index 7 is out of bounds"):
        again(X, 7)
    assert again(X, 2) == 3.0
    assert again(-X, 2) == -2.5
    assert again.cache_info().traces <= 2


def test_many_records_of_one_call_are_bounded(cache: DiskCache) -> None:
    rate = 0

    def scaled(x: Any) -> Any:
        return x * str(rate).count("1")

    for rate in range(trace_store.MAX_RECORDS + 4):  # noqa: B007 (read by `scaled`)
        assert traces(tg.trace(scaled), X) == 1
    results = [cache.get(key) for key in keys_of(cache)]
    assert max(len(x[1].split(b"\n")) for x in results if x is not None) == trace_store.MAX_RECORDS
    assert traces(tg.trace(scaled), X) == 0


def keys_of(cache: DiskCache) -> list[str]:
    """The keys of the traces in a cache."""
    assert cache.folder is not None
    lines = [path.read_bytes().split(b"\n", 1)[0] for path in Path(cache.folder).glob("*.tgc")]
    return [key for line in lines for key in json.loads(line)["keys"] if key.startswith("trace ")]
