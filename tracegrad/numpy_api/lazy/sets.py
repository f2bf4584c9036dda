"""Set functions of arrays, and `trim_zeros`."""

from __future__ import annotations

import numpy as np

from tracegrad.errors import located
from tracegrad.numpy_api.lazy.index_tricks import isin
from tracegrad.numpy_api.operands import arrays, promoted, raveled
from tracegrad.numpy_api.reductions import any_, argmax
from tracegrad.numpy_api.registry import implements
from tracegrad.ops.core.op import normalize_axes
from tracegrad.ops.elementwise.table import logical_not, logical_xor, not_equal
from tracegrad.typing import Array, ArrayLike, Axes


def _flattened(*xs: ArrayLike) -> list[Array]:
    """Flatten each array, all to their common dtype."""
    return [raveled(x) for x in promoted(arrays(*xs))]


@implements(np.union1d)
def union1d(ar1: ArrayLike, ar2: ArrayLike) -> Array:
    """`np.union1d`."""
    return np.unique(np.concatenate(_flattened(ar1, ar2)))


@implements(np.intersect1d)
def intersect1d(
    ar1: ArrayLike, ar2: ArrayLike, assume_unique: bool = False, return_indices: bool = False
) -> Array | tuple[Array, Array, Array]:
    """`np.intersect1d`."""
    x, y = _flattened(ar1, ar2)
    if not return_indices:
        x = np.sort(x) if assume_unique else np.unique(x)
        return x[isin(x, y)]
    (x, i), (y, j) = (_placed(each, assume_unique) for each in (x, y))
    both = isin(x, y)
    return x[both], i[both], j[isin(y, x)]


def _placed(x: Array, distinct: bool) -> tuple[Array, Array]:
    """Return the different elements in ascending order, and their positions."""
    if not distinct:
        return np.unique(x, return_index=True)
    order = np.argsort(x)
    return x[order], order


@implements(np.setdiff1d)
def setdiff1d(ar1: ArrayLike, ar2: ArrayLike, assume_unique: bool = False) -> Array:
    """`np.setdiff1d`."""
    x, y = raveled(arrays(ar1)[0]), raveled(arrays(ar2)[0])
    x = x if assume_unique else np.unique(x)
    return x[logical_not(isin(x, y))]


@implements(np.setxor1d)
def setxor1d(ar1: ArrayLike, ar2: ArrayLike, assume_unique: bool = False) -> Array:
    """`np.setxor1d`."""
    x, y = _flattened(ar1, ar2)
    every = np.unique(np.concatenate([x, y]))
    return every[logical_xor(isin(every, x), isin(every, y))]


@implements(np.trim_zeros)
def trim_zeros(filt: ArrayLike, trim: str = "fb", axis: Axes = None) -> Array:
    """`np.trim_zeros`; the positions of the ends are queries, which leave guards."""
    (x,) = arrays(filt)
    ends = trim.lower()
    if ends not in ("f", "b", "fb", "bf"):
        raise ValueError(located(f"unexpected character(s) in `trim`: {trim!r}"))
    other = not_equal(x, 0)
    index = [slice(None)] * len(x.shape)
    for k in normalize_axes("trim_zeros", axis, len(x.shape)):
        along = any_(other, tuple(j for j in range(len(x.shape)) if j != k)) if len(x.shape) > 1 else other
        n = along.shape[0]
        if not n or not bool(any_(along)):
            index[k] = slice(0, 0)
            continue
        first = int(argmax(along)) if "f" in ends else 0
        last = n - int(argmax(along[::-1])) if "b" in ends else n
        index[k] = slice(first, last)
    return x[tuple(index)]
