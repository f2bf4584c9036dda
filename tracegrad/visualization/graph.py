"""Diagram of an IR graph: one panel, a box for each input or op, with its parameters and its aval."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from tracegrad.avals import is_literal
from tracegrad.errors import located
from tracegrad.ir import Graph, GraphNode
from tracegrad.ir.printer import named_regions
from tracegrad.ops.core.forms import Fill
from tracegrad.visualization.diagram import BoxLine, Diagram, DiagramBox, Panel, number_text, shortened

LEGEND = {
    "leaf": "argument",
    "constant": "read from outside at each call",
    "op": "operation and its value",
    "backward": "operation of the derivative",
    "result": "result",
}


def graph_diagram(
    graph: Graph, names: Sequence[str], *, title: str, derived: bool, max_boxes: int, groups: Sequence[Group] = ()
) -> Diagram:
    """Make the diagram of `graph`; `names` are the names of its first inputs.

    Each region has its own panel; the nodes of each of the `groups` have a colour. In a derivative, nodes that depend
    on the cotangent of the result, the number 1, belong to the backward pass.
    """
    drawing = _GraphDrawing({node: k for k, (_, nodes) in reversed(list(enumerate(groups))) for node in nodes})
    drawing.add("graph", graph, names, _backward(graph) if derived else set())
    if drawing.count > max_boxes:
        raise ValueError(
            located(
                f"the graph has {drawing.count} boxes, more than {max_boxes}; visualize a smaller function, or say how "
                "many "
                "may be drawn by max_nodes="
            )
        )
    group_names = [group for group, _ in groups]
    return Diagram(title, drawing.count, drawing.edges, drawing.panels, LEGEND, drawing.multi_output, group_names)


Group = tuple[str, Sequence[GraphNode]]  # name of a step of a program, and the nodes that it computes


def fusion_groups(result: Any) -> list[Group]:
    """Return the steps of a plan with their nodes; a node that several compute belongs to the first."""
    results: list[Group] = []
    groups = [step.group for step in result.steps]
    stored = {root for group in groups for root in group.roots}
    for i, group in enumerate(groups):
        nodes, stack = list(group.roots), [x for root in group.roots for x in root.operands]
        while stack:
            x = stack.pop()
            if x.op is not None and x not in stored and x not in nodes:
                nodes.append(x)
                stack += x.operands
        names = ", ".join(dict.fromkeys(x.name for x in reversed(nodes) if x.result_index is None))
        results.append((f"{i}: {'loop' if group.kind == 'nested' else group.kind}: {names}", nodes))
    return results


class _GraphDrawing:
    """Panels of a graph and of its regions, side by side."""

    def __init__(self, groups: dict[GraphNode, int]) -> None:
        self.groups = groups
        self.count = 0
        self.edges: list[tuple[int, int, int, str]] = []
        self.panels: list[Panel] = []
        self.multi_output: set[int] = set()

    def add(self, title: str, graph: Graph, names: Sequence[str], later: set[GraphNode]) -> None:
        """Add a panel for `graph`, and panels for its regions."""
        first = self.count
        values = [*graph.inputs, *(x for x in graph.nodes if x.result_index is None)]
        position = {value: first + i for i, value in enumerate(values)}
        source = {x: x if x.result_index is None else x.operands[0] for x in (*graph.inputs, *graph.nodes)}
        called = [*names, *graph.names[len(names) :]]
        boxes = {position[value]: _box(value, i, names, called, value in later) for i, value in enumerate(values)}
        for value in values:
            boxes[position[value]].group = self.groups.get(value, -1)
        edges = [
            (position[source[x]], position[node], x.result_index or 0, "") for node in position for x in node.operands
        ]
        for k, output in enumerate(graph.outputs):
            at = first + len(values) + k
            boxes[at] = DiagramBox("result", "result" if len(graph.outputs) == 1 else f"result {k}", [_aval(output)])
            edges.append((position[source[output]], at, output.result_index or 0, "root"))
        used = {tail for tail, _, _, _ in edges}
        for x in graph.inputs:
            if position[x] not in used:
                boxes[position[x]].lines.append(BoxLine("not used"))
        self.count += len(boxes)
        self.edges += edges
        self.panels.append(Panel(title, boxes))
        self.multi_output |= {position[value] for value in values if value.is_multi_result}
        for node in values:
            for name, region in named_regions(node):
                inputs = [f"input {k}" for k in range(len(region.inputs))]
                self.add(f"{name} of {node.name}", region, inputs, set())


def _backward(graph: Graph) -> set[GraphNode]:
    later: set[GraphNode] = set()
    for node in graph.nodes:
        seed = node.op is not None and isinstance(node.op.form, Fill) and dict(node.params)["value"] == 1.0
        if seed or not later.isdisjoint(node.operands):
            later.add(node)
    return later


def _box(value: GraphNode, i: int, names: Sequence[str], called: Sequence[str], later: bool) -> DiagramBox:
    if value.op is None:
        name = called[i] if i < len(called) else ""
        return DiagramBox("leaf" if i < len(names) else "constant", name or "captured", [_aval(value)])
    hidden = {"tag", "dtype", *(name.partition(".")[0] for name, _ in named_regions(value))}
    lines = [BoxLine(f"{k} = ", shortened(str(v), 18)) for k, v in value.params if k not in hidden][:3]
    lines += [BoxLine("with ", number_text(x)) for x in value.inputs if is_literal(x)]
    return DiagramBox(
        "backward" if later else "op", value.op.name, [*lines, _aval(value)], os.path.basename(value.location)
    )


def _aval(value: Any) -> BoxLine:
    return BoxLine(str(value.aval))
