"""Lent containers: what traced code gets in the place of a list, dict, set or deque from outside.

A lent container is of a subclass of the built-in class and behaves as that does. Nothing that traced code does to it
reaches the real one while the function is traced. It notices being read: only then does it hold translations of the
real items, and does the trace depend on them. So code that only appends to a history does not depend on the history,
and code that reads one item of a dict depends on that item alone.
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
from tracegrad.trace.bytecode.instructions import decoded
from tracegrad.trace.values.differentiated_keys import recalled
from tracegrad.tree.registry import KINDS

__all__ = [
    "LENT",
    "Loan",
    "Shadowed",
    "lend",
    "notice_sets",
    "passes_methods",
    "read",
    "real_key",
    "real_of",
    "touching",
]


class Loan:
    """The state of a lent container: the real one, where it was found, and who translates its items."""

    __slots__ = ("added", "before", "behind", "blind", "known", "real", "source", "whole", "world")

    def __init__(self, real: Any, source: Any, world: Any):
        self.real, self.source, self.world = real, source, world
        self.whole = False  # whether all of it was read
        self.before = copy.copy(real)  # with translations of the items that were read
        self.added: list[Any] = []  # of a deque or a set: what was added before it was read
        self.known: set[Any] = set()  # of a dict: the keys of items that were read or written
        self.blind: dict[Any, None] = {}  # of a dict: those that were written and had not been read, in order
        # Of the `__dict__` of an object: puts into it what `object.__setattr__` wrote, which asks no dict.
        self.behind: Callable[[], None] | None = None


def _touched(name: str, method: Any) -> Any:
    """A method that reads: the container holds its translated items before, and so do those that it is called with,
    which C code reads past the methods of their classes."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._touch()
        for x in args:
            if isinstance(x, _Lent):
                x._touch()
        return method(self, *args, **kwargs)

    return call


# What says nothing of the contents.
_SILENT = {
    "__class__", "__class_getitem__", "__delattr__", "__doc__", "__getattribute__", "__getstate__", "__hash__",
    "__init__", "__init_subclass__", "__new__", "__setattr__", "__subclasshook__", "__alloc__", "__dir__",
    "__reduce__", "__reduce_ex__", "__copy__", "__deepcopy__", "fromkeys",
}  # fmt: skip


def _lent(cls: Any, writers: set[str]) -> Callable[[Any], Any]:
    """Make a class lent: all methods of `cls` but the `writers` touch it."""

    def declare(made: Any) -> Any:
        for c in (cls, object):  # a method of the class comes before what it overrides
            for name, method in vars(c).items():
                if callable(method) and name not in _SILENT | writers and name not in vars(made):
                    setattr(made, name, _touched(name, method))
        return made

    return declare


