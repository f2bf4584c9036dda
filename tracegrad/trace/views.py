"""Views in a trace: where a view comes from, and how it is computed anew when that has been updated."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from tracegrad.avals import is_literal
from tracegrad.ir import Node
from tracegrad.trace.builder import TraceBuilder

if TYPE_CHECKING:
    from tracegrad.trace.tracer import Tracer

__all__ = ["Origin", "replayed"]


class Origin(NamedTuple):
    """Of a view: its base, how to write to it (None: not at all), and the nodes of base and view when it was made.

    `asks` are the inputs that decide by their layout whether it is a view; if it is a copy, it is not `shared`.
    `starts` are computed places of the view in the base, with the bytes from one to the next.
    """

    base: Tracer
    put: Callable[[Any, Any], Any] | None
    node: Node
    result: Node
    asks: int
    shared: bool
    starts: tuple[tuple[Tracer, int], ...] = ()


def replayed(builder: TraceBuilder, result: Node, old: Node, new: Node) -> Node:
    """`result`, which was computed from `old`, computed from `new` in the same way."""
    if result is old:
        return new
    if result.picks is not None:
        whole = replayed(builder, result.operands[0], old, new)
        return result if whole is result.operands[0] else builder.valued(whole)[result.picks].node
    if not result.operands:
        return result
    # The other operands say which part of the first it is.
    first = replayed(builder, result.operands[0], old, new)
    if first is result.operands[0]:
        return result
    others = [x if is_literal(x) else builder.value(x) for x in result.inputs[1:]]
    made = builder.emit(result.op, (builder.value(first), *others), dict(result.params))  # type: ignore[arg-type]
    node: Node = made[0].node.operands[0] if type(made) is tuple else made.node
    return node
