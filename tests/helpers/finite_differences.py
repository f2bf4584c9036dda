"""Approximate derivatives by central differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["derivative_along", "gradient_of"]


def derivative_along(function: Callable[..., Any], point: list[Any], direction: list[Any], step: float = 1e-5) -> Any:
    """The derivative along a direction, by differences of the fourth order; arguments whose direction is None stay."""

    def at(t: float) -> Any:
        return np.asarray(function(*[x if d is None else x + t * d for x, d in zip(point, direction)]))

    return (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step)


def gradient_of(f: Callable[[Any], Any], p: Any, step: float = 1e-6) -> Any:
    """The gradient of a function of a vector, by differences of the second order."""
    result = np.zeros_like(p)
    for k in range(p.size):
        e = np.zeros_like(p)
        e[k] = step
        result[k] = (f(p + e) - f(p - e)) / (2 * step)
    return result
