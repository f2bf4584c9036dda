"""Functions that order elements: sort and argsort, partitions, searchsorted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad.errors import ShapeError, located
from tracegrad.numpy_api.memory_layout import in_memory_order
from tracegrad.numpy_api.operands import along_axis, array, arrays, peer_of, promoted
from tracegrad.numpy_api.registry import implements
from tracegrad.numpy_api.selection import take_along_axis
from tracegrad.ops.reduce import partition as selecting
from tracegrad.ops.reduce import sorting
from tracegrad.typing import Array, ArrayLike


def _is_stable(kind: str | None, stable: bool | None) -> bool:
    if kind not in (None, "quicksort", "heapsort", "mergesort", "stable"):
        raise ValueError(located(f"sort kind must be one of 'quick', 'heap', or 'stable' (got {kind!r})"))
    return bool(stable) or kind in ("mergesort", "stable")


@implements(np.sort, refuses=("order",))
def sort(
    a: ArrayLike,
    axis: int | None = -1,
    kind: str | None = None,
    order: str | None = None,
    *,
    stable: bool | None = None,
) -> Array:
    """`np.sort`; each of equal elements has the cotangent of its own position."""
    x, k = along_axis("sort", a, axis)
    how: Any = {"axis": k, "descending": False, "stable": _is_stable(kind, stable)}
    result = sorting.sorted_values(x, **how) if x.dtype.kind == "c" else sorting.sort(x, **how)[0]
    return in_memory_order(result, "K", x)


@implements(np.argsort, refuses=("order",))
def argsort(
    a: ArrayLike,
    axis: int | None = -1,
    kind: str | None = None,
    order: str | None = None,
    *,
    stable: bool | None = None,
) -> Array:
    """`np.argsort`."""
    if axis == -1 and not arrays(a)[0].shape:
        axis = None  # NumPy's argsort, unlike its sort, accepts one number
    x, k = along_axis("argsort", a, axis)
    return sorting.argsort(x, axis=k, descending=False, stable=_is_stable(kind, stable))


@implements(np.partition, refuses=("order",))
def partition(
    a: ArrayLike, kth: int | Sequence[int], axis: int | None = -1, kind: str = "introselect", order: str | None = None
) -> Array:
    """`np.partition`; each element has the cotangent of its new position."""
    x, k = along_axis("partition", a, axis)
    places = _kth_positions(x, kth, k)
    if x.dtype.kind == "c":
        result = take_along_axis(x, _argpartition(x, places, k), k)
    elif not places:
        result = sorting.sort(x, axis=k, descending=False, stable=False)[0]
    else:
        result = selecting.partition(x, places=places, axis=k)[0]
    return in_memory_order(result, "K", x)


@implements(np.argpartition, refuses=("order",))
def argpartition(
    a: ArrayLike, kth: int | Sequence[int], axis: int | None = -1, kind: str = "introselect", order: str | None = None
) -> Array:
    """`np.argpartition`."""
    x, k = along_axis("argpartition", a, axis)
    return _argpartition(x, _kth_positions(x, kth, k), k)


def _argpartition(x: Array, places: tuple[int, ...], axis: int) -> Array:
    if not places:
        return sorting.argsort(x, axis=axis, descending=False, stable=False)
    return selecting.argpartition(x, places=places, axis=axis)


def _kth_positions(x: Array, kth: int | Sequence[int], axis: int) -> tuple[int, ...]:
    """Return the positions of a partition, counted from the front; none if there is nothing to partition."""
    n = x.shape[axis]
    if n < 2 or 0 in x.shape:
        return ()
    places = [int(k) for k in np.ravel(kth)]
    for k in places:
        if not -n <= k < n:
            raise ValueError(located(f"kth(={k}) out of bounds ({n})"))
    return tuple([k % n for k in places])


@implements(np.searchsorted)
def searchsorted(a: ArrayLike, v: ArrayLike, side: str = "left", sorter: ArrayLike | None = None) -> Array:
    """`np.searchsorted`."""
    peer = peer_of(a, v, sorter)
    x, values = promoted([array(a, peer), array(v, peer)])
    if len(x.shape) != 1:
        raise ShapeError(located("object too deep for desired array"))
    if side not in ("left", "right"):
        raise ValueError(located(f"search side must be one of 'left' or 'right' (got {side!r})"))
    if sorter is not None:
        x = take_along_axis(x, array(sorter, peer), 0)
    return sorting.searchsorted(x, values, right=side == "right")