class _Lent:
    """What lent containers share."""

    __slots__ = ()
    _loan: Loan

    def _read(self, loan: Loan) -> None:
        raise NotImplementedError

    def _named(self) -> str:
        """Its text, for those of a class whose text names the class."""
        self._touch()
        return repr(self.__copy__())

    def _touch(self) -> None:
        """All of it is read."""
        if not self._loan.whole:
            self._loan.whole = True
            self._read(self._loan)

    def settle(self) -> None:
        """Hold all that was written."""

    def __copy__(self) -> Any:
        return type(self._loan.real)(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(self.__copy__(), memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__copy__().__reduce_ex__(protocol)


@_lent(list, {"append", "extend", "__iadd__"})
class LentList(_Lent, list[Any]):
    """A list; what is appended before it is read follows the items that nobody has asked for."""

    __slots__ = ("_loan",)

    def _read(self, loan: Loan) -> None:
        loan.before = [x for _, x in loan.world.items_of(loan)]
        list.__setitem__(self, slice(0, len(loan.before)), loan.before)

    def __iadd__(self, other: Any) -> Any:  # type: ignore[misc]
        self.extend(other)
        return self

    def __radd__(self, other: Any) -> Any:
        return other + self.__copy__() if isinstance(other, list) else NotImplemented


@_lent(deque, {"append", "extend", "__iadd__"})
class LentDeque(_Lent, deque[Any]):
    """A deque; what has been appended may have pushed out items that nobody has asked for."""

    __slots__ = ("_loan",)

    def _read(self, loan: Loan) -> None:
        items = [x for _, x in loan.world.items_of(loan)]
        loan.before = deque(items, self.maxlen)
        deque.clear(self)
        deque.extend(self, [*items, *loan.added])

    def append(self, x: Any) -> None:
        self._loan.added.append(x)
        deque.append(self, x)

    def extend(self, xs: Any) -> None:
        for x in xs:
            self.append(x)

    def __iadd__(self, xs: Any) -> Any:  # type: ignore[misc]
        self.extend(xs)
        return self

    def __copy__(self) -> Any:
        return deque(self, self.maxlen)

    __repr__ = _Lent._named


@_lent(set, {"add", "update", "__ior__"})
class LentSet(_Lent, set[Any]):
    """A set, whose items are not translated."""

    __slots__ = ("_loan",)

    def _read(self, loan: Loan) -> None:
        loan.world.items_of(loan)

    def add(self, x: Any) -> None:
        self._loan.added.append(x)
        set.add(self, x)

    def update(self, *several: Any) -> None:
        for xs in several:
            for x in xs:
                self.add(x)

    def __ior__(self, xs: Any) -> Any:  # type: ignore[misc]
        self.update(xs)
        return self

    __repr__ = _Lent._named


@_lent(dict, {"__getitem__", "__setitem__", "get", "__contains__"})
class LentDict(_Lent, dict[Any, Any]):
    """A dict; an item that is read by its key says nothing of the others, and one that is written nothing at all. Where
    a Tensor is a key, what stands for it is that key."""

    __slots__ = ("_loan",)

    def settle(self) -> None:
        if self._loan.behind is not None:
            self._loan.behind()

    def _touch(self) -> None:
        self.settle()
        super()._touch()

    def _read(self, loan: Loan) -> None:
        for key, value in loan.world.items_of(loan):
            if key not in loan.known:
                loan.before[key] = value
                dict.__setitem__(self, key, value)

    def _key(self, key: Any) -> Any:
        """What is looked up for a key. A function is looked up by what it stands for."""
        if type(key) is not types.FunctionType:
            return real_key(key)
        loan, wrapped = self._loan, getattr(key, "__wrapped__", None)
        real = loan.world.real_of(key)
        stands = isinstance(wrapped, Hashable) and wrapped in loan.real and real not in loan.real
        return wrapped if stands and key.__code__.co_filename.startswith(PACKAGE) else real

    def _item(self, key: Any) -> None:
        """Hold the translation of the item with this key, or depend on there being none."""
        self.settle()
        loan = self._loan
        if loan.whole or key in loan.known:
            return
        if key not in loan.real:
            loan.world.lacks(loan, key)
            return
        found = loan.before[key] = loan.world.item_of(loan, key)
        loan.known.add(key)
        dict.__setitem__(self, key, found)

    def _kept(self, asked: Any, key: Any, default: Any = None, remembers: bool = False) -> Any:
        """What is there under a key that was asked for. What was kept for a value has the derivative of none."""
        found = dict.get(self, key, default)
        if found is not default and found is self._loan.before.get(key):
            recalled(asked, found, remembers)
        return found

    def __getitem__(self, key: Any) -> Any:
        asked, key = key, self._key(key)
        self._item(key)
        return self._kept(asked, key) if dict.__contains__(self, key) else dict.__getitem__(self, key)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        asked, key = key, self._key(key)
        self._touch()
        there = dict.__contains__(self, key)
        return self._kept(asked, key, remembers=True) if there else dict.setdefault(self, key, default)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.settle()
        key, loan = self._key(key), self._loan
        if not loan.whole and key not in loan.known:
            loan.known.add(key)
            loan.blind[key] = None
        dict.__setitem__(self, key, value)

    def get(self, key: Any, default: Any = None) -> Any:
        asked, key = key, self._key(key)
        self._item(key)
        return self._kept(asked, key, default)

    def __contains__(self, key: Any) -> bool:
        key = self._key(key)
        self._item(key)
        return dict.__contains__(self, key)


def real_key(key: Any) -> Any:
    """What is looked up for a key: of a traced number its value, on which the trace then depends, and the Tensor from
    outside that one stands for. So what is assumed of the dict is asked again under that very key."""
    if type(key) is tuple:
        real = tuple(map(real_key, key))
        return real if any(a is not b for a, b in zip(real, key)) else key
    if isinstance(key, TensorCarrier):
        outside = getattr(key, "_outside", None)
        return key if outside is None else outside.source.read()
    if isinstance(key, Carrier) and hasattr(key, "shown"):
        hash(key)  # asks for the value, or raises what Python raises
        return key.shown()
    return key


_CLASSES: dict[type, Any] = {list: LentList, dict: LentDict, deque: LentDeque, set: LentSet}
LENT = frozenset(_CLASSES)
for _cls in (list, dict):
    KINDS[_CLASSES[_cls]] = KINDS[_cls]


class Shadowed:
    """What stands for an object of the user's, `_real`, in traced code."""

    __slots__ = ()


def lend(real: Any, source: Any, world: Any) -> Any:
    """The lent container for a list, dict, deque or set."""
    cls = _CLASSES[type(real)]
    made = cls.__new__(cls)
    made._loan = Loan(real, source, world)
    length = (real.maxlen,) if type(real) is deque else ()
    type(real).__init__(made, real, *length)
    return made


def real_of(x: Any) -> Any:
    """The container that a lent one stands for; anything else as it is."""
    return x._loan.real if isinstance(x, _Lent) else x


_CLASS_NAMES = frozenset([cls.__name__ for cls in LENT])
_METHODS = frozenset([name for cls in LENT for name in vars(cls)]) - {"fromkeys", "__init__", "__new__", "__name__"}


@functools.lru_cache(maxsize=4096)
def passes_methods(code: types.CodeType) -> bool:
    """Whether the code, or that of a function in it, names a method of a built-in class itself: `list.append(xs, x)`
    looks into a lent container past the methods of its class.

    >>> passes_methods((lambda xs: list.append(xs, 1)).__code__), passes_methods((lambda xs: xs.append(1)).__code__)
    (True, False)
    """
    before = None
    for step in () if _METHODS.isdisjoint(code.co_names) else decoded(code):
        named = before is not None and before.argval in _CLASS_NAMES and step.argval in _METHODS
        if named and step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            return True
        before = step
    return any(passes_methods(x) for x in code.co_consts if isinstance(x, types.CodeType))


_ADDS = frozenset(["add", "update"])
_READS = frozenset(vars(frozenset)) - {"copy"} | {"set", "frozenset"} | {
    name for name in vars(set) if name.endswith("_update")
}  # fmt: skip


def notice_sets(world: Any, code: types.CodeType) -> None:
    """Before a trace runs this code: sets from outside are read as soon as it meets them, for C code reads those past
    the methods of their class. Only those of code that adds to sets, and does nothing else with them, may wait."""
    if _hands_sets(code):
        world.adds_to_sets = None
        for x in world.writes.lent:
            if isinstance(x, LentSet):
                x._touch()
    elif world.adds_to_sets is False:
        world.adds_to_sets = not _ADDS.isdisjoint(code.co_names)


@functools.lru_cache(maxsize=4096)
def _hands_sets(code: types.CodeType) -> bool:
    """Whether the code, or that of a function in it, may hand a set to another set's method or to a class of sets.

    >>> _hands_sets((lambda s: s.add(1)).__code__), _hands_sets((lambda s: {1}.union(s)).__code__)
    (False, True)
    """
    steps = decoded(code)
    makes = any(step.opname in ("BUILD_SET", "SET_ADD") for step in steps)
    operators = _OF_SETS | {"-="} if makes else _OF_SETS
    if not _READS.isdisjoint(code.co_names) or any(step.argrepr in operators for step in steps):
        return True
    return any(_hands_sets(x) for x in code.co_consts if isinstance(x, types.CodeType))


_OF_SETS = frozenset(["&", "|", "^", "&=", "|=", "^="])


def touching(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, which looks into a list past the methods of its class."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for x in args:
            if isinstance(x, _Lent):
                x._touch()
        return function(*args, **kwargs)

    return call


def read(x: Any) -> None:
    """Read all of a container, and of the containers in it."""
    if isinstance(x, _Lent):
        x._touch()
        items: Any = x.values() if isinstance(x, dict) else x
        for item in list(items):
            read(item)
