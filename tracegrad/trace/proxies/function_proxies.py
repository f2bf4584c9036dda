"""Proxies of user functions and objects (*shadows*), which record every read of outside state.

The shadow of a function has the same code with another namespace, `Globals`, and other cells. Lookups in `Globals` go
through the world of the trace, because CPython's LOAD_GLOBAL honours `__getitem__` of a dict subclass. The contents of
cells are translated. NumPy, `math` and SciPy are replaced by proxies that handle traced values. The shadow of an object
reads attributes through the world and calls methods as shadows.

Only user code runs as shadows (`tracegrad.trace.sources.code_origin`), not the code of Python, NumPy, SciPy, Numba and
tracegrad.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tracegrad import tree
from tracegrad.ir import GraphValue
from tracegrad.numpy_api.faces import agreed_result, itself
from tracegrad.ops import Carrier
from tracegrad.trace.builder.element_identity import may_compare_identity
from tracegrad.trace.builder.inlinable import DERIVED, Inlinable
from tracegrad.trace.bytecode.code_queries import identity_tests
from tracegrad.trace.bytecode.exception_regions import handlers
from tracegrad.trace.bytecode.instructions import attributes_in
from tracegrad.trace.bytecode.nested_code import code_objects
from tracegrad.trace.proxies.builtin_proxies import unshadowed
from tracegrad.trace.proxies.class_attributes import (
    LABELS,
    WriteBuffer,
    another,
    assume_no_instance_value,
    data_names,
    descriptor,
    getter,
    instance_attribute,
    is_of_python,
    of_class,
    of_python,
    proxy_of_dict,
    runs_code,
    static,
    writes_of,
)
from tracegrad.trace.proxies.function_metadata import note_metadata
from tracegrad.trace.proxies.module_proxies import replacement
from tracegrad.trace.proxies.namespace_proxies import EMPTY, Globals, contents, lacks
from tracegrad.trace.rewriting.call_sites import marked
from tracegrad.trace.rewriting.constant_identity import comparisons
from tracegrad.trace.sources.class_patching import for_c, genuine, hook
from tracegrad.trace.sources.code_origin import is_decorated, is_user_class, is_user_function
from tracegrad.trace.sources.sources import Attribute, ClosureCell, ClosureVariable, Fixed, Item, Source
from tracegrad.trace.sources.state_sources import FunctionResult
from tracegrad.trace.values.container_proxies import Shadowed, notice_sets, passes_methods

__all__ = [
    "COLLECTIONS",
    "EMPTY",
    "VALUES",
    "Globals",
    "contents",
    "function",
    "has_user_attributes",
    "is_structural",
    "is_user_object",
    "unshadowed",
    "user_object",
]

# Immutable values, for which a guard suffices.
VALUES = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    np.generic,
    np.dtype,
    type(...),
    type(NotImplemented),
    slice,
    range,
    frozenset,
    enum.Enum,
)
# Mutable collections, which traced code receives as proxies or as copies.
COLLECTIONS = (set, deque, dict, list, bytearray)


# -- functions -----------------------------------------------------------------------------------------------
def function(world: Any, fun: types.FunctionType, source: Source) -> Any:
    """The shadow of `fun`, read from `source`; `fun` itself if it is not a user function."""
    replaced = replacement(fun)
    if replaced is not None:
        return replaced
    if not is_user_function(fun) or isinstance(fun.__globals__, Globals):
        return fun
    if is_decorated(fun):
        return _decorated(world, fun, source)
    names = enumerate(fun.__code__.co_freevars)
    closure = tuple([_cell(world, c, k, name, source) for c, (k, name) in zip(fun.__closure__ or (), names)])
    space = world.writes.globals_of(fun.__globals__, world)
    result = types.FunctionType(marked(fun.__code__), space, fun.__name__, None, closure)
    world.enter(fun, result)
    result.__kwdefaults__ = fun.__kwdefaults__ and {
        k: _default(world, source, "__kwdefaults__", k, x) for k, x in fun.__kwdefaults__.items()
    }
    result.__defaults__ = fun.__defaults__ and tuple(
        [_default(world, source, "__defaults__", i, x) for i, x in enumerate(fun.__defaults__)]
    )
    result.__qualname__, result.__module__, result.__doc__ = fun.__qualname__, fun.__module__, fun.__doc__
    if fun.__annotations__:
        result.__annotations__ = fun.__annotations__
    _guard_function(world, fun, source)
    result.__dict__.update({k: _attribute_of_function(world, source, k, x) for k, x in fun.__dict__.items()})
    world.writes.watch_function(fun, result)
    for c in closure:
        world.writes.fill(c, world.translate)
    return result


def _decorated(world: Any, fun: Any, source: Source) -> types.FunctionType:
    """A function made by a decorator of tracegrad, rebuilt around the shadow of the decorated user function."""
    cells = tuple([types.CellType() if contents(c) is fun.__wrapped__ else c for c in fun.__closure__])
    result = types.FunctionType(fun.__code__, fun.__globals__, fun.__name__, None, cells)
    world.enter(fun, result)
    inside = world.translate(fun.__wrapped__, Attribute(source, "__wrapped__"))
    for c, name in zip(cells, fun.__code__.co_freevars):
        if contents(c) is EMPTY:
            c.cell_contents = inside
        else:
            _guard_mode(world, Attribute(ClosureCell(c, name), "__self__"))
    functools.update_wrapper(result, inside)
    return result


def _guard_mode(world: Any, source: Source) -> None:
    """Guard the mode set by a decorator of tracegrad."""
    mode = source.read()
    world.assume(Attribute(source, "__class__"), "is", type(mode))
    if "mode" in vars(mode):
        world.assume(Attribute(source, "mode"), "equals", mode.mode)


def is_dispatched(fun: types.FunctionType) -> bool:
    """Whether `functools.singledispatch` made the function."""
    return fun.__code__ is _DISPATCHED


_EXAMPLE: Any = functools.singledispatch(contents)
_DISPATCHED = _EXAMPLE.__code__


def dispatched(world: Any, fun: Any, source: Source) -> object:
    """The stand-in of a function that dispatches on the type of its first argument."""

    @functools.wraps(fun)
    def call(first: object, /, *args: object, **kwargs: object) -> Any:
        cls = agreed_result(first, itself) if isinstance(first, GraphValue) else type(unshadowed(first))
        return dispatch(cls)(first, *args, **kwargs)

    def dispatch(cls: Any) -> Any:
        chosen = fun.dispatch(cls)
        return world.translate(chosen, FunctionResult(fun.dispatch, (cls,))) if world.open else chosen

    world.enter(fun, call)
    call.dispatch, call.registry = dispatch, world.translate(fun.registry, Attribute(source, "registry"), guard=False)  # type: ignore[attr-defined]
    call.__wrapped__ = world.translate(fun.__wrapped__, Attribute(source, "__wrapped__"))
    return call


def _guard_function(world: Any, fun: types.FunctionType, source: Source) -> None:
    """Guard the replaceable parts of a function (code, defaults, closure)."""
    world.assume(Attribute(source, "__code__"), "is", fun.__code__)
    if _compares_identity(fun.__code__):
        world.note_identity()
        if may_compare_identity(fun):
            world.compares(always=True)
    if passes_methods(fun.__code__):
        world.read_whole()
    notice_sets(world, fun.__code__)
    if _compares_booleans(fun.__code__):
        world.note_boolean_identity()
    if fun.__defaults__ and not isinstance(source, Fixed):
        world.assume(Attribute(source, "__defaults__"), "keys", (tuple, len(fun.__defaults__)))
    elif fun.__defaults__:
        world.assume(Attribute(source, "__defaults__"), "is", fun.__defaults__)
    if fun.__kwdefaults__:
        world.assume(Attribute(source, "__kwdefaults__"), "keys", (dict, tuple(fun.__kwdefaults__)))
    note_metadata(world, fun)
    if handlers(fun.__code__):
        _guard_caught(world, fun)


def _guard_caught(world: object, fun: types.FunctionType) -> None:
    """Guard missing attributes of functions and classes that a function with exception handlers reads."""
    cells = dict(zip(fun.__code__.co_freevars, fun.__closure__ or ()))
    for name, attribute in attributes_in(fun.__code__):
        owner = contents(cells[name]) if name in cells else fun.__globals__.get(name)
        if isinstance(owner, types.FunctionType | type):
            lacks(world, owner, attribute)


@functools.lru_cache(maxsize=4096)
def _compares_identity(code: types.CodeType) -> bool:
    """Whether the code, nested functions included, has an `is` of two objects that are not constants."""
    return not all(x.is_constant for each in code_objects(code) for x in identity_tests(each))


@functools.lru_cache(maxsize=4096)
def _compares_booleans(code: types.CodeType) -> bool:
    """Whether the code, nested functions included, compares objects by `is` without evaluating a traced boolean."""
    tests = [(each, x) for each in code_objects(code) for x in identity_tests(each)]
    plain = any(type(x.operand) is bool and x.instruction not in comparisons(each) for each, x in tests)
    return plain or _compares_identity(code)


def is_structural(x: object) -> bool:
    """Whether any object with the same attributes can replace `x`."""
    if isinstance(x, types.FunctionType):
        return is_user_function(x) and not (is_dispatched(x) or is_decorated(x)) and replacement(x) is None
    return is_user_object(x)


def _attribute_of_function(world: Any, source: Source, name: str, value: Any) -> object:
    """The attribute of a function for its shadow; attributes set by Python itself are metadata."""
    if name in LABELS or name == DERIVED:
        return value
    return world.translate(value, Attribute(source, name))


def _cell(world: Any, cell: types.CellType, number: int, name: str, function_source: Source) -> types.CellType:
    """The cell itself if traced code can share it, else a cell with the translated contents."""
    value = contents(cell)
    source = (
        ClosureCell(cell, name)
        if isinstance(function_source, Fixed)
        else ClosureVariable(cell, name, function_source, number)
    )
    if value is EMPTY:
        world.assume(source, "absent", None)
    if isinstance(value, type):
        world.assume(source, "is", value)
        world.natives.note(value)
        return cell
    result: types.CellType = world.writes.cell(cell, source)
    return result


def _default(world: Any, source: Source, attribute: str, key: object, value: Any) -> object:
    if isinstance(value, VALUES) and attribute == "__defaults__" and isinstance(source, Fixed):
        return value  # the tuple itself is guarded
    return world.translate(value, Item(Attribute(source, attribute), key))


# -- objects -----------------------------------------------------------------------------------------------
_get = object.__getattribute__


class _ObjectShadow(Shadowed):
    """The shadow of an object: attributes are read through the world, methods run as shadows.

    Writes are stored in its own `__dict__`, also by `object.__setattr__`. After traced code has read the `__dict__` of
    the object, writes are stored in the proxy of that dict.
    """

    __slots__ = ("__dict__", "__weakref__", "_known", "_real", "_source", "_world")
    _data: tuple[str, ...] = ()  # the names of data descriptors of the class

    def __getattribute__(self, name: str) -> Any:
        if name in type(self)._data and _get(self, "_world").open:
            return _computed(self, name)
        known, writes = _get(self, "_known"), writes_of(self)
        dict_proxy = known.get("__dict__")
        if name in writes or (dict_proxy is not None and name in vars(_get(self, "_real"))):
            result = writes.get(name, EMPTY) if dict_proxy is None else dict_proxy.get(name, EMPTY)
            return _present(self, name, result)
        if dict_proxy is not None and name in dict_proxy:
            return dict_proxy[name]
        if name in known:
            return known[name]
        real, world = _get(self, "_real"), _get(self, "_world")
        if name == "__dict__" and world.open:
            return proxy_of_dict(self)
        if not world.open or is_of_python(self, name):
            return of_python(self, name)
        result = static(type(real), name)
        if (get := getter(self, real, name, result)) is not None:
            return get()
        value = _attribute(world, self, real, name, result)
        # A value of `__getattr__` is not cached, because the next call of the method may return another one.
        if name not in writes and (result is not EMPTY or name in getattr(real, "__dict__", ())):
            known[name] = value
        return value

    def __setattr__(self, name: str, value: object) -> None:
        hook_function = hook(type(_get(self, "_real")), "__setattr__")
        _set_attribute(self, name, value) if hook_function is None else _get(self, "_world").adopt(hook_function)(
            self, name, value
        )

    def __delattr__(self, name: str) -> None:
        hook_function = hook(type(_get(self, "_real")), "__delattr__")
        _delete(self, name) if hook_function is None else _get(self, "_world").adopt(hook_function)(self, name)

    def __eq__(self, other: object) -> bool:
        real, other_real = _get(self, "_real"), unshadowed(other)
        if type(real) is type(other_real) is types.SimpleNamespace and _get(self, "_world").open:
            return bool(dict(vars(self)) == dict(vars(other)))  # compares attributes, read through the world
        return bool(real == other_real)

    def __hash__(self) -> int:
        return hash(_get(self, "_real"))

    def __repr__(self) -> str:
        return repr(_get(self, "_real"))


def _present(result: object, name: str, value: object) -> Any:
    if value is EMPTY:
        raise AttributeError(f"{real_class(result).__name__!r} object has no attribute {name!r}")
    return value


def _computed(result: object, name: str) -> Any:
    """The attribute computed by a property or a descriptor of the class, else the entry in the shadow's `__dict__`."""
    real = _get(result, "_real")
    get = getter(result, real, name, static(type(real), name))
    return getattr(result, "__dict__")[name] if get is None else get()  # noqa: B009 (as traced code reads it)


