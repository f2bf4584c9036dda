"""Equations with triangular matrices: `linalg.solve_triangular`, and those with Cholesky factors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.numpy_api.linalg import matrices, square_matrices
from tracegrad.numpy_api.operands import arrays, constant, peer_of, promoted
from tracegrad.ops.core.op import named, one_node
from tracegrad.ops.linalg import solve as linalg
from tracegrad.ops.linalg.contraction import matrix_transpose
from tracegrad.ops.shape.linear import broadcast_to
from tracegrad.torch.functions.core.dims import copied, one, size_error
from tracegrad.torch.functions.core.operands import in_floats
from tracegrad.torch.functions.core.promotion import require_one_dtype
from tracegrad.torch.functions.core.registry import function
from tracegrad.torch.functions.core.return_types import return_type
from tracegrad.torch.functions.math.complex import conj
from tracegrad.typing import Array, ArrayLike

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand


def solve_triangular(
    A: ArrayLike, B: ArrayLike, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Array:
    """Solve A X = B, or X A = B without `left`, for a triangular A.

    Only this triangle of A is read, without its diagonal if `unitriangular`. Zeros on the diagonal give inf or nan.

    >>> solve_triangular(np.array([[2.0, 9.0], [1.0, 4.0]]), np.array([[2.0], [9.0]]), upper=False).tolist()
    [[1.0], [2.0]]
    """
    x, y = promoted(in_floats(arrays(A, B)))
    if len(y.shape) < 2:
        raise size_error("linalg.solve_triangular: The input tensor B must have at least 2 dimensions.")
    x = square_matrices("solve_triangular", x)
    if x.shape[-1] != y.shape[-2 if left else -1]:
        shapes = f"{x.shape[-2]}x{x.shape[-1]} and {y.shape[-2]}x{y.shape[-1]}"
        equation = "AX = B" if left else "XA = B"
        raise size_error(
            f"linalg.solve_triangular: Incompatible shapes of A and B for the equation {equation} ({shapes})"
        )
    return _solve_triangular(x, y, upper=upper, left=left, unit=unitriangular)


@one_node("LinalgSolveTriangularBackward0")
def _solve_triangular(x: Array, y: Array, *, upper: bool, left: bool, unit: bool) -> Array:
    y = y if left else matrix_transpose(y)
    batch_shape = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    x, y = (v if v.shape[:-2] == batch_shape else broadcast_to(v, shape=(*batch_shape, *v.shape[-2:])) for v in (x, y))
    out = linalg.solve_triangular(x, y, lower=not upper, transposed=not left, unit=unit)
    return out if left else matrix_transpose(out)


@function("cholesky_solve")
def cholesky_solve(B: Operand, L: ArrayLike, upper: bool = False) -> Array:
    """Solve A X = B for the Cholesky factor `L` of A.

    >>> cholesky_solve(np.array([[4.0]]), np.array([[2.0]])).tolist()
    [[1.0]]
    """
    require_one_dtype(
        B, L, "Expected b and A to have the same dtype, but found b of type {A} and A of type {B} instead."
    )
    x, y = promoted(in_floats(arrays(L, B)))
    return _cholesky_solve(matrices("cholesky_solve", y), square_matrices("cholesky_solve", x), upper=upper)


@one_node("CholeskySolveBackward0")
def _cholesky_solve(y: Array, x: Array, *, upper: bool) -> Array:
    x = conj(matrix_transpose(x)) if upper else x
    batch_shape = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    x, y = (v if v.shape[:-2] == batch_shape else broadcast_to(v, shape=(*batch_shape, *v.shape[-2:])) for v in (x, y))
    half = linalg.solve_triangular(x, y, lower=True, transposed=False, unit=False)
    return linalg.solve_triangular(conj(x), half, lower=True, transposed=True, unit=False)


@function("cholesky_inverse")
def cholesky_inverse(L: Array, upper: bool = False) -> Array:
    """Return the inverse of A from its Cholesky factor `L`.

    >>> cholesky_inverse(np.array([[2.0]])).tolist()
    [[0.25]]
    """
    x = square_matrices("cholesky_inverse", one(L))
    unit = constant(np.eye(x.shape[-1], dtype=x.dtype), peer_of(x))
    return named("CholeskyInverseBackward0", _cholesky_solve(unit, x, upper=upper))


@function("triangular_solve")
def triangular_solve(
    b: ArrayLike, A: ArrayLike, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Any:
    """Solve A X = b for a triangular A, or its transpose; return the named tuple of X and A.

    `linalg.solve_triangular` is PyTorch's newer function for it.

    >>> triangular_solve(np.array([[9.0], [8.0]]), np.array([[1.0, 1.0], [0.0, 4.0]])).solution.tolist()
    [[7.0], [2.0]]
    """
    x = one(A)
    solution = solve_triangular(
        matrix_transpose(x) if transpose else x, b, upper=upper != transpose, unitriangular=unitriangular
    )
    return return_type("triangular_solve", "solution", "cloned_coefficient")(solution, copied(x))
