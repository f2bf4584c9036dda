"""Test membership of integers in sets (`isin`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracegrad.avals import Aval
from tracegrad.errors import DTypeError, ShapeError
from tracegrad.ops.core.op import Sample, primitive
from tracegrad.ops.core.samples import integers
from tracegrad.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator


@primitive()
def is_member(x: NDArray, tests: NDArray) -> NDArray:
    """Whether each integer of `x` is in `tests`, which has leading axes of `x` and one more axis."""
    batch_shape = tests.shape[:-1]
    if not batch_shape:
        return np.isin(x, tests)
    out = np.empty(x.shape, bool)
    for i in np.ndindex(batch_shape):
        out[i] = np.isin(x[i], tests[i])
    return out


@is_member.def_aval
def _(x: Aval, tests: Aval) -> Aval:
    if not tests.ndim or x.shape[: tests.ndim - 1] != tests.shape[:-1]:
        raise ShapeError(f"is_member: {tests} have other leading axes than {x}")
    if x.dtype != tests.dtype or x.dtype.kind not in "iu":
        raise DTypeError(f"is_member: integers of one dtype are wanted, got {x} and {tests}")
    return Aval(x.shape, np.dtype(np.bool_))


@is_member.def_samples
def _() -> Iterator[Sample]:
    yield (integers((3, 4), -9, 9), integers((5,), -9, 9, seed=1)), {}
    yield (integers((2, 20), 0, 99, dtype="uint8"), integers((2, 30), 0, 99, seed=1, dtype="uint8")), {}
    yield (integers((20,), -9, 9, dtype="int32"), integers((1,), -9, 9, seed=1, dtype="int32")), {}
