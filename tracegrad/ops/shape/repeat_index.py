"""Indices as often as values say: where a mask is true, and what `np.repeat` repeats.

How many there are depends on values, a shape may not: `size` is how many the caller takes for granted. Where there are
fewer, zeros follow; where there are more, the rest is left out. Whoever asks for a `size` sees to it that it is right.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.errors import DTypeError, ShapeError
from tracegrad.ops.core.op import primitive
from tracegrad.ops.core.samples import integers

__all__ = ["repeated_index"]


@primitive()
def repeated_index(counts: Any, *, size: int) -> Any:
    """Each index of the last axis as often as `counts` says there, in order: the first `size` of all, then zeros.

    Of booleans: the indices of those that are true.
    """
    out = np.zeros((*counts.shape[:-1], size), np.int64)
    every = np.arange(0 if counts.dtype.kind == "b" else counts.shape[-1])
    for place in np.ndindex(counts.shape[:-1]):
        row = counts[place]
        found = np.flatnonzero(row) if row.dtype.kind == "b" else np.repeat(every, np.maximum(row, 0))
        out[place][: len(found)] = found[:size]
    return out


@repeated_index.def_aval
def _(counts: Aval, *, size: int) -> Aval:
    if not counts.ndim or size < 0 or (size and not counts.shape[-1]):
        raise ShapeError(f"repeated_index: {size} indices into the last axis of {counts}")
    if counts.dtype.kind not in "biu":
        raise DTypeError(f"repeated_index: counts must be integers or booleans, got {counts}")
    return Aval((*counts.shape[:-1], size), np.dtype(np.int64))


@repeated_index.def_samples
def _() -> Any:
    yield (integers((9,), 0, 3),), {"size": 7}
    yield (integers((2, 20), 0, 2) > 0,), {"size": 12}
    yield (integers((4,), 0, 2, dtype="int32"),), {"size": 0}
