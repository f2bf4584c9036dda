"""Eigenvalues of general matrices, and roots of polynomials, which use them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.numpy_api.joining import concatenate
from tracegrad.numpy_api.lazy.sets import trim_zeros
from tracegrad.numpy_api.linalg import square_matrices
from tracegrad.numpy_api.operands import arrays, constant, has_value, peer_of, to_dtype, to_float
from tracegrad.numpy_api.registry import implements
from tracegrad.numpy_api.sorting import sort
from tracegrad.ops.elementwise.complex import imag, real
from tracegrad.ops.elementwise.table import divide, equal, negative
from tracegrad.ops.linalg import eig as eigen
from tracegrad.ops.shape.linear import reshape
from tracegrad.typing import Array, ArrayLike

_OF_NUMPY: Any = np.linalg.eig(np.eye(1))
_Eig: Any = type(_OF_NUMPY)
# Since NumPy 2.5 the results are always complex, except the zeros of polynomials.
_MAY_BE_REAL = _OF_NUMPY.eigenvalues.dtype.kind != "c"


def all_real(x: Array, values: Array) -> bool:
    """Whether a matrix and all its eigenvalues are real, so that results are real.

    This is a query; if there are no values to query, results are complex.
    """
    return x.dtype.kind != "c" and has_value(values) and bool(np.all(equal(imag(values), 0)))


@implements(np.linalg.eig)
def eig(a: ArrayLike) -> Any:
    """`np.linalg.eig`; whether the eigenvalues of a real matrix are real is a query, which leaves a guard.

    In batches and other regions they are complex.
    """
    x = square_matrices("eig", a)
    w, v = eigen.eig(x)
    return _Eig(real(w), real(v)) if _MAY_BE_REAL and all_real(x, w) else _Eig(w, v)


@implements(np.linalg.eigvals)
def eigvals(a: ArrayLike) -> Array:
    """`np.linalg.eigvals`; whether the eigenvalues of a real matrix are real is a query, which leaves a guard.

    In batches and other regions they are complex.
    """
    x = square_matrices("eigvals", a)
    w = eigen.eigvals(x)
    return real(w) if _MAY_BE_REAL and all_real(x, w) else w


@implements(np.roots)
def roots(p: ArrayLike) -> Array:
    """`np.roots`; the number of zero coefficients at the ends is a query, which leaves guards.

    In batches and other regions the first coefficient counts as nonzero.
    """
    (x,) = arrays(p)
    x = to_float(x)
    if len(x.shape) != 1:
        raise ValueError("Input must be a rank-1 array.")
    peer = peer_of(x)
    known = has_value(x)
    shorter = trim_zeros(x, "b") if known else x
    core = trim_zeros(shorter, "f") if known else x
    n = core.shape[0]
    if not n:
        return constant(np.array([]), peer)
    result = constant(np.array([]), peer)
    if n > 1:
        top = reshape(divide(negative(core[1:]), core[0]), shape=(1, n - 1))
        below = constant(np.eye(n - 2, n - 1, dtype=core.dtype), peer)
        companion = concatenate([top, below], 0)
        result = eigen.eigvals(companion)
        result = real(result) if all_real(companion, result) else result
    zeros = x.shape[0] - shorter.shape[0]
    return concatenate([result, constant(np.zeros(zeros, result.dtype), peer)], 0) if zeros else result


@implements(np.sort_complex)
def sort_complex(a: ArrayLike) -> Array:
    """`np.sort_complex`: by the real parts, then by the imaginary ones; numbers with a nan part come last."""
    (x,) = arrays(a)
    if x.dtype.kind != "c":
        is_small_int = x.dtype.kind in "iu" and x.dtype.itemsize <= 2
        return to_dtype(np.sort(x), np.complex64 if is_small_int else np.complex128)
    return sort(x)
