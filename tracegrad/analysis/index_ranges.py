"""Analyze affine index ranges of loops, to prove that the windows of different iterations are disjoint.

The counter of `for i in range(k + 1, n)` is at least `k + 1` and less than `n`. An iteration that writes row `i`
therefore does not write row `k`, for any `k`. The *distances* of an integer express this: the bounds of its difference
from each loop-invariant number, and from 0.

Integers do not wrap in this analysis: windows start inside an array, and steps from there are small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tracegrad.analysis.intervals import ANY, Interval, Operand, meet, range_of, scaled
from tracegrad.analysis.trip_count import counters, limit_of
from tracegrad.avals import is_literal
from tracegrad.ir import GraphNode, GraphValue
from tracegrad.ir.loop_view import LoopView
from tracegrad.ops.elementwise.table import add, multiply, subtract
from tracegrad.ops.indexing.dynamic_slice import counted
from tracegrad.ops.shape.linear import fresh, full, reshape

Distances = dict[GraphNode | None, Interval]  # None is 0

DEEPEST = 10  # maximum depth of nested sums
FARTHEST = 2**31  # maximum finite distance: sums and products with larger ones are unknown
LONGEST = 2**16  # maximum step of a counter, and maximum constant factor


class IndexWindow(NamedTuple):
    """Index range of a window on each axis: its start, and its end (exclusive).

    >>> def rows(low: float, high: float, size: int) -> IndexWindow:
    ...     return window_at([{None: (low, high)}], [size], [1])
    >>> below = rows(5, np.inf, 1)
    >>> rows(0, 4, 1).is_disjoint(below), rows(0, 4, 2).is_disjoint(below)
    (True, False)
    """

    starts: list[Distances]
    ends: list[Distances]

    def is_disjoint(self, other: IndexWindow) -> bool:
        """Whether the two windows are known to be disjoint."""
        return any(map(_is_before, self.ends, other.starts)) or any(map(_is_before, other.ends, self.starts))


def _is_before(end: Distances, start: Distances) -> bool:
    return any(start[k][0] >= end[k][1] for k in end if k in start)


def window_at(starts: Sequence[Distances], sizes: Sequence[int], step: Sequence[int]) -> IndexWindow:
    """The window of `sizes` elements from `starts` on, with the stride `step`."""
    return IndexWindow(list(starts), [plus(x, {None: (n, n)}) for x, n in zip(starts, extents(sizes, step))])


def extents(sizes: Sequence[int], step: Sequence[int]) -> list[int]:
    """The extent of a window on each axis."""
    return [(m - 1) * s + 1 if m else 0 for m, s in zip(sizes, step)]


def within(x: Distances, low: float, high: float) -> bool:
    """Whether a number is known to be within the bounds."""
    least, greatest = x.get(None, ANY)
    return low <= least and greatest <= high


def distances(x: Operand, known: Mapping[GraphNode, Distances] | None = None, deep: int = 0) -> Distances:
    """The distances of an integer: a loop-invariant value, or a node of a region with the distances `known` of its
    inputs."""
    if is_literal(x):
        return {None: (x, x)} if type(x) is int else {}
    if isinstance(x, np.ndarray | np.generic):
        return both([{None: range_of(x)}])
    node = x.node if isinstance(x, GraphValue) else x
    if not isinstance(node, GraphNode) or node.aval.size != 1 or node.aval.dtype.kind != "i":
        return {}
    if known is not None and node in known:
        return known[node]
    computed = _computed(node, known, deep) if node.op is not None and deep < DEEPEST else {}
    bounds = {} if known is None else {k: each.get(None, ANY) for k, each in known.items()}
    self_distance: Distances = {node: (0, 0)} if known is None else {}
    return both([computed, self_distance, {None: range_of(x if isinstance(x, GraphValue) else node, bounds)}])


def _computed(node: GraphNode, known: Mapping[GraphNode, Distances] | None, deep: int) -> Distances:
    def of(k: int) -> Distances:
        return distances(node.inputs[k], known, deep + 1)

    if node.op is full:
        value = int(dict(node.params)["value"])
        return {None: (value, value)}
    if node.op in (fresh, reshape) or (node.op is counted and within(of(0), 0, np.inf)):
        return of(0)
    if node.op is multiply:
        return _times(of(0), of(1))
    if node.op not in (add, subtract):
        return {}
    x, y = of(0), of(1)
    if node.op is subtract:
        y = {None: scaled(y[None], -1)} if None in y else {}
    return plus(x, y)


def plus(x: Distances, y: Distances) -> Distances:
    """The distances of the sum of two integers."""
    sums: list[Distances] = []
    for number, other in ((y, x), (x, y)):
        if (ends := number.get(None)) is not None:
            sums += [{k: (low + ends[0], high + ends[1])} for k, (low, high) in other.items()]
    return both([each for each in sums if not _is_far(each)])


def _times(x: Distances, y: Distances) -> Distances:
    """The distances of the product, if one factor is a small, known, nonnegative number."""
    for one, other in ((x, y), (y, x)):
        factor, last = one.get(None, (0, 0))
        if factor == last and 0 < factor <= LONGEST and None in other:
            table: Distances = {None: scaled(other[None], int(factor))}
            return {} if _is_far(table) else table
    return {}


def _is_far(bounds: Distances) -> bool:
    return any(abs(x) > FARTHEST for ends in bounds.values() for x in ends if np.isfinite(x))


def both(intervals: Sequence[Distances]) -> Distances:
    """The intersection of several distances of one integer."""
    table: Distances = {}
    for each in intervals:
        for k, ends in each.items():
            table[k] = meet(table.get(k, ANY), ends)
    return {k: ends for k, ends in table.items() if np.isfinite(ends).any()}


def input_distances(
    loop: LoopView, operands: Sequence[Operand], around: Mapping[GraphNode, Distances] | None = None
) -> dict[GraphNode, Distances]:
    """The distances of the integer inputs of a body, valid in any iteration. They are computed from the operands of the
    loop; `around` are the distances of the inputs of the region that has the loop."""
    body, steps = loop.body, counters(loop.body, loop.carries)
    args = [{} if loop.carries <= k < loop.varying else distances(x, around) for k, x in enumerate(operands)]
    table = dict(zip(loop.constants(body.inputs), loop.constants(args)))
    for node, x in zip(loop.scanned(body.inputs), loop.scanned(operands)):
        whole = node.aval.size == 1 and node.aval.dtype.kind == "i"
        table[node] = both([{None: range_of(x)}]) if whole else {}
    for k, node in enumerate(loop.initial(body.inputs)):
        if loop.is_unchanged(k):
            table[node] = args[k]
        elif abs(steps.get(k, FARTHEST)) <= LONGEST:
            table[node] = both([beyond(args[k], up=steps[k] > 0)])
        else:
            table[node] = {}
    if (limit := limit_of(loop)) is not None:
        counter = body.inputs[limit.counter]
        stops: Distances = {None: (limit.limit,) * 2} if limit.limit_input is None else args[limit.limit_input]
        last = 1 - limit.correction  # minimum distance of the counter from the limit in an iteration
        final = {x: (low + last, high - last) for x, (low, high) in stops.items()}
        table[counter] = both([table[counter], beyond(final, up=limit.step < 0)])
    return table


def beyond(x: Distances, up: bool) -> Distances:
    """The distances of an integer that is equal to `x` or greater; or less, unless `up`."""
    return {k: (low, np.inf) if up else (-np.inf, high) for k, (low, high) in x.items()}