def _set_attribute(output: object, name: str, value: object) -> None:
    """Write an attribute as `object.__setattr__` does."""
    cls = type(_get(output, "_real"))
    result = static(cls, name)
    if (setter := hook(type(result), "__set__")) is not None:
        _get(output, "_world").adopt(setter)(descriptor(output, name, result), output, value)
    elif isinstance(result, property):
        if result.fset is None:
            raise AttributeError(f"property {name!r} of {cls.__name__!r} object has no setter")
        _get(output, "_world").adopt(result.fset)(output, value)
    else:
        write(output, name, value)


def _delete(output: object, name: str) -> None:
    """Delete an attribute as `object.__delattr__` does."""
    cls = type(_get(output, "_real"))
    result = static(cls, name)
    if (delete := hook(type(result), "__delete__")) is not None:
        _get(output, "_world").adopt(delete)(descriptor(output, name, result), output)
    elif isinstance(result, property):
        if result.fdel is None:
            raise AttributeError(f"property {name!r} of {cls.__name__!r} object has no deleter")
        _get(output, "_world").adopt(result.fdel)(output)
    else:
        getattr(output, name)
        write(output, name, EMPTY)


def write(result: object, name: str, value: object) -> None:
    """Set or delete (EMPTY) an attribute of the shadow of an object; the object itself is unchanged."""
    world = _get(result, "_world")
    if not world.open:
        delattr(_get(result, "_real"), name) if value is EMPTY else setattr(_get(result, "_real"), name, value)
        return
    if name in ("__dict__", "__class__"):
        raise another(result, name)
    dict_proxy = _get(result, "_known").get("__dict__")
    if dict_proxy is None:
        _get(result, "__dict__")[name] = value
    elif value is EMPTY:
        del dict_proxy[name]
    else:
        dict_proxy[name] = value


