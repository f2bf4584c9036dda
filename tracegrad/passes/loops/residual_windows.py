"""Analyze windows saved as residuals: whether the array that the loop returns still holds them.

An iteration reads a window of an array that the loop updates, and the loop stacks the window as a residual. A nested
loop may stack it first, and its outer loop again. The window can be read from the final array if all later writes are
disjoint from it (`tracegrad.control.index_ranges`): in the rest of the iteration, and in later ones of each loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tracegrad.avals import is_literal
from tracegrad.control.index_ranges import Distances, IndexWindow, both, distances, input_distances, plus, window_at
from tracegrad.control.trip_count import counters
from tracegrad.control.write_sets import WriteSet
from tracegrad.ir import Graph, GraphNode
from tracegrad.ops.core.forms import Repeat, While
from tracegrad.ops.elementwise.table import add, multiply, subtract
from tracegrad.ops.indexing.dynamic_slice import dynamic_slice
from tracegrad.ops.shape.fill import arange
from tracegrad.ops.shape.linear import fresh, full, reshape

__all__ = ["SavedWindow", "Sum", "WindowBound", "added", "is_loop", "sum_of"]

Sum = dict[Any, int]  # affine sum: the factor of 1 (None), of the iteration number of a level (int), of a Node


class WindowBound(NamedTuple):
    """Part of a window along one axis: the elements before a bound (`is_end`), or from it on, counted from the first
    element."""

    bound: Sum
    is_end: bool


def is_loop(node: GraphNode) -> bool:
    return node.op is not None and isinstance(node.op.form, Repeat | While)


def sum_of(x: Any, of_other: Callable[[GraphNode], Sum | None]) -> Sum | None:
    """The integer `x` as an affine sum; `of_other` returns the sums of opaque nodes."""
    if is_literal(x):
        return {None: x} if type(x) is int else None
    if x.op is full:
        return {None: int(dict(x.params)["value"])}
    if x.op in (fresh, reshape) and not x.aval.shape and not x.operands[0].aval.shape:
        return sum_of(x.inputs[0], of_other)
    if x.op in (add, subtract, multiply):
        first, second = [sum_of(y, of_other) for y in x.inputs]
        if first is None or second is None:
            return of_other(x)
        if x.op is not multiply:
            return added(first, second, 1 if x.op is add else -1)
        if second.keys() <= {None}:
            first, second = second, first
        return added({}, second, first.get(None, 0)) if first.keys() <= {None} else of_other(x)
    return of_other(x)


class _StackingLoop:
    """One of the nested loops that stack a window. `known` are the distances of the integers of its body in the
    iteration that reads the window; `later` are their distances in all later iterations."""

    def __init__(self, loop: GraphNode, around: dict[GraphNode, Distances]):
        self.loop, params = loop, dict(loop.params)
        self.body: Graph = params["body"]
        self.carries, self.xs = params["carries"], params.get("xs", 0)
        self.forwards = not params.get("reverse", False)
        self.scanned = loop.inputs[self.carries : self.carries + self.xs]
        operands = [
            distances(x, around) for x in (*loop.inputs[: self.carries], *loop.inputs[self.carries + self.xs :])
        ]
        self.later = input_distances(operands, self.scanned, self.body, self.carries, params.get("cond"))
        self.steps = {self.body.inputs[k]: step for k, step in counters(self.body, self.carries).items()}
        for node, x in zip(self.body.inputs[self.carries :], self.scanned):
            if isinstance(x, GraphNode) and x.op is arange:
                self.steps[node] = dict(x.params)["step"] if self.forwards else -dict(x.params)["step"]
        fixed: dict[GraphNode, Distances] = (
            {} if around else {x: {x: (0.0, 0.0)} for x in self.body.inputs[self.carries + self.xs :]}
        )
        self.later |= {x: both([self.later[x], fixed_distances]) for x, fixed_distances in fixed.items()}
        self.known = dict(self.later)
        for node, step in self.steps.items():
            self.known[node] = both([self.later[node], {node: (0, 0)}])
            beyond: Distances = {node: (step, float("inf")) if step > 0 else (-float("inf"), step)}
            self.later[node] = both([self.later[node], beyond])

    def stacked(self, k: int) -> GraphNode | None:
        """The value stacked as result `k`."""
        first = self.carries + (self.loop.op is not None and isinstance(self.loop.op.form, While))
        return self.body.outputs[k - (first - self.carries)] if k >= first else None


class SavedWindow:
    """Window saved as result `k` of a loop in a graph (residual)."""

    def __init__(self, loop: GraphNode, k: int):
        self.levels = [_StackingLoop(loop, {})]
        self.is_readable = False
        y = self.levels[0].stacked(k)
        while y is not None and y.result_index is not None and is_loop(y.operands[0]):
            level = self.levels[-1]
            self.levels.append(_StackingLoop(y.operands[0], level.known))
            y = self.levels[-1].stacked(y.result_index)
        if y is None or y.op is not dynamic_slice:
            return
        self.window = y
        self.arrays = self._arrays(y.inputs[0])
        sums = [self._sum(a, len(self.levels) - 1) for a in y.inputs[1:]]
        self.sums = [x for x in sums if x is not None]
        self.is_readable = bool(self.arrays) and len(self.sums) == len(sums)

    def _arrays(self, x: Any) -> list[tuple[int, GraphNode]]:
        """For each loop, innermost first: the carry of the array, and the value of the array from which the window is
        read; for an outer loop, its value after the inner loop."""
        results: list[tuple[int, GraphNode]] = []
        for level in reversed(self.levels):
            for k in range(level.carries):
                updates = WriteSet(level.known).trace_back(level.body.outputs[k])
                if x in updates.values and updates.first is level.body.inputs[k]:
                    results.append((k, x))
                    break
            else:
                return []
            x = next((y for y in self._users_of(level) if y.result_index == results[-1][0]), None)
        return results

    def _users_of(self, level: _StackingLoop) -> list[GraphNode]:
        """The used results of the loop of a level."""
        at = self.levels.index(level)
        if not at:
            return []
        around = self.levels[at - 1].body
        return [y for y in around.nodes if y.result_index is not None and y.operands[0] is level.loop]

    @property
    def carry(self) -> int:
        """The carry of the outermost loop that holds the array."""
        return self.arrays[-1][0]

    def may_end_early(self, level: int) -> bool:
        """Whether the loop may run fewer iterations than the stacked windows have room for."""
        loop = self.levels[level].loop
        return loop.op is not None and isinstance(loop.op.form, While)

    @property
    def outside(self) -> list[GraphNode]:
        """The values outside of the loops that window positions depend on."""
        return list(dict.fromkeys(x for each in self.sums for x in each if isinstance(x, GraphNode)))

    def _sum(self, x: Any, at: int) -> Sum | None:
        """An integer of the body of level `at` as an affine sum of iteration numbers and outside values; level -1 is
        outside of the loops."""
        if at < 0:
            return sum_of(x, lambda y: {y: 1} if not y.aval.shape else None)
        level = self.levels[at]
        positions = {y: k for k, y in enumerate(level.body.inputs)}
        return sum_of(x, lambda y: self._sum_of_input(level, positions[y], at) if y in positions else None)

    def _sum_of_input(self, level: _StackingLoop, k: int, at: int) -> Sum | None:
        node, x = level.body.inputs[k], level.loop.inputs[k]
        if level.carries <= k < level.carries + level.xs:
            if not isinstance(x, GraphNode) or x.op is not arange:
                return None
            params = dict(x.params)
            return added({None: params["start"]}, {at: params["step"]})
        if k >= level.carries or level.body.outputs[k] is node:
            return self._sum(x, at - 1)
        first = self._sum(x, at - 1) if node in level.steps and level.forwards else None
        return None if first is None else added(first, {at: level.steps[node]})

    # -- whether it is overwritten--------------------------------------------------------------------------
    def is_unmodified(self, bound: WindowBound | None) -> bool:
        """Whether no later write overwrites the used elements of the window: all of it, or a part."""
        node, known = self.window, self.levels[-1].known
        read = window_at([distances(a, known) for a in node.inputs[1:]], node.aval.shape, dict(node.params)["step"])
        if bound is not None:
            read = self._bounded_window(read, bound)
        for level, (k, x) in zip(reversed(self.levels), self.arrays):
            after = level.body.outputs[k]
            soon = WriteSet(level.known).trace_back(after, until=x)
            later = WriteSet(level.later).trace_back(after)
            if soon.first is not x or not all(map(read.is_disjoint, (*soon.windows, *later.windows))):
                return False
        return True

    def _bounded_window(self, read: IndexWindow, bound: WindowBound) -> IndexWindow:
        shape, step = self.window.aval.shape, dict(self.window.params)["step"]
        long_axes = [k for k, n in enumerate(shape) if n > 1]
        if len(long_axes) != 1 or step[long_axes[0]] != 1:
            return read
        (axis,) = long_axes
        starts, ends = list(read.starts), list(read.ends)
        bounds = ends if bound.is_end else starts
        bounds[axis] = both([plus(self._distances(bound.bound), read.starts[axis]), bounds[axis]])
        return IndexWindow(starts, ends)

    def _distances(self, x: Sum) -> Distances:
        """The distances of an affine sum in the iteration that saves the window."""
        results: list[Distances] = [{None: (x.get(None, 0),) * 2}] if x.keys() <= {None} else []
        for at, level in enumerate(self.levels):
            for node in level.steps:
                node_sum = self._sum(node, at)
                rest = None if node_sum is None else added(x, node_sum, -1)
                if rest is not None and rest.keys() <= {None}:
                    results.append(plus(level.known[node], {None: (rest.get(None, 0),) * 2}))
        return both(results)


def added(x: Sum, y: Sum, factor: int = 1) -> Sum:
    """The sum of one affine sum and a multiple of another."""
    return {k: total for k in (*x, *y) if (total := x.get(k, 0) + factor * y.get(k, 0))}
