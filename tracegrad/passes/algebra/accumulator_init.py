"""Initialize a loop's cotangent accumulator with the array that its result would be added to.

A loop accumulates the cotangents of loop-invariant values from zero. If the sum is only added to another array, the
loop starts from that array instead. A nested loop then accesses only the elements of its iterations, and not the whole
array twice in every iteration of the outer loop.
"""

from __future__ import annotations

from typing import Any

from tracegrad.avals import Literal, is_literal
from tracegrad.ir import Graph, GraphNode, GraphValue
from tracegrad.ir.loop_view import LoopView, is_loop, needed_inputs
from tracegrad.ops.elementwise.table import add, subtract
from tracegrad.ops.indexing.dynamic_slice import dynamic_slice, dynamic_update_slice
from tracegrad.ops.shape.linear import reshape
from tracegrad.passes.core.constant_folding import constant
from tracegrad.passes.core.rewriter import shared
from tracegrad.target.tuning import TUNING

LEAST = TUNING.passes.min_accumulator


def init_accumulator(x: Any, y: Any) -> Any:
    """Rewrite x + y, a sum in free order, if one operand is a loop's accumulator that starts from zeros; else None."""
    for total, addend in ((x, y), (y, x)):
        if is_literal(addend) or is_literal(total) or addend.shape != total.shape or not is_zero_accumulator(addend):
            continue
        loop, k = addend.node.operands[0], addend.node.result_index
        if not total.node.depends_on({loop}):
            operands = [addend.builder.value(z) if isinstance(z, GraphNode) else z for z in loop.inputs]
            operands[k] = total
            return addend.builder.emit(loop.op, tuple(operands), dict(loop.params))[k]
    return None


def is_zero_accumulator(x: GraphValue) -> bool:
    """Whether `x` is a loop's accumulator that starts from zeros, and large enough to initialize otherwise."""
    if x.aval.size < LEAST or shared(x) or (accumulator := _accumulator_of(x.node)) is None:
        return False
    init = accumulator[0].inputs[accumulator[1]]
    return isinstance(init, GraphNode) and constant(x.builder.value(init)) == 0


def _accumulator_of(x: GraphNode) -> tuple[GraphNode, int] | None:
    """The loop and the number of the carry with the final value `x`, if the iterations only add to it; else None."""
    if x.result_index is None:
        return None
    loop, k = x.operands[0], x.result_index
    if not is_loop(loop) or k >= (view := LoopView.of(loop)).carries:
        return None
    unread = view.cond is None or k not in needed_inputs(view.cond, [0])
    return (loop, k) if unread and _only_adds(view.body, k) else None


def _only_adds(body: Graph, k: int) -> bool:
    """Whether an iteration only adds to carry `k`, or to windows of it."""
    users, x = body.users(), body.outputs[k]
    while x is not body.inputs[k]:
        addition = _before(x)
        if addition is None or body.outputs.count(x) != (x is body.outputs[k]):
            return False
        before, readers = addition
        if before in body.outputs or not readers.issuperset(users[before]):
            return False
        if any(
            not readers.issuperset(users[reader])
            for reader in readers
            if reader is not x and reader.op is not None and not is_loop(reader)
        ):
            return False
        x = before
    return body.outputs[k] is not x


def _before(x: GraphNode) -> tuple[GraphNode, set[GraphNode]] | None:
    """The accumulator before the addition that `x` is, and the nodes of the addition; None for other values."""
    if x.op is dynamic_update_slice:
        base, update, *starts = x.inputs
        update, between = _below(update)
        if not isinstance(update, GraphNode) or update.op not in (add, subtract):
            return None
        return _of_window(x, base, update, starts, between | {x, update})
    if x.op is add:
        for before in x.inputs:
            if (
                isinstance(before, GraphNode)
                and (before.op is None or before.op is dynamic_update_slice)
                and (x.inputs.count(before) == 1 and before.aval == x.aval)
            ):
                return before, {x}
        return None
    if (result := _accumulator_of(x)) is None:
        return None
    loop, k = result
    before = loop.inputs[k]
    return (before, {loop, x}) if isinstance(before, GraphNode) and loop.inputs.count(before) == 1 else None


def _below(x: GraphNode | Literal) -> tuple[GraphNode | Literal, set[GraphNode]]:
    """The value below reshapes, and the reshapes."""
    path = set()
    while isinstance(x, GraphNode) and x.op is reshape:
        path.add(x)
        x = x.inputs[0]
    return x, path


def _of_window(
    x: GraphNode, base: GraphNode | Literal, update: GraphNode, starts: list[object], between: set[GraphNode]
) -> tuple[GraphNode, set[GraphNode]] | None:
    for k, term in enumerate(update.inputs[: 1 if update.op is subtract else 2]):
        term, path = _below(term)
        if not isinstance(term, GraphNode) or term.op is not dynamic_slice or term.inputs[0] is not base:
            continue
        params = dict(term.params)
        if (
            params["step"] == dict(x.params)["step"]
            and params["sizes"] == x.inputs[1].aval.shape
            and all(a is b or (is_literal(a) and a == b) for a, b in zip(term.inputs[1:], starts))
            and update.inputs[1 - k] is not update.inputs[k]
        ):
            return base, between | path | {term}
    return None
