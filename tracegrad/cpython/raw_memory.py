"""Read memory at an address. The caller keeps the owner of the memory alive."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np


def pointer_at(address: int) -> int:
    """The pointer at an address; 0 for a null pointer.

    >>> x = np.array([7], np.uint64)
    >>> pointer_at(x.ctypes.data)
    7
    """
    return ctypes.c_void_p.from_address(address).value or 0


def array_at(address: int, count: int, dtype: np.dtype[Any] | type[np.generic]) -> np.ndarray[Any, Any]:
    """The numbers at an address, as an array that shares the memory.

    >>> x = np.array([1.5, 2.5])
    >>> array_at(x.ctypes.data, 2, np.float64)
    array([1.5, 2.5])
    """
    dtype = np.dtype(dtype)
    return np.frombuffer(buffer_at(count * dtype.itemsize)(address), dtype, count)


def buffer_at(size: int) -> Callable[[int], Any]:
    """The function from an address to a writable buffer of `size` bytes, at least 1."""
    return (ctypes.c_char * max(size, 1)).from_address
