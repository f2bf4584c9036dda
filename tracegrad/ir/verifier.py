"""Verify a graph: every value is defined once, before use, with the aval of its op's rule."""

from __future__ import annotations

from tracegrad.avals import is_literal
from tracegrad.errors import TracegradError, VerifyError
from tracegrad.ir.graph import Graph, GraphNode


def verify(graph: Graph) -> Graph:
    """`graph` itself; raises `VerifyError` naming the node that breaks a rule."""
    defined = set(graph.inputs)
    for i, node in enumerate(graph.nodes):
        fault, cause = _fault(node, defined)
        if fault is not None:
            raise VerifyError(f"node {i}, {node.name}: {fault}") from cause
        defined.add(node)
    if any(x not in defined or x.is_multi_result for x in graph.outputs):
        raise VerifyError("an output is not defined")
    return graph


def _fault(node: GraphNode, defined: set[GraphNode]) -> tuple[str | None, Exception | None]:
    """The rule that the node breaks, or None, and the error of the rule if there is one."""
    if node.op is None:
        return "an input stands among the nodes", None
    if not defined.issuperset(node.operands):
        return "operand used before it is defined", None
    if node in defined:
        return "defined twice", None
    for region in node.regions:
        verify(region)
    if any(x.is_multi_result for x in node.operands) != (node.result_index is not None):
        return "several results are used otherwise than through one of them", None
    try:
        aval = node.op.aval(*[x if is_literal(x) else x.aval for x in node.inputs], **dict(node.params))
    except TracegradError as error:
        return str(error), error
    return (None, None) if aval == node.aval else (f"says {node.aval}, its rule says {aval}", None)
