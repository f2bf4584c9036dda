"""Factorizations of matrices and of stacks of them: Cholesky, QR, eigenvalues, singular values, pseudoinverse.

An op has one result, so one that has several parts packs them into one array, and views take it apart at no cost:
`unpack_qr`, `unpack_eigh`, `unpack_svd`. One op for all parts, because LAPACK computes them together and each part's
derivative needs the others.

Where eigenvalues (or singular values) are equal, their vectors are not functions of the matrix: a cotangent of them
comes back as inf or nan, as in PyTorch, while one of the values alone comes back finite.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.errors import ShapeError
from tracegrad.ops.contraction import matmul, matrix_transpose
from tracegrad.ops.elementwise import add, divide, equal, logical_and, multiply, negative, subtract, where
from tracegrad.ops.linalg import band, columns, matrices, rows, solve_triangular, square, well_conditioned
from tracegrad.ops.linear import concatenate, reduce_sum, reshape
from tracegrad.ops.op import primitive
from tracegrad.ops.samples import uniform

__all__ = [
    "cholesky", "complement", "eigh", "eigvalsh", "pinv", "qr", "svd", "svdvals", "unpack_eigh", "unpack_qr",
    "unpack_svd",
]  # fmt: skip


def _as_row(v: Any) -> Any:
    return reshape(v, shape=(*v.shape[:-1], 1, v.shape[-1]))


def _as_column(v: Any) -> Any:
    return reshape(v, shape=(*v.shape, 1))


def _as_vector(row: Any) -> Any:
    return reshape(row, shape=(*row.shape[:-2], row.shape[-1]))


def _ratio(x: Any, y: Any) -> Any:
    """x / y, where 0 / 0 is 0."""
    nothing = logical_and(equal(x, 0.0), equal(y, 0.0))
    return where(nothing, 0.0, divide(x, where(nothing, 1.0, y)))


def _lower(x: Any, k: int = 0) -> Any:
    return where(band(x.shape[-2], x.shape[-1], k), x, 0.0)


def _symmetric_part(x: Any) -> Any:
    """Of an ndarray; exact where `x` is symmetric."""
    return 0.5 * x + 0.5 * np.swapaxes(x, -1, -2)


def _positive(shape: tuple[int, ...], dtype: str = "float64") -> Any:
    x = well_conditioned(shape, dtype=dtype)
    return _symmetric_part(x)


# -- cholesky --------------------------------------------------------------------------------------------
@primitive()
def cholesky(x: Any) -> Any:
    """The lower triangular L with L @ L.T the symmetric part of `x`, which must be positive definite."""
    return np.linalg.cholesky(_symmetric_part(x))


@cholesky.def_aval
def _(x: Aval) -> Aval:
    return square("cholesky", x)


@cholesky.def_vjp("x")
def _(ct: Any, ans: Any, x: Any) -> Any:
    # I. Murray, "Differentiation of the Cholesky decomposition" (2016), arXiv:1602.07527, equation 10.
    product = matmul(matrix_transpose(ans), ct)
    halved = multiply(add(_lower(product), _lower(product, -1)), 0.5)
    half = solve_triangular(ans, halved, lower=True, transposed=True, unit=False)
    whole = solve_triangular(ans, matrix_transpose(half), lower=True, transposed=True, unit=False)
    return multiply(add(whole, matrix_transpose(whole)), 0.5)


@cholesky.def_samples
def _() -> Any:
    yield (_positive((3, 3)),), {}
    yield (_positive((2, 4, 4), dtype="float32"),), {}
    yield (_positive((10, 10)),), {}
    yield (_positive((1, 1)),), {}
    yield (uniform((0, 0)),), {}


# -- qr --------------------------------------------------------------------------------------------------
@primitive()
def qr(x: Any) -> Any:
    """The reduced factorization x = Q @ R, packed: the k columns of Q as rows, and R to the right of them.

    For `x` of m rows and n columns that is a matrix of k = min(m, n) rows and m + n columns.
    """
    q, r = np.linalg.qr(x)
    return np.concatenate([np.swapaxes(q, -1, -2), r], -1)


def unpack_qr(packed: Any, m: int) -> tuple[Any, Any]:
    """Q of `m` rows, and R, out of the result of `qr`."""
    return matrix_transpose(columns(packed, 0, m)), columns(packed, m, packed.shape[-1])


@qr.def_aval
def _(x: Aval) -> Aval:
    *lead, m, n = matrices("qr", x).shape
    return Aval((*lead, min(m, n), m + n), x.dtype)


@qr.def_vjp("x")
def _(ct: Any, ans: Any, x: Any) -> Any:
    # F. de Hoog, R. Anderssen, M. Lukas, "Differentiation of matrix functionals using triangular factorization",
    # Math. Comp. 80 (2011); for n > m, what is right of the square part of R is Q.T times what is right in x.
    m, n = x.shape[-2:]
    (q, r), (ct_q, ct_r) = unpack_qr(ans, m), unpack_qr(ct, m)
    if n <= m:
        return _pull_qr(q, r, ct_q, ct_r)
    right, ct_right = columns(x, m, n), columns(ct_r, m, n)
    ct_q = add(ct_q, matmul(right, matrix_transpose(ct_right)))
    left = _pull_qr(q, columns(r, 0, m), ct_q, columns(ct_r, 0, m))
    return concatenate(left, matmul(q, ct_right), axis=len(x.shape) - 1)


def _pull_qr(q: Any, r: Any, ct_q: Any, ct_r: Any) -> Any:
    inner = subtract(matmul(r, matrix_transpose(ct_r)), matmul(matrix_transpose(ct_q), q))
    mirrored = add(_lower(inner), matrix_transpose(_lower(inner, -1)))
    whole = matrix_transpose(add(ct_q, matmul(q, mirrored)))
    return matrix_transpose(solve_triangular(r, whole, lower=False, transposed=False, unit=False))


@qr.def_samples
def _() -> Any:
    yield (np.concatenate([well_conditioned((2, 3, 3)), uniform((2, 2, 3))], -2),), {}
    yield (np.concatenate([well_conditioned((3, 3)), uniform((3, 2))], -1),), {}
    yield (well_conditioned((2, 9, 9), dtype="float32"),), {}
    yield (uniform((0, 3)),), {}
    yield (uniform((2, 0)),), {}


@primitive()
def complement(q: Any) -> Any:
    """Orthonormal columns that complete the orthonormal columns of `q` to a basis.

    They are not a function of `q` alone, only the space they span is; for derivatives they are constants.
    """
    return np.linalg.qr(q, mode="complete")[0][..., q.shape[-1] :]


@complement.def_aval
def _(q: Aval) -> Aval:
    *lead, m, n = matrices("complement", q).shape
    if n > m:
        raise ShapeError(f"complement: {q} has more columns than rows")
    return Aval((*lead, m, m - n), q.dtype)


@complement.def_samples
def _() -> Any:
    yield (np.linalg.qr(uniform((5, 2)))[0],), {}
    yield (np.linalg.qr(uniform((2, 3, 3), dtype="float32"))[0],), {}


# -- eigh ------------------------------------------------------------------------------------------------
@primitive()
def eigh(x: Any) -> Any:
    """Eigenvalues, in ascending order, and eigenvectors of the symmetric part of `x`, packed.

    The first row has the eigenvalues, the n rows below it the matrix of which column i is the vector of value i.
    """
    w, v = np.linalg.eigh(_symmetric_part(x))
    return np.concatenate([w[..., None, :], v], -2)


def unpack_eigh(packed: Any) -> tuple[Any, Any]:
    """The eigenvalues and the eigenvectors out of the result of `eigh`."""
    return _as_vector(rows(packed, 0, 1)), rows(packed, 1, packed.shape[-2])


@eigh.def_aval
def _(x: Aval) -> Aval:
    *lead, n, _ = square("eigh", x).shape
    return Aval((*lead, n + 1, n), x.dtype)


@eigh.def_vjp("x")
def _(ct: Any, ans: Any, x: Any) -> Any:
    (w, v), (ct_w, ct_v) = unpack_eigh(ans), unpack_eigh(ct)
    turned = matmul(matrix_transpose(v), ct_v)
    skew = multiply(subtract(turned, matrix_transpose(turned)), 0.5)
    mixed = _ratio(skew, subtract(_as_row(w), _as_column(w)))
    return matmul(add(multiply(v, _as_row(ct_w)), matmul(v, mixed)), matrix_transpose(v))


@eigh.def_jvp
def _(tangents: Any, ans: Any, x: Any) -> Any:
    w, v = unpack_eigh(ans)
    t = multiply(add(tangents[0], matrix_transpose(tangents[0])), 0.5)
    moved = matmul(t, v)
    mixed = _ratio(_off_diagonal(matmul(matrix_transpose(v), moved)), subtract(_as_row(w), _as_column(w)))
    return concatenate(_as_row(_column_products(v, moved)), matmul(v, mixed), axis=len(x.shape) - 2)


def _off_diagonal(x: Any) -> Any:
    n = x.shape[-1]
    return where(band(n, n, -1), x, where(band(n, n, 0), 0.0, x))


def _column_products(x: Any, y: Any) -> Any:
    """The inner product of each column of `x` with that of `y`."""
    return reduce_sum(multiply(x, y), axes=(len(x.shape) - 2,))


def _eigh_samples() -> Any:
    yield (_positive((3, 3)),), {}
    yield (_positive((2, 4, 4), dtype="float32"),), {}
    yield (_positive((9, 9)),), {}
    yield (_positive((1, 1)),), {}
    yield (uniform((0, 0)),), {}


eigh.def_samples(_eigh_samples)


@primitive()
def eigvalsh(x: Any) -> Any:
    """The eigenvalues of the symmetric part of `x`, in ascending order."""
    return np.linalg.eigvalsh(_symmetric_part(x))


@eigvalsh.def_aval
def _(x: Aval) -> Aval:
    return Aval(square("eigvalsh", x).shape[:-1], x.dtype)


@eigvalsh.def_vjp("x")
def _(ct: Any, ans: Any, x: Any) -> Any:
    _, v = unpack_eigh(eigh(x))
    return matmul(multiply(v, _as_row(ct)), matrix_transpose(v))


eigvalsh.def_samples(_eigh_samples)


# -- svd -------------------------------------------------------------------------------------------------
@primitive()
def svd(x: Any) -> Any:
    """The reduced singular value decomposition x = U @ diag(S) @ V.T, packed: the rows of U, then S, then V's rows.

    For `x` of m rows and n columns that is a matrix of m + 1 + n rows and min(m, n) columns.
    """
    u, s, vh = np.linalg.svd(x, full_matrices=False)
    return np.concatenate([u, s[..., None, :], np.swapaxes(vh, -1, -2)], -2)


def unpack_svd(packed: Any, m: int) -> tuple[Any, Any, Any]:
    """U of `m` rows, S and V (not its transpose) out of the result of `svd`."""
    return rows(packed, 0, m), _as_vector(rows(packed, m, m + 1)), rows(packed, m + 1, packed.shape[-2])


@svd.def_aval
def _(x: Aval) -> Aval:
    *lead, m, n = matrices("svd", x).shape
    return Aval((*lead, m + 1 + n, min(m, n)), x.dtype)


@svd.def_vjp("x")
def _(ct: Any, ans: Any, x: Any) -> Any:
    # J. Townsend, "Differentiating the singular value decomposition" (2016).
    m, n = x.shape[-2:]
    (u, s, v), (ct_u, ct_s, ct_v) = unpack_svd(ans, m), unpack_svd(ct, m)
    row, column = _as_row(s), _as_column(s)
    gaps = multiply(subtract(row, column), add(row, column))
    left, right = (_ratio(_skew(a, b), gaps) for a, b in ((u, ct_u), (v, ct_v)))
    core = add(matmul(u, add(multiply(left, row), multiply(column, right))), multiply(u, _as_row(ct_s)))
    if m > n:
        core = add(core, _ratio(_outside(u, ct_u), row))
    out = matmul(core, matrix_transpose(v))
    return add(out, matmul(u, matrix_transpose(_ratio(_outside(v, ct_v), row)))) if n > m else out


@svd.def_jvp
def _(tangents: Any, ans: Any, x: Any) -> Any:
    m, n = x.shape[-2:]
    u, s, v = unpack_svd(ans, m)
    row, column = _as_row(s), _as_column(s)
    gaps = multiply(subtract(row, column), add(row, column))
    right, left = matmul(tangents[0], v), matmul(matrix_transpose(tangents[0]), u)
    inner, flipped = matmul(matrix_transpose(u), right), matmul(matrix_transpose(v), left)
    mixed_u = _ratio(_off_diagonal(add(multiply(inner, row), multiply(column, flipped))), gaps)
    mixed_v = _ratio(_off_diagonal(add(multiply(column, inner), multiply(flipped, row))), gaps)
    t_u, t_v = matmul(u, mixed_u), matmul(v, mixed_v)
    if m > n:
        t_u = add(t_u, _ratio(_outside(u, right), row))
    if n > m:
        t_v = add(t_v, _ratio(_outside(v, left), row))
    return concatenate(t_u, _as_row(_column_products(u, right)), t_v, axis=len(x.shape) - 2)


def _skew(basis: Any, ct: Any) -> Any:
    turned = matmul(matrix_transpose(basis), ct)
    return subtract(turned, matrix_transpose(turned))


def _outside(basis: Any, ct: Any) -> Any:
    """The part of `ct` that is orthogonal to the columns of `basis`."""
    return subtract(ct, matmul(basis, matmul(matrix_transpose(basis), ct)))


def _matrix_samples() -> Any:
    yield (np.concatenate([well_conditioned((2, 3, 3)), uniform((2, 2, 3), -0.5, 0.5)], -2),), {}
    yield (np.concatenate([well_conditioned((3, 3)), uniform((3, 2), -0.5, 0.5)], -1),), {}
    yield (well_conditioned((2, 9, 9), dtype="float32"),), {}
    yield (uniform((0, 3)),), {}
    yield (uniform((2, 0)),), {}


svd.def_samples(_matrix_samples)


@primitive()
def svdvals(x: Any) -> Any:
    """The singular values, in descending order."""
    return np.linalg.svd(x, compute_uv=False)


@svdvals.def_aval
def _(x: Aval) -> Aval:
    *lead, m, n = matrices("svdvals", x).shape
    return Aval((*lead, min(m, n)), x.dtype)


@svdvals.def_vjp("x")
def _(ct: Any, ans: Any, x: Any) -> Any:
    u, _, v = unpack_svd(svd(x), x.shape[-2])
    return matmul(multiply(u, _as_row(ct)), matrix_transpose(v))


svdvals.def_samples(_matrix_samples)


# -- pinv ------------------------------------------------------------------------------------------------
@primitive()
def pinv(x: Any, *, atol: float, rtol: float) -> Any:
    """The Moore-Penrose inverse; singular values up to max(atol, rtol times the largest) count as zero."""
    u, s, vh = np.linalg.svd(x, full_matrices=False)
    kept = s > np.maximum(atol, rtol * s.max(-1, initial=0, keepdims=True))
    scale = np.where(kept, 1 / np.where(kept, s, 1), 0).astype(x.dtype)
    return np.swapaxes(vh, -1, -2) @ (scale[..., None] * np.swapaxes(u, -1, -2))


@pinv.def_aval
def _(x: Aval, *, atol: float, rtol: float) -> Aval:
    *lead, m, n = matrices("pinv", x).shape
    return Aval((*lead, n, m), x.dtype)


@pinv.def_vjp("x")
def _(ct: Any, ans: Any, x: Any, *, atol: float, rtol: float) -> Any:
    # G. Golub, V. Pereyra, "The differentiation of pseudo-inverses and nonlinear least squares problems whose variables
    # separate", SIAM J. Numer. Anal. 10 (1973): at constant rank.
    flipped, ct_flipped = matrix_transpose(ans), matrix_transpose(ct)
    main = negative(matmul(flipped, matmul(ct, flipped)))
    # Outside of the range of x, and of that of its transpose.
    left = matmul(ct_flipped, matmul(ans, flipped))
    right = matmul(matmul(flipped, ans), ct_flipped)
    left = subtract(left, matmul(x, matmul(ans, left)))
    right = subtract(right, matmul(matmul(right, ans), x))
    return add(main, add(left, right))


@pinv.def_samples
def _() -> Any:
    for operands, _ in list(_matrix_samples())[1:]:
        yield operands, {"atol": 0.0, "rtol": 1e-6}
