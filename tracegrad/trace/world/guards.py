"""What a trace assumes of the world: guards on what it has read there, looked at before each call."""

from __future__ import annotations

import copy
import io
import operator
import sys
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tracegrad import tree
from tracegrad.trace.builder.abort import STEPS, RunsPlainly
from tracegrad.trace.builder.value_guards import Capture
from tracegrad.trace.effects.effects import Effect
from tracegrad.trace.proxies import function_proxies as shadow
from tracegrad.trace.proxies.opaque_state import attributes, state_key
from tracegrad.trace.random.draws import Draws, rewind
from tracegrad.trace.sources.code_origin import is_user_code
from tracegrad.trace.sources.signature import exact
from tracegrad.trace.sources.sources import CALLS, Source
from tracegrad.trace.sources.state_sources import Name
from tracegrad.utils.lazy_dataclass import record

__all__ = ["GONE", "Assumptions", "Guard", "all_of", "copied", "is_number", "keys_of", "short"]

# What reading a source raises where nothing is there.
GONE = (LookupError, AttributeError, ValueError, ReferenceError, TypeError)
# What is compared with == where it is not the same object.
_ATOMS = (bool, int, float, complex, str, bytes, np.generic)
# Numbers that can be inputs.
_VARYING = (int, float, np.integer, np.floating)
# What functions and methods are made of.
_OF_CODE = ("__code__", "__defaults__", "__func__")


@record(frozen=True, slots=True)
class Guard:
    """What a trace assumes of a source: `kind` is "is" (identity), "equals" (type and value), "type", "aval" (an array
    of this dtype and shape), "state" (of an object), "keys" (type and keys of a container), "items" (all items of a
    collection), "same" (the object that another source leads to) or "absent" (there is nothing).
    """

    source: Source
    kind: str
    expected: Any

    def holds(self) -> bool:
        try:
            found = self.source.read()
            other = self.expected.read() if self.kind == "same" else None
        except GONE:
            return self.kind == "absent"
        if self.kind == "absent":
            return False
        if self.kind == "is":
            return found is self.expected
        if self.kind == "same":
            return found is other
        if self.kind == "type":
            return type(found) is self.expected
        if self.kind == "aval":
            return type(found) is np.ndarray and (found.dtype, found.shape) == self.expected
        if self.kind == "equals":
            return found is self.expected or exact(found) == exact(self.expected)
        if self.kind == "state":
            return bool(state_key(found) == self.expected)
        if self.kind == "items":
            return _same_items(all_of(found), self.expected)
        return bool(keys_of(found) == self.expected)

    @property
    def is_of_number(self) -> bool:
        """Whether it says which number a source holds."""
        return self.kind == "equals" and is_number(self.expected)

    def holds_a(self, cls: type) -> bool:
        """Whether the source holds an instance of exactly `cls`."""
        try:
            return type(self.source.read()) is cls
        except GONE:
            return False

    @property
    def implied(self) -> bool:
        """Whether it is about the code itself: which function or built-in a name means, and what that is made of."""
        return self.kind == "is" and (isinstance(self.source, Name) or self.source.name in _OF_CODE)

    def now(self) -> str:
        """The source's present value, for messages."""
        try:
            return short(self.source.read())
        except GONE:
            return "nothing"

    def __str__(self) -> str:
        if self.kind == "absent":
            return f"{self.source} is not there"
        if self.kind == "type":
            return f"{self.source} is a {self.expected.__name__}"
        if self.kind == "aval":
            return f"{self.source} is an array {self.expected[0]}{list(self.expected[1])}"
        if self.kind == "keys":
            cls, keys = self.expected
            return (
                f"{self.source} is a {cls.__name__} with keys {keys}"
                if isinstance(keys, tuple)
                else f"{self.source} is a {cls.__name__} of {keys}"
            )
        if self.kind == "state":
            return f"{self.source} has the state it had"
        return f"{self.source} {'is' if self.kind == 'is' else '=='} {short(self.expected)}"


