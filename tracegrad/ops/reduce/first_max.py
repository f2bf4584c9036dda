"""Compute maxima whose derivative goes to the first of equal elements; `reduce_max` divides it among them.

PyTorch's pooling has this derivative. The axes of windows are not merged: windows that tile an array are a reshape of
it, which compiled code reads in place, and a single window axis would require a copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracegrad.avals import Aval
from tracegrad.ops.core.op import Sample, primitive
from tracegrad.ops.core.samples import uniform
from tracegrad.ops.elementwise.table import equal, logical_or, not_equal, where
from tracegrad.ops.reduce.reductions import count_of, reduce_max, reduce_min
from tracegrad.ops.shape.linear import arange, broadcast_to, reduce_sum, reduced_shape, reshape, unreduce
from tracegrad.typing import Array, NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator


@primitive()
def first_max(x: NDArray, *, axes: tuple[int, ...]) -> Array:
    """The maximum of `x` over `axes`; nan if there is one. The first of equal elements has the derivative."""
    result: Array = np.max(x, axis=axes)
    return result


def first_max_index(x: Array, best: Array, axes: tuple[int, ...]) -> Array:
    """The index, int32 and in row-major order of `axes`, of the first element that equals the maximum `best`, or is
    nan."""
    hit = logical_or(equal(x, unreduce(best, x.shape, axes)), not_equal(x, x))
    return reduce_min(where(hit, _numbers(x, axes), count_of(x, axes)), axes=axes)


def _numbers(x: Array, axes: tuple[int, ...]) -> Array:
    numbers = arange(start=0, step=1, length=count_of(x, axes), dtype="int32")
    within = tuple(n if a in axes else 1 for a, n in enumerate(x.shape))
    return broadcast_to(reshape(numbers, shape=within), shape=x.shape)


def _is_first(ans: Array, x: Array, axes: tuple[int, ...]) -> Array:
    return equal(unreduce(first_max_index(x, ans, axes), x.shape, axes), _numbers(x, axes))


@first_max.def_aval
def _(x: Aval, *, axes: tuple[int, ...]) -> Aval:
    return Aval(reduced_shape(x.shape, axes), x.dtype)


@first_max.def_decompose
def _(x: Array, *, axes: tuple[int, ...]) -> Array:
    return reduce_max(x, axes=axes)


@first_max.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, *, axes: tuple[int, ...]) -> Array:
    return where(_is_first(ans, x, axes), unreduce(ct, x.shape, axes), 0.0)


@first_max.def_jvp
def _(tangents: tuple[Array, ...], ans: Array, x: Array, *, axes: tuple[int, ...]) -> Array:
    return reduce_sum(where(_is_first(ans, x, axes), tangents[0], 0.0), axes=axes)


@first_max.def_samples
def _() -> Iterator[Sample]:
    yield (uniform((3, 4)),), {"axes": (1,)}
    yield (uniform((3, 2, 20, 2), dtype="float32"),), {"axes": (1, 3)}
    yield (uniform((20, 3)),), {"axes": (0, 1)}
