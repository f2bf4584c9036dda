"""How many bins a histogram has, by NumPy's estimators."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.errors import ShapeError
from tracegrad.ops.op import primitive
from tracegrad.ops.samples import integers, uniform

__all__ = ["bin_count"]


@primitive()
def bin_count(x: Any, bounds: Any, *, how: str) -> Any:
    """The number of bins that `np.histogram_bin_edges` gives a row by the estimator `how`, between the two bounds, or
    between the extrema where there are no bounds."""
    return np.array(len(np.histogram_bin_edges(x, how, tuple(bounds) or None)) - 1)


@bin_count.def_aval
def _(x: Aval, bounds: Aval, *, how: str) -> Aval:
    if x.ndim != 1 or bounds.shape not in ((0,), (2,)):
        raise ShapeError(f"bin_count wants a row and two bounds or none, got {x} and {bounds}")
    return Aval((), np.dtype(np.int64))


@bin_count.def_samples
def _() -> Any:
    yield (uniform((40,)), np.zeros(0)), {"how": "auto"}
    yield (uniform((9,), dtype="float32"), np.array([-1.0, 1.0])), {"how": "fd"}
    yield (integers((30,), -9, 9), np.zeros(0)), {"how": "sturges"}
