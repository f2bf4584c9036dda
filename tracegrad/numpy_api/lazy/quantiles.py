"""Quantiles: a sorted element, or an interpolation of two; the derivative is that of the sort."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.avals import is_literal
from tracegrad.errors import ShapeError, located
from tracegrad.numpy_api.joining import along, picked
from tracegrad.numpy_api.lazy.statistics import weights_along
from tracegrad.numpy_api.memory_layout import in_memory_order
from tracegrad.numpy_api.operands import array, arrays, constant, peer_of, promoted, size_of, to_dtype, to_float
from tracegrad.numpy_api.reductions import mean
from tracegrad.numpy_api.registry import NO_VALUE, implements
from tracegrad.numpy_api.selection import take_along_axis
from tracegrad.numpy_api.sorting import argsort, sort
from tracegrad.ops.core.op import Carrier, normalize_axes
from tracegrad.ops.elementwise.table import (
    add,
    ceil,
    divide,
    equal,
    floor,
    floor_divide,
    greater_equal,
    isinf,
    isnan,
    less,
    logical_and,
    logical_not,
    maximum,
    minimum,
    multiply,
    not_equal,
    remainder,
    rint,
    subtract,
    where,
)
from tracegrad.ops.reduce import partition, sorting
from tracegrad.ops.reduce.scans import cumsum
from tracegrad.ops.reduce.sorting import searchsorted
from tracegrad.ops.shape.linear import broadcast_to, concatenate, full, reduce_sum, reshape, stop_gradient, transpose
from tracegrad.typing import Array, ArrayLike, Axes, Number

# The parameters (a, b) of continuous methods, whose position in n elements is n q + a + q (1 - a - b) - 1.
_BETWEEN = {
    "linear": (1, 1),
    "hazen": (0.5, 0.5),
    "weibull": (0, 0),
    "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (3 / 8, 3 / 8),
    "interpolated_inverted_cdf": (0, 1),
}


# Methods that select an element, and all methods.
_DISCRETE = ("inverted_cdf", "closest_observation", "lower", "higher", "nearest")
_METHODS = (*_BETWEEN, *_DISCRETE, "averaged_inverted_cdf", "midpoint")


def _with_axes_last(name: str, a: ArrayLike, axis: Axes) -> tuple[Array, tuple[int, ...]]:
    """Return `a` with the reduced axes as its last axis, and its shape with size 1 for the reduced axes."""
    (x,) = arrays(a)
    rank = len(x.shape)
    axes = normalize_axes(name, axis, rank)
    rest = [k for k in range(rank) if k not in axes]
    n = math.prod(x.shape[k] for k in axes)
    shape, perm = tuple(x.shape[k] for k in rest), (*rest, *axes)
    if n == 0 and 0 in shape:
        n = 1  # there are no rows, so their length does not matter
    if n == 0:
        raise ShapeError(located(f"np.{name} of no elements: shape {x.shape} along {axes}"))
    saved = tuple(1 if k in axes else m for k, m in enumerate(x.shape))
    x = x if perm == tuple(range(rank)) else transpose(x, perm=perm)
    return reshape(x, shape=(*shape, n)), saved


LEAST_SELECTED = 1024  # elements of a row, from which on a selection replaces the sort


def _sorted(x: Array) -> Array:
    if x.dtype.kind == "c":
        return sort(x)
    return sorting.sort(x, axis=len(x.shape) - 1, descending=False, stable=False)[0]


def _at(x: Array, k: int) -> Array:
    axis = len(x.shape) - 1
    return reshape(along(x, axis, k, k + 1), shape=x.shape[:-1])


# -- the median ------------------------------------------------------------------------------------------------------
@implements(np.median, refuses=("out",))
def median(
    a: ArrayLike, axis: Axes = None, out: Array | None = None, overwrite_input: bool = False, keepdims: bool = False
) -> Array:
    """`np.median`; if there are two middle elements, each has half of the derivative."""
    (x,) = arrays(a)
    if not size_of(x) and x.dtype.kind != "c":
        return mean(x, axis, keepdims=keepdims)  # the mean of no elements is nan too
    rows, saved = _with_axes_last("median", x, axis)
    n, unordered = rows.shape[-1], rows.dtype.kind in "fc"
    indices = ((n // 2,) if n % 2 else (n // 2, n // 2 - 1)) + (n - 1,) * unordered  # a nan would be last
    result = to_float(partition.select(rows, places=indices))
    middle = _at(result, 0) if n % 2 else divide(add(_at(result, 1), _at(result, 0)), 2.0)
    middle = add(middle, 0.0)  # as for a mean, -0.0 becomes 0.0
    if unordered:
        last = _at(result, len(indices) - 1)
        middle = where(isnan(last), last, middle)
    return reshape(middle, shape=saved) if keepdims else middle


@implements(np.nanmedian, refuses=("out",))
def nanmedian(
    a: ArrayLike, axis: Axes = None, out: Array | None = None, overwrite_input: bool = False, keepdims: bool = False
) -> Array:
    """`np.nanmedian`."""
    rows, saved = _with_axes_last("nanmedian", to_float(arrays(a)[0]), axis)
    count = _count(rows)
    low, high = floor_divide(maximum(subtract(count, 1), 0), 2), minimum(floor_divide(count, 2), rows.shape[-1] - 1)
    result = _ordered(rows, concatenate(*(reshape(k, shape=(*k.shape, 1)) for k in (low, high)), axis=len(low.shape)))
    result = add(divide(add(_at(result, 0), _at(result, 1)), 2.0), 0.0)
    return reshape(result, shape=saved) if keepdims else result


def _count(rows: Array) -> Array:
    return reduce_sum(to_dtype(logical_not(isnan(rows)), "int64"), axes=(len(rows.shape) - 1,))


def _ordered(rows: Array, indices: Array) -> Array:
    """Select the elements of each row at positions of its sorted order; short rows are sorted without Python."""
    if rows.shape[-1] < LEAST_SELECTED:
        return take_along_axis(_sorted(rows), indices, -1)
    return partition.select_at(rows, indices)


# -- quantiles -------------------------------------------------------------------------------------------------------
def _between(low: Array, high: Array, fraction: Array | Number) -> Array:
    """Interpolate between `low` and `high`, starting from the nearer one."""
    difference = subtract(high, low)
    near = add(low, multiply(difference, fraction))
    return where(greater_equal(fraction, 0.5), subtract(high, multiply(difference, subtract(1.0, fraction))), near)


def _checked(name: str, a: Array, q: Any, method: str, scale: float) -> tuple[Any, Any]:
    """Return `a` as an array and `q`, scaled to 0 to 1, as a number, an ndarray or a traced array.

    Unless the method only selects elements, `a` is converted to floats.
    """
    peer = peer_of(a, q)
    x = array(a, peer)
    if x.dtype.kind == "c":
        raise TypeError(located("a must be an array of real numbers"))
    if method not in _METHODS:
        raise ValueError(located(f"{method!r} is not a valid method. Use one of: {', '.join(_METHODS)}"))
    traced = peer_of(q) is not None
    kind = q.dtype.kind if traced else np.asarray(q).dtype.kind
    x = x if method in _DISCRETE or (method == "linear" and kind in "iu" and scale == 1) else to_float(x)
    if traced:
        q = to_float(array(q, peer))
        return x, (q if scale == 1 else divide(q, scale))
    plain = is_literal(q)
    q = np.true_divide(q, scale) if scale != 1 else np.asarray(q, None if kind == "f" else float)
    if not ((q >= 0) & (q <= 1)).all():
        text = "Percentiles must be in the range [0, 100]" if scale != 1 else "Quantiles must be in the range [0, 1]"
        raise ValueError(located(text))
    return x, (float(q) if plain else np.asarray(q))


def _shaped(result: Array, depth: int, saved: tuple[int, ...], keepdims: bool) -> Any:
    """Move the last `depth` axes of `result`, which are the axes of the quantiles, to the front."""
    rank = len(result.shape) - depth
    if depth:
        result = transpose(result, perm=(*range(rank, rank + depth), *range(rank)))
    return reshape(result, shape=(*result.shape[:depth], *saved)) if keepdims else result


def _quantile(
    name: str,
    a: Array,
    q: Any,
    axis: int | None,
    method: str,
    keepdims: bool,
    weights: ArrayLike,
    scale: float,
    nans: bool,
) -> Any:
    if weights is not None and method != "inverted_cdf":
        raise ValueError(located(f"Only method 'inverted_cdf' supports weights. Got: {method}."))
    x, q = _checked(name, a, q, method, scale)
    rows, saved = _with_axes_last(name, x, axis)
    if not isinstance(q, float) and rows.dtype.kind == "f" and method not in _DISCRETE:
        carried = isinstance(q, Carrier)
        rows, q = promoted([rows, q]) if carried else (promoted([rows, np.zeros((), q.dtype)])[0], q)
    n, depth = rows.shape[-1], len(getattr(q, "shape", ()))
    if weights is not None:
        result, last = _weighted(
            rows, _with_axes_last(name, weights_along(x, arrays(weights, x)[0], axis), axis)[0], q, nans
        )
    elif nans or isinstance(q, Carrier):
        count = _count(rows) if nans else float(n)
        result, last = _computed(rows, count, q, method, depth)
    else:
        position = np.quantile(np.arange(float(n)), q, method=method)
        result, last = _known(rows, position, depth)
    if not nans and rows.dtype.kind == "f":
        last = broadcast_to(reshape(last, shape=(*rows.shape[:-1], *(1,) * depth)), shape=result.shape)
        result = where(isnan(last), last, result)
    result = _shaped(result, depth, saved, keepdims)
    if weights is not None and not result.shape:
        return result.zero_d()
    return result if nans else in_memory_order(result, "C")  # NumPy's nanquantile gives a transposed view


def _known(rows: Array, position: Any, depth: int) -> tuple[Array, ...]:
    """Interpolate the sorted rows at known positions.

    NumPy gives the positions, as its result for 0, 1, 2, ... and the last element.
    """
    low, high = np.floor(position).astype(np.int64), np.ceil(position).astype(np.int64)
    last = rows.shape[-1] - 1
    indices = sorted({last, *low.flat, *high.flat})
    x = partition.select(rows, places=tuple(map(int, indices)))
    low, high, fraction = np.searchsorted(indices, low), np.searchsorted(indices, high), position - low
    if not depth:
        below = _at(x, int(low))
        return (below if low == high else _between(below, _at(x, int(high)), float(fraction))), _at(x, len(indices) - 1)
    axis = len(x.shape) - 1
    if (low == high).all():
        return picked(x, constant(np.ascontiguousarray(low), peer_of(x)), axis), _at(x, len(indices) - 1)
    below, above = (picked(x, constant(np.ascontiguousarray(k), peer_of(x)), axis) for k in (low, high))
    fractions, same = (
        broadcast_to(array(v, peer_of(x)), shape=below.shape) for v in (fraction.astype(x.dtype), low == high)
    )
    return where(same, below, _between(below, above, fractions)), _at(x, len(indices) - 1)


def _position(method: str, q: Array, count: Array | Number) -> Any:
    """Return the position among `count` sorted elements, from 0.

    If the weight of the interpolation differs from the position's fraction, return it too.
    """
    if method in _BETWEEN and method != "linear":
        a, b = _BETWEEN[method]
        return add(add(multiply(q, count), a), subtract(multiply(q, 1 - a - b), 1.0)), None
    if method.endswith("inverted_cdf") or method == "closest_observation":
        closest = method == "closest_observation"
        position = subtract(subtract(multiply(q, count), 1.0), 0.5 if closest else 0.0)
        low = floor(position)
        whole = equal(position, low)
        if method == "averaged_inverted_cdf":
            return position, subtract(1.0, multiply(to_dtype(whole, position.dtype), 0.5))
        keeps_low = logical_and(whole, equal(remainder(low, 2.0), 1.0)) if closest else whole
        return where(keeps_low, low, add(low, 1.0)), None
    position = multiply(q, subtract(count, 1.0))
    if method == "midpoint":
        position = multiply(add(floor(position), ceil(position)), 0.5)
        return position, multiply(to_dtype(not_equal(position, floor(position)), position.dtype), 0.5)
    return {"lower": floor, "higher": ceil, "nearest": rint}.get(method, lambda x: x)(position), None


def _neighbors(method: str, q: Any, count: Array | Number) -> Any:
    """Return the indices of the two of `count` sorted elements around the quantile, and the weight."""
    position, fraction = _position(method, q, count)
    last = maximum(subtract(count, 1.0), 0.0)
    inside = maximum(minimum(position, last), 0.0)
    low = minimum(floor(inside), last)
    high = where(less(position, 0.0), low, minimum(add(low, 1.0), last))
    return low, high, subtract(inside, low) if fraction is None else fraction


def _computed(x: Array, count: Array | Number, q: Any, method: str, depth: int) -> tuple[Array, ...]:
    """Interpolate the sorted elements at positions that depend on values; also return the last element."""
    *batch_shape, n = x.shape
    shape = (*batch_shape, *getattr(q, "shape", ()))
    if isinstance(q, Carrier) or method in _BETWEEN:
        if not is_literal(count):
            count = to_dtype(count, q.dtype if getattr(q, "shape", ()) else float)
            count = broadcast_to(reshape(count, shape=(*batch_shape, *(1,) * depth)), shape=shape)
        q = q if is_literal(q) else broadcast_to(array(q, peer_of(x)), shape=shape)
        low, high, fraction = _neighbors(method, q, count)
    else:
        # Positions are tabulated for each count by NumPy, because rounding decides whether a position is whole.
        counts = np.arange(n + 1, dtype=q.dtype if np.shape(q) else float).reshape(-1, *[1] * depth)
        whole = (n + 1, *np.shape(q))
        neighbors = _neighbors(method, np.broadcast_to(q, whole), np.broadcast_to(counts, whole))
        low, high, fraction = (picked(array(np.array(k), peer_of(x)), count, 0) for k in neighbors)
    m = math.prod(shape[len(batch_shape) :])

    def index(k: Array) -> Array:
        return reshape(to_dtype(k, "int64"), shape=(*batch_shape, m))

    axis = len(batch_shape)
    end = constant(full(shape=(*batch_shape, 1), value=n - 1, dtype="int64"), peer_of(x))
    ordered = _ordered(x, concatenate(index(low), index(high), *[end] * is_literal(count), axis=axis))
    below, above = (reshape(along(ordered, axis, k, k + m), shape=shape) for k in (0, m))
    last = _at(ordered, ordered.shape[-1] - 1)
    if x.dtype.kind != "f" or method in _DISCRETE:
        return below, last
    same = logical_and(equal(below, above), isinf(below))  # their difference would be nan
    return where(same, below, _between(below, above, to_dtype(fraction, x.dtype))), last


def _weighted(x: Array, weights: Array | Number, q: Array, nans: bool) -> tuple[Array, Array]:
    """Return the first sorted element up to which the weights are the share `q`, and the last element.

    Elements of `nans` have no weight.
    """
    axis, n = len(x.shape) - 1, x.shape[-1]
    order = argsort(x, axis)
    if nans and x.dtype.kind == "f":
        weights = where(isnan(x), 0.0, to_float(weights))
    ordered, shares = take_along_axis(x, order, axis), stop_gradient(take_along_axis(weights, order, axis))
    sums = cumsum(to_dtype(shares, float), axis=axis)
    shares = divide(sums, broadcast_to(along(sums, axis, n - 1, n), shape=sums.shape))
    shares = where(equal(shares, 0.0), -1.0, shares)
    shape = np.shape(q) if is_literal(q) else q.shape
    sought = reshape(to_dtype(array(q, peer_of(x)), float), shape=(1,) * axis + (math.prod(shape),))
    sought = broadcast_to(stop_gradient(sought), shape=(*x.shape[:-1], sought.shape[-1]))
    position = searchsorted(shares, sought, right=False)
    last_valid: Any = n - 1
    if nans:
        last_valid = maximum(subtract(_count(x), 1), 0)
        last_valid = broadcast_to(reshape(last_valid, shape=(*last_valid.shape, 1)), shape=position.shape)
    result = take_along_axis(ordered, minimum(position, last_valid), axis)
    return reshape(result, shape=(*x.shape[:-1], *shape)), _at(ordered, n - 1)


def _public(function: Callable[..., object], scale: float, nans: bool) -> Callable[..., object]:
    """Define a NumPy function of quantiles whose levels go from 0 to `scale`; `q` may be traced."""
    name = function.__name__

    def call(
        a: Array,
        q: Any,
        axis: Any = None,
        out: Array | None = None,
        overwrite_input: bool = False,
        method: str = "linear",
        keepdims: Any = False,
        *,
        weights: Any = None,
        interpolation: object = None,
    ) -> Any:
        return _quantile(name, a, q, axis, method, keepdims is not NO_VALUE and keepdims, weights, scale, nans)

    call.__name__ = call.__qualname__ = name
    return implements(function, refuses=("out", "interpolation"))(call)


quantile, percentile = _public(np.quantile, 1, False), _public(np.percentile, 100, False)
nanquantile, nanpercentile = _public(np.nanquantile, 1, True), _public(np.nanpercentile, 100, True)
