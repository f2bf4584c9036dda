"""Guards on outside state: the kinds of guards, and how each is checked before a call."""

from __future__ import annotations

import copy
import io
import operator
import sys
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tracegrad import tree
from tracegrad.trace.builder.abort import RunsPlainly
from tracegrad.trace.builder.facts import Fact, NumberFact
from tracegrad.trace.builder.value_guards import Capture
from tracegrad.trace.effects.effects import Effect
from tracegrad.trace.proxies import function_proxies
from tracegrad.trace.proxies.opaque_state import attributes, state_key
from tracegrad.trace.random.draws import Draws, rewind
from tracegrad.trace.sources.code_origin import is_user_code
from tracegrad.trace.sources.signature import exact
from tracegrad.trace.sources.sources import CURRENT, Source
from tracegrad.trace.sources.state_sources import Name
from tracegrad.utils.lazy_dataclass import record

# The exceptions of reading a source that has no value.
MISSING_ERRORS = (LookupError, AttributeError, ValueError, ReferenceError, TypeError)
# Classes of values that are compared by == if they are not the same object.
_ATOMS = (bool, int, float, complex, str, bytes, np.generic)
# Numbers that can be inputs.
_NUMBERS = (int, float, np.integer, np.floating)
# The parts of functions and methods that guards of code read.
_OF_CODE = ("__code__", "__defaults__", "__func__")


@record(frozen=True)
class GuardKind:
    """Kind of guards on a source.

    `meaning` is what the source must have, and `holds(value, expected)` compares its present value. `text(expected)`
    describes it in a message, after the name of the source.
    """

    meaning: str
    holds: Callable[[Any, Any], bool]
    text: Callable[[Any], str]


def _is_object_of(value: object, source: Source) -> bool:
    try:
        return value is source.read()
    except MISSING_ERRORS:
        return False


def _text_of_keys(expected: tuple[type, object]) -> str:
    cls, keys = expected
    return f"is a {cls.__name__} {'with keys' if isinstance(keys, tuple) else 'of'} {keys}"


GUARD_KINDS = {
    "is": GuardKind("the same object", operator.is_, lambda expected: f"is {short(expected)}"),
    "equals": GuardKind(
        "an equal value of the same type",
        lambda value, expected: value is expected or exact(value) == exact(expected),
        lambda expected: f"== {short(expected)}",
    ),
    "type": GuardKind(
        "an object of exactly this class",
        lambda value, expected: type(value) is expected,
        lambda expected: f"is a {expected.__name__}",
    ),
    "aval": GuardKind(
        "an array of this dtype and shape",
        lambda value, expected: type(value) is np.ndarray and (value.dtype, value.shape) == expected,
        lambda expected: f"is an array {expected[0]}{list(expected[1])}",
    ),
    "keys": GuardKind(
        "a container of this class with these keys, or of this length",
        lambda value, expected: bool(keys_of(value) == expected),
        _text_of_keys,
    ),
    "items": GuardKind(
        "a collection of this class with these items",
        lambda value, expected: _same_items(all_of(value), expected),
        lambda expected: f"== {short(expected)}",
    ),
    "state": GuardKind(
        "an object whose reachable state is equal",
        lambda value, expected: bool(state_key(value) == expected),
        lambda expected: "has the state it had",
    ),
    "same": GuardKind("the object of another source", _is_object_of, lambda expected: f"== {short(expected)}"),
    "absent": GuardKind("no value", lambda value, expected: False, lambda expected: "is not there"),
}


@record(frozen=True, slots=True)
class SourceGuard:
    """Guard on a source, of a kind in `GUARD_KINDS`."""

    source: Source
    kind: str
    expected: Any

    def holds(self) -> bool:
        try:
            value = self.source.read()
        except MISSING_ERRORS:
            return self.kind == "absent"
        return GUARD_KINDS[self.kind].holds(value, self.expected)

    @property
    def is_of_number(self) -> bool:
        """Whether it guards the value of a number."""
        return self.kind == "equals" and is_number(self.expected)

    def holds_a(self, cls: type) -> bool:
        """Whether it guards that the source holds an instance of exactly `cls`."""
        try:
            return type(self.source.read()) is cls
        except MISSING_ERRORS:
            return False

    @property
    def implied(self) -> bool:
        """Whether it concerns the code itself: which function or built-in a name refers to, and the parts of a
        function."""
        return self.kind == "is" and (isinstance(self.source, Name) or self.source.name in _OF_CODE)

    def now(self) -> str:
        """The source's present value, for messages."""
        try:
            return short(self.source.read())
        except MISSING_ERRORS:
            return "nothing"

    def __str__(self) -> str:
        return f"{self.source} {GUARD_KINDS[self.kind].text(self.expected)}"


