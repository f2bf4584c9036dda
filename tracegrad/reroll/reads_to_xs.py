"""Convert reads at the loop counter (`a[i]`, `a[i - 1]`) of unchanged arrays to scanned inputs (xs) of a `scan`.

A `scan` reads its rows in order, and its derivative writes one row per iteration, without indexing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracegrad.analysis.affine import AffineForm, affine_of
from tracegrad.avals import Aval, Literal, is_literal
from tracegrad.ir import Graph, GraphNode, GraphValue, build
from tracegrad.ops.indexing.dynamic_slice import dynamic_slice
from tracegrad.ops.shape.linear import flip, reshape, slice, transpose
from tracegrad.reroll.merge_paths import again
from tracegrad.settings import disabled


def scan_reads(body: Graph, counter_at: int, arrays: Sequence[Any], numbers: range) -> tuple[Graph, list[Any]]:
    """The body of a scan with counter reads replaced by scanned rows, and the scanned arrays. The input at `counter_at`
    is the counter, and the inputs after it are `arrays`; the new inputs follow the counter."""
    if disabled("scanned-reads"):
        return body, []
    known = dict(zip(body.inputs[counter_at + 1 :], arrays))
    rows = {
        x: result
        for x in body.nodes
        if (result := _scanned_rows(x, body.inputs[counter_at], known, numbers)) is not None
    }
    if not rows:
        return body, []
    kinds = [Aval(x.shape[1:], x.dtype) for x in rows.values()]
    avals = [x.aval for x in body.inputs]

    def iteration(*args: GraphValue) -> list[Any]:
        rows_end = counter_at + 1 + len(rows)
        env: dict[GraphNode, Any] = dict(zip(rows, args[counter_at + 1 : rows_end]))
        env |= dict(zip(body.inputs, [*args[: counter_at + 1], *args[rows_end:]]))
        for node in body.nodes:
            if node in env:
                continue
            env[node] = again(node, [x if is_literal(x) else env[x] for x in node.inputs])
        return [env[x] for x in body.outputs]

    return build(iteration, [*avals[: counter_at + 1], *kinds, *avals[counter_at + 1 :]]), list(rows.values())


def _scanned_rows(node: GraphNode, number: GraphNode, arrays: dict[GraphNode, Any], numbers: range) -> Any:
    """The rows that a node reads, one per iteration; None if it is no window at the counter."""
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
    result = slice(array, start=tuple(start), stop=tuple(stop), step=tuple(step))
    if numbers.step < 0:
        result = flip(result, axes=(axis,))
    if axis:
        result = transpose(result, perm=(axis, *(a for a in range(len(sizes)) if a != axis)))
    return reshape(result, shape=(len(numbers), *sizes))


def _offset(start: GraphNode | Literal, number: GraphNode) -> int | None:
    """The offset from the counter to the start of a window, if it starts there."""
    form = affine_of(start, lambda x: AffineForm.symbol(x) if x is number else None)
    return None if form is None else form.minus(AffineForm.symbol(number))
