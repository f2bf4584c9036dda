"""`scipy.interpolate`: piecewise polynomials at traced points, and splines through traced values at known points.

What a spline makes of values is linear in them, but for those that look at their signs: SciPy makes the spline through
each unit vector (`tracegrad.ops.splines`), and the coefficients are a product with that. Traced code gets a `Piecewise`
in the place of a spline.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.numpy_api.operands import array, arrays, peer_of, promoted, to_float
from tracegrad.numpy_api.registry import refuse
from tracegrad.ops.sorting import searchsorted
from tracegrad.ops.splines import pieces, spline_map
from tracegrad.scipy_api.registry import shadow, stands_for

__all__ = ["Piecewise"]

_SPLINES = ("CubicSpline", "PchipInterpolator", "Akima1DInterpolator", "CubicHermiteSpline", "PPoly")


class Piecewise:
    """A piecewise polynomial: `c[k, i]` is the coefficient of degree `len(c) - 1 - k` from `x[i]` on.

    Outside of `x` it is the polynomial at that end, nan, or of a period, as `extrapolate` says: True, False or
    "periodic".
    """

    def __init__(self, c: Any, x: Any, extrapolate: Any, name: str):
        self.c, self.x, self.extrapolate, self._name = c, x, extrapolate, name

    def __call__(self, x: Any, nu: int = 0, extrapolate: Any = None) -> Any:
        return self.derivative(nu)._at(x, self.extrapolate if extrapolate is None else extrapolate)

    def derivative(self, nu: int = 1) -> Piecewise:
        """The derivative of order `nu`, as a piecewise polynomial."""
        if nu < 0:
            raise refuse(f"the antiderivative of scipy.interpolate.{self._name}")
        c = self.c
        for _ in range(nu):
            degrees = np.arange(c.shape[0] - 1, 0, -1, dtype=np.float64)
            c = c[:-1] * degrees.reshape(-1, *(1,) * (len(c.shape) - 1)) if c.shape[0] > 1 else c * 0.0
        return Piecewise(c, self.x, self.extrapolate, self._name)

    def __getattr__(self, name: str) -> Any:
        raise refuse(f"scipy.interpolate.{self._name}.{name}")

    def _at(self, x: Any, extrapolate: Any) -> Any:
        points, knots, c = (to_float(v) for v in arrays(x, self.x, self.c))
        shape = points.shape
        points = points.reshape(-1)
        if extrapolate == "periodic":
            points = knots[0] + np.remainder(points - knots[0], knots[-1] - knots[0])
        place = np.clip(searchsorted(knots, points, right=True) - 1, 0, c.shape[1] - 1)
        rest = (points - np.take(knots, place)).reshape(-1, *(1,) * (len(c.shape) - 2))
        total = np.take(c[0], place, axis=0)
        for k in range(1, c.shape[0]):
            total = total * rest + np.take(c[k], place, axis=0)
        if extrapolate is False or extrapolate == 0:
            outside = ((points < knots[0]) | (points > knots[-1])).reshape(rest.shape)
            total = np.where(outside, np.nan, total)
        return total.reshape(*shape, *c.shape[2:])


def _through_values(kind: str, x: Any, y: Any, axis: int, extrapolate: Any, degree: int, ends: str) -> Piecewise:
    """What SciPy makes of each unit vector, times the values."""
    knots, values = (to_float(v) for v in arrays(x, y))
    values = np.moveaxis(values, axis, 0)
    unit, places = spline_map(knots, kind=kind, degree=degree, ends=ends, size=values.shape[0])
    return Piecewise(np.tensordot(unit, values, axes=(2, 0)), places, extrapolate, kind)


@shadow("scipy.interpolate.CubicSpline")
def cubic_spline(x: Any, y: Any, axis: int = 0, bc_type: Any = "not-a-knot", extrapolate: Any = None) -> Any:
    """`scipy.interpolate.CubicSpline`, with the conditions at the ends that have names."""
    if not isinstance(bc_type, str):
        raise refuse("scipy.interpolate.CubicSpline with another bc_type= than a name")
    if extrapolate is None:
        extrapolate = "periodic" if bc_type == "periodic" else True
    return _through_values("CubicSpline", x, y, axis, extrapolate, 3, bc_type)


@shadow("scipy.interpolate.BSpline")
def b_spline(t: Any, c: Any, k: int, extrapolate: Any = True, axis: int = 0) -> Any:
    """`scipy.interpolate.BSpline`"""
    return _through_values("BSpline", t, c, axis, extrapolate, int(k), "")


@shadow("scipy.interpolate.make_interp_spline")
def make_interp_spline(x: Any, y: Any, k: int = 3, t: Any = None, bc_type: Any = None, axis: int = 0,
                       check_finite: bool = True) -> Any:  # fmt: skip
    """`scipy.interpolate.make_interp_spline`, with knots of SciPy's choice."""
    if t is not None or bc_type not in (None, "natural", "clamped", "not-a-knot"):
        raise refuse("scipy.interpolate.make_interp_spline with t=, or this bc_type=")
    return _through_values("make_interp_spline", x, y, axis, True, int(k), bc_type or "")


