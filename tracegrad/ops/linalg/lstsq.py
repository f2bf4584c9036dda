"""Solve least squares problems by LAPACK, with a derivative through the pseudoinverse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.errors import DTypeError, ShapeError
from tracegrad.ops.core.op import AS_WRITTEN, ResultAvals, Sample, multi_result
from tracegrad.ops.core.samples import uniform
from tracegrad.ops.elementwise.complex import real_of
from tracegrad.ops.elementwise.table import add, multiply, subtract
from tracegrad.ops.linalg.contraction import matmul
from tracegrad.ops.linalg.factorizations import pinv, svd
from tracegrad.ops.linalg.solve import adjoint, well_conditioned
from tracegrad.ops.shape.linear import reshape
from tracegrad.typing import Array, NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator


@multi_result(on_complex=AS_WRITTEN)
def least_squares(a: NDArray, b: NDArray, *, rtol: float) -> tuple[NDArray, ...]:
    """The least-norm matrices that minimize the norm of each column of a x - b; the ranks of `a`, where singular values
    up to `rtol` times the largest count as zero; and the singular values."""
    *batch_shape, m, n = a.shape
    x = np.empty((*batch_shape, n, b.shape[-1]), a.dtype)
    rank, s = np.empty(batch_shape, np.int32), np.empty((*batch_shape, min(m, n)), real_of(a.dtype))
    for i in np.ndindex(*batch_shape):
        x[i], _, rank[i], s[i] = np.linalg.lstsq(a[i], b[i], rtol)
    return x, rank, s


@least_squares.def_aval
def _(a: Aval, b: Aval, *, rtol: float) -> ResultAvals:
    if a.ndim < 2 or a.ndim != b.ndim or a.shape[:-1] != b.shape[:-1]:
        raise ShapeError(f"least_squares: {a} and {b} are no matrices with equally many rows")
    if a.dtype != b.dtype or a.dtype.kind not in "fc":
        raise DTypeError(f"least_squares: one floating dtype is wanted, got {a} and {b}")
    *batch_shape, m, n = a.shape
    ranks, values = Aval(tuple(batch_shape), np.dtype(np.int32)), Aval((*batch_shape, min(m, n)), real_of(a.dtype))
    return ResultAvals((Aval((*batch_shape, n, b.shape[-1]), a.dtype), ranks, values))


@least_squares.def_vjp_all
def _(
    wanted: Sequence[int], cts: tuple[Array | None, ...], ans: tuple[Array, ...], a: Array, b: Array, *, rtol: float
) -> list[Any]:
    # x is P b with the pseudoinverse P of a. The rule is that of `pinv`, with less work because of the product with b.
    ct, _, ct_values = cts
    table: dict[int, Any] = {0: None, 1: None}
    if ct is not None:
        x, inverse = ans[0], pinv(a, atol=0.0, rtol=rtol)
        flipped = adjoint(inverse)
        back = matmul(flipped, ct)
        table[1] = back
        if 0 in wanted:
            rest, outside = subtract(b, matmul(a, x)), subtract(ct, matmul(inverse, matmul(a, ct)))
            table[0] = add(
                subtract(matmul(rest, adjoint(matmul(inverse, back))), matmul(back, adjoint(x))),
                matmul(matmul(flipped, x), adjoint(outside)),
            )
    if ct_values is not None and 0 in wanted:
        u, _, vh = svd(a)
        of_values = matmul(multiply(u, reshape(ct_values, shape=(*a.shape[:-2], 1, ct_values.shape[-1]))), vh)
        table[0] = of_values if table[0] is None else add(table[0], of_values)
    return [table[i] for i in wanted]


@least_squares.def_samples
def _() -> Iterator[Sample]:
    yield (np.concatenate([well_conditioned((3, 3)), uniform((2, 3), -0.5, 0.5)], -2), uniform((5, 2))), {"rtol": 1e-9}
    wide = np.concatenate([well_conditioned((2, 3, 3)), uniform((2, 3, 2), -0.5, 0.5)], -1)
    yield (wide, uniform((2, 3, 1))), {"rtol": 1e-9}
    yield (well_conditioned((9, 9), dtype="float32"), uniform((9, 2), dtype="float32")), {"rtol": 1e-6}
