"""Simplify dynamic slices (`tracegrad.ops.indexing.dynamic_slice`).

A read of a window that was just written is the written value. The cotangent of a window is a window in zeros. Its
addition to an array becomes an update of the array, so an iteration that accumulates cotangents accesses only the
elements of the window. In loops the rules also apply to small windows at constant positions. Outside of loops a window
at a constant position is a `pad`, and part of a kernel over the whole array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tracegrad.avals import is_literal
from tracegrad.ir import GraphNode, GraphValue, Value
from tracegrad.ops.core.forms import Map, Move
from tracegrad.ops.elementwise.table import accumulate, where
from tracegrad.ops.indexing.dynamic_slice import counted, dynamic_slice, dynamic_update_slice
from tracegrad.ops.indexing.gather_scatter import gather
from tracegrad.ops.shape.linear import broadcast_to, pad, reshape, slice
from tracegrad.passes.algebra.accumulator_init import is_zero_accumulator
from tracegrad.passes.algebra.shape_rules import rule_for
from tracegrad.passes.core.constant_folding import constant, full_like, is_zero, reshaped
from tracegrad.passes.core.rewriter import in_loop, is_free, node_of, operand, producer
from tracegrad.target.tuning import TUNING

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand


Shape = tuple[int, ...]

LEAST = TUNING.passes.min_sliced
SMALL = TUNING.passes.min_slice_ratio
MAX_VISITED = 100  # maximum nodes that the search for reads of an array visits


def add_into_window(x: Any, y: Any) -> Any:
    """Rewrite x + y, a sum in free order, if one operand is a window in zeros; else None."""
    for total, addend in ((x, y), (y, x)):
        if is_literal(total):
            continue
        if producer(addend) is dynamic_update_slice and constant(operand(addend)) == 0:
            return _with_added(total, operand(addend, 1), _starts(addend, 2), _step(addend))
        if (term := _term(addend)) is not None and _is_in_zeros(addend):
            update = full_like(operand(addend, 1), term) if is_literal(term) else term
            return _with_added(accumulate(total, operand(addend)), update, _starts(addend, 2), _step(addend))
        if (padded := _small_window(addend, total, 0)) is not None:
            return _patched(total, _added(_inside(total, padded), operand(addend)), padded)
    return None


def _with_added(total: Any, update: GraphValue, starts: Sequence[Any], step: Shape) -> Any:
    """`total` with `update` added to a window; the addition is merged into an earlier update of the same window."""
    window = update.shape, starts, step
    above, x = [], total
    while (term := _term(x)) is not None:
        above.append((term, operand(x, 1).shape, _starts(x, 2), _step(x)))
        x = operand(x)
        if producer(x) is dynamic_update_slice and _is_window(x, 2, operand(x, 1).shape, window):
            x = dynamic_update_slice(operand(x), _added(operand(x, 1), update), *starts, step=step)
            for outer_term, sizes, outer_starts, outer_step in reversed(above):
                x = dynamic_update_slice(
                    x,
                    _added(dynamic_slice(x, *outer_starts, sizes=sizes, step=outer_step), outer_term),
                    *outer_starts,
                    step=outer_step,
                )
            return x
    before = dynamic_slice(total, *starts, sizes=update.shape, step=step)
    return dynamic_update_slice(total, _added(before, update), *starts, step=step)


def _term(x: Any) -> Any:
    """The value that `x` adds to a window of its first operand, in a sum in free order; None for other values."""
    if producer(x) is not dynamic_update_slice or not is_free(total := operand(x, 1)):
        return None
    window = total.shape, _starts(x, 2), _step(x)
    for k in range(2):
        before = operand(total, k)
        if producer(before) is dynamic_slice and node_of(operand(before)) is node_of(operand(x)):
            return operand(total, 1 - k) if _is_window(before, 1, before.shape, window) else None
    return None


def rewrite_below_term(x: Any, instead: Callable[[Any], Any]) -> Any:
    """The sum `x`, in which a term is added to a window of a value, with `instead` applied to the value. None if `x` is
    another value, or `instead` returns None."""
    if (term := _term(x)) is None or (result := instead(operand(x))) is None:
        return None
    return _with_added(result, term, _starts(x, 2), _step(x))


def _is_in_zeros(x: Any) -> bool:
    """Whether `x` is a window in zeros, or added to a loop's accumulator that starts from zeros."""
    while _term(x) is not None:
        x = operand(x)
    return (producer(x) is dynamic_update_slice and constant(operand(x)) == 0) or is_zero_accumulator(x)


