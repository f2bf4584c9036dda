"""Linear algebra of `np.linalg`: solvers, determinants and factorizations of the last two axes.

Integers become float64. `cholesky` reads one triangle of a symmetric matrix, and has symmetric derivatives, as in
PyTorch, JAX and autograd. `eigh` and `eigvalsh` have derivatives with respect to the triangle that is read, as in
autograd, and symmetric ones for Tensors, as in PyTorch.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import DTypeError, ShapeError, located
from tracegrad.numpy_api.joining import along
from tracegrad.numpy_api.memory_layout import in_new_memory
from tracegrad.numpy_api.operands import arrays, broadcast_shapes, constant, peer_of, promoted, to_float
from tracegrad.numpy_api.reductions import norm
from tracegrad.numpy_api.registry import NO_VALUE, implements, refuse
from tracegrad.numpy_api.selection import take_along_axis
from tracegrad.numpy_api.sorting import argsort
from tracegrad.ops.core.half_rounding import HALF
from tracegrad.ops.core.op import Carrier, DispatchLevel, named, one_node
from tracegrad.ops.elementwise.table import absolute, divide, equal, greater, maximum, multiply, not_equal, sign, where
from tracegrad.ops.linalg import det as determinants
from tracegrad.ops.linalg import factorizations, orthonormal_complement
from tracegrad.ops.linalg import solve as linalg
from tracegrad.ops.linalg.contraction import matmul
from tracegrad.ops.reduce.reductions import reduce_any, reduce_max
from tracegrad.ops.shape.linear import broadcast_to, cast, concatenate, flip, full, reduce_sum, reshape
from tracegrad.typing import Array, ArrayLike, Number

if TYPE_CHECKING:
    from collections.abc import Sequence


# NumPy's own classes of results, which it does not export.
_ONE = np.eye(1)
_Eigh: Any = type(np.linalg.eigh(_ONE))
_QR: Any = type(np.linalg.qr(_ONE))
_SVD: Any = type(np.linalg.svd(_ONE))
_Slogdet: Any = type(np.linalg.slogdet(_ONE))


class MatrixError(ShapeError, np.linalg.LinAlgError, RuntimeError):
    """Error for an array that is no stack of (square) matrices; also NumPy's LinAlgError, and a RuntimeError."""

    _numpys = np.linalg.LinAlgError


def matrices(name: str, a: ArrayLike, halves: bool = False) -> Array:
    """Convert `a` to a stack of matrices of a floating dtype, which may be float16 if `halves`."""
    x = to_float(arrays(a)[0])
    x = x if halves else factorable(name, x)
    if len(x.shape) < 2:
        raise MatrixError(located(f"linalg.{name}: The input tensor A must have at least 2 dimensions."))
    return x


def factorable(name: str, x: Array) -> Array:
    """`x`, or a DTypeError if it has float16, as NumPy's."""
    if x.dtype == HALF:
        raise DTypeError(located(f"linalg.{name}: array type float16 is unsupported in linalg; use astype(np.float32)"))
    return x


def square_matrices(name: str, a: ArrayLike) -> Array:
    """`a` as a stack of square matrices of a floating dtype."""
    x = matrices(name, a)
    m, n = x.shape[-2:]
    if m != n:
        raise MatrixError(
            located(f"linalg.{name}: A must be batches of square matrices, but they are {m} by {n} matrices")
        )
    return x


def _triangle(uplo: str) -> bool:
    if uplo not in ("L", "U", "l", "u"):
        raise ValueError(located(f"Expected UPLO argument to be 'L' or 'U', but got {uplo}"))
    return uplo in ("L", "l")


# -- solving -----------------------------------------------------------------------------------------------
@implements(np.linalg.inv)
def inv(a: ArrayLike) -> Array:
    """`np.linalg.inv`; LinAlgError if a matrix is singular."""
    return named("LinalgInvExBackward0", linalg.inv(square_matrices("inv", a)))


@implements(np.linalg.solve)
def solve(a: ArrayLike, b: Array | Number) -> Array:
    """`np.linalg.solve`; LinAlgError if a matrix is singular."""
    return solved(a, b, vector=len(np.shape(b)) == 1)


def solved(a: ArrayLike, b: ArrayLike, *, vector: bool) -> Array:
    """Solve a @ y = b, where `b` is a stack of vectors or of matrices."""
    x, y = arrays(a, b)
    x, y = promoted([square_matrices("solve", x), factorable("solve", to_float(y))])
    rows = y.shape[-1:] if vector else y.shape[-2:-1]
    if rows != x.shape[-1:]:
        columns = 1 if vector or not y.shape else y.shape[-1]
        shapes = f"{x.shape[-2]}x{x.shape[-1]} and {rows[0] if rows else 1}x{columns}"
        raise MatrixError(located(f"linalg.solve: Incompatible shapes of A and B for the equation AX = B ({shapes})"))
    return _solved(x, y, vector=vector)


