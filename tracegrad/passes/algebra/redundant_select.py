"""Eliminate redundant selects: nested `where` ops with the same mask.

An array with a valid part, as `A[i, :j]` in a loop over `j`, has harmless values elsewhere. Careful code also masks
values out before it applies a function. If the result is selected by the same mask, the inner select has no effect.
"""

from __future__ import annotations

from typing import Any

from tracegrad.avals import is_literal
from tracegrad.ir import GraphNode, GraphValue, Value
from tracegrad.ops.core.elementwise_op import Elementwise
from tracegrad.ops.elementwise.table import logical_and, logical_or, where
from tracegrad.ops.shape.linear import broadcast_to, reshape
from tracegrad.passes.core.constant_folding import constant
from tracegrad.passes.core.rewriter import node_of, operand, producer, shared, source

Bases = frozenset[GraphNode]

DEEPEST = 8  # maximum ops between two selects


def drop_inner_selects(mask: Any, x: Any, y: Any) -> Any:
    """Rewrite `where(mask, x, y)` without inner selects by `mask` in x and y; None if there are none."""
    if is_literal(mask):
        return None
    if producer(x) is where and node_of(source(mask)) in _known(operand(x), logical_and) and _alike(operand(x, 2), y):
        return x  # x already has the value of y where the mask is false
    results = _simplified(x, _known(mask, logical_and), 1), _simplified(y, _known(mask, logical_or), 2)
    if results == (None, None):
        return None
    first, second = (old if new is None else new for old, new in zip((x, y), results))
    if is_literal(first) and is_literal(second):
        return None
    return where(mask, first, second)


def _alike(x: Value, y: Value) -> bool:
    """Whether both are the same literal, to the bit."""
    first, second = (v if is_literal(v) else constant(v) for v in (x, y))
    return first is not None and repr(first) == repr(second)


def _known(mask: Any, op: Elementwise, deep: int = 0) -> Bases:
    """The masks that are known where a mask is selected: the operands combined by `op`."""
    results = [node_of(source(mask))]
    if producer(mask) is op and deep < DEEPEST:
        results += [y for k in range(2) for y in _known(operand(mask, k), op, deep + 1)]
    return frozenset(x for x in results if x is not None)


def _simplified(x: Value, bases: Bases, side: int, deep: int = 0) -> Any:
    """A simpler value for `x`, if only its elements with true masks (`side` 1) or false masks (2) are used; else
    None."""
    if is_literal(x) or x.dtype.kind != "f" or deep == DEEPEST:
        return None
    op = producer(x)
    if op is where and node_of(source(operand(x))) in bases:
        return _as_simple(operand(x, side), bases, side, deep, x.shape)
    if shared(x):
        return None
    if op is reshape:
        results = _simplified(operand(x), bases, side, deep + 1)
        return results if results is None or is_literal(results) else reshape(results, shape=x.shape)
    if op is broadcast_to:
        sources = _sources(bases, x)
        results = _simplified(operand(x), sources, side, deep + 1) if sources else None
        return results if results is None or is_literal(results) else broadcast_to(results, shape=x.shape)
    if not isinstance(op, Elementwise):
        return None
    operands = [operand(x, k) for k in range(len(x.node.inputs))]
    condition, values = (operands[:1], operands[1:]) if op is where else ([], operands)
    if any(not is_literal(y) and y.dtype != x.dtype for y in values):
        return None  # masks, and integers, which must not be divided by 0
    results = [_simplified(y, bases, side, deep + 1) for y in values]
    if all(y is None for y in results):
        return None
    values = [old if new is None else new for old, new in zip(values, results)]
    return None if all(map(is_literal, values)) else op(*condition, *values)


def _sources(bases: Bases, x: GraphValue) -> Bases:
    """The masks that are broadcast as the array `x` is."""
    alike = [y for y in bases if y.op is broadcast_to and y.aval.shape == x.shape]
    results = [y.operands[0] for y in alike if y.operands[0].aval.shape == operand(x).shape]
    return frozenset(z for y in results if (z := node_of(source(x.builder.value(y)))) is not None)


def _as_simple(x: Value, bases: Bases, side: int, deep: int, shape: tuple[int, ...]) -> object:
    """The selected operand, if it has the shape of the select or is a literal; else None."""
    if is_literal(x):
        return x
    if x.shape != shape:
        return None
    result = _simplified(x, bases, side, deep + 1)
    return x if result is None else result
