"""Boolean-mask indexing (`x[mask]`, `x[mask] = v`, `np.nonzero`) with masks unknown at trace time.

The number of elements that a mask selects determines a shape, so the trace queries it, once for each mask. No query is
necessary to replace elements by one value, or by values of the same mask. `tracegrad.trace.ragged.ragged_array` has the
reads that need no number.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tracegrad.errors import ShapeError, located
from tracegrad.numpy_api.operands import array, arrays, constant, peer_of, raveled, to_dtype
from tracegrad.numpy_api.registry import implements
from tracegrad.ops.core.dispatch import DispatchLevel
from tracegrad.ops.core.op import Carrier
from tracegrad.ops.elementwise import table as elementwise
from tracegrad.ops.indexing.gather_scatter import gather
from tracegrad.ops.reduce.scans import cumsum
from tracegrad.ops.shape.linear import broadcast_to, cast, full, inverse_permutation, reduce_sum, reshape, transpose
from tracegrad.ops.shape.repeat_index import repeated_index
from tracegrad.ops.shape.stack_split import stack
from tracegrad.typing import Array, ArrayLike, NDArray, Number, Shape

COUNT_QUERY = "how many elements a mask chooses"


def known(x: object) -> NDArray | None:
    """Return the value of an array that determines shapes, if no argument of a trace affects it."""
    carried: Any = x
    result: NDArray | None = carried._known() if isinstance(x, Carrier) else carried
    return result


def count_true(counts: Array) -> Array:
    """Sum a vector of booleans or integers."""
    return reduce_sum(to_dtype(counts, "int64"), axes=(0,))


def amount(counts: Array) -> int:
    """Return the number of selected elements as a Python number, which is queried."""
    total: Any = count_true(counts)
    return int(total.concrete(COUNT_QUERY).item())


def indices(mask: Array) -> tuple[Array, ...]:
    """`mask.nonzero()`."""
    plain = known(mask)
    if plain is not None:
        return plain.nonzero()
    flat = raveled(mask)
    count = amount(flat)
    if not count:
        return tuple([full(shape=(0,), value=0, dtype="int64") for _ in mask.shape])
    position, result = repeated_index(flat, size=count), []
    for n in reversed(mask.shape[1:]):
        result.append(elementwise.remainder(position, n))
        position = elementwise.floor_divide(position, n)
    return (position, *reversed(result))


# -- the functions -------------------------------------------------------------------------------------------------
@implements(np.nonzero)
def nonzero(a: ArrayLike) -> tuple[Array, ...]:
    """`np.nonzero`."""
    (x,) = arrays(a)
    if not x.shape:
        raise ValueError(located("Calling nonzero on 0d arrays is not allowed. Use np.atleast_1d(scalar).nonzero()"))
    peer = peer_of(x)
    return tuple([constant(i, peer) for i in indices(to_dtype(x, bool))])


@implements(np.flatnonzero)
def flatnonzero(a: ArrayLike) -> Array:
    """`np.flatnonzero`."""
    (x,) = arrays(a)
    return nonzero(raveled(x))[0]


@implements(np.argwhere)
def argwhere(a: ArrayLike) -> Array:
    """`np.argwhere`."""
    (x,) = arrays(a)
    if not x.shape:
        return nonzero(reshape(x, shape=(1,)))[0].reshape(-1, 1)[:, :0]
    return stack(*nonzero(x), axis=1)


# -- the position of a mask in an index ----------------------------------------------------------------------------
class MaskEntry(NamedTuple):
    """Position of a mask in an index: the index without it, the axis at which it begins, and the mask."""

    rest: tuple[Any, ...]
    axis: int
    mask: Any

    @property
    def flat_mask(self) -> Any:
        """Return the mask, with one axis."""
        return raveled(self.mask)


def _is_mask(entry: object) -> bool:
    return isinstance(entry, Carrier) and entry.dtype.kind == "b" and bool(entry.shape)


def mask_in(x: Array, index: object) -> MaskEntry | None:
    """Return the one unknown mask in an index of `x`, next to slices, new axes, and adjacent integers."""
    if not isinstance(index, tuple):
        if not _is_mask(index):
            return None
        index = (index,)
    masks = [k for k, e in enumerate(index) if _is_mask(e)]
    if len(masks) != 1 or 0 in x.shape:
        return None
    at = masks[0]
    mask, before, after = index[at], index[:at], index[at + 1 :]
    rank = len(mask.shape)
    deep = [sum([_depth(e) for e in part]) for part in (before, after)]
    if mask.level is not DispatchLevel.VALUE or not _is_basic(before, after) or sum(deep) + rank > len(x.shape):
        return None
    free = len(x.shape) - sum(deep) - rank
    axis = sum([free if e is Ellipsis else e is None or isinstance(e, slice) for e in before])
    first = deep[0] + (free if any(e is Ellipsis for e in before) else 0)
    if mask.shape != x.shape[first : first + rank] or known(mask) is not None:
        return None  # other code raises the error for a mask that does not fit
    return MaskEntry((*before, *[slice(None)] * rank, *after), int(axis), mask)


def _depth(entry: object) -> int:
    return 0 if entry is None or entry is Ellipsis else 1


def _is_basic(before: tuple[object, ...], after: tuple[object, ...]) -> bool:
    """Whether the other entries of the index are slices, and integers next to the mask."""
    for part in (before[::-1], after):
        others = False
        for entry in part:
            number = isinstance(entry, int | np.integer) and not isinstance(entry, bool | Carrier)
            if not (entry is None or entry is Ellipsis or isinstance(entry, slice) or (number and not others)):
                return False
            others = others or not number
    return sum([entry is Ellipsis for entry in (*before, *after)]) < 2


def over(mask: Array, shape: Shape, axis: int) -> Array:
    """Broadcast a mask, which begins at an axis of an array of this shape, to all elements of the array."""
    column = (*(1,) * axis, *mask.shape, *(1,) * (len(shape) - axis - len(mask.shape)))
    return broadcast_to(mask if column == mask.shape else reshape(mask, shape=column), shape=shape)


# -- replacing -----------------------------------------------------------------------------------------------------
def update_where(x: Array, axis: int, mask: Array, value: Array | Number) -> Array:
    """Replace elements of `x` by `value`, a literal or an array of its dtype, where a mask is true.

    The mask covers the axes of `x` from `axis` on.
    """
    inside = over(array(mask, peer_of(x, mask)), x.shape, axis)
    if not hasattr(value, "shape"):
        return elementwise.where(inside, value, x)
    after = len(x.shape) - axis - len(mask.shape)
    shape = value.shape
    extra = len(shape) - (axis + 1 + after)
    if extra > 0 and set(shape[:extra]) == {1}:
        value, shape = reshape(value, shape=shape[extra:]), shape[extra:]
    k = len(shape) - after - 1  # the axis of `value` that the mask selects along
    if k >= 0:
        ones = shape[k] == 1
        value = value if ones else _spread(x, mask, value, k)
        middle = (1,) * len(mask.shape) if ones else mask.shape
        value = reshape(value, shape=(*shape[:k], *middle, *shape[k + 1 :]))
    try:
        fits = np.broadcast_shapes(value.shape, x.shape) == x.shape
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(located(f"could not broadcast an array of shape {shape} into what a mask chooses"))
    return elementwise.where(inside, broadcast_to(value, shape=x.shape), x)


def _spread(x: Array | Number, mask: Array, value: Any, k: int) -> Array:
    """Distribute the elements of `value` along an axis to the true positions of the mask."""
    n = math.prod(mask.shape)
    flat = reshape(array(mask, peer_of(x, mask, value)), shape=(n,))
    count = value.shape[k]
    if not bool(elementwise.equal(count_true(flat), count)):
        raise ValueError(
            located(
                f"NumPy boolean array indexing assignment cannot assign {count} input values to the {amount(flat)} "
                "output values where the mask is true"
            )
        )
    if not count:
        return full(shape=(*value.shape[:k], n, *value.shape[k + 1 :]), value=0, dtype=value.dtype.name)
    number = cumsum(cast(flat, dtype="int64"), axis=0)
    number = elementwise.minimum(elementwise.maximum(elementwise.subtract(number, 1), 0), count - 1)
    result = gather(value, number, axes=(k,))
    order = (k, *[a for a in range(len(value.shape)) if a != k])
    return transpose(result, perm=inverse_permutation(order)) if k else result
