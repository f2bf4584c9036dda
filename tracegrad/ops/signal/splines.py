"""Compute spline coefficients; imported on first use."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.errors import ShapeError, UnsupportedError, located
from tracegrad.ops.core.op import Op, ResultAvals
from tracegrad.typing import Array


def _computed(x: Array, *, kind: str, degree: int, ends: str, size: int) -> tuple[Array, ...]:
    """The spline that SciPy makes for `size` values at `x`: the coefficients of each piece per value, `[power, piece,
    value]`, the highest power first, and the begins and ends of the pieces.

    `kind` is SciPy's name of it, `ends` the boundary conditions; "1|2" means prescribed derivatives of these orders.
    """
    import scipy.interpolate as of

    unit = np.eye(size)
    if kind == "BSpline":
        return piecewise_coefficients(of.BSpline(x, unit, degree))
    if kind == "make_interp_spline":
        return piecewise_coefficients(of.make_interp_spline(x, unit, degree, bc_type=ends or None))
    if ends == "periodic":  # the values at both ends are equal
        unit[-1] = unit[0]
    conditions: Any = ends
    if "|" in ends:  # the boundary values follow the values at the knots
        conditions = [(int(k), row) if k.isdigit() else k for k, row in zip(ends.split("|"), unit[-2:])]
        unit = unit[:-2]
    result = of.CubicSpline(x, unit, bc_type=conditions)
    return result.c.astype(np.float64), result.x.astype(np.float64)


# This op is not in the table, because code that iterates over the table differentiates each op. Traces with this op are
# not stored on disk.
spline_map = Op("spline_map", ("x",), _computed, _computed.__doc__ or "", variadic=False, listed=False)


def piecewise_coefficients(spline: Any) -> tuple[Any, Any]:
    """The coefficients of a SciPy `BSpline` by pieces, which begin at its knots; some are empty."""
    powers, k = range(spline.k, -1, -1), spline.k
    knots = spline.t[k : len(spline.t) - k]  # SciPy extrapolates outside the knots
    return np.stack([spline(knots[:-1], nu=m) / math.factorial(m) for m in powers]), knots.astype(np.float64)


@spline_map.def_aval
def _(x: Aval, *, kind: str, degree: int, ends: str, size: int) -> ResultAvals:
    if x.ndim != 1 or (
        x.shape[0] != size + degree + 1 if kind == "BSpline" else x.shape[0] != size - 2 * ("|" in ends)
    ):
        raise ShapeError(f"{kind} of {size} values at {x}")
    shapes = _shapes(x.shape[0], kind, degree, ends, size)
    return ResultAvals([Aval(shape, np.dtype(np.float64)) for shape in shapes])


@functools.lru_cache(maxsize=256)
def _shapes(n: int, kind: str, degree: int, ends: str, size: int) -> tuple[tuple[int, ...], ...]:
    """The shapes of the results, which are the same for other positions."""
    result: Any = _computed(np.arange(float(n)), kind=kind, degree=degree, ends=ends, size=size)
    return tuple([x.shape for x in result])


@spline_map.def_vjp_all
def _(wanted: Sequence[int], cts: object, ans: Array, x: Array, *, kind: str, **params: object) -> list[Any]:
    raise UnsupportedError(
        located(f"scipy.interpolate.{kind} has no derivative in the places of its knots, only in values and points")
    )


@spline_map.def_batch
def _(size: int, batched: object, x: Array, **params: object) -> Any:
    raise UnsupportedError(located("splines at a batch of places of the knots are not supported"))
