"""Split arrays along an axis into views (`unbind`, `split`), and join arrays (`place`, `stack`)."""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.errors import ShapeError
from tracegrad.ops.core.forms import Compose
from tracegrad.ops.core.op import ResultAvals, Sample, bind, multi_result, primitive
from tracegrad.ops.core.samples import uniform
from tracegrad.ops.shape.linear import concatenate, full, reshape, slice
from tracegrad.typing import Array, NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator


_WHOLE = builtins.slice(None)


def _has_axis(name: str, x: Aval, axis: int) -> None:
    if not 0 <= axis < x.ndim:
        raise ShapeError(f"{name}: {x} has no axis {axis}")


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


def _slice_along(x: Array, axis: int, start: int, stop: int) -> Array:
    low, high = (
        [n if a == axis else other for a, other in enumerate(rest)]
        for n, rest in ((start, (0,) * len(x.shape)), (stop, x.shape))
    )
    return slice(x, start=tuple(low), stop=tuple(high), step=(1,) * len(low))


def _replace_slice(x: Array, new: Array, axis: int, start: int) -> Array:
    """`x` with `new` written from `start` on."""
    stop, n = start + new.shape[axis], x.shape[axis]
    segments = [_slice_along(x, axis, 0, start), new, _slice_along(x, axis, stop, n)]
    return concatenate(*[segment for segment in segments if segment.shape[axis] or segment is new], axis=axis)


# -- place -----------------------------------------------------------------------------------------------
def _grown(x: Array, axis: int) -> Array:
    return reshape(x, shape=(*x.shape[:axis], 1, *x.shape[axis:]))


def _placed(*parts: Any, axis: int, starts: tuple[int, ...], size: int, grown: bool) -> Array:
    segments, end = [], 0
    for part, start in zip([_grown(x, axis) for x in parts] if grown else parts, starts):
        segments += [_zeros(part, axis, start - end), part]
        end = start + part.shape[axis]
    segments = [x for x in [*segments, _zeros(segments[-1], axis, size - end)] if x is not None]
    return concatenate(*segments, axis=axis) if len(segments) > 1 else segments[0]


def _zeros(like: Array, axis: int, size: int) -> Any:
    """Zeros of the shape of `like` except along `axis`; None if there are none."""
    shape = (*like.shape[:axis], size, *like.shape[axis + 1 :])
    return full(shape=shape, value=False if like.dtype.kind == "b" else 0.0, dtype=like.dtype.name) if size else None


@primitive(Compose(_placed, moves=True))
def place(*parts: NDArray, axis: int, starts: tuple[int, ...], size: int, grown: bool) -> NDArray:
    """An array of `size` along `axis` with the parts at the ascending positions `starts`, and zeros elsewhere.

    If `grown`, the parts do not have that axis: each is one element along it. This op is the transpose of splitting.
    """
    shape, before = parts[0].shape, (_WHOLE,) * axis
    out = np.zeros((*shape[:axis], size, *shape[axis + (not grown) :]), parts[0].dtype)
    for part, start in zip(parts, starts):
        at: Any = start if grown else builtins.slice(start, start + part.shape[axis])
        out[(*before, at) if before else at] = part
    return out


@place.def_aval
def _(*parts: Aval, axis: int, starts: tuple[int, ...], size: int, grown: bool) -> Aval:
    shapes = [(*x.shape[:axis], 1, *x.shape[axis:]) if grown else x.shape for x in parts]
    ends = [0, *(start + shape[axis] for start, shape in zip(starts, shapes))]
    rest = {(_without(shape, axis), x.dtype) for shape, x in zip(shapes, parts)}
    if len(rest) != 1 or any(a > b for a, b in zip(ends, (*starts, size))):
        raise ShapeError(f"place: {', '.join(map(str, parts))} do not fit at {starts} of {size} along axis {axis}")
    return Aval((*shapes[0][:axis], size, *shapes[0][axis + 1 :]), parts[0].dtype)


place.linear_in("parts")


@place.def_vjp_all
def _(
    wanted: Sequence[int],
    ct: Array,
    ans: Array,
    *parts: Any,
    axis: int,
    starts: tuple[int, ...],
    size: int,
    grown: bool,
) -> list[Any]:
    results = []
    for i in wanted:
        length = 1 if grown else parts[i].shape[axis]
        segment = _slice_along(ct, axis, starts[i], starts[i] + length)
        results.append(reshape(segment, shape=parts[i].shape) if grown else segment)
    return results


@place.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((2, 3)), uniform((1, 3), seed=1)), {"axis": 0, "starts": (0, 3), "size": 4, "grown": False}
    yield (uniform((2, 3)), uniform((2, 3), seed=1)), {"axis": 1, "starts": (1, 2), "size": 12, "grown": True}
    yield (uniform((20,), dtype="float32"),), {"axis": 0, "starts": (3,), "size": 30, "grown": False}


# -- stack -----------------------------------------------------------------------------------------------
def _stacked(*xs: Array, axis: int) -> Array:
    return concatenate(*[_grown(x, axis) for x in xs], axis=axis)


@primitive(Compose(_stacked, moves=True), order="joined")
def stack(*xs: NDArray, axis: int) -> NDArray:
    """Arrays of one shape and dtype along a new axis."""
    if not all(x.flags.c_contiguous for x in xs):
        return np.stack(xs, axis)
    if not axis:
        return np.array(xs, xs[0].dtype)
    before: Any = (_WHOLE,) * axis
    out = np.empty((*xs[0].shape[:axis], len(xs), *xs[0].shape[axis:]), xs[0].dtype)
    for k, x in enumerate(xs):
        out[(*before, k)] = x
    return out


