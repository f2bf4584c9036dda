"""Index arithmetic: diagonals and triangles, flat and multi-indices, membership, lexicographic order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad.errors import ShapeError, located
from tracegrad.numpy_api import reductions, sorting
from tracegrad.numpy_api.memory_layout import in_memory_order
from tracegrad.numpy_api.operands import array, arrays, peer_of, promoted, raveled, size_of, to_dtype
from tracegrad.numpy_api.registry import implements
from tracegrad.numpy_api.selection import clip, take_along_axis
from tracegrad.ops.core.op import normalize_axis
from tracegrad.ops.elementwise.table import (
    add,
    equal,
    floor_divide,
    logical_and,
    logical_not,
    logical_or,
    minimum,
    multiply,
    remainder,
    subtract,
)
from tracegrad.ops.indexing.gather_scatter import gather
from tracegrad.ops.reduce.isin import is_member
from tracegrad.ops.reduce.reductions import reduce_any
from tracegrad.ops.shape.linear import reshape
from tracegrad.typing import Array, ArrayLike, NDArray

# The most pairs of elements that are compared directly; for more pairs, one side is sorted.
MAX_PAIRS = 4096
# The most test elements that are compared with `x` one after the other.
MAX_SINGLE = 16


def _shape(name: str, a: ArrayLike, rank: int | None = None) -> tuple[int, ...]:
    shape: tuple[int, ...] = arrays(a)[0].shape
    if len(shape) < 2 or (rank is not None and len(shape) != rank):
        raise ValueError(located(f"np.{name}: input array must be {'at least ' if rank is None else ''}2-d"))
    return shape


@implements(np.diag_indices_from)
def diag_indices_from(arr: ArrayLike) -> tuple[NDArray, ...]:
    """`np.diag_indices_from`."""
    shape = _shape("diag_indices_from", arr)
    if len(set(shape)) != 1:
        raise ValueError(located("All dimensions of input must be of equal length"))
    return np.diag_indices(shape[0], len(shape))


@implements(np.tril_indices_from)
def tril_indices_from(arr: ArrayLike, k: int = 0) -> tuple[NDArray, NDArray]:
    """`np.tril_indices_from`."""
    rows, columns = _shape("tril_indices_from", arr, 2)
    return np.tril_indices(rows, k, columns)


@implements(np.triu_indices_from)
def triu_indices_from(arr: ArrayLike, k: int = 0) -> tuple[NDArray, NDArray]:
    """`np.triu_indices_from`."""
    rows, columns = _shape("triu_indices_from", arr, 2)
    return np.triu_indices(rows, k, columns)


# -- one number or several ---------------------------------------------------------------------------------------------
def _within(x: Array, n: int, why: str) -> None:
    if size_of(x) and not bool(reductions.all_(logical_and(x >= 0, x < n))):
        raise ValueError(located(why))


def _element_strides(dims: tuple[int, ...], order: str) -> list[int]:
    """Return the stride of each axis, in elements."""
    if order == "F":
        return [math.prod(dims[:k]) for k in range(len(dims))]
    return [math.prod(dims[k + 1 :]) for k in range(len(dims))]


def _dims(shape: int | Sequence[int]) -> tuple[int, ...]:
    return (shape.__index__(),) if hasattr(shape, "__index__") else tuple(n.__index__() for n in shape)


@implements(np.unravel_index)
def unravel_index(indices: ArrayLike, shape: int | Sequence[int], order: str = "C") -> tuple[Array, ...]:
    """`np.unravel_index`; whether all indices are within the shape is a query, which leaves a guard."""
    x = to_dtype(arrays(indices)[0], "int64")
    dims = _dims(shape)
    _within(x, math.prod(dims), f"an index is out of bounds for array with size {math.prod(dims)}")
    strides, result = _element_strides(dims, order), {}
    for k in range(len(dims)) if order != "F" else reversed(range(len(dims))):
        result[k] = floor_divide(x, strides[k]) if strides[k] > 1 else x
        x = subtract(x, multiply(result[k], strides[k]))
    return tuple(result[k] for k in range(len(dims)))


@implements(np.ravel_multi_index)
def ravel_multi_index(
    multi_index: Sequence[ArrayLike], dims: int | Sequence[int], mode: str | tuple[str, ...] = "raise", order: str = "C"
) -> Any:
    """`np.ravel_multi_index`; with mode "raise", whether all are within range is a query, which leaves a guard."""
    sizes = _dims(dims)
    xs = [to_dtype(x, "int64") for x in arrays(*multi_index)]
    modes = mode if isinstance(mode, tuple) else (mode,) * len(sizes)
    if len(xs) != len(sizes):
        raise ValueError(located(f"parameter multi_index must be a sequence of length {len(sizes)}"))
    result: Any = None
    for x, n, how, stride in zip(xs, sizes, modes, _element_strides(sizes, order)):
        if how == "wrap":
            x = remainder(x, n)
        elif how == "clip":
            x = clip(x, 0, n - 1)
        else:
            _within(x, n, "invalid entry in coordinates array")
        x = multiply(x, stride) if stride != 1 else x
        result = x if result is None else add(result, x)
    return result


# -- in another array --------------------------------------------------------------------------------------------------
@implements(np.isin)
def isin(
    element: ArrayLike,
    test_elements: ArrayLike,
    assume_unique: bool = False,
    invert: bool = False,
    *,
    kind: object = None,
) -> Array:
    """`np.isin`."""
    x, tests = promoted(arrays(element, test_elements))
    tests = raveled(tests)
    n = tests.shape[0]
    if 0 < n <= MAX_SINGLE:
        result = equal(x, tests[0])
        for k in range(1, n):
            result = logical_or(result, equal(x, tests[k]))
    elif not n or size_of(x) * n <= MAX_PAIRS:
        pairs = equal(reshape(x, shape=(*x.shape, 1)), tests)
        result = reduce_any(pairs, axes=(len(x.shape),))
    elif x.dtype.kind in "iu":
        result = is_member(x, tests)
    else:
        tests = sorting.sort(tests)
        result = equal(gather(tests, minimum(sorting.searchsorted(tests, x), n - 1), axes=(0,)), x)
    return in_memory_order(logical_not(result) if invert else result, "C")


# -- sorted order ------------------------------------------------------------------------------------------------------
@implements(np.lexsort)
def lexsort(keys: tuple[Array, ...], axis: int = -1) -> Array:
    """`np.lexsort`: the last key counts most."""
    sort_keys = arrays(*keys) if isinstance(keys, list | tuple) else list(arrays(keys)[0])
    peer = peer_of(*sort_keys)
    sort_keys = [array(x, peer) for x in sort_keys]
    if len({x.shape for x in sort_keys}) != 1:
        raise ShapeError(located("lexsort: all keys need to be the same shape"))
    k = normalize_axis("lexsort", axis, len(sort_keys[0].shape))
    order = sorting.argsort(sort_keys[0], k, stable=True)
    for x in sort_keys[1:]:
        permutation = sorting.argsort(take_along_axis(x, order, k), k, stable=True)
        order = take_along_axis(order, permutation, k)
    return order
