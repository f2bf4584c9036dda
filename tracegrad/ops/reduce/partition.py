"""Compute order statistics without a full sort (partition, select), and running extrema.

It is unspecified which of equal elements is selected. Each selected position has one element, which gets the
derivative.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.errors import ShapeError
from tracegrad.ops.core.forms import Compose
from tracegrad.ops.core.op import AS_WRITTEN, Op, ResultAvals, Sample, multi_result, primitive
from tracegrad.ops.core.samples import integers, uniform
from tracegrad.ops.reduce.sorting import argsort, cumargmax, cumargmin, scatter_along, take_along
from tracegrad.ops.shape.linear import reduced_shape
from tracegrad.typing import Array, NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator


Positions = tuple[int, ...]


# -- select ------------------------------------------------------------------------------------------------------
def _shape(x: Aval, places: Positions) -> tuple[int, ...]:
    if not x.ndim or not places or not all(0 <= k < x.shape[-1] for k in places):
        raise ShapeError(f"select: {x} has no places {places} along its last axis")
    return (*x.shape[:-1], len(places))


@primitive(on_complex=AS_WRITTEN)
def argselect(x: NDArray, *, places: Positions) -> NDArray:
    """The indices along the last axis of the elements at positions `places` of the sorted order."""
    return np.argpartition(x, places, axis=-1)[..., list(places)]


@argselect.def_aval
def _(x: Aval, *, places: Positions) -> Aval:
    return Aval(_shape(x, places), np.dtype(np.int64))


@primitive(on_complex=AS_WRITTEN)
def select(x: NDArray, *, places: Positions) -> NDArray:
    """The elements at positions `places` of the sorted order along the last axis; nan counts as the largest."""
    return np.partition(x, places, axis=-1)[..., list(places)]


@select.def_aval
def _(x: Aval, *, places: Positions) -> Aval:
    return Aval(_shape(x, places), x.dtype)


@select.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, *, places: Positions) -> Array:
    return scatter_along(ct, argselect(x, places=places), len(x.shape) - 1, x.shape)


@select.def_jvp
def _(tangents: Any, ans: Array, x: Array, *, places: Positions) -> Array:
    return take_along(tangents[0], argselect(x, places=places), len(x.shape) - 1)


def _samples() -> Iterator[Sample]:
    yield (uniform((3, 4)),), {"places": (1, 3)}
    yield (uniform((21,), dtype="float32"),), {"places": (10,)}
    yield (integers((20, 3), 0, 5),), {"places": (2, 0)}


for _op in (argselect, select):
    _op.def_samples(_samples)


# -- select_at ---------------------------------------------------------------------------------------------------
def _partition_rows(partition: Any, x: Any, places: Any) -> Any:
    """The partition of each row, at the positions of the row."""
    if not places.size:
        return partition(x[..., :1], 0, axis=-1)[..., :0].reshape(places.shape)
    flat = places.reshape(-1, places.shape[-1])
    if (flat == flat[:1]).all():
        return partition(x, np.unique(flat[0]), axis=-1)[..., flat[0]]
    rows = x.reshape(-1, x.shape[-1])
    return np.stack([partition(row, np.unique(k))[k] for row, k in zip(rows, flat)]).reshape(places.shape)


@primitive()
def argselect_at(x: NDArray, places: NDArray) -> NDArray:
    """The indices along the last axis of the elements at positions `places` of the sorted order, per row."""
    result: NDArray = _partition_rows(np.argpartition, x, places)
    return result


@primitive()
def select_at(x: NDArray, places: NDArray) -> NDArray:
    """The elements at positions `places` of the sorted order of each row; nan counts as the largest."""
    result: NDArray = _partition_rows(np.partition, x, places)
    return result


def _shape_at(x: Aval, places: Aval) -> tuple[int, ...]:
    if not x.ndim or places.dtype.kind != "i" or x.shape[:-1] != places.shape[:-1] or not x.shape[-1]:
        raise ShapeError(f"select_at: {places} are no places in the rows of {x}")
    return places.shape


@argselect_at.def_aval
def _(x: Aval, places: Aval) -> Aval:
    return Aval(_shape_at(x, places), np.dtype(np.int64))


@select_at.def_aval
def _(x: Aval, places: Aval) -> Aval:
    return Aval(_shape_at(x, places), x.dtype)


@select_at.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, places: Any) -> Array:
    return scatter_along(ct, argselect_at(x, places), len(x.shape) - 1, x.shape)


@select_at.def_jvp
def _(tangents: Any, ans: Array, x: Array, places: Any) -> Array:
    return take_along(tangents[0], argselect_at(x, places), len(x.shape) - 1)


def _samples_at() -> Iterator[Sample]:
    yield (uniform((3, 4)), integers((3, 2), 0, 4)), {}
    yield (uniform((21,), dtype="float32"), integers((3,), 0, 21)), {}
    yield (uniform((0, 4)), integers((0, 2), 0, 4)), {}


for _op in (argselect_at, select_at):
    _op.def_samples(_samples_at)


# -- partitions --------------------------------------------------------------------------------------------------
@primitive(on_complex=AS_WRITTEN)
def argpartition(x: NDArray, *, places: Positions, axis: int) -> NDArray:
    """Indices along `axis` that put each element of `places` at its sorted position, with smaller elements before
    it."""
    return np.argpartition(x, places, axis=axis)


@argpartition.def_aval
def _(x: Aval, *, places: Positions, axis: int) -> Aval:
    reduced_shape(x.shape, (axis,))
    if not places or not all(0 <= k < x.shape[axis] for k in places):
        raise ShapeError(f"argpartition: {x} has no places {places} along axis {axis}")
    return Aval(x.shape, np.dtype(np.int64))


def _partition_samples() -> Iterator[Sample]:
    yield (uniform((3, 4)),), {"places": (1, 3), "axis": 1}
    yield (uniform((21, 2), dtype="float32"),), {"places": (10,), "axis": 0}


argpartition.def_samples(_partition_samples)


def _partition(x: Array, *, places: Positions, axis: int) -> tuple[Array, ...]:
    index = argpartition(x, places=places, axis=axis)
    return take_along(x, index, axis), index


@multi_result(Compose(_partition, moves=True), on_complex="")
def partition(x: NDArray, *, places: Positions, axis: int) -> tuple[NDArray, ...]:
    """`x` with each element of `places` along `axis` at its sorted position, with smaller elements before it; and the
    indices of `argpartition`."""
    index = argpartition.impl(x, places=places, axis=axis)
    return np.take_along_axis(x, index, axis), index


@partition.def_aval
def _(x: Aval, *, places: Positions, axis: int) -> ResultAvals:
    return ResultAvals((x, argpartition.aval(x, places=places, axis=axis)))


@partition.def_vjp_all
def _(
    wanted: Sequence[int],
    cts: tuple[Array, Array | None],
    ans: tuple[Array, ...],
    x: Array,
    *,
    places: Positions,
    axis: int,
) -> list[Any]:
    return [scatter_along(cts[0], ans[1], axis, x.shape)]


@partition.def_jvp
def _(tangents: Any, ans: tuple[Array, ...], x: Array, *, places: Positions, axis: int) -> tuple[Any, Any]:
    return take_along(tangents[0], ans[1], axis), None


@primitive()
def partitioned_values(x: NDArray, *, places: Positions, axis: int) -> NDArray:
    """The values of `partition`, which NumPy computes faster without indices; within the parts the order may differ."""
    return np.partition(x, places, axis=axis)


@partitioned_values.def_aval
def _(x: Aval, *, places: Positions, axis: int) -> Aval:
    argpartition.aval(x, places=places, axis=axis)
    return x


@partitioned_values.def_impl_out
def _(out: Any, x: Array, *, places: Positions, axis: int) -> None:
    out[...] = x
    out.partition(places, axis=axis)


def _by_rank(x: Array, axis: int) -> Array:
    return argsort(x, axis=axis, descending=False, stable=True)


@partitioned_values.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, *, places: Positions, axis: int) -> Array:
    # Only the result shows the order of the elements within the parts.
    return scatter_along(take_along(ct, _by_rank(ans, axis), axis), _by_rank(x, axis), axis, x.shape)


partition.def_samples(_partition_samples)
partitioned_values.def_samples(_partition_samples)
partition.def_result_rule(0)(partitioned_values)


# -- running extrema ---------------------------------------------------------------------------------------------
@primitive()
def cummax(x: NDArray, *, axis: int) -> NDArray:
    """The maximum so far along `axis`, nan from the first one on."""
    return np.maximum.accumulate(x, axis=axis)


@primitive()
def cummin(x: NDArray, *, axis: int) -> NDArray:
    """The minimum so far along `axis`, nan from the first one on."""
    return np.minimum.accumulate(x, axis=axis)


def _running(op: Op, arg_op: Op) -> None:
    @op.def_aval
    def _(x: Aval, *, axis: int) -> Aval:
        reduced_shape(x.shape, (axis,))
        return x

    @op.def_vjp("x")
    def _(ct: Array, ans: Array, x: Array, *, axis: int) -> Array:
        return scatter_along(ct, arg_op(x, axis=axis), axis, x.shape)

    @op.def_jvp
    def _(tangents: tuple[Array, ...], ans: Array, x: Array, *, axis: int) -> Array:
        return take_along(tangents[0], arg_op(x, axis=axis), axis)

    @op.def_samples
    def _() -> Iterator[Sample]:
        yield (uniform((3, 4)),), {"axis": 1}
        yield (integers((20, 3), 0, 5),), {"axis": 0}
        yield (uniform((9,), dtype="float32"),), {"axis": 0}


_running(cummax, cumargmax)
_running(cummin, cumargmin)