def written(result: object) -> tuple[dict[str, Any], dict[str, Any], Source]:
    """The writes to the shadow of an object, the attributes known to have existed before, and the source of the
    object."""
    writes, known = writes_of(result), _get(result, "_known")
    now = {k: x for k, x in writes.items() if x is not EMPTY}
    before = {k: known.get(k, EMPTY) for k in writes if k in known or k not in now}
    return now, before, _get(result, "_source")


def real_class(result: object) -> type:
    """The class of the object behind a shadow."""
    return type(_get(result, "_real"))


def source_of(x: object) -> Source | None:
    """The source of the object that `x` is the shadow of; None if `x` is no shadow of an object."""
    return _get(x, "_source") if isinstance(type(x), type) and issubclass(type(x), _ObjectShadow) else None


def _attribute(world: Any, owner: Any, real: Any, name: str, class_value: Any) -> Any:
    """Attribute `name` of the shadow `owner` of `real`; the last argument is the class attribute of that name."""
    source = Attribute(_get(owner, "_source"), name)
    if name not in getattr(real, "__dict__", ()):
        if isinstance(class_value, types.FunctionType):
            return types.MethodType(world.translate(class_value, Attribute(source, "__func__")), owner)
        if isinstance(class_value, classmethod) and isinstance(class_value.__func__, types.FunctionType):
            world.natives.note(type(real))
            return types.MethodType(world.translate(class_value.__func__, Attribute(source, "__func__")), type(real))
        if isinstance(class_value, staticmethod):
            return world.translate(class_value.__func__, source)
        if isinstance(class_value, Inlinable):
            world.assume(of_class(owner, name), "is", class_value)
            return functools.partial(class_value, owner)
    elif runs_code(class_value):  # reading the attribute would run user code if the object no longer had it
        return world.translate(real.__dict__[name], instance_attribute(owner, name))
    fallback = static(type(real), "__getattr__")
    try:
        value = object.__getattribute__(real, name) if isinstance(fallback, types.FunctionType) else getattr(real, name)
    except AttributeError:
        if not isinstance(fallback, types.FunctionType):
            world.assume(source, "absent", None)
            raise
        assume_no_instance_value(owner, real, name)
        return world.translate(fallback, of_class(owner, "__getattr__"))(owner, name)
    return _guarded(world, owner, real, value, source)


