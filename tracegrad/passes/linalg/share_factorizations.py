"""Share one factorization of a matrix among its systems, transposed systems, inverse and determinant.

Compiled code then computes the inverse and the determinant without Python, like solutions of systems.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tracegrad.ir import Graph, GraphNode, GraphValue
from tracegrad.ops import Op
from tracegrad.ops.elementwise.table import absolute, equal, exp, less, log, multiply, negative, where
from tracegrad.ops.indexing.diagonal import diagonal
from tracegrad.ops.linalg.det import det
from tracegrad.ops.linalg.solve import inv, lu, lu_solve, slogdet, solve
from tracegrad.ops.reduce.reductions import reduce_prod
from tracegrad.ops.shape.fill import arange
from tracegrad.ops.shape.linear import broadcast_to, cast, reduce_sum, reshape, transpose
from tracegrad.passes.core.rewriter import in_loop, operand, rewrite, swaps
from tracegrad.typing import Array

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand


_OPS = (det, inv, slogdet, solve)


def factor_once(graph: Graph) -> Graph:
    """`graph` with one factorization of each matrix. Results round as NumPy's do, or differently.

    >>> from tracegrad.ir import parse
    >>> text = '''graph(%0: f64[9,9], %1: f64[9,2]) {
    ...   %2 = solve(%0, %1) : f64[9,2]
    ...   %3 = transpose(%0) {perm=(1, 0)} : f64[9,9]
    ...   %4 = solve(%3, %2) : f64[9,2]
    ...   return %4
    ... }'''
    >>> print(factor_once(parse(text)))
    graph(%0: f64[9,9], %1: f64[9,2]) {
      %2, %3 = lu(%0) : f64[9,9], i32[9]
      %4 = lu_solve(%2, %3, %1) {transposed=False} : f64[9,2]
      %5 = lu_solve(%2, %3, %4) {transposed=True} : f64[9,2]
      return %5
    }
    """
    results = [x for x in graph.everywhere() if x.op in _OPS and x.operands[0].aval.dtype.kind == "f"]
    uses = Counter([_matrix(x.operands[0]) for x in results])
    if all(x.op is solve and uses[_matrix(x.operands[0])] == 1 for x in results):
        return graph

    def hook(op: Op, operands: tuple[Any, ...], params: dict[str, object]) -> Any:
        if op not in _OPS or operands[0].dtype.kind != "f" or 0 in operands[0].shape:
            return None
        a, transposed = operands[0], False
        if swaps(a):
            a, transposed = operand(a), True
        is_used_once = uses[a.node] < 2
        if is_used_once and (op is solve or in_loop(a)):  # in loops, LU is a call of NumPy, too
            return None
        if is_used_once and op is inv:
            return solve(operands[0], _identity(a))
        factors, pivots = lu(a)
        if op in (det, slogdet):
            sign, magnitude = _slogdet(factors, pivots)
            return (sign, magnitude) if op is slogdet else multiply(sign, exp(magnitude))
        right = operands[1] if op is solve else _identity(a)
        return lu_solve(factors, pivots, right, transposed=transposed)

    return rewrite(graph, hook)


def _matrix(x: GraphNode) -> GraphNode:
    """The node below a transpose of `x`, or the node of `x`."""
    if x.op is transpose:
        *_, p, q = dict(x.params)["perm"]
        if (p, q) == (x.aval.ndim - 1, x.aval.ndim - 2):
            return x.operands[0]
    return x


def _slogdet(factors: Array, pivots: Array) -> tuple[Operand, ...]:
    ndim, n = len(factors.shape), factors.shape[-1]
    pivot = diagonal(factors, offset=0, axes=(ndim - 2, ndim - 1))
    one = cast(where(less(pivot, 0.0), -1.0, 1.0), dtype=pivot.dtype.name)  # also for nan, as in NumPy
    sign = where(equal(pivot, 0.0), 0.0, one)
    is_unswapped = equal(pivots, broadcast_to(arange(start=1, step=1, length=n, dtype="int32"), shape=pivots.shape))
    signs = where(is_unswapped, sign, negative(sign))
    return reduce_prod(signs, axes=(ndim - 2,)), reduce_sum(log(absolute(pivot)), axes=(ndim - 2,))


def _identity(a: GraphValue) -> Any:
    n = a.shape[-1]
    indices = arange(start=0, step=1, length=n, dtype="int64")
    eye = equal(broadcast_to(reshape(indices, shape=(n, 1)), shape=(n, n)), broadcast_to(indices, shape=(n, n)))
    return broadcast_to(cast(eye, dtype=a.dtype.name), shape=a.shape)
