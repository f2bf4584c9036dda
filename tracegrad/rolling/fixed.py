"""What the first turn of a loop has made for all of them, moved before it, so that the first turn is like the others.

A trace computes nothing twice: of what is the same in each turn, only the first has nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tracegrad.ir import Node
from tracegrad.rolling import FEWEST_TURNS
from tracegrad.rolling.windows import operands_of

__all__ = ["fixed_first"]


def fixed_first(nodes: Sequence[Node], codes: Sequence[int]) -> list[Node]:
    """The nodes in order, but first what turns share. `codes` are numbers for what the nodes do."""
    readers = Counter([x for node in nodes for x in operands_of(node)])
    often = {x for x, count in readers.items() if count >= FEWEST_TURNS and x.op is not None}
    fixed = (_constants(nodes) & often) | (_in_each_turn(nodes, codes, often) & _early(nodes, codes))
    fixed.update([x for x in nodes if not x.inputs])
    for node in reversed(nodes):
        if node in fixed:
            fixed.update(operands_of(node))
    return [x for x in nodes if x in fixed] + [x for x in nodes if x not in fixed]


def _constants(nodes: Sequence[Node]) -> set[Node]:
    """The nodes that nothing from outside has a part in."""
    constants: set[Node] = set()
    for node in nodes:
        operands = operands_of(node)
        if not node.inputs or (operands and constants.issuperset(operands)):
            constants.add(node)
    return constants


def _in_each_turn(nodes: Sequence[Node], codes: Sequence[int], often: set[Node]) -> set[Node]:
    """Those of the nodes `often` that a good part of the nodes reads that do the same. What goes from turn to turn is
    read in one of them, however often."""
    total = Counter(codes)
    alike = Counter([(x, code) for node, code in zip(nodes, codes) for x in operands_of(node) if x in often])
    return {x for (x, code), count in alike.items() if count >= FEWEST_TURNS and count * FEWEST_TURNS > total[code]}


def _early(nodes: Sequence[Node], codes: Sequence[int]) -> set[Node]:
    """The nodes that are made of values from outside without a loop on the way."""
    inside = set(nodes)
    made: dict[Node, tuple[frozenset[int], int]] = {}  # what is done on the way, and how often again
    for node, code in zip(nodes, codes):
        operands = [x for x in operands_of(node) if x in inside]
        if all(x in made for x in operands):
            way = frozenset([code]).union(*[made[x][0] for x in operands])
            again = max([made[x][1] + (code in made[x][0]) for x in operands], default=0)
            if again < FEWEST_TURNS - 1:
                made[node] = way, again
    return set(made)
