"""Numbers of half precision that are held in single precision, which is all that compiled code has.

NumPy computes in single precision too, of float16, and rounds: so these ops say all that there is to it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.ops.core.elementwise_op import Loop, promote
from tracegrad.ops.core.elementwise_op import elementwise as op
from tracegrad.ops.core.half_rounding import HALF, SINGLE
from tracegrad.ops.core.op import TABLE, Op, Several, primitive
from tracegrad.ops.core.samples import integers

__all__ = ["call_in_half", "half_bits", "half_value", "in_bits", "round_to_half"]

_BITS = np.dtype(np.uint16)
Given = tuple[tuple[str, Any], ...]


def _of_floats(to: Any = None) -> Any:
    def resolve(x: Any) -> Loop:
        dtype = promote((x,))
        if dtype not in (SINGLE, np.float64):
            raise TypeError("of float32 and float64 only")
        return dtype, to or dtype

    return resolve


def _of_bits(x: Any) -> Loop:
    if promote((x,)) != _BITS:
        raise TypeError("of uint16 only")
    return _BITS, SINGLE


round_to_half = op("round_to_half(x)", lambda x: x.astype(HALF).astype(x.dtype), "round_to_half(x)", loop=_of_floats(),
                   steps=True, doc="the number of half precision that is nearest to x, in its dtype")  # fmt: skip
half_bits = op("half_bits(x)", lambda x: x.astype(HALF).view(_BITS), "half_bits(x)", loop=_of_floats(_BITS),
               domain=None, doc="the bits of the number of half precision nearest to x")  # fmt: skip
half_value = op("half_value(x)", lambda x: x.view(HALF).astype(SINGLE), "half_value(x)", loop=_of_bits,
                domain=None, doc="the number of half precision that has the bits x")  # fmt: skip


@half_bits.def_samples
def _() -> Any:
    yield (integers((3, 4), -64, 64, dtype="float32"),), {}


@half_value.def_samples
def _() -> Any:
    yield (integers((3, 40), 0, 2**16, dtype="uint16"),), {}


def in_bits(x: Aval) -> Aval:
    """What lies in the memory of `x`: of numbers of half precision the bits; else `x` itself."""
    return Aval(x.shape, _BITS) if x.dtype == HALF else x


@primitive(typed=True)
def call_in_half(*xs: Any, op: str, given: Given, halves: tuple[bool, ...]) -> Any:
    """The results of `op`, with the parameters `given`, for operands of which `halves` are bits of float16. So are
    those of the results that are float16."""
    operands = [np.asarray(x).view(HALF) if half else x for x, half in zip(xs, halves)]
    found = TABLE[op].impl(*operands, **dict(given))
    return tuple(map(_bits, found)) if isinstance(found, tuple) else _bits(found)


@call_in_half.def_aval
def _(*xs: Any, op: str, given: Given, halves: tuple[bool, ...]) -> Aval | Several:
    operands = [Aval(x.shape, HALF) if half else x for x, half in zip(xs, halves)]
    known: Op = TABLE[op]
    found = known.aval(*operands, **dict(given))
    return Several(map(in_bits, found)) if isinstance(found, tuple) else in_bits(found)


def _bits(x: Any) -> Any:
    x = np.asarray(x)
    return x.view(_BITS) if x.dtype == HALF else x


@call_in_half.def_samples
def _() -> Any:
    # Of integers: it has no derivative.
    yield (integers((3, 4), 0, 9, dtype="uint16"),), {"op": "spacing", "given": (), "halves": (True,)}
