"""What traced code asks modules, classes and enumerations about themselves is asked again at each call."""

from __future__ import annotations

import enum
import gc
import inspect
import itertools
import math
import sys
import types
import warnings
import weakref
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
from meaning import program

import tracegrad as tg

X = np.array([1.0, -2.0, 3.0])


def module(name: str = "made_by_a_test", **attributes: Any) -> Any:
    result: Any = types.ModuleType(name)
    vars(result).update(attributes)
    return result


# -- modules -----------------------------------------------------------------------------------------------------------
@program
def test_all_that_a_module_has(trace: Any) -> Any:
    m = module(op_a=2.0)

    @trace
    def f(x: Any) -> Any:
        y = x * x
        for name, v in vars(m).items():
            y = y + v * x if name.startswith("op_") else y
        return y * m.__dict__.get("scale", 1.5) + x * len(m.__dict__)

    yield f(X), f(X)
    m.op_b = 3.0
    yield f(X), f(X)
    m.op_a = 7.0
    yield f(X), f(X)
    m.scale = X
    yield f(X), f(X)
    del m.op_b
    yield f(X), f(X)


@program
def test_all_global_variables(trace: Any) -> Any:
    space = globals()
    space.update(scale_a=2.0)

    @trace
    def f(x: Any) -> Any:
        for _, v in sorted([(name, v) for name, v in globals().items() if name.startswith("scale_")]):
            x = x * v
        return x * (2.0 if "scale_c" in globals() else 1.0)

    yield f(X), f(X)
    space["scale_b"] = 3.0
    yield f(X), f(X)
    space["scale_c"] = 4.0
    yield f(X), f(X)
    del space["scale_b"]
    yield f(X), f(X)
    for name in ("scale_a", "scale_c"):
        del space[name]
    yield f(X), f(X)


@program
def test_global_variables_are_written_by_item_and_taken_away(trace: Any) -> Any:
    space = globals()
    space["count_z"] = 1.0

    @trace
    def f(x: Any) -> Any:
        globals()["count_z"] = globals()["count_z"] + 1.0
        globals().update(other_z=2.0)
        return x * globals()["count_z"] * globals().setdefault("other_z", 5.0)

    @trace
    def takes(x: Any) -> Any:
        return x * globals().pop("count_z", 0.5)

    yield f(X), space["count_z"], f(X), space["other_z"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tg.PerformanceWarning)
        yield takes(X), "count_z" in space, takes(X)
        space["count_z"] = 3.0
        yield takes(X), "count_z" in space
    del space["other_z"]


@program
def test_a_function_for_the_names_that_a_module_lacks(trace: Any) -> Any:
    m, table = module(), {"k": 2.0}

    def answer(name: str) -> Any:
        if name in table:
            return table[name]
        raise AttributeError(name)

    @trace
    def f(x: Any) -> Any:
        return x * getattr(m, "k", 3.0) + getattr(m, "shift", 1.0)

    yield f(X), f(X)
    m.__getattr__ = answer
    yield f(X), f(X)
    table["k"] = 5.0
    yield f(X), f(X)
    table["shift"] = 6.0
    yield f(X), f(X)
    m.k = 7.0
    yield f(X), f(X)
    del m.__getattr__
    yield f(X), f(X)


@program
def test_what_python_tells_of_a_module(trace: Any) -> Any:
    m = module(k=2.0)
    m.__doc__, m.__file__ = "ab", "abc"

    @trace
    def f(x: Any) -> Any:
        return x * len(m.__name__) + len(m.__doc__) + len(m.__file__) + (m.__spec__ is None) + len(math.__name__)

    yield f(X), f(X)
    m.__name__ = "another_name"
    yield f(X), f(X)
    m.__doc__ = "abc"
    yield f(X), f(X)
    m.__file__ = "abcd"
    yield f(X), f(X)


