"""Multiply by and solve with sparse matrices; imported on first use, as `matrix_functions`.

A matrix is three arrays, as in SciPy's "csr" format: the elements row by row (`data`), their columns (`indices`), and
the start of each row (`indptr`). A "csc" matrix is the transpose of a "csr" matrix.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.errors import ShapeError
from tracegrad.ops.core.op import Op
from tracegrad.ops.elementwise.table import negative
from tracegrad.ops.shape.batching import item_at, repeated
from tracegrad.ops.shape.linear import reshape, transpose
from tracegrad.ops.shape.stack_split import stack
from tracegrad.typing import Array, ArrayLike

if TYPE_CHECKING:
    from collections.abc import Callable


def _op(f: Callable[..., object]) -> Op:
    """An op that is not in the table, because not every integer array is a valid sparsity pattern."""
    code = f.__code__
    return Op(f.__name__, code.co_varnames[: code.co_argcount], f, f.__doc__ or "", variadic=False, listed=False)


# -- products ------------------------------------------------------------------------------------------------------
@_op
def sparse_product(data: object, indices: Any, indptr: Any, x: Any, *, rows: int, transposed: bool) -> Any:
    """The product of the matrix, or of its transpose if `transposed`, with the matrix x; it has `rows` rows."""
    from scipy.sparse import _sparsetools as tools

    out, x = np.zeros((rows, x.shape[1]), x.dtype), np.array(x, order="C")
    indptr = indptr.astype(indices.dtype, copy=False)
    name = f"{'csc' if transposed else 'csr'}_matvec{'' if x.shape[1] == 1 else 's'}"
    count = () if x.shape[1] == 1 else (x.shape[1],)
    getattr(tools, name)(rows, x.shape[0], *count, indptr, indices, data, x.ravel(), out.ravel())
    return out


@sparse_product.def_aval
def _(data: Aval, indices: Aval, indptr: Aval, x: Aval, *, rows: int, transposed: bool) -> Aval:
    row_count = x.shape[0] if transposed and x.ndim == 2 else rows
    if x.ndim != 2 or data.shape != indices.shape or data.ndim != 1 or indptr.shape != (row_count + 1,):
        raise ShapeError(f"sparse_product of {data}, {indices} and {indptr} with {x}")
    if data.dtype != x.dtype:
        raise ShapeError(f"sparse_product wants one dtype, got {data} and {x}")
    return Aval((rows, x.shape[1]), x.dtype)


sparse_product.separately_linear("data", "x")


@sparse_product.def_vjp("data")
def _(ct: Any, ans: Array, data: Array, indices: Any, indptr: Any, x: Any, *, rows: int, transposed: bool) -> Any:
    return sparse_outer(indices, indptr, *((x, ct) if transposed else (ct, x)))


@sparse_product.def_vjp("x")
def _(ct: Any, ans: Array, data: Any, indices: Any, indptr: Any, x: Any, *, rows: int, transposed: bool) -> Any:
    return sparse_product(data, indices, indptr, ct, rows=x.shape[0], transposed=not transposed)


@sparse_product.def_batch
def _(size: int, batched: Any, *operands: Array, rows: int, transposed: bool) -> Array:
    data, indices, indptr, x = operands
    if any(batched[:3]):
        return _one_by_one(sparse_product, size, batched, operands, rows=rows, transposed=transposed)
    return _with_batch_columns(
        size, x, lambda y: sparse_product(data, indices, indptr, y, rows=rows, transposed=transposed)
    )


def _with_batch_columns(size: int, x: Any, f: Any) -> Array:
    """The results of `f` for a batch of matrices, which are concatenated along columns."""
    n, k = x.shape[1:]
    result = f(reshape(transpose(x, perm=(1, 0, 2)), shape=(n, size * k)))
    return transpose(reshape(result, shape=(result.shape[0], size, k)), perm=(1, 0, 2))


def _one_by_one(op: Any, size: int, batched: Any, operands: Sequence[Any], **params: Any) -> Array:
    args = repeated(size, batched, operands)
    return stack(*[op(*[item_at(v, i) for v in args], **params) for i in range(size)], axis=0)


@_op
def sparse_outer(indices: Array, indptr: Any, u: Array, v: Array) -> Array:
    """The elements of u @ v.T at the stored positions of the matrix."""
    rows = np.repeat(np.arange(u.shape[0]), np.diff(indptr))
    return np.sum(u[rows] * v[indices], axis=1, dtype=u.dtype)


@sparse_outer.def_aval
def _(indices: Aval, indptr: Aval, u: Aval, v: Aval) -> Aval:
    if (
        u.ndim != 2
        or v.ndim != 2
        or u.shape[1] != v.shape[1]
        or indptr.shape != (u.shape[0] + 1,)
        or u.dtype != v.dtype
    ):
        raise ShapeError(f"sparse_outer of {u} and {v} at {indices} and {indptr}")
    return Aval(indices.shape, u.dtype)


sparse_outer.separately_linear("u", "v")


@sparse_outer.def_vjp("u")
def _(ct: Any, ans: Array, indices: Any, indptr: Any, u: Any, v: Any) -> Any:
    return sparse_product(ct, indices, indptr, v, rows=u.shape[0], transposed=False)


@sparse_outer.def_vjp("v")
def _(ct: Any, ans: Array, indices: Any, indptr: Any, u: Any, v: Any) -> Any:
    return sparse_product(ct, indices, indptr, u, rows=v.shape[0], transposed=True)


@sparse_outer.def_batch
def _(size: int, batched: object, *operands: Array) -> Array:
    return _one_by_one(sparse_outer, size, batched, operands)


# -- systems -------------------------------------------------------------------------------------------------------
@_op
def sparse_solve(
    data: object, indices: object, indptr: object, b: Array, *, csc: bool, trans: bool, factored: bool
) -> Any:
    """The x with A @ x = b, or A.T @ x = b, by `spsolve`, or by `splu`, whose last factors are cached."""
    from scipy import sparse
    from scipy.sparse import linalg

    matrix = (sparse.csc_array if csc else sparse.csr_array)((data, indices, indptr), shape=(b.shape[0],) * 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", linalg.MatrixRankWarning)
        if factored:
            return _factors(matrix).solve(np.asarray(b, np.float64), "T" if trans else "N").astype(b.dtype)
        result = linalg.spsolve(matrix.T if trans else matrix, b[:, 0] if b.shape[1] == 1 else b)
        return np.asarray(result, b.dtype).reshape(b.shape)


_LAST: list[Any] = [None, None]


def _factors(matrix: Any) -> Any:
    from scipy.sparse import linalg

    known, result = _LAST
    key = matrix.format, *(x.tobytes() for x in (matrix.data, matrix.indices, matrix.indptr))
    if known != key:
        result = linalg.splu(matrix.tocsc())
        _LAST[:] = key, result
    return result


@sparse_solve.def_aval
def _(data: Aval, indices: Aval, indptr: Aval, b: Aval, **params: object) -> Aval:
    if b.ndim != 2 or data.shape != indices.shape or indptr.shape != (b.shape[0] + 1,) or data.dtype != b.dtype:
        raise ShapeError(f"sparse_solve of {data}, {indices} and {indptr} with {b}")
    return b


@sparse_solve.def_vjp_all
def _(
    wanted: Sequence[int],
    ct: Array,
    ans: Array,
    data: Array,
    indices: Array,
    indptr: Any,
    b: Array,
    *,
    csc: bool,
    trans: bool,
    factored: bool,
) -> list[Any]:
    share = sparse_solve(data, indices, indptr, ct, csc=csc, trans=not trans, factored=factored)
    table: dict[int, Any] = {3: share}
    if 0 in wanted:
        sides = (ans, share) if csc != trans else (share, ans)
        table[0] = negative(sparse_outer(indices, indptr, *sides))
    return [table.get(i) for i in wanted]


@sparse_solve.def_batch
def _(size: int, batched: Any, *operands: Any, **params: Any) -> Array:
    data, indices, indptr, b = operands
    if any(batched[:3]):
        return _one_by_one(sparse_solve, size, batched, operands, **params)
    return _with_batch_columns(size, b, lambda y: sparse_solve(data, indices, indptr, y, **params))


class SuperLUFactors:
    """Cached factors of SciPy, identified by their object."""

    def __init__(self, factors: Any):
        self.factors = factors

    def __repr__(self) -> str:
        return repr(f"SuperLU {id(self.factors)}")


@_op
def solve_with(b: ArrayLike, *, lu: SuperLUFactors, trans: bool) -> Any:
    """The x with A @ x = b, or A.T @ x = b, given SciPy's factors of A."""
    return lu.factors.solve(np.asarray(b, order="F"), "T" if trans else "N")


@solve_with.def_aval
def _(b: Aval, *, lu: SuperLUFactors, trans: bool) -> Aval:
    if b.ndim != 2 or b.shape[0] != lu.factors.shape[0] or b.dtype != np.float64:
        raise ShapeError(f"factors of a matrix of {lu.factors.shape} cannot solve for {b}")
    return b


solve_with.linear_in("b")


@solve_with.def_vjp("b")
def _(ct: Array, ans: Array, b: Array, *, lu: SuperLUFactors, trans: bool) -> Any:
    return solve_with(ct, lu=lu, trans=not trans)


@solve_with.def_batch
def _(size: int, batched: object, b: Array, **params: object) -> Array:
    return _with_batch_columns(size, b, lambda y: solve_with(y, **params))
