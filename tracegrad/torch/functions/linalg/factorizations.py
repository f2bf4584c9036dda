"""Factorizations of `torch.linalg` beyond the usual ones: LU, general eigenvalues, checked forms, reflectors.

SciPy's and NumPy's functions of the same names compute them; pivots count from 1 here, as in LAPACK.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import located
from tracegrad.numpy_api.linalg import matrices, square_matrices
from tracegrad.numpy_api.operands import array, constant, peer_of
from tracegrad.ops.core.op import one_node
from tracegrad.ops.elementwise.complex import conjugated, real
from tracegrad.ops.elementwise.table import where
from tracegrad.ops.linalg.contraction import matmul, matrix_transpose
from tracegrad.ops.linalg.solve import band
from tracegrad.ops.shape.linear import broadcast_to, cast, concatenate, reshape, stop_gradient, zeros_like
from tracegrad.torch.functions.core.generator import stream
from tracegrad.torch.functions.core.operands import floating
from tracegrad.torch.functions.core.parameter_table import FUNCTION_DOCS
from tracegrad.torch.functions.core.registry import FUNCTIONS, METHODS, function
from tracegrad.torch.functions.core.return_types import return_type
from tracegrad.torch.functions.linalg.matrix_errors import LinAlgError, factors
from tracegrad.typing import Array, ArrayLike

if TYPE_CHECKING:
    from types import ModuleType


__all__ = ["eig", "eigvals", "householder_product", "lu", "lu_factor", "lu_factor_ex", "lu_solve"]


def _scipys(name: str) -> Any:
    """Return the function of `scipy_api.linalg.lu` that this one uses, which few programs need."""
    return getattr(import_module("tracegrad.scipy_api.linalg.lu"), name)


# -- eigenvalues -------------------------------------------------------------------------------------------------------
@factors
def eig(A: ArrayLike) -> Any:
    """Return the complex eigenvalues and eigenvectors of square matrices; the vectors have the norm 1.

    A derivative is defined up to the phases of the eigenvectors, and for eigenvalues that differ.

    >>> eig(np.array([[0.0, 1.0], [-1.0, 0.0]])).eigenvalues.tolist()
    [1j, -1j]
    """
    values, vectors = _eigen().eig(square_matrices("eig", floating(A)))
    return return_type("linalg_eig", "eigenvalues", "eigenvectors")(values, vectors)


@factors
def eigvals(A: ArrayLike) -> Array:
    """Return the complex eigenvalues of square matrices.

    >>> eigvals(np.array([[0.0, 1.0], [-1.0, 0.0]])).tolist()
    [1j, -1j]
    """
    result: Array = _eigen().eigvals(square_matrices("eigvals", floating(A)))
    return result


def _eigen() -> ModuleType:
    return import_module("tracegrad.ops.linalg.eig")


# -- LU ----------------------------------------------------------------------------------------------------------------
def _require_pivots(name: str, pivot: bool) -> None:
    if not pivot:
        raise RuntimeError(located(f"{name}: LU without pivoting is not implemented on the CPU"))


@factors
def lu(A: ArrayLike, *, pivot: bool = True) -> Any:
    """Return P, L and U of matrices, with A = P L U: a permutation, and unit lower and upper triangular matrices.

    RuntimeError without `pivot`.

    >>> P, L, U = lu(np.array([[1.0, 2.0], [4.0, 4.0]]))
    >>> L.tolist(), U.tolist()
    ([[1.0, 0.0], [0.25, 1.0]], [[4.0, 4.0], [0.0, 1.0]])
    """
    _require_pivots("linalg.lu", pivot)
    x = matrices("lu", floating(A))
    back, lower, upper = _scipys("lu")(x)
    return return_type("linalg_lu", "P", "L", "U")(cast(back, dtype=x.dtype.name), lower, upper)


@factors
def lu_factor(A: ArrayLike, *, pivot: bool = True) -> Any:
    """Return L and U of row-permuted matrices in one array, without the unit diagonal of L, and the pivots.

    Row i was exchanged with row `pivots[i] - 1`, in sequence. RuntimeError without `pivot`.

    >>> LU, pivots = lu_factor(np.array([[1.0, 2.0], [4.0, 4.0]]))
    >>> LU.tolist(), pivots.tolist()
    ([[4.0, 4.0], [0.25, 1.0]], [2, 2])
    """
    _require_pivots("linalg.lu_factor", pivot)
    packed, pivots = _packed(matrices("lu_factor", floating(A)))
    return return_type("linalg_lu_factor", "LU", "pivots")(packed, pivots)


@factors
def lu_factor_ex(A: ArrayLike, *, pivot: bool = True, check_errors: bool = False) -> Any:
    """Return `lu_factor`, and for each matrix the number of the first zero on the diagonal of U, or 0.

    RuntimeError without `pivot`, and with `check_errors` if there is such a zero.
    """
    _require_pivots("linalg.lu_factor_ex", pivot)
    packed, pivots = _packed(matrices("lu_factor_ex", floating(A)))
    info = _first_zero(stop_gradient(packed))
    if check_errors and bool((info != 0).any()):
        k = int(info.max())
        text = f"torch.linalg.lu_factor_ex: U[{k},{k}] is zero and using it on lu_solve would result in a division by 0"
        raise LinAlgError(located(text))
    return return_type("linalg_lu_factor_ex", "LU", "pivots", "info")(packed, pivots, info)


def _packed(x: Array) -> tuple[Array, Array]:
    """Return the factors in one array, and the pivots from 1 on, of matrices that may be tall or wide."""
    m, n = x.shape[-2:]
    if m == n:
        packed, pivots = _scipys("lu_factor")(x)
    else:
        pivots, lower, upper = _scipys("lu_of_any_shape")(x)
        strict = where(band(lower.shape[-2], lower.shape[-1], -1), lower, zeros_like(lower))
        packed = _with_rows(upper, m) + _with_columns(strict, n)
    return packed, cast(pivots[..., : min(m, n)] + 1, dtype="int32")


def _with_rows(x: Array, count: int) -> Array:
    return matrix_transpose(_with_columns(matrix_transpose(x), count))


def _with_columns(x: Array, count: int) -> Array:
    """Append columns of zeros up to `count` columns."""
    *batch, m, n = x.shape
    if n >= count:
        return x
    zeros = broadcast_to(constant(np.zeros((m, count - n), x.dtype), peer_of(x)), shape=(*batch, m, count - n))
    return concatenate(x, zeros, axis=len(x.shape) - 1)


def _first_zero(packed: Array) -> Any:
    """Return the number, from 1 on, of the first zero on the diagonal, or 0."""
    diagonal = METHODS["diagonal"](packed, 0, -2, -1)
    count = diagonal.shape[-1]
    if not count:
        return constant(np.zeros(packed.shape[:-2], np.int32), peer_of(packed))
    numbers = where(diagonal == 0, np.arange(1, count + 1), count + 1)
    first = FUNCTIONS["amin"](numbers, -1)
    return cast(where(first > count, 0, first), dtype="int32")


@factors
def lu_solve(LU: Array, pivots: Array, B: Array, *, left: bool = True, adjoint: bool = False) -> Array:
    """Solve A X = B from `lu_factor(A)`, or X A = B without `left`; with `adjoint` A^H in place of A.

    >>> lu_solve(*lu_factor(np.array([[2.0, 0.0], [0.0, 4.0]])), np.array([[2.0], [2.0]])).tolist()
    [[1.0], [0.5]]
    """
    x, y = square_matrices("lu_solve", LU), matrices("lu_solve", B)
    if pivots.dtype != np.int32:
        raise RuntimeError(located(f"linalg.lu_solve: pivots should be int32, got {pivots.dtype}"))
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    order = broadcast_to(array(pivots, peer_of(x, y)), shape=(*batch, pivots.shape[-1])) - 1
    x, y = (broadcast_to(z, shape=(*batch, *z.shape[-2:])) for z in (x, y))
    solve = _scipys("lu_solve")
    if left:
        result: Array = solve((x, order), y, 2 if adjoint else 0)
    elif adjoint:  # X A^H = B is A X^H = B^H
        result = conjugated(matrix_transpose(solve((x, order), conjugated(matrix_transpose(y)), 0)))
    else:  # A^T X^T = B^T
        result = matrix_transpose(solve((x, order), matrix_transpose(y), 1))
    return result


@function("lu_solve")
def _lu_solve(input: Array, LU_data: Array, LU_pivots: Array) -> Array:
    """Solve A X = input from `linalg.lu_factor(A)`."""
    return lu_solve(LU_data, LU_pivots, input)


@function("lu")
def _lu(A: ArrayLike, pivot: bool = True, get_infos: bool = False) -> Any:
    """Return `linalg.lu_factor`, and with `get_infos` the third result of `linalg.lu_factor_ex`."""
    LU, pivots, info = lu_factor_ex(A, pivot=pivot)
    return (LU, pivots, info) if get_infos else (LU, pivots)


@function("lu_unpack", methods=False)
def lu_unpack(LU_data: Array, LU_pivots: Array, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
    """Return P, L and U of `lu_factor`; what is not unpacked is empty.

    >>> P, L, U = lu_unpack(*lu_factor(np.array([[1.0, 2.0], [4.0, 4.0]])))
    >>> P.tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    x = matrices("lu_unpack", LU_data)
    m, n = x.shape[-2:]
    k = min(m, n)
    empty = constant(np.zeros(0, x.dtype), peer_of(x))
    permutation, lower, upper = empty, empty, empty
    if unpack_data:
        left, right = x[..., :, :k], x[..., :k, :]
        lower = where(band(m, k, -1), left, where(band(m, k, 0), 1.0, zeros_like(left)))
        upper = where(band(k, n, -1), zeros_like(right), right)
    if unpack_pivots:
        functions = import_module("tracegrad.ops.linalg.matrix_functions")
        rest = constant(np.broadcast_to(np.arange(k, m), (*x.shape[:-2], m - k)), peer_of(x))
        pivots = concatenate(cast(array(LU_pivots, peer_of(x)) - 1, dtype="int64"), rest, axis=len(x.shape) - 2)
        like = x if x.dtype.kind != "c" else real(x)
        permutation = cast(matrix_transpose(functions.exchanging(pivots, like)), dtype=x.dtype.name)
    return return_type("lu_unpack", "P", "L", "U")(permutation, lower, upper)


