"""Trace lists that a loop only appends to, as growing arrays (loop-carried lists).

While the loop is recorded, the local variable holds a `History`: arrays with one row per element, and the number of
elements. The loop may read single elements. The state then differs between iterations only in the values of tracers.
After the loop, the variable holds a list with its elements again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from tracegrad.cpython.references import other_references
from tracegrad.ir.builder import node_of
from tracegrad.ops.elementwise.table import add, greater_equal, less, logical_and, minimum
from tracegrad.ops.indexing.dynamic_slice import dynamic_update_slice
from tracegrad.ops.shape.linear import fresh, full, reshape
from tracegrad.ops.shape.linear import slice as cut
from tracegrad.ops.shape.stack_split import unbind
from tracegrad.settings import disabled
from tracegrad.target.tuning import TUNING
from tracegrad.trace.builder.builder import TraceBuilder
from tracegrad.trace.builder.facts import AppendedListFact, Fact, LoopFactKind
from tracegrad.trace.bytecode.frame_locals import set_variables, variables
from tracegrad.trace.loops.control_flow import LoopJump
from tracegrad.trace.loops.element_schema import (
    Instead,
    arrays,
    fits,
    form,
    leaf_schemas,
    rebuilt,
    row_at,
    starts,
    together,
    values,
)
from tracegrad.trace.loops.indexed_list import ElementProxy, tables
from tracegrad.trace.values.number import Number
from tracegrad.trace.values.tracer import Tracer

if TYPE_CHECKING:
    from tracegrad.ir import GraphNode
    from tracegrad.typing import Array


_ROOM = TUNING.loops.list_capacity


class History(Instead):
    """A loop-carried list as rows of arrays: the elements appended by a loop, after the initial elements if the loop
    reads any."""

    __slots__ = ("_columns", "_count", "_fact", "_form", "_frame", "_items", "_within")

    def __init__(
        self, builder: TraceBuilder, jump: LoopJump, fact: AppendedListFact, items: list[Any], first: list[Any]
    ):
        super().__init__(builder, jump.fact(LoopFactKind.ITERATION_BY_ITERATION))
        builder.loops.elements.used = True
        self._fact, self._items, self._form = fact, items, fact.schema
        self._frame, self._within = jump.frame, jump.within
        size = len(first) + fact.capacity
        self._count = _new(builder, (), "int64", len(first))
        self._columns = [_new(builder, (size, *x.shape), x.dtype) for x in leaf_schemas(self._form)]
        for k, x in enumerate(first):
            self._store(k, x)

    @property
    def state(self) -> list[Any]:
        """The loop-carried values: the number of elements, and the rows."""
        return [self._count, *self._columns]

    def append(self, x: Any) -> None:
        """Append an element, as `list.append` does."""
        # An outside array must be in the list itself, which a row cannot represent.
        if not fits(form(x), self._form) or any(array.outside for array in arrays(x)):
            self.misused()
        for array in arrays(x):
            self._builder.loops.elements.append(array)
            self._share(array)
        self._store(minimum(self._count, self._size - 1), x)
        self._count.node = node_of(add(self._count, 1))

    def __getitem__(self, index: Any) -> Any:
        if type(index) not in (int, Number) or not self._reads:
            self.misused()
        at = add(self._count, index) if type(index) is int and index < 0 else index
        inside = logical_and(greater_equal(at, 0), less(at, self._count))
        if not self._builder.holds(inside):
            self.misused()
        result = rebuilt(self._builder, self._form, iter([row_at(column, at) for column in self._columns]), self._share)
        self._builder.loops.table_elements += [ElementProxy(x, [x], self._iterations, True) for x in arrays(result)]
        return result

    def restored(self) -> list[object]:
        """Convert to the list, with all elements."""
        first = len(self._items) if self._reads else 0
        columns = [_column(column, first, self.count()) for column in self._columns]
        self._items.extend(rebuilt(self._builder, self._form, iter(each), self._make) for each in zip(*columns))
        return self._items

    def _make(self, x: Array) -> None:
        self._builder.loops.elements.make(x, self._iterations)
        self._share(x)

    def count(self) -> int:
        """The number of rows; records a guard."""
        return int(self._builder.python_number(self._count.node))

    @property
    def wider(self) -> AppendedListFact | None:
        """The fact for a history with enough room; None if there is enough."""
        count = self.count()
        return replace(self._fact, capacity=1 << (count - 1).bit_length()) if count > self._size else None

    @property
    def _size(self) -> int:
        return int(self._columns[0].shape[0])

    @property
    def _reads(self) -> bool:
        return self._fact.reads

    def _store(self, at: Any, x: Array | tuple[Array, tuple[Array, float]]) -> None:
        """Store an element in a row."""
        for column, value in zip(self._columns, values(self._builder, x, self._form)):
            new = reshape(value, shape=(1, *column.shape[1:]))
            column.node = node_of(dynamic_update_slice(column, new, *starts(column, at), step=(1,) * len(column.shape)))


# -- rows ------------------------------------------------------------------------------------------
def _new(builder: TraceBuilder, shape: tuple[int, ...], dtype: str, value: int = 0) -> Tracer:
    return Tracer(builder, node_of(fresh(full(shape=shape, value=value, dtype=dtype), tag=builder.new_tag())))


def _column(column: Any, first: int, count: int) -> Sequence[Any]:
    """The rows from `first` to the count, one by one."""
    n = column.shape
    used = cut(column, start=(first,) + (0,) * (len(n) - 1), stop=(count, *n[1:]), step=(1,) * len(n))
    results: Sequence[Any] = unbind(used, axis=0) if count > first else ()
    return results


# -- loops -----------------------------------------------------------------------------------------
def lengths(held: dict[str, object]) -> dict[str, int]:
    """The lengths of the lists in local variables."""
    return {name: len(x) for name, x in held.items() if type(x) is list}


def growing(builder: TraceBuilder, jump: LoopJump, before: dict[str, int]) -> set[Fact]:
    """The facts about lists in local variables that have grown, if they can be histories."""
    results: set[Fact] = set()
    if builder.world.must_keep_lists or disabled("appended-lists"):
        return results
    held = variables(jump.frame)
    for name in [name for name in before if name in jump.appended]:
        x, size = held[name], before[name]
        if type(x) is list and len(x) > size:
            reads = name in jump.read
            known = together(map(form, x if reads else x[size:]))
            if known is not None:
                results.add(AppendedListFact(*jump.instruction, name, reads, known, _room(jump, len(x) - size)))
    facts: set[Fact] = builder.world.facts
    return results - facts


def _room(jump: LoopJump, per_iteration: int) -> int:
    length = jump.counters[-1].length if jump.counters else None
    return _ROOM * per_iteration if length is None else max(length * per_iteration, 1)


def enter_loop(builder: TraceBuilder, jump: LoopJump) -> None:
    """Replace lists that grow in the loop that begins here by histories, and lists that it indexes by tables."""
    new: dict[str, Any] = {**_grown(builder, jump), **tables(builder, jump)}
    builder.loops.histories += new.values()
    if new:
        set_variables(jump.frame, new)


def _grown(builder: TraceBuilder, jump: LoopJump) -> dict[str, History]:
    if builder.world.must_keep_lists:
        return {}
    known = [
        x
        for x in builder.world.facts
        if isinstance(x, AppendedListFact) and (x.code, x.instruction) == jump.instruction
    ]
    if not known:
        return {}
    held, new = variables(jump.frame), {}
    for name, fact in {x.variable: x for x in sorted(known, key=attrgetter("capacity"))}.items():
        items = held.get(name)
        if type(items) is list and other_references(items) == 2:  # those of the frame and of `held`
            first = list(items) if name in jump.read else []
            if all(fits(form(x), fact.schema) for x in first):
                new[name] = History(builder, jump, fact, items, first)
    return new


def restore_lists(builder: TraceBuilder, jump: LoopJump, condition: bool) -> None:
    """Restore the lists of variables whose loops end where traced code continues."""
    target = jump.target(condition)
    ended = [x for x in builder.loops.histories if x._frame is jump.frame and target not in x._within]
    if not ended:
        return
    wider = {x.wider for x in ended} - {None}
    if wider:
        builder.world.facts |= wider
        raise builder.restarts(wider.pop(), "a list that iterations append to is longer")
    held = {id(x): name for name, x in variables(jump.frame).items()}
    set_variables(jump.frame, {held[id(x)]: x.restored() for x in ended if id(x) in held})
    done = {id(x) for x in ended if id(x) in held}
    builder.loops.histories = [x for x in builder.loops.histories if id(x) not in done]


def require_not_written(builder: TraceBuilder, before: dict[int, GraphNode], now: dict[int, GraphNode]) -> None:
    """End the trace if an iteration has appended an array that it began with and wrote to."""
    for key, (_, iterations) in builder.loops.listed.items():
        if key in before and now.get(key, before[key]) is not before[key]:
            raise builder.restarts(iterations)


def require_restored(histories: Sequence[Any]) -> None:
    """Check at the end of the trace that no list has lost its elements."""
    for x in histories:
        x.misused()
