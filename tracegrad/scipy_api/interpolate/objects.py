"""Replacements of interpolator objects of `scipy.interpolate` from outside the trace."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.ops.signal.splines import piecewise_coefficients
from tracegrad.scipy_api.interpolate.grids import METHODS, GridInterpolator
from tracegrad.scipy_api.interpolate.splines import INDEX_RULES, SPLINES, Piecewise, TableInterpolator
from tracegrad.scipy_api.registry import replaces_objects


def _fill(fill_value: object) -> Any:
    """Return the fill value outside, which SciPy stores as an array without axes."""
    return fill_value.item() if isinstance(fill_value, np.ndarray) and not fill_value.shape else fill_value


@replaces_objects("scipy.interpolate")
def _of_interpolate(value: Any, read: Any) -> Piecewise | TableInterpolator | GridInterpolator | None:
    if read is None or isinstance(value, type):
        return None
    name = type(value).__name__
    if name in SPLINES:
        return Piecewise(read("c"), read("x"), read("extrapolate"), name, value.axis)
    if name == "BSpline":
        read.whole()
        return Piecewise(*piecewise_coefficients(value), value.extrapolate, name, value.axis)
    if name == "interp1d":
        return _table(value, read)
    if name in ("UnivariateSpline", "InterpolatedUnivariateSpline") and value.ext == 0:
        read.whole()
        return Piecewise(*piecewise_coefficients(_b_spline(value)), True, "UnivariateSpline")
    if name == "RegularGridInterpolator" and value.method in METHODS:
        return GridInterpolator(
            read("grid"), read("values"), read("bounds_error"), _fill(read("fill_value")), read("method")
        )
    return None


def _b_spline(value: Any) -> Any:
    """Convert a FITPACK spline to a SciPy B-spline."""
    from scipy.interpolate import BSpline

    t, c, k = value._eval_args
    return BSpline(t, c[: len(t) - k - 1], k)


def _table(value: Any, read: Any) -> TableInterpolator | None:
    spline, fill, kind = None, _fill(read("fill_value")), value._kind
    if kind == "spline":
        read.whole()
        spline = Piecewise(*piecewise_coefficients(value._spline), True, "interp1d")
    elif kind not in ("linear", *INDEX_RULES) or (kind in ("previous", "next") and isinstance(fill, str)):
        return None
    axis, strict = value.axis % value.y.ndim, read("bounds_error")
    return TableInterpolator(read("x"), np.moveaxis(read("y"), axis, 0), kind, fill, strict, axis, spline)
