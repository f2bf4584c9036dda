"""Eliminate residuals: read saved windows from the array that a loop returns instead of storing copies.

The derivative of a loop saves the values that its iterations read. An example is `A[i, :j]`, read in iteration `(i, j)`
of a factorization that fills `A`. If it is not written again, the returned `A` has the same elements, and no copy is
needed. If later iterations may write a part of a window, a mask must select the other part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tracegrad.analysis.affine import AffineForm, affine_of
from tracegrad.avals import Aval, Literal, is_literal
from tracegrad.control.hoist_invariant_reads import clamped_start
from tracegrad.ir import Builder, Graph, GraphNode, GraphValue
from tracegrad.ir.builder import recording
from tracegrad.ir.interpreter import applied
from tracegrad.ir.loop_view import LoopView, is_loop
from tracegrad.ir.rebuild import below
from tracegrad.ops.core.elementwise_op import Elementwise
from tracegrad.ops.elementwise import table as ew
from tracegrad.ops.elementwise.table import add, multiply, where
from tracegrad.ops.indexing.dynamic_slice import counted, dynamic_slice
from tracegrad.ops.indexing.gather_scatter import gather
from tracegrad.ops.shape.fill import arange
from tracegrad.ops.shape.linear import broadcast_to, reshape
from tracegrad.passes.loops.dead_results import trim
from tracegrad.passes.loops.fusion import share_loops
from tracegrad.passes.loops.residual_windows import IndexForm, IterationNumber, SavedWindow, WindowBound, row_form
from tracegrad.passes.simplify.simplify import simplify

_NUMBER = Aval((), np.dtype(np.int64))
Forms = dict[GraphNode, IndexForm]
AsForm = Callable[[GraphNode | Literal], IndexForm | None]


def read_what_is_left(graph: Graph) -> Graph:
    """`graph` with loops that read residual windows from the final array of another loop instead of stored copies."""
    before, tried = graph, set[tuple[GraphNode, int]]()
    if graph.has_regions and sum(map(is_loop, graph.nodes)) > 1:
        while (result := _rewritten(graph, tried)) is not None:
            graph = trim(result)  # remove unread residuals
    return graph if graph is before else share_loops(simplify(graph))


def _rewritten(graph: Graph, tried: set[tuple[GraphNode, int]]) -> Graph | None:
    """The graph with one more residual eliminated; None if there is none."""
    users = graph.users()
    for node in graph.nodes:
        if node.result_index is None or not is_loop(node.operands[0]) or node in graph.outputs or not users[node]:
            continue
        key = node.operands[0], node.result_index
        if key in tried or not all(map(is_loop, users[node])):
            continue
        tried.add(key)
        window = SavedWindow(*key)
        if window.is_readable and (result := _without(graph, node, window)) is not None:
            return result
    return None


def _without(graph: Graph, node: GraphNode, window: SavedWindow) -> Graph | None:
    """The graph with the residual `node` eliminated."""
    loop, builder = node.operands[0], Builder()
    env = {x: builder.input(x.aval) for x in graph.inputs}

    def extra() -> _ExtraInputs:
        return _ExtraInputs(env[loop][window.carry], [env[x] for x in window.outside], [])

    return _ResidualReader(window, builder, graph, node, env, extra, {}).rebuilt()


class _ExtraInputs(NamedTuple):
    """The further inputs of a region: the final array, the outside values that window positions depend on, and the
    iteration numbers of the loops that scan the residual."""

    array: Any
    outside: list[Any]
    iterations: list[Any]

    @property
    def all(self) -> list[Any]:
        return [self.array, *self.outside, *self.iterations]

    @property
    def level(self) -> int:
        """The number of loops that scan the residual."""
        return len(self.iterations)

    def inside(self, builder: Builder, iteration: GraphValue | None) -> _ExtraInputs:
        """The inputs of a region; `iteration` is the iteration number of one more loop, or None."""
        array, *rest = [builder.input(x.aval) for x in self.all]
        n = len(self.outside)
        return _ExtraInputs(array, rest[:n], [*rest[n:], *([] if iteration is None else [iteration])])

    def read(self, window: SavedWindow, indices: Sequence[Any]) -> Any:
        """The window in the iteration with these numbers, and `indices` of the loops that do not scan the residual."""
        values: dict[IterationNumber | GraphNode, Any] = dict(zip(window.outside, self.outside))
        values |= {IterationNumber(k): x for k, x in enumerate([*self.iterations, *indices])}
        starts: list[Any] = []
        for form, n, m, s in zip(window.starts, self.array.shape, window.sizes, window.step):
            start: Any = form.constant
            for symbol, factor in form.terms.items():
                term = values[symbol] if factor == 1 else multiply(values[symbol], factor)
                start = term if is_literal(start) and start == 0 else add(term, start)
            starts.append(start if is_literal(start) else clamped_start(start, {}, n - ((m - 1) * s + 1)))
        return dynamic_slice(self.array, *starts, sizes=window.sizes, step=window.step)


class _ResidualReader:
    """The graph, or a region, rebuilt to read a residual from the final array. `forms` are the forms of its inputs, and
    `env` has the values of its nodes in `builder`."""

    def __init__(
        self,
        window: SavedWindow,
        builder: Builder,
        graph: Graph,
        residual: GraphNode,
        env: dict[GraphNode, Any],
        extra: Callable[[], _ExtraInputs],
        forms: Forms,
    ):
        self.window, self.builder, self.graph, self.residual = window, builder, graph, residual
        self.env, self.extra, self.forms = env, extra, forms

    def form(self, x: GraphNode | Literal) -> IndexForm | None:
        """The form of an integer; its symbols may be nodes of the region."""
        return affine_of(x, lambda y: self.forms.get(y, AffineForm.symbol(y)))

    def rebuilt(self) -> Graph | None:
        """The region without the residual; None if it cannot do without."""
        env, residual = self.env, self.residual
        is_read = residual.op is None and env[residual].node.op is not None
        if residual in self.graph.outputs and not is_read:
            return None
        with recording(self.builder):
            for node in self.graph.nodes:
                if node.result_index is not None:
                    env[node] = env[node.operands[0]][node.result_index]
                    continue
                args = tuple([x if is_literal(x) else env[x] for x in node.inputs])
                if is_read or residual not in node.operands:
                    env[node] = applied(node, args, dict(node.params), self.builder)
                    continue
                self.builder.location = node.location
                env[node] = self._loop(node, args) if is_loop(node) else self._window(node, args)
                if env[node] is None:
                    return None
            return self.builder.build([env[x] for x in self.graph.outputs])

    def _inner(self, graph: Graph, position: int, first: int | None, extra: _ExtraInputs, forms: Forms) -> Graph | None:
        """A region whose input `position` is the residual, with further inputs. A scanned row of the residual is
        replaced by its iteration number, as input number `first`."""
        builder, residual = Builder(), graph.inputs[position]
        inputs = [builder.input(x.aval) for x in graph.inputs[:first]]
        iteration = None if first is None else builder.input(_NUMBER)
        inputs += [builder.input(x.aval) for x in graph.inputs[len(inputs) :]]
        extra = extra.inside(builder, iteration)
        region = _ResidualReader(
            self.window, builder, graph, residual, dict(zip(graph.inputs, inputs)), lambda: extra, forms
        )
        if extra.level == len(self.window.levels):
            if not self.window.is_unmodified(_used_bound(residual, graph, region.form)):
                return None
            with recording(builder):
                region.env[residual] = extra.read(self.window, [])
        return region.rebuilt()

    def _loop(self, node: GraphNode, args: Sequence[Any]) -> Any:
        """The results of a loop that takes the residual, whole or by rows."""
        loop, extra = LoopView.of(node), self.extra()
        positions = [k for k, x in enumerate(node.inputs) if x is self.residual]
        if len(positions) != 1 or positions[0] < loop.carries:
            return None
        (position,), first, inputs = positions, loop.varying, loop.body.inputs
        by_row = position < first
        if by_row and self.window.may_end_early(extra.level):
            return None
        forms = {x: self.form(y) for x, y in zip(loop.constants(inputs), loop.constants(node.inputs))}
        operands = [*args, *extra.all]
        if by_row:
            scanned = zip(loop.scanned(inputs), loop.scanned(node.inputs))
            forms |= {x: row_form(y, extra.level) for x, y in scanned}
            operands.insert(first, arange(start=0, step=1, length=loop.length, dtype="int64"))
        known = {x: form for x, form in forms.items() if form is not None}
        body = self._inner(loop.body, position, first if by_row else None, extra, known)
        cond = None if loop.cond is None else self._inner(loop.cond, position, None, extra, {})
        if body is None or (cond is None and loop.cond is not None):
            return None
        inner = loop._replace(body=body, cond=cond, xs=loop.xs + by_row)
        return self.builder.emit(loop.op, tuple(operands), inner.params)

    def _window(self, node: GraphNode, args: Sequence[Any]) -> Any:
        """The replacement of a node that reads a window of the residual."""
        extra, iterations = self.extra(), node.inputs[1:]
        axes = tuple(range(len(self.window.levels) - extra.level))
        whole = node.op is gather and dict(node.params)["axes"] == axes
        if not whole or self.residual in iterations or any(is_literal(x) or x.aval != _NUMBER for x in iterations):
            return None
        numbers: dict[IterationNumber | GraphNode, IterationNumber | GraphNode] = {}
        for k, x in enumerate(iterations, extra.level):
            form = self.form(x)
            if form is not None and form.constant == 0 and list(form.terms.values()) == [1]:
                numbers |= dict.fromkeys(form.terms, IterationNumber(k))

        def form_with_numbers(x: GraphNode | Literal) -> IndexForm | None:
            form = self.form(x)
            return None if form is None else form.renamed(numbers)

        if not self.window.is_unmodified(_used_bound(node, self.graph, form_with_numbers)):
            return None
        sizes = self.residual.aval.shape
        return extra.read(self.window, [counted(x, length=sizes[k], axis=k) for k, x in enumerate(args[1:])])


# -- masks ----------------------------------------------------------------------------------------------------
_BELOW = {ew.less: (0, True), ew.less_equal: (1, True), ew.greater_equal: (0, False), ew.greater: (1, False)}
_SWAPPED = {ew.less: ew.greater, ew.less_equal: ew.greater_equal, ew.greater_equal: ew.less_equal, ew.greater: ew.less}


def _used_bound(node: GraphNode, graph: Graph, as_form: AsForm) -> WindowBound | None:
    """The part of the window `node` that is used, if one mask selects it."""
    users, result, waiting = graph.users(), set(), [node]
    while waiting:
        x = waiting.pop()
        if x in graph.outputs:
            return None
        for user in users[x]:
            if user.op is where and user.inputs.count(x) == 1 and user.inputs[0] is not x:
                result.add((below(user.inputs[0]), user.inputs[1] is x))
            elif (user.op is reshape or isinstance(user.op, Elementwise)) and user.aval.size == x.aval.size:
                waiting.append(user)
            else:
                return None
    if len(result) != 1:
        return None
    ((mask, side),) = result
    return _bound(mask, side, as_form) if isinstance(mask, GraphNode) and mask.aval.size == node.aval.size else None


def _bound(mask: GraphNode, side: bool, as_form: AsForm) -> WindowBound | None:
    if mask.op not in _BELOW:
        return None
    for op, (x, y) in ((mask.op, mask.inputs), (_SWAPPED[mask.op], mask.inputs[::-1])):
        index, bound = below(x), below(y, broadcast_to)
        one = is_literal(bound) or not bound.aval.shape
        if one and isinstance(index, GraphNode) and index.op is arange and index.aval.size == mask.aval.size:
            offset, is_end = _BELOW[op]
            counts = dict(index.params)
            plain = (counts["start"], counts["step"]) == (0, 1)
            form = as_form(bound) if plain else None
            return None if form is None else WindowBound(form.plus(AffineForm(offset)), is_end == side)
    return None
