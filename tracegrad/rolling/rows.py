"""Values, one for each turn, as the rows of an array: of the array that they are pieces of, where they lie in order."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from tracegrad.ir import Node
from tracegrad.ops.linear import flip, reshape, slice, transpose
from tracegrad.ops.pieces import stack
from tracegrad.trace.builder import TraceBuilder

__all__ = ["pieces", "rows_in_order", "rows_of"]


class _Window(NamedTuple):
    """The part of an array between two corners."""

    array: Node
    start: tuple[int, ...]
    stop: tuple[int, ...]


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
    windows = [_window(x) for x in nodes]
    first = windows[0]
    if first is None or any(w is None or w.array is not first.array for w in windows):
        return None
    shape = nodes[0].aval.shape if shape is None else shape
    starts = [w.start for w in windows if w is not None]
    moving = [a for a, at in enumerate(first.start) if any(s[a] != at for s in starts)]
    if len(moving) != 1:
        return None
    (axis,) = moving
    step = starts[1][axis] - starts[0][axis]
    width = first.stop[axis] - first.start[axis]
    even = all(b[axis] - a[axis] == step for a, b in itertools.pairwise(starts))
    if not even or not step or width != 1:
        return None
    low, high = sorted((starts[0][axis], starts[-1][axis]))
    start, stop = list(first.start), list(first.stop)
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


def _window(node: Node) -> _Window | None:
    params = dict(node.params)
    if node.op is not slice or any(s != 1 for s in params["step"]):
        return None
    return _Window(node.operands[0], params["start"], params["stop"])
