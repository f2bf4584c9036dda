"""What a trace knows of memory: how its arrays lie there, and what of that its inputs decide.

NumPy gives a view or a copy by the layout of an array, so a trace knows the strides of all. Row-major arrays, which
are most, need no more than that: `stand_in` is None. Others have a stand-in (`tracegrad.ops.memory`), on which NumPy
does what it would do to the array. The layouts of inputs are those in the call being traced. Which inputs had a part in
the layout of a value goes along with it, as a set of bits; when the layout decides something that can be seen, these
inputs are *asked* for theirs, and the trace holds only for calls where it is the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad.ir import Node
from tracegrad.ops.memory import StandIn, stand_in

__all__ = ["Layouts", "Memory", "layout_of"]

# Of inputs: their number, and the strides that an array there must have; None for row-major order.
Layouts = tuple[tuple[int, tuple[int, ...] | None], ...]


def layout_of(x: np.ndarray[Any, Any]) -> tuple[int, ...] | None:
    """The strides of an array, without those that mean nothing; None if it is in row-major order."""
    if x.flags.c_contiguous:
        return None
    return tuple([s if n > 1 else 0 for n, s in zip(x.shape, x.strides)])


class Memory:
    """The memory of one trace."""

    def __init__(self) -> None:
        self.asked = 0
        self.named = 0  # inputs of which more was asked than programs check
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
            self._inputs[node] = 1 << len(self._inputs), found

    def of_input(self, node: Node) -> tuple[int, StandIn | None]:
        """The bit of an input, and its stand-in."""
        return self._inputs.get(node, (0, None))

    def is_asked(self, node: Node) -> bool:
        """Whether this input has been asked for its layout."""
        return bool(self.asked & self.of_input(node)[0])

    def layouts(self, inputs: Sequence[Node]) -> Layouts:
        """What has been asked of these inputs."""
        if not self.asked:
            return ()
        found = [(k, self.of_input(x)) for k, x in enumerate(inputs)]
        return tuple([(k, None if x is None else layout_of(x)) for k, (bit, x) in found if bit & self.asked])
