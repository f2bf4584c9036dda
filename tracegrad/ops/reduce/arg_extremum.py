"""Where an extremum is: argmax and argmin made of other ops.

The first index at which an element is the best one is the smallest of `where(hit, index, n)`, which compiled code finds
without going on. A long vector is gone through once: what is best in each block is kept, and of the elements again only
those of the first block that has the best are looked at.
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

__all__ = ["place_of"]

LONG, BLOCK = 2**14, 2**10

Reduction = Callable[..., Any]


def place_of(x: Any, axis: int, best: Reduction, least: Reduction) -> Any:
    """The first index along `axis` of the extremum by the reduction `best`, or of the first nan; `least` is the op that
    reduces to the minimum."""
    n = x.shape[axis]
    if x.dtype == np.bool_:
        found = _first(logical_not(x) if best is least else x, axis, least)
        return where(less(found, n), found, 0)
    if x.shape != (n,) or n < LONG:
        return _first_of(x, best(x, axes=(axis,)), axis, least)
    whole = n // BLOCK * BLOCK
    blocks = best(reshape(_cut(x, 0, whole), shape=(n // BLOCK, BLOCK)), axes=(1,))
    if whole < n:
        rest = best(_cut(x, whole, n), axes=(0,))
        blocks = concatenate(blocks, reshape(rest, shape=(1,)), axis=0)
    extremum = best(blocks, axes=(0,))
    begin = multiply(_first_of(blocks, extremum, 0, least), BLOCK)
    places = add(broadcast_to(begin, shape=(BLOCK,)), arange(start=0, step=1, length=BLOCK, dtype="int64"))
    block = gather(x, minimum(places, n - 1), axes=(0,))
    return add(begin, _first_of(block, extremum, 0, least))


def _cut(x: Any, start: int, stop: int) -> Any:
    return slice(x, start=(start,), stop=(stop,), step=(1,))


def _first_of(x: Any, best: Any, axis: int, least: Reduction) -> Any:
    """The first index along `axis` where `x` is `best`, or where it is nan."""
    hit = equal(x, unreduce(best, x.shape, (axis,)))
    return _first(hit if x.dtype.kind in "iu" else logical_or(hit, not_equal(x, x)), axis, least)


def _first(hit: Any, axis: int, least: Reduction) -> Any:
    """The first index along `axis` of what is true; the size of the axis if nothing is."""
    n = hit.shape[axis]
    places = arange(start=0, step=1, length=n, dtype="int64")
    shape = tuple(n if a == axis else 1 for a in range(len(hit.shape)))
    return least(where(hit, broadcast_to(reshape(places, shape=shape), shape=hit.shape), n), axes=(axis,))