@program
def test_what_modules_of_packages_list(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        several = [g(x[0]) for name, g in vars(math).items() if name in ("cos", "exp")]
        return vars(np)["sin"](x) * sum(several) + np.__dict__.get("exp")(x) * len(dict(vars(itertools)))

    @trace
    def g(x: Any) -> Any:
        return x * len([name for name in dir(np.linalg) if name.startswith("e")])

    yield f(X), f(X)
    yield g(X), g(X)


@program
def test_whether_a_module_can_be_imported(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        try:
            import colorsys as found

            x = x * len(found.__name__)
        except ImportError:
            x = x + 1
        try:
            import alias_of_a_test as alias  # type: ignore[import-not-found]

            return x * alias.k
        except ImportError:
            return x

    yield f(X), f(X)
    held = sys.modules.get("colorsys")
    sys.modules["alias_of_a_test"] = module("another_name", k=3.0)
    try:
        yield f(X), f(X)
        sys.modules["colorsys"] = None  # type: ignore[assignment]
        yield f(X), f(X)
    finally:
        del sys.modules["alias_of_a_test"], sys.modules["colorsys"]
        if held is not None:
            sys.modules["colorsys"] = held
    yield f(X), f(X)


# -- classes -----------------------------------------------------------------------------------------------------------
@program
def test_subclasses(trace: Any) -> Any:
    class Base:
        w = 1.0

        def op(self, x: Any) -> Any:
            return x

    class A(Base):
        w = 2.0

    def all_of(cls: Any) -> Iterator[Any]:
        for each in cls.__subclasses__():
            yield each
            yield from all_of(each)

    @trace
    def f(x: Any) -> Any:
        return sum([cls().op(x) * cls.w for cls in all_of(Base)]) + len(type.__subclasses__(Base))

    k = 3.0
    yield f(X), f(X)

    class B(A):
        w = 3.0

        def op(self, x: Any) -> Any:
            return x * x * k

    yield f(X), f(X)
    A.w = 5.0
    yield f(X), f(X)
    k = 4.0
    yield f(X), f(X), B.w


@program
def test_a_subclass_is_found_by_its_name(trace: Any) -> Any:
    class Base:
        pass

    class A(Base):
        w = 2.0

    name = "A"

    @trace
    def f(x: Any) -> Any:
        known: dict[str, Any] = {cls.__name__: cls for cls in Base.__subclasses__()}
        return x * (known[name].w if name in known else 1.0)

    yield f(X), f(X)
    name = "B"
    yield f(X), f(X)

    class B(Base):
        w = 3.0

    yield f(X), f(X)
    A.__name__ = "B"
    yield f(X), f(X)
    yield B.w


@program
def test_all_that_a_class_has(trace: Any) -> Any:
    class Base:
        w0 = 1.0

    class C(Base):
        table: ClassVar[Any] = {"a": 2.0}
        w1 = 2.0

        def total(self) -> float:
            listed = [vars(cls) for cls in type(self).__mro__]
            return sum([v for held in listed for name, v in held.items() if name.startswith("w")])

    c: Any = C()

    @trace
    def f(x: Any) -> Any:
        return x * vars(C)["table"]["a"] * c.total()

    @trace
    def g(x: Any) -> Any:
        return x * sum([v for name, v in C.__dict__.items() if name.startswith("w")]) * len(getattr(Base, "__dict__"))  # noqa: B009

    yield f(X), g(X), f(X), g(X)
    C.w2 = 4.0  # type: ignore[attr-defined]
    yield f(X), g(X), f(X), g(X)
    Base.w3 = 9.0  # type: ignore[attr-defined]
    yield f(X), g(X), f(X), g(X)
    Base.w0 = 7.0
    yield f(X), g(X), f(X), g(X)
    C.table["a"] = 5.0
    yield f(X), g(X), f(X), g(X)


@program
def test_what_a_class_is_called(trace: Any) -> Any:
    class C:
        pass

    c = C()

    @trace
    def f(x: Any) -> Any:
        return x * len(C.__name__) * len(type(c).__qualname__)

    yield f(X), f(X)
    C.__name__ = "Longer"
    yield f(X), f(X)
    C.__qualname__ = "Other"
    yield f(X), f(X)


# -- enumerations ------------------------------------------------------------------------------------------------------
def add_member(cls: Any, name: str, value: float) -> None:
    result = object.__new__(cls)
    result._name_, result._value_ = name, value
    cls._member_map_[name] = cls._value2member_map_[value] = result
    cls._member_names_.append(name)


@program
def test_members_that_are_added(trace: Any) -> Any:
    class Color(enum.Enum):
        RED = 1.0
        BLUE = 2.0

    @trace
    def goes_over(x: Any) -> Any:
        return x * sum([m.value for m in Color]) * len(Color) * len(Color.__members__)

    @trace
    def by_name(x: Any) -> Any:
        try:
            return x * Color["GREEN"].value
        except KeyError:
            return x

    @trace
    def by_value(x: Any) -> Any:
        try:
            return x * len(Color(5.0).name)
        except ValueError:
            return x

    for _ in range(2):
        yield goes_over(X), goes_over(X)
        yield by_name(X), by_name(X)
        yield by_value(X), by_value(X)
        add_member(Color, "GREEN", 5.0)


@program
def test_attributes_of_members(trace: Any) -> Any:
    class Color(enum.Enum):
        RED = 1.0
        BLUE = 2.0

    @trace
    def f(x: Any, *cs: Any) -> Any:
        try:
            x = x * Color.RED.weight  # type: ignore[attr-defined]
        except AttributeError:
            x = x + 1
        return x * Color.RED.value * sum([getattr(c, "weight", 2.0) for c in cs])

    red: Any = Color.RED
    yield f(X, red), f(X, Color.BLUE)
    red.weight = 3.0
    yield f(X, red), f(X, Color.BLUE)
    red.weight = 4.0
    yield f(X, red), f(X, Color.BLUE)
    Color.BLUE.weight = 5.0  # type: ignore[attr-defined]
    yield f(X, red), f(X, Color.BLUE)
    del red.weight
    yield f(X, red), f(X, Color.BLUE)
    red._value_ = 7.0
    yield f(X, red), f(X, Color.BLUE)


@program
def test_what_stands_for_a_missing_member(trace: Any) -> Any:
    class Color(enum.Enum):
        RED = 1.0
        BLUE = 2.0

    @trace
    def f(x: Any) -> Any:
        try:
            return x * Color(9.0).value
        except ValueError:
            return x

    yield f(X), f(X)
    Color._missing_ = classmethod(lambda cls, _: cls.BLUE)  # type: ignore[assignment]
    yield f(X), f(X)
    Color._missing_ = classmethod(lambda cls, _: cls.RED)  # type: ignore[assignment]
    yield f(X), f(X)


@program
def test_attributes_of_numbers_and_texts_of_classes(trace: Any) -> Any:
    class Scale(float):
        unit: Any

    class Text(str):
        __slots__ = ("__dict__",)

    scale, text = Scale(2.0), Text("abc")

    @trace
    def f(x: Any) -> Any:
        return x * scale * getattr(scale, "unit", 1.0) * len(text) * getattr(text, "weight", 1.0)

    yield f(X), f(X)
    scale.unit = 3.0
    yield f(X), f(X)
    text.weight = 4.0  # type: ignore[attr-defined]
    yield f(X), f(X)


@program
def test_whether_namespaces_hold_the_same(trace: Any) -> Any:
    a, b = types.SimpleNamespace(k=1.0), types.SimpleNamespace(k=1.0)

    @trace
    def f(x: Any) -> Any:
        return x * (2 if a == b else 1) * (3 if a != b else 1)

    yield f(X), f(X)
    b.k = 2.0
    yield f(X), f(X)
    a.k, a.more = 2.0, 1
    yield f(X), f(X)
    b.more = 1
    yield f(X), f(X)


# -- warnings ----------------------------------------------------------------------------------------------------------
@program
def test_whether_a_warning_is_an_error(trace: Any) -> Any:
    @trace
    def f(x: Any) -> Any:
        try:
            warnings.warn("beware", BytesWarning, stacklevel=1)
        except BytesWarning:
            return x * 3
        return x

    for action in ("ignore", "error", "ignore"):
        with warnings.catch_warnings():
            warnings.simplefilter(action, BytesWarning)  # type: ignore[arg-type]
            yield f(X), f(X)


# -- a trace of one call -----------------------------------------------------------------------------------------------
class Held:
    pass


@pytest.mark.parametrize("disabled", [False, True])
def test_the_derivative_of_a_plain_call_sees_modules_and_objects_as_they_are(disabled: bool) -> None:
    m, held, refs = module(op_a=2.0), Held(), list[Any]()

    def members(x: Any) -> Any:
        return sum([v * x**2 for name, v in inspect.getmembers(m) if name.startswith("op_")])

    def listed(x: Any) -> Any:
        return sum([getattr(m, name) * x**2 for name in dir(m) if name.startswith("op_")])

    def references(x: Any) -> Any:
        return x**2 * weakref.getweakrefcount(held)

    def objects(x: Any) -> Any:
        return x**2 * (sys.getrefcount(held) > 50) * any(type(each) is list for each in gc.get_referrers(held))

    several = members, listed, references, objects
    gradients = [tg.grad(lambda x, f=f: f(x).sum()) for f in several]
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", tg.PerformanceWarning)
            for f, gradient in zip(several, gradients):
                with tg.disable_jit() if disabled else warnings.catch_warnings():
                    np.testing.assert_allclose(gradient(X), 2 * f(X) / X)
        m.op_b = 3.0
        refs += [weakref.ref(held), [held] * 100]
