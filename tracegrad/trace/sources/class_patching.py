"""Patch methods of user classes during a trace, so that they run as shadows in the tracing thread only.

Traced code receives classes unchanged, so Python itself finds the methods of their instances, of dataclasses and of
other pytrees. During a trace, a wrapper that checks the calling thread replaces each function of the class. `genuine`
returns the original for code that inspects classes.
"""

from __future__ import annotations

import functools
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.cpython.frames import frame_at
from tracegrad.ir import GraphValue
from tracegrad.ir.builder import recorder
from tracegrad.locks import new_lock
from tracegrad.numpy_api.faces import Faced, agreed_result, itself
from tracegrad.numpy_api.protocols import of_protocol
from tracegrad.platform.processes import at_fork
from tracegrad.trace.sources.code_origin import is_internal_class, is_user_code, is_user_function

# Methods that Python calls at unpredictable times; they are not patched.
_PLUMBING = {"__del__"}
# Methods of tracegrad's modules and optimizers that run unpatched, because they only store their arguments.
_UNPATCHED = {"__delattr__", "__init_subclass__", "__new__", "__setattr__"}
# Methods of a descriptor, which Python calls when the attribute is read, written or deleted.
_OF_DESCRIPTORS = ("__get__", "__set__", "__delete__")
_LOCK = new_lock()
# Number of current traces that have patched each class attribute.
_TRACES: dict[tuple[type, str], int] = {}
_ACTIVE_PATCHES: weakref.WeakSet[ClassPatches] = weakref.WeakSet()


class _Property(property):
    """Property whose functions check the calling thread."""

    genuine: Any


class _ClassMethod(classmethod):  # type: ignore[type-arg]
    genuine: Any


class _StaticMethod(staticmethod):  # type: ignore[type-arg]
    genuine: Any


class _CachedProperty(functools.cached_property):  # type: ignore[type-arg]
    genuine: Any


class _PartialMethod(functools.partialmethod):  # type: ignore[type-arg]
    genuine: Any


class _DispatchMethod(functools.singledispatchmethod):  # type: ignore[type-arg]
    """`singledispatchmethod` whose functions check the calling thread."""

    def __init__(self, real: Any):
        self.genuine = real

    def __get__(self, held: object, cls: object = None) -> Any:
        return dispatched(self.genuine, held, cls)


def dispatched(real: Any, held: Any, cls: Any) -> object:
    """The bound method of a `singledispatchmethod` for an object or a class."""
    choose = real.dispatcher.dispatch

    def method(*args: object, **kwargs: object) -> Any:
        x = args[0]
        of = (
            agreed_result(x, itself) if isinstance(x, Faced) else x.__class__
        )  # to this module it is the class of the carrier
        world: Any = getattr(recorder(), "world", None)
        chosen = choose(of) if world is None else world.natives.chosen(choose, of)
        return _asking(chosen).__get__(held, cls)(*args, **kwargs)

    functools.update_wrapper(method, real.func)
    method.register = real.register  # type: ignore[attr-defined]
    return method


class _PatchedAttribute:
    """Patched class attribute that is no method and has a shadow in traces: a cached function, a partial object,
    `np.vectorize`, or an object that holds user objects."""

    def __init__(self, real: Any):
        self.genuine = real

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The class of the original attribute, for code that recognizes cached functions."""
        return self.genuine.__class__

    def __get__(self, held: Any, cls: object = None) -> Any:
        world: Any = getattr(recorder(), "world", None)
        result = self.genuine if world is None else world.natives.held(self.genuine)
        if not isinstance(self.genuine, CACHED):
            return result
        return result if held is None else types.MethodType(result, held)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__get__(None)(*args, **kwargs)


class _StaticHeld(_PatchedAttribute):
    """`staticmethod` of an object that is no function: a bound method, or a callable object."""

    def __get__(self, held: object, cls: object = None) -> Any:
        world: Any = getattr(recorder(), "world", None)
        inside = self.genuine.__func__
        return inside if world is None else world.natives.held(inside)


CACHED = type(functools.lru_cache(len))
_HELD: tuple[Any, ...] = (CACHED, functools.partial, np.vectorize)
_PATCHED = (_Property, _ClassMethod, _StaticMethod, _CachedProperty, _PartialMethod, _DispatchMethod, _PatchedAttribute)


def genuine(x: object) -> Any:
    """The original class attribute, without the patches of traces."""
    if isinstance(x, types.FunctionType):
        return x.__closure__[0].cell_contents if x.__code__ is _CODE and x.__closure__ else x
    return x.genuine if isinstance(x, _PATCHED) else x


def class_attribute(x: object, cls: object) -> object:
    """The value that traced code gets for a class attribute `x` read without the class's lookup."""
    return x.__get__(None, cls) if isinstance(x, _PatchedAttribute) and not isinstance(x.genuine, _HELD) else x


def functions_of(x: object) -> list[types.FunctionType]:
    """The functions that an attribute of a class runs."""
    x = genuine(x)
    callees: tuple[Any, ...] = ()
    if isinstance(x, property):
        callees = (x.fget, x.fset, x.fdel)
    elif isinstance(x, functools.singledispatchmethod):
        callees = tuple(x.dispatcher.registry.values())
    known = (callees or [getattr(x, name) for name in _FUNCTIONS if hasattr(x, name)] or [x])[:]
    return [f for callee in known for f in ([callee] if isinstance(callee, types.FunctionType) else _within(callee, x))]


_FUNCTIONS = ("__func__", "func", "pyfunc", "__wrapped__")


def _within(callee: object, x: object) -> list[types.FunctionType]:
    return functions_of(callee) if callee is not x and isinstance(callee, (*_HELD, functools.partialmethod)) else []


