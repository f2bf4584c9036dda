"""Functions that insert, delete, replace or choose elements; the positions are constants, or are queried."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import is_literal
from tracegrad.errors import DTypeError, ShapeError, located
from tracegrad.numpy_api import reductions
from tracegrad.numpy_api.boolean_mask import nonzero
from tracegrad.numpy_api.compress import compress
from tracegrad.numpy_api.duplicate_indices import is_known
from tracegrad.numpy_api.joining import along, concatenate, picked, stack
from tracegrad.numpy_api.memory_layout import in_memory_order, in_new_memory
from tracegrad.numpy_api.operands import (
    along_axis,
    array,
    arrays,
    broadcast_arrays,
    broadcast_shapes,
    constant,
    has_value,
    peer_of,
    promoted,
    raveled,
    size_of,
    to_dtype,
    together,
)
from tracegrad.numpy_api.registry import implements, refuse
from tracegrad.numpy_api.selection import clip, positions, take_along_axis
from tracegrad.numpy_api.shapes import as_shape, moveaxis
from tracegrad.numpy_api.sorting import argsort
from tracegrad.ops.core.memory_order import spread
from tracegrad.ops.core.op import Carrier, normalize_axis
from tracegrad.ops.elementwise import table as elementwise
from tracegrad.ops.elementwise.table import (
    add,
    equal,
    greater,
    greater_equal,
    less,
    less_equal,
    logical_and,
    logical_not,
    remainder,
    subtract,
)
from tracegrad.ops.indexing.gather_scatter import gather, scatter_add
from tracegrad.ops.reduce import scans
from tracegrad.ops.shape.linear import broadcast_to, full, reshape
from tracegrad.typing import Array, ArrayLike, Casting, NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence


def _known_index(obj: object) -> Any:
    """Return an index that determines shapes, as NumPy takes it.

    The index is known, or is an integer that is queried. The result is None for unknown arrays of indices.
    """
    if isinstance(obj, slice):
        return obj
    if hasattr(obj, "__index__") and not getattr(obj, "shape", ()):
        return obj.__index__()
    if isinstance(obj, list | tuple):
        entries = [_known_index(each) for each in obj]
        return None if any(each is None for each in entries) else entries
    if is_known(obj):
        return obj.concrete("an index") if hasattr(obj, "concrete") else obj
    return None


def _counted(obj: object, n: int, limit: int) -> Array:
    """Convert traced indices into `n` elements to a vector of at most `limit` positions; for a mask, the true ones."""
    (x,) = arrays(obj)
    if x.dtype.kind == "b":
        if x.shape != (n,):
            raise ValueError(located(f"boolean array argument to delete must be one dimensional of length {n}"))
        return nonzero(x)[0]
    if x.dtype.kind not in "iu":
        raise IndexError(located("arrays used as indices must be of integer (or boolean) type"))
    indices = to_dtype(raveled(x), "int64")
    inside = reductions.all_(logical_and(greater_equal(indices, -n), less_equal(indices, limit)))
    if has_value(inside) and not bool(inside):
        raise IndexError(located(f"an index is out of bounds for axis 0 with size {n}"))
    return elementwise.where(less(indices, 0), add(indices, n), indices)


def _scatter_add(values: Array, indices: Array, n: int) -> Array:
    """Add integers to a vector of `n` zeros at positions."""
    return scatter_add(values, indices, shape=(n,), axes=(0,))


_MAX_RUNS = 8  # runs of adjacent elements that are sliced and concatenated; more are gathered


def _in_runs(x: Array, codes: NDArray, axis: int) -> Array:
    """`np.take(x, codes, axis)` for indices that are mostly consecutive."""
    ends = [*(np.flatnonzero(np.diff(codes) != 1) + 1).tolist(), len(codes)]
    if len(ends) > _MAX_RUNS or not len(codes):
        return picked(x, constant(codes.astype(np.int64), peer_of(x)), axis)
    runs = [codes[start:stop] for start, stop in zip([0, *ends], ends)]
    return concatenate([along(x, axis, int(run[0]), int(run[-1]) + 1) for run in runs], axis)


# -- insert and delete -------------------------------------------------------------------------------------------------
@implements(np.insert)
def insert(arr: ArrayLike, obj: ArrayLike | slice, values: ArrayLike, axis: int | None = None) -> Array:
    """`np.insert`. The number of true elements of a traced mask, and a single traced index, are queried."""
    peer = peer_of(arr, values, obj)
    x, k = along_axis("insert", array(arr, peer), axis)
    v = to_dtype(array(values, peer), x.dtype)
    index = _known_index(obj)
    rank, n = len(x.shape), x.shape[k]
    v = reshape(v, shape=(*(1,) * (rank - len(v.shape)), *v.shape))
    if isinstance(index, int):
        v = moveaxis(v, 0, k)
        count = v.shape[k]
        codes = np.insert(np.arange(n), [index] * count, n + np.arange(count))
    elif index is None:
        index = _counted(obj, n, n)
        if index.shape[0] == 1:
            index = broadcast_to(index, shape=(v.shape[k],))
        count = index.shape[0]
    else:
        count = len(np.insert(np.zeros(n), index, 0)) - n
        count = v.shape[k] if count == 1 else count
    if count and v.shape[k] not in (1, count):
        raise ValueError(located(f"np.insert: {v.shape[k]} values do not fit {count} indices"))
    wanted = tuple(count if i == k else m for i, m in enumerate(x.shape))
    joined = concatenate([x, broadcast_to(v, shape=wanted)], k)
    if isinstance(index, Carrier):
        return in_memory_order(picked(joined, _codes(index, n), k), "A", x)
    if not isinstance(index, int):
        codes = np.insert(np.arange(n), index, n + np.arange(count))
    return in_memory_order(_in_runs(joined, codes, k), "A", x)


def _codes(indices: Any, n: int) -> Array:
    """Return the source of each element after inserting elements before traced positions among `n`."""
    count = indices.shape[0]
    order = argsort(indices, kind="stable")
    targets = add(take_along_axis(indices, order, 0), positions(count))
    whole = n + count
    new = _scatter_add(
        broadcast_to(constant(full(shape=(), value=1, dtype="int64"), indices), shape=(count,)), targets, whole
    )
    old = subtract(scans.cumsum(subtract(1, new), axis=0), 1)
    return elementwise.where(greater(new, 0), _scatter_add(add(order, n), targets, whole), old)


@implements(np.delete)
def delete(arr: ArrayLike, obj: ArrayLike | slice, axis: int | None = None) -> Array:
    """`np.delete`. The number of remaining elements is queried if the indices are traced."""
    peer = peer_of(arr, obj)
    x, k = along_axis("delete", array(arr, peer), axis)
    n, index = x.shape[k], _known_index(obj)
    if index is None:
        (mask,) = arrays(obj)
        if mask.dtype.kind != "b":
            removed = _counted(mask, n, n - 1)
            one = constant(full(shape=removed.shape, value=1, dtype="int64"), peer)
            mask = greater(_scatter_add(one, removed, n), 0)
        elif mask.shape != (n,):
            raise ValueError(located(f"boolean array argument obj to delete must be one dimensional and match {n}"))
        return in_memory_order(compress(logical_not(mask), x, k), _order_after_mask(x, k), x)
    saved = np.delete(np.arange(n), index)
    is_multiple = not isinstance(index, slice) and (np.size(index) != 1 or np.asarray(index).dtype.kind == "b")
    return in_memory_order(_in_runs(x, saved, k), _order_after_mask(x, k) if is_multiple else "A", x)


def _order_after_mask(x: Any, axis: int) -> tuple[int, ...]:
    """Return the memory order of axes of an array after a mask along an axis, outermost first."""
    strides = spread(x._layouts(x)[0])
    return (axis, *sorted([k for k in range(len(strides)) if k != axis], key=lambda k: -abs(strides[k])))


@implements(np.resize)
def resize(a: ArrayLike, new_shape: int | Sequence[int]) -> Array:
    """`np.resize`: repeats the elements until the new array is full."""
    x = raveled(arrays(a)[0])
    shape = (new_shape.__index__(),) if hasattr(new_shape, "__index__") else as_shape(new_shape)
    if not size_of(x):
        return in_new_memory(broadcast_to(array(np.zeros((), x.dtype), peer_of(x)), shape=shape), "C")
    times, rest = divmod(math.prod(shape), size_of(x))
    if rest and times < _MAX_RUNS:
        whole = [x] * times
    else:
        whole = [reshape(broadcast_to(x, shape=(times, size_of(x))), shape=(times * size_of(x),))]
    elements = concatenate([*whole, along(x, 0, 0, rest)]) if rest else whole[0]
    return in_new_memory(reshape(elements, shape=shape), "C")


# -- in place ----------------------------------------------------------------------------------------------------------
def _target(name: str, a: ArrayLike) -> None:
    if not hasattr(a, "_assign"):
        raise refuse(f"np.{name} into an ndarray that the traced function did not make", "make the array inside")


def _over_and_over(values: ArrayLike, n: int, peer: Carrier | None) -> Array:
    """Return `n` elements, by repeating `values` as often as necessary; one element is not repeated."""
    v = raveled(array(values, peer))
    return v if size_of(v) in (n, 1) else resize(v, (n,))


@implements(np.put)
def put(a: Any, ind: Any, v: ArrayLike, mode: str = "raise") -> None:
    """`np.put`."""
    _target("put", a)
    peer = peer_of(a, ind, v)
    index = to_dtype(raveled(array(ind, peer)), "int64")
    n = size_of(a)
    if mode == "wrap":
        index = remainder(index, n)
    elif mode == "clip":
        index = clip(index, 0, n - 1)
    if size_of(index):
        a.flat[index] = to_dtype(_over_and_over(v, size_of(index), peer), a.dtype)


@implements(np.place)
def place(arr: Array, mask: ArrayLike, vals: Array) -> None:
    """`np.place`: stores the next value at each position where the mask is true."""
    _target("place", arr)
    _require_safe(vals, arr)
    peer = peer_of(arr, mask, vals)
    inside, values = raveled(to_dtype(array(mask, peer), bool)), raveled(array(vals, peer))
    if not size_of(values):
        raise ValueError(located("Cannot insert from an empty array!"))
    number = subtract(scans.cumsum(to_dtype(inside, "int64"), axis=0), 1)
    number = remainder(elementwise.where(inside, number, 0), size_of(values))
    _update_where(arr, inside, gather(values, number, axes=(0,)))


@implements(np.putmask)
def putmask(a: Array, /, mask: ArrayLike, values: ArrayLike) -> None:
    """`np.putmask`: stores, where the mask is true, the value at the same position."""
    _target("putmask", a)
    _require_safe(values, a)
    peer = peer_of(a, mask, values)
    v = _over_and_over(values, size_of(a), peer)
    _update_where(a, raveled(to_dtype(array(mask, peer), bool)), broadcast_to(v, shape=(size_of(a),)))


def _require_safe(values: Any, a: Any) -> None:
    """Raise NumPy's error if casting an array to the dtype of `a` is unsafe; numbers and lists are exempt."""
    scalar = not hasattr(values, "dtype") or (not values.shape and getattr(values, "_immutable_scalars", False))
    if not (scalar or isinstance(values, np.generic) or np.can_cast(values.dtype, a.dtype, "safe")):
        text = f"Cannot cast array data from {values.dtype!r} to {a.dtype!r} according to the rule 'safe'"
        raise DTypeError(located(text))


