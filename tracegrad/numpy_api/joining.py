"""Functions that join, split, repeat and tile arrays."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad.errors import ShapeError, located
from tracegrad.numpy_api.boolean_mask import amount, known
from tracegrad.numpy_api.memory_layout import in_memory_order, in_new_memory
from tracegrad.numpy_api.operands import (
    alias,
    array,
    arrays,
    broadcast_arrays,
    broadcast_shapes,
    constant,
    peer_of,
    promoted,
    raveled,
    size_of,
    to_dtype,
    viewed,
    whole,
)
from tracegrad.numpy_api.reductions import sum as _sum
from tracegrad.numpy_api.registry import implements, refuse
from tracegrad.numpy_api.shapes import as_shape, atleast_1d, atleast_2d, atleast_3d
from tracegrad.ops import Carrier
from tracegrad.ops.core.op import normalize_axis
from tracegrad.ops.elementwise.table import add, divide, less, multiply, not_equal, subtract
from tracegrad.ops.indexing.gather_scatter import gather
from tracegrad.ops.reduce.reductions import reduce_any
from tracegrad.ops.shape import linear
from tracegrad.ops.shape import stack_split as pieces
from tracegrad.ops.shape.linear import full, reshape, transpose
from tracegrad.ops.shape.repeat_index import repeated_index
from tracegrad.typing import Array, ArrayLike, Axes, Casting, DTypeLike


def _one(a: object) -> Array:
    return arrays(a)[0]


def along(x: Array, axis: int, start: int, stop: int, step: int = 1) -> Array:
    """`x[start:stop:step]` along one axis, with 0 <= start <= stop <= n."""
    n = x.shape
    begin = tuple(start if k == axis else 0 for k in range(len(n)))
    end = tuple(max(stop, start) if k == axis else m for k, m in enumerate(n))
    return linear.slice(x, start=begin, stop=end, step=tuple(step if k == axis else 1 for k in range(len(n))))


def picked(x: Array, index: Any, axis: int) -> Array:
    """`np.take(x, index, axis)` for an array of integers."""
    out = gather(x, index, axes=(axis,))
    depth = len(index.shape)
    perm = (*range(depth, depth + axis), *range(depth), *range(depth + axis, len(out.shape)))
    return out if perm == tuple(range(len(perm))) else transpose(out, perm=perm)


# -- joining -----------------------------------------------------------------------------------------------------
@implements(np.concatenate, np.concat, refuses=("out",))
def concatenate(
    arrays_: Sequence[ArrayLike],
    /,
    axis: int | None = 0,
    out: Array | None = None,
    *,
    dtype: DTypeLike = None,
    casting: Casting = "same_kind",
) -> Array:
    """`np.concatenate`."""
    xs = _nonempty_arrays("concatenate", arrays_)
    if axis is None:
        xs, axis = [raveled(x) for x in xs], 0
    if any(not x.shape for x in xs):
        raise ShapeError(located("zero-dimensional arrays cannot be concatenated"))
    return _joined(promoted(xs, dtype, casting), normalize_axis("concatenate", axis, len(xs[0].shape)))


def _joined(xs: list[Array], axis: int) -> Array:
    rest = {(*x.shape[:axis], *x.shape[axis + 1 :]) for x in xs}
    if len(rest) != 1 or len({len(x.shape) for x in xs}) != 1:
        shapes = ", ".join(str(x.shape) for x in xs)
        raise ShapeError(located(f"concatenate: shapes {shapes} cannot be joined along axis {axis}"))
    return linear.concatenate(*xs, axis=axis)


def _nonempty_arrays(name: str, values: Sequence[ArrayLike]) -> list[Array]:
    xs = list(values)
    if not xs:
        raise ValueError(located(f"{name}: need at least one array"))
    return arrays(*xs)


@implements(np.stack, refuses=("out",))
def stack(
    arrays_: Sequence[ArrayLike],
    axis: int = 0,
    out: Array | None = None,
    *,
    dtype: DTypeLike = None,
    casting: Casting = "same_kind",
) -> Array:
    """`np.stack`."""
    args = _nonempty_arrays("stack", arrays_)
    known = whole(args) if not axis and dtype is None else None
    if known is not None:
        return known
    xs = promoted(args, dtype, casting)
    if len({x.shape for x in xs}) != 1:
        raise ShapeError(
            located(f"all input arrays must have the same shape, got {', '.join(str(x.shape) for x in xs)}")
        )
    return pieces.stack(*xs, axis=normalize_axis("stack", axis, len(xs[0].shape) + 1))


def _listed(x: tuple[Array, ...]) -> list[Array]:
    return list(x) if isinstance(x, tuple) else [x]


@implements(np.vstack)
def vstack(tup: Sequence[ArrayLike], *, dtype: DTypeLike = None, casting: Casting = "same_kind") -> Array:
    """`np.vstack`."""
    return concatenate(_listed(atleast_2d(*_nonempty_arrays("vstack", tup))), 0, dtype=dtype, casting=casting)


@implements(np.hstack)
def hstack(tup: Sequence[ArrayLike], *, dtype: DTypeLike = None, casting: Casting = "same_kind") -> Array:
    """`np.hstack`."""
    xs = _listed(atleast_1d(*_nonempty_arrays("hstack", tup)))
    return concatenate(xs, 0 if len(xs[0].shape) == 1 else 1, dtype=dtype, casting=casting)


@implements(np.dstack)
def dstack(tup: Sequence[ArrayLike]) -> Array:
    """`np.dstack`."""
    return concatenate(_listed(atleast_3d(*_nonempty_arrays("dstack", tup))), 2)


@implements(np.column_stack)
def column_stack(tup: Sequence[ArrayLike]) -> Array:
    """`np.column_stack`."""
    columns = [
        reshape(x, shape=(size_of(x), 1)) if len(x.shape) < 2 else x for x in _nonempty_arrays("column_stack", tup)
    ]
    return concatenate(columns, 1)


@implements(np.append)
def append(arr: ArrayLike, values: ArrayLike, axis: int | None = None) -> Array:
    """`np.append`."""
    return concatenate((arr, values), axis)


@implements(np.block)
def block(arrays_: ArrayLike) -> Array:
    """`np.block`: innermost lists are joined along the last axis, the others along the axes before it."""
    depth = _depth(arrays_)
    leaves = _leaves(arrays_, depth)
    peer = peer_of(*leaves)
    rank = max([depth, *(len(array(x, peer).shape) for x in leaves)])
    return _block(arrays_, depth, rank, peer)


def _depth(nested: object) -> int:
    return 1 + max(map(_depth, nested), default=0) if isinstance(nested, list) else 0


def _leaves(nested: ArrayLike, depth: int) -> list[ArrayLike]:
    if not depth:
        return [nested]
    if not isinstance(nested, list) or not nested:
        raise ValueError(located("block: List depths are mismatched, or a list is empty"))
    return [leaf for part in nested for leaf in _leaves(part, depth - 1)]


def _block(nested: ArrayLike, depth: int, rank: int, peer: Carrier | None) -> Array:
    if not depth:
        x = array(nested, peer)
        return reshape(x, shape=(*(1,) * (rank - len(x.shape)), *x.shape))
    parts: Any = nested
    return concatenate([_block(part, depth - 1, rank, peer) for part in parts], -depth)


# -- splitting ---------------------------------------------------------------------------------------------------
@implements(np.array_split)
def array_split(ary: ArrayLike, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Array]:
    """`np.array_split`."""
    x = _one(ary)
    k = normalize_axis("split", axis, len(x.shape))
    n = x.shape[k]
    if not _is_index_list(indices_or_sections):
        number: Any = indices_or_sections
        sections = number.__index__()
        if sections <= 0:
            raise ValueError(located("number sections must be larger than 0."))
        each, extra = divmod(n, sections)
        bounds = [i * each + min(i, extra) for i in range(sections + 1)]
    else:
        positions: Any = indices_or_sections
        bounds = [0, *(i.__index__() for i in positions), n]
    spans = [slice(*pair).indices(n) for pair in itertools.pairwise(bounds)]
    return [slice_along(x, k, start, max(start, stop)) for start, stop, _ in spans]


def _is_index_list(x: object) -> bool:
    """Whether `x` is a sequence of indices to split at, not the number of parts."""
    sequence: Any = x
    try:
        len(sequence)
    except TypeError:
        return False
    return True


def slice_along(x: Array, axis: int, start: int, stop: int) -> Array:
    """Return `x[start:stop]` along one axis, with 0 <= start <= stop <= n, as a view."""

    def view_update(base: Array, new: Array) -> Array:
        pieces = [along(base, axis, 0, start), new, along(base, axis, stop, base.shape[axis])]
        return linear.concatenate(*pieces, axis=axis)

    return viewed(x, along(x, axis, start, stop), view_update)


@implements(np.split)
def split(ary: ArrayLike, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Array]:
    """`np.split`."""
    x = _one(ary)
    if not _is_index_list(indices_or_sections):
        n = x.shape[normalize_axis("split", axis, len(x.shape))]
        number: Any = indices_or_sections
        if n % number.__index__():
            raise ShapeError(located(f"array split does not result in an equal division: {n} in {indices_or_sections}"))
    return array_split(x, indices_or_sections, axis)


@implements(np.hsplit)
def hsplit(ary: ArrayLike, indices_or_sections: int | Sequence[int]) -> list[Array]:
    """`np.hsplit`."""
    x = _one(ary)
    return split(x, indices_or_sections, 1 if len(x.shape) > 1 else 0)


@implements(np.vsplit)
def vsplit(ary: ArrayLike, indices_or_sections: int | Sequence[int]) -> list[Array]:
    """`np.vsplit`."""
    return split(ary, indices_or_sections, 0)


@implements(np.dsplit)
def dsplit(ary: ArrayLike, indices_or_sections: int | Sequence[int]) -> list[Array]:
    """`np.dsplit`."""
    return split(ary, indices_or_sections, 2)


@implements(np.unstack)
def unstack(x: ArrayLike, /, *, axis: int = 0) -> tuple[Array, ...]:
    """`np.unstack`."""
    x = _one(x)
    k = normalize_axis("unstack", axis, len(x.shape))
    rest = (*x.shape[:k], *x.shape[k + 1 :])
    parts: tuple[Array, ...] = tuple(reshape(along(x, k, i, i + 1), shape=rest) for i in range(x.shape[k]))
    return tuple(alias(p) for p in parts) if not rest and isinstance(x, Carrier) else parts  # scalars are no views


# -- repeating ---------------------------------------------------------------------------------------------------
@implements(np.tile)
def tile(A: ArrayLike, reps: int | Sequence[int]) -> Array:
    """`np.tile`."""
    x = _one(A)
    times = as_shape(reps)
    rank = max(len(times), len(x.shape))
    times = (1,) * (rank - len(times)) + times
    if set(times) <= {1}:
        out = in_new_memory(x, "K")
        return out if rank == len(x.shape) else reshape(out, shape=(*(1,) * (rank - len(x.shape)), *x.shape))
    sizes = (1,) * (rank - len(x.shape)) + x.shape
    spread = tuple(n for pair in zip(times, sizes) for n in pair)
    column = reshape(x, shape=tuple(n for m in sizes for n in (1, m)))
    return in_memory_order(
        reshape(linear.broadcast_to(column, shape=spread), shape=tuple(t * n for t, n in zip(times, sizes))), "C"
    )


@implements(np.repeat)
def repeat(a: ArrayLike, repeats: ArrayLike, axis: int | None = None) -> Array:
    """`np.repeat`: the total number of elements is queried."""
    x = _one(a)
    if axis is None or not x.shape:
        x, axis = raveled(x), axis or 0
    k = normalize_axis("repeat", axis, len(x.shape))
    n = x.shape[k]
    if not isinstance(repeats, tuple | list) and not getattr(repeats, "shape", ()):
        count: Any = repeats
        times = count.__index__()
        spread = linear.broadcast_to(
            reshape(x, shape=(*x.shape[: k + 1], 1, *x.shape[k + 1 :])),
            shape=(*x.shape[: k + 1], times, *x.shape[k + 1 :]),
        )
        return in_memory_order(reshape(spread, shape=(*x.shape[:k], n * times, *x.shape[k + 1 :])), "C")
    return in_memory_order(picked(x, repeated(array(repeats, peer_of(a, repeats)), n, peer_of(x, repeats)), k), "C")


def repeated(counts: Array, n: int, peer: Carrier | None) -> Array:
    """Repeat each of the first `n` integers as often as `counts` says."""
    plain = known(counts)
    if plain is not None:
        return constant(np.repeat(np.arange(n), plain), peer)
    counts = broadcast_arrays("repeat", [counts], (n,))[0]
    if bool(reduce_any(less(counts, 0), axes=(0,))):
        raise ValueError(located("repeats may not contain negative values."))
    size = amount(counts)
    return repeated_index(counts, size=size) if size else full(shape=(0,), value=0, dtype="int64")


@implements(np.roll)
def roll(a: ArrayLike, shift: int | Sequence[int], axis: Axes = None) -> Array:
    """`np.roll`."""
    x = _one(a)
    if axis is None:
        flat = raveled(x)
        by: Any = shift
        return in_memory_order(reshape(_rolled(flat, by.__index__(), 0), shape=x.shape), "C")
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    shifts = shift if isinstance(shift, tuple | list) else (shift,)
    out = x
    for by, k in np.broadcast(np.array(shifts), np.array(axes)):
        out = _rolled(out, int(by), normalize_axis("roll", int(k), len(x.shape)))
    return in_memory_order(out if out is not x else alias(x), "K", x)


def _rolled(x: Array, shift: int, axis: int) -> Array:
    n = x.shape[axis]
    cut = (-shift) % n if n else 0
    return linear.concatenate(along(x, axis, cut, n), along(x, axis, 0, cut), axis=axis) if cut else alias(x)


# -- differences ---------------------------------------------------------------------------------------------------
@implements(np.diff)
def diff(
    a: ArrayLike, n: int = 1, axis: int = -1, prepend: ArrayLike | None = None, append: ArrayLike | None = None
) -> Array:
    """`np.diff`."""
    x, *extra = arrays(*(v for v in (a, prepend, append) if v is not None))
    k = normalize_axis("diff", axis, len(x.shape))
    if n < 0:
        raise ValueError(located(f"order must be non-negative but got {n}"))
    first = extra.pop(0) if prepend is not None else None
    ends = [_end(v, x, k) for v in (first, *([None] if append is None else extra[-1:]))]
    parts = [p for p in (ends[0], x, ends[1] if len(ends) > 1 else None) if p is not None]
    x = concatenate(parts, k) if len(parts) > 1 else x
    for _ in range(n):
        m = x.shape[k]
        later, earlier = along(x, k, min(1, m), m), along(x, k, 0, max(m - 1, 0))
        x = not_equal(later, earlier) if x.dtype.kind == "b" else subtract(later, earlier)
    return x


def _end(v: Array, x: Array, axis: int) -> Array:
    if v is None or v.shape:
        return v
    return linear.broadcast_to(v, shape=tuple(1 if k == axis else n for k, n in enumerate(x.shape)))


@implements(np.ediff1d)
def ediff1d(ary: ArrayLike, to_end: ArrayLike | None = None, to_begin: ArrayLike | None = None) -> Array:
    """`np.ediff1d`."""
    x, *extra = arrays(*(v for v in (ary, to_begin, to_end) if v is not None))
    if not all(np.can_cast(v.dtype, x.dtype, "same_kind") for v in extra):
        raise TypeError(located("dtype of `to_begin` and `to_end` must be compatible with input `ary`"))
    differences = diff(raveled(x))
    if not extra:
        return differences
    ends = [to_dtype(raveled(v), x.dtype) for v in extra]
    return concatenate(
        [*(ends[:1] if to_begin is not None else []), differences, *(ends[-1:] if to_end is not None else [])]
    )


@implements(np.trapezoid)
def trapezoid(y: ArrayLike, x: ArrayLike | None = None, dx: float = 1.0, axis: int = -1) -> Array:
    """`np.trapezoid`."""
    if x is None:
        (values,) = arrays(y)
        spacing: Any = dx
    else:
        values, points = arrays(y, x)
        spacing = diff(points, axis=axis if len(points.shape) > 1 else -1)
        if len(points.shape) == 1:
            k = normalize_axis("trapezoid", axis, len(values.shape))
            spacing = reshape(spacing, shape=tuple(spacing.shape[0] if i == k else 1 for i in range(len(values.shape))))
    k = normalize_axis("trapezoid", axis, len(values.shape))
    n = values.shape[k]
    pairs = add(along(values, k, min(n, 1), n), along(values, k, 0, max(n - 1, 0)))
    return _sum(divide(multiply(spacing, pairs), 2.0), k)


# -- grids ---------------------------------------------------------------------------------------------------------
@implements(np.ix_)
def ix_(*args: ArrayLike) -> tuple[Array, ...]:
    """`np.ix_`, of integers."""
    xs, result = arrays(*args), []
    for k, x in enumerate(xs):
        if len(x.shape) != 1:
            raise ValueError(located("Cross index must be 1 dimensional"))
        if x.dtype.kind not in "iu":
            raise refuse("np.ix_ of what is no integer", "use np.nonzero outside")
        result.append(reshape(x, shape=(*(1,) * k, x.shape[0], *(1,) * (len(xs) - k - 1))))
    return tuple(result)


@implements(np.meshgrid)
def meshgrid(*xi: ArrayLike, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> tuple[Array, ...]:
    """`np.meshgrid`."""
    if indexing not in ("xy", "ij"):
        raise ValueError(located("Valid values for `indexing` are 'xy' and 'ij'."))
    xs = arrays(*xi)
    n = len(xs)
    order = list(range(n))
    if indexing == "xy" and n > 1:
        order[:2] = [1, 0]
    grid = [reshape(x, shape=tuple(size_of(x) if k == order[i] else 1 for k in range(n))) for i, x in enumerate(xs)]
    if sparse:
        return tuple(in_memory_order(x, "C") for x in grid) if copy else tuple(grid)
    dense = broadcast_arrays("meshgrid", grid, broadcast_shapes("meshgrid", *(g.shape for g in grid)))
    return tuple(in_memory_order(x, "C") for x in dense) if copy else tuple(dense)


@implements(np.kron)
def kron(a: ArrayLike, b: ArrayLike) -> Array:
    """`np.kron`."""
    x, y = arrays(a, b)
    rank = max(len(x.shape), len(y.shape))
    p, q = ((1,) * (rank - len(v.shape)) + v.shape for v in (x, y))
    left = reshape(x, shape=tuple(n for m in p for n in (m, 1)))
    right = reshape(y, shape=tuple(n for m in q for n in (1, m)))
    return reshape(multiply(left, right), shape=tuple(math.prod(pair) for pair in zip(p, q)))
