"""What a function remembers by the array that it had it for: `if np.array_equal(x, self.last): return self.value`.

Where the array is what is being differentiated, and nothing of the result depends on it, the derivative is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracegrad.avals import is_literal
from tracegrad.errors import lost
from tracegrad.ir import Node
from tracegrad.ops.elementwise import equal
from tracegrad.trace.builder import TraceBuilder
from tracegrad.trace.endings import TURN_BY_TURN

__all__ = ["require_not_remembered"]


def require_not_remembered(builder: TraceBuilder, asked: int, outputs: Sequence[Any]) -> None:
    """Raise if none of the outputs has a derivative, and one of the questions from number `asked` on was answered by
    what is being differentiated having the elements of something from outside."""
    if any(not is_literal(x) and builder.has_derivative(x.node) for x in outputs):
        return
    outside = {c.node for c in builder.captures.values() if c.source is not None}
    for guard in builder.guards[asked:]:
        if guard.seen.dtype.kind == "b" and guard.seen.all() and _compares(builder, guard.node, outside):
            raise lost(
                "a result that is remembered for these elements",
                "has no derivative, and nothing else depends on the value that is being differentiated",
            )


def _compares(builder: TraceBuilder, answer: Node, outside: set[Node]) -> bool:
    """Whether an answer is that something with a derivative equals what is in one of these nodes."""
    seen, stack = set[Node](), [answer]
    while stack:
        node = stack.pop()
        if node.several:
            _require_no_comparison(builder, node)
        if node in seen or node.several or node.aval.dtype.kind != "b":
            continue
        seen.add(node)
        if node.op is equal and not outside.isdisjoint(node.operands):
            return any(builder.has_derivative(x) for x in node.operands)
        stack += node.operands
    return False


def _require_no_comparison(builder: TraceBuilder, loop: Node) -> None:
    """Begin again, with all loops recorded turn by turn, if this one compares: with what is not seen here."""
    compares = any(x.op is equal for region in loop.regions for x in region.everywhere())
    if compares and TURN_BY_TURN not in builder.world.varying:
        raise builder.restarts(TURN_BY_TURN, "a loop may have found what is remembered")
