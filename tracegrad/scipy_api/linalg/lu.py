"""LU factorizations of square, tall and wide matrices, and the systems that they solve."""

from __future__ import annotations

import numpy as np

from tracegrad.numpy_api.linalg import matrices, square_matrices
from tracegrad.numpy_api.operands import array, constant, peer_of, to_dtype
from tracegrad.ops.elementwise.complex import conjugated
from tracegrad.ops.elementwise.table import where
from tracegrad.ops.linalg import matrix_functions
from tracegrad.ops.linalg.contraction import matmul, matrix_transpose
from tracegrad.ops.linalg.solve import band
from tracegrad.ops.shape.linear import broadcast_to, concatenate, stop_gradient, zeros_like
from tracegrad.scipy_api.linalg.functions import entry, system, triangular, without_column
from tracegrad.typing import Array, ArrayLike

__all__ = ["lu", "lu_factor", "lu_of_any_shape", "lu_solve"]


def _upper_of(x: Array) -> Array:
    return where(band(x.shape[-2], x.shape[-1], -1), 0.0, x)


def _unit_lower_of(x: Array) -> Array:
    m, n = x.shape[-2:]
    return where(band(m, n, -1), x, where(band(m, n, 0), 1.0, zeros_like(x)))


@entry("lu_factor")
def lu_factor(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Array, Array]:
    packed, pivots = matrix_functions.lu_packed(square_matrices("lu_factor", a))
    return packed, pivots


@entry("lu_solve")
def lu_solve(
    lu_and_piv: tuple[ArrayLike, ArrayLike],
    b: ArrayLike,
    trans: int | str = 0,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Array:
    packed, pivots = lu_and_piv
    x, y, vector = system(packed, b)
    exchange = matrix_functions.exchanging(array(pivots, peer_of(x, y)), x)
    if trans in (0, "N"):
        half = triangular(x, matmul(exchange, y), lower=True, transposed=False, unit=True)
        return without_column(triangular(x, half, lower=False, transposed=False), vector)
    x = conjugated(x) if trans in (2, "C") else x
    half = triangular(x, y, lower=False, transposed=True)
    half = triangular(x, half, lower=True, transposed=True, unit=True)
    return without_column(matmul(matrix_transpose(exchange), half), vector)


@entry("lu")
def lu(
    a: ArrayLike, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True, p_indices: bool = False
) -> tuple[Array, ...]:
    x = matrices("lu", a)
    pivots, lower, upper = lu_of_any_shape(x)
    exchange = matrix_functions.exchanging(pivots, np.real(x) if x.dtype.kind == "c" else x)
    if p_indices and not permute_l:  # SciPy returns the inverse of the row order
        inverse = np.argsort(matrix_functions.permutation(pivots))
        return to_dtype(inverse, np.dtype(np.int32)), lower, upper
    back = matrix_transpose(exchange)
    return (matmul(to_dtype(back, x.dtype), lower), upper) if permute_l else (back, lower, upper)


def lu_of_any_shape(x: Array) -> tuple[Array, Array, Array]:
    """Return the row exchanges, L and U of matrices that may be tall or wide."""
    m, n = x.shape[-2:]
    if m <= n:
        packed, pivots = matrix_functions.lu_packed(x[..., :m])
        lower, upper = _unit_lower_of(packed), _upper_of(packed)
        if m < n:
            right = matmul(matrix_functions.exchanging(pivots, x), x[..., m:])
            right = triangular(lower, right, lower=True, transposed=False, unit=True)
            upper = concatenate(upper, right, axis=len(x.shape) - 1)
        return pivots, lower, upper
    # Unit columns at the end make the matrix square. They change neither the pivots of the first columns nor, with the
    # rows in the order of the pivots, the factors of the first columns.
    ones = broadcast_to(constant(np.eye(m, m - n, -n, x.dtype), peer_of(x)), shape=(*x.shape[:-1], m - n))
    _, pivots = matrix_functions.lu_packed(stop_gradient(concatenate(x, ones, axis=len(x.shape) - 1)))
    rest = broadcast_to(constant(np.arange(n, m), peer_of(x)), shape=(*x.shape[:-2], m - n))
    pivots = concatenate(pivots[..., :n], rest, axis=len(x.shape) - 2)
    ordered = concatenate(matmul(matrix_functions.exchanging(pivots, x), x), ones, axis=len(x.shape) - 1)
    packed, _ = matrix_functions.lu_packed(ordered)
    return pivots, _unit_lower_of(packed)[..., :n], _upper_of(packed)[..., :n, :n]