def short(x: object) -> str:
    """A value, shortened for messages."""
    if isinstance(x, types.FunctionType | type | types.ModuleType):
        return f"{'module ' if isinstance(x, types.ModuleType) else ''}{x.__name__}"
    if isinstance(x, np.ndarray):
        return f"an array {x.dtype}{list(x.shape)}"
    text = repr(x) if isinstance(x, function_proxies.VALUES) else f"a {type(x).__name__}"
    return text if len(text) < 60 else text[:57] + "..."


def all_of(x: object) -> list[object]:
    """The type of a collection and all its items, recursively."""
    return [type(x), *items_in(x)]


_COLLECTIONS: tuple[Any, ...] = (list, deque, OrderedDict, dict, set, frozenset, bytearray)


def _kind_of(x: object) -> Any:
    """The built-in class of a collection."""
    return next((kind for kind in _COLLECTIONS if isinstance(x, kind)), type(x))


def items_in(x: object) -> Iterable[Any]:
    """All items of a collection, pairs for a dict, read without its own methods."""
    kind = _kind_of(x)
    results: Iterable[Any] = kind.items(x) if issubclass(kind, dict) else kind.__iter__(x)
    return results


def copied(x: object) -> Any:
    """A copy of a collection, made without methods of a user class."""
    cls: Any = type(x)
    if not is_user_code(cls):
        return copy.copy(x)
    kind = _kind_of(x)
    result = kind.__new__(cls)
    if isinstance(x, dict):
        if isinstance(x, defaultdict):
            result.default_factory = x.default_factory
        for key, value in items_in(x):
            kind.__setitem__(result, key, value)
    elif isinstance(x, deque):
        deque.__init__(result, items_in(x), x.maxlen)
    else:
        kind.__init__(result, items_in(x))
    for name, value in attributes(x):
        object.__setattr__(result, name, value)
    return result


def is_number(x: object) -> bool:
    """Whether it may be a graph input: a Python or NumPy number, not of a user class with operators."""
    return isinstance(x, _NUMBERS) and type(x).__module__ in ("builtins", "numpy")


def _same_items(actual: list[object], expected: list[object]) -> bool:
    """Whether the items are the same objects, or equal values of the same type."""
    if len(actual) != len(expected):
        return False
    return all(map(operator.is_, actual, expected)) or all(map(_same_item, actual, expected))


def _same_item(a: Any, b: Any) -> bool:
    if a is b or type(a) is not type(b):
        return a is b
    if type(a) in _DISTINCT:
        return bool(a == b)
    return exact(a) == exact(b) if isinstance(a, _ATOMS) else type(a) is tuple and _same_items([*a], [*b])


# Classes whose equal instances only a comparison of identities can distinguish.
_DISTINCT = frozenset({int, str, bytes, bool})


def keys_of(x: object) -> Any:
    """The class and the keys or length of a container."""
    if type(x) is dict or type(x) is types.MappingProxyType:
        return type(x), tuple(x)
    if isinstance(x, tuple | list | deque):
        return type(x), len(x)
    return type(x), tree.skeleton(x)


class Printed:
    """Printed output of traced code, held back until it is known that the call does not run again."""

    def __init__(self) -> None:
        self.out: Any = sys.stdout
        self.texts: list[str] = []

    def add(self, *values: Any, **options: Any) -> None:
        """Hold back `print(*values)` to the standard output."""
        if self.out is None or sys.stdout is not self.out:  # code may read a replaced stream
            print(*values, **options)  # noqa: T201
            return
        text = io.StringIO()
        print(*values, **{name: x for name, x in options.items() if name != "flush"}, file=text)
        self.texts.append(text.getvalue())

    def release(self) -> None:
        """Print the held output."""
        texts, self.texts = self.texts, []
        if texts and self.out is not None:
            self.out.write("".join(texts))

    def finish(self, ends: bool) -> None:
        """Print the held output if the call `ends` with this; otherwise the call runs again, and prints then."""
        if ends:
            self.release()
        self.out, self.texts = None, []


