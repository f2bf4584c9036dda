"""Diagonal matrices from batches of diagonals, for which NumPy has no function."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["make_diagonal"]


def make_diagonal(D: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Make arrays with the diagonals `D` along the two last axes, -1 and -2.

    >>> make_diagonal(np.array([1.0, 2.0]), axis1=-1, axis2=-2)
    array([[1., 0.],
           [0., 2.]])
    """
    if (offset, axis1, axis2) != (0, -1, -2):
        raise NotImplementedError("make_diagonal takes offset=0, axis1=-1, axis2=-2 only")
    n = np.shape(D)[-1]
    return np.where(np.eye(n, dtype=bool), np.expand_dims(D, -1), np.zeros((), np.result_type(D)))
