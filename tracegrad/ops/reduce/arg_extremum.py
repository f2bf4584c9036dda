"""Decompose argmax and argmin into other ops.

The first index of an extremum is the minimum of `where(hit, index, n)`, which compiled code finds with an early exit.
A long vector is read once: the extremum of each block is computed, and only the elements of the first block with the
best one are read again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.ops.elementwise.table import (
    add,
    equal,
    less,
    logical_not,
    logical_or,
    minimum,
    multiply,
    not_equal,
    where,
)
from tracegrad.ops.indexing.gather_scatter import gather
from tracegrad.ops.shape.linear import arange, broadcast_to, concatenate, reshape, slice, unreduce
from tracegrad.typing import Array

LONG, BLOCK = 2**14, 2**10

Reduction = Callable[..., Any]


def index_of_extremum(x: Array, axis: int, best: Reduction, least: Reduction) -> Array:
    """The first index along `axis` of the extremum of the reduction `best`, or of the first nan; `least` is the minimum
    reduction."""
    n = x.shape[axis]
    if x.dtype == np.bool_:
        result = _first(logical_not(x) if best is least else x, axis, least)
        return where(less(result, n), result, 0)
    if x.shape != (n,) or n < LONG:
        return _first_of(x, best(x, axes=(axis,)), axis, least)
    whole = n // BLOCK * BLOCK
    blocks = best(reshape(_cut(x, 0, whole), shape=(n // BLOCK, BLOCK)), axes=(1,))
    if whole < n:
        rest = best(_cut(x, whole, n), axes=(0,))
        blocks = concatenate(blocks, reshape(rest, shape=(1,)), axis=0)
    extremum = best(blocks, axes=(0,))
    begin = multiply(_first_of(blocks, extremum, 0, least), BLOCK)
    indices = add(broadcast_to(begin, shape=(BLOCK,)), arange(start=0, step=1, length=BLOCK, dtype="int64"))
    block = gather(x, minimum(indices, n - 1), axes=(0,))
    return add(begin, _first_of(block, extremum, 0, least))


def _cut(x: Array, start: int, stop: int) -> Array:
    return slice(x, start=(start,), stop=(stop,), step=(1,))


def _first_of(x: Array, best: Array, axis: int, least: Reduction) -> Array:
    """The first index along `axis` where `x` is `best`, or where it is nan."""
    hit = equal(x, unreduce(best, x.shape, (axis,)))
    return _first(hit if x.dtype.kind in "iu" else logical_or(hit, not_equal(x, x)), axis, least)


def _first(hit: Array, axis: int, least: Reduction) -> Array:
    """The first index along `axis` that is true; the size of the axis if none is."""
    n = hit.shape[axis]
    indices = arange(start=0, step=1, length=n, dtype="int64")
    shape = tuple(n if a == axis else 1 for a in range(len(hit.shape)))
    result: Array = least(where(hit, broadcast_to(reshape(indices, shape=shape), shape=hit.shape), n), axes=(axis,))
    return result
