"""Compute trip counts and induction variables of loops.

A carry to which each iteration adds the same integer is an induction variable. Its values need not be saved for a
derivative. A `while_loop` that runs while a counter is below a limit has a computable trip count. If the limit and the
initial value have known ranges, the trip count has one, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tracegrad.analysis.intervals import Interval
from tracegrad.ir import Graph, GraphNode
from tracegrad.ir.loop_view import LoopView
from tracegrad.ops.core.op import Op
from tracegrad.ops.elementwise import table as ew
from tracegrad.ops.elementwise.table import add, maximum, multiply, subtract
from tracegrad.target.tuning import TUNING

MAX_ASSUMED_ITERATIONS = TUNING.loops.max_assumed_iterations


# -- counters ------------------------------------------------------------------------------------------------
def counters(body: Graph, carries: int) -> dict[int, int]:
    """The step of each carry that is an induction variable."""
    return {k: step for k in range(carries) if (step := _counter_step(body.outputs[k], body.inputs[k])) is not None}


def _counter_step(after: GraphNode, before: GraphNode) -> int | None:
    if after.op not in (add, subtract) or before.aval.shape or before.aval.dtype != np.int64:
        return None
    x, y = after.inputs
    if x is before and type(y) is int:
        return y if after.op is add else -y
    return x if y is before and after.op is add and type(x) is int else None


def in_iteration(start: Any, iteration: Any, step: int) -> Any:
    """The value of a counter with initial value `start` before iteration number `iteration`."""
    return add(start, iteration if step == 1 else multiply(iteration, step))


# -- trip counts ---------------------------------------------------------------------------------------------
# For each comparison: the side of the counter, the step of the counter, and what equality adds to the trip count.
_LIMITS: dict[Op | None, tuple[tuple[int, int, int], ...]] = {
    ew.less: ((0, 1, 0), (1, -1, 0)),
    ew.less_equal: ((0, 1, 1), (1, -1, 1)),
    ew.greater: ((0, -1, 0), (1, 1, 0)),
    ew.greater_equal: ((0, -1, 1), (1, 1, 1)),
}


class CounterLimit(NamedTuple):
    """The limit of a loop: it runs while counter number `counter`, with a `step` of 1 or -1, is before the limit, which
    is an integer or input number `limit_input`. Equality adds `correction` to the trip count."""

    counter: int
    step: int
    limit: int
    limit_input: int | None
    correction: int

    def of(self, operands: Sequence[Any]) -> Any:
        """The limit among the operands of the loop."""
        return self.limit if self.limit_input is None else operands[self.limit_input]


def limit_of(loop: LoopView) -> CounterLimit | None:
    """The limit in the condition of a loop; None for a scan and for other conditions."""
    if loop.cond is None:
        return None
    (comparison,), inputs, steps = loop.cond.outputs, loop.cond.inputs, counters(loop.body, loop.carries)
    for side, step, correction in _LIMITS.get(comparison.op, ()):
        x, limit = comparison.inputs[side], comparison.inputs[1 - side]
        k = inputs.index(x) if x in inputs else -1
        if steps.get(k) != step:
            continue
        if type(limit) is int:
            return CounterLimit(k, step, limit, None, correction)
        if limit in inputs and loop.is_unchanged(inputs.index(limit)):
            return CounterLimit(k, step, 0, inputs.index(limit), correction)
    return None


def known_iterations(operands: Sequence[Any], loop: LoopView) -> object:
    """The trip count of a `while_loop`, as a value computed from its operands; None if it is unknown."""
    if (limit := limit_of(loop)) is None:
        return None
    first, last = operands[limit.counter], limit.of(operands)
    iterations = subtract(last, first) if limit.step == 1 else subtract(first, last)
    return maximum(add(iterations, limit.correction) if limit.correction else iterations, 0)


def max_iterations(ranges: Sequence[Interval], loop: LoopView) -> int:
    """An upper bound of the trip count of a `while_loop` with operands in `ranges`; 0 if it is unknown, or above
    `MAX_ASSUMED_ITERATIONS`."""
    if (limit := limit_of(loop)) is None:
        return 0
    low, high = (limit.limit, limit.limit) if limit.limit_input is None else ranges[limit.limit_input]
    first, last = ranges[limit.counter]
    iterations = (high - first if limit.step == 1 else last - low) + limit.correction
    return max(int(iterations), 1) if iterations <= MAX_ASSUMED_ITERATIONS else 0