def _update_where(a: Any, inside: Any, values: Any) -> None:
    inside, values = (reshape(v, shape=a.shape) for v in (inside, to_dtype(values, a.dtype)))
    a[...] = elementwise.where(inside, values, a)


@implements(np.copyto)
def copyto(dst: Any, src: Any, casting: Casting = "same_kind", where: Any = True) -> None:
    """`np.copyto`: assign `src` to the elements of `dst` where a mask is true."""
    _target("copyto", dst)
    kind = src.dtype if hasattr(src, "dtype") else type(src)
    if not np.can_cast(kind, dst.dtype, casting):
        raise DTypeError(located(f"cannot cast array data from {np.dtype(kind)} to {dst.dtype} by {casting!r}"))
    dst[...] = src if where is True else np.where(where, src, dst)


@implements(np.fill_diagonal)
def fill_diagonal(a: Any, val: ArrayLike, wrap: bool = False) -> None:
    """`np.fill_diagonal`."""
    _target("fill_diagonal", a)
    shape = a.shape
    if len(shape) < 2 or (len(shape) > 2 and len(set(shape)) != 1):
        raise ValueError(located("array must be at least 2-d, and of more axes all must be of equal length"))
    if len(shape) == 2 and not wrap and size_of(array(val, peer_of(a, val))) == 1:
        value = reshape(to_dtype(array(val, peer_of(a, val)), a.dtype), shape=())
        rows, columns = (
            reshape(positions(shape[0]), shape=(shape[0], 1)),
            reshape(positions(shape[1]), shape=(1, shape[1])),
        )
        a[...] = elementwise.where(equal(rows, columns), value, a)
        return
    step = shape[1] + 1 if len(shape) == 2 else 1 + int(np.cumprod(shape[:-1]).sum())
    stop = None if wrap or len(shape) > 2 else shape[1] * shape[1]
    spots = np.arange(size_of(a))[:stop:step]
    put(a, spots, val)


