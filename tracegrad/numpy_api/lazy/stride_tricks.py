"""Sliding windows and views by strides, gathered from the elements of the array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided as _as_strided
from numpy.lib.stride_tricks import sliding_window_view as _sliding_window_view

from tracegrad.errors import OVERLAPPING, located
from tracegrad.numpy_api.joining import picked
from tracegrad.numpy_api.memory_layout import positions
from tracegrad.numpy_api.operands import arrays, constant, peer_of, raveled, read_only, size_of
from tracegrad.numpy_api.registry import implements, refuse
from tracegrad.ops.core.op import Carrier, normalize_axis
from tracegrad.ops.elementwise.table import where
from tracegrad.ops.nn.im2col import patches
from tracegrad.ops.shape.linear import reshape, transpose
from tracegrad.typing import Array, ArrayLike, Axes, NDArray

# The most elements of a window for the op `patches`, whose derivative has one summand for each. Larger windows are
# gathered, and their derivative is scattered.
MAX_WINDOW_SIZE = 64


def _of_known_size(x: ArrayLike) -> Array:
    """Return the array; for a masked selection, the selected elements."""
    (v,) = arrays(x)
    carried: Any = v
    exact: Array = carried._as_exact() if hasattr(v, "_as_exact") else v
    return exact


@implements(_sliding_window_view)
def sliding_window_view(
    x: ArrayLike,
    window_shape: tuple[int, ...] | int,
    axis: Axes = None,
    *,
    subok: bool = False,
    writeable: bool = False,
) -> Array:
    """`np.lib.stride_tricks.sliding_window_view`."""
    v = _of_known_size(x)
    rank = len(v.shape)
    if writeable:
        raise refuse("np.lib.stride_tricks.sliding_window_view with writeable=True", "assign to slices of the array")
    sizes = tuple(window_shape) if np.iterable(window_shape) else (window_shape,)
    sizes = tuple(n.__index__() for n in sizes)
    args = tuple(range(rank)) if axis is None else tuple(axis) if np.iterable(axis) else (axis,)
    axes = tuple(normalize_axis("sliding_window_view", k, rank) for k in args)
    if len(sizes) != len(axes):
        raise ValueError(
            located(
                "Must provide matching length window_shape and axis; got "
                f"{len(sizes)} window_shape elements and {len(axes)} axes elements."
            )
        )
    if any(n < 0 for n in sizes):
        raise ValueError(located("`window_shape` cannot contain negative values"))
    if any(v.shape[k] < n for k, n in zip(axes, sizes)):
        raise ValueError(located("window shape cannot be larger than input array shape"))
    if len(set(axes)) < len(axes) or 0 in sizes or np.prod(sizes) > MAX_WINDOW_SIZE:
        return read_only(v, _one_by_one(v, axes, sizes), lambda x: _sliding_window_view(x, sizes, axes))
    every = [1] * rank
    for k, n in zip(axes, sizes):
        every[k] = n
    counts = tuple(m - n + 1 for m, n in zip(v.shape, every))
    ones = (1,) * rank
    result = patches(v, counts=counts, sizes=tuple(every), start=(0,) * rank, step=ones, gap=ones)
    rest = [rank + k for k in range(rank) if k not in axes]
    result = transpose(result, perm=(*range(rank), *(rank + k for k in axes), *rest))
    result = reshape(result, shape=(*counts, *sizes))
    return read_only(v, result, lambda x: _sliding_window_view(x, sizes, axes))


def _one_by_one(x: Array, axes: tuple[int, ...], sizes: tuple[int, ...]) -> Array:
    """Gather the windows along one axis after the other."""
    for k, n in zip(axes, sizes):
        indices = np.arange(x.shape[k] - n + 1)[:, None] + np.arange(n)
        x = picked(x, constant(indices, peer_of(x)), k)
        x = transpose(x, perm=(*(a for a in range(len(x.shape)) if a != k + 1), k + 1))
    return x


@implements(_as_strided)
def as_strided(
    x: ArrayLike, shape: Any = None, strides: Any = None, subok: bool = False, writeable: bool = True
) -> Any:
    """`np.lib.stride_tricks.as_strided`, within the elements of `x`; overlapping views must not be updated."""
    v = _of_known_size(x)
    layout: Any = v._visible_layouts(v)[0] if isinstance(v, Carrier) else v  # type: ignore[attr-defined]
    if not layout.flags.c_contiguous:
        raise refuse("np.lib.stride_tricks.as_strided of an array that is not contiguous", "copy it before")
    shape = v.shape if shape is None else tuple(n.__index__() for n in shape)
    strides = layout.strides if strides is None else tuple(n.__index__() for n in strides)
    size = v.dtype.itemsize
    if any(s % size for s in strides):
        raise refuse("np.lib.stride_tricks.as_strided by parts of elements")
    indices = positions(shape, [s // size for s in strides])
    if indices.size and (indices.min() < 0 or indices.max() >= size_of(v)):
        raise IndexError(located("as_strided reads beyond the elements of the array"))
    result = picked(raveled(v), constant(indices, peer_of(v)), 0)
    if not writeable:
        return read_only(v, result, lambda x: _as_strided(x, shape, strides))
    return view_of_indices(v, result, indices, lambda x: _as_strided(x, shape, strides))


def view_of_indices(x: Any, result: Array, indices: NDArray, view_layout: Callable[..., object]) -> Any:
    """Register `result`, the elements of `x` at these positions, as a view of `x`; `view_layout` maps ndarrays.

    If several elements of the view alias one element of `x`, an update is refused: a new value of the view does not
    show which of them was written.
    """
    if not getattr(x, "_tracks_views", False):
        return result
    spots = indices.ravel()
    number = np.full(size_of(x), -1)
    number[spots] = np.arange(spots.size)

    def view_update(base: Array, new: Array) -> Array:
        if not spots.size:
            return base
        written, source = constant(number >= 0, peer_of(base)), constant(np.maximum(number, 0), peer_of(base))
        return reshape(where(written, picked(raveled(new), source, 0), raveled(base)), shape=base.shape)

    view = x._viewed(result, view_update, view_layout)
    if view is not result and np.count_nonzero(number >= 0) < spots.size:
        view.frozen = OVERLAPPING
    return view
