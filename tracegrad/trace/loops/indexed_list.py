"""Trace lists and tuples that a loop only indexes with traced integers, as stacked arrays.

While the loop is recorded, the local variable holds a `StackedList`: arrays with one row per element. Every iteration
then reads an element by the same operations. After the loop, the variable holds its list again. The list and its arrays
must not change while the table exists.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracegrad.cpython.frames import instruction_of
from tracegrad.ir.builder import node_of
from tracegrad.ops.elementwise.table import add, greater_equal, less, logical_and, where
from tracegrad.ops.shape.stack_split import stack
from tracegrad.settings import disabled
from tracegrad.trace.builder.builder import TraceBuilder
from tracegrad.trace.builder.facts import ElementSchema, Fact, IndexedListFact, LoopFact, LoopFactKind, TraceFact
from tracegrad.trace.builder.hooks import HOOKS
from tracegrad.trace.bytecode.exception_regions import Namespace
from tracegrad.trace.bytecode.frame_locals import variables
from tracegrad.trace.bytecode.jumps import elements_read
from tracegrad.trace.loops.control_flow import LoopJump
from tracegrad.trace.loops.element_schema import (
    Instead,
    arrays,
    children_of,
    class_of,
    form,
    leaf_schemas,
    rebuilt,
    row_at,
    together,
    values,
)
from tracegrad.trace.ragged.symbolic_size import is_of_a_loop
from tracegrad.trace.values.container_proxies import ListProxy
from tracegrad.trace.values.number import Number
from tracegrad.trace.values.python_arithmetic import bounded, bounds
from tracegrad.trace.values.tracer import Tracer

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand


_PROXY_GETITEM = ListProxy.__getitem__.__code__


class ElementProxy(NamedTuple):
    """A mutable stand-in of an element or of a part of it: its original parts, the fact if it is changed, and
    whether it is a new object."""

    value: Any
    children: list[Any]
    iterations: Fact
    is_copy: bool

    @property
    def is_changed(self) -> bool:
        """Whether its parts have changed."""
        return _are_other(self.children, self.value)


class StackedList(Instead):
    """Read-only stand-in of a list or a tuple, with its elements as rows of arrays."""

    __slots__ = ("_columns", "_form", "_frame", "_initial", "_items", "_limits", "_within")

    def __init__(self, builder: TraceBuilder, items: Sequence[Any], known: ElementSchema, iterations: Fact):
        super().__init__(builder, iterations)
        self._items, self._form = items, known
        self._frame: FrameType | None = None
        self._within = frozenset[int]()
        self._initial = list(_flat(items))
        self._columns: list[Tracer] = []
        self._limits: list[tuple[int, int] | None] = []

    def bind(self, jump: LoopJump) -> StackedList:
        """This table, bound to a local variable in the loop around this jump."""
        self._frame, self._within = jump.frame, jump.within
        return self

    def of(self, iterations: LoopFact) -> None:
        """Set the fact that a change adds."""
        self._iterations = iterations

    @property
    def state(self) -> list[Any]:
        """The loop-invariant key of the table, and its rows."""
        if self.is_changed:
            self.misused()
        if not self._columns:
            self._stack()
        return [self._form, self._limits, *self._columns]

    def __getitem__(self, index: Operand) -> Any:
        if type(index) not in (int, Number) or self.is_changed or (type(index) is Number and index.dtype.kind != "i"):
            self.misused()
        if not self._columns:
            self._stack()
        n, (low, high) = len(self._items), bounds(index)
        inside = -n <= low and high < n
        if type(index) is int and inside and not any(isinstance(x, Tracer) for x in _flat(self._items[index])):
            return self._items[index]
        if not inside and not self._is_inside(index, n):
            self.misused()  # the next trace raises Python's error at the same line
        at = index % n if type(index) is int else index if low >= 0 else where(less(index, 0), add(index, n), index)
        result = rebuilt(self._builder, self._form, iter([row_at(column, at) for column in self._columns]), self._share)
        self._bound(result)
        self._builder.loops.table_elements += [
            ElementProxy(x, list(_flat(x)), self._iterations, True) for x in _single(result)
        ]
        return result

    def __len__(self) -> int:
        if self.is_changed:
            self.misused()
        return len(self._items)

    def _is_inside(self, index: object, n: int) -> bool:
        within = type(index) is Number and logical_and(greater_equal(index, -n), less(index, n))
        return within is not False and self._builder.holds(within)

    def _bound(self, element: Any) -> None:
        """Record the bounds of the integers of an element."""
        numbers = [x for x in _flat(element) if isinstance(x, Tracer)]
        for x, limits in zip(numbers, self._limits):
            if limits is not None:
                bounded(x, *limits)
                self._builder.loops.varying.add(x.node)

    def _stack(self) -> None:
        self._builder.loops.elements.used = True
        columns = zip(*[values(self._builder, x, self._form) for x in self._items])
        self._columns = [Tracer(self._builder, node_of(stack(*column, axis=0))) for column in columns]
        for x in arrays(self._items):
            self._share(x)
        within = [x for x in _single(self._items) if x is not self._items and not isinstance(x, Tracer)]
        self._builder.loops.table_elements += [ElementProxy(x, list(_flat(x)), self._iterations, False) for x in within]
        numbers = zip(*[[y for y in _flat(x) if _is_leaf(y)] for x in self._items])
        whole = [x.kind == "number" and x.dtype == "int64" for x in leaf_schemas(self._form) if x.kind != "boolean"]
        self._limits = [_limits(each) if is_whole else None for each, is_whole in zip(numbers, whole)]

    @property
    def is_changed(self) -> bool:
        """Whether the list, or an object read from it, has changed."""
        return _are_other(self._initial, self._items) or any(x.is_changed for x in self._builder.loops.table_elements)

    # -- the interface of growing lists: see `tracegrad.trace.loops.appended_list` ---------------------------------
    @property
    def wider(self) -> None:
        """None, because a table always has enough room."""
        return None

    def restored(self) -> Sequence[object]:
        """The original list."""
        if self.is_changed:
            self.misused()
        return self._items


def _flat(x: Any) -> Iterator[Any]:
    """An element and all its nested parts, with the keys of dicts."""
    yield x
    if class_of(x) is dict:
        yield from x
    for child in children_of(x):
        yield from _flat(child)


def _is(x: object, y: object) -> bool:
    return x is y


def _are_other(before: list[object], x: object) -> bool:
    now = list(_flat(x))
    return len(now) != len(before) or not all(map(_is, now, before))


def _single(x: Any) -> list[Any]:
    """The mutable objects in an element, whose identity matters."""
    return [y for y in _flat(x) if class_of(y) in (list, dict) or (isinstance(y, Tracer) and arrays(y))]


def _is_leaf(x: object) -> bool:
    return isinstance(x, Tracer) or type(x) in (int, float)


def _limits(numbers: tuple[int, ...]) -> tuple[int, int]:
    lows, highs = zip(*map(bounds, numbers))
    return min(lows), max(highs)


# -- lists ----------------------------------------------------------------------------------------
def table_of(builder: TraceBuilder, items: Any, iterations: Fact = TraceFact.AGAIN) -> StackedList | None:
    """The table of a list or a tuple; None if its elements cannot be stored as rows, or an array occurs twice."""
    if disabled("indexed-lists") or class_of(items) not in (list, tuple) or not items:
        return None
    if form(items[0], (tuple, list, dict)) is None:
        return None
    known = together([form(x, (tuple, list, dict)) for x in items])
    single = [id(x) for x in _single(items)]
    strange = any(isinstance(x, np.ndarray) and not isinstance(x, Tracer) for x in _flat(items))
    return (
        None
        if known is None or strange or len(set(single)) < len(single)
        else StackedList(builder, items, known, iterations)
    )


def tables(builder: TraceBuilder, jump: LoopJump) -> dict[str, StackedList]:
    """Tables for the lists in local variables that the loop beginning here only indexes by traced numbers."""
    code = jump.instruction[0]
    names = {x.variable for x in builder.world.facts if isinstance(x, IndexedListFact) and x.code == code}
    if not names & jump.only_read or builder.world.must_keep_lists:
        return {}
    held, iterations = variables(jump.frame), jump.fact(LoopFactKind.ITERATION_BY_ITERATION)
    table = {name: table_of(builder, held.get(name), iterations) for name in names & jump.only_read}
    return {name: x.bind(jump) for name, x in table.items() if x is not None}


def require_unchanged(builder: TraceBuilder, handed: Collection[object]) -> None:
    """Check at the end of the trace that no stand-in of an element escapes or has changed, and that the elements are
    unchanged."""
    if builder.loops.table_elements:
        seen = set(map(id, handed))
        for x in builder.loops.table_elements:
            if x.is_changed or (x.is_copy and id(x.value) in seen):
                raise builder.restarts(x.iterations)
    iterations = builder.loops.elements.lost(handed)
    if iterations is not None:
        raise builder.restarts(iterations)


def _prefer_table(x: Number, frame: FrameType) -> None:
    """Restart the trace with a table if the number becomes an index of a list that a loop reads."""
    builder = x.builder
    while frame.f_code is _PROXY_GETITEM and frame.f_back is not None:
        frame = frame.f_back
    if builder.open and builder.inner is None and isinstance(frame.f_globals, Namespace) and is_of_a_loop(x):
        name = elements_read(frame.f_code).get(instruction_of(frame), "")
        fact = IndexedListFact(frame.f_code, name)
        known = not name or fact in builder.world.facts or builder.world.must_keep_lists
        if not known and table_of(builder, variables(frame).get(name)) is not None:
            raise builder.restarts(fact, "a list whose elements a loop reads is an array in the loop")


HOOKS.before_index = _prefer_table
