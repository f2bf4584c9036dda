"""Batched cotangents: one value for a batch, so that one backward pass computes all of them.

The shape of the value is the shape of one cotangent. An op on the value applies the op's batch rule (`Op.batch`) to the
array, graph value or Tensor inside. A Tensor records the op on the tape.
"""

from __future__ import annotations

from typing import Any

from tracegrad.ops.core.op import Carrier, DispatchLevel, Op
from tracegrad.typing import DType


class Batched(Carrier):
    """Arrays of one shape, along axis 0 of `array`."""

    __slots__ = ("array",)
    level = DispatchLevel.BATCH

    def __init__(self, array: Any):
        self.array = array

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape[1:])

    @property
    def dtype(self) -> DType:
        result: DType = self.array.dtype
        return result

    def bind(self, op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        flags = [isinstance(x, Batched) for x in operands]
        args = [x.array if isinstance(x, Batched) else x for x in operands]
        ans = op.batch(self.array.shape[0], flags, args, params)
        return tuple(map(Batched, ans)) if isinstance(ans, tuple) else Batched(ans)
