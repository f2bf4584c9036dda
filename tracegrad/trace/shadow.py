"""Shadows: the user's functions, modules and objects as traced code sees them, so that what it reads is known.

The shadow of a function is its code with another namespace: `Globals`, whose lookups go through the world of the
trace (CPython's LOAD_GLOBAL honours `__getitem__` of a dict subclass), and with cells whose contents are
translated. In it the name of NumPy stands for NumPy with functions that make arrays, `math` for functions that know
traced numbers, `scipy.special` for functions over ops. The shadow of an object reads its attributes through the
world and calls its methods as shadows.

Only the user's code is run so: functions from files outside the standard library, site-packages and tracegrad.
"""

from __future__ import annotations

import builtins
import enum
import functools
import math
import os
import sys
import sysconfig
import types
from collections import deque
from typing import Any

import numpy as np

from tracegrad.errors import UnsupportedError, located
from tracegrad.numpy_api import special
from tracegrad.numpy_api.creation import REPLACEMENTS
from tracegrad.numpy_api.operands import peer_of
from tracegrad.numpy_api.registry import FUNCTIONS, dispatch_function
from tracegrad.ops import Carrier
from tracegrad.trace.builtins import BUILTINS, Shadowed, unshadowed
from tracegrad.trace.inline import Inlinable
from tracegrad.trace.math_functions import MATH, valued
from tracegrad.trace.sources import Attribute, Cell, Fixed, Global, Item, Source
from tracegrad.trace.tries import Namespace

__all__ = [
    "COLLECTIONS",
    "VALUES",
    "Globals",
    "contents",
    "function",
    "is_user_code",
    "is_user_function",
    "is_user_module",
    "is_user_object",
    "module",
    "replacement",
    "unshadowed",
    "user_object",
]

# Immutable values that need no more than a guard.
VALUES = (
    bool, int, float, complex, str, bytes, type(None), np.generic, np.dtype, type(...), type(NotImplemented), slice,
    range, frozenset, enum.Enum,
)  # fmt: skip
# Mutable collections that traced code is given as they are.
COLLECTIONS = (set, deque, dict, list, bytearray)
_FOREIGN = tuple(
    {
        os.path.join(path, "")
        for key in ("stdlib", "platstdlib", "purelib", "platlib")
        if (path := sysconfig.get_path(key))
    }
)
_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")


@functools.cache
def _is_user_file(filename: str) -> bool:
    return not filename.startswith((*_FOREIGN, _PACKAGE, "<frozen")) and "site-packages" not in filename


def is_user_module(x: types.ModuleType) -> bool:
    """Whether a module is the user's."""
    filename = getattr(x, "__file__", None)
    return bool(filename) and _is_user_file(str(filename))


def is_user_function(x: Any) -> bool:
    """Whether `x` is a function written in a file of the user's, or a wrapper of one, as `contextmanager` makes it."""
    while isinstance(x, types.FunctionType):
        if _is_user_file(x.__code__.co_filename):
            return True
        x = getattr(x, "__wrapped__", None)
    return False


@functools.lru_cache(maxsize=4096)
def is_user_code(cls: Any) -> bool:
    """Whether a class comes from a module of the user's."""
    if cls.__module__ == "builtins" or cls.__module__ in sys.stdlib_module_names:
        return False
    return _is_user_file(getattr(sys.modules.get(cls.__module__), "__file__", "") or "")


# -- namespaces and functions ------------------------------------------------------------------------
class Globals(Namespace):
    """The globals of shadows: reads come from the real namespace through the world, writes stay here."""

    __slots__ = ("known", "real", "world")

    def __init__(self, real: dict[str, Any], world: Any):
        super().__init__(__builtins__=_builtins_of(real, world))
        self.real, self.world = real, world
        self.known: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name in self:
            return super().__getitem__(name)
        if not self.world.open:
            return self.real[name]
        if name not in self.known:
            if name not in self.real and name in BUILTINS:
                return BUILTINS[name]
            self.known[name] = self.world.translate(self.real[name], Global(self.real, name))
        return self.known[name]