@one_node("LinalgSolveExBackward0")
def _solved(x: Array, y: Array, *, vector: bool) -> Array:
    y = reshape(y, shape=(*y.shape, 1)) if vector else y
    batch_shape = broadcast_shapes("solve", x.shape[:-2], y.shape[:-2])
    x, y = (v if v.shape[:-2] == batch_shape else broadcast_to(v, shape=(*batch_shape, *v.shape[-2:])) for v in (x, y))
    out = linalg.solve(x, y)
    return reshape(out, shape=out.shape[:-1]) if vector else out


@implements(np.linalg.pinv)
def pinv(a: ArrayLike, rcond: object = None, hermitian: bool = False, *, rtol: object = NO_VALUE) -> Array:
    """`np.linalg.pinv`; the derivative assumes a constant rank."""
    x = _lower_half("pinv", a) if hermitian else matrices("pinv", a)
    if rcond is None:
        default = 1e-15 if rtol is NO_VALUE else None
        rcond = default if rtol is NO_VALUE else rtol
    elif rtol is not NO_VALUE:
        raise ValueError(located("`rtol` and `rcond` can't be both set."))
    if rcond is None:
        rcond = max(x.shape[-2:]) * float(np.finfo(x.dtype).eps)
    return pseudoinverse(x, 0.0, tolerance("np.linalg.pinv", rcond))


def _lower_half(name: str, a: ArrayLike) -> Array:
    """Return symmetric matrices from the lower triangles, the part that NumPy reads."""
    return of_triangle(square_matrices(name, a), lower=True)


def tolerance(name: str, value: object) -> float:
    if not isinstance(value, int | float | np.number):
        raise refuse(f"a tolerance of {name} that is not a Python number")
    return float(value)


def pseudoinverse(x: Array, atol: float, rtol: float) -> Array:
    """Compute the pseudoinverse; singular values up to max(atol, rtol * the largest) count as zero."""
    return named("LinalgPinvBackward0", factorizations.pinv(x, atol=atol, rtol=rtol))


# -- products ----------------------------------------------------------------------------------------------
def product(x: Array, y: Array) -> Array:
    """Multiply two stacks of matrices, as one tape node with PyTorch's name."""
    return named("MmBackward0" if len(x.shape) == 2 else "BmmBackward0", matmul(x, y))


@implements(np.linalg.multi_dot, refuses=("out",))
def multi_dot(arrays_: Sequence[ArrayLike], *, out: Array | None = None) -> Array:
    """`np.linalg.multi_dot`, in the order that takes the fewest multiplications."""
    xs = promoted(arrays(*arrays_))
    if len(xs) < 2:
        raise ValueError(located("Expecting at least two arrays."))
    vectors = [len(xs[0].shape) == 1, len(xs[-1].shape) == 1]
    xs[0] = reshape(xs[0], shape=(1, *xs[0].shape)) if vectors[0] else xs[0]
    xs[-1] = reshape(xs[-1], shape=(*xs[-1].shape, 1)) if vectors[1] else xs[-1]
    if any(len(x.shape) != 2 for x in xs) or any(x.shape[1] != y.shape[0] for x, y in itertools.pairwise(xs)):
        raise MatrixError(located(f"multi_dot: cannot multiply shapes {', '.join(str(x.shape) for x in xs)}"))
    result = _chain(xs, _splits([xs[0].shape[0], *(x.shape[1] for x in xs)]), 0, len(xs) - 1)
    shape = result.shape[vectors[0] : 2 - vectors[1]]
    return result if shape == result.shape else reshape(result, shape=shape)


def _splits(sizes: list[int]) -> dict[tuple[int, int], int]:
    """Compute the optimal split of each run of matrices: T. Cormen et al., "Introduction to Algorithms", 15.2."""
    n = len(sizes) - 1
    cost = {(i, i): 0 for i in range(n)}
    best: dict[tuple[int, int], int] = {}
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            costs = {k: cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1] for k in range(i, j)}
            best[i, j] = min(costs, key=costs.__getitem__)
            cost[i, j] = costs[best[i, j]]
    return best


def _chain(xs: list[Array], splits: dict[tuple[int, int], int], i: int, j: int) -> Array:
    if i == j:
        return xs[i]
    k = splits[i, j]
    return product(_chain(xs, splits, i, k), _chain(xs, splits, k + 1, j))


