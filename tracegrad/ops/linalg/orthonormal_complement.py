"""Complete orthonormal columns to a basis (orthonormal complement).

Only the span of the new columns is a function of the given columns, Q. The rule takes the derivative without rotation
inside the span: dC = -Q dQ.H C. This is the only derivative if one column is added. For several columns it is correct
for any function of their span.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracegrad.avals import Aval
from tracegrad.errors import ShapeError
from tracegrad.ops.core.op import AS_WRITTEN, Sample, primitive
from tracegrad.ops.core.samples import uniform
from tracegrad.ops.elementwise.table import negative
from tracegrad.ops.linalg.contraction import matmul
from tracegrad.ops.linalg.solve import adjoint, matrices
from tracegrad.ops.shape.linear import zeros_like
from tracegrad.typing import Array, NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracegrad.ops.core.dispatch import Operand


def _pulled(ct: Array, ans: Array, q: Operand) -> Array:
    return negative(matmul(ans, matmul(adjoint(ct), q)))


@primitive(on_complex=AS_WRITTEN)
def complement(q: NDArray) -> NDArray:
    """The orthonormal columns that the QR factorization adds to the columns of `q`."""
    return np.linalg.qr(q, mode="complete")[0][..., q.shape[-1] :]


@complement.def_aval
def _(q: Aval) -> Aval:
    *batch_shape, m, n = matrices("complement", q).shape
    if n > m:
        raise ShapeError(f"complement: {q} has more columns than rows")
    return Aval((*batch_shape, m, m - n), q.dtype)


complement.def_vjp("q")(_pulled)


@complement.def_samples
def _() -> Iterator[Sample]:
    yield (np.linalg.qr(uniform((5, 2)))[0],), {}
    yield (np.linalg.qr(uniform((2, 3, 3), dtype="float32"))[0],), {}


@primitive(on_complex=AS_WRITTEN)
def added_by_svd(x: NDArray, q: NDArray, *, left: bool) -> NDArray:
    """The columns that the full singular value decomposition of `x` adds to its left or right vectors `q`."""
    u, _, vh = np.linalg.svd(x)
    every = u if left else np.swapaxes(vh, -1, -2).conj()
    return every[..., q.shape[-1] :]


@added_by_svd.def_aval
def _(x: Aval, q: Aval, *, left: bool) -> Aval:
    *batch_shape, m, n = matrices("added_by_svd", q).shape
    rows, columns = matrices("added_by_svd", x).shape[-2:]
    if (m, n) != (rows if left else columns, min(rows, columns)):
        raise ShapeError(f"added_by_svd: {q} are not the {'left' if left else 'right'} vectors of {x}")
    return Aval((*batch_shape, m, m - n), q.dtype)


@added_by_svd.def_vjp("q")
def _(ct: Array, ans: Array, x: Array, q: Array, *, left: bool) -> Array:
    return _pulled(ct, ans, q)


@added_by_svd.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, q: Array, *, left: bool) -> Array:
    return zeros_like(x)  # the derivative is taken through the vectors only


@added_by_svd.def_samples
def _() -> Iterator[Sample]:
    tall, wide = uniform((2, 4, 3)), uniform((3, 4))
    yield (tall, np.linalg.svd(tall, full_matrices=False)[0]), {"left": True}
    yield (wide, np.linalg.svd(wide, full_matrices=False)[2].T.copy()), {"left": False}
