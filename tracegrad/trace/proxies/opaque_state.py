"""Snapshot, compare and restore the state of library objects and instances of C classes.

Traced code receives the objects themselves, and their methods run untraced. Their state is therefore read on first use:
an immutable object is itself, an array is its content, containers and attributes are read recursively, and random
generators report their state. If the state contains anything else, such as a lock, a file, a data frame, C
fields or a user function, it is `UnreadableState`.

Each call compares the state with the traced one. Changes made by traced code can be undone.
"""

from __future__ import annotations

import datetime
import functools
import hashlib
import operator
import pathlib
import random
import re
import struct
import sys
import types
import typing
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.cpython.object_layout import has_hidden_fields
from tracegrad.settings import settings
from tracegrad.trace.sources.code_origin import is_user_code, is_user_function
from tracegrad.trace.sources.signature import exact

if TYPE_CHECKING:
    from tracegrad.typing import Array, DType


_MAX_OBJECTS = 4096  # objects; comparing more takes longer than running the call

_PLAIN = (
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
)
# Classes whose instances are immutable, or code, or compared by identity.
_CONSTANT = (
    type,
    types.ModuleType,
    types.CodeType,
    types.GenericAlias,
    types.UnionType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.WrapperDescriptorType,
    property,
    classmethod,
    staticmethod,
    np.ufunc,
    re.Pattern,
    re.Match,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    datetime.tzinfo,
    pathlib.PurePath,
    operator.itemgetter,
    operator.attrgetter,
    operator.methodcaller,
    struct.Struct,
    type(sys.flags),
    typing.TypeVar,
    typing.ParamSpec,
    typing.TypeVarTuple,
)
# Base classes whose C state is read, in addition to the attributes of their subclasses.
_BASES: tuple[type, ...] = (
    object,
    dict,
    OrderedDict,
    defaultdict,
    list,
    tuple,
    set,
    frozenset,
    deque,
    BaseException,
    Exception,
    types.SimpleNamespace,
    *_PLAIN[:6],
    np.random.RandomState,
    np.random.Generator,
    random.Random,
)
# More constant classes, by name, because their modules may not have been imported.
_ALSO = ("typing.TypeAliasType", "decimal.Decimal", "fractions.Fraction", "scipy.spatial._ckdtree.cKDTree", "SuperLU")
# Attributes that SciPy's sparse arrays compute from their contents on first use, and cache.
_CACHED_FLAGS = {"_has_canonical_format", "_has_sorted_indices"}
_COLLECTIONS = (dict, list, tuple, set, frozenset, deque)
C_FUNCTIONS = (types.BuiltinMethodType, types.MethodWrapperType)


class UnreadableState(Exception):
    """Raised for a state that contains an unreadable object, `args[0]`."""


def content(x: Array) -> tuple[DType, tuple[int, ...], bytes]:
    """A key of the content of an array."""
    return x.dtype, x.shape, hashlib.blake2b(np.ascontiguousarray(x).tobytes(), digest_size=16).digest()


def is_constant(x: object) -> bool:
    """Whether `x` is assumed constant: it is immutable, code of Python or of a package, or a class."""
    if isinstance(x, types.FunctionType):
        return not is_user_function(x) or x.__module__ in (None, "builtins")
    if isinstance(x, C_FUNCTIONS):
        return x.__self__ is None or isinstance(x.__self__, types.ModuleType | type)
    cls: Any = type(x)
    if cls.__name__ == "cython_function_or_method":  # each version of Cython has its own class
        return True
    return cls is object or isinstance(x, _CONSTANT) or cls.__module__.startswith("tracegrad") or _name(cls) in _ALSO


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}".removeprefix("builtins.")


