"""Emit a register-blocked GEMM microkernel as LLVM IR.

    void tg_gemm.<dtype>(the arguments of a gemm, with Fortran's ABI)

It computes the column-major C = alpha A B + beta C. A strip of A is two vectors high and up to `STRIP_COLUMNS` columns
long. The sums of a strip times a few columns of B stay in registers. A strip is packed first if it is transposed,
partial, or spread out in memory: some strips at a time, each then multiplied by all columns of B. B is read without
packing, except a large transposed B, which every strip would read in short pieces: it is packed once. If A has few rows
and B is transposed, the transposed product is computed, because its strips are full. Each element is summed over k in
order by fused multiply-adds, for all sizes. A part of a product has therefore the bits of the whole.

OpenBLAS packs both factors of every product, which is expensive for small products. It computes large products at the
peak of the CPU. `tracegrad.target.products` chooses between both.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tracegrad import llvmir as ir
from tracegrad.codegen.instr.scalar import I64
from tracegrad.codegen.instr.support import loop, smaller
from tracegrad.codegen.kernels.transpose_tiling import transposed
from tracegrad.codegen.libs.gemm_writer import I8, I32, GemmEmitter
from tracegrad.codegen.vecmath.lanes import number, prefetch, splat
from tracegrad.target.cpu import features
from tracegrad.target.products import has_small_kernels
from tracegrad.target.tuning import TUNING

if TYPE_CHECKING:
    from collections.abc import Callable


GEMM = "tg_gemm."
MAX_BATCHED_SIZE = TUNING.gemm.max_batched_size
STRIP_COLUMNS = TUNING.gemm.strip_columns
PACKED_STRIPS = TUNING.gemm.packed_strips
BLOCK_BYTES = TUNING.gemm.block_bytes
MAX_UNPACKED_SPAN = TUNING.gemm.max_unpacked_span
MAX_WIDE_UNPACKED_SPAN = TUNING.gemm.max_unpacked_span_of_wide_vectors
MAX_UNPACKED_ROW_SPAN = TUNING.gemm.max_unpacked_row_span
MAX_UNPACKED_ROWS = TUNING.gemm.max_unpacked_rows
MAX_REREAD_BYTES = TUNING.gemm.max_reread_bytes
MIN_COLUMNS = TUNING.gemm.min_columns
CROWDED_STRIDE = TUNING.gemm.crowded_stride
SET_STRIDE = TUNING.gemm.set_stride
CACHE_WAYS = TUNING.gemm.cache_ways
PACKED_ROWS = TUNING.gemm.packed_rows
MAX_SHORT_COLUMN = TUNING.gemm.max_short_column
MIN_PREFETCHED_SPAN = TUNING.gemm.min_prefetched_span
MIN_PREFETCHED_STRIDE = TUNING.gemm.min_prefetched_stride
PREFETCHED_PANELS = TUNING.gemm.prefetched_panels
NARROW_COLUMNS = TUNING.gemm.narrow_columns
POINTER_COLUMNS = TUNING.gemm.pointer_columns


def is_small_product(m: int, n: int, k: int, letters: str) -> bool:
    """Whether the generated GEMM computes a product of sizes m, n, k in a batch. AMD CPUs with AVX-512 use OpenBLAS for
    most products."""
    return max(m, n, k) <= MAX_BATCHED_SIZE and (letters == "TN" or not has_small_kernels())


def gemm_module(name: str) -> str:
    """Emit the module that defines a GEMM function, as text."""
    t = ir.DoubleType() if name.endswith("f64") else ir.FloatType()
    return str(_Gemm(name, t).module)


def _registers() -> tuple[int, int]:
    """The bytes of a vector, and the number of columns whose sums fit in registers."""
    if "avx512f" in features():
        return 64, 8
    return (32, 6) if "avx2" in features() else (16, 6)


class _ColumnPanels(NamedTuple):
    """The columns of the wide and of the other parts of a block of B, and the number of parts of each kind."""

    wide_columns: ir.IRValue
    narrow_columns: ir.IRValue
    num_wide: ir.IRValue
    count: Any


class _Gemm(GemmEmitter):
    """Emitter of one GEMM function."""

    def __init__(self, name: str, t: ir.IRType):
        bytes_, self.width = _registers()
        super().__init__(ir.IRModule(name), t, bytes_)
        self.tall = 2 * self.lanes
        data, integer, letter = t.as_pointer(), I32.as_pointer(), I8.as_pointer()
        matrix = [data, integer]
        types = [letter, letter, integer, integer, integer, data, *matrix, *matrix, data, *matrix]
        function = ir.IRFunction(self.module, ir.FunctionType(ir.VoidType(), types), name)
        self.b = b = ir.IRBuilder(function.append_basic_block("entry"))
        a_letter, b_letter, m, n, k, alpha, a, lda, second, ldb, beta, self.c, ldc = function.args
        m, n, self.k, lda, ldb, ldc = (b.sext(b.load(x), I64) for x in (m, n, k, lda, ldb, ldc))
        plain, straight = self.is_plain(a_letter), self.is_plain(b_letter)
        self.alpha, self.beta = b.load(alpha), b.load(beta)
        # Compute the transposed product if A has few rows, and the rows of a transposed B fill vectors.
        broad = b.and_(b.icmp_signed("<=", m, I64(NARROW_COLUMNS)), b.icmp_signed(">=", n, I64(self.tall)))
        self.is_transposed = is_transposed = b.and_(broad, b.not_(straight))
        pairs = ((a, second), (lda, ldb), (m, n), (plain, b.not_(straight)), (straight, b.not_(plain)))
        self.a, self.lda, self.m, self.plain, self.straight = (b.select(is_transposed, y, x) for x, y in pairs)
        self.second, self.ldb, self.n = (b.select(is_transposed, x, y) for x, y in pairs[:3])
        self.down, self.ldc = b.select(is_transposed, ldc, I64(1)), b.select(is_transposed, I64(1), ldc)
        self.panel = self.room(PACKED_STRIPS * self.tall * (STRIP_COLUMNS + self.lanes))
        self.corner = self.room(self.tall * 2 * self.width)
        self.packs, self.packed = self.memory()
        with b.if_then(b.icmp_signed(">", self.m, I64(0))):
            self.blocks()
        with b.if_then(self.packs):
            free = ir.IRFunction(self.module, ir.FunctionType(ir.VoidType(), [letter]), "free")
            b.call(free, [b.bitcast(self.packed, letter)])
        b.ret_void()

    def memory(self) -> tuple[ir.IRValue, ir.IRValue]:
        """Whether B is packed, and the memory for it."""
        b = self.b
        spans = b.mul(b.mul(self.ldb, smaller(self.b, self.k, I64(STRIP_COLUMNS))), I64(self.size))
        far = b.and_(
            b.icmp_signed(">", spans, I64(MAX_UNPACKED_ROW_SPAN)), b.icmp_signed(">", self.k, I64(MAX_UNPACKED_ROWS))
        )
        is_profitable = b.and_(far, b.icmp_signed(">", self.m, I64(MAX_REREAD_BYTES // self.size * self.tall)))
        deep = b.and_(self.is_stride_multiple(self.ldb, SET_STRIDE), b.icmp_signed(">", self.k, I64(CACHE_WAYS)))
        is_profitable = b.or_(is_profitable, b.and_(deep, b.icmp_signed(">", self.m, I64(2 * self.tall))))
        malloc = ir.IRFunction(self.module, ir.FunctionType(I8.as_pointer(), [I64]), "malloc")
        before = b.block
        with b.if_then(b.and_(b.not_(self.straight), is_profitable)):
            columns = smaller(self.b, self.n, I64(BLOCK_BYTES // self.size // STRIP_COLUMNS))
            result = b.bitcast(b.call(malloc, [b.mul(columns, I64(STRIP_COLUMNS * self.size))]), self.a.type)
            inside = b.block
        none = ir.IRConstant(self.a.type, None)
        room = b.merge((none, before), (result, inside))
        return b.icmp_unsigned("!=", room, none), room

    # -- loops -----------------------------------------------------------------------------------------------
    def blocks(self) -> None:
        """Emit the loops over all columns of B, block by block, and over all of k."""
        b = self.b
        stages = self.at_least_one(self.quotient_up(self.k, STRIP_COLUMNS))
        max_columns = BLOCK_BYTES // self.size // STRIP_COLUMNS

        def block(i: ir.IRValue) -> None:
            self.left = b.mul(i, I64(max_columns))
            self.columns = smaller(self.b, b.sub(self.n, self.left), I64(max_columns))
            self.panels = self.split_columns(I64(self.width), I64(NARROW_COLUMNS))
            # With one vector, registers hold the sums of twice the columns. The cache holds all of them too, unless
            # they share cache sets. A packed B has the usual parts.
            usual = b.or_(self.packs, b.and_(self.is_stride_multiple(self.ldb, SET_STRIDE), self.straight))
            sizes = ((self.width, 2 * self.width), (NARROW_COLUMNS, self.width))
            self.broad = self.split_columns(*[b.select(usual, I64(x), I64(y)) for x, y in sizes])
            loop(b, stages, self.stage)

        loop(b, self.quotient_up(self.n, max_columns), block)

    def split_columns(self, wide_columns: ir.IRValue, narrow_columns: ir.IRValue) -> _ColumnPanels:
        """Split a block into parts."""
        b = self.b
        count = self.quotient_up(self.columns, wide_columns)
        missing = b.sub(b.mul(count, wide_columns), self.columns)
        num_narrow = b.sdiv(missing, b.sub(wide_columns, narrow_columns))
        return _ColumnPanels(wide_columns, narrow_columns, b.sub(count, smaller(b, num_narrow, count)), count)

    def stage(self, i: ir.IRValue) -> None:
        """Accumulate the products of some columns of A with the same rows of a block of B."""
        b = self.b
        self.first = b.mul(i, I64(STRIP_COLUMNS))
        self.depth = smaller(self.b, b.sub(self.k, self.first), I64(STRIP_COLUMNS))
        self.factor = b.select(b.icmp_signed("==", i, I64(0)), self.beta, ir.IRConstant(self.t, 1.0))
        self.adds = b.fcmp_unordered("!=", self.factor, ir.IRConstant(self.t, 0.0))
        left, first = self.left, self.first
        at = b.select(self.straight, b.add(b.mul(left, self.ldb), first), b.add(b.mul(first, self.ldb), left))
        self.block = b.gep(self.second, [at])
        with b.if_then(self.packs):
            loop(b, self.quotient_up(self.depth, PACKED_ROWS), self.pack)
        spans = b.mul(b.mul(self.lda, self.depth), I64(self.size))
        min_columns = b.select(
            self.is_stride_multiple(self.lda, CROWDED_STRIDE), I64(MIN_COLUMNS // 2), I64(MIN_COLUMNS)
        )
        has_few_columns = b.icmp_signed("<", self.columns, min_columns)
        reach = b.select(
            self.is_stride_multiple(self.lda, SET_STRIDE),
            I64(MAX_UNPACKED_SPAN),
            I64(MAX_WIDE_UNPACKED_SPAN if self.is_long else MAX_UNPACKED_SPAN),
        )
        self.is_unpacked = b.and_(self.plain, b.or_(b.icmp_signed("<=", spans, reach), has_few_columns))
        short = b.and_(self.straight, b.icmp_signed("<=", self.depth, I64(MAX_SHORT_COLUMN // self.size)))
        has_gaps = b.icmp_signed(">=", self.ldb, I64(MAX_SHORT_COLUMN // self.size))
        away = b.icmp_signed(">", b.mul(self.ldb, self.n), I64(MIN_PREFETCHED_SPAN // self.size))
        self.strewn = b.and_(short, b.and_(has_gaps, away))
        # The number of strips that fit: shorter strips give longer columns of results.
        padded_depth = b.add(self.depth, I64(self.lanes))
        strips = b.sdiv(I64(PACKED_STRIPS * (STRIP_COLUMNS + self.lanes)), padded_depth)
        self.pitch, self.height = b.mul(padded_depth, I64(self.tall)), b.mul(strips, I64(self.tall))
        loop(b, self.quotient_up(self.m, self.height), lambda i: self.group(b.mul(i, self.height)))

    def group(self, top: ir.IRValue) -> None:
        """Compute the results of some strips of rows, from `top` on."""
        b, tall = self.b, self.tall
        rows = smaller(self.b, b.sub(self.m, top), self.height)
        whole, rest = b.sdiv(rows, I64(tall)), b.srem(rows, I64(tall))
        at = b.select(self.plain, b.add(top, b.mul(self.first, self.lda)), b.add(self.first, b.mul(top, self.lda)))
        source = b.gep(self.a, [at])
        unpacked, half = b.select(self.is_unpacked, whole, I64(0)), b.icmp_signed("==", rest, I64(self.lanes))
        is_half_unpacked = b.and_(self.is_unpacked, half)
        with b.if_else(self.plain) as (then, otherwise):
            with then:
                self.copy(source, unpacked, whole, b.select(is_half_unpacked, I64(0), rest))
            with otherwise:
                loop(b, self.quotient_up(rows, tall), lambda i: self.transpose_strip(source, rows, i))
        low = b.icmp_signed("<=", rest, I64(self.lanes))
        high = b.add(whole, b.select(low, I64(0), I64(1)))

        def emit_panel(j: ir.IRValue, panels: _ColumnPanels, body: Callable[..., object]) -> None:
            left, columns = self.extent(j, panels)
            with b.if_then(self.strewn):
                self.prefetch_columns(
                    b.add(left, b.mul(I64(PREFETCHED_PANELS), panels.wide_columns)), panels.wide_columns, top
                )
            body(partial(strip, left=left, columns=columns))

        def strip(i: ir.IRValue, vectors: int, left: ir.IRValue, columns: ir.IRValue) -> None:
            begin = b.mul(i, I64(tall))
            in_place = b.icmp_signed("<", i, unpacked) if vectors > 1 else is_half_unpacked
            factor = b.select(in_place, b.gep(source, [begin]), self.strip(i))
            stride = b.select(in_place, self.lda, I64(tall))
            to = self.result(b.add(top, begin), left)
            self.results(factor, stride, left, columns, to, b.sub(rows, begin), vectors)

        with b.if_then(b.icmp_signed(">", high, I64(0))):
            some = partial(emit_panel, panels=self.panels, body=lambda strip: loop(b, high, partial(strip, vectors=2)))
            loop(b, self.panels.count, some)
        with b.if_then(b.and_(low, b.icmp_signed(">", rest, I64(0)))):
            some = partial(emit_panel, panels=self.broad, body=lambda strip: strip(whole, vectors=1))
            loop(b, self.broad.count, some)

    def results(
        self,
        strip: ir.IRValue,
        stride: ir.IRValue,
        left: ir.IRValue,
        columns: ir.IRValue,
        results: ir.IRValue,
        rows: ir.IRValue,
        vectors: int,
    ) -> None:
        """Compute the results of a strip in some columns."""
        b = self.b
        tall = I64(vectors * self.lanes)
        whole = b.and_(b.icmp_signed(">=", rows, tall), b.not_(self.is_transposed))
        whole = b.or_(whole, self.is_dense(left, columns, tall))
        to, to_stride = b.select(whole, results, self.corner), b.select(whole, self.ldc, I64(self.tall))
        adds = b.and_(self.adds, whole)

        def some(count: int, group: int) -> None:
            numbers = self.numbers(count, group, columns)
            sums = self.sums(strip, stride, left, columns, numbers, vectors, group)
            self.write(sums, [b.gep(to, [b.mul(j, to_stride)]) for j in numbers], adds)

        max_sums, min_sums = (self.width, NARROW_COLUMNS) if vectors > 1 else (2 * self.width, self.width)
        with b.if_else(b.icmp_signed(">", columns, I64(min_sums))) as (then, otherwise):
            with then:
                some(max_sums, 1 if vectors > 1 else POINTER_COLUMNS)
            with otherwise:
                some(min_sums, 1)
        with b.if_then(self.is_transposed):
            self.write_transposed(columns, results, smaller(b, rows, tall), vectors * self.lanes)
        with b.if_then(b.not_(b.or_(whole, self.is_transposed))):
            self.write_rest(columns, results, rows)

    def is_dense(self, left: ir.IRValue, columns: ir.IRValue, tall: ir.IRValue) -> ir.IRValue:
        """Whether C is contiguous, so that longer vectors may be stored in order: each overwrites the excess lanes of
        the one before."""
        b = self.b
        dense = b.and_(b.icmp_signed("==", self.m, self.ldc), b.icmp_signed("<=", self.m, tall))
        columns_after = b.sub(self.n, b.add(b.add(self.left, left), b.sub(columns, I64(1))))
        inside = b.icmp_signed("<=", tall, b.mul(columns_after, self.ldc))
        return b.and_(b.and_(dense, inside), b.not_(b.or_(self.adds, self.is_transposed)))

    def numbers(self, count: int, group: int, columns: ir.IRValue) -> list[ir.IRValue]:
        """The columns of a part that are summed together, by groups of neighbours; a small part repeats columns."""
        b = self.b
        sizes = [min(group, count - first) for first in range(0, count, group)]
        firsts = [smaller(b, I64(i * group), b.sub(columns, I64(size))) for i, size in enumerate(sizes)]
        return [b.add(first, I64(j)) for first, size in zip(firsts, sizes) for j in range(size)]

    def result(self, i: object, j: ir.IRValue) -> Any:
        """The address of a result in a column of the block."""
        b = self.b
        return b.gep(self.c, [b.add(b.mul(b.add(self.left, j), self.ldc), b.mul(i, self.down))])

    def extent(self, i: ir.IRValue, panels: _ColumnPanels) -> tuple[ir.IRValue, ir.IRValue]:
        """The first column and the number of columns of a part of a block of B; the last part may have fewer."""
        b = self.b
        narrow_before = b.sub(i, smaller(self.b, i, panels.num_wide))
        left = b.sub(
            b.mul(i, panels.wide_columns), b.mul(narrow_before, b.sub(panels.wide_columns, panels.narrow_columns))
        )
        width = b.select(b.icmp_signed("<", i, panels.num_wide), panels.wide_columns, panels.narrow_columns)
        return left, smaller(self.b, width, b.sub(self.columns, left))

    def prefetch_columns(self, left: ir.IRValue, count: ir.IRValue, top: ir.IRValue) -> None:
        """Prefetch later columns of B, and the columns of C if their stride is large."""
        b = self.b

        def prefetch_column(column: ir.IRValue) -> None:
            prefetch(b, column)
            prefetch(b, b.gep(column, [b.sub(self.depth, I64(1))]))

        self.walk(count, [(b.gep(self.block, [b.mul(left, self.ldb)]), self.ldb)], prefetch_column)
        with b.if_then(b.icmp_signed(">=", self.ldc, I64(MIN_PREFETCHED_STRIDE // self.size))):
            self.walk(count, [(self.result(top, left), self.ldc)], partial(prefetch, b, writes=True))

    def strip(self, i: ir.IRValue) -> ir.IRValue:
        """The address of a packed strip."""
        return self.b.gep(self.panel, [self.b.mul(i, self.pitch)])

    # -- sums ------------------------------------------------------------------------------------------------
    def sums(
        self,
        strip: ir.IRValue,
        strip_stride: ir.IRValue,
        left: ir.IRValue,
        columns: ir.IRValue,
        numbers: list[ir.IRValue],
        vectors: int,
        group: int,
    ) -> list[list[ir.IRValue]]:
        """Emit the sums over k of the products of a strip and the columns `numbers` of the part at `left`."""
        b = self.b
        across = b.select(self.straight, self.ldb, I64(1))
        down = b.select(self.packs, columns, b.select(self.straight, I64(1), self.ldb))
        in_place, copied = (
            b.gep(self.block, [b.mul(left, across)]),
            b.gep(self.packed, [b.mul(left, I64(STRIP_COLUMNS))]),
        )
        start = b.select(self.packs, copied, in_place)
        # Registers do not hold the strides of twice the usual columns, so groups have separate pointers.
        group = len(numbers) if group == 1 else group
        starts = [b.gep(start, [b.mul(j, across)]) for j in numbers[::group]]
        stride = b.mul(across, I64(self.size))
        distances = [I64(j) for j in range(group)] if group < len(numbers) else [b.sub(j, numbers[0]) for j in numbers]
        offsets = [b.mul(j, stride) for j in distances]
        before = b.block
        inside, after = (b.append_basic_block(name) for name in ("inside", "after"))
        zero = number(self.vector, 0.0)
        b.cbranch(b.icmp_signed(">", self.depth, I64(0)), inside, after)
        b.position_at_end(inside)
        p, column = b.phi(I64), b.phi(self.a.type)
        row_pointers = [b.phi(self.a.type) for _ in starts]
        totals = [b.phi(self.vector) for _ in range(len(numbers) * vectors)]
        fma = self.module.intrinsic("fma", [self.vector], self.vector, [self.vector] * 3)
        factors = [self.load(column, i) for i in range(vectors)]
        new = []
        for j in range(len(numbers)):
            at = b.gep(b.bitcast(row_pointers[j // group], I8.as_pointer()), [offsets[j % group]])
            x = self.splat(b.load(b.bitcast(at, self.a.type)))
            new += [b.call(fma, [y, x, totals[j * vectors + i]]) for i, y in enumerate(factors)]
        following = [
            b.add(p, I64(1)),
            b.gep(column, [strip_stride]),
            *[b.gep(pointer, [down]) for pointer in row_pointers],
        ]
        b.cbranch(b.icmp_signed("<", following[0], self.depth), inside, after)
        starts = [I64(0), strip, *starts, *[zero] * len(totals)]
        for x, y, z in zip([p, column, *row_pointers, *totals], starts, [*following, *new]):
            x.add_incoming(y, before)
            x.add_incoming(z, inside)
        b.position_at_end(after)
        results: list[ir.IRValue] = [b.merge((zero, before), (y, inside)) for y in new]
        alpha = self.splat(self.alpha)
        results = [b.fmul(alpha, x) for x in results]
        return [results[j * vectors : (j + 1) * vectors] for j in range(len(numbers))]

    def write(self, sums: list[list[ir.IRValue]], pointers: list[ir.IRValue], adds: ir.IRValue) -> None:
        """Store the results of whole strips, or add them. All are loaded before one is stored, because columns may
        repeat."""
        spots = [self.at(pointer, i) for column, pointer in zip(sums, pointers) for i in range(len(column))]
        for result, pointer in zip(self.added([x for column in sums for x in column], spots, adds), spots):
            self.b.store(result, pointer, align=self.size)

    def added(self, values: list[ir.IRValue], pointers: list[ir.IRValue], adds: ir.IRValue) -> list[ir.IRValue]:
        """The vectors, or, if `adds`, their sums with memory."""
        b, kind = self.b, values[0].type
        before = b.block
        with b.if_then(adds):
            factor = splat(b, self.factor, kind.count)
            summed = [b.fadd(b.fmul(factor, b.load(at, align=self.size)), x) for x, at in zip(values, pointers)]
            inside = b.block
        return [b.merge((x, before), (y, inside)) for x, y in zip(values, summed)]

    def write_transposed(self, columns: ir.IRValue, results: ir.IRValue, rows: ir.IRValue, max_rows: int) -> None:
        """Store some rows of `corner`, at most `max_rows`, as columns."""
        b = self.b

        def addresses(i: ir.IRValue, j: ir.IRValue) -> tuple[ir.IRValue, ir.IRValue]:
            source = b.gep(self.corner, [b.add(b.mul(j, I64(self.tall)), i)])
            return source, b.gep(results, [b.add(b.mul(i, self.down), b.mul(j, self.ldc))])

        def store(i: ir.IRValue, j: ir.IRValue) -> None:
            source, target = addresses(i, j)
            b.store(b.load(source), target)

        def add(i: ir.IRValue, j: ir.IRValue) -> None:
            source, target = addresses(i, j)
            b.store(b.fadd(b.fmul(self.factor, b.load(target)), b.load(source)), target)

        def store_all_rows(j: ir.IRValue) -> None:
            for i in range(max_rows):
                store(I64(i), j)

        whole = b.icmp_signed("==", rows, I64(max_rows))
        with b.if_else(self.adds) as (then, otherwise):
            with then:
                loop(b, columns, lambda j: loop(b, rows, partial(add, j=j)))
            with otherwise, b.if_else(whole) as (every, some):
                with every:
                    loop(b, columns, store_all_rows)
                with some:
                    loop(b, columns, lambda j: loop(b, rows, partial(store, j=j)))

    def write_rest(self, columns: ir.IRValue, results: ir.IRValue, rows: ir.IRValue) -> None:
        """Store the last results from `corner`, in pieces of columns that are powers of two."""
        b = self.b
        done: ir.IRValue = I64(0)
        width = self.lanes
        while width:
            kind = ir.VectorType(self.t, width)
            piece_rows = b.and_(rows, I64(width))

            def store_piece(j: ir.IRValue, done: ir.IRValue = done, kind: ir.IRType = kind) -> None:
                source, to = b.gep(self.corner, [b.mul(j, I64(self.tall))]), b.gep(results, [b.mul(j, self.ldc)])
                source_at, target_at = (b.bitcast(b.gep(x, [done]), kind.as_pointer()) for x in (source, to))
                (result,) = self.added([b.load(source_at, align=self.size)], [target_at], self.adds)
                b.store(result, target_at, align=self.size)

            with b.if_then(b.icmp_signed("!=", piece_rows, I64(0))):
                loop(b, columns, store_piece)
            done = b.add(done, piece_rows)
            width //= 2

    # -- packing ---------------------------------------------------------------------------------------------
    def copy(self, source: ir.IRValue, unpacked: ir.IRValue, whole: ir.IRValue, rest: ir.IRValue) -> None:
        """Pack the strips that are not read in place, and the remainder, padded with rows of zeros."""
        b, tall = self.b, self.tall

        def copy_halves(at: ir.IRValue, to: ir.IRValue, halves: list[int] | range, load: Any) -> None:
            for half in halves:
                self.store(load(b.gep(at, [I64(half * self.lanes)])), to, half)

        def column(at: Any, to: ir.IRValue) -> None:
            strips = [(at, I64(tall)), (to, self.pitch)]
            self.walk(whole, strips, partial(copy_halves, halves=range(2), load=self.load))

        with b.if_then(b.icmp_signed("<", unpacked, whole)):
            self.walk(self.depth, [(source, self.lda), (self.panel, I64(tall))], column)
        columns = [(b.gep(source, [b.mul(whole, I64(tall))]), self.lda), (self.strip(whole), I64(tall))]
        for half in range(2):
            remaining = b.sub(rest, I64(half * self.lanes))
            with b.if_then(b.icmp_signed(">", remaining, I64(0))):
                load = partial(self.masked, count=remaining)
                self.walk(self.depth, columns, partial(copy_halves, halves=[half], load=load))

    def transpose_strip(self, source: ir.IRValue, rows: ir.IRValue, i: ir.IRValue) -> None:
        """Transpose a strip of A. Missing rows repeat the last row."""
        b = self.b
        last = b.sub(rows, I64(1))
        strip = self.strip(i)

        def half(h: ir.IRValue) -> None:
            top = b.mul(h, I64(self.lanes))
            begin = b.add(b.mul(i, I64(self.tall)), top)
            numbers = [smaller(b, b.add(begin, I64(r)), last) for r in range(self.lanes)]
            row_pointers = [b.gep(source, [b.mul(r, self.lda)]) for r in numbers]

            def transpose_tile(block: ir.IRValue, load: Callable[..., object] | None = None) -> None:
                p = b.mul(block, I64(self.lanes))
                load = load or partial(self.masked, mask=self.below(b.sub(self.depth, p)))
                results = [load(b.gep(pointer, [p])) for pointer in row_pointers]
                for q, x in enumerate(transposed(b, results, min(16 // self.size, self.lanes))):
                    at = b.add(b.mul(b.add(p, I64(q)), I64(self.tall)), top)
                    self.store(x, b.gep(strip, [at]))

            whole = I64(0) if self.is_long else b.sdiv(self.depth, I64(self.lanes))  # no whole parts if masks are free
            if not self.is_long:
                loop(b, whole, partial(transpose_tile, load=self.load))
            loop(b, b.sub(self.quotient_up(self.depth, self.lanes), whole), lambda k: transpose_tile(b.add(whole, k)))

        low = b.icmp_signed("<=", b.sub(rows, b.mul(i, I64(self.tall))), I64(self.lanes))
        loop(b, b.select(low, I64(1), I64(2)), half)

    def pack(self, i: ir.IRValue) -> None:
        """Pack some rows of a block of the transposed B, part by part: the first four and the last four of each row."""
        b, four = self.b, ir.VectorType(self.t, 4).as_pointer()
        first = b.mul(i, I64(PACKED_ROWS))
        rows = smaller(b, b.sub(self.depth, first), I64(PACKED_ROWS))
        source = b.gep(self.block, [b.mul(first, self.ldb)])

        def pack_row(at: ir.IRValue, to: ir.IRValue, columns: ir.IRValue) -> None:
            for begin in (I64(0), b.sub(columns, I64(4))):
                x = b.load(b.bitcast(b.gep(at, [begin]), four), align=self.size)
                b.store(x, b.bitcast(b.gep(to, [begin]), four), align=self.size)

        def pack_few_columns(at: ir.IRValue, to: ir.IRValue, columns: ir.IRValue) -> None:
            loop(b, columns, lambda j: b.store(b.load(b.gep(at, [j])), b.gep(to, [j])))

        def pack_full_rows(at: ir.IRValue, to: ir.IRValue) -> None:
            for _ in range(PACKED_ROWS):
                pack_row(at, to, I64(self.width))
                at, to = b.gep(at, [self.ldb]), b.gep(to, [I64(self.width)])

        def pack_panel(j: ir.IRValue) -> None:
            left, columns = self.extent(b.add(done, j), self.panels)
            to = b.gep(self.packed, [b.add(b.mul(left, I64(STRIP_COLUMNS)), b.mul(first, columns))])
            streams = [(b.gep(source, [left]), self.ldb), (to, columns)]
            with b.if_else(b.icmp_signed(">=", columns, I64(4))) as (then, otherwise):
                with then:
                    self.walk(rows, streams, partial(pack_row, columns=columns))
                with otherwise:
                    self.walk(rows, streams, partial(pack_few_columns, columns=columns))

        # The last of the wide parts may have fewer columns.
        every = b.sdiv(
            smaller(b, self.columns, b.mul(self.panels.num_wide, self.panels.wide_columns)), self.panels.wide_columns
        )
        done = b.select(b.icmp_signed("==", rows, I64(PACKED_ROWS)), every, I64(0))
        begin, stride = b.gep(self.packed, [b.mul(first, I64(self.width))]), I64(STRIP_COLUMNS * self.width)
        self.walk(done, [(source, I64(self.width)), (begin, stride)], pack_full_rows)
        loop(b, b.sub(self.panels.count, done), pack_panel)
