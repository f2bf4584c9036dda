"""Functions that run as they are in a trace, and read what no call can ask for again: clocks, files, queues.

Where shadows run, such reads are refused. Methods of dataclasses, namedtuples and containers run as they are; of those
whose code names such things, it is only known when one is called. So Python is asked to tell of calls, while there are
any, and the one that is called ends the trace before it does anything: the call runs as plain Python.
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
from tracegrad.trace.proxies import function_proxies as shadow
from tracegrad.trace.proxies.ambient_state import READERS
from tracegrad.trace.proxies.file_access import FILES, file_by_name
from tracegrad.trace.proxies.opaque_state import Opaque, State, is_constant
from tracegrad.trace.random.rejected_reads import BY_NAME, REFUSED, refused_by_name
from tracegrad.trace.sources.code_origin import is_user_code, is_user_function, is_user_module
from tracegrad.trace.sources.consumed_iterators import is_read_up

__all__ = ["Unasked"]

_DATES = frozenset(["now", "today", "utcnow"])
_NAMED = frozenset([*REFUSED, *READERS, *FILES, id(np.random.default_rng)])


class Unasked:
    """The functions that one trace must not run as they are."""

    def __init__(self, world: Any):
        self.world = world
        self._suspects: dict[int, tuple[types.CodeType, str]] = {}
        self._as_they_are: dict[int, types.CodeType] = {}
        self._before: Any = None

    def watch(self, function: types.FunctionType) -> None:
        """End the trace if it calls the function, or one that this names, and that reads such things."""
        if self.world.once:
            return
        seen: set[types.FunctionType] = set()
        waiting: list[Any] = [function]
        while waiting:
            fun = waiting.pop()
            if fun in seen:
                continue
            seen.add(fun)
            found = list(_reached(fun))
            waiting += [x for x in found if isinstance(x, types.FunctionType) and is_user_function(x)]
            what = next(filter(None, (_name_of(x, fun) for x in found)), "")
            if what:
                self._suspect(fun, what)
                self._as_they_are[id(function.__code__)] = function.__code__

    def is_suspect(self, function: types.FunctionType) -> bool:
        """Whether the trace may end where the function is called."""
        return id(function.__code__) in self._as_they_are

    def _suspect(self, fun: types.FunctionType, what: str) -> None:
        if not self._suspects:
            self._before = sys.getprofile()
            if self._before is not None and not callable(self._before):
                raise self.world.builder.gives_up(f"{fun.__qualname__} may read {what}, and a profiler runs")
            sys.setprofile(self._called)
        self._suspects[id(fun.__code__)] = fun.__code__, what

    def _called(self, frame: types.FrameType, event: str, arg: Any) -> None:
        if self._before is not None:
            self._before(frame, event, arg)
        found = self._suspects.get(id(frame.f_code)) if event == "call" else None
        if found is None or isinstance(frame.f_globals, Namespace):
            return
        trace = current_trace()
        if trace is not None and trace.world is self.world and self.world.open:
            text = f"{found[0].co_qualname}, a method that no trace sees, reads {found[1]}"
            raise self.world.builder.gives_up(f"{text}; do that outside and pass the result")

    def restore(self) -> None:
        """Let Python tell of no more calls."""
        if self._suspects:
            self._suspects.clear()
            self._as_they_are.clear()
            sys.setprofile(self._before)
            self._before = None


def _reached(fun: types.FunctionType) -> Iterator[Any]:
    """What the names in the code of a function mean, attributes of modules and of classes of packages included."""
    names = _names(fun.__code__)
    found = [shadow.contents(cell) for cell in fun.__closure__ or ()]
    spaces = fun.__globals__, vars(builtins)
    for name in names:
        space = next((space for space in spaces if name in space), None)
        if space is not None:
            found.append(space[name])
        elif name in sys.modules and name in sys.stdlib_module_names:
            found.append(sys.modules[name])  # imported by the function itself
    seen: set[int] = set()
    while found:
        x = found.pop()
        if id(x) in seen:
            continue
        seen.add(id(x))
        yield x
        if isinstance(x, types.ModuleType) and not is_user_module(x):
            found += [vars(x)[name] for name in names if name in vars(x)]


def _names(code: types.CodeType) -> set[str]:
    inner = [_names(x) for x in code.co_consts if isinstance(x, types.CodeType)]
    return {*code.co_names}.union(*inner)


def _name_of(x: Any, fun: types.FunctionType) -> str:
    """What is not to be read, in words; "" for what may be."""
    cls: Any = type(x)
    named = cls if is_user_code(cls) and not isinstance(x, type) else x  # whose own code is not to run
    name = str(getattr(named, "__qualname__", cls.__qualname__))
    if id(x) in _NAMED:
        dates = isinstance(x, type) and id(x) in REFUSED
        return name if not dates or not _DATES.isdisjoint(_names(fun.__code__)) else ""
    if isinstance(x, types.FunctionType):
        refused = x.__module__ in BY_NAME and refused_by_name(x) is not None
        return name if refused or file_by_name(x) is not None else ""
    if is_read_up(x):
        return f"a {name} from outside"
    if isinstance(x, types.ModuleType | type) or is_constant(x) or is_user_code(cls):
        return ""
    if isinstance(x, (*shadow.VALUES, *shadow.COLLECTIONS, tuple, np.ndarray)) or callable(x):
        return ""
    try:
        State(x, compare=True)
    except Opaque:
        return f"a {name}, whose state a trace cannot see"
    return ""
