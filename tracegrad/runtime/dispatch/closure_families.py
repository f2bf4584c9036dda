"""Reuse transformed functions, and share programs among closures of one code object.

`grad(f)(x)` in a loop is therefore compiled once, and so is `grad(lambda x: loss(x, k))(x)`. Only functions whose code
is traced share programs. A decorated function of tracegrad, for instance, may read values that no guard compares.
"""

from __future__ import annotations

import types
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

from tracegrad.locks import new_lock
from tracegrad.runtime.dispatch.dispatcher import Dispatcher
from tracegrad.runtime.dispatch.specializations import SpecializationStore
from tracegrad.settings import disabled
from tracegrad.target.tuning import TUNING
from tracegrad.trace.builder.inlinable import DERIVED
from tracegrad.trace.proxies.function_proxies import is_structural
from tracegrad.trace.sources.code_origin import is_decorated

_FAMILIES: OrderedDict[Any, tuple[Family, Any]] = OrderedDict()
_LOCK = new_lock()
MAX_FAMILIES = TUNING.dispatch.max_families

DispatcherT = TypeVar("DispatcherT", bound=Dispatcher)


class Family:
    """The shared programs of functions with equal code but different closures, defaults and instances."""

    def __init__(self) -> None:
        self.store = SpecializationStore()
        self.lock = new_lock()
        self.has_member = False


def remembered(fun: object, key: object, make: Callable[[], DispatcherT]) -> DispatcherT:
    """The result of an earlier `make` for this function and key; a method and its function share programs by their
    code."""
    if isinstance(fun, types.MethodType) and isinstance(fun.__func__, types.FunctionType):
        return _shared(fun, key, make())
    if not getattr(type(fun), "remembers", False) and not isinstance(fun, types.FunctionType):
        return make()
    derived_cache = vars(fun).get(DERIVED)
    # functools.wraps copies attributes, this one included, to functions that it does not belong to.
    if derived_cache is None or derived_cache.owner() is not fun or key not in derived_cache.known:
        with _LOCK:  # threads that derive one function at once get one result
            derived_cache = vars(fun).get(DERIVED)
            if derived_cache is None or derived_cache.owner() is not fun:
                derived_cache = DerivedCache()
                derived_cache.owner = weakref.ref(fun)
                vars(fun)[DERIVED] = derived_cache
            if key not in derived_cache.known:
                new = make()
                is_function = isinstance(fun, types.FunctionType)
                derived_cache.known[key] = _shared(fun, key, new) if is_function else new
    result: DispatcherT = derived_cache.known[key]
    return result


class DerivedCache:
    """The results of `make` for a function, stored in its attributes. They are not pickled with the attributes."""

    def __init__(self) -> None:
        self.owner: Callable[[], Any] = lambda: None
        self.known: dict[Any, Any] = {}

    def __reduce__(self) -> tuple[object, ...]:
        return DerivedCache, ()


def _shared(fun: Any, key: Any, result: DispatcherT) -> DispatcherT:
    if disabled("closure-sharing"):
        return result
    is_method = isinstance(fun, types.MethodType)
    function = fun.__func__ if is_method else fun
    if is_structural(function) or is_decorated(function):
        result.share(_family(function, (type(fun), key)))
    elif is_method:  # methods of different instances differ; the plain function has no instance
        result.share(_family(function, (type(fun), id(function), key)))
    return result


def _family(function: types.FunctionType, key: object) -> Family:
    """The family of functions with the code of this one, for the transform with this key."""
    family_key = (function.__code__, id(function.__globals__), key)
    with _LOCK:
        result = _FAMILIES.get(family_key)
        if result is None:
            result = _FAMILIES.setdefault(family_key, (Family(), function))  # keeps the ids in the key alive
            while len(_FAMILIES) > MAX_FAMILIES:
                _FAMILIES.popitem(last=False)
        return result[0]
