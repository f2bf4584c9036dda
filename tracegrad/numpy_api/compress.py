"""Functions whose result size depends on values: compress, extract."""

from __future__ import annotations

import numpy as np

from tracegrad.errors import located
from tracegrad.numpy_api.boolean_mask import nonzero
from tracegrad.numpy_api.indexing import getitem
from tracegrad.numpy_api.joining import along, picked
from tracegrad.numpy_api.operands import array, peer_of, raveled, to_dtype
from tracegrad.numpy_api.registry import implements, refuse
from tracegrad.ops.core.op import normalize_axis
from tracegrad.typing import Array, ArrayLike

__all__ = ["compress", "compressed", "extract", "nonzero"]


def _flat(x: Array) -> Array:
    return x if len(x.shape) == 1 else raveled(x)


@implements(np.compress, refuses=("out",))
def compress(condition: ArrayLike, a: ArrayLike, axis: int | None = None, out: Array | None = None) -> Array:
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
    result: Array = getitem(x, (*[slice(None)] * k, mask))
    return result


def compressed(x: Array, condition: Array, axis: int | None = None, out: Array | None = None) -> Array:
    """`ndarray.compress`."""
    if out is not None:
        raise refuse("the argument out= of ndarray.compress")
    return compress(condition, x, axis)


@implements(np.extract)
def extract(condition: ArrayLike, arr: ArrayLike) -> Array:
    """`np.extract`."""
    peer = peer_of(condition, arr)
    return compress(_flat(array(condition, peer)), _flat(array(arr, peer)), 0)
