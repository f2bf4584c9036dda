"""Tangents of results that have been broadcast, for rules of the user's."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["broadcast"]


def broadcast(x: Any, target: Any) -> Any:
    """A tangent, as one of an array of the shape of `target`, complex where that is.

    >>> broadcast(np.ones((1, 2)), np.zeros((2, 2)))
    array([[1., 1.],
           [1., 1.]])
    """
    x = x + 0j if np.iscomplexobj(target) and not np.iscomplexobj(x) else x
    return np.broadcast_to(x, np.shape(target))
