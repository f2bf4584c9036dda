"""Reject impure reads: values that differ between calls and cannot be read again.

Examples are clocks, sources of randomness, files and iterators from outside. The value would be read during tracing and
then be a constant, so reading it is an error that names the line.
"""

from __future__ import annotations

import builtins
import datetime
import functools
import os
import random
import sys
import time
import types
from collections.abc import Callable
from typing import Any, NoReturn

from tracegrad.errors import UnsupportedError, located
from tracegrad.numpy_api.faces import Faced, agreed_result
from tracegrad.trace.builder.builder import repeats
from tracegrad.trace.random.draws import note
from tracegrad.trace.sources.consumed_iterators import Items, IteratorProxy
from tracegrad.trace.sources.sources import CURRENT


class Refusal(types.ModuleType):
    """Proxy of a module whose functions draw random numbers."""

    def __getattr__(self, name: str) -> Any:
        if not repeats():
            return drawing(getattr(sys.modules[self.__name__], name))
        raise UnsupportedError(
            located(
                f"{self.__name__}.{name} in a traced function would be drawn once and recorded as a constant; "
                "use a generator of np.random's, or draw outside and pass the array"
            )
        )


def draws(x: object) -> bool:
    """Whether `x` is a generator of random numbers."""
    for c in type(x).__mro__:
        if c.__module__.startswith("numpy.random") or c.__module__ in ("random", "_random"):
            return True
    return False


def drawing(method: object) -> object:
    """A drawing method, which a trace of a single call calls directly; its generator is rewound with the call."""
    real = getattr(method, "__self__", None)
    if isinstance(real, random.Random) and not isinstance(real, random.SystemRandom):
        note(real)
    return method


def refuse(name: str, action: str, instead: str) -> NoReturn:
    raise UnsupportedError(
        located(f"{name} in a traced function would be {action} once, while it is traced, and be a constant; {instead}")
    )


def _refusal(real: Any, name: str, action: str, instead: str) -> Callable[..., object]:
    @functools.wraps(real)
    def call(*args: Any, **kwargs: Any) -> Any:
        return refuse(name, action, instead) if repeats() else real(*args, **kwargs)

    return call


_PASS = "call it outside and pass the result as an argument"
_CLOCKS = (
    "time",
    "time_ns",
    "perf_counter",
    "perf_counter_ns",
    "monotonic",
    "monotonic_ns",
    "process_time",
    "process_time_ns",
    "thread_time",
    "thread_time_ns",
    "localtime",
    "gmtime",
    "ctime",
    "clock_gettime",
    "clock_gettime_ns",
)

# Replacements, by the id of the original.
REFUSED: dict[int, Any] = {}


def _enter(module: Any, names: tuple[str, ...], action: str, instead: str = _PASS) -> None:
    for name in names:
        real = getattr(module, name, None)
        if real is not None:
            REFUSED[id(real)] = _refusal(real, f"{module.__name__}.{name}".removeprefix("builtins."), action, instead)


_enter(time, _CLOCKS, "read")
_enter(os, ("urandom", "getrandom", "times", "getloadavg"), "read")
_enter(builtins, ("input",), "asked")

# Names of rejected functions of modules that are not imported here.
BY_NAME = {
    "secrets": ("choice", "randbelow", "randbits", "token_bytes", "token_hex", "token_urlsafe"),
    "uuid": ("uuid1", "uuid4"),
}


def refused_by_name(value: types.FunctionType) -> object:
    """The stand-in of a drawing function of one of these modules; None for others."""
    module, name = value.__module__, value.__name__
    if name not in BY_NAME[module]:
        return None
    return _refusal(value, f"{module}.{name}", "drawn", "draw outside and pass the result as an argument")


# -- the classes of dates --------------------------------------------------------------------------------------
class ClassProxy(type):
    """Metaclass of class stand-ins: they behave as the class `real`, except for the attributes in `other`."""

    real: Any
    other: Any

    def __call__(cls, *args: object, **kwargs: object) -> Any:
        return type.__getattribute__(cls, "other").get("__call__", cls.real)(*args, **kwargs)

    def __getattribute__(cls, name: str) -> object:
        real = type.__getattribute__(cls, "real")
        result = type.__getattribute__(cls, "other").get(name)
        return result or (real if name == "real" else getattr(real, name))

    def __instancecheck__(cls, x: object) -> bool:
        if isinstance(x, Faced):
            return bool(agreed_result(x, lambda cls_of_value: issubclass(cls_of_value, cls.real)))
        return isinstance(x, cls.real)

    def __subclasscheck__(cls, other: type) -> bool:
        return other is cls or issubclass(other, cls.real)

    def __eq__(cls, other: object) -> bool:
        return other is cls.real or type.__eq__(cls, other) is True

    def __hash__(cls) -> int:
        return hash(cls.real)


for _real in (datetime.datetime, datetime.date):
    _now = {
        name: _refusal(getattr(_real, name), f"{_real.__name__}.{name}", "read", _PASS)
        for name in ("now", "today", "utcnow")
        if hasattr(_real, name)
    }
    REFUSED[id(_real)] = ClassProxy(_real.__name__, (), {"real": _real, "other": _now})


class _RefusedAttributes(dict[str, Any]):
    """Attributes of a class that supports only `isinstance`: all others are refused."""

    def __init__(self, refuse: Callable[[], BaseException]):
        super().__init__()
        self._refuse = refuse

    def get(self, name: str, _: object = None) -> Any:
        if name == "real" or (name.startswith("__") and name != "__call__"):
            return None
        raise self._refuse()


def only_compared(real: type, refuse: Callable[[], BaseException]) -> type:
    """The stand-in of a class that traced code may only compare with; any other use calls `refuse`."""
    return (
        real
        if issubclass(real, BaseException)
        else ClassProxy(real.__name__, (), {"real": real, "other": _RefusedAttributes(refuse)})
    )


# -- iterators -----------------------------------------------------------------------------------------------
class _ReadUp:
    """Stand-in of an iterator from outside, which can be read only once."""

    __slots__ = ("_name", "_real")

    def __init__(self, real: Any, name: str):
        self._real, self._name = real, name

    def _refuse(self, *_: object) -> NoReturn:
        description = (
            f"{self._name} is a {type(self._real).__name__} from outside of the traced function; reading it there"
        )
        raise UnsupportedError(
            located(
                f"{description} would take one item while the function is traced, and every call would get that; "
                "take the item outside and pass it as an argument, or use a list instead"
            )
        )

    __iter__ = __next__ = send = throw = __reversed__ = __len__ = __getitem__ = __contains__ = _refuse

    def __getattr__(self, name: str) -> Any:
        self._refuse()


def read_up(x: object, name: str) -> object:
    """The stand-in of an iterator from outside."""
    if repeats() or (CURRENT.call is not None and CURRENT.call.again):
        return _ReadUp(x, name)
    try:
        items = note(x)
    except (OSError, ValueError):  # a file that cannot seek
        return _ReadUp(x, name)
    return IteratorProxy(x, items) if type(items) is Items else x
