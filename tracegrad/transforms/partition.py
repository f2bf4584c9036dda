"""Partition a joint graph into a forward and a backward pass: save or recompute values (rematerialization).

The residuals between the passes are the forward values that the backward pass reads. Saving a value costs its bytes,
but a cheap op can be recomputed in the backward pass from saved values or arguments. The saved values are a minimum
cut of the graph from the arguments to the backward pass, in which a saved value weighs its bytes. The method follows
Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016, with the cut instead of the heuristic.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from tracegrad.avals import is_literal
from tracegrad.ir import Builder, Graph, GraphNode
from tracegrad.ir.builder import sliced
from tracegrad.ops.core.forms import Checked
from tracegrad.settings import disabled
from tracegrad.transforms.min_cut import source_side

_INFINITE = 2**30


def partition(
    joint: Graph, arguments: int, results: int, expensive: Collection[GraphNode] = ()
) -> tuple[Graph, Graph, tuple[GraphNode, ...]]:
    """The forward graph (arguments) -> (results, residuals); the backward graph (values, cotangents) -> (cotangents),
    and the values it takes: nodes of `joint`. They include arguments; the others are the residuals in order.

    The first `arguments` inputs of `joint` are the function's arguments, and the others are cotangents. Its first
    `results` outputs are the function's results, and the others are cotangents. Arguments and results cost nothing to
    save, except the `expensive` ones.
    """
    cts = joint.inputs[arguments:]
    late = joint.dependents(cts)
    read = {x for node in joint.nodes if node in late for x in node.operands if x not in late}
    read |= {x for x in joint.outputs[results:] if x not in late}
    free = {*joint.inputs[:arguments], *joint.outputs[:results]}.difference(expensive)
    values = _cut(joint, arguments, free, late, read)
    saved = [x for x in values if x.op is not None]
    forward = sliced(joint.inputs[:arguments], joint.nodes, [*joint.outputs[:results], *saved])
    return forward, _backward(joint, values, cts, joint.outputs[results:]), tuple(values)


def between(
    joint: Graph, known: Sequence[GraphNode], cts: Sequence[GraphNode], outputs: Sequence[GraphNode]
) -> tuple[Graph, list[GraphNode]]:
    """The graph from known values and cotangents to `outputs`; and which of the values it reads."""
    needed, stop = set(outputs), {*known, *cts}
    for node in reversed(joint.nodes):
        if node in needed and node not in stop:
            needed.update(node.operands)
    values = [x for x in known if x in needed]
    return _backward(joint, values, cts, outputs), values


def _cut(
    joint: Graph, arguments: int, free: set[GraphNode], late: set[GraphNode], read: set[GraphNode]
) -> list[GraphNode]:
    """The values to pass to the backward graph, arguments first, in the order of the graph."""
    early = [x for x in (*joint.inputs[:arguments], *joint.nodes) if x not in late]
    if disabled("rematerialization"):
        return [x for x in early if x in read]
    needed = _needed(early, read)
    candidates = [x for x in early if x in needed]
    chosen = _minimum_cut(candidates, free, read)
    order = {x: k for k, x in enumerate(early)}
    return sorted(chosen, key=lambda x: (x.op is not None, order[x]))


def _needed(early: Sequence[GraphNode], read: set[GraphNode]) -> set[GraphNode]:
    """The forward values that the backward pass reads, directly or to recompute them."""
    needed = set(read)
    for node in reversed(early):
        if node in needed and _cheap(node):
            needed.update(node.operands)
    return needed


def _cheap(node: GraphNode) -> bool:
    if node.op is None or node.is_multi_result:
        return False
    return node.op.form.cheap or isinstance(node.op.form, Checked)  # the forward pass has passed the check


def _minimum_cut(candidates: Sequence[GraphNode], free: set[GraphNode], read: set[GraphNode]) -> set[GraphNode]:
    """The values of a minimum cut: value k is an edge from 2k to 2k + 1 whose weight is its bytes; a value that cannot
    be recomputed comes from the source."""
    count = len(candidates)
    number = {x: k for k, x in enumerate(candidates)}
    source, sink = 2 * count, 2 * count + 1
    edges: list[tuple[int, int, int]] = []
    for k, x in enumerate(candidates):
        edges.append((2 * k, 2 * k + 1, _weight(x, x in free)))
        if _cheap(x) and x.operands:
            edges.extend((2 * number[y] + 1, 2 * k, _INFINITE) for y in dict.fromkeys(x.operands))
        elif not _cheap(x):
            edges.append((source, 2 * k, _INFINITE))
        if x in read:
            edges.append((2 * k + 1, sink, _INFINITE))
    reached = source_side(2 * count + 2, edges, source, sink)
    return {x for k, x in enumerate(candidates) if 2 * k in reached and 2 * k + 1 not in reached}


def _weight(node: GraphNode, free: bool) -> int:
    """The weight in units of 64 bytes, at least 2; 1 for arguments and results, which exist in any case."""
    if free:
        return 1
    return min(2 + node.aval.nbytes // 64, _INFINITE - 1)


def _backward(
    joint: Graph, values: Sequence[GraphNode], cts: Sequence[GraphNode], outputs: Sequence[GraphNode]
) -> Graph:
    """The graph from `values` and cotangents to `outputs`."""
    builder = Builder()
    env: dict[GraphNode, Any] = {x: builder.input(x.aval) for x in (*values, *cts)}
    needed = set(outputs)
    steps = []
    for node in reversed(joint.nodes):
        if node in needed and node not in env:
            needed.update(node.operands)
            steps.append(node)
    for node in reversed(steps):
        assert node.op is not None
        if node.result_index is not None:
            env[node] = env[node.operands[0]][node.result_index]
            continue
        builder.location = node.location
        args = tuple([x if is_literal(x) else env[x] for x in node.inputs])
        env[node] = builder.emit(node.op, args, dict(node.params))
    return builder.build([env[x] for x in outputs])
