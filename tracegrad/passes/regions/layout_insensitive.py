"""Find layout-insensitive region inputs, for which a transpose needs no copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tracegrad.ir import Graph, GraphNode
from tracegrad.ir.loop_view import LoopView, is_loop
from tracegrad.ops.core.forms import Branch, FoldForm, Map
from tracegrad.ops.linalg.contraction import matmul
from tracegrad.ops.shape.linear import broadcast_to, full


def in_any_order(graph: Graph, x: GraphNode) -> bool:
    """Whether all readers of the region input `x` are as fast for another order of its axes.

    BLAS reads a factor in any memory order. A matrix-vector product multiplies by a broadcast value and adds. Its
    kernel runs along the memory of the matrix for any order of its axes. An elementwise op on two arrays with different
    orders is not insensitive, because it reads one of them with a large stride.
    """
    if x in graph.outputs:
        return False
    users = graph.users()
    return all(_reads_in_any_order(node, x, users, graph.outputs) for node in users[x])


def _reads_in_any_order(
    node: GraphNode, x: GraphNode, users: Mapping[GraphNode, Sequence[GraphNode]], outputs: Sequence[GraphNode]
) -> bool:
    if node.regions:
        return _regions_do(node, x)
    if node.op is matmul or isinstance(node.form, FoldForm):
        return True
    if not isinstance(node.form, Map) or node in outputs:
        return False
    other_ops = {y.op for y in node.operands if y is not x}
    return other_ops <= {broadcast_to, full} and all(isinstance(each.form, FoldForm) for each in users[node])


def _regions_do(node: GraphNode, x: GraphNode) -> bool:
    """Whether the regions of `node` read `x` in any order, and as the same value in each iteration."""
    begin = 1 if isinstance(node.form, Branch) else 0
    n_varying = LoopView.of(node).varying if is_loop(node) else 0
    at = [k - begin for k, y in enumerate(node.operands) if y is x]
    return min(at) >= n_varying and all(in_any_order(graph, graph.inputs[k]) for graph in node.regions for k in at)
