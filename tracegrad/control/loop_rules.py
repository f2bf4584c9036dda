"""Forward mode and batching of loops: a loop over values and tangents, and a loop over batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracegrad.avals import aval_of
from tracegrad.control.region_ops import as_batches, run_region, split_like
from tracegrad.ir import Graph, GraphValue, build
from tracegrad.ir.batch import batched
from tracegrad.ir.loop_view import LoopView
from tracegrad.ops.elementwise.table import add, where
from tracegrad.ops.reduce.reductions import reduce_any
from tracegrad.ops.shape.batching import to_axis
from tracegrad.ops.shape.linear import cast, full, reshape, zeros_like
from tracegrad.transforms.jvp_graph import pushed


# -- forward mode ------------------------------------------------------------------------------------------------------
def pushed_loop(loop: LoopView, tangents: Sequence[object], operands: Sequence[object]) -> dict[int, object]:
    """The tangents of the results of a loop, by the numbers of the results. The tangents of each sort of operand follow
    it in the loop that computes them; the same holds for the carries and results of an iteration."""
    carries, n_outputs = loop.carries, len(loop.body.outputs)
    moving, both, reached = _pushed_iteration(loop, [i for i, t in enumerate(tangents) if t is not None])
    groups = [part(range(len(operands))) for part in (loop.initial, loop.scanned, loop.constants)]
    moved = [[i for i in group if i in moving] for group in groups]
    results = [k for k in reached if k >= carries]
    order = [each for pair in zip(groups, moved) for each in pair]

    def split(args: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        parts = split_like(args, order)
        return [x for part in parts[::2] for x in part], [t for part in parts[1::2] for t in part]

    def step(*args: GraphValue) -> list[Any]:
        values, inputs = split(args)
        out = run_region(both, [*values, *inputs])
        ts = dict(zip(reached, out[n_outputs:]))
        carried = [ts[k] if k in ts else zeros_like(out[k]) for k in moved[0]]
        return [*out[:carries], *carried, *out[carries:n_outputs], *(ts[k] for k in results)]

    def condition(*args: GraphValue) -> list[Any]:
        assert loop.cond is not None
        return run_region(loop.cond, split(args)[0])

    flat: list[Any] = []
    for group, its in zip(groups, moved):
        flat += [operands[i] for i in group]
        flat += [zeros_like(operands[i]) if tangents[i] is None else tangents[i] for i in its]
    larger = loop._replace(carries=carries + len(moved[0]), xs=loop.xs + len(moved[1]))
    avals = larger.input_avals(list(map(aval_of, flat)))
    cond = None if loop.cond is None else build(condition, avals)
    out = larger._replace(body=build(step, avals), cond=cond).applied(flat)
    stacked = loop.results_of([*range(carries), *results])[loop.first_stacked :]
    rows = out[larger.first_stacked + n_outputs - carries :]
    return dict(zip(moved[0], out[carries : larger.carries])) | dict(zip(stacked, rows))


def _pushed_iteration(loop: LoopView, tangent_inputs: Sequence[int]) -> tuple[list[int], Graph, list[int]]:
    """Forward mode of the body: the inputs with tangents in some iteration, the body, and the results with tangents.
    The body takes its inputs and their tangents, and returns its results and their tangents."""
    moving = set(tangent_inputs)
    while True:
        both, result = pushed(loop.body, sorted(moving))
        new = moving.union(k for k in result if k < loop.carries)
        if new == moving:
            return sorted(moving), both, result
        moving = new


# -- batching ----------------------------------------------------------------------------------------------------------
def batched_loop(loop: LoopView, size: int, flags: Sequence[bool], operands: Sequence[Any]) -> tuple[object, ...]:
    """The results of a loop for a batch of the flagged operands."""
    iteration, inside, result = _batched_iteration(loop, size, flags)
    cond = None
    if loop.cond is not None:
        cond, (is_cond_batched,) = batched(loop.cond, size, inside)
        if is_cond_batched:
            return _each_to_its_end(loop, size, flags, operands)
    args = as_batches(size, operands, flags, inside)
    for i in range(loop.carries, loop.varying):
        args[i] = to_axis(args[i], 0, 1) if inside[i] else args[i]
    ans = loop._replace(body=iteration, cond=cond).applied(args)
    n = loop.first_stacked
    have = [*result[: loop.carries], *(False for _ in range(loop.carries, n)), *result[loop.carries :]]
    stacked = [to_axis(x, 1, 0) if is_batch else x for x, is_batch in zip(ans[n:], have[n:])]
    return tuple(as_batches(size, [*ans[:n], *stacked], have, [True] * len(have)))


def _batched_iteration(loop: LoopView, size: int, flags: Sequence[bool]) -> tuple[Graph, list[bool], list[bool]]:
    """The body for a batch of the flagged inputs, and which of its inputs and outputs are batched. A carry is batched
    if any iteration batches it."""
    carries = loop.carries
    flags, rest = list(flags), [False] * (len(loop.body.outputs) - carries)
    while True:
        graph, result = batched(loop.body, size, flags, [*flags[:carries], *rest])
        if result[:carries] == flags[:carries]:
            return graph, flags, result
        flags[:carries] = result[:carries]


def _each_to_its_end(loop: LoopView, size: int, flags: Sequence[bool], operands: Sequence[Any]) -> tuple[Any, ...]:
    """A batched loop with one condition per example. It runs while any condition holds, and does not change finished
    examples."""
    assert loop.cond is not None
    carries = loop.carries
    inside = [*(True for _ in range(carries)), *flags[carries:]]
    batched_cond, _ = batched(loop.cond, size, inside, [True])
    iteration, _ = batched(loop.body, size, inside, [True] * len(loop.body.outputs))
    inputs = as_batches(size, operands, flags, inside)
    inputs.insert(carries, full(shape=(size,), value=0, dtype="int64"))
    avals = [aval_of(x) for x in inputs]

    def condition(*args: GraphValue) -> list[Any]:
        return [reduce_any(run_region(batched_cond, [*args[:carries], *args[carries + 1 :]])[0], axes=(0,))]

    def step(*args: GraphValue) -> list[Any]:
        region_args = [*args[:carries], *args[carries + 1 :]]
        moving = run_region(batched_cond, region_args)[0]
        after = run_region(iteration, region_args)
        before = [*args[:carries], *(0.0 if x.aval.is_inexact else 0 for x in iteration.outputs[carries:])]
        chosen = [where(reshape(moving, shape=(size, *(1 for _ in x.shape[1:]))), x, y) for x, y in zip(after, before)]
        return [*chosen[:carries], add(args[carries], cast(moving, dtype="int64")), *chosen[carries:]]

    cond = build(condition, avals)
    ans = loop._replace(body=build(step, avals), cond=cond, carries=carries + 1).applied(inputs)
    return (*ans[: carries + 1], *(to_axis(x, 1, 0) for x in ans[carries + 2 :]))
