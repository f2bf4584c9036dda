"""Which inputs of a region are read as well in any order of their axes: a transpose of these need be no copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tracegrad.ir import Graph, Node
from tracegrad.ops.core.forms import Branch, Fold, Map
from tracegrad.ops.linalg.contraction import matmul
from tracegrad.ops.shape.linear import broadcast_to, full

__all__ = ["in_any_order"]


def in_any_order(graph: Graph, x: Node) -> bool:
    """Whether all that reads the input `x` of a region does so as well where the axes of `x` lie in another order.

    BLAS takes a factor as it lies. A kernel that multiplies by what is repeated along axes, and adds, as the product of
    a matrix and a vector does, runs along the memory of the matrix, in whatever order its axes are. An element by
    element of two arrays that lie in different orders is another matter: one of both is read across.
    """
    if x in graph.outputs:
        return False
    users = graph.users()
    return all(_reads_in_any_order(node, x, users, graph.outputs) for node in users[x])


def _reads_in_any_order(node: Node, x: Node, users: Mapping[Node, Sequence[Node]], outputs: Sequence[Node]) -> bool:
    if node.regions:
        return _regions_do(node, x)
    if node.op is matmul or isinstance(node.form, Fold):
        return True
    if not isinstance(node.form, Map) or node in outputs:
        return False
    beside = {y.op for y in node.operands if y is not x}
    return beside <= {broadcast_to, full} and all(isinstance(each.form, Fold) for each in users[node])


def _regions_do(node: Node, x: Node) -> bool:
    """Whether the regions of `node` read `x` so, and it is the same in each of their turns."""
    params = dict(node.params)
    begin = 1 if isinstance(node.form, Branch) else 0
    turning = params.get("carries", 0) + params.get("xs", 0)
    at = [k - begin for k, y in enumerate(node.operands) if y is x]
    return min(at) >= turning and all(in_any_order(graph, graph.inputs[k]) for graph in node.regions for k in at)
