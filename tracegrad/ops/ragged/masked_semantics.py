"""Define the masked semantics of ops on padded arrays, which have a valid part along each axis.

Loops compute with arrays of one size. If iterations have different sizes (`A[i, :i]`), an array has the maximal size,
and for each axis the valid elements are known: the first n or the last n. The padding repeats a valid element, so a
computation on it raises no new error and leaves derivatives correct. Sums and contractions are masked.
`applied` is the table: an op without an entry has no meaning here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import is_literal
from tracegrad.ops.core.elementwise_op import Elementwise
from tracegrad.ops.core.op import Op
from tracegrad.ops.elementwise.table import divide, greater, greater_equal, less, multiply, subtract, where
from tracegrad.ops.linalg.contraction import matmul
from tracegrad.ops.reduce.reductions import (
    argmax,
    argmin,
    mean,
    reduce_all,
    reduce_any,
    reduce_max,
    reduce_min,
    reduce_prod,
    squares,
    var,
)
from tracegrad.ops.reduce.scans import cumsum
from tracegrad.ops.shape.fill import arange
from tracegrad.ops.shape.linear import (
    broadcast_to,
    cast,
    flip,
    fresh,
    full,
    reduce_sum,
    reshape,
    slice,
    stop_gradient,
    transpose,
    unreduce,
)
from tracegrad.typing import Array
from tracegrad.utils.lazy_dataclass import record

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand


Shape = tuple[int, ...]
Params = dict[str, Any]


class NoMaskedSemantics(Exception):
    """Raised if the result of an op on partly valid arrays is not known."""


@record(frozen=True, slots=True)
class ValidExtent:
    """Valid part of an axis: the first or last `count` elements, or the elements where `mask` is true. `count` is
    an integer, or a traced one identified by `key`. It is at least `least`."""

    count: Any = field(compare=False)
    last: bool
    key: Hashable = None
    least: int = field(default=0, compare=False)
    mask: Any = field(default=None, compare=False)  # identified by the `key`

    @classmethod
    def of(cls, count: int, last: bool) -> ValidExtent:
        """A part of constant size."""
        return cls(count, last, count, count)

    @property
    def reversed(self) -> ValidExtent:
        """The part of the reversed axis."""
        if self.mask is not None:
            raise NoMaskedSemantics("what a mask chooses, in reverse order")
        return ValidExtent(self.count, not self.last, self.key, self.least)


ValidExtents = tuple[ValidExtent | None, ...]


@record(frozen=True, slots=True, eq=False)
class PaddedValue:
    """A value of the maximal size (or a literal, or a multi-result stand-in), and the valid part of each axis, if not
    all of it."""

    value: Any
    extents: ValidExtents = ()


def whole(value: Array) -> PaddedValue:
    """An array that is valid everywhere."""
    return PaddedValue(value, (None,) * len(value.shape))


def axis_mask(n: int, extent: ValidExtent) -> Any:
    """Whether each index of an axis of size `n` is in the part, as a mask."""
    if extent.mask is not None:
        return extent.mask
    indices = arange(start=0, step=1, length=n, dtype="int64")
    return greater_equal(indices, n - extent.count) if extent.last else less(indices, extent.count)


def element_mask(shape: Shape, axis: int, extent: ValidExtent) -> Array:
    """Whether each element of an array is in the part of this axis, as a mask."""
    mask = axis_mask(shape[axis], extent)
    mask = reshape(mask, shape=tuple(n if a == axis else 1 for a, n in enumerate(shape)))
    return broadcast_to(mask, shape=shape)


def clamped(x: Array, extents: ValidExtents) -> Array:
    """Fill the invalid elements with copies of the first or last valid one; with ones if there is none. Elements
    outside of a mask are unchanged, because all their readers apply the mask."""
    for axis, extent in enumerate(extents):
        if extent is not None and extent.mask is None:
            start = [0] * len(x.shape)
            start[axis] = x.shape[axis] - 1 if extent.last else 0
            stop = [start[a] + 1 if a == axis else n for a, n in enumerate(x.shape)]
            one = stop_gradient(slice(x, start=tuple(start), stop=tuple(stop), step=(1,) * len(start)))
            if not extent.least and type(extent.count) is not int:
                one = where(greater(extent.count, 0), one, {"b": True, "f": 1.0}.get(x.dtype.kind, 1))
            x = where(element_mask(x.shape, axis, extent), x, broadcast_to(one, shape=x.shape))
    return x


def _masked(x: PaddedValue, axes: Sequence[int], neutral: float) -> Any:
    """Fill the invalid elements along these axes with a neutral element."""
    value = x.value
    for axis in axes:
        extent = x.extents[axis]
        if extent is not None:
            value = where(element_mask(value.shape, axis, extent), value, neutral)
    return value


def _zero(x: Array) -> float:
    return {"b": False, "i": 0, "u": 0}.get(x.dtype.kind, 0.0)


def _like(x: Array, count: Operand) -> Any:
    """A count as a number by which an array can be divided."""
    return float(count) if type(count) is int else cast(count, dtype=x.dtype.name)


# -- the table ---------------------------------------------------------------------------------------------------
def applied(op: Op, params: Params, operands: Sequence[PaddedValue], shape: Shape) -> PaddedValue:
    """The result of `op` on the operands; `shape` is its maximal shape. Raises `NoMaskedSemantics`."""
    rule = _elementwise if isinstance(op, Elementwise) else _RULES.get(op)
    if rule is None:
        raise NoMaskedSemantics(f"{op.name} of another size in each iteration")
    return rule(op, params, operands, shape)


def _elementwise(op: Op, params: Params, operands: Sequence[PaddedValue], shape: Shape) -> PaddedValue:
    arrays = [x for x in operands if not is_literal(x.value) and x.value.shape]
    if any(x.value.shape != shape for x in arrays):
        raise NoMaskedSemantics(f"{op.name} of arrays from outside, of another size in each iteration")
    masked = any(p is not None and p.mask is not None for x in arrays for p in x.extents)
    if masked and op.form.raises:
        raise NoMaskedSemantics(f"{op.name} of what a mask leaves out")
    extents: list[ValidExtent | None] = []
    for each in zip(*[x.extents for x in arrays]):
        known = {p for p in each if p is not None}
        if len(known) > 1:
            raise NoMaskedSemantics(f"{op.name} of parts that lie in other places")
        extents.append(next(iter(known), None))
    return PaddedValue(op(*[x.value for x in operands], **params), tuple(extents))


def _reshape(op: Op, params: Params, operands: Sequence[PaddedValue], shape: Shape) -> PaddedValue:
    (x,) = operands
    saved = [(n, p) for n, p in zip(x.value.shape, x.extents) if n != 1 or p is not None]
    if [n for n, _ in saved if n != 1] != [n for n in shape if n != 1] or any(n == 1 for n, _ in saved):
        raise NoMaskedSemantics("reshape of another size in each iteration")
    rest = iter([p for _, p in saved])
    return PaddedValue(reshape(x.value, shape=shape), tuple([None if n == 1 else next(rest) for n in shape]))


def _broadcast(op: Op, params: Params, operands: Sequence[PaddedValue], shape: Shape) -> PaddedValue:
    (x,) = operands
    missing = len(shape) - len(x.extents)
    if any(p is not None and n != m for p, n, m in zip(x.extents, x.value.shape, shape[missing:])):
        raise NoMaskedSemantics("a size that is known by now")
    return PaddedValue(broadcast_to(x.value, shape=shape), (None,) * missing + x.extents)


def _full(op: Op, params: Params, operands: Sequence[PaddedValue], shape: Shape) -> PaddedValue:
    return whole(full(**{**params, "shape": shape}))


def _transpose(op: Op, params: Params, operands: Sequence[PaddedValue], shape: Shape) -> PaddedValue:
    (x,), perm = operands, params["perm"]
    return PaddedValue(transpose(x.value, perm=perm), tuple([x.extents[p] for p in perm]))


def _flip(op: Op, params: Params, operands: Sequence[PaddedValue], shape: Shape) -> PaddedValue:
    (x,), axes = operands, params["axes"]
    extents = [p.reversed if p is not None and a in axes else p for a, p in enumerate(x.extents)]
    return PaddedValue(flip(x.value, axes=axes), tuple(extents))


def _same_extents(op: Op, params: Params, operands: Sequence[PaddedValue], shape: Shape) -> PaddedValue:
    (x,) = operands
    return PaddedValue(op(x.value, **params), x.extents)


def _neutral(op: Op, x: Array) -> float:
    kind = x.dtype.kind
    if op in (reduce_max, reduce_min):
        limits = (-float("inf"), float("inf")) if kind == "f" else (np.iinfo(x.dtype).min, np.iinfo(x.dtype).max)
        return limits[op is reduce_min]
    if op is reduce_all:
        return True
    return (1.0 if kind == "f" else 1) if op is reduce_prod else _zero(x)


def _reduced(op: Op, params: Params, operands: Sequence[PaddedValue], shape: Shape) -> PaddedValue:
    (x,), axes = operands, params["axes"]
    cut = [p for a, p in enumerate(x.extents) if p is not None and a in axes]
    if op in (reduce_max, reduce_min) and (x.value.dtype.kind not in "fiu" or not all(p.least for p in cut)):
        raise NoMaskedSemantics(f"{op.name} of what may be nothing")
    saved = tuple([p for a, p in enumerate(x.extents) if a not in axes])
    return PaddedValue(op(_masked(x, axes, _neutral(op, x.value)) if cut else x.value, **params), saved)


def _count(x: PaddedValue, axes: Sequence[int]) -> Any:
    """The number of valid elements along the axes."""
    counts = [n if p is None else p.count for n, p in zip(x.value.shape, x.extents)]
    result: Any = 1
    for a in axes:
        result = result * counts[a] if type(result) is type(counts[a]) is int else multiply(result, counts[a])
    return result


def _mean(op: Op, params: Params, operands: Sequence[PaddedValue], shape: Shape) -> PaddedValue:
    (x,), axes = operands, params["axes"]
    total = _reduced(reduce_sum, params, operands, shape)
    return PaddedValue(divide(total.value, _like(x.value, _count(x, axes))), total.extents)


def _var(op: Op, params: Params, operands: Sequence[PaddedValue], shape: Shape) -> PaddedValue:
    (x,), axes, ddof = operands, params["axes"], params["ddof"]
    center = _mean(mean, {"axes": axes}, operands, shape).value
    off = squares(subtract(x.value, unreduce(center, x.value.shape, axes)))
    total = _reduced(reduce_sum, {"axes": axes}, [PaddedValue(off, x.extents)], shape)
    free = subtract(_like(off, _count(x, axes)), float(ddof))
    return PaddedValue(divide(total.value, where(less(free, 0.0), 0.0, free)), total.extents)


def _arg_extremum(op: Op, params: Params, operands: Sequence[PaddedValue], shape: Shape) -> PaddedValue:
    (x,), axis = operands, params["axis"]
    extent = x.extents[axis]
    # The padding after the first element has copies of it, and the first of equal elements is selected.
    if extent is not None and (extent.last or not extent.least or extent.mask is not None):
        raise NoMaskedSemantics(f"{op.name} of what may be nothing, or of the last elements of an axis")
    return PaddedValue(op(x.value, **params), tuple([p for a, p in enumerate(x.extents) if a != axis]))


def _cumsum(op: Op, params: Params, operands: Sequence[PaddedValue], shape: Shape) -> PaddedValue:
    (x,), axis = operands, params["axis"]
    return PaddedValue(clamped(op(_masked(x, [axis], _zero(x.value)), **params), x.extents), x.extents)


def _matmul(op: Op, params: Params, operands: Sequence[PaddedValue], shape: Shape) -> PaddedValue:
    x, y = operands
    last, inner = len(x.extents) - 1, len(y.extents) - 2
    if x.extents[last] != y.extents[inner] and None not in (x.extents[last], y.extents[inner]):
        raise NoMaskedSemantics("matmul of parts that lie in other places")
    if any(p is not None for p in (*x.extents[:-2], *y.extents[:-2])):
        raise NoMaskedSemantics("matmul of as many matrices as are meant")
    left, right = _masked(x, [last], _zero(x.value)), _masked(y, [inner], _zero(y.value))
    return PaddedValue(matmul(left, right), (*x.extents[:-1], y.extents[-1]))


_RULES: dict[Op, Callable[[Op, Params, Sequence[PaddedValue], Shape], PaddedValue]] = {
    reshape: _reshape,
    broadcast_to: _broadcast,
    full: _full,
    transpose: _transpose,
    flip: _flip,
    cast: _same_extents,
    fresh: _same_extents,
    stop_gradient: _same_extents,
    reduce_sum: _reduced,
    reduce_max: _reduced,
    reduce_min: _reduced,
    reduce_prod: _reduced,
    reduce_any: _reduced,
    reduce_all: _reduced,
    mean: _mean,
    var: _var,
    matmul: _matmul,
    argmax: _arg_extremum,
    argmin: _arg_extremum,
    cumsum: _cumsum,
}