class Assumptions:
    """Guards of one trace, and the keys of the locations that its calls write to."""

    facts: set[Fact] | frozenset[Fact] = frozenset()
    once = False  # whether the trace is of a single call, so that its reads and writes are never repeated
    reads_functions = False  # whether traced code reads signatures and other metadata of functions

    def __init__(self) -> None:
        self.guards: list[SourceGuard] = []
        self.rewritten: frozenset[Hashable] = frozenset()
        self.late: RunsPlainly | None = None  # the exception that aborted the trace at its end
        self.streams = sys.stdout, sys.stderr  # the console
        self.has_output = False  # whether the traced code has printed or logged
        self.class_read = ""  # the message about a call of `type` on a traced value
        self.printed = Printed()
        self.draws: Draws | None = None  # the random numbers that each call draws

    @property
    def drawn(self) -> int:
        """The number of random draws so far."""
        return 0 if self.draws is None else len(self.draws.draw_calls)

    def moved(self, output: Callable[[Any], Any]) -> list[Any]:
        """The effects on random generators; `output` makes outputs of their states."""
        moved = () if self.draws is None else self.draws.moved()
        return [Effect("state", source, None, output(x)) for source, x in moved]

    @property
    def states(self) -> list[Any]:
        """The states of random generators that are traced values."""
        return [] if self.draws is None else [x.value for x in self.draws.streams.values()]

    def read(self, captures: Sequence[Capture]) -> list[Any] | None:
        """The present captured arrays; None if a guard fails or an array has changed its dtype or shape."""
        rewind(CURRENT.call)
        for guard in self.guards:
            if not guard.holds():
                return None
        if self.draws is not None:
            try:
                self.draws.run()
            except MISSING_ERRORS:
                return None
        results = [_present(c) for c in captures]
        return None if any(x is None for x in results) else results

    def changed_numbers(self) -> list[Fact]:
        """Facts about numbers that must become inputs: they held another float during tracing, or each call
        writes to them or to their containers."""
        numbers = [g for g in self.guards if g.is_of_number]
        acts = any(g.source.acts for g in numbers)  # guards that call user functions depend on the guards before them
        failed = [g for g in self._failed() if g.is_of_number] if acts else [g for g in numbers if not g.holds()]
        return [
            NumberFact(g.source.key)
            for g in failed
            if g.holds_a(type(g.expected))
            and (type(g.expected) is float or any(x.key in self.rewritten for x in _around(g.source)))
        ]

    def failures(self, captures: Sequence[Capture]) -> list[str]:
        """Descriptions of the failing guards."""
        results = [f"{g}, now {g.now()}" for g in self._failed()]
        captures = [c for c in captures if not (results and c.source is not None and c.source.acts)]
        return results + [f"{c.source} is no longer {c.node.aval}{_now(c)}" for c in captures if _present(c) is None]

    def _failed(self) -> Iterator[SourceGuard]:
        """The failing guards. Guards that call user functions are evaluated only if all guards before them hold,
        because another call does not reach them."""
        failed = False
        for guard in self.guards:
            if not (failed and guard.source.acts) and not guard.holds():
                failed = True
                yield guard


def _around(source: Source) -> list[Source]:
    """A source and its parent, if the parent is a source."""
    return [x for x in (source, source.parent) if isinstance(x, Source)]


def _now(capture: Capture) -> str:
    try:
        value = capture.source.read() if capture.source else None
    except Exception:  # reading runs user code
        return ""
    return f" but {short(value)}"


def _present(capture: Capture) -> Any:
    """The present captured array or float; None if there is none of the right dtype and shape."""
    try:
        array = capture.array if capture.source is None else capture.source.read()
    except MISSING_ERRORS:
        return None
    if capture.number is not None:
        return array if type(array) is capture.number else None
    aval = capture.node.aval
    return array if isinstance(array, np.ndarray) and (array.shape, array.dtype) == (aval.shape, aval.dtype) else None
