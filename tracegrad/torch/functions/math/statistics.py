"""Quantiles, histograms, counts, covariances and correlations, with PyTorch's signatures.

Quantiles interpolate between two sorted elements and have derivatives; histograms and counts have none.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import located
from tracegrad.numpy_api.operands import arrays, constant, peer_of, size_of
from tracegrad.ops.core.op import one_node
from tracegrad.ops.elementwise.table import (
    add,
    clamp,
    divide,
    equal,
    floor,
    isnan,
    logical_and,
    logical_not,
    multiply,
    subtract,
    where,
)
from tracegrad.ops.indexing import gather_scatter as ops
from tracegrad.ops.reduce import reductions, sorting
from tracegrad.ops.shape import linear
from tracegrad.ops.shape.linear import cast, reduce_sum, reshape, stop_gradient
from tracegrad.torch.functions.core.dims import dim_of, lengths, one, size_error
from tracegrad.torch.functions.core.operands import as_array, as_node, floating, is_number
from tracegrad.torch.functions.core.promotion import require_one_dtype
from tracegrad.torch.functions.core.registry import function
from tracegrad.torch.functions.core.return_types import return_type
from tracegrad.torch.functions.linalg.norms import vector_norm
from tracegrad.torch.functions.math.extrema import median_of, picked_along
from tracegrad.typing import Array, ArrayLike

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand


_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


# -- quantiles -----------------------------------------------------------------------------------------------------
@function("quantile")
def quantile(
    input: ArrayLike, q: ArrayLike, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Array:
    """Return the quantiles `q` along `dim`, or of all elements.

    A quantile is nan if an element is nan. Several quantiles are along a new first dimension. RuntimeError for a `q`
    outside of [0, 1].

    >>> quantile(np.array([1.0, 3.0, 2.0]), 0.25).item()
    1.5
    """
    result: Array = _quantile("quantile", input, q, dim, keepdim, interpolation)
    return result


@function("nanquantile")
def nanquantile(
    input: ArrayLike, q: ArrayLike, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Array:
    """Return the quantiles of the elements that are not nan; nan if there are none."""
    result: Array = _quantile("nanquantile", input, q, dim, keepdim, interpolation)
    return result


def _quantile(name: str, input: Any, q: Any, dim: int | None, keepdim: bool, interpolation: str) -> Array:
    require_one_dtype(input, q, "quantile() q tensor must be same dtype as the input tensor")
    x, levels = arrays(input, q)
    if is_number(q) and getattr(x, "common_dtype", None) is not None:
        levels = cast(levels, dtype=x.dtype.name)
    if x.dtype.kind != "f":
        raise RuntimeError(located(f"{name}() input tensor must be either float or double dtype"))
    if len(levels.shape) > 1:
        raise size_error(f"{name}() q must be a scalar or 1D tensor")
    if not size_of(x):
        raise size_error(f"{name}() input tensor must be non-empty")
    if interpolation not in _INTERPOLATIONS:
        raise RuntimeError(
            located(
                f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, but got "
                f"{interpolation}"
            )
        )
    if not hasattr(q, "shape") and not 0 <= q <= 1:
        raise RuntimeError(located(f"{name}() q must be in the range [0, 1] but got {q}"))
    axis = None if dim is None else dim_of(dim, len(x.shape))
    if not size_of(levels):
        return constant(np.empty((0, *_shape(x, axis, keepdim)), x.dtype), peer_of(x))
    return as_node("SqueezeBackward4", _between, x, levels, axis, keepdim, interpolation, name)


def _between(x: Array, levels: Array, axis: int | None, keepdim: bool, interpolation: str, name: str) -> Array:
    rows = _with_last(x, axis)
    n = rows.shape[-1]
    ordered = sorting.sort(rows, axis=len(rows.shape) - 1, descending=False, stable=True)[0]
    still = isnan(stop_gradient(rows))
    last = len(rows.shape) - 1
    if name == "quantile":
        known: Any = n
        lost = reductions.reduce_any(still, axes=(last,))
    else:
        known = reduce_sum(cast(logical_not(still), dtype="int64"), axes=(last,))
        lost = equal(known, 0)
    last_rank = cast(subtract(known, 1), dtype=x.dtype.name) if not isinstance(known, int) else float(n - 1)
    results = [
        where(lost, math.nan, _at(ordered, multiply(last_rank, level), interpolation))
        for level in (_scalars(levels) if levels.shape else [levels])
    ]
    shape = _shape(x, axis, keepdim)
    results = [reshape(v, shape=shape) for v in results]
    if not levels.shape:
        return results[0]
    blocks = [reshape(v, shape=(1, *shape)) for v in results]
    return linear.concatenate(*blocks, axis=0) if len(blocks) > 1 else blocks[0]


def _shape(x: Array, axis: int | None, keepdim: bool) -> tuple[int, ...]:
    """Return the shape of one quantile along the axis, or of all elements."""
    saved = range(len(x.shape)) if axis is None else (axis,)
    lengths = [1 if k in saved else n for k, n in enumerate(x.shape) if keepdim or k not in saved]
    return tuple(lengths)


def _scalars(levels: Array) -> list[Array]:
    return [ops.gather(levels, constant(np.asarray(k), peer_of(levels)), axes=(0,)) for k in range(levels.shape[0])]


def _with_last(x: Array, axis: int | None) -> Array:
    """Move the axis of `x` to the end; without an axis, flatten `x` to one row."""
    if axis is None or not x.shape:
        return reshape(x, shape=(size_of(x),))
    order = (*(k for k in range(len(x.shape)) if k != axis), axis)
    return linear.transpose(x, perm=order)


def _at(ordered: Array, rank: Array, interpolation: str) -> Array:
    """Return the elements at a `rank`, which may be fractional, along the last axis."""
    n, shape = ordered.shape[-1], ordered.shape[:-1]
    rank = clamp(rank, 0.0, float(n - 1))
    if interpolation == "nearest":
        return _element(ordered, _rounded(rank), shape)
    below = floor(stop_gradient(rank))
    low = _element(ordered, below, shape)
    if interpolation == "lower":
        return low
    above = -floor(-stop_gradient(rank))
    high = _element(ordered, above, shape)
    if interpolation == "higher":
        return high
    weight = 0.5 if interpolation == "midpoint" else subtract(rank, below)
    return add(low, multiply(subtract(high, low), weight))


def _rounded(rank: Array) -> Array:
    return np.rint(stop_gradient(rank))


def _element(ordered: Array, rank: Array, shape: tuple[int, ...]) -> Array:
    index = cast(rank, dtype="int64")
    index = index if index.shape == shape else linear.broadcast_to(index, shape=shape)
    return reductions.pick(ordered, index, axis=len(shape))


_NanMedian = return_type("nanmedian", "values", "indices")


@function("nanmedian")
def nanmedian(input: Array, dim: int | None = None, keepdim: bool = False) -> Any:
    """Return the lower median of the elements that are not nan; with `dim`, also indices.

    >>> nanmedian(np.array([4.0, np.nan, 3.0, 2.0])).item()
    3.0
    """
    x = one(input)
    if dim is None:
        return as_node("NanmedianBackward0", _nanmedian, x)
    return picked_along("nanmedian", _lower_middle, "NanmedianBackward1", x, dim, keepdim)


def _lower_middle(x: Array, *, axis: int) -> Array:
    """Return the index of the lower median of elements that are not nan along `axis`; 0 if there are none."""
    order = sorting.argsort(x, axis=axis, descending=False, stable=True)
    known = reduce_sum(cast(logical_not(isnan(x)), dtype="int64"), axes=(axis,))
    middle = where(equal(known, 0), 0, cast(floor(divide(subtract(known, 1), 2)), dtype="int64"))
    return reductions.pick(order, middle, axis=axis)


def _nanmedian(x: Array) -> Array:
    return median_of(x, _lower_middle)


# -- histograms and counts -----------------------------------------------------------------------------------------
@function("histc")
def histc(input: ArrayLike, bins: int = 100, min: float = 0, max: float = 0) -> Array:
    """Count the elements in each of `bins` equal parts of the range from `min` to `max`.

    The last part includes its end. If both ends are equal, the range is from the smallest to the largest element.
    Elements outside of the range are not counted.

    >>> histc(np.array([1.0, 2.0, 1.0]), bins=4, min=0, max=3).tolist()
    [0.0, 2.0, 1.0, 0.0]
    """
    x = stop_gradient(floating(input))
    if bins <= 0:
        raise RuntimeError(located("torch.histc(): bins must be > 0"))
    if max < min:
        raise RuntimeError(located("torch.histc(): max must be larger than min"))
    flat = reshape(x, shape=(size_of(x),))
    low, high = _ends(flat, min, max)
    bin_index = cast(floor(divide(multiply(subtract(flat, low), float(bins)), subtract(high, low))), dtype="int64")
    inside = logical_and(flat >= low, flat <= high)
    bin_index = where(inside, clamp(bin_index, 0, bins - 1), bins)
    counts = ops.scatter_add(cast(inside, dtype=x.dtype.name), bin_index, shape=(bins + 1,), axes=(0,))
    return linear.slice(counts, start=(0,), stop=(bins,), step=(1,))


def _ends(flat: Array, low: float, high: float) -> tuple[Any, Any]:
    if low != high or not flat.shape[0]:
        return float(low), float(high) + (low == high)
    least, most = (op(flat, axes=(0,)) for op in (reductions.reduce_min, reductions.reduce_max))
    same = equal(least, most)
    return where(same, subtract(least, 1.0), least), where(same, add(most, 1.0), most)


_Histogram = return_type("histogram", "hist", "bin_edges")
_Histogramdd = return_type("histogramdd", "hist", "bin_edges")


def _plain(x: Any) -> Any:
    return None if x is None else stop_gradient(one(x))


@function("histogram")
def histogram(
    input: Operand, bins: object = 100, *, range: object = None, weight: ArrayLike | None = None, density: bool = False
) -> Any:
    """Count elements, or sum weights, in bins of equal size, or between edges.

    Both results have the dtype of the input.

    >>> histogram(np.array([1.0, 2.0, 1.0]), 2, range=(0.0, 2.0)).hist.tolist()
    [0.0, 3.0]
    """
    x, edges = _plain(input), bins if type(bins) is int else _plain(bins)
    options: dict[str, Any] = {"range": range, "weights": _plain(weight), "density": density}
    counts, edges = np.histogram(x, edges, **options)
    return _Histogram(*_of_dtype(x, counts, edges))


def _of_dtype(x: Any, *arrays_in: Array) -> list[Operand]:
    return [
        cast(constant(np.asarray(v), peer_of(x)) if isinstance(v, np.ndarray) else v, dtype=x.dtype.name)
        for v in arrays_in
    ]


@function("histogramdd")
def histogramdd(
    input: Operand, bins: Any, *, range: Any = None, weight: ArrayLike | None = None, density: bool = False
) -> Any:
    """Count points, or sum weights, in bins. The coordinates of a point are the last dimension."""
    x = _plain(input)
    spans = None if range is None else list(zip(range[::2], range[1::2]))
    counts, edges = np.histogramdd(x, bins, range=spans, weights=_plain(weight), density=density)
    return _Histogramdd(_of_dtype(x, counts)[0], tuple(_of_dtype(x, *edges)))


@function("bincount")
def bincount(input: Array, weights: Array | None = None, minlength: int = 0) -> Array:
    """Count each integer from 0 in a vector, or sum the weights of its occurrences.

    >>> bincount(np.array([1, 3, 1])).tolist()
    [0, 2, 0, 1]
    """
    counts = np.bincount(one(input), _plain(weights), minlength)
    return counts if weights is None or weights.dtype.name != "float32" else _in_input_dtype(weights, counts)


# -- several variables ---------------------------------------------------------------------------------------------
@function("cov")
def cov(input: ArrayLike, *, correction: int = 1, fweights: object = None, aweights: object = None) -> Array:
    """Return the covariances of variables.

    >>> cov(np.array([[1.0, 2.0], [1.0, 3.0]])).tolist()
    [[0.5, 1.0], [1.0, 2.0]]
    """
    x = floating(input)
    if len(x.shape) > 2:
        text = f"expected input to have two or fewer dimensions but got an input with {len(x.shape)} dimensions"
        raise size_error(f"cov(): {text}")
    return as_node("SqueezeBackward0", _cov, x, correction, fweights, aweights)


def _cov(x: Array, correction: int, fweights: Array | None, aweights: Array | None) -> Array:
    return _in_input_dtype(x, np.cov(x, ddof=correction, fweights=fweights, aweights=aweights))


def _in_input_dtype(x: Array, result: Array) -> Array:
    """Return a float64 result of NumPy for `x`, for Tensors in the dtype of `x`."""
    result = as_array(result)
    if result.dtype == x.dtype or getattr(x, "common_dtype", None) is None:
        return result
    return cast(result, dtype=x.dtype.name)


@function("corrcoef")
def corrcoef(input: ArrayLike) -> Array:
    """Return the correlations of variables."""
    return as_node("ClampBackward1", _corrcoef, floating(input))


def _corrcoef(x: Array) -> Array:
    return _in_input_dtype(x, np.corrcoef(x))


@function("cdist", methods=False)
def cdist(x1: Array, x2: Array, p: float = 2.0, compute_mode: str = "") -> Array:
    """Return the p-norms of the differences of all rows of `x1` and all rows of `x2`; batches broadcast.

    >>> cdist(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0], [0.0, 1.0]])).tolist()
    [[5.0, 1.0]]
    """
    require_one_dtype(x1, x2, "expected scalar type {A} but found {B}")
    x, y = arrays(floating(x1), floating(x2))
    if x.shape[-1] != y.shape[-1]:
        raise size_error(f"X1 and X2 must have the same number of columns. X1: {x.shape[-1]} X2: {y.shape[-1]}")
    return as_node("CdistBackward0", _cdist, x, y, float(p))


def _cdist(x: Array, y: Array, p: float) -> Array:
    left = reshape(x, shape=(*x.shape[:-1], 1, x.shape[-1]))
    right = reshape(y, shape=(*y.shape[:-2], 1, *y.shape[-2:]))
    return vector_norm(subtract(left, right), p, -1)


def pdist(input: Array, p: float = 2.0) -> Array:
    """Return the p-norms of the differences of each two rows: the upper triangle of `cdist`, row by row.

    >>> pdist(np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 4.0]])).tolist()
    [5.0, 4.0, 3.0]
    """
    x = floating(input)
    if len(x.shape) != 2:
        raise size_error(f"pdist only supports 2D tensors, got: {lengths(x.shape)}")
    return _pdist(x, p=float(p))


@one_node("PdistBackward0")
def _pdist(x: Array, *, p: float) -> Array:
    first, second = (constant(v, peer_of(x)) for v in np.triu_indices(x.shape[0], 1))
    return vector_norm(subtract(*(ops.gather(x, v, axes=(0,)) for v in (first, second))), p, -1)
