"""Cotangents of broadcast operands, for user-defined rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["metadata", "unbroadcast", "unbroadcast_f"]

Metadata = tuple[tuple[int, ...], int, np.dtype[Any], bool]


def metadata(A: Any) -> Metadata:
    """Return the shape, the number of axes, the dtype of an array, and whether it is complex.

    >>> metadata(np.zeros((2, 3)))
    ((2, 3), 2, dtype('float64'), False)
    """
    return np.shape(A), np.ndim(A), np.result_type(A), bool(np.iscomplexobj(A))


def unbroadcast(x: Any, target_meta: Metadata, broadcast_idx: int = 0) -> Any:
    """Sum along the axes along which an operand with this metadata has been broadcast.

    >>> unbroadcast(np.ones((4, 3)), metadata(np.zeros((1, 3))))
    array([[4., 4., 4.]])
    """
    shape, ndim, _, is_complex = target_meta
    while np.ndim(x) > ndim:
        x = np.sum(x, axis=broadcast_idx)
    for axis, size in enumerate(shape):
        if size == 1 and np.shape(x)[axis] != 1:
            x = np.sum(x, axis=axis, keepdims=True)
    return np.real(x) if np.iscomplexobj(x) and not is_complex else x


def unbroadcast_f(target: object, f: Callable[[object], object]) -> Callable[[Any], Any]:
    """Wrap `f`: sum its results to the shape of `target`.

    >>> unbroadcast_f(1.0, lambda g: 2 * g)(np.ones(3))
    np.float64(6.0)
    """
    target_meta = metadata(target)
    return lambda g: unbroadcast(f(g), target_meta)
