"""Correlate rows with shorter rows: sums of window products, the base of 1-D convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.errors import DTypeError, ShapeError
from tracegrad.ops.core.forms import Compose
from tracegrad.ops.core.op import HOLOMORPHIC, Op, Sample, primitive
from tracegrad.ops.core.samples import uniform
from tracegrad.ops.elementwise.table import multiply
from tracegrad.ops.nn.im2col import patches
from tracegrad.ops.shape.batching import repeated
from tracegrad.ops.shape.linear import broadcast_to, flip, pad, reduce_sum, reshape
from tracegrad.typing import Array, NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracegrad.ops.core.dispatch import Operand


# Maximum elements of a window for a kernel. NumPy is faster for longer windows, unless there are few of them.
MAX_FUSED_WINDOW = 64


def _decomposed(x: Array, v: Array) -> Array:
    *batch_shape, n = x.shape
    m = v.shape[-1]
    if MAX_FUSED_WINDOW < m <= n - m + 1:
        return long_correlation(x, v)
    rank, ones = len(batch_shape), (1,) * len(batch_shape)
    at = {"start": (0,) * (rank + 1), "step": (1,) * (rank + 1), "gap": (1,) * (rank + 1)}
    windows = patches(x, counts=(*batch_shape, n - m + 1), sizes=(*ones, m), **at)
    windows = reshape(windows, shape=(*batch_shape, n - m + 1, m)) if batch_shape else windows
    repeated_v = broadcast_to(reshape(v, shape=(*batch_shape, 1, m)), shape=windows.shape)
    return reduce_sum(multiply(windows, repeated_v), axes=(rank + 1,))


def _correlated(x: NDArray, v: Array) -> Array:
    v = np.conj(v)  # np.correlate conjugates it again
    if x.ndim == 1:
        return np.correlate(x, v, "valid")
    out = np.empty((*x.shape[:-1], x.shape[-1] - v.shape[-1] + 1), x.dtype)
    for i in np.ndindex(x.shape[:-1]):
        out[i] = np.correlate(x[i], v[i], "valid")
    return out


@primitive(Compose(_decomposed), on_complex=HOLOMORPHIC)
def correlation(x: NDArray, v: NDArray) -> Array:
    """The sums of products of rows `v`, of m elements, with the n - m + 1 windows of rows `x` of n elements."""
    return _correlated(x, v)


@primitive(on_complex=HOLOMORPHIC)
def long_correlation(x: NDArray, v: NDArray) -> Array:
    """As `correlation`, by a NumPy call in compiled code."""
    return _correlated(x, v)


def _declare(op: Op, *sizes: tuple[int, int]) -> None:
    @op.def_aval
    def _(x: Aval, v: Aval) -> Aval:
        if not x.ndim or x.shape[:-1] != v.shape[:-1] or not 1 <= v.shape[-1] <= x.shape[-1]:
            raise ShapeError(f"{op.name} wants rows, and shorter ones to multiply windows with, got {x} and {v}")
        if x.dtype != v.dtype:
            raise DTypeError(f"{op.name} wants one dtype, got {x} and {v}")
        return Aval((*x.shape[:-1], x.shape[-1] - v.shape[-1] + 1), x.dtype)

    op.separately_linear("x", "v")

    @op.def_vjp("x")
    def _(ct: Array, ans: Array, x: Array, v: Array) -> Array:
        # x[i + j] is multiplied by v[j] in window i, so the padded cotangents are correlated with the reversed v.
        rank, m = len(x.shape), v.shape[-1]
        room = (*(0,) * (rank - 1), m - 1)
        padded = pad(ct, low=room, high=room, interior=(0,) * rank, value=0.0) if m > 1 else ct
        return correlation(padded, flip(v, axes=(rank - 1,)))

    @op.def_vjp("v")
    def _(ct: Array, ans: Array, x: Array, v: Array) -> Array:
        return correlation(x, ct)

    @op.def_batch
    def _(size: int, batched: Any, x: Operand | Aval, v: Operand | Aval) -> Any:
        return op(*repeated(size, batched, (x, v)))

    @op.def_samples
    def _() -> Iterator[Sample]:
        for n, m in sizes:
            yield (uniform((n,)), uniform((m,), seed=1)), {}
        yield (uniform((2, 9), dtype="float32"), uniform((2, 4), seed=1, dtype="float32")), {}


_declare(correlation, (4, 3), (30, 11), (180, 80))
_declare(long_correlation, (30, 11))
