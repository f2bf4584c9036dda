"""Facts that an attempt to trace a call learns for the next attempt.

A trace that meets what it cannot represent restarts with another fact (`tracegrad.trace.builder.abort`). Facts are
frozen records. Those about loops name the loop by its code object and an instruction: the conditional jump of a loop
over values, or the instruction that requests the next item of a `for` loop.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum
from types import CodeType
from typing import NamedTuple

from tracegrad.trace.bytecode.instructions import line_of
from tracegrad.utils.lazy_dataclass import record


class TraceFact(Enum):
    """A fact about the whole trace. Its value says what the next attempt does."""

    AGAIN = "nothing else"
    ARRAYS = "an array in several arguments is one traced value"
    BOOLEANS = "booleans are read at once"
    COMPUTED = "arrays of constants are nodes from the beginning"
    FOLDED = "variables that differ after the first iteration of a folded loop are traced at its beginning"
    ITERATION_BY_ITERATION = "all loops are recorded iteration by iteration"
    KINDS = "a float is a Python or a NumPy float"
    LISTS = "lists keep their elements in loops, because code compares objects by identity"
    NO_STREAMS = "the states of random generators cannot be traced values"
    STEPS = "the trace is of one call, runs each line as often as Python does, and rerolls no loop"
    STREAMS = "the states of random generators are traced values"


class LoopFactKind(Enum):
    """How the next attempt records a loop."""

    ENTERED = "a loop over values includes its first iteration"
    FOLDED = "the loop is folded from its first iteration"
    ITERATION_BY_ITERATION = "the loop is recorded iteration by iteration"
    PEELED = "a loop over values does not include its first iteration"
    VIEWS = "views in the state of the loop stay views"
    WITHIN = "the loop is folded if an enclosing loop is folded"


class Variation(Enum):
    """In what a local variable varies between the iterations of a loop."""

    KIND = "the kind of a float, or a boolean"
    NUMBER = "a Python number"
    SCALAR = "a constant NumPy scalar"
    SEPARATE = "an input or an alias that becomes a separate value"


class LeafSchema(NamedTuple):
    """A leaf of an element's schema: its kind, and the dtype and shape of its value."""

    kind: str
    dtype: str
    shape: tuple[int, ...]


class ContainerSchema(NamedTuple):
    """A container in an element's schema: its class, the keys of a dict, and the schemas of the parts."""

    cls: str
    keys: tuple[Hashable, ...]
    children: tuple[ElementSchema, ...]


ElementSchema = LeafSchema | ContainerSchema


@record(frozen=True, slots=True)
class LoopFact:
    """A loop is to be recorded in another way."""

    kind: LoopFactKind
    code: CodeType
    instruction: int


@record(frozen=True, slots=True)
class VariableFact:
    """A local variable varies between the iterations of a loop; a number with these bounds."""

    kind: Variation
    code: CodeType
    instruction: int
    variable: str
    low: int = 0
    high: int = 0


@record(frozen=True, slots=True)
class AppendedListFact:
    """A loop appends elements of one schema to the list in a local variable, and perhaps reads some of them.

    An array for the list has room for `capacity` new elements.
    """

    code: CodeType
    instruction: int
    variable: str
    reads: bool
    schema: ElementSchema
    capacity: int


@record(frozen=True, slots=True)
class IndexedListFact:
    """A loop indexes the list in a local variable by traced integers."""

    code: CodeType
    variable: str


@record(frozen=True, slots=True)
class NumberFact:
    """The number of a source, which has this key, is an input of the graph."""

    source: Hashable


@record(frozen=True, slots=True)
class ViewFact:
    """The array of a source, which has this key, is a view of its base."""

    source: Hashable


Fact = TraceFact | LoopFact | VariableFact | AppendedListFact | IndexedListFact | NumberFact | ViewFact


def text_of(fact: Fact) -> str:
    """What a fact says, with the user's line of the loop.

    >>> text_of(TraceFact.KINDS)
    'a float is a Python or a NumPy float'
    """
    if isinstance(fact, TraceFact):
        return fact.value
    if isinstance(fact, NumberFact):
        return "a number from outside is an input"
    if isinstance(fact, ViewFact):
        return "an array from outside is a view of its base"
    if isinstance(fact, IndexedListFact):
        return f"the list {fact.variable} in {fact.code.co_name} is an array"
    line = line_of(fact.code, fact.instruction)
    if isinstance(fact, LoopFact):
        return f"{fact.kind.value} (loop at {line})"
    if isinstance(fact, AppendedListFact):
        return f"the list {fact.variable} is an array with room for {fact.capacity} elements (loop at {line})"
    limits = f" from {fact.low} to {fact.high}" if fact.low < fact.high else ""
    return f"{fact.variable} varies: {fact.kind.value}{limits} (loop at {line})"
