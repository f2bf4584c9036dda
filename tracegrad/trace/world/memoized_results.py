"""Detect results memoized by comparison (`if np.array_equal(x, self.last): return self.value`).

If the compared array is differentiated and no result depends on it, the derivative is lost, which is an error.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tracegrad.avals import is_literal
from tracegrad.errors import lost
from tracegrad.ir import GraphNode
from tracegrad.ops.elementwise.table import (
    absolute,
    equal,
    greater,
    greater_equal,
    less,
    less_equal,
    logical_not,
    not_equal,
    subtract,
)
from tracegrad.ops.shape.linear import full
from tracegrad.trace.builder.builder import TraceBuilder
from tracegrad.trace.builder.facts import TraceFact
from tracegrad.trace.sources.sources import CURRENT, Source

if TYPE_CHECKING:
    from tracegrad.typing import NDArray


# The keys of the locations that traces have written to, by function.
_WRITTEN: weakref.WeakKeyDictionary[Any, set[Hashable]] = weakref.WeakKeyDictionary()


def note_written(function: object, locations: Collection[Hashable]) -> None:
    """Record the locations that a trace of a function writes to."""
    if locations:
        with contextlib.suppress(TypeError):  # a callable without weak references
            _WRITTEN.setdefault(function, set()).update(locations)


def require_not_remembered(builder: TraceBuilder, first_guard: int, outputs: Sequence[Any]) -> None:
    """Raise if a memoized result loses a derivative.

    A guard from this number on must have compared a differentiated value with the elements of an outside one, as equal.
    Moreover no output has a derivative, or an output depends on values that the function stored in an earlier call."""
    partly = any(not is_literal(x) and builder.has_derivative(x.node) for x in outputs)
    if partly and not _reads_own_writes(builder, outputs):
        return
    outside = _Outside(builder)
    for guard in builder.guards[first_guard:]:
        if (
            guard.value.dtype.kind == "b"
            and guard.value.size
            and _compares(outside, guard.node, bool(guard.value.all()))
        ):
            rest = "what else depends on it is not all" if partly else "nothing else depends on it"
            raise lost(
                "a result that is remembered for these elements",
                f"has no derivative in the value that is being differentiated, and {rest}",
            )


def _reads_own_writes(builder: TraceBuilder, outputs: Sequence[Any]) -> bool:
    """Whether outputs depend on numbers that the function has written in another call."""
    call = CURRENT.call
    try:
        written = _WRITTEN.get(call.function) if call is not None else None
    except TypeError:
        written = None
    if not written:
        return False
    needed, stack = set[GraphNode](), [x.node for x in outputs if not is_literal(x)]
    while stack:
        node = stack.pop()
        if node not in needed:
            needed.add(node)
            stack += node.operands
    captured = [c for c in builder.captures.values() if c.node in needed and c.node.aval.dtype.kind in "fc"]
    sources = [c.source for c in captured if c.source is not None]
    sources += [g.source for g in builder.world.guards_on_floats()]
    return any(source.key in written for x in sources for source in _source_chain(x))


def _source_chain(source: Source) -> Iterator[Source]:
    """A location, and the locations on the path to it."""
    while isinstance(source, Source):
        yield source
        source = source.parent


class _Outside:
    """The values that a trace has read from outside: array nodes, and numbers."""

    def __init__(self, builder: TraceBuilder):
        self.builder = builder
        self.numbers = builder.world.numbers_read()
        self.arrays = builder.world.natives.arrays
        self.nodes = {c.node for c in builder.captures.values() if c.source is not None or self._is_known(c.array)}

    def _is_known(self, x: NDArray) -> bool:
        """Whether it is an array or a NumPy number held by a class."""
        return x is not None and (any(x is y for y in self.arrays) or (x.ndim == 0 and x.item() in self.numbers))

    def has(self, x: GraphNode | int) -> bool:
        if is_literal(x):
            return x in self.numbers
        return x in self.nodes or (x.op is full and x.aval.shape == () and dict(x.params)["value"] in self.numbers)

    def is_near(self, node: GraphNode) -> bool:
        """Whether it is the difference of a value from an outside value."""
        difference = node.operands[0] if node.op is absolute else None
        return difference is not None and difference.op is subtract and any(map(self.has, difference.inputs))


def _compares(outside: _Outside, condition: GraphNode, boolean: bool) -> bool:
    """Whether the boolean `boolean` says that a differentiated value equals an outside one."""
    visited, stack = set[GraphNode](), [(condition, boolean)]
    while stack:
        node, boolean = stack.pop()
        if node.is_multi_result:
            _require_no_comparison(outside.builder, node)
        if node in visited or node.is_multi_result or node.aval.dtype.kind != "b":
            continue
        visited.add(node)
        same = node.op is (equal if boolean else not_equal) and any(map(outside.has, node.inputs))
        near = node.op in (less, less_equal, greater, greater_equal) and any(map(outside.is_near, node.operands))
        if same or near:
            return any(outside.builder.has_derivative(x) for x in node.operands)
        stack += [(x, boolean != (node.op is logical_not)) for x in node.operands]
    return False


def _require_no_comparison(builder: TraceBuilder, loop: GraphNode) -> None:
    """Restart with all loops recorded iteration by iteration if this loop compares with a value not visible here."""
    compares = any(x.op is equal for region in loop.regions for x in region.everywhere())
    if compares and TraceFact.ITERATION_BY_ITERATION not in builder.world.facts:
        raise builder.restarts(TraceFact.ITERATION_BY_ITERATION, "a loop may have found what is remembered")