@stack.def_aval
def _(*xs: Aval, axis: int) -> Aval:
    if not 0 <= axis <= xs[0].ndim or any(x != xs[0] for x in xs):
        raise ShapeError(f"stack: cannot join {', '.join(map(str, xs))} along a new axis {axis}")
    return Aval((*xs[0].shape[:axis], len(xs), *xs[0].shape[axis:]), xs[0].dtype)


stack.linear_in("xs")


@stack.def_vjp_all
def _(wanted: Sequence[int], ct: Array, ans: Array, *xs: Array, axis: int) -> list[Any]:
    parts = unbind(ct, axis=axis)
    return [parts[i] for i in wanted]


@stack.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((2, 3)), uniform((2, 3), seed=1)), {"axis": 0}
    yield tuple(uniform((20,), seed=k, dtype="float32") for k in range(3)), {"axis": 1}


# -- unbind ----------------------------------------------------------------------------------------------
def _unbound(x: Array, *, axis: int) -> tuple[Array, ...]:
    shape = _without(x.shape, axis)
    return tuple([reshape(_slice_along(x, axis, k, k + 1), shape=shape) for k in range(x.shape[axis])])


@multi_result(Compose(_unbound, moves=True), aliases=True)
def unbind(x: NDArray, *, axis: int) -> tuple[NDArray, ...]:
    """The slices of `x` along `axis`, without that axis."""
    if x.ndim == 1:
        return tuple([x[k, ...] for k in range(x.shape[0])])
    return tuple(x.swapaxes(0, axis)) if axis < 2 else tuple(np.moveaxis(x, axis, 0))


@unbind.def_aval
def _(x: Aval, *, axis: int) -> ResultAvals:
    _has_axis("unbind", x, axis)
    return ResultAvals((Aval(_without(x.shape, axis), x.dtype),) * x.shape[axis])


unbind.linear_in("x")


@unbind.def_vjp_all
def _(
    wanted: Sequence[int], cts: tuple[Array | None, ...], ans: tuple[Array, ...], x: Array, *, axis: int
) -> list[Any]:
    operands = tuple([ct for ct in cts if ct is not None])
    if len(operands) == len(cts):
        return [bind(stack, operands, {"axis": axis})]
    starts = tuple([k for k, ct in enumerate(cts) if ct is not None])
    return [bind(place, operands, {"axis": axis, "starts": starts, "size": x.shape[axis], "grown": True})]


@unbind.def_view_update
def _(base: Array, new: Array, *, axis: int, number: int) -> Array:
    return _replace_slice(base, _grown(new, axis), axis, number)


@unbind.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((3, 4)),), {"axis": 0}
    yield (uniform((2, 3, 12), dtype="float32"),), {"axis": 1}
    yield (uniform((2,)),), {"axis": 0}


# -- split -----------------------------------------------------------------------------------------------
def _split_parts(x: Array, *, axis: int, bounds: tuple[int, ...]) -> tuple[Array, ...]:
    return tuple([_slice_along(x, axis, a, b) for a, b in itertools.pairwise(bounds)])


@multi_result(Compose(_split_parts, moves=True), aliases=True)
def split(x: NDArray, *, axis: int, bounds: tuple[int, ...]) -> tuple[NDArray, ...]:
    """The parts of `x` along `axis` between adjacent `bounds`, which go from 0 to its size."""
    before = (_WHOLE,) * axis
    return tuple([x[(*before, builtins.slice(a, b))] for a, b in itertools.pairwise(bounds)])


@split.def_aval
def _(x: Aval, *, axis: int, bounds: tuple[int, ...]) -> ResultAvals:
    _has_axis("split", x, axis)
    if list(bounds) != sorted(bounds) or (bounds[0], bounds[-1]) != (0, x.shape[axis]):
        raise ShapeError(f"split: {bounds} are not the bounds of parts of axis {axis} of {x}")
    sizes = [b - a for a, b in itertools.pairwise(bounds)]
    return ResultAvals([Aval((*x.shape[:axis], n, *x.shape[axis + 1 :]), x.dtype) for n in sizes])


split.linear_in("x")


@split.def_vjp_all
def _(
    wanted: Sequence[int],
    cts: tuple[Array | None, ...],
    ans: tuple[Array, ...],
    x: Array,
    *,
    axis: int,
    bounds: tuple[int, ...],
) -> list[Any]:
    operands = tuple([ct for ct in cts if ct is not None])
    if len(operands) == len(cts):
        return [bind(concatenate, operands, {"axis": axis})]
    starts = tuple([start for start, ct in zip(bounds, cts) if ct is not None])
    return [bind(place, operands, {"axis": axis, "starts": starts, "size": x.shape[axis], "grown": False})]


@split.def_view_update
def _(base: Array, new: Array, *, axis: int, bounds: tuple[int, ...], number: int) -> Array:
    return _replace_slice(base, new, axis, bounds[number])


@split.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((5, 3)),), {"axis": 0, "bounds": (0, 2, 2, 5)}
    yield (uniform((2, 30), dtype="float32"),), {"axis": 1, "bounds": (0, 12, 24, 30)}
