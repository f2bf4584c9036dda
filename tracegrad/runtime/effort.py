"""What it costs to replay a graph by NumPy, and to compile it: estimates in nanoseconds, from the graph alone.

They decide whether a first call is worth a compiler, so they are counts, and no measurements: the same call is answered
the same way on every day and every machine.
"""

from __future__ import annotations

import math
from typing import Any

from tracegrad.codegen.scalar import template_cost
from tracegrad.ir import Graph, Node
from tracegrad.ops.forms import Branch, Contract, Fold, Map, Move, Repeat

__all__ = ["COMPILE", "Effort"]

# To compile one piece of machine code.
COMPILE = 15_000_000
# To apply an op to a few elements.
OP = 3_000
# An element that is read and written, a product that is added, and what `template_cost` counts.
ELEMENT, PRODUCT, TEMPLATE = 1.0, 0.1, 0.4
# What NumPy makes of an element where it is no matter of one loop.
SEVERAL_LOOPS = 10.0


class Effort:
    """The costs of graphs, each found once. `spend` is told which graphs are replayed, and raises `TooLong` when they
    have cost more than there is `left`."""

    def __init__(self, left: float = math.inf):
        self.left = left
        self._flat: dict[Graph, float] = {}

    def spend(self, graph: Graph) -> None:
        """Count one replay of a graph; its regions count when they are replayed themselves."""
        self.left -= self.flat(graph)
        if self.left < 0:
            raise TooLong

    def flat(self, graph: Graph) -> float:
        """Of the ops of a graph, without what their regions do."""
        found = self._flat.get(graph)
        if found is None:
            found = self._flat[graph] = sum([_of_node(node) for node in graph.nodes])
        return found

    def total(self, graph: Graph) -> float:
        """Of a replay; loops of unknown length are taken to run one turn."""
        return self.flat(graph) + sum([self._regions(node) for node in graph.nodes if node.regions])

    def _regions(self, node: Node) -> float:
        each = [self.total(region) for region in node.regions]
        if isinstance(node.form, Branch):
            return max(each)
        return sum(each) * (dict(node.params)["length"] if isinstance(node.form, Repeat) else 1)


class TooLong(Exception):
    """A replay has cost more than it was to cost."""


def _of_node(node: Node) -> float:
    if node.picks is not None:
        return 0.0
    results: Any = node.aval if node.several else (node.aval,)
    made = sum([x.size for x in results])
    return OP + _of_elements(node, made, sum([x.aval.size for x in node.operands if not x.several]))


def _of_elements(node: Node, made: int, read: int) -> float:
    form: Any = node.form
    if isinstance(form, Map):
        return made * (ELEMENT + TEMPLATE * template_cost(form.scalar))
    if isinstance(form, Contract):
        return ELEMENT * (made + read) + PRODUCT * made * node.operands[0].aval.shape[-1]
    if isinstance(form, Fold | Move):
        return ELEMENT * (made + read)
    return SEVERAL_LOOPS * (made + read) if node.operands else ELEMENT * made
