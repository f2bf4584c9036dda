"""Windows of an array that a loop reads, while it writes others of that array: read once, before the loop.

Elimination takes multiples of row `k` from the rows below it: `A[i] -= A[i, k] * A[k]`, in a loop over `i`. No turn
writes row `k`, so each reads what was there before the first. Read inside, it would be kept for the derivative in each
turn, and a turn would have to be careful not to write what it still reads.

A window is read before if its place is the same in all turns, and it is known (`tracegrad.control.index_ranges`) to be
apart from all that any turn writes. A loop of no turn would not have read it, and the place may be anything then: it is
moved into the array, where it is not known to be in it.

So are small parts of arrays that no turn writes: the derivative of a turn adds to the part then, and not to the array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracegrad.avals import is_literal
from tracegrad.control.index_ranges import Distances, Window, distances, extents, inside_of, window_at, within
from tracegrad.control.write_sets import Updates
from tracegrad.ir import Graph, Node, Value
from tracegrad.ops.elementwise.table import add, maximum, minimum, subtract
from tracegrad.ops.indexing.dynamic_slice import dynamic_slice
from tracegrad.ops.indexing.gather_scatter import gather
from tracegrad.ops.shape.linear import fresh, full, reshape, slice

__all__ = ["moved_into", "read_before"]

_PARTS = (slice, dynamic_slice, gather)
# How many times such an array has as many elements as a part that is read before, at least.
SMALL = 2


# -- what is read ----------------------------------------------------------------------------------------------
class _Loop:
    """A loop while reads are taken out of it."""

    def __init__(self, operands: Sequence[Any], body: Graph, carries: int, xs: int, cond: Graph | None):
        self.operands, self.body, self.carries, self.xs = operands, body, carries, xs
        given = [distances(x) for x in (*operands[:carries], *operands[carries + xs :])]
        self.known = inside_of(given, operands[carries : carries + xs], body, carries, cond)
        self.consts = dict(zip(body.inputs[carries + xs :], operands[carries + xs :]))
        self.users = body.users()
        self.found: dict[Node, Any] = {}  # what is read, and the value of it outside

    def look(self) -> None:
        for k in range(self.carries):
            before, after = self.body.inputs[k], self.body.outputs[k]
            if before is after or not before.aval.shape:
                continue
            updates = Updates(self.known).look(after)
            if updates.first is before:
                self._look_at(self.operands[k], set(updates.values), updates.windows)

        for node in self.body.nodes:
            whole = self._whole(node) if node.op is slice and node not in self.found else None
            if whole is not None and SMALL * node.aval.size <= whole.aval.size:
                users = self.users[node]
                read = users[0] if [x.op for x in users] == [reshape] else node
                if self._is_wanted(read):
                    self.found[read] = self._still(read)

    def _whole(self, x: Any) -> Node | None:
        """The array that no turn writes of which a value is a part, at a place that is known; None if it is none."""
        while x not in self.consts:
            if x.op not in (slice, reshape):
                return None
            (x,) = x.inputs
        return x if isinstance(self.consts[x], Value) else None

    def _still(self, x: Node) -> Any:
        """The value outside of the loop of such a part."""
        if x in self.consts:
            return self.consts[x]
        assert x.op is not None
        return x.op(self._still(x.operands[0]), **dict(x.params))

    def _look_at(self, array: Any, values: set[Node], written: Sequence[Window]) -> None:
        for node in self.body.nodes:
            if node.op not in (slice, dynamic_slice) or node.inputs[0] not in values or not self._is_wanted(node):
                continue
            params = dict(node.params)
            sizes, step = node.aval.shape, params["step"]
            places = list(params["start"] if node.op is slice else node.inputs[1:])
            starts = [self._outside(a) for a in places]
            if any(a is None for a in starts):
                continue
            window = window_at([distances(a, self.known) for a in places], sizes, step)
            if all(map(window.is_apart, written)):
                reach = extents(sizes, step)
                limits = [n - m for n, m in zip(array.shape, reach)]
                starts = list(map(moved_into, starts, window.starts, limits))
                self.found[node] = _read(array, starts, sizes, step, reach)

    def _is_wanted(self, node: Node) -> bool:
        """Whether all of a window is read, and not parts of it alone: before the loop, it is an array of its own."""
        return node.aval.size > 0 and any(x.op not in _PARTS for x in self.users[node])

    def _outside(self, x: Any) -> Any:
        """An integer outside of the loop that is `x` in each turn, computed by what never fails; or None."""
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

    @property
    def taking(self) -> Graph:
        """The body with what is read as further inputs."""
        moved = {x: Node(None, (), (), x.aval) for x in self.found}
        inputs, nodes = (*self.body.inputs, *moved.values()), []
        for node in self.body.nodes:
            if node in self.found:
                continue
            if any(x in moved for x in node.operands):
                given = tuple([moved.get(x, x) if isinstance(x, Node) else x for x in node.inputs])
                moved[node] = node = Node(node.op, given, node.params, node.aval, node.location)
            nodes.append(node)
        return Graph(inputs, tuple(nodes), tuple([moved.get(x, x) for x in self.body.outputs]))


def moved_into(start: Any, known: Distances, limit: int) -> Any:
    """The `start` of a window that lies in an array if it is from 0 to `limit`."""
    return start if within(known, 0, limit) else minimum(maximum(start, 0), limit)


def _read(array: Any, starts: Sequence[Any], sizes: Sequence[int], step: Sequence[int], reach: Sequence[int]) -> Any:
    if not all(map(is_literal, starts)):
        return dynamic_slice(array, *starts, sizes=sizes, step=step)
    return slice(array, start=tuple(starts), stop=tuple(map(sum, zip(starts, reach))), step=step)


def read_before(
    operands: Sequence[Any], body: Graph, carries: int, xs: int = 0, cond: Graph | None = None
) -> tuple[list[Any], Graph, Graph | None]:
    """The operands and the regions of a loop that is about to be recorded, with windows that it reads and does not
    write given to it as further constants."""
    if not all(isinstance(x, Value) for x in operands):
        return list(operands), body, cond
    loop = _Loop(operands, body, carries, xs, cond)
    loop.look()
    if not loop.found:
        return list(operands), body, cond
    if cond is not None:
        cond = Graph((*cond.inputs, *(Node(None, (), (), x.aval) for x in loop.found)), cond.nodes, cond.outputs)
    return [*operands, *loop.found.values()], loop.taking, cond
