"""Hoist loop-invariant reads of arrays that the loop updates (loop-invariant code motion).

Gaussian elimination subtracts multiples of row `k` from the rows below it: `A[i] -= A[i, k] * A[k]`, in a loop over
`i`. No iteration writes row `k`, so every iteration reads its initial value. A read inside the loop would be saved for
the derivative in each iteration, and could prevent an in-place update.

A window is hoisted if its position is the same in all iterations and it is disjoint from all written windows
(`tracegrad.analysis.index_ranges`). A loop of zero iterations would not have read it, and its position may then be
invalid. The hoisted window is therefore clamped to the array, unless it is known to be inside.

Small parts of arrays that no iteration writes are hoisted too. The derivative of an iteration then adds to the part and
not to the whole array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracegrad.analysis.index_ranges import (
    Distances,
    IndexWindow,
    distances,
    extents,
    input_distances,
    window_at,
    within,
)
from tracegrad.analysis.write_sets import WriteSet
from tracegrad.avals import is_literal
from tracegrad.ir import Graph, GraphNode, GraphValue
from tracegrad.ir.loop_view import LoopView
from tracegrad.ir.rebuild import new_input, taking
from tracegrad.ops.elementwise.table import add, maximum, minimum, subtract
from tracegrad.ops.indexing.dynamic_slice import dynamic_slice
from tracegrad.ops.indexing.gather_scatter import gather
from tracegrad.ops.shape.linear import fresh, full, reshape, slice
from tracegrad.settings import disabled
from tracegrad.target.tuning import TUNING

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand


_PARTIAL_READS = (slice, dynamic_slice, gather)
SMALL = TUNING.loops.min_hoisted_ratio


# -- hoisted reads ---------------------------------------------------------------------------------------------
class _LoopHoisting:
    """A loop while reads are hoisted out of it."""

    def __init__(self, operands: Sequence[Any], loop: LoopView):
        self.operands, self.body, self.carries = operands, loop.body, loop.carries
        self.known = input_distances(loop, operands)
        self.consts = dict(zip(loop.constants(loop.body.inputs), loop.constants(operands)))
        self.users = loop.body.users()
        self.hoisted: dict[GraphNode, Any] = {}  # hoisted reads, and their values outside of the loop

    def hoist_reads(self) -> None:
        for k in range(self.carries):
            before, after = self.body.inputs[k], self.body.outputs[k]
            if before is after or not before.aval.shape:
                continue
            updates = WriteSet(self.known).trace_back(after)
            if updates.first is before:
                self._hoist_windows(self.operands[k], set(updates.values), updates.windows)

        for node in self.body.nodes:
            whole = self._whole(node) if node.op is slice and node not in self.hoisted else None
            if whole is not None and SMALL * node.aval.size <= whole.aval.size:
                users = self.users[node]
                read = users[0] if [x.op for x in users] == [reshape] else node
                if self._is_wanted(read):
                    self.hoisted[read] = self._still(read)

    def _whole(self, x: Any) -> GraphNode | None:
        """The unchanged array from which a value is read at a known position; None if there is none."""
        while x not in self.consts:
            if x.op not in (slice, reshape):
                return None
            (x,) = x.inputs
        return x if isinstance(self.consts[x], GraphValue) else None

    def _still(self, x: GraphNode) -> Any:
        """The hoisted value of this read."""
        if x in self.consts:
            return self.consts[x]
        assert x.op is not None
        return x.op(self._still(x.operands[0]), **dict(x.params))

    def _hoist_windows(self, array: Any, values: set[GraphNode], written: Sequence[IndexWindow]) -> None:
        for node in self.body.nodes:
            if node.op not in (slice, dynamic_slice) or node.inputs[0] not in values or not self._is_wanted(node):
                continue
            params = dict(node.params)
            sizes, step = node.aval.shape, params["step"]
            positions = list(params["start"] if node.op is slice else node.inputs[1:])
            starts = [self._outside(a) for a in positions]
            if any(a is None for a in starts):
                continue
            window = window_at([distances(a, self.known) for a in positions], sizes, step)
            if all(map(window.is_disjoint, written)):
                reach = extents(sizes, step)
                limits = [n - m for n, m in zip(array.shape, reach)]
                starts = list(map(clamped_start, starts, window.starts, limits))
                self.hoisted[node] = _read(array, starts, sizes, step, reach)

    def _is_wanted(self, node: GraphNode) -> bool:
        """Whether the whole window is used, and not only parts of it, because the hoisted window is a separate
        array."""
        return node.aval.size > 0 and any(x.op not in _PARTIAL_READS for x in self.users[node])

    def _outside(self, x: Any) -> Any:
        """A loop-invariant integer equal to `x` in each iteration, computed by ops that never fail; or None."""
        if is_literal(x) or x in self.consts:
            return x if is_literal(x) else self.consts[x]
        if x.op is full:
            return int(dict(x.params)["value"])
        if x.op in (fresh, reshape) and not x.aval.shape and not x.operands[0].aval.shape:
            return self._outside(x.inputs[0])
        if x.op not in (add, subtract):
            return None
        operands = [self._outside(y) for y in x.inputs]
        if any(y is None for y in operands):
            return None
        return x.op(*operands) if not all(map(is_literal, operands)) else None


def clamped_start(start: Operand, known: Distances, limit: int) -> object:
    """Clamp the `start` of a window to the range from 0 to `limit`."""
    return start if within(known, 0, limit) else minimum(maximum(start, 0), limit)


def _read(
    array: Operand, starts: Sequence[Any], sizes: Sequence[int], step: Sequence[int], reach: Sequence[int]
) -> Operand:
    if not all(map(is_literal, starts)):
        return dynamic_slice(array, *starts, sizes=sizes, step=step)
    return slice(array, start=tuple(starts), stop=tuple(map(sum, zip(starts, reach))), step=step)


def run_loop(operands: Sequence[Any], loop: LoopView) -> tuple[Any, ...]:
    """The results of a new loop, with invariant window reads hoisted into further constants."""
    if disabled("hoisted-reads") or not all(isinstance(x, GraphValue) for x in operands):
        return loop.applied(operands)
    hoisting = _LoopHoisting(operands, loop)
    hoisting.hoist_reads()
    hoisted, cond = hoisting.hoisted, loop.cond
    if hoisted and cond is not None:
        cond = Graph((*cond.inputs, *map(new_input, hoisted)), cond.nodes, cond.outputs)
    if hoisted:
        loop = loop._replace(body=taking(loop.body, hoisted), cond=cond)
    return loop.applied([*operands, *hoisted.values()])
