"""The hot path of a program: straight Python code, made for one path, that takes a call's arguments apart, checks what
is not checked by the entry point, calls it and puts the result together. Anything unexpected is a MISS.

For a function of arrays alone that reads nothing from outside, the hot path is the entry point itself. Otherwise code
like this is generated and compiled by Python (some 100 µs):

    def hot(a0=MISS, a1=MISS, *more):
        if more: return MISS
        try:
            if type(a0) is not dict or len(a0) != 2 or not (c0['np'] is c1): return MISS
            x0 = a0['b']; x1 = a0['w']; x2 = c0['SCALE']
        except GONE: return MISS
        r = entry(x0, x1, a1, x2)
        if r is MISS or not (r[2] == True): return MISS
        return (r[0], {'b': r[1]})
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracegrad.runtime.entry import MISS
from tracegrad.trace.captures import Guard
from tracegrad.trace.signature import Call
from tracegrad.trace.trace import Trace

__all__ = ["hot_call"]

_GONE = (LookupError, AttributeError, ValueError, ReferenceError, TypeError)


class _NotSimple(Exception):
    """The call has a part that only the slow path handles."""


def _opened(structure: Any) -> tuple[type, Sequence[str], Sequence[Any]] | None:
    """The class, the expressions that lead to the children, and the structures of the children; None for a leaf."""
    kind, aux, children = structure
    if kind.cls is object:
        return None
    plain = kind.cls in (tuple, list, dict, type(None)) or issubclass(kind.cls, tuple)
    if not plain and not (dataclasses.is_dataclass(kind.cls) and aux == ((), ())):
        raise _NotSimple
    if kind.cls is dict and not all(type(k) in (str, int) for k in aux[0]):
        raise _NotSimple
    return kind.cls, kind.names(aux, len(children)), children


class _Code:
    """The text of a hot path under construction and the objects it refers to."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {"MISS": MISS, "GONE": _GONE, "float": float, "int": int, "bool": bool}
        self.checks: list[str] = []
        self.leaves: list[str] = []
        self._names: dict[int, str] = {}

    def name(self, x: Any) -> str:
        found = self._names.get(id(x))
        if found is None:
            found = self._names[id(x)] = f"c{len(self._names)}"
            self.objects[found] = x
        return found

    def take(self, text: str, structure: Any) -> None:
        """Code for the leaves of the value `text` of this structure, and the checks that it has that structure."""
        found = _opened(structure)
        if found is None:
            self.leaves.append(text)
            return
        cls, keys, children = found
        if cls is type(None):
            self.checks.append(f"{text} is None")
            return
        self.checks.append(f"type({text}) is {self.name(cls)}")
        if cls in (tuple, list, dict):
            self.checks.append(f"len({text}) == {len(children)}")
        for key, child in zip(keys, children):
            self.take(text + key, child)

    def guard(self, guard: Guard) -> None:
        text = guard.source.text(self.name)
        if guard.kind in ("is", "equals"):
            self.checks.append(f"{text} is {self.name(guard.expected)}")
        elif guard.kind == "same":
            self.checks.append(f"{text} is {guard.expected.text(self.name)}")
        else:
            cls, keys = guard.expected
            if cls not in (tuple, list, dict):
                raise _NotSimple
            self.checks.append(f"type({text}) is {self.name(cls)}")
            self.checks.append(f"len({text}) == {keys}" if cls is not dict else f"tuple({text}) == {self.name(keys)}")


