"""Reverse-mode derivative of `while_loop`: a loop that counts down over the stacked residuals.

The residuals have room for a fixed number of iterations. If they would exceed `settings.loop_memory`, the loop runs in
segments, and the carries at the beginning of each segment are saved. A loop over segments, from the last one, reruns
the iterations of a segment and then computes their derivative (see `tracegrad.control.segmented_checkpointing`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad.analysis.intervals import range_of
from tracegrad.analysis.trip_count import counters, in_iteration, known_iterations, max_iterations
from tracegrad.avals import aval_of
from tracegrad.control.capacity import with_room
from tracegrad.control.loop_vjp import IterationVjp, accumulated, iteration_of, next_cotangents, overwritten
from tracegrad.control.region_ops import run_region
from tracegrad.control.segmented_checkpointing import division
from tracegrad.control.while_op import ROOMS, while_loop
from tracegrad.ir import Graph, build
from tracegrad.ir.loop_view import LoopView
from tracegrad.ops.elementwise.table import add, greater_equal, less, logical_and, subtract
from tracegrad.ops.indexing.gather_scatter import gather
from tracegrad.ops.shape.linear import full, zeros_like

__all__: list[str] = []


@while_loop.def_vjp_all
def _(
    wanted: Sequence[int],
    cts: tuple[Any, ...],
    ans: Any,
    *operands: Any,
    cond: Graph,
    body: Graph,
    carries: int,
    capacity: int,
) -> list[Any]:
    # The trip count follows the carries, and has no cotangent. The stacked results follow the trip count.
    args = [k if k < carries else k - 1 for k, ct in enumerate(cts) if ct is not None]
    loop = LoopView(while_loop, body, carries, cond=cond)
    bound = max_iterations(list(map(range_of, operands)), loop)
    body = with_room(loop, operands, bound).body
    count = ans[carries]
    capacity = capacity or (max(int(count), 1) if isinstance(count, np.ndarray) else bound or ROOMS.iterations)
    spared = overwritten(operands, carries)
    iteration = iteration_of(body, wanted, args, carries, 0, capacity, spared, counters(body, carries))
    if (known := known_iterations(operands, loop)) is not None:
        count = known
    init = [zeros_like(ans[k]) if cts[k] is None else cts[k] for k in iteration.live]
    state = [*init, *(zeros_like(operands[i]) for i in iteration.reached if i >= carries)]
    outside = run_region(iteration.outside, operands[carries:])
    seeds = [cts[k + 1] for k in iteration.seeded if k >= carries]
    iterations = capacity
    if iteration.residuals and len(body.outputs) == carries:
        sizes, levels = division(body, iteration.forward, carries, capacity, 1, f"room for {capacity} iterations")
        iterations = sizes.segment(capacity, levels)
    if iterations < capacity:
        result = _segment_by_segment(iteration, operands, state, outside, iterations, capacity, cond, body)
    else:
        saved: Any = ()
        if iteration.residuals:
            saved = while_loop(*operands, cond=cond, body=iteration.forward, carries=carries, capacity=capacity)
        stacked = [*saved[1 + len(body.outputs) :], *seeds]
        result = _iteration_by_iteration(iteration, count, operands, state, stacked, outside, carries)
    pulled = dict(zip([*iteration.live, *(i for i in iteration.reached if i >= carries)], result))
    return [pulled.get(i) for i in wanted]


def _iteration_by_iteration(
    iteration: IterationVjp,
    count: Any,
    operands: Sequence[Any],
    state: Sequence[Any],
    stacked: Sequence[Any],
    outside: Sequence[Any],
    carries: int,
) -> list[Any]:
    """The `state` before the iterations, computed from the state after them: the cotangents of live carries, and the
    accumulated cotangents of constants."""
    live, loose, counting = len(iteration.live), iteration.needed("input"), iteration.needed("counter")
    consts = [i for i in iteration.reached if i >= carries]
    groups = [
        state[:live],
        state[live:],
        stacked,
        [operands[i] for i in loose],
        outside,
        [operands[i] for i in counting],
    ]

    def step(i: Any, *args: Any) -> list[Any]:
        supply = iter(args)
        after, sums, stacks, fixed, known, starts = ([next(supply) for _ in group] for group in groups)
        rows = [gather(x, i, axes=(0,)) for x in stacks]
        table = {
            "residual": dict(enumerate(rows)),
            "input": dict(zip(loose, fixed)),
            "outside": dict(enumerate(known)),
            "counter": {k: in_iteration(start, i, iteration.counter_steps[k]) for k, start in zip(counting, starts)},
        }
        pulled = iteration.cotangents(lambda sort, k: table[sort][k], [*after, *rows[iteration.residuals :]])
        return [*next_cotangents(iteration, pulled, after), *accumulated(pulled, consts, sums)]

    return _counted_down(step, count, state, [x for group in groups[2:] for x in group])


def _segment_by_segment(
    iteration: IterationVjp,
    operands: Sequence[Any],
    state: Sequence[Any],
    outside: Sequence[Any],
    iterations: int,
    capacity: int,
    cond: Graph,
    body: Graph,
) -> list[Any]:
    carries = len(body.outputs)
    count, starts = _in_segments(operands, iterations, -(-capacity // iterations), cond, body)
    bounded_cond, forward = _bounded(cond, iteration.forward, carries, iterations)
    groups = [state, starts, operands[carries:], outside]

    def step(i: Any, *args: Any) -> list[Any]:
        supply = iter(args)
        after, starts, consts, known = ([next(supply) for _ in group] for group in groups)
        carry = [gather(x, i, axes=(0,)) for x in starts]
        saved = while_loop(
            *carry, _zero(), *consts, cond=bounded_cond, body=forward, carries=carries + 1, capacity=iterations
        )
        return _iteration_by_iteration(
            iteration, saved[carries], [*carry, *consts], after, saved[carries + 2 :], known, carries
        )

    return _counted_down(step, count, state, [x for group in groups[1:] for x in group])


def _counted_down(step: Any, count: Any, state: Sequence[Any], consts: Sequence[Any]) -> list[Any]:
    """The final `state` of `step(i, *state, *consts)` for i from `count` - 1 down to 0."""
    flat = [subtract(count, 1), *state, *consts]
    avals = [aval_of(x) for x in flat]
    result = while_loop(
        *flat,
        cond=build(lambda i, *_: [greater_equal(i, 0)], avals),
        body=build(lambda i, *args: [subtract(i, 1), *step(i, *args)], avals),
        carries=1 + len(state),
        capacity=0,
    )
    return list(result[1:])


# -- the loop in segments ----------------------------------------------------------------------------------------------
def _in_segments(
    operands: Sequence[Any], iterations: int, capacity: int, cond: Graph, body: Graph
) -> tuple[Any, Sequence[Any]]:
    """Run a `while_loop` without stacked results in segments of at most `iterations` iterations, with room for
    `capacity` segments. Returns the number of segments, and the carries at the beginning of each."""
    n = len(body.outputs)
    bounded_cond, counting = _bounded(cond, body, n, iterations)

    def segment(*args: Any) -> list[Any]:
        result = while_loop(*args[:n], _zero(), *args[n:], cond=bounded_cond, body=counting, carries=n + 1, capacity=0)
        return [*result[:n], *args[:n]]

    body = build(segment, body.avals)
    result = while_loop(*operands, cond=cond, body=body, carries=n, capacity=capacity)
    return result[n], result[n + 1 :]


def _bounded(cond: Graph, body: Graph, carries: int, iterations: int) -> tuple[Graph, Graph]:
    """The condition and the body of a loop with a bounded number of iterations, counted by an additional carry."""
    n = carries
    avals = [*body.avals[:n], aval_of(np.int64(0)), *body.avals[n:]]

    def condition(*args: Any) -> list[Any]:
        return [logical_and(*run_region(cond, [*args[:n], *args[n + 1 :]]), less(args[n], iterations))]

    def step(*args: Any) -> list[Any]:
        result = run_region(body, [*args[:n], *args[n + 1 :]])
        return [*result[:n], add(args[n], 1), *result[n:]]

    return build(condition, avals), build(step, avals)


def _zero() -> Any:
    return full(shape=(), value=0, dtype="int64")