def _guarded(world: Any, owner: Any, real: Any, value: Any, source: Attribute) -> Any:
    """The attribute at `source` for traced code, which may itself have written it, to the class."""
    is_instance_value = source.name in getattr(real, "__dict__", ())
    rewritten = None if is_instance_value else world.writes.rewritten(type(real), source.name)
    if rewritten is None:
        return world.translate(value, source)
    world.inherits(type(real), rewritten)
    assume_no_instance_value(owner, real, source.name)
    return value


def is_user_object(x: object) -> bool:
    """Whether `x` is an instance of a user class written in Python without a built-in base."""
    cls: Any = type(x)
    known = is_user_class(cls) or (cls.__module__, cls.__qualname__) in _NAMESPACES
    return known and not isinstance(x, type | Carrier | Inlinable | _ObjectShadow)


def has_user_attributes(x: object) -> bool:
    """Whether `x` is an instance of a user class or a user class itself, as `classmethod` passes on."""
    return is_user_class(x) if isinstance(x, type) else is_user_object(x)


# Classes of objects that consist of attributes only.
_NAMESPACES = {
    ("types", "SimpleNamespace"),
    ("argparse", "Namespace"),
    ("_thread", "_local"),
    ("collections", "UserDict"),
    ("collections", "UserList"),
}