@implements(np.linalg.matrix_power)
def matrix_power(a: ArrayLike, n: int) -> Any:
    """`np.linalg.matrix_power`, by repeated squaring."""
    (x,) = arrays(a)
    if n < 0:
        x, n = inv(x), -n
    if len(x.shape) < 2 or x.shape[-1] != x.shape[-2]:
        square_matrices("matrix_power", x)
    if n == 0:
        identity = constant(np.eye(x.shape[-1], dtype=x.dtype), peer_of(x))
        return in_new_memory(broadcast_to(identity, shape=x.shape), "C")
    out = None
    while True:
        if n & 1:
            out = x if out is None else product(out, x)
        n >>= 1
        if not n:
            return out
        x = product(x, x)


# -- determinants ------------------------------------------------------------------------------------------
@implements(np.linalg.det)
def det(a: ArrayLike) -> Array:
    """`np.linalg.det`; at a singular matrix the first two derivatives are correct, and the third is nan."""
    return named("LinalgDetBackward0", determinants.det(square_matrices("det", a)))


@implements(np.linalg.slogdet)
def slogdet(a: ArrayLike) -> Any:
    """`np.linalg.slogdet`; LinAlgError from the derivative at a singular matrix."""
    return _Slogdet(*_slogdet(square_matrices("slogdet", a)))


@one_node("LinalgSlogdetBackward0")
def _slogdet(x: Array) -> tuple[Array, ...]:
    return linalg.slogdet(x)


@implements(np.linalg.matrix_rank)
def matrix_rank(A: ArrayLike, tol: object = None, hermitian: bool = False, *, rtol: object = None) -> Array:
    """`np.linalg.matrix_rank`."""
    x = to_float(arrays(A)[0])
    if len(x.shape) < 2:
        return cast(reduce_any(not_equal(x, 0.0), axes=tuple(range(len(x.shape)))), dtype="int64")
    factorable("matrix_rank", x)
    x = _lower_half("matrix_rank", x) if hermitian else x
    if rtol is None:
        rtol = max(x.shape[-2:]) * float(np.finfo(x.dtype).eps)
    if tol is None:
        return rank_of(x, 0.0, tolerance("np.linalg.matrix_rank", rtol))
    return rank_of(x, tolerance("np.linalg.matrix_rank", tol), 0.0)


def rank_of(x: Array, atol: float, rtol: float) -> Array:
    """Count the singular values above max(atol, rtol * the largest)."""
    s = factorizations.svdvals(x)
    last = (len(s.shape) - 1,)
    if not s.shape[-1]:
        return cast(reduce_sum(s, axes=last), dtype="int64")
    largest = reshape(reduce_max(s, axes=last), shape=(*s.shape[:-1], 1))
    return reduce_sum(cast(greater(s, maximum(multiply(largest, rtol), atol)), dtype="int64"), axes=last)


@implements(np.linalg.cond)
def cond(x: ArrayLike, p: float | str | None = None) -> Array:
    """`np.linalg.cond`; LinAlgError for singular matrices in other norms than the 2-norm."""
    v = matrices("cond", x)
    if p in (None, 2, -2):
        s = svdvals(v)
        first, last = (reshape(along(s, len(s.shape) - 1, i, i + 1), shape=s.shape[:-1]) for i in (0, s.shape[-1] - 1))
        result = divide(last, first) if p == -2 else divide(first, last)
        # For a matrix of zeros the result is nan in PyTorch, and infinity in NumPy.
        return result if _are_tied(v) else where(equal(first, 0.0), divide(1.0, first), result)
    v = square_matrices("cond", v)
    return multiply(norm(v, p, (-2, -1)), norm(inv(v), p, (-2, -1)))


# -- factorizations ----------------------------------------------------------------------------------------
@implements(np.linalg.cholesky)
def cholesky(a: ArrayLike, /, *, upper: bool = False) -> Array:
    """`np.linalg.cholesky`; LinAlgError if a matrix is not positive definite."""
    return _cholesky(square_matrices("cholesky", a), upper=upper)


def factor(x: Array, *, upper: bool) -> Array:
    """Compute the Cholesky factor of square matrices."""
    lower = factorizations.cholesky(linalg.symmetric(x, lower=not upper), lower=False)
    return linalg.adjoint(lower) if upper else lower


_cholesky = one_node("LinalgCholeskyExBackward0")(factor)


@implements(np.linalg.qr)
def qr(a: ArrayLike, mode: str = "reduced") -> Any:
    """`np.linalg.qr` with the modes "reduced", "r" and "complete"."""
    x = matrices("qr", a)
    if mode in ("raw", "economic"):
        raise refuse(f"np.linalg.qr with mode={mode!r}", "use mode='reduced', which gives Q and R")
    if mode not in ("reduced", "complete", "r"):
        raise ValueError(located(f"Unrecognized mode '{mode}'"))
    q, r = _qr(x, complete=mode == "complete")
    return r if mode == "r" else _QR(q, r)


