"""Choices within choices: what one does not take in the end need not have been replaced by something else before.

An array of which a part is meant, as `A[i, :j]` in a loop over `j`, has something harmless in the place of the rest; so
has an operand whose values a function does not take, in code that is careful. Where the result is chosen by the same
mask again, nothing of that can be seen.
"""

from __future__ import annotations

from typing import Any

from tracegrad.avals import is_literal
from tracegrad.ir import Node
from tracegrad.ops.core.elementwise_op import Elementwise
from tracegrad.ops.elementwise.table import logical_and, logical_or, where
from tracegrad.ops.shape.linear import broadcast_to, reshape
from tracegrad.passes.core.constant_folding import constant
from tracegrad.passes.core.rewriter import node_of, operand, producer, shared

__all__ = ["chosen_once"]

Bases = frozenset[Node]

DEEPEST = 8  # ops between two choices


def chosen_once(mask: Any, x: Any, y: Any) -> Any:
    """`where(mask, x, y)` with no choice by `mask` inside of x and y; None if there is none."""
    if is_literal(mask):
        return None
    if producer(x) is where and _flat(mask) in _known(operand(x), logical_and) and _alike(operand(x, 2), y):
        return x  # which is that where the mask is false
    found = _taken(x, _known(mask, logical_and), 1), _taken(y, _known(mask, logical_or), 2)
    if found == (None, None):
        return None
    first, second = (old if new is None else new for old, new in zip((x, y), found))
    if is_literal(first) and is_literal(second):
        return None
    return where(mask, first, second)


def _alike(x: Any, y: Any) -> bool:
    """Whether both are one number, to the bit."""
    first, second = (v if is_literal(v) else constant(v) for v in (x, y))
    return first is not None and repr(first) == repr(second)


def _flat(x: Any) -> Node | None:
    """What `x` has the elements of, in order."""
    while producer(x) is reshape:
        x = operand(x)
    return node_of(x)


def _known(mask: Any, op: Any, deep: int = 0) -> Bases:
    """What is true where a mask is, or false where it is not: all that is made one by `op`."""
    found = [_flat(mask)]
    if producer(mask) is op and deep < DEEPEST:
        found += [y for k in range(2) for y in _known(operand(mask, k), op, deep + 1)]
    return frozenset(x for x in found if x is not None)


def _taken(x: Any, bases: Bases, side: int, deep: int = 0) -> Any:
    """What may stand for `x`, of which the elements are taken where masks are true (`side` 1), or false (2); None if
    that is nothing else."""
    if is_literal(x) or x.dtype.kind != "f" or deep == DEEPEST:
        return None
    op = producer(x)
    if op is where and _flat(operand(x)) in bases:
        return _as_simple(operand(x, side), bases, side, deep, x.shape)
    if shared(x):
        return None
    if op is reshape:
        found = _taken(operand(x), bases, side, deep + 1)
        return found if found is None or is_literal(found) else reshape(found, shape=x.shape)
    if op is broadcast_to:
        sources = _sources(bases, x)
        found = _taken(operand(x), sources, side, deep + 1) if sources else None
        return found if found is None or is_literal(found) else broadcast_to(found, shape=x.shape)
    if not isinstance(op, Elementwise):
        return None
    operands = [operand(x, k) for k in range(len(x.node.inputs))]
    asked, values = (operands[:1], operands[1:]) if op is where else ([], operands)
    if any(not is_literal(y) and y.dtype != x.dtype for y in values):
        return None  # what is asked, and integers, which must not be divided by 0
    found = [_taken(y, bases, side, deep + 1) for y in values]
    if all(y is None for y in found):
        return None
    values = [old if new is None else new for old, new in zip(values, found)]
    return None if all(map(is_literal, values)) else op(*asked, *values)


def _sources(bases: Bases, x: Any) -> Bases:
    """What masks repeat that repeat something as the array `x` does."""
    alike = [y for y in bases if y.op is broadcast_to and y.aval.shape == x.shape]
    found = [y.operands[0] for y in alike if y.operands[0].aval.shape == operand(x).shape]
    return frozenset(z for y in found if (z := _flat(x.builder.value(y))) is not None)


def _as_simple(x: Any, bases: Bases, side: int, deep: int, shape: tuple[int, ...]) -> Any:
    """An operand of a choice, if it has the shape of the choice or is a literal."""
    if is_literal(x):
        return x
    if x.shape != shape:
        return None
    found = _taken(x, bases, side, deep + 1)
    return x if found is None else found
