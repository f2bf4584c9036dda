"""Proxies of lists, dicts, sets and deques from outside (copy on read).

A proxy is an instance of a subclass of the built-in class and behaves like it. Writes of traced code stay in the proxy
during tracing. The first read fills the proxy with translations of the real items, and only then does the trace
depend on them. Code that only appends to a list does not depend on its items. Code that reads one item of a dict
depends only on this item.
"""

from __future__ import annotations

import copy
import functools
import types
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any

from tracegrad.errors import PACKAGE
from tracegrad.ops import Carrier, TensorCarrier
from tracegrad.trace.bytecode.code_queries import makes_sets, names_attribute, uses_operators
from tracegrad.trace.bytecode.nested_code import code_objects
from tracegrad.trace.values.differentiated_keys import check_dict_item
from tracegrad.tree.registry import KINDS


class ProxyState:
    """State of a container proxy: the real container, its source, and the world that translates its items."""

    __slots__ = ("added", "before", "blind", "flush_attributes", "known", "real", "source", "whole", "world")

    def __init__(self, real: Any, source: Any, world: Any):
        self.real, self.source, self.world = real, source, world
        self.whole = False  # whether all of it was read
        self.before = copy.copy(real)  # a copy, with translations of the items that were read
        self.added: list[Any] = []  # deque or set: the items added before it was read
        self.known: set[Any] = set()  # dict: the keys of items that were read or written
        self.blind: dict[Any, None] = {}  # dict: keys written before they were read, in order
        # `__dict__` of an object: adds the attributes that `object.__setattr__` wrote, which bypasses the proxy.
        self.flush_attributes: Callable[[], None] | None = None


