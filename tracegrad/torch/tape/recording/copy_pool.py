"""Pool of array copies: reuse the memory of earlier copies that have no references left.

The first write to fresh memory costs a page fault for every 4 KiB, which for a large array outweighs the copying.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

__all__ = ["copy_of"]

LARGE_BYTES = 2**17  # smaller blocks the C library keeps
KEPT_BYTES = 2**28
KEPT = 16

# The blocks, those of the latest copies last.
_kept: list[np.ndarray[Any, Any]] = []


def _references() -> int:
    """Return the count of `sys.getrefcount` for a block that only the list holds, during a loop over the list."""
    return next(sys.getrefcount(block) for block in [np.empty(0)])


_ALONE = _references()


def copy_of(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Copy the array, with the same order of axes in memory."""
    if array.nbytes < LARGE_BYTES:
        return array.copy("K")
    like = np.empty_like(array)
    for block in _kept:
        alike = block.shape == array.shape and block.dtype == array.dtype and block.strides == like.strides
        if alike and sys.getrefcount(block) == _ALONE:
            np.copyto(block, array)
            return block
    np.copyto(like, array)
    _kept.append(like)
    while len(_kept) > KEPT or sum(block.nbytes for block in _kept) > KEPT_BYTES:
        del _kept[0]
    return like
