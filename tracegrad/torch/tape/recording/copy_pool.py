"""Pool of array copies: reuse the memory of earlier copies that have no references left.

The first write to fresh memory causes a page fault for every page, which for a large array takes longer than the copy.
"""

from __future__ import annotations

import numpy as np

from tracegrad.cpython.references import COUNT_OF_LOOP_ITEM, reference_count
from tracegrad.locks import new_lock
from tracegrad.typing import NDArray

LARGE_BYTES = 2**17  # bytes of the smallest pooled array; the C library reuses smaller blocks
MAX_POOLED_BYTES = 2**28  # bytes of all pooled blocks together, at most
MAX_POOLED_BLOCKS = 16  # pooled blocks, at most

# The pooled blocks, in the order of their allocation.
_pool: list[NDArray] = []
# Two threads must not take one block.
_lock = new_lock()


def copy_of(array: NDArray) -> NDArray:
    """Copy the array, with the same order of axes in memory."""
    if array.nbytes < LARGE_BYTES:
        return array.copy("K")
    like = np.empty_like(array)
    with _lock:
        result = _unused(like)
        if result is None:
            result = like
            _pool.append(result)
            while len(_pool) > MAX_POOLED_BLOCKS or sum([block.nbytes for block in _pool]) > MAX_POOLED_BYTES:
                del _pool[0]
    np.copyto(result, array)
    return result


def _unused(like: NDArray) -> NDArray | None:
    """A pooled block of this dtype, shape and memory order without references; None if there is none."""
    for block in _pool:
        alike = block.shape == like.shape and block.dtype == like.dtype and block.strides == like.strides
        if alike and reference_count(block) == COUNT_OF_LOOP_ITEM:
            return block
    return None