@implements(np.put_along_axis)
def put_along_axis(arr: Any, indices: ArrayLike, values: Any, axis: int) -> None:
    """`np.put_along_axis`."""
    _target("put_along_axis", arr)
    (index,) = (array(indices, peer_of(arr, indices)),)
    if axis is None:
        arr.flat[index] = values
        return
    k = normalize_axis("put_along_axis", axis, len(arr.shape))
    rank = len(arr.shape)
    if len(index.shape) != rank:
        raise ShapeError(located("`indices` and `arr` must have the same number of dimensions"))
    axis_positions = [
        reshape(positions(n), shape=tuple(n if i == d else 1 for i in range(rank))) for d, n in enumerate(arr.shape)
    ]
    arr[tuple(index if d == k else axis_positions[d] for d in range(rank))] = values


# -- choose ------------------------------------------------------------------------------------------------------------
@implements(np.choose)
def choose(a: ArrayLike, choices: Sequence[ArrayLike], out: Array | None = None, mode: str = "raise") -> Array:
    """`np.choose`; whether a number is out of range is a query, which leaves a guard."""
    if out is not None:
        raise refuse("the argument out= of np.choose")
    args = [x if is_literal(x) else arrays(x)[0] for x in choices]
    peer = peer_of(a, *args)
    index = to_dtype(array(a, peer), "int64")
    dtype, args = together(*args)
    options = [to_dtype(array(x, peer), dtype) for x in args]
    n = len(args)
    if mode == "wrap":
        index = remainder(index, n)
    elif mode == "clip":
        index = clip(index, 0, n - 1)
    elif not bool(reductions.all_(logical_and(index >= 0, index < n))):
        raise ValueError(located("invalid entry in choice array"))
    shape = broadcast_shapes("choose", index.shape, *(x.shape for x in options))
    index, *options = broadcast_arrays("choose", [index, *options], shape)
    if n > _MAX_CHOICES:
        result = take_along_axis(stack(options, 0), reshape(index, shape=(1, *shape)), 0)
        return reshape(result, shape=shape)
    result = options[-1]
    for k in range(n - 2, -1, -1):
        result = elementwise.where(equal(index, k), options[k], result)
    return in_memory_order(result, "C")


_MAX_CHOICES = 16


# -- equality ----------------------------------------------------------------------------------------------------------
@implements(np.array_equiv)
def array_equiv(a1: ArrayLike, a2: ArrayLike) -> bool | Array:
    """`np.array_equiv`: whether arrays are equal when one is broadcast to the other."""
    x, y = promoted(arrays(a1, a2))
    try:
        np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        return False
    return reductions._boolean(reductions.all_(equal(x, y)))
