"""Sample operands for the table-driven tests: small, reproducible, of every relevant shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tracegrad.typing import NDArray


def uniform(shape: tuple[int, ...], low: float = -2.0, high: float = 2.0, seed: int = 0, dtype: str = "float64") -> Any:
    """Reals drawn uniformly from [low, high)."""
    return np.random.default_rng(seed + 17 * len(shape)).uniform(low, high, shape).astype(dtype)


def integers(shape: tuple[int, ...], low: int, high: int, seed: int = 0, dtype: str = "int64") -> Any:
    """Integers drawn uniformly from [low, high)."""
    return np.random.default_rng(seed + 31 * len(shape)).integers(low, high, shape).astype(dtype)


def integer_pairs() -> Iterator[tuple[tuple[NDArray, NDArray], dict[str, Any]]]:
    """Pairs of integer arrays of several dtypes, without parameters."""
    for dtype in ("int64", "int8", "uint32"):
        low = 0 if dtype[0] == "u" else -100
        yield (integers((3, 4), low, 100, dtype=dtype), integers((3, 4), low, 70, seed=1, dtype=dtype)), {}
    yield (integers((20,), -9, 9), integers((20,), 0, 9, seed=1)), {}
