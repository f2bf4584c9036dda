"""Index by integer arrays: gather and scatter-add, each the other's transpose, and scatter-max.

Indices are arrays of one integer dtype and one shape, one per indexed axis. The result of a gather has the shape of
the indices followed by the axes of `x` that are not indexed. Negative indices count from the end; an index out of
range raises IndexError, compiled or not.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval, name_of
from tracegrad.errors import DTypeError, ShapeError
from tracegrad.ops.core.forms import Gather, Scatter
from tracegrad.ops.core.op import Op, Sample, primitive
from tracegrad.ops.core.samples import integers, uniform
from tracegrad.ops.shape.batching import repeated, to_axis
from tracegrad.ops.shape.linear import arange, broadcast_to, reshape
from tracegrad.typing import Array, NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator


def _indices_shape(name: str, x: Aval, indices: tuple[Aval, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    if len(indices) != len(axes) or not indices or len(set(axes)) != len(axes) or max(axes) >= x.ndim:
        raise ShapeError(f"{name}: {len(indices)} index arrays for axes {axes} of {x}")
    if len({i.shape for i in indices}) != 1 or any(i.dtype.kind not in "iu" for i in indices):
        raise DTypeError(f"{name}: indices must be integer arrays of one shape, got {', '.join(map(str, indices))}")
    return indices[0].shape


def _numpy_index(shape: tuple[int, ...], indices: list[NDArray], axes: tuple[int, ...]) -> tuple[NDArray, ...]:
    """The NumPy index that selects `indices` along `axes`, and everything along other axes, index axes first."""
    rest = [a for a in range(len(shape)) if a not in axes]
    depth = len(indices[0].shape)
    index: list[Any] = [None] * len(shape)
    for k, a in enumerate(rest):
        index[a] = np.arange(shape[a]).reshape((1,) * depth + tuple(-1 if j == k else 1 for j in range(len(rest))))
    for i, a in zip(indices, axes):
        index[a] = np.asarray(i).reshape(i.shape + (1,) * len(rest))
    return tuple(index)


# -- gather ----------------------------------------------------------------------------------------
@primitive(Gather())
def gather(*xs: NDArray, axes: tuple[int, ...]) -> NDArray:
    """Elements of `xs[0]` at the indices `xs[1:]` along `axes`."""
    x, *indices = xs
    rest = [a for a in range(x.ndim) if a not in axes]
    return x.transpose((*axes, *rest))[tuple(indices)]


@gather.def_aval
def _(*xs: Aval, axes: tuple[int, ...]) -> Aval:
    x, *indices = xs
    shape = _indices_shape("gather", x, tuple(indices), axes)
    return Aval((*shape, *(n for a, n in enumerate(x.shape) if a not in axes)), x.dtype)


gather.linear_in("xs")


@gather.def_vjp("xs")
def _(i: int, ct: Array, ans: Array, *xs: Array, axes: tuple[int, ...]) -> Array:
    return scatter_add(ct, *xs[1:], shape=xs[0].shape, axes=axes)


@gather.def_batch
def _(size: int, batched: tuple[bool, ...], *xs: Array, axes: tuple[int, ...]) -> Array:
    x, *indices = xs
    along = tuple([a + 1 for a in axes])
    if not any(batched[1:]):
        return to_axis(gather(x, *indices, axes=along), len(indices[0].shape), 0)
    indices = repeated(size, batched[1:], indices)
    if not batched[0]:
        return gather(x, *indices, axes=axes)
    return gather(x, _batch_positions(size, indices[0]), *indices, axes=(0, *along))


def _batch_positions(size: int, indices: Array) -> Array:
    """The position in the batch of each batched index."""
    shape = (size, *(1 for _ in indices.shape[1:]))
    positions = arange(start=0, step=1, length=size, dtype=name_of(indices.dtype))
    return broadcast_to(reshape(positions, shape=shape), shape=indices.shape)


@gather.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((5, 3)), integers((4,), -5, 5)), {"axes": (0,)}
    yield (uniform((4, 5)), integers((6,), 0, 4), integers((6,), 0, 5, seed=1)), {"axes": (0, 1)}
    yield (uniform((3, 20, 2)), integers((2, 2), 0, 20)), {"axes": (1,)}


# -- scatter_add -----------------------------------------------------------------------------------
@primitive(Scatter())
def scatter_add(*xs: NDArray, shape: tuple[int, ...], axes: tuple[int, ...]) -> NDArray:
    """Zeros of `shape` with `xs[0]` added at the indices `xs[1:]` along `axes`; equal indices add up."""
    updates, *indices = xs
    out = np.zeros(shape, updates.dtype)
    if len(axes) == len(shape) > 1 and axes == tuple(range(len(shape))):
        # NumPy's `add.at` is faster with one index than with several.
        with suppress(ValueError):  # raised for a negative index, or one out of range
            flat = np.ravel_multi_index(tuple(indices), shape)
            np.add.at(out.reshape(-1), flat.reshape(-1), updates.reshape(-1))
            return out
    np.add.at(out, _numpy_index(shape, indices, axes), updates)
    return out


def _scattered(name: str, xs: tuple[Aval, ...], shape: tuple[int, ...], axes: tuple[int, ...]) -> Aval:
    updates, *indices = xs
    result = Aval(tuple(shape), updates.dtype)
    head = _indices_shape(name, result, tuple(indices), axes)
    wanted = (*head, *(n for a, n in enumerate(shape) if a not in axes))
    if updates.shape != wanted:
        raise ShapeError(f"{name}: updates {updates} should have shape {wanted}")
    return result


@scatter_add.def_aval
def _(*xs: Aval, shape: tuple[int, ...], axes: tuple[int, ...]) -> Aval:
    return _scattered("scatter_add", xs, shape, axes)


scatter_add.linear_in("xs")


@scatter_add.def_vjp("xs")
def _(i: int, ct: Array, ans: Array, *xs: Array, shape: tuple[int, ...], axes: tuple[int, ...]) -> Array:
    return gather(ct, *xs[1:], axes=axes)


def _batch_of(op: Op) -> None:
    @op.def_batch
    def _(size: int, batched: tuple[bool, ...], *xs: Array, shape: tuple[int, ...], axes: tuple[int, ...]) -> Any:
        updates, *indices = xs
        along, whole = tuple([a + 1 for a in axes]), (size, *shape)
        if not any(batched[1:]):
            return op(to_axis(updates, 0, len(indices[0].shape)), *indices, shape=whole, axes=along)
        updates, *indices = repeated(size, batched, xs)
        return op(updates, _batch_positions(size, indices[0]), *indices, shape=whole, axes=(0, *along))


_batch_of(scatter_add)


@scatter_add.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((4, 3)), integers((4,), -5, 5)), {"shape": (5, 3), "axes": (0,)}
    yield (
        (uniform((6,)), integers((6,), 0, 4), integers((6,), 0, 5, seed=1)),
        {"shape": (4, 5), "axes": (0, 1)},
    )
    yield (uniform((30, 2, 3)), integers((30,), 0, 4)), {"shape": (2, 4, 3), "axes": (1,)}


# -- scatter_max -----------------------------------------------------------------------------------
@primitive(Scatter(combine="maximum"))
def scatter_max(*xs: NDArray, shape: tuple[int, ...], axes: tuple[int, ...]) -> NDArray:
    """Zeros of `shape`, raised to the maximum of the integers `xs[0]` at the indices `xs[1:]` along `axes`."""
    updates, *indices = xs
    out = np.zeros(shape, updates.dtype)
    np.maximum.at(out, _numpy_index(shape, indices, axes), updates)
    return out


@scatter_max.def_aval
def _(*xs: Aval, shape: tuple[int, ...], axes: tuple[int, ...]) -> Aval:
    if xs[0].dtype.kind not in "iu":
        raise DTypeError(f"scatter_max: updates must be integers, got {xs[0]}")
    return _scattered("scatter_max", xs, shape, axes)


_batch_of(scatter_max)


@scatter_max.def_samples
def _() -> Iterator[Sample]:
    yield (integers((4, 3), -3, 9), integers((4,), -5, 5, seed=1)), {"shape": (5, 3), "axes": (0,)}
    yield (
        (integers((30,), 1, 90), integers((30,), 0, 4, seed=1), integers((30,), 0, 5, seed=2)),
        {"shape": (4, 5), "axes": (0, 1)},
    )
