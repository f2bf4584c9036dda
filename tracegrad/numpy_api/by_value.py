"""Functions whose results have as many elements as values say: compress, extract, unique."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.errors import located
from tracegrad.numpy_api.chosen import nonzero
from tracegrad.numpy_api.indexing import getitem
from tracegrad.numpy_api.joining import along, concatenate, picked
from tracegrad.numpy_api.operands import array, arrays, constant, peer_of, raveled, to_dtype
from tracegrad.numpy_api.registry import implements, refuse
from tracegrad.ops.elementwise import isnan, logical_and, logical_not, not_equal, subtract
from tracegrad.ops.indexing import gather, scatter_add
from tracegrad.ops.linear import full, reshape
from tracegrad.ops.op import normalize_axis
from tracegrad.ops.scans import cumsum
from tracegrad.ops.sorting import argsort, sort

__all__ = ["compress", "compressed", "extract", "nonzero", "unique"]


def _flat(x: Any) -> Any:
    return x if len(x.shape) == 1 else raveled(x)


@implements(np.compress, refuses=("out",))
def compress(condition: Any, a: Any, axis: int | None = None, out: Any = None) -> Any:
    """`np.compress`."""
    peer = peer_of(condition, a)
    x, mask = array(a, peer), to_dtype(array(condition, peer), bool)
    if len(mask.shape) != 1:
        raise ValueError(located("condition must be a 1-d array"))
    if axis is None:
        x, axis = _flat(x), 0
    k, n = normalize_axis("compress", axis, len(x.shape)), mask.shape[0]
    if n > x.shape[k]:  # an index out of range, if there is one
        return picked(x, nonzero(mask)[0], k)
    x = x if n == x.shape[k] else along(x, k, 0, n)
    return getitem(x, (*[slice(None)] * k, mask))


def compressed(x: Any, condition: Any, axis: int | None = None, out: Any = None) -> Any:
    """`ndarray.compress`."""
    if out is not None:
        raise refuse("the argument out= of ndarray.compress")
    return compress(condition, x, axis)


@implements(np.extract)
def extract(condition: Any, arr: Any) -> Any:
    """`np.extract`."""
    peer = peer_of(condition, arr)
    return compress(_flat(array(condition, peer)), _flat(array(arr, peer)), 0)


@implements(np.unique, refuses=("axis",))
def unique(ar: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False,
           axis: Any = None, *, equal_nan: bool = True, sorted: bool = True) -> Any:  # fmt: skip
    """`np.unique`, sorted: of equal elements the first has the cotangent."""
    (given,) = arrays(ar)
    if given.dtype.kind not in "fiub":
        raise refuse(f"np.unique of {given.dtype}")
    x, peer = _flat(given), peer_of(ar)
    n = x.shape[0]
    order, ranked = _ranked(x, return_index or return_inverse, peer)
    first = _firsts(ranked, equal_nan, peer)
    found = [getitem(ranked, first)]
    if return_index:
        found.append(getitem(order, first))
    if return_inverse:
        number = subtract(cumsum(to_dtype(first, "int64"), axis=0), 1)
        found.append(reshape(scatter_add(number, order, shape=(n,), axes=(0,)), shape=given.shape))
    if return_counts:
        ends = concatenate([nonzero(first)[0], constant(full(shape=(1,), value=n, dtype="int64"), peer)])
        found.append(subtract(along(ends, 0, 1, ends.shape[0]), along(ends, 0, 0, ends.shape[0] - 1)))
    return tuple(found) if len(found) > 1 else found[0]


def _ranked(x: Any, places: bool, peer: Any) -> tuple[Any, Any]:
    """Where the elements in ascending order come from, if that is wanted, and these."""
    if not x.shape[0]:
        return constant(full(shape=(0,), value=0, dtype="int64"), peer), x
    if not places:
        return None, sort(x, axis=0, descending=False, stable=False)[0]
    order = argsort(x, axis=0, descending=False, stable=True)
    return order, gather(x, order, axes=(0,))


def _firsts(ranked: Any, equal_nan: bool, peer: Any) -> Any:
    """Which elements in ascending order differ from those before them."""
    n = ranked.shape[0]
    one = constant(full(shape=(min(n, 1),), value=True, dtype="bool"), peer)
    if n < 2:
        return one
    these, before = along(ranked, 0, 1, n), along(ranked, 0, 0, n - 1)
    differ = not_equal(these, before)
    if equal_nan and ranked.dtype.kind == "f":
        differ = logical_and(differ, logical_not(logical_and(isnan(these), isnan(before))))
    return concatenate([one, differ])
