"""Give inner loops room for their maximal trip counts.

The loop `for j in range(i)` inside another loop then has room for the largest `i`, and is not traced again with more
room.
"""

from __future__ import annotations

from collections.abc import Sequence

from tracegrad.analysis.intervals import ANY, Interval, Operand, range_of
from tracegrad.analysis.trip_count import counters, max_iterations
from tracegrad.ir import Graph, GraphNode
from tracegrad.ir.graph import map_regions
from tracegrad.ir.loop_view import LoopView, is_loop
from tracegrad.ir.rebuild import map_nodes, with_params


def with_room(loop: LoopView, operands: Sequence[Operand], iterations: int) -> LoopView:
    """A loop of at most `iterations` iterations (0: unknown); inner loops have room for their maximal trip counts."""
    if not loop.body.has_regions:
        return loop
    return _with_room_inside(loop, list(map(range_of, operands)), iterations)


def _with_room_inside(loop: LoopView, ranges: Sequence[Interval], iterations: int) -> LoopView:
    """The same for operands in `ranges`."""
    steps, inside = counters(loop.body, loop.carries), list[Interval]()
    for k, (low, high) in enumerate(ranges):
        if k >= loop.carries or loop.is_unchanged(k):
            inside.append((low, high))
        elif k in steps and iterations:
            change = steps[k] * (iterations - 1)
            inside.append((low + min(change, 0), high + max(change, 0)))
        else:
            inside.append(ANY)
    return loop._replace(body=_roomy_graph(loop.body, inside))


def _roomy_graph(graph: Graph, ranges: Sequence[Interval]) -> Graph:
    known = dict(zip(graph.inputs, ranges))

    def change(node: GraphNode) -> GraphNode:
        return _roomy(node, [range_of(x, known) for x in node.inputs]) if node.regions else node

    return map_nodes(graph, change)


def _roomy(node: GraphNode, ranges: Sequence[Interval]) -> GraphNode:
    """A node with regions, with room for operands in `ranges`."""
    if not is_loop(node):
        skipped = len(ranges) - len(node.regions[0].inputs)
        return with_params(node, map_regions(node.params, lambda region: _roomy_graph(region, ranges[skipped:])))
    loop = LoopView.of(node)
    bound = loop.length
    if loop.cond is not None:
        bound = max_iterations(ranges, loop)
        loop = loop._replace(length=loop.length or bound)
    return with_params(node, _with_room_inside(loop, ranges, bound).items)
