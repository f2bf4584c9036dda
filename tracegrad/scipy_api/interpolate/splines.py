"""Piecewise polynomials at traced points, and splines through traced values at constant points.

Most splines are linear in their values; the exceptions depend on the signs of the values. SciPy computes the spline
through each unit vector (`tracegrad.ops.signal.splines`), and the coefficients are a product with that matrix. Traced
code receives a `Piecewise` instead of a spline.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np

from tracegrad.numpy_api.operands import array, arrays, peer_of, promoted, to_float
from tracegrad.numpy_api.registry import refuse
from tracegrad.numpy_api.shapes import moveaxis
from tracegrad.ops.reduce.sorting import searchsorted
from tracegrad.ops.signal.splines import spline_map
from tracegrad.scipy_api.interpolate.knot_derivatives import akima, hermite, pchip
from tracegrad.scipy_api.registry import shadow
from tracegrad.typing import Array, ArrayLike, Number

_OF_BASES = ("BSpline", "make_interp_spline", "interp1d", "UnivariateSpline")
SPLINES = ("CubicSpline", "PchipInterpolator", "Akima1DInterpolator", "CubicHermiteSpline", "PPoly")


# Whether values outside are extrapolated, or those of the periodic continuation.
Extrapolation: TypeAlias = bool | Literal["periodic"]


class Piecewise:
    """A piecewise polynomial: `c[k, i]` is the coefficient of degree `len(c) - 1 - k` from `x[i]` on.

    Outside of `x`, the value is the polynomial at that end (`extrapolate=True`), nan (False), or the periodic
    continuation ("periodic").
    """

    def __init__(self, c: Array, x: Array, extrapolate: Extrapolation, name: str, axis: int = 0):
        self.c, self.x, self.extrapolate, self._name, self.axis = c, x, extrapolate, name, axis

    def __call__(self, x: ArrayLike, nu: int = 0, extrapolate: Extrapolation | None = None) -> Array:
        if nu < 0:
            raise ValueError("Order of derivative cannot be negative")
        return self.derivative(nu)._at(x, self.extrapolate if extrapolate is None else extrapolate)

    def derivative(self, nu: int = 1) -> Piecewise:
        """Return the derivative of order `nu`, as a piecewise polynomial."""
        if nu < 0:
            return self.antiderivative(-nu)
        c = self.c
        for _ in range(nu):
            degrees = np.arange(c.shape[0] - 1, 0, -1, dtype=np.float64)
            c = c[:-1] * degrees.reshape(-1, *(1,) * (len(c.shape) - 1)) if c.shape[0] > 1 else c * 0.0
        return Piecewise(c, self.x, self.extrapolate, self._name, self.axis)

    def antiderivative(self, nu: int = 1) -> Piecewise:
        """Return the antiderivative of order `nu`, which is 0 where the first piece begins."""
        if nu < 0:
            return self.derivative(-nu)
        if self._name in _OF_BASES:
            raise refuse(f"scipy.interpolate.{self._name}.antiderivative", "use integrate, or a PPoly")
        result = self
        for _ in range(nu):
            result = result._raised()
        return result

    def _raised(self) -> Piecewise:
        c, x = (to_float(v) for v in arrays(self.c, self.x))
        columns = (1,) * (len(c.shape) - 2)
        powers = np.arange(c.shape[0], 0, -1, dtype=np.float64).reshape(-1, 1, *columns)
        c, width = c / powers, (x[1:] - x[:-1]).reshape(-1, *columns)
        whole: Any = 0.0
        for k in range(c.shape[0]):
            whole = (whole + c[k]) * width
        before = np.concatenate([0.0 * whole[:1], np.cumsum(whole, axis=0)[:-1]])
        extrapolate = False if self.extrapolate == "periodic" else self.extrapolate
        return Piecewise(np.concatenate([c, before[None]]), x, extrapolate, self._name, self.axis)

    def integrate(self, a: ArrayLike, b: ArrayLike, extrapolate: Extrapolation | None = None) -> Array:
        """Return the integral from `a` to `b`."""
        extrapolate = self.extrapolate if extrapolate is None else extrapolate
        if extrapolate == "periodic":
            raise refuse(f"scipy.interpolate.{self._name}.integrate of a periodic one")
        whole = self._raised()
        if self._name in _OF_BASES and not extrapolate:  # SciPy's integrals treat them as 0 outside
            first, last = arrays(whole.x[0], whole.x[-1])
            a, b = (np.clip(v, first, last) for v in arrays(a, b))
        return whole._at(b, extrapolate) - whole._at(a, extrapolate)

    def __getattr__(self, name: str) -> Any:
        raise refuse(f"scipy.interpolate.{self._name}.{name}")

    def _at(self, x: ArrayLike, extrapolate: Extrapolation) -> Array:
        points, knots, c = (to_float(v) for v in arrays(x, self.x, self.c))
        shape = points.shape
        points = points.reshape(-1)
        if extrapolate == "periodic":
            points = knots[0] + np.remainder(points - knots[0], knots[-1] - knots[0])
        interval = np.clip(searchsorted(knots, points, right=True) - 1, 0, c.shape[1] - 1)
        rest = (points - np.take(knots, interval)).reshape(-1, *(1,) * (len(c.shape) - 2))
        total = np.take(c[0], interval, axis=0)
        for k in range(1, c.shape[0]):
            total = total * rest + np.take(c[k], interval, axis=0)
        if not extrapolate:
            outside = np.reshape((points < knots[0]) | (points > knots[-1]), rest.shape)
            total = np.where(outside, np.nan, total)
        return _placed(total.reshape(*shape, *c.shape[2:]), len(shape), self.axis)


def _placed(result: Array, count: int, axis: int) -> Array:
    """Move the axes of the points in a result to the position of the axis of the values."""
    return moveaxis(result, list(range(count)), list(range(axis, axis + count))) if axis else result


def _through_values(
    kind: str, x: ArrayLike, y: ArrayLike, axis: int, extrapolate: Extrapolation, degree: int, ends: str
) -> Piecewise:
    """Multiply SciPy's splines through the unit vectors by the values."""
    knots, values = (to_float(v) for v in arrays(x, y))
    values = moveaxis(values, axis, 0)
    unit, breakpoints = spline_map(knots, kind=kind, degree=degree, ends=ends, size=values.shape[0])
    return Piecewise(np.tensordot(unit, values, axes=(2, 0)), breakpoints, extrapolate, kind, axis % len(values.shape))


