"""Histograms, bins, and weighted counts, which are scatter-adds and therefore have derivatives."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tracegrad.avals import is_literal, supported
from tracegrad.errors import ShapeError, located
from tracegrad.numpy_api import creation, reductions, sorting
from tracegrad.numpy_api.joining import diff
from tracegrad.numpy_api.operands import (
    array,
    arrays,
    constant,
    has_value,
    peer_of,
    raveled,
    size_of,
    to_dtype,
    to_float,
)
from tracegrad.numpy_api.registry import implements, refuse
from tracegrad.ops.elementwise.table import (
    add,
    divide,
    equal,
    greater_equal,
    isfinite,
    less,
    less_equal,
    logical_and,
    maximum,
    minimum,
    multiply,
    subtract,
    where,
)
from tracegrad.ops.indexing.gather_scatter import gather, scatter_add
from tracegrad.ops.reduce.bin_count import bin_count
from tracegrad.ops.shape import linear
from tracegrad.ops.shape.linear import flip, reshape, stop_gradient
from tracegrad.typing import Array, ArrayLike, Number

_ESTIMATORS = ("auto", "doane", "fd", "rice", "scott", "sqrt", "stone", "sturges")


def _is_count(bins: Any) -> bool:
    return isinstance(bins, str) or (not isinstance(bins, list | tuple) and np.ndim(bins) == 0)


# -- edges -----------------------------------------------------------------------------------------------------------
def _ends(x: Array, bounds: tuple[float, float] | None) -> tuple[Array | Number, ...]:
    """Return the first and the last edge of bins of equal width."""
    first: Array | float
    last: Array | float
    if bounds is not None:
        first, last = bounds
        if not all(map(is_literal, bounds)):
            return first, last
        if first > last:
            raise ValueError(located("max must be larger than min in range parameter."))
        if not (math.isfinite(first) and math.isfinite(last)):
            raise ValueError(located(f"supplied range of [{first}, {last}] is not finite"))
        return (first - 0.5, last + 0.5) if first == last else (first, last)
    if not size_of(x):
        return 0, 1
    first, last = reductions.min(x), reductions.max(x)
    if not bool(logical_and(isfinite(first), isfinite(last))):
        raise ValueError(located("autodetected range of a histogram is not finite"))
    same = equal(first, last)
    return where(same, subtract(first, 0.5), first), where(same, add(last, 0.5), last)


def _edges(name: str, x: Array, bins: Any, bounds: tuple[float, float] | None) -> Array:
    if isinstance(bins, str):
        bins = _estimated(name, x, bins, bounds)
    if not _is_count(bins):
        (edges,) = arrays(bins)
        if len(edges.shape) != 1:
            raise ValueError(located("`bins` must be 1d, when an array"))
        if bool(reductions.any_(diff(edges) < 0)):
            raise ValueError(located("`bins` must increase monotonically, when an array"))
        return edges
    if bins < 1:
        raise ValueError(located("`bins` must be positive, when an integer"))
    first, last = _ends(x, bounds)
    kinds = [v if is_literal(v) else v.dtype for v in (first, last)]
    kind = np.result_type(*kinds, x.dtype)
    kind = kind if kind.kind == "f" else np.result_type(kind, float)
    return to_dtype(creation.linspace(first, last, bins.__index__() + 1), supported(kind))


def _estimated(name: str, x: Array, how: str, bounds: tuple[float, float] | None) -> int:
    """Compute the number of bins by one of NumPy's estimators, which is queried."""
    if how not in _ESTIMATORS:
        raise ValueError(located(f"{how!r} is not a valid estimator for `bins`"))
    peer = peer_of(x, bounds)
    ends = constant(np.zeros(0), peer) if bounds is None else to_dtype(array(list(bounds), peer), float)
    result = bin_count(stop_gradient(x), stop_gradient(ends), how=how)
    if not has_value(result):
        raise refuse(
            f"np.{name} with bins={how!r} of what differs between examples or iterations", "give a number of bins"
        )
    return int(result)


def _require_no_weights(bins: object, weights: object) -> None:
    if isinstance(bins, str) and weights is not None:
        why = "Automated estimation of the number of bins is not supported for weighted data"
        raise TypeError(located(why))