def _builtins_of(real: dict[str, Any], world: Any) -> dict[str, Any]:
    """The built-in names for shadows with the globals `real`: what they import are shadows too."""
    found = real.get("__builtins__", builtins)
    names = dict(found if isinstance(found, dict) else vars(found))
    theirs = names["__import__"]

    def imported(name: str, _: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        module = theirs(name, real, locals, fromlist, level)
        return world.translate(module, Fixed(module, name), guard=False) if world.open else module

    names["__import__"] = imported
    return names


def contents(cell: types.CellType) -> Any:
    """What a cell holds; EMPTY when it is empty."""
    try:
        return cell.cell_contents
    except ValueError:
        return EMPTY


EMPTY: Any = object()


def function(world: Any, fun: types.FunctionType) -> Any:
    """The shadow of `fun`, or `fun` itself when it is not the user's."""
    replaced = replacement(fun)
    if replaced is not None:
        return replaced
    if not is_user_function(fun) or isinstance(fun.__globals__, Globals):
        return fun
    closure = tuple([_cell(world, c, name) for c, name in zip(fun.__closure__ or (), fun.__code__.co_freevars)])
    space = world.writes.globals_of(fun.__globals__, world)
    made = types.FunctionType(fun.__code__, space, fun.__name__, None, closure)
    world.enter(fun, made)
    made.__kwdefaults__ = fun.__kwdefaults__ and {
        k: _default(world, fun, "__kwdefaults__", k, x) for k, x in fun.__kwdefaults__.items()
    }
    made.__defaults__ = fun.__defaults__ and tuple(
        [_default(world, fun, "__defaults__", i, x) for i, x in enumerate(fun.__defaults__)]
    )
    made.__qualname__, made.__module__, made.__doc__ = fun.__qualname__, fun.__module__, fun.__doc__
    made.__dict__.update(fun.__dict__)
    world.writes.watch_function(fun, made)
    for c in closure:
        world.writes.fill(c, world.translate)
    return made


def _cell(world: Any, cell: types.CellType, name: str) -> types.CellType:
    """The cell itself if traced code can share it, else one for the translation of what it holds."""
    value = contents(cell)
    if isinstance(value, type):
        world.natives.note(value)
        return cell
    made: types.CellType = world.writes.cell(cell, Cell(cell, name))
    return made


def _default(world: Any, fun: Any, attribute: str, key: Any, value: Any) -> Any:
    if isinstance(value, VALUES):
        return value
    return world.translate(value, Item(Attribute(Fixed(fun, fun.__name__), attribute), key))


# -- modules ---------------------------------------------------------------------------------------------
class _Refusal(types.ModuleType):
    """Stands for a module whose functions draw random numbers."""

    def __getattr__(self, name: str) -> Any:
        raise UnsupportedError(
            located(
                f"{self.__name__}.{name} in a traced function would be drawn once and recorded as a constant; "
                "draw outside and pass the array"
            )
        )


class _Numpy(types.ModuleType):
    """NumPy with functions that make arrays which traces see."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        value = module(None, found, None) if isinstance(found, types.ModuleType) else replacement(found) or found
        setattr(self, name, value)
        return value


class _Math(types.ModuleType):
    """`math` with functions that know traced numbers."""

    def __getattr__(self, name: str) -> Any:
        value = replacement(getattr(math, name)) or getattr(math, name)
        setattr(self, name, value)
        return value


class _Replaced(types.ModuleType):
    """`np.linalg`, `scipy`, `scipy.special` or `statistics`, with the functions that do not dispatch replaced."""

    def __init__(self, real: types.ModuleType):
        super().__init__(real.__name__, real.__doc__)
        self.__dict__["_real"] = real

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.__dict__["_real"], name)
        value = _Replaced(found) if getattr(found, "__name__", "") == "scipy.special" else replacement(found) or found
        setattr(self, name, value)
        return value


class _UserModule(types.ModuleType):
    """A module of the user's: its attributes are read through the world."""

    def __init__(self, world: Any, real: types.ModuleType):
        super().__init__(real.__name__, real.__doc__)
        self.__dict__["_shadow"] = (world.writes.globals_of(real.__dict__, world), real)

    def __getattr__(self, name: str) -> Any:
        space, real = self.__dict__["_shadow"]
        return space[name] if name in real.__dict__ or name in space else getattr(real, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__["_shadow"][0][name] = value


_NUMPY, _MATH = _Numpy("numpy"), _Math("math")


def module(world: Any, real: types.ModuleType, source: Source | None) -> Any:
    """What traced code sees of a module."""
    if real is np:
        return _NUMPY
    if real is math:
        return _MATH
    if real.__name__ in ("random", "numpy.random"):
        return _Refusal(real.__name__)
    if real.__name__ in ("numpy.linalg", "scipy", "scipy.special", "statistics"):
        return _Replaced(real)
    return _UserModule(world, real) if is_user_module(real) else real


_REPLACED: dict[int, Any] = {id(getattr(np, name)): ours for name, ours in REPLACEMENTS.items()}
_REPLACED.update(MATH)


def _of_lists(function: Any) -> Any:
    """A NumPy function that sees traced values in the lists it is given; its own dispatch looks at arrays only."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if peer_of(*args, *kwargs.values()) is None:
            return function(*args, **kwargs)
        return dispatch_function(function, args, kwargs)

    return call


_REPLACED.update({id(f): _of_lists(f) for f in FUNCTIONS})


def draws(x: Any) -> bool:
    """Whether `x` is a generator of random numbers."""
    return any(
        c.__module__.startswith("numpy.random") or c.__module__ in ("random", "_random") for c in type(x).__mro__
    )


def replacement(value: Any) -> Any:
    """What stands for a function of NumPy, SciPy or `math` that does not look at the kind of its arguments; None for
    others."""
    if isinstance(value, types.BuiltinMethodType | types.MethodType) and draws(value.__self__):
        return getattr(_Refusal("random"), value.__name__)
    if isinstance(value, types.FunctionType) and (value.__module__ or "").startswith("scipy.special."):
        return special.REPLACEMENTS.get(value.__name__)
    if isinstance(value, types.FunctionType) and value.__module__ == "statistics":
        return valued(value)
    return _REPLACED.get(id(value))


# -- objects -----------------------------------------------------------------------------------------------
_get = object.__getattribute__


class _Object(Shadowed):
    """The shadow of an object: attributes are read through the world, methods run as shadows.

    What is written is in its own `__dict__`, where `object.__setattr__` puts it too, or, once traced code has looked
    at the `__dict__` of the object, in what that was lent.
    """

    __slots__ = ("__dict__", "__weakref__", "_known", "_real", "_source", "_world")

    def __getattribute__(self, name: str) -> Any:
        known, writes = _get(self, "_known"), _get(self, "__dict__")
        lent = known.get("__dict__")
        if name in writes or (lent is not None and name in vars(_get(self, "_real"))):
            found = writes.get(name, EMPTY) if lent is None else lent.get(name, EMPTY)
            if found is EMPTY:
                raise AttributeError(f"{type(_get(self, '_real')).__name__!r} object has no attribute {name!r}")
            return found
        if lent is not None and name in lent:
            return lent[name]
        if name in known:
            return known[name]
        real, world = _get(self, "_real"), _get(self, "_world")
        if name == "__dict__" and world.open:
            lent = known[name] = world.translate(real.__dict__, Attribute(_get(self, "_source"), name))
            for k, x in writes.items():
                lent.pop(k, None) if x is EMPTY else lent.__setitem__(k, x)
            writes.clear()
            return lent
        if (name.startswith("__") and name.endswith("__")) or not world.open:
            return getattr(real, name)
        found = next((vars(c)[name] for c in type(real).__mro__ if name in vars(c)), None)
        if isinstance(found, property) and isinstance(found.fget, types.FunctionType):
            return world.adopt(found.fget)(self)
        value = known[name] = _attribute(world, self, real, name, found)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        cls = type(_get(self, "_real"))
        found, own = _static(cls, name), _static(cls, "__setattr__")
        if isinstance(own, types.FunctionType):
            _get(self, "_world").adopt(own)(self, name, value)
            return
        setter = getattr(found, "fset", None) if isinstance(found, property) else None
        if setter is not None:
            _get(self, "_world").adopt(setter)(self, value)
        elif isinstance(found, property):
            raise AttributeError(f"property {name!r} of {cls.__name__!r} object has no setter")
        else:
            write(self, name, value)

    def __delattr__(self, name: str) -> None:
        getattr(self, name)
        write(self, name, EMPTY)

    def __eq__(self, other: object) -> bool:
        return bool(_get(self, "_real") == unshadowed(other))

    def __hash__(self) -> int:
        return hash(_get(self, "_real"))

    def __repr__(self) -> str:
        return repr(_get(self, "_real"))


def write(made: Any, name: str, value: Any) -> None:
    """Give the shadow of an object an attribute, or take it away (EMPTY); the object itself stays as it is."""
    world = _get(made, "_world")
    if not world.open:
        delattr(_get(made, "_real"), name) if value is EMPTY else setattr(_get(made, "_real"), name, value)
        return
    lent = _get(made, "_known").get("__dict__")
    if lent is None:
        _get(made, "__dict__")[name] = value
    elif value is EMPTY:
        del lent[name]
    else:
        lent[name] = value


def written(made: Any) -> tuple[dict[str, Any], dict[str, Any], Source]:
    """What was written to the shadow of an object, what is known to have been there before, and where the object is."""
    writes, known = _get(made, "__dict__"), _get(made, "_known")
    now = {k: x for k, x in writes.items() if x is not EMPTY}
    before = {k: known.get(k, EMPTY) for k in writes if k in known or k not in now}
    return now, before, _get(made, "_source")


def source_of(x: Any) -> Source | None:
    """Where the object is found that `x` is the shadow of; None for what is no such shadow."""
    return _get(x, "_source") if isinstance(type(x), type) and issubclass(type(x), _Object) else None


def _static(cls: type, name: str) -> Any:
    """What a class has under a name, itself or from a base, as it is; EMPTY for nothing."""
    return next((vars(c)[name] for c in cls.__mro__ if name in vars(c)), EMPTY)


def _attribute(world: Any, owner: Any, real: Any, name: str, found: Any) -> Any:
    """Attribute `name` of the shadow `owner` of `real`, whose class has `found` under that name."""
    if name not in getattr(real, "__dict__", ()):
        if isinstance(found, types.FunctionType):
            return types.MethodType(world.adopt(found), owner)
        if isinstance(found, classmethod) and isinstance(found.__func__, types.FunctionType):
            return types.MethodType(world.adopt(found.__func__), type(real))
        if isinstance(found, staticmethod):
            return world.adopt(found.__func__)
        if isinstance(found, Inlinable):
            return functools.partial(found, owner)
    return world.translate(getattr(real, name), Attribute(_get(owner, "_source"), name))


def is_user_object(x: Any) -> bool:
    """Whether `x` is an instance of a class written in Python in the user's code, with nothing built in beneath."""
    cls: Any = type(x)
    known = is_user_class(cls) or (cls.__module__, cls.__qualname__) in _NAMESPACES
    return known and not isinstance(x, type | Carrier | Inlinable | _Object)


# Objects that are only their attributes.
_NAMESPACES = {("types", "SimpleNamespace"), ("argparse", "Namespace")}


@functools.lru_cache(maxsize=4096)
def is_user_class(cls: Any) -> bool:
    """Whether `cls` is written in Python in the user's code, with nothing built in beneath."""
    if cls.__module__ == "builtins":
        return False
    filename = getattr(sys.modules.get(cls.__module__), "__file__", "") or ""
    heap = 1 << 9
    written = all(c is object or c.__flags__ & heap for c in cls.__mro__)
    plain = not issubclass(
        cls, BaseException | type | dict | list | tuple | set | str | bytes | int | float | np.ndarray
    )
    return plain and written and _is_user_file(filename) and cls.__module__ not in sys.stdlib_module_names


def user_object(world: Any, real: Any, source: Source) -> Any:
    """The shadow of an instance of a user's class."""
    cls: Any = type(real)
    made = object.__new__(_class_of(cls))
    fields: Any = (("_real", real), ("_world", world), ("_source", source), ("_known", {}))
    for name, value in fields:
        object.__setattr__(made, name, value)
    world.writes.watch_object(made)
    return made


@functools.lru_cache(maxsize=1024)
def _class_of(cls: Any) -> Any:
    """A class whose special methods run the user's as shadows."""
    special: dict[str, Any] = {"__slots__": (), "__doc__": cls.__doc__}
    for c in reversed(cls.__mro__):
        for name, found in vars(c).items():
            if name.startswith("__") and isinstance(found, types.FunctionType) and name not in _PLUMBING:
                special[name] = _special(found)
    return type(cls.__name__, (_Object,), special)


_PLUMBING = {
    "__class_getitem__", "__del__", "__delattr__", "__getattr__", "__getattribute__", "__getstate__", "__init__",
    "__init_subclass__", "__new__", "__reduce__", "__reduce_ex__", "__setattr__", "__setstate__",
}  # fmt: skip


def _special(found: types.FunctionType) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _get(self, "_world").adopt(found)(self, *args, **kwargs)

    return functools.wraps(found)(method)
