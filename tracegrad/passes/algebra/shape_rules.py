"""Rewrite rules of data movement and reductions: Python predicates, one section per op.

Each rule takes the operand and the params of one application and returns a simpler value, or None. Most rules change
no bit. Rules that regroup a sum (`reduce_sum` of `reduce_sum`, of a `broadcast_to`, of a `reshape`) may round
differently, as any order of summation may. Data movement sinks towards the outputs and towards fewer elements:
`broadcast_to` sinks below elementwise ops and reductions, and `reshape` sinks below `broadcast_to`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.ir import GraphValue, Value
from tracegrad.ops.core.forms import FoldForm, Scan
from tracegrad.ops.core.op import TABLE, Op
from tracegrad.ops.elementwise.table import add, multiply
from tracegrad.ops.indexing.dynamic_slice import dynamic_update_slice
from tracegrad.ops.linalg.factorizations import cholesky_pullback
from tracegrad.ops.shape.linear import (
    broadcast_to,
    cast,
    concatenate,
    flip,
    pad,
    reduce_sum,
    reshape,
    slice,
    transpose,
)
from tracegrad.passes.core.constant_folding import constant, fold_cast, fold_reduction, full_like, reshaped
from tracegrad.passes.core.rewriter import operand, producer, shared
from tracegrad.target.tuning import TUNING

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand


Shape = tuple[int, ...]
LONG = TUNING.passes.min_short_sum

BY_OP: dict[Op, Callable[..., Any]] = {}
NAMES: dict[Op, str] = {}  # the names of the rules in `settings.disable`


def rule_for(op: Op, name: str = "shape-rules") -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Register a rule for the op it simplifies, with its name in `settings.disable` (decorator)."""

    def declare(rule: Callable[..., object]) -> Callable[..., object]:
        BY_OP[op], NAMES[op] = rule, name
        return rule

    return declare


def _param(x: GraphValue, name: str) -> Any:
    return next(v for k, v in x.node.params if k == name)


def _long(shape: Shape) -> Shape:
    """The sizes other than one."""
    return tuple(n for n in shape if n != 1)


# -- values without operands ---------------------------------------------------------------------------
@rule_for(cast)
def _(x: GraphValue, *, dtype: str) -> Any:
    if x.dtype.name == dtype:
        return x
    op = producer(x)
    if op is cast:
        first = operand(x).dtype
        if _exact(first, x.dtype) and (first.name == dtype or _exact(first, np.dtype(dtype))):
            return cast(operand(x), dtype=dtype)
    if op is broadcast_to:
        return broadcast_to(cast(operand(x), dtype=dtype), shape=x.shape)
    return fold_cast(x, dtype=dtype)


