"""The hot path of a program: straight Python code, made for one path, that takes a call's arguments apart, checks what
is not checked by the entry point, calls it and puts the result together. Anything unexpected is left to the slow path.
Dicts, lists and tuples of inputs are left to the entry point as they are, unless the code needs what is in them.

The code for calls without keywords is the `__call__` of a class made for it, because a method that hands its arguments
on costs as much as a small program; it reads like this (some 100 µs to make):

    def call(self, a0=MISS, a1=MISS, /, *more, **keywords):
        if more or keywords or unusual: return self.call_slowly((a0, a1, *more,), keywords)
        try:
            fits = type(w0 := c0().scale) is float
            if fits: x2 = w0
        except GONE: fits = False
        if not fits: return self.call_slowly(...)
        r = entry(a0, a1, x2)
        if r is MISS or not (r[2] == True): return self.call_slowly(...)
        return (r[0], {'b': r[1], })

The code for one order of keywords is a function of the values of all arguments that returns MISS.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tracegrad import tree
from tracegrad.avals import is_huge
from tracegrad.errors import MADE
from tracegrad.quiet import sprung
from tracegrad.runtime.containers import Container, arranged, container, in_order, is_flat
from tracegrad.runtime.entry import MISS, can_watch, watching
from tracegrad.runtime.places import apart_of, empty, exact, places_of
from tracegrad.runtime.program import conformed
from tracegrad.settings import unusual
from tracegrad.trace.assumed import Guard
from tracegrad.trace.effects import NAMES, apart, statements
from tracegrad.trace.foreign import state_key
from tracegrad.trace.signature import Call
from tracegrad.trace.sources import Argument, Function, Global, Passed, Source
from tracegrad.trace.templates import Node, Output
from tracegrad.trace.trace import Trace

__all__ = ["hot_call"]

# Beyond, making the code takes longer than it saves.
MOST_GUARDS = 256
# Up to so many keys of a dict are looked at one by one.
_FEW_KEYS = 3
_GONE = (LookupError, AttributeError, ValueError, ReferenceError, TypeError, NameError)


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


class _Then(str):
    """A statement to run once the checks before it hold."""

    __slots__ = ()


class _Code:
    """The text of a hot path under construction and the objects it refers to."""

    def __init__(self, program: Any, args: list[str], kwargs: dict[str, str], method: bool) -> None:
        self.method = method
        self.single, self.checked, self._args, self._kwargs = program.single, program.checked, args, kwargs
        self.native = can_watch(program.entry)
        self.objects: dict[str, Any] = {"MISS": MISS, "GONE": _GONE, "ndarray": np.ndarray}
        self.objects |= {"unusual": unusual, "sprung": sprung}
        self.checks: list[str] = []
        self.leaves: list[str] = []
        self.used: set[int] = set()  # numbers of leaves that are more than handed on
        self._containers: list[Container] = []
        self._names: dict[int, str] = {}
        self._count = 0
        self._uses: Counter[Any] = Counter()
        self._locals: dict[Any, str] = {}
        self._known: dict[str, str] = {}
        self._typed: set[str] = set()
        self.made: dict[Any, str] = {}

    def output(self, position: int) -> str:
        """The expression of an output of the program."""
        return "r" if self.single else f"r[{position}]"

    def name(self, x: Any) -> str:
        """The name of an object; the expression of a part of the arguments."""
        if isinstance(x, Function):
            if not self.method:
                raise _NotSimple
            return "self.fun"
        if isinstance(x, Argument):
            self.used.add(int(x.name))
        if isinstance(x, Argument | Passed):
            return x.among(self.leaves, self._args, self._kwargs)
        found = self._names.get(id(x))
        if found is None:
            found = self._names[id(x)] = f"c{len(self._names)}"
            self.objects[found] = x
        return found

    def take(self, text: str, structure: Any) -> None:
        """Code for the leaves of the value `text` of this structure, and the checks that it has that structure."""
        if structure[0] is tree.FIXED_KIND:
            self.fixed(text, tree.fixed_value(structure[1]))
            return
        found = _opened(structure)
        if found is None:
            self.leaves.append(text)
            return
        if self.native and is_flat(structure):
            checks, self.checks, first = self.checks, [], len(self.leaves)
            self._children(text, structure, *found)
            self._containers.append(container(text, structure, first, len(checks), self.checks))
            self.checks = checks
        else:
            self._children(text, structure, *found)

    def _children(self, text: str, structure: Any, cls: type, keys: Sequence[str], children: Sequence[Any]) -> None:
        if cls is type(None):
            self.checks.append(f"{text} is None")
            return
        self.checks.append(f"type({text}) is {self.name(cls)}")
        if cls in (tuple, list):
            self.checks.append(f"len({text}) == {len(children)}")
        few = cls is dict and 0 < len(children) <= _FEW_KEYS and all(type(k) is str for k in structure[1][0])
        if few:
            self._few_keys(text, in_order(structure))
        elif cls is dict:
            self._keys(text, in_order(structure))
        texts = [text + key for key in keys]
        if cls in (tuple, list, dict) and len(texts) > 1 and not few:
            texts = self._unpacked(text, structure, len(texts))
        for each, child in zip(texts, children):
            self.take(each, child)

    def given(self, captured: Sequence[str]) -> tuple[tuple[list[str], list[int]], object]:
        """What is `arranged` for the entry point, and what that refers to. Containers that cannot be left to it are
        checked here."""
        left = []
        for c in reversed(self._containers):
            if self.used.isdisjoint(c.inputs):
                left.append(c)
            else:
                self.checks[c.place : c.place] = c.checks
        return arranged([*self.leaves, *captured], left), [c.keys for c in left]

    def _few_keys(self, text: str, keys: list[str]) -> None:
        """The check that the dict `text` has these keys in this order, which mostly are the very strings."""
        names = [f"u{self._count + i}" for i in range(len(keys))]
        self._count += len(keys)
        self.checks.append(_Then(f"{', '.join(names)}, = {text}"))
        self.checks += [f"({u} is {self.name(key)} or {u} == {key!r})" for u, key in zip(names, keys)]

    def _unpacked(self, text: str, structure: Any, count: int) -> list[str]:
        """Names for the children of a container, which take less than a look-up for each."""
        names = [f"u{self._count + i}" for i in range(count)]
        self._count += count
        if structure[0].cls is not dict:
            self.checks.append(_Then(f"{', '.join(names)} = {text}"))
            return names
        self.checks.append(_Then(f"{', '.join(names)} = {text}.values()"))
        places = dict(zip(in_order(structure), names))
        return [places[key] for key in structure[1][0]]

    def fixed(self, text: str, value: Any) -> None:
        """The check that the static argument `text` is this value."""
        name = self.name(value)
        same = f"type({text}) is {self.name(type(value))} and {text} == {name}"
        self.checks.append(same if type(value) in (str, bytes, slice, range) else f"{text} is {name}")

    def _keys(self, text: str, keys: list[Any]) -> None:
        """The check that the dict `text` has these keys in this order."""
        self.checks.append(f"[*{text}] == {self.name(keys)}")
        if any(type(key) is int and key in (0, 1) for key in keys):  # to which False and True are equal
            self.checks.append(f"[*map(type, {text})] == {self.name([type(key) for key in keys])}")

    def count(self, sources: Iterable[Source]) -> None:
        """Count how often each place is read, by itself and on the way to others."""
        seen = set()
        waiting = list(sources)
        for source in waiting:
            self._uses[source.key] += 1
            if isinstance(source.parent, Source) and source.key not in seen:
                waiting.append(source.parent)
            seen.add(source.key)

    def settle(self, guards: Sequence[Guard]) -> None:
        """Take for granted what the entry point looks at."""
        settled = [guard for guard in guards if guard.kind == "is" and type(guard.source) is Global]
        self._locals |= {guard.source.key: self.name(guard.expected) for guard in settled}

    def read(self, source: Source) -> str:
        """The expression for what is at a place; what is read more than once has a name from the first time on."""
        known = self._locals.get(source.key)
        if known is not None:
            return known
        text = again = source.text(self.name)
        if isinstance(source.parent, Source):
            above = source.parent.text(self.name)
            if text.startswith(above) and not above.isidentifier():
                parent = self.read(source.parent)
                text, again = parent + text[len(above) :], self.again(parent) + text[len(above) :]
        if self._uses[source.key] >= 2 and not text.isidentifier():
            again = self._locals[source.key] = f"w{len(self._locals)}"
            text = f"({again} := {text})"
        self._known[text] = again
        return text

    def again(self, text: str) -> str:
        """What an expression that `read` gave is read as afterwards: by the names in it."""
        return self._known.get(text, text)

    def guard(self, guard: Guard) -> None:
        if guard.kind == "absent":
            absent = guard.source.absent(self.name)
            if absent is None:
                raise _NotSimple
            self.checks.append(absent)
            return
        text = self.read(guard.source)
        if guard.kind in ("is", "equals"):
            self.checks.append(self._value(text, guard))
        elif guard.kind == "same":
            self.checks.append(f"{text} is {self.read(guard.expected)}")
        elif guard.kind == "type":
            self._type(text, guard.expected)
        elif guard.kind == "aval":
            dtype, shape = guard.expected
            again = self.again(text)
            self.checks += [
                f"type({text}) is ndarray", f"{again}.dtype is {self.name(dtype)}", f"{again}.shape == {shape}"
            ]  # fmt: skip
        elif guard.kind == "state":
            self.checks.append(f"{self.name(state_key)}({text}) == {self.name(guard.expected)}")
        elif guard.kind == "items":
            self._items(text, *guard.expected)
        else:
            self._container(text, *guard.expected)

    def _type(self, text: str, cls: type) -> None:
        """The check of a type, once."""
        known = f"type({self.again(text)}) is {self.name(cls)}"
        if known not in self._typed:
            self.checks.append(f"type({text}) is {self.name(cls)}")
        self._typed.add(known)

    def _value(self, text: str, guard: Guard) -> str:
        """The check of a value: the same object, or an equal one of a type in which equality is exact."""
        expected = self.name(guard.expected)
        if not exact(guard):
            return f"{text} is {expected}"
        again, cls = self.again(text), type(guard.expected).__name__
        return f"({text} is {expected} or type({again}) is {cls} and {again} == {expected})"

    def _items(self, text: str, cls: type, *items: Any) -> None:
        """The check that the items of a collection are the same objects."""
        if issubclass(cls, dict):
            raise _NotSimple
        self.objects |= {"all": all, "map": map, "is_": operator.is_}
        again = self.again(text)
        self.checks += [f"type({text}) is {self.name(cls)}", f"len({again}) == {len(items)}"]
        if items:
            self.checks.append(f"all(map(is_, {again}, {self.name(items)}))")

    def _container(self, text: str, cls: type, keys: Any) -> None:
        """The check of the type of a container, and of its keys or length."""
        self._type(text, cls)
        text = self.again(text)
        if cls is dict or cls is types.MappingProxyType:
            self._keys(text, list(keys))
        elif cls in (OrderedDict, defaultdict):
            aux = keys[1]
            self._keys(text, list(aux[0] if cls is OrderedDict else aux[2] or aux[0]))
            if cls is defaultdict:
                self.checks.append(f"{text}.default_factory is {self.name(aux[3])}")
        elif cls in (list, deque) or issubclass(cls, tuple):
            self.checks.append(f"len({text}) == {keys}")
        elif not dataclasses.is_dataclass(cls) or keys[1] != ((), ()):
            raise _NotSimple


def hot_call(
    trace: Trace, program: Any, call: Call, arguments: list[str], args: list[str], kwargs: dict[str, str], method: bool
) -> Callable[..., Any] | None:
    """The hot path for calls like `call`, or None if they need the slow path.

    It takes `arguments`, of which `args` and `kwargs` are the positional and the keyword arguments in canonical form.
    As a `method` it has the dispatcher as first argument, and asks it where it does not know itself.
    """
    if len(trace.world.guards) > MOST_GUARDS or not all(x.plain for x in trace.layouts):
        return None  # the entry point takes row-major arrays only
    code = _Code(program, args, kwargs, method)
    try:
        _take_arguments(code, call, args, kwargs)
        _convert_scalars(code, call)
        held = list[Any]()
        places = {
            i: found for i, guard in enumerate(trace.world.guards) if code.native and (found := places_of(guard, held))
        }
        watched = [trace.world.guards[i] for i in places]
        code.settle(watched)
        unwatched = [guard for i, guard in enumerate(trace.world.guards) if i not in places]
        code.count([guard.source for guard in unwatched] + [c.source for c in trace.captures if c.source])
        for guard in unwatched:
            code.guard(guard)
        captured = _captured(trace, code)
        apart = apart_of(trace, len(code.leaves)) if code.native else None
        ready = _written(trace, code, [*code.leaves, *captured], apart is None)
        result, effects = _result(trace, code), _effects(trace, code)
        guards = trace.asked(program.checked)
        tests = [_answer(code.output(i + trace.arrays), g.seen) for i, g in enumerate(guards)]
    except _NotSimple:
        return None
    (given, containers), keep = code.given(captured)
    if code.native:
        table = [place for found in places.values() for place in found]
        bare = not code.checks and all(text.isidentifier() for text in given)
        quiet = empty(unusual) if bare else None  # a call with nothing to do before needs no look of its own
        table += [quiet] if quiet else []
        code.objects["entry"] = watching(program.entry, table, containers, (watched, keep, held), apart or ())
    else:
        code.objects["entry"], quiet = program.entry, None
    trouble = [] if quiet else ["unusual"]
    trouble += [] if code.native else ["sprung()"]
    body = (_method if method else _function)(arguments, trouble)
    space = dict(code.objects)
    otherwise = _slowly(arguments) if method else "MISS"
    lines = [*body, *_body(code, given, ready, tests, otherwise), *_ending(result, effects)]
    exec(compile("\n".join(lines), MADE, "exec"), space)
    made: Callable[..., Any] = space["call"]
    return made


def _function(arguments: list[str], trouble: Sequence[str]) -> list[str]:
    return [f"def call({', '.join(arguments)}):", *[f"    if {text}: return MISS" for text in trouble]]


def _method(arguments: list[str], trouble: Sequence[str]) -> list[str]:
    parameters = "".join(f"{a}=MISS, " for a in arguments)
    return [
        f"def call(self, {parameters}/, *more, **keywords):",
        f"    if {' or '.join(['more', 'keywords', *trouble])}: return {_slowly(arguments)}",
    ]


def _slowly(arguments: list[str]) -> str:
    return f"self.call_slowly(({''.join(f'{a}, ' for a in arguments)}*more,), keywords)"


def _body(code: _Code, leaves: list[str], ready: list[str], tests: list[str], otherwise: str) -> list[str]:
    """Check, read, call with these `leaves`, and check the answers; or return `otherwise`."""
    lines = []
    if code.checks or not all(text.isidentifier() for text in leaves):
        names = [text if text.isidentifier() else f"x{i}" for i, text in enumerate(leaves)]
        # The slow path runs the user's code, whose exceptions are not to be caught here.
        taken = "; ".join([f"{name} = {text}" for name, text in zip(names, leaves) if name != text]) or "pass"
        lines = ["    try:", *_checked(code.checks, taken), "    except GONE: fits = False"]
        lines.append(f"    if not fits: return {otherwise}")
        leaves = names
    lines += [f"    if not ({text}): return {otherwise}" for text in ready]
    answers = "".join(f" or not ({t})" for t in tests)
    return [
        *lines,
        f"    r = entry({', '.join(leaves)})",
        f"    if r is MISS{answers}: return {otherwise}",
    ]


def _checked(checks: Sequence[str], taken: str) -> list[str]:
    """Let `fits` say whether all checks hold, and do what is `taken` where they do."""
    lines, space, before = [], " " * 8, list[str]()
    for check in checks:
        if not isinstance(check, _Then):
            before.append(check)
            continue
        if before:
            lines += [f"{space}fits = {' and '.join(before)}", f"{space}if fits:"]
            space, before = space + "    ", []
        lines.append(f"{space}{check}")
    return [*lines, f"{space}fits = {' and '.join(before) or 'True'}", f"{space}if fits: {taken}"]


def _ending(result: str, effects: list[str]) -> list[str]:
    """Put the result together, and do what the call does beside."""
    return [f"    out = {result}", *effects, "    return out"] if effects else [f"    return {result}"]


def _take_arguments(code: _Code, call: Call, args: list[str], kwargs: dict[str, str]) -> None:
    """Code for the leaves of the arguments with these names, and for the checks of the static ones."""
    opened = _opened(call.structure)
    assert opened is not None
    positional, keywords = (_opened(x) for x in opened[2])
    assert positional is not None
    assert keywords is not None
    for place, value in call.statics:
        code.fixed(args[place] if isinstance(place, int) else kwargs[place], value)
    static = {place for place, _ in call.statics}
    for name, structure in zip([a for i, a in enumerate(args) if i not in static], positional[2], strict=True):
        code.take(name, structure)
    for k, structure in zip(sorted(k for k in kwargs if k not in static), keywords[2], strict=True):
        code.take(kwargs[k], structure)


def _convert_scalars(code: _Code, call: Call) -> None:
    """Code that makes 0-d arrays, as the entry point takes them, of NumPy scalars and of Python's ints and bools."""
    code.objects["asarray"] = np.asarray
    for i, x in enumerate(call.leaves):
        text = code.leaves[i]
        if is_huge(x):
            code.checks += [f"type({text}) is int", f"{text} == {x}"]
            code.leaves[i] = code.name(conformed(x))
            code.used.add(i)
        elif type(x) is int or type(x) is bool:
            code.checks.append(f"type({text}) is {type(x).__name__}")
            code.leaves[i] = f"asarray({text})"
            code.used.add(i)
        elif type(x) is np.ndarray and x.ndim == 0 and call.key[1][i][2:] == (np.generic,):
            code.checks.append(f"type({text}) is {code.name(x.dtype.type)}")
            code.leaves[i] = f"asarray({text})"
            code.used.add(i)


