"""Merge adjacent slices and pads: adjacent slices of one array become one slice of it.

Loops whose iterations each return a number produce adjacent slices. The derivative of reading an array slice by slice
is a sum of slices, each padded with zeros.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from tracegrad.ir import GraphValue
from tracegrad.ops.shape.linear import broadcast_to, concatenate, pad, reshape, slice
from tracegrad.passes.algebra.shape_rules import rule_for
from tracegrad.passes.core.constant_folding import constant, reshaped
from tracegrad.passes.core.rewriter import node_of, operand, producer, shared

Shape = tuple[int, ...]


@rule_for(concatenate)
def _(*xs: Any, axis: int) -> Any:
    nonempty = [x for x in xs if x.shape[axis]]
    if len(nonempty) <= 1:
        return nonempty[0] if nonempty else xs[0]
    if len(nonempty) < len(xs):
        return concatenate(*nonempty, axis=axis)
    value = _value(xs)
    if value is not None:
        return reshaped(xs[0], concatenate.aval(*(x.aval for x in xs), axis=axis).shape)
    if all(x.node is xs[0].node for x in xs) and xs[0].shape[axis] == 1:
        return broadcast_to(xs[0], shape=_with(xs[0].shape, axis, len(xs)))
    joined = _joined(xs, axis)
    return None if len(joined) == len(xs) else concatenate(*joined, axis=axis)


def stacked(xs: Sequence[Any], axis: int) -> Any:
    """Stack arrays along a new axis, if some of them are adjacent slices of one array; else None."""
    if any(producer(x) is not reshape or producer(operand(x)) is not slice for x in xs[:2]) or len(xs) < 2:
        return None
    shape = (*xs[0].shape[:axis], 1, *xs[0].shape[axis:])
    slices = [_cut(x, shape) or reshape(x, shape=shape) for x in xs]
    joined = _joined(slices, axis)
    if len(joined) == len(xs):
        return None
    return concatenate(*joined, axis=axis) if len(joined) > 1 else joined[0]


def _cut(x: Any, shape: Shape) -> Any:
    """The slice of an array that `x` is, if it has this shape there; else None."""
    result = operand(x) if producer(x) is reshape and producer(operand(x)) is slice else None
    return result if result is not None and result.shape == shape else None


def merge_padded_slices(x: GraphValue, y: GraphValue) -> Any:
    """Rewrite x + y, a sum in free order, if both are padded slices that merge into one; else None.

    The sign of a sum of 0 may change.
    """
    if producer(x) is not pad or producer(y) is not pad or shared(x) or shared(y) or x.dtype != y.dtype:
        return None
    paddings = [_pad_widths(v) for v in (x, y)]
    if None in paddings:
        return None
    for first, second in ((x, y), (y, x)):
        axis = _side_by_side(first, second)
        if axis is not None:
            return _both(first, second, axis)
    return None


def _both(x: Any, y: Any, axis: int) -> Any:
    """Two padded slices merged, if they are adjacent in one array or are fills with one value."""
    slices = operand(x), operand(y)
    shape = _with(slices[0].shape, axis, sum(v.shape[axis] for v in slices))
    value = _value(slices)
    if value is not None:
        joined = reshaped(slices[0], shape)
    elif _follows(*slices, axis):
        joined = _reaching(slices[0], _param(slices[1], "stop"))
    else:
        return None
    return pad(joined, low=_param(x, "low"), high=_param(y, "high"), interior=_param(x, "interior"), value=0.0)


def _pad_widths(x: Any) -> tuple[Shape, Shape] | None:
    """The padding before and after a slice along each axis."""
    known = not any(_param(x, "interior")) and repr(_param(x, "value")) in ("0", "0.0")
    return (_param(x, "low"), _param(x, "high")) if known else None


def _side_by_side(x: Any, y: Any) -> int | None:
    """The axis along which the slice in `y` begins where the slice in `x` ends, if there is one."""
    sizes = [tuple(zip(_param(v, "low"), operand(v).shape)) for v in (x, y)]
    other = [k for k, (a, b) in enumerate(zip(*sizes)) if a != b]
    if len(other) != 1:
        return None
    (low, size), (begin, _) = (result[other[0]] for result in sizes)
    return other[0] if begin == low + size else None


def _joined(xs: Sequence[Any], axis: int) -> list[Any]:
    """The slices, with adjacent slices of one array merged."""
    result, first = list[Any](), xs[0]
    for x, following in itertools.zip_longest(xs, xs[1:]):
        if following is None or not _follows(x, following, axis):
            result.append(first if x is first else _reaching(first, _param(x, "stop")))
            first = following
    return result


def _follows(x: Any, y: Any, axis: int) -> bool:
    """Whether `y` begins where `x` ends; both are slices of one array."""
    if producer(x) is not slice or producer(y) is not slice or node_of(operand(x)) is not node_of(operand(y)):
        return False
    ends = [tuple(zip(_param(v, "start"), _param(v, "stop"), _param(v, "step"))) for v in (x, y)]
    (_, end, step), (at, _, other) = (result[axis] for result in ends)
    return at == end and step == other == 1 and all(a == b for k, (a, b) in enumerate(zip(*ends)) if k != axis)


def _reaching(x: Any, stop: Shape) -> Any:
    return slice(operand(x), start=_param(x, "start"), stop=stop, step=_param(x, "step"))


def _value(xs: Sequence[Any]) -> Any:
    """The common fill value of all; None if there is none."""
    first = constant(xs[0])
    return first if first is not None and all(repr(constant(x)) == repr(first) for x in xs[1:]) else None


def _with(shape: Shape, axis: int, size: int) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1 :])


def _param(x: GraphValue, name: str) -> Any:
    return dict(x.node.params)[name]
