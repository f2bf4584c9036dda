"""Matrix products of our own, as LLVM IR: they begin at once, and parts of one have the bits of the whole.

    void tg_gemm.<dtype>(the arguments of a gemm, with Fortran's ABI)

is the column-major C = alpha A B + beta C. A strip of A, two vectors high and up to `DEEPEST` columns long, times a few
columns of B are sums in registers. A strip is put in order first if it is transposed, not whole, or spread out in
memory, some strips at a time, and then multiplied by all columns of B. These are read where they lie, but for a large
transposed B, of which every strip would read short pieces all over memory: it is copied once. Each element is summed
over k in order, by multiply-adds of one rounding, wherever it is and whatever the sizes are.

OpenBLAS packs both factors whatever their sizes are, which takes a quarter of the time of small products. That of large
ones it computes as fast as a CPU can, and with less of the first cache than this (`tracegrad.runtime.tiled`).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from tracegrad.codegen.cpu import features
from tracegrad.codegen.lanes import intrinsic, number, numbered, prefetch, splat
from tracegrad.codegen.scalar_llvm import I64
from tracegrad.codegen.support import loop, smaller
from tracegrad.codegen.tiles import transposed

__all__ = ["GEMM", "LARGEST", "gemm_module", "is_small_product"]

GEMM = "tg_gemm."
LARGEST = 16  # rows and columns: of products in stacks up to this size BLAS would make less
DEEPEST = 256  # columns of a strip, which is 16 KiB then: half of the first cache
STRIPS = 4  # that are in order at the same time, in the second cache: a part of B is read once for all of them
BLOCK = 1 << 20  # bytes of a block of B
LYING = 1 << 14  # bytes that the columns of a strip may span if it is read where it lies
READABLE = 1 << 16  # bytes that the rows of a transposed B may span if it is read where it lies
SHALLOW = 16  # rows of B that are read side by side wherever they lie
REREAD = 32  # bytes of a row of strips that read a transposed B where it lies, rather than to wait for a copy
FEWEST = 16  # columns of B that are worth a copy of a strip of A, and half as many where that one lies badly:
CROWDED = 2048  # at multiples of so many bytes, columns share places in the cache
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


class _Gemm:
    """Writes the function."""

    def __init__(self, name: str, t: Any):
        bytes_, self.width = _registers()
        self.t, self.size = t, 8 if isinstance(t, ir.DoubleType) else 4
        self.lanes = bytes_ // self.size
        self.tall = 2 * self.lanes
        self.vector = ir.VectorType(t, self.lanes)
        self.module = ir.Module(name)
        data, integer, letter = t.as_pointer(), I32.as_pointer(), I8.as_pointer()
        matrix = [data, integer]
        types = [letter, letter, integer, integer, integer, data, *matrix, *matrix, data, *matrix]
        function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), types), name)
        self.b = b = ir.IRBuilder(function.append_basic_block("entry"))
        a_letter, b_letter, m, n, k, alpha, self.a, lda, self.second, ldb, beta, self.c, ldc = function.args
        self.m, self.n, self.k, self.lda, self.ldb, self.ldc = (
            b.sext(b.load(x), I64) for x in (m, n, k, lda, ldb, ldc)
        )
        self.plain, self.straight = self.is_plain(a_letter), self.is_plain(b_letter)
        self.alpha, self.beta = b.load(alpha), b.load(beta)
        self.panel = self.room(STRIPS * self.tall * (DEEPEST + self.lanes))
        self.corner = self.room(self.tall * self.width)
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
            self.parts = self.quotient_up(columns, self.width)
            missing = b.sub(b.mul(self.parts, I64(self.width)), columns)
            narrow = b.sdiv(missing, I64(self.width - NARROW))
            self.columns, self.wide = columns, b.sub(self.parts, smaller(self.b, narrow, self.parts))
            loop(b, stages, self.stage)

        loop(b, self.quotient_up(self.n, most), block)

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
        crowded = b.icmp_unsigned("==", b.and_(b.mul(self.lda, I64(self.size)), I64(CROWDED - 1)), I64(0))
        few = b.icmp_signed("<", self.columns, b.select(crowded, I64(FEWEST // 2), I64(FEWEST)))
        near = b.or_(b.icmp_signed("<=", spans, I64(LYING)), few)
        self.lies = b.and_(self.plain, near)
        short = b.icmp_signed("<=", self.depth, I64(SHORT // self.size))
        strewn = b.icmp_signed(">=", smaller(self.b, self.ldb, self.ldc), I64(STREWN // self.size))
        self.strewn = b.and_(b.and_(short, strewn), self.straight)
        height = STRIPS * self.tall
        loop(b, self.quotient_up(self.m, height), lambda i: self.group(b.mul(i, I64(height))))

    def group(self, top: Any) -> None:
        """The results in some strips of rows, from `top` on."""
        b, tall = self.b, self.tall
        rows = smaller(self.b, b.sub(self.m, top), I64(STRIPS * tall))
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
            results = b.gep(self.c, [b.add(b.mul(b.add(self.left, left), self.ldc), top)])

            def strip(i: Any, vectors: int) -> None:
                begin = b.mul(i, I64(tall))
                in_place = b.icmp_signed("<", i, lying) if vectors > 1 else half_lies
                factor = b.select(in_place, b.gep(source, [begin]), self.strip(i))
                apart = b.select(in_place, self.lda, I64(tall))
                self.results(factor, apart, left, columns, b.gep(results, [begin]), b.sub(rows, begin), vectors)

            with b.if_then(self.strewn):
                self.prefetch_columns(b.add(left, I64(AHEAD * self.width)), top)
            loop(b, high, lambda i: strip(i, 2))
            with b.if_then(b.and_(low, b.icmp_signed(">", rest, I64(0)))):
                strip(whole, 1)

        loop(b, self.parts, part)

    def results(self, strip: Any, apart: Any, left: Any, columns: Any, results: Any, rows: Any, vectors: int) -> None:
        """The results of a strip in some columns."""
        b = self.b
        whole = b.icmp_signed(">=", rows, I64(vectors * self.lanes))
        to, to_apart = b.select(whole, results, self.corner), b.select(whole, self.ldc, I64(self.tall))
        adds = b.and_(self.adds, whole)
        last = b.sub(columns, I64(1))

        def some(count: int) -> None:
            numbers = [smaller(self.b, I64(j), last) for j in range(count)]
            sums = self.sums(strip, apart, left, columns, numbers, vectors)
            self.write(sums, [b.gep(to, [b.mul(j, to_apart)]) for j in numbers], adds)

        if vectors == 1:  # as many multiply-adds wait for each other, whether there are four columns or six
            some(self.width)
        else:
            with b.if_else(b.icmp_signed(">", columns, I64(NARROW))) as (then, otherwise):
                with then:
                    some(self.width)
                with otherwise:
                    some(NARROW)
        with b.if_then(b.not_(whole)):
            loop(b, columns, lambda j: self.column(j, results, rows))

    def extent(self, i: Any) -> tuple[Any, Any]:
        """Where a part of a block of B begins, and its columns: the first are wide, the others narrow.

        The last may have fewer. It is computed as if it had them, the last column again and again."""
        b = self.b
        narrow = b.sub(i, smaller(self.b, i, self.wide))
        left = b.sub(b.mul(i, I64(self.width)), b.mul(narrow, I64(self.width - NARROW)))
        width = b.select(b.icmp_signed("<", i, self.wide), I64(self.width), I64(NARROW))
        return left, smaller(self.b, width, b.sub(self.columns, left))

    def prefetch_columns(self, left: Any, top: Any) -> None:
        """Ask for columns of B and C that come later."""
        b = self.b
        column = b.gep(self.block, [b.mul(left, self.ldb)])
        result = b.gep(self.c, [b.add(b.mul(b.add(self.left, left), self.ldc), top)])
        for j in range(self.width):
            given, to = b.gep(column, [b.mul(I64(j), self.ldb)]), b.gep(result, [b.mul(I64(j), self.ldc)])
            prefetch(b, given)
            prefetch(b, b.gep(given, [b.sub(self.depth, I64(1))]))
            prefetch(b, to, writes=True)

    def strip(self, i: Any) -> Any:
        """Where a strip is that was put in order."""
        return self.b.gep(self.panel, [self.b.mul(i, I64(self.tall * (DEEPEST + self.lanes)))])

    # -- sums ------------------------------------------------------------------------------------------------
    def sums(
        self, strip: Any, apart: Any, left: Any, columns: Any, numbers: list[Any], vectors: int
    ) -> list[list[Any]]:
        """The sums of products over k, of a strip and columns of these numbers in the part of the block at `left`."""
        b = self.b
        across = b.select(self.straight, self.ldb, I64(1))
        down = b.select(self.packs, columns, b.select(self.straight, I64(1), self.ldb))
        lying, copied = (b.gep(self.block, [b.mul(left, across)]), b.gep(self.packed, [b.mul(left, I64(DEEPEST))]))
        start = b.select(self.packs, copied, lying)
        offsets = [b.mul(j, across) for j in numbers]
        before = b.block
        inside, after = (b.append_basic_block(name) for name in ("inside", "after"))
        zero = number(self.vector, 0.0)
        b.cbranch(b.icmp_signed(">", self.depth, I64(0)), inside, after)
        b.position_at_end(inside)
        p, column, row = b.phi(I64), b.phi(self.a.type), b.phi(self.a.type)
        totals = [b.phi(self.vector) for _ in range(len(numbers) * vectors)]
        fma = intrinsic(self.module, "fma", [self.vector], self.vector, [self.vector] * 3)
        factors = [self.load(column, i) for i in range(vectors)]
        new = []
        for j, offset in enumerate(offsets):
            x = self.splat(b.load(b.gep(row, [offset])))
            new += [b.call(fma, [y, x, totals[j * vectors + i]]) for i, y in enumerate(factors)]
        following = [b.add(p, I64(1)), b.gep(column, [apart]), b.gep(row, [down])]
        b.cbranch(b.icmp_signed("<", following[0], self.depth), inside, after)
        starts = [I64(0), strip, start, *[zero] * len(totals)]
        for x, y, z in zip([p, column, row, *totals], starts, [*following, *new]):
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

    def column(self, j: Any, results: Any, rows: Any) -> None:
        """Write a column of the last results, which are in `corner`, in pieces that are powers of two."""
        b, tall = self.b, self.tall
        source, to = b.gep(self.corner, [b.mul(j, I64(tall))]), b.gep(results, [b.mul(j, self.ldc)])
        done: Any = I64(0)
        width = tall // 2
        while width:
            kind = ir.VectorType(self.t, width)
            here = b.and_(rows, I64(width))
            with b.if_then(b.icmp_signed("!=", here, I64(0))):
                own, place = (b.bitcast(b.gep(x, [done]), kind.as_pointer()) for x in (source, to))
                x = b.load(own, align=self.size)
                before = b.block
                with b.if_then(self.adds):
                    more = b.fadd(b.fmul(splat(b, self.factor, width), b.load(place, align=self.size)), x)
                    inside = b.block
                found = b.phi(kind)
                found.add_incoming(x, before)
                found.add_incoming(more, inside)
                b.store(found, place, align=self.size)
            done = b.add(done, here)
            width //= 2

    # -- factors in order ------------------------------------------------------------------------------------
    def copy(self, source: Any, lying: Any, whole: Any, rest: Any) -> None:
        """Copy the whole strips that do not lie in order, and what is left, with zeros for rows that are not there."""
        b, tall = self.b, self.tall

        def piece(p: Any, i: Any, load: Any) -> None:
            at = b.gep(source, [b.add(b.mul(p, self.lda), b.mul(i, I64(tall)))])
            to = b.gep(self.strip(i), [b.mul(p, I64(tall))])
            for half in range(2):
                self.store(load(b.gep(at, [I64(half * self.lanes)]), half), to, half)

        count = b.sub(whole, lying)
        with b.if_then(b.icmp_signed(">", count, I64(0))):
            loop(b, self.depth, lambda p: loop(b, whole, lambda i: piece(p, i, lambda at, _: self.load(at))))
        with b.if_then(b.icmp_signed(">", rest, I64(0))):
            masks = [self.below(b.sub(rest, I64(half * self.lanes))) for half in range(2)]
            loop(b, self.depth, lambda p: piece(p, whole, lambda at, half: self.masked(at, masks[half])))

    def turn(self, source: Any, rows: Any, i: Any) -> None:
        """Transpose a strip of A. Rows that are not there are the last one again."""
        b = self.b
        last = b.sub(rows, I64(1))
        strip = self.strip(i)

        def square(block: Any, half: Any) -> None:
            p, top = b.mul(block, I64(self.lanes)), b.mul(half, I64(self.lanes))
            mask = self.below(b.sub(self.depth, p))
            begin = b.add(b.mul(i, I64(self.tall)), top)
            places = [b.mul(smaller(self.b, b.add(begin, I64(r)), last), self.lda) for r in range(self.lanes)]
            found = [self.masked(b.gep(source, [b.add(p, at)]), mask) for at in places]
            for q, x in enumerate(transposed(b, found, min(16 // self.size, self.lanes))):
                at = b.add(b.mul(b.add(p, I64(q)), I64(self.tall)), top)
                self.store(x, b.gep(strip, [at]))

        blocks = self.quotient_up(self.depth, self.lanes)
        loop(b, blocks, lambda block: loop(b, I64(2), lambda half: square(block, half)))

    def pack(self, i: Any, j: Any) -> None:
        """Copy some rows and columns of a block of the transposed B: of each row the first four, and the last four."""
        b, four = self.b, ir.VectorType(self.t, 4).as_pointer()
        left, columns = self.extent(j)
        first = b.mul(i, I64(ROWS))
        source = b.gep(self.block, [b.add(left, b.mul(first, self.ldb))])
        to = b.gep(self.packed, [b.add(b.mul(left, I64(DEEPEST)), b.mul(first, columns))])

        def row(p: Any) -> None:
            at, place = b.gep(source, [b.mul(p, self.ldb)]), b.gep(to, [b.mul(p, columns)])
            with b.if_else(b.icmp_signed(">=", columns, I64(4))) as (then, otherwise):
                with then:
                    for end in (I64(0), b.sub(columns, I64(4))):
                        x = b.load(b.bitcast(b.gep(at, [end]), four), align=self.size)
                        b.store(x, b.bitcast(b.gep(place, [end]), four), align=self.size)
                with otherwise:
                    loop(b, columns, lambda j: b.store(b.load(b.gep(at, [j])), b.gep(place, [j])))

        loop(b, smaller(self.b, b.sub(self.depth, first), I64(ROWS)), row)

    # -- words -----------------------------------------------------------------------------------------------
    def room(self, count: int) -> Any:
        made = self.b.alloca(ir.ArrayType(self.t, count))
        made.align = 64
        return self.b.bitcast(made, self.t.as_pointer())

    def is_plain(self, letter: Any) -> Any:
        """Whether a matrix is taken as it stands."""
        lower = self.b.or_(self.b.load(letter), I8(32))
        return self.b.icmp_unsigned("==", lower, I8(ord("n")))

    def quotient_up(self, x: Any, y: Any) -> Any:
        y = I64(y) if isinstance(y, int) else y
        return self.b.sdiv(self.b.sub(self.b.add(x, y), I64(1)), y)

    def at_least_one(self, x: Any) -> Any:
        return self.b.select(self.b.icmp_signed("<", x, I64(1)), I64(1), x)

    def below(self, count: Any) -> Any:
        """The lanes with numbers below `count`."""
        return self.b.icmp_signed("<", numbered(ir.VectorType(I64, self.lanes)), self.splat(count))

    def splat(self, x: Any) -> Any:
        """`x` in all lanes."""
        return splat(self.b, x, self.lanes)

    def at(self, pointer: Any, i: int) -> Any:
        return self.b.bitcast(self.b.gep(pointer, [I64(i * self.lanes)]), self.vector.as_pointer())

    def load(self, pointer: Any, i: int = 0) -> Any:
        return self.b.load(self.at(pointer, i), align=self.size)

    def store(self, x: Any, pointer: Any, i: int = 0) -> None:
        self.b.store(x, self.at(pointer, i), align=self.size)

    def masked(self, pointer: Any, mask: Any) -> Any:
        """What is at a place in the lanes of a mask, and zeros."""
        place = self.at(pointer, 0)
        kind = ir.FunctionType(self.vector, [place.type, I32, mask.type, self.vector])
        name = f"llvm.masked.load.v{self.lanes}f{8 * self.size}.p0"
        function = self.module.globals.get(name) or ir.Function(self.module, kind, name)
        return self.b.call(function, [place, I32(self.size), mask, number(self.vector, 0.0)])
