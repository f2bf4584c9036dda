"""Choices within choices: what one does not take in the end need not have been replaced by something else before.

An array of which a part is meant, as `A[i, :j]` in a loop over `j`, has something harmless in the place of the rest; so
has an operand whose values a function does not take, in code that is careful. Where the result is chosen by the same
mask again, nothing of that can be seen.
"""

from __future__ import annotations

from typing import Any

from tracegrad.avals import is_literal
from tracegrad.ir import Node
from tracegrad.ops.declare import Elementwise
from tracegrad.ops.elementwise import where
from tracegrad.ops.linear import broadcast_to, reshape
from tracegrad.passes.rewrite import node_of, operand, producer, shared

__all__ = ["chosen_once"]

DEEPEST = 8  # ops between two choices


def chosen_once(mask: Any, x: Any, y: Any) -> Any:
    """`where(mask, x, y)` with no choice by `mask` inside of x and y; None if there is none."""
    if is_literal(mask):
        return None
    base = _flat(mask)
    found = _taken(x, base, 1), _taken(y, base, 2)
    if found == (None, None):
        return None
    first, second = (old if new is None else new for old, new in zip((x, y), found))
    if is_literal(first) and is_literal(second):
        return None
    return where(mask, first, second)


def _flat(x: Any) -> Node | None:
    """What `x` has the elements of, in order."""
    while producer(x) is reshape:
        x = operand(x)
    return node_of(x)


def _taken(x: Any, base: Node | None, side: int, deep: int = 0) -> Any:
    """What may stand for `x`, of which the elements are taken where the mask is true (`side` 1), or false (2); None if
    that is nothing else."""
    if is_literal(x) or x.dtype.kind != "f" or deep == DEEPEST:
        return None
    op = producer(x)
    if op is where and _flat(operand(x)) is base:
        return _as_simple(operand(x, side), base, side, deep, x.shape)
    if shared(x):
        return None
    if op is reshape:
        found = _taken(operand(x), base, side, deep + 1)
        return found if found is None or is_literal(found) else reshape(found, shape=x.shape)
    if op is broadcast_to:
        source = _source(base, x)
        found = None if source is None else _taken(operand(x), source, side, deep + 1)
        return found if found is None or is_literal(found) else broadcast_to(found, shape=x.shape)
    if not isinstance(op, Elementwise):
        return None
    operands = [operand(x, k) for k in range(len(x.node.inputs))]
    asked, values = (operands[:1], operands[1:]) if op is where else ([], operands)
    if any(not is_literal(y) and y.dtype != x.dtype for y in values):
        return None  # what is asked, and integers, which must not be divided by 0
    found = [_taken(y, base, side, deep + 1) for y in values]
    if all(y is None for y in found):
        return None
    values = [old if new is None else new for old, new in zip(values, found)]
    return None if all(map(is_literal, values)) else op(*asked, *values)


def _source(base: Node | None, x: Any) -> Node | None:
    """What a mask repeats, if it repeats something as the array `x` does."""
    alike = base is not None and base.op is broadcast_to and base.aval.shape == x.shape
    if not alike or base.operands[0].aval.shape != operand(x).shape:  # type: ignore[union-attr]
        return None
    return _flat(x.builder.value(base.operands[0]))  # type: ignore[union-attr]


def _as_simple(x: Any, base: Node | None, side: int, deep: int, shape: tuple[int, ...]) -> Any:
    """An operand of a choice, if it has the shape of the choice or is a literal."""
    if is_literal(x):
        return x
    if x.shape != shape:
        return None
    found = _taken(x, base, side, deep + 1)
    return x if found is None else found
