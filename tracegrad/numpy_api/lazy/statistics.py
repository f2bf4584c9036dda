"""Averages, covariances and correlations."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.avals import supported
from tracegrad.errors import ShapeError, located
from tracegrad.numpy_api.joining import concatenate
from tracegrad.numpy_api.operands import arrays, has_value, promoted, to_dtype, to_float
from tracegrad.numpy_api.reductions import any_, mean
from tracegrad.numpy_api.reductions import sum as _sum
from tracegrad.numpy_api.registry import implements
from tracegrad.numpy_api.selection import clip, diag
from tracegrad.numpy_api.shapes import squeeze
from tracegrad.ops.core.op import normalize_axes, normalize_axis
from tracegrad.ops.elementwise.complex import conj
from tracegrad.ops.elementwise.table import divide, equal, multiply, sqrt, subtract
from tracegrad.ops.linalg.contraction import matmul_any
from tracegrad.ops.reduce.reductions import count_of
from tracegrad.ops.shape.linear import broadcast_to, full, reshape, transpose
from tracegrad.typing import Array, ArrayLike, Axes, DTypeLike


@implements(np.average)
def average(
    a: ArrayLike, axis: Axes = None, weights: ArrayLike | None = None, returned: bool = False, *, keepdims: bool = False
) -> Array | tuple[Array, Array]:
    """`np.average`."""
    if weights is None:
        x = to_float(arrays(a)[0])
        out = mean(x, axis, None, None, keepdims)
        if 0 in out.shape:  # NumPy divides the number of elements by that of the means
            raise ZeroDivisionError(located("division by zero"))
        count = float(count_of(x, normalize_axes("average", axis, len(x.shape))))
        total = full(shape=out.shape, value=count, dtype=out.dtype.name)
    else:
        x, w = promoted([to_float(v) for v in arrays(a, weights)])
        w = weights_along(x, w, axis)
        total = _sum(w, axis, None, None, keepdims)
        none = any_(equal(total, 0.0))
        if has_value(none) and bool(none):
            raise ZeroDivisionError("Weights sum to zero, can't be normalized")
        out = divide(_sum(multiply(x, w), axis, None, None, keepdims), total)
    return (out, total) if returned else out


def weights_along(x: Array, w: Array, axis: Axes) -> Array:
    """Broadcast weights to all elements: `w` has all axes, or the named ones, in their order."""
    if w.shape == x.shape:
        return w
    if axis is None:
        raise TypeError(located("Axis must be specified when shapes of a and weights differ."))
    axes = [normalize_axis("average", k, len(x.shape)) for k in np.atleast_1d(axis).tolist()]
    if w.shape != tuple([x.shape[k] for k in axes]):
        raise ShapeError(located(f"average: weights of shape {w.shape} do not fit shape {x.shape} along axis {axis}"))
    w = transpose(w, perm=tuple(sorted(range(len(axes)), key=axes.__getitem__)))
    return broadcast_to(reshape(w, shape=tuple([n if k in axes else 1 for k, n in enumerate(x.shape)])), shape=x.shape)


def _variables(x: Array, rowvar: bool) -> Array:
    """Return the variables as rows."""
    if len(x.shape) > 2:
        raise ValueError(located("cov has more than 2 dimensions"))
    if len(x.shape) < 2:
        return reshape(x, shape=(1, *x.shape) if x.shape else (1, 1))
    return x if rowvar else transpose(x, perm=(1, 0))


def _weights(name: str, weights: ArrayLike, n: int) -> Array:
    (w,) = arrays(weights)
    if len(w.shape) != 1 or w.shape[0] != n:
        raise ShapeError(located(f"cov: {name} of shape {w.shape} do not fit {n} observations"))
    return to_dtype(w, float)


@implements(np.cov)
def cov(
    m: ArrayLike,
    y: ArrayLike | None = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: ArrayLike | None = None,
    aweights: ArrayLike | None = None,
    *,
    dtype: DTypeLike = None,
) -> Array:
    """`np.cov`."""
    args = arrays(*(v for v in (m, y) if v is not None))
    kind = supported(np.result_type(*(v.dtype for v in args), np.float64) if dtype is None else dtype)
    parts = [_variables(to_dtype(v, kind), rowvar) for v in args]
    x = concatenate(parts, 0) if len(parts) > 1 else parts[0]
    n = x.shape[1]
    ddof = (0 if bias else 1) if ddof is None else ddof
    f = None if fweights is None else _weights("fweights", fweights, n)
    w = None if aweights is None else _weights("aweights", aweights, n)
    both = f if w is None else w if f is None else multiply(f, w)
    if both is None:
        factor: Any = max(n - ddof, 0)
        x = subtract(x, divide(_sum(x, 1, keepdims=True), float(n)))
        weighted = x
    else:
        total = _sum(both)
        lost: Any = float(ddof) if w is None else divide(multiply(_sum(multiply(both, w)), float(ddof)), total)
        factor = subtract(total, lost)
        x = to_dtype(subtract(x, divide(_sum(multiply(x, both), 1, keepdims=True), total)), kind)
        weighted = multiply(x, both)
    weighted = conj(weighted) if kind.kind == "c" else weighted
    result = multiply(matmul_any(x, transpose(weighted, perm=(1, 0))), np.divide(1, factor))
    return squeeze(to_dtype(result, kind) if both is None else result)


@implements(np.corrcoef)
def corrcoef(
    x: ArrayLike,
    y: ArrayLike | None = None,
    rowvar: bool = True,
    bias: ArrayLike | None = None,
    ddof: object = None,
    *,
    dtype: DTypeLike = None,
) -> Array:
    """`np.corrcoef`."""
    c = cov(x, y, rowvar, dtype=dtype)
    if not c.shape:
        return divide(c, c)
    deviation = sqrt(diag(c))
    n = c.shape[0]
    c = divide(divide(c, reshape(deviation, shape=(n, 1))), reshape(deviation, shape=(1, n)))
    return clip(c, -1, 1)
