"""Functions of `torch.linalg` in LAPACK's form: results with error codes, LDL factors, and QR by reflectors.

A code is 0 for a matrix that was factored, as LAPACK's `info`. Codes, LDL factors and reflectors have no derivatives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.avals import dtype_named, short_name
from tracegrad.errors import located
from tracegrad.numpy_api.linalg import matrices, square_matrices
from tracegrad.numpy_api.operands import array, constant, peer_of
from tracegrad.ops.calls.custom_call import opaque
from tracegrad.ops.elementwise.complex import conjugated
from tracegrad.ops.elementwise.table import where
from tracegrad.ops.linalg.contraction import matrix_transpose
from tracegrad.ops.shape.linear import broadcast_to, concatenate, reshape, stop_gradient
from tracegrad.torch.functions.core.dims import size_error, type_name
from tracegrad.torch.functions.core.operands import floating
from tracegrad.torch.functions.core.parameter_table import FUNCTION_DOCS
from tracegrad.torch.functions.core.registry import FUNCTIONS, function
from tracegrad.torch.functions.core.return_types import return_type
from tracegrad.torch.functions.linalg.factorizations import householder_product
from tracegrad.torch.functions.linalg.matrices import cholesky, inv, solve
from tracegrad.torch.functions.linalg.matrix_errors import LinAlgError
from tracegrad.typing import Array, ArrayLike, NDArray

__all__ = ["cholesky_ex", "inv_ex", "ldl_factor", "ldl_factor_ex", "ldl_solve", "solve_ex"]


class _Lapack:
    """A routine of LAPACK that is applied to each matrix of a stack, by SciPy.

    `call` gets SciPy's function and the matrices, and returns the results for them.
    """

    def __init__(self, name: str, call: Callable[..., tuple[NDArray | np.int32, ...]]):
        self.name, self.call = name, call

    def __repr__(self) -> str:
        return repr(f"lapack {self.name}")

    def __call__(self, *xs: NDArray) -> tuple[NDArray, ...]:
        from scipy.linalg import lapack

        routine = lapack.get_lapack_funcs(self.name, xs[:1])
        batch = xs[0].shape[:-2]
        count = int(np.prod(batch))
        rows = [self.call(routine, *[x.reshape(count, *x.shape[len(batch) :])[k] for x in xs]) for k in range(count)]
        return tuple([np.stack(each).reshape((*batch, *each[0].shape)) for each in zip(*rows)])

    def of(self, *xs: Array, results: tuple[tuple[tuple[int, ...], str], ...]) -> list[Array]:
        """Apply it to values; `results` are the shapes of results for a matrix, and their short dtypes."""
        batch = xs[0].shape[:-2]
        shapes = tuple([((*batch, *shape), kind) for shape, kind in results])
        if 0 in xs[0].shape:
            return [constant(np.zeros(shape, dtype_named(kind)), peer_of(*xs)) for shape, kind in shapes]
        return list(opaque(*map(stop_gradient, xs), results=shapes, call=self))


def _cholesky_of(routine: Any, x: NDArray) -> tuple[NDArray | np.int32, ...]:
    factor, info = routine(x, lower=True, clean=True)
    return factor, np.int32(info)


def _code_of_lu(routine: Any, x: NDArray) -> tuple[np.int32]:
    return (np.int32(routine(x)[2]),)


def _ldl_of(routine: Any, x: NDArray) -> tuple[NDArray | np.int32, ...]:
    packed, pivots, info = routine(x, lower=True)
    return np.tril(packed), np.asarray(pivots, np.int32), np.int32(info)


def _ldl_solution(routine: Any, packed: NDArray, pivots: NDArray, right: NDArray) -> tuple[NDArray]:
    return (np.ascontiguousarray(routine(packed, pivots, right, lower=True)[0]),)


def _reflectors_of(routine: Any, x: NDArray) -> tuple[NDArray, ...]:
    packed, tau, _, _ = routine(x)
    return np.ascontiguousarray(packed), tau


_POTRF, _GETRF = _Lapack("potrf", _cholesky_of), _Lapack("getrf", _code_of_lu)
_GEQRF = _Lapack("geqrf", _reflectors_of)
# By whether the matrices are Hermitian and complex.
_TRF = {False: _Lapack("sytrf", _ldl_of), True: _Lapack("hetrf", _ldl_of)}
_TRS = {False: _Lapack("sytrs", _ldl_solution), True: _Lapack("hetrs", _ldl_solution)}


# -- results with error codes ------------------------------------------------------------------------------------------
def _checked(name: str, info: Any, check_errors: bool, text: str) -> None:
    """Raise LinAlgError with `check_errors` if a code is not 0; `text` has the place `k` of the first such code."""
    if check_errors and bool((info != 0).any()):
        codes = np.asarray(info).reshape(-1)
        first = int(np.flatnonzero(codes)[0])
        element = f"(Batch element {first}): " if info.shape else ""
        raise LinAlgError(located(f"{name}: {element}{text.format(k=codes[first])}"))


def _usable(x: Array, info: Array) -> tuple[Any, Array]:
    """Return which matrices were factored, and the matrices with the identity in place of the others."""
    is_good = reshape(stop_gradient(info) == 0, shape=(*info.shape, 1, 1))
    identity = constant(np.eye(x.shape[-1], dtype=np.dtype(x.dtype)), peer_of(x))
    return is_good, where(is_good, x, broadcast_to(identity, shape=x.shape))


def cholesky_ex(A: ArrayLike, *, upper: bool = False, check_errors: bool = False) -> Any:
    """Return `cholesky`, and for each matrix the order of the first minor that is not positive definite, or 0.

    The factor of a matrix that is not positive definite is unspecified. LinAlgError for one with `check_errors`.

    >>> L, info = cholesky_ex(np.array([[[4.0]], [[-1.0]]]))
    >>> L[0].tolist(), info.tolist()
    ([[2.0]], [0, 1])
    """
    x = square_matrices("cholesky_ex", floating(A))
    partial, info = _POTRF.of(x, results=((x.shape[-2:], short_name(x.dtype)), ((), "i32")))
    text = "The factorization could not be completed because the input is not positive-definite (the leading minor of "
    _checked("linalg.cholesky_ex", info, check_errors, text + "order {k} is not positive-definite).")
    is_good, usable = _usable(x, info)
    factor = where(is_good, cholesky(usable), partial)
    factor = conjugated(matrix_transpose(factor)) if upper else factor
    return return_type("linalg_cholesky_ex", "L", "info")(factor, info)


def inv_ex(A: ArrayLike, *, check_errors: bool = False) -> Any:
    """Return `inv`, and for each matrix the number of the first zero pivot, or 0.

    The inverse of a singular matrix is nan. LinAlgError for one with `check_errors`.

    >>> inverse, info = inv_ex(np.array([[[4.0]], [[0.0]]]))
    >>> inverse.tolist(), info.tolist()
    ([[[0.25]], [[nan]]], [0, 1])
    """
    x = square_matrices("inv_ex", floating(A))
    (info,) = _GETRF.of(x, results=(((), "i32"),))
    text = (
        "The diagonal element {k} is zero, the inversion could not be completed because the input matrix is singular."
    )
    _checked("linalg.inv_ex", info, check_errors, text)
    is_good, usable = _usable(x, info)
    return return_type("linalg_inv_ex", "inverse", "info")(where(is_good, inv(usable), np.nan), info)


def solve_ex(A: Array, B: Array, *, left: bool = True, check_errors: bool = False) -> Any:
    """Return `solve`, and for each matrix the number of the first zero pivot, or 0.

    The solutions of a singular system are nan. LinAlgError for one with `check_errors`.

    >>> X, info = solve_ex(np.array([[4.0]]), np.array([[2.0]]))
    >>> X.tolist(), info.tolist()
    ([[0.5]], 0)
    """
    x, y = square_matrices("solve_ex", floating(A)), floating(B)
    (info,) = _GETRF.of(x, results=(((), "i32"),))
    text = "The solver failed because the input matrix is singular."
    _checked("torch.linalg.solve_ex", info, check_errors, text)
    is_good, usable = _usable(x, info)
    result = solve(usable, y, left=left)
    is_vector = len(result.shape) < max(len(x.shape), len(y.shape)) or len(y.shape) == 1
    is_good = is_good[..., 0] if is_vector else is_good
    return return_type("linalg_solve_ex", "result", "info")(where(is_good, result, np.nan), info)


# -- LDL ---------------------------------------------------------------------------------------------------------------
def ldl_factor_ex(A: ArrayLike, *, hermitian: bool = False, check_errors: bool = False) -> Any:
    """Return L and D of symmetric or Hermitian matrices in one array, LAPACK's pivots, and for each matrix a code.

    Only the lower triangles are read. The code is the number of the first zero block of D, or 0; LinAlgError for such
    a matrix with `check_errors`. `ldl_solve` solves systems.

    >>> LD, pivots, info = ldl_factor_ex(np.array([[2.0, 1.0], [1.0, 2.0]]))
    >>> LD.tolist(), pivots.tolist(), info.tolist()
    ([[2.0, 0.0], [0.5, 1.5]], [1, 2], 0)
    """
    x = square_matrices("ldl_factor_ex", floating(A))
    n = x.shape[-1]
    kinds = (((n, n), short_name(x.dtype)), ((n,), "i32"), ((), "i32"))
    packed, pivots, info = _TRF[hermitian and x.dtype.kind == "c"].of(x, results=kinds)
    text = "Factor D[{k},{k}] is zero and using it on ldl_solve would result in a division by 0"
    _checked("torch.linalg.ldl_factor_ex", info, check_errors, text)
    return return_type("linalg_ldl_factor_ex", "LD", "pivots", "info")(packed, pivots, info)


def ldl_factor(A: ArrayLike, *, hermitian: bool = False) -> Any:
    """Return the first two results of `ldl_factor_ex`.

    >>> ldl_factor(np.array([[2.0, 1.0], [1.0, 2.0]])).pivots.tolist()
    [1, 2]
    """
    packed, pivots, _ = ldl_factor_ex(A, hermitian=hermitian)
    return return_type("linalg_ldl_factor", "LD", "pivots")(packed, pivots)


def ldl_solve(LD: Array, pivots: Array, B: Array, *, hermitian: bool = False) -> Any:
    """Solve A X = B, given the LDL factors of A.

    RuntimeError for pivots that are no int32, or right-hand sides of another shape.

    >>> LD, pivots = ldl_factor(np.array([[2.0, 1.0], [1.0, 2.0]]))
    >>> ldl_solve(LD, pivots, np.array([[3.0], [3.0]])).tolist()
    [[1.0], [1.0]]
    """
    packed = square_matrices("ldl_solve", LD)
    right = matrices("ldl_solve", B)
    numbers = array(pivots, peer_of(LD))
    if numbers.dtype != np.int32:
        raise RuntimeError(
            located(f"torch.linalg.ldl_solve: Expected pivots to be integers. Got {type_name(numbers.dtype)}")
        )
    if right.shape[-2] != packed.shape[-1]:
        n, (m, k) = packed.shape[-1], right.shape[-2:]
        sizes = f"each A matrix is {n} by {n} but each b matrix is {m} by {k}"
        raise size_error(f"Incompatible matrix sizes for torch.linalg.ldl_solve: {sizes}")
    batch = np.broadcast_shapes(packed.shape[:-2], right.shape[:-2])
    xs = [
        broadcast_to(packed, shape=(*batch, *packed.shape[-2:])),
        broadcast_to(numbers, shape=(*batch, numbers.shape[-1])),
        broadcast_to(right, shape=(*batch, *right.shape[-2:])),
    ]
    kind = ((right.shape[-2:], short_name(right.dtype)),)
    return _TRS[hermitian and packed.dtype.kind == "c"].of(*xs, results=kind)[0]


# -- QR by reflectors --------------------------------------------------------------------------------------------------
@function("geqrf")
def geqrf(input: ArrayLike) -> Any:
    """Return R and the reflectors of Q in one array, and the factors of the reflectors, of `householder_product`.

    >>> a, tau = geqrf(np.array([[3.0], [4.0]]))
    >>> np.round(a, 12).tolist(), np.round(tau, 12).tolist()
    ([[-5.0], [0.5]], [1.6])
    """
    x = matrices("geqrf", floating(input))
    m, n = x.shape[-2:]
    kind = short_name(x.dtype)
    packed, tau = _GEQRF.of(x, results=(((m, n), kind), ((min(m, n),), kind)))
    return return_type("geqrf", "a", "tau")(packed, tau)


@function("ormqr")
def ormqr(input: Array, tau: Array, other: Array, left: bool = True, transpose: bool = False) -> Any:
    """Multiply matrices by the whole Q of reflectors: Q @ other, or other @ Q without `left`; Q^H with `transpose`.

    RuntimeError for sizes that do not fit.

    >>> a, tau = geqrf(np.array([[3.0], [4.0]]))
    >>> np.round(ormqr(a, tau, np.array([[1.0], [0.0]])), 12).tolist()
    [[-0.6], [-0.8]]
    """
    x, factor, y = matrices("ormqr", input), array(tau, peer_of(input)), matrices("ormqr", other)
    m, n = x.shape[-2:]
    if y.shape[-2 if left else -1] != m:
        side = "other.shape[-2]" if left else "other.shape[-1]"
        raise size_error(f"torch.ormqr: {side} must be equal to input.shape[-2]")
    if factor.shape[-1] > min(m, n):
        raise size_error("torch.ormqr: input.shape[-1] must be greater than or equal to tau.shape[-1]")
    if n < m:
        rest = constant(np.zeros((*x.shape[:-1], m - n), np.dtype(x.dtype)), peer_of(x))
        x = concatenate(x, rest, axis=len(x.shape) - 1)
    q = householder_product(x[..., :m], factor)
    q = conjugated(matrix_transpose(q)) if transpose else q
    return FUNCTIONS["matmul"](q, y) if left else FUNCTIONS["matmul"](y, q)


FUNCTION_DOCS.document(globals(), [*__all__, "geqrf", "ormqr"])
