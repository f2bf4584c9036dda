"""A line search for the strong Wolfe conditions, by cubic interpolation.

The source is Nocedal and Wright, Numerical Optimization, algorithms 3.5 and 3.6; where the interval is cut and when it
is given up is as in PyTorch's LBFGS, so that both make the same steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["Point", "search"]

ENOUGH, FLAT = 1e-4, 0.9  # the constants of the two conditions
SHORT = 1e-9  # an interval in which nothing moves by more is not searched


class Point(NamedTuple):
    """A place on the line: the step, the loss, the gradient, and the slope along the line."""

    t: float
    loss: float
    gradient: Any
    slope: float


def search(at: Callable[[float], Point], start: Point, t: float, longest: float, most: int) -> tuple[Point, int]:
    """The point that is taken, and how often the function `at` was called.

    `start` is the point at 0, `t` the first step, `longest` the greatest element of the direction; `most`
    evaluations follow the first.
    """
    bracket, turns = _bracket(at, start, t, most)
    if len(bracket) == 1:
        return bracket[0], turns + 1
    return _zoom(at, start, bracket, turns, most, longest)


def _falls(new: Point, start: Point) -> bool:
    return new.loss <= start.loss + ENOUGH * new.t * start.slope


def _is_flat(new: Point, start: Point) -> bool:
    return abs(new.slope) <= -FLAT * start.slope


def _bracket(at: Callable[[float], Point], start: Point, t: float, most: int) -> tuple[list[Point], int]:
    """Two points with a good one between them, or a good one."""
    before, new, turns = start, at(t), 0
    while turns < most:
        if not _falls(new, start) or (turns > 1 and new.loss >= before.loss):
            return [before, new], turns
        if _is_flat(new, start):
            return [new], turns
        if new.slope >= 0:
            return [before, new], turns
        t = _lowest(before, new, (new.t + 0.01 * (new.t - before.t), new.t * 10))
        before, new = new, at(t)
        turns += 1
    return [start, new], turns


def _zoom(
    at: Callable[[float], Point], start: Point, bracket: list[Point], turns: int, most: int, longest: float
) -> tuple[Point, int]:  # fmt: skip
    """The point that is found between two."""
    low, high = sorted(bracket, key=lambda point: point.loss)
    stuck = False
    while turns < most:
        if abs(high.t - low.t) * longest < SHORT:
            break
        t, stuck = _inside(_lowest(bracket[0], bracket[1]), low, high, stuck)
        new = at(t)
        turns += 1
        if not _falls(new, start) or new.loss >= low.loss:
            bracket[_place(bracket, high)] = new
            low, high = sorted(bracket, key=lambda point: point.loss)
            continue
        if _is_flat(new, start):
            return new, turns + 1
        place = _place(bracket, low)
        if new.slope * (high.t - low.t) >= 0:
            bracket[1 - place] = high = low
        bracket[place] = low = new
    return low, turns + 1


def _place(bracket: list[Point], point: Point) -> int:
    return int(bracket[0] is not point)


def _inside(t: float, low: Point, high: Point, stuck: bool) -> tuple[float, bool]:
    """`t`, or a place further from the ends where it was near one twice."""
    first, last = min(low.t, high.t), max(low.t, high.t)
    margin = 0.1 * (last - first)
    if min(last - t, t - first) >= margin:
        return t, False
    if stuck or t >= last or t <= first:
        return (last - margin if abs(t - last) < abs(t - first) else first + margin), False
    return t, True


def _lowest(a: Point, b: Point, bounds: tuple[float, float] | None = None) -> float:
    """Where the cubic through two points with their slopes is least, within bounds."""
    low, high = bounds or (min(a.t, b.t), max(a.t, b.t))
    if a.t == b.t:
        return a.t
    mean = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = mean * mean - a.slope * b.slope
    if not square >= 0:
        return (low + high) / 2.0
    root = math.sqrt(square)
    left, right = (a, b) if a.t <= b.t else (b, a)
    under = right.slope - left.slope + 2 * root
    if under == 0:
        return (low + high) / 2.0
    return min(max(right.t - (right.t - left.t) * ((right.slope + root - mean) / under), low), high)