# -- reflectors --------------------------------------------------------------------------------------------------------
@function("orgqr")
def householder_product(A: Array, tau: Array) -> Array:
    """Return the first columns of the product of the reflections I - tau[k] v v^H, where v is column k of A.

    Elements of v above k count as 0, and element k as 1. RuntimeError for matrices that are wider than tall.

    >>> householder_product(np.array([[0.0], [1.0]]), np.array([1.0])).tolist()
    [[0.0], [-1.0]]
    """
    x, factor = matrices("householder_product", A), array(tau, peer_of(A))
    m, n = x.shape[-2:]
    if m < n:
        text = "torch.linalg.householder_product: input.shape[-2] must be greater than or equal to input.shape[-1]"
        raise RuntimeError(located(text))
    if factor.shape[-1] > n:
        text = "torch.linalg.householder_product: input.shape[-1] must be greater than or equal to tau.shape[-1]"
        raise RuntimeError(located(text))
    return _reflected(x, factor)


@one_node("LinalgHouseholderProductBackward0")
def _reflected(x: Array, tau: Array) -> Array:
    *batch, m, n = x.shape
    vectors = where(band(m, n, -1), x, where(band(m, n, 0), 1.0, zeros_like(x)))
    result = broadcast_to(constant(np.eye(m, n, dtype=x.dtype), peer_of(x)), shape=x.shape)
    for k in reversed(range(tau.shape[-1])):
        v = vectors[..., :, k : k + 1]
        factor = reshape(tau[..., k], shape=(*batch, 1, 1))
        result = result - v * factor * matmul(conjugated(matrix_transpose(v)), result)
    return result


