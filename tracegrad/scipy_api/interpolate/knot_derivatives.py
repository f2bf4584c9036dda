"""Knot derivatives of cubic Hermite interpolants: `PchipInterpolator` (monotone) and `Akima1DInterpolator`.

Akima's derivatives limit the effect of an outlier to its neighbourhood.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.typing import Array


def _spacings(x: Array, y: Array) -> Array:
    """Return the distances between knots, as a column for values `y`."""
    return (x[1:] - x[:-1]).reshape(-1, *(1,) * (len(y.shape) - 1))


def hermite(x: Array, y: Array, derivatives: Array) -> Array:
    """Return the coefficients of cubics with these values and derivatives at both ends, highest power first."""
    h = _spacings(x, y)
    mean = (y[1:] - y[:-1]) / h
    bend = (derivatives[:-1] + derivatives[1:] - 2.0 * mean) / h
    return np.stack([bend / h, (mean - derivatives[:-1]) / h - bend, derivatives[:-1], y[:-1]])


def pchip(x: Array, y: Array) -> Array:
    """Compute derivatives by F. N. Fritsch and J. Butland: weighted harmonic means, 0 at sign changes.

    "A method for constructing local monotone piecewise cubic interpolants" (1984).
    """
    h = _spacings(x, y)
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


def _end(h: Array, g: Array, m: Array, n: Array) -> Array:
    """Compute the end derivative of the parabola through three points, limited to preserve the shape.

    `m` is the difference quotient of the last piece.
    """
    result = ((2.0 * h + g) * m - h * n) / (h + g)
    steep = (np.sign(m) != np.sign(n)) & (np.abs(result) > 3.0 * np.abs(m))
    return np.where(np.sign(result) != np.sign(m), 0.0, np.where(steep, 3.0 * m, result))


def akima(x: Array, y: Array, modified: bool) -> Array:
    """Compute derivatives by H. Akima, or by MATLAB's modification ("makima").

    "A new method of interpolation and smooth curve fitting based on local procedures" (1970).
    """
    m = (y[1:] - y[:-1]) / _spacings(x, y)
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
    result: Array = np.where(known, m[1:-2] + share * (m[2:-1] - m[1:-2]), 0.5 * (m[3:] + m[:-3]))
    return result
