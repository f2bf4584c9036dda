"""Systems whose matrix is known to be a triangle, as that of a Cholesky factorization is, are solved as such."""

from __future__ import annotations

from typing import Any

from tracegrad.ops.factorizations import cholesky
from tracegrad.ops.linalg import solve, solve_triangular
from tracegrad.ops.linear import transpose
from tracegrad.passes.rewrite import operand, producer
from tracegrad.passes.structure import rule_for

__all__: list[str] = []


@rule_for(solve)
def _(a: Any, b: Any) -> Any:
    """With the factor of a Cholesky factorization, which has no zero on its diagonal, or its transpose."""
    ndim = len(a.shape)
    transposed = producer(a) is transpose and dict(a.node.params)["perm"] == (*range(ndim - 2), ndim - 1, ndim - 2)
    factor = operand(a) if transposed else a
    if producer(factor) is not cholesky:
        return None
    return solve_triangular(factor, b, lower=True, transposed=transposed, unit=False)
