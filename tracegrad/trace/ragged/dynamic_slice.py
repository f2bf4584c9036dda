"""Read and replace slices with dynamic bounds (`A[i, :j]`, `A[k + 1 :, k + 1 :]`).

A `SliceSelection` describes the selected elements of each axis: a window of the maximal size over all iterations, and
its valid part (`tracegrad.ops.ragged.masked_semantics`). If the length is the same in every iteration, all elements are
valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracegrad.avals import is_literal
from tracegrad.errors import located
from tracegrad.ops.core.dispatch import Carrier
from tracegrad.ops.elementwise import table as ops
from tracegrad.ops.indexing.dynamic_slice import counted, dynamic_slice, dynamic_update_slice
from tracegrad.ops.indexing.gather_scatter import gather
from tracegrad.ops.ragged.masked_semantics import NoMaskedSemantics, PaddedValue, ValidExtent, clamped, element_mask
from tracegrad.ops.shape.fill import arange
from tracegrad.ops.shape.linear import broadcast_to, cast, flip, full, inverse_permutation, reshape, slice, transpose
from tracegrad.trace.ragged.symbolic_size import (
    SymbolicSize,
    between,
    difference,
    form_of,
    is_of_a_loop,
    limits,
    normalized_bound,
    required,
    within,
)
from tracegrad.trace.values.python_arithmetic import bounds
from tracegrad.utils.lazy_dataclass import record

if TYPE_CHECKING:
    from tracegrad.typing import Array


_Slice = type(np.s_[:])


class AxisSelection(NamedTuple):
    """Selection along an axis: a window of `size` elements, `step` apart, from `start` on, with a valid part. If
    `shift` is not None, the valid part begins at this position. `keeps_extent`: the valid part is the part of the array
    itself."""

    start: Any
    size: int
    step: int = 1
    extent: ValidExtent | None = None
    shift: Any = None
    flips: bool = False
    keeps_extent: bool = False

    @property
    def key(self) -> Any:
        shift = None if self.shift is None else form_of(self.shift)
        return [form_of(self.start), self.size, self.step, self.extent, self.flips, shift]

    @property
    def result(self) -> ValidExtent | None:
        return self.extent.reversed if self.extent is not None and self.flips else self.extent


@record(frozen=True, slots=True, eq=False)
class SliceSelection:
    """Selection along each axis of an array, and the axes of the result: their numbers, None for new axes."""

    along: tuple[AxisSelection, ...]
    axes: tuple[int | None, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple([1 if a is None else self.along[a].size for a in self.axes])

    @property
    def extents(self) -> tuple[ValidExtent | None, ...]:
        return tuple([None if a is None else self.along[a].result for a in self.axes])

    def equals(self, other: SliceSelection) -> bool:
        """Whether the selections are equal."""
        return self.axes == other.axes and [x.key for x in self.along] == [x.key for x in other.along]


# -- reading an index ----------------------------------------------------------------------------------------------
def is_cut(index: object) -> bool:
    """Whether a bound of a slice is a loop counter or depends on one."""
    for entry in index if type(index) is tuple else (index,):
        if type(entry) is _Slice and any(is_of_a_loop(x) for x in (entry.start, entry.stop)):
            return True
    return False


def cut_of(array: PaddedValue, index: object) -> SliceSelection:
    """The selection of an index in an array. Raises `NoMaskedSemantics` for other indices."""
    shape, extents = array.value.shape, array.extents
    entries = list(index) if type(index) is tuple else [index]
    if sum(e is Ellipsis for e in entries) > 1:
        raise NoMaskedSemantics("an index with several ellipses")
    used = sum(e is not None and e is not Ellipsis for e in entries)
    if used > len(shape):
        raise IndexError(
            located(f"too many indices for array: array is {len(shape)}-dimensional, but {used} were indexed")
        )
    at = next((k for k, e in enumerate(entries) if e is Ellipsis), len(entries))
    entries[at : at + 1] = [_Slice(None)] * (len(shape) - used)
    along: list[AxisSelection] = []
    axes: list[int | None] = []
    for entry in entries:
        axis = len(along)
        if entry is None:
            axes.append(None)
        elif type(entry) is _Slice:
            along.append(_sliced_axis(entry, shape[axis], extents[axis]))
            axes.append(axis)
        else:
            along.append(_picked(entry, shape[axis], extents[axis], axis))
    return SliceSelection(tuple(along), tuple(axes))


def _picked(entry: Any, n: int, extent: ValidExtent | None, axis: int) -> AxisSelection:
    """One element of an axis."""
    traced = isinstance(entry, Carrier)
    if traced:
        known = entry.aval.dtype
        if entry.aval.shape or known.kind not in "iu" or known == np.uint64 or getattr(entry, "is_array", False):
            raise NoMaskedSemantics("an array as an index")
    elif isinstance(entry, bool) or not isinstance(entry, int | np.integer):
        raise NoMaskedSemantics("an index that is no number")
    if extent is not None and extent.mask is not None:
        raise NoMaskedSemantics("an element of what a mask chooses")
    if extent is not None:
        return _picked_of_extent(entry, n, extent)
    low, high = limits(entry)
    if traced:
        entry = entry if known == np.int64 else cast(entry, dtype="int64")
        return AxisSelection(entry if low >= 0 and high < n else counted(entry, length=n, axis=axis), 1)
    if not -n <= entry < n:
        raise IndexError(located(f"index {entry} is out of bounds for axis {axis} with size {n}"))
    return AxisSelection(int(entry) % n, 1)


def _picked_of_extent(entry: Any, n: int, extent: ValidExtent) -> AxisSelection:
    low, high = limits(entry)
    inside = ops.add(extent.count, entry) if high < 0 else entry
    if low < 0 <= high:
        inside = ops.where(ops.less(entry, 0), ops.add(extent.count, entry), entry)
    start = ops.add(n - extent.count, inside) if extent.last else inside
    if (low < 0 or high >= extent.least) and (high >= 0 or low < -extent.least):
        is_inside = ops.logical_and(ops.greater_equal(inside, 0), ops.less(inside, extent.count))
        start = counted(ops.where(is_inside, start, n), length=n, axis=0)
    return AxisSelection(start, 1)


def _sliced_axis(entry: Any, n: int, extent: ValidExtent | None) -> AxisSelection:
    """The selection of a slice along an axis."""
    step = 1 if entry.step is None else entry.step
    if isinstance(step, Carrier):
        raise NoMaskedSemantics("a step that is a traced number")
    if extent is not None:
        if entry.start is None and entry.stop is None and step in (1, -1):
            return AxisSelection(0, n, extent=extent, flips=step < 0, keeps_extent=True)
        if extent.mask is not None:
            raise NoMaskedSemantics("a slice of what a mask chooses")
        return _sliced_extent(entry, n, extent, step)
    start, stop = _concrete_bound(entry.start), _concrete_bound(entry.stop)
    if not isinstance(start, Carrier) and not isinstance(stop, Carrier):
        result = range(*_Slice(start, stop, step).indices(n))
        if not result:
            return AxisSelection(0, 0)
        low, high = min(result[0], result[-1]), max(result[0], result[-1])
        return AxisSelection(low, (high - low) // abs(step) + 1, abs(step), flips=step < 0)
    if step == -1:
        return _between(_end_position(stop, n, 0), _end_position(start, n, n), n)._replace(flips=True)
    if step != 1:
        raise NoMaskedSemantics("a step beside a bound that is a number of a loop")
    return _between(normalized_bound(start, n), n if stop is None else normalized_bound(stop, n), n)


def _sliced_extent(entry: Any, n: int, extent: ValidExtent, step: int) -> AxisSelection:
    """The selection of a slice along an axis with a valid part."""
    start, stop = (
        within(entry.start, extent.count),
        extent.count if entry.stop is None else within(entry.stop, extent.count),
    )
    if step != 1 or start is None or stop is None:
        raise NoMaskedSemantics("a slice of an axis whose size is a number of a loop")
    if not extent.last:
        return _between(start, stop, n)
    first = between(ops.subtract(n, extent.count), 0, n - extent.least)
    to_end = difference(extent.count, stop) == 0
    return _between(_after(first, start, n), n if to_end else _after(first, stop, n), n)


def _after(first: Any, past: Any, n: int) -> Any:
    """The position `past` elements after the first one of a part, in an axis of `n` elements."""
    if type(past) is int and not past:
        return first
    (a, b), (c, d) = bounds(first), limits(past)
    return between(ops.add(first, past), max(a + c, 0), min(b + d, n))


def _concrete_bound(bound: object) -> Any:
    """A loop-invariant bound, as a number."""
    if isinstance(bound, Carrier):
        aval = bound.aval
        if aval.shape or aval.dtype.kind not in "iu" or aval.dtype == np.uint64:
            raise NoMaskedSemantics("a bound that is no integer")
        if not is_of_a_loop(bound):
            return bound.__index__()  # type: ignore[attr-defined]
    return bound


def _end_position(bound: object, n: int, default: int) -> object:
    """A bound of a slice with a negative step, as the position after its element."""
    if bound is None:
        return default
    if not isinstance(bound, Carrier):
        return _Slice(bound, None, -1).indices(n)[0] + 1
    low, high = limits(bound)
    if low < 0:
        raise NoMaskedSemantics("a slice backwards from a number that may be negative")
    return normalized_bound(between(ops.add(bound, 1), low + 1, min(high, n) + 1), n)


def _between(a: Any, b: Any, n: int) -> AxisSelection:
    """The elements from `a` to `b`, which are positions in an axis of `n` elements."""
    length = difference(b, a)
    if length is not None:
        return AxisSelection(a, max(length, 0)) if length > 0 else AxisSelection(0, 0)
    (low_a, high_a), (low_b, high_b) = bounds(a), bounds(b)
    least, max_size = max(low_b - high_a, 0), high_b - low_a
    if max_size <= 0:
        return AxisSelection(0, 0)
    count = ops.subtract(b, a) if type(a) is not int or a else b
    if low_b < high_a:
        count = ops.maximum(count, 0)
    count = between(count, least, max_size)
    size = SymbolicSize(count.builder, count.node)
    extent = ValidExtent(size, b is n or type(b) is int, form_of(size), least)
    if type(a) is int:
        return AxisSelection(a, max_size, extent=ValidExtent(size, False, extent.key, least))
    if type(b) is int:
        return AxisSelection(low_a, max_size, extent=ValidExtent(size, True, extent.key, least))
    return AxisSelection(0, max_size, extent=ValidExtent(size, False, extent.key, least), shift=a)


# -- reading and replacing -----------------------------------------------------------------------------------------
def read(array: PaddedValue, cut: SliceSelection) -> PaddedValue:
    """The selected elements."""
    x = _window(array.value, cut)
    for axis, along in enumerate(cut.along):
        if along.shift is not None:
            positions = arange(start=0, step=1, length=along.size, dtype="int64")
            x = _gathered(x, ops.minimum(ops.add(positions, along.shift), array.value.shape[axis] - 1), axis)
    x = clamped(x, tuple([None if a.keeps_extent else a.extent for a in cut.along]))
    flips = tuple([axis for axis, a in enumerate(cut.along) if a.flips])
    x = flip(x, axes=flips) if flips else x
    return PaddedValue(x if x.shape == cut.shape else reshape(x, shape=cut.shape), cut.extents)


def _window(x: Any, cut: SliceSelection) -> Any:
    """The windows along the axes; the whole axis if the part is shifted."""
    starts, sizes, step = _window_of(x, cut)
    if sizes == x.shape:
        return x
    if not all(type(a) is int for a in starts):
        return dynamic_slice(x, *starts, sizes=sizes, step=step)
    stop = tuple([a + (m - 1) * s + 1 if m else a for a, m, s in zip(starts, sizes, step)])
    return slice(x, start=starts, stop=stop, step=step)


def _window_of(x: Any, cut: SliceSelection) -> tuple[Any, ...]:
    starts = tuple([a.start for a in cut.along])
    sizes = tuple([n if a.shift is not None else a.size for a, n in zip(cut.along, x.shape)])
    return starts, sizes, tuple([a.step for a in cut.along])


def _gathered(x: Any, indices: Any, axis: int) -> Any:
    """The elements at these indices along an axis."""
    result = gather(x, indices, axes=(axis,))
    order = (axis, *[a for a in range(len(x.shape)) if a != axis])
    return result if axis == 0 else transpose(result, perm=inverse_permutation(order))


def replaced(array: PaddedValue, cut: SliceSelection, new: PaddedValue) -> Any:
    """The array with the selected elements replaced by `new`, a `PaddedValue`."""
    x, values = array.value, new.value
    if 0 in cut.shape:
        return x
    starts, sizes, step = _window_of(x, cut)
    window = tuple([a.size for a in cut.along])
    if is_literal(values):
        values = full(shape=window, value=values, dtype=x.dtype.name)
    else:
        values = fitted(new, cut.shape, cut.extents)
        values = reshape(values, shape=window) if values.shape != window else values
        flips = tuple([axis for axis, a in enumerate(cut.along) if a.flips])
        values = flip(values, axes=flips) if flips else values
    mask = None
    for axis, along in enumerate(cut.along):
        inside = None
        if along.shift is not None:
            offsets = ops.subtract(arange(start=0, step=1, length=sizes[axis], dtype="int64"), along.shift)
            inside = ops.logical_and(ops.greater_equal(offsets, 0), ops.less(offsets, along.extent.count))  # type: ignore[union-attr]
            values = _gathered(values, ops.minimum(ops.maximum(offsets, 0), along.size - 1), axis)
            shape = tuple([n if a == axis else 1 for a, n in enumerate(sizes)])
            inside = broadcast_to(reshape(inside, shape=shape), shape=sizes)
        elif along.extent is not None:
            inside = element_mask(sizes, axis, along.extent)
        mask = inside if mask is None else mask if inside is None else ops.logical_and(mask, inside)
    if mask is not None:
        values = ops.where(mask, values, _window(x, cut))
    return values if sizes == x.shape else dynamic_update_slice(x, values, *starts, step=step)


# -- alignment ---------------------------------------------------------------------------------------------------
def fitted(x: PaddedValue, shape: Sequence[int], extents: Sequence[ValidExtent | None]) -> Array:
    """The value broadcast to a shape with these parts. Raises `NoMaskedSemantics` if it is not known to fit."""
    extra = len(x.extents) - len(shape)
    if extra > 0:
        if any(p is not None or n != 1 for p, n in zip(x.extents[:extra], x.value.shape)):
            raise NoMaskedSemantics("values with too many axes")
        x = PaddedValue(reshape(x.value, shape=x.value.shape[extra:]), x.extents[extra:])
    value, first = x.value, len(shape) - len(x.extents)
    for axis, source_extent in enumerate(x.extents):
        extent, n = extents[first + axis], shape[first + axis]
        size = value.shape[axis]
        if source_extent is None and (size == 1 or (extent is None and size == n)):
            continue
        if any(p is not None and p.mask is not None for p in (source_extent, extent)):
            if source_extent != extent or size != n:
                raise NoMaskedSemantics("what other masks choose")
            continue
        source, target = source_extent or ValidExtent.of(size, last=False), extent or ValidExtent.of(n, last=False)
        sure = _same(source, target)
        value = _moved(value, axis, source, target, n)
        if not sure:
            held = ops.equal(required(ops.equal(source.count, target.count)), 0)
            value = ops.where(held, value, value.dtype.type(0).item())
    return broadcast_to(value, shape=tuple(shape)) if value.shape != tuple(shape) else value


def _same(x: ValidExtent, y: ValidExtent) -> bool:
    """Whether two parts have equal sizes; False if this depends on values. Raises `NoMaskedSemantics` if they
    differ."""
    size_difference = difference(x.count, y.count)
    (a, b), (c, d) = bounds(x.count), bounds(y.count)
    if size_difference or b < c or d < a:
        raise NoMaskedSemantics("arrays of other sizes")
    return size_difference == 0


def _moved(x: Any, axis: int, source_extent: ValidExtent, extent: ValidExtent, n: int) -> Any:
    """The part `source_extent` of an axis moved to the position of `extent` in an axis of `n` elements; the rest are
    copies of its ends."""
    size = x.shape[axis]
    if source_extent.last == extent.last and size == n:
        return x
    positions = arange(start=0, step=1, length=n, dtype="int64")
    if source_extent.last and not extent.last:
        return _gathered(x, ops.minimum(ops.add(positions, size - source_extent.count), size - 1), axis)
    if extent.last and not source_extent.last:
        return _gathered(x, ops.minimum(ops.maximum(ops.subtract(positions, n - extent.count), 0), size - 1), axis)
    if extent.last:
        return _gathered(x, ops.maximum(ops.add(positions, size - n), 0), axis)
    return _gathered(x, ops.minimum(positions, size - 1), axis)
