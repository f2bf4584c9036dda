"""Snapshot and restore state that untraced functions may mutate.

Methods of user-defined dataclasses, namedtuples, enumerations and containers run untraced. The containers and random
generators that their code names, and the variables that it assigns, are compared before and after.
"""

from __future__ import annotations

import contextlib
import functools
import random
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.trace.bytecode.code_queries import assigned_variables
from tracegrad.trace.bytecode.nested_code import code_objects
from tracegrad.trace.proxies.namespace_proxies import EMPTY, contents
from tracegrad.trace.proxies.opaque_state import ObjectState, UnreadableState
from tracegrad.trace.random.rejected_reads import draws
from tracegrad.trace.values.container_proxies import PROXIED_CLASSES


class Unseen:
    """Snapshots of the state that some functions may change."""

    def __init__(self) -> None:
        self._states: dict[int, tuple[str, ObjectState]] = {}
        self._variables: dict[Any, tuple[str, Callable[[], Any], Callable[[Any], None], Any]] = {}

    def watch(self, function: types.FunctionType) -> None:
        """Snapshot the state that the function names, before it runs."""
        space = function.__globals__
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
        for kind, name in _named(function.__code__):
            if kind == "global":
                self._variable((id(space), name), name, space)
            elif kind == "cell" and name in cells:
                self._variable(id(cells[name]), name, cells[name])
            elif kind == "read" and name in space:
                self._value(name, space[name])
            elif kind == "read" and name in cells:
                with contextlib.suppress(ValueError):
                    self._value(name, cells[name].cell_contents)

    def _variable(self, key: Any, name: str, storage: Any) -> None:
        if isinstance(storage, dict):
            self._variables.setdefault(
                key,
                (name, lambda: storage.get(name, EMPTY), lambda x: _store(storage, name, x), storage.get(name, EMPTY)),
            )
        else:
            before = contents(storage)
            self._variables.setdefault(key, (name, lambda: contents(storage), lambda x: _fill(storage, x), before))

    def _value(self, name: str, value: object) -> None:
        if value is random:
            value = random.seed.__self__  # type: ignore[attr-defined]
        elif value is np or value is np.random:
            value = vars(np.random)["mtrand"]._rand
        elif isinstance(value, types.BuiltinMethodType | types.MethodType):
            value = value.__self__
        if (type(value) in PROXIED_CLASSES or draws(value)) and id(value) not in self._states:
            with contextlib.suppress(UnreadableState):
                self._states[id(value)] = name, ObjectState(value)

    def changed(self) -> str:
        """The name of a changed object; "" if there is none."""
        names = [name for name, read, _, before in self._variables.values() if read() is not before]
        return next(iter(names + [name for name, held in self._states.values() if not held.is_unchanged]), "")

    def restore(self) -> None:
        """Restore the snapshots."""
        for _, read, write, before in self._variables.values():
            if read() is not before:
                write(before)
        for _, held in self._states.values():
            held.restore()
        self._variables.clear()
        self._states.clear()


def _store(space: dict[str, Any], name: str, x: object) -> None:
    space.pop(name, None) if x is EMPTY else space.__setitem__(name, x)


def _fill(cell: Any, x: Any) -> None:
    if x is EMPTY:
        del cell.cell_contents
    else:
        cell.cell_contents = x


@functools.lru_cache(maxsize=4096)
def _named(code: types.CodeType) -> tuple[tuple[str, str], ...]:
    """The outside variables that the code, nested functions included, reads and assigns."""
    results = []
    for each in code_objects(code):
        results += [*assigned_variables(each), *[("read", name) for name in (*each.co_names, *each.co_freevars)]]
    return tuple(dict.fromkeys(results))
