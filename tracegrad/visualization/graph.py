"""Diagram of an IR graph: one panel, a box for each input or op, with its parameters and its aval."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from tracegrad.avals import is_literal
from tracegrad.errors import located
from tracegrad.ir import Graph, Node
from tracegrad.ir.printer import named_regions
from tracegrad.ops.core.forms import Fill
from tracegrad.visualization.diagram import Box, Diagram, Line, Panel, number_text, shortened

__all__ = ["fusion_groups", "graph_diagram"]

LEGEND = {
    "leaf": "argument",
    "constant": "read from outside at each call",
    "op": "operation and its value",
    "backward": "operation of the derivative",
    "result": "result",
}


def graph_diagram(
    graph: Graph, names: Sequence[str], *, title: str, derived: bool, most: int, groups: Sequence[Group] = ()
) -> Diagram:
    """Make the diagram of `graph`; `names` are the names of its first inputs.

    Each region has its own panel; the nodes of each of the `groups` have a colour. In a derivative, nodes that depend
    on the cotangent of the result, the number 1, belong to the backward pass.
    """
    drawing = _Drawing({node: k for k, (_, nodes) in reversed(list(enumerate(groups))) for node in nodes})
    drawing.add("graph", graph, names, _backward(graph) if derived else set())
    if drawing.count > most:
        raise ValueError(
            located(
                f"the graph has {drawing.count} boxes, more than {most}; visualize a smaller function, or say how many "
                "may be drawn by max_nodes="
            )
        )
    told = [what for what, _ in groups]
    return Diagram(title, drawing.count, drawing.edges, drawing.panels, LEGEND, drawing.several, told)


Group = tuple[str, Sequence[Node]]  # name of a step of a program, and the nodes that it computes


def fusion_groups(result: Any) -> list[Group]:
    """Return the steps of a plan with their nodes; a node that several compute belongs to the first."""
    results: list[Group] = []
    stored = {root for step in result.schedule.steps for root in step.roots}
    for i, step in enumerate(result.schedule.steps):
        nodes, stack = list(step.roots), [x for root in step.roots for x in root.operands]
        while stack:
            x = stack.pop()
            if x.op is not None and x not in stored and x not in nodes:
                nodes.append(x)
                stack += x.operands
        names = ", ".join(dict.fromkeys(x.name for x in reversed(nodes) if x.picks is None))
        results.append((f"{i}: {'loop' if step.kind == 'nested' else step.kind}: {names}", nodes))
    return results


class _Drawing:
    """Panels of a graph and of its regions, side by side."""

    def __init__(self, groups: dict[Node, int]) -> None:
        self.groups = groups
        self.count = 0
        self.edges: list[tuple[int, int, int, str]] = []
        self.panels: list[Panel] = []
        self.several: set[int] = set()

    def add(self, title: str, graph: Graph, names: Sequence[str], later: set[Node]) -> None:
        """Add a panel for `graph`, and panels for its regions."""
        first = self.count
        values = [*graph.inputs, *(x for x in graph.nodes if x.picks is None)]
        place = {value: first + i for i, value in enumerate(values)}
        source = {x: x if x.picks is None else x.operands[0] for x in (*graph.inputs, *graph.nodes)}
        called = [*names, *graph.names[len(names) :]]
        boxes = {place[value]: _box(value, i, names, called, value in later) for i, value in enumerate(values)}
        for value in values:
            boxes[place[value]].group = self.groups.get(value, -1)
        edges = [(place[source[x]], place[node], x.picks or 0, "") for node in place for x in node.operands]
        for k, output in enumerate(graph.outputs):
            at = first + len(values) + k
            boxes[at] = Box("result", "result" if len(graph.outputs) == 1 else f"result {k}", [_aval(output)])
            edges.append((place[source[output]], at, output.picks or 0, "root"))
        used = {tail for tail, _, _, _ in edges}
        for x in graph.inputs:
            if place[x] not in used:
                boxes[place[x]].lines.append(Line("not used"))
        self.count += len(boxes)
        self.edges += edges
        self.panels.append(Panel(title, boxes))
        self.several |= {place[value] for value in values if value.several}
        for node in values:
            for name, region in named_regions(node):
                inputs = [f"input {k}" for k in range(len(region.inputs))]
                self.add(f"{name} of {node.name}", region, inputs, set())


def _backward(graph: Graph) -> set[Node]:
    later: set[Node] = set()
    for node in graph.nodes:
        seed = node.op is not None and isinstance(node.op.form, Fill) and dict(node.params)["value"] == 1.0
        if seed or not later.isdisjoint(node.operands):
            later.add(node)
    return later


def _box(value: Node, i: int, names: Sequence[str], called: Sequence[str], later: bool) -> Box:
    if value.op is None:
        name = called[i] if i < len(called) else ""
        return Box("leaf" if i < len(names) else "constant", name or "captured", [_aval(value)])
    hidden = {"tag", "dtype", *(name.partition(".")[0] for name, _ in named_regions(value))}
    lines = [Line(f"{k} = ", shortened(str(v), 18)) for k, v in value.params if k not in hidden][:3]
    lines += [Line("with ", number_text(x)) for x in value.inputs if is_literal(x)]
    return Box("backward" if later else "op", value.op.name, [*lines, _aval(value)], os.path.basename(value.location))


def _aval(value: Any) -> Line:
    return Line(str(value.aval))
