"""Limits of derivatives of functions of numbers, from differences of plain NumPy's and SciPy's values.

A derivative from one side is that of the polynomial through six values on that side, none at the point itself; it
counts where two distances say the same. At infinity it is the difference over a thousandth, ever further out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

import tracegrad as tg

Function = Callable[..., Any]
NODES = np.arange(1.0, 7.0)


def _coefficients(order: int) -> Any:
    wanted = np.zeros(len(NODES))
    wanted[order] = math.factorial(order)
    return np.linalg.solve(np.vander(NODES, increasing=True).T, wanted)


COEFFICIENTS = {order: _coefficients(order) for order in (1, 2)}
DISTANCES = {1: (1.6e-2, 1e-2, 2e-3), 2: (3e-2, 1.6e-2, 6e-3)}
TOLERANCE = {1: 2e-4, 2: 5e-3}


def moved(xs: Sequence[Any], i: int, x: Any) -> list[Any]:
    return [x if k == i else other for k, other in enumerate(xs)]


def from_side(f: Function, xs: Sequence[Any], i: int, sign: int, order: int) -> tuple[Any, Any]:
    """The limits, nan where it cannot be said; and where the function has values."""

    def at(h: float) -> Any:
        terms = [c * f(*moved(xs, i, xs[i] + sign * h * k)) for k, c in zip(NODES, COEFFICIENTS[order])]
        return sum(terms) * sign**order / h**order

    far, middle, near = map(at, DISTANCES[order])
    size = np.maximum(1.0, np.abs(middle))
    same = (np.abs(middle - near) < TOLERANCE[order] / 2 * size) & (np.abs(far - middle) < 20 * TOLERANCE[order] * size)
    grows = ~same & (np.abs(near) > 1.15 * np.abs(middle)) & (np.abs(middle) > 1.02 * np.abs(far))
    return np.where(grows, np.sign(near) * np.inf, np.where(same, middle, np.nan)), np.isfinite(near)


def at_infinity(f: Function, xs: Sequence[Any], i: int, order: int) -> Any:
    def at(size: float) -> Any:
        base, step = np.where(xs[i] > 0, size, -size), 1e-3
        low, middle, high = (f(*moved(xs, i, base * (1 + k * step))) for k in (-1, 0, 1))
        return (high - low) / (2 * step * base) if order == 1 else (high - 2 * middle + low) / (step * base) ** 2

    further, last = map(at, (1e3, 1e4))
    vanishes = (np.abs(last) < np.abs(further) / 5) | (np.abs(last) < 1e-12)
    stays = np.abs(further - last) < 1e-6 * np.maximum(np.abs(last), 1e-6)
    return np.where(vanishes, 0.0, np.where(stays, last, np.nan))


class Faults(NamedTuple):
    """Where a derivative is finite and not a limit, and where it is nan or infinite though there is a finite one."""

    wrong: list[Any]
    none: list[Any]


def sides(f: Function, xs: Sequence[Any], i: int, order: int) -> tuple[Any, Any, Any, Any]:
    far = np.isinf(xs[i])
    outer = at_infinity(f, xs, i, order) if far.any() else np.nan
    (left, has_left), (right, has_right) = (from_side(f, xs, i, sign, order) for sign in (-1, 1))
    left, right = (np.where(far, outer, side) for side in (left, right))
    return left, has_left | far, right, has_right | far


def derivatives(f: Function, xs: Sequence[Any], i: int, order: int) -> list[Any]:
    """In reverse and in forward mode, without compilation."""

    def of(x: Any) -> Any:
        return f(*moved(xs, i, x))

    x = xs[i]
    with tg.disable_jit():
        derivative = tg.grad(lambda x: np.sum(of(x)))
        if order == 1:
            return [derivative(x), tg.jvp(of, (x,), (np.ones_like(x),))[1]]
        return [tg.grad(lambda x: np.sum(derivative(x)))(x), tg.jvp(derivative, (x,), (np.ones_like(x),))[1]]


def faults(f: Function, xs: Sequence[Any], i: int, order: int, ways: list[Any] | None = None) -> Faults:
    """Of points that are columns; a corner may have the derivative of either side, or the mean of both."""
    ways = derivatives(f, xs, i, order) if ways is None else ways
    value = f(*xs)
    left, has_left, right, has_right = sides(f, xs, i, order)
    known_left, known_right = ~np.isnan(left) & has_left, ~np.isnan(right) & has_right
    tolerance = TOLERANCE[order]

    def close(x: Any, y: Any) -> Any:
        return np.isclose(x, y, rtol=tolerance, atol=tolerance) | (np.isinf(x) & (x == y))

    smooth = close(left, right)
    is_limit = (known_left & np.isfinite(left) & (~has_right | smooth)) | (
        known_right & np.isfinite(right) & (~has_left | smooth)
    )
    wrong, none = np.zeros(value.shape, bool), np.zeros(value.shape, bool)
    for x in ways:
        x = np.broadcast_to(x, value.shape)
        right_one = (known_left & close(x, left)) | (known_right & close(x, right)) | close(x, (left + right) / 2)
        wrong |= (known_left | known_right) & np.isfinite(value) & np.isfinite(x) & ~right_one
        none |= is_limit & np.isfinite(value) & ~np.isfinite(x)
    points = list(zip(*[x.tolist() for x in xs]))
    return Faults(*[[p for p, is_one in zip(points, where) if is_one] for where in (wrong, none)])


def product(*columns: Iterable[float]) -> list[Any]:
    return list(np.array(list(itertools.product(*columns)), float).T.copy())


def star(bases: Iterable[Sequence[float]], columns: Sequence[Iterable[float]]) -> list[Any]:
    """The bases, with one coordinate at a time from its column."""
    points = {tuple(moved(b, i, v)) for b in bases for i, column in enumerate(columns) for v in column}
    return list(np.array(sorted(points), float).T.copy())
