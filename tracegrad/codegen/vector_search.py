"""The innermost loop of a kernel that looks for something, as vectors (`searches.py`).

while i + several vectors <= high:  leave with these vectors alone, if something is in them
while i < high:                     one vector, with a mask, for what is left if nothing was
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from llvmlite import ir

from tracegrad.codegen.lanes import splat
from tracegrad.codegen.loops import Reduce
from tracegrad.codegen.scalar_llvm import BOOL, I64, combine
from tracegrad.codegen.searches import Search
from tracegrad.codegen.vector_llvm import VectorLoop, vector_loop
from tracegrad.codegen.vectors import Vectors

if TYPE_CHECKING:
    from tracegrad.codegen.llvm import KernelEmitter

__all__ = ["row_loop"]


def row_loop(outer: KernelEmitter, vectors: Vectors, search: Search | None, low: Any, high: Any) -> None:
    """As `vector_loop`, for a kernel that may look for something."""
    if search is None:
        vector_loop(outer, vectors, low, high)
    else:
        _SearchLoop(outer, vectors, search, high).emit(low)


class _SearchLoop(VectorLoop):
    def __init__(self, outer: KernelEmitter, vectors: Vectors, search: Search, high: Any):
        super().__init__(outer, vectors, high)
        self.search, self.may_pass = search, True

    def _unmasked(self, low: Any, end: Any, after: Any, ways: list[Any]) -> Any:
        before, some = self.b.block, self._looks(low, end)
        search, over, found, left = map(self._new_block, ("search", "over", "found", "left"))
        self.b.cbranch(some, search, left)
        self.b.position_at_end(search)
        i = self.b.phi(I64)
        i.add_incoming(low, before)
        self.b.cbranch(self._nothing(i), over, found)
        self.b.position_at_end(over)
        following = self.b.add(i, I64(self.several * self.lanes))
        i.add_incoming(following, over)
        untouched, nothing = dict(self.totals), self._with_missing()
        self._no_unrolling(self.b.cbranch(self.b.icmp_signed("<", following, end), search, left))
        self.b.position_at_end(found)
        none = self._found_where(i) if self.search.place is not None else self._found(i)
        ways.append((self.b.block, dict(self.totals)))
        self.b.cbranch(none, over, after)
        self.b.position_at_end(left)
        start = self.b.phi(I64)
        start.add_incoming(low, before)
        start.add_incoming(end, over)
        self.totals = untouched
        self._join([(before, untouched), (over, nothing)])
        return start

    def _found(self, i: Any) -> Any:
        """Reduce the vectors in which something is; whether nothing is after all."""
        self._begin_totals()
        self._turn(i, self.several, None)
        none = self._none_of(lambda k: self._value(self.search.wanted, 0, k))
        self._end_totals()
        return none

    def _found_where(self, i: Any) -> Any:
        """The same where a place is asked for: that of the first lane."""
        b, place = self.b, self.search.place
        assert place is not None
        bits = self._bits([self._value(self.search.wanted, 0, k) for k in range(self.several)])
        bits = b.not_(bits) if self.search.all else bits
        first = b.cttz(bits, ir.Constant(BOOL, 0))
        first = b.zext(first, I64) if first.type.width < 64 else b.trunc(first, I64)
        found = b.add(b.add(self.scalar(place.without(self.var)), i), first)
        self.totals = self._at_most(splat(b, found, self.lanes))
        return b.icmp_unsigned("==", bits, ir.Constant(bits.type, 0))

    def _bits(self, lanes: list[Any]) -> Any:
        """A number with a bit for each lane of several vectors, the first the lowest."""
        while len(lanes) > 1:
            count = 2 * lanes[0].type.count
            both = ir.Constant(ir.VectorType(ir.IntType(32), count), [*range(count)])
            lanes = [self.b.shuffle_vector(*pair, both) for pair in zip(lanes[::2], lanes[1::2])]
        return self.b.bitcast(lanes[0], ir.IntType(lanes[0].type.count))

    def _looks(self, low: Any, end: Any) -> Any:
        """Whether to look at all: there must be as much, and what is missing may not count before what is found."""
        more = self.b.icmp_signed("<", low, end)
        place, missing = self.search.place, self.search.missing
        if place is None or missing is None:
            return more
        last = self.b.add(self.scalar(place.without(self.var), 0), self.b.sub(self.high, I64(1)))
        none = self.b.extract_element(self._value(missing, 0, 0), ir.IntType(32)(0))
        return self.b.and_(more, self.b.icmp_signed(">=", none, last))

    def _nothing(self, i: Any) -> Any:
        """Whether there is nothing in the vectors from `i` on."""
        self.i, self.values = i, {}
        for k in range(self.several):
            self._block([x for x in self.kernel.body if not isinstance(x, Reduce)], 0, k, None)
        if self.search.alike is None:
            return self._none_of(lambda k: self._value(self.search.wanted, 0, k))
        one, other = self.search.alike
        return self._none_of(lambda k: self.b.fcmp_unordered("==", self._value(one, 0, k), self._value(other, 0, k)))

    def _none_of(self, lanes: Callable[[int], Any]) -> Any:
        """Whether nothing is in the lanes of several vectors."""
        every = lanes(0)
        for k in range(1, self.several):
            every = (self.b.and_ if self.search.all else self.b.or_)(every, lanes(k))
        bits = self.b.bitcast(every, ir.IntType(self.lanes))
        return self.b.icmp_unsigned("==", bits, ir.Constant(bits.type, -1 if self.search.all else 0))

    def _with_missing(self) -> dict[Any, list[Any]]:
        """The totals after vectors in which nothing was."""
        if self.search.missing is None:
            return dict(self.totals)
        return self._at_most(self._value(self.search.missing, 0, 0))

    def _at_most(self, place: Any) -> dict[Any, list[Any]]:
        """The totals, of which none is above a place."""
        return {key: [combine(self.b, "minimum", total, place, "i64")] for key, (total,) in self.totals.items()}
