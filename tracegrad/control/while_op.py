"""The op `while_loop`: run a region while another region returns true.

The operands are the initial carries and constants; both regions take the carries and the constants. The body returns
new carries and, if `capacity` sets the room for them, results, which are stacked: the residuals of each
iteration. The number of iterations is also a result.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.control.loop_rules import batched_loop, pushed_loop
from tracegrad.control.region_ops import require
from tracegrad.errors import CapacityError
from tracegrad.ir import Graph, GraphValue, build, replayer
from tracegrad.ir.loop_view import LoopView
from tracegrad.ops.core.forms import While
from tracegrad.ops.core.op import AS_WRITTEN, ResultAvals, multi_result
from tracegrad.ops.core.samples import uniform
from tracegrad.ops.elementwise.table import add, less, multiply, sin
from tracegrad.ops.shape.linear import reduce_sum
from tracegrad.typing import Array, NDArray

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand


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
    tangents: tuple[Array | None, ...], ans: tuple[Operand, ...], *operands: Array | Aval | GraphValue, **params: object
) -> tuple[Any, ...]:
    ts = pushed_loop(LoopView.from_params(while_loop, params), tangents, operands)
    return tuple([ts.get(k) for k in range(len(ans))])


@while_loop.def_batch
def _(size: int, flags: tuple[bool, ...], *operands: Operand | Aval | GraphValue, **params: Any) -> tuple[Any, ...]:
    return batched_loop(LoopView.from_params(while_loop, params), size, flags, operands)


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
