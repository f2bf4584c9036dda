"""A batch of cotangents as one value, so that a backward pass goes along the tape once for all of them.

Its shape is that of one of them. Applying an op to it means the op for the batch (`Op.batch`), on what it holds: an
array, a value of a graph, or a Tensor, which records that on the tape.
"""

from __future__ import annotations

from typing import Any

from tracegrad.avals import Aval
from tracegrad.ops.core.op import Carrier, Level, Op

__all__ = ["Batched"]


class Batched(Carrier):
    """Arrays of one shape, along axis 0 of `array`."""

    __slots__ = ("array",)
    level = Level.BATCH

    def __init__(self, array: Any):
        self.array = array

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape[1:])

    @property
    def dtype(self) -> Any:
        return self.array.dtype

    @property
    def aval(self) -> Aval:
        return Aval(self.shape, self.dtype)

    def bind(self, op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        flags = [isinstance(x, Batched) for x in operands]
        given = [x.array if isinstance(x, Batched) else x for x in operands]
        answer = op.batch(self.array.shape[0], flags, given, params)
        return tuple(map(Batched, answer)) if isinstance(answer, tuple) else Batched(answer)
