"""Pack values of several shapes into one float64 vector, and unpack them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracegrad.avals import Aval, name_of
from tracegrad.ops.shape.linear import cast, concatenate, reshape, slice

if TYPE_CHECKING:
    from tracegrad.typing import Array


def flat(xs: list[Array]) -> Array:
    """Flatten values into one float64 vector."""
    rows = [reshape(x if x.dtype == np.float64 else cast(x, dtype="float64"), shape=(_size(x),)) for x in xs]
    return rows[0] if len(rows) == 1 else concatenate(*rows, axis=0)


def _size(x: Array) -> int:
    return int(np.prod(x.shape, dtype=np.int64))


def unflatten(x: Array, avals: list[Aval]) -> list[Array]:
    """Invert `flat`."""
    result, start = [], 0
    for aval in avals:
        part = reshape(slice(x, start=(start,), stop=(start + aval.size,), step=(1,)), shape=aval.shape)
        result.append(part if aval.dtype == np.float64 else cast(part, dtype=name_of(aval.dtype)))
        start += aval.size
    return result
