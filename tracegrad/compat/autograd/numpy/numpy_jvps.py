"""Tangents of broadcast results, for user-defined rules."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["broadcast"]


def broadcast(x: Any, target: Any) -> Any:
    """Broadcast a tangent to the shape of `target`; the result is complex if `target` is complex.

    >>> broadcast(np.ones((1, 2)), np.zeros((2, 2)))
    array([[1., 1.],
           [1., 1.]])
    """
    x = x + 0j if np.iscomplexobj(target) and not np.iscomplexobj(x) else x
    return np.broadcast_to(x, np.shape(target))
