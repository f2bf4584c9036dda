"""Routines of `scipy.linalg.blas` and `.lapack`: products are supported, errors name alternatives to the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.numpy_api.operands import arrays, to_dtype
from tracegrad.numpy_api.registry import refuse
from tracegrad.ops.core.op import dispatch_operand
from tracegrad.typing import Array

_DTYPES = {"s": "f4", "d": "f8", "c": "c8", "z": "c16"}
_LAPACK = {
    "potrf": "cholesky", "potrs": "cho_solve", "posv": "solve with assume_a='pos'", "getrf": "lu_factor",
    "getrs": "lu_solve", "gesv": "solve", "getri": "inv", "geqrf": "qr", "gesdd": "svd", "gesvd": "svd", "syev": "eigh",
    "syevd": "eigh", "syevr": "eigh", "heev": "eigh", "heevd": "eigh", "heevr": "eigh", "geev": "eig",
    "trtrs": "solve_triangular", "trtri": "inv", "gelsd": "lstsq", "gelsy": "lstsq", "gtsv": "solve_banded",
    "gbsv": "solve_banded", "pbsv": "solveh_banded", "stev": "eigh_tridiagonal", "stemr": "eigh_tridiagonal",
}  # fmt: skip
_BLAS = {
    "trsm": "scipy.linalg.solve_triangular",
    "trsv": "scipy.linalg.solve_triangular",
    "axpy": "a * x + y",
    "scal": "a * x",
    "ger": "np.outer",
    "syrk": "a @ a.T",
    "symm": "np.matmul",
    "symv": "np.matmul",
}


def of_fortran(value: Callable[..., object]) -> Callable[..., object]:
    """Return the replacement of a BLAS or LAPACK routine in traced code."""
    name = value.__name__.split()[-1]  # "function dgemm"
    letter, kind = name[:1], name[1:]

    def call(*args: object, **kwargs: object) -> object:
        if dispatch_operand((*args, *kwargs.values())) is None:
            return value(*args, **kwargs)
        replacement = _ROUTINES.get(kind)
        if replacement is None or letter not in _DTYPES:
            raise refuse(f"the routine {name} of scipy.linalg", _instead(kind))
        inputs = [None if x is None else to_dtype(arrays(x)[0], np.dtype(_DTYPES[letter])) for x in args]
        return replacement(*inputs, **kwargs)

    return call


def _instead(kind: str) -> str:
    if kind in _LAPACK:
        return f"use scipy.linalg.{_LAPACK[kind]}"
    return f"use {_BLAS.get(kind, 'the functions of scipy.linalg and numpy.linalg')}"


def _transposed(x: Array, trans: int) -> Array:
    return x if not trans else x.T if trans == 1 else np.conj(x.T)


def _gemm(
    alpha: object,
    a: Array,
    b: Array,
    beta: object = 0.0,
    c: Array | None = None,
    trans_a: int = 0,
    trans_b: int = 0,
    overwrite_c: int = 0,
) -> Array:
    result = alpha * (_transposed(a, int(trans_a)) @ _transposed(b, int(trans_b)))
    return result if c is None else result + beta * c


def _gemv(
    alpha: object,
    a: Array,
    x: Array,
    beta: object = 0.0,
    y: Array | None = None,
    *,
    trans: int = 0,
    overwrite_y: int = 0,
) -> Array:
    result = alpha * (_transposed(a, int(trans)) @ x)
    return result if y is None else result + beta * y


def _dot(x: Array, y: Array) -> Array:
    result: Array = np.sum(x * y)
    return result


_ROUTINES: dict[str, Callable[..., Any]] = {
    "gemm": _gemm,
    "gemv": _gemv,
    "dot": _dot,
    "nrm2": np.linalg.norm,
    "asum": lambda x: np.sum(np.abs(x)),
}
