"""Sparse matrices of `scipy.sparse` in products and linear systems with traced arrays.

A SciPy matrix in traced code is a `Sparse`: the matrix, and the arrays of its elements. The program reads the
arrays at each call, so the elements may change. The matrix itself handles operations that `Sparse` does not know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.numpy_api.boolean_mask import known
from tracegrad.numpy_api.operands import arrays, promoted, to_dtype, to_float
from tracegrad.numpy_api.registry import refuse
from tracegrad.ops.core.op import Carrier, dispatch_operand
from tracegrad.ops.linalg.sparse import SuperLUFactors, solve_with, sparse_product, sparse_solve
from tracegrad.scipy_api.registry import Attributes, replaces_objects, shadow
from tracegrad.typing import Array, ArrayLike, Axes


class Sparse:
    """Replacement of a sparse matrix: `held` is its data, indices and row pointers, or its transpose's (`csc`)."""

    __array_ufunc__ = None
    __array_priority__ = 100.0

    def __init__(self, real: Any, held: tuple[Any, Any, Any], csc: bool, whole: Callable[[], Any]):
        self._real, self._held, self._csc, self._whole = real, held, csc, whole
        self.shape, self.format, self.ndim = real.shape, real.format, 2

    @property
    def T(self) -> Sparse:
        """Return the transpose."""
        return Sparse(self._real.T, self._held, not self._csc, self._whole)

    def transpose(self, axes: Axes = None, copy: bool = False) -> Array:
        """Return the transpose."""
        return self.T

    def __matmul__(self, other: Array) -> Any:
        return self._on_the_other("__matmul__", other) if _plain(other) else self._times(other)

    def __rmatmul__(self, other: ArrayLike) -> Any:
        if _plain(other):
            return self._on_the_other("__rmatmul__", other)
        (x,) = arrays(other)
        return np.transpose(self.T._times(np.transpose(x)))

    def dot(self, other: Any) -> Array:
        """Multiply by an array or a matrix."""
        return self @ other if np.ndim(other) else self._on_the_other("dot", other)

    def __mul__(self, other: Any) -> Any:
        matrix = type(self._real).__name__.endswith("_matrix")
        return self @ other if matrix and np.ndim(other) else self._on_the_other("__mul__", other)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._whole()
        result = getattr(self._real, name)
        if not callable(result):
            return wrapped(result)

        def call(*args: Any, **kwargs: object) -> Array:
            inputs = _refused(f"scipy.sparse.{type(self._real).__name__}.{name}", args, kwargs)
            return wrapped(result(*inputs[0], **inputs[1]))

        return call

    def _on_the_other(self, name: str, *others: Any) -> Array:
        self._whole()
        args, _ = _refused(f"scipy.sparse.{type(self._real).__name__}.{name}", others, {})
        return wrapped(getattr(self._real, name)(*args))

    def _times(self, other: ArrayLike) -> Array:
        data, x, indices, indptr = *promoted([to_float(v) for v in arrays(self._held[0], other)]), *self._held[1:]
        if not x.shape or len(x.shape) > 2 or x.shape[0] != self.shape[1]:
            raise ValueError(f"matmul: dimension mismatch with signature {self.shape} and {x.shape}")
        columns = x if len(x.shape) == 2 else x.reshape(-1, 1)
        result = sparse_product(data, indices, indptr, columns, rows=self.shape[0], transposed=self._csc)
        output: Array = result.reshape(self.shape[0], *x.shape[1:])
        return output


def _operator(name: str) -> Callable[..., object]:
    return lambda self, *others: self._on_the_other(name, *others)


for _name in ("add", "radd", "sub", "rsub", "rmul", "truediv", "neg", "pow", "abs", "getitem", "eq", "ne"):
    setattr(Sparse, f"__{_name}__", _operator(f"__{_name}__"))
Sparse.__hash__ = object.__hash__  # type: ignore[method-assign]


def _plain(x: object) -> bool:
    return not isinstance(x, Carrier) and dispatch_operand((x,)) is None


