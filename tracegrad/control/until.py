"""`while_loop`: a region that runs as long as another one says.

The operands are the initial carries and constants; both regions get the carries and the constants. The body gives new
carries and, where `capacity` says how many can be kept, results, which are stacked: what a derivative needs of each
turn. The number of turns is a result too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.control.regions import require, run_region
from tracegrad.errors import CapacityError
from tracegrad.ir import Graph, build
from tracegrad.ops.elementwise import add, less, multiply, sin
from tracegrad.ops.linear import reduce_sum
from tracegrad.ops.op import Several, primitive
from tracegrad.ops.samples import uniform

__all__ = ["while_loop"]

_BOOL, _INT64 = Aval((), np.dtype(bool)), Aval((), np.dtype(np.int64))


@primitive()
def while_loop(*operands: Any, cond: Graph, body: Graph, carries: int, capacity: int) -> Any:
    """The last carries, the number of turns and the stacked results of `body`, run while `cond` holds.

    There is room for the results of `capacity` turns: CapacityError if there are more turns.
    """
    carry, consts = list(operands[:carries]), operands[carries:]
    stacked = [np.zeros((capacity, *y.aval.shape), y.aval.dtype) for y in body.outputs[carries:]]
    count = 0
    while run_region(cond, [*carry, *consts])[0]:
        if stacked and count == capacity:
            raise CapacityError(f"while_loop: more than {capacity} turns")
        outputs = run_region(body, [*carry, *consts])
        carry = outputs[:carries]
        for rows_of, y in zip(stacked, outputs[carries:]):
            rows_of[count] = y
        count += 1
    return (*carry, np.int64(count), *stacked)


@while_loop.def_aval
def _(*operands: Aval, cond: Graph, body: Graph, carries: int, capacity: int) -> Several:  # type: ignore[misc]
    require("while_loop: its condition takes", cond.avals, operands)
    require("while_loop: its condition gives", cond.results, [_BOOL])
    require("while_loop: its body takes", body.avals, operands)
    require("while_loop: its body carries", body.results[:carries], operands[:carries])
    results = [Aval((capacity, *y.shape), y.dtype) for y in body.results[carries:]]
    return Several((*operands[:carries], _INT64, *results))


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
    yield (uniform((10,), 0.5, 1), uniform((10,), 0.5, 1)), {"cond": cond, "body": body, "carries": 1, "capacity": 9}
