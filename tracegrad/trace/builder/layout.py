"""Track the memory layout (strides) of traced arrays, and guard the layouts that results depend on.

NumPy returns a view or a copy depending on an array's layout, so a trace knows the strides of all arrays. A row-major
array, the usual case, has the stand-in None. Any other array has a stand-in (`tracegrad.ops.core.memory_order`), to
which NumPy applies the same operation. Inputs have the layouts of the call being traced.

Each value carries a bit set of the inputs that its layout depends on. If a visible result depends on the layout, the
trace guards the layouts of these inputs. The arguments of a region may have another layout in each iteration, so a
result that depends on their layout is refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from tracegrad.errors import UnsupportedError, located
from tracegrad.ir import GraphNode
from tracegrad.ops.core.memory_order import UNKNOWN, StandIn, is_row_major, order_of, spread, stand_in
from tracegrad.typing import DType, NDArray

__all__ = ["UNKNOWN", "LayoutGuard", "LayoutTracker", "axes_of"]


class LayoutGuard(NamedTuple):
    """Required memory layout of input `number`: `strides`, or the axes in memory order, outermost first; both None for
    row-major order."""

    number: int
    strides: tuple[int, ...] | None = None
    order: tuple[int, ...] | None = None
    exact: bool = True

    def fits(self, x: NDArray) -> bool:
        """Whether an array has this layout."""
        return layout_of(x) == self.strides if self.exact else axes_of(x) == self.order

    @property
    def plain(self) -> bool:
        """Whether row-major arrays have this layout."""
        return self.strides is None and self.order is None


def axes_of(x: NDArray) -> tuple[int, ...] | None:
    """The order of the axes in memory, from the outermost to the innermost; None if they are in order."""
    return None if is_row_major(x) else tuple(order_of([spread(x)], x.ndim))


def layout_of(x: NDArray) -> tuple[int, ...] | None:
    """The strides of an array, without strides of axes that do not matter; None if it is row-major."""
    if x.flags.c_contiguous:
        return None
    return tuple([s if n > 1 else 0 for n, s in zip(x.shape, x.strides)])


class LayoutTracker:
    """Memory layouts of the values of one trace."""

    def __init__(self) -> None:
        self.guarded = 0
        self.ordered = 0  # inputs of which only the axis order is guarded
        self._inputs: dict[GraphNode, tuple[int, StandIn | None]] = {}
        self._free = 1 << 44

    def allocate(self, shape: tuple[int, ...], dtype: DType, strides: tuple[int, ...] | None = None) -> StandIn:
        """A stand-in in separate memory; row-major without `strides`."""
        ends = [(n - 1) * s for n, s in zip(shape, strides)] if strides is not None else []
        start = self._free - sum(e for e in ends if e < 0)
        size = sum(map(abs, ends)) if strides is not None else math.prod(shape) * dtype.itemsize
        self._free += (size + dtype.itemsize + 127) // 64 * 64
        return stand_in(shape, dtype, strides, start)

    def enter(self, node: GraphNode, array: NDArray) -> None:
        """Record the layout of the input `node`, whose value is `array`."""
        if array.ndim and array.size > 1:
            strides = layout_of(array)
            result = None if strides is None else self.allocate(array.shape, array.dtype, array.strides)
            self._inputs[node] = UNKNOWN << 1 + len(self._inputs), result

    def guard(self, inputs: int) -> None:
        """Guard the layouts of these inputs, because a visible result depends on them."""
        if inputs & UNKNOWN:
            raise UnsupportedError(
                located(
                    "whether this is a view or a copy depends on how an argument of the body lies in memory, which may "
                    "be otherwise at each iteration; copy it first (x = np.array(x, order='C')), or update by tg.where"
                )
            )
        self.guarded |= inputs

    def of_input(self, node: GraphNode) -> tuple[int, StandIn | None]:
        """The bit of an input, and its stand-in."""
        return self._inputs.get(node, (0, None))

    def is_guarded(self, node: GraphNode) -> bool:
        """Whether the layout of this input is guarded."""
        return bool((self.guarded | self.ordered) & self.of_input(node)[0])

    def layouts(self, inputs: Sequence[GraphNode]) -> tuple[LayoutGuard, ...]:
        """The guarded layouts of these inputs."""
        results = []
        for k, node in enumerate(inputs if self.guarded | self.ordered else ()):
            bit, x = self.of_input(node)
            if bit & self.guarded:
                results.append(LayoutGuard(k, None if x is None else layout_of(x)))
            elif bit & self.ordered and len(node.aval.shape) > 1:
                results.append(LayoutGuard(k, None, None if x is None else axes_of(x), exact=False))
        return tuple(results)
