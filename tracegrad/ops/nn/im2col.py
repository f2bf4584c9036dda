"""Extract the windows of an array for convolutions (im2col).

Users do not call this op; recorded sums of window products are rewritten to it (`tracegrad.reroll.convolution_idiom`).
"""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import Aval
from tracegrad.errors import ShapeError
from tracegrad.ops.core.forms import Move
from tracegrad.ops.core.index_maps import OperandRead
from tracegrad.ops.core.op import Sample, primitive
from tracegrad.ops.core.samples import uniform
from tracegrad.ops.elementwise.table import accumulate
from tracegrad.ops.shape.fill import zeros_like
from tracegrad.ops.shape.linear import concatenate, pad, reshape, slice, transpose
from tracegrad.typing import Array, NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator


Ints = tuple[int, ...]


@primitive(Move(partial=True))
def patches(x: NDArray, *, counts: Ints, sizes: Ints, start: Ints, step: Ints, gap: Ints) -> NDArray:
    """Element `(*p, *q)` is `x[start + step * p + gap * q]`: `counts` windows along each axis, of `sizes` elements."""
    first = x[tuple(np.s_[a:] for a in start)]
    strides = [s * k for axis_steps in (step, gap) for s, k in zip(x.strides, axis_steps)]
    return np.lib.stride_tricks.as_strided(first, (*counts, *sizes), strides, writeable=False).copy()


@patches.def_aval
def _(x: Any, *, counts: Ints, sizes: Ints, start: Ints, step: Ints, gap: Ints) -> Any:
    if not all(len(p) == x.ndim for p in (counts, sizes, start, step, gap)):
        raise ShapeError(f"patches wants a number for each axis of {x}")
    if min((*sizes, *step, *gap), default=1) < 1 or min((*start, *counts), default=0) < 0:
        raise ShapeError("patches wants windows with elements, and steps forwards")
    for n, c, s, a, k, g in zip(x.shape, counts, sizes, start, step, gap):
        if c and a + (c - 1) * k + (s - 1) * g >= n:
            raise ShapeError(f"patches reads beyond the end of {x}")
    return Aval((*counts, *sizes), x.dtype)


patches.linear_in("x")


@patches.def_vjp("x")
def _(ct: Array, ans: Array, x: Array, *, counts: Ints, sizes: Ints, start: Ints, step: Ints, gap: Ints) -> Array:
    rank = len(counts)
    # Windows overlap along axes with several windows of several elements. Such an axis is processed element by element.
    shared = [s if c > 1 else 1 for c, s in zip(counts, sizes)]
    saved = [1 if m > 1 else s for m, s in zip(shared, sizes)]
    spacing = [k if c > 1 else g for c, k, g in zip(counts, step, gap)]
    # Along it, elements of x whose positions have equal remainders are adjacent in one class.
    classes = [k if m > 1 else 1 for m, k in zip(shared, spacing)]
    within = [1 if m > 1 else k for m, k in zip(shared, spacing)]
    lengths = [-(-n // r) for n, r in zip(x.shape, classes)]
    order = tuple(axis for pair in zip(range(rank), range(rank, 2 * rank)) for axis in pair)
    totals: dict[Ints, Any] = {}
    for at in product(*map(range, shared)):
        block = ct
        if math.prod(shared) > 1:
            stop = (*counts, *(q + s for q, s in zip(at, saved)))
            block = slice(ct, start=(0,) * rank + at, stop=stop, step=(1,) * (2 * rank))
        block = reshape(transpose(block, perm=order), shape=tuple(c * s for c, s in zip(counts, saved)))
        first = [a + g * q for a, g, q in zip(start, gap, at)]
        low = tuple(a // r for a, r in zip(first, classes))
        high = tuple(n - a - (k * (m - 1) + 1 if m else 0) for n, a, k, m in zip(lengths, low, within, block.shape))
        block = pad(block, low=low, high=high, interior=tuple(k - 1 for k in within), value=0)
        rest = tuple(a % r for a, r in zip(first, classes))
        totals[rest] = accumulate(totals[rest], block) if rest in totals else block
    return _interleaved(totals, classes, x.shape)


def _interleaved(blocks: dict[tuple[int, ...], Array], classes: list[int], shape: Ints) -> Array:
    """The array assembled from parts, each with the elements at positions of certain remainders; zero where there is
    none."""
    some = next(iter(blocks.values()))
    column = tuple(n for m in some.shape for n in (m, 1))

    def interleave(rest: Ints) -> Array:
        axis = len(rest)
        if axis == len(classes):
            return reshape(blocks[rest] if rest in blocks else zeros_like(some), shape=column)
        columns = [interleave((*rest, r)) for r in range(classes[axis])]
        return concatenate(*columns, axis=2 * axis + 1) if len(columns) > 1 else columns[0]

    whole = reshape(interleave(()), shape=tuple(n * r for n, r in zip(some.shape, classes)))
    return slice(whole, start=(0,) * len(shape), stop=shape, step=(1,) * len(shape))


@patches.def_reads
def _(index: Any, size: Any, shapes: object, result: object, *, start: Ints, step: Ints, gap: Ints, **_: object) -> Any:
    p, q = index[: len(start)], index[len(start) :]
    along = zip(start, step, gap, p, q)
    return [OperandRead(0, tuple(size(a) + size(k) * i + size(g) * j for a, k, g, i, j in along))]


@patches.def_batch
def _(size: int, batched: object, x: Array, *, counts: Ints, sizes: Ints, start: Ints, step: Ints, gap: Ints) -> Array:
    ahead = {"start": (0, *start), "step": (1, *step), "gap": (1, *gap)}
    result = patches(x, counts=(size, *counts), sizes=(1, *sizes), **ahead)
    return reshape(result, shape=(size, *counts, *sizes))


@patches.def_samples
def _() -> Iterator[Sample]:
    plain = {"start": (0, 0, 0), "step": (1, 1, 1), "gap": (1, 1, 1)}
    yield (uniform((5, 6, 2)),), {"counts": (3, 4, 1), "sizes": (3, 3, 2), **plain}
    yield (uniform((20, 14)),), {"counts": (5, 6), "sizes": (3, 2), "start": (1, 0), "step": (2, 2), "gap": (3, 1)}
    yield (uniform((12,)),), {"counts": (1,), "sizes": (4,), "start": (2,), "step": (1,), "gap": (3,)}
    yield (uniform((3, 20)),), {"counts": (3, 18), "sizes": (1, 3), "start": (0, 0), "step": (1, 1), "gap": (1, 1)}
