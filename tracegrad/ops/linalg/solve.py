"""Linear algebra on stacks of matrices: systems, inverses, triangles, determinants, and the exponential.

LAPACK computes, through NumPy and SciPy. Compiled code calls it between kernels, and without Python for the ops of
`codegen.libs.linear_algebra`. Operands are floating or complex arrays whose last two axes are the rows and columns,
with equal leading axes. A singular matrix raises NumPy's LinAlgError.

Rules declared `AS_WRITTEN` hold for real and complex matrices: they use the adjoint, which is the transpose of a real
matrix.

The vjp rules are from M. Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
differentiation" (2008), unless another source is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.errors import DTypeError, ShapeError
from tracegrad.ops.core.op import AS_WRITTEN, HOLOMORPHIC, Op, ResultAvals, Sample, multi_result, primitive
from tracegrad.ops.core.samples import uniform
from tracegrad.ops.elementwise.complex import complex_, conj, imag, real, real_of
from tracegrad.ops.elementwise.table import (
    add,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    multiply,
    negative,
    subtract,
    where,
)
from tracegrad.ops.linalg.contraction import matmul, matrix_transpose
from tracegrad.ops.shape.batching import repeated, to_axis
from tracegrad.ops.shape.linear import arange, concatenate, reshape, slice, unreduce, zeros_like
from tracegrad.typing import Array, NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator


# -- what the rules of this page and of `factorizations` share ------------------------------------------
def matrices(name: str, x: Aval) -> Aval:
    """`x`, which must be a stack of matrices of real or complex numbers."""
    if x.ndim < 2:
        raise ShapeError(f"{name}: the operand must have at least 2 axes, got {x}")
    if x.dtype.kind not in "fc":
        raise DTypeError(f"{name}: the operand must be of a floating dtype, got {x}")
    return x


def square(name: str, x: Aval) -> Aval:
    """`x`, which must be a stack of square matrices."""
    matrices(name, x)
    if x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"{name}: A must be batches of square matrices, got {x}")
    return x


def adjoint(x: Array) -> Array:
    """The conjugate transpose of matrices."""
    flipped = matrix_transpose(x)
    return conj(flipped) if x.dtype.kind == "c" else flipped


def rows(x: Array, start: int, stop: int) -> Array:
    """Rows `start` to `stop` of every matrix."""
    batch_shape, n = x.shape[:-2], x.shape[-1]
    return slice(x, start=(*(0,) * len(batch_shape), start, 0), stop=(*batch_shape, stop, n), step=(1,) * len(x.shape))


def columns(x: Array, start: int, stop: int) -> Array:
    """Elements `start` to `stop` along the last axis: columns of matrices."""
    batch_shape = x.shape[:-1]
    return slice(x, start=(*(0,) * len(batch_shape), start), stop=(*batch_shape, stop), step=(1,) * len(x.shape))


def band(n: int, m: int, k: int) -> Array:
    """The mask of a matrix of `n` rows and `m` columns that is true where column <= row + k."""
    down = reshape(arange(start=k, step=1, length=n, dtype="int64"), shape=(n, 1))
    return less_equal(reshape(arange(start=0, step=1, length=m, dtype="int64"), shape=(1, m)), down)


def well_conditioned(shape: tuple[int, ...], seed: int = 0, dtype: str = "float64") -> NDArray:
    """A sample of well-conditioned square matrices with simple, well separated singular values."""
    n = shape[-1]
    result: NDArray = uniform(shape, -0.5, 0.5, seed, dtype) + np.diag(1.5 * np.arange(n) + 2).astype(dtype)
    return result


def square_samples() -> Iterator[Sample]:
    yield (well_conditioned((3, 3)),), {}
    yield (well_conditioned((2, 4, 4), dtype="float32"),), {}
    yield (well_conditioned((10, 10)),), {}
    yield (well_conditioned((1, 1)),), {}
    yield (uniform((0, 2, 2)),), {}


# -- symmetric -------------------------------------------------------------------------------------------
@primitive(on_complex=AS_WRITTEN)
def symmetric(x: NDArray, *, lower: bool) -> NDArray:
    """The symmetric matrix with the lower (or the upper) triangle of `x`; the other one is not read. For complex
    numbers it is Hermitian: LAPACK ignores imaginary parts on the diagonal.

    Its derivative is that for symmetric `x`, in which both triangles are one: the symmetric part of the cotangent.
    Functions of symmetric matrices therefore have symmetric gradients, as in PyTorch, whichever triangle LAPACK reads.
    """
    n = x.shape[-1]
    saved = np.tri(n, dtype=bool) if lower else np.tri(n, dtype=bool).T
    whole = np.where(saved, x, np.swapaxes(x, -1, -2).conj())
    if x.dtype.kind == "c":
        diagonal = np.arange(n)
        whole[..., diagonal, diagonal] = whole[..., diagonal, diagonal].real
    return whole


@symmetric.def_aval
def _(x: Aval, *, lower: bool) -> Aval:
    return square("symmetric", x)


@symmetric.def_decompose
def _of_triangle(x: Array, *, lower: bool) -> Array:
    n = x.shape[-1]
    triangle, other = (x, adjoint(x)) if lower else (adjoint(x), x)
    if x.dtype.kind != "c":
        return where(band(n, n, 0), triangle, other)
    return where(band(n, n, -1), triangle, where(band(n, n, 0), complex_(real(x), 0.0), other))


@symmetric.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, *, lower: bool) -> Array:
    return multiply(add(ct, adjoint(ct)), 0.5)


@symmetric.def_samples
def _triangle_samples() -> Iterator[Sample]:
    yield (uniform((3, 3)),), {"lower": True}
    yield (uniform((2, 12, 12), dtype="float32"),), {"lower": False}
    yield (uniform((0, 0)),), {"lower": True}


@primitive(on_complex=AS_WRITTEN)
def mirrored(x: NDArray, *, lower: bool) -> Array:
    """As `symmetric`, but differentiated as a function of all elements of `x`: unread elements have the derivative 0,
    and an element of the read triangle also has the derivative of its mirror image."""
    result: Array = symmetric.impl(x, lower=lower)
    return result


@mirrored.def_aval
def _(x: Aval, *, lower: bool) -> Aval:
    return square("mirrored", x)


mirrored.def_decompose(_of_triangle)


@mirrored.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, *, lower: bool) -> Array:
    n = x.shape[-1]
    read, diagonal = band(n, n, -1), logical_and(band(n, n, 0), logical_not(band(n, n, -1)))
    both = add(ct, adjoint(ct))
    within = read if lower else logical_not(logical_or(read, diagonal))
    return where(diagonal, multiply(both, 0.5), where(within, both, 0.0))


mirrored.def_samples(_triangle_samples)


# -- inv and solve ---------------------------------------------------------------------------------------
@primitive(on_complex=HOLOMORPHIC)
def inv(x: NDArray) -> NDArray:
    """The inverse matrix."""
    return np.linalg.inv(x)


@inv.def_aval
def _(x: Aval) -> Aval:
    return square("inv", x)


@inv.def_vjp("x")
def _(ct: Array, ans: Array, x: Array) -> Array:
    flipped = matrix_transpose(ans)
    return negative(matmul(flipped, matmul(ct, flipped)))


inv.def_samples(square_samples)


@primitive(on_complex=HOLOMORPHIC)
def solve(a: NDArray, b: NDArray) -> NDArray:
    """The matrix y with a @ y = b."""
    return np.linalg.solve(a, b)


@solve.def_aval
def _(a: Aval, b: Aval) -> Aval:
    return _right_side("solve", a, b)


def _right_side(name: str, a: Aval, b: Aval) -> Aval:
    square(name, a)
    if b.ndim != a.ndim or b.shape[:-1] != a.shape[:-1] or a.dtype != b.dtype:
        raise ShapeError(f"{name}: incompatible A and B for the equation AX = B: {a} and {b}")
    return b


@solve.def_vjp("a")
def _(ct: Array, ans: Array, a: Array, b: Array) -> Array:
    return negative(matmul(solve(matrix_transpose(a), ct), matrix_transpose(ans)))


@solve.def_vjp("b")
def _(ct: Array, ans: Array, a: Array, b: Array) -> Array:
    return solve(matrix_transpose(a), ct)


@solve.def_jvp
def _(tangents: Any, ans: Array, a: Array, b: Array) -> Array:
    t_a, t_b = tangents
    return solve(a, t_b if t_a is None else _minus(t_b, matmul(t_a, ans)))


def _minus(x: Array, y: Array) -> Array:
    """x - y, where `x` may be None for 0."""
    return negative(y) if x is None else subtract(x, y)


@solve.def_batch
def _(size: int, batched: tuple[bool, ...], a: Array, b: Array) -> Any:
    return of_right_sides(solve, size, batched, a, b)


def of_right_sides(op: Op, size: int, batched: tuple[bool, ...], a: Array, b: Array, **params: object) -> Any:
    """`op(a, b)` for a batch; if `a` is common to all examples, the right sides are concatenated."""
    if batched[0]:
        return op(*repeated(size, batched, (a, b)), **params)
    last = len(b.shape) - 2
    b = to_axis(b, 0, last)
    *batch_shape, rows, _, columns = b.shape
    out = op(a, reshape(b, shape=(*batch_shape, rows, size * columns)), **params)
    return to_axis(reshape(out, shape=b.shape), last, 0)


@solve.def_samples
def _() -> Iterator[Sample]:
    yield (well_conditioned((3, 3)), uniform((3, 2))), {}
    yield (well_conditioned((2, 9, 9), dtype="float32"), uniform((2, 9, 1), dtype="float32")), {}
    yield (well_conditioned((1, 1)), uniform((1, 1))), {}
    yield (uniform((0, 0)), uniform((0, 3))), {}
    yield (well_conditioned((2, 2)), uniform((2, 0))), {}


# -- factors that several systems share ----------------------------------------------------------------------
# The pass `factor_once` makes `lu` and `lu_solve`, in graphs in which all derivatives have been taken.
@multi_result(on_complex=AS_WRITTEN)
def lu(a: NDArray) -> tuple[NDArray, ...]:
    """The factors of P @ a = L @ U, transposed, in one matrix each: L has ones on its diagonal. Row i was exchanged
    with row `pivots[i]`, counted from one as in LAPACK. U of a singular matrix has a zero on its diagonal."""
    from scipy.linalg.lapack import cgetrf, dgetrf, sgetrf, zgetrf

    routine = {"f": sgetrf, "d": dgetrf, "F": cgetrf, "D": zgetrf}[a.dtype.char]
    factors, pivots = np.empty(a.shape, a.dtype), np.empty(a.shape[:-1], np.int32)
    for i in np.ndindex(a.shape[:-2] if a.size else (0,)):
        result, pivot_rows, _ = routine(a[i])
        factors[i], pivots[i] = result.T, pivot_rows + 1
    return factors, pivots


@lu.def_aval
def _(a: Aval) -> ResultAvals:
    return ResultAvals((square("lu", a), Aval(a.shape[:-1], np.dtype("int32"))))


lu.def_samples(square_samples)


@primitive(on_complex=AS_WRITTEN)
def lu_solve(factors: NDArray, pivots: NDArray, b: NDArray, *, transposed: bool) -> NDArray:
    """The matrix y with a @ y = b (a.T @ y = b if `transposed`), given `lu(a)`."""
    from scipy.linalg.lapack import cgetrs, dgetrs, sgetrs, zgetrs

    if np.any(np.diagonal(factors, axis1=-2, axis2=-1) == 0):
        raise np.linalg.LinAlgError("Singular matrix")
    routine, out = {"f": sgetrs, "d": dgetrs, "F": cgetrs, "D": zgetrs}[b.dtype.char], np.empty(b.shape, b.dtype)
    for i in np.ndindex(b.shape[:-2] if b.size else (0,)):
        out[i], _ = routine(factors[i].T, pivots[i] - 1, b[i], trans=int(transposed))
    return out


@lu_solve.def_aval
def _(factors: Aval, pivots: Aval, b: Aval, *, transposed: bool) -> Aval:
    if pivots != Aval(factors.shape[:-1], np.dtype("int32")):
        raise ShapeError(f"lu_solve: {pivots} are no pivots of {factors}")
    return _right_side("lu_solve", factors, b)


@lu_solve.def_samples
def _() -> Iterator[Sample]:
    for a, transposed in ((well_conditioned((3, 3)), False), (well_conditioned((2, 9, 9)), True)):
        yield (*lu.impl(a), uniform((*a.shape[:-1], 2))), {"transposed": transposed}
    a = well_conditioned((12, 12), dtype="float32")
    yield (*lu.impl(a), uniform((12, 1), dtype="float32")), {"transposed": False}


# -- solve_triangular ------------------------------------------------------------------------------------
@primitive(on_complex=HOLOMORPHIC)
def solve_triangular(a: NDArray, b: NDArray, *, lower: bool, transposed: bool, unit: bool) -> NDArray:
    """The matrix y with a @ y = b (a.T @ y = b if `transposed`) for triangular a.

    Only the lower (or upper) triangle of `a` is read; if `unit`, its diagonal counts as ones. A zero on the diagonal
    gives inf or nan, not an error, as in PyTorch.
    """
    from scipy.linalg.blas import ctrsm, dtrsm, strsm, ztrsm

    routine = {"f": strsm, "d": dtrsm, "F": ctrsm, "D": ztrsm}[a.dtype.char]
    # Fortran sees the transpose of a matrix in row-major order, without a copy.
    side, trans, out = not lower, not transposed, np.empty(b.shape, b.dtype)
    for i in np.ndindex(b.shape[:-2] if b.size else (0,)):
        out[i] = routine(1.0, np.ascontiguousarray(a[i]).T, b[i], lower=side, trans_a=trans, diag=unit)
    return out


@solve_triangular.def_aval
def _(a: Aval, b: Aval, *, lower: bool, transposed: bool, unit: bool) -> Aval:
    return _right_side("solve_triangular", a, b)


@solve_triangular.def_vjp("a")
def _(ct: Array, ans: Array, a: Array, b: Array, *, lower: bool, transposed: bool, unit: bool) -> Array:
    ct_b = solve_triangular(a, ct, lower=lower, transposed=not transposed, unit=unit)
    left, right = (ans, ct_b) if transposed else (ct_b, ans)
    return _triangle(negative(matmul(left, matrix_transpose(right))), lower, unit)


def _triangle(x: Array, lower: bool, unit: bool) -> Array:
    """The part of a square matrix that `solve_triangular` reads, 0 elsewhere."""
    n, off = x.shape[-1], int(unit)
    if lower:
        return where(band(n, n, -off), x, 0.0)
    return where(band(n, n, off - 1), 0.0, x)


@solve_triangular.def_vjp("b")
def _(ct: Array, ans: Array, a: Array, b: Array, *, lower: bool, transposed: bool, unit: bool) -> Array:
    return solve_triangular(a, ct, lower=lower, transposed=not transposed, unit=unit)


@solve_triangular.def_jvp
def _(tangents: Any, ans: Array, a: Array, b: Array, *, lower: bool, transposed: bool, unit: bool) -> Array:
    t_a, t_b = tangents
    if t_a is not None:
        t_a = _triangle(t_a, lower, unit)
        t_b = _minus(t_b, matmul(matrix_transpose(t_a) if transposed else t_a, ans))
    return solve_triangular(a, t_b, lower=lower, transposed=transposed, unit=unit)


@solve_triangular.def_batch
def _(size: int, batched: tuple[bool, ...], a: Array, b: Array, *, lower: bool, transposed: bool, unit: bool) -> Any:
    params = {"lower": lower, "transposed": transposed, "unit": unit}
    return of_right_sides(solve_triangular, size, batched, a, b, **params)


@solve_triangular.def_samples
def _() -> Iterator[Sample]:
    for lower, transposed in ((True, True), (False, True), (False, False)):
        params = {"lower": lower, "transposed": transposed, "unit": lower == transposed}
        yield (well_conditioned((3, 3)), uniform((3, 2))), params
    params = {"lower": True, "transposed": False, "unit": False}
    yield (well_conditioned((2, 9, 9), dtype="float32"), uniform((2, 9, 1), dtype="float32")), params
    yield (uniform((0, 0)), uniform((0, 3))), params
    yield (well_conditioned((2, 2)), uniform((2, 0))), params


# -- slogdet ----------------------------------------------------------------------------------------------
def last_two(x: Array) -> tuple[int, int]:
    return len(x.shape) - 2, len(x.shape) - 1


@multi_result(on_complex=AS_WRITTEN)
def slogdet(x: NDArray) -> tuple[NDArray, ...]:
    """The sign of the determinant, which has no derivative for real matrices, and the logarithm of its magnitude."""
    sign, log = np.linalg.slogdet(x)
    return sign, log


@slogdet.def_aval
def _(x: Aval) -> ResultAvals:
    shape = square("slogdet", x).shape[:-2]
    return ResultAvals((Aval(shape, x.dtype), Aval(shape, real_of(x.dtype))))


@slogdet.def_vjp_all
def _(wanted: Sequence[int], cts: tuple[Array | None, Array], ans: tuple[Array, ...], x: Array) -> list[Any]:
    ct_sign, ct = cts
    if x.dtype.kind == "c" and ct_sign is not None:
        # With t = trace(inv(x) @ dx), log(det) moves by t, so the logarithm of the magnitude by the real part of t, and
        # the sign along its circle by the imaginary part.
        along = imag(multiply(ct_sign, conj(ans[0])))
        ct = complex_(0.0 if ct is None else ct, along)
    if ct is None:
        return [None]
    return [multiply(unreduce(ct, x.shape, last_two(x)), adjoint(inv(x)))]


slogdet.def_samples(square_samples)


# -- matrix_exp ------------------------------------------------------------------------------------------
@primitive(on_complex=HOLOMORPHIC)
def matrix_exp(x: NDArray) -> NDArray:
    """The matrix exponential, by scaling and squaring."""
    from scipy.linalg import expm

    result: NDArray = expm(x)
    return result


@matrix_exp.def_aval
def _(x: Aval) -> Aval:
    return square("matrix_exp", x)


@matrix_exp.def_vjp("x")
def _(ct: Array, ans: Array, x: Array) -> Array:
    return along_matrix(matrix_exp, matrix_transpose(x), ct)


@matrix_exp.def_jvp
def _(tangents: Any, ans: Array, x: Array) -> Array:
    return along_matrix(matrix_exp, x, tangents[0])


def along_matrix(function: Any, x: Array, t: Array) -> Array:
    """The derivative of a matrix function at `x` along `t`, which is the corner block of the function of [[x, t], [0,
    x]].

    R. Mathias, "A chain rule for matrix functions and applications", SIAM J. Matrix Anal. Appl. 17 (1996).
    """
    n, last = x.shape[-1], len(x.shape) - 1
    top, bottom = concatenate(x, t, axis=last), concatenate(zeros_like(x), x, axis=last)
    return columns(rows(function(concatenate(top, bottom, axis=last - 1)), 0, n), n, 2 * n)


@matrix_exp.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((3, 3), -1, 1),), {}
    yield (uniform((2, 9, 9), -0.5, 0.5, dtype="float32"),), {}
    yield (uniform((1, 1)),), {}
    yield (uniform((0, 0)),), {}
