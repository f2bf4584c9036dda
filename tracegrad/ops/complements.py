"""Columns that complete orthonormal ones to a basis.

Only the space that they span is a function of the given ones, Q; of all ways for them to follow it, the derivative
takes the one in which they do not turn within it: dC = -Q dQ.H C. That is what there is where one column is added, and
for several it is right for whatever depends on their space alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.errors import ShapeError
from tracegrad.ops.contraction import matmul
from tracegrad.ops.elementwise import negative
from tracegrad.ops.linalg import adjoint, matrices
from tracegrad.ops.op import AS_WRITTEN, primitive
from tracegrad.ops.samples import uniform

__all__ = ["added_by_svd", "complement"]


def _pulled(ct: Any, ans: Any, q: Any) -> Any:
    return negative(matmul(ans, matmul(adjoint(ct), q)))


@primitive(on_complex=AS_WRITTEN)
def complement(q: Any) -> Any:
    """The orthonormal columns that the QR factorization adds to those of `q`."""
    return np.linalg.qr(q, mode="complete")[0][..., q.shape[-1] :]


@complement.def_aval
def _(q: Aval) -> Aval:
    *lead, m, n = matrices("complement", q).shape
    if n > m:
        raise ShapeError(f"complement: {q} has more columns than rows")
    return Aval((*lead, m, m - n), q.dtype)


complement.def_vjp("q")(_pulled)


@complement.def_samples
def _() -> Any:
    yield (np.linalg.qr(uniform((5, 2)))[0],), {}
    yield (np.linalg.qr(uniform((2, 3, 3), dtype="float32"))[0],), {}


@primitive(on_complex=AS_WRITTEN)
def added_by_svd(x: Any, q: Any, *, left: bool) -> Any:
    """The columns that the full singular value decomposition of `x` adds to its left or right vectors `q`."""
    u, _, vh = np.linalg.svd(x)
    every = u if left else np.swapaxes(vh, -1, -2).conj()
    return every[..., q.shape[-1] :]


@added_by_svd.def_aval
def _(x: Aval, q: Aval, *, left: bool) -> Aval:
    *lead, m, n = matrices("added_by_svd", q).shape
    return Aval((*lead, m, m - n), q.dtype)


@added_by_svd.def_vjp("q")
def _(ct: Any, ans: Any, x: Any, q: Any, *, left: bool) -> Any:
    return _pulled(ct, ans, q)


@added_by_svd.def_samples
def _() -> Any:
    x = uniform((2, 4, 3))
    u, _, vh = np.linalg.svd(x, full_matrices=False)
    yield (x, u), {"left": True}
    yield (np.swapaxes(x, -1, -2).copy(), np.swapaxes(vh, -1, -2).copy()), {"left": False}
