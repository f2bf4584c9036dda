"""Which arrays are one object, where loops have had arrays instead of lists: an element that is made of a row is not
that which was appended any more. Traces end where this could be seen in what leaves them."""

from __future__ import annotations

import builtins
import dis
import itertools
import types
from collections.abc import Collection, Hashable, Iterable, Iterator
from typing import Any

import numpy as np

from tracegrad.trace.bytecode.instructions import decoded
from tracegrad.trace.sources.sources import Alike, Source

__all__ = ["Elements", "has_identity", "tell_apart", "tells_objects_apart"]

_IS = dis.opmap["IS_OP"]

# What is no element of a list that an array stands for.
_NO_ELEMENTS = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)


class Elements:
    """What was appended to the lists of one trace, and what was made of their rows."""

    def __init__(self) -> None:
        self.used = False  # whether there was an array instead of a list
        self.appended: list[Any] = []
        self._known: set[int] = set()
        self._again = False  # whether an array may have been appended twice
        # Whether a turn has appended what it began with, and whether one has left what it appended.
        self._begun = self._left = False
        self._made: list[tuple[Any, Hashable]] = []

    def append(self, x: Any) -> None:
        """An array is appended to a list."""
        self._again = self._again or id(x) in self._known
        for each in _bases(x):
            self._known.add(id(each))
            self.appended.append(each)

    def make(self, x: Any, turns: Hashable) -> None:
        """`x` is made of a row; `turns` is to be `varying` where it is not to be."""
        self._made.append((x, turns))

    def turn(self, first: int, before: Collection[int], now: Collection[int]) -> None:
        """A turn is over: what was appended in it begins with number `first`, and these are the arrays there were at
        its beginning, and are now. Other turns may have appended what they began with, when this one leaves it."""
        here = {id(x) for x in self.appended[first:]}
        self._begun |= not here.isdisjoint(before)
        self._left |= not here.isdisjoint(now)
        self._again = self._again or (self._begun and self._left)

    def lost(self, handed: Iterable[Any]) -> Hashable | None:
        """What is to be `varying` if an array among those that leave is an element, and maybe another one too."""
        if not self._made:
            return None
        leaving = {id(each) for x in handed for each in _bases(x)}
        found = [turns for x, turns in self._made if id(x) in leaving]
        return found[0] if found and (self._again or not leaving.isdisjoint(self._known)) else None


def has_identity(code: types.CodeType) -> bool:
    """Whether the code may have an `is`: much cheaper to ask than what it compares.

    >>> has_identity((lambda x, y: x is y).__code__), has_identity((lambda x, y: x == y).__code__)
    (True, False)
    """
    return _IS in code.co_code[::2]


def tells_objects_apart(fun: Any, deep: bool = False) -> bool:
    """Whether the code of a function may compare two elements by identity; `deep`: or that of functions it calls by
    global names, which run as they are.

    >>> def f(x, y):
    ...     return x is y
    >>> def g(x, y):
    ...     return x is None or type(x) is list or f(x, y)
    >>> tells_objects_apart(f), tells_objects_apart(g), tells_objects_apart(g, deep=True)
    (True, False, True)
    """
    seen: list[Any] = [fun]
    for known in seen:  # which grows
        space, names = known.__globals__, set[str]()
        if _compares(known.__code__, space, names):
            return True
        found = [x for name in names if isinstance(x := space.get(name), types.FunctionType)]
        seen += [x for x in found if deep and x not in seen]
    return False


def _compares(code: types.CodeType, space: dict[str, Any], names: set[str]) -> bool:
    """Whether the code does; adds the names that it reads."""
    names.update(code.co_names)
    if "id" in code.co_names:
        return True
    for x, y in itertools.pairwise(decoded(code) if has_identity(code) else ()):
        if y.opname == "IS_OP" and x.opname != "LOAD_CONST" and x.argval != "__class__":
            value = space.get(x.argval) if x.opname == "LOAD_GLOBAL" else None
            value = getattr(builtins, x.argval, None) if x.opname == "LOAD_GLOBAL" and value is None else value
            if not isinstance(value, _NO_ELEMENTS) and type(value) is not object:
                return True
    return any(_compares(x, space, names) for x in code.co_consts if isinstance(x, types.CodeType))


def _bases(x: Any) -> Iterator[Any]:
    """An array, and what it is a view of."""
    yield x
    while getattr(x, "origin", None) is not None:
        x = x.origin.base
        yield x


def tell_apart(world: Any) -> None:
    """Guard that arrays, lists and dicts which are several objects stay so."""
    found: dict[Any, list[Source]] = {}
    passed = [(x, source) for x, _, source in world._passed.values()]
    captured = [(c.array, c.source) for c in world.builder.captures.values() if isinstance(c.array, np.ndarray)]
    tensors = world.builder.tensors.known() if world.builder.has_tensors else ()
    for x, source in (*passed, *captured, *tensors):
        if source is not None:
            found.setdefault((x.shape, x.dtype, type(x)), []).append(source)
    classes: set[type] = {list, dict}
    for cls, source in world.containers.sources():
        classes.add(cls)
        found.setdefault(cls, []).append(source)
    for x, _ in world._seen.values():
        if type(x) in classes and id(x) in world._places:
            found.setdefault(type(x), []).append(world._places[id(x)])
    for group in found.values():
        if len(group) > 1:
            world.assume(Alike(None, tuple(group)), "is", False)