def _of_derivatives(
    name: str,
    x: ArrayLike,
    values: ArrayLike,
    derivatives: Callable[[Array, Array], Array],
    axis: int,
    extrapolate: Extrapolation,
) -> Piecewise:
    """Make cubics through values along `axis`, with a function for the derivatives at the knots."""
    knots, values = (to_float(v) for v in arrays(x, values))
    y = moveaxis(values, axis, 0)
    return Piecewise(hermite(knots, y, derivatives(knots, y)), knots, extrapolate, name, axis % len(y.shape))


@shadow("scipy.interpolate.PchipInterpolator")
def pchip_interpolator(x: ArrayLike, y: ArrayLike, axis: int = 0, extrapolate: bool | None = None) -> Piecewise:
    """`scipy.interpolate.PchipInterpolator`, with derivatives in values and knots."""
    return _of_derivatives("PchipInterpolator", x, y, pchip, axis, True if extrapolate is None else extrapolate)


@shadow("scipy.interpolate.Akima1DInterpolator")
def akima_interpolator(
    x: ArrayLike, y: ArrayLike, axis: int = 0, *, method: str = "akima", extrapolate: bool | None = None
) -> Piecewise:
    """`scipy.interpolate.Akima1DInterpolator`, with derivatives in values and knots."""
    if method not in ("akima", "makima"):
        raise NotImplementedError(f"`method`={method} is unsupported.")
    result = False if extrapolate is None else extrapolate
    return _of_derivatives("Akima1DInterpolator", x, y, lambda k, v: akima(k, v, method == "makima"), axis, result)


