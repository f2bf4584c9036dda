"""Read diagonals of matrices as views."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.errors import ShapeError
from tracegrad.ops.core.forms import Move
from tracegrad.ops.core.index_maps import OperandRead
from tracegrad.ops.core.op import Sample, primitive
from tracegrad.ops.core.samples import integers, uniform
from tracegrad.ops.elementwise.table import equal, where
from tracegrad.ops.shape.fill import arange
from tracegrad.ops.shape.linear import broadcast_to, inverse_permutation, pad, reshape, transpose
from tracegrad.typing import Array, NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator


def _length(shape: tuple[int, ...], offset: int, axes: tuple[int, int]) -> int:
    rows, columns = (shape[k] for k in axes)
    return max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)


@primitive(Move(partial=True), aliases=True)
def diagonal(x: NDArray, *, offset: int, axes: tuple[int, int]) -> NDArray:
    """The elements whose indices along the two `axes` differ by `offset`, along a new last axis."""
    n = _length(x.shape, offset, axes)
    index = [builtins.slice(None)] * x.ndim
    for axis, start in zip(axes, (max(-offset, 0), max(offset, 0))):
        index[axis] = builtins.slice(start, start + n)
    names = [k for k in range(x.ndim) if k not in axes]
    # The result of np.diagonal is read-only.
    result: NDArray = np.einsum(x[tuple(index)], [x.ndim if k in axes else k for k in range(x.ndim)], [*names, x.ndim])
    return result


@diagonal.def_aval
def _(x: Aval, *, offset: int, axes: tuple[int, int]) -> Aval:
    if len({*axes}) != 2 or not all(0 <= k < x.ndim for k in axes):
        raise ShapeError(f"diagonal: {axes} are not two axes of {x}")
    rest = [n for k, n in enumerate(x.shape) if k not in axes]
    return Aval((*rest, _length(x.shape, offset, axes)), x.dtype)


diagonal.linear_in("x")


def _inside(shape: tuple[int, ...], offset: int, axes: tuple[int, int]) -> Array:
    """The position of the diagonal in an array of `shape`."""
    rows, columns = (
        reshape(
            arange(start=start, step=1, length=shape[axis], dtype="int64"),
            shape=tuple(n if k == axis else 1 for k, n in enumerate(shape)),
        )
        for axis, start in zip(axes, (offset, 0))
    )
    return broadcast_to(equal(rows, columns), shape=shape)


def _spread(new: Array, shape: tuple[int, ...], offset: int, axes: tuple[int, int]) -> Array:
    """An array of `shape` whose rows repeat the diagonal elements `new`."""
    (rows, columns), (*rest, n) = (shape[k] for k in axes), new.shape
    none, low = (0,) * len(rest), max(-offset, 0)
    zero: Any = {"f": 0.0, "b": False}.get(new.dtype.kind, 0)
    if n != rows:
        new = pad(new, low=(*none, low), high=(*none, rows - low - n), interior=(*none, 0), value=zero)
    repeated = broadcast_to(reshape(new, shape=(*rest, rows, 1)), shape=(*rest, rows, columns))
    order = (*(k for k in range(len(shape)) if k not in axes), *axes)
    return transpose(repeated, perm=inverse_permutation(order))


@diagonal.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, *, offset: int, axes: tuple[int, int]) -> Array:
    return where(_inside(x.shape, offset, axes), _spread(ct, x.shape, offset, axes), 0.0)


@diagonal.def_view_update
def _(base: Array, new: Array, *, offset: int, axes: tuple[int, int]) -> Array:
    return where(_inside(base.shape, offset, axes), _spread(new, base.shape, offset, axes), base)


@diagonal.def_reads
def _(index: Any, size: Any, shapes: Any, result: Any, *, offset: int, axes: tuple[int, int]) -> Any:
    rest, k = iter(index[:-1]), index[-1]
    starts = dict(zip(axes, (max(-offset, 0), max(offset, 0))))
    return [OperandRead(0, tuple(k + size(starts[a]) if a in starts else next(rest) for a in range(len(shapes[0]))))]


@diagonal.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((4, 4)),), {"offset": 0, "axes": (0, 1)}
    yield (uniform((3, 5)),), {"offset": 2, "axes": (0, 1)}
    yield (uniform((20, 3, 30), dtype="float32"),), {"offset": -3, "axes": (2, 0)}
    yield (integers((3, 2), -9, 9),), {"offset": -1, "axes": (0, 1)}
