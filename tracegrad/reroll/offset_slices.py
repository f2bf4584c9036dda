"""Read and write array windows whose start is an operand that may vary between iterations.

A recorded `slice` has its start as a parameter, and a recorded in-place update is a select between the array and the
padded new values. Both are represented here as in user code: an array, new values, and a start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from tracegrad.avals import is_literal, name_of
from tracegrad.ir import GraphNode
from tracegrad.ir.rebuild import below
from tracegrad.ops.elementwise.table import where
from tracegrad.ops.indexing.dynamic_slice import dynamic_slice, dynamic_update_slice
from tracegrad.ops.shape.linear import broadcast_to, full, pad, slice


class SliceWindow(NamedTuple):
    """Window of an array: `sizes` elements, `step` apart, from `starts` on. A written window has `values` (an array of
    this shape, or a literal), selected by `where` with a mask."""

    array: GraphNode
    starts: tuple[int, ...]
    sizes: tuple[int, ...]
    step: tuple[int, ...]
    values: Any = None
    mask: GraphNode | None = None

    @property
    def is_small(self) -> bool:
        """Whether writing only the window is cheaper than rewriting the whole array."""
        return 4 * int(np.prod(self.sizes)) < self.array.aval.size

    def is_whole(self, axis: int) -> bool:
        return self.sizes[axis] == self.array.aval.shape[axis]


def window_of(node: GraphNode) -> SliceWindow | None:
    """The window that a node reads or writes; None for other nodes."""
    if node.op is slice:
        params = dict(node.params)
        return SliceWindow(node.operands[0], params["start"], node.aval.shape, params["step"])
    if node.op is not where:
        return None
    known = _WindowCache.written
    if known is None:
        return _written(*node.inputs)
    if node not in known:
        known[node] = _written(*node.inputs)
    return known[node]


class _WindowCache:
    """Cache of the windows that nodes write, during a loop search."""

    written: dict[GraphNode, SliceWindow | None] | None = None


@contextmanager
def cached_windows() -> Iterator[None]:
    """Cache windows during a loop search (context manager). Threads may do so concurrently: cached results are valid
    for all, and a lost result is recomputed."""
    _WindowCache.written = {}
    try:
        yield
    finally:
        _WindowCache.written = None


def _written(mask: Any, values: GraphNode | float, array: GraphNode | float) -> SliceWindow | None:
    if mask.op is not pad or is_literal(array) or not _all_true(mask.operands[0]) or dict(mask.params)["value"]:
        return None
    widths = low, high, interior = _pad_widths(mask)
    if not is_literal(values):
        if values.op is not pad or _pad_widths(values) != widths:
            return None
        values = values.operands[0]
    if min((*low, *high), default=0) < 0:
        return None
    return SliceWindow(array, low, mask.operands[0].aval.shape, tuple(n + 1 for n in interior), values, mask)


def _pad_widths(node: GraphNode) -> tuple[tuple[int, ...], ...]:
    params = dict(node.params)
    return params["low"], params["high"], params["interior"]


def _all_true(node: GraphNode) -> bool:
    node = below(node, broadcast_to)
    return node.op is full and dict(node.params)["value"] is True


def reads(node: GraphNode) -> tuple[Any, ...]:
    """The values that a node reads: its inputs, or the array of a window, the written values, and the start."""
    window = window_of(node) if node.op is slice or node.op is where else None
    if window is None:
        return node.inputs
    written = () if window.mask is None else (window.values,)
    return (window.array, *written, *window.starts)


def operands_of(node: GraphNode) -> tuple[GraphNode, ...]:
    """The nodes among `reads`."""
    window = window_of(node) if node.op is where else None
    if window is None:
        return node.operands
    return (window.array,) if is_literal(window.values) else (window.array, window.values)


def operands_of_all(nodes: Sequence[GraphNode]) -> list[tuple[GraphNode, ...]]:
    """`operands_of` for each of these nodes."""
    return [x.operands if x.op is not where else operands_of(x) for x in nodes]


def apply_window(window: SliceWindow, operands: Any, starts: Any = None) -> Any:
    """The same window of another array, with other values, and with other starts if given."""
    array, *values = operands
    if starts is not None:
        if not values:
            return dynamic_slice(array, *starts, sizes=window.sizes, step=window.step)
        return dynamic_update_slice(array, _filled(values[0], window, array), *starts, step=window.step)
    if window.mask is None:
        stop = [a + (n - 1) * s + 1 if n else a for a, n, s in zip(window.starts, window.sizes, window.step)]
        return slice(array, start=window.starts, stop=tuple(stop), step=window.step)
    params = dict(window.mask.params)
    mask = pad(full(shape=window.sizes, value=True, dtype="bool"), **params)
    new = values[0]
    if not is_literal(new):
        new = pad(new, **{**params, "value": np.zeros((), new.dtype).item()})
    return where(mask, new, array)


def _filled(values: Any, window: SliceWindow, array: Any) -> Any:
    return full(shape=window.sizes, value=values, dtype=name_of(array.dtype)) if is_literal(values) else values
