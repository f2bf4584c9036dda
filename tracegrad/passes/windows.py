"""Simplification of windows at computed places (`tracegrad.ops.windows`).

What is read where something was just written is that; what is added to a window of zeros, which is the cotangent of a
window, is written into the sum. So a turn of a loop that adds up cotangents of an array costs what it touches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracegrad.avals import is_literal
from tracegrad.ops.elementwise import accumulate
from tracegrad.ops.linear import slice
from tracegrad.ops.windows import counted, dynamic_slice, dynamic_update_slice
from tracegrad.passes.constants import constant, full_like, reshaped
from tracegrad.passes.rewrite import node_of, operand, producer
from tracegrad.passes.structure import rule_for

__all__ = ["into_sum"]

Shape = tuple[int, ...]


def into_sum(x: Any, y: Any) -> Any:
    """x + y, a sum whose order is free, where one is a window in zeros; or None."""
    for total, part in ((x, y), (y, x)):
        if producer(part) is dynamic_update_slice and not is_literal(total) and constant(operand(part)) == 0:
            update, starts, step = operand(part, 1), _starts(part, 2), _step(part)
            before = dynamic_slice(total, *starts, sizes=update.shape, step=step)
            if constant(before) != 0:
                update = accumulate(before, update)
            return dynamic_update_slice(total, update, *starts, step=step)
    return None


def _starts(x: Any, first: int) -> list[Any]:
    return [operand(x, k) for k in range(first, len(x.node.inputs))]


def _step(x: Any) -> Shape:
    step: Shape = dict(x.node.params)["step"]
    return step


def _written(starts: Sequence[Any], shape: Shape, window: Shape, step: Shape) -> list[Any]:
    """Starts that are known, as literals: an axis that the window fills begins at 0."""
    found = []
    for a, n, m, s in zip(starts, shape, window, step):
        known = 0 if n == m and s == 1 else a if is_literal(a) else constant(a)
        found.append(a if known is None else known)
    return found


def _unlike(xs: Sequence[Any], ys: Sequence[Any]) -> bool:
    return any((is_literal(x) != is_literal(y)) or (x != y if is_literal(x) else node_of(x) is not node_of(y))
               for x, y in zip(xs, ys))  # fmt: skip


@rule_for(counted)
def _(x: Any, *, length: int, axis: int) -> Any:
    index = constant(x)
    if type(index) is int:
        return full_like(x, index % length) if -length <= index < length else None
    return x if producer(x) is counted and dict(x.node.params)["length"] == length else None


@rule_for(dynamic_slice)
def _(x: Any, *starts: Any, sizes: Shape, step: Shape) -> Any:
    if x.shape == sizes:
        return x
    known = _written(starts, x.shape, sizes, step)
    if all(is_literal(a) for a in known):
        stop = tuple([a + (m - 1) * s + 1 if m else a for a, m, s in zip(known, sizes, step)])
        return slice(x, start=tuple(known), stop=stop, step=step)
    if _unlike(known, starts):
        return dynamic_slice(x, *known, sizes=sizes, step=step)
    if producer(x) is dynamic_update_slice and _is_window(x, 2, operand(x, 1).shape, (sizes, starts, step)):
        return operand(x, 1)
    return reshaped(x, sizes)


@rule_for(dynamic_update_slice)
def _(x: Any, update: Any, *starts: Any, step: Shape) -> Any:
    if update.shape == x.shape:
        return update
    if 0 in update.shape or _same_everywhere(x, update):
        return x
    known = _written(starts, x.shape, update.shape, step)
    if _unlike(known, starts):
        return dynamic_update_slice(x, update, *known, step=step)
    if producer(x) is dynamic_update_slice and _is_window(x, 2, operand(x, 1).shape, (update.shape, starts, step)):
        return dynamic_update_slice(operand(x), update, *starts, step=step)
    if producer(update) is dynamic_slice and node_of(operand(update)) is node_of(x):
        return x if _is_window(update, 1, update.shape, (update.shape, starts, step)) else None
    return None


def _is_window(x: Any, first: int, shape: Shape, window: tuple[Shape, Sequence[Any], Shape]) -> bool:
    """Whether what `x` reads or writes, of `shape` and from its operands `first` on, is this window."""
    sizes, starts, step = window
    return shape == sizes and _step(x) == step and not _unlike(_starts(x, first), starts)


def _same_everywhere(x: Any, y: Any) -> bool:
    """Whether both hold one value, which is the same to the bit."""
    value = constant(x)
    return value is not None and repr(value) == repr(constant(y))
