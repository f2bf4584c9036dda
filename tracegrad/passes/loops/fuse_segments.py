"""Fuse a loop with its segmented copy, by running the loop in the same segments.

The derivative of a long loop reruns it segment by segment (`tracegrad.control.segmented_checkpointing`). If the values
of the loop are used too, there are two loops with the same work. Run in the same segments, they are equal and merge.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tracegrad.control.scan_op import scan
from tracegrad.control.segmented_checkpointing import run_in_segments
from tracegrad.ir import Graph, GraphNode
from tracegrad.ops.core.op import Op
from tracegrad.passes.core.rewriter import rewrite

__all__ = ["join_segments"]


class _Segments(NamedTuple):
    """A segmented loop: the number of iterations per segment, and the loop it runs."""

    body: Graph
    carries: int
    xs: int
    reverse: bool
    segments: int
    iterations: int


def join_segments(graph: Graph) -> Graph:
    """`graph` with loops segmented as their segmented copies. Values are unchanged."""
    # Ordered, so that every process chooses the same segments.
    result = dict.fromkeys([each for node in graph.everywhere() if node.op is scan for each in _segments(node)])
    if not result:
        return graph

    def hook(op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if op is not scan:
            return None
        key = (params["body"], params["carries"], params["xs"], params["reverse"])
        iterations = [x.iterations for x in result if x[:4] == key and x.segments == params["length"] // x.iterations]
        return run_in_segments(operands, iterations[0], **params) if iterations else None

    return rewrite(graph, hook)


def _segments(node: GraphNode) -> Iterator[_Segments]:
    """The segmented loop that a loop is: each of its iterations is a loop over the same carries, rows and constants."""
    outer = dict(node.params)
    for iteration in outer["body"].nodes:
        inner = dict(iteration.params)
        if iteration.op is scan and iteration.inputs == outer["body"].inputs and inner["reverse"] == outer["reverse"]:
            yield _Segments(
                inner["body"], inner["carries"], inner["xs"], inner["reverse"], outer["length"], inner["length"]
            )
