"""Linear and data movement ops; the vjp of each is its transpose, another op of this module."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval, name_of, supported
from tracegrad.errors import ShapeError
from tracegrad.ops.core.forms import Along, Cast, FoldForm, IdentityForm, Move, Reshape
from tracegrad.ops.core.index_maps import OperandRead, Range
from tracegrad.ops.core.op import AS_WRITTEN, TABLE, Carrier, Sample, primitive
from tracegrad.ops.core.samples import integers, uniform
from tracegrad.ops.shape.fill import arange as arange
from tracegrad.ops.shape.fill import full as full
from tracegrad.ops.shape.fill import zeros_like as zeros_like
from tracegrad.typing import Array, DType, NDArray, Shape

if TYPE_CHECKING:
    from collections.abc import Iterator


# -- cast ------------------------------------------------------------------------------------------
@primitive(Cast(), on_complex=AS_WRITTEN)
def cast(x: NDArray, *, dtype: str) -> NDArray:
    """`x` converted to `dtype`, as `ndarray.astype` does."""
    return np.asarray(x).astype(dtype)


@cast.def_aval
def _(x: Aval, *, dtype: str) -> Aval:
    return Aval(x.shape, supported(dtype, "cast"))


@cast.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, *, dtype: str) -> Array:
    return in_dtype(ct, x.dtype)


@cast.def_jvp
def _(tangents: tuple[Array, ...], ans: Array, x: Array, *, dtype: str) -> Array:
    return in_dtype(tangents[0], ans.dtype)


def in_dtype(ct: Array, dtype: DType) -> Array:
    """The cotangent of a value of `dtype`, given the cotangent of the converted value: the real part for a real
    value."""
    if ct.dtype.kind == "c" and dtype.kind != "c":
        ct = TABLE["real"](ct)
    return cast(ct, dtype=name_of(dtype))


@cast.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((3, 4), dtype="float32"),), {"dtype": "float64"}
    yield (uniform((3, 4)),), {"dtype": "float32"}
    yield (uniform((3, 4), -9, 9),), {"dtype": "int64"}
    yield (integers((3, 4), -2, 2),), {"dtype": "bool"}
    yield (integers((3, 4), 0, 2, dtype="bool"),), {"dtype": "float64"}
    yield (integers((3, 4), -300, 300),), {"dtype": "int8"}


# -- fresh: the same values under another name -----------------------------------------------------
@primitive(IdentityForm())
def fresh(x: NDArray, *, tag: int) -> NDArray:
    """`x`, as a new value to differentiate with respect to; different tags are different values."""
    return np.array(x)


@fresh.def_aval
def _(x: Aval, *, tag: int) -> Aval:
    return x


@fresh.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, *, tag: int) -> Array:
    return ct


@fresh.def_jvp
def _(tangents: tuple[Array, ...], ans: object, x: object, *, tag: int) -> Any:
    return tangents[0]


@fresh.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((3,)),), {"tag": 0}


# -- stop_gradient -----------------------------------------------------------------------------------
@primitive(IdentityForm())
def stop_gradient(x: NDArray) -> NDArray:
    """`x`, as a constant for every derivative."""
    return np.array(x)


@stop_gradient.def_aval
def _(x: Aval) -> Aval:
    return x


@stop_gradient.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((3,)),), {}


# -- reshape -----------------------------------------------------------------------------------------
@primitive(Reshape(), aliases=True)
def reshape(x: NDArray, *, shape: Shape) -> NDArray:
    """The elements of `x`, in row-major order, in another shape."""
    return x.reshape(shape)


@reshape.def_aval
def _(x: Aval, *, shape: Shape) -> Aval:
    if x.size != math.prod(shape):
        raise ShapeError(f"reshape: cannot turn {x} into shape {tuple(shape)}")
    return Aval(tuple(shape), x.dtype)


reshape.linear_in("x")


@reshape.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, *, shape: Shape) -> Array:
    return reshape(ct, shape=x.shape)


@reshape.def_batch
def _(size: int, batched: tuple[bool, ...], x: Array, *, shape: Shape) -> Array:
    return reshape(x, shape=(size, *shape))


@reshape.def_view_update
def _(base: Array, new: Array, *, shape: Shape) -> Array:
    return reshape(new, shape=base.shape)


@reshape.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((3, 4)),), {"shape": (2, 6)}
    yield (uniform((3, 1, 4)),), {"shape": (3, 4, 1)}
    yield (uniform(()),), {"shape": (1, 1)}


# -- transpose ---------------------------------------------------------------------------------------
def _permuted(n: int, m: int, *, perm: tuple[int, ...]) -> tuple[int, ...]:
    return perm


@primitive(Along(axes=_permuted), aliases=True)
def transpose(x: NDArray, *, perm: tuple[int, ...]) -> NDArray:
    """`x` with its axes permuted."""
    return x.transpose(perm)


@transpose.def_aval
def _(x: Aval, *, perm: tuple[int, ...]) -> Aval:
    if sorted(perm) != list(range(x.ndim)):
        raise ShapeError(f"transpose: {tuple(perm)} does not permute the axes of {x}")
    return Aval(tuple(x.shape[p] for p in perm), x.dtype)


transpose.linear_in("x")


@transpose.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, *, perm: tuple[int, ...]) -> Array:
    return transpose(ct, perm=inverse_permutation(perm))


@transpose.def_reads
def _(index: Any, size: object, shapes: object, result: object, *, perm: tuple[int, ...]) -> Any:
    return [OperandRead(0, tuple(index[p] for p in inverse_permutation(perm)))]


@transpose.def_batch
def _(size: int, batched: tuple[bool, ...], x: Array, *, perm: tuple[int, ...]) -> Array:
    return transpose(x, perm=(0, *(p + 1 for p in perm)))


@transpose.def_view_update
def _(base: Array, new: Array, *, perm: tuple[int, ...]) -> Array:
    return transpose(new, perm=inverse_permutation(perm))


@transpose.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((2, 3, 4)),), {"perm": (2, 0, 1)}
    yield (uniform((20, 30)),), {"perm": (1, 0)}


def inverse_permutation(perm: tuple[int, ...]) -> tuple[int, ...]:
    """The permutation that undoes `perm`."""
    return tuple(sorted(range(len(perm)), key=perm.__getitem__))


# -- broadcast_to and reduce_sum: each the other's transpose -----------------------------------------
def _trailing(n: int, m: int, *, shape: Shape) -> list[int | None]:
    return [None] * (m - n) + [*range(n)]


@primitive(Along(axes=_trailing), aliases=True)
def broadcast_to(x: NDArray, *, shape: Shape) -> NDArray:
    """`x` repeated along new leading axes and along axes of size one."""
    return np.broadcast_to(x, shape)


@broadcast_to.def_aval
def _(x: Aval, *, shape: Shape) -> Aval:
    new = len(shape) - x.ndim
    if new < 0 or any(n not in (1, m) for n, m in zip(x.shape, shape[new:])):
        raise ShapeError(f"broadcast_to: cannot broadcast {x} to shape {tuple(shape)}")
    return Aval(tuple(shape), x.dtype)


broadcast_to.linear_in("x")


@broadcast_to.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, *, shape: Shape) -> Array:
    new = len(shape) - len(x.shape)
    axes = tuple(i for i, n in enumerate(shape) if i < new or x.shape[i - new] != n)
    ct = reduce_sum(ct, axes=axes)
    return ct if ct.shape == x.shape else reshape(ct, shape=x.shape)


@broadcast_to.def_reads
def _(index: Any, size: Any, shapes: Any, result: object, *, shape: Shape) -> Any:
    new = len(index) - len(shapes[0])
    return [OperandRead(0, tuple(size(0) if size.is_one(n) else i for n, i in zip(shapes[0], index[new:])))]


@broadcast_to.def_batch
def _(size: int, batched: tuple[bool, ...], x: Array, *, shape: Shape) -> Array:
    new = (1,) * (len(shape) + 1 - len(x.shape))
    return broadcast_to(reshape(x, shape=(size, *new, *x.shape[1:])) if new else x, shape=(size, *shape))


@broadcast_to.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((3, 1)),), {"shape": (2, 3, 4)}
    yield (uniform(()),), {"shape": (2,)}
    yield (uniform((30,)),), {"shape": (20, 30)}


# The quickest call for a sum over axes. The stubs of NumPy 2.5 have it with `out=` or `keepdims=` only.
sum_over: Callable[..., Any] = np.add.reduce


@primitive(FoldForm("add"))
def reduce_sum(x: NDArray, *, axes: tuple[int, ...]) -> Any:
    """The sum of `x` over `axes`, which disappear; the dtype stays."""
    return sum_over(x, axes, x.dtype)


@reduce_sum.def_aval
def _(x: Aval, *, axes: tuple[int, ...]) -> Aval:
    return Aval(reduced_shape(x.shape, axes), x.dtype)


reduce_sum.linear_in("x")


@reduce_sum.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, *, axes: tuple[int, ...]) -> Array:
    return unreduce(ct, x.shape, axes)


@reduce_sum.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((3, 4)),), {"axes": (1,)}
    yield (uniform((2, 3, 4), dtype="float32"),), {"axes": (0, 2)}
    yield (uniform((30, 40)),), {"axes": (0,)}
    yield (uniform((1000,)),), {"axes": (0,)}
    yield (integers((5, 6), -9, 9),), {"axes": (0, 1)}


def reduced_shape(shape: Shape, axes: tuple[int, ...]) -> tuple[int, ...]:
    """`shape` without `axes`."""
    if any(a not in range(len(shape)) for a in axes):
        raise ShapeError(f"axes {axes} are out of bounds for shape {shape}")
    return tuple(n for i, n in enumerate(shape) if i not in axes)


def keep_axes(x: Array, shape: Shape, axes: tuple[int, ...]) -> Array:
    """The result `x` of a reduction of `shape` over `axes`, with `axes` restored at size one."""
    return reshape(x, shape=tuple(1 if i in axes else n for i, n in enumerate(shape)))


def unreduce(x: Array, shape: Shape, axes: tuple[int, ...]) -> Array:
    """Undo the shape of a reduction: restore `axes`, and repeat along them."""
    if len(axes) == len(shape):
        if not shape:
            return x
        if not isinstance(x, Carrier) and math.prod(shape) <= 1024:
            return np.full(shape, x, x.dtype)  # NumPy makes it faster than a view
        return broadcast_to(x, shape=tuple(shape))
    return broadcast_to(keep_axes(x, shape, axes), shape=tuple(shape))


# -- slice and pad: each the other's transpose -------------------------------------------------------
def _all_indices(n: int, m: int, **params: object) -> range:
    return range(n)


def _selection(start: Shape, stop: Shape, step: Shape) -> tuple[Shape, Shape]:
    return start, step


@primitive(Along(axes=_all_indices, partial=True, selection=_selection), aliases=True)
def slice(x: NDArray, *, start: Shape, stop: Shape, step: Shape) -> NDArray:
    """`x[start:stop:step]` along every axis, with 0 <= start <= stop <= n and step > 0."""
    index: Any = (..., *[builtins.slice(*p) for p in zip(start, stop, step)])
    result: NDArray = x[index]  # a view even without axes
    return result


@slice.def_aval
def _(x: Aval, *, start: Shape, stop: Shape, step: Shape) -> Aval:
    if not len(start) == len(stop) == len(step) == x.ndim or any(
        not (0 <= a <= b <= n and s > 0) for a, b, s, n in zip(start, stop, step, x.shape)
    ):
        raise ShapeError(f"slice: [{start}:{stop}:{step}] does not lie in {x}")
    return Aval(tuple(-((a - b) // s) for a, b, s in zip(start, stop, step)), x.dtype)


slice.linear_in("x")


@slice.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, *, start: Shape, stop: Shape, step: Shape) -> Array:
    ends = tuple(n - (a + (m - 1) * s + 1 if m else a) for n, a, s, m in zip(x.shape, start, step, ans.shape))
    return pad(ct, low=start, high=ends, interior=tuple(s - 1 for s in step), value=0)


@slice.def_reads
def _(index: Any, size: Any, shapes: object, result: object, *, start: Any, stop: Shape, step: Any) -> Any:
    return [OperandRead(0, tuple(i * size(s) + size(a) for i, a, s in zip(index, start, step)))]


@slice.def_batch
def _(size: int, batched: tuple[bool, ...], x: Array, *, start: Shape, stop: Shape, step: Shape) -> Array:
    return slice(x, start=(0, *start), stop=(size, *stop), step=(1, *step))


@slice.def_view_update
def _(base: Array, new: Array, *, start: Shape, stop: Shape, step: Shape) -> Any:
    if new.shape == base.shape:
        return new
    ends = tuple(n - (a + (m - 1) * s + 1 if m else a) for n, a, s, m in zip(base.shape, start, step, new.shape))
    widths = {"low": start, "high": ends, "interior": tuple(s - 1 for s in step)}
    inside = pad(full(shape=new.shape, value=True, dtype="bool"), **widths, value=False)
    return TABLE["where"](inside, pad(new, **widths, value=0), base)


@slice.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((10,)),), {"start": (1,), "stop": (10,), "step": (1,)}
    yield (uniform((5, 7)),), {"start": (0, 2), "stop": (5, 7), "step": (2, 3)}
    yield (uniform((40, 30)),), {"start": (12, 0), "stop": (33, 29), "step": (1, 2)}


@primitive(Along(axes=_all_indices, fills=True), order="A")
def pad(x: NDArray, *, low: Shape, high: Shape, interior: Shape, value: float) -> NDArray:
    """`x` with `low` elements of `value` before each axis, `high` after, and `interior` between its elements."""
    out = np.full(padded_shape(x.shape, low, high, interior), value, x.dtype, order="F" if x.flags.fnc else "C")
    out[
        tuple(
            builtins.slice(a, a + (n - 1) * (g + 1) + 1 if n else a, g + 1) for a, n, g in zip(low, x.shape, interior)
        )
    ] = x
    return out


def padded_shape(shape: Shape, low: Shape, high: Shape, interior: Shape) -> tuple[int, ...]:
    """The shape of `pad`."""
    return tuple(a + n + max(n - 1, 0) * g + b for n, a, b, g in zip(shape, low, high, interior))


@pad.def_aval
def _(x: Aval, *, low: Shape, high: Shape, interior: Shape, value: float) -> Aval:
    if not len(low) == len(high) == len(interior) == x.ndim or min((*low, *high, *interior, 0)) < 0:
        raise ShapeError(f"pad: widths low={low} high={high} interior={interior} do not fit {x}")
    return Aval(padded_shape(x.shape, low, high, interior), x.dtype)


@pad.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, *, low: Shape, high: Shape, interior: Shape, value: float) -> Array:
    step = tuple(g + 1 for g in interior)
    stop = tuple(a + (n - 1) * s + 1 if n else a for a, n, s in zip(low, x.shape, step))
    return slice(ct, start=tuple(low), stop=stop, step=step)


@pad.def_jvp
def _(
    tangents: tuple[Array, ...], ans: Array, x: Array, *, low: Shape, high: Shape, interior: Shape, value: float
) -> Array:
    return pad(tangents[0], low=low, high=high, interior=interior, value=0)


@pad.def_reads
def _(index: Any, size: Any, shapes: Any, result: object, *, low: Any, high: Any, interior: Any, value: float) -> Any:
    inner, ranges = [], []
    for i, n, a, b, g in zip(index, shapes[0], low, high, interior):
        inner.append(size.divide(i - size(a), g + 1) if g else i - size(a))
        if a or b or g:
            ranges.append(Range(size(a), i, size(a) + (n - size(1)) * size(g + 1) + size(1), g + 1))
    return [OperandRead(0, tuple(inner), tuple(ranges))]


@pad.def_batch
def _(
    size: int, batched: tuple[bool, ...], x: Array, *, low: Shape, high: Shape, interior: Shape, value: float
) -> Array:
    return pad(x, low=(0, *low), high=(0, *high), interior=(0, *interior), value=value)


@pad.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((4,)),), {"low": (1,), "high": (2,), "interior": (0,), "value": 0}
    yield (uniform((3, 2)),), {"low": (0, 1), "high": (2, 0), "interior": (1, 2), "value": 1.5}
    yield (uniform((30, 20)),), {"low": (10, 0), "high": (0, 12), "interior": (0, 0), "value": 0}


# -- flip --------------------------------------------------------------------------------------------
@primitive(Along(axes=_all_indices), aliases=True)
def flip(x: NDArray, *, axes: tuple[int, ...]) -> NDArray:
    """`x` with the order of its elements reversed along `axes`."""
    return np.flip(x, axes) if axes else x[...]  # np.flip reads an array without axes


@flip.def_aval
def _(x: Aval, *, axes: tuple[int, ...]) -> Aval:
    reduced_shape(x.shape, axes)
    return x


flip.linear_in("x")


@flip.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, *, axes: tuple[int, ...]) -> Array:
    return flip(ct, axes=axes)


@flip.def_reads
def _(index: Any, size: Any, shapes: Any, result: Any, *, axes: tuple[int, ...]) -> Any:
    return [
        OperandRead(0, tuple(n - size(1) - i if k in axes else i for k, (i, n) in enumerate(zip(index, shapes[0]))))
    ]


@flip.def_view_update
def _(base: Array, new: Array, *, axes: tuple[int, ...]) -> Array:
    return flip(new, axes=axes)


@flip.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((3, 4)),), {"axes": (0,)}
    yield (uniform((13, 14)),), {"axes": (0, 1)}


# -- concatenate -------------------------------------------------------------------------------------
@primitive(Move(), order="joined")
def concatenate(*xs: NDArray, axis: int) -> NDArray:
    """Arrays of one dtype joined along `axis`."""
    return np.concatenate(xs, axis)


@concatenate.def_aval
def _(*xs: Aval, axis: int) -> Aval:
    first = xs[0]
    rest = [x.shape[:axis] + x.shape[axis + 1 :] for x in xs if x.ndim == first.ndim and x.dtype == first.dtype]
    if not 0 <= axis < first.ndim or rest != [first.shape[:axis] + first.shape[axis + 1 :]] * len(xs):
        raise ShapeError(f"concatenate: cannot join {', '.join(map(str, xs))} along axis {axis}")
    return Aval((*first.shape[:axis], sum(x.shape[axis] for x in xs), *first.shape[axis + 1 :]), first.dtype)


concatenate.linear_in("xs")


@concatenate.def_vjp("xs")
def _(i: int, ct: Array, ans: Array, *xs: Array, axis: int) -> Array:
    begin = sum(x.shape[axis] for x in xs[:i])
    start = tuple(begin if k == axis else 0 for k in range(len(ans.shape)))
    stop = tuple(a + n for a, n in zip(start, xs[i].shape))
    return slice(ct, start=start, stop=stop, step=(1,) * len(start))


@concatenate.def_reads
def _(index: Any, size: Any, shapes: Any, result: Any, *, axis: int) -> Any:
    reads, begin = [], size(0)
    for k, s in enumerate(shapes):
        end = begin + s[axis]
        inside = tuple(i - begin if a == axis else i for a, i in enumerate(index))
        reads.append(OperandRead(k, inside, (Range(begin, index[axis], end),)))
        begin = end
    return reads


@concatenate.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((2, 3)), uniform((1, 3), seed=1)), {"axis": 0}
    yield (uniform((2, 3)), uniform((2, 20), seed=1), uniform((2, 1), seed=2)), {"axis": 1}
