"""The derivative of a function along a direction, by differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def slope(function: Callable[..., Any], point: list[Any], direction: list[Any], step: float = 1e-5) -> Any:
    """The derivative along a direction, by differences of the fourth order."""

    def at(t: float) -> Any:
        return np.asarray(function(*[x if d is None else x + t * d for x, d in zip(point, direction)]))

    return (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step)