# -- approximations of low rank ----------------------------------------------------------------------------------------
def _basis(x: Array, count: int, iterations: int) -> Array:
    """Return orthonormal columns that span most of the range (Halko, Martinsson and Tropp 2009, algorithm 4.4)."""
    drawn = stream("svd_lowrank").standard_normal((x.shape[-1], count))
    start = array(drawn.astype(np.dtype(x.dtype.char.lower()) if x.dtype.kind == "c" else x.dtype), peer_of(x))
    qr, adjoint = FUNCTIONS["qr"], conjugated(matrix_transpose(x))
    basis = qr(FUNCTIONS["matmul"](x, cast(start, dtype=x.dtype.name)))[0]
    for _ in range(iterations):
        basis = qr(FUNCTIONS["matmul"](adjoint, basis))[0]
        basis = qr(FUNCTIONS["matmul"](x, basis))[0]
    return basis  # type: ignore[no-any-return]


@function("svd_lowrank", methods=False)
def svd_lowrank(A: Array, q: int | None = 6, niter: int | None = 2, M: Array | None = None) -> Any:
    """Return U, S and V of about the `q` largest singular values of A, or of A - M: A is about U diag(S) V^H.

    The first basis is drawn at random, and `niter` power iterations improve it. Source: N. Halko, P. Martinsson,
    J. Tropp, "Finding structure with randomness", 2009.

    >>> np.round(svd_lowrank(np.diag([3.0, 2.0, 0.0]), q=2)[1], 6).tolist()
    [3.0, 2.0]
    """
    x = matrices("svd_lowrank", floating(A))
    x = x if M is None else x - broadcast_to(M, shape=x.shape)
    is_wide = x.shape[-2] < x.shape[-1]
    x = conjugated(matrix_transpose(x)) if is_wide else x
    basis = _basis(x, 6 if q is None else q, 2 if niter is None else niter)
    inside = FUNCTIONS["matmul"](conjugated(matrix_transpose(basis)), x)
    u, values, v = FUNCTIONS["svd"](inside)
    u = FUNCTIONS["matmul"](basis, u)
    return return_type("svd_lowrank", "U", "S", "V")(*((v, values, u) if is_wide else (u, values, v)))


@function("pca_lowrank", methods=False)
def pca_lowrank(A: Array, q: int | None = None, center: bool = True, niter: int = 2) -> Any:
    """Return `svd_lowrank` of A, with `center` after the mean of the rows is subtracted; `q` is by default 6 or fewer.

    ValueError if `q` is above the sizes of A, or `niter` is negative.
    """
    x = matrices("pca_lowrank", floating(A))
    m, n = x.shape[-2:]
    q = min(6, m, n) if q is None else q
    if not 0 <= q <= min(m, n):
        raise ValueError(located(f"q(={q}) must be non-negative integer and not greater than min(m, n)={min(m, n)}"))
    if niter < 0:
        raise ValueError(located(f"niter(={niter}) must be non-negative integer"))
    return svd_lowrank(x - FUNCTIONS["mean"](x, -2, True) if center else x, q, niter)


FUNCTION_DOCS.document(globals(), __all__)