def _bin_of(x: Array, edges: Array, even: bool) -> tuple[Array, ...]:
    """Return the bin of each element of a vector, and whether it is in one; the last bin is closed."""
    n = edges.shape[0] - 1
    if even and edges.dtype.kind == "f":
        return _even_bin_of(to_dtype(x, edges.dtype), edges, n)
    bin_index = subtract(sorting.searchsorted(edges, x, "right"), 1)
    ends = array(edges, peer_of(x, edges))
    bin_index = where(equal(x, ends[n]), n - 1, bin_index)
    inside = logical_and(bin_index >= 0, bin_index < n)
    return minimum(maximum(bin_index, 0), n - 1), inside


def _even_bin_of(x: Array, edges: Array, n: int) -> tuple[Array, ...]:
    """Find the bins of elements among bins of equal width: by the quotient, corrected by at most one bin."""
    x, edges = stop_gradient(x), array(stop_gradient(edges), peer_of(x, edges))
    first, last = edges[0], edges[n]
    inside = logical_and(greater_equal(x, first), less_equal(x, last))
    quotient = multiply(divide(subtract(where(inside, x, first), first), subtract(last, first)), float(n))
    bin_index = minimum(to_dtype(quotient, "int64"), n - 1)
    bin_index = subtract(bin_index, to_dtype(less(x, gather(edges, bin_index, axes=(0,))), "int64"))
    bin_index = maximum(bin_index, 0)
    above = logical_and(greater_equal(x, gather(edges, add(bin_index, 1), axes=(0,))), less(bin_index, n - 1))
    return add(bin_index, to_dtype(above, "int64")), inside


# -- histograms ------------------------------------------------------------------------------------------------------
@implements(np.histogram_bin_edges)
def histogram_bin_edges(
    a: ArrayLike,
    bins: int | str | ArrayLike = 10,
    range: tuple[float, float] | None = None,
    weights: ArrayLike | None = None,
) -> Array:
    """`np.histogram_bin_edges`."""
    _require_no_weights(bins, weights)
    return _edges("histogram_bin_edges", raveled(arrays(a)[0]), bins, range)


def _sums(bin_indices: tuple[Array, ...], inside: Array, weights: Array | None, shape: tuple[int, ...]) -> Array:
    """Sum the weights in each bin, or count the elements."""
    peer = peer_of(*bin_indices)
    if weights is None:
        weights = constant(linear.full(shape=inside.shape, value=1, dtype="int64"), peer)
    updates = where(inside, weights, {"f": 0.0, "b": False}.get(weights.dtype.kind, 0))
    return scatter_add(updates, *bin_indices, shape=shape, axes=tuple(range(len(shape))))


# NumPy's parameter name `range` hides the built-in function.
range_ = range


def _weights_of(x: Array, weights: ArrayLike) -> Array | None:
    if weights is None:
        return None
    w = array(weights, peer_of(x, weights))
    if w.shape != x.shape:
        raise ShapeError(located("weights should have the same shape as a."))
    w = raveled(w)
    return to_dtype(w, "int64") if w.dtype.kind == "b" else w


@implements(np.histogram)
def histogram(
    a: ArrayLike,
    bins: int | str | ArrayLike = 10,
    range: tuple[float, float] | None = None,
    density: bool | None = None,
    weights: ArrayLike | None = None,
) -> tuple[Array, ...]:
    """`np.histogram`: counts have no derivative, sums of weights have one with respect to the weights."""
    _require_no_weights(bins, weights)
    args = arrays(*(v for v in (a, weights) if v is not None))
    w = _weights_of(args[0], args[1]) if weights is not None else None
    x = raveled(args[0])
    edges = _edges("histogram", x, bins, range)
    bin_index, inside = _bin_of(x, edges, _is_count(bins))
    result = _sums((bin_index,), inside, w, (edges.shape[0] - 1,))
    if density:
        result = divide(divide(to_float(result), diff(edges)), reductions.sum(to_float(result)))
    return result, edges