@one_node("LinalgQrBackward0")
def _qr(x: Array, *, complete: bool) -> tuple[Array, ...]:
    q, r = factorizations.qr(x)
    *batch_shape, m, n = x.shape
    if complete and m > n:
        q = concatenate(q, orthonormal_complement.complement(q), axis=len(batch_shape) + 1)
        r = concatenate(r, full(shape=(*batch_shape, m - n, n), value=0, dtype=r.dtype.name), axis=len(batch_shape))
    return q, r


@implements(np.linalg.eigh)
def eigh(a: ArrayLike, UPLO: str = "L") -> Any:
    """`np.linalg.eigh`; derivatives through vectors of equal eigenvalues are nan (docs/singular_points.md)."""
    x = square_matrices("eigh", a)
    return _Eigh(*spectrum(x, UPLO, _are_tied(x)))


def spectrum(a: ArrayLike, uplo: str, tied: bool = True) -> tuple[Array, ...]:
    """Compute eigenvalues and eigenvectors of symmetric matrices from one triangle.

    `tied`: the derivatives are symmetric, as in PyTorch.
    """
    return _eigh(square_matrices("eigh", a), lower=_triangle(uplo), tied=tied)


@one_node("LinalgEighBackward0")
def _eigh(x: Array, *, lower: bool, tied: bool) -> tuple[Array, ...]:
    return factorizations.eigh(_whole(x, lower, tied), lower=lower)


def of_triangle(x: Array, *, lower: bool) -> Array:
    """Return symmetric matrices from one triangle."""
    return _whole(x, lower, _are_tied(x))


def _whole(x: Array, lower: bool, tied: bool) -> Array:
    return (linalg.symmetric if tied else linalg.mirrored)(x, lower=lower)


def _are_tied(x: Array) -> bool:
    """Whether derivatives treat both triangles of a symmetric matrix as one, and are symmetric, as in PyTorch.

    For NumPy's functions, derivatives are with respect to the elements that are read.
    """
    return isinstance(x, Carrier) and x.level in (DispatchLevel.TENSOR, DispatchLevel.TRACED_TENSOR)


@implements(np.linalg.eigvalsh)
def eigvalsh(a: ArrayLike, UPLO: str = "L") -> Array:
    """`np.linalg.eigvalsh`."""
    x = square_matrices("eigvalsh", a)
    return spectral_values(x, UPLO, _are_tied(x))


def spectral_values(a: ArrayLike, uplo: str, tied: bool = True) -> Array:
    """Compute the eigenvalues of `spectrum` alone."""
    return _eigvalsh(square_matrices("eigvalsh", a), lower=_triangle(uplo), tied=tied)


@one_node("LinalgEighBackward0")
def _eigvalsh(x: Array, *, lower: bool, tied: bool) -> Array:
    return factorizations.eigvalsh(_whole(x, lower, tied))


@implements(np.linalg.svd)
def svd(a: ArrayLike, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    """`np.linalg.svd`; derivatives through vectors of equal singular values are nan (docs/singular_points.md).

    The vectors that `full_matrices` adds follow the space that they span without a rotation within it.
    """
    if hermitian:
        return _of_hermitian(square_matrices("svd", a), compute_uv)
    return _SVD(*_svd(matrices("svd", a), whole=full_matrices)) if compute_uv else svdvals(a)


def _of_hermitian(x: Array, vectors: bool) -> Any:
    """Compute the SVD of symmetric or Hermitian matrices from their eigenvalues; without `vectors`, only the values."""
    tied = _are_tied(x)
    w, v = _eigh(x, lower=True, tied=tied) if vectors else (_eigvalsh(x, lower=True, tied=tied), None)
    order = flip(argsort(absolute(w)), axes=(len(w.shape) - 1,))
    w = take_along_axis(w, order, -1)
    if v is None:
        return absolute(w)
    signs, order = (reshape(u, shape=(*u.shape[:-1], 1, u.shape[-1])) for u in (sign(w), order))
    v = take_along_axis(v, broadcast_to(order, shape=v.shape), -1)
    return _SVD(v, absolute(w), linalg.adjoint(multiply(v, cast(signs, dtype=v.dtype.name))))


@one_node("LinalgSvdBackward0")
def _svd(x: Array, *, whole: bool) -> tuple[Array, ...]:
    m, n = x.shape[-2:]
    u, s, vh = factorizations.svd(x)
    last = len(x.shape) - 1
    if whole and m > n:
        u = concatenate(u, orthonormal_complement.added_by_svd(x, u, left=True), axis=last)
    if whole and n > m:
        rest = orthonormal_complement.added_by_svd(x, linalg.adjoint(vh), left=False)
        vh = concatenate(vh, linalg.adjoint(rest), axis=last - 1)
    return u, s, vh


@implements(np.linalg.svdvals)
def svdvals(x: ArrayLike, /) -> Array:
    """`np.linalg.svdvals`."""
    return named("LinalgSvdBackward0", factorizations.svdvals(matrices("svdvals", x)))
