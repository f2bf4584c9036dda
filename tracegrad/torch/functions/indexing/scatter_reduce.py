"""Scatter reductions, `scatter_reduce` and `index_reduce`: combine the values written to one index.

Values are added, multiplied, averaged or compared. Sums are scattered. For other reductions, elements are sorted by
their target index, so that the elements of one target are a contiguous segment; a segmented scan in doubling steps then
combines neighbours. Derivatives come from the products and selections in the scan. Equal extrema share the derivative.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tracegrad.errors import located
from tracegrad.numpy_api.duplicate_indices import replaced_nothing
from tracegrad.numpy_api.joining import along, concatenate
from tracegrad.numpy_api.operands import constant, peer_of
from tracegrad.numpy_api.selection import positions
from tracegrad.ops.core.op import one_node
from tracegrad.ops.elementwise import table as elementwise
from tracegrad.ops.elementwise.table import (
    add,
    divide,
    equal,
    floor_divide,
    greater,
    isfinite,
    logical_and,
    maximum,
    minimum,
    multiply,
    subtract,
    where,
)
from tracegrad.ops.indexing import gather_scatter as ops
from tracegrad.ops.reduce import sorting
from tracegrad.ops.shape import linear
from tracegrad.ops.shape.linear import broadcast_to, cast, reshape, stop_gradient
from tracegrad.torch.functions.core.registry import function
from tracegrad.torch.functions.indexing.index_update import along_dim, scattered
from tracegrad.torch.functions.indexing.select import as_dtype, index_grid
from tracegrad.typing import Array, ArrayLike

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Holder, Operand


Both = Callable[[Any, Any], Any]

_COMBINED: dict[str, Both] = {"prod": multiply, "amax": maximum, "amin": minimum}


def _known(name: str, reduce: str, choices: tuple[str, ...]) -> str:
    if reduce not in choices:
        listed = ", ".join(choices[:-1])
        raise RuntimeError(
            located(f"{name}(): Expected reduce to be one of {listed} or {choices[-1]} but got {reduce}.")
        )
    return reduce


@function("scatter_reduce", in_place=True)
def scatter_reduce(
    input: ArrayLike, dim: int, index: Operand, src: ArrayLike, reduce: str, *, include_self: bool = True
) -> Array:
    """Reduce the elements of `src` with equal index along `dim`, and write the results there.

    With `include_self`, the elements of the input take part.

    >>> import numpy as np
    >>> scatter_reduce(np.zeros(2), 0, np.array([1, 1]), np.array([1.0, 3.0]), "mean", include_self=False).tolist()
    [0.0, 2.0]
    """
    reduce = _known("scatter_reduce", reduce, ("sum", "prod", "mean", "amax", "amin"))
    x, k, index, src = scattered("scatter_reduce", input, dim, index, src)
    return _scatter_reduce(x, index, src, dim=k, reduce=reduce, include_self=include_self)


@one_node("ScatterReduceBackward0")
def _scatter_reduce(x: Array, index: Array, src: Array, *, dim: int, reduce: str, include_self: bool) -> Array:
    return _reduce_at(x, index, src, dim, reduce, include_self)


@function("index_reduce", in_place=True)
def index_reduce(
    input: ArrayLike, dim: int, index: object, source: ArrayLike, reduce: str, *, include_self: bool = True
) -> Array:
    """Reduce `source` into the values at a vector of indices along `dim`.

    >>> import numpy as np
    >>> index_reduce(np.ones(2), 0, np.array([1, 1]), np.array([2.0, 3.0]), "prod").tolist()
    [1.0, 6.0]
    """
    reduce = _known("index_reduce", reduce, ("prod", "mean", "amax", "amin"))
    x, k, index, source = along_dim("index_reduce_", input, dim, index, source)
    return _index_reduce(x, index, source, dim=k, reduce=reduce, include_self=include_self)


@one_node("IndexReduceBackward0")
def _index_reduce(x: Array, index: Array, source: Array, *, dim: int, reduce: str, include_self: bool) -> Array:
    if not x.shape:
        whole, source = reshape(x, shape=(1,)), _flat(source)
        return reshape(_reduce_at(whole, index, source, 0, reduce, include_self), shape=())
    column = tuple(index.shape[0] if k == dim else 1 for k in range(len(source.shape)))
    spread = broadcast_to(reshape(index, shape=column), shape=source.shape)
    return _reduce_at(x, spread, source, dim, reduce, include_self)


# -- reduction by target -------------------------------------------------------------------------------------------
def _reduce_at(x: Array, index: Any, src: Array, dim: int, reduce: str, include_self: bool) -> Array:
    shape = x.shape
    for d, n in enumerate(index.shape):
        src = src if src.shape[d] == n else along(src, d, 0, n)
    indices, values, count = _flat_indices(index, shape, dim), _flat(src), math.prod(shape)
    x = _flat(x)
    if not values.shape[0]:
        result = replaced_nothing(x, values)
    elif reduce in ("sum", "mean"):
        result = _summed(x, indices, values, reduce == "mean", include_self)
    elif reduce == "prod" or x.dtype.kind != "f":
        result = _combined(_COMBINED[reduce], x, indices, values, count, include_self)
    else:
        result = _extremum(_COMBINED[reduce], x, indices, values, count, include_self)
    return reshape(result, shape=shape)


def _flat(x: Array) -> Array:
    return reshape(x, shape=(math.prod(x.shape),))


def _flat_indices(index: Holder, shape: tuple[int, ...], dim: int) -> Array:
    """Return the number, in row-major order, of the position of each written element."""
    if not shape:
        return reshape(index, shape=(1,))
    total: Any = 0
    for k, axis_index in enumerate(index_grid(index, dim, len(shape))):
        total = add(multiply(axis_index, math.prod(shape[k + 1 :])), total)
    return _flat(total)


def _spread(values: Array, indices: Array, like: Array) -> Array:
    """Return zeros like the flat `like`, with `values` added at their positions."""
    return ops.scatter_add(values, indices, shape=like.shape, axes=(0,))


def _counted(indices: Array, like: Array) -> Array:
    """Count the elements that are written to each position of `like`."""
    ones = constant(linear.full(shape=indices.shape, value=1, dtype="int64"), peer_of(indices))
    return _spread(ones, indices, like)


def _summed(x: Array, indices: Array, values: Array, mean: bool, include_self: bool) -> Array:
    count = _counted(indices, x)
    written = greater(count, 0)
    total = add(x if include_self else where(written, as_dtype(0, x.dtype), x), _spread(values, indices, x))
    if not mean:
        return total
    count = add(count, 1) if include_self else where(written, count, 1)
    count = cast(count, dtype=x.dtype.name)
    return divide(total, count) if x.dtype.kind in "fc" else floor_divide(total, count)


def _segment_reduce(combine: Both, indices: Array, values: Array, count: int) -> tuple[Array, ...]:
    """Reduce the values written to each of `count` positions; also return whether there are any."""
    order = sorting.argsort(indices, axis=0, descending=False, stable=True)
    sorted_indices, result = (ops.gather(v, order, axes=(0,)) for v in (indices, values))
    n, reach = values.shape[0], 1
    while reach < n:
        first, last = along(result, 0, 0, n - reach), along(result, 0, reach, n)
        together = equal(along(sorted_indices, 0, 0, n - reach), along(sorted_indices, 0, reach, n))
        result = concatenate([along(result, 0, 0, reach), where(together, combine(first, last), last)], 0)
        reach *= 2
    numbers = constant(positions(count), peer_of(indices))
    last = elementwise.maximum(subtract(sorting.searchsorted(sorted_indices, numbers, right=True), 1), 0)
    return ops.gather(result, last, axes=(0,)), equal(ops.gather(sorted_indices, last, axes=(0,)), numbers)


def _combined(combine: Both, x: Array, indices: Array, values: Array, count: int, include_self: bool) -> Array:
    result, written = _segment_reduce(combine, indices, values, count)
    return where(written, combine(x, result) if include_self else result, x)


def _extremum(combine: Both, x: Array, indices: Array, values: Operand, count: int, include_self: bool) -> Array:
    """Return the extremum as a constant, plus a 0 that depends on the elements equal to it, in equal shares."""
    still, flat_values = stop_gradient(x), stop_gradient(values)
    result, written = _segment_reduce(combine, indices, flat_values, count)
    best = where(written, combine(still, result) if include_self else result, still)
    hit = equal(flat_values, ops.gather(best, indices, axes=(0,)))
    self_hit = equal(still, best) if include_self else elementwise.logical_not(written)
    ties = add(_spread(cast(hit, dtype="int64"), indices, x), cast(self_hit, dtype="int64"))
    share = divide(1.0, cast(where(equal(ties, 0), 1, ties), dtype=x.dtype.name))
    moved = where(logical_and(hit, isfinite(flat_values)), subtract(values, flat_values), 0.0)
    saved = where(logical_and(self_hit, isfinite(still)), subtract(x, still), 0.0)
    return add(best, multiply(add(_spread(moved, indices, x), saved), share))