@shadow("scipy.interpolate.CubicHermiteSpline")
def cubic_hermite(
    x: ArrayLike, y: ArrayLike, dydx: ArrayLike, axis: int = 0, extrapolate: Extrapolation | None = None
) -> Piecewise:
    """`scipy.interpolate.CubicHermiteSpline`, with derivatives in values, knot derivatives and knots."""
    derivatives = moveaxis(to_float(arrays(dydx)[0]), axis, 0)
    args = True if extrapolate is None else extrapolate
    return _of_derivatives("CubicHermiteSpline", x, y, lambda *_: derivatives, axis, args)


@shadow("scipy.interpolate.pchip_interpolate")
def pchip_interpolate(xi: ArrayLike, yi: ArrayLike, x: ArrayLike, der: int = 0, axis: int = 0) -> Array:
    """`scipy.interpolate.pchip_interpolate`, of one derivative."""
    if not isinstance(der, int):
        raise refuse("scipy.interpolate.pchip_interpolate with several derivatives")
    return pchip_interpolator(xi, yi, axis)(x, der)


@shadow("scipy.interpolate.PPoly")
def piecewise(c: Array, x: Array, extrapolate: bool | None = None, axis: int = 0) -> Piecewise:
    """`scipy.interpolate.PPoly`"""
    if axis:
        raise refuse("scipy.interpolate.PPoly with axis=")
    return Piecewise(c, x, True if extrapolate is None else extrapolate, "PPoly")


@shadow("scipy.interpolate.CubicSpline")
def cubic_spline(
    x: ArrayLike, y: ArrayLike, axis: int = 0, bc_type: Any = "not-a-knot", extrapolate: Extrapolation | None = None
) -> Piecewise:
    """`scipy.interpolate.CubicSpline`, with derivatives in values, and in boundary values."""
    if extrapolate is None:
        extrapolate = "periodic" if isinstance(bc_type, str) and bc_type == "periodic" else True
    if isinstance(bc_type, str):
        return _through_values("CubicSpline", x, y, axis, extrapolate, 3, bc_type)
    conditions = [{"natural": (2, 0.0), "clamped": (1, 0.0)}.get(v, v) if isinstance(v, str) else v for v in bc_type]
    ends = "|".join(v if isinstance(v, str) else str(int(v[0])) for v in conditions)
    (values,) = arrays(y)
    values = moveaxis(to_float(values), axis, 0)
    args = [to_float(arrays(0.0 if isinstance(v, str) else v[1], values)[0]) for v in conditions]
    rows = [np.broadcast_to(v, values.shape[1:])[None] for v in args]
    result = _through_values("CubicSpline", x, np.concatenate([values, *rows]), 0, extrapolate, 3, ends)
    result.axis = axis % len(values.shape)
    return result


@shadow("scipy.interpolate.BSpline")
def b_spline(t: ArrayLike, c: ArrayLike, k: int, extrapolate: bool = True, axis: int = 0) -> Piecewise:
    """`scipy.interpolate.BSpline`"""
    return _through_values("BSpline", t, c, axis, extrapolate, int(k), "")


@shadow("scipy.interpolate.make_interp_spline")
def make_interp_spline(
    x: ArrayLike,
    y: ArrayLike,
    k: int = 3,
    t: ArrayLike | None = None,
    bc_type: object = None,
    axis: int = 0,
    check_finite: bool = True,
) -> Piecewise:
    """`scipy.interpolate.make_interp_spline`, with knots of SciPy's choice."""
    if t is not None or bc_type not in (None, "natural", "clamped", "not-a-knot"):
        raise refuse("scipy.interpolate.make_interp_spline with t=, or this bc_type=")
    return _through_values("make_interp_spline", x, y, axis, True, int(k), bc_type or "")


