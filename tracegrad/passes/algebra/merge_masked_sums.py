"""Merge complementary masked sums: the parts that a mask splits an array into add up to the array.

If traced code writes to a part of an array, a sweep splits the cotangent of the array: one term for the part, and one
for the rest. It adds both terms if they belong to one array. If both are unchanged, the sum is the original cotangent.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tracegrad.avals import is_literal
from tracegrad.ir import GraphValue
from tracegrad.ops.elementwise.table import accumulate, where
from tracegrad.ops.indexing.dynamic_slice import dynamic_update_slice
from tracegrad.ops.shape.linear import pad, slice
from tracegrad.passes.algebra.dynamic_slice_rules import rewrite_below_term
from tracegrad.passes.core.constant_folding import constant, is_zero
from tracegrad.passes.core.rewriter import is_free, node_of, operand, producer, shared

DEEPEST = 4  # maximum depth of nested sums, and of nested selects


def merge_into_select(x: Any, y: Any) -> Any:
    """Rewrite x + y, a sum in free order, as a select, if each is 0 wherever the other may be nonzero; else None.

    It is the sum of the cotangents of a replaced part of a row and of the rest. A zero may change its sign.
    """
    if producer(x) is not where or producer(y) is not where or node_of(operand(x)) is not node_of(operand(y)):
        return None
    for first, second in ((x, y), (y, x)):
        selected = operand(first, 1), operand(second, 2)
        if is_zero(operand(first, 2)) and is_zero(operand(second, 1)) and not all(map(is_literal, selected)):
            return where(operand(x), *selected)
    return None


class _MaskedSelection(NamedTuple):
    """The elements of an array selected by nested masks, outermost first; each with the selected side."""

    array: Any
    masks: list[tuple[Any, bool]]

    @property
    def sides(self) -> set[Any]:
        return {(_known(mask), side) for mask, side in self.masks}


def _known(mask: Any) -> Any:
    """A key of a mask: its window, if the mask is a window."""
    if isinstance(mask, tuple):
        return mask
    inside = constant(operand(mask)) if producer(mask) is pad else None
    params = dict(mask.node.params)
    return _window(params, mask.shape) if inside is True and not params["value"] else node_of(mask)


def _window(params: dict[str, tuple[int, ...] | float], shape: tuple[int, ...]) -> tuple[Any, ...]:
    return params["low"], params["high"], params["interior"], shape


def _selection_of(x: GraphValue) -> _MaskedSelection:
    masks: list[tuple[Any, bool]] = []
    while len(masks) < DEEPEST:
        if producer(x) is pad and (array := _padded(x)) is not None:
            masks.append((_window(dict(x.node.params), x.shape), True))
            x = array
            continue
        if producer(x) is dynamic_update_slice and (window := _emptied(x)) is not None:
            masks.append((window, False))
            x = operand(x)
            continue
        side = producer(x) is where and is_zero(operand(x, 2))
        inside = operand(x, 1 if side else 2) if side or (producer(x) is where and is_zero(operand(x, 1))) else None
        if inside is None or is_literal(inside):
            break
        masks.append((operand(x), side))
        x = inside
    return _MaskedSelection(x, masks)


def _emptied(x: GraphValue) -> tuple[tuple[int, ...], ...] | None:
    """The window of an array that `x` overwrites with zeros; or None."""
    starts, strides = x.node.inputs[2:], dict(x.node.params)["step"]
    if not is_zero(operand(x, 1)) or not all(map(is_literal, starts)):
        return None
    ends = [a + (m - 1) * s + 1 for a, m, s in zip(starts, operand(x, 1).shape, strides)]
    high, interior = (n - b for n, b in zip(x.shape, ends)), (s - 1 for s in strides)
    return _window({"low": starts, "high": tuple(high), "interior": tuple(interior)}, x.shape)


def _padded(x: GraphValue) -> Any:
    """The array of which `x` is a window padded with zeros to its position; or None."""
    params, inner = dict(x.node.params), operand(x)
    if params["value"] != 0 or producer(inner) is not slice or operand(inner).shape != x.shape:
        return None
    slice_params = dict(inner.node.params)
    alike = slice_params["start"] == params["low"] and all(
        a == b + 1 for a, b in zip(slice_params["step"], params["interior"])
    )
    return operand(inner) if alike else None


def merge_complements(x: Any, y: Any) -> Any:
    """Rewrite x + y, a sum in free order, if an operand and a term of the other one are complementary masked parts of
    one array; else None. A zero may change its sign."""
    for total, addend in ((x, y), (y, x)):
        if producer(addend) in (where, pad) and not is_literal(total):
            result = _selection_of(addend)
            if result.masks and (whole := _with(total, result)) is not None:
                return whole
    return None


def _with(total: Any, selection: _MaskedSelection, deep: int = 0) -> Any:
    """`total` with a part added to its complementary term; None if there is none."""
    if (
        producer(total) in (where, pad, dynamic_update_slice)
        and (result := _joined(_selection_of(total), selection)) is not None
    ):
        return result
    if deep == DEEPEST or is_literal(total) or shared(total):
        return None
    if is_free(total):
        for k in range(2):
            if (result := _with(operand(total, k), selection, deep + 1)) is not None:
                return accumulate(operand(total, 1 - k), result)
    return rewrite_below_term(total, lambda before: _with(before, selection, deep + 1))


def _joined(x: _MaskedSelection, y: _MaskedSelection) -> object:
    """The union of two parts of one array, if they are complementary under a mask; else None."""
    difference = x.sides ^ y.sides
    if node_of(x.array) is not node_of(y.array) or len(difference) != 2 or len({mask for mask, _ in difference}) != 1:
        return None
    whole = x.array
    for mask, side in reversed(y.masks):
        if (_known(mask), side) not in difference:
            if isinstance(mask, tuple):
                return None
            whole = where(mask, whole, 0.0) if side else where(mask, 0.0, whole)
    return whole