def short(x: Any) -> str:
    """A value for messages."""
    if isinstance(x, types.FunctionType | type | types.ModuleType):
        return f"{'module ' if isinstance(x, types.ModuleType) else ''}{x.__name__}"
    if isinstance(x, np.ndarray):
        return f"an array {x.dtype}{list(x.shape)}"
    text = repr(x) if isinstance(x, shadow.VALUES) else f"a {type(x).__name__}"
    return text if len(text) < 60 else text[:57] + "..."


def all_of(x: Any) -> list[Any]:
    """The type of a collection and all that is in it."""
    return [type(x), *items_in(x)]


_COLLECTIONS: tuple[Any, ...] = (list, deque, OrderedDict, dict, set, frozenset, bytearray)


def _kind_of(x: Any) -> Any:
    """The class of Python's that a collection is of."""
    return next((kind for kind in _COLLECTIONS if isinstance(x, kind)), type(x))


def items_in(x: Any) -> Iterable[Any]:
    """All that is in a collection, pairs if it is a dict; its own methods do not notice."""
    kind = _kind_of(x)
    found: Iterable[Any] = kind.items(x) if issubclass(kind, dict) else kind.__iter__(x)
    return found


def copied(x: Any) -> Any:
    """A copy of a collection; methods of a class of the user's do not notice."""
    cls: Any = type(x)
    if not is_user_code(cls):
        return copy.copy(x)
    kind = _kind_of(x)
    made = kind.__new__(cls)
    if isinstance(x, dict):
        if isinstance(x, defaultdict):
            made.default_factory = x.default_factory
        for key, value in items_in(x):
            kind.__setitem__(made, key, value)
    elif isinstance(x, deque):
        deque.__init__(made, items_in(x), x.maxlen)
    else:
        kind.__init__(made, items_in(x))
    for name, value in attributes(x):
        object.__setattr__(made, name, value)
    return made


def is_number(x: Any) -> bool:
    """Whether it may be an input of the graph: a number of Python's or NumPy's, no class with operators."""
    return isinstance(x, _VARYING) and type(x).__module__ in ("builtins", "numpy")


def _same_items(found: list[Any], expected: list[Any]) -> bool:
    """Whether these are the same objects, or equal values of the same type."""
    if len(found) != len(expected):
        return False
    return all(map(operator.is_, found, expected)) or all(map(_same_item, found, expected))


def _same_item(a: Any, b: Any) -> bool:
    if a is b or type(a) is not type(b):
        return a is b
    if type(a) in _DISTINCT:
        return bool(a == b)
    return exact(a) == exact(b) if isinstance(a, _ATOMS) else type(a) is tuple and _same_items([*a], [*b])


# Of these, equal ones are the same to code that does not compare identities.
_DISTINCT = frozenset({int, str, bytes, bool})


def keys_of(x: Any) -> Any:
    """The class and the keys or length of a container."""
    if type(x) is dict or type(x) is types.MappingProxyType:
        return type(x), tuple(x)
    if isinstance(x, tuple | list | deque):
        return type(x), len(x)
    return type(x), tree.skeleton(x)


class Printed:
    """What traced code prints: held back until it is known that the call does not run again, and print it then."""

    def __init__(self) -> None:
        self.out: Any = sys.stdout
        self.texts: list[str] = []

    def add(self, *values: Any, **options: Any) -> None:
        """`print(*values)`, to where Python prints."""
        if self.out is None or sys.stdout is not self.out:  # what is printed there may be looked at
            print(*values, **options)  # noqa: T201
            return
        text = io.StringIO()
        print(*values, **{name: x for name, x in options.items() if name != "flush"}, file=text)
        self.texts.append(text.getvalue())

    def release(self) -> None:
        """Print what was held back."""
        texts, self.texts = self.texts, []
        if texts and self.out is not None:
            self.out.write("".join(texts))

    def settle(self, ends: bool) -> None:
        """Print what was held back if the call `ends` with this; if not, it runs again, and prints then."""
        if ends:
            self.release()
        self.out, self.texts = None, []


