"""The text of a hot path under construction: what is checked of a call and of the world, and what is read there."""

from __future__ import annotations

import dataclasses
import operator
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tracegrad import tree
from tracegrad.avals import Size
from tracegrad.runtime.dispatch.native_guards import exact
from tracegrad.runtime.dispatch.native_unpacking import Container, arranged, container, in_order, is_flat
from tracegrad.runtime.execution.entry_callable import MISS, can_watch
from tracegrad.settings import unusual
from tracegrad.trace.effects.effects import Effect
from tracegrad.trace.proxies.opaque_state import state_key
from tracegrad.trace.random.draws import Drawn, Moved, put_back
from tracegrad.trace.sources.signature import AnyGenerator, Call
from tracegrad.trace.sources.sources import Argument, Function, Global, Passed, Source
from tracegrad.trace.world.guards import Guard
from tracegrad.utils.errstate import sprung

__all__ = ["Code", "NotSimple", "Then", "opened"]

# Up to so many keys of a dict are looked at one by one.
_FEW_KEYS = 3
_IN_C = (types.WrapperDescriptorType, types.MethodDescriptorType)
_GONE = (LookupError, AttributeError, ValueError, ReferenceError, TypeError, NameError)


class NotSimple(Exception):
    """The call has a part that only the slow path handles."""


def opened(structure: Any) -> tuple[type, Sequence[str], Sequence[Any]] | None:
    """The class, the expressions that lead to the children, and the structures of the children; None for a leaf."""
    kind, aux, children = structure
    if kind.cls is object:
        return None
    plain = kind.cls in (tuple, list, dict, type(None)) or issubclass(kind.cls, tuple)
    if not plain and not (dataclasses.is_dataclass(kind.cls) and aux == ((), ())):
        raise NotSimple
    if kind.cls is dict and not all(type(k) in (str, int) for k in aux[0]):
        raise NotSimple
    return kind.cls, kind.names(aux, len(children)), children


class Then(str):
    """A statement to run once the checks before it hold."""

    __slots__ = ()


class Code:
    """The text of a hot path under construction and the objects it refers to."""

    # What calls on Tensors need beside; and what, beside an unusual mode, keeps calls from the hot path.
    on_tape: Any = None
    trouble: Sequence[str] = ()
    draws = False
    generators: Sequence[Any] = ()  # the arguments that are such, of the calls that the code is for

    def __init__(self, program: Any, args: Sequence[str], kwargs: Mapping[str, str]) -> None:
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

    def prepare(self, call: Call) -> None:
        """Code for what has to be known of the leaves before they are used."""

    def captured(self, texts: list[str]) -> list[str]:
        """The expressions for captured arrays, given those that lead to them."""
        return texts

    def place(self, source: Source) -> str:
        """The expression of what is at a place, once all has been checked."""
        if type(source) is Moved:
            return f"drawn.moving{source.name}"
        return self._locals.get(source.key) or source.text(self.name)

    def overwrites(self, effect: Effect) -> bool:
        """Whether an effect is one of those that are written by `overwritten`."""
        return False

    def overwritten(self, effects: Sequence[Effect]) -> list[str]:
        """The lines that write these effects, of which only the last calls anything."""
        return []

    def draw(self, draw: Callable[[], Any]) -> None:
        """Code that draws the random numbers of a call, once all checks before hold."""
        self.objects |= {"draw": draw, "put_back": put_back, "drawn": None}
        self.draws = True
        self.checks.append(Then("drawn = draw()"))

    def entering(self, entry: str) -> list[str]:
        """The lines that call the program."""
        return [f"    r = {entry}"]

    def recorded(self, captured: Sequence[str]) -> list[str]:
        """The lines for what is recorded of a call, after the program has run."""
        return []

    def take(self, text: str, structure: Any) -> None:
        """Code for the leaves of the value `text` of this structure, and the checks that it has that structure."""
        if structure[0] is tree.FIXED_KIND:
            self.fixed(text, tree.fixed_value(structure[1]))
            return
        found = opened(structure)
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
        if cls in (tuple, list, Size):
            self.checks.append(f"len({text}) == {len(children)}")
        few = cls is dict and 0 < len(children) <= _FEW_KEYS and all(type(k) is str for k in structure[1][0])
        if few:
            self._few_keys(text, in_order(structure))
        elif cls is dict:
            self._keys(text, in_order(structure))
        texts = [text + key for key in keys]
        if cls in (tuple, list, dict, Size) and len(texts) > 1 and not few:
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
        self.checks.append(Then(f"{', '.join(names)}, = {text}"))
        self.checks += [f"({u} is {self.name(key)} or {u} == {key!r})" for u, key in zip(names, keys)]

    def _unpacked(self, text: str, structure: Any, count: int) -> list[str]:
        """Names for the children of a container, which take less than a look-up for each."""
        names = [f"u{self._count + i}" for i in range(count)]
        self._count += count
        if structure[0].cls is not dict:
            self.checks.append(Then(f"{', '.join(names)} = {text}"))
            return names
        self.checks.append(Then(f"{', '.join(names)} = {text}.values()"))
        places = dict(zip(in_order(structure), names))
        return [places[key] for key in structure[1][0]]

    def fixed(self, text: str, value: Any) -> None:
        """The check that the static argument `text` is this value."""
        if type(value) is AnyGenerator:
            value = list({id(x): x for x in self.generators}.values())[value.number]
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
        if type(source) is Drawn:
            return f"drawn.results[{source.number}]"
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
                raise NotSimple
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
            known = self.name(dtype)  # arrays that were unpickled have equal ones
            same = f"({again}.dtype is {known} or {again}.dtype == {known})"
            self.checks += [f"type({text}) is ndarray", same, f"{again}.shape == {shape}"]
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
        if again == text and text.endswith(")"):  # what is called is called once
            again = self._locals[again] = f"w{len(self._locals)}"
            text = f"({again} := {text})"
        return f"({text} is {expected} or type({again}) is {cls} and {again} == {expected})"

    def _items(self, text: str, cls: type, *items: Any) -> None:
        """The check that the items of a collection are the same objects."""
        if issubclass(cls, dict) or not all(isinstance(getattr(cls, x), _IN_C) for x in ("__iter__", "__len__")):
            raise NotSimple
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
            raise NotSimple
