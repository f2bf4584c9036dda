"""Trace lists that a loop only appends to, as growing arrays (loop-carried lists).

While the loop is recorded, the local variable holds a `History`: arrays with one row per element, and the number of
elements. The loop may read single elements. The state then differs between iterations only in the values of tracers.
After the loop, the variable holds a list with its elements again.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from typing import Any

from tracegrad.ops.elementwise.table import add, greater_equal, less, logical_and, minimum
from tracegrad.ops.indexing.dynamic_slice import dynamic_update_slice
from tracegrad.ops.shape.linear import fresh, full, reshape
from tracegrad.ops.shape.linear import slice as cut
from tracegrad.ops.shape.stack_split import unbind
from tracegrad.settings import disabled
from tracegrad.target.tuning import TUNING
from tracegrad.trace.builder.abort import GROWS, ITERATION_BY_ITERATION
from tracegrad.trace.builder.builder import TraceBuilder
from tracegrad.trace.bytecode.frame_locals import set_variables, variables
from tracegrad.trace.loops.control_flow import Place
from tracegrad.trace.loops.element_schema import (
    Instead,
    arrays,
    fits,
    form,
    leaves,
    made,
    row,
    starts,
    together,
    values,
)
from tracegrad.trace.loops.indexed_list import Given, tables
from tracegrad.trace.values.number import Number
from tracegrad.trace.values.tracer import Tracer

__all__ = ["History", "begin", "growing", "leave", "lengths", "require_not_written", "require_settled"]

_ROOM = TUNING.loops.list_capacity


class History(Instead):
    """A loop-carried list as rows of arrays: the elements appended by a loop, after the initial elements if the loop
    reads any."""

    __slots__ = ("_count", "_form", "_frame", "_items", "_key", "_rows", "_size", "_within")

    def __init__(self, builder: TraceBuilder, place: Place, key: tuple[Any, ...], items: list[Any], first: list[Any]):
        super().__init__(builder, (ITERATION_BY_ITERATION, *place.instruction))
        builder.elements.used = True
        self._key, self._items, self._form = key, items, key[-1]
        self._frame, self._within = place.frame, place.within
        self._size = len(first) + max(x[-1] for x in builder.world.varying if isinstance(x, tuple) and x[:-1] == key)
        self._count = _new(builder, (), "int64", len(first))
        self._rows = [_new(builder, (self._size, *x.shape), x.dtype) for x in leaves(self._form)]
        for k, x in enumerate(first):
            self._put(k, x)

    @property
    def state(self) -> list[Any]:
        """The loop-carried values: the number of elements, and the rows."""
        return [self._count, *self._rows]

    def append(self, x: Any) -> None:
        """Append an element, as `list.append` does."""
        # An outside array must be in the list itself, which a row cannot represent.
        if not fits(form(x), self._form) or any(part.outside for part in arrays(x)):
            self.misused()
        for part in arrays(x):
            self._builder.elements.append(part)
            self._share(part)
        self._put(minimum(self._count, self._size - 1), x)
        self._count.node = add(self._count, 1).node

    def __getitem__(self, index: Any) -> Any:
        if type(index) not in (int, Number) or not self._reads:
            self.misused()
        at = add(self._count, index) if type(index) is int and index < 0 else index
        inside = logical_and(greater_equal(at, 0), less(at, self._count))
        if not self._builder.holds(inside):
            self.misused()
        result = made(self._builder, self._form, iter([row(rows, at) for rows in self._rows]), self._share)
        self._builder.given += [Given(x, [x], self._iterations, True) for x in arrays(result)]
        return result

    def settled(self) -> list[Any]:
        """Convert to the list, with all elements."""
        first = len(self._items) if self._reads else 0
        columns = [_column(rows, first, self.count()) for rows in self._rows]
        self._items.extend(made(self._builder, self._form, iter(each), self._make) for each in zip(*columns))
        return self._items

    def _make(self, x: Any) -> None:
        self._builder.elements.make(x, self._iterations)
        self._share(x)

    def count(self) -> int:
        """The number of rows; records a guard."""
        return int(self._builder.python_number(self._count.node))

    @property
    def wider(self) -> Hashable:
        """The `varying` key of a history with enough room; None if there is enough."""
        count = self.count()
        return (*self._key, 1 << (count - 1).bit_length()) if count > self._size else None

    @property
    def _reads(self) -> bool:
        return bool(self._key[-2])

    def _put(self, at: Any, x: Any) -> None:
        """Store an element in a row."""
        for rows, value in zip(self._rows, values(self._builder, x, self._form)):
            new = reshape(value, shape=(1, *rows.shape[1:]))
            rows.node = dynamic_update_slice(rows, new, *starts(rows, at), step=(1,) * len(rows.shape)).node


# -- rows ------------------------------------------------------------------------------------------
def _new(builder: TraceBuilder, shape: tuple[int, ...], dtype: str, value: int = 0) -> Tracer:
    return Tracer(builder, fresh(full(shape=shape, value=value, dtype=dtype), tag=builder.new_tag()).node)


def _column(rows: Any, first: int, count: int) -> Sequence[Any]:
    """The rows from `first` to the count, one by one."""
    n = rows.shape
    used = cut(rows, start=(first,) + (0,) * (len(n) - 1), stop=(count, *n[1:]), step=(1,) * len(n))
    results: Sequence[Any] = unbind(used, axis=0) if count > first else ()
    return results


def _references(held: dict[str, Any], name: str) -> int:
    """The reference count of a local variable's value, including the reference from `held`."""
    return sys.getrefcount(held[name])


