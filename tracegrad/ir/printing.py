"""How a graph prints; `tracegrad.ir.text` has the grammar and the parser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracegrad.avals import is_literal

if TYPE_CHECKING:
    from tracegrad.ir.graph import Graph

__all__ = ["to_text"]


def to_text(graph: Graph, locations: bool = False) -> str:
    """The text of `graph`; with `locations`, each node ends in a comment naming the user's line."""
    names = {n: f"%{i}" for i, n in enumerate([*graph.inputs, *graph.nodes])}

    def show(x: Any) -> str:
        return repr(x) if is_literal(x) else names[x]

    lines = [f"graph({', '.join(f'{names[x]}: {x.aval}' for x in graph.inputs)}) {{"]
    for node in graph.nodes:
        params = f" {{{', '.join(f'{k}={v!r}' for k, v in node.params)}}}" if node.params else ""
        comment = f"  # {node.location}" if locations and node.location else ""
        lines.append(
            f"  {names[node]} = {node.name}({', '.join(map(show, node.inputs))}){params} : {node.aval}{comment}"
        )
    return "\n".join([*lines, f"  return {', '.join(map(show, graph.outputs))}", "}"])
