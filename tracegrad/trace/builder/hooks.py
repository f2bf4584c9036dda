"""Table of the functions that lower modules of a trace call and higher modules define (late binding).

The module that defines a function assigns it when it is imported. Nothing else in the package assigns an attribute of
another module at import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from tracegrad.ir import GraphNode
from tracegrad.ops import Op

if TYPE_CHECKING:
    from tracegrad.trace.builder.builder import TraceBuilder


class RaggedArrays(Protocol):
    """The module of arrays with symbolic sizes, `tracegrad.trace.ragged.ragged_array`."""

    def item(self, x: Any, index: object) -> Any:
        """`x[index]`, if a bound in the index is symbolic; else None."""

    def with_item(self, x: object, index: object, value: object) -> object:
        """The array after `x[index] = value`, if a size is symbolic; else None."""

    def of_size(self, op: Op, operands: Sequence[object], params: dict[str, Any]) -> object:
        """The result of an op with a symbolic size among its parameters."""


class TraceHooks:
    """One function per field. The comments name the modules that assign them."""

    __slots__ = (
        "before_index",
        "generator_method",
        "iterable_of",
        "iterator_of",
        "loop_detector",
        "ragged_arrays",
        "roll",
        "tensors",
    )

    # The replacements of wanted nodes, after rerolling the loops among the nodes from a number on. `api.compilation`
    roll: Callable[[TraceBuilder, Sequence[GraphNode], int], dict[GraphNode, GraphNode]]
    # The detector of loops whose conditions traced code reads. `api.compilation`
    loop_detector: Callable[..., Any]
    # The iterator over a tracer in a frame. `trace.loops.array_iteration`
    iterator_of: Callable[..., Iterator[Any]]
    # The iterable that a `for` loop over a list or a tuple receives. `trace.loops.array_iteration`
    iterable_of: Callable[[object], object]
    # Called before the value of a traced number becomes an index in a frame. `trace.loops.indexed_list`
    before_index: Callable[[Any, FrameType], None]
    # The traced version of a generator's method. `trace.random.methods`
    generator_method: Callable[[Any, str], Callable[..., Any]]
    # The module, imported on first use. `trace.driver.late_imports`
    ragged_arrays: Callable[[], RaggedArrays]
    # The stand-ins of Tensors in a new trace. `trace.driver.late_imports`
    tensors: Callable[[TraceBuilder], Any]


HOOKS = TraceHooks()
