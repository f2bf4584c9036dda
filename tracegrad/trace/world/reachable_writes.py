"""Compute whether traced code has written to objects that untraced functions can reach (reachability)."""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from tracegrad.ops import TapeCarrier
from tracegrad.trace.bytecode.nested_code import names_in
from tracegrad.trace.proxies import function_proxies
from tracegrad.trace.proxies.opaque_state import is_constant
from tracegrad.trace.sources.class_patching import CACHED, genuine
from tracegrad.trace.sources.code_origin import is_user_code, is_user_function, is_user_module
from tracegrad.trace.sources.sources import ClosureCell, ModuleGlobal, Source

# The number of objects that is searched for a written one; more count as written.
_MAX_REACHED = 10_000
_LISTS = (list, tuple, set, frozenset, deque)


def variables(fun: types.FunctionType) -> Iterator[tuple[Source, Any]]:
    """The outside variables that the code of a function, nested functions included, names."""
    for cell, name in zip(fun.__closure__ or (), fun.__code__.co_freevars):
        yield ClosureCell(cell, name), function_proxies.contents(cell)
    for name in names_in(fun.__code__):
        if name in fun.__globals__:
            yield ModuleGlobal(fun.__globals__, name), fun.__globals__[name]


class WrittenObjects:
    """Objects that the code traced so far has written to."""

    def __init__(self, world: Any):
        self._world = world
        self._objects: set[int] = set()
        self._arrays = False  # whether any array or Tensor was written; others may be views of it
        for effect in world.changed:
            self._arrays |= effect.memory is not None
            if effect.kind != "cell" and not _is_space(effect):
                self._objects.add(id(effect.holder.read()))

    def may_be_reached(self, beginning: Iterable[object]) -> bool:
        """Whether code that starts from these objects may reach a written object; true for objects that are not
        understood, and for large graphs."""
        waiting, visited = list(beginning), dict[int, Any]()
        while waiting:
            x = waiting.pop()
            if (isinstance(x, function_proxies.VALUES) and type(x) is not frozenset) or id(x) in visited:
                continue
            visited[id(x)] = x
            children = self._children(x) if id(x) not in self._objects and len(visited) < _MAX_REACHED else None
            if children is None:
                return True
            waiting += children
        return False

    def _children(self, x: Any) -> list[Any] | None:
        """The objects reachable in one step from an object; None if any object may be reachable."""
        if isinstance(x, np.ndarray | TapeCarrier):
            return None if self._arrays or (isinstance(x, np.ndarray) and x.dtype.hasobject) else []
        if isinstance(x, types.FunctionType) and is_user_function(x):
            return self._of_function(x)
        if isinstance(x, type):
            return [] if not is_user_code(x) else [y for cls in x.__mro__ if is_user_code(cls) for y in _held(cls)]
        if isinstance(x, types.ModuleType):
            return [] if not is_user_module(x) else None
        if type(x) in _LISTS:
            return list(x)
        if type(x) in (dict, types.MappingProxyType):
            return [*x.keys(), *x.values()]
        return self._of_object(x)

    def _of_function(self, x: types.FunctionType) -> list[Any] | None:
        results: list[Any] = [x.__defaults__, x.__kwdefaults__, *vars(x).values()]
        for source, value in variables(x):
            if self._world.writes.renamed(source):
                return None
            if not isinstance(value, types.ModuleType) or not is_user_module(value):
                results.append(value)
                continue
            for name in names_in(x.__code__):
                if self._world.writes.renamed(ModuleGlobal(vars(value), name)):
                    return None
                results.append(vars(value).get(name))
        return results

    def _of_object(self, x: object) -> list[object] | None:
        if isinstance(x, functools.partial):
            return [x.func, x.args, x.keywords, *vars(x).values()]
        if isinstance(x, types.MethodType):
            return [x.__func__, x.__self__]
        if isinstance(x, staticmethod | classmethod | CACHED):
            return [x.__wrapped__]
        if isinstance(x, property):
            return [x.fget, x.fset, x.fdel]
        if function_proxies.is_user_object(x) and not any("__slots__" in vars(cls) for cls in type(x).__mro__):
            return [type(x), *vars(x).values()]
        return [] if is_constant(x) else None


def _held(cls: type) -> list[Any]:
    return [genuine(x) for name, x in vars(cls).items() if name not in ("__dict__", "__weakref__", "__doc__")]


def _is_space(effect: Any) -> bool:
    """Whether the effect assigns a global variable, which code reads by name."""
    return effect.kind == "item" and hasattr(effect.holder, "parent") and isinstance(effect.holder.parent, dict)
