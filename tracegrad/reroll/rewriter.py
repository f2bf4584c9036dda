"""One pass over what was recorded: scans in the place of loops, and behind them what reads their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tracegrad.avals import LITERALS
from tracegrad.ir import Node
from tracegrad.ir.builder import needed
from tracegrad.ops.shape.stack_split import stack
from tracegrad.reroll.build_scan import Uses, scanned
from tracegrad.reroll.iterations import Turns
from tracegrad.reroll.offset_slices import operands_of, read_again, reads, window_of
from tracegrad.reroll.stack_values import rows_in_order
from tracegrad.trace.builder.builder import TraceBuilder

__all__ = ["Rewriting"]


class Rewriting:
    """What becomes of the nodes in `sequence` and of the outputs when something else computes what is used of these
    loops, none of which is within another: by default a scan. `others` are single nodes that something else is written
    for, of what nodes have become.

    `refused` says why nothing else does, by the number of the first node.
    """

    def __init__(
        self, builder: TraceBuilder, sequence: Sequence[Node], outputs: Sequence[Node], loops: Sequence[Turns],
        instead: Callable[[TraceBuilder, Turns, Uses], dict[Node, Node] | str] = scanned,
        others: Mapping[Node, Callable[[Callable[[Node], Any]], Node]] | None = None,
    ):  # fmt: skip
        self.builder, self.before, self.instead, self.others = builder, sequence, instead, others or {}
        self.loops = {loop.start: loop for loop in loops}
        self.refused: dict[int, str] = {}
        self._new: dict[Node, Node] = {}
        self._nodes: list[Node] = []
        self._known: set[Node] = set()
        used, k = self._uses(outputs), 0
        while k < len(sequence):
            loop = self.loops.get(k)
            if loop is not None and self._replace(loop, used[k]):
                k = loop.stop
            else:
                self._keep(sequence[k])
                k += 1
        self.outputs = [self._new.get(x, x) for x in outputs]
        self.sequence = needed(self._nodes, self.outputs, operands_of)

    def _uses(self, outputs: Sequence[Node]) -> dict[int, Uses]:
        """Of each loop, what is read outside of it: by place, of which turns."""
        made = {node: (loop, k) for loop in self.loops.values() for k, node in enumerate(loop.nodes)}
        used: dict[int, Uses] = {start: {} for start in self.loops}

        def read(nodes: Sequence[Node], reader: Turns | None) -> None:
            for node in nodes:
                if node in made:
                    loop, k = made[node]
                    if loop is not reader:
                        turn, place = divmod(k, loop.period)
                        used[loop.start].setdefault(place, set()).add(turn)

        for reader in self.before:
            read(operands_of(reader), made[reader][0] if reader in made else None)
        read(outputs, None)
        return used

    def _replace(self, loop: Turns, used: Uses) -> bool:
        """Put something else into the place of the turns."""
        self.builder.location = loop.nodes[-loop.period].location
        first = len(self.builder.nodes)
        found = self.instead(self.builder, loop.moved(self._new), used)
        if isinstance(found, str):
            self.refused[loop.start] = found
            return False
        self._new.update(found)
        for node in (*self.builder.nodes[first:], *found.values()):
            self._append(node)
        return True

    def _keep(self, node: Node) -> None:
        """The node, of new operands where these are new, or what is written in its place."""
        if node in self.others:
            self.builder.location = node.location
            self._new[node] = self.others[node](lambda x: self.builder.value(self._new.get(x, x)))
        elif not self._new.keys().isdisjoint(operands_of(node)):
            self._new[node] = self._again(node)
        self._append(self._new.get(node, node))

    def _again(self, node: Node) -> Node:
        self.builder.location = node.location
        new, window = self._new, window_of(node)
        if window is not None:
            given = [new.get(x, x) for x in reads(node)[: -len(window.starts) or None]]
            values = [x if type(x) in LITERALS else self.builder.value(x) for x in given]
            return read_again(window, values).node  # type: ignore[no-any-return]
        inputs = tuple([x if type(x) in LITERALS else new.get(x, x) for x in node.inputs])
        if node.op is stack and dict(node.params)["axis"] == 0:
            found = rows_in_order(self.builder, inputs)
            if found is not None:
                return found.node  # type: ignore[no-any-return]
        assert node.op is not None
        return self.builder.number(node.op, inputs, node.params)

    def _append(self, node: Node) -> None:
        """The node, behind what it needs."""
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
