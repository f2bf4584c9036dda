"""Matrix products of our own, as LLVM IR: they begin at once, and parts of one have the bits of the whole.

    void tg_gemm.<dtype>(the arguments of a gemm, with Fortran's ABI)

is the column-major C = alpha A B + beta C. A strip of A, two vectors high and up to `DEEPEST` columns long, times a few
columns of B are sums in registers. A strip is put in order first if it is transposed, not whole, or spread out in
memory, some strips at a time, and then multiplied by all columns of B. These are read where they lie, but for a large
transposed B, of which every strip would read short pieces all over memory: it is copied once. If A has few rows and B
is transposed, the transposed product is computed, in which strips of B are full. Each element is summed over k in
order, by multiply-adds of one rounding, wherever it is and whatever the sizes are.

OpenBLAS packs both factors whatever their sizes are, which takes a quarter of the time of small products. That of large
ones it computes as fast as a CPU can, and with less of the first cache than this (`tracegrad.runtime.tiled`).
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tracegrad import llvmir as ir
from tracegrad.codegen.cpu import features
from tracegrad.codegen.gemm_words import Writer
from tracegrad.codegen.lanes import number, prefetch, splat
from tracegrad.codegen.scalar_llvm import I64
from tracegrad.codegen.support import loop, smaller
from tracegrad.codegen.tiles import transposed

__all__ = ["GEMM", "LARGEST", "gemm_module", "is_small_product"]

GEMM = "tg_gemm."
LARGEST = 16  # rows and columns: of products in stacks up to this size BLAS would make less
DEEPEST = 256  # columns of a strip, which is 16 KiB then: half of the first cache
STRIPS = 4  # of full length that are in order at the same time, in the second cache: a part of B is read once for all
BLOCK = 1 << 20  # bytes of a block of B
LYING = 1 << 14  # bytes that the columns of a strip may span if it is read where it lies
READABLE = 1 << 16  # bytes that the rows of a transposed B may span if it is read where it lies
SHALLOW = 16  # rows of B that are read side by side wherever they lie
REREAD = 32  # bytes of a row of strips that read a transposed B where it lies, rather than to wait for a copy
FEWEST = 16  # columns of B that are worth a copy of a strip of A, and half as many where that one lies badly:
CROWDED = 2048  # at multiples of so many bytes, columns share places in the cache, at those of a page
PAGE = 4096  # all of them: there are
WAYS = 8  # for lines of one place
ROWS = 8  # of a transposed B that are copied together: they fit in the first cache
STREWN = 1024  # bytes from a short column to the next, from which on no CPU expects where that is: it is asked for
SHORT = 128  # bytes of short columns, which are two lines at most
AHEAD = 3  # parts of B from the one that is multiplied to the one that is asked for
NARROW = 4  # columns of parts of B that are not as wide as the others

I8, I32 = ir.IntType(8), ir.IntType(32)


def is_small_product(m: int, n: int, k: int) -> bool:
    """Whether a product of these sizes, in a stack, is one of these on any machine."""
    return max(m, n, k) <= LARGEST


def gemm_module(name: str) -> str:
    """The module that defines one of these functions, as text."""
    t = ir.DoubleType() if name.endswith("f64") else ir.FloatType()
    return str(_Gemm(name, t).module)


def _registers() -> tuple[int, int]:
    """The bytes of a vector, and of how many columns registers hold two vectors of sums each, with some to spare."""
    if "avx512f" in features():
        return 64, 8
    return (32, 6) if "avx2" in features() else (16, 6)


class _Gemm(Writer):
    """Writes the function."""

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
        # The transposed product, if vectors would have few rows of A, and a transposed B fills them.
        broad = b.and_(b.icmp_signed("<=", m, I64(NARROW)), b.icmp_signed(">=", n, I64(self.tall)))
        self.turns = turns = b.and_(broad, b.not_(straight))
        pairs = ((a, second), (lda, ldb), (m, n), (plain, b.not_(straight)), (straight, b.not_(plain)))
        self.a, self.lda, self.m, self.plain, self.straight = (b.select(turns, y, x) for x, y in pairs)
        self.second, self.ldb, self.n = (b.select(turns, x, y) for x, y in pairs[:3])
        self.down, self.ldc = b.select(turns, ldc, I64(1)), b.select(turns, I64(1), ldc)
        # Of one vector, registers hold the sums of twice the columns, and the cache as many columns, unless they share
        # their places there.
        few = b.icmp_signed("<=", self.m, I64(self.lanes))
        self.low = b.and_(few, b.not_(b.and_(self.share(self.ldb, PAGE), self.straight)))
        self.most = b.select(self.low, I64(2 * self.width), I64(self.width))
        self.fewer = b.select(self.low, I64(self.width), I64(NARROW))
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
        """Whether B is copied, and room for that."""
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
            found = b.bitcast(b.call(malloc, [b.mul(columns, I64(DEEPEST * self.size))]), self.a.type)
            inside = b.block
        none = ir.Constant(self.a.type, None)
        room = b.phi(self.a.type)
        room.add_incoming(none, before)
        room.add_incoming(found, inside)
        return b.icmp_unsigned("!=", room, none), room

    # -- what is gone through --------------------------------------------------------------------------------
    def blocks(self) -> None:
        """All columns of B, block by block, and all of k."""
        b = self.b
        stages = self.at_least_one(self.quotient_up(self.k, DEEPEST))
        most = BLOCK // self.size // DEEPEST

        def block(i: Any) -> None:
            self.left = b.mul(i, I64(most))
            columns = smaller(self.b, b.sub(self.n, self.left), I64(most))
            self.cut(columns)
            loop(b, stages, self.stage)

        loop(b, self.quotient_up(self.n, most), block)

    def cut(self, columns: Any) -> None:
        """Cut columns into parts, the wide ones first: as evenly as can be, or those of one vector all whole."""
        b = self.b
        parts = self.quotient_up(columns, self.most)
        missing = b.sub(b.mul(parts, self.most), columns)
        narrow = b.sdiv(missing, b.sub(self.most, self.fewer))
        whole = b.sdiv(columns, self.most)
        rest = self.quotient_up(b.sub(columns, b.mul(whole, self.most)), self.fewer)
        self.columns = columns
        self.wide = b.select(self.low, whole, b.sub(parts, smaller(b, narrow, parts)))
        self.parts = b.select(self.low, b.add(whole, rest), parts)

    def stage(self, i: Any) -> None:
        """Add the products of some columns of A with as many rows of a block of B."""
        b = self.b
        self.first = b.mul(i, I64(DEEPEST))
        self.depth = smaller(self.b, b.sub(self.k, self.first), I64(DEEPEST))
        self.factor = b.select(b.icmp_signed("==", i, I64(0)), self.beta, ir.Constant(self.t, 1.0))
        self.adds = b.fcmp_unordered("!=", self.factor, ir.Constant(self.t, 0.0))
        left, first = self.left, self.first
        at = b.select(self.straight, b.add(b.mul(left, self.ldb), first), b.add(b.mul(first, self.ldb), left))
        self.block = b.gep(self.second, [at])
        with b.if_then(self.packs):
            loop(b, self.quotient_up(self.depth, ROWS), lambda i: loop(b, self.parts, lambda j: self.pack(i, j)))
        spans = b.mul(b.mul(self.lda, self.depth), I64(self.size))
        fewest = b.select(self.share(self.lda, CROWDED), I64(FEWEST // 2), I64(FEWEST))
        few = b.icmp_signed("<", self.columns, fewest)
        near = b.or_(b.icmp_signed("<=", spans, I64(LYING)), few)
        self.lies = b.and_(self.plain, near)
        short = b.icmp_signed("<=", self.depth, I64(SHORT // self.size))
        strewn = b.icmp_signed(">=", smaller(self.b, self.ldb, self.ldc), I64(STREWN // self.size))
        self.strewn = b.and_(b.and_(short, strewn), self.straight)
        # As many strips as there is room for: of short ones, long columns of results are written.
        places = b.add(self.depth, I64(self.lanes))
        strips = b.sdiv(I64(STRIPS * (DEEPEST + self.lanes)), places)
        self.pitch, self.height = b.mul(places, I64(self.tall)), b.mul(strips, I64(self.tall))
        loop(b, self.quotient_up(self.m, self.height), lambda i: self.group(b.mul(i, self.height)))

    def group(self, top: Any) -> None:
        """The results in some strips of rows, from `top` on."""
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
                loop(b, self.quotient_up(rows, tall), lambda i: self.turn(source, rows, i))
        low = b.icmp_signed("<=", rest, I64(self.lanes))
        high = b.add(whole, b.select(low, I64(0), I64(1)))

        def part(j: Any) -> None:
            left, columns = self.extent(j)
            results = self.result(top, left)

            def strip(i: Any, vectors: int) -> None:
                begin = b.mul(i, I64(tall))
                in_place = b.icmp_signed("<", i, lying) if vectors > 1 else half_lies
                factor = b.select(in_place, b.gep(source, [begin]), self.strip(i))
                apart = b.select(in_place, self.lda, I64(tall))
                to = b.gep(results, [b.mul(begin, self.down)])
                self.results(factor, apart, left, columns, to, b.sub(rows, begin), vectors)

            with b.if_then(self.strewn):
                self.prefetch_columns(b.add(left, b.mul(I64(AHEAD), self.most)), top)
            loop(b, high, lambda i: strip(i, 2))
            with b.if_then(b.and_(low, b.icmp_signed(">", rest, I64(0)))):
                strip(whole, 1)

        loop(b, self.parts, part)

    def results(self, strip: Any, apart: Any, left: Any, columns: Any, results: Any, rows: Any, vectors: int) -> None:
        """The results of a strip in some columns."""
        b = self.b
        whole = b.and_(b.icmp_signed(">=", rows, I64(vectors * self.lanes)), b.not_(self.turns))
        to, to_apart = b.select(whole, results, self.corner), b.select(whole, self.ldc, I64(self.tall))
        adds = b.and_(self.adds, whole)
        last = b.sub(columns, I64(1))

        def some(count: int, whole: bool = False) -> None:
            numbers = [I64(j) if whole else smaller(self.b, I64(j), last) for j in range(count)]
            sums = self.sums(strip, apart, left, columns, numbers, vectors, whole)
            self.write(sums, [b.gep(to, [b.mul(j, to_apart)]) for j in numbers], adds)

        many, few = (self.width, NARROW) if vectors > 1 else (2 * self.width, self.width)
        with b.if_else(b.icmp_signed(">", columns, I64(few))) as (then, otherwise):
            with then:
                some(many, vectors == 1)
            with otherwise:
                some(few)
        with b.if_then(self.turns):
            most = vectors * self.lanes
            self.write_turned(columns, results, smaller(b, rows, I64(most)), most)
        with b.if_then(b.not_(b.or_(whole, self.turns))):
            self.write_rest(columns, results, rows)

    def result(self, i: Any, j: Any) -> Any:
        """Where a result is, of a column of the block."""
        b = self.b
        return b.gep(self.c, [b.add(b.mul(b.add(self.left, j), self.ldc), b.mul(i, self.down))])

    def extent(self, i: Any) -> tuple[Any, Any]:
        """Where a part of a block of B begins, and its columns.

        The last may have fewer than others. It is computed as if it had them, the last column again and again."""
        b = self.b
        narrow = b.sub(i, smaller(self.b, i, self.wide))
        left = b.sub(b.mul(i, self.most), b.mul(narrow, b.sub(self.most, self.fewer)))
        width = b.select(b.icmp_signed("<", i, self.wide), self.most, self.fewer)
        return left, smaller(self.b, width, b.sub(self.columns, left))

    def prefetch_columns(self, left: Any, top: Any) -> None:
        """Ask for columns of B and C that come later."""
        b = self.b
        column = b.gep(self.block, [b.mul(left, self.ldb)])
        result = self.result(top, left)

        def ask(j: Any) -> None:
            given = b.gep(column, [b.mul(j, self.ldb)])
            prefetch(b, given)
            prefetch(b, b.gep(given, [b.sub(self.depth, I64(1))]))
            prefetch(b, b.gep(result, [b.mul(j, self.ldc)]), writes=True)

        loop(b, self.most, ask)

    def strip(self, i: Any) -> Any:
        """Where a strip is that was put in order."""
        return self.b.gep(self.panel, [self.b.mul(i, self.pitch)])

    # -- sums ------------------------------------------------------------------------------------------------
    def sums(
        self, strip: Any, apart: Any, left: Any, columns: Any, numbers: list[Any], vectors: int, whole: bool
    ) -> list[list[Any]]:
        """The sums of products over k, of a strip and columns of these numbers in the part of the block at `left`: all
        of a part of twice the usual width, if it is whole."""
        b = self.b
        across = b.select(self.straight, self.ldb, I64(1))
        down = b.select(self.packs, columns, b.select(self.straight, I64(1), self.ldb))
        lying, copied = (b.gep(self.block, [b.mul(left, across)]), b.gep(self.packed, [b.mul(left, I64(DEEPEST))]))
        start = b.select(self.packs, copied, lying)
        # Registers do not hold the distances of twice as many columns: every third one has an address of its own.
        group = 3 if whole else len(numbers)
        starts = [b.gep(start, [b.mul(j, across)]) for j in numbers[::group]]
        step = b.mul(across, I64(self.size))
        behind = [b.mul(j, step) for j in numbers[:group]]
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
        found = [b.phi(self.vector) for _ in new]
        for x, y in zip(found, new):
            x.add_incoming(zero, before)
            x.add_incoming(y, inside)
        alpha = self.splat(self.alpha)
        found = [b.fmul(alpha, x) for x in found]
        return [found[j * vectors : (j + 1) * vectors] for j in range(len(numbers))]

    def write(self, sums: list[list[Any]], places: list[Any], adds: Any) -> None:
        """Store the results of whole strips, or add them. All are read before one is written: some may be the same."""
        b = self.b
        spots = [(x, self.at(place, i)) for column, place in zip(sums, places) for i, x in enumerate(column)]
        before = b.block
        with b.if_then(adds):
            factor = self.splat(self.factor)
            more = [b.fadd(b.fmul(factor, b.load(at, align=self.size)), x) for x, at in spots]
            inside = b.block
        results = [b.phi(self.vector) for _ in spots]
        for result, (x, _), y in zip(results, spots, more):
            result.add_incoming(x, before)
            result.add_incoming(y, inside)
        for result, (_, at) in zip(results, spots):
            b.store(result, at, align=self.size)

    def write_turned(self, columns: Any, results: Any, rows: Any, most: int) -> None:
        """Write some rows of `corner`, which are at most so many, as columns."""
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
        """Write the last results, which are in `corner`, in pieces of columns that are powers of two."""
        b = self.b
        done: Any = I64(0)
        width = self.lanes
        while width:
            kind = ir.VectorType(self.t, width)
            here = b.and_(rows, I64(width))

            def piece(j: Any, done: Any = done, kind: Any = kind) -> None:
                source, to = b.gep(self.corner, [b.mul(j, I64(self.tall))]), b.gep(results, [b.mul(j, self.ldc)])
                own, place = (b.bitcast(b.gep(x, [done]), kind.as_pointer()) for x in (source, to))
                x = b.load(own, align=self.size)
                before = b.block
                with b.if_then(self.adds):
                    factor = splat(b, self.factor, kind.count)
                    more = b.fadd(b.fmul(factor, b.load(place, align=self.size)), x)
                    inside = b.block
                found = b.phi(kind)
                found.add_incoming(x, before)
                found.add_incoming(more, inside)
                b.store(found, place, align=self.size)

            with b.if_then(b.icmp_signed("!=", here, I64(0))):
                loop(b, columns, piece)
            done = b.add(done, here)
            width //= 2

    # -- factors in order ------------------------------------------------------------------------------------
    def copy(self, source: Any, lying: Any, whole: Any, rest: Any) -> None:
        """Copy the whole strips that do not lie in order, and what is left, with zeros for rows that are not there."""
        b, tall = self.b, self.tall

        def piece(p: Any, i: Any, halves: Any, load: Any) -> None:
            at = b.gep(source, [b.add(b.mul(p, self.lda), b.mul(i, I64(tall)))])
            to = b.gep(self.strip(i), [b.mul(p, I64(tall))])
            for half in halves:
                self.store(load(b.gep(at, [I64(half * self.lanes)])), to, half)

        count = b.sub(whole, lying)
        with b.if_then(b.icmp_signed(">", count, I64(0))):
            loop(b, self.depth, lambda p: loop(b, whole, lambda i: piece(p, i, range(2), self.load)))
        for half in range(2):
            more = b.sub(rest, I64(half * self.lanes))
            with b.if_then(b.icmp_signed(">", more, I64(0))):
                load = partial(self.masked, mask=self.below(more))
                loop(b, self.depth, partial(piece, i=whole, halves=[half], load=load))

    def turn(self, source: Any, rows: Any, i: Any) -> None:
        """Transpose a strip of A. Rows that are not there are the last one again."""
        b = self.b
        last = b.sub(rows, I64(1))
        strip = self.strip(i)

        def half(h: Any) -> None:
            top = b.mul(h, I64(self.lanes))
            begin = b.add(b.mul(i, I64(self.tall)), top)
            numbers = [smaller(b, b.add(begin, I64(r)), last) for r in range(self.lanes)]
            places = [b.gep(source, [b.mul(r, self.lda)]) for r in numbers]

            def square(p: Any, load: Any) -> None:
                found = [load(b.gep(place, [p])) for place in places]
                for q, x in enumerate(transposed(b, found, min(16 // self.size, self.lanes))):
                    at = b.add(b.mul(b.add(p, I64(q)), I64(self.tall)), top)
                    self.store(x, b.gep(strip, [at]))

            whole = b.sdiv(self.depth, I64(self.lanes))
            loop(b, whole, lambda block: square(b.mul(block, I64(self.lanes)), self.load))
            done = b.mul(whole, I64(self.lanes))
            rest = b.sub(self.depth, done)
            with b.if_then(b.icmp_signed(">", rest, I64(0))):
                square(done, partial(self.masked, mask=self.below(rest)))

        low = b.icmp_signed("<=", b.sub(rows, b.mul(i, I64(self.tall))), I64(self.lanes))
        loop(b, b.select(low, I64(1), I64(2)), half)

    def pack(self, i: Any, j: Any) -> None:
        """Copy some rows and columns of a block of the transposed B: of each row the first four, and the last four."""
        b, four = self.b, ir.VectorType(self.t, 4).as_pointer()
        left, columns = self.extent(j)
        first = b.mul(i, I64(ROWS))
        rows = smaller(b, b.sub(self.depth, first), I64(ROWS))
        source = b.gep(self.block, [b.add(left, b.mul(first, self.ldb))])
        to = b.gep(self.packed, [b.add(b.mul(left, I64(DEEPEST)), b.mul(first, columns))])

        def row(p: Any, columns: Any) -> None:
            at, place = b.gep(source, [b.mul(p, self.ldb)]), b.gep(to, [b.mul(p, columns)])
            for begin in (I64(0), b.sub(columns, I64(4))):
                x = b.load(b.bitcast(b.gep(at, [begin]), four), align=self.size)
                b.store(x, b.bitcast(b.gep(place, [begin]), four), align=self.size)

        def few(p: Any) -> None:
            at, place = b.gep(source, [b.mul(p, self.ldb)]), b.gep(to, [b.mul(p, columns)])
            loop(b, columns, lambda j: b.store(b.load(b.gep(at, [j])), b.gep(place, [j])))

        whole = b.and_(b.icmp_signed("==", columns, I64(self.width)), b.icmp_signed("==", rows, I64(ROWS)))
        with b.if_else(whole) as (then, otherwise):
            with then:
                for p in range(ROWS):
                    row(I64(p), I64(self.width))
            with otherwise, b.if_else(b.icmp_signed(">=", columns, I64(4))) as (several, rest):
                with several:
                    loop(b, rows, partial(row, columns=columns))
                with rest:
                    loop(b, rows, few)