def _added(before: Any, update: Any) -> Any:
    return update if constant(before) == 0 else accumulate(before, _nothing_elsewhere(update))


def _nothing_elsewhere(x: GraphValue) -> Operand:
    """The addend `x` with -0.0 instead of 0 outside of its mask, because the addition of -0.0 changes no bit."""
    if producer(x) is where and x.dtype.kind == "f" and not is_literal(operand(x, 1)) and is_zero(operand(x, 2)):
        return where(operand(x), operand(x, 1), -0.0)
    return x


def select_as_update(condition: Any, x: Any, y: Any) -> Any:
    """Rewrite `where(condition, x, y)` in a loop as a window update of `y`; None if the window is large and cannot be
    written in place."""
    padded = None if is_literal(y) or is_literal(condition) else _small_window(condition, y, False, 1)
    if padded is None or constant(operand(condition)) is not True or y.dtype.kind == "b":
        return None
    if _small_window(condition, y, False) is None and (is_literal(x) or not _can_be_written(y, x, padded)):
        return None
    update = _inside(y if is_literal(x) else x, padded)
    return _patched(y, full_like(update, x) if is_literal(x) else update, padded) if update.dtype == y.dtype else None


def _can_be_written(array: GraphValue, x: GraphValue, padded: Any) -> bool:
    """Whether an array can be written in place: `x` may only read the replaced elements of it, and small values."""
    if array.node in getattr(array.builder, "swapped", ()):
        return False  # the next iteration needs the array unchanged
    start_and_step, sizes = _start_and_step(padded), operand(padded).shape
    visited, waiting = set[GraphNode](), [(x.node, True)]  # a node, and whether it is read at the same indices
    while waiting and len(visited) < MAX_VISITED:
        node, along = waiting.pop()
        visited.add(node)
        if node is array.node:
            return False
        if array.node in node.operands and node.op in (slice, dynamic_slice, gather):
            params = dict(node.params)
            same = node.op is slice and (params["start"], params["step"]) == start_and_step and node.aval.shape == sizes
            if not (same and along) and SMALL * node.aval.size > array.aval.size:
                return False
        elif isinstance(node.form, Map | Move):
            along &= isinstance(node.form, Map) or node.op in (reshape, broadcast_to, pad)
            waiting += [(y, along) for y in node.operands if y not in visited]
    return not waiting


def _small_window(mask: GraphValue, whole: GraphValue, value: object, times: int = SMALL) -> Any:
    """The mask `mask` if it is a pad in a loop: `value` except in a small window of `whole`; else None."""
    if producer(mask) is not pad or not in_loop(mask) or constant(whole) is not None:
        return None
    inner, size = operand(mask).aval.size, whole.aval.size
    small = mask.shape == whole.shape and size >= LEAST and 0 < times * inner <= size
    return mask if small and dict(mask.node.params)["value"] == value else None


def _inside(x: Any, padded: Any) -> Any:
    """The elements of `x` at the operand's position in `padded`."""
    start, step = _start_and_step(padded)
    stop = tuple([a + (n - 1) * s + 1 for a, n, s in zip(start, operand(padded).shape, step)])
    return slice(x, start=start, stop=stop, step=step)


def _patched(x: Operand, update: Operand, padded: Any) -> Any:
    start, step = _start_and_step(padded)
    return dynamic_update_slice(x, update, *start, step=step)


