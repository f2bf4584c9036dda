"""Decompose composite ops into ops that the compiler implements.

Differentiation is complete at this point, so the ops with a meaning only for derivatives (`fresh`, `stop_gradient`)
become their operand.
"""

from __future__ import annotations

from typing import Any

from tracegrad.ir import Graph, replay
from tracegrad.ops import Op
from tracegrad.ops.core.forms import Compose, IdentityForm, Run
from tracegrad.ops.shape.stack_split import stack
from tracegrad.passes.algebra.merge_slices import stacked
from tracegrad.passes.core.rewriter import rewrite


def decompose(graph: Graph) -> Graph:
    """`graph` without composite ops, `fresh` and `stop_gradient`. Values may differ in the last places.

    >>> from tracegrad.ir import parse
    >>> print(decompose(parse("graph(%0: f64[5]) {\\n  %1 = mean(%0) {axes=(0,)} : f64[]\\n  return %1\\n}")))
    graph(%0: f64[5]) {
      %1 = reduce_sum(%0) {axes=(0,)} : f64[]
      %2 = divide(%1, 5.0) : f64[]
      return %2
    }
    """
    results = [node for node in graph.everywhere() if isinstance(node.form, _DECOMPOSED_FORMS)]
    return rewrite(graph, _hook, forms=_DECOMPOSED_FORMS) if results else graph


_DECOMPOSED_FORMS = (Compose, IdentityForm, Run)


def _hook(op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> object:
    match op.form:
        case IdentityForm():
            return operands[0]
        case Compose(parts):
            return (stacked(operands, **params) if op is stack else None) or parts(*operands, **params)
        case Run() if params["inlined"]:
            return tuple(replay(params["body"], operands)[0])
    return None
