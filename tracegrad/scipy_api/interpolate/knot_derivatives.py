"""Slopes of curves at their knots, which make them monotone (`PchipInterpolator`) or keep an outlier to itself
(`Akima1DInterpolator`), and the cubics that have them."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["akima", "hermite", "pchip"]


def _gaps(x: Any, y: Any) -> Any:
    """The distances between knots, as a column for values `y`."""
    return (x[1:] - x[:-1]).reshape(-1, *(1,) * (len(y.shape) - 1))


def hermite(x: Any, y: Any, slopes: Any) -> Any:
    """The coefficients of the cubics with these values and slopes at both ends, the highest power first."""
    h = _gaps(x, y)
    mean = (y[1:] - y[:-1]) / h
    bend = (slopes[:-1] + slopes[1:] - 2.0 * mean) / h
    return np.stack([bend / h, (mean - slopes[:-1]) / h - bend, slopes[:-1], y[:-1]])


def pchip(x: Any, y: Any) -> Any:
    """The slopes of F. N. Fritsch and J. Butland, "A method for constructing local monotone piecewise cubic
    interpolants" (1984): the weighted harmonic mean of those on both sides, 0 where these differ in sign."""
    h = _gaps(x, y)
    m = (y[1:] - y[:-1]) / h
    if y.shape[0] == 2:
        return np.concatenate([m, m])
    left, right = m[:-1], m[1:]
    flat = left * right <= 0
    a, b = 2.0 * h[1:] + h[:-1], h[1:] + 2.0 * h[:-1]
    safe = [np.where(flat, 1.0, v) for v in (left, right)]
    inner = np.where(flat, 0.0, (a + b) / (a / safe[0] + b / safe[1]))
    ends = [_end(h[i], h[j], m[i], m[j])[None] for i, j in ((0, 1), (-1, -2))]
    return np.concatenate([ends[0], inner, ends[1]])


def _end(h: Any, g: Any, m: Any, n: Any) -> Any:
    """The slope at an end, of the parabola through three points, kept to the shape: `m` is that of the last piece."""
    found = ((2.0 * h + g) * m - h * n) / (h + g)
    steep = (np.sign(m) != np.sign(n)) & (np.abs(found) > 3.0 * np.abs(m))
    return np.where(np.sign(found) != np.sign(m), 0.0, np.where(steep, 3.0 * m, found))


def akima(x: Any, y: Any, modified: bool) -> Any:
    """The slopes of H. Akima, "A new method of interpolation and smooth curve fitting based on local procedures"
    (1970), or those that MATLAB calls modified."""
    m = (y[1:] - y[:-1]) / _gaps(x, y)
    if y.shape[0] == 2:
        return np.concatenate([m, m])
    before: list[Any] = []
    after: list[Any] = []
    a, b = m[0], m[1]
    for _ in range(2):
        a, b = 2.0 * a - b, a
        before.insert(0, a[None])
    a, b = m[-1], m[-2]
    for _ in range(2):
        a, b = 2.0 * a - b, a
        after.append(a[None])
    m = np.concatenate([*before, m, *after])
    changes = np.abs(m[1:] - m[:-1])
    if modified:
        changes = changes + 0.5 * np.abs(m[1:] + m[:-1])
    right, left = changes[2:], changes[:-2]
    total = right + left
    known = total > 1e-9 * np.max(total)
    share = left / np.where(known, total, 1.0)
    return np.where(known, m[1:-2] + share * (m[2:-1] - m[1:-2]), 0.5 * (m[3:] + m[:-3]))
