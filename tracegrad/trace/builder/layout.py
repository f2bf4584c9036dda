"""What a trace knows of memory: how its arrays lie there, and what of that its inputs decide.

NumPy gives a view or a copy by the layout of an array, so a trace knows the strides of all. Row-major arrays, which
are most, need no more than that: `stand_in` is None. Others have a stand-in (`tracegrad.ops.core.memory_order`), on
which NumPy does what it would do to the array. The layouts of inputs are those in the call being traced. Which inputs
had a part in the layout of a value goes along with it, as a set of bits; when the layout decides something that can be
seen, these inputs are *asked* for theirs, and the trace holds only for calls where it is the same. The arguments of a
region may lie otherwise at each turn, so that what they decide is refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tracegrad.errors import UnsupportedError, located
from tracegrad.ir import Node
from tracegrad.ops.core.memory_order import UNKNOWN, StandIn, is_row_major, order_of, spread, stand_in

__all__ = ["UNKNOWN", "Layout", "Memory", "axes_of"]


class Layout(NamedTuple):
    """What input `number` must lie in memory like: with these `strides`, or with its axes in this order, from the
    outermost to the innermost; None for row-major order, of both."""

    number: int
    strides: tuple[int, ...] | None = None
    order: tuple[int, ...] | None = None
    exact: bool = True

    def fits(self, x: np.ndarray[Any, Any]) -> bool:
        """Whether an array lies so."""
        return layout_of(x) == self.strides if self.exact else axes_of(x) == self.order

    @property
    def plain(self) -> bool:
        """Whether arrays in row-major order do."""
        return self.strides is None and self.order is None


def axes_of(x: np.ndarray[Any, Any]) -> tuple[int, ...] | None:
    """The order of the axes in memory, from the outermost to the innermost; None if they stand in that order."""
    return None if is_row_major(x) else tuple(order_of([spread(x)], x.ndim))


def layout_of(x: np.ndarray[Any, Any]) -> tuple[int, ...] | None:
    """The strides of an array, without those that mean nothing; None if it is in row-major order."""
    if x.flags.c_contiguous:
        return None
    return tuple([s if n > 1 else 0 for n, s in zip(x.shape, x.strides)])


class Memory:
    """The memory of one trace."""

    def __init__(self) -> None:
        self.asked = 0
        self.ordered = 0  # asked only for the order of their axes
        self._inputs: dict[Node, tuple[int, StandIn | None]] = {}
        self._free = 1 << 44

    def place(self, shape: tuple[int, ...], dtype: np.dtype[Any], strides: tuple[int, ...] | None = None) -> StandIn:
        """A stand-in in memory of its own; without `strides` in row-major order."""
        ends = [(n - 1) * s for n, s in zip(shape, strides)] if strides is not None else []
        start = self._free - sum(e for e in ends if e < 0)
        size = sum(map(abs, ends)) if strides is not None else math.prod(shape) * dtype.itemsize
        self._free += (size + dtype.itemsize + 127) // 64 * 64
        return stand_in(shape, dtype, strides, start)

    def enter(self, node: Node, array: np.ndarray[Any, Any]) -> None:
        """`node` is an input with the value `array`."""
        if array.ndim and array.size > 1:
            strides = layout_of(array)
            found = None if strides is None else self.place(array.shape, array.dtype, array.strides)
            self._inputs[node] = UNKNOWN << 1 + len(self._inputs), found

    def ask(self, asks: int) -> None:
        """Something that can be seen depends on the layouts of these inputs."""
        if asks & UNKNOWN:
            raise UnsupportedError(
                located(
                    "whether this is a view or a copy depends on how an argument of the body lies in memory, which may "
                    "be otherwise at each turn; copy it first (x = np.array(x, order='C')), or update by tg.where"
                )
            )
        self.asked |= asks

    def of_input(self, node: Node) -> tuple[int, StandIn | None]:
        """The bit of an input, and its stand-in."""
        return self._inputs.get(node, (0, None))

    def is_asked(self, node: Node) -> bool:
        """Whether this input has been asked for its layout."""
        return bool((self.asked | self.ordered) & self.of_input(node)[0])

    def layouts(self, inputs: Sequence[Node]) -> tuple[Layout, ...]:
        """What has been asked of these inputs."""
        found = []
        for k, node in enumerate(inputs if self.asked | self.ordered else ()):
            bit, x = self.of_input(node)
            if bit & self.asked:
                found.append(Layout(k, None if x is None else layout_of(x)))
            elif bit & self.ordered and len(node.aval.shape) > 1:
                found.append(Layout(k, None, None if x is None else axes_of(x), exact=False))
        return tuple(found)
