"""`scipy.sparse`: matrices in products with traced arrays, and in systems.

A matrix of SciPy's in traced code is a `Sparse`: itself, and the arrays that hold it, which the program reads at each
call, so that its elements may change. All that is not known of it the matrix does itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.numpy_api.boolean_mask import known
from tracegrad.numpy_api.operands import arrays, promoted, to_dtype, to_float
from tracegrad.numpy_api.registry import refuse
from tracegrad.ops.core.op import Carrier, lead
from tracegrad.ops.linalg.sparse import Kept, solve_with, sparse_product, sparse_solve
from tracegrad.scipy_api.registry import Attributes, shadow, stands_for

__all__ = ["Sparse"]


class Sparse:
    """Stands for a sparse matrix: `held` is its data, indices and row pointers, or those of its transpose (`csc`)."""

    __array_ufunc__ = None
    __array_priority__ = 100.0

    def __init__(self, real: Any, held: tuple[Any, Any, Any], csc: bool, whole: Callable[[], Any]):
        self._real, self._held, self._csc, self._whole = real, held, csc, whole
        self.shape, self.format, self.ndim = real.shape, real.format, 2

    @property
    def T(self) -> Sparse:
        """The transpose."""
        return Sparse(self._real.T, self._held, not self._csc, self._whole)

    def transpose(self, axes: Any = None, copy: bool = False) -> Any:
        """The transpose."""
        return self.T

    def __matmul__(self, other: Any) -> Any:
        return self._on_the_other("__matmul__", other) if _plain(other) else self._times(other)

    def __rmatmul__(self, other: Any) -> Any:
        if _plain(other):
            return self._on_the_other("__rmatmul__", other)
        (x,) = arrays(other)
        return np.transpose(self.T._times(np.transpose(x)))

    def dot(self, other: Any) -> Any:
        """The product with an array or a matrix."""
        return self @ other if np.ndim(other) else self._on_the_other("dot", other)

    def __mul__(self, other: Any) -> Any:
        matrix = type(self._real).__name__.endswith("_matrix")
        return self @ other if matrix and np.ndim(other) else self._on_the_other("__mul__", other)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._whole()
        found = getattr(self._real, name)
        if not callable(found):
            return wrapped(found)

        def call(*args: Any, **kwargs: Any) -> Any:
            given = _refused(f"scipy.sparse.{type(self._real).__name__}.{name}", args, kwargs)
            return wrapped(found(*given[0], **given[1]))

        return call

    def _on_the_other(self, name: str, *others: Any) -> Any:
        self._whole()
        given, _ = _refused(f"scipy.sparse.{type(self._real).__name__}.{name}", others, {})
        return wrapped(getattr(self._real, name)(*given))

    def _times(self, other: Any) -> Any:
        data, x, indices, indptr = *promoted([to_float(v) for v in arrays(self._held[0], other)]), *self._held[1:]
        if not x.shape or len(x.shape) > 2 or x.shape[0] != self.shape[1]:
            raise ValueError(f"matmul: dimension mismatch with signature {self.shape} and {x.shape}")
        columns = x if len(x.shape) == 2 else x.reshape(-1, 1)
        found = sparse_product(data, indices, indptr, columns, rows=self.shape[0], turned=self._csc)
        return found.reshape(self.shape[0], *x.shape[1:])


def _operator(name: str) -> Callable[..., Any]:
    return lambda self, *others: self._on_the_other(name, *others)


for _name in ("add", "radd", "sub", "rsub", "rmul", "truediv", "neg", "pow", "abs", "getitem", "eq", "ne"):
    setattr(Sparse, f"__{_name}__", _operator(f"__{_name}__"))
Sparse.__hash__ = object.__hash__  # type: ignore[method-assign]


def _plain(x: Any) -> bool:
    return not isinstance(x, Carrier) and lead((x,)) is None


def _refused(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments as SciPy takes them; UnsupportedError for traced ones."""

    def real(x: Any) -> Any:
        if isinstance(x, Sparse):
            x._whole()
            return x._real
        if isinstance(x, list | tuple):
            return type(x)([real(v) for v in x])
        found = known(x) if isinstance(x, Carrier) else x
        if isinstance(x, Carrier) and found is None:
            raise refuse(f"{name} with traced elements", "sparse matrices are constants; use a dense array")
        return found

    return [real(x) for x in args], {k: real(x) for k, x in kwargs.items()}


def wrapped(made: Any) -> Any:
    """What stands for a matrix that traced code has made; anything else as it is."""
    found = _of_sparse(made, Attributes(made)) if hasattr(made, "tocsr") else None
    return made if found is None else found


@stands_for("scipy.sparse")
def _of_sparse(value: Any, read: Any) -> Any:
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


