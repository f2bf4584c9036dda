"""Emit a register-blocked GEMM microkernel as LLVM IR.

    void tg_gemm.<dtype>(the arguments of a gemm, with Fortran's ABI)

It computes the column-major C = alpha A B + beta C. A strip of A is two vectors high and up to `DEEPEST` columns long.
The sums of a strip times a few columns of B stay in registers. A strip is packed first if it is transposed, partial, or
spread out in memory: some strips at a time, each then multiplied by all columns of B. B is read without packing, except
a large transposed B, which every strip would read in short pieces: it is packed once. If A has few rows and B is
transposed, the transposed product is computed, because its strips are full. Each element is summed over k in order by
fused multiply-adds, for all sizes. A part of a product has therefore the bits of the whole.

OpenBLAS packs both factors of every product, which is expensive for small products. It computes large products at the
peak of the CPU. `tracegrad.runtime.blas.gemm_selection` chooses between both.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from tracegrad import llvmir as ir
from tracegrad.codegen.instr.scalar import I64
from tracegrad.codegen.instr.support import loop, smaller
from tracegrad.codegen.kernels.transpose_tiling import transposed
from tracegrad.codegen.libs.gemm_writer import I8, I32, Writer
from tracegrad.codegen.vecmath.lanes import number, prefetch, splat
from tracegrad.target.cpu import features, has_small_kernels
from tracegrad.target.tuning import TUNING

__all__ = ["GEMM", "LARGEST", "gemm_module", "is_small_product"]

GEMM = "tg_gemm."
LARGEST = TUNING.gemm.max_batched_size
DEEPEST = TUNING.gemm.strip_columns
STRIPS = TUNING.gemm.packed_strips
BLOCK = TUNING.gemm.block_bytes
LYING = TUNING.gemm.max_unpacked_span
LONG_LYING = TUNING.gemm.max_unpacked_span_of_wide_vectors
READABLE = TUNING.gemm.max_unpacked_row_span
SHALLOW = TUNING.gemm.max_unpacked_rows
REREAD = TUNING.gemm.max_reread_bytes
FEWEST = TUNING.gemm.min_columns
CROWDED = TUNING.gemm.crowded_stride
PAGE = TUNING.gemm.set_stride
WAYS = TUNING.gemm.ways
ROWS = TUNING.gemm.packed_rows
SHORT = TUNING.gemm.max_short_column
NEAR = TUNING.gemm.min_prefetched_span
STREWN = TUNING.gemm.min_prefetched_stride
AHEAD = TUNING.gemm.prefetched_parts
NARROW = TUNING.gemm.narrow_columns
GROUP = TUNING.gemm.pointer_columns


def is_small_product(m: int, n: int, k: int, letters: str) -> bool:
    """Whether the generated GEMM computes a product of sizes m, n, k in a batch. AMD CPUs with AVX-512 use OpenBLAS for
    most products."""
    return max(m, n, k) <= LARGEST and (letters == "TN" or not has_small_kernels())


def gemm_module(name: str) -> str:
    """Emit the module that defines a GEMM function, as text."""
    t = ir.DoubleType() if name.endswith("f64") else ir.FloatType()
    return str(_Gemm(name, t).module)


def _registers() -> tuple[int, int]:
    """The bytes of a vector, and the number of columns whose sums fit in registers."""
    if "avx512f" in features():
        return 64, 8
    return (32, 6) if "avx2" in features() else (16, 6)


class _Parts(NamedTuple):
    """The columns of the wide and of the other parts of a block of B, and the number of parts of each kind."""

    most: Any
    fewer: Any
    wide: Any
    count: Any


class _Gemm(Writer):
    """Emitter of one GEMM function."""

    def __init__(self, name: str, t: Any):
        bytes_, self.width = _registers()
        super().__init__(ir.Module(name), t, bytes_)
        self.tall = 2 * self.lanes
        data, integer, letter = t.as_pointer(), I32.as_pointer(), I8.as_pointer()
        matrix = [data, integer]
        types = [letter, letter, integer, integer, integer, data, *matrix, *matrix, data, *matrix]
        function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), types), name)
        self.b = b = ir.IRBuilder(function.append_basic_block("entry"))
        a_letter, b_letter, m, n, k, alpha, a, lda, second, ldb, beta, self.c, ldc = function.args
        m, n, self.k, lda, ldb, ldc = (b.sext(b.load(x), I64) for x in (m, n, k, lda, ldb, ldc))
        plain, straight = self.is_plain(a_letter), self.is_plain(b_letter)
        self.alpha, self.beta = b.load(alpha), b.load(beta)
        # Compute the transposed product if A has few rows, and the rows of a transposed B fill vectors.
        broad = b.and_(b.icmp_signed("<=", m, I64(NARROW)), b.icmp_signed(">=", n, I64(self.tall)))
        self.iterations = iterations = b.and_(broad, b.not_(straight))
        pairs = ((a, second), (lda, ldb), (m, n), (plain, b.not_(straight)), (straight, b.not_(plain)))
        self.a, self.lda, self.m, self.plain, self.straight = (b.select(iterations, y, x) for x, y in pairs)
        self.second, self.ldb, self.n = (b.select(iterations, x, y) for x, y in pairs[:3])
        self.down, self.ldc = b.select(iterations, ldc, I64(1)), b.select(iterations, I64(1), ldc)
        self.panel = self.room(STRIPS * self.tall * (DEEPEST + self.lanes))
        self.corner = self.room(self.tall * 2 * self.width)
        self.packs, self.packed = self.memory()
        with b.if_then(b.icmp_signed(">", self.m, I64(0))):
            self.blocks()
        with b.if_then(self.packs):
            free = ir.Function(self.module, ir.FunctionType(ir.VoidType(), [letter]), "free")
            b.call(free, [b.bitcast(self.packed, letter)])
        b.ret_void()

    def memory(self) -> tuple[Any, Any]:
        """Whether B is packed, and the memory for it."""
        b = self.b
        spans = b.mul(b.mul(self.ldb, smaller(self.b, self.k, I64(DEEPEST))), I64(self.size))
        far = b.and_(b.icmp_signed(">", spans, I64(READABLE)), b.icmp_signed(">", self.k, I64(SHALLOW)))
        worth = b.and_(far, b.icmp_signed(">", self.m, I64(REREAD // self.size * self.tall)))
        deep = b.and_(self.share(self.ldb, PAGE), b.icmp_signed(">", self.k, I64(WAYS)))
        worth = b.or_(worth, b.and_(deep, b.icmp_signed(">", self.m, I64(2 * self.tall))))
        malloc = ir.Function(self.module, ir.FunctionType(I8.as_pointer(), [I64]), "malloc")
        before = b.block
        with b.if_then(b.and_(b.not_(self.straight), worth)):
            columns = smaller(self.b, self.n, I64(BLOCK // self.size // DEEPEST))
            result = b.bitcast(b.call(malloc, [b.mul(columns, I64(DEEPEST * self.size))]), self.a.type)
            inside = b.block
        none = ir.Constant(self.a.type, None)
        room = b.phi(self.a.type)
        room.add_incoming(none, before)
        room.add_incoming(result, inside)
        return b.icmp_unsigned("!=", room, none), room

    # -- loops -----------------------------------------------------------------------------------------------
    def blocks(self) -> None:
        """Emit the loops over all columns of B, block by block, and over all of k."""
        b = self.b
        stages = self.at_least_one(self.quotient_up(self.k, DEEPEST))
        most = BLOCK // self.size // DEEPEST

        def block(i: Any) -> None:
            self.left = b.mul(i, I64(most))
            self.columns = smaller(self.b, b.sub(self.n, self.left), I64(most))
            self.parts = self.cut(I64(self.width), I64(NARROW))
            # With one vector, registers hold the sums of twice the columns. The cache holds all of them too, unless
            # they share cache sets. A packed B has the usual parts.
            usual = b.or_(self.packs, b.and_(self.share(self.ldb, PAGE), self.straight))
            sizes = ((self.width, 2 * self.width), (NARROW, self.width))
            self.broad = self.cut(*[b.select(usual, I64(x), I64(y)) for x, y in sizes])
            loop(b, stages, self.stage)

        loop(b, self.quotient_up(self.n, most), block)

    def cut(self, most: Any, fewer: Any) -> _Parts:
        """Split a block into parts."""
        b = self.b
        count = self.quotient_up(self.columns, most)
        missing = b.sub(b.mul(count, most), self.columns)
        narrow = b.sdiv(missing, b.sub(most, fewer))
        return _Parts(most, fewer, b.sub(count, smaller(b, narrow, count)), count)

    def stage(self, i: Any) -> None:
        """Accumulate the products of some columns of A with the same rows of a block of B."""
        b = self.b
        self.first = b.mul(i, I64(DEEPEST))
        self.depth = smaller(self.b, b.sub(self.k, self.first), I64(DEEPEST))
        self.factor = b.select(b.icmp_signed("==", i, I64(0)), self.beta, ir.Constant(self.t, 1.0))
        self.adds = b.fcmp_unordered("!=", self.factor, ir.Constant(self.t, 0.0))
        left, first = self.left, self.first
        at = b.select(self.straight, b.add(b.mul(left, self.ldb), first), b.add(b.mul(first, self.ldb), left))
        self.block = b.gep(self.second, [at])
        with b.if_then(self.packs):
            loop(b, self.quotient_up(self.depth, ROWS), self.pack)
        spans = b.mul(b.mul(self.lda, self.depth), I64(self.size))
        fewest = b.select(self.share(self.lda, CROWDED), I64(FEWEST // 2), I64(FEWEST))
        few = b.icmp_signed("<", self.columns, fewest)
        reach = b.select(self.share(self.lda, PAGE), I64(LYING), I64(LONG_LYING if self.is_long else LYING))
        self.lies = b.and_(self.plain, b.or_(b.icmp_signed("<=", spans, reach), few))
        short = b.and_(self.straight, b.icmp_signed("<=", self.depth, I64(SHORT // self.size)))
        apart = b.icmp_signed(">=", self.ldb, I64(SHORT // self.size))
        away = b.icmp_signed(">", b.mul(self.ldb, self.n), I64(NEAR // self.size))
        self.strewn = b.and_(short, b.and_(apart, away))
        # The number of strips that fit: shorter strips give longer columns of results.
        places = b.add(self.depth, I64(self.lanes))
        strips = b.sdiv(I64(STRIPS * (DEEPEST + self.lanes)), places)
        self.pitch, self.height = b.mul(places, I64(self.tall)), b.mul(strips, I64(self.tall))
        loop(b, self.quotient_up(self.m, self.height), lambda i: self.group(b.mul(i, self.height)))

    def group(self, top: Any) -> None:
        """Compute the results of some strips of rows, from `top` on."""
        b, tall = self.b, self.tall
        rows = smaller(self.b, b.sub(self.m, top), self.height)
        whole, rest = b.sdiv(rows, I64(tall)), b.srem(rows, I64(tall))
        at = b.select(self.plain, b.add(top, b.mul(self.first, self.lda)), b.add(self.first, b.mul(top, self.lda)))
        source = b.gep(self.a, [at])
        lying, half = b.select(self.lies, whole, I64(0)), b.icmp_signed("==", rest, I64(self.lanes))
        half_lies = b.and_(self.lies, half)
        with b.if_else(self.plain) as (then, otherwise):
            with then:
                self.copy(source, lying, whole, b.select(half_lies, I64(0), rest))
            with otherwise:
                loop(b, self.quotient_up(rows, tall), lambda i: self.iteration(source, rows, i))
        low = b.icmp_signed("<=", rest, I64(self.lanes))
        high = b.add(whole, b.select(low, I64(0), I64(1)))

        def part(j: Any, parts: _Parts, body: Any) -> None:
            left, columns = self.extent(j, parts)
            with b.if_then(self.strewn):
                self.prefetch_columns(b.add(left, b.mul(I64(AHEAD), parts.most)), parts.most, top)
            body(partial(strip, left=left, columns=columns))

        def strip(i: Any, vectors: int, left: Any, columns: Any) -> None:
            begin = b.mul(i, I64(tall))
            in_place = b.icmp_signed("<", i, lying) if vectors > 1 else half_lies
            factor = b.select(in_place, b.gep(source, [begin]), self.strip(i))
            apart = b.select(in_place, self.lda, I64(tall))
            to = self.result(b.add(top, begin), left)
            self.results(factor, apart, left, columns, to, b.sub(rows, begin), vectors)

        with b.if_then(b.icmp_signed(">", high, I64(0))):
            some = partial(part, parts=self.parts, body=lambda strip: loop(b, high, partial(strip, vectors=2)))
            loop(b, self.parts.count, some)
        with b.if_then(b.and_(low, b.icmp_signed(">", rest, I64(0)))):
            some = partial(part, parts=self.broad, body=lambda strip: strip(whole, vectors=1))
            loop(b, self.broad.count, some)

    def results(self, strip: Any, apart: Any, left: Any, columns: Any, results: Any, rows: Any, vectors: int) -> None:
        """Compute the results of a strip in some columns."""
        b = self.b
        tall = I64(vectors * self.lanes)
        whole = b.and_(b.icmp_signed(">=", rows, tall), b.not_(self.iterations))
        whole = b.or_(whole, self.flows(left, columns, tall))
        to, to_apart = b.select(whole, results, self.corner), b.select(whole, self.ldc, I64(self.tall))
        adds = b.and_(self.adds, whole)

        def some(count: int, group: int) -> None:
            numbers = self.numbers(count, group, columns)
            sums = self.sums(strip, apart, left, columns, numbers, vectors, group)
            self.write(sums, [b.gep(to, [b.mul(j, to_apart)]) for j in numbers], adds)

        many, few = (self.width, NARROW) if vectors > 1 else (2 * self.width, self.width)
        with b.if_else(b.icmp_signed(">", columns, I64(few))) as (then, otherwise):
            with then:
                some(many, 1 if vectors > 1 else GROUP)
            with otherwise:
                some(few, 1)
        with b.if_then(self.iterations):
            self.write_transposed(columns, results, smaller(b, rows, tall), vectors * self.lanes)
        with b.if_then(b.not_(b.or_(whole, self.iterations))):
            self.write_rest(columns, results, rows)

    def flows(self, left: Any, columns: Any, tall: Any) -> Any:
        """Whether C is contiguous, so that longer vectors may be stored in order: each overwrites the excess lanes of
        the one before."""
        b = self.b
        dense = b.and_(b.icmp_signed("==", self.m, self.ldc), b.icmp_signed("<=", self.m, tall))
        behind = b.sub(self.n, b.add(b.add(self.left, left), b.sub(columns, I64(1))))
        inside = b.icmp_signed("<=", tall, b.mul(behind, self.ldc))
        return b.and_(b.and_(dense, inside), b.not_(b.or_(self.adds, self.iterations)))

    def numbers(self, count: int, group: int, columns: Any) -> list[Any]:
        """The columns of a part that are summed together, by groups of neighbours; a small part repeats columns."""
        b = self.b
        sizes = [min(group, count - first) for first in range(0, count, group)]
        firsts = [smaller(b, I64(i * group), b.sub(columns, I64(size))) for i, size in enumerate(sizes)]
        return [b.add(first, I64(j)) for first, size in zip(firsts, sizes) for j in range(size)]

    def result(self, i: Any, j: Any) -> Any:
        """The address of a result in a column of the block."""
        b = self.b
        return b.gep(self.c, [b.add(b.mul(b.add(self.left, j), self.ldc), b.mul(i, self.down))])

    def extent(self, i: Any, parts: _Parts) -> tuple[Any, Any]:
        """The first column and the number of columns of a part of a block of B; the last part may have fewer."""
        b = self.b
        narrow = b.sub(i, smaller(self.b, i, parts.wide))
        left = b.sub(b.mul(i, parts.most), b.mul(narrow, b.sub(parts.most, parts.fewer)))
        width = b.select(b.icmp_signed("<", i, parts.wide), parts.most, parts.fewer)
        return left, smaller(self.b, width, b.sub(self.columns, left))

    def prefetch_columns(self, left: Any, count: Any, top: Any) -> None:
        """Prefetch later columns of B, and the columns of C if their stride is large."""
        b = self.b

        def ask(column: Any) -> None:
            prefetch(b, column)
            prefetch(b, b.gep(column, [b.sub(self.depth, I64(1))]))

        self.walk(count, [(b.gep(self.block, [b.mul(left, self.ldb)]), self.ldb)], ask)
        with b.if_then(b.icmp_signed(">=", self.ldc, I64(STREWN // self.size))):
            self.walk(count, [(self.result(top, left), self.ldc)], partial(prefetch, b, writes=True))

    def strip(self, i: Any) -> Any:
        """The address of a packed strip."""
        return self.b.gep(self.panel, [self.b.mul(i, self.pitch)])

    # -- sums ------------------------------------------------------------------------------------------------
    def sums(
        self, strip: Any, apart: Any, left: Any, columns: Any, numbers: list[Any], vectors: int, group: int
    ) -> list[list[Any]]:
        """Emit the sums over k of the products of a strip and the columns `numbers` of the part at `left`."""
        b = self.b
        across = b.select(self.straight, self.ldb, I64(1))
        down = b.select(self.packs, columns, b.select(self.straight, I64(1), self.ldb))
        lying, copied = (b.gep(self.block, [b.mul(left, across)]), b.gep(self.packed, [b.mul(left, I64(DEEPEST))]))
        start = b.select(self.packs, copied, lying)
        # Registers do not hold the strides of twice the usual columns, so groups have separate pointers.
        group = len(numbers) if group == 1 else group
        starts = [b.gep(start, [b.mul(j, across)]) for j in numbers[::group]]
        step = b.mul(across, I64(self.size))
        distances = [I64(j) for j in range(group)] if group < len(numbers) else [b.sub(j, numbers[0]) for j in numbers]
        behind = [b.mul(j, step) for j in distances]
        before = b.block
        inside, after = (b.append_basic_block(name) for name in ("inside", "after"))
        zero = number(self.vector, 0.0)
        b.cbranch(b.icmp_signed(">", self.depth, I64(0)), inside, after)
        b.position_at_end(inside)
        p, column = b.phi(I64), b.phi(self.a.type)
        rows = [b.phi(self.a.type) for _ in starts]
        totals = [b.phi(self.vector) for _ in range(len(numbers) * vectors)]
        fma = self.module.intrinsic("fma", [self.vector], self.vector, [self.vector] * 3)
        factors = [self.load(column, i) for i in range(vectors)]
        new = []
        for j in range(len(numbers)):
            at = b.gep(b.bitcast(rows[j // group], I8.as_pointer()), [behind[j % group]])
            x = self.splat(b.load(b.bitcast(at, self.a.type)))
            new += [b.call(fma, [y, x, totals[j * vectors + i]]) for i, y in enumerate(factors)]
        following = [b.add(p, I64(1)), b.gep(column, [apart]), *[b.gep(row, [down]) for row in rows]]
        b.cbranch(b.icmp_signed("<", following[0], self.depth), inside, after)
        starts = [I64(0), strip, *starts, *[zero] * len(totals)]
        for x, y, z in zip([p, column, *rows, *totals], starts, [*following, *new]):
            x.add_incoming(y, before)
            x.add_incoming(z, inside)
        b.position_at_end(after)
        results = [b.phi(self.vector) for _ in new]
        for x, y in zip(results, new):
            x.add_incoming(zero, before)
            x.add_incoming(y, inside)
        alpha = self.splat(self.alpha)
        results = [b.fmul(alpha, x) for x in results]
        return [results[j * vectors : (j + 1) * vectors] for j in range(len(numbers))]

    def write(self, sums: list[list[Any]], places: list[Any], adds: Any) -> None:
        """Store the results of whole strips, or add them. All are loaded before one is stored, because columns may
        repeat."""
        spots = [self.at(place, i) for column, place in zip(sums, places) for i in range(len(column))]
        for result, place in zip(self.added([x for column in sums for x in column], spots, adds), spots):
            self.b.store(result, place, align=self.size)

    def added(self, values: list[Any], places: list[Any], adds: Any) -> list[Any]:
        """The vectors, or, if `adds`, their sums with memory."""
        b, kind = self.b, values[0].type
        before = b.block
        with b.if_then(adds):
            factor = splat(b, self.factor, kind.count)
            more = [b.fadd(b.fmul(factor, b.load(at, align=self.size)), x) for x, at in zip(values, places)]
            inside = b.block
        results = [b.phi(kind) for _ in values]
        for result, x, y in zip(results, values, more):
            result.add_incoming(x, before)
            result.add_incoming(y, inside)
        return results

    def write_transposed(self, columns: Any, results: Any, rows: Any, most: int) -> None:
        """Store some rows of `corner`, at most `most`, as columns."""
        b = self.b

        def places(i: Any, j: Any) -> tuple[Any, Any]:
            own = b.gep(self.corner, [b.add(b.mul(j, I64(self.tall)), i)])
            return own, b.gep(results, [b.add(b.mul(i, self.down), b.mul(j, self.ldc))])

        def store(i: Any, j: Any) -> None:
            own, place = places(i, j)
            b.store(b.load(own), place)

        def add(i: Any, j: Any) -> None:
            own, place = places(i, j)
            b.store(b.fadd(b.fmul(self.factor, b.load(place)), b.load(own)), place)

        def all_rows(j: Any) -> None:
            for i in range(most):
                store(I64(i), j)

        whole = b.icmp_signed("==", rows, I64(most))
        with b.if_else(self.adds) as (then, otherwise):
            with then:
                loop(b, columns, lambda j: loop(b, rows, partial(add, j=j)))
            with otherwise, b.if_else(whole) as (every, some):
                with every:
                    loop(b, columns, all_rows)
                with some:
                    loop(b, columns, lambda j: loop(b, rows, partial(store, j=j)))

    def write_rest(self, columns: Any, results: Any, rows: Any) -> None:
        """Store the last results from `corner`, in pieces of columns that are powers of two."""
        b = self.b
        done: Any = I64(0)
        width = self.lanes
        while width:
            kind = ir.VectorType(self.t, width)
            here = b.and_(rows, I64(width))

            def piece(j: Any, done: Any = done, kind: Any = kind) -> None:
                source, to = b.gep(self.corner, [b.mul(j, I64(self.tall))]), b.gep(results, [b.mul(j, self.ldc)])
                own, place = (b.bitcast(b.gep(x, [done]), kind.as_pointer()) for x in (source, to))
                b.store(*self.added([b.load(own, align=self.size)], [place], self.adds), place, align=self.size)

            with b.if_then(b.icmp_signed("!=", here, I64(0))):
                loop(b, columns, piece)
            done = b.add(done, here)
            width //= 2

    # -- packing ---------------------------------------------------------------------------------------------
    def copy(self, source: Any, lying: Any, whole: Any, rest: Any) -> None:
        """Pack the strips that are not read in place, and the remainder, padded with rows of zeros."""
        b, tall = self.b, self.tall

        def piece(at: Any, to: Any, halves: Any, load: Any) -> None:
            for half in halves:
                self.store(load(b.gep(at, [I64(half * self.lanes)])), to, half)

        def column(at: Any, to: Any) -> None:
            strips = [(at, I64(tall)), (to, self.pitch)]
            self.walk(whole, strips, partial(piece, halves=range(2), load=self.load))

        with b.if_then(b.icmp_signed("<", lying, whole)):
            self.walk(self.depth, [(source, self.lda), (self.panel, I64(tall))], column)
        columns = [(b.gep(source, [b.mul(whole, I64(tall))]), self.lda), (self.strip(whole), I64(tall))]
        for half in range(2):
            more = b.sub(rest, I64(half * self.lanes))
            with b.if_then(b.icmp_signed(">", more, I64(0))):
                load = partial(self.masked, count=more)
                self.walk(self.depth, columns, partial(piece, halves=[half], load=load))

    def iteration(self, source: Any, rows: Any, i: Any) -> None:
        """Transpose a strip of A. Missing rows repeat the last row."""
        b = self.b
        last = b.sub(rows, I64(1))
        strip = self.strip(i)

        def half(h: Any) -> None:
            top = b.mul(h, I64(self.lanes))
            begin = b.add(b.mul(i, I64(self.tall)), top)
            numbers = [smaller(b, b.add(begin, I64(r)), last) for r in range(self.lanes)]
            places = [b.gep(source, [b.mul(r, self.lda)]) for r in numbers]

            def square(block: Any, load: Any = None) -> None:
                p = b.mul(block, I64(self.lanes))
                load = load or partial(self.masked, mask=self.below(b.sub(self.depth, p)))
                results = [load(b.gep(place, [p])) for place in places]
                for q, x in enumerate(transposed(b, results, min(16 // self.size, self.lanes))):
                    at = b.add(b.mul(b.add(p, I64(q)), I64(self.tall)), top)
                    self.store(x, b.gep(strip, [at]))

            whole = I64(0) if self.is_long else b.sdiv(self.depth, I64(self.lanes))  # no whole parts if masks are free
            if not self.is_long:
                loop(b, whole, partial(square, load=self.load))
            loop(b, b.sub(self.quotient_up(self.depth, self.lanes), whole), lambda k: square(b.add(whole, k)))

        low = b.icmp_signed("<=", b.sub(rows, b.mul(i, I64(self.tall))), I64(self.lanes))
        loop(b, b.select(low, I64(1), I64(2)), half)

    def pack(self, i: Any) -> None:
        """Pack some rows of a block of the transposed B, part by part: the first four and the last four of each row."""
        b, four = self.b, ir.VectorType(self.t, 4).as_pointer()
        first = b.mul(i, I64(ROWS))
        rows = smaller(b, b.sub(self.depth, first), I64(ROWS))
        source = b.gep(self.block, [b.mul(first, self.ldb)])

        def row(at: Any, to: Any, columns: Any) -> None:
            for begin in (I64(0), b.sub(columns, I64(4))):
                x = b.load(b.bitcast(b.gep(at, [begin]), four), align=self.size)
                b.store(x, b.bitcast(b.gep(to, [begin]), four), align=self.size)

        def few(at: Any, to: Any, columns: Any) -> None:
            loop(b, columns, lambda j: b.store(b.load(b.gep(at, [j])), b.gep(to, [j])))

        def whole(at: Any, to: Any) -> None:
            for _ in range(ROWS):
                row(at, to, I64(self.width))
                at, to = b.gep(at, [self.ldb]), b.gep(to, [I64(self.width)])

        def part(j: Any) -> None:
            left, columns = self.extent(b.add(done, j), self.parts)
            to = b.gep(self.packed, [b.add(b.mul(left, I64(DEEPEST)), b.mul(first, columns))])
            ways = [(b.gep(source, [left]), self.ldb), (to, columns)]
            with b.if_else(b.icmp_signed(">=", columns, I64(4))) as (then, otherwise):
                with then:
                    self.walk(rows, ways, partial(row, columns=columns))
                with otherwise:
                    self.walk(rows, ways, partial(few, columns=columns))

        # The last of the wide parts may have fewer columns.
        every = b.sdiv(smaller(b, self.columns, b.mul(self.parts.wide, self.parts.most)), self.parts.most)
        done = b.select(b.icmp_signed("==", rows, I64(ROWS)), every, I64(0))
        begin, step = b.gep(self.packed, [b.mul(first, I64(self.width))]), I64(DEEPEST * self.width)
        self.walk(done, [(source, I64(self.width)), (begin, step)], whole)
        loop(b, b.sub(self.parts.count, done), part)