class Linear:
    """Stands for an `interp1d` of kind "linear"."""

    def __init__(self, x: Any, y: Any, fill: Any, strict: bool):
        self.x, self.y, self._fill, self._strict = x, y, fill, strict

    def __call__(self, x: Any) -> Any:
        points, knots, y = (to_float(v) for v in arrays(x, self.x, self.y))
        points, knots, y = promoted([points, knots, y])
        shape, flat = points.shape, points.reshape(-1)
        place = np.clip(searchsorted(knots, flat, right=False), 1, knots.shape[0] - 1)
        left, right = np.take(knots, place - 1), np.take(knots, place)
        share = ((flat - left) / (right - left)).reshape(-1, *(1,) * (len(y.shape) - 1))
        low, high = np.take(y, place - 1, axis=0), np.take(y, place, axis=0)
        found = low + (high - low) * share
        if not isinstance(self._fill, str):
            below, above = self._fill if isinstance(self._fill, tuple) else (self._fill, self._fill)
            under, over = (v.reshape(share.shape) for v in (flat < knots[0], flat > knots[-1]))
            if self._strict and bool(np.any(under | over)):
                raise ValueError("A value in x_new is outside the interpolation range.")
            found = np.where(under, below, np.where(over, above, found))
        return found.reshape(*shape, *y.shape[1:])


@shadow("scipy.interpolate.interp1d")
def interp1d(x: Any, y: Any, kind: Any = "linear", axis: int = -1, copy: bool = True, bounds_error: Any = None,
             fill_value: Any = np.nan, assume_sorted: bool = False) -> Any:  # fmt: skip
    """`scipy.interpolate.interp1d` through traced values, of kind "linear"."""
    if kind not in ("linear", 1):
        raise refuse(f"scipy.interpolate.interp1d with kind={kind!r} through traced values", "use make_interp_spline")
    extrapolates = isinstance(fill_value, str)
    strict = bounds_error if bounds_error is not None else not extrapolates and fill_value is np.nan
    peer = peer_of(x, y)
    knots, values = array(x, peer), np.moveaxis(array(y, peer), axis, 0)
    if not assume_sorted:
        order = np.argsort(knots)
        knots, values = np.take(knots, order), np.take(values, order, axis=0)
    return Linear(knots, values, fill_value, bool(strict))


class Grid:
    """Stands for a `RegularGridInterpolator` of the method "linear"."""

    def __init__(self, grid: Any, values: Any, bounds_error: bool, fill_value: Any):
        self.grid, self.values, self._strict, self._fill = grid, values, bounds_error, fill_value

    def __call__(self, xi: Any, method: Any = None) -> Any:
        if method not in (None, "linear"):
            raise refuse(f"scipy.interpolate.RegularGridInterpolator with method={method!r}")
        if isinstance(xi, tuple):
            xi = np.stack(np.broadcast_arrays(*arrays(*xi)), axis=-1)
        points, values = (to_float(v) for v in arrays(xi, self.values))
        shape, points = points.shape[:-1], points.reshape(-1, points.shape[-1])
        outside: Any = False
        corners: list[tuple[Any, Any]] = [(0, 1.0)]
        for axis, knots in enumerate(self.grid):
            x, knots = (to_float(v) for v in arrays(points[:, axis], knots))
            n = knots.shape[0]
            place = np.clip(searchsorted(knots, x, right=True) - 1, 0, n - 2)
            share = (x - np.take(knots, place)) / (np.take(knots, place + 1) - np.take(knots, place))
            outside = outside | (x < knots[0]) | (x > knots[-1])
            corners = [
                (at * n + place + up, weight * (share if up else 1.0 - share))
                for at, weight in corners
                for up in (0, 1)
            ]
        if self._strict and bool(np.any(outside)):
            raise ValueError("One of the requested xi is out of bounds")
        trailing = values.shape[len(self.grid) :]
        table = values.reshape(-1, *trailing)
        columns = (-1, *(1,) * len(trailing))
        total: Any = 0.0
        for at, weight in corners:
            total = total + np.take(table, at, axis=0) * weight.reshape(columns)
        if self._fill is not None:
            total = np.where(outside.reshape(columns), self._fill, total)
        return total.reshape(*shape, *trailing)


@shadow("scipy.interpolate.RegularGridInterpolator")
def regular_grid(points: Any, values: Any, method: str = "linear", bounds_error: bool = True,
                 fill_value: Any = np.nan, **others: Any) -> Any:  # fmt: skip
    """`scipy.interpolate.RegularGridInterpolator` through traced values, of the method "linear"."""
    if method != "linear":
        raise refuse(f"scipy.interpolate.RegularGridInterpolator with method={method!r} through traced values")
    return Grid(points, values, bounds_error, fill_value)


def _fill(given: Any) -> Any:
    """What is outside, which SciPy keeps as an array of no axes."""
    return given.item() if isinstance(given, np.ndarray) and not given.shape else given


@stands_for("scipy.interpolate")
def _of_interpolate(value: Any, read: Any) -> Any:
    if read is None or isinstance(value, type):
        return None
    name = type(value).__name__
    if name in _SPLINES and not value.axis:
        return Piecewise(read("c"), read("x"), read("extrapolate"), name)
    if name == "BSpline" and not value.axis:
        read.whole()
        return Piecewise(*pieces(value), value.extrapolate, name)
    if name == "interp1d" and value._kind == "linear" and value.axis == value.y.ndim - 1:
        return Linear(read("x"), np.moveaxis(read("y"), -1, 0), _fill(read("fill_value")), read("bounds_error"))
    if name == "RegularGridInterpolator" and value.method == "linear":
        return Grid(read("grid"), read("values"), read("bounds_error"), _fill(read("fill_value")))
    return None
