"""Compute float16 functions that are not NumPy ufuncs in float32, with one rounding."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.avals import LITERALS
from tracegrad.typing import ArrayLike

HALF, SINGLE = np.dtype(np.float16), np.dtype(np.float32)


def in_single(impl: Callable[..., Any]) -> Callable[..., object]:
    """Wrap `impl` to compute float16 in float32 and round the results."""

    @functools.wraps(impl)
    def call(*operands: Any, **params: Any) -> Any:
        for x in operands:
            if type(x) not in LITERALS and x.dtype.char == "e":
                break
        else:
            return impl(*operands, **params)
        result = impl(*map(_single, operands), **params)
        return tuple(map(_half, result)) if isinstance(result, tuple) else _half(result)

    call.of_others = impl  # type: ignore[attr-defined]
    return call


def _single(x: Any) -> Any:
    """An operand converted to single precision, in an operation with float16."""
    if type(x) is float:
        return float(HALF.type(x))
    return x.astype(SINGLE) if type(x) not in LITERALS and x.dtype == HALF else x


def _half(x: ArrayLike) -> Any:
    x = np.asarray(x)
    return x.astype(HALF) if x.dtype == SINGLE else x
