"""Rebuild graphs: substitute nodes, replace nodes one by one, make nodes inputs, and look through views.

These functions copy nodes without simplification. `tracegrad.passes.core.rewriter` is the rewriter for rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import overload

from tracegrad.avals import LITERALS, Literal
from tracegrad.ir.graph import Graph, GraphNode, Params
from tracegrad.ops.core.op import Op
from tracegrad.ops.core.result import result
from tracegrad.ops.shape.linear import reshape


def with_operands(node: GraphNode, new: Mapping[GraphNode, GraphNode]) -> GraphNode:
    """`node` with operands replaced by others of the same avals; the same node if none is replaced."""
    if new.keys().isdisjoint(node.operands):
        return node
    return node.of(tuple([x if type(x) in LITERALS else new.get(x, x) for x in node.inputs]))


def with_params(node: GraphNode, params: Params) -> GraphNode:
    """`node` with other parameters that do not change its aval; the same node if they are the same object."""
    return node if params is node.params else GraphNode(node.op, node.inputs, params, node.aval, node.location)


def result_of(node: GraphNode, index: int, location: str = "") -> GraphNode:
    """The node that selects result `index` of a node with several results."""
    return GraphNode(result, (node,), (("index", index),), node.results[index], location)


def new_input(x: GraphNode) -> GraphNode:
    """A new input with the aval of `x`."""
    return GraphNode(None, (), (), x.aval)


def map_nodes(graph: Graph, change: Callable[[GraphNode], GraphNode]) -> Graph:
    """`graph` with each node replaced by `change` of the node with replaced operands; the same graph if nothing is
    replaced."""
    moved: dict[GraphNode, GraphNode] = {}
    for node in graph.nodes:
        new = change(with_operands(node, moved))
        if new is not node:
            moved[node] = new
    if not moved:
        return graph
    nodes, outputs = ([moved.get(x, x) for x in xs] for xs in (graph.nodes, graph.outputs))
    return Graph(graph.inputs, tuple(nodes), tuple(outputs))


def taking(graph: Graph, nodes: Iterable[GraphNode]) -> Graph:
    """`graph` with the values of `nodes` as further inputs, in this order."""
    moved = {x: new_input(x) for x in nodes}
    new_inputs, remaining = tuple(moved.values()), list[GraphNode]()
    for node in graph.nodes:
        if node not in moved:
            new = with_operands(node, moved)
            if new is not node:
                moved[node] = new
            remaining.append(new)
    outputs = tuple([moved.get(x, x) for x in graph.outputs])
    return Graph((*graph.inputs, *new_inputs), tuple(remaining), outputs)


@overload
def below(x: GraphNode, *ops: Op) -> GraphNode: ...
@overload
def below(x: GraphNode | Literal, *ops: Op) -> GraphNode | Literal: ...
def below(x: GraphNode | Literal, *ops: Op) -> GraphNode | Literal:
    """The value below the reshapes of `x`, and below the views by other `ops`."""
    while isinstance(x, GraphNode) and (x.op is reshape or x.op in ops):
        x = x.inputs[0]
    return x