def hot_call(
    trace: Trace, program: Any, call: Call, arguments: list[str], args: list[str], kwargs: dict[str, str]
) -> Callable[..., Any] | None:
    """The hot path for calls like `call`, or None if it needs the slow path.

    It takes `arguments`, of which `args` and `kwargs` are the positional and the keyword arguments in canonical form.
    """
    code = _Code()
    try:
        _take_arguments(code, call, args, kwargs)
        plain = not code.checks and code.leaves == arguments
        for guard in trace.world.guards:
            code.guard(guard)
        captured = [c.source.text(code.name) if c.source else code.name(c.array) for c in trace.captures]
        result = _result(code, trace, program)
        tests = [_answer(_output(program, i + trace.arrays), g.seen) for i, g in enumerate(trace.guards)]
    except _NotSimple:
        return None
    if plain and not code.checks and not captured and result == "r":
        entry: Callable[..., Any] = program.entry
        return entry
    return _compiled(code, program, arguments, captured, tests, result)


def _compiled(
    code: _Code, program: Any, arguments: list[str], captured: list[str], tests: list[str], result: str
) -> Callable[..., Any]:
    code.objects["entry"] = program.entry
    leaves = [*code.leaves, *captured]
    reads = "; ".join(f"x{i} = {text}" for i, text in enumerate(leaves)) or "pass"
    checks = " and ".join(code.checks) or "True"
    answers = "".join(f" or not ({t})" for t in tests)
    lines = [
        f"def hot({''.join(f'{a}=MISS, ' for a in arguments)}*more):",
        "    if more: return MISS",
        "    try:",
        f"        if not ({checks}): return MISS",
        f"        {reads}",
        "    except GONE: return MISS",
        f"    r = entry({', '.join(f'x{i}' for i in range(len(leaves)))})",
        f"    if r is MISS{answers}: return MISS",
        f"    return {result}",
    ]
    space = dict(code.objects)
    exec("\n".join(lines), space)
    hot: Callable[..., Any] = space["hot"]
    return hot


def _take_arguments(code: _Code, call: Call, args: list[str], kwargs: dict[str, str]) -> None:
    """Code for the leaves of the arguments with these names, and for the checks of the static ones."""
    opened = _opened(call.structure)
    assert opened is not None
    positional, keywords = (_opened(x) for x in opened[2])
    assert positional is not None
    assert keywords is not None
    for place, value in call.statics:
        code.checks.append(f"{args[place] if isinstance(place, int) else kwargs[place]} is {code.name(value)}")
    static = {place for place, _ in call.statics}
    for name, structure in zip([a for i, a in enumerate(args) if i not in static], positional[2], strict=True):
        code.take(name, structure)
    for k, structure in zip(sorted(k for k in kwargs if k not in static), keywords[2], strict=True):
        code.take(kwargs[k], structure)


def _result(code: _Code, trace: Trace, program: Any) -> str:
    """Code that puts the result together from `r`, what the entry point returned."""
    template = iter(trace.template)

    def leaf() -> str:
        position, kind = next(template)
        if position is None:
            return code.name(kind)
        text = _output(program, position)
        return text if kind is None else f"{kind.__name__}({text})"

    def build(structure: Any) -> str:
        found = _opened(structure)
        if found is None:
            return leaf()
        cls, keys, children = found
        parts = [build(child) for child in children]
        if cls is type(None):
            return "None"
        if cls is tuple:
            return f"({''.join(p + ', ' for p in parts)})"
        if cls is list:
            return f"[{', '.join(parts)}]"
        if cls is dict:
            return "{" + ", ".join(f"{k[1:-1]}: {p}" for k, p in zip(keys, parts)) + "}"
        raise _NotSimple

    text = build(trace.structure)
    everything = [(i, None) for i in range(len(trace.graph.outputs))]
    flat = _opened(trace.structure)
    if flat is not None and flat[0] is tuple and trace.template == everything and not any(_opened(c) for c in flat[2]):
        return "r" if not program.single else text
    return text


def _output(program: Any, position: int) -> str:
    return "r" if program.single else f"r[{position}]"


def _answer(text: str, seen: np.ndarray[Any, Any]) -> str:
    """Code that compares a guard value with what was seen."""
    if seen.ndim or (seen.dtype.kind == "f" and (seen == 0 or not math.isfinite(seen))):
        raise _NotSimple
    return f"{text} == {seen.item()!r}"