def user_object(world: Any, real: Any, source: Source) -> object:
    """The shadow of an instance of a user class."""
    cls: Any = type(real)
    special = {
        name: result
        for c in reversed(cls.__mro__)
        for name, result in zip(vars(c), map(genuine, vars(c).values()))
        if name.startswith("__") and isinstance(result, types.FunctionType) and name not in _PLUMBING
    }
    if hook(cls, "__getattribute__") is not None:
        return world.natives.receive_unchanged(real, source)
    output: Any = object.__new__(_class_of(cls, tuple(special.items()), data_names(cls)))
    fields = {"_real": real, "_world": world, "_source": source, "_known": {}, "__dict__": WriteBuffer()}
    for name, value in fields.items():
        object.__setattr__(output, name, value)
    world.writes.watch_object(output)
    return output


@functools.lru_cache(maxsize=1024)
def _class_of(cls: type, special: tuple[tuple[str, types.FunctionType], ...], data: tuple[str, ...]) -> Any:
    """A class whose special methods run the user's methods as shadows."""
    methods: dict[str, Any] = {name: _special(name, result) for name, result in special}
    # `object.__setattr__` looks the name up in the class of the shadow.
    methods.update({name: _written_through(name) for name in data}, _data=data)
    if dataclasses.is_dataclass(cls):
        methods["__dataclass_fields__"] = cls.__dataclass_fields__
    output = type(cls.__name__, (_ObjectShadow,), {"__slots__": (), "__doc__": cls.__doc__, **methods})
    tree.treat_as(output, cls)
    if issubclass(cls, Mapping | Sequence):  # for the patterns of `match`
        (Mapping if issubclass(cls, Mapping) else Sequence).register(output)
    return output


def _written_through(name: str) -> property:
    return property(
        None, lambda result, value: _set_attribute(result, name, value), lambda result: _delete(result, name)
    )


_PLUMBING = {
    "__class_getitem__",
    "__del__",
    "__delattr__",
    "__getattr__",
    "__getattribute__",
    "__getstate__",
    "__init__",
    "__init_subclass__",
    "__new__",
    "__reduce__",
    "__reduce_ex__",
    "__setattr__",
    "__setstate__",
}


def _special(name: str, original: types.FunctionType) -> object:
    def method(self: object, *args: object, **kwargs: object) -> Any:
        return for_c(name, _get(self, "_world").translate(original, of_class(self, name))(self, *args, **kwargs))

    return functools.wraps(original)(method)