def _captured(trace: Trace, code: _Code) -> list[str]:
    """Code for the captured arrays and numbers."""
    found = []
    for capture in trace.captures:
        text = code.read(capture.source) if capture.source else code.name(capture.array)
        if capture.number not in (None, float):
            code.checks.append(f"type({text}) is {code.name(capture.number)}")
            text = f"asarray({text})"
        found.append(text)
    return found


def _result(trace: Trace, code: _Code) -> str:
    """Code that puts the result together from `r`, what the entry point returned."""
    answer = trace.answer
    count = trace.arrays + len(trace.asked(True)) if code.checked else len(trace.graph.outputs)
    if isinstance(answer, Node) and answer.kind.cls is tuple and not code.single:
        flat = [x.position for x in answer.parts if isinstance(x, Output) and x.kind is x.axes is None]
        if flat == list(range(count)) and len(answer.parts) == count:
            return "r"
    return answer.text(code)


def _effects(trace: Trace, code: _Code) -> list[str]:
    """Code that does what each call does to objects from outside."""
    code.objects |= NAMES
    ready = []
    for i, effect in enumerate(trace.effects):
        ready += [f"h{i} = {effect.holder.text(code.name)}", f"v{i} = {effect.piece.text(code)}"]
    return [f"    {line}" for line in (*ready, *statements(trace.effects, code.name))]


def _written(trace: Trace, code: _Code, leaves: Sequence[str], alone: bool) -> list[str]:
    """The expressions that are true where what a call writes to can be written as the graph takes it. The entry point
    looks at the memory, unless they stand `alone`."""
    found = []
    for group in trace.groups:
        found.append(f"len({{{', '.join(f'id({source.text(code.name)})' for source in group)}}}) == {len(group)}")
    if not trace.written or not alone:
        return found
    code.objects["apart"] = apart
    code.used.update(range(len(leaves)))
    arrays = [text for text, kind in zip(leaves, trace.kinds) if kind == "array"]
    targets = [source.text(code.name) for source in trace.written]
    return [*found, f"apart(({''.join(f'{text}, ' for text in targets)}), ({''.join(f'{text}, ' for text in arrays)}))"]


def _answer(text: str, seen: np.ndarray[Any, Any]) -> str:
    """Code that compares a guard value with what was seen."""
    if seen.ndim or (seen.dtype.kind == "f" and (seen == 0 or not math.isfinite(seen))):
        raise _NotSimple
    return f"{text} == {seen.item()!r}"
