"""Divide by differences of eigenvalues or singular values, some of which may be equal.

The rotation of vectors against each other is such a quotient. It has no correct digits if the values differ only by
rounding. A function of vectors alone (`vectors_only`) that is invariant under rotations of the vectors of equal values
has its derivative there. A function of values and vectors has nan, because the quotient would need both derivatives.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.ops.elementwise.table import (
    absolute,
    add,
    divide,
    equal,
    greater,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    multiply,
    not_equal,
    subtract,
    where,
)
from tracegrad.ops.linalg.solve import adjoint, band
from tracegrad.ops.reduce.reductions import reduce_max
from tracegrad.ops.shape.linear import broadcast_to, reshape, stop_gradient, unreduce
from tracegrad.typing import Array

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand


def as_row(v: Array) -> Array:
    return reshape(v, shape=(*v.shape[:-1], 1, v.shape[-1]))


def as_column(v: Array) -> Array:
    return reshape(v, shape=(*v.shape, 1))


def skew(x: Array) -> Array:
    return multiply(subtract(x, adjoint(x)), 0.5)


def with_values(ct: Array, values: Array) -> Array:
    """A cotangent or tangent of the values, marked as a function of them: its products are not functions of vectors
    alone."""
    return add(ct, multiply(values, 0.0))


def is_near(distance: Array, values: Array) -> Array:
    """Whether a difference of values, or a value itself, is only rounding error relative to the largest value."""
    last = (len(values.shape) - 1,)
    largest = unreduce(reduce_max(absolute(stop_gradient(values)), axes=last), values.shape, last)
    bound = multiply(as_row(largest), 4 * math.sqrt(values.shape[-1]) * _eps(values))
    return less_equal(absolute(distance), broadcast_to(bound, shape=distance.shape))


def _eps(x: Array) -> float:
    return float(np.finfo(x.dtype).eps)


def _rounding(size: Any) -> Array:
    """A bound of the rounding error for each column of matrix products, in a row."""
    axes = (len(size.shape) - 2,)
    return multiply(reduce_max(absolute(stop_gradient(size)), axes=axes), 16 * size.shape[-1] * _eps(size))


def _quotient(none: Array, x: Array, y: Array) -> Array:
    return where(none, math.nan, divide(x, where(none, 1.0, y)))


def by_values(x: Array, y: Array, values: Array, size: Operand | None, vectors_only: bool) -> Array:
    """x / y, for y computed from values; nan where y is 0, and if `vectors_only`, where it is near 0. It is 0 where x
    is only the rounding error of products in columns of `size`."""
    if 0 in x.shape:
        return x
    if not vectors_only:
        return _quotient(equal(y, 0.0), x, y)
    near = is_near(y, values)
    bound = broadcast_to(as_row(_rounding(size)), shape=x.shape)
    return where(logical_and(near, less_equal(absolute(x), bound)), 0.0, _quotient(near, x, y))


def _on_diagonal(n: int) -> Array:
    """The mask of the diagonal of matrices of n columns."""
    return logical_and(band(n, n, 0), logical_not(band(n, n, -1)))


def _off_diagonal(x: Array) -> Array:
    """The off-diagonal elements, with 0 on the diagonal."""
    return where(_on_diagonal(x.shape[-1]), 0.0, x)


def by_sums(x: Array, values: Array, size: Operand | None, vectors_only: bool) -> Array:
    """x divided by the sums of the values of its columns and rows, 0 on the diagonal."""
    return _off_diagonal(by_values(x, add(as_row(values), as_column(values)), values, size, vectors_only))


def by_differences(x: Array, values: Array, size: Operand | None, vectors_only: bool) -> Array:
    """x divided by the differences of the values of its columns and rows, 0 on the diagonal.

    x is a difference of products in `size`, which has digits if these are as small as the values, or not at all (None).
    """
    if 0 in x.shape:
        return x
    differences = subtract(as_row(values), as_column(values))
    none, near = equal(differences, 0.0), is_near(differences, values)
    if size is None:
        return _off_diagonal(_quotient(logical_or(none, logical_and(near, not_equal(x, 0.0))), x, differences))
    rounding = _rounding(size)
    bound = add(as_row(rounding), as_column(rounding))
    nothing = logical_and(near, less_equal(absolute(x), bound))
    if vectors_only:
        return _off_diagonal(where(nothing, 0.0, _quotient(near, x, differences)))
    # For near values the quotient is nan if x has no digits, or exceeds the rounding error of every column.
    last = (len(rounding.shape) - 1,)
    max_rounding = unreduce(reduce_max(rounding, axes=last), rounding.shape, last)
    lost = logical_or(logical_and(nothing, greater(bound, 0.0)), greater(absolute(x), as_row(max_rounding)))
    return _off_diagonal(_quotient(logical_or(none, logical_and(near, lost)), x, differences))


def of_full_rank(r: Array) -> Array:
    """A triangle with nan for diagonal elements that are only rounding error relative to their column."""
    if 0 in r.shape:
        return r
    last, rounding = (len(r.shape) - 2,), 4 * math.sqrt(r.shape[-1]) * _eps(r)
    bound = unreduce(multiply(reduce_max(absolute(stop_gradient(r)), axes=last), rounding), r.shape, last)
    return where(logical_and(_on_diagonal(r.shape[-1]), less_equal(absolute(r), bound)), math.nan, r)