_ALONE = _references({"": []}, "")


# -- loops -----------------------------------------------------------------------------------------
def lengths(held: dict[str, Any]) -> dict[str, int]:
    """The lengths of the lists in local variables."""
    return {name: len(x) for name, x in held.items() if type(x) is list}


def growing(builder: TraceBuilder, place: Place, before: dict[str, int]) -> set[Hashable]:
    """The `varying` keys of lists in local variables that have grown, if they can be histories."""
    results: set[Hashable] = set()
    if builder.world.keeps_lists or disabled("appended-lists"):
        return results
    held = variables(place.frame)
    for name in [name for name in before if name in place.appended]:
        x, size = held[name], before[name]
        if type(x) is list and len(x) > size:
            reads = name in place.read
            known = together(map(form, x if reads else x[size:]))
            if known is not None:
                results.add((GROWS, *place.instruction, name, reads, known, _room(place, len(x) - size)))
    return results - set(builder.world.varying)


def _room(place: Place, per_iteration: int) -> int:
    length = place.counters[-1].length if place.counters else None
    return _ROOM * per_iteration if length is None else max(length * per_iteration, 1)


def begin(builder: TraceBuilder, place: Place) -> None:
    """Replace lists that grow in the loop that begins here by histories, and lists that it indexes by tables."""
    new: dict[str, Any] = {**_grown(builder, place), **tables(builder, place)}
    builder.histories += new.values()
    if new:
        set_variables(place.frame, new)


def _grown(builder: TraceBuilder, place: Place) -> dict[str, History]:
    varying = builder.world.varying
    if builder.world.keeps_lists:
        return {}
    keys = {x[3]: x[:-1] for x in varying if isinstance(x, tuple) and x[:3] == (GROWS, *place.instruction)}
    if not keys:
        return {}
    held, new = variables(place.frame), {}
    for name, key in keys.items():
        if type(held.get(name)) is list and _references(held, name) == _ALONE + 1:
            items = held[name]
            first = list(items) if name in place.read else []
            if all(fits(form(x), key[-1]) for x in first):
                new[name] = History(builder, place, key, items, first)
    return new


def leave(builder: TraceBuilder, place: Place, answer: bool) -> None:
    """Restore the lists of variables whose loops end where traced code continues."""
    target = place.target(answer)
    left = [x for x in builder.histories if x._frame is place.frame and target not in x._within]
    if not left:
        return
    wider = {x.wider for x in left} - {None}
    if wider:
        builder.world.varying |= wider
        raise builder.restarts(wider.pop(), "a list that turns append to is longer")
    held = {id(x): name for name, x in variables(place.frame).items()}
    set_variables(place.frame, {held[id(x)]: x.settled() for x in left if id(x) in held})
    done = {id(x) for x in left if id(x) in held}
    builder.histories = [x for x in builder.histories if id(x) not in done]


def require_not_written(builder: TraceBuilder, before: dict[int, Any], now: dict[int, Any]) -> None:
    """End the trace if an iteration has appended an array that it began with and wrote to."""
    for key, (_, iterations) in builder.listed.items():
        if key in before and now.get(key, before[key]) is not before[key]:
            raise builder.restarts(iterations)


def require_settled(histories: Sequence[Any]) -> None:
    """Check at the end of the trace that no list has lost its elements."""
    for x in histories:
        x.misused()
