"""Rewrite recorded nodes in one pass: replace loops by scans, and rebuild the nodes that read their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tracegrad.avals import LITERALS
from tracegrad.ir import GraphNode
from tracegrad.ir.builder import needed
from tracegrad.ops.shape.stack_split import stack
from tracegrad.reroll.build_scan import Uses, scanned
from tracegrad.reroll.iterations import RecordedIterations
from tracegrad.reroll.offset_slices import apply_window, operands_of, reads, window_of
from tracegrad.reroll.stack_values import rows_of_array
from tracegrad.trace.builder.builder import TraceBuilder


class Rewriting:
    """Rewrite of the nodes in `sequence` and the outputs when disjoint loops are replaced: by a scan, or by the
    function `instead`. `others` are single nodes with a function that writes their replacement.

    `refused` says why nothing else does, by the number of the first node.
    """

    def __init__(
        self,
        builder: TraceBuilder,
        sequence: Sequence[GraphNode],
        outputs: Sequence[GraphNode],
        loops: Sequence[RecordedIterations],
        instead: Callable[[TraceBuilder, RecordedIterations, Uses], dict[GraphNode, GraphNode] | str] = scanned,
        others: Mapping[GraphNode, Callable[[Callable[[GraphNode], Any]], GraphNode]] | None = None,
    ):
        self.builder, self.before, self.instead, self.others = builder, sequence, instead, others or {}
        self.loops = {loop.start: loop for loop in loops}
        self.refused: dict[int, str] = {}
        self._new: dict[GraphNode, GraphNode] = {}
        self._nodes: list[GraphNode] = []
        self._known: set[GraphNode] = set()
        used, k = self._uses(outputs), 0
        while k < len(sequence):
            loop = self.loops.get(k)
            if loop is not None and self._replace(loop, used[k]):
                k = loop.stop
            else:
                self._rewrite(sequence[k])
                k += 1
        self.outputs = [self._new.get(x, x) for x in outputs]
        self.sequence = needed(self._nodes, self.outputs, operands_of)

    def _uses(self, outputs: Sequence[GraphNode]) -> dict[int, Uses]:
        """For each loop, the values read outside of it: by position, in which iterations."""
        table = {node: (loop, k) for loop in self.loops.values() for k, node in enumerate(loop.nodes)}
        used: dict[int, Uses] = {start: {} for start in self.loops}

        def read(nodes: Sequence[GraphNode], reader: RecordedIterations | None) -> None:
            for node in nodes:
                if node in table:
                    loop, k = table[node]
                    if loop is not reader:
                        iteration, position = divmod(k, loop.period)
                        used[loop.start].setdefault(position, set()).add(iteration)

        for reader in self.before:
            read(operands_of(reader), table[reader][0] if reader in table else None)
        read(outputs, None)
        return used

    def _replace(self, loop: RecordedIterations, used: Uses) -> bool:
        """Replace the iterations of a loop."""
        self.builder.location = loop.nodes[-loop.period].location
        first = len(self.builder.nodes)
        result = self.instead(self.builder, loop.moved(self._new), used)
        if isinstance(result, str):
            self.refused[loop.start] = result
            return False
        self._new.update(result)
        for node in (*self.builder.nodes[first:], *result.values()):
            self._append(node)
        return True

    def _rewrite(self, node: GraphNode) -> None:
        """Append the node with rewritten operands, or its replacement."""
        if node in self.others:
            self.builder.location = node.location
            self._new[node] = self.others[node](lambda x: self.builder.value(self._new.get(x, x)))
        elif not self._new.keys().isdisjoint(operands_of(node)):
            self._new[node] = self._again(node)
        self._append(self._new.get(node, node))

    def _again(self, node: GraphNode) -> GraphNode:
        self.builder.location = node.location
        new, window = self._new, window_of(node)
        if window is not None:
            args = [new.get(x, x) for x in reads(node)[: -len(window.starts) or None]]
            values = [x if type(x) in LITERALS else self.builder.value(x) for x in args]
            return apply_window(window, values).node  # type: ignore[no-any-return]
        inputs = tuple([x if type(x) in LITERALS else new.get(x, x) for x in node.inputs])
        if node.op is stack and dict(node.params)["axis"] == 0:
            result = rows_of_array(self.builder, inputs)
            if result is not None:
                return result.node  # type: ignore[no-any-return]
        assert node.op is not None
        return self.builder.number(node.op, inputs, node.params)

    def _append(self, node: GraphNode) -> None:
        """Append the node after its operands."""
        stack = [node]
        while stack:
            node = stack[-1]
            missing = [x for x in operands_of(node) if x.op is not None and x not in self._known]
            if missing:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            if node.op is not None and node not in self._known:
                self._known.add(node)
                self._nodes.append(node)
