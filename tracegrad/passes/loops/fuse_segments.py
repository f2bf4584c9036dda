"""Fuse a loop with its segmented copy, by running the loop in the same segments.

The derivative of a long loop reruns it segment by segment (`tracegrad.control.segmented_checkpointing`). If the values
of the loop are used too, there are two loops with the same work. Run in the same segments, they are equal and merge.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tracegrad.control.scan_op import scan
from tracegrad.control.segmented_checkpointing import run_in_segments
from tracegrad.ir import Graph, GraphNode, GraphValue
from tracegrad.ir.loop_view import LoopView
from tracegrad.ops.core.op import Op
from tracegrad.passes.core.rewriter import rewrite


class _Segments(NamedTuple):
    """A segmented loop: the loop over the iterations of all segments, and the number of iterations per segment."""

    loop: LoopView
    iterations: int


def join_segments(graph: Graph) -> Graph:
    """`graph` with loops segmented as their segmented copies. Values are unchanged."""
    # Ordered, so that every process chooses the same segments.
    segmented = dict.fromkeys([each for node in graph.everywhere() if node.op is scan for each in _segments(node)])
    if not segmented:
        return graph

    def hook(op: Op, operands: tuple[GraphValue | float, ...], params: dict[str, object]) -> Any:
        if op is not scan:
            return None
        loop = LoopView.from_params(op, params)
        for each in segmented:
            if each.loop == loop._replace(length=loop.length // each.iterations * each.iterations):
                return run_in_segments(loop, operands, each.iterations)
        return None

    return rewrite(graph, hook)


def _segments(node: GraphNode) -> Iterator[_Segments]:
    """The segmented loop that a loop is: each of its iterations is a loop over the same carries, rows and constants."""
    outer = LoopView.of(node)
    for iteration in outer.body.nodes:
        if iteration.op is scan and iteration.inputs == outer.body.inputs:
            inner = LoopView.of(iteration)
            if inner.reverse == outer.reverse:
                yield _Segments(inner._replace(length=outer.length * inner.length), inner.length)
