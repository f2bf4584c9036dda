"""Lazy dataclasses: dataclasses whose methods are compiled at their first call.

The standard library compiles up to six methods for each dataclass at import, and a process never calls most of them. A
record is a dataclass for all readers (`fields`, `replace`, `is_dataclass`), with the methods that the standard library
would have written.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, dataclass_transform

from tracegrad.utils.source import define

T = TypeVar("T")
_LATER = object()  # the default of a field that has a factory
_fields: Callable[[Any], tuple[dataclasses.Field[Any], ...]] = functools.cache(dataclasses.fields)


@dataclass_transform(field_specifiers=(dataclasses.field,))
def record(*, frozen: bool = False, slots: bool = False, eq: bool = True) -> Callable[[type[T]], type[T]]:
    """Decorator that makes a dataclass of a class, with the options of `dataclasses.dataclass`.

    >>> @record(frozen=True)
    ... class Pair:
    ...     a: int
    ...     b: list[int] = dataclasses.field(default_factory=list)
    >>> Pair(1), Pair(1) == Pair(1), Pair(1) == Pair(2), dataclasses.replace(Pair(1), a=2)
    (Pair(a=1, b=[]), True, False, Pair(a=2, b=[]))
    """

    def decorate(cls: type[T]) -> type[T]:
        if cls.__doc__ is None:  # the standard library would inspect the signature, which is slow at first
            cls.__doc__ = f"{cls.__name__}({', '.join(cls.__annotations__)})"
        result: Any = dataclasses.dataclass(cls, init=False, repr=False, eq=False, slots=slots)
        methods: dict[str, Any] = {"__init__": _init, "__repr__": _repr}
        if eq:
            methods |= {"__eq__": _eq, "__hash__": _hash if frozen else None}
        if frozen:
            methods |= {"__setattr__": _no_setattr, "__delattr__": _no_delattr}
        if frozen and slots:
            methods |= {"__getstate__": _getstate, "__setstate__": _setstate}
        namespace = vars(result)
        for name, method in methods.items():
            if name not in namespace or (name == "__hash__" and namespace[name] is None):
                setattr(result, name, method)
        return result  # type: ignore[no-any-return]

    return decorate


# -- methods that are compiled at the first call -----------------------------------------------------------------------
def _later(
    name: str, parameters: str, lines: Callable[[type, dict[str, object]], Iterable[str]]
) -> Callable[..., object]:
    """Return a method that, at its first call, replaces itself by one with these lines."""

    def first(self: object, *args: object, **kwargs: object) -> Any:
        owner: Any = None
        for owner in type(self).__mro__:
            if owner.__dict__.get(name) is first:
                break
        else:  # another thread has compiled it meanwhile
            return getattr(self, name)(*args, **kwargs)
        if name == "__init__" and _filled(owner, self, args, kwargs):
            return None
        space: dict[str, Any] = {"LATER": _LATER, "set": object.__setattr__}
        body = list(lines(owner, space))
        inputs = _parameters(owner, space) if name == "__init__" else parameters
        qualname = f"{owner.__qualname__}.{name}"
        result = define(name, "\n    ".join([f"def {name}({inputs}):", *body]), space, qualname)
        result.__qualname__ = qualname
        setattr(owner, name, result)
        return result(self, *args, **kwargs)

    first.__name__ = name
    return first


# The number of records of a class that are initialized by `_filled` before an `__init__` is compiled. Compiling takes
# as long as dozens of records.
_MAX_UNCOMPILED = 8
_record_counts: dict[type, int] = {}


def _filled(cls: Any, x: object, args: tuple[Any, ...], kwargs: dict[str, object]) -> bool:
    """Initialize one of the first records of a class, if this only needs assignments; return whether it did."""
    count, plain = _record_counts.get(cls, 0), _plain(cls)
    if count == _MAX_UNCOMPILED or plain is None:
        return False
    names, defaults = plain
    placed = dict(zip(names, args))
    values = {**defaults, **placed, **kwargs}
    if len(args) > len(names) or values.keys() != names.keys() or not placed.keys().isdisjoint(kwargs):
        return False
    _record_counts[cls] = count + 1
    for name in names:
        object.__setattr__(x, name, values[name])
    return True


@functools.cache
def _plain(cls: object) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return the field names of a class, in order, and their defaults; None unless assignments are enough."""
    fields = _fields(cls)
    if hasattr(cls, "__post_init__") or not all(x.init and not x.kw_only for x in fields):
        return None
    return {x.name: None for x in fields}, {x.name: x.default for x in fields if x.default is not dataclasses.MISSING}


def _parameters(cls: object, space: dict[str, object]) -> str:
    """Return the parameters of `__init__`, whose defaults are put into `space`."""
    result, keywords = ["self"], list[str]()
    for field in _fields(cls):
        if not field.init:
            continue
        text = field.name
        if field.default is not dataclasses.MISSING:
            space[f"default_{text}"] = field.default
            text = f"{text}=default_{text}"
        elif field.default_factory is not dataclasses.MISSING:
            text = f"{text}=LATER"
        (keywords if field.kw_only else result).append(text)
    return ", ".join([*result, *(["*", *keywords] if keywords else [])])


def _assignments(cls: Any, space: dict[str, object]) -> list[str]:
    """Return the lines of `__init__`."""
    frozen = cls.__setattr__ is _no_setattr
    lines = []
    for field in _fields(cls):
        name = value = field.name
        if field.default_factory is not dataclasses.MISSING:
            space[f"make_{name}"] = field.default_factory
            value = f"make_{name}() if {name} is LATER else {name}" if field.init else f"make_{name}()"
        elif not field.init and field.default is dataclasses.MISSING:
            continue
        elif not field.init:
            value = f"default_{name}"
            space[value] = field.default
        if frozen and isinstance(vars(cls).get(name), types.MemberDescriptorType):  # saves a lookup
            space[f"set_{name}"] = vars(cls)[name].__set__
            lines.append(f"set_{name}(self, {value})")
        else:
            lines.append(f"set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    return lines or ["pass"]


def _compared(cls: object, of: str, hashed: bool = False) -> str:
    """Return the tuple of the fields of the object `of` that are compared, or `hashed`."""
    fields = _fields(cls)
    names = [f.name for f in fields if (f.compare if not hashed or f.hash is None else f.hash)]
    return f"({''.join(f'{of}.{name}, ' for name in names)})"


def _equal(cls: object, space: dict[str, object]) -> list[str]:
    same = f"{_compared(cls, 'self')} == {_compared(cls, 'other')}"
    return [f"return {same} if other.__class__ is self.__class__ else NotImplemented"]


_init = _later("__init__", "", _assignments)
_eq = _later("__eq__", "self, other", _equal)
_hash = _later("__hash__", "self", lambda cls, space: [f"return hash({_compared(cls, 'self', True)})"])


# -- methods that all records share ------------------------------------------------------------------------------------
def _repr(self: object) -> str:
    shown = [f"{f.name}={getattr(self, f.name)!r}" for f in _fields(type(self)) if f.repr]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _no_setattr(self: object, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _no_delattr(self: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _getstate(self: object) -> list[object]:
    return [getattr(self, f.name) for f in _fields(type(self))]


def _setstate(self: object, state: list[object]) -> None:
    for field, value in zip(_fields(type(self)), state):
        object.__setattr__(self, field.name, value)
