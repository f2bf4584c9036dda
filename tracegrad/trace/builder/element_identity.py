"""Track and guard object identity of list elements that loops store as array rows.

An element read from a row is a new object. The trace ends if its result could show the difference.
"""

from __future__ import annotations

import builtins
import types
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np

from tracegrad.trace.builder.facts import Fact
from tracegrad.trace.bytecode.code_queries import identity_tests
from tracegrad.trace.sources.sources import AnyIdentical, Source

# The classes whose instances are never elements of a list that is stored as an array.
_NO_ELEMENTS = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)


class Elements:
    """Arrays appended to the lists of one trace, and objects made from the rows of the lists."""

    def __init__(self) -> None:
        self.used = False  # whether an array replaced a list
        self.appended: list[Any] = []
        self._known: set[int] = set()
        self._again = False  # whether an array may have been appended twice
        # Whether an iteration appended an array of its beginning, and whether one ended with an array it appended.
        self._appends_initial = self._ends_appended = False
        self._rebuilt: list[tuple[Any, Fact]] = []

    def append(self, x: object) -> None:
        """Record that an array is appended to a list."""
        self._again = self._again or id(x) in self._known
        for each in _bases(x):
            self._known.add(id(each))
            self.appended.append(each)

    def make(self, x: object, iterations: Fact) -> None:
        """Record that `x` is made from a row, and the fact that prevents it."""
        self._rebuilt.append((x, iterations))

    def iteration(self, first: int, before: Collection[int], now: Collection[int]) -> None:
        """Record the end of an iteration: its appended arrays begin with number `first`; `before` and `now` are the ids
        of arrays at its beginning and end. If an iteration appends an array of its beginning, and ends with an appended
        one, two elements may be one object."""
        appended_ids = {id(x) for x in self.appended[first:]}
        self._appends_initial |= not appended_ids.isdisjoint(before)
        self._ends_appended |= not appended_ids.isdisjoint(now)
        self._again = self._again or (self._appends_initial and self._ends_appended)

    def lost(self, handed: Iterable[object]) -> Fact | None:
        """The fact needed if an escaping array is an element that may also be another element."""
        if not self._rebuilt:
            return None
        leaving = {id(each) for x in handed for each in _bases(x)}
        results = [iterations for x, iterations in self._rebuilt if id(x) in leaving]
        return results[0] if results and (self._again or not leaving.isdisjoint(self._known)) else None


def may_compare_identity(fun: object, deep: bool = False) -> bool:
    """Whether the code of a function may compare two elements by identity. With `deep` this includes untraced functions
    that it calls by global names.

    >>> def f(x, y):
    ...     return x is y
    >>> def g(x, y):
    ...     return x is None or type(x) is list or f(x, y)
    >>> may_compare_identity(f), may_compare_identity(g), may_compare_identity(g, deep=True)
    (True, False, True)
    """
    seen: list[Any] = [fun]
    for known in seen:  # grows in the loop
        space, names = known.__globals__, set[str]()
        if _compares(known.__code__, space, names):
            return True
        results = [x for name in names if isinstance(x := space.get(name), types.FunctionType)]
        seen += [x for x in results if deep and x not in seen]
    return False


def _compares(code: types.CodeType, space: dict[str, object], names: set[str]) -> bool:
    """Whether the code compares by identity; adds the names that it reads."""
    names.update(code.co_names)
    if "id" in code.co_names:
        return True
    for x in identity_tests(code):
        if not x.is_constant and x.operand != "__class__":
            value = space.get(str(x.operand)) if x.is_global else None
            value = getattr(builtins, str(x.operand), None) if x.is_global and value is None else value
            if not isinstance(value, _NO_ELEMENTS) and type(value) is not object:
                return True
    return any(_compares(x, space, names) for x in code.co_consts if isinstance(x, types.CodeType))


def _bases(x: Any) -> Iterator[Any]:
    """An array and its chain of bases."""
    yield x
    while getattr(x, "origin", None) is not None:
        x = x.origin.base
        yield x


def guard_distinct(world: Any) -> None:
    """Guard that distinct arrays, lists and dicts stay distinct objects."""
    table: dict[Any, list[Source]] = {}
    passed = [(x, source) for x, _, source in world._passed.values()]
    captured = [(c.array, c.source) for c in world.builder.captures.values() if isinstance(c.array, np.ndarray)]
    tensors = world.builder.tensors.known() if world.builder.has_tensors else ()
    for x, source in (*passed, *captured, *tensors):
        if source is not None:
            table.setdefault((x.shape, x.dtype, type(x)), []).append(source)
    classes: set[type] = {list, dict}
    for cls, source in world.containers.sources():
        classes.add(cls)
        table.setdefault(cls, []).append(source)
    for x, _ in world._translations.values():
        if type(x) in classes and id(x) in world._sources:
            table.setdefault(type(x), []).append(world._sources[id(x)])
    for group in table.values():
        if len(group) > 1:
            world.assume(AnyIdentical(None, tuple(group)), "is", False)
