"""Arrays taken apart along an axis, and put together: `unbind` and `split`, whose results are views, and `stack`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.errors import ShapeError
from tracegrad.ops.forms import Compose
from tracegrad.ops.linear import concatenate, full, reshape, slice
from tracegrad.ops.op import Several, primitive
from tracegrad.ops.samples import uniform

__all__ = ["split", "stack", "unbind"]


def _has_axis(name: str, x: Aval, axis: int) -> None:
    if not 0 <= axis < x.ndim:
        raise ShapeError(f"{name}: {x} has no axis {axis}")


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


def _part(x: Any, axis: int, start: int, stop: int) -> Any:
    low, high = ([n if a == axis else other for a, other in enumerate(rest)] for n, rest in (
        (start, (0,) * len(x.shape)), (stop, x.shape)
    ))  # fmt: skip
    return slice(x, start=tuple(low), stop=tuple(high), step=(1,) * len(low))


def _with_part(x: Any, new: Any, axis: int, start: int) -> Any:
    """`x` with `new` from `start` on."""
    stop, n = start + new.shape[axis], x.shape[axis]
    pieces = [_part(x, axis, 0, start), new, _part(x, axis, stop, n)]
    return concatenate(*[piece for piece in pieces if piece.shape[axis] or piece is new], axis=axis)


def _joined(cts: Sequence[Any], shapes: Sequence[tuple[int, ...]], axis: int) -> Any:
    """The cotangents of neighbours along `axis` as one array; None is zero for a whole run of them."""
    given = next(ct for ct in cts if ct is not None)
    pieces = []
    for absent, run in itertools.groupby(zip(cts, shapes), lambda pair: pair[0] is None):
        if not absent:
            pieces += [ct for ct, _ in run]
            continue
        sizes = [shape[axis] for _, shape in run]
        shape = (*shapes[0][:axis], sum(sizes), *shapes[0][axis + 1 :])
        pieces.append(full(shape=shape, value=False if given.dtype.kind == "b" else 0.0, dtype=given.dtype.name))
    return concatenate(*pieces, axis=axis) if len(pieces) > 1 else pieces[0]


# -- stack -----------------------------------------------------------------------------------------------
def _stacked(*xs: Any, axis: int) -> Any:
    shape = (*xs[0].shape[:axis], 1, *xs[0].shape[axis:])
    return concatenate(*[reshape(x, shape=shape) for x in xs], axis=axis)


@primitive(Compose(_stacked, moves=True))
def stack(*xs: Any, axis: int) -> Any:
    """Arrays of one shape and dtype along a new axis."""
    return np.stack(xs, axis)


@stack.def_aval
def _(*xs: Aval, axis: int) -> Aval:
    if not 0 <= axis <= xs[0].ndim or any(x != xs[0] for x in xs):
        raise ShapeError(f"stack: cannot join {', '.join(map(str, xs))} along a new axis {axis}")
    return Aval((*xs[0].shape[:axis], len(xs), *xs[0].shape[axis:]), xs[0].dtype)


stack.linear_in("xs")


@stack.def_vjp_all
def _(wanted: Sequence[int], ct: Any, ans: Any, *xs: Any, axis: int) -> list[Any]:
    parts = unbind(ct, axis=axis)
    return [parts[i] for i in wanted]


@stack.def_samples
def _() -> Any:
    yield (uniform((2, 3)), uniform((2, 3), seed=1)), {"axis": 0}
    yield tuple(uniform((20,), seed=k, dtype="float32") for k in range(3)), {"axis": 1}


# -- unbind ----------------------------------------------------------------------------------------------
def _unbound(x: Any, *, axis: int) -> tuple[Any, ...]:
    shape = _without(x.shape, axis)
    return tuple([reshape(_part(x, axis, k, k + 1), shape=shape) for k in range(x.shape[axis])])


@primitive(Compose(_unbound, moves=True), aliases=True)
def unbind(x: Any, *, axis: int) -> tuple[Any, ...]:
    """What `x` has along `axis`, one by one, without that axis."""
    before = (np.s_[:],) * axis
    return tuple([x[(*before, k, ...)] for k in range(x.shape[axis])])


@unbind.def_aval
def _(x: Aval, *, axis: int) -> Several:
    _has_axis("unbind", x, axis)
    return Several((Aval(_without(x.shape, axis), x.dtype),) * x.shape[axis])


unbind.linear_in("x")


@unbind.def_vjp_all
def _(wanted: Sequence[int], cts: Any, ans: Any, x: Any, *, axis: int) -> list[Any]:
    if all(ct is not None for ct in cts):
        return [stack(*cts, axis=axis)]
    shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    grown = [None if ct is None else reshape(ct, shape=shape) for ct in cts]
    return [_joined(grown, [shape] * len(cts), axis)]


@unbind.def_put
def _(base: Any, new: Any, *, axis: int, number: int) -> Any:
    grown = reshape(new, shape=(*new.shape[:axis], 1, *new.shape[axis:]))
    return _with_part(base, grown, axis, number)


@unbind.def_samples
def _() -> Any:
    yield (uniform((3, 4)),), {"axis": 0}
    yield (uniform((2, 3, 12), dtype="float32"),), {"axis": 1}
    yield (uniform((2,)),), {"axis": 0}


# -- split -----------------------------------------------------------------------------------------------
def _parts(x: Any, *, axis: int, bounds: tuple[int, ...]) -> tuple[Any, ...]:
    return tuple([_part(x, axis, a, b) for a, b in itertools.pairwise(bounds)])


@primitive(Compose(_parts, moves=True), aliases=True)
def split(x: Any, *, axis: int, bounds: tuple[int, ...]) -> tuple[Any, ...]:
    """The parts of `x` along `axis` between neighbours of `bounds`, which go from 0 to its size."""
    before = (np.s_[:],) * axis
    return tuple([x[(*before, np.s_[a:b])] for a, b in itertools.pairwise(bounds)])


@split.def_aval
def _(x: Aval, *, axis: int, bounds: tuple[int, ...]) -> Several:
    _has_axis("split", x, axis)
    if list(bounds) != sorted(bounds) or (bounds[0], bounds[-1]) != (0, x.shape[axis]):
        raise ShapeError(f"split: {bounds} are not the bounds of parts of axis {axis} of {x}")
    sizes = [b - a for a, b in itertools.pairwise(bounds)]
    return Several([Aval((*x.shape[:axis], n, *x.shape[axis + 1 :]), x.dtype) for n in sizes])


split.linear_in("x")


@split.def_vjp_all
def _(wanted: Sequence[int], cts: Any, ans: Any, x: Any, *, axis: int, bounds: tuple[int, ...]) -> list[Any]:
    return [_joined(cts, [y.shape for y in ans], axis)]


@split.def_put
def _(base: Any, new: Any, *, axis: int, bounds: tuple[int, ...], number: int) -> Any:
    return _with_part(base, new, axis, bounds[number])


@split.def_samples
def _() -> Any:
    yield (uniform((5, 3)),), {"axis": 0, "bounds": (0, 2, 2, 5)}
    yield (uniform((2, 30), dtype="float32"),), {"axis": 1, "bounds": (0, 12, 24, 30)}