class TableInterpolator:
    """Replacement of an `interp1d`: a table or a spline, with fill values outside the knots."""

    def __init__(
        self, x: Array, y: Array, kind: str, fill: object, strict: bool, axis: int, spline: Piecewise | None = None
    ):
        self.x, self.y, self.kind, self._fill, self._strict = x, y, kind, fill, strict
        self._axis, self._spline = axis, spline

    def __call__(self, x: ArrayLike) -> Array:
        points, knots, y = (to_float(v) for v in arrays(x, self.x, self.y))
        points, knots, y = promoted([points, knots, y])
        shape, flat = points.shape, points.reshape(-1)
        column = (-1, *(1,) * (len(y.shape) - 1))
        if self._spline is not None:
            result = self._spline(flat).reshape(flat.shape[0], *y.shape[1:])
        elif self.kind == "linear":
            result = _on_lines(knots, y, flat, column)
        else:
            result = np.take(y, INDEX_RULES[self.kind](knots, flat), axis=0)
        if not isinstance(self._fill, str):
            below, above = self._fill if isinstance(self._fill, tuple) else (self._fill, self._fill)
            under, over = (np.reshape(v, column) for v in (flat < knots[0], flat > knots[-1]))
            if self._strict and bool(np.any(under | over)):
                raise ValueError("A value in x_new is outside the interpolation range.")
            result = np.where(under, below, np.where(over, above, result))
        return _placed(result.reshape(*shape, *y.shape[1:]), len(shape), self._axis)


def _on_lines(knots: Array, y: Array, flat: Array | Number, column: tuple[int, ...]) -> Array:
    interval = np.clip(searchsorted(knots, flat, right=False), 1, knots.shape[0] - 1)
    left, right = np.take(knots, interval - 1), np.take(knots, interval)
    share = ((flat - left) / (right - left)).reshape(column)
    low, high = np.take(y, interval - 1, axis=0), np.take(y, interval, axis=0)
    result: Array = low + (high - low) * share
    return result


def _nearest(knots: Array, points: Array, right: bool) -> Array:
    halves = knots / 2.0
    return np.clip(searchsorted(halves[1:] + halves[:-1], points, right=right), 0, knots.shape[0] - 1)


# By kind, the function from points to the indices of the knots whose values the points get.
INDEX_RULES: dict[str, Any] = {
    "nearest": lambda knots, points: _nearest(knots, points, False),
    "nearest-up": lambda knots, points: _nearest(knots, points, True),
    "previous": lambda knots, points: np.clip(searchsorted(knots, points, right=True) - 1, 0, knots.shape[0] - 1),
    "next": lambda knots, points: np.clip(searchsorted(knots, points, right=False), 0, knots.shape[0] - 1),
}
_DEGREES: dict[Any, int] = {"zero": 0, "slinear": 1, "quadratic": 2, "cubic": 3}


@shadow("scipy.interpolate.interp1d")
def interp1d(
    x: ArrayLike,
    y: ArrayLike,
    kind: str | int = "linear",
    axis: int = -1,
    copy: bool = True,
    bounds_error: object = None,
    fill_value: object = np.nan,
    assume_sorted: bool = False,
) -> TableInterpolator:
    """`scipy.interpolate.interp1d` through traced values."""
    degree = _DEGREES.get(kind, kind)
    if not isinstance(degree, int) and kind != "linear" and kind not in INDEX_RULES:
        raise NotImplementedError(f"{kind} is unsupported: Use fitpack routines for other types.")
    extrapolates = isinstance(fill_value, str)
    if extrapolates and kind in ("previous", "next"):
        raise refuse(f"scipy.interpolate.interp1d with kind={kind!r} and fill_value='extrapolate'")
    strict = bounds_error if bounds_error is not None else not extrapolates and fill_value is np.nan
    peer = peer_of(x, y)
    knots, values = array(x, peer), array(y, peer)
    axis %= len(values.shape)
    values = moveaxis(values, axis, 0)
    if not assume_sorted:
        order = np.argsort(knots)
        knots, values = np.take(knots, order), np.take(values, order, axis=0)
    spline = make_interp_spline(knots, values, k=degree) if isinstance(degree, int) else None
    return TableInterpolator(knots, values, str(kind), fill_value, bool(strict), axis, spline)


@shadow("scipy.interpolate.splev")
def splev(x: ArrayLike, tck: Any, der: int = 0, ext: int = 0) -> Array:
    """`scipy.interpolate.splev`, which extrapolates."""
    if ext:
        raise refuse("the argument ext= of scipy.interpolate.splev")
    if isinstance(tck, Piecewise):
        return tck(x, der)
    t, c, k = tck
    if isinstance(c, list):
        raise refuse("scipy.interpolate.splev of a curve in space")
    t, c = arrays(t, c)
    return b_spline(t, c[: t.shape[0] - int(k) - 1], k)(x, der)
