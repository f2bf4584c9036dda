"""Sort arrays, compute sorting indices, running arg-extrema and modes, and search sorted arrays.

Indices are int64 and have no derivative; values are a gather at the indices, which has one. NaN counts as the largest
number, as in NumPy and PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.errors import DTypeError, ShapeError
from tracegrad.ops.core.forms import Compose
from tracegrad.ops.core.op import AS_WRITTEN, ResultAvals, Sample, multi_result, primitive
from tracegrad.ops.core.samples import integers, uniform
from tracegrad.ops.indexing.gather_scatter import gather, scatter_add
from tracegrad.ops.shape.batching import repeated
from tracegrad.ops.shape.linear import arange, broadcast_to, reduced_shape, reshape
from tracegrad.typing import Array, NDArray, Shape

if TYPE_CHECKING:
    from collections.abc import Iterator


_INT64 = np.dtype(np.int64)


def _indices(x: Aval, *, axis: int, **params: object) -> Aval:
    reduced_shape(x.shape, (axis,))
    return Aval(x.shape, _INT64)


# -- argsort ---------------------------------------------------------------------------------------------
@primitive(on_complex=AS_WRITTEN)
def argsort(x: NDArray, *, axis: int, descending: bool, stable: bool | None) -> Any:
    """The indices that sort `x` along `axis`. If `stable`, equal elements keep their order. With None, their order does
    not matter, and compiled code may differ from NumPy."""
    kind: Any = "stable" if stable else None
    if not descending:
        return np.argsort(x, axis=axis, kind=kind)
    # The reversed array is sorted and read backwards, so equal elements keep their order, and nan comes first.
    return x.shape[axis] - 1 - np.flip(np.argsort(np.flip(x, axis), axis=axis, kind=kind), axis)


argsort.def_aval(_indices)


def _smooth_samples() -> Iterator[Sample]:
    yield (uniform((3, 4)),), {"axis": 1, "descending": False, "stable": True}
    yield (integers((20, 3), 0, 5),), {"axis": 0, "descending": True, "stable": True}
    yield (uniform((2, 3, 4), dtype="float32"),), {"axis": 1, "descending": True, "stable": False}
    yield (uniform((0, 3)),), {"axis": 0, "descending": False, "stable": True}


def _sorting_samples() -> Iterator[Sample]:
    yield from _smooth_samples()
    yield (np.array([1.0, np.nan, -np.inf, np.nan, 1.0]),), {"axis": 0, "descending": True, "stable": True}


argsort.def_samples(_sorting_samples)


# -- sort ------------------------------------------------------------------------------------------------
def _full_indices(index: Array, axis: int) -> list[Array]:
    """The indices along all axes of the elements at `index` along `axis`."""
    shape = index.shape

    def index_along(d: int) -> Array:
        along = arange(start=0, step=1, length=shape[d], dtype="int64")
        indices = reshape(along, shape=tuple([n if i == d else 1 for i, n in enumerate(shape)]))
        return broadcast_to(indices, shape=shape)

    return [index if d == axis else index_along(d) for d in range(len(shape))]


def scatter_along(ct: Array, index: Array, axis: int, shape: Shape) -> Array:
    """Zeros of this shape, to which `ct` is added at `index` along `axis`."""
    return scatter_add(ct, *_full_indices(index, axis), shape=shape, axes=tuple(range(len(shape))))


def take_along(x: Array, index: Array, axis: int) -> Array:
    """The elements of `x` at `index` along `axis`."""
    return gather(x, *_full_indices(index, axis), axes=tuple(range(len(x.shape))))


def _sorted(x: Array, *, axis: int, **params: object) -> tuple[Array, ...]:
    index = argsort(x, axis=axis, **params)
    return take_along(x, index, axis), index


@multi_result(Compose(_sorted, moves=True), on_complex="")
def sort(x: NDArray, *, axis: int, descending: bool, stable: bool) -> tuple[NDArray, ...]:
    """`x` sorted along `axis`, and the indices that sort it, as from `argsort`."""
    index = argsort.impl(x, axis=axis, descending=descending, stable=stable)
    return (x.take(index) if x.ndim == 1 else np.take_along_axis(x, index, axis)), index


@sort.def_aval
def _(x: Aval, *, axis: int, **params: object) -> ResultAvals:
    return ResultAvals((x, _indices(x, axis=axis)))


@sort.def_vjp_all
def _(
    wanted: Sequence[int],
    cts: tuple[Array, Array | None],
    ans: tuple[Array, ...],
    x: Array,
    *,
    axis: int,
    **params: object,
) -> list[Any]:
    return [scatter_along(cts[0], ans[1], axis, x.shape)]


@sort.def_jvp
def _(tangents: tuple[Array, ...], ans: tuple[Array, ...], x: Array, *, axis: int, **params: object) -> tuple[Any, Any]:
    return take_along(tangents[0], ans[1], axis), None


sort.def_samples(_smooth_samples)


# -- sorted_values ---------------------------------------------------------------------------------------
@primitive(on_complex=AS_WRITTEN)
def sorted_values(x: NDArray, *, axis: int, descending: bool, stable: bool) -> NDArray:
    """`x` sorted along `axis`: the values of `sort`, which NumPy computes without indices."""
    kind: Any = "stable" if stable else None
    if not descending:
        return np.sort(x, axis=axis, kind=kind)
    return np.flip(np.sort(np.flip(x, axis), axis=axis, kind=kind), axis)


@sorted_values.def_aval
def _(x: Aval, *, axis: int, **params: object) -> Aval:
    reduced_shape(x.shape, (axis,))
    return x


@sorted_values.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, *, axis: int, **params: object) -> Array:
    return scatter_along(ct, argsort(x, axis=axis, **params), axis, x.shape)


sorted_values.def_samples(_smooth_samples)
sort.def_result_rule(0)(sorted_values)


# -- cumargmax and cumargmin -----------------------------------------------------------------------------
def _running(extremum: np.ufunc, x: NDArray, axis: int) -> NDArray:
    best = extremum.accumulate(x, axis=axis)
    n = x.shape[axis]
    indices = np.arange(n).reshape(tuple(n if a == axis else 1 for a in range(x.ndim)))
    # Nothing equals nan, so from the first nan on the last hit is the first nan.
    first = np.isnan(x) & (np.cumsum(np.isnan(x), axis=axis) == 1) if x.dtype.kind == "f" else False
    return np.maximum.accumulate(np.where((x == best) | first, indices, 0), axis=axis)


@primitive()
def cumargmax(x: NDArray, *, axis: int) -> NDArray:
    """The index of the maximum so far along `axis`: the last of equal ones, the first nan."""
    return _running(np.maximum, x, axis)


@primitive()
def cumargmin(x: NDArray, *, axis: int) -> NDArray:
    """The index of the minimum so far along `axis`: the last of equal ones, the first nan."""
    return _running(np.minimum, x, axis)


def _running_samples() -> Iterator[Sample]:
    yield (uniform((3, 4)),), {"axis": 1}
    yield (integers((20, 3), 0, 5),), {"axis": 0}
    yield (np.array([1.0, 2.0, 2.0, np.nan, 5.0, np.nan]),), {"axis": 0}
    yield (uniform((0, 3), dtype="float32"),), {"axis": 0}


for _op in (cumargmax, cumargmin):
    _op.def_aval(_indices)
    _op.def_samples(_running_samples)


# -- argmode ---------------------------------------------------------------------------------------------
@primitive()
def argmode(x: NDArray, *, axis: int) -> NDArray:
    """The index along `axis` of the last occurrence of the most frequent element; of the least one, if several are.

    A nan equals no element, as in PyTorch; it is the mode if it comes first among elements that all differ.
    """
    shape = reduced_shape(x.shape, (axis,))
    return (
        np.apply_along_axis(_last_mode_index, axis, x).astype(np.int64)
        if math.prod(shape)
        else np.zeros(shape, np.int64)
    )


def _last_mode_index(v: NDArray) -> Any:
    values, counts = np.unique(v, return_counts=True, equal_nan=False)
    mode = np.argmax(counts)
    if counts[mode] == 1 and v[0] != v[0]:
        return 0
    return np.flatnonzero(v == values[mode])[-1]


@argmode.def_aval
def _(x: Aval, *, axis: int) -> Aval:
    shape = reduced_shape(x.shape, (axis,))
    if not x.shape[axis]:
        raise ShapeError(f"argmode: {x} has no elements along axis {axis}")
    return Aval(shape, _INT64)


@argmode.def_samples
def _() -> Iterator[Sample]:
    yield (integers((3, 9), 0, 3),), {"axis": 1}
    yield (integers((9, 2), 0, 3, dtype="float32"),), {"axis": 0}
    yield (np.array([1.0, np.nan, np.nan]),), {"axis": 0}
    yield (np.array([np.nan, 2.0, 1.0]),), {"axis": 0}


# -- searchsorted ----------------------------------------------------------------------------------------
@primitive(on_complex=AS_WRITTEN)
def searchsorted(x: NDArray, values: NDArray, *, right: bool) -> NDArray:
    """The positions at which to insert `values` into `x`, sorted along its last axis, to keep it sorted.

    `x` of one axis serves all values; else `x` and `values` have equal leading axes. The positions are before equal
    elements, or after them if `right`.
    """
    side: Any = "right" if right else "left"
    if x.ndim == 1:
        return np.searchsorted(x, values, side)
    out = np.empty(values.shape, np.int64)
    for i in np.ndindex(x.shape[:-1]):
        out[i] = np.searchsorted(x[i], values[i], side)
    return out


@searchsorted.def_aval
def _(x: Aval, values: Aval, *, right: bool) -> Aval:
    if not x.ndim or (x.ndim > 1 and x.shape[:-1] != values.shape[:-1]):
        raise ShapeError(f"searchsorted: leading axes of {x} and {values} differ")
    if x.dtype != values.dtype:
        raise DTypeError(f"searchsorted: {x} and {values} have different dtypes")
    return Aval(values.shape, _INT64)


@searchsorted.def_batch
def _(size: int, batched: Any, x: Array, values: Array, *, right: bool) -> Array:
    if not batched[0] and len(x.shape) == 1:
        return searchsorted(x, values, right=right)
    x, values = repeated(size, batched, (x, values))
    if len(x.shape) > 2:
        return searchsorted(x, values, right=right)
    flat = reshape(values, shape=(size, math.prod(values.shape[1:])))
    return reshape(searchsorted(x, flat, right=right), shape=values.shape)


@searchsorted.def_samples
def _() -> Iterator[Sample]:
    yield (np.sort(uniform((5,))), uniform((3, 4))), {"right": False}
    yield (np.sort(integers((2, 20), 0, 9)), integers((2, 3), 0, 9)), {"right": True}
    yield (np.sort(uniform((5,), dtype="float32")), uniform((), dtype="float32")), {"right": False}
