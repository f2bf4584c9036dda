"""Emit the innermost loop of an early-exit reduction (`early_exit.py`) as vectors.

while i + several vectors <= high:  exit with the current vectors if one of them contains a match
while i < high:                     one vector, with a mask, for the remainder

The same for a loop that finds the index of an extremum (`fused_arg_reduction.py`) in at least that many vectors:

while i < high:                     several vectors; the last ones overlap, so that they end where the row does

Each lane saves its best value, and the position of the vectors that had it first. The smallest position among the lanes
with the overall best value says which vectors to search again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Any

from tracegrad import llvmir as ir
from tracegrad.avals import dtype_named
from tracegrad.codegen.instr.scalar import BOOL, I64, combine, identity, operation
from tracegrad.codegen.kernels.carried_totals import end_iteration, join
from tracegrad.codegen.kernels.early_exit import FirstExtremum, LaneCount, LaneSearch
from tracegrad.codegen.kernels.vector_kernel import VectorLoop, vector_loop
from tracegrad.codegen.kernels.vectorize import Vectors
from tracegrad.codegen.loopir.kernel import FIRST, Reduce
from tracegrad.codegen.vecmath.lanes import first_lane, horizontal, number, splat

if TYPE_CHECKING:
    from tracegrad.codegen.kernels.scalar_kernel import KernelEmitter
    from tracegrad.llvmir.module import BasicBlock

I32 = ir.IntType(32)


def emit_innermost_loop(outer: KernelEmitter, vectors: Vectors, search: Any, low: ir.IRValue, high: ir.IRValue) -> None:
    """Emit the innermost loop as `vector_loop` does, for a kernel that may be a search."""
    if search is None:
        vector_loop(outer, vectors, low, high)
    elif isinstance(search, FirstExtremum):
        _FirstLoop(outer, vectors, search, high).emit(low)
    elif isinstance(search, LaneCount):
        _CountLoop(outer, vectors, search, high).emit(low)
    else:
        _SearchLoop(outer, vectors, search, high).emit(low)


class _SearchLoop(VectorLoop):
    """A vector loop whose total is one scalar: an index, or a boolean."""

    def __init__(self, outer: KernelEmitter, vectors: Vectors, search: LaneSearch, high: ir.IRValue):
        super().__init__(outer, vectors, high)
        self.search, self.may_pass = search, True
        self.over: Any = None  # whether a match in an iteration ends the loop

    def _unmasked(self, low: ir.IRValue, end: Any, after: BasicBlock, incoming: list[Any]) -> ir.IRValue:
        before, some = self.b.block, self.b.icmp_signed("<", low, end)
        some = some if self.search.match_index is None else self.b.and_(some, self._ends())
        search, over, result, remainder = map(self._new_block, ("search", "over", "found", "left"))
        self.b.cbranch(some, search, remainder)
        self.b.position_at_end(search)
        i = self.b.merge((low, before))
        self.b.cbranch(self._nothing(i), over, result)
        self.b.position_at_end(over)
        following = self.b.add(i, I64(self.unroll * self.lanes))
        i.add_incoming(following, over)
        untouched, nothing = dict(self.totals), self._with_missing()
        self._no_unrolling(self.b.cbranch(self.b.icmp_signed("<", following, end), search, remainder))
        self.b.position_at_end(result)
        none = self._update_totals(i)
        incoming.append((self.b.block, dict(self.totals)))
        self.b.cbranch(none, over, after)
        self.b.position_at_end(remainder)
        start = self.b.merge((low, before), (end, over))
        self.totals = untouched
        self.totals |= join(self.b, [(before, untouched), (over, nothing)])
        return start

    def _masked(self, low: ir.IRValue, whole: ir.IRValue, rest: ir.IRValue) -> None:
        """Emit the loop of one masked vector, which also exits early."""
        before, loop, after = self.b.block, *map(self._new_block, ("one", "done"))
        ends = BOOL(1) if self.search.match_index is None else self._ends()
        self.b.branch(loop)
        self.b.position_at_end(loop)
        i = self.b.merge((low, before))
        phis = self._begin_loop(before)
        self._iteration(i, 1, self.b.select(self.b.icmp_signed("<", i, whole), self._mask_of_all(), rest))
        following = self.b.add(i, I64(self.step))
        i.add_incoming(following, self.b.block)
        end_iteration(self.b, phis, self.totals)
        continues = self.b.and_(
            self.b.icmp_signed("<", following, self.high), self.b.not_(self.b.and_(self.over, ends))
        )
        self._no_unrolling(self.b.cbranch(continues, loop, after))
        self.b.position_at_end(after)

    def _ends(self) -> ir.IRValue:
        """Whether a match ends a search for an index: `missing` must not be smaller."""
        match_index = self.search.match_index
        assert match_index is not None
        last = self.b.add(self.scalar(match_index.without(self.var), 0), self.b.sub(self.high, I64(1)))
        return self.b.icmp_signed(">=", self._missing(), last)

    def _missing(self) -> ir.IRValue:
        assert self.search.missing is not None
        return self.b.extract_element(self._value(self.search.missing, 0, 0), I32(0))

    def _update_totals(self, i: ir.IRValue) -> ir.IRValue:
        """Update the totals by vectors with a possible match; returns whether there is none after all."""
        if self.search.match_index is None:
            self.totals = {key: [BOOL(not self.search.all)] for key in self.totals}
            return BOOL(0)
        wanted = [self._value(self.search.wanted, 0, k) for k in range(self.unroll)]
        first, none = first_lane(self.b, [self.b.not_(x) for x in wanted] if self.search.all else wanted)
        self.totals = self._clamped_totals(self._index_at(i, first))
        return none

    def _index_at(self, i: ir.IRValue, lane: ir.IRValue) -> ir.IRValue:
        assert self.search.match_index is not None
        return self.b.add(self.b.add(self.scalar(self.search.match_index.without(self.var)), i), lane)

    def _nothing(self, i: Any) -> ir.IRValue:
        """Whether the vectors from `i` on have no match."""
        self.i, self.values = i, {}
        for k in range(self.unroll):
            self._block([x for x in self.kernel.body if not isinstance(x, Reduce)], 0, k, None)
        if self.search.alike is None:
            return self._none_of(lambda k: self._value(self.search.wanted, 0, k))
        one, other = self.search.alike
        return self._none_of(lambda k: self.b.fcmp_unordered("==", self._value(one, 0, k), self._value(other, 0, k)))

    def _none_of(self, lanes: Callable[[int], ir.IRValue]) -> ir.IRValue:
        """Whether no lane of several vectors matches."""
        every = lanes(0)
        for k in range(1, self.unroll):
            every = (self.b.and_ if self.search.all else self.b.or_)(every, lanes(k))
        bits = self.b.bitcast(every, ir.IntType(self.lanes))
        return self.b.icmp_unsigned("==", bits, ir.IRConstant(bits.type, -1 if self.search.all else 0))

    def _reduce(self, x: Reduce, copy: int, k: int, mask: ir.IRValue) -> None:
        """Reduce the unmasked lanes of one vector."""
        b, booleans = self.b, self._value(self.search.wanted, copy, k)
        active = self.memory.first(mask, self.lanes)
        result = b.and_(b.not_(booleans) if self.search.all else booleans, active)
        first, none = first_lane(b, [result])
        self.over, key = b.not_(none), (id(x), copy, k)
        if self.search.match_index is None:
            boolean = none if self.search.all else self.over
            self.totals[key] = [combine(b, x.combiner, self.totals[key][0], boolean, "bool")]
            return
        bits, all_bits = (b.bitcast(lanes, ir.IntType(self.lanes)) for lanes in (result, active))
        nowhere = identity("minimum", "i64")
        missing = b.select(b.icmp_unsigned("==", bits, all_bits), nowhere, self._missing())
        self.totals = self._clamped_totals(b.select(none, nowhere, self._index_at(self.i, first)))
        self.totals = self._clamped_totals(missing)

    def _with_missing(self) -> dict[tuple[int, int, int], list[ir.IRValue]]:
        """The totals after vectors without a match."""
        return dict(self.totals) if self.search.missing is None else self._clamped_totals(self._missing())

    def _clamped_totals(self, index: ir.IRValue) -> dict[tuple[int, int, int], list[ir.IRValue]]:
        """The totals, limited to at most `index`."""
        return {key: [combine(self.b, "minimum", total, index, "i64")] for key, (total,) in self.totals.items()}


class _CountLoop(VectorLoop):
    """A vector loop whose total is one scalar: the number of set bits of all vectors."""

    def __init__(self, outer: KernelEmitter, vectors: Vectors, search: LaneCount, high: ir.IRValue):
        super().__init__(outer, vectors, high)
        self.wanted, self.may_pass = search.wanted, True

    def _reduce(self, x: Reduce, copy: int, k: int, mask: ir.IRValue) -> None:
        b, booleans = self.b, self._value(self.wanted, copy, k)
        booleans = booleans if mask is None else b.and_(booleans, self.memory.first(mask, self.lanes))
        bits = b.ctpop(b.bitcast(booleans, ir.IntType(self.lanes)))
        (total,) = self.totals[id(x), copy, k]
        excess_bits = bits.type.width - total.type.width
        bits = bits if not excess_bits else (b.trunc if excess_bits > 0 else b.zext)(bits, total.type)
        self.totals[id(x), copy, k] = [b.add(total, bits)]


class _FirstLoop(VectorLoop):
    def __init__(self, outer: KernelEmitter, vectors: Vectors, search: FirstExtremum, high: ir.IRValue):
        super().__init__(outer, vectors, high)
        self.unroll = max(self.unroll, 1)
        self.reduction, self.combiner = search.reduction, FIRST[search.reduction.combiner]
        operands = self.reduction.value.dtype
        self.unsigned, self.dtype = operands[0] == "u", f"i{operands[1:]}" if operands[0] == "u" else operands
        self.elements = [x for x in self.kernel.body if x is not search.reduction]
        self.index_type = ir.IntType(8 * dtype_named(self.dtype).itemsize)  # as wide as the elements

    def emit(self, low: ir.IRValue) -> None:
        b = self.b
        with b.goto_block(self.outer.before_loops):
            last = b.sub(self.high, I64(self.unroll * self.lanes))
        self.begin = b.block
        self._hoist(0)
        before = self.begin = b.block
        loop, numbers, over, unordered, result = map(
            self._new_block, ("vectors", "numbers", "over", "unordered", "found")
        )
        starts = [low, identity(self.combiner, self.dtype, self.lanes), self._everywhere_of(low)]
        b.branch(loop)
        b.position_at_end(loop)
        phis = [b.merge((x, before)) for x in starts]
        i, best, begin = list[Any](phis)
        values = self._values_from(i)
        b.cbranch(self._has_nan(values), unordered, numbers)
        b.position_at_end(numbers)
        new = reduce(self._better, values)
        begin = b.select(self._compared("better", new, best), self._everywhere_of(i), begin)
        best = self._better(new, best)
        following = b.add(i, I64(self.unroll * self.lanes))
        or_last = b.select(b.icmp_signed("<", following, last), following, last)
        for phi, value in zip(phis, (or_last, best, begin)):
            phi.add_incoming(value, numbers)
        self._no_unrolling(b.cbranch(b.icmp_signed("<", following, self.high), loop, over))
        b.position_at_end(unordered)
        nan = self._first(i, [self._compared("ne", x, x) for x in values])
        b.branch(result)
        b.position_at_end(over)
        extremum = self._first_of(best, begin)
        b.branch(result)
        b.position_at_end(result)
        self.outer.totals[id(self.reduction)] = [b.merge((nan, unordered), (extremum, over))]

    def _everywhere_of(self, i: ir.IRValue) -> ir.IRValue:
        """Broadcast the index of an element to all lanes."""
        return splat(self.b, i if self.index_type == I64 else self.b.trunc(i, self.index_type), self.lanes)

    def _values_from(self, i: ir.IRValue) -> list[ir.IRValue]:
        """The elements from `i` on. Unsigned ones are mapped to signed ones in the same order, because their comparison
        is faster."""
        self.i, self.values = i, {}
        for k in range(self.unroll):
            self._block(self.elements, 0, k, None)
        values = [self._value(self.reduction.value, 0, k) for k in range(self.unroll)]
        return (
            [self.b.xor(x, number(x.type, -1 << self.index_type.width - 1)) for x in values]
            if self.unsigned
            else values
        )

    def _compared(self, how: str, x: ir.IRValue, y: ir.IRValue) -> Any:
        how = how if how != "better" else "gt" if self.combiner == "maximum" else "lt"
        return operation(self.b, how, [x, y], [self.dtype] * 2, "bool")

    def _better(self, x: ir.IRValue, y: ir.IRValue) -> ir.IRValue:
        return self.b.select(self._compared("better", x, y), x, y)

    def _has_nan(self, values: list[ir.IRValue]) -> ir.IRValue:
        if self.dtype[0] != "f":
            return ir.IRConstant(BOOL, 0)
        pairs = zip(values[::2], values[1::2] or values)
        lanes = reduce(self.b.or_, [self.b.fcmp_unordered("uno", x, y) for x, y in pairs])
        bits = self.b.bitcast(lanes, ir.IntType(self.lanes))
        return self.b.icmp_unsigned("!=", bits, ir.IRConstant(bits.type, 0))

    def _first_of(self, best: ir.IRValue, begin: ir.IRValue) -> ir.IRValue:
        """The index of the first element that is the overall extremum."""
        b, t = self.b, f"i{self.index_type.width}"
        extremum = splat(b, horizontal(b, self.combiner, self.dtype, best), self.lanes)
        first: ir.IRValue = b.select(self._compared("eq", best, extremum), begin, identity("minimum", t, self.lanes))
        first = horizontal(b, "minimum", t, first)
        first = first if self.index_type == I64 else b.sext(first, I64)
        return self._first(first, [self._compared("eq", x, extremum) for x in self._values_from(first)])

    def _first(self, i: ir.IRValue, booleans: list[ir.IRValue]) -> ir.IRValue:
        return self.b.add(i, first_lane(self.b, booleans)[0])
