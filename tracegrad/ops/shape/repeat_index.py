"""Repeat indices by counts: the positions where a mask is true, and the indices of `np.repeat`.

The number of indices depends on values, and a shape must not: the caller passes `size`, the expected number. If there
are fewer indices, zeros follow; if there are more, the rest is dropped. The caller ensures that `size` is correct.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracegrad.avals import Aval
from tracegrad.errors import DTypeError, ShapeError
from tracegrad.ops.core.op import Sample, primitive
from tracegrad.ops.core.samples import integers
from tracegrad.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator


@primitive()
def repeated_index(counts: NDArray, *, size: int) -> NDArray:
    """Each index of the last axis repeated by its count in `counts`, in order: the first `size` of them, padded with
    zeros.

    For booleans: the indices of true elements.
    """
    out = np.zeros((*counts.shape[:-1], size), np.int64)
    every = np.arange(0 if counts.dtype.kind == "b" else counts.shape[-1])
    for index in np.ndindex(counts.shape[:-1]):
        row = counts[index]
        result = np.flatnonzero(row) if row.dtype.kind == "b" else np.repeat(every, np.maximum(row, 0))
        out[index][: len(result)] = result[:size]
    return out


@repeated_index.def_aval
def _(counts: Aval, *, size: int) -> Aval:
    if not counts.ndim or size < 0 or (size and not counts.shape[-1]):
        raise ShapeError(f"repeated_index: {size} indices into the last axis of {counts}")
    if counts.dtype.kind not in "biu":
        raise DTypeError(f"repeated_index: counts must be integers or booleans, got {counts}")
    return Aval((*counts.shape[:-1], size), np.dtype(np.int64))


@repeated_index.def_samples
def _() -> Iterator[Sample]:
    yield (integers((9,), 0, 3),), {"size": 7}
    yield (integers((2, 20), 0, 2) > 0,), {"size": 12}
    yield (integers((4,), 0, 2, dtype="int32"),), {"size": 0}
