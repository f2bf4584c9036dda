"""The state of a traced value: its node, its memory layout, its origin as a view, and its own views."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from tracegrad.ir import GraphNode, GraphValue
from tracegrad.ops.core.memory_order import StandIn
from tracegrad.trace.builder.builder import TraceBuilder
from tracegrad.typing import NDArray

if TYPE_CHECKING:
    from tracegrad.trace.values.traced_memory import TracedMemory
    from tracegrad.trace.values.views import ViewOrigin


class TracedValue(GraphValue):
    """A value of the call being traced; the other bases of `Tracer` read its state."""

    __slots__ = (
        "__weakref__",
        "frozen",
        "is_array",
        "known",
        "layout_inputs",
        "origin",
        "outside",
        "stand_in",
        "starts",
        "views",
    )
    builder: TraceBuilder
    views: list[weakref.ref[TracedMemory]] | tuple[()]

    def __init__(self, builder: TraceBuilder, node: GraphNode):
        self.builder, self.node = builder, node
        self.frozen = ""
        self.is_array = False  # of a value without axes: whether it is an array, and no scalar
        self.origin: ViewOrigin | None = None
        self.views = ()
        # Memory layout: row-major, or the layout of the stand-in. `layout_inputs` are the inputs that decide it, as
        # bits.
        self.stand_in: StandIn | None = None
        self.layout_inputs = 0
        self.starts: tuple[tuple[TracedMemory, int], ...] = ()  # computed offsets of a window, until it is a view
        self.outside = False

    def concrete(self, query: str) -> NDArray:
        """The value in the call being traced; leaves a guard on it."""
        raise NotImplementedError

    def _plain(self, query: str) -> object:
        raise NotImplementedError

    def _is_differentiated(self) -> bool:
        """Whether a derivative being computed flows through the value."""
        raise NotImplementedError
