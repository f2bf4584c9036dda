"""The derivative of `scan` in reverse mode: a loop that runs from the end, over what the turns have kept.

Where that would be more than `settings.loop_memory`, the loop is divided in segments
(`tracegrad.control.segmented_checkpointing`): the carries at the beginning of each are kept, and the derivative is a
loop over segments, from the last one, whose body runs the turns of a segment again and then their derivative. It adds
up in the same order as that of the whole loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracegrad.avals import aval_of
from tracegrad.control.loop_vjp import Turn, accumulated, next_cotangents, overwritten, turn_of
from tracegrad.control.region_ops import row_of, run_region
from tracegrad.control.scan_op import scan
from tracegrad.control.segmented_checkpointing import Sizes, division, in_blocks, joined, segmented
from tracegrad.control.trip_count import with_room
from tracegrad.ir import Graph, build
from tracegrad.ops.shape.linear import reshape, zeros_like

__all__: list[str] = []


@scan.def_vjp_all
def _(wanted: Sequence[int], cts: tuple[Any, ...], ans: Any, *operands: Any, body: Graph, carries: int, xs: int,
      length: int, reverse: bool) -> list[Any]:  # fmt: skip
    body = with_room(body, operands, carries, length)
    given = [k for k, ct in enumerate(cts) if ct is not None]
    turn = turn_of(body, wanted, given, carries, xs, length, overwritten(operands, carries + xs))
    sizes, levels = division(body, turn.forward, carries, length) if turn.residuals else (Sizes(0, 0), 0)
    loop = _Backwards(turn, body, carries, xs, reverse, sizes)
    init = [zeros_like(ans[k]) if cts[k] is None else cts[k] for k in turn.live]
    totals = [zeros_like(operands[i]) for i in loop.consts]
    seeds = [cts[k] for k in turn.seeded if k >= carries]
    outside = run_region(turn.outside, operands[carries + xs :])
    found = loop.run(length, operands, [*init, *totals], seeds, outside, levels)
    pulled = dict(zip([*turn.live, *loop.consts, *loop.rows], found))
    return [pulled.get(i) for i in wanted]


class _Backwards:
    """What loops that run backwards have in common: those of all turns, and those of a segment."""

    def __init__(self, turn: Turn, body: Graph, carries: int, xs: int, reverse: bool, sizes: Sizes):
        self.turn, self.body, self.carries, self.xs, self.reverse, self.sizes = turn, body, carries, xs, reverse, sizes
        self.params: dict[str, Any] = {"carries": carries, "xs": xs, "reverse": reverse}
        # The constants and the arrays that get cotangents.
        self.consts = [i for i in turn.found if i >= carries + xs]
        self.rows = [i for i in turn.found if carries <= i < carries + xs]

    def run(self, length: int, operands: Sequence[Any], state: Sequence[Any], seeds: Sequence[Any],
            outside: Sequence[Any], levels: int) -> list[Any]:  # fmt: skip
        """The `state` before the turns, given that after them, and the cotangents of the arrays. The state is the
        cotangents of live carries, and the totals of constants; `seeds` those of stacked results."""
        turns = self.sizes.segment(length, levels)
        if turns < length:
            return self._segment_by_segment(length, turns, operands, state, seeds, outside, levels - 1)
        kept: Sequence[Any] = ()
        if self.turn.residuals:
            kept = scan(*operands, body=self.turn.forward, length=length, **self.params)
        return self._turn_by_turn(length, operands, state, kept[len(self.body.outputs) :], seeds, outside)

    def _turn_by_turn(self, length: int, operands: Sequence[Any], state: Sequence[Any], stacked: Sequence[Any],
                      seeds: Sequence[Any], outside: Sequence[Any]) -> list[Any]:  # fmt: skip
        turn, first = self.turn, self.carries + self.xs
        needed = turn.needed("input")
        taken, loose = [i for i in needed if i < first], [i for i in needed if i >= first]
        live = len(turn.live)
        groups = [state[:live], state[live:], stacked, [operands[i] for i in taken], seeds,
                  [operands[i] for i in loose], outside]  # fmt: skip

        def step(*args: Any) -> list[Any]:
            supply = iter(args)
            after, sums, residuals, rows, row_seeds, fixed, known = ([next(supply) for _ in group] for group in groups)
            inputs = dict(zip([*taken, *loose], [*rows, *fixed]))
            found = {"residual": dict(enumerate(residuals)), "input": inputs, "outside": dict(enumerate(known))}
            pulled = turn.cotangents(lambda sort, k: found[sort][k], [*after, *row_seeds])
            before = next_cotangents(turn, pulled, after)
            return [*before, *accumulated(pulled, self.consts, sums), *(pulled[i] for i in self.rows)]

        rows, consts = ([x for group in several for x in group] for several in (groups[2:5], groups[5:]))
        return self._backwards(step, length, state, rows, consts)

    def _segment_by_segment(self, length: int, turns: int, operands: Sequence[Any], state: Sequence[Any],
                            seeds: Sequence[Any], outside: Sequence[Any], levels: int) -> list[Any]:  # fmt: skip
        carries, xs = self.carries, self.xs
        ends, starts = segmented(operands, turns, body=self.body, length=length, **self.params)
        arrays = [in_blocks(x, turns, self.reverse) for x in (*operands[carries : carries + xs], *seeds)]
        consts = [*operands[carries + xs :], *outside]
        rest, n, tails = length % turns, len(state), list[Any]()

        def part(length: int, carry: Sequence[Any], state: Sequence[Any], rows: Sequence[Any],
                 consts: Sequence[Any]) -> list[Any]:  # fmt: skip
            loose = len(operands) - carries - xs
            given = [*carry, *rows[:xs], *consts[:loose]]
            return self.run(length, given, state, rows[xs:], consts[loose:], levels)

        if rest:
            found = part(rest, ends[:carries], state, [tail for _, tail in arrays], consts)
            state, tails = found[:n], found[n:]

        def step(*args: Any) -> list[Any]:
            supply = iter(args)
            groups = (state, starts, arrays, consts)
            after, carry, rows, fixed = ([next(supply) for _ in group] for group in groups)
            return part(turns, carry, after, rows, fixed)

        found = self._backwards(step, length // turns, state, [*starts, *(whole for whole, _ in arrays)], consts)
        blocks = [reshape(x, shape=(length - rest, *x.shape[2:])) for x in found[n:]]
        if rest:
            blocks = [joined(x, tail, self.reverse) for x, tail in zip(blocks, tails)]
        return [*found[:n], *blocks]

    def _backwards(self, step: Any, length: int, state: Sequence[Any], rows: Sequence[Any],
                   consts: Sequence[Any]) -> list[Any]:  # fmt: skip
        avals = [*map(aval_of, state), *map(row_of, rows), *map(aval_of, consts)]
        return list(
            scan(*state, *rows, *consts, body=build(step, avals), carries=len(state), xs=len(rows), length=length,
                 reverse=not self.reverse)
        )  # fmt: skip
