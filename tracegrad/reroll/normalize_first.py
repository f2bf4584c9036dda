"""Another order of what was recorded, in which the first turn of a loop is like the others.

A trace computes nothing twice: of what is the same in each turn, only the first has nodes. These are moved before it.
And an update in place reads at once what the next turn needs, where the first turn reads it when it needs it. So parts
of arrays are moved to where they are used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tracegrad.ir import Node
from tracegrad.ops.shape.fill import arange
from tracegrad.ops.shape.linear import slice
from tracegrad.reroll.offset_slices import operands_of, operands_of_all
from tracegrad.reroll.thresholds import FEWEST_TURNS

__all__ = ["fixed_first", "read_late"]


def fixed_first(nodes: Sequence[Node], codes: Sequence[int]) -> list[Node]:
    """The nodes in order, but first what turns share. `codes` are numbers for what the nodes do."""
    read = operands_of_all(nodes)
    readers = Counter([x for operands in read for x in operands])
    often = {x for x, count in readers.items() if count >= FEWEST_TURNS and x.op is not None}
    fixed = {x for x in nodes if not x.inputs and (x.op is not arange or readers[x] > 1)}
    if often:
        fixed |= _constants(nodes, read) & often
        alike = _in_each_turn(read, codes, often)
        fixed |= alike and alike & _early(nodes, read, codes)
    if not fixed:
        return list(nodes)
    for node in reversed(nodes):
        if node in fixed:
            fixed.update(operands_of(node))
    return [x for x in nodes if x in fixed] + [x for x in nodes if x not in fixed]


def _constants(nodes: Sequence[Node], read: Sequence[tuple[Node, ...]]) -> set[Node]:
    """The nodes that nothing from outside has a part in."""
    constants: set[Node] = set()
    for node, operands in zip(nodes, read):
        for x in operands:
            if x not in constants:
                break
        else:
            if operands or not node.inputs:
                constants.add(node)
    return constants


def _in_each_turn(read: Sequence[tuple[Node, ...]], codes: Sequence[int], often: set[Node]) -> set[Node]:
    """Those of the nodes `often` that a good part of the nodes reads that do the same. What goes from turn to turn is
    read in one of them, however often."""
    total = Counter(codes)
    alike = Counter([(x, code) for operands, code in zip(read, codes) for x in operands if x in often])
    return {x for (x, code), count in alike.items() if count >= FEWEST_TURNS and count * FEWEST_TURNS > total[code]}


def _early(nodes: Sequence[Node], read: Sequence[tuple[Node, ...]], codes: Sequence[int]) -> set[Node]:
    """The nodes that are made of values from outside without a loop on the way."""
    inside = set(nodes)
    made: dict[Node, tuple[frozenset[int], int]] = {}  # what is done on the way, and how often again
    for node, operands, code in zip(nodes, read, codes):
        ways = []
        for x in operands:
            if x in made:
                ways.append(made[x])
            elif x in inside:
                break
        else:
            way = frozenset([code]).union(*[codes for codes, _ in ways])
            again = max([count + (code in codes) for codes, count in ways], default=0)
            if again < FEWEST_TURNS - 1:
                made[node] = way, again
    return set(made)


def read_late(nodes: Sequence[Node]) -> list[Node]:
    """The nodes in order, but parts of arrays directly before what first uses them."""
    if not any([x.op is slice for x in nodes]):  # noqa: C419 (which is so as a rule)
        return list(nodes)
    reads = dict(zip(nodes, operands_of_all(nodes)))
    read = {x for operands in reads.values() for x in operands}
    late = {x for x in nodes if x.op is slice and x in read}
    ahead = set(late)
    found: list[Node] = []
    for node in nodes:
        waiting = [] if node in late else [node]
        while waiting:
            missing = [] if ahead.isdisjoint(reads[waiting[-1]]) else [x for x in reads[waiting[-1]] if x in ahead]
            if missing:
                waiting.extend(reversed(missing))
                continue
            last = waiting.pop()
            if last not in late or last in ahead:
                found.append(last)
                ahead.discard(last)
    return found
