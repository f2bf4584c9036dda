"""What `for` loops over traced arrays are given, row by row: loops that count, and that may be folded as others are."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from tracegrad.trace.builder import TraceBuilder
from tracegrad.trace.callees import iterated
from tracegrad.trace.counters import Counter, counting
from tracegrad.trace.tracer import Tracer
from tracegrad.trace.tries import Namespace

__all__ = ["ITERATED", "Rows"]

# What the expressions of `for` statements call, by what they call by these names.
ITERATED: dict[Any, Any] = {range: counting}

_each = Tracer.__iter__


class Rows(Counter):
    """The iterator over an array. As long as the loop is not folded, all rows are read when it begins."""

    __slots__ = ("array", "rows")

    def __init__(self, builder: TraceBuilder, array: Tracer):
        super().__init__(builder, 0, array.shape[0], 1)
        self.array = array
        self.rows: Iterator[Any] = iter(())

    def item(self, at: Any) -> Any:
        return self.array[at] if self.folded else next(self.rows)

    @property
    def held(self) -> tuple[Any, ...]:
        return (self.array,)

    def _begin(self, frame: Any) -> None:
        super()._begin(frame)
        if not self.folded:
            self.rows = _each(self.array)
            self.begun = len(self.builder.nodes)


def _iterator(x: Tracer) -> Iterator[Any]:
    """The iterator over an array: one that counts, if it is a `for` loop of traced code that asks."""
    builder, frame = x.builder, sys._getframe(1)
    free = builder.open and builder.inner is None and builder.find_circles is not None
    if free and x.shape and isinstance(frame.f_globals, Namespace) and frame.f_lasti in iterated(frame.f_code):
        return Rows(builder, x)
    return _each(x)


Tracer.__iter__ = _iterator  # type: ignore[method-assign, assignment]
