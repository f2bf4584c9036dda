"""Functions that change the shape of an array: views of the same elements where NumPy makes views."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad.errors import ShapeError, located
from tracegrad.numpy_api.memory_layout import in_memory_order, isfortran, shares_memory
from tracegrad.numpy_api.operands import arrays, broadcast_shapes
from tracegrad.numpy_api.operands import broadcast_arrays as _broadcast
from tracegrad.numpy_api.registry import implements
from tracegrad.ops.core.memory_order import axes_in_memory
from tracegrad.ops.core.op import normalize_axes, normalize_axis
from tracegrad.ops.shape import linear
from tracegrad.typing import Array, ArrayLike, Axes, Number


def _one(a: ArrayLike) -> Array:
    return arrays(a)[0]


def reshaped(x: Array, shape: tuple[int, ...]) -> Array:
    """`x` in `shape`, as a view."""
    return linear.reshape(x, shape=shape)


def permuted(x: Array, perm: tuple[int, ...]) -> Array:
    """`x` with its axes permuted, as a view."""
    return linear.transpose(x, perm=perm)


def flipped(x: Array, axes: tuple[int, ...]) -> Array:
    """`x` reversed along `axes`, as a view."""
    return linear.flip(x, axes=axes)


def as_shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    """Convert `shape`, an integer or a sequence of integers, to a tuple of Python integers."""
    if hasattr(shape, "__index__") and not isinstance(shape, tuple | list):
        return (shape.__index__(),)
    sizes: Any = shape
    return tuple(n.__index__() for n in sizes)


def _filled_in(shape: tuple[int, ...], old: tuple[int, ...]) -> tuple[int, ...]:
    """Replace the -1 of `shape` by the size that remains for `old`."""
    size = math.prod(old)
    unknown = shape.count(-1)
    known = math.prod(n for n in shape if n != -1)
    if unknown > 1:
        raise ShapeError(located("can only specify one unknown dimension"))
    fits = (known > 0 and size % known == 0) if unknown else known == size
    if not fits or any(n < -1 for n in shape):
        raise ShapeError(located(f"cannot reshape array of size {size} and shape {old} into shape {shape}"))
    return tuple(size // known if n == -1 else n for n in shape)


# -- reshape and its relatives ---------------------------------------------------------------------------------
@implements(np.reshape)
def reshape(a: ArrayLike, /, shape: int | Sequence[int], order: str = "C", *, copy: bool | None = None) -> Array:
    """`np.reshape`."""
    x = _one(a)
    wanted = _filled_in(as_shape(shape), x.shape)
    if order not in ("C", "F", "A"):
        raise ValueError(located(f"order must be one of 'C', 'F', or 'A' (got {order!r})"))
    if order == "A":
        order = "F" if isfortran(x) else "C"
    result = _reversed(reshaped(_reversed(x), wanted[::-1])) if order == "F" else reshaped(x, wanted)
    if copy:
        return in_memory_order(result, order)
    if copy is False and 0 not in result.shape and not shares_memory(x, result):
        raise ValueError(located("Unable to avoid creating a copy while reshaping."))
    return result


def _reversed(x: Array) -> Array:
    """`x` with its axes reversed, if it has several."""
    return permuted(x, tuple(reversed(range(len(x.shape))))) if len(x.shape) > 1 else x


@implements(np.ravel)
def ravel(a: ArrayLike, order: str = "C") -> Array:
    """`np.ravel`."""
    x: Any = _one(a)
    if order not in ("C", "F", "A", "K"):
        raise ValueError(located(f"order must be one of 'C', 'F', 'A', or 'K' (got {order!r})"))
    if order == "K":
        axes = axes_in_memory(x._visible_layouts(x)[0])
        x = permuted(x, tuple(axes)) if axes != sorted(axes) else x
    elif order == "F" or (order == "A" and isfortran(x)):
        x = _reversed(x)
    return reshaped(x._in_order("C"), (math.prod(x.shape),))


@implements(np.expand_dims)
def expand_dims(a: ArrayLike, axis: Axes) -> Array:
    """`np.expand_dims`."""
    x = _one(a)
    args = axis if isinstance(axis, tuple | list) else (axis,)
    new = normalize_axes("expand_dims", tuple(args), len(x.shape) + len(args))
    sizes = iter(x.shape)
    return reshaped(x, tuple(1 if k in new else next(sizes) for k in range(len(x.shape) + len(args))))


@implements(np.squeeze)
def squeeze(a: ArrayLike, axis: int | None = None) -> Array:
    """`np.squeeze`."""
    x = _one(a)
    if axis is None:
        return reshaped(x, tuple(n for n in x.shape if n != 1)) if 1 in x.shape else x
    axes = normalize_axes("squeeze", axis, len(x.shape))
    if any(x.shape[k] != 1 for k in axes):
        raise ShapeError(
            located(f"cannot select an axis to squeeze out which has size not equal to one: {x.shape}, {axis}")
        )
    return reshaped(x, tuple(n for k, n in enumerate(x.shape) if k not in axes))


@implements(np.broadcast_to)
def broadcast_to(array: ArrayLike, shape: int | Sequence[int], subok: bool = False) -> Array:
    """`np.broadcast_to`."""
    x = _one(array)
    wanted = as_shape(shape)
    if broadcast_shapes("broadcast_to", x.shape, wanted) != wanted:
        raise ShapeError(located(f"cannot broadcast shape {x.shape} to shape {wanted}"))
    return linear.broadcast_to(x, shape=wanted)


@implements(np.broadcast_arrays)
def broadcast_arrays(*args: ArrayLike, subok: bool = False) -> tuple[Array, ...]:
    """`np.broadcast_arrays`."""
    return tuple(_broadcast("broadcast_arrays", arrays(*args)))  # NumPy warns if these are updated


def _at_least(rank: int, xs: tuple[ArrayLike, ...]) -> Array | tuple[Array, ...]:
    out = tuple(_grown(x, rank) for x in arrays(*xs))
    return out[0] if len(out) == 1 else out


def _grown(x: Array, rank: int) -> Array:
    n = len(x.shape)
    if n >= rank:
        return x
    shapes: dict[int, tuple[int, ...]] = {0: (1,) * rank, 1: (1, *x.shape, 1)[:rank] if rank > 1 else x.shape}
    return reshaped(x, shapes.get(n, (*x.shape, 1)))


@implements(np.atleast_1d)
def atleast_1d(*arys: ArrayLike) -> Any:
    """`np.atleast_1d`."""
    return _at_least(1, arys)


@implements(np.atleast_2d)
def atleast_2d(*arys: Array | Number) -> Any:
    """`np.atleast_2d`."""
    return _at_least(2, arys)


@implements(np.atleast_3d)
def atleast_3d(*arys: Array | Number) -> Any:
    """`np.atleast_3d`."""
    return _at_least(3, arys)


# -- axes in another order ---------------------------------------------------------------------------------------
@implements(np.transpose, np.permute_dims)
def transpose(a: ArrayLike, axes: Sequence[int] | None = None) -> Array:
    """`np.transpose`."""
    x = _one(a)
    n = len(x.shape)
    if axes is None:
        return permuted(x, tuple(reversed(range(n))))
    perm = tuple(normalize_axis("transpose", k.__index__(), n) for k in axes)
    if sorted(perm) != list(range(n)):
        raise ShapeError(located(f"axes {tuple(axes)} do not permute the axes of shape {x.shape}"))
    return permuted(x, perm)


@implements(np.matrix_transpose, np.linalg.matrix_transpose)
def matrix_transpose(x: ArrayLike, /) -> Array:
    """`np.matrix_transpose`: the last two axes exchanged."""
    x = _one(x)
    if len(x.shape) < 2:
        raise ShapeError(located("matrix transpose with ndim < 2 is undefined"))
    return swapaxes(x, -1, -2)


@implements(np.swapaxes)
def swapaxes(a: ArrayLike, axis1: int, axis2: int) -> Array:
    """`np.swapaxes`."""
    x = _one(a)
    i, j = (normalize_axis("swapaxes", k, len(x.shape)) for k in (axis1, axis2))
    perm = list(range(len(x.shape)))
    perm[i], perm[j] = j, i
    return permuted(x, tuple(perm))


@implements(np.moveaxis)
def moveaxis(a: ArrayLike, source: Axes, destination: Axes) -> Array:
    """`np.moveaxis`."""
    x = _one(a)
    n = len(x.shape)
    old, new = ([normalize_axis("moveaxis", k, n) for k in _sequence(v)] for v in (source, destination))
    if len(set(old)) != len(old) or len(set(new)) != len(new) or len(old) != len(new):
        raise ShapeError(located(f"moveaxis: source {source} and destination {destination} do not match"))
    perm = [k for k in range(n) if k not in old]
    for to, k in sorted(zip(new, old)):
        perm.insert(to, k)
    return permuted(x, tuple(perm))


def _sequence(v: Sequence[int] | int | None) -> list[int] | tuple[int, ...]:
    return v if isinstance(v, tuple | list) else (v,)


@implements(np.rollaxis)
def rollaxis(a: ArrayLike, axis: int, start: int = 0) -> Array:
    """`np.rollaxis`."""
    x = _one(a)
    n = len(x.shape)
    k = normalize_axis("rollaxis", axis, n)
    to = normalize_axis("rollaxis", start, n + 1)
    return moveaxis(x, k, to - 1 if k < to else to)


# -- reversing -----------------------------------------------------------------------------------------------------
@implements(np.flip)
def flip(m: ArrayLike, axis: int | None = None) -> Array:
    """`np.flip`."""
    x = _one(m)
    return flipped(x, normalize_axes("flip", axis, len(x.shape)))


def _flip_axis(name: str, m: ArrayLike, axis: int) -> Array:
    x = _one(m)
    if len(x.shape) <= axis:
        raise ShapeError(located(f"{name}: input must be >= {axis + 1}-d."))
    return flipped(x, (axis,))


@implements(np.fliplr)
def fliplr(m: ArrayLike) -> Array:
    """`np.fliplr`."""
    return _flip_axis("fliplr", m, 1)


@implements(np.flipud)
def flipud(m: ArrayLike) -> Array:
    """`np.flipud`."""
    return _flip_axis("flipud", m, 0)


@implements(np.rot90)
def rot90(m: ArrayLike, k: int = 1, axes: Sequence[int] = (0, 1)) -> Array:
    """`np.rot90`."""
    x = _one(m)
    i, j = (normalize_axis("rot90", v, len(x.shape)) for v in axes)
    if i == j:
        raise ValueError(located("Axes must be different."))
    iterations = k % 4
    if iterations == 0:
        return x[...]
    if iterations == 2:
        return flipped(x, tuple(sorted((i, j))))
    return swapaxes(flipped(x, (j,)), i, j) if iterations == 1 else flipped(swapaxes(x, i, j), (j,))


# -- attributes of an array --------------------------------------------------------------------------------------
@implements(np.shape)
def shape(a: ArrayLike) -> tuple[int, ...]:
    """`np.shape`."""
    results: tuple[int, ...] = _one(a).shape
    return results


@implements(np.ndim)
def ndim(a: ArrayLike) -> int:
    """`np.ndim`."""
    return len(_one(a).shape)


@implements(np.size)
def size(a: ArrayLike, axis: Axes = None) -> int:
    """`np.size`."""
    x = _one(a)
    return math.prod(x.shape[k] for k in normalize_axes("size", axis, len(x.shape)))


@implements(np.isscalar)
def isscalar(element: object) -> bool:
    """`np.isscalar`: always False for arrays."""
    return False
