"""Evenly spaced numbers on a linear or logarithmic scale."""

from __future__ import annotations

import numpy as np

from tracegrad.errors import located
from tracegrad.numpy_api import reductions
from tracegrad.numpy_api.creation import linspace, logspace
from tracegrad.numpy_api.operands import arrays, has_value, to_dtype, to_float
from tracegrad.numpy_api.registry import implements, refuse
from tracegrad.numpy_api.shapes import moveaxis
from tracegrad.ops.elementwise.table import absolute, equal, exp, log, logical_or, multiply, not_equal, sign, where
from tracegrad.ops.shape.linear import reshape, stop_gradient
from tracegrad.typing import Array, ArrayLike, DTypeLike

# Traced code calls these functions without a dispatch; here they are registered for other code.
implements(np.linspace)(linspace)
implements(np.logspace)(logspace)


@implements(np.geomspace)
def geomspace(
    start: ArrayLike, stop: int, num: int = 50, endpoint: bool = True, dtype: DTypeLike = None, axis: int = 0
) -> Array:
    """`np.geomspace`; whether both ends have the same sign is a query, which leaves a guard.

    Batches have no values to query: there, the numbers between ends of different signs are nan.
    """
    first, last = (to_float(x) for x in arrays(start, stop))
    if "c" in (first.dtype.kind, last.dtype.kind):
        raise refuse("np.geomspace of complex numbers")
    kind = np.result_type(first.dtype, last.dtype, np.float64 if dtype is None else dtype)
    first, last = to_dtype(first, kind), to_dtype(last, kind)
    side = sign(stop_gradient(first))
    zero, across = logical_or(equal(first, 0), equal(last, 0)), not_equal(side, sign(last))
    known = has_value(logical_or(zero, across))
    if known and bool(reductions.any_(zero)):
        raise ValueError(located("Geometric sequence cannot include zero"))
    if known and bool(reductions.any_(across)):
        raise refuse("np.geomspace from negative to positive numbers", "its elements would be complex")
    count = num.__index__()
    logs = linspace(log(absolute(first)), log(absolute(last)), count, endpoint)
    out = multiply(exp(logs), side if known else where(logical_or(zero, across), np.nan, side))
    if count:  # both ends are exact
        number = reshape(np.arange(count), shape=(count, *(1,) * (len(out.shape) - 1)))
        out = where(equal(number, 0), first, out)
        out = where(equal(number, count - 1), last, out) if endpoint and count > 1 else out
    out = moveaxis(out, 0, axis) if axis else out
    return out if dtype is None else to_dtype(out, dtype)
