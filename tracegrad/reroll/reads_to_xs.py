"""Windows that a loop reads at its counter (`a[i]`, `a[i - 1]`) of arrays that do not change: rows of these.

A `scan` is given rows one after the other, and its derivative gives one for each; nothing is looked for by number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracegrad.avals import Aval, is_literal
from tracegrad.ir import Graph, Node, build
from tracegrad.ops.elementwise.table import add, subtract
from tracegrad.ops.indexing.dynamic_slice import dynamic_slice
from tracegrad.ops.shape.linear import flip, reshape, slice, transpose
from tracegrad.reroll.merge_paths import again

__all__ = ["rows_taken"]


def rows_taken(body: Graph, place: int, arrays: Sequence[Any], numbers: range) -> tuple[Graph, list[Any]]:
    """The body of a scan, whose input at `place` is one of the numbers in each turn and whose inputs behind it are
    `arrays`, with more inputs behind the number: rows of arrays, which are given too."""
    known = dict(zip(body.inputs[place + 1 :], arrays))
    rows = {x: found for x in body.nodes if (found := _rows(x, body.inputs[place], known, numbers)) is not None}
    if not rows:
        return body, []
    kinds = [Aval(x.shape[1:], x.dtype) for x in rows.values()]
    avals = [x.aval for x in body.inputs]

    def turn(*args: Any) -> list[Any]:
        behind = place + 1 + len(rows)
        env: dict[Node, Any] = dict(zip(rows, args[place + 1 : behind]))
        env |= dict(zip(body.inputs, [*args[: place + 1], *args[behind:]]))
        for node in body.nodes:
            if node in env:
                continue
            env[node] = again(node, [x if is_literal(x) else env[x] for x in node.inputs])
        return [env[x] for x in body.outputs]

    return build(turn, [*avals[: place + 1], *kinds, *avals[place + 1 :]]), list(rows.values())


def _rows(node: Node, number: Node, arrays: dict[Node, Any], numbers: range) -> Any:
    """What a node reads in each turn, as rows; None if it is no window at the counter."""
    if node.op is not dynamic_slice or node.inputs[0] not in arrays:
        return None
    params = dict(node.params)
    sizes, starts = params["sizes"], node.inputs[1:]
    offsets = [_offset(x, number) for x in starts]
    moving = [a for a, x in enumerate(starts) if not is_literal(x)]
    if set(params["step"]) != {1} or len(moving) != 1:
        return None
    (axis,) = moving
    array, offset = arrays[node.inputs[0]], offsets[axis]
    if offset is None or sizes[axis] != 1:
        return None
    low, high = min(numbers[0], numbers[-1]) + offset, max(numbers[0], numbers[-1]) + offset
    if low < 0 or high >= array.shape[axis]:
        return None
    start = [low if a == axis else int(x) for a, x in enumerate(starts)]
    stop = [high + 1 if a == axis else start[a] + n for a, n in enumerate(sizes)]
    step = [abs(numbers.step) if a == axis else 1 for a in range(len(sizes))]
    found = slice(array, start=tuple(start), stop=tuple(stop), step=tuple(step))
    if numbers.step < 0:
        found = flip(found, axes=(axis,))
    if axis:
        found = transpose(found, perm=(axis, *(a for a in range(len(sizes)) if a != axis)))
    return reshape(found, shape=(len(numbers), *sizes))


def _offset(start: Any, number: Node) -> int | None:
    """What is added to the counter, if that is where a window starts."""
    if start is number:
        return 0
    if isinstance(start, Node) and start.op in (add, subtract):
        x, y = start.inputs
        if x is number and type(y) is int:
            return y if start.op is add else -y
        if y is number and type(x) is int and start.op is add:
            return x
    return None
