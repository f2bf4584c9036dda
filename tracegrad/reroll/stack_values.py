"""Stack the values of iterations into an array, or reuse the array that they are consecutive slices of."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracegrad.ir import GraphNode
from tracegrad.ops.shape.linear import flip, reshape, slice, transpose
from tracegrad.ops.shape.stack_split import stack
from tracegrad.reroll.offset_slices import window_of
from tracegrad.trace.builder.builder import TraceBuilder

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand
    from tracegrad.typing import Array


def stack_rows(builder: TraceBuilder, values: Sequence[GraphNode]) -> Operand:
    """Stack these rows to an array."""
    result = rows_of_array(builder, values)
    return stack(*map(builder.value, values), axis=0) if result is None else result


def rows_of_array(builder: TraceBuilder, values: Sequence[GraphNode]) -> Any:
    """The array with these rows, if they are evenly spaced, disjoint slices of one array; else None."""
    return join_slices(builder, [_unshaped(x) for x in values], values[0].aval.shape)


def _unshaped(node: GraphNode) -> GraphNode:
    """The source of `node` without reshapes."""
    return node.operands[0] if node.op is reshape else node


def join_slices(
    builder: TraceBuilder,
    nodes: Sequence[GraphNode],
    shape: tuple[int, ...] | None = None,
    array: GraphNode | None = None,
) -> Array | None:
    """As `rows_of_array`, for nodes that may be slices of one array, with rows of this shape; `array` makes its
    value."""
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
    strides = [1] * len(start)
    strides[axis] = abs(step)
    result = slice(
        builder.value(first.array if array is None else array),
        start=tuple(start),
        stop=tuple(stop),
        step=tuple(strides),
    )
    if step < 0:
        result = flip(result, axes=(axis,))
    if axis:
        result = transpose(result, perm=(axis, *(a for a in range(len(start)) if a != axis)))
    return reshape(result, shape=(len(nodes), *shape))
