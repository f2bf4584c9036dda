"""Functions that order elements: sort, topk, kthvalue, running extrema, mode, searchsorted.

Functions with two results return a named tuple `(values, indices)`. The indices are int64 and have no derivative; the
cotangent of the values is scattered to the elements at the indices. Sorting is stable, and nan is the largest number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import UnsupportedError, located
from tracegrad.numpy_api.joining import along, picked
from tracegrad.numpy_api.operands import array, constant, peer_of, promoted, size_of
from tracegrad.numpy_api.selection import take_along_axis
from tracegrad.ops.core.op import Op, named, one_node
from tracegrad.ops.indexing.gather_scatter import gather
from tracegrad.ops.reduce import sorting
from tracegrad.ops.shape.linear import cast, reshape, stop_gradient
from tracegrad.torch.functions.core.dims import dim_of, index_error, lengths, one, size_error
from tracegrad.torch.functions.core.registry import function
from tracegrad.torch.functions.core.return_types import return_type
from tracegrad.typing import Array, ArrayLike, NDArray, Shape

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Holder


_Sort = return_type("sort", "values", "indices")
_TopK = return_type("topk", "values", "indices")
_KthValue = return_type("kthvalue", "values", "indices")
_CumMax = return_type("cummax", "values", "indices")
_CumMin = return_type("cummin", "values", "indices")
_Mode = return_type("mode", "values", "indices")


def _ordered(x: Array) -> Array:
    """Return `x`; raise UnsupportedError for complex numbers, which only NumPy orders."""
    if x.dtype.kind == "c":
        raise UnsupportedError(located("the order of complex numbers is not supported"))
    return x


def _with_axis(input: ArrayLike, dim: int) -> tuple[Array, int]:
    """Return the array, with an axis added if it has none, and the axis that `dim` names."""
    x = _ordered(one(input))
    k = dim_of(dim, len(x.shape))
    return (x if x.shape else reshape(x, shape=(1,))), k


def _with_elements(name: str, input: Array, dim: int) -> tuple[Array, int]:
    x, k = _with_axis(input, dim)
    if not x.shape[k]:
        raise index_error(f"{name}(): Expected reduction dim {k} to have non-zero size.")
    return x, k


def _like(parts: tuple[Array, ...], shape: Shape) -> tuple[Array, ...]:
    return parts if parts[0].shape == shape else tuple(reshape(x, shape=shape) for x in parts)


# -- sorting -----------------------------------------------------------------------------------------------
@function("sort")
def sort(input: Array, dim: int = -1, descending: bool = False, *, stable: bool | None = None) -> Any:
    """Sort along `dim`, and return the values and their indices.

    >>> sort(np.array([2.0, 3.0, 1.0]), descending=True).indices.tolist()
    [1, 0, 2]
    """
    name = "SortBackward0" if stable is None else "SortBackward1"
    return _Sort(*_sorted(name, one(input), dim, descending))


def _sorted(name: str, x: Array, dim: int, descending: bool) -> tuple[Array, ...]:
    if not x.shape:
        return one_node(name)(_sorted_number)(x, dim=dim)
    result = sorting.sort(x, axis=dim_of(dim, len(x.shape)), descending=bool(descending), stable=True)
    return result if name == "SortBackward0" else named(name, result)


def _sorted_number(x: Array, *, dim: int) -> tuple[Array, ...]:
    v, k = _with_axis(x, dim)
    return _like(sorting.sort(v, axis=k, descending=False, stable=True), x.shape)


@function("argsort")
def argsort(input: ArrayLike, dim: int = -1, descending: bool = False, *, stable: bool = False) -> Array:
    """Return the indices that sort the values along `dim`.

    >>> argsort(np.array([2.0, 3.0, 1.0])).tolist()
    [2, 0, 1]
    """
    v, k = _with_axis(input, dim)
    index = sorting.argsort(v, axis=k, descending=descending, stable=True)
    return index if one(input).shape else reshape(index, shape=())


@function("msort")
def msort(input: ArrayLike) -> Array:
    """Sort along the first dimension, in ascending order.

    >>> msort(np.array([[2.0, 1.0], [1.0, 3.0]])).tolist()
    [[1.0, 1.0], [2.0, 3.0]]
    """
    return _sorted("SortBackward0", one(input), 0, False)[0]


@function("topk")
def topk(input: Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """Return the `k` largest (or smallest) values along `dim` in order, and their indices.

    RuntimeError if there are fewer values. The values are always sorted.

    >>> topk(np.array([2.0, 3.0, 1.0]), 2).values.tolist()
    [3.0, 2.0]
    """
    x, count = one(input), k.__index__()
    v, axis = _with_axis(x, dim)
    if not 0 <= count <= v.shape[axis]:
        raise size_error("selected index k out of range")
    return _TopK(*_topk(x, k=count, dim=dim, largest=largest))


@one_node("TopkBackward0")
def _topk(x: Array, *, k: int, dim: int, largest: bool) -> tuple[Array, ...]:
    v, axis = _with_axis(x, dim)
    index = along(sorting.argsort(v, axis=axis, descending=largest, stable=True), axis, 0, k)
    parts = take_along_axis(v, index, axis), index
    return _like(parts, () if not x.shape and k else index.shape)


@function("kthvalue")
def kthvalue(input: Array, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """Return the `k`-th smallest value along `dim`, and its index.

    RuntimeError if there are fewer values.

    >>> kthvalue(np.array([2.0, 3.0, 1.0]), 2).indices
    array(0)
    """
    x, count = one(input), k.__index__()
    v, axis = _with_elements("kthvalue", x, dim)
    if not 1 <= count <= v.shape[axis]:
        raise size_error(f"kthvalue(): selected number k out of range for dimension {axis}")
    return _KthValue(*_kthvalue(x, k=count, dim=dim, keepdim=keepdim))


@one_node("KthvalueBackward0")
def _kthvalue(x: Array, *, k: int, dim: int, keepdim: bool) -> tuple[Array, ...]:
    v, axis = _with_axis(x, dim)
    index = along(sorting.argsort(v, axis=axis, descending=False, stable=True), axis, k - 1, k)
    return _picked(x, v, index, axis, keepdim)


def _picked(x: Array, v: Array, index: Array, axis: int, keepdim: bool) -> tuple[Any, ...]:
    """Return the elements of `v` at one index along `axis`, and the index; `v` is `x` with at least one axis."""
    parts = take_along_axis(v, index, axis), index
    saved = tuple(n for i, n in enumerate(index.shape) if i != axis)
    return _like(parts, x.shape if not x.shape else index.shape if keepdim else saved)


# -- running extrema and modes -----------------------------------------------------------------------------
@function("cummax")
def cummax(input: Array, dim: int) -> Any:
    """Return the largest value up to each element along `dim`, and the last index of this value.

    >>> cummax(np.array([1.0, 3.0, 2.0, 3.0]), 0).indices.tolist()
    [0, 1, 1, 3]
    """
    return _CumMax(*_cummax(one(input), dim=dim))


@one_node("CummaxBackward0")
def _cummax(x: Array, *, dim: int) -> tuple[Array, ...]:
    return _running(sorting.cumargmax, x, dim)


@function("cummin")
def cummin(input: Array, dim: int) -> Any:
    """Return the smallest value up to each element along `dim`, and the last index of this value."""
    return _CumMin(*_cummin(one(input), dim=dim))


@one_node("CumminBackward0")
def _cummin(x: Array, *, dim: int) -> tuple[Array, ...]:
    return _running(sorting.cumargmin, x, dim)


def _running(op: Op, x: Array, dim: int) -> tuple[Array, ...]:
    v, k = _with_axis(x, dim)
    index = op(v, axis=k)
    return _like((take_along_axis(v, index, k), index), x.shape)


@function("mode")
def mode(input: Array, dim: int = -1, keepdim: bool = False) -> Any:
    """Return the most frequent value along `dim`, the smallest one of several, and its last index.

    >>> mode(np.array([1.0, 3.0, 2.0, 3.0])).indices
    array(3)
    """
    _with_elements("mode", input, dim)
    return _Mode(*_mode(one(input), dim=dim, keepdim=keepdim))


@one_node("ModeBackward0")
def _mode(x: Array, *, dim: int, keepdim: bool) -> tuple[Holder, ...]:
    v, k = _with_axis(x, dim)
    index = sorting.argmode(v, axis=k)
    return _picked(x, v, reshape(index, shape=(*v.shape[:k], 1, *v.shape[k + 1 :])), k, keepdim)


# -- sorted arrays -----------------------------------------------------------------------------------------
def _side(right: bool, side: str | None) -> bool:
    if side not in (None, "left", "right"):
        raise size_error(f"torch.searchsorted(): side can only be 'left' or 'right' but got {side}")
    return right or side == "right"


@function("searchsorted", methods=False)
def searchsorted(
    sorted_sequence: ArrayLike,
    input: ArrayLike,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: object = None,
) -> Array:
    """Return the indices at which to insert the input into a sorted sequence.

    The sequence has one dimension, or its dimensions except the last one are those of the input. The index is before
    equal elements, or behind them with `right`.

    >>> searchsorted(np.array([1.0, 2.0, 3.0]), np.array([0.5, 2.0]), right=True).tolist()
    [0, 2]
    """
    peer = peer_of(sorted_sequence, input, sorter)
    x, values = promoted([array(sorted_sequence, peer), array(input, peer)])
    if len(x.shape) != 1 and x.shape[:-1] != values.shape[:-1]:
        raise size_error(
            "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries "
            f"tensor and input value tensor must match, but we got boundaries tensor {lengths(x.shape)} and input "
            f"value tensor {lengths(values.shape)}"
        )
    if sorter is not None:
        x = take_along_axis(x, array(sorter, peer), -1)
    result = sorting.searchsorted(_ordered(x), values, right=_side(right, side))
    return cast(result, dtype="int32") if out_int32 else result


@function("bucketize", methods=False)
def bucketize(input: ArrayLike, boundaries: ArrayLike, *, out_int32: bool = False, right: bool = False) -> Array:
    """Return the indices at which to insert the input into one sequence of boundaries."""
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


# -- unique ------------------------------------------------------------------------------------------------
@function("unique")
def unique(
    input: ArrayLike,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """Return the different values in ascending order.

    In a traced function, another number of values causes another trace.

    >>> unique(np.array([3, 1, 3])).tolist()
    [1, 3]
    """
    x = one(input)
    plain = _plain(x)
    axis = None if dim is None else dim_of(dim, len(x.shape))
    find: Any = np.unique if isinstance(plain, np.ndarray) else _numpy_unique()
    _, first, *extras = find(plain, True, return_inverse, return_counts, axis, equal_nan=False)
    if return_inverse:
        extras[0] = extras[0].reshape(x.shape if axis is None else (x.shape[axis],))
    return _first_values(x, first, axis, extras)


def _numpy_unique() -> Any:
    from tracegrad.numpy_api.lazy.unique import unique

    return unique


def _plain(x: Any) -> Any:
    """Return the elements as an ndarray, or the values without derivatives in a traced function."""
    known: Any = getattr(x, "_known", None)
    plain: NDArray | None = x if known is None else known()
    return stop_gradient(x) if plain is None else plain


def _first_values(x: Array, first: NDArray, axis: int | None, extras: list[NDArray]) -> Array | tuple[Array, ...]:
    """Return the elements or slices at the positions `first`, alone or with more results."""
    peer = peer_of(x)
    values = _first_of_each(x, constant(first, peer), dim=axis)
    return (values, *(constant(v, peer) for v in extras)) if extras else values


@one_node("Unique2Backward0")
def _first_of_each(x: Array, first: Array, *, dim: int | None) -> Array:
    if dim is None:
        return gather(reshape(x, shape=(size_of(x),)), first, axes=(0,))
    return picked(x, first, dim)


@function("unique_consecutive")
def unique_consecutive(
    input: ArrayLike, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """Return the first of each run of equal values, or of equal slices along `dim`.

    In a traced function, another number of runs causes another trace.

    >>> unique_consecutive(np.array([1, 1, 2, 1]), return_counts=True)
    (array([1, 2, 1]), array([2, 1, 1]))
    """
    x = one(input)
    plain = _plain(x)
    axis = None if dim is None else dim_of(dim, len(x.shape))
    n = size_of(x) if axis is None else x.shape[axis]
    rows = np.moveaxis(plain, axis or 0, 0).reshape(n, size_of(x) // max(n, 1)) if x.shape else plain.reshape(1, 1)
    begins = np.concatenate([np.ones(min(n, 1), np.bool_), (rows[1:] != rows[:-1]).any(1)])
    first = np.flatnonzero(begins)
    inverse = (np.cumsum(begins) - 1).reshape(x.shape if axis is None else (n,))
    counts = np.concatenate([first[1:], np.full(min(n, 1), n)]) - first
    return _first_values(
        x, first, axis, [v for v, wanted in ((inverse, return_inverse), (counts, return_counts)) if wanted]
    )
