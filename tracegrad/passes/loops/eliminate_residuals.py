"""Eliminate residuals: read saved windows from the array that a loop returns instead of storing copies.

The derivative of a loop saves the values that its iterations read. An example is `A[i, :j]`, read in iteration `(i, j)`
of a factorization that fills `A`. If it is not written again, the returned `A` has the same elements, and no copy is
needed. If later iterations may write a part of a window, a mask must select the other part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracegrad.avals import Aval, is_literal
from tracegrad.control.hoist_invariant_reads import clamped_start
from tracegrad.ir import Builder, Graph, GraphNode
from tracegrad.ir.builder import recording
from tracegrad.ir.interpreter import applied
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
from tracegrad.passes.loops.residual_windows import SavedWindow, Sum, WindowBound, added, is_loop, sum_of
from tracegrad.passes.simplify.simplify import simplify

__all__ = ["read_what_is_left"]

_NUMBER = Aval((), np.dtype(np.int64))


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
        saved_window = SavedWindow(*key)
        if saved_window.is_readable and (result := _Reading(saved_window).graph(graph, node)) is not None:
            return result
    return None


class _Reading:
    """Rewrites graphs to read residuals from the final array. Regions get the final array, the outside values that
    window positions depend on, and the iteration numbers of their rows as further inputs."""

    def __init__(self, saved_window: SavedWindow):
        self.saved_window = saved_window

    def graph(self, graph: Graph, node: GraphNode) -> Graph | None:
        """The graph with the residual `node` eliminated."""
        loop, builder = node.operands[0], Builder()
        env = {x: builder.input(x.aval) for x in graph.inputs}

        def get_extra_inputs() -> list[Any]:
            return [env[loop][self.saved_window.carry], *(env[x] for x in self.saved_window.outside)]

        return self._rebuilt(builder, graph, node, env, get_extra_inputs, {})

    def _region(
        self,
        graph: Graph,
        residual: GraphNode,
        extra_args: Sequence[Any],
        row_position: int | None,
        sums: dict[GraphNode, Sum],
    ) -> Graph | None:
        """A region with further inputs. A scanned row of the residual is replaced by its iteration number, as input
        number `row_position`."""
        builder = Builder()
        inputs = [builder.input(x.aval) for x in graph.inputs[:row_position]]
        iteration = [] if row_position is None else [builder.input(_NUMBER)]
        inputs += [builder.input(x.aval) for x in graph.inputs[len(inputs) :]]
        extra_inputs, env = [*(builder.input(x.aval) for x in extra_args), *iteration], dict(zip(graph.inputs, inputs))
        if self._level(extra_inputs) == len(self.saved_window.levels):
            if not self.saved_window.is_unmodified(_used_bound(residual, graph, lambda x: _sum(x, sums))):
                return None
            with recording(builder):
                env[residual] = self._read(extra_inputs, [])
        return self._rebuilt(builder, graph, residual, env, lambda: extra_inputs, sums)

    def _rebuilt(
        self,
        builder: Builder,
        graph: Graph,
        residual: GraphNode,
        env: dict[GraphNode, Any],
        get_extra_inputs: Callable[[], list[Any]],
        sums: dict[GraphNode, Sum],
    ) -> Graph | None:
        is_read = residual.op is None and env[residual].node.op is not None
        if residual in graph.outputs and not is_read:
            return None
        with recording(builder):
            for node in graph.nodes:
                if node.result_index is not None:
                    env[node] = env[node.operands[0]][node.result_index]
                    continue
                args = tuple([x if is_literal(x) else env[x] for x in node.inputs])
                if is_read or residual not in node.operands:
                    env[node] = applied(node, args, dict(node.params), builder)
                    continue
                builder.location = node.location
                instead = self._loop if is_loop(node) else self._window
                env[node] = instead(node, args, residual, get_extra_inputs(), sums, graph)
                if env[node] is None:
                    return None
            return builder.build([env[x] for x in graph.outputs])

    def _loop(
        self,
        loop: GraphNode,
        args: Sequence[Any],
        residual: GraphNode,
        extra_inputs: list[Any],
        sums: dict[GraphNode, Sum],
        _: Graph,
    ) -> Any:
        """The results of a loop that takes the residual, whole or by rows."""
        params = dict(loop.params)
        carries, first = params["carries"], params["carries"] + params.get("xs", 0)
        positions = [k for k, x in enumerate(loop.inputs) if x is residual]
        if len(positions) != 1 or positions[0] < carries:
            return None
        by_row, body = positions[0] < first, params["body"]
        if by_row and self.saved_window.may_end_early(self._level(extra_inputs)):
            return None
        inside = {x: _sum(y, sums) for x, y in zip(body.inputs[first:], loop.inputs[first:])}
        operands = [*args, *extra_inputs]
        if by_row:
            level = self._level(extra_inputs)
            for x, y in zip(body.inputs[carries:first], loop.inputs[carries:first]):
                if isinstance(y, GraphNode) and y.op is arange:
                    inside[x] = added({None: dict(y.params)["start"]}, {level: dict(y.params)["step"]})
            operands.insert(first, arange(start=0, step=1, length=params["length"], dtype="int64"))
            params["xs"] += 1
        params["body"] = self._region(body, body.inputs[positions[0]], extra_inputs, first if by_row else None, inside)
        if "cond" in params:
            params["cond"] = self._region(params["cond"], params["cond"].inputs[positions[0]], extra_inputs, None, {})
        if params["body"] is None or params.get("cond", params) is None:
            return None
        return extra_inputs[0].builder.emit(loop.op, tuple(operands), params)

    def _level(self, extra_inputs: Sequence[Any]) -> int:
        """The number of iteration numbers among the inputs."""
        return len(extra_inputs) - 1 - len(self.saved_window.outside)

    def _window(
        self,
        node: GraphNode,
        args: Sequence[Any],
        residual: GraphNode,
        extra_inputs: list[Any],
        sums: dict[GraphNode, Sum],
        graph: Graph,
    ) -> Any:
        """The replacement of a node that reads a window of the residual."""
        level, iterations = self._level(extra_inputs), node.inputs[1:]
        whole = node.op is gather and dict(node.params)["axes"] == tuple(range(len(self.saved_window.levels) - level))
        if not whole or residual in iterations or any(is_literal(x) or x.aval != _NUMBER for x in iterations):
            return None
        numbers: dict[Any, int] = {}
        for k, x in enumerate(iterations, level):
            index_sum = _sum(x, sums)
            if len(index_sum) == 1 and set(index_sum.values()) == {1} and None not in index_sum:
                numbers[next(iter(index_sum))] = k
        bound = _used_bound(node, graph, lambda x: {numbers.get(k, k): n for k, n in _sum(x, sums).items()})
        if not self.saved_window.is_unmodified(bound):
            return None
        sizes = residual.aval.shape
        return self._read(extra_inputs, [counted(x, length=sizes[k], axis=k) for k, x in enumerate(args[1:])])

    def _read(self, extra_inputs: Sequence[Any], indices: Sequence[Any]) -> Any:
        outside, window = self.saved_window.outside, self.saved_window.window
        array, values, iterations = (
            extra_inputs[0],
            dict(zip(outside, extra_inputs[1:])),
            [*extra_inputs[1 + len(outside) :], *indices],
        )
        sizes, step = window.aval.shape, dict(window.params)["step"]
        starts = []
        for each, n, m, s in zip(self.saved_window.sums, array.shape, sizes, step):
            total: Any = each.get(None, 0)
            for key, factor in each.items():
                if key is not None:
                    value = iterations[key] if type(key) is int else values[key]
                    term = value if factor == 1 else multiply(value, factor)
                    total = term if is_literal(total) and total == 0 else add(term, total)
            starts.append(total if is_literal(total) else clamped_start(total, {}, n - ((m - 1) * s + 1)))
        return dynamic_slice(array, *starts, sizes=sizes, step=step)


def _sum(x: Any, known: dict[GraphNode, Sum]) -> Sum:
    result = sum_of(x, lambda y: known.get(y, {y: 1}))
    return {x: 1} if result is None else result


# -- masks ----------------------------------------------------------------------------------------------------
_BELOW = {ew.less: (0, True), ew.less_equal: (1, True), ew.greater_equal: (0, False), ew.greater: (1, False)}
_SWAPPED = {ew.less: ew.greater, ew.less_equal: ew.greater_equal, ew.greater_equal: ew.less_equal, ew.greater: ew.less}


def _used_bound(node: GraphNode, graph: Graph, as_sum: Callable[[Any], Sum]) -> WindowBound | None:
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
    return _bound(mask, side, as_sum) if isinstance(mask, GraphNode) and mask.aval.size == node.aval.size else None


def _bound(mask: GraphNode, side: bool, as_sum: Callable[[Any], Sum]) -> WindowBound | None:
    if mask.op not in _BELOW:
        return None
    for op, (x, y) in ((mask.op, mask.inputs), (_SWAPPED[mask.op], mask.inputs[::-1])):
        index, bound = below(x), below(y, broadcast_to)
        one = is_literal(bound) or not bound.aval.shape
        if one and isinstance(index, GraphNode) and index.op is arange and index.aval.size == mask.aval.size:
            offset, is_end = _BELOW[op]
            counts = dict(index.params)
            plain = (counts["start"], counts["step"]) == (0, 1)
            return WindowBound(added(as_sum(bound), {None: offset}), is_end == side) if plain else None
    return None
