"""The diagram of a graph of the IR: one panel, an input or an op to a box, with its parameters and its aval."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from tracegrad.avals import is_literal
from tracegrad.errors import located
from tracegrad.ir import Graph, Node
from tracegrad.visualize.model import Box, Diagram, Line, Panel, number_text, shortened

__all__ = ["graph_diagram"]

LEGEND = {
    "leaf": "argument",
    "constant": "read from outside at each call",
    "op": "operation and its value",
    "backward": "operation of the derivative",
    "result": "result",
}


def graph_diagram(graph: Graph, names: Sequence[str], *, title: str, derived: bool, most: int) -> Diagram:
    """The diagram of `graph`; `names` are those of its first inputs.

    Where it is a derivative, what depends on the cotangent of the result, the number 1, belongs to the backward pass.
    """
    values = [*graph.inputs, *(x for x in graph.nodes if x.picks is None)]
    if len(values) + len(graph.outputs) > most:
        raise ValueError(
            located(
                f"the graph has {len(values) + len(graph.outputs)} boxes, more than {most}; visualize a smaller "
                "function, or say how many may be drawn by max_nodes="
            )
        )
    place = {value: i for i, value in enumerate(values)}
    source = {x: x if x.picks is None else x.operands[0] for x in (*graph.inputs, *graph.nodes)}
    later = _backward(graph) if derived else set()
    boxes = {i: _box(value, i, names, value in later) for i, value in enumerate(values)}
    edges = [(place[source[x]], place[node], x.picks or 0, "") for node in place for x in node.operands]
    for k, output in enumerate(graph.outputs):
        boxes[len(values) + k] = Box("result", "result" if len(graph.outputs) == 1 else f"result {k}", [_aval(output)])
        edges.append((place[source[output]], len(values) + k, output.picks or 0, "root"))
    used = {tail for tail, _, _, _ in edges}
    for i in range(len(graph.inputs)):
        if i not in used:
            boxes[i].lines.append(Line("not used"))
    several = {i for i, value in enumerate(values) if value.several}
    return Diagram(title, len(boxes), edges, [Panel("graph", boxes)], LEGEND, several)


def _backward(graph: Graph) -> set[Node]:
    later: set[Node] = set()
    for node in graph.nodes:
        seed = node.op is not None and node.op.name == "full" and dict(node.params)["value"] == 1.0
        if seed or not later.isdisjoint(node.operands):
            later.add(node)
    return later


def _box(value: Node, i: int, names: Sequence[str], later: bool) -> Box:
    if value.op is None:
        named = i < len(names)
        return Box("leaf" if named else "constant", names[i] if named else "captured", [_aval(value)])
    lines = [Line(f"{k} = ", shortened(str(v), 18)) for k, v in value.params if k not in ("tag", "dtype")][:3]
    lines += [Line("with ", number_text(x)) for x in value.inputs if is_literal(x)]
    return Box("backward" if later else "op", value.op.name, [*lines, _aval(value)], os.path.basename(value.location))


def _aval(value: Any) -> Line:
    return Line(str(value.aval))