# -- functions that make matrices, and those that ask of one ----------------------------------------------------------
_MAKERS = (
    "csr_matrix", "csc_matrix", "coo_matrix", "dia_matrix", "bsr_matrix", "lil_matrix", "dok_matrix", "csr_array",
    "csc_array", "coo_array", "dia_array", "bsr_array", "lil_array", "dok_array", "diags", "diags_array", "eye",
    "eye_array", "identity", "spdiags", "kron", "kronsum", "block_diag", "block_array", "bmat", "hstack", "vstack",
    "tril", "triu", "issparse", "isspmatrix", "find", "random", "random_array", "rand",
)  # fmt: skip


def _maker(name: str) -> None:
    @shadow(f"scipy.sparse.{name}", of_functions=True)
    def make(*args: Any, **kwargs: Any) -> Any:
        import scipy.sparse

        given, named = _refused(f"scipy.sparse.{name}", args, kwargs)
        return wrapped(getattr(scipy.sparse, name)(*given, **named))


for _name in _MAKERS:
    _maker(_name)


# -- systems -------------------------------------------------------------------------------------------------------
def _matrix(what: str, A: Any) -> Sparse:
    found = A if isinstance(A, Sparse) else wrapped(A)
    if not isinstance(found, Sparse):
        raise refuse(f"{what} of a matrix that is not sparse", "use np.linalg.solve or scipy.linalg.solve")
    return found


def _solved(A: Sparse, b: Any, trans: bool, factored: bool) -> Any:
    data, x, indices, indptr = *promoted([to_float(v) for v in arrays(A._held[0], b)]), *A._held[1:]
    data, x = (to_dtype(v, np.dtype(np.float64)) for v in (data, x))
    n = A.shape[0]
    if A.shape != (n, n) or not x.shape or x.shape[0] != n:
        raise ValueError(f"matrix - rhs dimension mismatch ({A.shape} - {x.shape})")
    columns = x if len(x.shape) == 2 else x.reshape(-1, 1)
    params = {"csc": A._csc, "trans": trans, "factored": factored}
    return sparse_solve(data, indices, indptr, columns, **params).reshape(x.shape)


@shadow("scipy.sparse.linalg.spsolve", of_functions=True)
def spsolve(A: Any, b: Any, permc_spec: Any = None, use_umfpack: bool = True) -> Any:
    """`scipy.sparse.linalg.spsolve`, with a dense right side."""
    what = "scipy.sparse.linalg.spsolve"
    if permc_spec is not None or isinstance(b, Sparse):
        raise refuse(f"{what} with permc_spec=, or a sparse right side")
    found = _solved(_matrix(what, A), b, False, False)
    return found.reshape(-1) if len(found.shape) == 2 and found.shape[1] == 1 else found


class Factors:
    """Stands for what `splu` gives of a matrix."""

    def __init__(self, matrix: Sparse):
        self._matrix, self.shape = matrix, matrix.shape

    def solve(self, rhs: Any, trans: str = "N") -> Any:
        """The solution of a system with the matrix, or its transpose."""
        return _solved(self._matrix, rhs, trans != "N", True)

    def __getattr__(self, name: str) -> Any:
        raise refuse(f"the attribute {name!r} of what scipy.sparse.linalg.splu gives")


@shadow("scipy.sparse.linalg.splu", of_functions=True)
def splu(A: Any, *args: Any, **kwargs: Any) -> Any:
    """`scipy.sparse.linalg.splu`, with the usual options."""
    if args or kwargs:
        raise refuse("scipy.sparse.linalg.splu with options")
    return Factors(_matrix("scipy.sparse.linalg.splu", A))


@shadow("scipy.sparse.linalg.factorized", of_functions=True)
def factorized(A: Any) -> Any:
    """`scipy.sparse.linalg.factorized`"""
    return Factors(_matrix("scipy.sparse.linalg.factorized", A)).solve


# -- factors from outside ------------------------------------------------------------------------------------------
class _Given(Factors):
    """Stands for factors that were found outside of traced code."""

    def __init__(self, real: Any):
        self._real, self.shape = Kept(real), real.shape

    def solve(self, rhs: Any, trans: str = "N") -> Any:
        """The solution of a system with the matrix, or its transpose."""
        x = to_dtype(to_float(arrays(rhs)[0]), np.dtype(np.float64))
        columns = x if len(x.shape) == 2 else x.reshape(-1, 1)
        return solve_with(columns, kept=self._real, trans=trans != "N").reshape(x.shape)


@stands_for("scipy.sparse.linalg")
def _of_linalg(value: Any, read: Any) -> Any:
    return _Given(value) if type(value).__name__ == "SuperLU" else None