class Assumptions:
    """What one trace assumes of the world: guards; and which places its calls write to, by their keys."""

    varying: Collection[Hashable] = ()
    asks_functions = False  # whether traced code asks for their signatures, and what else they have

    def __init__(self) -> None:
        self.guards: list[Guard] = []
        self.rewritten: frozenset[Hashable] = frozenset()
        self.late: RunsPlainly | None = None  # what has ended the trace when it was over
        self.streams = sys.stdout, sys.stderr  # to which people are told something
        self.told = False  # whether the traced code has shown somebody something
        self.class_asked = ""  # what to say of the call of `type` that was answered for a traced value
        self.printed = Printed()
        self.draws: Draws | None = None  # the random numbers that each call draws

    @property
    def once(self) -> bool:
        """Whether the trace is of one call, so that what it reads and does is never asked or done again."""
        return STEPS in self.varying

    @property
    def drawn(self) -> int:
        """How often random numbers have been drawn."""
        return 0 if self.draws is None else len(self.draws.steps)

    def moved(self, output: Callable[[Any], Any]) -> list[Any]:
        """The effects on generators of random numbers, with what `output` makes of their states."""
        moved = () if self.draws is None else self.draws.moved()
        return [Effect("state", source, None, output(x)) for source, x in moved]

    @property
    def states(self) -> list[Any]:
        """The states of generators of random numbers, where they are values."""
        return [] if self.draws is None else [x.value for x in self.draws.streams.values()]

    def read(self, captures: Sequence[Capture]) -> list[Any] | None:
        """The captured arrays as they are now; None when a guard does not hold or an array has changed its kind."""
        rewind(CALLS.call)
        for guard in self.guards:
            if not guard.holds():
                return None
        if self.draws is not None:
            try:
                self.draws.run()
            except GONE:
                return None
        found = [_present(c) for c in captures]
        return None if any(x is None for x in found) else found

    def changed_numbers(self) -> list[Hashable]:
        """The keys of sources of numbers that are to become inputs: they held another float when this was traced, or
        they, or the containers that they are items of, are written by each call."""
        numbers = [g for g in self.guards if g.is_of_number]
        acts = any(g.source.acts for g in numbers)  # a function of the user's is asked where all guards before it hold
        failed = [g for g in self._failed() if g.is_of_number] if acts else [g for g in numbers if not g.holds()]
        return [
            g.source.key
            for g in failed
            if g.holds_a(type(g.expected))
            and (type(g.expected) is float or any(x.key in self.rewritten for x in _around(g.source)))
        ]

    def failures(self, captures: Sequence[Capture]) -> list[str]:
        """What keeps `read` from an answer, in words."""
        found = [f"{g}, now {g.now()}" for g in self._failed()]
        captures = [c for c in captures if not (found and c.source is not None and c.source.acts)]
        return found + [f"{c.source} is no longer {c.node.aval}{_now(c)}" for c in captures if _present(c) is None]

    def _failed(self) -> Iterator[Guard]:
        """The guards that do not hold. What functions of the user's answer is asked where all before hold: a call that
        is another one does not come there."""
        failed = False
        for guard in self.guards:
            if not (failed and guard.source.acts) and not guard.holds():
                failed = True
                yield guard


def _around(source: Source) -> list[Source]:
    """A place and the one that it is in, if that is none of an object of the user's."""
    return [x for x in (source, source.parent) if isinstance(x, Source)]


def _now(capture: Capture) -> str:
    try:
        value = capture.source.read() if capture.source else None
    except Exception:  # reading runs code of the user's
        return ""
    return f" but {short(value)}"


def _present(capture: Capture) -> Any:
    """The captured array or float as it is now; None when there is none of the right dtype and shape."""
    try:
        array = capture.array if capture.source is None else capture.source.read()
    except GONE:
        return None
    if capture.number is not None:
        return array if type(array) is capture.number else None
    aval = capture.node.aval
    return array if isinstance(array, np.ndarray) and (array.shape, array.dtype) == (aval.shape, aval.dtype) else None
