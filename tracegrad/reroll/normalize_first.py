"""Reorder recorded nodes so that the first iteration of a loop looks like the others (normalization).

A trace computes nothing twice, so loop-invariant nodes appear only in the first iteration; they are moved before it. An
in-place update reads at once what the next iteration needs, but the first iteration reads when it needs the value.
Array slices are therefore moved to their first use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tracegrad.ir import GraphNode
from tracegrad.ops.shape.fill import arange
from tracegrad.ops.shape.linear import slice
from tracegrad.reroll.offset_slices import operands_of, operands_of_all
from tracegrad.reroll.thresholds import MIN_ITERATIONS


def fixed_first(nodes: Sequence[GraphNode], codes: Sequence[int]) -> list[GraphNode]:
    """The nodes in order, with loop-invariant nodes moved to the front. `codes` are numbers of the nodes'
    operations."""
    read = operands_of_all(nodes)
    readers = Counter([x for operands in read for x in operands])
    often = {x for x, count in readers.items() if count >= MIN_ITERATIONS and x.op is not None}
    fixed = {x for x in nodes if not x.inputs and (x.op is not arange or readers[x] > 1)}
    if often:
        fixed |= _constants(nodes, read) & often
        alike = _in_each_iteration(read, codes, often)
        fixed |= alike and alike & _early(nodes, read, codes)
    if not fixed:
        return list(nodes)
    for node in reversed(nodes):
        if node in fixed:
            fixed.update(operands_of(node))
    return [x for x in nodes if x in fixed] + [x for x in nodes if x not in fixed]


def _constants(nodes: Sequence[GraphNode], read: Sequence[tuple[GraphNode, ...]]) -> set[GraphNode]:
    """The nodes that depend on no outside value."""
    constants: set[GraphNode] = set()
    for node, operands in zip(nodes, read):
        for x in operands:
            if x not in constants:
                break
        else:
            if operands or not node.inputs:
                constants.add(node)
    return constants


def _in_each_iteration(
    read: Sequence[tuple[GraphNode, ...]], codes: Sequence[int], often: set[GraphNode]
) -> set[GraphNode]:
    """The nodes of `often` that a large share of equal nodes reads. A loop-carried value is read in one iteration only,
    however often."""
    total = Counter(codes)
    alike = Counter([(x, code) for operands, code in zip(read, codes) for x in operands if x in often])
    return {x for (x, code), count in alike.items() if count >= MIN_ITERATIONS and count * MIN_ITERATIONS > total[code]}


def _early(nodes: Sequence[GraphNode], read: Sequence[tuple[GraphNode, ...]], codes: Sequence[int]) -> set[GraphNode]:
    """The nodes computed from outside values without a loop on the path."""
    inside = set(nodes)
    table: dict[GraphNode, tuple[frozenset[int], int]] = {}  # operation codes on the path, and how often one repeats
    for node, operands, code in zip(nodes, read, codes):
        paths = []
        for x in operands:
            if x in table:
                paths.append(table[x])
            elif x in inside:
                break
        else:
            path = frozenset([code]).union(*[codes for codes, _ in paths])
            again = max([count + (code in codes) for codes, count in paths], default=0)
            if again < MIN_ITERATIONS - 1:
                table[node] = path, again
    return set(table)


def read_late(nodes: Sequence[GraphNode]) -> list[GraphNode]:
    """The nodes in order, with array slices moved directly before their first use."""
    if not any([x.op is slice for x in nodes]):  # noqa: C419 (a list is faster)
        return list(nodes)
    reads = dict(zip(nodes, operands_of_all(nodes)))
    read = {x for operands in reads.values() for x in operands}
    late = {x for x in nodes if x.op is slice and x in read}
    ahead = set(late)
    results: list[GraphNode] = []
    for node in nodes:
        waiting = [] if node in late else [node]
        while waiting:
            missing = [] if ahead.isdisjoint(reads[waiting[-1]]) else [x for x in reads[waiting[-1]] if x in ahead]
            if missing:
                waiting.extend(reversed(missing))
                continue
            last = waiting.pop()
            if last not in late or last in ahead:
                results.append(last)
                ahead.discard(last)
    return results
