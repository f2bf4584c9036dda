"""Detect impure calls in untraced code: functions that read clocks, files or queues.

Shadows refuse impure reads. Methods of dataclasses, namedtuples and containers run untraced, and whether one that names
an impure function is called is only known at run time. If there are suspects, a profiling hook
reports calls. A suspect's call ends the trace before it has an effect, and the call runs as plain Python.
"""

from __future__ import annotations

import builtins
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np

from tracegrad.trace.builder.builder import current_trace
from tracegrad.trace.bytecode.exception_regions import Namespace
from tracegrad.trace.bytecode.nested_code import names_in
from tracegrad.trace.proxies import function_proxies
from tracegrad.trace.proxies.ambient_state import READERS
from tracegrad.trace.proxies.file_access import FILES, file_by_name
from tracegrad.trace.proxies.opaque_state import ObjectState, UnreadableState, is_constant
from tracegrad.trace.random.rejected_reads import BY_NAME, REFUSED, refused_by_name
from tracegrad.trace.sources.code_origin import is_user_code, is_user_function, is_user_module
from tracegrad.trace.sources.consumed_iterators import is_read_up

_DATES = frozenset(["now", "today", "utcnow"])
_NAMED = frozenset([*REFUSED, *READERS, *FILES, id(np.random.default_rng)])


class Unasked:
    """Functions that one trace must not run untraced (impure functions)."""

    def __init__(self, world: Any):
        self.world = world
        self._suspects: dict[int, tuple[types.CodeType, str]] = {}
        self._as_they_are: dict[int, types.CodeType] = {}
        self._before: Any = None

    def watch(self, function: types.FunctionType) -> None:
        """Abort the trace if it calls this function, or a function that it names, and the called one reads impure
        state."""
        if self.world.once:
            return
        visited: set[types.FunctionType] = set()
        waiting: list[Any] = [function]
        while waiting:
            fun = waiting.pop()
            if fun in visited:
                continue
            visited.add(fun)
            results = list(_reached(fun))
            waiting += [x for x in results if isinstance(x, types.FunctionType) and is_user_function(x)]
            description = next(filter(None, (_name_of(x, fun) for x in results)), "")
            if description:
                self._suspect(fun, description)
                self._as_they_are[id(function.__code__)] = function.__code__

    def is_suspect(self, function: types.FunctionType) -> bool:
        """Whether calling the function may abort the trace."""
        return id(function.__code__) in self._as_they_are

    def _suspect(self, fun: types.FunctionType, description: str) -> None:
        if not self._suspects:
            self._before = sys.getprofile()
            if self._before is not None and not callable(self._before):
                raise self.world.builder.abort(f"{fun.__qualname__} may read {description}, and a profiler runs")
            sys.setprofile(self._called)
        self._suspects[id(fun.__code__)] = fun.__code__, description

    def _called(self, frame: types.FrameType, event: str, arg: object) -> None:
        if self._before is not None:
            self._before(frame, event, arg)
        result = self._suspects.get(id(frame.f_code)) if event == "call" else None
        if result is None or isinstance(frame.f_globals, Namespace):
            return
        trace = current_trace()
        if trace is not None and trace.world is self.world and self.world.open:
            text = f"{result[0].co_qualname}, a method that no trace sees, reads {result[1]}"
            raise self.world.builder.abort(f"{text}; do that outside and pass the result")

    def restore(self) -> None:
        """Remove the profiling hook."""
        if self._suspects:
            self._suspects.clear()
            self._as_they_are.clear()
            sys.setprofile(self._before)
            self._before = None


def _reached(fun: types.FunctionType) -> Iterator[object]:
    """The objects that names in the code of a function refer to, including attributes of modules and of package
    classes."""
    names = names_in(fun.__code__)
    results = [function_proxies.contents(cell) for cell in fun.__closure__ or ()]
    spaces = fun.__globals__, vars(builtins)
    for name in names:
        space = next((space for space in spaces if name in space), None)
        if space is not None:
            results.append(space[name])
        elif name in sys.modules and name in sys.stdlib_module_names:
            results.append(sys.modules[name])  # imported by the function itself
    visited: set[int] = set()
    while results:
        x = results.pop()
        if id(x) in visited:
            continue
        visited.add(id(x))
        yield x
        if isinstance(x, types.ModuleType) and not is_user_module(x):
            results += [vars(x)[name] for name in names if name in vars(x)]


def _name_of(x: object, fun: types.FunctionType) -> str:
    """A description of an impure object; "" for a permitted one."""
    cls: Any = type(x)
    named = cls if is_user_code(cls) and not isinstance(x, type) else x  # reading from `x` would run user code
    name = str(getattr(named, "__qualname__", cls.__qualname__))
    if id(x) in _NAMED:
        dates = isinstance(x, type) and id(x) in REFUSED
        return name if not dates or not _DATES.isdisjoint(names_in(fun.__code__)) else ""
    if isinstance(x, types.FunctionType):
        refused = x.__module__ in BY_NAME and refused_by_name(x) is not None
        return name if refused or file_by_name(x) is not None else ""
    if is_read_up(x):
        return f"a {name} from outside"
    if isinstance(x, types.ModuleType | type) or is_constant(x) or is_user_code(cls):
        return ""
    if isinstance(x, (*function_proxies.VALUES, *function_proxies.COLLECTIONS, tuple, np.ndarray)) or callable(x):
        return ""
    try:
        ObjectState(x, compare=True)
    except UnreadableState:
        return f"a {name}, whose state a trace cannot see"
    return ""
