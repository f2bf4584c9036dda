"""Rows of an array that a loop takes elements of: the loop is given the array and the place of the row.

What a loop within a loop has kept for its derivative is a row of what the loop around it has kept. As an operand the
row would be a copy, of room for as many turns as there may be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracegrad.control import while_op as until
from tracegrad.ir import Builder, Graph, Node, replay
from tracegrad.ir.builder import recording
from tracegrad.ops.indexing.gather_scatter import gather
from tracegrad.passes.algebra.shape_rules import rule_for
from tracegrad.passes.core.rewriter import operand, producer

__all__ = ["read_inside"]


@rule_for(gather)
def _(*xs: Any, axes: tuple[int, ...]) -> Any:
    """An element of a row is an element of the array."""
    row, *places = xs
    if producer(row) is not gather or not _is_place(row.node) or not _are_leading(axes, places):
        return None
    return gather(operand(row), operand(row, 1), *places, axes=tuple(range(len(axes) + 1)))


def read_inside(operands: Sequence[Any], graphs: Sequence[Graph], first: int) -> tuple[list[Any], list[Graph]] | None:
    """The operands, and the regions that take them all, with arrays and places for rows from operand `first` on of
    which the regions read elements only; None if there are none."""
    found = [
        k for k, x in enumerate(operands) if k >= first and producer(x) is gather and _is_place(x.node)
        and all(_absorbs(graph, graph.inputs[k]) for graph in graphs)
    ]  # fmt: skip
    if not found:
        return None
    parts = {k: [operand(operands[k]), operand(operands[k], 1)] for k in found}
    given = [x for k, x in enumerate(operands) if k not in parts]
    given += [x for pair in parts.values() for x in pair]
    return given, [_taking(graph, given, found) for graph in graphs]


def _taking(graph: Graph, given: Sequence[Any], rows: Sequence[int]) -> Graph:
    builder = Builder(given[0].builder.simplify)
    values = [builder.input(x.aval) for x in given]
    left, pairs = iter(values[: -2 * len(rows)]), iter(values[-2 * len(rows) :])
    with recording(builder):
        inputs = [
            gather(next(pairs), next(pairs), axes=(0,)) if k in rows else next(left) for k in range(len(graph.inputs))
        ]
        return builder.build(replay(graph, inputs)[0])


def _is_place(node: Node) -> bool:
    """Whether it is the row of an array at one computed place."""
    return dict(node.params)["axes"] == (0,) and isinstance(node.inputs[1], Node) and not node.inputs[1].aval.shape


def _are_leading(axes: tuple[int, ...], places: Sequence[Any]) -> bool:
    return axes == tuple(range(len(axes))) and not any(x.shape for x in places if hasattr(x, "shape"))


def _absorbs(graph: Graph, x: Node) -> bool:
    """Whether all that is read of an input are elements at computed places, here or in loops within."""
    return x not in graph.outputs and all(_takes_elements(node, x) for node in graph.nodes if x in node.operands)


def _takes_elements(node: Node, x: Node) -> bool:
    params = dict(node.params)
    if node.op is gather:
        places = [each.aval for each in node.inputs[1:] if isinstance(each, Node)]
        return x not in node.inputs[1:] and _are_leading(params["axes"], places)
    if node.op is not until.while_loop or x in node.operands[: params["carries"]]:
        return False
    at = [k for k, each in enumerate(node.operands) if each is x]
    return all(_absorbs(graph, graph.inputs[k]) for graph in (params["body"], params["cond"]) for k in at)
