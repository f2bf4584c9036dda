"""Functions that order elements: sort and argsort, partitions (which sort altogether), places in sorted arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.errors import ShapeError, located
from tracegrad.numpy_api.joining import along
from tracegrad.numpy_api.memory import laid
from tracegrad.numpy_api.operands import along_axis, array, arrays, peer_of, promoted, raveled, to_dtype
from tracegrad.numpy_api.registry import implements
from tracegrad.numpy_api.selection import take_along_axis
from tracegrad.ops import selecting, sorting
from tracegrad.ops.complex_numbers import imag, real
from tracegrad.ops.elementwise import greater_equal, less
from tracegrad.ops.linear import concatenate, reshape
from tracegrad.ops.scans import cumsum

__all__ = ["argpartition", "argsort", "complex_order", "partition", "searchsorted", "sort"]


def _is_stable(kind: str | None, stable: bool | None) -> bool:
    if kind not in (None, "quicksort", "heapsort", "mergesort", "stable"):
        raise ValueError(located(f"sort kind must be one of 'quick', 'heap', or 'stable' (got {kind!r})"))
    return bool(stable) or kind in ("mergesort", "stable")


def complex_order(x: Any, axis: int) -> Any:
    """The order of complex numbers: by the real parts, then by the imaginary ones; those with a nan come last."""
    re, im = real(x), imag(x)
    order = argsort(im, axis, stable=True)
    for key in (re, 2 * np.isnan(re) + 1 * np.isnan(im)):
        order = take_along_axis(order, argsort(take_along_axis(key, order, axis), axis, stable=True), axis)
    return order


def _ranks(x: Any, axis: int) -> Any:
    """The places of complex numbers in their order: integers in the same order."""
    return argsort(complex_order(x, axis), axis)


@implements(np.sort, refuses=("order",))
def sort(
    a: Any, axis: int | None = -1, kind: str | None = None, order: Any = None, *, stable: bool | None = None
) -> Any:
    """`np.sort`; equal elements share nothing: each keeps the cotangent of its place."""
    x, k = along_axis("sort", a, axis)
    if x.dtype.kind == "c":
        return laid(take_along_axis(x, complex_order(x, k), k), "K", x)
    return laid(sorting.sort(x, axis=k, descending=False, stable=_is_stable(kind, stable))[0], "K", x)


@implements(np.argsort, refuses=("order",))
def argsort(
    a: Any, axis: int | None = -1, kind: str | None = None, order: Any = None, *, stable: bool | None = None
) -> Any:
    """`np.argsort`."""
    if axis == -1 and not arrays(a)[0].shape:
        axis = None  # NumPy sorts one number, if that is asked for its order only
    x, k = along_axis("argsort", a, axis)
    if x.dtype.kind == "c":
        return complex_order(x, k)
    return sorting.argsort(x, axis=k, descending=False, stable=_is_stable(kind, stable))


@implements(np.partition, refuses=("order",))
def partition(a: Any, kth: Any, axis: int | None = -1, kind: str = "introselect", order: Any = None) -> Any:
    """`np.partition`; each element keeps the cotangent of its place."""
    x, k = along_axis("partition", a, axis)
    places = _places(x, kth, k)
    if x.dtype.kind == "c":
        found = take_along_axis(x, _argpartition(x, places, k), k)
    elif not places:
        found = sorting.sort(x, axis=k, descending=False, stable=False)[0]
    else:
        found = selecting.partition(x, places=places, axis=k)[0]
    return laid(found, "K", x)


@implements(np.argpartition, refuses=("order",))
def argpartition(a: Any, kth: Any, axis: int | None = -1, kind: str = "introselect", order: Any = None) -> Any:
    """`np.argpartition`."""
    x, k = along_axis("argpartition", a, axis)
    return _argpartition(x, _places(x, kth, k), k)


def _argpartition(x: Any, places: tuple[int, ...], axis: int) -> Any:
    x = _ranks(x, axis) if x.dtype.kind == "c" and places else x
    if not places:
        return sorting.argsort(x, axis=axis, descending=False, stable=False)
    return selecting.argpartition(x, places=places, axis=axis)


def _places(x: Any, kth: Any, axis: int) -> tuple[int, ...]:
    """The places that a partition is asked for, counted from the front; none where there is nothing to part."""
    n = x.shape[axis]
    if n < 2 or 0 in x.shape:
        return ()
    places = [int(k) for k in np.ravel(kth)]
    for k in places:
        if not -n <= k < n:
            raise ValueError(located(f"kth(={k}) out of bounds ({n})"))
    return tuple([k % n for k in places])


@implements(np.searchsorted)
def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """`np.searchsorted`."""
    peer = peer_of(a, v, sorter)
    x, values = promoted([array(a, peer), array(v, peer)])
    if len(x.shape) != 1:
        raise ShapeError(located("object too deep for desired array"))
    if side not in ("left", "right"):
        raise ValueError(located(f"search side must be one of 'left' or 'right' (got {side!r})"))
    if sorter is not None:
        x = take_along_axis(x, array(sorter, peer), 0)
    if x.dtype.kind == "c":
        return _searched(x, values, side == "right")
    return sorting.searchsorted(x, values, right=side == "right")


def _searched(x: Any, values: Any, right: bool) -> Any:
    """Where complex values belong in a sorted row: the number of its elements before each when all are in order."""
    sought = raveled(values)
    m, n = sought.shape[0], x.shape[0]
    both = concatenate(*((x, sought) if right else (sought, x)), axis=0)  # of equal ones, the first come first
    order = complex_order(both, 0)
    of_row = less(order, n) if right else greater_equal(order, m)
    before = take_along_axis(cumsum(to_dtype(of_row, "int64"), axis=0), argsort(order, 0), 0)
    return reshape(along(before, 0, n, n + m) if right else along(before, 0, 0, m), shape=values.shape)