def hook(cls: type, name: str) -> types.FunctionType | None:
    """The user-defined function that a class or a base has under the name of a hook."""
    result = genuine(next((vars(c)[name] for c in cls.__mro__ if name in vars(c)), None))
    return result if isinstance(result, types.FunctionType) and is_user_function(result) else None


def descriptors(cls: type) -> list[tuple[str, Any]]:
    """The user-defined descriptors of a class, by their names."""
    known: list[tuple[str, Any]] = []
    for name, x in vars(cls).items():
        kind: Any = type(x)
        if is_user_code(kind) and not isinstance(x, type) and any(hook(kind, each) for each in _OF_DESCRIPTORS):
            known.append((name, x))
    return known


class ClassPatches:
    """The class attributes that one trace has patched."""

    def __init__(self) -> None:
        self._patched: list[tuple[type, str]] = []
        self._functions: set[Any] = set()
        self.thread = threading.get_ident()
        _ACTIVE_PATCHES.add(self)

    def runs(self, function: object) -> bool:
        """Whether this function runs as a shadow wherever the trace calls it."""
        return function in self._functions

    def patch(self, cls: type, holds: Callable[[type, str, Any], bool]) -> None:
        """Patch the functions of a class and of its bases, so that a trace runs them as shadows. Objects for which
        `holds` is true are patched too."""
        for c in cls.__mro__:
            for name, x in list(vars(c).items()) if is_user_code(c) else ():
                if name in _PLUMBING or (name in _UNPATCHED and is_internal_class(c)):
                    continue
                with _LOCK:
                    result = _asking(x, holds(c, name, x))
                    if result is not x:
                        type.__setattr__(c, name, result)
                    if result is not x or genuine(x) is not x:
                        self._functions.update(functions_of(genuine(x)))
                        _TRACES[c, name] = _TRACES.get((c, name), 0) + 1
                        self._patched.append((c, name))

    def restore(self) -> None:
        """Restore the classes, unless another trace has patched them."""
        for c, name in self._patched:
            with _LOCK:
                _TRACES[c, name] -= 1
                if not _TRACES[c, name]:
                    del _TRACES[c, name]
                    x = vars(c).get(name)
                    if genuine(x) is not x:
                        type.__setattr__(c, name, genuine(x))
        self._patched.clear()


def _asking(x: Any, holds: bool = False) -> Any:
    """The patched form of the class attribute `x`, which has a shadow if the class `holds` it; `x` itself if nothing
    must be patched."""
    if holds:
        return x if isinstance(x, _PatchedAttribute) else _PatchedAttribute(x)
    if isinstance(x, types.FunctionType):
        generated = "__import__" not in getattr(x, "__builtins__", ())  # for example `__new__` of namedtuples
        return _function(x) if is_user_function(x) and not generated else x
    result: Any = x
    if type(x) is property:
        accessors = [f if f is None else _asking(f) for f in (x.fget, x.fset, x.fdel)]
        if any(map(_differ, accessors, (x.fget, x.fset, x.fdel))):
            makes: Any = _Property
            result = makes(*accessors, x.__doc__)
    elif type(x) is staticmethod and _is_held(x.__func__):
        return _StaticHeld(x)
    elif type(x) in (classmethod, staticmethod) and _asking(x.__func__) is not x.__func__:
        result = (_ClassMethod if type(x) is classmethod else _StaticMethod)(_asking(x.__func__))
    elif any(map(is_user_function, functions_of(x))):
        result = _asking_of_functools(x)
    if result is not x:
        result.genuine = x
    return result


def _is_held(x: object) -> bool:
    """Whether a `staticmethod` holds an object that is no function and runs user code, such as a bound method."""
    kind: Any = type(x)
    return kind is types.MethodType or kind in _HELD or (is_user_code(kind) and not isinstance(x, type))


def _asking_of_functools(x: object) -> Any:
    """As `_asking`, for objects of functools that hold user functions."""
    if type(x) is functools.cached_property:
        result = _CachedProperty(_asking(x.func))
        result.__set_name__(None, x.attrname)  # type: ignore[arg-type]
        return result
    if type(x) is functools.partialmethod:
        return _PartialMethod(_asking(x.func), *x.args, **x.keywords)
    if type(x) is functools.singledispatchmethod:
        return _DispatchMethod(x)
    return _PatchedAttribute(x) if type(x) in _HELD else x


def _differ(x: object, y: object) -> bool:
    return x is not y


def for_c(name: str, result: object) -> object:
    """The result of a method. C code that calls `__array__` gets the elements, with a guard on them."""
    if name != "__array__" or not isinstance(result, GraphValue) or frame_at(2).f_code is of_protocol.__code__:
        return result
    traced: Any = result
    return np.asarray(result) if traced._is_differentiated() else traced.builder.observe(result, "the elements")


def _function(real: Any) -> Callable[..., object]:
    def method(*args: object, **kwargs: object) -> Any:
        world: Any = getattr(recorder(), "world", None)
        if world is None:
            return real(*args, **kwargs)
        if real.__name__ == "__new__":
            result = world.method(real)(*args, **kwargs)
            return world.natives.initialized(result, frame_at(1), *args, **kwargs)
        return for_c(real.__name__, world.method(real)(*args, **kwargs))

    result = functools.wraps(real)(method)
    inside = vars(real).get("__wrapped__")
    if isinstance(inside, types.FunctionType):  # the function in a decorator of the user
        result.__wrapped__ = _asking(inside)
    return result


_CODE = _function(lambda: None).__code__


def _restore_other_threads() -> None:
    """Restore the classes patched by other threads, in a forked child where their traces never end."""
    for patches in list(_ACTIVE_PATCHES):
        if patches.thread != threading.get_ident():
            patches.restore()


at_fork(in_child=_restore_other_threads)
