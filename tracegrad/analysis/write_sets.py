"""Compute the write set of a region on an updated array: the windows written by it and by nested regions."""

from __future__ import annotations

from tracegrad.analysis.index_ranges import Distances, IndexWindow, distances, input_distances, window_at
from tracegrad.avals import Literal
from tracegrad.ir import GraphNode
from tracegrad.ir.loop_view import LoopView, is_loop
from tracegrad.ops.core.forms import Branch
from tracegrad.ops.indexing.dynamic_slice import dynamic_update_slice


class WriteSet:
    """Windows written to an array, traced back from its value after an iteration to its value before."""

    def __init__(self, known: dict[GraphNode, Distances]):
        self.known = known
        self.windows: list[IndexWindow] = []
        self.values: list[GraphNode] = []  # the array, before and after each update in an iteration
        self.first: GraphNode | None = None  # the input, if only windows of it are written

    def trace_back(self, after: GraphNode, until: GraphNode | None = None) -> WriteSet:
        """Trace back from `after` to the value of the array before the iteration, or to its value `until`."""
        x: GraphNode | Literal | None = after
        while isinstance(x, GraphNode):
            self.values.append(x)
            if x.op is None or x is until:
                self.first = x
                break
            x = self._before(x)
        return self

    def _before(self, x: GraphNode) -> GraphNode | Literal | None:
        """The operand of `x` whose windows `x` has updated; or None."""
        if x.op is dynamic_update_slice:
            starts = [distances(a, self.known) for a in x.inputs[2:]]
            self.windows.append(window_at(starts, x.inputs[1].aval.shape, dict(x.params)["step"]))
            return x.operands[0]
        if x.result_index is None:
            return None
        owner = x.operands[0]
        if is_loop(owner):
            return self._of_loop(owner, x.result_index)
        return self._of_branches(owner, x.result_index) if isinstance(owner.form, Branch) else None

    def _of_loop(self, node: GraphNode, k: int) -> GraphNode | Literal | None:
        loop = LoopView.of(node)
        if k >= loop.carries:
            return None
        inside = WriteSet(input_distances(loop, node.inputs, self.known)).trace_back(loop.body.outputs[k])
        self.windows += inside.windows
        return node.inputs[k] if inside.first is loop.body.inputs[k] else None

    def _of_branches(self, choice: GraphNode, k: int) -> GraphNode | Literal | None:
        results = set()
        for branch in choice.regions:
            operands = [distances(x, self.known) for x in choice.inputs[1:]]
            inside = WriteSet(dict(zip(branch.inputs, operands))).trace_back(branch.outputs[k])
            self.windows += inside.windows
            results.add(None if inside.first is None else branch.inputs.index(inside.first))
        index = results.pop()
        return None if results or index is None else choice.inputs[1 + index]
