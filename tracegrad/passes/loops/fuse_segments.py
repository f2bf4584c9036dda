"""A loop whose turns another loop runs in segments is run in these segments too.

The derivative of a long loop runs it again, segment by segment (`tracegrad.control.segmented_checkpointing`). Where the
values of the loop are wanted as well, there would be two loops that do the same. In segments they are equal, and become
one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tracegrad.control.scan_op import scan
from tracegrad.control.segmented_checkpointing import run_in_segments
from tracegrad.ir import Graph, Node
from tracegrad.ops.core.op import Op
from tracegrad.passes.core.rewriter import rewrite

__all__ = ["join_segments"]


class _Segments(NamedTuple):
    """A loop in segments of so many turns; what it runs."""

    body: Graph
    carries: int
    xs: int
    reverse: bool
    segments: int
    turns: int


def join_segments(graph: Graph) -> Graph:
    """`graph` with loops run in segments where it has their segments. Values stay as they are."""
    # In their order, or another process might take other segments.
    found = dict.fromkeys([each for node in graph.everywhere() if node.op is scan for each in _segments(node)])
    if not found:
        return graph

    def hook(op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if op is not scan:
            return None
        key = (params["body"], params["carries"], params["xs"], params["reverse"])
        turns = [x.turns for x in found if x[:4] == key and x.segments == params["length"] // x.turns]
        return run_in_segments(operands, turns[0], **params) if turns else None

    return rewrite(graph, hook)


def _segments(node: Node) -> Iterator[_Segments]:
    """What a loop does of which each turn is a loop over the same carries, rows and constants."""
    outer = dict(node.params)
    for turn in outer["body"].nodes:
        inner = dict(turn.params)
        if turn.op is scan and turn.inputs == outer["body"].inputs and inner["reverse"] == outer["reverse"]:
            yield _Segments(
                inner["body"], inner["carries"], inner["xs"], inner["reverse"], outer["length"], inner["length"]
            )
