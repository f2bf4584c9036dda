"""Packed bits: `packbits` and `unpackbits`."""

from __future__ import annotations

import numpy as np

from tracegrad.errors import located
from tracegrad.numpy_api.joining import along, concatenate
from tracegrad.numpy_api.operands import along_axis, constant, peer_of
from tracegrad.numpy_api.registry import implements
from tracegrad.numpy_api.shapes import moveaxis
from tracegrad.ops.elementwise.bits import pack_bits, unpack_bits
from tracegrad.ops.elementwise.table import not_equal
from tracegrad.ops.shape.linear import full
from tracegrad.typing import Array, ArrayLike


def _is_big(bitorder: str) -> bool:
    if bitorder not in ("big", "little"):
        raise ValueError(located("'order' must be either 'little' or 'big'"))
    return bitorder == "big"


def _with_axis_last(name: str, a: ArrayLike, axis: int | None) -> tuple[Array, int]:
    x, k = along_axis(name, a, axis)
    return moveaxis(x, k, -1), k


def _lengthened(x: Array, count: int) -> Array:
    """Append zeros to rows."""
    zeros = full(shape=(*x.shape[:-1], count), value=0, dtype=x.dtype.name)
    return concatenate([x, constant(zeros, peer_of(x))], -1) if count else x


@implements(np.packbits)
def packbits(a: ArrayLike, /, axis: int | None = None, bitorder: str = "big") -> Array:
    """`np.packbits`."""
    x, k = _with_axis_last("packbits", a, axis)
    if x.dtype.kind not in "iub":
        raise TypeError(located("Expected an input array of integer or boolean data type"))
    booleans = x if x.dtype.kind == "b" else not_equal(x, 0)
    return moveaxis(pack_bits(booleans, big=_is_big(bitorder)), -1, k)


@implements(np.unpackbits)
def unpackbits(a: ArrayLike, /, axis: int | None = None, count: int | None = None, bitorder: str = "big") -> Array:
    """`np.unpackbits`."""
    x, k = _with_axis_last("unpackbits", a, axis)
    if x.dtype != np.uint8:
        raise TypeError(located("Expected an input array of unsigned byte data type"))
    bits = unpack_bits(x, big=_is_big(bitorder))
    n = bits.shape[-1]
    if count is not None:
        wanted = count if count >= 0 else n + count
        if wanted < 0:
            raise ValueError(located(f"-ve count ({count}) is larger than the number of bits ({n})"))
        bits = _lengthened(along(bits, len(bits.shape) - 1, 0, min(wanted, n)), max(wanted - n, 0))
    return moveaxis(bits, -1, k)
