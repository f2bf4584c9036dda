"""What a transform has made of a function is found again, and functions of equal code share their programs.

So `grad(f)(x)` in a loop is compiled once, and so is `grad(lambda x: loss(x, k))(x)`. Only functions whose code is seen
share: what another one reads, as one of tracegrad's own that a decorator has made, no call compares.
"""

from __future__ import annotations

import types
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

from tracegrad.locks import new_lock
from tracegrad.runtime.dispatch.dispatcher import Dispatcher
from tracegrad.runtime.dispatch.specializations import Specialization
from tracegrad.trace.builder.inlinable import DERIVED
from tracegrad.trace.proxies.function_proxies import is_structural
from tracegrad.trace.sources.code_origin import is_decorated

__all__ = ["Family", "remembered"]

_FAMILIES: OrderedDict[Any, tuple[Family, Any]] = OrderedDict()
MAX_FAMILIES = 512

Made = TypeVar("Made", bound=Dispatcher)


class Family:
    """The programs of functions of equal code, which differ in their closures, defaults and instances."""

    def __init__(self) -> None:
        self.specializations: OrderedDict[Any, Specialization] = OrderedDict()
        self.lock = new_lock()
        self.begun = False


def remembered(fun: Any, key: Any, make: Callable[[], Made]) -> Made:
    """What `make` made for this function and key before; a method and a function share programs by their code."""
    if isinstance(fun, types.MethodType) and isinstance(fun.__func__, types.FunctionType):
        return _shared(fun, key, make())
    if not getattr(type(fun), "remembers", False) and not isinstance(fun, types.FunctionType):
        return make()
    memory = vars(fun).get(DERIVED)
    # functools.wraps copies attributes, this one included, to functions that it does not belong to.
    if memory is None or memory.owner() is not fun:
        memory = vars(fun)[DERIVED] = Memory()
        memory.owner = weakref.ref(fun)
    known: dict[Any, Made] = memory.known
    if key not in known:
        made = make()
        known.setdefault(key, _shared(fun, key, made) if isinstance(fun, types.FunctionType) else made)
    return known[key]


class Memory:
    """What was made of a function, kept with it. Where that is pickled with its attributes, nothing is remembered."""

    def __init__(self) -> None:
        self.owner: Callable[[], Any] = lambda: None
        self.known: dict[Any, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Memory, ()


def _shared(fun: Any, key: Any, made: Made) -> Made:
    is_method = isinstance(fun, types.MethodType)
    function = fun.__func__ if is_method else fun
    if is_structural(function) or is_decorated(function):
        made.share(_family(function, (type(fun), key)))
    elif is_method:  # an object is compared with another one, the function with nothing
        made.share(_family(function, (type(fun), id(function), key)))
    return made


def _family(function: types.FunctionType, key: Any) -> Family:
    """What functions of the code of this one share, for the transform with this key."""
    place = (function.__code__, id(function.__globals__), key)
    found = _FAMILIES.get(place)
    if found is None:
        found = _FAMILIES.setdefault(place, (Family(), function))  # it lives, and so do the ids in the place
        while len(_FAMILIES) > MAX_FAMILIES:
            _FAMILIES.popitem(last=False)
    return found[0]
