"""Quantiles: of the sorted elements those at a place, or between two. Their derivative is that of the sort."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tracegrad.avals import is_literal
from tracegrad.errors import ShapeError, located
from tracegrad.numpy_api.joining import along, picked
from tracegrad.numpy_api.memory import laid
from tracegrad.numpy_api.operands import array, arrays, constant, peer_of, promoted, to_dtype, to_float
from tracegrad.numpy_api.registry import NO_VALUE, implements, refuse
from tracegrad.numpy_api.selection import take_along_axis
from tracegrad.ops import selecting, sorting
from tracegrad.ops.elementwise import (
    add,
    divide,
    equal,
    floor,
    floor_divide,
    greater_equal,
    isnan,
    logical_not,
    maximum,
    minimum,
    multiply,
    subtract,
    where,
)  # fmt: skip
from tracegrad.ops.linear import broadcast_to, concatenate, full, reduce_sum, reshape, transpose
from tracegrad.ops.op import Carrier, normalize_axes

# The places of continuous methods in n elements: n q + a + q (1 - a - b) - 1.
_BETWEEN = {
    "linear": (1, 1), "hazen": (0.5, 0.5), "weibull": (0, 0), "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (3 / 8, 3 / 8), "interpolated_inverted_cdf": (0, 1),
}  # fmt: skip


def _rows(name: str, a: Any, axis: Any) -> tuple[Any, tuple[int, ...]]:
    """`a` with the axes that are reduced as the last one, and its shape with 1 for them."""
    (x,) = arrays(a)
    x = to_float(x)
    rank = len(x.shape)
    axes = normalize_axes(name, axis, rank)
    rest = [k for k in range(rank) if k not in axes]
    n = math.prod(x.shape[k] for k in axes)
    shape, perm = tuple(x.shape[k] for k in rest), (*rest, *axes)
    if n == 0 and 0 in shape:
        n = 1  # of each of no rows
    if n == 0:
        raise ShapeError(located(f"np.{name} of no elements: shape {x.shape} along {axes}"))
    kept = tuple(1 if k in axes else m for k, m in enumerate(x.shape))
    x = x if perm == tuple(range(rank)) else transpose(x, perm=perm)
    return reshape(x, shape=(*shape, n)), kept


LEAST_SELECTED = 1024


def _sorted(x: Any) -> Any:
    return sorting.sort(x, axis=len(x.shape) - 1, descending=False, stable=False)[0]


def _at(x: Any, k: int) -> Any:
    axis = len(x.shape) - 1
    return reshape(along(x, axis, k, k + 1), shape=x.shape[:-1])


# -- the median ------------------------------------------------------------------------------------------------------
@implements(np.median, refuses=("out",))
def median(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: bool = False) -> Any:
    """`np.median`; of two middle elements each has half of the derivative."""
    rows, kept = _rows("median", a, axis)
    n = rows.shape[-1]
    found = selecting.select(rows, places=(n - 1, n // 2) if n % 2 else (n - 1, n // 2, n // 2 - 1))
    middle = _at(found, 1) if n % 2 else divide(add(_at(found, 2), _at(found, 1)), 2.0)
    middle = where(isnan(_at(found, 0)), math.nan, middle)
    return reshape(middle, shape=kept) if keepdims else middle


@implements(np.nanmedian, refuses=("out",))
def nanmedian(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: bool = False) -> Any:
    """`np.nanmedian`."""
    rows, kept = _rows("nanmedian", a, axis)
    count = _count(rows)
    low, high = floor_divide(maximum(subtract(count, 1), 0), 2), minimum(floor_divide(count, 2), rows.shape[-1] - 1)
    found = _ordered(rows, concatenate(*(reshape(k, shape=(*k.shape, 1)) for k in (low, high)), axis=len(low.shape)))
    found = divide(add(_at(found, 0), _at(found, 1)), 2.0)
    return reshape(found, shape=kept) if keepdims else found


def _count(rows: Any) -> Any:
    return reduce_sum(to_dtype(logical_not(isnan(rows)), "int64"), axes=(len(rows.shape) - 1,))


def _ordered(rows: Any, places: Any) -> Any:
    """Of each row the elements at its places of the sorted order: a short one is sorted without Python."""
    if rows.shape[-1] < LEAST_SELECTED:
        return take_along_axis(_sorted(rows), places, -1)
    return selecting.select_at(rows, places)


# -- quantiles -------------------------------------------------------------------------------------------------------
def _between(low: Any, high: Any, part: Any) -> Any:
    """From `low` to `high`, from the nearer of both."""
    step = subtract(high, low)
    near = add(low, multiply(step, part))
    return where(greater_equal(part, 0.5), subtract(high, multiply(step, subtract(1.0, part))), near)


def _checked(name: str, a: Any, q: Any, method: str, weights: Any, scale: float) -> tuple[Any, Any]:
    """`a` as an array of floats, and `q` as a number, an ndarray or a traced array, between 0 and 1."""
    if weights is not None:
        raise refuse(f"the argument weights= of np.{name}", "sort by np.argsort and sum the weights by np.cumsum")
    peer = peer_of(a, q)
    x = to_float(array(a, peer))
    if peer_of(q) is not None:
        q = array(q, peer)
        return x, (q if scale == 1 else divide(q, scale))
    plain = is_literal(q)
    q = np.true_divide(q, scale) if scale != 1 else np.asarray(q, float)
    if not ((q >= 0) & (q <= 1)).all():
        what = "Percentiles must be in the range [0, 100]" if scale != 1 else "Quantiles must be in the range [0, 1]"
        raise ValueError(located(what))
    return x, (float(q) if plain else np.asarray(q))


def _shaped(found: Any, depth: int, kept: tuple[int, ...], keepdims: bool) -> Any:
    """`found`, whose last `depth` axes are those of the quantiles, with these first."""
    rank = len(found.shape) - depth
    if depth:
        found = transpose(found, perm=(*range(rank, rank + depth), *range(rank)))
    return reshape(found, shape=(*found.shape[:depth], *kept)) if keepdims else found


def _quantile(name: str, a: Any, q: Any, axis: Any, method: str, keepdims: bool, weights: Any, scale: float,
              nans: bool) -> Any:  # fmt: skip
    x, q = _checked(name, a, q, method, weights, scale)
    rows, kept = _rows(name, x, axis)
    if not isinstance(q, float):
        rows, q = promoted([rows, q]) if isinstance(q, Carrier) else (promoted([rows, np.zeros((), q.dtype)])[0], q)
    n, depth = rows.shape[-1], len(getattr(q, "shape", ()))
    if nans or isinstance(q, Carrier):
        count = to_dtype(_count(rows), rows.dtype) if nans else float(n)
        found, last = _computed(name, rows, count, q, method, depth)
    else:
        place = np.quantile(np.arange(float(n)), q, method=method)  # type: ignore[call-overload]
        found, last = _known(rows, place, depth)
    if not nans:
        last = reshape(isnan(last), shape=(*rows.shape[:-1], *(1,) * depth))
        found = where(broadcast_to(last, shape=found.shape), math.nan, found)
    found = _shaped(found, depth, kept, keepdims)
    return found if nans else laid(found, "C")  # NumPy's nanquantile gives a transposed view


def _known(rows: Any, place: Any, depth: int) -> tuple[Any, Any]:
    """Between the elements of the sorted rows at places that are known: NumPy says where, by what it makes of 0, 1, 2,
    ...; and the last element."""
    low, high = np.floor(place).astype(np.int64), np.ceil(place).astype(np.int64)
    last = rows.shape[-1] - 1
    places = sorted({last, *low.flat, *high.flat})
    x = selecting.select(rows, places=tuple(map(int, places)))
    low, high, part = np.searchsorted(places, low), np.searchsorted(places, high), place - low
    if not depth:
        below = _at(x, int(low))
        return (below if low == high else _between(below, _at(x, int(high)), float(part))), _at(x, len(places) - 1)
    axis = len(x.shape) - 1
    below, above = (picked(x, constant(np.ascontiguousarray(k), peer_of(x)), axis) for k in (low, high))
    parts, same = (broadcast_to(array(v, peer_of(x)), shape=below.shape) for v in (part.astype(x.dtype), low == high))
    return where(same, below, _between(below, above, parts)), _at(x, len(places) - 1)


def _computed(name: str, x: Any, count: Any, q: Any, method: str, depth: int) -> tuple[Any, Any]:
    """Between the sorted elements at places that depend on values, and the last element where the count is known."""
    if method not in _BETWEEN:
        raise refuse(f"np.{name} with method={method!r} at traced places", "use one of " + ", ".join(_BETWEEN))
    a, b = _BETWEEN[method]
    shape = (*x.shape[:-1], *getattr(q, "shape", ()))
    if depth and not is_literal(count):
        count = broadcast_to(reshape(count, shape=(*count.shape, *(1,) * depth)), shape=shape)
    q = q if is_literal(q) else broadcast_to(array(q, peer_of(x)), shape=shape)
    last = maximum(subtract(count, 1.0), 0.0)
    place = add(add(multiply(q, count), a), subtract(multiply(q, 1 - a - b), 1.0))
    place = multiply(q, last) if (a, b) == (1, 1) else maximum(minimum(place, last), 0.0)
    low = minimum(floor(place), last)
    high = minimum(add(low, 1.0), last)
    lead, m = x.shape[:-1], math.prod(shape[len(x.shape) - 1 :])

    def index(k: Any) -> Any:
        k = k if hasattr(k, "shape") and k.shape == shape else broadcast_to(k, shape=shape)
        return reshape(to_dtype(k, "int64"), shape=(*lead, m))

    axis = len(lead)
    end = constant(full(shape=(*lead, 1), value=x.shape[-1] - 1, dtype="int64"), peer_of(x))
    ordered = _ordered(x, concatenate(index(low), index(high), *[end] * (not isinstance(count, Carrier)), axis=axis))
    below, above = (reshape(along(ordered, axis, k, k + m), shape=shape) for k in (0, m))
    part = subtract(place, low)
    return where(equal(below, above), below, _between(below, above, part)), _at(ordered, ordered.shape[-1] - 1)


@implements(np.quantile, refuses=("out", "interpolation"))
def quantile(a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, method: str = "linear",
             keepdims: bool = False, *, weights: Any = None, interpolation: Any = None) -> Any:  # fmt: skip
    """`np.quantile`; `q` may be traced where `method` is continuous."""
    return _quantile("quantile", a, q, axis, method, keepdims, weights, 1, False)


@implements(np.percentile, refuses=("out", "interpolation"))
def percentile(a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False,
               method: str = "linear", keepdims: bool = False, *, weights: Any = None,
               interpolation: Any = None) -> Any:  # fmt: skip
    """`np.percentile`; `q` may be traced where `method` is continuous."""
    return _quantile("percentile", a, q, axis, method, keepdims, weights, 100, False)


@implements(np.nanquantile, refuses=("out", "interpolation"))
def nanquantile(a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False,
                method: str = "linear", keepdims: Any = NO_VALUE, *, weights: Any = None,
                interpolation: Any = None) -> Any:  # fmt: skip
    """`np.nanquantile`, of a continuous `method`."""
    return _quantile("nanquantile", a, q, axis, method, keepdims is True, weights, 1, True)


@implements(np.nanpercentile, refuses=("out", "interpolation"))
def nanpercentile(a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False,
                  method: str = "linear", keepdims: Any = NO_VALUE, *, weights: Any = None,
                  interpolation: Any = None) -> Any:  # fmt: skip
    """`np.nanpercentile`, of a continuous `method`."""
    return _quantile("nanpercentile", a, q, axis, method, keepdims is True, weights, 100, True)
