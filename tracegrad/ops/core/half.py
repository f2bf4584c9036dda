"""Represent half precision numbers in single precision, the only form in compiled code.

NumPy also computes float16 in single precision and rounds, so these ops define its semantics completely.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.ops.core.elementwise_op import Loop, promote
from tracegrad.ops.core.elementwise_op import elementwise as op
from tracegrad.ops.core.half_rounding import HALF, SINGLE
from tracegrad.ops.core.op import TABLE, Op, ResultAvals, Sample, primitive
from tracegrad.ops.core.samples import integers
from tracegrad.typing import Array, ArrayLike, DType, NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator


_BITS = np.dtype(np.uint16)
Params = tuple[tuple[str, Any], ...]


def _of_floats(to: Any = None) -> Any:
    def resolve(x: DType) -> Loop:
        dtype = promote((x,))
        if dtype not in (SINGLE, np.float64):
            raise TypeError("of float32 and float64 only")
        return dtype, to or dtype

    return resolve


def _of_bits(x: DType) -> Loop:
    if promote((x,)) != _BITS:
        raise TypeError("of uint16 only")
    return _BITS, SINGLE


round_to_half = op(
    "round_to_half(x)",
    lambda x: x.astype(HALF).astype(x.dtype),
    "round_to_half(x)",
    loop=_of_floats(),
    piecewise_constant=True,
    doc="the number of half precision that is nearest to x, in its dtype",
)
half_bits = op(
    "half_bits(x)",
    lambda x: x.astype(HALF).view(_BITS),
    "half_bits(x)",
    loop=_of_floats(_BITS),
    domain=None,
    doc="the bits of the number of half precision nearest to x",
)
half_value = op(
    "half_value(x)",
    lambda x: x.view(HALF).astype(SINGLE),
    "half_value(x)",
    loop=_of_bits,
    domain=None,
    doc="the number of half precision that has the bits x",
)


@half_bits.def_samples
def _() -> Iterator[Sample]:
    yield (integers((3, 4), -64, 64, dtype="float32"),), {}


@half_value.def_samples
def _() -> Iterator[Sample]:
    yield (integers((3, 40), 0, 2**16, dtype="uint16"),), {}


def in_bits(x: Aval) -> Aval:
    """The memory representation of `x`: the bits of half precision numbers, else `x` itself."""
    return Aval(x.shape, _BITS) if x.dtype == HALF else x


@primitive(typed=True)
def call_in_half(*xs: NDArray, op: str, op_params: Params, halves: tuple[bool, ...]) -> Array | tuple[Array, ...]:
    """The results of `op`, with the parameters `op_params`, for operands whose `halves` are float16 bits; float16
    results are bits too."""
    operands = [np.asarray(x).view(HALF) if half else x for x, half in zip(xs, halves)]
    result = TABLE[op].impl(*operands, **dict(op_params))
    return tuple(map(_bits, result)) if isinstance(result, tuple) else _bits(result)


@call_in_half.def_aval
def _(*xs: Aval, op: str, op_params: Params, halves: tuple[bool, ...]) -> Aval | ResultAvals:
    operands = [Aval(x.shape, HALF) if half else x for x, half in zip(xs, halves)]
    known: Op = TABLE[op]
    result = known.aval(*operands, **dict(op_params))
    return ResultAvals(map(in_bits, result)) if isinstance(result, tuple) else in_bits(result)


def _bits(x: ArrayLike) -> Array:
    x = np.asarray(x)
    return x.view(_BITS) if x.dtype == HALF else x


@call_in_half.def_samples
def _() -> Iterator[Sample]:
    # An integer sample, because the op has no derivative.
    yield (integers((3, 4), 0, 9, dtype="uint16"),), {"op": "spacing", "op_params": (), "halves": (True,)}
