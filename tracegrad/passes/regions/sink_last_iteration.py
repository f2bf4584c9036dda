"""Sink computations out of a loop if only their value in the last iteration is used (code sinking).

`value, g = value_and_grad(w)` at the end of each iteration computes a value that no iteration reads. If it depends only
on other final values of the loop and on loop-invariant values, it is computed once, after the loop.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from tracegrad.control import scan_op
from tracegrad.ir import Graph, Node, replay
from tracegrad.ir.builder import needed, sliced
from tracegrad.ops.core.forms import Contract, Fill, Fold, Map, Move, Result
from tracegrad.settings import disabled
from tracegrad.target.tuning import TUNING

__all__ = ["computed_behind"]

LEAST = TUNING.passes.min_sunk_work
DEAR = TUNING.passes.function_work


def computed_behind(operands: Sequence[Any], *, body: Graph, carries: int, xs: int, **params: Any) -> Any:
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
    read = {x for node in body.nodes for x in node.operands}.union(body.outputs)
    unread = [k for k in range(carries) if body.inputs[k] not in read]
    if not unread or disabled("last-iteration-sinking"):
        return None
    left = [k for k in range(len(body.outputs)) if k not in unread]
    ends = {body.outputs[k]: i for i, k in enumerate(left) if k < carries}
    fixed = dict(zip(body.inputs[carries + xs :], operands[carries + xs :]))
    table = {k: part for k in unread if (part := _from(body, body.outputs[k], {*ends, *fixed})) is not None}
    if not table or not _saves(body, table, params["length"]):
        return None
    saved = [k for k in range(len(body.outputs)) if k not in table]
    outputs = _without(operands, body, list(table), saved, carries, xs, params)
    args = fixed | {x: outputs[saved.index(left[i])] for x, i in ends.items()}
    behind = {k: _replayed(body.outputs[k], part, args) for k, part in table.items()}
    return tuple([behind[k] if k in behind else outputs[saved.index(k)] for k in range(len(body.outputs))])


def _from(body: Graph, wanted: Node, ends: Collection[Node]) -> list[Node] | None:
    """The nodes from `ends` to `wanted`; None if it depends on other values, or on regions."""
    part = needed(body.nodes, [wanted], lambda node: () if node in ends else node.operands)
    part = [node for node in part if node not in ends]
    inside = {*ends, *part}
    if any(node.regions or not inside.issuperset(node.operands) for node in part):
        return None
    return part if wanted in inside else None


def _saves(body: Graph, found: dict[int, list[Node]], length: int) -> bool:
    """Whether the work removed from the iterations, which must not raise, clearly exceeds the work after the loop."""
    others = [x for k, x in enumerate(body.outputs) if k not in found]
    still = set(needed(body.nodes, others))
    gone = [node for node in body.nodes if node not in still]
    if any(node.form.raises for node in gone):
        return False
    behind = {node for part in found.values() for node in part}
    return length * sum(map(_work, gone)) - sum(map(_work, behind)) >= LEAST


def _work(node: Node) -> int:
    """An estimate of the number of operations."""
    form = node.form
    if isinstance(form, Move | Fill | Result):
        return 0
    if isinstance(form, Map):
        dear = form.scalar is None or "/" in form.scalar or "(" in form.scalar
        return node.aval.size * (DEAR if dear else 1)
    read = max([x.aval.size for x in node.operands if not x.several], default=0)
    if isinstance(form, Fold):
        return read
    if isinstance(form, Contract):
        return node.aval.size * node.operands[0].aval.shape[-1]
    return DEAR * read


def _without(
    operands: Sequence[Any], body: Graph, gone: Sequence[int], kept: Sequence[int], carries: int, xs: int, params: Any
) -> tuple[Any, ...]:
    """The remaining results of the loop without the sunk carries."""
    if not kept:
        return ()
    inputs = [k for k in range(len(operands)) if k not in gone]
    narrow = sliced([body.inputs[k] for k in inputs], body.nodes, [body.outputs[k] for k in kept])
    args = [operands[k] for k in inputs]
    results: tuple[Any, ...] = scan_op.scan(*args, body=narrow, carries=carries - len(gone), xs=xs, **params)
    return results


def _replayed(wanted: Node, part: Sequence[Node], given: dict[Node, Any]) -> Any:
    return replay(Graph(tuple(given), tuple(part), (wanted,)), list(given.values()))[0][0]
