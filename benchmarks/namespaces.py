"""One name for each function that NumPy, JAX, PyTorch, PyTensor and HIPS autograd name differently.

A workload is one function of an array namespace `xp`. If a peer has its own function for a task, as a scan for a loop,
it is used: a peer is called as its own users call it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special

__all__ = [
    "added_inside",
    "convolved",
    "drawn",
    "erf",
    "kind",
    "largest",
    "logsumexp",
    "relu",
    "repeated",
    "sizes",
    "solved_lower",
]


def drawn(seed: int, *shape: int, dtype: str = "float64") -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def kind(xp: Any) -> str:
    """The package of a namespace."""
    return str(xp.__name__).partition(".")[0]


def sizes(x: Any) -> tuple[int, ...]:
    """The shape, as numbers; PyTensor's `x.shape` is a symbol."""
    return x.type.shape if hasattr(x, "owner") else x.shape  # type: ignore[no-any-return]


def largest(x: Any, axis: Any) -> Any:
    """The greatest of each row, which keeps its axis."""
    return x.amax(axis, True) if hasattr(x, "amax") else x.max(axis=axis, keepdims=True)


def relu(xp: Any, x: Any) -> Any:
    return xp.maximum(x, 0.0 * x)


def logsumexp(xp: Any, x: Any) -> Any:
    top = largest(x, -1)
    return top[..., 0] + xp.log(xp.sum(xp.exp(x - top), -1))


def erf(xp: Any, x: Any) -> Any:
    match kind(xp):
        case "torch":
            return xp.special.erf(x)
        case "pytensor":
            return xp.erf(x)
        case "jax":
            return importlib.import_module("jax.scipy.special").erf(x)
        case "autograd":
            return importlib.import_module("autograd.scipy.special").erf(x)
    return scipy.special.erf(x)


def solved_lower(xp: Any, lower: Any, y: Any) -> Any:
    """The x for which `lower @ x` is y."""
    match kind(xp):
        case "torch":
            return xp.linalg.solve_triangular(lower, y[:, None], upper=False)[:, 0]
        case "jax":
            return importlib.import_module("jax.scipy.linalg").solve_triangular(lower, y, lower=True)
        case "pytensor":
            return importlib.import_module("pytensor.tensor.slinalg").solve_triangular(lower, y, lower=True)
    return xp.linalg.solve(lower, y)


def convolved(xp: Any, x: Any, w: Any) -> Any:
    """Images (n, height, width, channels) by windows (height, width, channels, new channels), without padding."""
    match kind(xp):
        case "torch":
            moved = xp.nn.functional.conv2d(x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1))
            return moved.permute(0, 2, 3, 1)
        case "jax":
            lax = importlib.import_module("jax.lax")
            return lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    (_, height, width, _), (rows, columns, _, _) = sizes(x), sizes(w)
    height, width = height - rows + 1, width - columns + 1
    return sum(x[:, i : i + height, j : j + width] @ w[i, j] for i in range(rows) for j in range(columns))


def repeated(xp: Any, iteration: Callable[[Any, Any], tuple[Any, ...]], state: tuple[Any, ...], rows: Any) -> Any:
    """The state after an iteration with each of the rows: a Python loop, or the scan of those who have one."""
    match kind(xp):
        case "jax":
            lax = importlib.import_module("jax.lax")
            return lax.scan(lambda state, row: (iteration(state, row), None), state, rows)[0]
        case "pytensor":
            scan = importlib.import_module("pytensor").scan
            result = scan(lambda row, *state: iteration(state, row), [rows], list(state), return_updates=False)
            return tuple(x[-1] for x in (result if isinstance(result, list | tuple) else [result]))
    for row in rows:
        state = iteration(state, row)
    return state


def added_inside(xp: Any, u: Any, change: Any) -> Any:
    """A matrix to whose inner elements something is added; in place where a peer has that."""
    inside = (slice(1, -1), slice(1, -1))
    match kind(xp):
        case "jax":
            return u.at[inside].add(change)
        case "pytensor":
            return xp.inc_subtensor(u[inside], change)
        case "autograd":
            return u + xp.pad(change, 1, mode="constant")
    u[inside] += change
    return u
