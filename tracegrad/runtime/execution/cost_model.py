"""What it costs to replay a graph by NumPy, and to compile it: estimates in nanoseconds, from the graph alone.

They decide whether a first call is worth a compiler, so they are counts, and no measurements: the same call is answered
the same way on every day and every machine. The numbers are those of a machine with AVX-512, rounded up: NumPy 2.4,
memory that has been used before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from tracegrad.avals import Aval
from tracegrad.codegen.loopir.scalar_templates import COST, functions_of
from tracegrad.ir import Graph, Node
from tracegrad.ops.core.forms import Branch, Cast, Compose, Contract, Fold, Gather, Identity, Map, Move, Repeat, Scatter

__all__ = ["COMPILE", "FIRST_TOUCH", "SHARED", "Effort", "TooLong", "alive_bytes", "to_compile", "to_replay"]

# To compile one piece of machine code, for each character of its text, and a function that programs share. The text of
# a step with regions says more, until it is so long that most of it are numbers.
COMPILE, CHARACTER, SHARED = 15_000_000, 10_000, 10_000_000
CHARACTER_OF_REGIONS, LONG = 16_000, 10_000

# To apply an op to a few elements.
OP = 3_000
# A byte that is read or written; a byte of a product that is added, by BLAS and without.
BYTE, PRODUCT, SLOW_PRODUCT = 0.04, 0.005, 0.25
# A byte of memory that the process did not have.
FIRST_TOUCH = 0.25
# A row or column of which a sum or an extremum is made, an element that is looked up, and one that is added to others.
ROW, PICKED, ADDED = 15.0, 4.0, 12.0
# An element where it is no matter of one loop: that of an op made of others, and of any other.
COMPOSED, SEVERAL_LOOPS = 1.0, 10.0
# What `COST` counts, and what is dearer than that for NumPy, in an element of 8 bytes; half of it in less.
CALCULATED = 0.12
DEARER = {"sin": 8.0, "cos": 8.0, "erf": 9.0, "power": 20.0, "remainder": 10.0, "floor_divide": 20.0, "where": 1.0}


def to_replay(graph: Graph) -> float:
    """To answer a call, with memory that is new."""
    return Effort().total(graph) + FIRST_TOUCH * alive_bytes(graph)


def to_compile(text: str, regions: bool = False) -> float:
    """To compile a piece of this text: a kernel, or a step that runs regions."""
    return COMPILE + (CHARACTER_OF_REGIONS * min(len(text), LONG) if regions else CHARACTER * len(text))


def alive_bytes(graph: Graph) -> int:
    """How many bytes a replay has made, and needs still, when it has most of them; regions do not count."""
    read = {node: {_origin(x) for x in node.operands} for node in graph.nodes}
    last = {x: node for node, origins in read.items() for x in origins if x.op}
    most, now = 0, 0
    for node, origins in read.items():
        made = 0 if is_view(node) else _bytes(_results(node))
        gone = sum([_bytes(_results(x)) for x in origins if last.get(x) is node])
        most = max(most, now + made - (min(made, gone) if isinstance(node.form, Map) else 0))
        now += made - gone
    return most


def _origin(x: Node) -> Node:
    """The value whose memory a value has."""
    while is_view(x):
        x = x.operands[0]
    return x


def is_view(node: Node) -> bool:
    """Whether a value has no memory of its own."""
    return node.picks is not None or isinstance(node.form, Identity) or (node.op is not None and node.op.aliases)


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


def _results(node: Node) -> Any:
    return node.aval if node.several else (node.aval,)


def _bytes(avals: Iterable[Any]) -> int:
    return sum([x.size * x.dtype.itemsize for x in avals])


def _of_node(node: Node) -> float:
    if is_view(node):
        return OP
    results = _results(node)
    read = [_read(x).aval for x in node.operands if not x.several]
    if isinstance(node.form, Gather):  # of all that could be read, it reads what it gives
        read = read[1:]
    return OP + BYTE * _bytes((*results, *read)) + _of_elements(node, results, read)


def _read(x: Node) -> Node:
    """What is read where a value is: not more than there is of an array that is repeated."""
    while x.op is not None and x.op.aliases and x.operands and x.operands[0].aval.size < x.aval.size:
        x = x.operands[0]
    return x


def _of_elements(node: Node, results: Sequence[Aval], read: Sequence[Aval]) -> float:
    """Of what is done beside reading and writing."""
    form: Any = node.form
    made = sum([x.size for x in results])
    if isinstance(form, Map) and not isinstance(form, Cast):
        return made * _of_template(form.scalar) * (1.0 if results[0].dtype.itemsize > 4 else 0.5)
    if isinstance(form, Contract):
        rate = PRODUCT if results[0].dtype.kind in "fc" else SLOW_PRODUCT
        return rate * results[0].dtype.itemsize * made * node.operands[0].aval.shape[-1]
    if isinstance(form, Fold):
        return ROW * made
    if isinstance(form, Gather):
        return PICKED * made
    if isinstance(form, Scatter):
        return ADDED * read[0].size
    if isinstance(form, Cast | Move) or not read:
        return 0.0
    return (COMPOSED if isinstance(form, Compose) else SEVERAL_LOOPS) * (made + sum([x.size for x in read]))


@cache
def _of_template(template: str | None) -> float:
    if template is None:
        return SEVERAL_LOOPS
    names = functions_of(template)
    return sum([DEARER[x] if x in DEARER else CALCULATED * COST[x] for x in names if x in DEARER or x in COST])
