"""Interpolation on grids of several axes, of `scipy.interpolate`, at traced points and of traced values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad.numpy_api.operands import arrays, to_float
from tracegrad.numpy_api.registry import refuse
from tracegrad.ops.reduce.sorting import searchsorted
from tracegrad.scipy_api.interpolate.splines import make_interp_spline
from tracegrad.scipy_api.registry import shadow
from tracegrad.typing import Array, ArrayLike


class GridInterpolator:
    """Replacement of a `RegularGridInterpolator`."""

    def __init__(
        self,
        grid: Sequence[ArrayLike],
        values: Array,
        bounds_error: bool,
        fill_value: float | None,
        method: str = "linear",
    ):
        self.grid, self.values, self._strict, self._fill, self.method = grid, values, bounds_error, fill_value, method

    def __call__(self, xi: Any, method: str | None = None) -> Array:
        method = self.method if method is None else method
        if method not in METHODS:
            raise refuse(f"scipy.interpolate.RegularGridInterpolator with method={method!r}")
        together = isinstance(xi, tuple)
        if together:
            xi = np.stack(np.broadcast_arrays(*arrays(*xi)), axis=-1)
        points, values = (to_float(v) for v in arrays(xi, self.values))
        if len(points.shape) == 1 and not together:
            points = points.reshape(-1, len(self.grid))
        shape, points = points.shape[:-1], points.reshape(-1, points.shape[-1])
        columns = [to_float(v) for v in arrays(points, *self.grid)]
        grid, coordinates = columns[1:], [columns[0][:, axis] for axis in range(len(columns) - 1)]
        outside: Any = False
        for x, knots in zip(coordinates, grid):
            outside = outside | (x < knots[0]) | (x > knots[-1])
        if self._strict and bool(np.any(outside)):
            raise ValueError("One of the requested xi is out of bounds")
        total = (
            _by_splines(coordinates, grid, values, METHODS[method])
            if METHODS[method]
            else _by_corners(coordinates, grid, values, method)
        )
        trailing = values.shape[len(grid) :]
        if self._fill is not None:
            total = np.where(outside.reshape(-1, *(1,) * len(trailing)), self._fill, total)
        return total.reshape(*shape, *trailing)


# The spline degree of each method; 0 for methods without splines.
METHODS = {"linear": 0, "nearest": 0, "slinear": 1, "cubic": 3, "quintic": 5}


def _by_corners(coordinates: Sequence[Array], grid: Sequence[Array], values: Array, method: str) -> Array:
    corners: list[tuple[Any, Any]] = [(0, 1.0)]
    for x, knots in zip(coordinates, grid):
        n = knots.shape[0]
        interval = np.clip(searchsorted(knots, x, right=True) - 1, 0, n - 2)
        share = (x - np.take(knots, interval)) / (np.take(knots, interval + 1) - np.take(knots, interval))
        if method == "nearest":
            corners = [(at * n + interval + np.where(share <= 0.5, 0, 1), 1.0) for at, _ in corners]
            continue
        corners = [
            (at * n + interval + up, weight * (share if up else 1.0 - share)) for at, weight in corners for up in (0, 1)
        ]
    trailing = values.shape[len(grid) :]
    table = values.reshape(-1, *trailing)
    total: Any = 0.0
    for at, weight in corners:
        total = total + np.take(table, at, axis=0) * np.reshape(weight, (-1, *(1,) * len(trailing)))
    result: Array = total
    return result


def _by_splines(coordinates: Sequence[Array], grid: Sequence[Array], values: Array, degree: int) -> Array:
    """Interpolate by tensor-product splines: the weight of a value is the product of its weights along the axes."""
    total: Any = None
    for x, knots in zip(coordinates, grid):
        count = make_interp_spline(knots, np.eye(knots.shape[0]), degree)(x)
        if total is None:
            total = np.tensordot(count, values, axes=(1, 0))
        else:
            total = np.sum(count.reshape(*count.shape, *(1,) * (len(total.shape) - 2)) * total, axis=1)
    result: Array = total
    return result


@shadow("scipy.interpolate.RegularGridInterpolator")
def regular_grid(
    points: Sequence[ArrayLike],
    values: Array,
    method: str = "linear",
    bounds_error: bool = True,
    fill_value: float | None = np.nan,
    **others: object,
) -> GridInterpolator:
    """`scipy.interpolate.RegularGridInterpolator` through traced values.

    Splines interpolate the values to machine precision; SciPy's own solver stops at a relative error of about 1e-5.
    """
    if method not in METHODS:
        raise refuse(f"scipy.interpolate.RegularGridInterpolator with method={method!r} through traced values")
    return GridInterpolator(points, values, bounds_error, fill_value, method)


@shadow("scipy.interpolate.interpn")
def interpn(
    points: Sequence[ArrayLike],
    values: Array,
    xi: ArrayLike,
    method: str = "linear",
    bounds_error: bool = True,
    fill_value: float | None = np.nan,
) -> Array:
    """`scipy.interpolate.interpn`"""
    if method not in METHODS:
        raise refuse(f"scipy.interpolate.interpn with method={method!r}")
    return GridInterpolator(points, values, bounds_error, fill_value, method)(xi)
