"""Arrays of which a part along each axis is meant: what ops make of them.

Loops compute in arrays of one size. Where turns have sizes of their own (`A[i, :i]`), an array has the greatest, and
for each axis it is known which elements are meant: so many of the first, or of the last. The others are copies of one
that is, so that whatever is computed with them raises nothing of its own and spoils no derivative; what is added up or
contracted is masked. `applied` is the table: an op that it does not know has no meaning here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import field
from typing import Any

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
from tracegrad.utils.lazy_dataclass import record

__all__ = ["Part", "Parted", "Unknown", "applied", "belongs", "belongs_along", "clamped", "whole"]

Shape = tuple[int, ...]
Params = dict[str, Any]


class Unknown(Exception):
    """Why it is not known what an op makes of parts of arrays."""


@record(frozen=True, slots=True)
class Part:
    """Of an axis, so many elements: the first, the last, or those for which the `mask` is true. `count` is an integer,
    or a traced one; then `key` tells which. It is at least `least`."""

    count: Any = field(compare=False)
    last: bool
    key: Hashable = None
    least: int = field(default=0, compare=False)
    mask: Any = field(default=None, compare=False)  # which the `key` tells from others

    @classmethod
    def of(cls, count: int, last: bool) -> Part:
        """The part that is known."""
        return cls(count, last, count, count)

    @property
    def reversed(self) -> Part:
        """Where it lies when the axis is reversed."""
        if self.mask is not None:
            raise Unknown("what a mask chooses, in reverse order")
        return Part(self.count, not self.last, self.key, self.least)


Parts = tuple[Part | None, ...]


@record(frozen=True, slots=True, eq=False)
class Parted:
    """A value of the greatest size (or a literal, or what stands for several results), and for each axis the part of it
    that is meant, if not all is."""

    value: Any
    parts: Parts = ()


def whole(value: Any) -> Parted:
    """An array all of which is meant."""
    return Parted(value, (None,) * len(value.shape))


def belongs_along(n: int, part: Part) -> Any:
    """Of each index of an axis of size `n`, whether it lies in the part."""
    if part.mask is not None:
        return part.mask
    row = arange(start=0, step=1, length=n, dtype="int64")
    return greater_equal(row, n - part.count) if part.last else less(row, part.count)


def belongs(shape: Shape, axis: int, part: Part) -> Any:
    """Of each element of an array, whether it lies in the part of this axis."""
    row = belongs_along(shape[axis], part)
    row = reshape(row, shape=tuple(n if a == axis else 1 for a, n in enumerate(shape)))
    return broadcast_to(row, shape=shape)


def clamped(x: Any, parts: Parts) -> Any:
    """With copies of the first or the last element in the place of those outside of the parts; ones, if none is in.
    What a mask leaves out stays, for all that reads it has the mask."""
    for axis, part in enumerate(parts):
        if part is not None and part.mask is None:
            start = [0] * len(x.shape)
            start[axis] = x.shape[axis] - 1 if part.last else 0
            stop = [start[a] + 1 if a == axis else n for a, n in enumerate(x.shape)]
            one = stop_gradient(slice(x, start=tuple(start), stop=tuple(stop), step=(1,) * len(start)))
            if not part.least and type(part.count) is not int:
                one = where(greater(part.count, 0), one, {"b": True, "f": 1.0}.get(x.dtype.kind, 1))
            x = where(belongs(x.shape, axis, part), x, broadcast_to(one, shape=x.shape))
    return x


def _masked(x: Parted, axes: Sequence[int], neutral: Any) -> Any:
    """With a neutral element in the place of those outside of the parts of these axes."""
    value = x.value
    for axis in axes:
        part = x.parts[axis]
        if part is not None:
            value = where(belongs(value.shape, axis, part), value, neutral)
    return value


def _zero(x: Any) -> Any:
    return {"b": False, "i": 0, "u": 0}.get(x.dtype.kind, 0.0)


def _like(x: Any, count: Any) -> Any:
    """A count as a number to divide an array by."""
    return float(count) if type(count) is int else cast(count, dtype=x.dtype.name)


# -- the table ---------------------------------------------------------------------------------------------------
def applied(op: Op, params: Params, given: Sequence[Parted], shape: Shape) -> Parted:
    """What `op` makes of the operands; `shape` is that of the result at its greatest. Raises `Unknown`."""
    rule = _elementwise if isinstance(op, Elementwise) else _RULES.get(op)
    if rule is None:
        raise Unknown(f"{op.name} of another size in each turn")
    return rule(op, params, given, shape)


def _elementwise(op: Op, params: Params, given: Sequence[Parted], shape: Shape) -> Parted:
    arrays = [x for x in given if not is_literal(x.value) and x.value.shape]
    if any(x.value.shape != shape for x in arrays):
        raise Unknown(f"{op.name} of arrays from outside, of another size in each turn")
    masked = any(p is not None and p.mask is not None for x in arrays for p in x.parts)
    if masked and op.form.raises:
        raise Unknown(f"{op.name} of what a mask leaves out")
    parts: list[Part | None] = []
    for each in zip(*[x.parts for x in arrays]):
        known = {p for p in each if p is not None}
        if len(known) > 1:
            raise Unknown(f"{op.name} of parts that lie in other places")
        parts.append(next(iter(known), None))
    return Parted(op(*[x.value for x in given], **params), tuple(parts))


def _reshape(op: Op, params: Params, given: Sequence[Parted], shape: Shape) -> Parted:
    (x,) = given
    kept = [(n, p) for n, p in zip(x.value.shape, x.parts) if n != 1 or p is not None]
    if [n for n, _ in kept if n != 1] != [n for n in shape if n != 1] or any(n == 1 for n, _ in kept):
        raise Unknown("reshape of another size in each turn")
    rest = iter([p for _, p in kept])
    return Parted(reshape(x.value, shape=shape), tuple([None if n == 1 else next(rest) for n in shape]))


def _broadcast(op: Op, params: Params, given: Sequence[Parted], shape: Shape) -> Parted:
    (x,) = given
    missing = len(shape) - len(x.parts)
    if any(p is not None and n != m for p, n, m in zip(x.parts, x.value.shape, shape[missing:])):
        raise Unknown("a size that is known by now")
    return Parted(broadcast_to(x.value, shape=shape), (None,) * missing + x.parts)


def _full(op: Op, params: Params, given: Sequence[Parted], shape: Shape) -> Parted:
    return whole(full(**{**params, "shape": shape}))


def _transpose(op: Op, params: Params, given: Sequence[Parted], shape: Shape) -> Parted:
    (x,), perm = given, params["perm"]
    return Parted(transpose(x.value, perm=perm), tuple([x.parts[p] for p in perm]))


def _flip(op: Op, params: Params, given: Sequence[Parted], shape: Shape) -> Parted:
    (x,), axes = given, params["axes"]
    parts = [p.reversed if p is not None and a in axes else p for a, p in enumerate(x.parts)]
    return Parted(flip(x.value, axes=axes), tuple(parts))


def _in_place(op: Op, params: Params, given: Sequence[Parted], shape: Shape) -> Parted:
    (x,) = given
    return Parted(op(x.value, **params), x.parts)


def _neutral(op: Op, x: Any) -> Any:
    kind = x.dtype.kind
    if op in (reduce_max, reduce_min):
        limits = (-float("inf"), float("inf")) if kind == "f" else (np.iinfo(x.dtype).min, np.iinfo(x.dtype).max)
        return limits[op is reduce_min]
    if op is reduce_all:
        return True
    return (1.0 if kind == "f" else 1) if op is reduce_prod else _zero(x)


def _reduced(op: Op, params: Params, given: Sequence[Parted], shape: Shape) -> Parted:
    (x,), axes = given, params["axes"]
    cut = [p for a, p in enumerate(x.parts) if p is not None and a in axes]
    if op in (reduce_max, reduce_min) and (x.value.dtype.kind not in "fiu" or not all(p.least for p in cut)):
        raise Unknown(f"{op.name} of what may be nothing")
    kept = tuple([p for a, p in enumerate(x.parts) if a not in axes])
    return Parted(op(_masked(x, axes, _neutral(op, x.value)) if cut else x.value, **params), kept)


def _count(x: Parted, axes: Sequence[int]) -> Any:
    """How many elements that are meant there are along the axes."""
    counts = [n if p is None else p.count for n, p in zip(x.value.shape, x.parts)]
    found: Any = 1
    for a in axes:
        found = found * counts[a] if type(found) is type(counts[a]) is int else multiply(found, counts[a])
    return found


def _mean(op: Op, params: Params, given: Sequence[Parted], shape: Shape) -> Parted:
    (x,), axes = given, params["axes"]
    total = _reduced(reduce_sum, params, given, shape)
    return Parted(divide(total.value, _like(x.value, _count(x, axes))), total.parts)


def _var(op: Op, params: Params, given: Sequence[Parted], shape: Shape) -> Parted:
    (x,), axes, ddof = given, params["axes"], params["ddof"]
    center = _mean(mean, {"axes": axes}, given, shape).value
    off = squares(subtract(x.value, unreduce(center, x.value.shape, axes)))
    total = _reduced(reduce_sum, {"axes": axes}, [Parted(off, x.parts)], shape)
    free = subtract(_like(off, _count(x, axes)), float(ddof))
    return Parted(divide(total.value, where(less(free, 0.0), 0.0, free)), total.parts)


def _place_of_extreme(op: Op, params: Params, given: Sequence[Parted], shape: Shape) -> Parted:
    (x,), axis = given, params["axis"]
    part = x.parts[axis]
    # Copies of the first element stand behind it: of equal ones the first counts.
    if part is not None and (part.last or not part.least or part.mask is not None):
        raise Unknown(f"{op.name} of what may be nothing, or of the last elements of an axis")
    return Parted(op(x.value, **params), tuple([p for a, p in enumerate(x.parts) if a != axis]))


def _cumsum(op: Op, params: Params, given: Sequence[Parted], shape: Shape) -> Parted:
    (x,), axis = given, params["axis"]
    return Parted(clamped(op(_masked(x, [axis], _zero(x.value)), **params), x.parts), x.parts)


def _matmul(op: Op, params: Params, given: Sequence[Parted], shape: Shape) -> Parted:
    x, y = given
    last, row = len(x.parts) - 1, len(y.parts) - 2
    if x.parts[last] != y.parts[row] and None not in (x.parts[last], y.parts[row]):
        raise Unknown("matmul of parts that lie in other places")
    if any(p is not None for p in (*x.parts[:-2], *y.parts[:-2])):
        raise Unknown("matmul of as many matrices as are meant")
    left, right = _masked(x, [last], _zero(x.value)), _masked(y, [row], _zero(y.value))
    return Parted(matmul(left, right), (*x.parts[:-1], y.parts[-1]))


_RULES: dict[Op, Callable[[Op, Params, Sequence[Parted], Shape], Parted]] = {
    reshape: _reshape, broadcast_to: _broadcast, full: _full, transpose: _transpose, flip: _flip, cast: _in_place,
    fresh: _in_place, stop_gradient: _in_place, reduce_sum: _reduced, reduce_max: _reduced, reduce_min: _reduced,
    reduce_prod: _reduced, reduce_any: _reduced, reduce_all: _reduced, mean: _mean, var: _var, matmul: _matmul,
    argmax: _place_of_extreme, argmin: _place_of_extreme, cumsum: _cumsum,
}  # fmt: skip
