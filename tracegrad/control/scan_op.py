"""The op `scan`: run a region a known number of times.

The operands are the initial carries, the arrays to iterate over by rows, and constants. In each iteration the body
takes the carries, one row of each array and the constants. It returns new carries and results, which are stacked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad.avals import Aval, aval_of
from tracegrad.control.loop_jvp import pushed_iteration
from tracegrad.control.region_ops import as_batches, iteration_for_batch, require, row_aval, row_avals, run_region
from tracegrad.ir import Graph, build, replayer
from tracegrad.ops.core.forms import Repeat
from tracegrad.ops.core.op import AS_WRITTEN, ResultAvals, multi_result
from tracegrad.ops.core.samples import uniform
from tracegrad.ops.elementwise.table import add, multiply, sin
from tracegrad.ops.shape.batching import to_axis
from tracegrad.ops.shape.linear import zeros_like
from tracegrad.typing import NDArray

__all__ = ["scan"]


@multi_result(Repeat(), on_complex=AS_WRITTEN)
def scan(*operands: NDArray, body: Graph, carries: int, xs: int, length: int, reverse: bool) -> tuple[NDArray, ...]:
    """The final carries and the stacked results of `body`, run `length` times, from the end if `reverse`."""
    carry, seqs, consts = list(operands[:carries]), operands[carries : carries + xs], operands[carries + xs :]
    stacked = [np.empty((length, *y.aval.shape), y.aval.dtype) for y in body.outputs[carries:]]
    iteration = replayer(body)
    for i in reversed(range(length)) if reverse else range(length):
        outputs = iteration([*carry, *(np.asarray(x[i]) for x in seqs), *consts])
        carry = outputs[:carries]
        for buffer, y in zip(stacked, outputs[carries:]):
            buffer[i] = y
    return (*carry, *stacked)


@scan.def_aval
def _(*operands: Aval, body: Graph, carries: int, xs: int, length: int, reverse: bool) -> ResultAvals:
    xs_avals = row_avals("scan", operands[carries : carries + xs], length)
    require("scan: its body takes", body.avals, (*operands[:carries], *xs_avals, *operands[carries + xs :]))
    require("scan: its body carries", body.results[:carries], operands[:carries])
    return ResultAvals((*operands[:carries], *(Aval((length, *y.shape), y.dtype) for y in body.results[carries:])))


@scan.def_jvp
def _(
    tangents: Sequence[Any], ans: Any, *operands: Any, body: Graph, carries: int, xs: int, length: int, reverse: bool
) -> tuple[Any, ...]:
    moving, both, result = pushed_iteration(body, [i for i, t in enumerate(tangents) if t is not None], carries)
    groups = [range(carries), range(carries, carries + xs), range(carries + xs, len(operands))]
    moved = [[i for i in group if i in moving] for group in groups]
    results = [k for k in result if k >= carries]

    # The tangents of each sort of operand follow it. The same holds for the carries and results of an iteration.
    def step(*args: Any) -> list[Any]:
        supply = iter(args)
        values_and_ts = [
            ([next(supply) for _ in group], [next(supply) for _ in its]) for group, its in zip(groups, moved)
        ]
        inputs = [x for values, _ in values_and_ts for x in values] + [t for _, ts in values_and_ts for t in ts]
        out = run_region(both, inputs)
        ts = dict(zip(result, out[len(body.outputs) :]))
        carried = [ts[k] if k in ts else zeros_like(out[k]) for k in moved[0]]
        return [*out[:carries], *carried, *out[carries : len(body.outputs)], *(ts[k] for k in results)]

    flat = []
    for group, its in zip(groups, moved):
        flat += [operands[i] for i in group]
        flat += [zeros_like(operands[i]) if tangents[i] is None else tangents[i] for i in its]
    n, m = carries + len(moved[0]), xs + len(moved[1])
    avals = [row_aval(x) if n <= k < n + m else aval_of(x) for k, x in enumerate(flat)]
    out = scan(*flat, body=build(step, avals), carries=n, xs=m, length=length, reverse=reverse)
    pushed = dict(zip(moved[0], out[carries:n])) | dict(zip(results, out[n + len(body.outputs) - carries :]))
    return tuple([pushed.get(k) for k in range(len(ans))])


@scan.def_batch
def _(
    size: int, flags: tuple[bool, ...], *operands: Any, body: Graph, carries: int, xs: int, length: int, reverse: bool
) -> tuple[Any, ...]:
    iteration, inside, result = iteration_for_batch(body, size, flags, carries)
    args = as_batches(size, operands, flags, inside)
    for i in range(carries, carries + xs):
        args[i] = to_axis(args[i], 0, 1) if inside[i] else args[i]
    ans = scan(*args, body=iteration, carries=carries, xs=xs, length=length, reverse=reverse)
    stacked = [to_axis(x, 1, 0) if is_batch else x for x, is_batch in zip(ans[carries:], result[carries:])]
    return tuple(as_batches(size, [*ans[:carries], *stacked], result, [True] * len(result)))


def _recurrence(dtype: str = "float64") -> Graph:
    """h' = sin(h * w + x), with h' * x as result; an int64 counter."""

    def step(h: Any, n: Any, x: Any, w: Any) -> list[Any]:
        new = sin(add(multiply(h, w), x))
        return [new, add(n, 1), multiply(new, x)]

    return build(step, [_aval(dtype, 3), _aval("int64"), _aval(dtype, 3), _aval(dtype, 3)])


def _aval(dtype: str, *shape: int) -> Aval:
    return Aval(shape, np.dtype(dtype))


@scan.def_samples
def _() -> Any:
    for length, dtype, reverse in ((4, "float64", False), (12, "float64", True), (2, "float32", False)):
        x = uniform((length, 3), seed=1, dtype=dtype)
        operands = (uniform((3,), dtype=dtype), np.array(2), x, uniform((3,), seed=2, dtype=dtype))
        yield operands, {"body": _recurrence(dtype), "carries": 2, "xs": 1, "length": length, "reverse": reverse}
    body = build(lambda h, w: [multiply(h, w)], [_aval("float64", 10)] * 2)
    params = {"body": body, "carries": 1, "xs": 0, "length": 3, "reverse": False}
    yield (uniform((10,)), uniform((10,), seed=1)), params
