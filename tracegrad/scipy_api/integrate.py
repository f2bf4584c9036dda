"""`scipy.integrate`: integrals of samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.numpy_api.operands import arrays, to_float
from tracegrad.numpy_api.registry import refuse
from tracegrad.scipy_api.registry import shadow

__all__: list[str] = []


def _samples(y: Any, x: Any, dx: Any, axis: int) -> tuple[Any, Any]:
    """Samples with the axis last, and the gaps between them: an array, or a number for all."""
    if x is None:
        y, gaps = (to_float(v) for v in arrays(y, dx))
        return np.moveaxis(y, axis, -1), gaps
    y, x = (to_float(v) for v in arrays(y, x))
    gaps = (
        x[1:] - x[:-1] if len(x.shape) == 1 else np.moveaxis(x, axis, -1)[..., 1:] - np.moveaxis(x, axis, -1)[..., :-1]
    )
    return np.moveaxis(y, axis, -1), gaps


@shadow("scipy.integrate.trapezoid")
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    """`scipy.integrate.trapezoid`"""
    y, gaps = _samples(y, x, dx, axis)
    return np.sum(gaps * (y[..., 1:] + y[..., :-1]) * 0.5, axis=-1)


@shadow("scipy.integrate.cumulative_trapezoid")
def cumulative_trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1, initial: Any = None) -> Any:
    """`scipy.integrate.cumulative_trapezoid`"""
    if initial not in (None, 0):
        raise refuse("scipy.integrate.cumulative_trapezoid with another initial= than 0")
    y, gaps = _samples(y, x, dx, axis)
    found = np.cumsum(gaps * (y[..., 1:] + y[..., :-1]) * 0.5, axis=-1)
    if initial is not None:
        found = np.concatenate([np.zeros((*found.shape[:-1], 1), found.dtype), found], axis=-1)
    return np.moveaxis(found, -1, axis)


@shadow("scipy.integrate.simpson")
def simpson(y: Any, x: Any = None, *, dx: Any = 1.0, axis: int = -1) -> Any:
    """`scipy.integrate.simpson`, with the correction of an even number of samples by K. Cartwright, "Simpson's rule
    cumulative integration with MS Excel and irregularly-spaced data" (2017)."""
    y, gaps = _samples(y, x, dx, axis)
    n = y.shape[-1]
    if not gaps.shape:
        gaps = gaps * np.ones(n - 1)
    if n < 3:
        return np.sum(gaps * (y[..., 1:] + y[..., :-1]) * 0.5, axis=-1)
    found = _parabolas(y[..., : n - 1 + n % 2], gaps[..., : n - 2 + n % 2])
    if n % 2:
        return found
    h, g = gaps[..., -1], gaps[..., -2]
    found = found + y[..., -1] * (2.0 * h * h + 3.0 * g * h) / (6.0 * (g + h))
    found = found + y[..., -2] * (h * h + 3.0 * g * h) / (6.0 * g)
    return found - y[..., -3] * h**3 / (6.0 * g * (g + h))


def _parabolas(y: Any, gaps: Any) -> Any:
    """The sum of the integrals of the parabolas through three samples each."""
    g, h = gaps[..., 0::2], gaps[..., 1::2]
    both = g + h
    first = y[..., 0:-2:2] * (2.0 - h / g) + y[..., 1:-1:2] * (both * both / (g * h)) + y[..., 2::2] * (2.0 - g / h)
    return np.sum(both / 6.0 * first, axis=-1)
