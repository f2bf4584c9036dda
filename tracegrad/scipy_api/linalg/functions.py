"""Functions of `scipy.linalg`: SciPy's signatures over NumPy's functions.

Solvers of symmetric matrices read one triangle, and have symmetric derivatives. Arguments about memory use or checks
(`overwrite_a`, `check_finite`, ...) have no effect. Stacks of matrices are allowed where SciPy allows them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracegrad.errors import located
from tracegrad.numpy_api import linalg as numpy_linalg
from tracegrad.numpy_api.lazy.eig import all_real
from tracegrad.numpy_api.lazy.lstsq import lstsq as numpy_lstsq
from tracegrad.numpy_api.linalg import matrices, square_matrices
from tracegrad.numpy_api.operands import (
    arrays,
    broadcast_shapes,
    constant,
    peer_of,
    promoted,
    to_dtype,
    to_float,
)
from tracegrad.numpy_api.reductions import norm as _norm
from tracegrad.numpy_api.registry import refuse
from tracegrad.numpy_api.selection import take_along_axis
from tracegrad.ops.elementwise.complex import conjugated, real
from tracegrad.ops.elementwise.table import logical_not, where
from tracegrad.ops.linalg import det as determinants
from tracegrad.ops.linalg import eig as eigen
from tracegrad.ops.linalg import factorizations, matrix_functions
from tracegrad.ops.linalg import solve as linalg
from tracegrad.ops.linalg.contraction import matmul, matrix_transpose
from tracegrad.ops.linalg.solve import band
from tracegrad.ops.shape.linear import broadcast_to, concatenate, pad, reshape, stop_gradient
from tracegrad.scipy_api.registry import shadow
from tracegrad.typing import Array, ArrayLike, Axes, Rule

_HARMLESS = frozenset(
    {
        "overwrite_a",
        "overwrite_b",
        "overwrite_ab",
        "check_finite",
        "lwork",
        "lapack_driver",
        "driver",
        "disp",
        "blocksize",
        "overwrite_a_band",
    }
)


def entry(name: str) -> Callable[[Rule], Rule]:
    """Register the decorated function under its name in `scipy.linalg`, with the arguments without effect."""

    def declare(function: Rule) -> Rule:
        def call(*args: object, **kwargs: object) -> object:
            return function(*args, **{k: x for k, x in kwargs.items() if k not in _HARMLESS})

        call.__doc__ = function.__doc__ = f"`scipy.linalg.{name}`"
        shadow(f"scipy.linalg.{name}")(call)
        return function

    return declare


def _refused(name: str, **arguments: object) -> None:
    """Refuse arguments that have another value than None or False."""
    for argument, value in arguments.items():
        if value is not None and value is not False:
            raise refuse(f"the argument {argument}= of scipy.linalg.{name}")


def system(a: ArrayLike, b: ArrayLike) -> tuple[Array, Array, bool]:
    """Return square matrices, right-hand sides as matrices of the same stack, and whether the latter were vectors."""
    x, y = arrays(a, b)
    x, y = promoted([square_matrices("solve", x), to_float(y)])
    vector = len(y.shape) == 1
    if vector:
        y = reshape(y, shape=(*y.shape, 1))
    if y.shape[-2] != x.shape[-1]:
        raise numpy_linalg.MatrixError(located(f"linalg.solve: incompatible shapes {x.shape} and {arrays(b)[0].shape}"))
    batch_shape = broadcast_shapes("solve", x.shape[:-2], y.shape[:-2])
    x, y = (v if v.shape[:-2] == batch_shape else broadcast_to(v, shape=(*batch_shape, *v.shape[-2:])) for v in (x, y))
    return x, y, vector


def without_column(y: Array, vector: bool) -> Array:
    return reshape(y, shape=y.shape[:-1]) if vector else y


def triangular(a: Array, b: Array, *, lower: bool, transposed: bool, unit: bool = False) -> Array:
    return linalg.solve_triangular(a, b, lower=lower, transposed=transposed, unit=unit)


def _flipped(a: Array, b: Array, *, lower: bool, unit: bool = False) -> Array:
    """Solve systems with the conjugate transposes of triangular matrices."""
    return triangular(conjugated(a), b, lower=lower, transposed=True, unit=unit)


def _of_factor(x: Array, y: Array, lower: bool) -> Array:
    """Solve systems whose matrices have the Cholesky factor `x`."""
    if lower:
        return _flipped(x, triangular(x, y, lower=True, transposed=False), lower=True)
    return triangular(x, _flipped(x, y, lower=False), lower=False, transposed=False)


# -- Cholesky -------------------------------------------------------------------------------------------------------
@entry("cholesky")
def cholesky(a: ArrayLike, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    return numpy_linalg.factor(square_matrices("cholesky", a), upper=not lower)


@entry("cho_factor")
def cho_factor(
    a: ArrayLike, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, bool]:
    x = square_matrices("cho_factor", a)
    n = x.shape[-1]
    result = numpy_linalg.factor(x, upper=not lower)
    import scipy

    # Before SciPy 1.18, the other triangle of the input was unchanged; since then it is zero.
    if np.lib.NumpyVersion(scipy.__version__) >= "1.18.0":
        return result, lower
    return (where(band(n, n, 0), result, x) if lower else where(band(n, n, -1), x, result)), lower


@entry("cho_solve")
def cho_solve(
    c_and_lower: tuple[ArrayLike, bool], b: ArrayLike, overwrite_b: bool = False, check_finite: bool = True
) -> Array:
    factor, lower = c_and_lower
    x, y, vector = system(factor, b)
    return without_column(_of_factor(x, y, bool(lower)), vector)


# -- systems --------------------------------------------------------------------------------------------------------
_TRIANGLES = {"upper triangular": False, "lower triangular": True}
_SYMMETRIC = ("sym", "symmetric", "her", "hermitian")
_POSITIVE = ("pos", "positive definite")


def _mirrored(x: Array, *, lower: bool) -> Array:
    """Form the symmetric matrices, not the Hermitian ones, with these triangles."""
    n = x.shape[-1]
    below, above = band(n, n, 0), logical_not(band(n, n, -1))
    return where(below if lower else above, x, matrix_transpose(x))


@entry("solve")
def solve(
    a: ArrayLike,
    b: ArrayLike,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
    assume_a: str | None = None,
    transposed: bool = False,
) -> Array:
    x, y, vector = system(a, b)
    if assume_a in _TRIANGLES:
        return without_column(triangular(x, y, lower=_TRIANGLES[assume_a], transposed=transposed), vector)
    if assume_a in _POSITIVE:
        if transposed:
            x = conjugated(x)
        return without_column(_of_factor(numpy_linalg.factor(x, upper=not lower), y, lower), vector)
    if assume_a in _SYMMETRIC:
        of_complex = x.dtype.kind == "c" and assume_a in _SYMMETRIC[:2]
        x = _mirrored(x, lower=lower) if of_complex else linalg.symmetric(x, lower=lower)
    return without_column(linalg.solve(matrix_transpose(x) if transposed else x, y), vector)


@entry("solve_triangular")
def solve_triangular(
    a: ArrayLike,
    b: ArrayLike,
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Array:
    x, y, vector = system(a, b)
    transposed = trans not in (0, "N")
    x = conjugated(x) if trans in (2, "C") else x
    return without_column(triangular(x, y, lower=bool(lower), transposed=transposed, unit=bool(unit_diagonal)), vector)


@entry("solve_banded")
def solve_banded(
    l_and_u: tuple[int, int],
    ab: ArrayLike,
    b: ArrayLike,
    overwrite_ab: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Array:
    x, y = arrays(ab, b)
    x, y = promoted([to_float(x), to_float(y)])
    vector = len(y.shape) == 1
    y = reshape(y, shape=(*y.shape, 1)) if vector else y
    return without_column(matrix_functions.solve_banded(x, y, lower=int(l_and_u[0]), upper=int(l_and_u[1])), vector)


@entry("solveh_banded")
def solveh_banded(
    ab: ArrayLike,
    b: ArrayLike,
    overwrite_ab: bool = False,
    overwrite_b: bool = False,
    lower: bool = False,
    check_finite: bool = True,
) -> Array:
    (x,) = arrays(ab)
    x = to_float(x)
    bandwidth = x.shape[-2] - 1
    args = [linalg.rows(x, k, k + 1) for k in range(bandwidth + 1)]
    # Row k of the other triangle is the same diagonal, shifted by k elements.
    if lower:
        others = [matrix_functions.moved(conjugated(args[k]), -k) for k in range(bandwidth, 0, -1)]
        whole = [*others, *args]
    else:
        others = [matrix_functions.moved(conjugated(args[bandwidth - k]), k) for k in range(1, bandwidth + 1)]
        whole = [*args, *others]
    return solve_banded((bandwidth, bandwidth), concatenate(*whole, axis=len(x.shape) - 2), b)


@entry("solve_toeplitz")
def solve_toeplitz(c_or_cr: ArrayLike | tuple[ArrayLike, ArrayLike], b: ArrayLike, check_finite: bool = True) -> Array:
    c, r = c_or_cr if isinstance(c_or_cr, tuple) else (c_or_cr, None)
    return solve(toeplitz(c, r), b)


@entry("solve_circulant")
def solve_circulant(
    c: ArrayLike,
    b: ArrayLike,
    singular: str = "raise",
    tol: float | None = None,
    caxis: int = -1,
    baxis: int = 0,
    outaxis: int = 0,
) -> Array:
    if singular != "raise" or (caxis, baxis, outaxis) != (-1, 0, 0):
        raise refuse("scipy.linalg.solve_circulant with singular=, or along other axes")
    return solve(circulant(c), b)


# -- other factorizations -------------------------------------------------------------------------------------------
@entry("qr")
def qr(
    a: ArrayLike,
    overwrite_a: bool = False,
    lwork: int | None = None,
    mode: str = "full",
    pivoting: bool = False,
    check_finite: bool = True,
) -> tuple[Array, ...]:
    x = matrices("qr", a)
    if mode not in ("full", "r", "economic"):
        raise refuse(f"scipy.linalg.qr with mode={mode!r}")
    if not pivoting:
        q, r = _orthogonal(x, mode)
        return (r,) if mode == "r" else (q, r)
    order: Any = matrix_functions.column_order(stop_gradient(x))
    q, r = _orthogonal(take_along_axis(x, order[..., None, :], -1), mode)
    order = to_dtype(order, np.dtype(np.int32))  # LAPACK's integers
    return (r, order) if mode == "r" else (q, r, order)


def _orthogonal(x: Array, mode: str) -> tuple[Array, Array]:
    q, r = numpy_linalg.qr(x, "reduced" if mode == "economic" else "complete")
    return q, r


@entry("svd")
def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: bool = True,
    overwrite_a: bool = False,
    check_finite: bool = True,
) -> Array | tuple[Array, ...]:
    result = numpy_linalg.svd(a, full_matrices=full_matrices, compute_uv=compute_uv)
    return tuple(result) if compute_uv else result


@entry("svdvals")
def svdvals(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    return numpy_linalg.svdvals(a)


@entry("eigh")
def eigh(
    a: ArrayLike,
    b: ArrayLike | None = None,
    *,
    lower: bool = True,
    eigvals_only: bool = False,
    type: int = 1,
    subset_by_index: Sequence[int] | None = None,
    subset_by_value: Sequence[float] | None = None,
) -> Any:
    _refused("eigh", subset_by_value=subset_by_value)
    result = _eigh(square_matrices("eigh", a), b, bool(lower), eigvals_only, type)
    if subset_by_index is None:
        return result
    first, last = (int(k) for k in subset_by_index)
    chosen = (..., slice(first, last + 1))
    return tuple([v[chosen] for v in result]) if isinstance(result, tuple) else result[chosen]


def _eigh(x: Array, b: ArrayLike | None, lower: bool, eigvals_only: bool, kind: int) -> Array | tuple[Array, ...]:
    """Solve symmetric eigenproblems of matrices, or generalized ones.

    Generalized problems, with `b`, are A v = w B v (`kind` 1), A B v = w v (2), B A v = w v (3).
    """
    if b is None:
        x = numpy_linalg.of_triangle(x, lower=lower)
        return factorizations.eigvalsh(x) if eigvals_only else factorizations.eigh(x, lower=True)
    x, y, _ = system(x, square_matrices("eigh", b))
    factor = numpy_linalg.factor(y, upper=not lower)
    factor, x = factor if lower else linalg.adjoint(factor), numpy_linalg.of_triangle(x, lower=lower)
    if kind == 1:
        half = triangular(factor, x, lower=True, transposed=False)
        reduced = triangular(factor, linalg.adjoint(half), lower=True, transposed=False)
    else:
        reduced = matmul(linalg.adjoint(factor), matmul(x, factor))
    if eigvals_only:
        return factorizations.eigvalsh(reduced)
    w, v = factorizations.eigh(reduced, lower=True)
    return w, (matmul(factor, v) if kind == 3 else _flipped(factor, v, lower=True))


@entry("eigvalsh")
def eigvalsh(a: ArrayLike, b: ArrayLike | None = None, *, lower: bool = True, **others: Any) -> Array:
    result: Array = eigh(a, b, lower=lower, eigvals_only=True, **others)
    return result


@entry("eig")
def eig(
    a: ArrayLike, b: ArrayLike | None = None, left: bool = False, right: bool = True, homogeneous_eigvals: bool = False
) -> Array | tuple[Array, Array]:
    _refused("eig", b=b, left=left, homogeneous_eigvals=homogeneous_eigvals)
    x = square_matrices("eig", a)
    w, v = eigen.eig(x)
    return (w, real(v) if all_real(x, w) else v) if right else w


@entry("eigvals")
def eigvals(a: ArrayLike, b: ArrayLike | None = None, homogeneous_eigvals: bool = False) -> Array:
    _refused("eigvals", b=b, homogeneous_eigvals=homogeneous_eigvals)
    return eigen.eigvals(square_matrices("eigvals", a))


# -- functions of matrices ------------------------------------------------------------------------------------------
@entry("expm")
def expm(A: ArrayLike) -> Array:
    return linalg.matrix_exp(square_matrices("expm", A))


@entry("logm")
def logm(A: ArrayLike) -> Array:
    return matrix_functions.logm(square_matrices("logm", A), checked=False)


@entry("sqrtm")
def sqrtm(A: ArrayLike) -> Array:
    return matrix_functions.sqrtm(square_matrices("sqrtm", A))


@entry("inv")
def inv(
    a: ArrayLike,
    overwrite_a: bool = False,
    check_finite: bool = True,
    *,
    assume_a: str | None = None,
    lower: bool = False,
) -> Array:
    x = square_matrices("inv", a)
    if assume_a in _TRIANGLES:
        eye = broadcast_to(constant(np.eye(x.shape[-1], dtype=x.dtype), peer_of(x)), shape=x.shape)
        return triangular(x, eye, lower=_TRIANGLES[assume_a], transposed=False)
    return linalg.inv(linalg.symmetric(x, lower=lower) if assume_a in (*_SYMMETRIC, *_POSITIVE) else x)


@entry("det")
def det(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    return determinants.det(square_matrices("det", a))


@entry("pinv")
def pinv(
    a: ArrayLike, *, atol: float | None = None, rtol: float | None = None, return_rank: bool = False
) -> Array | tuple[Array, Array]:
    x = matrices("pinv", a)
    atol = 0.0 if atol is None else float(atol)
    rtol = max(x.shape[-2:]) * float(np.finfo(x.dtype).eps) if rtol is None else float(rtol)
    result = numpy_linalg.pseudoinverse(x, atol, rtol)
    return (result, numpy_linalg.rank_of(x, atol, rtol)) if return_rank else result


@entry("pinvh")
def pinvh(
    a: ArrayLike, atol: float | None = None, rtol: float | None = None, lower: bool = True, return_rank: bool = False
) -> Array | tuple[Array, Array]:
    x = numpy_linalg.of_triangle(square_matrices("pinvh", a), lower=bool(lower))
    return pinv(x, atol=atol, rtol=rtol, return_rank=return_rank)


@entry("null_space")
def null_space(A: ArrayLike, rcond: float | None = None) -> Array:
    x = matrices("null_space", A)
    rtol = max(x.shape[-2:]) * float(np.finfo(x.dtype).eps) if rcond is None else float(rcond)
    ranks = np.reshape(numpy_linalg.rank_of(x, 0.0, rtol), (-1,))
    rank = int(ranks[0])
    if ranks.shape[0] > 1 and not bool(np.all(ranks == rank)):
        text = "scipy.linalg.null_space of matrices of several ranks has results of several shapes; call it for each"
        raise ValueError(located(text))
    return matrix_functions.null_basis(x, rank=rank)


@entry("lstsq")
def lstsq(a: ArrayLike, b: ArrayLike, cond: float | None = None, **others: object) -> tuple[object, ...]:
    solution, residuals, rank, values = numpy_lstsq(a, b, cond)
    if len(solution.shape) == 1 and residuals.shape == (1,):
        residuals = reshape(residuals, shape=())
    return solution, residuals, rank, values


@entry("norm")
def norm(
    a: ArrayLike, ord: float | str | None = None, axis: Axes = None, keepdims: bool = False, check_finite: bool = True
) -> Array:
    return _norm(a, ord, axis, keepdims)


# -- matrices of a form ---------------------------------------------------------------------------------------------
@entry("block_diag")
def block_diag(*arrs: ArrayLike) -> Array:
    blocks = promoted(arrays(*arrs))
    blocks = [reshape(x, shape=(1,) * (2 - len(x.shape)) + x.shape) if len(x.shape) < 2 else x for x in blocks]
    if any(len(x.shape) != 2 for x in blocks):
        raise refuse("scipy.linalg.block_diag of stacks of matrices")
    width, before, padded = sum(x.shape[1] for x in blocks), 0, []
    for x in blocks:
        after = width - before - x.shape[1]
        padded.append(pad(x, low=(0, before), high=(0, after), interior=(0, 0), value=0))
        before += x.shape[1]
    return padded[0] if len(padded) == 1 else concatenate(*padded, axis=0)


def _vectors(name: str, *xs: ArrayLike) -> list[Array]:
    result = promoted(arrays(*xs))
    if any(len(x.shape) > 1 for x in result):
        raise refuse(f"scipy.linalg.{name} of arrays with several axes", "call it for each vector")
    return [x if x.shape else reshape(x, shape=(1,)) for x in result]


@entry("toeplitz")
def toeplitz(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    column, row = _vectors("toeplitz", c, c if r is None else r)
    row = conjugated(row) if r is None else row
    m, n = column.shape[0], row.shape[0]
    values = np.concatenate([column[::-1], row[1:]])
    return np.take(values, np.arange(m - 1, -1, -1)[:, None] + np.arange(n))


@entry("matmul_toeplitz")
def matmul_toeplitz(
    c_or_cr: ArrayLike | tuple[ArrayLike, ArrayLike],
    x: ArrayLike,
    check_finite: bool = False,
    workers: int | None = None,
) -> Array:
    c, r = c_or_cr if isinstance(c_or_cr, tuple) else (c_or_cr, None)
    result: Array = np.matmul(toeplitz(c, r), arrays(x, c)[0])
    return result


@entry("circulant")
def circulant(c: ArrayLike) -> Array:
    (column,) = _vectors("circulant", c)
    n = column.shape[0]
    return np.take(column, (np.arange(n)[:, None] - np.arange(n)) % n)


@entry("hankel")
def hankel(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    column, row = _vectors("hankel", c, np.zeros(arrays(c)[0].shape) if r is None else r)
    m, n = column.shape[0], row.shape[0]
    return np.take(np.concatenate([column, row[1:]]), np.arange(m)[:, None] + np.arange(n))
