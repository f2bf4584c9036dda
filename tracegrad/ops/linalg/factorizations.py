"""Factor matrices and stacks of matrices: Cholesky, QR, eigenvalues, singular values, pseudoinverse.

An op returns all parts of a factorization, because LAPACK computes them together and each part's derivative needs the
others. A part without a cotangent costs nothing. The rules also hold for complex matrices, with adjoints instead of
transposes.

The vectors of equal eigenvalues (or singular values) are not functions of the matrix. A derivative through them is nan,
as in JAX and PyTorch, because the cotangents contain 0 / 0. This holds even if a composite function has a derivative,
for example a matrix square root that is computed from values and vectors. A function of the vectors alone that is
invariant under rotations of the vectors of equal values has its derivative; so has a function of the values alone.
Complex vectors are determined up to their phases. A function that depends on the phases has the derivative for fixed
phases.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.errors import ShapeError
from tracegrad.ops.core.op import AS_WRITTEN, ResultAvals, Sample, multi_result, primitive
from tracegrad.ops.core.samples import uniform
from tracegrad.ops.elementwise.complex import complex_, conjugated, imag, real, real_of
from tracegrad.ops.elementwise.table import (
    absolute,
    add,
    multiply,
    negative,
    subtract,
    where,
)
from tracegrad.ops.linalg.contraction import matmul
from tracegrad.ops.linalg.repeated_eigenvalues import (
    as_row,
    by_differences,
    by_sums,
    by_values,
    of_full_rank,
    skew,
    with_values,
)
from tracegrad.ops.linalg.solve import adjoint, band, columns, matrices, solve_triangular, square, well_conditioned
from tracegrad.ops.shape.linear import concatenate, reduce_sum, zeros_like
from tracegrad.typing import Array, NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracegrad.ops.core.dispatch import Carrier, Operand


def _total(*terms: Any) -> Any:
    """The sum of the terms that are not None (zero); None if all are."""
    present = [x for x in terms if x is not None]
    return functools.reduce(add, present) if present else None


def _lower(x: Array, k: int = 0) -> Array:
    return where(band(x.shape[-2], x.shape[-1], k), x, 0.0)


def _symmetric_part(x: Any) -> Any:
    """The symmetric part; an ndarray that is symmetric is returned itself."""
    flipped = np.swapaxes(x, -1, -2)
    flipped = flipped.conj() if x.dtype.kind == "c" else flipped
    return x if (x == flipped).all() else 0.5 * x + 0.5 * flipped


def _positive(shape: tuple[int, ...], dtype: str = "float64") -> Array:
    x = well_conditioned(shape, dtype=dtype)
    result: Array = _symmetric_part(x)
    return result


# -- cholesky --------------------------------------------------------------------------------------------
@primitive(on_complex=AS_WRITTEN)
def cholesky(x: NDArray, *, lower: bool) -> NDArray:
    """The lower triangular L with L @ L.T equal to the symmetric part of `x`, which must be positive definite; for
    complex matrices, with the adjoint.

    If `lower`, `x` is the symmetric matrix that has its lower triangle, and the other is not read.
    """
    return np.linalg.cholesky(x if lower else _symmetric_part(x))


@cholesky.def_aval
def _(x: Aval, *, lower: bool) -> Aval:
    return square("cholesky", x)


@cholesky.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, *, lower: bool) -> Array:
    out = cholesky_pullback(ans, ct)
    return _folded(out) if lower else out


def _folded(x: Array) -> Array:
    """The lower triangle of the cotangent of a symmetric matrix that is read only there."""
    return add(_lower(x), _lower(x, -1))


@cholesky.def_samples
def _() -> Iterator[Sample]:
    yield (_positive((3, 3)),), {"lower": False}
    yield (_positive((3, 3)),), {"lower": True}
    yield (_positive((2, 4, 4), dtype="float32"),), {"lower": False}
    yield (_positive((10, 10)),), {"lower": False}
    yield (_positive((1, 1)),), {"lower": True}
    yield (uniform((0, 0)),), {"lower": False}


@primitive(on_complex=AS_WRITTEN)
def cholesky_pullback(factor: NDArray, ct: NDArray) -> Array:
    """The symmetric cotangent of a symmetric matrix with this Cholesky factor, whose cotangent is `ct`.

    Only the lower triangles of both are read.
    """
    options = {"lower": True, "transposed": True, "unit": False}
    factor = factor.conj()
    half = solve_triangular.impl(factor, _triangle_of_product(factor, ct), **options)
    result: Array = _symmetric_part(solve_triangular.impl(factor, np.swapaxes(half, -1, -2).conj(), **options))
    return result


def _triangle_of_product(factor: NDArray, ct: Array) -> NDArray:
    """The lower triangle of the product of the transposed `factor` with `ct`, with its diagonal halved; `factor` is
    already conjugated."""
    product = np.tril(np.swapaxes(np.tril(factor), -1, -2) @ np.tril(ct))
    result: NDArray = product - 0.5 * product * np.eye(product.shape[-1], dtype=product.dtype)
    return result


@cholesky_pullback.def_aval
def _(factor: Aval, ct: Aval) -> Aval:
    square("cholesky_pullback", factor)
    if ct != factor:
        raise ShapeError(f"cholesky_pullback: a cotangent {ct} of a factor {factor}")
    return factor


# I. Murray, "Differentiation of the Cholesky decomposition" (2016), arXiv:1602.07527: equation 10 gives the result as
# the symmetric part of W = inv(L).T @ half(L.T @ ct) @ inv(L), where `half` takes the lower triangle, and a half of its
# diagonal. Let M be the symmetric part of a cotangent of the result, and Q = half(inv(L) @ M @ inv(L).T). The cotangent
# of `ct` is L @ Q, and the cotangent of L is ct @ Q.T - 2 * result @ M @ inv(L).T.
@cholesky_pullback.def_vjp_all
def _(wanted: Sequence[int], ct: Array, ans: Array, factor: Any, operand_ct: Array) -> list[Any]:
    inner = _between(factor, multiply(add(ct, adjoint(ct)), 0.5))
    table = {1: lambda: _lower(matmul(_lower(factor), inner))}
    table[0] = lambda: _lower(subtract(matmul(_lower(operand_ct), adjoint(inner)), _outside_of(factor, ct, ans)))
    return [table[i]() for i in wanted]


def _inverted(factor: Any, x: Array) -> Array:
    """inv(L) @ x."""
    return solve_triangular(factor, x, lower=True, transposed=False, unit=False)


def _between(factor: Operand | Carrier, x: Array) -> Array:
    """half(inv(L) @ x @ inv(L).T) of a symmetric `x`."""
    whole = _inverted(factor, adjoint(_inverted(factor, x)))
    return multiply(add(_lower(whole), _lower(whole, -1)), 0.5)


def _outside_of(factor: Operand | Carrier, ct: Array, ans: Array) -> Array:
    """ans @ (ct + ct.T) @ inv(L).T."""
    return adjoint(_inverted(factor, matmul(add(ct, adjoint(ct)), ans)))


cholesky_pullback.linear_in("ct")


@cholesky_pullback.def_samples
def _() -> Iterator[Sample]:
    for shape, dtype in (((3, 3), "float64"), ((2, 4, 4), "float32"), ((10, 10), "float64"), ((1, 1), "float64")):
        yield (np.linalg.cholesky(_positive(shape, dtype)), uniform(shape, seed=1, dtype=dtype)), {}
    yield (uniform((0, 0)), uniform((0, 0))), {}


# -- qr --------------------------------------------------------------------------------------------------
@multi_result(on_complex=AS_WRITTEN)
def qr(x: NDArray) -> tuple[NDArray, ...]:
    """The reduced factorization x = Q @ R: orthonormal columns, and an upper triangle."""
    q, r = np.linalg.qr(x)
    return q, r


@qr.def_aval
def _(x: Aval) -> ResultAvals:
    *batch_shape, m, n = matrices("qr", x).shape
    k = min(m, n)
    return ResultAvals((Aval((*batch_shape, m, k), x.dtype), Aval((*batch_shape, k, n), x.dtype)))


@qr.def_vjp_all
def _(wanted: Sequence[int], cts: tuple[Array | None, ...], ans: tuple[Array, ...], x: Array) -> list[Any]:
    # F. de Hoog, R. Anderssen, M. Lukas, "Differentiation of matrix functionals using triangular factorization",
    # Math. Comp. 80 (2011). For n > m, the last n - m columns of R are Q.T times the last columns of x.
    (q, r), (ct_q, ct_r) = ans, cts
    m, n = x.shape[-2:]
    if n <= m:
        return [_pull_qr(q, r, ct_q, ct_r)]
    if ct_r is None:
        ct_r = zeros_like(r)
    right, ct_right = columns(x, m, n), columns(ct_r, m, n)
    ct_q = _total(ct_q, matmul(right, adjoint(ct_right)))
    left = _pull_qr(q, columns(r, 0, m), ct_q, columns(ct_r, 0, m))
    return [concatenate(left, matmul(q, ct_right), axis=len(x.shape) - 1)]


def _pull_qr(q: Array, r: Array, ct_q: Any, ct_r: Any) -> Array:
    inner = _total(
        None if ct_r is None else matmul(r, adjoint(ct_r)),
        None if ct_q is None else negative(matmul(adjoint(ct_q), q)),
    )
    mirrored = add(_lower(inner), adjoint(_lower(inner, -1)))
    if q.dtype.kind == "c":  # the diagonal of R is real
        mirrored = multiply(add(mirrored, adjoint(mirrored)), 0.5)
    whole = adjoint(_total(ct_q, matmul(q, mirrored)))
    return adjoint(solve_triangular(of_full_rank(r), whole, lower=False, transposed=False, unit=False))


@qr.def_samples
def _() -> Iterator[Sample]:
    yield (np.concatenate([well_conditioned((2, 3, 3)), uniform((2, 2, 3))], -2),), {}
    yield (np.concatenate([well_conditioned((3, 3)), uniform((3, 2))], -1),), {}
    yield (well_conditioned((2, 9, 9), dtype="float32"),), {}
    yield (uniform((0, 3)),), {}
    yield (uniform((2, 0)),), {}


# -- eigh ------------------------------------------------------------------------------------------------
@multi_result(on_complex=AS_WRITTEN)
def eigh(x: NDArray, *, lower: bool) -> tuple[NDArray, ...]:
    """Eigenvalues, in ascending order, and eigenvectors of the symmetric (Hermitian) part of `x`: column i belongs to
    value i. LAPACK reads the lower or the upper triangle, which affects the signs of the vectors."""
    w, v = np.linalg.eigh(_symmetric_part(x), "L" if lower else "U")
    return w, v


@eigh.def_aval
def _(x: Aval, *, lower: bool) -> ResultAvals:
    return ResultAvals((Aval(square("eigh", x).shape[:-1], real_of(x.dtype)), x))


@eigh.def_vjp_all
def _(
    wanted: Sequence[int], cts: tuple[Array | None, ...], ans: tuple[Array, ...], x: Array, *, lower: bool
) -> list[Any]:
    (w, v), (ct_w, ct_v) = ans, cts
    mixed = None
    if ct_v is not None:
        inner = matmul(adjoint(v), ct_v)
        mixed = matmul(v, by_differences(skew(inner), w, inner, ct_w is None))
    scaled = None if ct_w is None else multiply(v, as_row(ct_w))
    return [matmul(_total(scaled, mixed), adjoint(v))]


@eigh.def_jvp
def _(tangents: tuple[Array, ...], ans: tuple[Array, ...], x: Array, *, lower: bool) -> tuple[Any, Any]:
    w, v = ans
    t = multiply(add(tangents[0], adjoint(tangents[0])), 0.5)
    moved = matmul(t, v)
    mixed = by_differences(matmul(adjoint(v), moved), w, None, False)
    return _moved_values(v, moved, w), matmul(v, mixed)


def _moved_values(v: Array, moved: Array, w: Array) -> Array:
    """The tangents of eigenvalues, given the product of the matrix tangent with the vectors."""
    products = _column_products(v, moved)
    return with_values(real(products) if v.dtype.kind == "c" else products, w)


def _column_products(x: Array, y: Array) -> Array:
    """The inner product of each column of `x` with the same column of `y`."""
    return reduce_sum(multiply(conjugated(x), y), axes=(len(x.shape) - 2,))


def _eigh_samples() -> Iterator[Sample]:
    yield (_positive((3, 3)),), {}
    yield (_positive((2, 4, 4), dtype="float32"),), {}
    yield (_positive((9, 9)),), {}
    yield (_positive((1, 1)),), {}
    yield (uniform((0, 0)),), {}


eigh.def_samples(lambda: [(xs, {"lower": k != 2}) for k, (xs, _) in enumerate(_eigh_samples())])


@primitive(on_complex=AS_WRITTEN)
def eigvalsh(x: NDArray) -> NDArray:
    """The eigenvalues of the symmetric part of `x`, in ascending order."""
    return np.linalg.eigvalsh(_symmetric_part(x))


@eigvalsh.def_aval
def _(x: Aval) -> Aval:
    return Aval(square("eigvalsh", x).shape[:-1], real_of(x.dtype))


@eigvalsh.def_vjp("x")
def _(ct: Array, ans: Array, x: Array) -> Array:
    w, v = eigh(x, lower=True)
    return matmul(multiply(v, as_row(with_values(ct, w))), adjoint(v))


@eigvalsh.def_jvp
def _(tangents: tuple[Array, ...], ans: Array, x: Array) -> Array:
    w, v = eigh(x, lower=True)
    t = multiply(add(tangents[0], adjoint(tangents[0])), 0.5)
    return _moved_values(v, matmul(t, v), w)


eigvalsh.def_samples(_eigh_samples)
eigh.def_result_rule(0)(lambda x, *, lower: eigvalsh(x))


# -- svd -------------------------------------------------------------------------------------------------
@multi_result(on_complex=AS_WRITTEN)
def svd(x: NDArray) -> tuple[NDArray, ...]:
    """The reduced singular value decomposition x = U @ diag(S) @ V.T, as U, S and V.T (the adjoint for complex
    matrices)."""
    u, s, vh = np.linalg.svd(x, full_matrices=False)
    return u, s, vh


@svd.def_aval
def _(x: Aval) -> ResultAvals:
    *batch_shape, m, n = matrices("svd", x).shape
    k = min(m, n)
    real_dtype = real_of(x.dtype)
    return ResultAvals(
        [Aval((*batch_shape, m, k), x.dtype), Aval((*batch_shape, k), real_dtype), Aval((*batch_shape, k, n), x.dtype)]
    )


@svd.def_vjp_all
def _(wanted: Sequence[int], cts: tuple[Array | None, ...], ans: tuple[Array, ...], x: Array) -> list[Any]:
    # J. Townsend, "Differentiating the singular value decomposition" (2016).
    (u, s, vh), (ct_u, ct_s, ct_vh) = ans, cts
    if 0 in x.shape:
        return [zeros_like(x)]
    (m, n), v, vectors_only = x.shape[-2:], adjoint(vh), ct_s is None
    ct_v = None if ct_vh is None else adjoint(ct_vh)
    core: Any = None if ct_s is None else multiply(u, as_row(ct_s))
    if x.dtype.kind == "c":
        core = _total(core, _pull_phases(ans, ct_u, ct_v, vectors_only))
    if ct_u is not None or ct_v is not None:
        core = _total(core, matmul(u, _pull_iterations(ans, ct_u, ct_v, vectors_only)))
    if ct_u is not None and m > n:
        core = add(core, by_values(_outside(u, ct_u), as_row(s), s, ct_u, vectors_only))
    out = matmul(core, vh)
    if ct_v is None or n <= m:
        return [out]
    return [add(out, matmul(u, adjoint(by_values(_outside(v, ct_v), as_row(s), s, ct_v, vectors_only))))]


def _pull_iterations(ans: tuple[Array, ...], ct_u: Any, ct_v: Any, vectors_only: bool) -> Array:
    """The contribution of rotations of the columns of U and V: common rotations divide by differences of singular
    values, opposite ones by sums."""
    u, s, vh = ans
    of_u, of_v = (None if ct is None else matmul(adjoint(x), ct) for x, ct in ((u, ct_u), (adjoint(vh), ct_v)))
    both, against = _total(of_u, of_v), _total(of_u, None if of_v is None else negative(of_v))
    size = _total(*[None if each is None else absolute(each) for each in (of_u, of_v)])
    return add(by_differences(skew(both), s, size, vectors_only), by_sums(skew(against), s, size, vectors_only))


def _pull_phases(ans: Any, ct_u: Any, ct_v: Any, vectors_only: bool) -> Any:
    """The contribution of opposite phase changes of the columns of complex U and V, half of it in each."""
    u, s, vh = ans
    against = _total(
        None if ct_u is None else imag(_column_products(u, ct_u)),
        None if ct_v is None else negative(imag(_column_products(adjoint(vh), ct_v))),
    )
    if against is None:
        return None
    phases = by_values(as_row(against), as_row(add(s, s)), s, as_row(against), vectors_only)
    return multiply(u, complex_(0.0, phases))


@svd.def_jvp
def _(tangents: tuple[Array, ...], ans: tuple[Array, ...], x: Array) -> tuple[Any, Any, Any]:
    m, n = x.shape[-2:]
    u, s, vh = ans
    v, row = adjoint(vh), as_row(s)
    right, left = matmul(tangents[0], v), matmul(adjoint(tangents[0]), u)
    inner = matmul(adjoint(u), right)
    alike = by_differences(subtract(inner, skew(inner)), s, None, False)
    against = by_sums(skew(inner), s, None, False)
    mixed_u, mixed_v = add(alike, against), subtract(alike, against)
    t_u, t_v = matmul(u, mixed_u), matmul(v, mixed_v)
    moved = _column_products(u, right)
    if x.dtype.kind == "c":
        phases = complex_(0.0, by_values(as_row(imag(moved)), as_row(add(s, s)), s, None, False))
        t_u, t_v, moved = add(t_u, multiply(u, phases)), subtract(t_v, multiply(v, phases)), real(moved)
    if m > n:
        t_u = add(t_u, by_values(_outside(u, right), row, s, None, False))
    if n > m:
        t_v = add(t_v, by_values(_outside(v, left), row, s, None, False))
    return t_u, with_values(moved, s), adjoint(t_v)


def _outside(basis: Array, ct: Array) -> Array:
    """The part of `ct` that is orthogonal to the columns of `basis`."""
    return subtract(ct, matmul(basis, matmul(adjoint(basis), ct)))


def _matrix_samples() -> Iterator[Sample]:
    yield (np.concatenate([well_conditioned((2, 3, 3)), uniform((2, 2, 3), -0.5, 0.5)], -2),), {}
    yield (np.concatenate([well_conditioned((3, 3)), uniform((3, 2), -0.5, 0.5)], -1),), {}
    yield (well_conditioned((2, 9, 9), dtype="float32"),), {}
    yield (uniform((0, 3)),), {}
    yield (uniform((2, 0)),), {}


svd.def_samples(_matrix_samples)


@primitive(on_complex=AS_WRITTEN)
def svdvals(x: NDArray) -> NDArray:
    """The singular values, in descending order."""
    return np.linalg.svd(x, compute_uv=False)


@svdvals.def_aval
def _(x: Aval) -> Aval:
    *batch_shape, m, n = matrices("svdvals", x).shape
    return Aval((*batch_shape, min(m, n)), real_of(x.dtype))


@svdvals.def_vjp("x")
def _(ct: Array, ans: Array, x: Array) -> Array:
    u, s, vh = svd(x)
    return matmul(multiply(u, as_row(with_values(ct, s))), vh)


@svdvals.def_jvp
def _(tangents: tuple[Array, ...], ans: Array, x: Array) -> Array:
    u, s, vh = svd(x)
    moved = _column_products(u, matmul(tangents[0], adjoint(vh)))
    return with_values(real(moved) if x.dtype.kind == "c" else moved, s)


svdvals.def_samples(_matrix_samples)
svd.def_result_rule(1)(svdvals)


# -- pinv ------------------------------------------------------------------------------------------------
@primitive(on_complex=AS_WRITTEN)
def pinv(x: NDArray, *, atol: float, rtol: float) -> NDArray:
    """The Moore-Penrose inverse; singular values up to max(atol, rtol times the largest) count as zero."""
    u, s, vh = np.linalg.svd(x, full_matrices=False)
    saved = s > np.maximum(atol, rtol * s.max(-1, initial=0, keepdims=True))
    scale = np.where(saved, 1 / np.where(saved, s, 1), 0).astype(s.dtype)
    result: NDArray = np.swapaxes(vh, -1, -2).conj() @ (scale[..., None] * np.swapaxes(u, -1, -2).conj())
    return result


@pinv.def_aval
def _(x: Aval, *, atol: float, rtol: float) -> Aval:
    *batch_shape, m, n = matrices("pinv", x).shape
    return Aval((*batch_shape, n, m), x.dtype)


@pinv.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, *, atol: float, rtol: float) -> Array:
    # G. Golub, V. Pereyra, "The differentiation of pseudo-inverses and nonlinear least squares problems whose variables
    # separate", SIAM J. Numer. Anal. 10 (1973): at constant rank.
    flipped, ct_flipped = adjoint(ans), adjoint(ct)
    main = negative(matmul(flipped, matmul(ct, flipped)))
    # The parts outside the range of x, and outside the range of its transpose.
    left = _product(ct_flipped, ans, flipped)
    right = _product(flipped, ans, ct_flipped)
    left = subtract(left, _product(x, ans, left))
    right = subtract(right, _product(right, ans, x))
    return add(main, add(left, right))


def _product(x: Array, y: Array, z: Array) -> Array:
    """The product of a matrix, one of the shape of its transpose, and one of its own shape, through the smaller square
    matrix."""
    m, n = x.shape[-2:]
    return matmul(x, matmul(y, z)) if m > n else matmul(matmul(x, y), z)


@pinv.def_samples
def _() -> Iterator[Sample]:
    for operands, _ in list(_matrix_samples())[1:]:
        yield operands, {"atol": 0.0, "rtol": 1e-6}
