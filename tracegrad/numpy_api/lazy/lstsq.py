"""Least squares (`np.linalg.lstsq`), by LAPACK's routine."""

from __future__ import annotations

import numpy as np

from tracegrad.errors import located
from tracegrad.numpy_api.joining import along
from tracegrad.numpy_api.linalg import MatrixError, matrices, tolerance
from tracegrad.numpy_api.operands import arrays, promoted, to_float
from tracegrad.numpy_api.registry import implements
from tracegrad.ops.elementwise.table import absolute, square, subtract
from tracegrad.ops.linalg import lstsq as least_squares
from tracegrad.ops.linalg.contraction import matmul_any
from tracegrad.ops.shape.linear import reduce_sum, reshape
from tracegrad.typing import Array, ArrayLike


@implements(np.linalg.lstsq)
def lstsq(a: ArrayLike, b: ArrayLike, rcond: object = None) -> tuple[Array, ...]:
    """`np.linalg.lstsq`: solution, residuals, rank, singular values."""
    x, y = arrays(a, b)
    x, y = promoted([matrices("lstsq", x), to_float(y)])
    m, n = x.shape[-2:]
    if len(x.shape) != 2 or len(y.shape) not in (1, 2) or y.shape[0] != m:
        raise MatrixError(located(f"lstsq: incompatible dimensions of A and B: {x.shape} and {y.shape}"))
    rtol = max(m, n) * float(np.finfo(x.dtype).eps) if rcond is None else tolerance("np.linalg.lstsq", rcond)
    solution, rank, values = solved(x, y, rtol)
    rest = subtract(matmul_any(x, solution), y)
    rest = square(absolute(rest) if rest.dtype.kind == "c" else rest)
    residuals = reduce_sum(rest, axes=(0,)) if m > n and int(rank) == n else along(rest, 0, 0, 0)
    if not residuals.shape:
        residuals = reshape(residuals, shape=(1,))
    elif not residuals.shape[0]:
        residuals = reshape(residuals, shape=(0,))
    return solution, residuals, rank, values


def solved(x: Array, y: Array, rtol: float) -> tuple[Array, ...]:
    """Solve for a matrix and one or more right-hand sides; also return the rank and the singular values."""
    sides = y if len(y.shape) > 1 else reshape(y, shape=(*y.shape, 1))
    result, rank, values = least_squares.least_squares(x, sides, rtol=rtol)
    return (result if sides is y else reshape(result, shape=result.shape[:1])), rank, values
