"""The op `while_loop`: run a region while another region returns true.

The operands are the initial carries and constants; both regions take the carries and the constants. The body returns
new carries and, if `capacity` sets the room for them, results, which are stacked: the residuals of each
iteration. The number of iterations is also a result.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad.avals import Aval, aval_of
from tracegrad.control.loop_jvp import pushed_iteration
from tracegrad.control.region_ops import as_batches, iteration_for_batch, require, run_region
from tracegrad.errors import CapacityError
from tracegrad.ir import Graph, build, replayer
from tracegrad.ir.batch import batched
from tracegrad.ops.core.forms import While
from tracegrad.ops.core.op import AS_WRITTEN, ResultAvals, multi_result
from tracegrad.ops.core.samples import uniform
from tracegrad.ops.elementwise.table import add, less, multiply, sin, where
from tracegrad.ops.reduce.reductions import reduce_any
from tracegrad.ops.shape.batching import to_axis
from tracegrad.ops.shape.linear import cast, full, reduce_sum, reshape, zeros_like
from tracegrad.typing import NDArray

__all__ = ["ROOMS", "room_for", "while_loop"]

_BOOL, _INT64 = Aval((), np.dtype(bool)), Aval((), np.dtype(np.int64))


@multi_result(While(), on_complex=AS_WRITTEN)
def while_loop(*operands: NDArray, cond: Graph, body: Graph, carries: int, capacity: int) -> tuple[NDArray, ...]:
    """The final carries, the trip count and the stacked results of `body`, run while `cond` holds.

    The results have room for `capacity` iterations; more iterations raise CapacityError. In compiled code, rows that no
    iteration writes are undefined, except the last one, which a batch reads for finished examples. If a loop has no
    results, `capacity` may be a bound of its trip count, or 0.
    """
    carry, consts = list(operands[:carries]), operands[carries:]
    stacked = [np.zeros((capacity, *y.aval.shape), y.aval.dtype) for y in body.outputs[carries:]]
    count, run_cond, iteration = 0, replayer(cond), replayer(body)
    while run_cond([*carry, *consts])[0]:
        if stacked and count == capacity:
            raise CapacityError(f"while_loop: more than {capacity} iterations")
        outputs = iteration([*carry, *consts])
        carry = outputs[:carries]
        for buffer, y in zip(stacked, outputs[carries:]):
            buffer[count] = y
        count += 1
    return (*carry, np.array(count), *stacked)


@while_loop.def_aval
def _(*operands: Aval, cond: Graph, body: Graph, carries: int, capacity: int) -> ResultAvals:
    require("while_loop: its condition takes", cond.avals, operands)
    require("while_loop: its condition gives", cond.results, [_BOOL])
    require("while_loop: its body takes", body.avals, operands)
    require("while_loop: its body carries", body.results[:carries], operands[:carries])
    results = [Aval((capacity, *y.shape), y.dtype) for y in body.results[carries:]]
    return ResultAvals((*operands[:carries], _INT64, *results))


class _Room(threading.local):
    """The number of iterations for which derivatives of this thread save residuals."""

    iterations = 64


ROOMS = _Room()


class room_for:
    """Set the number of iterations for which derivatives of loops save residuals (context manager)."""

    def __init__(self, iterations: int):
        self.iterations = iterations

    def __enter__(self) -> None:
        self.before, ROOMS.iterations = ROOMS.iterations, self.iterations

    def __exit__(self, *_: object) -> None:
        ROOMS.iterations = self.before


@while_loop.def_jvp
def _(
    tangents: Sequence[Any], ans: Any, *operands: Any, cond: Graph, body: Graph, carries: int, capacity: int
) -> tuple[Any, ...]:
    moving, both, result = pushed_iteration(body, [i for i, t in enumerate(tangents) if t is not None], carries)
    carried = [i for i in moving if i < carries]
    results = [k for k in result if k >= carries]
    n, loose = carries + len(carried), len(operands) - carries

    # Tangents follow the carries, the constants, and the results of an iteration.
    def split(args: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        values = [*args[:carries], *args[n : n + loose]]
        return values, [*args[carries:n], *args[n + loose :]]

    def step(*args: Any) -> list[Any]:
        values, inputs = split(args)
        out = run_region(both, [*values, *inputs])
        ts = dict(zip(result, out[len(body.outputs) :]))
        moved = [ts[k] if k in ts else zeros_like(out[k]) for k in carried]
        return [*out[:carries], *moved, *out[carries : len(body.outputs)], *(ts[k] for k in results)]

    moved = [zeros_like(operands[i]) if tangents[i] is None else tangents[i] for i in moving]
    flat = [*operands[:carries], *moved[: len(carried)], *operands[carries:], *moved[len(carried) :]]
    avals = [aval_of(x) for x in flat]
    out = while_loop(
        *flat,
        cond=build(lambda *args: run_region(cond, split(args)[0]), avals),
        body=build(step, avals),
        carries=n,
        capacity=capacity,
    )
    stacked = dict(zip([k + 1 for k in results], out[n + 1 + len(body.outputs) - carries :]))
    pushed = dict(zip(carried, out[carries:n])) | stacked
    return tuple([pushed.get(k) for k in range(len(ans))])


@while_loop.def_batch
def _(
    size: int, flags: tuple[bool, ...], *operands: Any, cond: Graph, body: Graph, carries: int, capacity: int
) -> tuple[Any, ...]:
    iteration, inside, result = iteration_for_batch(body, size, flags, carries)
    batched_cond, (is_cond_batched,) = batched(cond, size, inside)
    if is_cond_batched:
        return _each_to_its_end(size, flags, operands, cond, body, carries, capacity)
    args = as_batches(size, operands, flags, inside)
    ans = while_loop(*args, cond=batched_cond, body=iteration, carries=carries, capacity=capacity)
    stacked = [to_axis(x, 1, 0) if is_batch else x for x, is_batch in zip(ans[carries + 1 :], result[carries:])]
    have = [*result[:carries], False, *result[carries:]]
    return tuple(as_batches(size, [*ans[: carries + 1], *stacked], have, [True] * len(have)))


def _each_to_its_end(
    size: int, flags: Sequence[bool], operands: Sequence[Any], cond: Graph, body: Graph, carries: int, capacity: int
) -> tuple[Any, ...]:
    """A batched loop with one condition per example. It runs while any condition holds, and does not change finished
    examples."""
    inside = [*(True for _ in range(carries)), *flags[carries:]]
    batched_cond, _ = batched(cond, size, inside, [True])
    iteration, _ = batched(body, size, inside, [True] * len(body.outputs))
    inputs = as_batches(size, operands, flags, inside)
    inputs.insert(carries, full(shape=(size,), value=0, dtype="int64"))
    avals = [aval_of(x) for x in inputs]

    def condition(*args: Any) -> list[Any]:
        return [reduce_any(run_region(batched_cond, [*args[:carries], *args[carries + 1 :]])[0], axes=(0,))]

    def step(*args: Any) -> list[Any]:
        region_args = [*args[:carries], *args[carries + 1 :]]
        moving = run_region(batched_cond, region_args)[0]
        after = run_region(iteration, region_args)
        before = [*args[:carries], *(0.0 if x.aval.is_inexact else 0 for x in iteration.outputs[carries:])]
        chosen = [where(reshape(moving, shape=(size, *(1 for _ in x.shape[1:]))), x, y) for x, y in zip(after, before)]
        return [*chosen[:carries], add(args[carries], cast(moving, dtype="int64")), *chosen[carries:]]

    ans = while_loop(
        *inputs, cond=build(condition, avals), body=build(step, avals), carries=carries + 1, capacity=capacity
    )
    return (*ans[: carries + 1], *(to_axis(x, 1, 0) for x in ans[carries + 2 :]))


@while_loop.def_samples
def _() -> Any:
    for dtype in ("float64", "float32"):
        avals = [Aval((3,), np.dtype(dtype)), _INT64, Aval((3,), np.dtype(dtype))]
        cond = build(lambda x, n, w: [less(n, 5)], avals)
        body = build(lambda x, n, w: [sin(add(multiply(x, w), 0.5)), add(n, 1)], avals)
        operands = (uniform((3,), dtype=dtype), np.array(0), uniform((3,), seed=1, dtype=dtype))
        yield operands, {"cond": cond, "body": body, "carries": 2, "capacity": 0}
    avals = [Aval((10,), np.dtype("float64"))] * 2
    cond = build(lambda x, w: [less(reduce_sum(x, axes=(0,)), 40.0)], avals)
    body = build(lambda x, w: [add(multiply(x, 1.5), w), x], avals)
    yield (uniform((10,), 0.5, 1), uniform((10,), 0.5, 1)), {"cond": cond, "body": body, "carries": 1, "capacity": 4}
