"""Reverse-mode derivative of `scan`: a loop that runs backwards over the residuals of the iterations.

If the residuals would exceed `settings.loop_memory`, the loop is divided into segments
(`tracegrad.control.segmented_checkpointing`). Only the carries at the beginning of each segment are saved. The
derivative is a loop over segments, from the last one, whose body reruns the iterations of a segment and then computes
their derivative. It adds in the same order as the derivative of the whole loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracegrad.avals import aval_of
from tracegrad.control.capacity import with_room
from tracegrad.control.loop_vjp import IterationVjp, accumulated, iteration_of, next_cotangents, overwritten
from tracegrad.control.region_ops import run_region, split_like
from tracegrad.control.scan_op import scan
from tracegrad.control.segmented_checkpointing import ResidualSizes, division, in_blocks, joined, segmented
from tracegrad.ir import build
from tracegrad.ir.loop_view import LoopView
from tracegrad.ops.shape.linear import reshape, zeros_like


@scan.def_vjp_all
def _(wanted: Sequence[int], cts: tuple[Any, ...], ans: Any, *operands: Any, **params: Any) -> list[Any]:
    loop = LoopView.from_params(scan, params)
    loop = with_room(loop, operands, loop.length)
    args = [k for k, ct in enumerate(cts) if ct is not None]
    iteration = iteration_of(loop, wanted, args, loop.length, overwritten(operands, loop.varying))
    sizes, levels = ResidualSizes(0, 0), 0
    if iteration.residuals:
        sizes, levels = division(loop, iteration.forward)
    backwards = _Backwards(iteration, loop, sizes)
    init = [zeros_like(ans[k]) if cts[k] is None else cts[k] for k in iteration.live]
    totals = [zeros_like(operands[i]) for i in backwards.consts]
    seeds = [cts[k] for k in iteration.seeded if k >= loop.carries]
    outside = run_region(iteration.outside, loop.constants(operands))
    result = backwards.run(loop.length, operands, [*init, *totals], seeds, outside, levels)
    pulled = dict(zip([*iteration.live, *backwards.consts, *backwards.active_xs], result))
    return [pulled.get(i) for i in wanted]


class _Backwards:
    """Common part of loops that run backwards: over all iterations, or over one segment."""

    def __init__(self, iteration: IterationVjp, loop: LoopView, sizes: ResidualSizes):
        self.iteration, self.loop, self.sizes = iteration, loop, sizes
        # The constants and the arrays that get cotangents.
        self.consts = [i for i in iteration.reached if i >= loop.varying]
        self.active_xs = [i for i in iteration.reached if loop.carries <= i < loop.varying]

    def run(
        self,
        length: int,
        operands: Sequence[Any],
        state: Sequence[Any],
        seeds: Sequence[Any],
        outside: Sequence[Any],
        levels: int,
    ) -> list[Any]:
        """The state before the iterations, computed from the `state` after them, and the cotangents of the arrays. A
        state is the cotangents of live carries and of constants. `seeds` are the cotangents of stacked results."""
        iterations = self.sizes.segment(length, levels)
        if iterations < length:
            return self._segment_by_segment(length, iterations, operands, state, seeds, outside, levels - 1)
        saved: Sequence[Any] = ()
        if self.iteration.residuals:
            saved = self.loop._replace(body=self.iteration.forward, length=length).applied(operands)
        stacked = saved[len(self.loop.body.outputs) :]
        return self._iteration_by_iteration(length, operands, state, stacked, seeds, outside)

    def _iteration_by_iteration(
        self,
        length: int,
        operands: Sequence[Any],
        state: Sequence[Any],
        stacked: Sequence[Any],
        seeds: Sequence[Any],
        outside: Sequence[Any],
    ) -> list[Any]:
        iteration, first = self.iteration, self.loop.varying
        needed = iteration.needed("input")
        row_inputs, loose = [i for i in needed if i < first], [i for i in needed if i >= first]
        live = len(iteration.live)
        groups = [
            state[:live],
            state[live:],
            stacked,
            [operands[i] for i in row_inputs],
            seeds,
            [operands[i] for i in loose],
            outside,
        ]

        def step(*args: Any) -> list[Any]:
            after, sums, residuals, rows, row_seeds, fixed, known = split_like(args, groups)
            inputs = dict(zip([*row_inputs, *loose], [*rows, *fixed]))
            table = {"residual": dict(enumerate(residuals)), "input": inputs, "outside": dict(enumerate(known))}
            pulled = iteration.cotangents(lambda sort, k: table[sort][k], [*after, *row_seeds])
            before = next_cotangents(iteration, pulled, after)
            return [*before, *accumulated(pulled, self.consts, sums), *(pulled[i] for i in self.active_xs)]

        xs, consts = ([x for group in some_groups for x in group] for some_groups in (groups[2:5], groups[5:]))
        return self._backwards(step, length, state, xs, consts)

    def _segment_by_segment(
        self,
        length: int,
        iterations: int,
        operands: Sequence[Any],
        state: Sequence[Any],
        seeds: Sequence[Any],
        outside: Sequence[Any],
        levels: int,
    ) -> list[Any]:
        loop, reverse = self.loop._replace(length=length), self.loop.reverse
        ends, starts = segmented(loop, operands, iterations)
        arrays = [in_blocks(x, iterations, reverse) for x in (*loop.scanned(operands), *seeds)]
        consts = [*loop.constants(operands), *outside]
        rest, n, tails = length % iterations, len(state), list[Any]()

        def run_segment(
            length: int, carry: Sequence[Any], state: Sequence[Any], rows: Sequence[Any], consts: Sequence[Any]
        ) -> list[Any]:
            loose = len(operands) - loop.varying
            inputs = [*carry, *rows[: loop.xs], *consts[:loose]]
            return self.run(length, inputs, state, rows[loop.xs :], consts[loose:], levels)

        if rest:
            result = run_segment(rest, loop.initial(ends), state, [tail for _, tail in arrays], consts)
            state, tails = result[:n], result[n:]

        def step(*args: Any) -> list[Any]:
            after, carry, rows, fixed = split_like(args, (state, starts, arrays, consts))
            return run_segment(iterations, carry, after, rows, fixed)

        result = self._backwards(step, length // iterations, state, [*starts, *(whole for whole, _ in arrays)], consts)
        blocks = [reshape(x, shape=(length - rest, *x.shape[2:])) for x in result[n:]]
        if rest:
            blocks = [joined(x, tail, reverse) for x, tail in zip(blocks, tails)]
        return [*result[:n], *blocks]

    def _backwards(
        self, step: Any, length: int, state: Sequence[Any], xs: Sequence[Any], consts: Sequence[Any]
    ) -> list[Any]:
        loop = LoopView(scan, self.loop.body, len(state), len(xs), length, not self.loop.reverse)
        operands = [*state, *xs, *consts]
        body = build(step, loop.input_avals(list(map(aval_of, operands))))
        return list(loop._replace(body=body).applied(operands))
