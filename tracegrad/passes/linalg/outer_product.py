"""Multiply by outer products without forming them: `np.outer(u, v) @ X` is u times `v @ X` (rank-one structure).

A matrix is an *outer product* here if each element is the product of a column element and a row element. Examples are
`np.outer(u, v)`, `-2.0 * u[:, None] * v`, and matrices with equal rows. A sum of outer products and diagonal matrices,
as `np.eye(n) - 2.0 * np.outer(v, v)`, is multiplied term by term. A product is not formed either if only its sums,
weighted with an outer product, are used. The derivative of an outer product has this form.

The order of additions changes, so results round differently. A result that was not finite is still not finite, but an
inf may become a nan, or a nan an inf.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracegrad.avals import is_literal
from tracegrad.ir import GraphValue, Value
from tracegrad.ops.core.op import Op
from tracegrad.ops.elementwise.table import add, divide, multiply, negative, reciprocal, square, subtract
from tracegrad.ops.linalg.contraction import matmul, matrix_transpose
from tracegrad.ops.shape.linear import broadcast_to, reduce_sum, reshape, transpose
from tracegrad.passes.core.rewriter import operand, producer, shared, swaps
from tracegrad.passes.linalg.diagonal import is_diagonal, with_diagonal
from tracegrad.passes.linalg.small_matmul import as_loop
from tracegrad.target.tuning import TUNING

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand


SMALLEST = TUNING.passes.min_rank_one
MAX_RANK_ONE_TERMS = TUNING.passes.max_rank_one_terms
DEEPEST = 8  # maximum depth of the expression of an outer product


class _Outer(NamedTuple):
    """Outer product `column * row * scale`, of shapes (..., m, 1), (..., 1, n) and (..., 1, 1); None for ones."""

    column: Any = None
    row: Any = None
    scale: Any = None

    @property
    def transposed(self) -> _Outer:
        return _Outer(
            *[x if x is None or is_literal(x) else matrix_transpose(x) for x in (self.row, self.column, self.scale)]
        )

    @property
    def vectors(self) -> tuple[Any, Any]:
        """The column and the row, one of them scaled."""
        if self.scale is None:
            return self.column, self.row
        if self.column is None:
            return None, multiply(self.row, self.scale)
        return multiply(self.column, self.scale), self.row


# -- products ------------------------------------------------------------------------------------------------
def with_outer_product(x: GraphValue, y: GraphValue) -> Any:
    """Multiply two stacks of matrices, one of which is a sum of outer products; None if neither is.

    >>> from tracegrad.ir import parse
    >>> from tracegrad.passes.simplify.simplify import simplify
    >>> text = '''graph(%0: f64[40,1], %1: f64[50], %2: f64[50,60]) {
    ...   %3 = broadcast_to(%0) {shape=(40, 50)} : f64[40,50]
    ...   %4 = broadcast_to(%1) {shape=(40, 50)} : f64[40,50]
    ...   %5 = multiply(%3, %4) : f64[40,50]
    ...   %6 = matmul(%5, %2) : f64[40,60]
    ...   return %6
    ... }'''
    >>> print(simplify(parse(text)))
    graph(%0: f64[40,1], %1: f64[50], %2: f64[50,60]) {
      %3 = reshape(%1) {shape=(50, 1)} : f64[50,1]
      %4 = broadcast_to(%3) {shape=(50, 60)} : f64[50,60]
      %5 = multiply(%2, %4) : f64[50,60]
      %6 = reduce_sum(%5) {axes=(0,)} : f64[60]
      %7 = broadcast_to(%0) {shape=(40, 60)} : f64[40,60]
      %8 = broadcast_to(%6) {shape=(40, 60)} : f64[40,60]
      %9 = multiply(%7, %8) : f64[40,60]
      return %9
    }
    """
    if x.dtype.kind != "f" or min(*x.shape[-2:], y.shape[-1]) < SMALLEST:
        return None
    for matrix, other, first in ((x, y, True), (y, x, False)):
        if (terms := _outer_terms(matrix)) is not None:
            return _total([(sign, _product(term, matrix, other, first)) for sign, term in terms])
    return None


def _total(terms: list[tuple[int, Any]]) -> Any:
    (sign, total), *others = terms
    total = total if sign > 0 else negative(total)
    for sign, each in others:
        total = add(total, each) if sign > 0 else subtract(total, each)
    return total


def _outer_terms(x: GraphValue) -> list[tuple[int, Any]] | None:
    """The signed outer products and diagonal matrices that `x` is the sum of; None if it has other terms."""
    results: list[tuple[int, Any]] = []
    todo = [(1, x, False)]
    while todo:
        sign, x, transposed = todo.pop()
        if swaps(x):
            x, transposed = operand(x), not transposed
        if producer(x) in (add, subtract) and not any(is_literal(y) for y in x.node.inputs):
            todo += [(sign if producer(x) is add else -sign, operand(x, 1), transposed), (sign, operand(x), transposed)]
            continue
        outer = _outer_of(x)
        if len(results) == MAX_RANK_ONE_TERMS or (outer is None and not is_diagonal(x)):
            return None
        results.append((sign, x if outer is None else outer.transposed if transposed else outer))
    return results if any(isinstance(term, _Outer) for _, term in results) else None


def _product(term: Value, matrix: GraphValue, other: GraphValue, first: bool) -> object:
    """The product of a term of `matrix` with the other matrix; the term comes first if `first`."""
    if not isinstance(term, _Outer):
        return with_diagonal(*((term, other) if first else (other, term)))
    column, row = term.vectors
    if first:
        return _spread(column, _row_times(row, other), (*matrix.shape[:-1], other.shape[-1]))
    return _spread(_times_column(other, column), row, (*other.shape[:-1], matrix.shape[-1]))


def _spread(column: Value, row: Value, shape: tuple[int, ...]) -> Operand:
    whole = [broadcast_to(v, shape=shape) for v in (column, row) if v is not None]
    return multiply(*whole) if len(whole) == 2 else whole[0]


def _row_times(row: Value, y: Value) -> Any:
    return _sums(y, -2) if row is None else as_loop(row, y)


def _times_column(x: Value, column: Value) -> Any:
    return _sums(x, -1) if column is None else as_loop(x, column)


def _sums(x: GraphValue, axis: int) -> Any:
    """The sums along an axis, which then has size one."""
    axis += len(x.shape)
    return reshape(reduce_sum(x, axes=(axis,)), shape=tuple(1 if a == axis else n for a, n in enumerate(x.shape)))


# -- sums of products ----------------------------------------------------------------------------------------
def summed_product(x: GraphValue, *, axes: tuple[int, ...]) -> Any:
    """Sum a matrix product, weighted by an outer product, by rows, columns or both, for any order of its axes.

    >>> from tracegrad.ir import parse
    >>> from tracegrad.passes.simplify.simplify import simplify
    >>> text = '''graph(%0: f64[5,40,50], %1: f64[5,50,60]) {
    ...   %2 = matmul(%0, %1) : f64[5,40,60]
    ...   %3 = transpose(%2) {perm=(2, 0, 1)} : f64[60,5,40]
    ...   %4 = reduce_sum(%3) {axes=(0,)} : f64[5,40]
    ...   return %4
    ... }'''
    >>> print(simplify(parse(text)))
    graph(%0: f64[5,40,50], %1: f64[5,50,60]) {
      %2 = reduce_sum(%1) {axes=(2,)} : f64[5,50]
      %3 = reshape(%2) {shape=(5, 1, 50)} : f64[5,1,50]
      %4 = broadcast_to(%3) {shape=(5, 40, 50)} : f64[5,40,50]
      %5 = multiply(%0, %4) : f64[5,40,50]
      %6 = reduce_sum(%5) {axes=(2,)} : f64[5,40]
      return %6
    }
    """
    if x.dtype.kind != "f" or not axes:
        return None
    return _summed(x, axes, is_unshared=True)


def _summed(x: GraphValue, axes: tuple[int, ...], is_unshared: bool) -> Any:
    """The sum of `summed_product`; with `is_unshared`, the values that `x` is derived from have no other users."""
    op, last = producer(x), len(x.shape) - 1
    if op not in _WEIGHTED:
        return None
    is_unshared = is_unshared and not shared(x)
    if op is negative:
        out = _summed(operand(x), axes, is_unshared)
        return None if out is None else negative(out)
    if op is transpose and not swaps(x):
        perm = dict(x.node.params)["perm"]
        out = _summed(operand(x), tuple(sorted(perm[a] for a in axes)), is_unshared)
        rest = [perm[a] for a in range(len(perm)) if a not in axes]
        return None if out is None else transpose(out, perm=tuple(sorted(rest).index(a) for a in rest))
    if axes[0] < last - 1 or (result := _weighted(x, DEEPEST, is_unshared)) is None:
        return None
    left, right, outer = result.left, result.right, result.outer
    genuine = _genuine(outer) is not None
    # If the product is computed anyway, a sum without weights is cheap.
    weights = [weight for axis, weight in ((last - 1, outer.column), (last, outer.row)) if axis in axes]
    if all(weight is None for weight in weights) and (
        len(axes) == 2 or not (is_unshared if genuine else result.is_unshared)
    ):
        return None
    if math.prod((*left.shape[-2:], right.shape[-1])) < SMALLEST**3:
        return None
    (column, row), scale = (outer.vectors, None) if genuine else ((None, None), outer.scale)
    if axes == (last,):
        out = _scaled(_times_column(left, _times_column(right, _transposed(row))), column)
    elif axes == (last - 1,):
        out = _scaled(_row_times(_row_times(_transposed(column), left), right), row)
    else:
        out = as_loop(_row_times(_transposed(column), left), _times_column(right, _transposed(row)))
    return reshape(_scaled(out, scale), shape=tuple(n for a, n in enumerate(x.shape) if a not in axes))


_WEIGHTED = (matmul, multiply, divide, negative, transpose)


def _scaled(x: Value, factor: Value | None) -> Any:
    return x if factor is None else multiply(x, factor)


def _transposed(x: Any) -> Any:
    return None if x is None else matrix_transpose(x)


class _Weighted(NamedTuple):
    """A matrix product weighted by an outer product; with `is_unshared` it has no other users."""

    left: Any
    right: Any
    outer: _Outer
    is_unshared: bool


def _weighted(x: Any, depth: int, is_unshared: bool) -> _Weighted | None:
    """The matrix product and the weights whose elementwise product is `x`."""
    if (op := producer(x)) is None:  # also for a literal
        return None
    is_unshared = is_unshared and not shared(x)
    if op is matmul:
        return _Weighted(operand(x), operand(x, 1), _Outer(), is_unshared)
    if depth and (op is negative or swaps(x)):
        if (result := _weighted(operand(x), depth - 1, is_unshared)) is None:
            return None
        if op is transpose:
            return _Weighted(
                matrix_transpose(result.right),
                matrix_transpose(result.left),
                result.outer.transposed,
                result.is_unshared,
            )
        return result._replace(outer=_OF_ONE[op](result.outer))
    if op not in (multiply, divide) or not depth:
        return None
    for k in range(2 if op is multiply else 1):
        weight = _factors(operand(x, 1 - k), depth - 1)
        if weight is not None and (result := _weighted(operand(x, k), depth - 1, is_unshared)) is not None:
            return result._replace(outer=_combined(op, result.outer, weight))
    return None


# -- detection ---------------------------------------------------------------------------------------------
def _outer_of(x: Value) -> _Outer | None:
    """`x` as an outer product, if it is one."""
    return _genuine(_factors(x, DEEPEST))


def _genuine(outer: _Outer | None) -> _Outer | None:
    """The outer product; None for a scalar multiple of ones."""
    return None if outer is None or outer.column is outer.row is None else outer


def _factors(x: Value, depth: int) -> _Outer | None:
    """`x` as an outer product, where a number or a fill is a scaled outer product of ones."""
    if is_literal(x):
        return _Outer(scale=x)
    op = producer(x)
    if op is broadcast_to:
        return _repeated(operand(x), x.shape)
    if op is transpose and producer(operand(x)) is broadcast_to:
        source = operand(operand(x))
        whole = reshape(source, shape=_padded(source.shape, len(x.shape)))
        return _repeated(transpose(whole, perm=dict(x.node.params)["perm"]), x.shape)
    if not depth:
        return None
    if op in _OF_ONE or swaps(x):
        result = _factors(operand(x), depth - 1)
        return None if result is None else result.transposed if op is transpose else _OF_ONE[op](result)
    if op in (multiply, divide):
        first = _factors(operand(x), depth - 1)
        second = None if first is None else _factors(operand(x, 1), depth - 1)
        return None if first is None or second is None else _combined(op, first, second)
    return None


def _combined(op: Op, x: _Outer, y: _Outer) -> _Outer:
    """The elementwise product, or quotient, of two outer products."""
    return _Outer(*[_applied(op, a, b) for a, b in zip(x, y)])


def _applied(op: Op, a: Value, b: Value) -> Any:
    if b is None:
        return a
    if is_literal(b) and (a is None or is_literal(a)):
        a = 1.0 if a is None else a
        return a * b if op is multiply else float(np.divide(a, b))
    if a is None:
        return b if op is multiply else op(1.0, b)
    return op(a, b)


_OF_ONE: dict[Any, Callable[[_Outer], _Outer]] = {
    negative: lambda x: _combined(multiply, x, _Outer(scale=-1.0)),
    reciprocal: lambda x: _combined(divide, _Outer(scale=1.0), x),
    square: lambda x: _combined(multiply, x, x),
}


def _repeated(x: Any, shape: tuple[int, ...]) -> _Outer | None:
    """A broadcast vector or number as an outer product."""
    if len(shape) < 2:
        return None
    *batch, m, n = shape
    padded = _padded(x.shape, len(shape))
    for index, wanted in enumerate(((m, 1), (1, n), (1, 1))):
        if padded[-2:] == wanted:
            array = broadcast_to(reshape(x, shape=padded), shape=(*batch, *wanted))
            return _Outer(*[array if k == index else None for k in range(3)])
    return None


def _padded(shape: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    """The shape with leading unit axes, of this rank."""
    return (1,) * (ndim - len(shape)) + shape


OUTER: dict[Op, Callable[..., Any]] = {matmul: with_outer_product, reduce_sum: summed_product}
