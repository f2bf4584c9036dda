"""Line search for the strong Wolfe conditions, by cubic interpolation.

The source is Nocedal and Wright, Numerical Optimization, algorithms 3.5 and 3.6. The interval is
shortened, and the search stopped, as in PyTorch's LBFGS, so that both take the same steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["LinePoint", "search"]

ENOUGH, FLAT = 1e-4, 0.9  # constants of the conditions: sufficient decrease, curvature
SHORT = 1e-9  # the search stops if the interval moves no parameter by more


class LinePoint(NamedTuple):
    """Point on the line: the step, the loss, the gradient, and the derivative along the line."""

    t: float
    loss: float
    gradient: Any
    derivative: float


def search(
    at: Callable[[float], LinePoint], start: LinePoint, t: float, longest: float, max_evals: int
) -> tuple[LinePoint, int]:
    """Find the step; return its point, and the number of evaluations of the function `at`.

    `start` is the point at 0, `t` the first step, `longest` the greatest element of the direction; `max_evals`
    evaluations follow the first.
    """
    bracket, iterations = _bracket(at, start, t, max_evals)
    if len(bracket) == 1:
        return bracket[0], iterations + 1
    return _zoom(at, start, bracket, iterations, max_evals, longest)


def _falls(new: LinePoint, start: LinePoint) -> bool:
    return new.loss <= start.loss + ENOUGH * new.t * start.derivative


def _is_flat(new: LinePoint, start: LinePoint) -> bool:
    return abs(new.derivative) <= -FLAT * start.derivative


def _bracket(
    at: Callable[[float], LinePoint], start: LinePoint, t: float, max_evals: int
) -> tuple[list[LinePoint], int]:
    """Return two points with an acceptable point between them, or one acceptable point."""
    before, new, iterations = start, at(t), 0
    while iterations < max_evals:
        if not _falls(new, start) or (iterations > 1 and new.loss >= before.loss):
            return [before, new], iterations
        if _is_flat(new, start):
            return [new], iterations
        if new.derivative >= 0:
            return [before, new], iterations
        t = _lowest(before, new, (new.t + 0.01 * (new.t - before.t), new.t * 10))
        before, new = new, at(t)
        iterations += 1
    return [start, new], iterations


def _zoom(
    at: Callable[[float], LinePoint],
    start: LinePoint,
    bracket: list[LinePoint],
    iterations: int,
    max_evals: int,
    longest: float,
) -> tuple[LinePoint, int]:
    """Find an acceptable point between the two points of the bracket."""
    low, high = sorted(bracket, key=lambda point: point.loss)
    stuck = False
    while iterations < max_evals:
        if abs(high.t - low.t) * longest < SHORT:
            break
        t, stuck = _inside(_lowest(bracket[0], bracket[1]), low, high, stuck)
        new = at(t)
        iterations += 1
        if not _falls(new, start) or new.loss >= low.loss:
            bracket[_end_index(bracket, high)] = new
            low, high = sorted(bracket, key=lambda point: point.loss)
            continue
        if _is_flat(new, start):
            return new, iterations + 1
        end = _end_index(bracket, low)
        if new.derivative * (high.t - low.t) >= 0:
            bracket[1 - end] = high = low
        bracket[end] = low = new
    return low, iterations + 1


def _end_index(bracket: list[LinePoint], point: LinePoint) -> int:
    return int(bracket[0] is not point)


def _inside(t: float, low: LinePoint, high: LinePoint, stuck: bool) -> tuple[float, bool]:
    """Return `t`, or a point further from the ends if it is outside, or was near an end twice."""
    first, last = min(low.t, high.t), max(low.t, high.t)
    margin = 0.1 * (last - first)
    if min(last - t, t - first) >= margin:
        return t, False
    if stuck or t >= last or t <= first:
        return (last - margin if abs(t - last) < abs(t - first) else first + margin), False
    return t, True


def _lowest(a: LinePoint, b: LinePoint, bounds: tuple[float, float] | None = None) -> float:
    """Minimize the cubic through two points with their derivatives, within bounds."""
    low, high = bounds or (min(a.t, b.t), max(a.t, b.t))
    if a.t == b.t:
        return a.t
    mean = a.derivative + b.derivative - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = mean * mean - a.derivative * b.derivative
    if not square >= 0:
        return (low + high) / 2.0
    root = math.sqrt(square)
    left, right = (a, b) if a.t <= b.t else (b, a)
    under = right.derivative - left.derivative + 2 * root
    if under == 0:
        return (low + high) / 2.0
    return min(max(right.t - (right.t - left.t) * ((right.derivative + root - mean) / under), low), high)
