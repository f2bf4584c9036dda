"""The Jacobian-vector product of a graph, as a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracegrad import ad
from tracegrad.ir import Graph, build, replay

__all__ = ["pushed"]


def pushed(graph: Graph, wrt: Sequence[int]) -> tuple[Graph, list[int]]:
    """(inputs, tangents of the inputs `wrt`) -> (outputs, tangents of those outputs that have one that is not zero
    everywhere), and the positions of these outputs."""
    n = len(graph.inputs)
    found: list[int] = []

    def fn(*args: Any) -> list[Any]:
        outputs, tape = replay(graph, args[:n])
        start = {args[i].node: t for i, t in zip(wrt, args[n:])}
        tangents = ad.forward_sweep(tape, start, key=lambda x: x.node)
        found[:] = [k for k, x in enumerate(outputs) if x.node in tangents]
        return [*outputs, *(tangents[outputs[k].node] for k in found)]

    return build(fn, [*graph.avals, *(graph.avals[i] for i in wrt)]), found
