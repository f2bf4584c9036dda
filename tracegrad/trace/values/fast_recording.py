"""Register the fast paths of recording (`tracegrad.trace.values.operation_plans`) with the ops."""

from __future__ import annotations

from collections.abc import Callable

from tracegrad.ops.core.elementwise_op import Elementwise
from tracegrad.ops.core.op import TABLE, Op
from tracegrad.trace.values.number import Number
from tracegrad.trace.values.operation_plans import generally, of_one, of_three, of_two, with_literal
from tracegrad.trace.values.tracer import Tracer


def _install(op: Elementwise) -> None:
    if len(op.operands) == 3:
        fast_path = of_three(op, generally)
        for last in ((Tracer, Tracer), *[pair for x in (bool, int, float) for pair in ((Tracer, x), (x, Tracer))]):
            op.dispatch_cache[Tracer, *last] = fast_path
        return
    if len(op.operands) == 1:
        op.dispatch_cache[Tracer,] = of_one(op, generally)
        op.dispatch_cache[Number,] = of_one(op, generally)
        return
    for one in (Tracer, Number):
        for other in (Tracer, Number):
            op.dispatch_cache[one, other] = of_two(op, generally)
        after, before = with_literal(op, True, generally), with_literal(op, False, generally)
        for literal in (bool, int, float):
            op.dispatch_cache[one, literal], op.dispatch_cache[literal, one] = after, before


def _by_the_first(op: Op) -> Callable[..., object]:
    """The fast path of an op on arrays without casts; the first array dispatches."""
    return lambda operands, params: operands[0].bind(op, operands, params)


for _op in TABLE.values():
    if _op.binds_as_is and 0 < len(_op.operands) < 3 and not _op.variadic:
        _op.dispatch_cache[(Tracer,) * len(_op.operands)] = _by_the_first(_op)
    _is_usual = _op.order == "K" and not _op.aliases and not _op.form.raises
    if isinstance(_op, Elementwise) and _is_usual:
        _install(_op)
