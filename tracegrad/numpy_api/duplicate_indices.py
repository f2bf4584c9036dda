"""Assignment `x[indices] = values` with duplicate indices: the last value counts, as in NumPy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.numpy_api.operands import alias, constant, peer_of
from tracegrad.ops.core.dispatch import Holder
from tracegrad.ops.core.op import Carrier
from tracegrad.ops.elementwise import table as elementwise
from tracegrad.ops.indexing.gather_scatter import gather, scatter_add, scatter_max
from tracegrad.ops.shape import linear
from tracegrad.ops.shape.linear import arange, full, reshape, transpose
from tracegrad.typing import Array, Number

if TYPE_CHECKING:
    from tracegrad.numpy_api.indexing import IndexPlan


def is_known(i: object) -> bool:
    """Whether the values of an index are known without a query."""
    held = getattr(i, "array", None)  # a Tensor's array, which may be traced
    i = held if isinstance(held, Carrier) else i
    return not isinstance(i, Carrier) or getattr(i, "_concrete_masks", False)


def was_written(x: Array, *write_args: Array | Number) -> bool:
    """Whether the traced array `x` is already the result of the write with these operands.

    `x[index] += y` adds to the view `x[index]`, which writes to `x`, and then assigns the view to `x[index]` again.
    """
    last, nodes = getattr(x, "node", None), [getattr(y, "node", None) for y in write_args]
    return getattr(last, "op", None) is elementwise.where and [*last.inputs[:2]] == nodes  # type: ignore[union-attr]


def replaced_indices(x: Array, index_plan: IndexPlan, value: Array | Number) -> Array:
    """`x` with `value` at the indices of `index_plan`: each position gets the number of its last update."""
    head = index_plan.indices[0].shape
    flat = tuple(reshape(i, shape=(math.prod(head),)) for i in index_plan.indices)
    sizes = tuple(index_plan.inner[k] for k in index_plan.axes)
    number: Any
    number, written = _last_writer(flat, sizes) if hasattr(value, "shape") else (None, _written(flat, sizes))
    rest = tuple(n for k, n in enumerate(index_plan.inner) if k not in index_plan.axes)
    order = (*index_plan.axes, *(k for k in range(len(index_plan.inner)) if k not in index_plan.axes))
    back = linear.inverse_permutation(order)

    def from_table(table: Array) -> Array:
        return index_plan.spread_slices(transpose(table, perm=back))

    column = reshape(written, shape=(*sizes, *(1,) * len(rest)))
    inside = from_table(linear.broadcast_to(column, shape=(*sizes, *rest)))
    if not hasattr(value, "shape"):
        return elementwise.where(inside, value, x)
    updates = transpose(value, perm=linear.inverse_permutation(index_plan.perm))
    updates = reshape(updates, shape=(math.prod(head), *rest))
    return elementwise.where(inside, from_table(gather(updates, number, axes=(0,))), x)


def replaced_nothing(x: Array, value: Array | Number) -> Array:
    """Return `x` unchanged, because `value` replaces no element.

    PyTorch's tape still has an edge to the value, with zero cotangents: an optimizer then updates a layer that received
    no row.
    """
    if isinstance(value, Holder) and value.dtype.kind in "fc" and x.dtype.kind in "fc":
        return elementwise.flat(x, linear.reduce_sum(value, axes=tuple(range(len(value.shape)))))
    return alias(x)


def _written(flat: tuple[Array, ...], sizes: tuple[int, ...]) -> Array:
    """Return the mask of positions that any update writes."""
    one = full(shape=flat[0].shape, value=1, dtype="uint8")
    return elementwise.greater(scatter_max(one, *flat, shape=sizes, axes=tuple(range(len(sizes)))), 0)


def _last_writer(flat: tuple[Array, ...], sizes: tuple[int, ...]) -> tuple[Array, ...]:
    """Return, for every position, the number of its last update (0 if none), and whether there is one."""
    n, axes = flat[0].shape[0], tuple(range(len(sizes)))
    if n > 1 and not all(map(is_known, flat)):
        counted = arange(start=1, step=1, length=n, dtype="int32" if n < 2**31 else "int64")
        last = scatter_max(counted, *flat, shape=sizes, axes=axes)
        return elementwise.subtract(elementwise.maximum(last, 1), 1), elementwise.greater(last, 0)
    one = full(shape=(n,), value=1, dtype="int64")
    numbers = arange(start=0, step=1, length=n, dtype="int64")
    if n > 1:
        known = _is_last(flat, sizes)
        one, numbers = (elementwise.where(known, v, 0) for v in (one, numbers))
    number = scatter_add(numbers, *flat, shape=sizes, axes=axes)
    return number, elementwise.greater(scatter_add(one, *flat, shape=sizes, axes=axes), 0)


def _is_last(flat: tuple[Array, ...], sizes: tuple[int, ...]) -> Array:
    """Return a mask of the updates that no later one overwrites, if all indices are known."""
    n = flat[0].shape[0]
    plain = [np.asarray(i.concrete("an index") if isinstance(i, Carrier) else i) for i in flat]  # type: ignore[attr-defined]
    spots = np.ravel_multi_index([np.where(i < 0, i + m, i) for i, m in zip(plain, sizes)], sizes, mode="clip")
    _, from_end = np.unique(spots[::-1], return_index=True)
    last = np.zeros(n, bool)
    last[n - 1 - from_end] = True
    return constant(last, peer_of(*flat))
