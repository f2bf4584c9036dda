"""Fold row reads into element reads: a region takes the array and the row index instead of a row.

The residuals of a nested loop are a row of the residuals of the outer loop. A row that is an operand would be a copy,
with room for the maximal number of iterations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracegrad.control import while_op
from tracegrad.ir import Builder, Graph, GraphNode, GraphValue, replay
from tracegrad.ir.builder import recording
from tracegrad.ir.loop_view import LoopView
from tracegrad.ops.indexing.gather_scatter import gather
from tracegrad.passes.algebra.shape_rules import rule_for
from tracegrad.passes.core.rewriter import operand, producer
from tracegrad.settings import disabled


@rule_for(gather, "row-reads")
def _(*xs: GraphValue, axes: tuple[int, ...]) -> Any:
    """Read an element of a row from the array."""
    row, *indices = xs
    if producer(row) is not gather or not _is_row_read(row.node) or not _are_leading(axes, indices):
        return None
    return gather(operand(row), operand(row, 1), *indices, axes=tuple(range(len(axes) + 1)))


def read_inside(operands: Sequence[Any], graphs: Sequence[Graph], first: int) -> tuple[list[Any], list[Graph]] | None:
    """The operands and the regions with rows replaced by arrays and row indices; None if there are no rows to replace.
    Rows are replaced from operand `first` on, if the regions read only elements of them."""
    results = [
        k
        for k, x in enumerate(operands)
        if k >= first
        and producer(x) is gather
        and _is_row_read(x.node)
        and all(_absorbs(graph, graph.inputs[k]) for graph in graphs)
    ]
    if not results or disabled("row-reads"):
        return None
    row_sources = {k: [operand(operands[k]), operand(operands[k], 1)] for k in results}
    args = [x for k, x in enumerate(operands) if k not in row_sources]
    args += [x for pair in row_sources.values() for x in pair]
    return args, [_with_row_reads(graph, args, results) for graph in graphs]


def _with_row_reads(graph: Graph, args: Sequence[Any], row_inputs: Sequence[int]) -> Graph:
    builder = Builder(args[0].builder.simplify)
    values = [builder.input(x.aval) for x in args]
    others, pairs = iter(values[: -2 * len(row_inputs)]), iter(values[-2 * len(row_inputs) :])
    with recording(builder):
        inputs = [
            gather(next(pairs), next(pairs), axes=(0,)) if k in row_inputs else next(others)
            for k in range(len(graph.inputs))
        ]
        return builder.build(replay(graph, inputs)[0])


def _is_row_read(node: GraphNode) -> bool:
    """Whether it is a row of an array at one computed index."""
    return dict(node.params)["axes"] == (0,) and isinstance(node.inputs[1], GraphNode) and not node.inputs[1].aval.shape


def _are_leading(axes: tuple[int, ...], indices: Sequence[object]) -> bool:
    return axes == tuple(range(len(axes))) and not any(x.shape for x in indices if hasattr(x, "shape"))


def _absorbs(graph: Graph, x: GraphNode) -> bool:
    """Whether an input is only read by elements at computed positions, here or in inner loops."""
    return x not in graph.outputs and all(_reads_elements(node, x) for node in graph.nodes if x in node.operands)


def _reads_elements(node: GraphNode, x: GraphNode) -> bool:
    if node.op is gather:
        indices = [each.aval for each in node.inputs[1:] if isinstance(each, GraphNode)]
        return x not in node.inputs[1:] and _are_leading(dict(node.params)["axes"], indices)
    if node.op is not while_op.while_loop or x in LoopView.of(node).initial(node.operands):
        return False
    at = [k for k, each in enumerate(node.operands) if each is x]
    return all(_absorbs(graph, graph.inputs[k]) for graph in node.regions for k in at)
