"""Integrals of samples, of `scipy.integrate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracegrad.numpy_api.operands import arrays, to_float
from tracegrad.numpy_api.registry import refuse
from tracegrad.numpy_api.shapes import moveaxis
from tracegrad.scipy_api.registry import shadow

if TYPE_CHECKING:
    from tracegrad.typing import Array, ArrayLike


def _samples(y: ArrayLike, x: ArrayLike | None, dx: float, axis: int) -> tuple[Array, ...]:
    """Return the samples with the axis last, and the gaps between them: an array, or one number."""
    if x is None:
        y, spacings = (to_float(v) for v in arrays(y, dx))
        return moveaxis(y, axis, -1), spacings
    y, x = (to_float(v) for v in arrays(y, x))
    spacings = x[1:] - x[:-1] if len(x.shape) == 1 else moveaxis(x, axis, -1)[..., 1:] - moveaxis(x, axis, -1)[..., :-1]
    return moveaxis(y, axis, -1), spacings


@shadow("scipy.integrate.trapezoid")
def trapezoid(y: ArrayLike, x: ArrayLike | None = None, dx: float = 1.0, axis: int = -1) -> Array:
    """`scipy.integrate.trapezoid`"""
    y, spacings = _samples(y, x, dx, axis)
    result: Array = np.sum(spacings * (y[..., 1:] + y[..., :-1]) * 0.5, axis=-1)
    return result


@shadow("scipy.integrate.cumulative_trapezoid")
def cumulative_trapezoid(
    y: ArrayLike, x: ArrayLike | None = None, dx: float = 1.0, axis: int = -1, initial: object = None
) -> Array:
    """`scipy.integrate.cumulative_trapezoid`"""
    if initial not in (None, 0):
        raise refuse("scipy.integrate.cumulative_trapezoid with another initial= than 0")
    y, spacings = _samples(y, x, dx, axis)
    result = np.cumsum(spacings * (y[..., 1:] + y[..., :-1]) * 0.5, axis=-1)
    if initial is not None:
        result = np.concatenate([np.zeros((*result.shape[:-1], 1), result.dtype), result], axis=-1)
    return moveaxis(result, -1, axis)


@shadow("scipy.integrate.simpson")
def simpson(y: ArrayLike, x: ArrayLike | None = None, *, dx: float = 1.0, axis: int = -1) -> Array:
    """`scipy.integrate.simpson`.

    The correction for an even number of samples is by K. Cartwright, "Simpson's rule cumulative integration with MS
    Excel and irregularly-spaced data" (2017).
    """
    y, spacings = _samples(y, x, dx, axis)
    n = y.shape[-1]
    if not spacings.shape:
        spacings = spacings * np.ones(n - 1)
    if n < 3:
        output: Array = np.sum(spacings * (y[..., 1:] + y[..., :-1]) * 0.5, axis=-1)
        return output
    result = _parabolas(y[..., : n - 1 + n % 2], spacings[..., : n - 2 + n % 2])
    if n % 2:
        return result
    h, g = spacings[..., -1], spacings[..., -2]
    result = result + y[..., -1] * (2.0 * h * h + 3.0 * g * h) / (6.0 * (g + h))
    result = result + y[..., -2] * (h * h + 3.0 * g * h) / (6.0 * g)
    return result - y[..., -3] * h**3 / (6.0 * g * (g + h))


def _parabolas(y: Array, spacings: Array) -> Array:
    """Integrate the parabolas through three samples each, and sum the integrals."""
    g, h = spacings[..., 0::2], spacings[..., 1::2]
    both = g + h
    first = y[..., 0:-2:2] * (2.0 - h / g) + y[..., 1:-1:2] * (both * both / (g * h)) + y[..., 2::2] * (2.0 - g / h)
    result: Array = np.sum(both / 6.0 * first, axis=-1)
    return result


@shadow("scipy.integrate.romb")
def romb(y: ArrayLike, dx: float = 1.0, axis: int = -1, show: bool = False) -> Array:
    """`scipy.integrate.romb`, which shows no table."""
    if show:
        raise refuse("the argument show= of scipy.integrate.romb")
    y, spacing = _samples(y, None, dx, axis)
    step = y.shape[-1] - 1
    if step < 1 or step & (step - 1):
        raise ValueError("Number of samples must be one plus a non-negative power of 2.")
    estimates = [(y[..., 0] + y[..., -1]) * 0.5 * (step * spacing)]
    while step > 1:
        inner, step = y[..., step // 2 :: step], step // 2
        finer = [0.5 * estimates[0] + (step * spacing) * np.sum(inner, axis=-1)]
        for k, coarse in enumerate(estimates, 1):
            finer.append(finer[-1] + (finer[-1] - coarse) / (4.0**k - 1.0))
        estimates = finer
    return estimates[-1]


@shadow("scipy.integrate.cumulative_simpson")
def cumulative_simpson(
    y: ArrayLike, *, x: ArrayLike | None = None, dx: float = 1.0, axis: int = -1, initial: ArrayLike | None = None
) -> Array:
    """`scipy.integrate.cumulative_simpson`"""
    y, spacings = _samples(y, x, dx, axis)
    n = y.shape[-1]
    spacings = moveaxis(spacings, axis, -1) if x is None and spacings.shape else spacings
    spacings = np.broadcast_to(spacings, (*y.shape[:-1], n - 1))
    if n < 3:
        areas = spacings * (y[..., 1:] + y[..., :-1]) * 0.5
    else:
        forward = _first_of_two(y, spacings)
        backward = np.flip(_first_of_two(np.flip(y, -1), np.flip(spacings, -1)), -1)
        early = np.arange(n - 1) % 2 == 0
        early[-1] = False  # no parabola begins at the last interval
        end = [(0, 0)] * (len(y.shape) - 1)
        areas = np.where(early, np.pad(forward, [*end, (0, 1)]), np.pad(backward, [*end, (1, 0)]))
    result = np.cumsum(areas, axis=-1)
    if initial is not None:
        first = moveaxis(to_float(arrays(initial, result)[0]) * np.ones((1,) * len(y.shape)), axis, -1)
        first = np.broadcast_to(first, (*result.shape[:-1], 1))
        result = np.concatenate([first, result + first], axis=-1)
    return moveaxis(result, -1, axis)


def _first_of_two(y: Array, spacings: Array) -> Array:
    """Integrate the parabolas through three samples over the first of their two intervals."""
    g, h = spacings[..., :-1], spacings[..., 1:]
    share = g / (g + h)
    bend = share * g / h
    return g / 6.0 * ((3.0 - share) * y[..., :-2] + (3.0 + bend + share) * y[..., 1:-1] - bend * y[..., 2:])
