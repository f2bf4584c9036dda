"""Sink computations out of a loop if only their value in the last iteration is used (code sinking).

`value, g = value_and_grad(w)` at the end of each iteration computes a value that no iteration reads. If it depends only
on other final values of the loop and on loop-invariant values, it is computed once, after the loop.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from tracegrad.ir import Graph, GraphNode, replay
from tracegrad.ir.builder import needed
from tracegrad.ir.loop_view import LoopView
from tracegrad.ops.core.forms import Contract, Fill, FoldForm, Map, Move, Result
from tracegrad.settings import disabled
from tracegrad.target.tuning import TUNING

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand


LEAST = TUNING.passes.min_sunk_work
FUNCTION_WORK = TUNING.passes.function_work


def sink_unread_carries(operands: Sequence[Any], loop: LoopView) -> Any:
    """The results of a scan of at least two iterations without carries that can be sunk; None if sinking is not
    profitable.

    >>> from tracegrad.ir import parse
    >>> from tracegrad.passes.simplify.simplify import simplify
    >>> text = '''graph(%0: f64[9000], %1: f64[9000]) {
    ...   %2, %3 = scan(%0, %1) {carries=2, length=20, reverse=False, xs=0} : f64[9000], f64[9000]
    ...     body(%0: f64[9000], %1: f64[9000]) {
    ...       %2 = multiply(%0, 0.5) : f64[9000]
    ...       %3 = exp(%2) : f64[9000]
    ...       return %2, %3
    ...     }
    ...   return %2, %3
    ... }'''
    >>> print(simplify(parse(text)))
    graph(%0: f64[9000], %1: f64[9000]) {
      %2, = scan(%0) {carries=1, length=20, reverse=False, xs=0} : f64[9000],
        body(%0: f64[9000]) {
          %1 = multiply(%0, 0.5) : f64[9000]
          return %1
        }
      %3 = exp(%2) : f64[9000]
      return %2, %3
    }
    """
    body, n_results = loop.body, len(loop.body.outputs)
    read = {x for node in body.nodes for x in node.operands}.union(body.outputs)
    unread = [k for k in range(loop.carries) if body.inputs[k] not in read]
    if not unread or disabled("last-iteration-sinking"):
        return None
    ends = {body.outputs[k]: k for k in range(loop.carries) if k not in unread}
    fixed = dict(zip(loop.constants(body.inputs), loop.constants(operands)))
    sinkable = {k: nodes for k in unread if (nodes := _from(body, body.outputs[k], {*ends, *fixed})) is not None}
    if not sinkable or not _is_profitable(body, sinkable, loop.length):
        return None
    outputs = _without(operands, loop, sinkable)
    args = fixed | {x: outputs[k] for x, k in ends.items()}
    sunk = {k: _replayed(body.outputs[k], nodes, args) for k, nodes in sinkable.items()}
    return tuple([sunk[k] if k in sunk else outputs[k] for k in range(n_results)])


def _from(body: Graph, wanted: GraphNode, ends: Collection[GraphNode]) -> list[GraphNode] | None:
    """The nodes from `ends` to `wanted`; None if it depends on other values, or on regions."""
    nodes = needed(body.nodes, [wanted], lambda node: () if node in ends else node.operands)
    nodes = [node for node in nodes if node not in ends]
    inside = {*ends, *nodes}
    if any(node.regions or not inside.issuperset(node.operands) for node in nodes):
        return None
    return nodes if wanted in inside else None


def _is_profitable(body: Graph, sinkable: dict[int, list[GraphNode]], length: int) -> bool:
    """Whether the work removed from the iterations, which must not raise, clearly exceeds the work after the loop."""
    others = [x for k, x in enumerate(body.outputs) if k not in sinkable]
    retained = set(needed(body.nodes, others))
    removed = [node for node in body.nodes if node not in retained]
    if any(node.form.raises for node in removed):
        return False
    sunk = {node for nodes in sinkable.values() for node in nodes}
    return length * sum(map(_work, removed)) - sum(map(_work, sunk)) >= LEAST


def _work(node: GraphNode) -> int:
    """An estimate of the number of operations."""
    form = node.form
    if isinstance(form, Move | Fill | Result):
        return 0
    if isinstance(form, Map):
        is_expensive = form.scalar is None or "/" in form.scalar or "(" in form.scalar
        return node.aval.size * (FUNCTION_WORK if is_expensive else 1)
    read = max([x.aval.size for x in node.operands if not x.is_multi_result], default=0)
    if isinstance(form, FoldForm):
        return read
    if isinstance(form, Contract):
        return node.aval.size * node.operands[0].aval.shape[-1]
    return FUNCTION_WORK * read


def _without(operands: Sequence[Any], loop: LoopView, sunk: Collection[int]) -> dict[int, object]:
    """The remaining results of the loop without the sunk carries."""
    inputs, results = ([k for k in range(len(xs)) if k not in sunk] for xs in (operands, loop.body.outputs))
    if not results:
        return {}
    return dict(zip(results, loop.op(*[operands[k] for k in inputs], **loop.restricted(inputs, results).params)))


def _replayed(wanted: GraphNode, nodes: Sequence[GraphNode], env: dict[GraphNode, Operand]) -> Any:
    return replay(Graph(tuple(env), tuple(nodes), (wanted,)), list(env.values()))[0][0]
