"""Iterate over traced arrays in `for` loops: counted loops that can be recorded as one loop.

The module also covers `zip`, `enumerate` and `reversed` of arrays, ranges and lists, if the `for` statement calls them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from tracegrad.cpython.frames import frame_at, instruction_of
from tracegrad.numpy_api.array_methods import ArrayMethods
from tracegrad.trace.builder.builder import TraceBuilder, current_trace
from tracegrad.trace.builder.facts import LoopFactKind
from tracegrad.trace.builder.hooks import HOOKS
from tracegrad.trace.bytecode.code_queries import compares_by_identity
from tracegrad.trace.bytecode.exception_regions import Namespace
from tracegrad.trace.loops.indexed_list import StackedList, table_of
from tracegrad.trace.loops.range_counter import Counter, counting
from tracegrad.trace.rewriting.call_sites import iterated
from tracegrad.trace.values.constant_array import ConstantArray
from tracegrad.trace.values.tracer import Tracer

if TYPE_CHECKING:
    from tracegrad.ir import GraphNode
    from tracegrad.typing import Array


_lazily = ArrayMethods.__iter__


def _each(x: Tracer) -> Iterator[object]:
    """The rows of an array, read before the loop, so that an iteration records only its own operations."""
    if isinstance(x, ConstantArray):
        return _lazily(x)
    result, before = [*_lazily(x)], x.node
    return iter(result) if len(x.shape) > 1 else _elements(x, before, result)


def _elements(x: Tracer, before: GraphNode, elements: list[Array]) -> Iterator[Any]:
    """Scalar elements, which are not views: an element is read again if the array was written to in the meantime."""
    for k, element in enumerate(elements):
        yield element if x.node is before else x[k]


class _LoopIterable(NamedTuple):
    """The iterable of a loop: the trip count, the item of an iteration, and the arrays that items are read from."""

    length: int
    item: Callable[[Any], Any]
    held: tuple[Any, ...]


class RowIterator(Counter):
    """Iterator over arrays. Unless the loop is folded, all rows are read when it begins, by `plain`."""

    __slots__ = ("iterable", "iterator", "plain")

    def __init__(self, builder: TraceBuilder, iterable: _LoopIterable, plain: Callable[[], Iterator[Any]]):
        super().__init__(builder, 0, iterable.length, 1)
        self.iterable, self.plain = iterable, plain
        self.iterator: Iterator[Any] = iter(())

    def item(self, at: Any) -> Any:
        return self.iterable.item(at) if self.folded else next(self.iterator)

    @property
    def shows_all(self) -> bool:
        return self.folded

    @property
    def held(self) -> tuple[Any, ...]:
        return self.iterable.held

    @property
    def _tables(self) -> list[StackedList]:
        return [x for x in self.held if type(x) is StackedList]

    def _next(self) -> Any:
        try:
            return super()._next()
        except StopIteration:
            if not any(x.is_changed for x in self._tables):
                raise
            return self.at  # the changed list itself decides whether it has another item

    def _begin(self, frame: object) -> None:
        super()._begin(frame)
        for x in self._tables:
            x.of(self.fact(LoopFactKind.ITERATION_BY_ITERATION))
        if not self.folded:
            self.iterator = self.plain()
            self.first_node = len(self.builder.nodes)


def _iterable(builder: TraceBuilder, x: Any) -> _LoopIterable | None:
    """The iterable of a loop over an array, a range, a list or a tuple; None for other objects."""
    if isinstance(x, Tracer):
        return _LoopIterable(x.shape[0], x.__getitem__, (x,)) if x.shape and x.builder is builder else None
    if type(x) is range:
        return _LoopIterable(len(x), lambda at: at if (x.start, x.step) == (0, 1) else x.start + x.step * at, ())
    frame = frame_at(1)
    while not isinstance(frame.f_globals, Namespace) and frame.f_back is not None:
        frame = frame.f_back
    table = None if compares_by_identity(frame.f_code) else table_of(builder, x)
    return None if table is None else _LoopIterable(len(x), table.__getitem__, (table,))


def _free(builder: TraceBuilder | None) -> bool:
    """Whether loops may be folded."""
    return builder is not None and builder.open and builder.inner is None and builder.loops.may_close


def _iterator(x: Tracer, frame: FrameType) -> Iterator[object]:
    """The iterator over an array: a counting one for a `for` loop of traced code, in this frame."""
    builder = x.builder
    if _free(builder) and isinstance(frame.f_globals, Namespace) and instruction_of(frame) in iterated(frame.f_code):
        source = _iterable(builder, x)
        if source is not None:
            return RowIterator(builder, source, lambda: _each(x))
    return _each(x)


def _through(x: Any) -> object:
    """The iterable that a `for` loop over a list or a tuple receives."""
    builder = current_trace()
    source = _iterable(builder, x) if builder is not None and _free(builder) else None
    return x if builder is None or source is None else RowIterator(builder, source, lambda: iter(x))


def _zip(*args: Any, **options: Any) -> object:
    builder = current_trace()
    result = [_iterable(builder, x) for x in args] if builder is not None and _free(builder) else []
    iterables = [x for x in result if x is not None]
    lengths = {x.length for x in iterables}
    if builder is None or not iterables or len(iterables) < len(args) or (options and len(lengths) > 1):
        return zip(*args, **options)
    zipped = _LoopIterable(
        min(lengths), lambda at: tuple([x.item(at) for x in iterables]), sum([x.held for x in iterables], ())
    )
    return RowIterator(builder, zipped, lambda: zip(*args, **options))


def _enumerate(iterable: Any, start: Any = 0) -> object:
    builder = current_trace()
    counted_part = (
        _iterable(builder, iterable) if builder is not None and _free(builder) and type(start) is int else None
    )
    if builder is None or counted_part is None:
        return enumerate(iterable, start)
    counted = counted_part._replace(item=lambda at: (start + at if start else at, counted_part.item(at)))
    return RowIterator(builder, counted, lambda: enumerate(iterable, start))


def _reversed(sequence: Array | range) -> object:
    builder = current_trace()
    if builder is not None and _free(builder) and type(sequence) is range:
        return counting(*_limits(sequence[::-1]))
    return reversed(sequence)


def _limits(x: range) -> tuple[int, int, int]:
    return x.start, x.stop, x.step


# The replacements of functions that the expressions of `for` statements call.
ITERATED: dict[Any, Any] = {range: counting, zip: _zip, enumerate: _enumerate, reversed: _reversed}

HOOKS.iterable_of = _through
HOOKS.iterator_of = _iterator
