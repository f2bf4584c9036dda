"""Sample operands for the table-driven tests: small, reproducible, of every relevant shape."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["integers", "uniform"]


def uniform(shape: tuple[int, ...], low: float = -2.0, high: float = 2.0, seed: int = 0, dtype: str = "float64") -> Any:
    """Reals drawn uniformly from [low, high)."""
    return np.random.default_rng(seed + 17 * len(shape)).uniform(low, high, shape).astype(dtype)


def integers(shape: tuple[int, ...], low: int, high: int, seed: int = 0, dtype: str = "int64") -> Any:
    """Integers drawn uniformly from [low, high)."""
    return np.random.default_rng(seed + 31 * len(shape)).integers(low, high, shape).astype(dtype)
