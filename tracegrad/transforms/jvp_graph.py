"""Compute the Jacobian-vector product of a graph, as a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracegrad import ad
from tracegrad.ir import Graph, build, replay


def pushed(graph: Graph, wrt: Sequence[int]) -> tuple[Graph, list[int]]:
    """The JVP graph (inputs, tangents of the inputs `wrt`) -> (outputs, nonzero tangents of outputs), and the positions
    of the outputs with a nonzero tangent."""
    n = len(graph.inputs)
    results: list[int] = []

    def fn(*args: Any) -> list[Any]:
        outputs, tape = replay(graph, args[:n])
        start = {args[i].node: t for i, t in zip(wrt, args[n:])}
        tangents = ad.forward_sweep(tape, start, key=lambda x: x.node)
        results[:] = [k for k, x in enumerate(outputs) if x.node in tangents]
        return [*outputs, *(tangents[outputs[k].node] for k in results)]

    return build(fn, [*graph.avals, *(graph.avals[i] for i in wrt)]), results
