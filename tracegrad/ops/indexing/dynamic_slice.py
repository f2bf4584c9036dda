"""Dynamic slices: read a window at a computed position, or replace it; each op is the other's transpose.

A window begins at `starts`, one int64 number for each axis (an array without axes, or a literal), and takes every
`step`-th element. Its shape is static and its position is not, so an iteration reads and writes rows, blocks or
elements by its counter. The caller ensures that a window lies inside the array; compiled code does not check it.
`counted` converts a user's index, which may be negative or out of range, to a position.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval, aval_of, is_literal, name_of
from tracegrad.errors import DTypeError, ShapeError, located
from tracegrad.ops.core.forms import Checked, Patch, Window
from tracegrad.ops.core.op import Sample, primitive
from tracegrad.ops.core.samples import integers, uniform
from tracegrad.ops.elementwise.table import (
    add,
    equal,
    floor_divide,
    greater_equal,
    less,
    logical_and,
    multiply,
    subtract,
    where,
)
from tracegrad.ops.indexing.gather_scatter import gather
from tracegrad.ops.shape.batching import repeated
from tracegrad.ops.shape.linear import arange, broadcast_to, full, reshape, slice, zeros_like
from tracegrad.typing import Array, NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator


Shape = tuple[int, ...]


def _require(name: str, x: Aval, starts: Sequence[Aval | int], sizes: Sequence[int], step: Sequence[int]) -> None:
    if any(type(s) is not int if is_literal(s) else s != Aval((), np.dtype(np.int64)) for s in starts):
        raise DTypeError(f"{name}: a window starts at int64 numbers, got {', '.join(map(str, starts))}")
    if not len(starts) == len(sizes) == len(step) == x.ndim or any(
        not (s > 0 and 0 <= (m - 1) * s + 1 <= n if m else s > 0) for m, s, n in zip(sizes, step, x.shape)
    ):
        raise ShapeError(f"{name}: no window of {tuple(sizes)}, step {tuple(step)}, lies in {x}")


def _window_index(
    starts: Sequence[NDArray | int], sizes: Sequence[int], step: Sequence[int]
) -> tuple[builtins.slice, ...]:
    return tuple(
        builtins.slice(int(a), int(a) + (m - 1) * s + 1 if m else int(a), s) for a, m, s in zip(starts, sizes, step)
    )


# -- positions -----------------------------------------------------------------------------------------
@primitive(Checked())
def counted(x: NDArray, *, length: int, axis: int) -> NDArray:
    """The indices `x` of an axis of `length`, normalized to count from the front.

    `axis` is the number of the axis, for the error."""
    x = np.asarray(x)
    wrong = (x < -length) | (x >= length)
    if wrong.any():
        raise IndexError(located(f"index {x[wrong].flat[0]} is out of bounds for axis {axis} with size {length}"))
    return np.where(x < 0, x + length, x)


@counted.def_aval
def _(x: Aval, *, length: int, axis: int) -> Aval:
    if x.dtype != np.int64:
        raise DTypeError(f"counted: an index is an int64, got {x}")
    return x


@counted.def_batch
def _(size: int, batched: Sequence[bool], x: Array, **params: object) -> Array:
    return counted(x, **params)


@counted.def_samples
def _() -> Iterator[Sample]:
    yield (np.array(-2),), {"length": 5, "axis": 0}
    yield (integers((12,), -9, 9),), {"length": 9, "axis": 1}


# -- reading -------------------------------------------------------------------------------------------
@primitive(Window())
def dynamic_slice(*xs: NDArray, sizes: Shape, step: Shape) -> Array:
    """The window of `xs[0]` with `sizes` elements, `step` apart, from the positions `xs[1:]` on."""
    x, *starts = xs
    index: Any = (..., *_window_index(starts, sizes, step))
    return np.array(x[index], order="C")


@dynamic_slice.def_aval
def _(*xs: Aval, sizes: Shape, step: Shape) -> Aval:
    _require("dynamic_slice", xs[0], xs[1:], sizes, step)
    return Aval(tuple(sizes), xs[0].dtype)


@dynamic_slice.def_vjp("xs")
def _(i: int, ct: Array, ans: Array, *xs: Array, sizes: Shape, step: Shape) -> Any:
    aval = aval_of(xs[0])
    if all(map(is_literal, xs[1:])):
        stop = tuple([a + (m - 1) * s + 1 if m else a for a, m, s in zip(xs[1:], sizes, step)])
        return slice.pull(0, ct, ans, xs[:1], {"start": xs[1:], "stop": stop, "step": step})
    zeros = full(shape=aval.shape, value=0.0 if ct.dtype.kind in "fc" else 0, dtype=name_of(ct.dtype))
    return dynamic_update_slice(zeros, ct, *xs[1:], step=step)


@dynamic_slice.def_jvp
def _(tangents: Sequence[Any], ans: Array, *xs: Array, sizes: Shape, step: Shape) -> Array:
    return dynamic_slice(tangents[0], *xs[1:], sizes=sizes, step=step)


@dynamic_slice.def_batch
def _(size: int, batched: Sequence[bool], *xs: Array, sizes: Shape, step: Shape) -> Array:
    x, *starts = xs
    if not any(batched[1:]):
        return dynamic_slice(x, 0, *starts, sizes=(size, *sizes), step=(1, *step))
    shape = (size, *sizes)
    positions = [
        add(_of_batch(a, is_batched, shape), _along(shape, k + 1, s))
        for k, (a, is_batched, s) in enumerate(zip(starts, batched[1:], step))
    ]
    axes = range(len(sizes))
    if not batched[0]:
        return gather(x, *positions, axes=tuple(axes))
    return gather(x, _along(shape, 0, 1), *positions, axes=(0, *(k + 1 for k in axes)))


def _along(shape: Shape, axis: int, step: int) -> Array:
    """An array of `shape` with the index along `axis` times `step`."""
    indices = arange(start=0, step=step, length=shape[axis], dtype="int64")
    indices = reshape(indices, shape=tuple(n if k == axis else 1 for k, n in enumerate(shape)))
    return broadcast_to(indices, shape=shape)


def _of_batch(start: Any, batched: bool, shape: Shape) -> Array:
    """A start, or one start per example, broadcast to `shape`."""
    if is_literal(start):
        return full(shape=shape, value=start, dtype="int64")
    per_example = reshape(start, shape=(shape[0] if batched else 1, *(1 for _ in shape[1:])))
    return broadcast_to(per_example, shape=shape)


@dynamic_slice.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((5, 3)), np.array(2), np.array(1)), {"sizes": (2, 2), "step": (1, 1)}
    yield (uniform((7,), dtype="float32"), np.array(1)), {"sizes": (3,), "step": (2,)}
    yield (uniform((12, 20)), np.array(3), np.array(0)), {"sizes": (1, 20), "step": (1, 1)}
    yield (uniform((40, 30)), np.array(3), np.array(2)), {"sizes": (12, 13), "step": (3, 2)}
    yield (integers((4, 5), 0, 2, dtype="bool"), np.array(1), np.array(0)), {"sizes": (2, 5), "step": (1, 1)}
    yield (integers((10,), -9, 9), np.array(4)), {"sizes": (1,), "step": (1,)}


# -- writing -------------------------------------------------------------------------------------------
@primitive(Patch())
def dynamic_update_slice(*xs: NDArray, step: Shape) -> NDArray:
    """`xs[0]` with its elements from the positions `xs[2:]` on, `step` apart, replaced by `xs[1]`."""
    x, update, *starts = xs
    out = np.array(x, order="C")
    out[_window_index(starts, update.shape, step)] = update
    return out


@dynamic_update_slice.def_aval
def _(*xs: Aval, step: Shape) -> Aval:
    x, update, *starts = xs
    if is_literal(x) or is_literal(update) or x.dtype != update.dtype:
        raise DTypeError(f"dynamic_update_slice wants two arrays of one dtype, got {x} and {update}")
    _require("dynamic_update_slice", x, starts, update.shape, step)
    return x


@dynamic_update_slice.def_vjp("xs")
def _(i: int, ct: Array, ans: Array, *xs: Array, step: Shape) -> Array:
    shape = aval_of(xs[1]).shape
    if i == 1:
        return dynamic_slice(ct, *xs[2:], sizes=shape, step=step)
    zeros = full(shape=shape, value=0.0 if ct.dtype.kind in "fc" else 0, dtype=name_of(ct.dtype))
    return dynamic_update_slice(ct, zeros, *xs[2:], step=step)


@dynamic_update_slice.def_jvp
def _(tangents: Sequence[Array | None], ans: Array, *xs: Array, step: Shape) -> Array:
    moved = [zeros_like(x) if t is None else t for x, t in zip(xs[:2], tangents)]
    return dynamic_update_slice(*moved, *xs[2:], step=step)


@dynamic_update_slice.def_batch
def _(size: int, batched: Sequence[bool], *xs: Any, step: Shape) -> Any:
    x, update = repeated(size, batched[:2], xs[:2])
    starts = xs[2:]
    if not any(batched[2:]):
        return dynamic_update_slice(x, update, 0, *starts, step=(1, *step))
    # For each element, whether it is inside the window of its example, and its position in the window.
    shape = x.shape
    inside, positions = full(shape=shape, value=True, dtype="bool"), [_along(shape, 0, 1)]
    for k, (a, is_batched, s) in enumerate(zip(starts, batched[2:], step)):
        past = subtract(_along(shape, k + 1, 1), _of_batch(a, is_batched, shape))
        position = floor_divide(past, s) if s > 1 else past
        inside = logical_and(inside, logical_and(greater_equal(past, 0), less(position, update.shape[k + 1])))
        if s > 1:
            inside = logical_and(inside, equal(multiply(position, s), past))
        positions.append(position)
    if 0 in update.shape:
        return x
    result = gather(update, *(where(inside, position, 0) for position in positions), axes=tuple(range(len(shape))))
    return where(inside, result, x)


@dynamic_update_slice.def_samples
def _() -> Iterator[Sample]:
    starts = (np.array(2), np.array(1))
    yield (uniform((5, 3)), uniform((2, 2), seed=1), *starts), {"step": (1, 1)}
    yield (uniform((7,), dtype="float32"), uniform((3,), seed=1, dtype="float32"), np.array(1)), {"step": (2,)}
    yield (uniform((12, 20)), uniform((1, 20), seed=1), np.array(3), np.array(0)), {"step": (1, 1)}
    yield (uniform((40, 30)), uniform((12, 13), seed=1), *starts), {"step": (3, 2)}
    yield (integers((4, 5), 0, 2, dtype="bool"), integers((2, 2), 0, 2, dtype="bool"), *starts), {"step": (1, 1)}
    yield (integers((10,), -9, 9), integers((1,), -9, 9), np.array(4)), {"step": (1,)}
