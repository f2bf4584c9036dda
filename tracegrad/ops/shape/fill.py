"""Fill ops: arrays made without operands (`full`, `arange`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracegrad.avals import Aval, aval_of, name_of
from tracegrad.ops.core.forms import Fill, Progression
from tracegrad.ops.core.op import AS_WRITTEN, Sample, primitive
from tracegrad.typing import Array, NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator


@primitive(Fill(), on_complex=AS_WRITTEN)
def full(*, shape: tuple[int, ...], value: float, dtype: str) -> NDArray:
    """An array of `shape` with `value` everywhere."""
    return np.full(shape, value, dtype)


@full.def_aval
def _(*, shape: tuple[int, ...], value: float, dtype: str) -> Aval:
    return Aval(tuple(shape), np.dtype(dtype))


@full.def_samples
def _() -> Iterator[Sample]:
    yield (), {"shape": (2, 3), "value": -0.0, "dtype": "float32"}
    yield (), {"shape": (), "value": 7, "dtype": "int64"}


@primitive(Progression())
def arange(*, start: float, step: float, length: int, dtype: str) -> NDArray:
    """`start + step * i` for i = 0 .. length - 1."""
    return (start + step * np.arange(length)).astype(dtype)


@arange.def_aval
def _(*, start: float, step: float, length: int, dtype: str) -> Aval:
    return Aval((length,), np.dtype(dtype))


@arange.def_samples
def _() -> Iterator[Sample]:
    yield (), {"start": 2, "step": 3, "length": 11, "dtype": "int64"}
    yield (), {"start": 0.5, "step": -0.25, "length": 5, "dtype": "float64"}


def zeros_like(x: object) -> Array:
    """An array of zeros with the shape and dtype of `x`."""
    aval = aval_of(x)
    return full(shape=aval.shape, value=0.0 if aval.is_inexact else 0, dtype=name_of(aval.dtype))
