"""How the arrays of a call lie in memory, where that is not row by row; and graphs of arrays that do.

A program takes arrays in row-major order. Others are mostly a part of a row-major *block*: of a transposed array it is
all, with the axes in another order; of columns, of every other element, of an array backwards it is a window. So a
program of its own takes the address of that block, and its graph begins with what NumPy made of it (`laid`), which
costs nothing: kernels read the elements where they are. Nothing that is not the array's own is read, so that a block
may end beyond the memory there is. What lies otherwise is copied.
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
from tracegrad.trace.builder.layout import Layout

__all__ = ["Lie", "Lies", "Strides", "copied", "laid", "lies_of", "strides_of"]

Strides = tuple[int, ...]
# Bytes of an array that is copied however it lies: it takes as long as a call.
SMALL = 2**11


class Lie(NamedTuple):
    """How an array lies that is not in row-major order: the strides by which a program may read it, 0 along axes of one
    element, or None if it is copied; and the strides that it must have, where a trace depends on them."""

    strides: Strides | None
    asked: Strides | None = None

    def text(self, x: str) -> str:
        """Code for the array as a program takes it."""
        return f"rows({x})" if self.strides is None else x

    def checks(self, x: str) -> list[str]:
        """Code that is true for arrays that lie so, where these are copied: no program sees it."""
        found = [f"type({x}) is ndarray", f"not {x}.flags.c_contiguous"]  # for which other programs are better
        return found if self.asked is None else [*found, f"{x}.strides == {self.asked}"]


Lies = tuple[Lie | None, ...]


def lies_of(inputs: Sequence[Any], layouts: Sequence[Layout]) -> Lies:
    """How each array lies that is not in row-major order; nothing if all are. `layouts` are what the trace assumes."""
    lying = [type(x) is np.ndarray and not x.flags.c_contiguous for x in inputs]
    if True not in lying:
        return ()
    asked = {layout.number for layout in layouts}
    return tuple([
        Lie(_readable(x), x.strides if i in asked else None) if apart else None
        for i, (x, apart) in enumerate(zip(inputs, lying))
    ])  # fmt: skip


def copied(lies: Lies) -> Lies:
    """The same, but for programs that take row-major order only."""
    return tuple([lie and lie._replace(strides=None) for lie in lies])


def strides_of(lies: Lies) -> tuple[Strides | None, ...]:
    """The strides by which a program reads its inputs; None where these are in row-major order."""
    return tuple([lie and lie.strides for lie in lies])


def _readable(x: np.ndarray[Any, Any]) -> Strides | None:
    """The strides of an array that is a part of a block, and worth the bother."""
    strides = tuple([s if n > 1 else 0 for n, s in zip(x.shape, x.strides)])
    plain = x.flags.aligned and x.dtype == np.dtype(x.dtype.char)  # else no entry point takes it
    return strides if plain and x.nbytes >= SMALL and _block_of(x.shape, strides, x.itemsize) is not None else None


class _Block(NamedTuple):
    """The row-major array around one whose elements lie apart.

    `axes` are those of the array along which its elements are others, from the outermost to the innermost, and of these
    `flipped` are the ones that lead to lower addresses. The block has such an axis for each, of which the array has
    every so many elements (`step`) from the first one on; and one for what lies between elements, from 1 on.
    """

    shape: tuple[int, ...]
    step: tuple[int, ...]
    axes: tuple[int, ...]
    flipped: tuple[int, ...]


def _block_of(shape: Sequence[int], strides: Strides, itemsize: int) -> _Block | None:
    """The block of an array; None if elements are no whole numbers of elements apart, or rows reach into each other.

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
    # What a row takes is a whole number of what rows within it take, so it divides all distances outside of it.
    rows = [math.gcd(*steps[: j + 1]) for j in range(len(steps))]
    span = 1
    for k, step, row in zip(axes[::-1], steps[::-1], rows[::-1]):
        if span > row:
            return None
        span += (shape[k] - 1) * step
    sizes = [shape[axes[0]] if axes else 1] + [a // b for a, b in itertools.pairwise([*rows, 1])]
    every = tuple([a // b for a, b in zip(steps, rows)])
    return _Block(tuple(sizes), every, tuple(axes), tuple([j for j, k in enumerate(axes) if strides[k] < 0]))


def laid(graph: Graph, strides: Sequence[Strides | None]) -> Graph:
    """The graph of the blocks of its inputs that have strides."""
    avals = [x.aval for x in graph.inputs]
    blocks = [None if s is None else _block_of(x.shape, s, x.dtype.itemsize) for x, s in zip(avals, strides)]

    def computed(*given: Any) -> Any:
        found = [x if b is None else _part(x, b, aval.shape) for x, b, aval in zip(given, blocks, avals)]
        return replay(graph, found)[0]

    return build(computed, [x if b is None else Aval(b.shape, x.dtype) for x, b in zip(avals, blocks, strict=True)])


def _part(x: Any, block: _Block, shape: tuple[int, ...]) -> Any:
    """The array of this shape in a block."""
    sizes = tuple([shape[k] for k in block.axes])
    stop = (*[(n - 1) * s + 1 for n, s in zip(sizes, block.step)], 1)
    x = slice(x, start=(0,) * len(stop), stop=stop, step=(*block.step, 1))
    x = flip(reshape(x, shape=sizes), axes=block.flipped)
    x = transpose(x, perm=tuple(sorted(range(len(sizes)), key=lambda j: block.axes[j])))
    x = reshape(x, shape=tuple([n if k in block.axes else 1 for k, n in enumerate(shape)]))
    return broadcast_to(x, shape=shape)
