"""Analyze windows saved as residuals: whether the array that the loop returns still holds them.

An iteration reads a window of an array that the loop updates, and the loop stacks the window as a residual. A nested
loop may stack it first, and its outer loop again. The window can be read from the final array if all later writes are
disjoint from it (`tracegrad.analysis.index_ranges`): in the rest of the iteration, and in later ones of each loop.
"""

from __future__ import annotations

from typing import NamedTuple

from tracegrad.analysis.affine import AffineForm, affine_of
from tracegrad.analysis.index_ranges import (
    Distances,
    IndexWindow,
    both,
    distances,
    input_distances,
    plus,
    window_at,
)
from tracegrad.analysis.trip_count import counters
from tracegrad.analysis.write_sets import WriteSet
from tracegrad.avals import Literal
from tracegrad.ir import GraphNode
from tracegrad.ir.loop_view import LoopView, is_loop
from tracegrad.ops.indexing.dynamic_slice import dynamic_slice
from tracegrad.ops.shape.fill import arange


class IterationNumber(NamedTuple):
    """The number of an iteration of the nested loop number `level`, outermost first."""

    level: int


IndexForm = AffineForm[IterationNumber | GraphNode]


class WindowBound(NamedTuple):
    """Part of a window along one axis: the elements before a bound (`is_end`), or from it on, counted from the first
    element."""

    bound: IndexForm
    is_end: bool


def row_form(x: GraphNode | Literal, level: int) -> IndexForm | None:
    """The form of a row of `x` that a loop scans: a number of an `arange`; None for other arrays."""
    if not isinstance(x, GraphNode) or x.op is not arange:
        return None
    params = dict(x.params)
    return AffineForm.symbol(IterationNumber(level), params["step"], params["start"])


class _StackingLoop:
    """One of the nested loops that stack a window. `known` are the distances of the integers of its body in the
    iteration that reads the window; `later` are their distances in all later iterations."""

    def __init__(self, node: GraphNode, around: dict[GraphNode, Distances]):
        self.node, self.loop = node, LoopView.of(node)
        inputs = self.loop.body.inputs
        self.later = input_distances(self.loop, node.inputs, around)
        self.steps = {inputs[k]: step for k, step in counters(self.loop.body, self.loop.carries).items()}
        for row, x in zip(self.loop.scanned(inputs), self.loop.scanned(node.inputs)):
            if (form := row_form(x, 0)) is not None:
                (step,) = form.terms.values()
                self.steps[row] = -step if self.loop.reverse else step
        if not around:
            for x in self.loop.constants(inputs):
                self.later[x] = both([self.later[x], {x: (0.0, 0.0)}])
        self.known = dict(self.later)
        for x, step in self.steps.items():
            self.known[x] = both([self.later[x], {x: (0, 0)}])
            beyond: Distances = {x: (step, float("inf")) if step > 0 else (-float("inf"), step)}
            self.later[x] = both([self.later[x], beyond])

    def stacked(self, k: int) -> GraphNode | None:
        """The value stacked as result `k`."""
        output = self.loop.output_of(k) if k >= self.loop.first_stacked else None
        return None if output is None else self.loop.body.outputs[output]


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
        self.sizes: tuple[int, ...] = y.aval.shape
        self.step: tuple[int, ...] = dict(y.params)["step"]
        self.arrays = self._arrays(y.operands[0])
        forms = [self._form(a, len(self.levels) - 1) for a in y.inputs[1:]]
        self.starts = [x for x in forms if x is not None]
        self.is_readable = bool(self.arrays) and len(self.starts) == len(forms)

    def _arrays(self, x: GraphNode | None) -> list[tuple[int, GraphNode]]:
        """For each loop, innermost first: the carry of the array, and the value of the array from which the window is
        read; for an outer loop, its value after the inner loop."""
        results: list[tuple[int, GraphNode]] = []
        for level in reversed(self.levels):
            body = level.loop.body
            for k in range(level.loop.carries):
                updates = WriteSet(level.known).trace_back(body.outputs[k])
                if x is not None and x in updates.values and updates.first is body.inputs[k]:
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
        around = self.levels[at - 1].loop.body
        return [y for y in around.nodes if y.result_index is not None and y.operands[0] is level.node]

    @property
    def carry(self) -> int:
        """The carry of the outermost loop that holds the array."""
        return self.arrays[-1][0]

    def may_end_early(self, level: int) -> bool:
        """Whether the loop may run fewer iterations than the stacked windows have room for."""
        return self.levels[level].loop.cond is not None

    @property
    def outside(self) -> list[GraphNode]:
        """The values outside of the loops that window positions depend on."""
        return list(dict.fromkeys(x for form in self.starts for x in form.terms if isinstance(x, GraphNode)))

    def _form(self, x: GraphNode | Literal, at: int) -> IndexForm | None:
        """An integer of the body of level `at` as a form of iteration numbers and outside values; level -1 is outside
        of the loops."""
        if at < 0:
            return affine_of(x, lambda y: AffineForm.symbol(y) if not y.aval.shape else None)
        positions = {y: k for k, y in enumerate(self.levels[at].loop.body.inputs)}
        return affine_of(x, lambda y: self._form_of_input(positions[y], at) if y in positions else None)

    def _form_of_input(self, k: int, at: int) -> IndexForm | None:
        level = self.levels[at]
        loop, x = level.loop, level.node.inputs[k]
        if loop.is_unchanged(k):
            return self._form(x, at - 1)
        if k >= loop.carries:
            return row_form(x, at)
        step = level.steps.get(loop.body.inputs[k])
        first = self._form(x, at - 1) if step is not None and not loop.reverse else None
        return None if first is None or step is None else first.plus(AffineForm.symbol(IterationNumber(at)), step)

    # -- whether it is overwritten--------------------------------------------------------------------------
    def is_unmodified(self, bound: WindowBound | None) -> bool:
        """Whether no later write overwrites the used elements of the window: all of it, or a part."""
        known = self.levels[-1].known
        read = window_at([distances(a, known) for a in self.window.inputs[1:]], self.sizes, self.step)
        if bound is not None:
            read = self._bounded_window(read, bound)
        for level, (k, x) in zip(reversed(self.levels), self.arrays):
            after = level.loop.body.outputs[k]
            soon = WriteSet(level.known).trace_back(after, until=x)
            later = WriteSet(level.later).trace_back(after)
            if soon.first is not x or not all(map(read.is_disjoint, (*soon.windows, *later.windows))):
                return False
        return True

    def _bounded_window(self, read: IndexWindow, bound: WindowBound) -> IndexWindow:
        long_axes = [k for k, n in enumerate(self.sizes) if n > 1]
        if len(long_axes) != 1 or self.step[long_axes[0]] != 1:
            return read
        (axis,) = long_axes
        starts, ends = list(read.starts), list(read.ends)
        bounds = ends if bound.is_end else starts
        bounds[axis] = both([plus(self._distances(bound.bound), read.starts[axis]), bounds[axis]])
        return IndexWindow(starts, ends)

    def _distances(self, x: IndexForm) -> Distances:
        """The distances of a form in the iteration that saves the window."""
        results: list[Distances] = [] if x.terms else [{None: (x.constant, x.constant)}]
        for at, level in enumerate(self.levels):
            for node in level.steps:
                form = self._form(node, at)
                rest = None if form is None else x.minus(form)
                if rest is not None:
                    results.append(plus(level.known[node], {None: (rest, rest)}))
        return both(results)
