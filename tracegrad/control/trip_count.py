"""Compute trip counts and induction variables of loops.

A carry to which each iteration adds the same integer is an induction variable. Its values need not be saved for a
derivative. A `while_loop` that runs while a counter is below a limit has a computable trip count. If the limit and the
initial value have known ranges, the trip count has one, too. The loop `for j in range(i)` inside another loop then gets
room for the largest `i`, and is not traced again with more room.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad.avals import is_literal
from tracegrad.ir import Graph, GraphNode, GraphValue
from tracegrad.ir.graph import map_regions
from tracegrad.ir.loop_view import LoopView, is_loop
from tracegrad.ir.rebuild import map_nodes, with_params
from tracegrad.ops.elementwise import table as ew
from tracegrad.ops.elementwise.table import add, maximum, multiply, subtract
from tracegrad.ops.indexing.dynamic_slice import counted, dynamic_slice
from tracegrad.ops.indexing.gather_scatter import gather
from tracegrad.ops.shape.fill import arange
from tracegrad.ops.shape.linear import broadcast_to, fresh, full, reshape, slice
from tracegrad.target.tuning import TUNING

__all__ = ["counters", "in_iteration", "known_iterations", "limit_of", "max_iterations", "range_of", "with_room"]

MAX_ASSUMED_ITERATIONS = TUNING.loops.max_assumed_iterations
DEEPEST = 30  # maximum depth of nodes in the analysis of ranges

Range = tuple[float, float]
ANY: Range = (-np.inf, np.inf)


# -- counters ------------------------------------------------------------------------------------------------
def counters(body: Graph, carries: int) -> dict[int, int]:
    """The step of each carry that is an induction variable."""
    return {k: step for k in range(carries) if (step := _counter_step(body.outputs[k], body.inputs[k])) is not None}


def _counter_step(after: GraphNode, before: GraphNode) -> int | None:
    if after.op not in (add, subtract) or before.aval.shape or before.aval.dtype != np.int64:
        return None
    x, y = after.inputs
    if x is before and _is_whole(y):
        return int(y) if after.op is add else -int(y)
    return int(x) if y is before and after.op is add and _is_whole(x) else None


def _is_whole(x: Any) -> bool:
    return is_literal(x) and type(x) is int


def in_iteration(start: Any, iteration: Any, step: int) -> Any:
    """The value of a counter with initial value `start` before iteration number `iteration`."""
    return add(start, iteration if step == 1 else multiply(iteration, step))


# -- trip counts ---------------------------------------------------------------------------------------------
# For each comparison: the side of the counter, the step of the counter, and what equality adds to the trip count.
_LIMITS = {
    ew.less: ((0, 1, 0), (1, -1, 0)),
    ew.less_equal: ((0, 1, 1), (1, -1, 1)),
    ew.greater: ((0, -1, 0), (1, 1, 0)),
    ew.greater_equal: ((0, -1, 1), (1, 1, 1)),
}


def limit_of(cond: Graph, body: Graph, carries: int) -> tuple[int, int, Any, int] | None:
    """The counter that a condition compares; None for other conditions. The parts are its number, its step (1 or -1),
    the limit (an integer, or a Node for an input), and a correction of the trip count."""
    (comparison,) = cond.outputs
    steps = counters(body, carries)
    for side, step, correction in _LIMITS.get(comparison.op, ()):  # type: ignore[call-overload]
        x, limit = comparison.inputs[side], comparison.inputs[1 - side]
        k = cond.inputs.index(x) if x in cond.inputs else -1
        if steps.get(k) != step:
            continue
        if _is_whole(limit):
            return k, step, int(limit), correction
        at = cond.inputs.index(limit) if limit in cond.inputs else -1
        if at >= carries or (at >= 0 and body.outputs[at] is body.inputs[at]):
            return k, step, cond.inputs[at], correction
    return None


def known_iterations(operands: Sequence[Any], cond: Graph, body: Graph, carries: int) -> Any:
    """The trip count of a `while_loop`, as a value computed from its operands; None if it is unknown."""
    if (result := limit_of(cond, body, carries)) is None:
        return None
    k, step, limit, correction = result
    stop = operands[cond.inputs.index(limit)] if isinstance(limit, GraphNode) else limit
    first, last = (operands[k], stop) if step == 1 else (stop, operands[k])
    iterations = subtract(last, first)
    return maximum(add(iterations, correction) if correction else iterations, 0)


def max_iterations(ranges: Sequence[Range], cond: Graph, body: Graph, carries: int) -> int:
    """An upper bound of the trip count of a `while_loop` with operands in `ranges`; 0 if it is unknown, or above
    `MAX_ASSUMED_ITERATIONS`."""
    if (result := limit_of(cond, body, carries)) is None:
        return 0
    k, step, limit, correction = result
    low, high = ranges[cond.inputs.index(limit)] if isinstance(limit, GraphNode) else (limit, limit)
    iterations = (high - ranges[k][0] if step == 1 else ranges[k][1] - low) + correction
    return max(int(iterations), 1) if iterations <= MAX_ASSUMED_ITERATIONS else 0


# -- ranges --------------------------------------------------------------------------------------------------
def range_of(x: Any, known: dict[GraphNode, Range] | None = None, deep: int = 0) -> Range:
    """The interval of the elements of `x`, an operand or a node; `known` are the intervals of inputs."""
    bounds: Any = known or {}
    if isinstance(x, GraphValue):
        bounds, x = getattr(x.builder, "bounds", bounds), x.node
    if is_literal(x):
        return (int(x), int(x)) if isinstance(x, int) else ANY
    if isinstance(x, np.ndarray | np.generic):
        return (int(x.min()), int(x.max())) if x.dtype.kind == "i" and x.size else ANY
    if not isinstance(x, GraphNode):
        return ANY
    if x in bounds:
        return bounds[x]  # type: ignore[no-any-return]
    if x.aval.dtype.kind != "i" or deep == DEEPEST:
        return ANY
    return _computed(x, lambda y: range_of(y, bounds, deep + 1))


def _computed(x: GraphNode, of: Any) -> Range:
    params = dict(x.params)
    if x.op is full:
        return (params["value"], params["value"])
    if x.op is arange:
        ends = params["start"], params["start"] + params["step"] * (params["length"] - 1)
        return min(ends), max(ends)
    if x.op in (reshape, broadcast_to, slice, gather, dynamic_slice, fresh):
        return of(x.inputs[0])  # type: ignore[no-any-return]
    if x.op is counted:
        return 0, params["length"] - 1
    if x.op not in _RANGES:
        return ANY
    low, high = _RANGES[x.op](*of(x.inputs[0]), *of(x.inputs[1]))
    return (low, high) if -(2**62) < low <= high < 2**62 else ANY  # a value that overflows 64 bits wraps


_RANGES: dict[Any, Any] = {
    add: lambda a, b, c, d: (a + c, b + d),
    subtract: lambda a, b, c, d: (a - d, b - c),
    ew.maximum: lambda a, b, c, d: (max(a, c), max(b, d)),
    ew.minimum: lambda a, b, c, d: (min(a, c), min(b, d)),
}


# -- room ----------------------------------------------------------------------------------------------------
def with_room(body: Graph, operands: Sequence[Any], carries: int, iterations: int) -> Graph:
    """The body of a loop of at most `iterations` iterations (0: unknown), with room in inner loops for their maximal
    trip counts; `operands` are the operands of the loop."""
    if not any(node.regions for node in body.nodes):
        return body
    return _with_room(body, _inside(body, list(map(range_of, operands)), carries, iterations))


def _inside(body: Graph, ranges: Sequence[Range], carries: int, iterations: int) -> list[Range]:
    """The intervals of the inputs of a body, computed from the intervals of the operands of the loop."""
    steps, result = counters(body, carries), list[Range]()
    for k, (low, high) in enumerate(ranges):
        if k >= carries or body.outputs[k] is body.inputs[k]:
            result.append((low, high))
        elif k in steps and iterations:
            change = steps[k] * (iterations - 1)
            result.append((low + min(change, 0), high + max(change, 0)))
        else:
            result.append(ANY)
    return result


def _with_room(graph: Graph, ranges: Sequence[Range]) -> Graph:
    known = dict(zip(graph.inputs, ranges))

    def change(node: GraphNode) -> GraphNode:
        return _roomy(node, [range_of(x, known) for x in node.inputs]) if node.regions else node

    return map_nodes(graph, change)


def _roomy(node: GraphNode, ranges: Sequence[Range]) -> GraphNode:
    """A node with regions, with room for operands in `ranges`."""
    if not is_loop(node):
        skipped = len(ranges) - len(node.regions[0].inputs)
        return with_params(node, map_regions(node.params, lambda region: _with_room(region, ranges[skipped:])))
    loop = LoopView.of(node)
    bound = loop.length
    if loop.cond is not None:
        bound = max_iterations(ranges, loop.cond, loop.body, loop.carries)
        loop = loop._replace(length=loop.length or bound)
    inside = _inside(loop.body, ranges, loop.carries, bound)
    return with_params(node, loop._replace(body=_with_room(loop.body, inside)).items)
