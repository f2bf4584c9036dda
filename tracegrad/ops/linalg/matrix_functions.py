"""Matrix functions of SciPy beyond NumPy: LU factors, banded systems, Sylvester's equation, roots, logarithms.

Operands are matrices and stacks of matrices; roots and logarithms of complex matrices are refused. These ops are
imported by their users, and by the parser of graphs on their first occurrence (`tracegrad.ir.parser`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.errors import ShapeError
from tracegrad.ops.core.op import AS_WRITTEN, ResultAvals, Sample, multi_result, primitive
from tracegrad.ops.core.samples import uniform
from tracegrad.ops.elementwise.complex import conjugated
from tracegrad.ops.elementwise.table import equal, multiply, negative, where
from tracegrad.ops.linalg.contraction import matmul, matrix_transpose
from tracegrad.ops.linalg.factorizations import pinv
from tracegrad.ops.linalg.solve import along_matrix, band, matrices, rows, solve_triangular, square, well_conditioned
from tracegrad.ops.shape.linear import arange, cast, concatenate, pad, reduce_sum, reshape, slice, zeros_like
from tracegrad.typing import Array, DTypeLike, NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator


_INTEGER = np.dtype(np.int64)


def _each(function: Callable[..., object], shape: tuple[int, ...], dtype: DTypeLike, *xs: Array) -> Array:
    """The array of `shape` of the results of `function` for the matrices of stacks, one by one."""
    batch_shape = xs[0].shape[:-2]
    out = np.empty((*batch_shape, *shape), dtype)
    for i in np.ndindex(batch_shape):
        out[i] = function(*[x[i] for x in xs])
    return out


# -- LU ------------------------------------------------------------------------------------------------------------
@multi_result(on_complex=AS_WRITTEN)
def lu_packed(x: NDArray) -> tuple[NDArray, ...]:
    """The factors of row-permuted matrices in one array: L below the diagonal, with unit diagonal, and U on and above
    it. Row i was exchanged with row `pivots[i]`."""
    from scipy.linalg import lu_factor

    packed, pivots = np.empty(x.shape, x.dtype), np.empty(x.shape[:-1], _INTEGER)
    for i in np.ndindex(x.shape[:-2]):
        packed[i], pivots[i] = lu_factor(x[i])
    return packed, pivots


@lu_packed.def_aval
def _(x: Aval) -> ResultAvals:
    return ResultAvals((square("lu", x), Aval(x.shape[:-1], _INTEGER)))


@lu_packed.def_vjp_all
def _(wanted: Sequence[int], cts: tuple[Array, Array | None], ans: tuple[Array, ...], x: Array) -> list[Any]:
    # F. de Hoog, R. Anderssen, M. Lukas, "Differentiation of matrix functionals using triangular factorization",
    # Math. Comp. 80 (2011).
    (packed, pivots), ct = (conjugated(ans[0]), ans[1]), cts[0]
    n = x.shape[-1]
    below = band(n, n, -1)
    lower = where(below, packed, where(band(n, n, 0), 1.0, zeros_like(packed)))
    upper = where(below, 0.0, packed)
    left = matmul(matrix_transpose(lower), where(below, ct, 0.0))
    inner = where(below, left, matmul(where(below, 0.0, ct), matrix_transpose(upper)))
    inner = solve_triangular(lower, inner, lower=True, transposed=True, unit=True)
    flipped = solve_triangular(upper, matrix_transpose(inner), lower=False, transposed=False, unit=False)
    return [matmul(matrix_transpose(exchanging(pivots, packed)), matrix_transpose(flipped))]


def exchanging(pivots: Array, like: Array) -> Array:
    """The permutation matrices of `pivots`."""
    *batch_shape, n = pivots.shape
    column_index = reshape(arange(start=0, step=1, length=n, dtype="int64"), shape=(1, n))
    return cast(equal(reshape(permutation(pivots), shape=(*batch_shape, n, 1)), column_index), dtype=like.dtype.name)


@lu_packed.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((3, 3)) + np.eye(3)[[1, 2, 0]] * 4,), {}
    yield (well_conditioned((2, 9, 9)),), {}


@primitive()
def permutation(pivots: NDArray) -> NDArray:
    """The row order after exchanging row i with row `pivots[i]`, in sequence."""
    order = np.broadcast_to(np.arange(pivots.shape[-1]), pivots.shape).copy()
    for i in np.ndindex(pivots.shape[:-1]):
        for k, other in enumerate(pivots[i].tolist()):
            order[i][[k, other]] = order[i][[other, k]]
    return order


@permutation.def_aval
def _(pivots: Aval) -> Aval:
    return Aval(pivots.shape, _INTEGER)


@permutation.def_samples
def _() -> Iterator[Sample]:
    yield (np.array([2, 2, 2]),), {}
    yield (np.array([[1, 1], [0, 1]]),), {}


@primitive(on_complex=AS_WRITTEN)
def column_order(x: NDArray) -> NDArray:
    """The column order by which `qr` with `pivoting=True` makes the diagonal of R decrease."""
    from scipy.linalg import qr

    order = np.empty((*x.shape[:-2], x.shape[-1]), _INTEGER)
    for i in np.ndindex(x.shape[:-2]):
        order[i] = qr(x[i], mode="r", pivoting=True)[1]
    return order


@column_order.def_aval
def _(x: Aval) -> Aval:
    *batch_shape, _, n = matrices("qr", x).shape
    return Aval((*batch_shape, n), _INTEGER)


@column_order.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((3, 4)),), {}
    yield (uniform((2, 4, 3)),), {}


# -- Sylvester's equation, square roots and logarithms ---------------------------------------------------------------
def _size(x: Array) -> Any:
    return np.max(np.abs(x), initial=0.0)


def _has_digits(solution: NDArray, a: NDArray, b: NDArray, q: NDArray) -> bool:
    """Whether rounding leaves correct digits: LAPACK perturbs a singular equation silently."""
    rounding = 8 * max(q.shape) * np.finfo(q.dtype).eps * (_size(a) + _size(b)) * _size(solution)
    return bool(_size(q) > rounding if _size(a) + _size(b) else _size(q) == 0) or not solution.any()


@primitive(on_complex=AS_WRITTEN)
def sylvester(a: NDArray, b: NDArray, q: NDArray, *, checked: bool) -> Array:
    """The x with a @ x + x @ b = q; if `checked`, as in derivatives, nan for a singular equation."""
    from scipy.linalg import solve_sylvester

    def known(a: NDArray, b: NDArray, q: NDArray) -> Any:
        if all(np.isfinite(x).all() for x in (a, b, q)) and _has_digits(result := solve_sylvester(a, b, q), a, b, q):
            return result
        return np.nan

    return _each(known if checked else solve_sylvester, q.shape[-2:], q.dtype, a, b, q)


@sylvester.def_aval
def _(a: Aval, b: Aval, q: Aval, *, checked: bool) -> Aval:
    if square("sylvester", a).shape[-1] != q.shape[-2] or square("sylvester", b).shape[-1] != q.shape[-1]:
        raise ShapeError(f"sylvester: incompatible matrices for the equation AX + XB = Q: {a}, {b} and {q}")
    return q


@sylvester.def_vjp_all
def _(wanted: Sequence[int], ct: Array, ans: Array, a: Array, b: Array, q: Array, *, checked: bool) -> list[Any]:
    result = sylvester(matrix_transpose(conjugated(a)), matrix_transpose(conjugated(b)), ct, checked=True)
    flipped = matrix_transpose(conjugated(ans))
    each = (
        lambda: negative(matmul(result, flipped)),
        lambda: negative(matmul(flipped, result)),
        lambda: result,
    )
    return [each[i]() for i in wanted]


@sylvester.def_samples
def _() -> Iterator[Sample]:
    yield (well_conditioned((3, 3)), well_conditioned((2, 2), seed=1), uniform((3, 2))), {"checked": False}
    stacks = well_conditioned((2, 9, 9)), well_conditioned((2, 9, 9), seed=1), uniform((2, 9, 9))
    yield stacks, {"checked": True}


def _real(function: str, x: Array) -> Any:
    import scipy.linalg

    # SciPy estimates norms by random vectors, and the bits depend on them.
    state = np.random.get_state()  # noqa: NPY002
    np.random.seed(0)  # noqa: NPY002
    try:
        result = getattr(scipy.linalg, function)(x)
    finally:
        np.random.set_state(state)  # noqa: NPY002
    if np.iscomplexobj(result) and np.any(np.abs(result.imag) > 1e-6 * np.max(np.abs(result))):
        raise np.linalg.LinAlgError(f"{function} of this matrix is complex, which is not supported")
    return result.real


@primitive()
def sqrtm(x: NDArray) -> Array:
    """The square root of matrices that have a real one."""
    return _each(lambda y: _real("sqrtm", y), x.shape[-2:], x.dtype, x)


@sqrtm.def_aval
def _(x: Aval) -> Aval:
    return square("sqrtm", x)


@sqrtm.def_vjp("x")
def _(ct: Array, ans: Array, x: Array) -> Array:
    flipped = matrix_transpose(ans)
    return sylvester(flipped, flipped, ct, checked=True)


@sqrtm.def_samples
def _() -> Iterator[Sample]:
    yield (well_conditioned((3, 3)),), {}
    yield (well_conditioned((2, 9, 9)),), {}


def _is_regular(x: Array) -> bool:
    """Whether `x` is finite, and no eigenvalue is zero up to rounding, for which SciPy substitutes another number."""
    if not np.isfinite(x).all():
        return False
    if not (np.tril(x, -1).any() and np.triu(x, 1).any()):
        return bool(np.diag(x).all())
    sizes = np.abs(np.linalg.eigvals(x))
    return bool(sizes.min() > 4 * len(x) * np.finfo(x.dtype).eps * sizes.max())


@primitive()
def logm(x: NDArray, *, checked: bool) -> Array:
    """The logarithm of matrices that have a real one; if `checked`, as in derivatives, nan for singular matrices."""

    def checked_log(x: Array) -> Array | float:
        return _real("logm", x) if not checked or _is_regular(x) else np.nan

    return _each(checked_log, x.shape[-2:], x.dtype, x)


@logm.def_aval
def _(x: Aval, *, checked: bool) -> Aval:
    return square("logm", x)


def _checked_logm(x: Array) -> Array:
    return logm(x, checked=True)


@logm.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, *, checked: bool) -> Array:
    return along_matrix(_checked_logm, matrix_transpose(x), ct)


@logm.def_jvp
def _(tangents: tuple[Array, ...], ans: Array, x: Array, *, checked: bool) -> Array:
    return along_matrix(_checked_logm, x, tangents[0])


@logm.def_samples
def _() -> Iterator[Sample]:
    yield (well_conditioned((3, 3)),), {"checked": False}
    yield (well_conditioned((2, 4, 4)),), {"checked": True}


# -- null space ----------------------------------------------------------------------------------------------------
@primitive()
def null_basis(x: NDArray, *, rank: int) -> NDArray:
    """Orthonormal columns that span the null space of matrices of this rank.

    Only the span is a function of the matrix: the derivative is the one without rotation of the columns inside the
    span.
    """
    return np.swapaxes(np.linalg.svd(x)[2][..., rank:, :], -1, -2).copy()


@null_basis.def_aval
def _(x: Aval, *, rank: int) -> Aval:
    *batch_shape, _, n = matrices("null_space", x).shape
    return Aval((*batch_shape, n, n - rank), x.dtype)


@null_basis.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, *, rank: int) -> Array:
    flipped = matrix_transpose(pinv(x, atol=0.0, rtol=1e-10))
    return negative(matmul(matmul(flipped, ct), matrix_transpose(ans)))


@null_basis.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((3, 4)),), {"rank": 3}


# -- banded systems ------------------------------------------------------------------------------------------------
@primitive(on_complex=AS_WRITTEN)
def solve_banded(ab: NDArray, b: NDArray, *, lower: int, upper: int) -> Array:
    """The y with a @ y = b, where a has `lower` diagonals below its own and `upper` above: row k of `ab` is the
    diagonal at j - i = upper - k, and has a[i, j] in column j."""
    from scipy.linalg import solve_banded

    return _each(lambda a, y: solve_banded((lower, upper), a, y), b.shape[-2:], b.dtype, ab, b)


@solve_banded.def_aval
def _(ab: Aval, b: Aval, *, lower: int, upper: int) -> Aval:
    n = ab.shape[-1]
    if ab.shape[-2] != lower + upper + 1 or b.shape[-2] != n or ab.shape[:-2] != b.shape[:-2] or ab.dtype != b.dtype:
        raise ShapeError(f"solve_banded: {ab} and {b} with {lower} and {upper} diagonals beside the main one")
    return b


def moved(x: Array, by: int) -> Array:
    """`x` shifted along its last axis, with zeros shifted in: element j is x[j + by]."""
    n, last = x.shape[-1], len(x.shape) - 1
    by = max(-n, min(by, n))
    saved = slice(x, start=(*(0,) * last, max(by, 0)), stop=(*x.shape[:-1], n + min(by, 0)), step=(1,) * (last + 1))
    low, high = (*(0,) * last, max(-by, 0)), (*(0,) * last, max(by, 0))
    return pad(saved, low=low, high=high, interior=(0,) * (last + 1), value=0)


def _matrix_row(x: Array, k: int) -> Array:
    return rows(x, k, k + 1)


@solve_banded.def_vjp_all
def _(wanted: Sequence[int], ct: Array, ans: Array, ab: Any, b: Array, *, lower: int, upper: int) -> list[Any]:
    last, ans, ab = len(ab.shape) - 1, conjugated(ans), conjugated(ab)
    # Row k of a.T is its diagonal at j - i = lower - k: the shifted diagonal of `a` at i - j = lower - k.
    flipped = [moved(_matrix_row(ab, upper + lower - k), k - lower) for k in range(lower + upper + 1)]
    ct_b = solve_banded(concatenate(*flipped, axis=last - 1), ct, lower=upper, upper=lower)
    if 0 not in wanted:
        return [ct_b]
    y, x = matrix_transpose(ct_b), matrix_transpose(ans)
    products = [
        negative(reduce_sum(multiply(moved(y, k - upper), x), axes=(last - 1,))) for k in range(lower + upper + 1)
    ]
    shape = (*ab.shape[:-2], 1, ab.shape[-1])
    table = {0: concatenate(*[reshape(p, shape=shape) for p in products], axis=last - 1), 1: ct_b}
    return [table[i] for i in wanted]


@solve_banded.def_samples
def _() -> Iterator[Sample]:
    ab = np.array([[0.0, 0.5, -0.3, 0.4, 0.2], [3.0, 4.0, 3.5, 5.0, 4.5], [0.5, 0.1, -0.4, 0.3, 0.0]])
    yield (ab, uniform((5, 2))), {"lower": 1, "upper": 1}
    ab = np.concatenate([[[0.0, 0.0, 0.2, 0.4, 0.1]], ab, [[0.2, 0.4, 0.1, 0.0, 0.0]]])
    yield (np.stack([ab, ab + 0.1]), uniform((2, 5, 1))), {"lower": 2, "upper": 2}
