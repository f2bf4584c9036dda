"""Simplify boolean algebra of masks.

Derivatives compute masks of the elements whose cotangents may differ from 0 (`tracegrad.ops.core.forms`): inside a
mask, outside of it, and again for each write in an iteration. The union of the masks is usually true everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tracegrad.avals import is_literal
from tracegrad.ir import GraphValue, Value
from tracegrad.ops import Op
from tracegrad.ops.elementwise.table import logical_and, logical_not, logical_or
from tracegrad.ops.shape.linear import broadcast_to, pad, reshape
from tracegrad.passes.core.constant_folding import constant, full_like
from tracegrad.passes.core.rewriter import node_of, operand, producer, shared

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand


DEEPEST = 4  # maximum depth of nested disjunctions, and of nested conjunctions

Side = tuple[Any, bool]  # a canonical mask, and false if it is negated


def _side(x: GraphValue) -> Side:
    """The canonical mask below views and negations of `x`, and whether `x` is this mask (true) or its negation."""
    views: list[Any] = []
    polarity = True
    while (op := producer(x)) in (reshape, broadcast_to, logical_not):
        if op is logical_not:
            polarity = not polarity
        else:
            views.append((op, x.shape))
        x = operand(x)
    if op is pad and (inside := constant(operand(x))) is not None:
        params = dict(x.node.params)
        if inside != params.pop("value"):
            return (*views, *params.values(), x.shape), polarity == inside
    return (*views, node_of(x)), polarity


def _conjuncts(x: Any, deep: int = 0) -> list[Any]:
    """The conjuncts of a mask."""
    if producer(x) is not logical_and or deep == DEEPEST:
        return [x]
    return [y for k in range(2) for y in _conjuncts(operand(x, k), deep + 1)]


def _negated(x: GraphValue) -> Operand | None:
    """Negate a padded constant mask, as a padded constant; else None."""
    if producer(x) is not pad or x.dtype.kind != "b" or (inside := constant(operand(x))) is None:
        return None
    params = dict(x.node.params)
    return pad(full_like(operand(x), not inside), **{**params, "value": not params["value"]})


def _both(x: Any, y: Any) -> Any:
    if (result := _decided(x, y, False)) is not None or not _are_masks(x, y):
        return result
    first, second = ({_side(z) for z in _conjuncts(each)} for each in (x, y))
    if any((mask, not polarity) in first for mask, polarity in second):
        return full_like(x, False)
    return x if second <= first else y if first <= second else None


def _either(x: Value, y: Value) -> Any:
    if (result := _decided(x, y, True)) is not None or not _are_masks(x, y):
        return result
    result = _with(x, y)
    return _with(y, x) if result is None else result


def _decided(x: Value, y: Value, by: bool) -> Any:
    """The result if one of the masks is a constant that decides it; else None."""
    for one, other in ((x, y), (y, x)):
        if one is by and not is_literal(other) and other.dtype.kind == "b":
            return full_like(other, by)
    return None


def _are_masks(x: Any, y: Any) -> bool:
    arrays = not is_literal(x) and not is_literal(y)
    return arrays and x.dtype.kind == y.dtype.kind == "b" and x.shape == y.shape


def _with(total: Any, disjunct: Any, deep: int = 0) -> Any:
    """The disjunction of `total` and `disjunct`, if it is simpler than both; else None."""
    if producer(total) is logical_or:
        if deep == DEEPEST or shared(total):
            return None
        for k in range(2):
            if (result := _with(operand(total, k), disjunct, deep + 1)) is not None:
                return logical_or(operand(total, 1 - k), result)
        return None
    conjuncts = _conjuncts(disjunct)
    first, second = {_side(z) for z in _conjuncts(total)}, {_side(z) for z in conjuncts}
    if first <= second:
        return total
    other = {(mask, not polarity) for mask, polarity in first - second}
    if len(other) != 1 or not other <= second:
        return None
    rest = [z for z in conjuncts if _side(z) not in other]
    if len(first) == 1:  # outside of `total` only `rest` decides
        return logical_or(total, _all(rest)) if rest else full_like(disjunct, True)
    return _all(rest) if len(first) == len(second) else None


def _all(masks: list[Any]) -> Any:
    result = masks[0]
    for mask in masks[1:]:
        result = logical_and(result, mask)
    return result


LOGIC: dict[Op, Callable[..., Any]] = {logical_not: _negated, logical_and: _both, logical_or: _either}
