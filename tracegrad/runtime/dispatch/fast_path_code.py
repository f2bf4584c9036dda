"""Write the source text of a fast path: guards of the call and of captured variables, and reads of both."""

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
from tracegrad.runtime.dispatch.native_unpacking import UnpackedContainer, arranged, container, in_order, is_flat
from tracegrad.runtime.execution.entry_callable import MISS, can_watch
from tracegrad.settings import disabled, unusual
from tracegrad.target.tuning import TUNING
from tracegrad.trace.effects.effects import Effect
from tracegrad.trace.proxies.opaque_state import state_key
from tracegrad.trace.random.draws import AdvancedGenerator, Drawn, restore_states
from tracegrad.trace.sources.signature import AnyGenerator, BoundCall
from tracegrad.trace.sources.sources import ArgumentLeaf, CallArgument, CalledFunction, ModuleGlobal, Source
from tracegrad.trace.world.guards import SourceGuard
from tracegrad.utils.errstate import sprung

_MAX_COMPARED_KEYS = TUNING.dispatch.max_compared_keys
_IN_C = (types.WrapperDescriptorType, types.MethodDescriptorType)
_READ_ERRORS = (LookupError, AttributeError, ValueError, ReferenceError, TypeError, NameError)


class NotSimple(Exception):
    """The call has a part that only the slow path handles."""


def opened(structure: Any) -> tuple[type, Sequence[str], Sequence[Any]] | None:
    """The class of a container, the expressions of its children, and their structures; None for a leaf."""
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
    """A statement to execute after the checks before it hold."""

    __slots__ = ()


