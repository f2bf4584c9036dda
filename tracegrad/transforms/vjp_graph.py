"""Compute the vector-Jacobian product of a graph, as a graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tracegrad import ad
from tracegrad.ir import Graph, GraphNode, GraphValue, build, replay
from tracegrad.ops.elementwise.table import accumulate
from tracegrad.ops.shape.linear import zeros_like


def joint(graph: Graph, wrt: Sequence[int], seeded: Sequence[int]) -> tuple[Graph, list[int]]:
    """The joint graph (inputs, cotangents of the outputs `seeded`) -> (outputs, nonzero cotangents of the inputs
    `wrt`). The second result is the positions of the inputs with a nonzero cotangent."""
    n = len(graph.inputs)
    results: list[int] = []

    def fn(*args: GraphValue) -> list[Any]:
        outputs, entries = replay(graph, args[:n])
        # Equal nodes, for example x + y and y + x, have become one node, whose cotangent is propagated once.
        tape = list({_key(entry[0]): entry for entry in entries}.values())
        receivers = ad.receivers(tape, [args[i] for i in wrt], key=_node)
        seeds: dict[Any, Any] = {}
        for i, ct in zip(seeded, args[n:]):
            k = _node(outputs[i])
            seeds[k] = accumulate(seeds[k], ct) if k in seeds else ct
        cts = ad.reverse_sweep(tape, receivers, seeds, key=_node)
        results[:] = [i for i in wrt if _node(args[i]) in cts]
        return [*outputs, *(cts[_node(args[i])] for i in results)]

    return build(fn, [*graph.avals, *(graph.outputs[i].aval for i in seeded)]), results


def vjp(graph: Graph, wrt: Sequence[int] | None = None, seeded: Sequence[int] | None = None) -> Graph:
    """The VJP graph (inputs, cotangents of the `seeded` outputs) -> (outputs, cotangents of the inputs `wrt`).

    `wrt` and `seeded` are positions; the default is all inputs, and all outputs. A cotangent that is zero everywhere
    comes out as `full(0)`. Only nodes that the wanted cotangents depend on are emitted.
    """
    wrt = range(len(graph.inputs)) if wrt is None else wrt
    both, result = joint(graph, wrt, range(len(graph.outputs)) if seeded is None else seeded)

    def fn(*args: GraphValue) -> list[Any]:
        results = replay(both, args)[0]
        cts = dict(zip(result, results[len(graph.outputs) :]))
        return [*results[: len(graph.outputs)], *(cts[i] if i in cts else zeros_like(args[i]) for i in wrt)]

    return build(fn, both.avals)


def active_outputs(graph: Graph, inputs: Iterable[int]) -> set[int]:
    """The positions of the outputs that depend differentiably on these inputs."""
    active = {graph.inputs[i] for i in inputs if graph.avals[i].is_inexact}
    for node in graph.nodes:
        if node.result_index is not None:
            through = node.operands[0] in active
        else:
            through = any(
                x in active and node.op is not None and node.op.differentiable_in(k) for k, x in enumerate(node.inputs)
            )
        if through and (node.is_multi_result or node.aval.dtype.kind in "fc"):
            active.add(node)
    return {k for k, x in enumerate(graph.outputs) if x in active}


def _node(x: Any) -> Any:
    return x.node


def _key(ans: Any) -> tuple[GraphNode, ...] | GraphNode:
    return tuple(map(_node, ans)) if type(ans) is tuple else _node(ans)
