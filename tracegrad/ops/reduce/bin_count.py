"""Compute histogram bin counts with NumPy's estimators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.errors import ShapeError
from tracegrad.ops.core.op import Sample, primitive
from tracegrad.ops.core.samples import integers, uniform
from tracegrad.ops.shape.batching import repeated
from tracegrad.typing import Array, NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator


@primitive()
def bin_count(x: NDArray, bounds: NDArray, *, how: str) -> NDArray:
    """The number of bins of `np.histogram_bin_edges` for each row by the estimator `how`, between its two bounds, or
    between the extrema if there are no bounds."""
    result = np.empty(x.shape[:-1], np.int64)
    for at in np.ndindex(result.shape):
        result[at] = len(np.histogram_bin_edges(x[at], how, tuple(sorted(bounds[at])) or None)) - 1
    return result


@bin_count.def_aval
def _(x: Aval, bounds: Aval, *, how: str) -> Aval:
    if not x.ndim or bounds.shape not in ((*x.shape[:-1], 0), (*x.shape[:-1], 2)):
        raise ShapeError(f"bin_count wants rows and two bounds or none of each, got {x} and {bounds}")
    return Aval(x.shape[:-1], np.dtype(np.int64))


@bin_count.def_batch
def _(size: int, batched: Any, x: Array, bounds: Any, *, how: str) -> Array:
    return bin_count(*repeated(size, batched, (x, bounds)), how=how)


@bin_count.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((40,)), np.zeros(0)), {"how": "auto"}
    yield (uniform((9,), dtype="float32"), np.array([-1.0, 1.0])), {"how": "fd"}
    yield (uniform((2, 3, 12)), np.zeros((2, 3, 0))), {"how": "scott"}
    yield (integers((30,), -9, 9), np.zeros(0)), {"how": "sturges"}
