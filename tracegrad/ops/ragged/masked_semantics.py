"""Define the masked semantics of ops on padded arrays, which have a valid part along each axis.

Loops compute with arrays of one size. If iterations have different sizes (`A[i, :i]`), an array has the maximal size,
and for each axis the valid elements are known: the first n or the last n. The padding repeats a valid element, so a
computation on it raises no new error and leaves derivatives correct. Sums and contractions are masked.
`applied` is the table: an op without an entry has no meaning here.
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
    """Raised if the result of an op on partly valid arrays is not known."""


@record(frozen=True, slots=True)
class Part:
    """Valid part of an axis: the first or last `count` elements, or the elements where `mask` is true. `count` is
    an integer, or a traced one identified by `key`. It is at least `least`."""

    count: Any = field(compare=False)
    last: bool
    key: Hashable = None
    least: int = field(default=0, compare=False)
    mask: Any = field(default=None, compare=False)  # identified by the `key`

    @classmethod
    def of(cls, count: int, last: bool) -> Part:
        """A part of constant size."""
        return cls(count, last, count, count)

    @property
    def reversed(self) -> Part:
        """The part of the reversed axis."""
        if self.mask is not None:
            raise Unknown("what a mask chooses, in reverse order")
        return Part(self.count, not self.last, self.key, self.least)


Parts = tuple[Part | None, ...]


@record(frozen=True, slots=True, eq=False)
class Parted:
    """A value of the maximal size (or a literal, or a multi-result stand-in), and the valid part of each axis, if not
    all of it."""

    value: Any
    parts: Parts = ()


def whole(value: Any) -> Parted:
    """An array that is valid everywhere."""
    return Parted(value, (None,) * len(value.shape))


def belongs_along(n: int, part: Part) -> Any:
    """Whether each index of an axis of size `n` is in the part, as a mask."""
    if part.mask is not None:
        return part.mask
    row = arange(start=0, step=1, length=n, dtype="int64")
    return greater_equal(row, n - part.count) if part.last else less(row, part.count)


def belongs(shape: Shape, axis: int, part: Part) -> Any:
    """Whether each element of an array is in the part of this axis, as a mask."""
    row = belongs_along(shape[axis], part)
    row = reshape(row, shape=tuple(n if a == axis else 1 for a, n in enumerate(shape)))
    return broadcast_to(row, shape=shape)


def clamped(x: Any, parts: Parts) -> Any:
    """Fill the invalid elements with copies of the first or last valid one; with ones if there is none. Elements
    outside of a mask are unchanged, because all their readers apply the mask."""
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
    """Fill the invalid elements along these axes with a neutral element."""
    value = x.value
    for axis in axes:
        part = x.parts[axis]
        if part is not None:
            value = where(belongs(value.shape, axis, part), value, neutral)
    return value


def _zero(x: Any) -> Any:
    return {"b": False, "i": 0, "u": 0}.get(x.dtype.kind, 0.0)


def _like(x: Any, count: Any) -> Any:
    """A count as a number by which an array can be divided."""
    return float(count) if type(count) is int else cast(count, dtype=x.dtype.name)


# -- the table ---------------------------------------------------------------------------------------------------
def applied(op: Op, params: Params, given: Sequence[Parted], shape: Shape) -> Parted:
    """The result of `op` on the operands; `shape` is its maximal shape. Raises `Unknown`."""
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
    saved = [(n, p) for n, p in zip(x.value.shape, x.parts) if n != 1 or p is not None]
    if [n for n, _ in saved if n != 1] != [n for n in shape if n != 1] or any(n == 1 for n, _ in saved):
        raise Unknown("reshape of another size in each turn")
    rest = iter([p for _, p in saved])
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
    saved = tuple([p for a, p in enumerate(x.parts) if a not in axes])
    return Parted(op(_masked(x, axes, _neutral(op, x.value)) if cut else x.value, **params), saved)


def _count(x: Parted, axes: Sequence[int]) -> Any:
    """The number of valid elements along the axes."""
    counts = [n if p is None else p.count for n, p in zip(x.value.shape, x.parts)]
    result: Any = 1
    for a in axes:
        result = result * counts[a] if type(result) is type(counts[a]) is int else multiply(result, counts[a])
    return result


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
    # The padding after the first element has copies of it, and the first of equal elements is selected.
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