def _refused(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Convert the arguments to SciPy's own objects; UnsupportedError for traced arguments."""

    def real(x: Any) -> Any:
        if isinstance(x, Sparse):
            x._whole()
            return x._real
        if isinstance(x, list | tuple):
            return type(x)([real(v) for v in x])
        result = known(x) if isinstance(x, Carrier) else x
        if isinstance(x, Carrier) and result is None:
            raise refuse(f"{name} with traced elements", "sparse matrices are constants; use a dense array")
        return result

    return [real(x) for x in args], {k: real(x) for k, x in kwargs.items()}


def wrapped(output: Array) -> Array:
    """Return the replacement of a matrix that traced code has created; other objects unchanged."""
    result = _of_sparse(output, Attributes(output)) if hasattr(output, "tocsr") else None
    return output if result is None else result


@replaces_objects("scipy.sparse")
def _of_sparse(value: Any, read: Any) -> Sparse | None:
    if read is None or isinstance(value, type) or not hasattr(value, "tocsr") or len(value.shape) != 2:
        return None
    whole = getattr(read, "whole", lambda: None)
    if value.format not in ("csr", "csc"):
        whole()
        value = value.tocsr()
        read = Attributes(value)
    elif value.dtype.kind == "c":
        return None
    read("_shape")
    return Sparse(value, (read("data"), read("indices"), read("indptr")), value.format == "csc", whole)


# -- functions that create or examine matrices -------------------------------------------------------------------------
_MAKERS = (
    "csr_matrix", "csc_matrix", "coo_matrix", "dia_matrix", "bsr_matrix", "lil_matrix", "dok_matrix", "csr_array",
    "csc_array", "coo_array", "dia_array", "bsr_array", "lil_array", "dok_array", "diags", "diags_array", "eye",
    "eye_array", "identity", "spdiags", "kron", "kronsum", "block_diag", "block_array", "bmat", "hstack", "vstack",
    "tril", "triu", "issparse", "isspmatrix", "find", "random", "random_array", "rand",
)  # fmt: skip


def _maker(name: str) -> None:
    @shadow(f"scipy.sparse.{name}", of_functions=True)
    def make(*args: Any, **kwargs: object) -> Array:
        import scipy.sparse

        inputs, named = _refused(f"scipy.sparse.{name}", args, kwargs)
        return wrapped(getattr(scipy.sparse, name)(*inputs, **named))


for _name in _MAKERS:
    _maker(_name)


# -- systems -------------------------------------------------------------------------------------------------------
def _matrix(api_name: str, A: Any) -> Sparse:
    result = A if isinstance(A, Sparse) else wrapped(A)
    if not isinstance(result, Sparse):
        raise refuse(f"{api_name} of a matrix that is not sparse", "use np.linalg.solve or scipy.linalg.solve")
    return result


def _solved(A: Sparse, b: ArrayLike, trans: bool, factored: bool) -> Array:
    data, x, indices, indptr = *promoted([to_float(v) for v in arrays(A._held[0], b)]), *A._held[1:]
    data, x = (to_dtype(v, np.dtype(np.float64)) for v in (data, x))
    n = A.shape[0]
    if A.shape != (n, n) or not x.shape or x.shape[0] != n:
        raise ValueError(f"matrix - rhs dimension mismatch ({A.shape} - {x.shape})")
    columns = x if len(x.shape) == 2 else x.reshape(-1, 1)
    params = {"csc": A._csc, "trans": trans, "factored": factored}
    result: Array = sparse_solve(data, indices, indptr, columns, **params).reshape(x.shape)
    return result


@shadow("scipy.sparse.linalg.spsolve", of_functions=True)
def spsolve(A: ArrayLike, b: ArrayLike, permc_spec: object = None, use_umfpack: bool = True) -> Array:
    """`scipy.sparse.linalg.spsolve`, with a dense right side."""
    api_name = "scipy.sparse.linalg.spsolve"
    if permc_spec is not None or isinstance(b, Sparse):
        raise refuse(f"{api_name} with permc_spec=, or a sparse right side")
    result = _solved(_matrix(api_name, A), b, False, False)
    return result.reshape(-1) if len(result.shape) == 2 and result.shape[1] == 1 else result


class Factors:
    """Replacement of the result of `splu`."""

    def __init__(self, matrix: Sparse):
        self._matrix, self.shape = matrix, matrix.shape

    def solve(self, rhs: ArrayLike, trans: str = "N") -> Array:
        """Solve a system with the matrix, or its transpose."""
        return _solved(self._matrix, rhs, trans != "N", True)

    def __getattr__(self, name: str) -> Any:
        raise refuse(f"the attribute {name!r} of what scipy.sparse.linalg.splu gives")


@shadow("scipy.sparse.linalg.splu", of_functions=True)
def splu(A: ArrayLike, *args: object, **kwargs: object) -> Factors:
    """`scipy.sparse.linalg.splu`, with the usual options."""
    if args or kwargs:
        raise refuse("scipy.sparse.linalg.splu with options")
    return Factors(_matrix("scipy.sparse.linalg.splu", A))


@shadow("scipy.sparse.linalg.factorized", of_functions=True)
def factorized(A: ArrayLike) -> Callable[..., Array]:
    """`scipy.sparse.linalg.factorized`"""
    return Factors(_matrix("scipy.sparse.linalg.factorized", A)).solve


# -- factors from outside ------------------------------------------------------------------------------------------
class _ExternalFactors(Factors):
    """Replacement of factors that were computed outside traced code."""

    def __init__(self, real: Array):
        self._real, self.shape = SuperLUFactors(real), real.shape

    def solve(self, rhs: ArrayLike, trans: str = "N") -> Array:
        """Solve a system with the matrix, or its transpose."""
        x = to_dtype(to_float(arrays(rhs)[0]), np.dtype(np.float64))
        columns = x if len(x.shape) == 2 else x.reshape(-1, 1)
        result: Array = solve_with(columns, lu=self._real, trans=trans != "N").reshape(x.shape)
        return result


@replaces_objects("scipy.sparse.linalg")
def _of_linalg(value: Array, read: object) -> Factors | None:
    return _ExternalFactors(value) if type(value).__name__ == "SuperLU" else None
