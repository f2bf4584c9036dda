"""The derivative of `while_loop` in reverse mode: a loop that counts down, over what the turns have kept.

There is room for what a number of turns keeps. Where that would be more than `settings.loop_memory`, the loop is run in
segments: the carries at the beginning of each are kept, and a loop over segments, from the last one, runs the turns of
a segment again and then their derivative (see `tracegrad.control.segmented_checkpointing`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad.avals import aval_of
from tracegrad.control.loop_vjp import Turn, accumulated, next_cotangents, overwritten, turn_of
from tracegrad.control.region_ops import run_region
from tracegrad.control.segmented_checkpointing import division
from tracegrad.control.trip_count import counters, in_turn, known_turns, most_turns, range_of, with_room
from tracegrad.control.while_op import ROOMS, while_loop
from tracegrad.ir import Graph, build
from tracegrad.ops.elementwise.table import add, greater_equal, less, logical_and, subtract
from tracegrad.ops.indexing.gather_scatter import gather
from tracegrad.ops.shape.linear import full, zeros_like

__all__: list[str] = []


@while_loop.def_vjp_all
def _(wanted: Sequence[int], cts: tuple[Any, ...], ans: Any, *operands: Any, cond: Graph, body: Graph, carries: int,
      capacity: int) -> list[Any]:  # fmt: skip
    # What comes behind the carries: the count, which has no cotangent, and the stacked results.
    given = [k if k < carries else k - 1 for k, ct in enumerate(cts) if ct is not None]
    most = most_turns(list(map(range_of, operands)), cond, body, carries)
    body = with_room(body, operands, carries, most)
    count = ans[carries]
    capacity = capacity or (max(int(count), 1) if isinstance(count, np.ndarray) else most or ROOMS.turns)
    spared = overwritten(operands, carries)
    turn = turn_of(body, wanted, given, carries, 0, capacity, spared, counters(body, carries))
    if (known := known_turns(operands, cond, body, carries)) is not None:
        count = known
    init = [zeros_like(ans[k]) if cts[k] is None else cts[k] for k in turn.live]
    state = [*init, *(zeros_like(operands[i]) for i in turn.found if i >= carries)]
    outside = run_region(turn.outside, operands[carries:])
    seeds = [cts[k + 1] for k in turn.seeded if k >= carries]
    turns = capacity
    if turn.residuals and len(body.outputs) == carries:
        sizes, levels = division(body, turn.forward, carries, capacity, 1, f"room for {capacity} turns")
        turns = sizes.segment(capacity, levels)
    if turns < capacity:
        found = _segment_by_segment(turn, operands, state, outside, turns, capacity, cond, body)
    else:
        kept: Any = ()
        if turn.residuals:
            kept = while_loop(*operands, cond=cond, body=turn.forward, carries=carries, capacity=capacity)
        stacked = [*kept[1 + len(body.outputs) :], *seeds]
        found = _turn_by_turn(turn, count, operands, state, stacked, outside, carries)
    pulled = dict(zip([*turn.live, *(i for i in turn.found if i >= carries)], found))
    return [pulled.get(i) for i in wanted]


def _turn_by_turn(turn: Turn, count: Any, operands: Sequence[Any], state: Sequence[Any], stacked: Sequence[Any],
                  outside: Sequence[Any], carries: int) -> list[Any]:  # fmt: skip
    """The `state` before the turns, given that after them: the cotangents of live carries, and the totals of
    constants."""
    live, loose, counting = len(turn.live), turn.needed("input"), turn.needed("counter")
    consts = [i for i in turn.found if i >= carries]
    groups = [state[:live], state[live:], stacked, [operands[i] for i in loose], outside,
              [operands[i] for i in counting]]  # fmt: skip

    def step(i: Any, *args: Any) -> list[Any]:
        supply = iter(args)
        after, sums, stacks, fixed, known, starts = ([next(supply) for _ in group] for group in groups)
        rows = [gather(x, i, axes=(0,)) for x in stacks]
        found = {"residual": dict(enumerate(rows)), "input": dict(zip(loose, fixed)), "outside": dict(enumerate(known)),
                 "counter": {k: in_turn(start, i, turn.steps[k]) for k, start in zip(counting, starts)}}  # fmt: skip
        pulled = turn.cotangents(lambda sort, k: found[sort][k], [*after, *rows[turn.residuals :]])
        return [*next_cotangents(turn, pulled, after), *accumulated(pulled, consts, sums)]

    return _counted_down(step, count, state, [x for group in groups[2:] for x in group])


def _segment_by_segment(turn: Turn, operands: Sequence[Any], state: Sequence[Any], outside: Sequence[Any], turns: int,
                        capacity: int, cond: Graph, body: Graph) -> list[Any]:  # fmt: skip
    carries = len(body.outputs)
    count, starts = _in_segments(operands, turns, -(-capacity // turns), cond, body)
    goes_on, forward = _bounded(cond, turn.forward, carries, turns)
    groups = [state, starts, operands[carries:], outside]

    def step(i: Any, *args: Any) -> list[Any]:
        supply = iter(args)
        after, starts, consts, known = ([next(supply) for _ in group] for group in groups)
        carry = [gather(x, i, axes=(0,)) for x in starts]
        kept = while_loop(*carry, _zero(), *consts, cond=goes_on, body=forward, carries=carries + 1, capacity=turns)
        return _turn_by_turn(turn, kept[carries], [*carry, *consts], after, kept[carries + 2 :], known, carries)

    return _counted_down(step, count, state, [x for group in groups[1:] for x in group])


def _counted_down(step: Any, count: Any, state: Sequence[Any], consts: Sequence[Any]) -> list[Any]:
    """The last `state` of `step(i, *state, *consts)` for i from `count` - 1 down to 0."""
    flat = [subtract(count, 1), *state, *consts]
    avals = [aval_of(x) for x in flat]
    found = while_loop(
        *flat, cond=build(lambda i, *_: [greater_equal(i, 0)], avals),
        body=build(lambda i, *args: [subtract(i, 1), *step(i, *args)], avals), carries=1 + len(state), capacity=0,
    )  # fmt: skip
    return list(found[1:])


# -- the loop in segments ----------------------------------------------------------------------------------------------
def _in_segments(
    operands: Sequence[Any], turns: int, capacity: int, cond: Graph, body: Graph
) -> tuple[Any, Sequence[Any]]:
    """A `while_loop` without stacked results, in segments of so many turns at most, with room for `capacity` segments:
    how many there are, and the carries at the beginning of each."""
    n = len(body.outputs)
    goes_on, counting = _bounded(cond, body, n, turns)

    def segment(*args: Any) -> list[Any]:
        found = while_loop(*args[:n], _zero(), *args[n:], cond=goes_on, body=counting, carries=n + 1, capacity=0)
        return [*found[:n], *args[:n]]

    body = build(segment, body.avals)
    found = while_loop(*operands, cond=cond, body=body, carries=n, capacity=capacity)
    return found[n], found[n + 1 :]


def _bounded(cond: Graph, body: Graph, carries: int, turns: int) -> tuple[Graph, Graph]:
    """The condition and the body of a loop that counts its turns, behind its carries, and makes so many at most."""
    n = carries
    avals = [*body.avals[:n], aval_of(np.int64(0)), *body.avals[n:]]

    def goes_on(*args: Any) -> list[Any]:
        return [logical_and(*run_region(cond, [*args[:n], *args[n + 1 :]]), less(args[n], turns))]

    def step(*args: Any) -> list[Any]:
        found = run_region(body, [*args[:n], *args[n + 1 :]])
        return [*found[:n], add(args[n], 1), *found[n:]]

    return build(goes_on, avals), build(step, avals)


def _zero() -> Any:
    return full(shape=(), value=0, dtype="int64")
