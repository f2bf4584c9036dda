"""Ops on the bits of integers. On booleans the same functions are logic, which has ops of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.ops.declare import elementwise as op
from tracegrad.ops.samples import integers

__all__ = ["bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"]

bitwise_and = op("bitwise_and(x, y)", np.bitwise_and, "bit_and(x, y)", domain=None, doc="the bits that both have")
bitwise_or = op("bitwise_or(x, y)", np.bitwise_or, "bit_or(x, y)", domain=None, doc="the bits that either has")
bitwise_xor = op("bitwise_xor(x, y)", np.bitwise_xor, "bit_xor(x, y)", domain=None, doc="the bits that one of them has")
left_shift = op("left_shift(x, y)", np.left_shift, "shift_left(x, y)", domain=None,
                doc="the bits moved up; 0 for moves by as many bits as there are")  # fmt: skip
right_shift = op("right_shift(x, y)", np.right_shift, "shift_right(x, y)", domain=None,
                 doc="the bits moved down, the sign kept")  # fmt: skip


def _samples() -> Any:
    for dtype in ("int64", "int8", "uint32"):
        low = 0 if dtype[0] == "u" else -100
        yield (integers((3, 4), low, 100, dtype=dtype), integers((3, 4), low, 70, seed=1, dtype=dtype)), {}
    yield (integers((20,), -9, 9), integers((20,), 0, 9, seed=1)), {}


for _op in (bitwise_and, bitwise_or, bitwise_xor, left_shift, right_shift):
    _op.def_samples(_samples)
for _op in (bitwise_and, bitwise_or, bitwise_xor):
    _op.commutative = True