class FastPathCode:
    """The source text of a fast path under construction, and the objects it refers to."""

    # Data for calls on Tensors; and further conditions that exclude the fast path, besides an unusual mode.
    on_tape: Any = None
    trouble: Sequence[str] = ()
    draws = False
    generators: Sequence[Any] = ()  # the random generators among the arguments

    def __init__(self, program: Any, args: Sequence[str], kwargs: Mapping[str, str]) -> None:
        self.single, self.checked, self._args, self._kwargs = program.single, program.checked, args, kwargs
        self.native = can_watch(program.entry)
        self.objects: dict[str, Any] = {"MISS": MISS, "GONE": _READ_ERRORS, "ndarray": np.ndarray}
        self.objects |= {"unusual": unusual, "sprung": sprung}
        self.checks: list[str] = []
        self.leaves: list[str] = []
        self.used: set[int] = set()  # numbers of leaves that the code itself uses
        self._containers: list[UnpackedContainer] = []
        self._names: dict[int, str] = {}
        self._count = 0
        self._uses: Counter[Any] = Counter()
        self._locals: dict[Any, str] = {}
        self._known: dict[str, str] = {}
        self._typed: set[str] = set()
        self.local_names: dict[Any, str] = {}

    def output(self, position: int) -> str:
        """The expression of an output of the program."""
        return "outputs" if self.single else f"outputs[{position}]"

    def name(self, x: Any) -> str:
        """The name of an object, or the expression of a part of the arguments."""
        if isinstance(x, CalledFunction):
            return "self.fun"
        if isinstance(x, ArgumentLeaf):
            self.used.add(int(x.name))
        if isinstance(x, ArgumentLeaf | CallArgument):
            return x.among(self.leaves, self._args, self._kwargs)
        result = self._names.get(id(x))
        if result is None:
            result = self._names[id(x)] = f"object_{len(self._names)}"
            self.objects[result] = x
        return result

    def prepare(self, call: BoundCall) -> None:
        """Write code that must precede the use of the leaves."""

    def captured(self, texts: list[str]) -> list[str]:
        """The expressions of captured arrays, given the expressions of their sources."""
        return texts

    def checked_text(self, source: Source) -> str:
        """The expression of a source, valid after all checks."""
        if type(source) is AdvancedGenerator:
            return f"drawn.moving{source.name}"
        return self._locals.get(source.key) or source.text(self.name)

    def overwrites(self, effect: Effect) -> bool:
        """Whether `overwritten` writes this effect."""
        return False

    def overwritten(self, effects: Sequence[Effect]) -> list[str]:
        """The lines that perform these effects; only the last line calls a function."""
        return []

    def draw(self, draw: Callable[..., object]) -> None:
        """Write the random draws of a call, after all checks."""
        self.objects |= {"draw": draw, "put_back": restore_states, "drawn": None}
        self.draws = True
        self.checks.append(Then("drawn = draw()"))

    def entering(self, entry: str) -> list[str]:
        """The lines that call the program."""
        return [f"    outputs = {entry}"]

    def recorded(self, captured: Sequence[str]) -> list[str]:
        """The lines that record a call on the tape, after the program has run."""
        return []

    def unpack_value(self, text: str, structure: Any) -> None:
        """Write the unpacking of the value `text` with this structure, and the checks of the structure."""
        if structure[0] is tree.FIXED_KIND:
            self.fixed(text, tree.fixed_value(structure[1]))
            return
        result = opened(structure)
        if result is None:
            self.leaves.append(text)
            return
        if self.native and is_flat(structure) and not disabled("native-unpacking"):
            checks, self.checks, first = self.checks, [], len(self.leaves)
            self._children(text, structure, *result)
            self._containers.append(container(text, structure, first, len(checks), self.checks))
            self.checks = checks
        else:
            self._children(text, structure, *result)

    def _children(self, text: str, structure: Any, cls: type, keys: Sequence[str], children: Sequence[Any]) -> None:
        if cls is type(None):
            self.checks.append(f"{text} is None")
            return
        self.checks.append(f"type({text}) is {self.name(cls)}")
        if cls in (tuple, list, Size):
            self.checks.append(f"len({text}) == {len(children)}")
        compares_keys = (
            cls is dict and 0 < len(children) <= _MAX_COMPARED_KEYS and all(type(k) is str for k in structure[1][0])
        )
        if compares_keys:
            self._compare_keys(text, in_order(structure))
        elif cls is dict:
            self._keys(text, in_order(structure))
        texts = [text + key for key in keys]
        if cls in (tuple, list, dict, Size) and len(texts) > 1 and not compares_keys:
            texts = self._unpacked(text, structure, len(texts))
        for each, child in zip(texts, children):
            self.unpack_value(each, child)

    def entry_arguments(self, captured: Sequence[str]) -> tuple[tuple[list[str], list[int]], object]:
        """The arguments of the entry point (`arranged`), and the objects they refer to. Containers that the entry point
        cannot unpack are checked here."""
        flat_containers = []
        for c in reversed(self._containers):
            if self.used.isdisjoint(c.inputs):
                flat_containers.append(c)
            else:
                self.checks[c.check_position : c.check_position] = c.checks
        return arranged([*self.leaves, *captured], flat_containers), [c.keys for c in flat_containers]

    def _compare_keys(self, text: str, keys: list[str]) -> None:
        """Check that the dict `text` has these keys in this order; they are usually identical strings."""
        names = self._item_names(len(keys))
        self.checks.append(Then(f"{', '.join(names)}, = {text}"))
        self.checks += [f"({name} is {self.name(key)} or {name} == {key!r})" for name, key in zip(names, keys)]

    def _item_names(self, count: int) -> list[str]:
        """New local names for the items of a container."""
        first, self._count = self._count, self._count + count
        return [f"item_{i}" for i in range(first, first + count)]

    def _unpacked(self, text: str, structure: Any, count: int) -> list[str]:
        """Write local names for the children of a container, which are faster than lookups."""
        names = self._item_names(count)
        if structure[0].cls is not dict:
            self.checks.append(Then(f"{', '.join(names)} = {text}"))
            return names
        self.checks.append(Then(f"{', '.join(names)} = {text}.values()"))
        names_by_key = dict(zip(in_order(structure), names))
        return [names_by_key[key] for key in structure[1][0]]

    def fixed(self, text: str, value: object) -> None:
        """Check that the static argument `text` is this value."""
        if type(value) is AnyGenerator:
            value = list({id(x): x for x in self.generators}.values())[value.number]
        name = self.name(value)
        same = f"type({text}) is {self.name(type(value))} and {text} == {name}"
        self.checks.append(same if type(value) in (str, bytes, slice, range) else f"{text} is {name}")

    def _keys(self, text: str, keys: list[object]) -> None:
        """Check that the dict `text` has these keys in this order."""
        self.checks.append(f"[*{text}] == {self.name(keys)}")
        if any(type(key) is int and key in (0, 1) for key in keys):  # 0 == False and 1 == True
            self.checks.append(f"[*map(type, {text})] == {self.name([type(key) for key in keys])}")

    def count(self, sources: Iterable[Source]) -> None:
        """Count the reads of each source, directly and on the path to others."""
        seen = set()
        waiting = list(sources)
        for source in waiting:
            self._uses[source.key] += 1
            if isinstance(source.parent, Source) and source.key not in seen:
                waiting.append(source.parent)
            seen.add(source.key)

    def assume_guards(self, guards: Sequence[SourceGuard]) -> None:
        """Assume the guards that the entry point checks."""
        assumed = [guard for guard in guards if guard.kind == "is" and type(guard.source) is ModuleGlobal]
        self._locals |= {guard.source.key: self.name(guard.expected) for guard in assumed}

    def read(self, source: Source) -> str:
        """The expression of a source; a source that is read repeatedly gets a local name at its first read."""
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
            again = self._locals[source.key] = f"read_{len(self._locals)}"
            text = f"({again} := {text})"
        self._known[text] = again
        return text

    def again(self, text: str) -> str:
        """The expression for a later read, by local names."""
        return self._known.get(text, text)

    def guard(self, guard: SourceGuard) -> None:
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
            known = self.name(dtype)  # an unpickled array has an equal dtype object
            same = f"({again}.dtype is {known} or {again}.dtype == {known})"
            self.checks += [f"type({text}) is ndarray", same, f"{again}.shape == {shape}"]
        elif guard.kind == "state":
            self.checks.append(f"{self.name(state_key)}({text}) == {self.name(guard.expected)}")
        elif guard.kind == "items":
            self._items(text, *guard.expected)
        else:
            self._container(text, *guard.expected)

    def _type(self, text: str, cls: type) -> None:
        """Check a type, once."""
        known = f"type({self.again(text)}) is {self.name(cls)}"
        if known not in self._typed:
            self.checks.append(f"type({text}) is {self.name(cls)}")
        self._typed.add(known)

    def _value(self, text: str, guard: SourceGuard) -> str:
        """Check a value by identity, or by equality for types whose equality is exact."""
        expected = self.name(guard.expected)
        if not exact(guard):
            return f"{text} is {expected}"
        again, cls = self.again(text), type(guard.expected).__name__
        if again == text and text.endswith(")"):  # a call is evaluated once
            again = self._locals[again] = f"read_{len(self._locals)}"
            text = f"({again} := {text})"
        return f"({text} is {expected} or type({again}) is {cls} and {again} == {expected})"

    def _items(self, text: str, cls: type, *items: object) -> None:
        """Check that the items of a collection are the same objects."""
        if issubclass(cls, dict) or not all(isinstance(getattr(cls, x), _IN_C) for x in ("__iter__", "__len__")):
            raise NotSimple
        self.objects |= {"all": all, "map": map, "is_": operator.is_}
        again = self.again(text)
        self.checks += [f"type({text}) is {self.name(cls)}", f"len({again}) == {len(items)}"]
        if items:
            self.checks.append(f"all(map(is_, {again}, {self.name(items)}))")

    def _container(self, text: str, cls: type, keys: Any) -> None:
        """Check the type of a container, and its keys or length."""
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
