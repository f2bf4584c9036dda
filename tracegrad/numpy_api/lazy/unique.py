"""Unique elements (`np.unique`), or unique slices along an axis, in ascending order."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.numpy_api.boolean_mask import nonzero
from tracegrad.numpy_api.indexing import getitem
from tracegrad.numpy_api.joining import along, concatenate
from tracegrad.numpy_api.operands import arrays, constant, peer_of, raveled, to_dtype
from tracegrad.numpy_api.registry import implements
from tracegrad.numpy_api.shapes import moveaxis
from tracegrad.numpy_api.sorting import sort
from tracegrad.ops.core.op import normalize_axis
from tracegrad.ops.elementwise.complex import imag, real
from tracegrad.ops.elementwise.table import isnan, logical_and, logical_not, not_equal, subtract
from tracegrad.ops.indexing.gather_scatter import gather, scatter_add
from tracegrad.ops.reduce import sorting
from tracegrad.ops.reduce.reductions import reduce_any
from tracegrad.ops.reduce.row_order import row_order
from tracegrad.ops.reduce.scans import cumsum
from tracegrad.ops.shape.linear import full, reshape
from tracegrad.ops.shape.stack_split import stack
from tracegrad.typing import Array, ArrayLike

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Carrier


@implements(np.unique)
def unique(
    ar: ArrayLike,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    sorted: bool = True,
) -> Array | tuple[Array, ...]:
    """`np.unique`, sorted: one of several equal elements has the cotangent; with `return_index`, the first."""
    (args,) = arrays(ar)
    k = None if axis is None else normalize_axis("unique", axis, len(args.shape))
    is_flat = k is None or len(args.shape) == 1
    x = raveled(args) if is_flat else _slices_as_rows(args, k)
    peer, n = peer_of(ar), x.shape[0]
    order, ranked = _ranked(x, True if return_index else None if return_inverse else False, peer)
    first = _firsts(ranked, equal_nan and is_flat, peer)
    chosen = getitem(ranked, first)
    if not is_flat:
        slice_shape = moveaxis(args, k, 0).shape[1:]
        chosen = moveaxis(reshape(chosen, shape=(chosen.shape[0], *slice_shape)), 0, k)
    results = [chosen]
    if return_index:
        results.append(getitem(order, first))
    if return_inverse:
        number = subtract(cumsum(to_dtype(first, "int64"), axis=0), 1)
        results.append(
            reshape(scatter_add(number, order, shape=(n,), axes=(0,)), shape=args.shape if is_flat else (n,))
        )
    if return_counts:
        ends = concatenate([nonzero(first)[0], constant(full(shape=(1,), value=n, dtype="int64"), peer)])
        results.append(subtract(along(ends, 0, 1, ends.shape[0]), along(ends, 0, 0, ends.shape[0] - 1)))
    return tuple(results) if len(results) > 1 else results[0]


@implements(np.unique_all)
def unique_all(x: ArrayLike) -> Any:
    """`np.unique_all`."""
    return _ALL(*unique(x, True, True, True, equal_nan=False))


@implements(np.unique_counts)
def unique_counts(x: ArrayLike) -> Any:
    """`np.unique_counts`."""
    return _COUNTS(*unique(x, return_counts=True, equal_nan=False))


@implements(np.unique_inverse)
def unique_inverse(x: ArrayLike) -> Any:
    """`np.unique_inverse`."""
    return _INVERSE(*unique(x, return_inverse=True, equal_nan=False))


@implements(np.unique_values)
def unique_values(x: ArrayLike) -> Any:
    """`np.unique_values`."""
    return unique(x, equal_nan=False)


# NumPy's own classes of results, which it does not export.
_ALL: Any = type(np.unique_all(0))
_COUNTS: Any = type(np.unique_counts(0))
_INVERSE: Any = type(np.unique_inverse(0))


def _slices_as_rows(x: Array, k: int | None) -> Array:
    """Flatten the slices along an axis to rows."""
    x = moveaxis(x, k, 0)
    return reshape(x, shape=(x.shape[0], math.prod(x.shape[1:])))


def _ranked(x: Array, stable: bool | None, peer: Carrier | None) -> Any:
    """Return the sources of the elements, or rows, in ascending order, and the sorted ones.

    Equal ones stay in order if `stable`. If that is None, any order is allowed; if it is False, the sources are not
    needed.
    """
    if not x.shape[0]:
        return constant(full(shape=(0,), value=0, dtype="int64"), peer), x
    if len(x.shape) > 1:
        order = row_order(_keys(x))
    elif stable is False:
        return None, sort(x, 0)
    else:
        order = sorting.argsort(x, axis=0, descending=False, stable=stable)
    return order, gather(x, order, axes=(0,))


def _keys(x: Array) -> Array:
    """Return rows of real numbers in the order of the rows: complex numbers with a nan part come last."""
    if x.dtype.kind != "c":
        return x
    re, im = real(x), imag(x)
    lost = to_dtype(2 * np.isnan(re) + 1 * np.isnan(im), re.dtype)
    keys = stack(lost, re, im, axis=2)
    return reshape(keys, shape=(x.shape[0], 3 * x.shape[1]))


def _firsts(ranked: Array, equal_nan: bool, peer: Carrier | None) -> Array:
    """Return the mask of sorted elements, or rows, that differ from their predecessors."""
    n = ranked.shape[0]
    one = constant(full(shape=(min(n, 1),), value=True, dtype="bool"), peer)
    if n < 2:
        return one
    current, before = along(ranked, 0, 1, n), along(ranked, 0, 0, n - 1)
    differ = not_equal(current, before)
    if equal_nan and ranked.dtype.kind in "fc":
        differ = logical_and(differ, logical_not(logical_and(isnan(current), isnan(before))))
    if len(ranked.shape) > 1:
        differ = reduce_any(differ, axes=(1,))
    return concatenate([one, differ])
