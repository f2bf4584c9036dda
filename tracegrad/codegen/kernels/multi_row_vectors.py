"""Vectorize the two innermost loops together: one vector holds several short rows (outer-loop vectorization).

    while i + several * rows <= high:  several vectors of whole rows
    while i < high:                    one vector, with a mask for the rows below high

Lane `r * size + k` is element `k` of row `i + r`. Contiguous rows are one access. Strided rows are one access each,
joined by shuffles. A value of a row is broadcast to its lanes, and a value common to all rows is loaded before the
loops. A sum over rows has a vector of partial sums, which are added after the loop.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tracegrad import llvmir as ir
from tracegrad.codegen.instr.scalar import BOOL, I64, combine, extremum, is_extremum, registers, were_nans
from tracegrad.codegen.kernels.vector_kernel import I32, VectorLoop
from tracegrad.codegen.kernels.vector_memory import VectorMemory
from tracegrad.codegen.kernels.vectorize import Vectors, rounded_up
from tracegrad.codegen.loopir.kernel import GuardBlock, Load, Reduce, Store
from tracegrad.codegen.vecmath.lanes import number, of_lanes, splat

if TYPE_CHECKING:
    from tracegrad.codegen.kernels.scalar_kernel import KernelEmitter


def multi_row_loop(outer: KernelEmitter, vectors: Vectors, low: ir.IRValue, high: ir.IRValue) -> None:
    """Emit the loop over rows `low` to `high` and the loop inside; `outer.totals` are the totals after it."""
    _MultiRowLoop(outer, vectors, high).emit(low)


class _MultiRowLoop(VectorLoop):
    def __init__(self, outer: KernelEmitter, vectors: Vectors, high: ir.IRValue):
        super().__init__(outer, vectors, high)
        self.rows, self.row = vectors.rows, self.kernel.loops[-2].var
        self.size = self.kernel.loops[-1].extent.value or 1
        self.step = self.rows
        self.row_memory = VectorMemory(self.b, rounded_up(self.size), vectors.least)
        self.column = VectorMemory(self.b, rounded_up(self.rows), vectors.least)
        # Sums over rows, with one result per column.
        self.down = [
            x for x in self.kernel.body if isinstance(x, Reduce) and self.row in x.over and self.var not in x.over
        ]
        self.reductions += self.down
        self.variables, self.length = [self.row, self.var], None
        used = self.rows * self.size
        self.every = None if used == self.lanes else self.memory.first_lanes(used)
        # A masked store delays loads of the bytes after it, which belong to the next rows.
        self.read_again = self.loaded | {x.buffer for x in self.kernel.body if isinstance(x, Reduce) and x.over}
        self.guards = 0  # number of guards around the current instruction

    def emit(self, low: ir.IRValue) -> None:
        for x in self.down:
            self.outer.totals[id(x)] = self._identities(x)
        super().emit(low)
        for x in self.down:
            self._add_down(x, self.outer.totals.pop(id(x)))

    # -- loops -------------------------------------------------------------------------------------------
    def _identities(self, x: Reduce) -> list[ir.IRValue]:
        return registers(x, self.lanes)

    def _whole(self, low: ir.IRValue, width: int) -> ir.IRValue:
        return self.b.sub(self.high, self.b.urem(self._count(low), I64(width)))

    def _count(self, low: ir.IRValue) -> Any:
        """The number of rows; 0 if the loop ends before it begins."""
        count = self.b.sub(self.high, low)
        return self.b.select(self.b.icmp_signed(">", count, I64(0)), count, I64(0))

    def _mask_of_rest(self, rest: ir.IRValue) -> ir.IRValue:
        return self.memory.lanes_below(self.b.mul(rest, I64(self.size)))

    def _mask_of_all(self) -> Any:
        return self.memory.first_lanes(self.rows * self.size)

    def _variable(self, name: str, k: int) -> Any:
        """The variable of one of the two loops, in each lane."""
        if (key := ("variable", name, k)) not in self.values:
            t = of_lanes(I64, self.lanes)
            if name == self.var:
                self.values[key] = ir.IRConstant(t, [lane % self.size for lane in range(self.lanes)])
            else:
                row_numbers = ir.IRConstant(t, [lane // self.size + k * self.rows for lane in range(self.lanes)])
                self.values[key] = self.b.add(splat(self.b, self.i, self.lanes), row_numbers)
        return self.values[key]

    def _guard(self, x: GuardBlock, copy: int, k: int, mask: ir.IRValue) -> Any:
        self.guards += 1
        value = super()._guard(x, copy, k, self.every if mask is None else mask)
        self.guards -= 1
        return value

    # -- memory --------------------------------------------------------------------------------------------
    def _load(self, x: Load, copy: int, k: int, mask: ir.IRValue | None) -> Any:
        a, b = x.address.coefficient(self.row), x.address.coefficient(self.var)
        if (x.address.symbols | a.symbols) & (self.varying - {self.row, self.var}) or b not in (0, 1):
            return self._gathered(x, k, mask)
        if a == self.size and b == 1:
            return self.memory.load(self._at_row(x, k, 0), x.out.dtype, self.every if mask is None else mask)
        if a == 0:
            return self._common(x) if mask is None or self.guards == 0 else self._gathered(x, k, mask)
        if b == 1 and (row_stride := a.value) is not None and self._span(row_stride):
            return self._load_span(x, k, mask, row_stride)
        if b == 1:
            return self._load_rows(x, k, mask)
        return self._gathered(x, k, mask) if self.guards else self._load_column(x, k, mask)

    def _gathered(self, x: Load, k: int, mask: ir.IRValue | None) -> object:
        offsets = self._lanes_of(x.address, 0, k)
        mask = self.every if mask is None else mask
        return self.memory.gather(self.outer.pointers[x.buffer], offsets, x.out.dtype, mask)

    def _start(self, x: Load | Store) -> ir.IRValue:
        """The pointer to an access at row 0 and element 0."""
        key = ("start", x.buffer, rest := x.address.without(self.row, self.var))
        if key not in self.fixed:
            at = self.scalar(rest, 0)
            with self._before():
                self.fixed[key] = self.b.gep(self.outer.pointers[x.buffer], [at])
        return self.fixed[key]

    def _at_row(self, x: Load | Store, k: int, r: int, last: ir.IRValue | None = None) -> ir.IRValue:
        """The pointer to row `r` of vector `k`, clamped to the row `last`."""
        start, row_stride = self._start(x), self.scalar(x.address.coefficient(self.row), 0)
        i = self.b.add(self.i, I64(k * self.rows + r)) if k or r else self.i
        if r and last is not None:
            i = self.b.select(self.b.icmp_signed("<", i, last), i, last)
        return self.b.gep(start, [self.b.mul(i, row_stride)])

    def _last(self, mask: ir.IRValue | None) -> ir.IRValue | None:
        """The last row, if this iteration may have fewer rows."""
        return None if mask is None else self.b.sub(self.high, I64(1))

    def _common(self, x: Load) -> object:
        """A row that is common to all rows, loaded before the loops."""
        if (key := ("common", x.out.name)) not in self.fixed:
            start = self._start(x)
            with self._before():
                one = self.row_memory.load(start, x.out.dtype, self._row_mask(None, 0))
                self.fixed[key] = self._spread(one, [lane % self.size for lane in range(self.lanes)])
        return self.fixed[key]

    def _load_rows(self, x: Load, k: int, mask: ir.IRValue | None) -> ir.IRValue:
        """Load strided rows and concatenate them."""
        last = None if self.guards else self._last(mask)
        rows = []
        for r in range(self.rows):
            row_mask = self._row_mask(mask if self.guards else None, r)
            rows.append(self.row_memory.load(self._at_row(x, k, r, last), x.out.dtype, row_mask))
        count = self.size
        while len(rows) > 1:
            rows += rows[-1:] * (len(rows) % 2)
            width = rows[0].type.count
            lanes = [*range(count), *range(width, width + count)]
            lanes += [0] * (2 * width - len(lanes))
            rows = [self._shuffled(x, y, lanes) for x, y in zip(rows[::2], rows[1::2])]
            count *= 2
        return self._spread(rows[0], [min(lane, rows[0].type.count - 1) for lane in range(self.lanes)])

    def _span(self, row_stride: int) -> int:
        """The number of elements from the first to the last of all rows, if two vectors hold them all; else 0."""
        span = 0 if row_stride < 0 else (self.rows - 1) * row_stride + self.size
        fits = span <= 2 * self.lanes <= 64
        return span if self.rows > 2 and not self.guards and fits else 0

    def _load_span(self, x: Load, k: int, mask: ir.IRValue | None, row_stride: int) -> ir.IRValue:
        """Load rows with small gaps, together with the gaps."""
        span, start, halves = self._span(row_stride), self._at_row(x, k, 0), []
        for first in (0, self.lanes) if span > self.lanes else (0,):
            if mask is None:
                lane_mask = None if span - first >= self.lanes else self.memory.first_lanes(span - first)
            else:
                rest = self.b.sub(
                    self.b.mul(self._remaining_rows(), I64(row_stride)), I64(row_stride - self.size + first)
                )
                lane_mask = self.memory.lanes_below(self._within(rest))
            halves.append(self.memory.load(self.b.gep(start, [I64(first)]), x.out.dtype, lane_mask))
        lanes = [min(lane // self.size * row_stride + lane % self.size, span - 1) for lane in range(self.lanes)]
        return self._shuffled(halves[0], halves[-1], lanes)

    def _remaining_rows(self) -> ir.IRValue:
        """The number of rows of a masked iteration."""
        rest = self.b.sub(self.high, self.i)
        return self.b.select(self.b.icmp_signed("<", rest, I64(self.rows)), rest, I64(self.rows))

    def _within(self, count: ir.IRValue) -> ir.IRValue:
        """`count`, clamped to the range from 0 to the number of lanes."""
        count = self.b.select(self.b.icmp_signed(">", count, I64(0)), count, I64(0))
        return self.b.select(self.b.icmp_signed("<", count, I64(self.lanes)), count, I64(self.lanes))

    def _load_column(self, x: Load, k: int, mask: ir.IRValue | None) -> ir.IRValue:
        """Load one number per row and broadcast it to the lanes of the row."""
        dtype = x.out.dtype
        if mask is None and x.address.coefficient(self.row) == 1 and self.rows == self.column.lanes:
            column = self.column.load(self._at_row(x, k, 0), dtype, None)
        else:
            column, last = None, self._last(mask)
            for r in range(self.rows):
                one = self.outer.loaded(self._at_row(x, k, r, last), dtype)
                if column is None:
                    column = ir.TextConstant(of_lanes(one.type, self.column.lanes), "poison")
                column = self.b.insert_element(column, one, I32(r))
        return self._spread(column, [min(lane // self.size, self.rows - 1) for lane in range(self.lanes)])

    def _row_mask(self, mask: ir.IRValue | None, r: int) -> ir.IRValue | None:
        """The mask of row `r`; None if all lanes of its vector are set."""
        if mask is None:
            return None if self.size == self.row_memory.lanes else self.row_memory.first_lanes(self.size)
        # Computed on the bits of an integer, because LLVM 20 shuffles the last lanes of masks wrongly.
        bits = self.b.bitcast(mask, whole := ir.IntType(mask.type.count))
        bits = self.b.and_(self.b.lshr(bits, whole(r * self.size)), whole((1 << self.size) - 1))
        row_type = ir.IntType(self.row_memory.mask_width)
        bits = self.b.trunc(bits, row_type) if row_type.width < whole.width else self.b.zext(bits, row_type)
        return self.b.bitcast(bits, of_lanes(BOOL, row_type.width))

    def _shuffled(self, x: ir.IRValue, y: ir.IRValue, lanes: list[int]) -> ir.IRValue:
        return self.b.shuffle_vector(x, y, ir.IRConstant(of_lanes(I32, len(lanes)), lanes))

    def _spread(self, x: Any, lanes: list[int]) -> ir.IRValue:
        return self._shuffled(x, ir.TextConstant(x.type, "poison"), lanes)

    def _store(self, x: Store, value: object, copy: int, k: int, mask: ir.IRValue) -> None:
        dtype = x.value.dtype
        if x.address.coefficient(self.row) == self.size:
            pointer, used = self._at_row(x, k, 0), self.rows * self.size
            if mask is None and x.buffer in self.read_again and used < self.lanes:
                self.memory.store_first(value, pointer, dtype, used)
            else:
                self.memory.store(value, pointer, dtype, self.every if mask is None else mask)
            return
        for r in range(self.rows):
            lanes = [min(r * self.size + k, self.lanes - 1) for k in range(self.row_memory.lanes)]
            self.row_memory.store(self._spread(value, lanes), self._at_row(x, k, r), dtype, self._row_mask(mask, r))

    # -- reductions --------------------------------------------------------------------------------------------
    def _reduce(self, x: Reduce, copy: int, k: int, mask: ir.IRValue) -> None:
        whole = self.var in x.over  # lanes without a row must then not count
        super()._reduce(x, copy, k, self.every if whole and mask is None else mask)

    def _reduce_into_memory(self, x: Reduce, value: object, copy: int, k: int, mask: ir.IRValue) -> None:
        if x.over:
            current = self._load(Load(x.value, x.buffer, x.address), copy, k, mask)
            value = combine(self.b, x.combiner, current, value, x.value.dtype)
        self._store(Store(x.buffer, x.address, x.value), value, copy, k, mask)

    def _add_down(self, x: Reduce, totals: list[ir.IRValue]) -> None:
        """Combine the rows of a vector of partial results, and add the sum to memory."""
        row_totals = []
        for r in range(self.rows):
            lanes = [min(r * self.size + k, self.lanes - 1) for k in range(self.row_memory.lanes)]
            row_totals.append([self._spread(total, lanes) for total in totals])
        total, dtype = row_totals[0], x.value.dtype
        for row_total in row_totals[1:]:
            if is_extremum(x):
                best, _ = extremum(self.b, x.combiner, total, row_total[0])
                total = [best, self.b.or_(total[1], row_total[1])]
            else:
                total = [combine(self.b, x.combiner, total[0], row_total[0], dtype)]
        value = total[0]
        if is_extremum(x):
            value = self.b.select(were_nans(self.b, total[1]), number(value.type, math.nan), value)
        pointer, lane_mask = self._results_pointer(x), self._row_mask(None, 0)
        value = combine(self.b, x.combiner, self.row_memory.load(pointer, dtype, lane_mask), value, dtype)
        self.row_memory.store(value, pointer, dtype, lane_mask)

    def _results_pointer(self, x: Reduce) -> object:
        """The pointer to the results of sums over rows."""
        at = self.outer.polys.emit(self.b, x.address.without(self.row, self.var))
        return self.b.gep(self.outer.pointers[x.buffer], [at])
