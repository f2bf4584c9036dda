"""Values, one for each turn, as the rows of an array: of the array that they are pieces of, where they lie in order."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from tracegrad.ir import Node
from tracegrad.ops.shape.linear import flip, reshape, slice, transpose
from tracegrad.ops.shape.stack_split import stack
from tracegrad.reroll.offset_slices import window_of
from tracegrad.trace.builder.builder import TraceBuilder

__all__ = ["pieces", "rows_in_order", "rows_of"]


def rows_of(builder: TraceBuilder, values: Sequence[Node]) -> Any:
    """The array with these rows."""
    found = rows_in_order(builder, values)
    return stack(*map(builder.value, values), axis=0) if found is None else found


def rows_in_order(builder: TraceBuilder, values: Sequence[Node]) -> Any:
    """The array with these rows, if they are evenly spaced pieces of one that do not overlap; else None."""
    return pieces(builder, [_unshaped(x) for x in values], values[0].aval.shape)


def _unshaped(node: Node) -> Node:
    """What `node` is but for its shape."""
    return node.operands[0] if node.op is reshape else node


def pieces(
    builder: TraceBuilder, nodes: Sequence[Node], shape: tuple[int, ...] | None = None, array: Node | None = None
) -> Any:
    """As `rows_in_order`, with rows of this shape, for nodes that may be slices of one array; `array` stands for it."""
    windows = [w for x in nodes if (w := window_of(x)) is not None and w.mask is None and set(w.step) <= {1}]
    first = windows[0] if len(windows) == len(nodes) else None
    if first is None or any(w.array is not first.array for w in windows):
        return None
    shape = nodes[0].aval.shape if shape is None else shape
    starts = [w.starts for w in windows]
    moving = [a for a, at in enumerate(first.starts) if any(s[a] != at for s in starts)]
    if len(moving) != 1:
        return None
    (axis,) = moving
    step = starts[1][axis] - starts[0][axis]
    even = all(b[axis] - a[axis] == step for a, b in itertools.pairwise(starts))
    if not even or not step or first.sizes[axis] != 1:
        return None
    low, high = sorted((starts[0][axis], starts[-1][axis]))
    start, stop = list(first.starts), [a + n for a, n in zip(first.starts, first.sizes)]
    start[axis], stop[axis] = low, high + 1
    steps = [1] * len(start)
    steps[axis] = abs(step)
    found = slice(
        builder.value(first.array if array is None else array), start=tuple(start), stop=tuple(stop), step=tuple(steps)
    )
    if step < 0:
        found = flip(found, axes=(axis,))
    if axis:
        found = transpose(found, perm=(axis, *(a for a in range(len(start)) if a != axis)))
    return reshape(found, shape=(len(nodes), *shape))
