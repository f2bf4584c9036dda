"""Recognize triangular structure: solves with Cholesky factors, and symmetric matrices built from one triangle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracegrad.avals import is_literal
from tracegrad.ir import GraphValue
from tracegrad.ops.elementwise.table import less_equal, where
from tracegrad.ops.linalg.factorizations import cholesky
from tracegrad.ops.linalg.solve import solve, solve_triangular
from tracegrad.ops.shape.linear import broadcast_to
from tracegrad.passes.algebra.shape_rules import rule_for
from tracegrad.passes.core.rewriter import operand, producer, swaps
from tracegrad.passes.linalg.diagonal import counted

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand


@rule_for(cholesky, "triangular-solves")
def _(x: GraphValue, *, lower: bool) -> Any:
    """Factor a symmetric matrix that is mirrored from its lower triangle without building the upper one."""
    if lower or producer(x) is not where or any(is_literal(y) for y in x.node.inputs):
        return None
    mask, below, above = (operand(x, k) for k in range(3))
    if not swaps(above) or operand(above).node is not below.node:
        return None
    return cholesky(below, lower=True) if _is_lower(mask) else None


def _is_lower(mask: GraphValue) -> bool:
    """Whether a mask is true exactly in the lower triangle."""
    while producer(mask) is broadcast_to:
        mask = operand(mask)
    if len(mask.shape) != 2 or producer(mask) is not less_equal:
        return False
    return [counted(operand(mask, k)) for k in range(2)] == [1, 0]


@rule_for(solve, "triangular-solves")
def _(a: GraphValue, b: Operand) -> Any:
    """Solve with a Cholesky factor or its transpose as a triangular matrix; its diagonal has no zeros."""
    transposed = swaps(a)
    factor = operand(a) if transposed else a
    if producer(factor) is not cholesky:
        return None
    return solve_triangular(factor, b, lower=True, transposed=transposed, unit=False)
