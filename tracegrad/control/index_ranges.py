"""Analyze affine index ranges of loops, to prove that the windows of different iterations are disjoint.

The counter of `for i in range(k + 1, n)` is at least `k + 1` and less than `n`. An iteration that writes row `i`
therefore does not write row `k`, for any `k`. The *distances* of an integer express this: the bounds of its difference
from each loop-invariant number, and from 0.

Integers do not wrap in this analysis: windows start inside an array, and steps from there are small.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tracegrad.avals import is_literal
from tracegrad.control.trip_count import counters, limit_of, range_of
from tracegrad.ir import Graph, GraphNode, GraphValue
from tracegrad.ops.elementwise.table import add, multiply, subtract
from tracegrad.ops.indexing.dynamic_slice import counted
from tracegrad.ops.shape.linear import fresh, full, reshape

__all__ = ["Distances", "IndexWindow", "both", "distances", "extents", "input_distances", "plus", "window_at", "within"]

Distances = dict[GraphNode | None, tuple[float, float]]  # None is 0

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
    result = x.get(None, (-np.inf, np.inf))
    return low <= result[0] and result[1] <= high


def distances(x: Any, known: dict[GraphNode, Distances] | None = None, deep: int = 0) -> Distances:
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
    result = _computed(node, known, deep) if node.op is not None and deep < DEEPEST else {}
    bounds = {} if known is None else {k: each.get(None, (-np.inf, np.inf)) for k, each in known.items()}
    self_distance: Distances = {node: (0, 0)} if known is None else {}
    return both([result, self_distance, {None: range_of(x if isinstance(x, GraphValue) else node, bounds)}])


def _computed(node: GraphNode, known: dict[GraphNode, Distances] | None, deep: int) -> Distances:
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
        y = {None: (-y[None][1], -y[None][0])} if None in y else {}
    return plus(x, y)


def plus(x: Distances, y: Distances) -> Distances:
    """The distances of the sum of two integers."""
    sums = [{k: (a + c, b + d)} for k, (a, b) in x.items() for j, (c, d) in y.items() if j is None]
    sums += [{j: (a + c, b + d)} for k, (a, b) in x.items() for j, (c, d) in y.items() if k is None]
    return both([each for each in sums if not _is_far(each)])


def _times(x: Distances, y: Distances) -> Distances:
    """The distances of the product, if one factor is a small, known, nonnegative number."""
    for one, other in ((x, y), (y, x)):
        factor, last = one.get(None, (0, 0))
        if factor == last and 0 < factor <= LONGEST and None in other:
            low, high = other[None]
            table: Distances = {None: (factor * low, factor * high)}
            return {} if _is_far(table) else table
    return {}


def _is_far(bounds: Distances) -> bool:
    return any(abs(x) > FARTHEST for ends in bounds.values() for x in ends if np.isfinite(x))


def both(intervals: Sequence[Distances]) -> Distances:
    """The intersection of several distances of one integer."""
    table: Distances = {}
    for each in intervals:
        for k, (low, high) in each.items():
            before = table.get(k, (-np.inf, np.inf))
            table[k] = max(low, before[0]), min(high, before[1])
    return {k: ends for k, ends in table.items() if np.isfinite(ends).any()}


def input_distances(
    args: Sequence[Distances], xs: Sequence[Any], body: Graph, carries: int, cond: Graph | None = None
) -> dict[GraphNode, Distances]:
    """The distances of the integer inputs of a body, valid in any iteration. They are computed from the distances of
    the carries and constants of the loop, and from the scanned arrays."""
    steps = counters(body, carries)
    first = carries + len(xs)
    table = dict(zip(body.inputs[first:], args[carries:]))
    for node, x in zip(body.inputs[carries:first], xs):
        whole = node.aval.size == 1 and node.aval.dtype.kind == "i"
        table[node] = both([{None: range_of(x)}]) if whole else {}
    for k, node in enumerate(body.inputs[:carries]):
        if body.outputs[k] is node:
            table[node] = args[k]
        elif abs(steps.get(k, FARTHEST)) <= LONGEST:
            up = steps[k] > 0
            table[node] = {x: (low, np.inf) if up else (-np.inf, high) for x, (low, high) in args[k].items()}
            table[node] = both([table[node]])
        else:
            table[node] = {}
    if cond is not None and (limit := limit_of(cond, body, carries)) is not None:
        k, step, stop, correction = limit
        stops = args[cond.inputs.index(stop)] if isinstance(stop, GraphNode) else {None: (stop, stop)}
        last = 1 - correction  # minimum distance of the counter from the limit in an iteration
        beyond = {x: (-np.inf, high - last) if step > 0 else (low + last, np.inf) for x, (low, high) in stops.items()}
        table[body.inputs[k]] = both([table[body.inputs[k]], beyond])
    return table
