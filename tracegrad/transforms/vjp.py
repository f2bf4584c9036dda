"""The vector-Jacobian product of a graph, as a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracegrad import ad
from tracegrad.ir import Graph, build, replay
from tracegrad.ops.elementwise import add
from tracegrad.ops.linear import zeros_like

__all__ = ["vjp"]


def vjp(graph: Graph, wrt: Sequence[int] | None = None, seeded: Sequence[int] | None = None) -> Graph:
    """(inputs, cotangents of the `seeded` outputs) -> (outputs, cotangents of the inputs `wrt`).

    `wrt` and `seeded` are positions; the default is all inputs, and all outputs. A cotangent that is zero everywhere
    comes out as `full(0)`. Only what the wanted cotangents need is emitted.
    """
    n = len(graph.inputs)
    wrt = range(n) if wrt is None else wrt
    seeded = range(len(graph.outputs)) if seeded is None else seeded

    def fn(*args: Any) -> list[Any]:
        outputs, tape = replay(graph, args[:n])
        wanted = [args[i] for i in wrt]
        active = ad.active_values(tape, wanted, key=_node)
        seeds: dict[Any, Any] = {}
        for i, ct in zip(seeded, args[n:]):
            k = _node(outputs[i])
            seeds[k] = add(seeds[k], ct) if k in seeds else ct
        cts = ad.reverse_sweep(tape, seeds, lambda x: _node(x) in active, key=_node)
        return [*outputs, *(cts[_node(x)] if _node(x) in cts else zeros_like(x) for x in wanted)]

    return build(fn, [*graph.avals, *(graph.outputs[i].aval for i in seeded)])


def _node(x: Any) -> Any:
    return x.node