def _start_and_step(padded: GraphValue) -> tuple[Shape, Shape]:
    params = dict(padded.node.params)
    return tuple(params["low"]), tuple([g + 1 for g in params["interior"]])


def _starts(x: GraphValue, first: int) -> list[Any]:
    return [operand(x, k) for k in range(first, len(x.node.inputs))]


def _step(x: GraphValue) -> Shape:
    step: Shape = dict(x.node.params)["step"]
    return step


def _fail(starts: Sequence[Any]) -> bool:
    """Whether starts are user indices that may be out of range, so that their check must remain."""
    return any(not is_literal(a) and producer(a) is counted for a in starts)


def _normalized_starts(starts: Sequence[Any], shape: Shape, window: Shape, step: Shape) -> list[Any]:
    """The starts with known ones as literals; an axis that the window fills starts at 0."""
    results = []
    for a, n, m, s in zip(starts, shape, window, step):
        known = 0 if n == m and s == 1 and not _fail([a]) else a if is_literal(a) else constant(a)
        results.append(a if known is None else known)
    return results


def _unlike(xs: list[GraphValue | int], ys: Sequence[Any]) -> bool:
    return any(
        (is_literal(x) != is_literal(y)) or (x != y if is_literal(x) else node_of(x) is not node_of(y))
        for x, y in zip(xs, ys)
    )


@rule_for(counted, "window-rules")
def _(x: GraphValue, *, length: int, axis: int) -> Any:
    index = constant(x)
    if type(index) is int:
        return full_like(x, index % length) if -length <= index < length else None
    return x if producer(x) is counted and dict(x.node.params)["length"] == length else None


@rule_for(dynamic_slice, "window-rules")
def _(x: GraphValue, *starts: Value, sizes: Shape, step: Shape) -> Any:
    if x.shape == sizes and not _fail(starts):
        return x
    known = _normalized_starts(starts, x.shape, sizes, step)
    if all(is_literal(a) for a in known):
        stop = tuple([a + (m - 1) * s + 1 if m else a for a, m, s in zip(known, sizes, step)])
        return slice(x, start=tuple(known), stop=stop, step=step)
    if _unlike(known, starts):
        return dynamic_slice(x, *known, sizes=sizes, step=step)
    if producer(x) is dynamic_update_slice and _is_window(x, 2, operand(x, 1).shape, (sizes, starts, step)):
        return operand(x, 1)
    return None if _fail(starts) else reshaped(x, sizes)


@rule_for(dynamic_update_slice, "window-rules")
def _(x: GraphValue, update: GraphValue, *starts: Value, step: Shape) -> Any:
    if update.shape == x.shape and not _fail(starts):
        return update
    if (0 in update.shape or _same_everywhere(x, update)) and not _fail(starts):
        return x
    known = _normalized_starts(starts, x.shape, update.shape, step)
    if _unlike(known, starts):
        return dynamic_update_slice(x, update, *known, step=step)
    if producer(x) is dynamic_update_slice and _is_window(x, 2, operand(x, 1).shape, (update.shape, starts, step)):
        return dynamic_update_slice(operand(x), update, *starts, step=step)
    if producer(update) is dynamic_slice and node_of(operand(update)) is node_of(x):
        return x if _is_window(update, 1, update.shape, (update.shape, starts, step)) else None
    return None


def _is_window(x: Any, first: int, shape: Shape, window: tuple[Shape, Sequence[Any], Shape]) -> bool:
    """Whether `x` reads or writes this window: its `shape`, and its starts from operand `first` on."""
    sizes, starts, step = window
    return shape == sizes and _step(x) == step and not _unlike(_starts(x, first), starts)


def _same_everywhere(x: GraphValue, y: GraphValue) -> bool:
    """Whether both are fills with the same value, to the bit."""
    value = constant(x)
    return value is not None and repr(value) == repr(constant(y))
