"""Bitwise ops on integers, and packed booleans; for booleans the bitwise functions are logical ops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.errors import DTypeError
from tracegrad.ops.core.elementwise_op import elementwise as op
from tracegrad.ops.core.op import Sample, primitive
from tracegrad.ops.core.samples import integer_pairs, integers
from tracegrad.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator


bitwise_and = op("bitwise_and(x, y)", np.bitwise_and, "bit_and(x, y)", domain=None, doc="the bits that both have")
bitwise_or = op("bitwise_or(x, y)", np.bitwise_or, "bit_or(x, y)", domain=None, doc="the bits that either has")
bitwise_xor = op("bitwise_xor(x, y)", np.bitwise_xor, "bit_xor(x, y)", domain=None, doc="the bits that one of them has")
left_shift = op(
    "left_shift(x, y)",
    np.left_shift,
    "shift_left(x, y)",
    domain=None,
    doc="the bits moved up; 0 for moves by as many bits as there are",
)
right_shift = op(
    "right_shift(x, y)", np.right_shift, "shift_right(x, y)", domain=None, doc="the bits moved down, the sign kept"
)


for _op in (bitwise_and, bitwise_or, bitwise_xor, left_shift, right_shift):
    _op.def_samples(integer_pairs)
for _op in (bitwise_and, bitwise_or, bitwise_xor):
    _op.commutative = True


# -- eight booleans in a byte ------------------------------------------------------------------------------
def _order(big: bool) -> Any:
    return "big" if big else "little"


@primitive()
def pack_bits(x: NDArray, *, big: bool) -> NDArray:
    """Eight booleans of the last axis in each byte, most significant bit first if `big`; padded with zeros."""
    return np.packbits(x, axis=-1, bitorder=_order(big))


@primitive()
def unpack_bits(x: NDArray, *, big: bool) -> NDArray:
    """The bits of the bytes of the last axis, each as a byte, most significant bit first if `big`."""
    return np.unpackbits(x, axis=-1, bitorder=_order(big))


@pack_bits.def_aval
def _(x: Aval, *, big: bool) -> Aval:
    if not x.ndim or x.dtype != np.bool_:
        raise DTypeError(f"pack_bits: rows of booleans are wanted, got {x}")
    return Aval((*x.shape[:-1], -(-x.shape[-1] // 8)), np.dtype(np.uint8))


@unpack_bits.def_aval
def _(x: Aval, *, big: bool) -> Aval:
    if not x.ndim or x.dtype != np.uint8:
        raise DTypeError(f"unpack_bits: rows of bytes are wanted, got {x}")
    return Aval((*x.shape[:-1], 8 * x.shape[-1]), x.dtype)


@pack_bits.def_samples
def _() -> Iterator[Sample]:
    for shape, big in [((100,), True), ((3, 5), False), ((2, 3, 16), True)]:
        yield (integers(shape, 0, 2, dtype="bool"),), {"big": big}


@unpack_bits.def_samples
def _() -> Iterator[Sample]:
    for shape, big in [((13,), True), ((3, 5), False), ((2, 1, 1), True)]:
        yield (integers(shape, 0, 256, dtype="uint8"),), {"big": big}
