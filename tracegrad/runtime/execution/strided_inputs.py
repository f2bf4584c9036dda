"""Specialize programs for strided inputs: arrays that are not in row-major order.

A program takes arrays in row-major order. Another array is mostly a part of a row-major *block*: a transposed array is
the whole block with permuted axes; columns, every other element, or a reversed array are a window of it. A
specialization takes the address of that block, and its graph begins with the views that lead to the array
(`with_strided_inputs`). Views are free, because kernels read the elements in place. Only elements of the array itself
are read, so a block may extend beyond the allocated memory. Any other layout is copied.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tracegrad.avals import Aval
from tracegrad.ir import Graph, build, replay
from tracegrad.ops.shape.linear import broadcast_to, flip, reshape, slice, transpose
from tracegrad.target.tuning import TUNING
from tracegrad.trace.builder.layout import LayoutGuard

Strides = tuple[int, ...]
SMALL = TUNING.dispatch.min_strided_array


class InputLayout(NamedTuple):
    """The layout of an array that is not in row-major order. `strides` are the strides by which a program may read it,
    0 along axes of one element; None if it is copied. `required` are the strides that a trace requires, if any."""

    strides: Strides | None
    required: Strides | None = None

    def text(self, x: str) -> str:
        """The expression of the array as the program takes it."""
        return f"rows({x})" if self.strides is None else x

    def checks(self, x: str) -> list[str]:
        """The checks of arrays with this layout if they are copied, because no program checks them."""
        results = [f"type({x}) is ndarray", f"not {x}.flags.c_contiguous"]  # other programs serve contiguous arrays
        return results if self.required is None else [*results, f"{x}.strides == {self.required}"]


InputLayouts = tuple[InputLayout | None, ...]


def layouts_of(inputs: Sequence[Any], layouts: Sequence[LayoutGuard]) -> InputLayouts:
    """The layout of each array that is not in row-major order; empty if all are. `layouts` are the assumptions of the
    trace."""
    strided = [type(x) is np.ndarray and not x.flags.c_contiguous for x in inputs]
    if True not in strided:
        return ()
    required = {layout.number for layout in layouts}
    return tuple(
        [
            InputLayout(_readable(x), x.strides if i in required else None) if is_strided else None
            for i, (x, is_strided) in enumerate(zip(inputs, strided))
        ]
    )


def copied(layouts: InputLayouts) -> InputLayouts:
    """The same layouts, for programs that only take row-major order."""
    return tuple([layout and layout._replace(strides=None) for layout in layouts])


def strides_of(layouts: InputLayouts) -> tuple[Strides | None, ...]:
    """The strides by which a program reads its inputs; None for row-major order."""
    return tuple([layout and layout.strides for layout in layouts])


def _readable(x: np.ndarray[Any, Any]) -> Strides | None:
    """The strides of an array that is a view of a block and large enough; else None."""
    strides = tuple([s if n > 1 else 0 for n, s in zip(x.shape, x.strides)])
    plain = x.flags.aligned and x.dtype == np.dtype(x.dtype.char)  # else no entry point takes it
    return strides if plain and x.nbytes >= SMALL and _block_of(x.shape, strides, x.itemsize) is not None else None


class _StridedBlock(NamedTuple):
    """The row-major array that contains a strided array.

    `axes` are the axes of the array with nonzero stride, from the outermost to the innermost, and `flipped` are the
    ones with negative stride. The block has one axis for each of `axes`, and one more for the gap between elements. The
    array uses every `step`-th element along an axis of the block, from the first one on.
    """

    shape: tuple[int, ...]
    step: tuple[int, ...]
    axes: tuple[int, ...]
    flipped: tuple[int, ...]


def _block_of(shape: Sequence[int], strides: Strides, itemsize: int) -> _StridedBlock | None:
    """The block of an array; None if strides are no multiples of the element size, or rows overlap.

    >>> _block_of((5, 3), (64, 8), 8).shape  # x[:, :3] of 8 columns
    (5, 8, 1)
    >>> _block_of((5,), (-64,), 8).shape  # x[::-1, 3]
    (5, 8)
    >>> _block_of((3, 3), (8, 8), 8)  # the windows of a vector
    """
    axes = sorted([k for k, s in enumerate(strides) if s], key=lambda k: -abs(strides[k]))
    if any(strides[k] % itemsize for k in axes):
        return None
    steps = [abs(strides[k]) // itemsize for k in axes]
    # The size of a row is a multiple of the size of inner rows, so it divides all outer strides.
    rows = [math.gcd(*steps[: j + 1]) for j in range(len(steps))]
    span = 1
    for k, step, row in zip(axes[::-1], steps[::-1], rows[::-1]):
        if span > row:
            return None
        span += (shape[k] - 1) * step
    sizes = [shape[axes[0]] if axes else 1] + [a // b for a, b in itertools.pairwise([*rows, 1])]
    every = tuple([a // b for a, b in zip(steps, rows)])
    return _StridedBlock(tuple(sizes), every, tuple(axes), tuple([j for j, k in enumerate(axes) if strides[k] < 0]))


def with_strided_inputs(graph: Graph, strides: Sequence[Strides | None]) -> Graph:
    """The graph with strided inputs replaced by their blocks."""
    avals = [x.aval for x in graph.inputs]
    blocks = [None if s is None else _block_of(x.shape, s, x.dtype.itemsize) for x, s in zip(avals, strides)]

    def computed(*inputs: object) -> Any:
        results = [x if b is None else _view_of_block(x, b, aval.shape) for x, b, aval in zip(inputs, blocks, avals)]
        return replay(graph, results)[0]

    return build(computed, [x if b is None else Aval(b.shape, x.dtype) for x, b in zip(avals, blocks, strict=True)])


def _view_of_block(x: Any, block: _StridedBlock, shape: tuple[int, ...]) -> object:
    """The array of this shape as a view of a block."""
    sizes = tuple([shape[k] for k in block.axes])
    stop = (*[(n - 1) * s + 1 for n, s in zip(sizes, block.step)], 1)
    x = slice(x, start=(0,) * len(stop), stop=stop, step=(*block.step, 1))
    x = flip(reshape(x, shape=sizes), axes=block.flipped)
    x = transpose(x, perm=tuple(sorted(range(len(sizes)), key=lambda j: block.axes[j])))
    x = reshape(x, shape=tuple([n if k in block.axes else 1 for k, n in enumerate(shape)]))
    return broadcast_to(x, shape=shape)