@implements(np.histogramdd)
def histogramdd(
    sample: ArrayLike, bins: Any = 10, range: Any = None, density: object = None, weights: ArrayLike | None = None
) -> tuple[Array, list[Array]]:
    """`np.histogramdd`."""
    if isinstance(bins, str):
        raise TypeError(located("histogramdd: `bins` must be numbers or edges"))
    columns = _columns(sample)
    rank = len(columns)
    is_per_axis = not _is_count(bins)
    if is_per_axis and len(bins) != rank:
        raise ValueError(located("The dimension of bins must be equal to the dimension of the sample x."))
    each = list(bins) if is_per_axis else [bins] * rank
    bounds = [None] * rank if range is None else list(range)
    if len(bounds) != rank:
        raise ValueError(located("range argument must have one entry per dimension"))
    edges = [_edges("histogramdd", x, b, r) for x, b, r in zip(columns, each, bounds)]
    bin_indices, insides = zip(*(_bin_of(x, e, _is_count(b)) for x, e, b in zip(columns, edges, each)))
    inside = insides[0]
    for other in insides[1:]:
        inside = logical_and(inside, other)
    w = None if weights is None else raveled(array(weights, peer_of(*columns, weights)))
    result = to_float(_sums(bin_indices, inside, w, tuple(e.shape[0] - 1 for e in edges)))
    if density:
        total = reductions.sum(result)
        for k, e in enumerate(edges):
            result = divide(result, _along(diff(e), k, rank))
        result = divide(result, total)
    return result, edges


def _along(x: Array, axis: int, rank: int) -> Array:
    return reshape(x, shape=tuple(x.shape[0] if i == axis else 1 for i in range_(rank)))


def _columns(sample: ArrayLike) -> list[Array]:
    """Return the coordinates of the points, one row for each."""
    if isinstance(sample, list | tuple):
        return [raveled(x) for x in arrays(*sample)]
    (x,) = arrays(sample)
    if len(x.shape) == 1:
        return [x]
    return [x[:, k] for k in range_(x.shape[1])]


@implements(np.histogram2d)
def histogram2d(
    x: ArrayLike,
    y: ArrayLike,
    bins: Any = 10,
    range: object = None,
    density: object = None,
    weights: ArrayLike | None = None,
) -> tuple[Array, Array, Array]:
    """`np.histogram2d`."""
    if not _is_count(bins) and len(bins) not in (1, 2):
        bins = [bins, bins]
    result, edges = histogramdd([x, y], bins, range, density, weights)
    return result, edges[0], edges[1]


# -- counts and positions ----------------------------------------------------------------------------------------------
@implements(np.bincount)
def bincount(x: ArrayLike, /, weights: ArrayLike | None = None, minlength: int = 0) -> Array:
    """`np.bincount`: the length of the result is queried unless `minlength` is enough; that leaves a guard."""
    args = arrays(*(v for v in (x, weights) if v is not None))
    values = args[0]
    if len(values.shape) != 1 or values.dtype.kind not in "iub":
        raise ShapeError(located(f"bincount wants a row of integers, got shape {values.shape} of {values.dtype}"))
    length = minlength.__index__()
    if values.shape[0]:
        values = to_dtype(values, "int64")
        if bool(reductions.any_(values < 0)):
            raise ValueError(located("'list' argument must have no negative elements"))
        top = reductions.max(values)
        if not bool(top < length):
            length = int(top) + 1
    w: Any = None if weights is None else to_dtype(args[1], float)
    if w is not None and w.shape != values.shape and values.shape[0]:
        raise ValueError(located("The weights and list don't have the same length."))
    if w is None or not values.shape[0]:  # without elements the result has integer counts, whatever the weights are
        w = constant(linear.full(shape=values.shape, value=1, dtype="int64"), peer_of(values))
    return scatter_add(w, values, shape=(length,), axes=(0,))


@implements(np.digitize)
def digitize(x: ArrayLike, bins: list[float], right: bool = False) -> Array:
    """`np.digitize`; whether traced bins increase or decrease is a query, which leaves a guard."""
    values, edges = arrays(x, bins)
    values, edges = to_float(values), to_float(edges)
    differences, side = diff(edges), "left" if right else "right"
    if bool(reductions.all_(differences >= 0)):
        return sorting.searchsorted(edges, values, side)
    if not bool(reductions.all_(differences <= 0)):
        raise ValueError(located("bins must be monotonically increasing or decreasing"))
    return subtract(edges.shape[0], sorting.searchsorted(flip(edges, axes=(0,)), values, side))