class ObjectState:
    """The state reachable from an object. `key` is equal for equal states.

    >>> from collections import deque
    >>> held = {"rate": 0.5, "last": deque([1, 2])}
    >>> before = ObjectState(held)
    >>> held["last"].append(3)
    >>> ObjectState(held).key == before.key
    False
    >>> before.restore()
    >>> held
    {'rate': 0.5, 'last': deque([1, 2])}
    """

    def __init__(self, x: object, compare: bool = False):
        self._root, self._compare = x, compare  # compare only, without restoring
        self._undo: list[Callable[[], None]] = []
        self._drawn: list[Any] = []
        self._alive: list[Any] = []
        self.key = self._walk(x)

    def _walk(self, root: object) -> object:
        numbers: dict[int, int] = {}
        results: list[Any] = []
        waiting = [root]
        while waiting:
            x = waiting.pop()
            if isinstance(x, _PLAIN) and not hasattr(x, "__dict__"):
                results.append(exact(x))
            elif id(x) in numbers:
                results.append(numbers[id(x)])
            else:
                numbers[id(x)] = len(numbers)
                self._alive.append(x)
                if len(numbers) > _MAX_OBJECTS:
                    raise UnreadableState(root)
                key, children = self._key_and_children(x)
                results.append(key)
                waiting += children
        return tuple(results)

    def _key_and_children(self, x: object) -> tuple[object, list[object]]:
        """A key that distinguishes `x` from others of its type, and the objects it holds."""
        if is_constant(x):
            return id(x), []
        if isinstance(x, np.ndarray):
            return self._array(x)
        if isinstance(x, types.MethodType):
            return "method", [x.__func__, x.__self__]
        if isinstance(x, C_FUNCTIONS):
            return ("method", x.__name__), [x.__self__]
        if isinstance(x, functools.partial):
            return "partial", [x.func, x.args, x.keywords, vars(x)]
        if isinstance(x, types.MappingProxyType):
            return "proxy", [*x.keys(), *x.values()]
        cls: Any = type(x)
        if not isinstance(x, _COLLECTIONS) and _has_hidden_fields(cls):
            raise UnreadableState(x)
        return self._held(x)

    def _array(self, x: Any) -> tuple[Any, list[Any]]:
        if x.flags.writeable and not self._compare:
            before = x.copy()
            self._undo.append(lambda: np.copyto(x, before))
        if x.dtype.hasobject:
            return (x.dtype, x.shape), x.ravel().tolist()
        return content(x), []

    def _held(self, x: object) -> tuple[Any, list[Any]]:
        if isinstance(x, np.random.RandomState | np.random.Generator | random.Random):
            # Draws between calls are allowed; draws by traced code are a change.
            if not self._compare:
                self._drawn.append((x, _drawn(x)))
            return type(x), []
        children: list[Any] = []
        size = -1
        if isinstance(x, dict):
            items = dict(x.items())
            self._restored(x, items)
            children += [*items, *items.values(), getattr(x, "default_factory", None)]
            size = len(items)
        elif isinstance(x, list | deque | set):
            elements = list(x)
            self._restored(x, elements)
            children += elements
            size = len(elements)
        elif isinstance(x, tuple | frozenset | BaseException):
            children += x.args if isinstance(x, BaseException) else x
            size = len(children)
        if isinstance(x, set | frozenset):
            children.sort(key=id)  # the order of a set is arbitrary
        fields = {name: value for name, value in attributes(x) if name not in _CACHED_FLAGS}
        if hasattr(x, "__dict__"):
            self._restored(x.__dict__, dict(x.__dict__))
        return (type(x), size, *fields), [*children, *fields.values()]

    def _restored(self, x: object, items: object) -> None:
        if not self._compare:
            self._undo.append(lambda: _refill(x, items))

    # -- afterwards --------------------------------------------------------------------------------
    @property
    def is_unchanged(self) -> bool:
        """Whether the state is unchanged, and no random number was drawn."""
        return state_key(self._root) == self.key and all(_drawn(x)[1] == before[1] for x, before in self._drawn)

    def restore(self) -> None:
        """Restore the recorded state."""
        for undo in self._undo:
            undo()
        for x, before in self._drawn:
            before[0](x)


def _drawn(x: Any) -> tuple[Callable[..., object], str]:
    """A function that restores the present state of a random generator, and a key of the state."""
    if isinstance(x, random.Random):
        result: Any = x.getstate()
        return (lambda y: y.setstate(result)), str(hash(result))
    if isinstance(x, np.random.RandomState):
        result = x.get_state(legacy=False)
        return (lambda y: y.set_state(result)), repr(result["state"]["pos"]) + content(result["state"]["key"])[2].hex()
    result = x.bit_generator.state
    return (lambda y: setattr(y.bit_generator, "state", result)), repr(result)


def _refill(x: Any, items: Any) -> None:
    if isinstance(items, dict):
        same = len(x) == len(items) and all(a is b and x[a] is items[b] for a, b in zip(x, items))
    else:
        same = len(x) == len(items) and all(a is b for a, b in zip(x, items))
    if not same:
        x.clear()
        x.update(items) if isinstance(x, dict | set) else x.extend(items)


def attributes(x: object) -> Iterator[tuple[str, Any]]:
    """The attributes of an object, including slots."""
    yield from getattr(x, "__dict__", {}).items()
    for cls in type(x).__mro__:
        for name, held in vars(cls).items():
            if isinstance(held, types.MemberDescriptorType) and hasattr(x, name):
                yield name, getattr(x, name)


@functools.lru_cache(maxsize=4096)
def _has_hidden_fields(cls: type) -> bool:
    """Whether instances of a class have C fields, fields stored elsewhere, or user-defined methods."""
    if is_user_code(cls) or issubclass(cls, weakref.finalize):
        return True
    known = {beneath for c in cls.__mro__ if c in _BASES for beneath in c.__mro__}
    for c in cls.__mro__:
        if c in known:
            continue
        known_fields = [
            x for name, x in vars(c).items() if isinstance(x, types.MemberDescriptorType) or name in _OWN_SLOTS
        ]
        if has_hidden_fields(c, len(known_fields)):
            return True
    return False


settings.watch("opaque_packages", _has_hidden_fields.cache_clear)
_OWN_SLOTS = ("__dict__", "__weakref__")


def state_key(x: object) -> Any:
    """The key of the state of `x`; None if it cannot be read."""
    try:
        return ObjectState(x, compare=True).key
    except UnreadableState:
        return None


def unreadable_object(error: UnreadableState, x: object) -> str:
    """A description of the unreadable part of `x`."""
    value = error.args[0]
    name = _name(type(value))
    if isinstance(value, types.FunctionType):
        name = f"the function {value.__qualname__}"
    return f"a {name}" if value is x else f"a {type(x).__qualname__} that holds {name}"
