"""What is known of loops that count: the value of a counter in every turn, and how many turns there are.

A carry to which each turn adds the same integer is a counter. Its values need not be kept for a derivative, nor need
the number of turns of a `while_loop` that goes on while a counter is below a limit. Where the limit and what the
counter begins with are in known ranges, so is the number of turns: a loop within a loop that says `for j in range(i)`
has as much room as `i` can be large, and is not traced again for want of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad.avals import is_literal
from tracegrad.ir import Graph, Node, Value
from tracegrad.ir.graph import map_regions
from tracegrad.ops.core.forms import Repeat, While
from tracegrad.ops.elementwise import table as ew
from tracegrad.ops.elementwise.table import add, maximum, multiply, subtract
from tracegrad.ops.indexing.dynamic_slice import counted, dynamic_slice
from tracegrad.ops.indexing.gather_scatter import gather
from tracegrad.ops.shape.fill import arange
from tracegrad.ops.shape.linear import broadcast_to, fresh, full, reshape, slice

__all__ = ["counters", "in_turn", "known_turns", "limit_of", "most_turns", "range_of", "with_room"]

MOST_ROOM = 1 << 12  # turns for which room is made because there might be so many
DEEPEST = 30  # how far back ranges are looked for

Range = tuple[float, float]
ANY: Range = (-np.inf, np.inf)


# -- counters ------------------------------------------------------------------------------------------------
def counters(body: Graph, carries: int) -> dict[int, int]:
    """What a turn adds, for each carry that is a counter."""
    return {k: step for k in range(carries) if (step := _step(body.outputs[k], body.inputs[k])) is not None}


def _step(after: Node, before: Node) -> int | None:
    if after.op not in (add, subtract) or before.aval.shape or before.aval.dtype != np.int64:
        return None
    x, y = after.inputs
    if x is before and _is_whole(y):
        return int(y) if after.op is add else -int(y)
    return int(x) if y is before and after.op is add and _is_whole(x) else None


def _is_whole(x: Any) -> bool:
    return is_literal(x) and type(x) is int


def in_turn(start: Any, turn: Any, step: int) -> Any:
    """A counter that begins with `start`, before turn number `turn`."""
    return add(start, turn if step == 1 else multiply(turn, step))


# -- the number of turns -------------------------------------------------------------------------------------
# For each comparison: which side it has the counter on, which way that counts, and what equality adds to the turns.
_LIMITS = {
    ew.less: ((0, 1, 0), (1, -1, 0)), ew.less_equal: ((0, 1, 1), (1, -1, 1)),
    ew.greater: ((0, -1, 0), (1, 1, 0)), ew.greater_equal: ((0, -1, 1), (1, 1, 1)),
}  # fmt: skip


def limit_of(cond: Graph, body: Graph, carries: int) -> tuple[int, int, Any, int] | None:
    """The counter that a condition compares: its number, its step (1 or -1), the limit (an input's number as a Node
    stands, or an integer), and what is added to the turns; None if it is no such condition."""
    (asked,) = cond.outputs
    steps = counters(body, carries)
    for side, step, more in _LIMITS.get(asked.op, ()):  # type: ignore[call-overload]
        x, limit = asked.inputs[side], asked.inputs[1 - side]
        k = cond.inputs.index(x) if x in cond.inputs else -1
        if steps.get(k) != step:
            continue
        if _is_whole(limit):
            return k, step, int(limit), more
        at = cond.inputs.index(limit) if limit in cond.inputs else -1
        if at >= carries or (at >= 0 and body.outputs[at] is body.inputs[at]):
            return k, step, cond.inputs[at], more
    return None


def known_turns(operands: Sequence[Any], cond: Graph, body: Graph, carries: int) -> Any:
    """The number of turns of a `while_loop`, as a value computed from its operands; None if that is not known."""
    if (found := limit_of(cond, body, carries)) is None:
        return None
    k, step, limit, more = found
    stop = operands[cond.inputs.index(limit)] if isinstance(limit, Node) else limit
    first, last = (operands[k], stop) if step == 1 else (stop, operands[k])
    turns = subtract(last, first)
    return maximum(add(turns, more) if more else turns, 0)


def most_turns(ranges: Sequence[Range], cond: Graph, body: Graph, carries: int) -> int:
    """How many turns a `while_loop` has at most whose operands are in these ranges; 0 if that is not known, or more
    than room is made for."""
    if (found := limit_of(cond, body, carries)) is None:
        return 0
    k, step, limit, more = found
    low, high = ranges[cond.inputs.index(limit)] if isinstance(limit, Node) else (limit, limit)
    turns = (high - ranges[k][0] if step == 1 else ranges[k][1] - low) + more
    return max(int(turns), 1) if turns <= MOST_ROOM else 0


# -- ranges --------------------------------------------------------------------------------------------------
def range_of(x: Any, known: dict[Node, Range] | None = None, deep: int = 0) -> Range:
    """The least and the greatest value of the elements of `x`, an operand or a node; `known` are those of inputs."""
    bounds: Any = known or {}
    if isinstance(x, Value):
        bounds, x = getattr(x.builder, "bounds", bounds), x.node
    if is_literal(x):
        return (int(x), int(x)) if isinstance(x, int) else ANY
    if isinstance(x, np.ndarray | np.generic):
        return (int(x.min()), int(x.max())) if x.dtype.kind == "i" and x.size else ANY
    if not isinstance(x, Node):
        return ANY
    if x in bounds:
        return bounds[x]  # type: ignore[no-any-return]
    if x.aval.dtype.kind != "i" or deep == DEEPEST:
        return ANY
    return _computed(x, lambda y: range_of(y, bounds, deep + 1))


def _computed(x: Node, of: Any) -> Range:
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
    return (low, high) if -(2**62) < low <= high < 2**62 else ANY  # what may not fit in 64 bits may be anything


_RANGES: dict[Any, Any] = {
    add: lambda a, b, c, d: (a + c, b + d),
    subtract: lambda a, b, c, d: (a - d, b - c),
    ew.maximum: lambda a, b, c, d: (max(a, c), max(b, d)),
    ew.minimum: lambda a, b, c, d: (min(a, c), min(b, d)),
}


# -- room ----------------------------------------------------------------------------------------------------
def with_room(body: Graph, operands: Sequence[Any], carries: int, turns: int) -> Graph:
    """The body of a loop of at most so many turns (0: not known), in which loops within have room for as many turns as
    they may have; `operands` are those of the loop."""
    if not any(node.regions for node in body.nodes):
        return body
    return _with_room(body, _inside(body, list(map(range_of, operands)), carries, turns))


def _inside(body: Graph, ranges: Sequence[Range], carries: int, turns: int) -> list[Range]:
    """The ranges of the inputs of a body, given those of the operands of the loop."""
    steps, found = counters(body, carries), list[Range]()
    for k, (low, high) in enumerate(ranges):
        if k >= carries or body.outputs[k] is body.inputs[k]:
            found.append((low, high))
        elif k in steps and turns:
            way = steps[k] * (turns - 1)
            found.append((low + min(way, 0), high + max(way, 0)))
        else:
            found.append(ANY)
    return found


def _with_room(graph: Graph, ranges: Sequence[Range]) -> Graph:
    known = dict(zip(graph.inputs, ranges))
    moved: dict[Node, Node] = {}
    for node in graph.nodes:
        params = node.params
        if node.regions:
            given = [range_of(x, known) for x in node.inputs]
            params = _roomy(node, given)
        if params is not node.params or any(x in moved for x in node.operands):
            inputs = tuple([moved.get(x, x) if isinstance(x, Node) else x for x in node.inputs])
            moved[node] = Node(node.op, inputs, params, node.aval, node.location)
    nodes = tuple([moved.get(x, x) for x in graph.nodes])
    return Graph(graph.inputs, nodes, tuple([moved.get(x, x) for x in graph.outputs])) if moved else graph


def _roomy(node: Node, ranges: Sequence[Range]) -> Any:
    """The parameters of a node with regions whose operands are in these ranges."""
    params = dict(node.params)
    form = node.op.form if node.op is not None else None
    if isinstance(form, While):
        most = most_turns(ranges, params["cond"], params["body"], params["carries"])
        if most and not params["capacity"]:
            params["capacity"] = most
        inside = _inside(params["body"], ranges, params["carries"], most)
        params["body"] = _with_room(params["body"], inside)
    elif isinstance(form, Repeat):
        inside = _inside(params["body"], ranges, params["carries"], params["length"])
        params["body"] = _with_room(params["body"], inside)
    else:
        skipped = len(ranges) - len(node.regions[0].inputs)
        return map_regions(node.params, lambda region: _with_room(region, ranges[skipped:]))
    return tuple(sorted(params.items()))