def _touched(name: str, method: Any) -> Any:
    """Wrap a reading method: the proxy, and proxies among the arguments, which C code reads directly, are filled with
    translated items first."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._touch()
        for x in args:
            if isinstance(x, _ContainerProxy):
                x._touch()
        return method(self, *args, **kwargs)

    return call


# Methods that do not depend on the contents.
_SILENT = {
    "__class__",
    "__class_getitem__",
    "__delattr__",
    "__doc__",
    "__getattribute__",
    "__getstate__",
    "__hash__",
    "__init__",
    "__init_subclass__",
    "__new__",
    "__setattr__",
    "__subclasshook__",
    "__alloc__",
    "__dir__",
    "__reduce__",
    "__reduce_ex__",
    "__copy__",
    "__deepcopy__",
    "fromkeys",
}


def _fills_first(cls: object, writers: set[str]) -> Callable[[object], object]:
    """Class decorator of container proxies: wrap all methods of `cls` except the `writers` to fill the proxy first."""

    def declare(result: object) -> object:
        for c in (cls, object):  # methods of the class come before methods of `object`
            for name, method in vars(c).items():
                if callable(method) and name not in _SILENT | writers and name not in vars(result):
                    setattr(result, name, _touched(name, method))
        return result

    return declare


class _ContainerProxy:
    """Common base of container proxies."""

    __slots__ = ()
    _state: ProxyState

    def _read(self, state: ProxyState) -> None:
        raise NotImplementedError

    def _named(self) -> str:
        """The text of a subclass whose text contains the class name."""
        self._touch()
        return repr(self.__copy__())

    def _touch(self) -> None:
        """Read all items."""
        if not self._state.whole:
            self._state.whole = True
            self._read(self._state)

    def flush(self) -> None:
        """Fill the proxy with all written items."""

    def __copy__(self) -> Any:
        return type(self._state.real)(self)

    def __deepcopy__(self, memo: dict[int, object]) -> object:
        return copy.deepcopy(self.__copy__(), memo)

    def __reduce_ex__(self, protocol: object) -> Any:
        return self.__copy__().__reduce_ex__(protocol)


@_fills_first(list, {"append", "extend", "__iadd__"})
class ListProxy(_ContainerProxy, list[Any]):
    """List proxy; items appended before the first read follow the unread items."""

    __slots__ = ("_state",)

    def _read(self, state: ProxyState) -> None:
        state.before = [x for _, x in state.world.items_of(state)]
        list.__setitem__(self, slice(0, len(state.before)), state.before)

    def __iadd__(self, other: Any) -> Any:  # type: ignore[misc]
        self.extend(other)
        return self

    def __radd__(self, other: object) -> object:
        return other + self.__copy__() if isinstance(other, list) else NotImplemented


@_fills_first(deque, {"append", "extend", "__iadd__"})
class DequeProxy(_ContainerProxy, deque[Any]):
    """Deque proxy; appended items may have pushed out unread items."""

    __slots__ = ("_state",)

    def _read(self, state: ProxyState) -> None:
        items = [x for _, x in state.world.items_of(state)]
        state.before = deque(items, self.maxlen)
        deque.clear(self)
        deque.extend(self, [*items, *state.added])

    def append(self, x: object) -> None:
        self._state.added.append(x)
        deque.append(self, x)

    def extend(self, xs: Any) -> None:
        for x in xs:
            self.append(x)

    def __iadd__(self, xs: Any) -> Any:  # type: ignore[misc]
        self.extend(xs)
        return self

    def __copy__(self) -> Any:
        return deque(self, self.maxlen)

    __repr__ = _ContainerProxy._named


@_fills_first(set, {"add", "update", "__ior__"})
class SetProxy(_ContainerProxy, set[Any]):
    """Set proxy, whose items are not translated."""

    __slots__ = ("_state",)

    def _read(self, state: ProxyState) -> None:
        state.world.items_of(state)

    def add(self, x: object) -> None:
        self._state.added.append(x)
        set.add(self, x)

    def update(self, *iterables: Any) -> None:
        for xs in iterables:
            for x in xs:
                self.add(x)

    def __ior__(self, xs: Any) -> Any:  # type: ignore[misc]
        self.update(xs)
        return self

    __repr__ = _ContainerProxy._named


@_fills_first(dict, {"__getitem__", "__setitem__", "get", "__contains__"})
class DictProxy(_ContainerProxy, dict[Any, Any]):
    """Dict proxy. Reading an item by its key guards only this item, and writing an item guards nothing. The stand-in of
    a Tensor is the same key as the Tensor."""

    __slots__ = ("_state",)

    def flush(self) -> None:
        if self._state.flush_attributes is not None:
            self._state.flush_attributes()

    def _touch(self) -> None:
        self.flush()
        super()._touch()

    def _read(self, state: ProxyState) -> None:
        for key, value in state.world.items_of(state):
            if key not in state.known:
                state.before[key] = value
                dict.__setitem__(self, key, value)

    def _key(self, key: object) -> Any:
        """The real key to look up. A proxy of a function is looked up as the function."""
        if type(key) is not types.FunctionType:
            return real_key(key)
        state, wrapped = self._state, getattr(key, "__wrapped__", None)
        real = state.world.real_of(key)
        is_replacement = isinstance(wrapped, Hashable) and wrapped in state.real and real not in state.real
        return wrapped if is_replacement and key.__code__.co_filename.startswith(PACKAGE) else real

    def _item(self, key: object) -> None:
        """Load the translated item of this key, or guard its absence."""
        self.flush()
        state = self._state
        if state.whole or key in state.known:
            return
        if key not in state.real:
            state.world.lacks(state, key)
            return
        result = state.before[key] = state.world.item_of(state, key)
        state.known.add(key)
        dict.__setitem__(self, key, result)

    def _returned_item(self, original_key: object, key: object, default: object = None, remembers: bool = False) -> Any:
        """The item under a key. An item stored for a value has no derivative in the value."""
        result = dict.get(self, key, default)
        if result is not default and result is self._state.before.get(key):
            check_dict_item(original_key, result, remembers)
        return result

    def __getitem__(self, key: object) -> Any:
        original_key, key = key, self._key(key)
        self._item(key)
        return self._returned_item(original_key, key) if dict.__contains__(self, key) else dict.__getitem__(self, key)

    def setdefault(self, key: object, default: object = None) -> Any:
        original_key, key = key, self._key(key)
        self._item(key)
        if dict.__contains__(self, key):
            return self._returned_item(original_key, key, remembers=True)
        self[key] = default
        return default

    def __setitem__(self, key: object, value: object) -> None:
        self.flush()
        key, state = self._key(key), self._state
        if not state.whole and key not in state.known:
            state.known.add(key)
            state.blind[key] = None
        dict.__setitem__(self, key, value)

    def get(self, key: object, default: object = None) -> Any:
        original_key, key = key, self._key(key)
        self._item(key)
        return self._returned_item(original_key, key, default)

    def __contains__(self, key: object) -> bool:
        key = self._key(key)
        self._item(key)
        return dict.__contains__(self, key)


def real_key(key: object) -> object:
    """The real key to look up: the guarded value of a traced number, or the Tensor of a stand-in. Guards on the
    dict use the real key."""
    if type(key) is tuple:
        real = tuple(map(real_key, key))
        return real if any(a is not b for a, b in zip(real, key)) else key
    if isinstance(key, TensorCarrier):
        outside = getattr(key, "_outside", None)
        return key if outside is None else outside.source.read()
    if isinstance(key, Carrier) and hasattr(key, "shown"):
        hash(key)  # guards the value, or raises as Python does
        return key.shown()
    return key


_CLASSES: dict[type, Any] = {list: ListProxy, dict: DictProxy, deque: DequeProxy, set: SetProxy}
PROXIED_CLASSES = frozenset(_CLASSES)
for _cls in (list, dict):
    KINDS[_CLASSES[_cls]] = KINDS[_cls]


class Shadowed:
    """Base of shadows of user objects; `_real` is the object."""

    __slots__ = ()


def container_proxy(real: Any, source: object, world: object) -> Any:
    """The proxy of a list, dict, deque or set."""
    cls = _CLASSES[type(real)]
    result = cls.__new__(cls)
    result._state = ProxyState(real, source, world)
    length = (real.maxlen,) if type(real) is deque else ()
    type(real).__init__(result, real, *length)
    return result


def real_of(x: object) -> Any:
    """The container of a proxy; other objects unchanged."""
    return x._state.real if isinstance(x, _ContainerProxy) else x


_CLASS_NAMES = frozenset([cls.__name__ for cls in PROXIED_CLASSES])
_METHODS = frozenset([name for cls in PROXIED_CLASSES for name in vars(cls)]) - {
    "fromkeys",
    "__init__",
    "__new__",
    "__name__",
}


@functools.lru_cache(maxsize=4096)
def passes_methods(code: types.CodeType) -> bool:
    """Whether the code, nested functions included, names a method of a built-in class itself: `list.append(xs, x)`
    bypasses the methods of a container proxy.

    >>> passes_methods((lambda xs: list.append(xs, 1)).__code__), passes_methods((lambda xs: xs.append(1)).__code__)
    (True, False)
    """
    codes = [x for x in code_objects(code) if not _METHODS.isdisjoint(x.co_names)]
    return any(names_attribute(x, _CLASS_NAMES, _METHODS) for x in codes)


_ADDS = frozenset(["add", "update"])
_READS = (
    frozenset(vars(frozenset)) - {"copy"}
    | {"set", "frozenset"}
    | {name for name in vars(set) if name.endswith("_update")}
)


def notice_sets(world: Any, code: types.CodeType) -> None:
    """Prepare sets from outside before a trace runs this code: each is read on first use, because C code bypasses their
    methods. Only sets that the code exclusively adds to are read later."""
    if _hands_sets(code):
        world.adds_to_sets = None
        for x in world.writes.container_proxies:
            if isinstance(x, SetProxy):
                x._touch()
    elif world.adds_to_sets is False:
        world.adds_to_sets = not _ADDS.isdisjoint(code.co_names)


@functools.lru_cache(maxsize=4096)
def _hands_sets(code: types.CodeType) -> bool:
    """Whether the code, nested functions included, may pass sets to another set's method or to a set class.

    >>> _hands_sets((lambda s: s.add(1)).__code__), _hands_sets((lambda s: {1}.union(s)).__code__)
    (False, True)
    """
    operators = _OF_SETS | {"-="} if makes_sets(code) else _OF_SETS
    if not _READS.isdisjoint(code.co_names) or uses_operators(code, operators):
        return True
    return any(_hands_sets(x) for x in code.co_consts if isinstance(x, types.CodeType))


_OF_SETS = frozenset(["&", "|", "^", "&=", "|=", "^="])


def touching(function: Callable[..., object]) -> Callable[..., object]:
    """Wrap `function`, which reads a list directly, to fill list proxies first."""

    @functools.wraps(function)
    def call(*args: object, **kwargs: object) -> Any:
        for x in args:
            if isinstance(x, _ContainerProxy):
                x._touch()
        return function(*args, **kwargs)

    return call


def read(x: object) -> None:
    """Read all of a container, and of nested containers."""
    if isinstance(x, _ContainerProxy):
        x._touch()
        items: Any = x.values() if isinstance(x, dict) else x
        for item in list(items):
            read(item)
