"""Sort the rows of matrices (lexicographic order)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracegrad.avals import Aval
from tracegrad.errors import ShapeError
from tracegrad.ops.core.op import Sample, primitive
from tracegrad.ops.core.samples import integers
from tracegrad.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator


@primitive()
def row_order(x: NDArray) -> NDArray:
    """The indices that sort the rows of matrices in lexicographic order; equal rows keep their order."""
    if not x.shape[-1]:
        return np.broadcast_to(np.arange(x.shape[-2]), x.shape[:-1]).copy()
    return np.lexsort(np.moveaxis(x, -1, 0)[::-1], axis=-1)


@row_order.def_aval
def _(x: Aval) -> Aval:
    if x.ndim < 2:
        raise ShapeError(f"row_order: matrices are wanted, got {x}")
    return Aval(x.shape[:-1], np.dtype(np.int64))


@row_order.def_samples
def _() -> Iterator[Sample]:
    yield (integers((5, 3), 0, 2),), {}
    yield (integers((2, 20, 2), 0, 3, dtype="float32"),), {}
    yield (np.zeros((3, 0)),), {}
