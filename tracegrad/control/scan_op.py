"""The op `scan`: run a region a known number of times.

The operands are the initial carries, the arrays to iterate over by rows, and constants. In each iteration the body
takes the carries, one row of each array and the constants. It returns new carries and results, which are stacked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.control.loop_rules import batched_loop, pushed_loop
from tracegrad.control.region_ops import require
from tracegrad.errors import ShapeError
from tracegrad.ir import Graph, GraphValue, build, replayer
from tracegrad.ir.loop_view import LoopView
from tracegrad.ops.core.forms import Repeat
from tracegrad.ops.core.op import AS_WRITTEN, ResultAvals, multi_result
from tracegrad.ops.core.samples import uniform
from tracegrad.ops.elementwise.table import add, multiply, sin
from tracegrad.typing import Array, NDArray

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand


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
    loop = LoopView(scan, body, carries, xs, length, reverse)
    for x in loop.scanned(operands):
        if not x.ndim or x.shape[0] != length:
            raise ShapeError(f"scan: {x} does not have {length} rows")
    require("scan: its body takes", body.avals, loop.input_avals(operands))
    require("scan: its body carries", body.results[:carries], operands[:carries])
    return ResultAvals((*operands[:carries], *(Aval((length, *y.shape), y.dtype) for y in body.results[carries:])))


@scan.def_jvp
def _(
    tangents: tuple[Array | None, ...], ans: tuple[Operand, ...], *operands: Array | Aval | GraphValue, **params: object
) -> tuple[Any, ...]:
    ts = pushed_loop(LoopView.from_params(scan, params), tangents, operands)
    return tuple([ts.get(k) for k in range(len(ans))])


@scan.def_batch
def _(size: int, flags: tuple[bool, ...], *operands: Operand | Aval | GraphValue, **params: Any) -> tuple[Any, ...]:
    return batched_loop(LoopView.from_params(scan, params), size, flags, operands)


def _recurrence(dtype: str = "float64") -> Graph:
    """h' = sin(h * w + x), with h' * x as result; an int64 counter."""

    def step(h: GraphValue, n: GraphValue, x: GraphValue, w: GraphValue) -> list[Any]:
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