def _exact(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Whether `target` represents every value of `source`: NumPy's "safe" casting, except 64-bit integers to
    float64."""
    return np.can_cast(source, target, "safe") and not (
        source.kind in "iu" and source.itemsize == 8 and target.kind == "f"
    )


# -- reshape, transpose, broadcast_to -----------------------------------------------------------------
@rule_for(reshape)
def _(x: GraphValue, *, shape: Shape) -> Any:
    if x.shape == shape:
        return x
    op = producer(x)
    if op is reshape:
        return reshape(operand(x), shape=shape)
    if op is broadcast_to and (result := _reshape_of_broadcast(operand(x), x.shape, shape)) is not None:
        return result
    return reshaped(x, shape)


def _reshape_of_broadcast(source: GraphValue, repeated: Shape, shape: Shape) -> Any:
    """Sink a `reshape` below a `broadcast_to` that only moves unit axes, or whose source is a single number."""
    if math.prod(source.shape) == 1:
        return broadcast_to(reshape(source, shape=()), shape=shape)
    if _long(repeated) != _long(shape):
        return None
    aligned = (1,) * (len(repeated) - len(source.shape)) + source.shape
    sizes = iter([n for n, m in zip(aligned, repeated) if m != 1])
    return broadcast_to(reshape(source, shape=tuple(1 if m == 1 else next(sizes) for m in shape)), shape=shape)


@rule_for(transpose)
def _(x: GraphValue, *, perm: Shape) -> Any:
    op = producer(x)
    if op is transpose:
        return transpose(operand(x), perm=tuple(_param(x, "perm")[p] for p in perm))
    if op is cholesky_pullback and perm[:-2] == (*range(len(perm) - 2),):  # symmetric to the bit
        return x
    moved = [p for p in perm if x.shape[p] != 1]
    if moved == sorted(moved):
        return reshape(x, shape=tuple(x.shape[p] for p in perm))
    return reshaped(x, tuple(x.shape[p] for p in perm))


@rule_for(broadcast_to)
def _(x: GraphValue, *, shape: Shape) -> Any:
    if x.shape == shape:
        return x
    if math.prod(x.shape) == math.prod(shape) and x.shape == shape[len(shape) - len(x.shape) :]:
        return reshape(x, shape=shape)
    op = producer(x)
    if op is broadcast_to:
        return broadcast_to(operand(x), shape=shape)
    if x.shape[:1] == (1,):
        return broadcast_to(reshape(x, shape=_without_leading_ones(x.shape)), shape=shape)
    return reshaped(x, shape)


def _without_leading_ones(shape: Shape) -> Shape:
    first = next((k for k, n in enumerate(shape) if n != 1), len(shape))
    return shape[first:]


def hoist_broadcast(op: Op, operands: tuple[object, ...]) -> Operand | None:
    """Apply an elementwise op on `broadcast_to`s before the broadcast."""
    arrays = [x for x in operands if isinstance(x, GraphValue)]
    for x in arrays:
        if x.node.op is not broadcast_to:
            return None
    sources = [operand(x) for x in arrays]
    common = np.broadcast_shapes(*[s.shape for s in sources])
    if common == arrays[0].shape:
        return None
    small = iter([broadcast_to(s, shape=common) for s in sources])
    inner = arrays[0].builder.emit(op, tuple(next(small) if hasattr(x, "node") else x for x in operands), {})
    return broadcast_to(inner, shape=arrays[0].shape)


# -- reductions ------------------------------------------------------------------------------------------
def _reduction_rule(op: Op, form: FoldForm) -> Callable[..., Any]:
    def rule(x: GraphValue, *, axes: Shape) -> Any:
        if all(x.shape[a] == 1 for a in axes):
            return _reduce_single(op, reshape(x, shape=tuple(n for i, n in enumerate(x.shape) if i not in axes)))
        source = producer(x)
        if source is op and not shared(x):
            return op(operand(x), axes=_nested_axes(_param(x, "axes"), axes, len(operand(x).shape)))
        if source is reshape and len(axes) == len(x.shape) and not shared(x):
            return op(operand(x), axes=tuple(range(len(operand(x).shape))))
        if source is broadcast_to and (form.idempotent or op is reduce_sum) and 0 not in x.shape:
            return _reduce_broadcast(op, operand(x), x.shape, axes)
        if source is cast and op is reduce_sum and _fits_int32(operand(x).dtype, x, axes):
            return cast(op(cast(operand(x), dtype="int32"), axes=axes), dtype=x.dtype.name)
        return fold_reduction(op, form, x, axes)

    return rule


def _reduce_single(op: Op, x: Any) -> Any:
    """The reduction of the single element `x`: a sum starts from 0.0, so the sum of -0.0 is 0.0."""
    return add(x, 0.0) if op is reduce_sum and x.dtype.kind in "fc" else x


def _fits_int32(short: np.dtype[Any], x: GraphValue, axes: Shape) -> bool:
    """Whether a long 64-bit sum of booleans or short integers fits into 32 bits, which vectorizes twice as wide."""
    count, min_value = math.prod([x.shape[a] for a in axes]), np.iinfo(short).min if short.kind == "i" else 0
    bits = 1 if short.kind == "b" else 8 * short.itemsize
    max_value = max(-min_value, 2**bits - 1 + min_value)
    return x.dtype.kind in "iu" and x.dtype.itemsize == 8 and short.kind in "biu" and LONG <= count < 2**31 // max_value


def _nested_axes(inner: Shape, outer: Shape, ndim: int) -> Shape:
    remaining = [a for a in range(ndim) if a not in inner]
    return tuple(sorted({*inner, *(remaining[a] for a in outer)}))


def _reduce_broadcast(op: Op, source: GraphValue, shape: Shape, axes: Shape) -> Any:
    """Reduce the source of a broadcast, and multiply a sum by the number of repeats."""
    new = len(shape) - len(source.shape)
    aligned = (1,) * new + source.shape
    source_axes = tuple(a - new for a in axes if aligned[a] != 1)
    count = math.prod(shape[a] for a in axes if aligned[a] == 1)
    result = op(source, axes=source_axes) if source_axes else source
    if op is reduce_sum and count != 1 and source.dtype.kind != "b":  # a sum of booleans is `any`
        result = multiply(
            result, float(count) if source.dtype.kind == "f" else int(np.asarray(count).astype(source.dtype))
        )
    result = result if source_axes else _reduce_single(op, result)
    remaining = [a for a in range(len(shape)) if a not in axes]
    return broadcast_to(
        reshape(result, shape=tuple(aligned[a] for a in remaining)), shape=tuple(shape[a] for a in remaining)
    )


for _op in TABLE.values():
    if isinstance(_op.form, FoldForm):
        rule_for(_op)(_reduction_rule(_op, _op.form))


# -- predicates of integers ----------------------------------------------------------------------------
def _known_of_integers(value: bool) -> Callable[..., Any]:
    def rule(x: GraphValue) -> Any:
        whole = hasattr(x, "node") and x.dtype.kind in "biu"
        return cast(full_like(x, value), dtype="bool") if whole else None

    return rule


for _name, _value in (("isfinite", True), ("isinf", False), ("isnan", False)):
    rule_for(TABLE[_name])(_known_of_integers(_value))


# -- slice, pad, flip -----------------------------------------------------------------------------------
@rule_for(slice)
def _(x: GraphValue, *, start: Shape, stop: Shape, step: Shape) -> Any:
    aval = slice.aval(x.aval, start=start, stop=stop, step=step)
    if aval.shape == x.shape:
        return x
    op = producer(x)
    if op is slice:
        return _slice_of_slice(x, start, step, aval.shape)
    if op is pad:
        return _slice_of_pad(x, start, step, aval.shape)
    if op is concatenate:
        return _slice_of_concatenate(x, start, stop, step)
    if op is TABLE["where"] and producer(operand(x)) is pad:
        return _slice_of_where(x, start, step, aval.shape)
    if op is dynamic_update_slice:
        same = operand(x, 1).shape == aval.shape and _param(x, "step") == step and x.node.inputs[2:] == start
        return operand(x, 1) if same else None
    return reshaped(x, aval.shape)


def _window(x: Value, start: Shape, step: Shape, lengths: Shape) -> Any:
    """`lengths` elements of `x` from `start` on along each axis, `step` apart."""
    start = tuple(a if n else 0 for a, n in zip(start, lengths))
    stop = tuple(a + (n - 1) * s + 1 if n else a for a, s, n in zip(start, step, lengths))
    return slice(x, start=start, stop=stop, step=tuple(s if n > 1 else 1 for s, n in zip(step, lengths)))


def _slice_of_slice(x: Any, start: Shape, step: Shape, lengths: Shape) -> Any:
    outer, stride = _param(x, "start"), _param(x, "step")
    begin = tuple(a + b * s for a, b, s in zip(outer, start, stride))
    return _window(operand(x), begin, tuple(s * t for s, t in zip(step, stride)), lengths)


def _slice_of_pad(x: Any, start: Shape, step: Shape, lengths: Shape) -> Any:
    """Slice the padded operand, if the window contains no padding."""
    begin, stride = [], []
    for a, s, n, low, interior, size in zip(
        start, step, lengths, _param(x, "low"), _param(x, "interior"), operand(x).shape
    ):
        first, period = a - low, interior + 1
        if n and (first < 0 or first % period or (s % period and n > 1) or first + (n - 1) * s > (size - 1) * period):
            return None
        begin.append(first // period)
        stride.append(max(s // period, 1))
    return _window(operand(x), tuple(begin), tuple(stride), lengths)


def _slice_of_where(x: GraphValue, start: Shape, step: Shape, lengths: Shape) -> Any:
    """Slice the selected side, if one side is selected in the whole window, as in the cotangent of a write."""
    chosen = _slice_of_pad(operand(x), start, step, lengths)
    if chosen is None or (side := constant(chosen)) is None:
        return None
    selected = operand(x, 1 if side else 2)
    if not hasattr(selected, "node") or selected.dtype != x.dtype:
        return None
    return _window(selected, start, step, lengths)


def _slice_of_concatenate(x: GraphValue, start: Shape, stop: Shape, step: Shape) -> Any:
    """Slice one operand, if it contains the window."""
    axis, begin = _param(x, "axis"), 0
    for i in range(len(x.node.inputs)):
        segment = operand(x, i)
        end = begin + segment.shape[axis]
        if begin <= start[axis] and stop[axis] <= end:
            shift = tuple(begin if a == axis else 0 for a in range(len(start)))
            inside = [tuple(v - d for v, d in zip(values, shift)) for values in (start, stop)]
            return slice(segment, start=inside[0], stop=inside[1], step=step)
        begin = end
    return None


@rule_for(pad)
def _(x: GraphValue, *, low: Shape, high: Shape, interior: Shape, value: float) -> Any:
    result = pad.aval(x.aval, low=low, high=high, interior=interior, value=value)
    if result.shape == x.shape:
        return x
    inner = constant(x)
    if inner is not None and repr(inner) == repr(x.dtype.type(value).item()):
        return reshaped(x, result.shape)
    return None


@rule_for(flip)
def _(x: GraphValue, *, axes: Shape) -> Any:
    needed = tuple(sorted(a for a in axes if x.shape[a] > 1))
    if not needed or constant(x) is not None:
        return x
    if producer(x) is flip:
        return flip(operand(x), axes=tuple(sorted({*needed} ^ {*_param(x, "axes")})))
    return flip(x, axes=needed) if needed != axes else None


# -- constants and selects -------------------------------------------------------------------------------
@rule_for(TABLE["where"])
def _(condition: Any, x: Any, y: Any) -> Any:
    chosen = constant(condition)
    if chosen is None:
        same = [repr(constant(v) if hasattr(v, "node") else v) for v in (x, y)]
        if same[0] != same[1] or same[0] == "None":
            return None
    result, other = (x, y) if chosen or chosen is None else (y, x)
    if not hasattr(result, "node") and not hasattr(other, "node"):
        return full_like(condition, result) if type(result) is bool else None
    return result if hasattr(result, "node") else full_like(other, result)


@rule_for(TABLE["conj"])
def _(x: GraphValue) -> Any:
    return x if x.dtype.kind != "c" else None


# -- scans -----------------------------------------------------------------------------------------------
def _scan_rule(op: Op) -> Callable[..., Any]:
    def rule(x: GraphValue, *, axis: int) -> Any:
        if x.shape[axis] == 1:
            return x
        if producer(x) is transpose:  # NumPy's result has the layout of its operand
            perm = _param(x, "perm")
            return transpose(op(operand(x), axis=perm[axis]), perm=perm)
        return None

    return rule


for _op in TABLE.values():
    if isinstance(_op.form, Scan):
        rule_for(_op)(_scan_rule(_op))
