"""NumPy indexing: `x[index]`, and the functional form of `x[index] = value`.

An index is parsed once into a `IndexPlan`: slices along all axes, axes reversed, axes dropped and inserted, integer
arrays along some axes, and the order of the result's axes. `IndexPlan.read` applies it. `IndexPlan.spread` is its
transpose (zeros elsewhere, equal indices add up), which implements `x[i] = v` and `np.add.at`. Integers together with
integer arrays count as arrays; the axes of several arrays come first unless they are adjacent, as in NumPy. Traced
integers without arrays are dynamic starts: they select a window (`tracegrad.ops.indexing.dynamic_slice`).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import numpy as np

from tracegrad.avals import is_literal
from tracegrad.errors import DTypeError, ShapeError, TraceError, located
from tracegrad.numpy_api.boolean_mask import indices, mask_in, over, update_where
from tracegrad.numpy_api.duplicate_indices import is_known, replaced_indices, replaced_nothing, was_written
from tracegrad.numpy_api.operands import (
    array,
    assigned,
    broadcast_arrays,
    constant,
    normalized_index,
    operand,
    peer_of,
    size_of,
    to_dtype,
    viewed,
    window,
)
from tracegrad.numpy_api.protocols import as_index
from tracegrad.numpy_api.registry import refuse
from tracegrad.ops.core.op import Carrier, DispatchLevel
from tracegrad.ops.elementwise import table as elementwise
from tracegrad.ops.indexing.dynamic_slice import dynamic_update_slice
from tracegrad.ops.indexing.gather_scatter import gather, scatter_add
from tracegrad.ops.shape import linear
from tracegrad.ops.shape.linear import full, reshape, transpose
from tracegrad.typing import Array, ArrayLike, Number
from tracegrad.utils.lazy_dataclass import record

if TYPE_CHECKING:
    from collections.abc import Sequence


@record(frozen=True, slots=True)
class IndexPlan:
    """Steps by which an index applies to an array of `shape`; `at` has the starts of the slices if one is dynamic."""

    shape: tuple[int, ...]
    start: tuple[int, ...]
    stop: tuple[int, ...]
    step: tuple[int, ...]
    flips: tuple[int, ...]
    inner: tuple[int, ...]
    indices: tuple[Any, ...]
    axes: tuple[int, ...]
    perm: tuple[int, ...]
    at: tuple[Any, ...] = ()

    @property
    def sliced(self) -> tuple[int, ...]:
        """Return the shape after slicing."""
        return tuple(-((a - b) // s) for a, b, s in zip(self.start, self.stop, self.step))

    @property
    def result(self) -> tuple[int, ...]:
        """Return the shape of the result."""
        if not self.indices:
            return self.inner
        rest = tuple(n for k, n in enumerate(self.inner) if k not in self.axes)
        results = (*self.indices[0].shape, *rest)
        return tuple(results[p] for p in self.perm)

    def read(self, x: Array) -> Array:
        """`x[index]`."""
        sliced = self.sliced
        if self.at:
            x = window(x, self.at, sliced, self.step)
        elif sliced != self.shape:
            x = linear.slice(x, start=self.start, stop=self.stop, step=self.step)
        if self.flips:
            x = linear.flip(x, axes=self.flips)
        if sliced != self.inner:
            x = reshape(x, shape=self.inner)
        if self.indices:
            x = gather(x, *self.indices, axes=self.axes)
            if self.perm != tuple(range(len(self.perm))):
                x = transpose(x, perm=self.perm)
        return x

    def spread(self, v: Array) -> Array:
        """Add `v`, of the shape of the result, to zeros of `shape` at the index."""
        if self.indices:
            if self.perm != tuple(range(len(self.perm))):
                v = transpose(v, perm=linear.inverse_permutation(self.perm))
            v = scatter_add(v, *self.indices, shape=self.inner, axes=self.axes)
        return self.spread_slices(v)

    def unflipped(self, v: Any) -> Array:
        """Apply the transpose of the steps after the slices: `v` has the shape `inner`."""
        if self.sliced != self.inner:
            v = reshape(v, shape=self.sliced)
        return linear.flip(v, axes=self.flips) if self.flips else v

    def spread_slices(self, v: Array | Number) -> Array:
        """Apply the transpose of the steps before the integer arrays: `v` has the shape `inner`."""
        sliced, v = self.sliced, self.unflipped(v)
        zero: Any = {"f": 0.0, "b": False}.get(v.dtype.kind, 0)
        if self.at:
            empty = full(shape=self.shape, value=zero, dtype=v.dtype.name)
            return dynamic_update_slice(empty, v, *self.at, step=self.step)
        if sliced == self.shape:
            return v
        per_axis = zip(self.shape, self.start, self.step, sliced)
        high = tuple(n - (a + (m - 1) * s + 1 if m else a) for n, a, s, m in per_axis)
        return linear.pad(v, low=self.start, high=high, interior=tuple(s - 1 for s in self.step), value=zero)


# -- reading an index ----------------------------------------------------------------------------------------------
def _entries(x: Array | _Shaped, index: object) -> list[Any]:
    """Return the entries of `index`, with explicit slices for the ellipsis, and integers for boolean arrays."""
    entries = [_entry(e) for e in (index if isinstance(index, tuple) else (index,))]
    if sum(e is Ellipsis for e in entries) > 1:
        raise IndexError(located("an index can only have a single ellipsis ('...')"))
    rank, used = len(x.shape), sum(map(_depth, entries))
    if used > rank:
        raise IndexError(located(f"too many indices for array: array is {rank}-dimensional, but {used} were indexed"))
    if not any(e is Ellipsis for e in entries):
        entries.append(Ellipsis)
    at = next(k for k, e in enumerate(entries) if e is Ellipsis)
    # The mark separates the entries before and after an ellipsis, so that they do not count as adjacent.
    entries = [*entries[:at], _SEPARATOR, *[slice(None)] * (rank - used), *entries[at + 1 :]]
    plain: list[Any] = []
    axis = 0
    for entry in entries:
        plain.extend(_mask_indices(x, entry, axis) if _is_mask(entry) else [entry])
        axis += _depth(entry)
    return plain


def _is_mask(entry: object) -> TypeGuard[Array]:
    return _is_array(entry) and entry.dtype.kind == "b"


def _depth(entry: object) -> int:
    """Return the number of axes that an entry indexes."""
    if entry is None or entry is Ellipsis or entry is _SEPARATOR or isinstance(entry, _Boolean):
        return 0
    return len(entry.shape) if _is_mask(entry) else 1


_SEPARATOR = object()


def _entry(entry: Any) -> Any:
    if entry is None or entry is Ellipsis or isinstance(entry, slice):
        return entry
    if isinstance(entry, bool | np.bool_):
        return _Boolean(bool(entry))
    if isinstance(entry, int | np.integer) and not isinstance(entry, Carrier):
        return int(entry)
    if isinstance(entry, list | tuple | range):
        entry = _from_list(entry)
    if isinstance(entry, Carrier) and entry.level is DispatchLevel.SPAN:
        entry = entry.exact()  # type: ignore[attr-defined]
    if type(entry) is not np.ndarray and not isinstance(entry, Carrier):
        entry = as_index(entry)
        if type(entry) is int:
            return entry
    if entry.dtype.kind not in "iub":
        raise IndexError(located("arrays used as indices must be of integer (or boolean) type"))
    if entry.dtype.kind == "b" and not entry.shape:
        return _Boolean(bool(entry))
    return entry


@record(slots=True)
class _Boolean:
    """True or False as an index: a new axis of size 1 or 0."""

    value: bool


def _is_array(x: object) -> TypeGuard[Array]:
    return isinstance(x, Carrier | np.ndarray)


def _from_list(entry: Sequence[Array | Number]) -> Array | Number:
    if peer_of(entry) is not None:
        return operand(list(entry), peer_of(entry))
    plain = np.asarray(entry)
    return plain.astype(np.int64) if not plain.size and plain.dtype.kind == "f" else plain


def _mask_indices(x: Array | _Shaped, mask: Array, axis: int) -> tuple[Array, ...]:
    _check_mask(x, mask, axis)
    return indices(mask)


def _check_mask(x: Array | _Shaped, mask: Array, axis: int) -> None:
    result = x.shape[axis : axis + len(mask.shape)]
    if mask.shape != result:
        why = f"boolean index did not match indexed array along axis {axis}: shapes {mask.shape} and {result}"
        raise IndexError(located(why))


def plan(x: Array | _Shaped, index: object) -> IndexPlan:
    """Parse `index` for the carrier `x` into a plan."""
    key = _key(index)
    known = key is not None and _BOUNDS.issuperset(map(type, x.shape))  # a traced size holds for one call only
    return _known_plan(x.shape, key) if known else _plan(x, index)


_BOUNDS = frozenset({int, type(None)})


def _key(index: object) -> tuple[object, ...] | None:
    """Return a cache key of an index of Python integers, slices of them, `...` and None; None for others."""
    results: list[Any] = []
    for entry in index if type(index) is tuple else (index,):
        kind = type(entry)
        if kind is slice:
            bounds = (entry.start, entry.stop, entry.step)
            if not _BOUNDS.issuperset(map(type, bounds)):
                return None
            results.append(bounds)
        elif kind is int or entry is None or entry is Ellipsis:
            results.append(entry)
        else:
            return None
    return tuple(results)


class _Shaped(NamedTuple):
    shape: tuple[int, ...]


@lru_cache(maxsize=4096)
def _known_plan(shape: tuple[int, ...], key: tuple[object, ...]) -> IndexPlan:
    return _plan(_Shaped(shape), tuple([slice(*x) if type(x) is tuple else x for x in key]))


def _plan(x: Array | _Shaped, index: object) -> IndexPlan:
    entries = _entries(x, index)
    advanced = any((_is_array(e) and not _is_traced_int(e)) or isinstance(e, _Boolean) for e in entries)
    start: list[int] = []
    stop: list[int] = []
    step: list[int] = []
    flips: list[int] = []
    inner: list[int] = []
    arrays: list[tuple[int, Any]] = []
    positions: list[int] = []
    computed: dict[int, Any] = {}
    axis = 0
    for position, entry in enumerate(entries):
        if entry is _SEPARATOR:
            continue
        if entry is None or isinstance(entry, _Boolean):
            if entry is not None:
                arrays.append((len(inner), np.zeros(int(entry.value), np.int64)))
                positions.append(position)
            inner.append(1)
            continue
        n = x.shape[axis]
        a, b, s = 0, n, 1
        if isinstance(entry, slice):
            a, b, s, flip = _moving_window(entry, n, computed, axis) or _normalized(entry, n)
            if flip:
                flips.append(axis)
            inner.append(-((a - b) // s))
        elif advanced:
            arrays.append((len(inner), _in_range(entry, n, axis)))
            positions.append(position)
            inner.append(n)
        else:
            if _is_traced_int(entry) and n:
                computed[axis], a = entry, 0
            else:
                a = _in_range(entry.__index__(), n, axis)
            b = a + 1
        start.append(a)
        stop.append(b)
        step.append(s)
        axis += 1
    if 0 in inner:
        _check_known(arrays, inner)
    indices, axes, perm = _placed(x, arrays, positions, len(inner))
    at = _dynamic_starts(x, start, computed)
    return IndexPlan(
        x.shape, tuple(start), tuple(stop), tuple(step), tuple(flips), tuple(inner), indices, axes, perm, at
    )


def _is_traced_int(entry: object) -> bool:
    """Whether an entry is a traced integer."""
    return isinstance(entry, Carrier) and not entry.shape and entry.dtype.kind in "iu"


def _dynamic_starts(x: Array | _Shaped, start: list[int], computed: dict[int, Array]) -> tuple[Array | Number, ...]:
    """Return the starts of the slices if there are `computed` positions; negative ones count from the end."""
    if not computed:
        return ()
    peer = peer_of(x, *computed.values())
    return tuple(
        [normalized_index(computed[k], peer, x.shape[k], k) if k in computed else a for k, a in enumerate(start)]
    )


def moves(x: Any) -> bool:
    """Whether an integer may have another value at each call of the function that is being traced."""
    if not isinstance(x, Carrier) or x.level not in (DispatchLevel.VALUE, DispatchLevel.TRACED_TENSOR):
        return False
    array: Any = getattr(x, "array", x)
    is_integer = x.dtype.kind in "iu" and x.dtype != np.uint64 and math.prod(x.shape) == 1
    return is_integer and not array._in_region()


def bounds_move(entry: slice) -> bool:
    """Whether both bounds of a slice may have other values at each call."""
    return moves(entry.start) and moves(entry.stop)


def _moving_window(entry: slice, n: int, computed: dict[int, Any], axis: int) -> tuple[int, int, int, bool] | None:
    """Return what `_normalized` does, for two traced bounds inside the axis, with the start in `computed`; else None.

    The length and the fact that the bounds are inside are guards. The start has none, so it may change in each call.
    """
    if not bounds_move(entry) or entry.step not in (None, 1):
        return None
    first, end = [x.item() if x.level is DispatchLevel.TRACED_TENSOR else x for x in (entry.start, entry.stop)]
    length = (end - first).__index__()
    if length <= 0 or not (first >= 0 and end <= n):
        return None
    computed[axis] = elementwise.minimum(elementwise.maximum(first, 0), n - length)
    return 0, length, 1, False


def _normalized(entry: slice, n: int) -> tuple[int, int, int, bool]:
    """Return start, stop and positive step of the elements that a slice selects, and whether it reverses them."""
    try:
        a, b, s = entry.indices(n)
    except TypeError as error:
        if isinstance(error, TraceError):
            raise
        raise TypeError(located(str(error))) from None
    count = len(range(a, b, s))
    if not count:
        return 0, 0, 1, False
    last = a + (count - 1) * s
    low, high = min(a, last), max(a, last)
    return low, high + 1, abs(s), s < 0


def _in_range(entry: Array | int, n: int, axis: int) -> Any:
    if isinstance(entry, Carrier) or not isinstance(entry, int):
        return entry
    if not -n <= entry < n:
        raise IndexError(located(f"index {entry} is out of bounds for axis {axis} with size {n}"))
    return entry % n


def _check_known(arrays: list[tuple[int, Array | int]], inner: list[int]) -> None:
    """Check the indices into an array without elements, which no op checks."""
    for k, i in arrays:
        if (isinstance(i, Carrier) and not is_known(i)) or isinstance(i, int):
            continue
        plain: Any = i.concrete("an index") if isinstance(i, Carrier) else i  # type: ignore[attr-defined]
        if plain.size and not (-inner[k] <= plain.min() and plain.max() < inner[k]):
            raise IndexError(located(f"an index is out of bounds for an axis with size {inner[k]}"))


def _placed(
    x: Array | _Shaped, arrays: list[tuple[int, Array]], positions: list[int], rank: int
) -> tuple[tuple[Array, ...], tuple[int, ...], tuple[int, ...]]:
    """Return index arrays of one shape and dtype, their axes, and the order of axes of the result."""
    if not arrays:
        return (), (), ()
    peer = peer_of(x, *(i for _, i in arrays))
    indices = [to_dtype(_constant_or_array(i, peer), "int64") for _, i in arrays]
    try:
        shape = np.broadcast_shapes(*(i.shape for i in indices))
    except ValueError:
        shapes = " ".join(str(i.shape) for i in indices)
        why = f"shape mismatch: indexing arrays could not be broadcast together: {shapes}"
        raise IndexError(located(why)) from None
    axes = tuple(k for k, _ in arrays)
    neighbours = positions == list(range(positions[0], positions[0] + len(positions)))
    depth, before = len(shape), axes[0] if neighbours else 0
    rest = rank - len(axes)
    perm = (*range(depth, depth + before), *range(depth), *range(depth + before, depth + rest))
    return tuple(broadcast_arrays("index", indices, shape)), axes, perm


def _constant_or_array(i: Array, peer: Carrier | None) -> Array:
    if isinstance(i, int) and not isinstance(i, Carrier):
        return full(shape=(), value=i, dtype="int64")
    return array(i, peer)


# -- x[index] ------------------------------------------------------------------------------------------------------
def getitem(x: Any, index: Any) -> Any:
    """`x[index]`."""
    if hasattr(x, "_span") and (span := x._span(index)) is not None:
        return span
    index_plan = plan(x, index)
    result: Any = index_plan.read(x)
    if index_plan.indices:
        return result
    if _is_copy(index):
        return result._alias() if getattr(x, "_tracks_views", False) else result
    if result is x:
        result = x._alias()
    if not index_plan.result and not _has_ellipsis(index):  # a scalar does not change when the array is updated
        return result._alias() if getattr(x, "_tracks_views", False) else result
    result = viewed(x, result, lambda base, new: _replaced(base, index_plan, new))
    return result if index_plan.result else result.zero_d()


def _is_copy(index: object) -> bool:
    """Whether an entry is an array without axes: NumPy selects as with an integer, but copies."""
    return any(
        _is_traced_int(e) and getattr(e, "is_array", False) for e in (index if isinstance(index, tuple) else (index,))
    )


def _has_ellipsis(index: object) -> bool:
    return any(e is Ellipsis for e in (index if isinstance(index, tuple) else (index,)))


# -- x[index] = value ----------------------------------------------------------------------------------------------
def setitem(x: Any, index: object, value: object) -> Any:
    """Compute the value of `x` after `x[index] = value`."""
    if isinstance(value, str | bytes):
        value = assigned(value, x.dtype)
    if hasattr(x, "_with_span") and (result := x._with_span(index, value)) is not None:
        return result
    peer = peer_of(x, value, index if isinstance(index, tuple | list) else (index,))
    mask = _whole_mask(x, index)
    value = operand(value, peer)
    if mask is not None and size_of_operand(value) == 1:
        v = value if not getattr(value, "shape", ()) else reshape(value, shape=())
        return elementwise.where(over(array(mask, peer_of(x, mask)), x.shape, 0), assigned(v, x.dtype), x)
    mask_entry = mask_in(x, index)
    if mask_entry is not None:
        value, index_plan = assigned(value, x.dtype), plan(x, mask_entry.rest)
        new = update_where(index_plan.read(x), mask_entry.axis, mask_entry.mask, value)
        return _replaced(x, index_plan, new)
    return _replaced(x, plan(x, index), value)


def size_of_operand(v: Array | Number) -> int:
    """Return the number of elements of an array, 1 for a literal."""
    return 1 if is_literal(v) else size_of(v)


def _whole_mask(x: Array, index: object) -> Array | None:
    """Return the boolean array `index` if it covers the first axes of `x`, or None."""
    if isinstance(index, tuple) and len(index) == 1:
        index = index[0]
    if _is_array(index) and index.dtype.kind == "b" and index.shape:
        _check_mask(x, index, 0)
        return index
    return None


def _replaced(x: Array, index_plan: IndexPlan, value: Array | Number) -> Array:
    """`x` with `value` at the index of the plan `index_plan`."""
    shape = index_plan.result
    value = assigned(value, x.dtype)
    if not is_literal(value):
        value = _fit(value, shape)
    if math.prod(shape) == 0:
        return replaced_nothing(x, value)
    if not index_plan.indices:
        return _replaced_slices(x, index_plan, value)
    return replaced_indices(x, index_plan, value)


def _fit(value: Any, shape: tuple[int, ...]) -> Array:
    """Broadcast `value` to `shape`; excess leading axes of size one are dropped."""
    extra = len(value.shape) - len(shape)
    if extra > 0 and all(n == 1 for n in value.shape[:extra]):
        value = reshape(value, shape=value.shape[extra:])
    try:
        fits = np.broadcast_shapes(value.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(located(f"could not broadcast input array from shape {value.shape} into shape {shape}"))
    return value if value.shape == shape else linear.broadcast_to(value, shape=shape)


def _replaced_slices(x: Any, index_plan: IndexPlan, value: Array | Number) -> Array:
    literal = not hasattr(value, "shape")
    if index_plan.at:
        v = full(shape=index_plan.sliced, value=value, dtype=x.dtype.name) if literal else index_plan.unflipped(value)
        return dynamic_update_slice(x, v, *index_plan.at, step=index_plan.step)
    if index_plan.sliced == x.shape:
        return constant_like(x, value) if literal else index_plan.spread_slices(value)
    inside = index_plan.spread_slices(full(shape=index_plan.inner, value=True, dtype="bool"))
    write_args = inside, value if literal else index_plan.spread_slices(value)
    return x._alias() if was_written(x, *write_args) else elementwise.where(*write_args, x)


def constant_like(x: Array, value: Array | Number) -> Array:
    """Return an array like `x` with the literal `value` as every element."""
    return constant(full(shape=x.shape, value=value, dtype=x.dtype.name), x)


# -- np.add.at -----------------------------------------------------------------------------------------------------
def add_at(x: Any, index: object, value: ArrayLike, sign: int = 1) -> None:
    """`np.add.at(x, index, value)`: equal indices add up."""
    if not hasattr(x, "_assign"):
        raise refuse("np.add.at on an ndarray that the traced function did not make")
    index_plan = plan(x, index)
    peer = peer_of(x, value)
    v = array(value, peer)
    if not np.can_cast(v.dtype, x.dtype, "same_kind"):
        raise DTypeError(located(f"np.add.at cannot add {v.dtype} to {x.dtype}"))
    v = _fit(assigned(v, x.dtype), index_plan.result)
    if index_plan.at:
        before = index_plan.read(x)
        x._assign(_replaced(x, index_plan, elementwise.add(before, v) if sign > 0 else elementwise.subtract(before, v)))
        return
    change = index_plan.spread(v)
    new = elementwise.add(x, change) if sign > 0 else elementwise.subtract(x, change)
    x._assign(new)
