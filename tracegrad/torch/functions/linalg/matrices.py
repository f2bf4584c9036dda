"""Matrix functions of `torch.linalg`: factorizations, solvers and eigenvalues of the last two dimensions.

Leading dimensions are a batch. All functions are in the namespace; some are also functions of the package and methods.
Integers become float64. A matrix that must be square and is not raises a RuntimeError that is also NumPy's LinAlgError;
a singular matrix raises LinAlgError, which is both as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad.errors import located
from tracegrad.numpy_api import linalg as numpy_linalg
from tracegrad.numpy_api import selection
from tracegrad.numpy_api.linalg import matrices, square_matrices
from tracegrad.numpy_api.operands import array, arrays, constant, peer_of, promoted
from tracegrad.ops.core.op import named, one_node
from tracegrad.ops.elementwise.table import equal, multiply, square, subtract, where
from tracegrad.ops.linalg import solve as linalg
from tracegrad.ops.linalg.contraction import matmul_any, matrix_transpose
from tracegrad.ops.shape.linear import reduce_sum, reshape
from tracegrad.torch.functions.core.dims import copied, dim_of, one, size_error
from tracegrad.torch.functions.core.operands import in_floats
from tracegrad.torch.functions.core.parameter_table import FUNCTION_DOCS
from tracegrad.torch.functions.core.promotion import require_one_dtype
from tracegrad.torch.functions.core.registry import function, with_aliases
from tracegrad.torch.functions.core.return_types import return_type
from tracegrad.torch.functions.indexing.slicing import diagonal as _diagonal
from tracegrad.torch.functions.linalg.matmul import cross as cross_along
from tracegrad.torch.functions.linalg.matrix_errors import LinAlgError, factors
from tracegrad.torch.functions.linalg.norms import cond, matrix_norm, norm, vector_norm
from tracegrad.torch.functions.linalg.tensor_equations import tensorinv, tensorsolve, vander
from tracegrad.torch.functions.linalg.triangular import solve_triangular
from tracegrad.torch.functions.math.complex import conj
from tracegrad.typing import Array, ArrayLike

__all__ = [
    "LinAlgError", "cholesky", "cond", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "lstsq", "matmul",
    "matrix_exp", "matrix_norm", "matrix_power", "matrix_rank", "multi_dot", "norm", "pinv", "qr", "slogdet", "solve",
    "solve_triangular", "svd", "svdvals", "tensorinv", "tensorsolve", "trace", "vander", "vecdot", "vector_norm",
]  # fmt: skip


_SOLVED = "linalg.solve: Expected A and B to have the same dtype, but found A of type {A} and B of type {B} instead"
_LSTSQ_DTYPES = (
    "torch.linalg.lstsq: Expected input and other to have the same dtype, but got input's dtype {A} and other's dtype "
    "{B}"
)


# -- solving -----------------------------------------------------------------------------------------------
@function("inverse")
@factors
def inv(A: ArrayLike) -> Array:
    """Return the inverse; LinAlgError if a matrix is singular.

    >>> inv(np.array([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    result: Array = numpy_linalg.inv(one(A))
    return result


@factors
def solve(A: Array, B: Array, *, left: bool = True) -> Array:
    """Solve A X = B, or X A = B without `left`.

    B is a vector, a vector for each matrix, or a batch of matrices that broadcasts with A. LinAlgError if a matrix is
    singular.

    >>> solve(np.array([[2.0, 0.0], [0.0, 4.0]]), np.array([2.0, 2.0])).tolist()
    [1.0, 0.5]
    """
    require_one_dtype(A, B, _SOLVED)
    x, y = arrays(A, B)
    vector = len(y.shape) == 1 or (len(y.shape) + 1 == len(x.shape) and y.shape == x.shape[:-1])
    if left:
        return numpy_linalg.solved(x, y, vector=vector)
    if vector:
        raise size_error("linalg.solve: Vector broadcasting of the left hand side is not supported for left=False.")
    return _solved_from_right(square_matrices("solve", x), matrices("solve", y))


@one_node("LinalgSolveExBackward0")
def _solved_from_right(x: Array, y: Array) -> Array:
    return matrix_transpose(numpy_linalg.solved(matrix_transpose(x), matrix_transpose(y), vector=False))


def _tolerances(name: str, x: Array, atol: object, rtol: object) -> tuple[float, float]:
    """Return `atol` and `rtol`; without both, rtol is the precision times the larger size."""
    if rtol is None:
        rtol = max(x.shape[-2:]) * float(np.finfo(x.dtype).eps) if atol is None else 0.0
    name = f"linalg.{name}"
    return numpy_linalg.tolerance(name, 0.0 if atol is None else atol), numpy_linalg.tolerance(name, rtol)


@factors
def pinv(A: ArrayLike, *, atol: object = None, rtol: object = None, hermitian: bool = False) -> Array:
    """Return the Moore-Penrose inverse; singular values up to max(atol, rtol * largest) count as zero.

    >>> pinv(np.array([[2.0], [0.0]])).tolist()
    [[0.5, 0.0]]
    """
    x = matrices("pinv", one(A))
    result: Array = numpy_linalg.pseudoinverse(x, *_tolerances("pinv", x, atol, rtol))
    return result


@function("pinverse")
@factors
def pinverse(input: ArrayLike, rcond: float = 1e-15) -> Array:
    """`pinv` with `rtol=rcond`."""
    return pinv(input, rtol=rcond)


_Lstsq = return_type("linalg_lstsq", "solution", "residuals", "rank", "singular_values")


@factors
def lstsq(A: Array, B: Array, rcond: float | None = None, *, driver: str | None = None) -> Any:
    """Return the X of smallest norm that minimizes the norm of A X - B.

    B is a batch of matrices, or of vectors if it has the shape of A without columns. The singular values are empty
    unless the driver is "gelsd" or "gelss". The rank is empty with "gels", which assumes a full rank and ignores
    `rcond`. The residuals are squared norms. They are empty with "gelsy" (None), and if A has not more rows than
    columns or is known to have a lower rank.

    >>> lstsq(np.array([[1.0], [1.0]]), np.array([[1.0], [3.0]])).solution.round(9).tolist()
    [[2.0]]
    """
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise size_error(
            f"torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss), got {driver}"
        )
    require_one_dtype(A, B, _LSTSQ_DTYPES)
    x, y = promoted(in_floats(arrays(A, B)))
    x = matrices("lstsq", x)
    known = rcond is None or driver == "gels"
    rtol = max(x.shape[-2:]) * float(np.finfo(x.dtype).eps) if known else float(rcond)  # type: ignore[arg-type]
    solution = _lstsq(x, y, rtol=rtol)
    residuals = values = constant(np.empty(0, x.dtype), peer_of(x))
    rank: Any = constant(np.empty(0, np.int64), peer_of(x)) if driver == "gels" else numpy_linalg.rank_of(x, 0.0, rtol)
    full = driver == "gels"
    if driver in ("gelsd", "gelss"):
        values = numpy_linalg.svdvals(x)
        full = x.shape[-2] > x.shape[-1] and bool((rank == x.shape[-1]).all())
    if full and x.shape[-2] > x.shape[-1]:
        rest = square(subtract(matmul_any(x, _columns(x, solution, x.shape[-1])), _columns(x, y, x.shape[-2])))
        residuals = reduce_sum(rest, axes=(len(rest.shape) - 2,))
    return _Lstsq(solution, residuals, rank, values)


@one_node("LinalgLstsqBackward0")
def _lstsq(x: Array, y: Array, *, rtol: float) -> Array:
    columns = _columns(x, y, x.shape[-2])
    solution = matmul_any(numpy_linalg.pseudoinverse(x, 0.0, rtol), columns)
    return solution if columns is y else reshape(solution, shape=solution.shape[:-1])


def _columns(x: Array, y: Array, rows: int) -> Array:
    """Convert `y` to a stack of matrices: unchanged, or with one vector for each matrix as a column."""
    vectors = len(y.shape) == 1 or y.shape == (*x.shape[:-2], rows)
    return reshape(y, shape=(*y.shape, 1)) if vectors else y


@factors
def matrix_rank(A: ArrayLike, *, atol: object = None, rtol: object = None, hermitian: bool = False) -> Array:
    """Return the number of singular values above max(atol, rtol * largest singular value).

    >>> int(matrix_rank(np.ones((3, 2))))
    1
    """
    x = matrices("matrix_rank", one(A))
    result: Array = numpy_linalg.rank_of(x, *_tolerances("matrix_rank", x, atol, rtol))
    return result


# -- determinants ------------------------------------------------------------------------------------------
@function("det")
def det(A: ArrayLike) -> Array:
    """Return the determinant; the second derivative is nan for singular matrices, the first one is right.

    >>> float(det(np.eye(2)))
    1.0
    """
    result: Array = numpy_linalg.det(one(A))
    return result


_LinalgSlogdet = return_type("linalg_slogdet", "sign", "logabsdet")
_Slogdet = return_type("slogdet", "sign", "logabsdet")


def slogdet(A: Array) -> Any:
    """Return the sign of the determinant, and the logarithm of its magnitude.

    >>> float(slogdet(np.array([[0.0, 1.0], [1.0, 0.0]])).sign)
    -1.0
    """
    return _LinalgSlogdet(*numpy_linalg.slogdet(one(A)))


@function("slogdet")
def _slogdet(input: Array) -> Any:
    """`linalg.slogdet`."""
    return _Slogdet(*numpy_linalg.slogdet(one(input)))


@function("logdet")
def logdet(input: ArrayLike) -> Array:
    """Return the logarithm of the determinant: -inf if it is zero, nan if it is negative.

    >>> float(logdet(np.eye(2)))
    0.0
    """
    sign, log = numpy_linalg.slogdet(one(input))
    return where(equal(sign, -1.0), math.nan, log)


# -- factorizations ----------------------------------------------------------------------------------------
@factors
def cholesky(A: Array, *, upper: bool = False) -> Array:
    """Return the lower triangular L with A = L L^T, or the upper triangular U with A = U^T U.

    Only this triangle of A is read, because A counts as symmetric. LinAlgError if a matrix is not positive definite.

    >>> cholesky(np.array([[4.0, 0.0], [2.0, 2.0]])).tolist()
    [[2.0, 0.0], [1.0, 1.0]]
    """
    result: Array = numpy_linalg.cholesky(one(A), upper=upper)
    return result


@function("cholesky")
@factors
def _cholesky(input: ArrayLike, upper: bool = False) -> Array:
    """`linalg.cholesky`."""
    return _factor(square_matrices("cholesky", one(input)), upper=upper)


_factor = one_node("CholeskyBackward0")(numpy_linalg.factor)


_LinalgEigh = return_type("linalg_eigh", "eigenvalues", "eigenvectors")


@factors
def eigh(A: Array, UPLO: str = "L") -> Any:
    """Return the eigenvalues in ascending order, and the eigenvectors as columns.

    Only one triangle of A is read, because A counts as symmetric. A derivative through the vectors of equal eigenvalues
    is inf or nan.

    >>> eigh(np.diag([2.0, 1.0])).eigenvalues.tolist()
    [1.0, 2.0]
    """
    return _LinalgEigh(*numpy_linalg.spectrum(one(A), UPLO))


@factors
def eigvalsh(A: ArrayLike, UPLO: str = "L") -> Array:
    """Return the eigenvalues of symmetric matrices in ascending order.

    >>> eigvalsh(np.diag([2.0, 1.0])).tolist()
    [1.0, 2.0]
    """
    result: Array = numpy_linalg.spectral_values(one(A), UPLO)
    return result


_LinalgSvd = return_type("linalg_svd", "U", "S", "Vh")
_Svd = return_type("svd", "U", "S", "V")


@factors
def svd(A: Array, full_matrices: bool = True) -> Any:
    """Return the singular value decomposition A = U diag(S) Vh.

    The vectors that `full_matrices` adds have no derivative of their own, only that of the space which they span. A
    derivative through the vectors of equal singular values is inf or nan.

    >>> svd(np.diag([2.0, 1.0])).S.tolist()
    [2.0, 1.0]
    """
    return _LinalgSvd(*numpy_linalg.svd(one(A), full_matrices))


@function("svd")
@factors
def _svd(input: Array, some: bool = True, compute_uv: bool = True) -> Any:
    """The singular value decomposition input = U diag(S) V^T, as `(U, S, V)`; reduced if `some`.

    Without `compute_uv`, U and V are zeros.
    """
    x = one(input)
    if compute_uv:
        u, s, vh = numpy_linalg.svd(x, not some)
        return _Svd(u, s, named("TransposeBackward0", matrix_transpose(vh)))
    zeros = [constant(np.zeros((*x.shape[:-2], n, n), x.dtype), peer_of(x)) for n in x.shape[-2:]]
    return _Svd(zeros[0], numpy_linalg.svdvals(x), zeros[1])


@factors
def svdvals(A: Array) -> Array:
    """Return the singular values in descending order.

    >>> svdvals(np.diag([1.0, 2.0])).tolist()
    [2.0, 1.0]
    """
    result: Array = numpy_linalg.svdvals(one(A))
    return result


_LinalgQr = return_type("linalg_qr", "Q", "R")
_Qr = return_type("qr", "Q", "R")


def qr(A: Array, mode: str = "reduced") -> Any:
    """Return the factorization A = Q R, with orthonormal columns of Q and an upper triangular R.

    With the mode "r", Q is empty. UnsupportedError for the mode "complete" if it differs from "reduced".

    >>> abs(qr(np.diag([2.0, 1.0])).R).tolist()
    [[2.0, 0.0], [0.0, 1.0]]
    """
    if mode not in ("reduced", "r", "complete"):
        raise size_error(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'"
        )
    x = one(A)
    if mode == "r":
        return _LinalgQr(constant(np.empty(0, x.dtype), peer_of(x)), numpy_linalg.qr(x, mode))
    return _LinalgQr(*numpy_linalg.qr(x, mode))


@function("qr")
def _qr(input: Array, some: bool = True) -> Any:
    """`linalg.qr`, reduced if `some`."""
    return _Qr(*numpy_linalg.qr(one(input), "reduced" if some else "complete"))


# -- functions of matrices and products --------------------------------------------------------------------
@function("matrix_power")
@factors
def matrix_power(A: ArrayLike, n: int) -> Array:
    """Return the n-th power, or a power of the inverse if `n` is negative.

    >>> matrix_power(np.diag([2.0, 1.0]), -2).tolist()
    [[0.25, 0.0], [0.0, 1.0]]
    """
    x = one(A)
    if n != 1:
        power = numpy_linalg.matrix_power(x, n)
        # The identity matrix depends on x, as in PyTorch; its derivative is zero.
        return power if n else named("CopyBackwards", where(constant(np.zeros(x.shape, bool), peer_of(x)), x, power))
    x = square_matrices("matrix_power", x)
    return x.clone() if hasattr(x, "clone") else copied(x)


@function("matrix_exp")
def matrix_exp(A: ArrayLike) -> Array:
    """Return the matrix exponential.

    >>> matrix_exp(np.zeros((2, 2))).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    return named("LinalgMatrixExpBackward0", linalg.matrix_exp(square_matrices("matrix_exp", one(A))))


def multi_dot(tensors: Sequence[Array]) -> Array:
    """Return the product of matrices (the ends may be vectors) in the order of the fewest multiplications.

    >>> multi_dot([np.ones(2), np.eye(2), np.ones(2)]).tolist()
    2.0
    """
    for k, x in enumerate(tensors[1:], 1):
        text = f"multi_dot(): all tensors must have be the same dtype but tensor 0 is {{a}} and tensor {k} {{b}}"
        require_one_dtype(tensors[0], x, text)
    return numpy_linalg.multi_dot(tensors)


@function("chain_matmul", methods=False)
def chain_matmul(*matrices: Array) -> Array:
    """Return `multi_dot` of matrices; RuntimeError without any.

    >>> chain_matmul(np.eye(2), np.eye(2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    if not matrices:
        raise RuntimeError(located("chain_matmul(): Expected one or more matrices"))
    return multi_dot(matrices) if len(matrices) > 1 else one(matrices[0])


def matmul(input: Array, other: Array) -> Array:
    """The matrix product, as `matmul` of the package."""
    x, y = arrays(input, other)
    return named("MmBackward0" if len(x.shape) == len(y.shape) == 2 else "BmmBackward0", matmul_any(x, y))


@with_aliases
def vecdot(x: Array, y: Array, *, dim: int = -1) -> Array:
    """Return the sum of products along `dim`, with the conjugate of `x`; leading dimensions broadcast.

    >>> vecdot(np.array([[1.0, 2.0]]), np.array([3.0, 4.0])).tolist()
    [11.0]
    """
    text = "linalg.vecdot: Expected x and y to have the same dtype, but found x of type {A} and y of type {B} instead"
    require_one_dtype(x, y, text)
    peer = peer_of(x, y)
    both = multiply(conj(array(x, peer)), array(y, peer))
    axis = dim_of(dim, len(both.shape))
    return named("SumBackward1", reduce_sum(both, axes=(axis,) if both.shape else ()))


@with_aliases
def cross(input: Array, other: Array, *, dim: int = -1) -> Array:
    """The cross product of vectors of three components along `dim`.

    >>> cross(np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0])).tolist()
    [0.0, 0.0, 1.0]
    """
    return cross_along(input, other, dim)


def diagonal(A: Array, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    """Return the diagonals of matrices.

    >>> diagonal(np.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [1.0, 4.0]
    """
    return _diagonal(A, offset, dim1, dim2)


def trace(A: ArrayLike, *, offset: int = 0) -> Array:
    """Return the sum of the diagonal of each matrix.

    >>> float(trace(np.eye(3)))
    3.0
    """
    result: Array = _trace(one(A), offset=offset)
    return result


@one_node("TraceBackward0")
def _trace(x: Array, *, offset: int) -> Array:
    return selection.linalg_trace(x, offset=offset)


FUNCTION_DOCS.document(globals(), __all__)
