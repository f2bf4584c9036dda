"""Call functions of the bytecode interpreter from Python."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad.runtime.compile.code_store import shared_function

OF_WORDS = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(ctypes.c_void_p))


def run(name: str, words: Sequence[int], *arrays: np.ndarray[Any, Any]) -> int:
    """What a function of words returns; its pointers are those of the arrays."""
    pointers = (ctypes.c_void_p * max(len(arrays), 1))(*(x.ctypes.data for x in arrays))
    return OF_WORDS(shared_function(name))((ctypes.c_int64 * len(words))(*words), pointers)


def address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0
