"""Replacements of interpolator objects of `scipy.interpolate` from outside the trace."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.ops.signal.splines import pieces
from tracegrad.scipy_api.interpolate.grids import METHODS, Grid
from tracegrad.scipy_api.interpolate.splines import PLACES, SPLINES, Piecewise, Table
from tracegrad.scipy_api.registry import stands_for

__all__: list[str] = []


def _fill(given: Any) -> Any:
    """Return the fill value outside, which SciPy stores as an array without axes."""
    return given.item() if isinstance(given, np.ndarray) and not given.shape else given


@stands_for("scipy.interpolate")
def _of_interpolate(value: Any, read: Any) -> Any:
    if read is None or isinstance(value, type):
        return None
    name = type(value).__name__
    if name in SPLINES:
        return Piecewise(read("c"), read("x"), read("extrapolate"), name, value.axis)
    if name == "BSpline":
        read.whole()
        return Piecewise(*pieces(value), value.extrapolate, name, value.axis)
    if name == "interp1d":
        return _table(value, read)
    if name in ("UnivariateSpline", "InterpolatedUnivariateSpline") and value.ext == 0:
        read.whole()
        return Piecewise(*pieces(_b_spline(value)), True, "UnivariateSpline")
    if name == "RegularGridInterpolator" and value.method in METHODS:
        return Grid(read("grid"), read("values"), read("bounds_error"), _fill(read("fill_value")), read("method"))
    return None


def _b_spline(value: Any) -> Any:
    """Convert a FITPACK spline to a SciPy B-spline."""
    from scipy.interpolate import BSpline

    t, c, k = value._eval_args
    return BSpline(t, c[: len(t) - k - 1], k)


def _table(value: Any, read: Any) -> Any:
    spline, fill, kind = None, _fill(read("fill_value")), value._kind
    if kind == "spline":
        read.whole()
        spline = Piecewise(*pieces(value._spline), True, "interp1d")
    elif kind not in ("linear", *PLACES) or (kind in ("previous", "next") and isinstance(fill, str)):
        return None
    axis, strict = value.axis % value.y.ndim, read("bounds_error")
    return Table(read("x"), np.moveaxis(read("y"), axis, 0), kind, fill, strict, axis, spline)
