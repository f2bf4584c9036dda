"""Reductions and scans that ignore nan; an empty selection gives nan, without NumPy's warning."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.errors import located
from tracegrad.numpy_api import reductions
from tracegrad.numpy_api.operands import arrays, to_dtype, to_float
from tracegrad.numpy_api.registry import implements
from tracegrad.ops.core.op import normalize_axes
from tracegrad.ops.elementwise.table import divide, isnan, less_equal, logical_and, logical_not, subtract
from tracegrad.ops.elementwise.table import where as _where
from tracegrad.ops.reduce.reductions import squares
from tracegrad.typing import Array, ArrayLike, Axes, DTypeLike, Number

UNSET: Any = np._NoValue


def _one(a: object) -> Array:
    return arrays(a)[0]


def valid(x: Array, where: ArrayLike = True) -> Array:
    """Return the mask of elements that count: not nan, and `where` is true."""
    known = logical_not(isnan(x))
    return known if where is True else logical_and(known, *arrays(where))


def filled(x: Array, value: float) -> Array:
    """`x` with `value` for nan."""
    return _where(isnan(x), value, x) if x.dtype.kind in "fc" else x


# -- extrema ---------------------------------------------------------------------------------------------------------
def _extreme(
    of: Callable[..., Array],
    worst: float,
    a: ArrayLike,
    axis: Axes,
    keepdims: bool,
    initial: Array | Number,
    where: ArrayLike,
) -> Array:
    x = _one(a)
    if x.dtype.kind not in "fc":
        return of(x, axis, None, keepdims, initial, where)
    result = of(filled(x, worst), axis, None, keepdims, initial, where)
    if initial is not UNSET:
        return result
    return _where(reductions.any_(valid(x, where), axis, None, keepdims), result, math.nan)


@implements(np.nanmax, refuses=("out",))
def nanmax(
    a: ArrayLike,
    axis: Axes = None,
    out: Array | None = None,
    keepdims: bool = False,
    initial: Array | Number = UNSET,
    where: ArrayLike = True,
) -> Array:
    """`np.nanmax`."""
    return _extreme(reductions.max, -math.inf, a, axis, keepdims, initial, where)


@implements(np.nanmin, refuses=("out",))
def nanmin(
    a: ArrayLike,
    axis: Axes = None,
    out: Array | None = None,
    keepdims: bool = False,
    initial: Array | Number = UNSET,
    where: ArrayLike = True,
) -> Array:
    """`np.nanmin`."""
    return _extreme(reductions.min, math.inf, a, axis, keepdims, initial, where)


def _arg(of: Callable[..., Array], worst: float, a: ArrayLike, axis: int | None, keepdims: bool) -> Array:
    x = _one(a)
    if x.dtype.kind not in "fc":
        return of(x, axis, keepdims=keepdims)
    if not bool(reductions.all_(reductions.any_(valid(x), axis))):
        raise ValueError(located("All-NaN slice encountered"))
    return of(filled(x, worst), axis, keepdims=keepdims)


@implements(np.nanargmax, refuses=("out",))
def nanargmax(a: ArrayLike, axis: int | None = None, out: Array | None = None, *, keepdims: bool = False) -> Array:
    """`np.nanargmax`; whether a slice is all nan is a query, which leaves a guard."""
    return _arg(reductions.argmax, -math.inf, a, axis, keepdims)


@implements(np.nanargmin, refuses=("out",))
def nanargmin(a: ArrayLike, axis: int | None = None, out: Array | None = None, *, keepdims: bool = False) -> Array:
    """`np.nanargmin`; whether a slice is all nan is a query, which leaves a guard."""
    return _arg(reductions.argmin, math.inf, a, axis, keepdims)


# -- products, moments, scans ----------------------------------------------------------------------------------------
@implements(np.nanprod, refuses=("out",))
def nanprod(
    a: ArrayLike,
    axis: Axes = None,
    dtype: DTypeLike = None,
    out: Array | None = None,
    keepdims: bool = False,
    initial: Array | Number = UNSET,
    where: ArrayLike = True,
) -> Array:
    """`np.nanprod`."""
    return reductions.prod(filled(_one(a), 1.0), axis, dtype, None, keepdims, initial, where)


@implements(np.nancumsum, refuses=("out",))
def nancumsum(a: ArrayLike, axis: int | None = None, dtype: DTypeLike = None, out: Array | None = None) -> Array:
    """`np.nancumsum`."""
    return reductions.cumsum(filled(_one(a), 0.0), axis, dtype)


@implements(np.nancumprod, refuses=("out",))
def nancumprod(a: ArrayLike, axis: int | None = None, dtype: DTypeLike = None, out: Array | None = None) -> Array:
    """`np.nancumprod`."""
    return reductions.cumprod(filled(_one(a), 1.0), axis, dtype)


@implements(np.nanvar, refuses=("out",))
def nanvar(
    a: ArrayLike,
    axis: Axes = None,
    dtype: DTypeLike = None,
    out: Array | None = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: ArrayLike = True,
    mean: ArrayLike = UNSET,
    correction: float = UNSET,
) -> Array:
    """`np.nanvar`; nan if no more than `ddof` elements remain."""
    x = to_dtype(to_float(_one(a)), dtype)
    ddof = ddof if correction is UNSET else correction
    counted = valid(x, where)
    axes = normalize_axes("nanvar", axis, len(x.shape))
    count = reductions.sum(to_dtype(counted, x.dtype), axes, None, None, True)
    safe = _where(counted, x, 0.0)
    center = divide(reductions.sum(safe, axes, None, None, True), count) if mean is UNSET else _one(mean)
    deviations = _where(counted, subtract(safe, center), 0.0)
    total = reductions.sum(squares(deviations), axes, None, None, keepdims)
    divisor = subtract(reductions.sum(to_dtype(counted, total.dtype), axes, None, None, keepdims), ddof)
    none = less_equal(divisor, 0.0)
    return _where(none, math.nan, divide(total, _where(none, 1.0, divisor)))


@implements(np.nanstd, refuses=("out",))
def nanstd(
    a: ArrayLike,
    axis: Axes = None,
    dtype: DTypeLike = None,
    out: Array | None = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: ArrayLike = True,
    mean: ArrayLike = UNSET,
    correction: float = UNSET,
) -> Array:
    """`np.nanstd`: the square root of `np.nanvar`."""
    return reductions.root(nanvar(a, axis, dtype, None, ddof, keepdims, where=where, mean=mean, correction=correction))
