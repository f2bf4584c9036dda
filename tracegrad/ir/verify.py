"""The verifier: a graph is right if every value is defined once, before use, with the aval its op's rule gives."""

from __future__ import annotations

from tracegrad.avals import is_literal
from tracegrad.errors import TracegradError, VerifyError
from tracegrad.ir.graph import Graph

__all__ = ["verify"]


def verify(graph: Graph) -> Graph:
    """`graph` itself; raises `VerifyError` naming the node that breaks a rule."""
    defined = set(graph.inputs)
    for i, node in enumerate(graph.nodes):
        where = f"node {i}, {node.name}"
        if node.op is None:
            raise VerifyError(f"{where}: an input stands among the nodes")
        if any(x not in defined for x in node.operands):
            raise VerifyError(f"{where}: operand used before it is defined")
        if node in defined:
            raise VerifyError(f"{where}: defined twice")
        for region in node.regions:
            verify(region)
        if any(x.several for x in node.operands) != (node.picks is not None):
            raise VerifyError(f"{where}: several results are used otherwise than through one of them")
        try:
            aval = node.op.aval(*(x if is_literal(x) else x.aval for x in node.inputs), **dict(node.params))
        except TracegradError as error:
            raise VerifyError(f"{where}: {error}") from error
        if aval != node.aval:
            raise VerifyError(f"{where}: says {node.aval}, its rule says {aval}")
        defined.add(node)
    if any(x not in defined or x.several for x in graph.outputs):
        raise VerifyError("an output is not defined")
    return graph
