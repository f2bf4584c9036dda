"""Reverse-mode derivative of `while_loop`: a loop that counts down over the stacked residuals.

The residuals have room for a fixed number of iterations. If they would exceed `settings.loop_memory`, the loop runs in
segments, and the carries at the beginning of each segment are saved. A loop over segments, from the last one, reruns
the iterations of a segment and then computes their derivative (see `tracegrad.control.segmented_checkpointing`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.analysis.intervals import range_of
from tracegrad.analysis.trip_count import counters, in_iteration, known_iterations, max_iterations
from tracegrad.avals import aval_of
from tracegrad.control.capacity import with_room
from tracegrad.control.loop_vjp import IterationVjp, accumulated, iteration_of, next_cotangents, overwritten
from tracegrad.control.region_ops import run_region, split_like
from tracegrad.control.segmented_checkpointing import division
from tracegrad.control.while_op import ROOMS, while_loop
from tracegrad.ir import GraphValue, build
from tracegrad.ir.loop_view import LoopView
from tracegrad.ops.elementwise.table import add, greater_equal, less, logical_and, subtract
from tracegrad.ops.indexing.gather_scatter import gather
from tracegrad.ops.shape.linear import full, zeros_like

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Carrier, Operand
    from tracegrad.typing import Array


@while_loop.def_vjp_all
def _(wanted: Sequence[int], cts: tuple[Operand | None, ...], ans: Any, *operands: Any, **params: Any) -> list[Any]:
    loop = LoopView.from_params(while_loop, params)
    # The trip count follows the carries, and has no cotangent. The stacked results follow the trip count.
    args = [k if k < loop.carries else k - 1 for k, ct in enumerate(cts) if ct is not None]
    bound = max_iterations(list(map(range_of, operands)), loop)
    loop = with_room(loop, operands, bound)
    count = ans[loop.carries]
    capacity = loop.length or (max(int(count), 1) if isinstance(count, np.ndarray) else bound or ROOMS.iterations)
    loop = loop._replace(length=capacity)
    spared, steps = overwritten(operands, loop.carries), counters(loop.body, loop.carries)
    iteration = iteration_of(loop, wanted, args, capacity, spared, steps)
    if (known := known_iterations(operands, loop)) is not None:
        count = known
    init = [zeros_like(ans[k]) if cts[k] is None else cts[k] for k in iteration.live]
    state = [*init, *(zeros_like(operands[i]) for i in iteration.reached if i >= loop.carries)]
    outside = run_region(iteration.outside, loop.constants(operands))
    seeds = [cts[k + 1] for k in iteration.seeded if k >= loop.carries]
    iterations = capacity
    if iteration.residuals and not loop.is_stacking:
        sizes, levels = division(loop, iteration.forward, 1, f"room for {capacity} iterations")
        iterations = sizes.segment(capacity, levels)
    if iterations < capacity:
        result = _segment_by_segment(iteration, loop, operands, state, outside, iterations)
    else:
        saved: Sequence[Any] = ()
        if iteration.residuals:
            saved = loop._replace(body=iteration.forward).applied(operands)
        stacked = [*saved[1 + len(loop.body.outputs) :], *seeds]
        result = _iteration_by_iteration(iteration, count, operands, state, stacked, outside, loop.carries)
    pulled = dict(zip([*iteration.live, *(i for i in iteration.reached if i >= loop.carries)], result))
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

    def step(i: Operand, *args: Any) -> list[Any]:
        after, sums, stacks, fixed, known, starts = split_like(args, groups)
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
    loop: LoopView,
    operands: Sequence[Any],
    state: Sequence[Any],
    outside: Sequence[object],
    iterations: int,
) -> list[Any]:
    n = loop.carries
    count, starts = _in_segments(loop, operands, iterations)
    segment = _bounded(loop._replace(body=iteration.forward, length=iterations), iterations)
    groups = [state, starts, loop.constants(operands), outside]

    def step(i: Any, *args: Any) -> list[Any]:
        after, starts, consts, known = split_like(args, groups)
        carry = [gather(x, i, axes=(0,)) for x in starts]
        saved = segment.applied([*carry, _zero(), *consts])
        return _iteration_by_iteration(iteration, saved[n], [*carry, *consts], after, saved[n + 2 :], known, n)

    return _counted_down(step, count, state, [x for group in groups[1:] for x in group])


def _counted_down(step: Any, count: Any, state: Sequence[Any], consts: list[Array | Carrier]) -> list[Any]:
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
def _in_segments(loop: LoopView, operands: Sequence[object], iterations: int) -> tuple[object, Sequence[object]]:
    """Run a `while_loop` without stacked results in segments of at most `iterations` iterations, with room for its
    capacity. Returns the number of segments, and the carries at the beginning of each."""
    n, bounded = loop.carries, _bounded(loop._replace(length=0), iterations)

    def segment(*args: GraphValue) -> list[Any]:
        return [*bounded.applied([*args[:n], _zero(), *args[n:]])[:n], *args[:n]]

    body = build(segment, loop.body.avals)
    result = loop._replace(body=body, length=-(-loop.length // iterations)).applied(operands)
    return result[n], result[n + 1 :]


def _bounded(loop: LoopView, iterations: int) -> LoopView:
    """The loop with a bounded number of iterations, counted by an additional carry."""
    n, body, cond = loop.carries, loop.body, loop.cond
    assert cond is not None
    avals = [*body.avals[:n], aval_of(np.int64(0)), *body.avals[n:]]

    def condition(*args: GraphValue) -> list[Any]:
        return [logical_and(*run_region(cond, [*args[:n], *args[n + 1 :]]), less(args[n], iterations))]

    def step(*args: GraphValue) -> list[Any]:
        result = run_region(body, [*args[:n], *args[n + 1 :]])
        return [*result[:n], add(args[n], 1), *result[n:]]

    return loop._replace(body=build(step, avals), cond=build(condition, avals), carries=n + 1)


def _zero() -> object:
    return full(shape=(), value=0, dtype="int64")
