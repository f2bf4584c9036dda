"""Products of small matrices, where a call of BLAS takes longer to begin than to compute.

    void tg_small.<dtype>(the arguments of a gemm, with Fortran's ABI)

is `gemm` for factors with up to `LARGEST` rows and columns, which begins at once: of the column-major C = alpha A B +
beta C, where beta is 0 or 1, `COLUMNS` columns of one vector each are sums in registers. Each element is summed over k
in order, by multiply-adds of one rounding, whatever the sizes are. A transposed A is put in order first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from tracegrad.codegen.lanes import splat
from tracegrad.codegen.scalar_llvm import I64
from tracegrad.codegen.support import loop

__all__ = ["LARGEST", "SMALL", "is_small_product", "small_module"]

SMALL = "tg_small."
LARGEST = 16  # rows and columns: of larger ones BLAS makes as much
COLUMNS = 8  # sums in registers: enough to hide the latency of a multiply-add
VECTOR = 64  # bytes

I8, I32, BIT = ir.IntType(8), ir.IntType(32), ir.IntType(1)


def is_small_product(m: int, n: int, k: int) -> bool:
    """Whether a product of these sizes is one of these."""
    return max(m, n, k) <= LARGEST


def small_module(name: str) -> str:
    """The module that defines one of these functions, as text."""
    t = ir.DoubleType() if name.endswith("f64") else ir.FloatType()
    return str(_Small(name, t).module)


class _Small:
    """Writes the function."""

    def __init__(self, name: str, t: Any):
        self.t, self.lanes = t, VECTOR // (8 if isinstance(t, ir.DoubleType) else 4)
        self.vector, self.mask = ir.VectorType(t, self.lanes), ir.VectorType(BIT, self.lanes)
        self.module = ir.Module(name)
        number, integer, letter = t.as_pointer(), I32.as_pointer(), I8.as_pointer()
        matrix = [number, integer]
        types = [letter, letter, integer, integer, integer, number, *matrix, *matrix, number, *matrix]
        self.function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), types), name)
        self.b = b = ir.IRBuilder(self.function.append_basic_block("entry"))
        a_letter, b_letter, m, n, k, alpha, a, a_leading, second, b_leading, beta, c, c_leading = self.function.args
        self.m, self.n, self.k, self.c_leading = (b.sext(b.load(x), I64) for x in (m, n, k, c_leading))
        self.alpha, self.second, self.c = self.splat(b.load(alpha)), second, c
        self.adds = b.fcmp_unordered("!=", b.load(beta), ir.Constant(t, 0.0))
        self.a, self.a_leading = self.in_order(a, b.sext(b.load(a_leading), I64), self.is_plain(a_letter))
        leading, plain = b.sext(b.load(b_leading), I64), self.is_plain(b_letter)
        self.down, self.across = b.select(plain, _int(1), leading), b.select(plain, leading, _int(1))
        blocks = b.sdiv(b.add(self.m, _int(self.lanes - 1)), _int(self.lanes))
        loop(b, blocks, lambda block: self.rows(b.mul(block, _int(self.lanes))))
        b.ret_void()

    def is_plain(self, letter: Any) -> Any:
        """Whether a matrix is taken as it stands."""
        return self.b.icmp_unsigned("==", self.b.load(letter), ir.Constant(I8, ord("N")))

    def in_order(self, a: Any, leading: Any, plain: Any) -> tuple[Any, Any]:
        """A with its columns one behind the other, and how far apart these are."""
        b = self.b
        room = b.alloca(ir.ArrayType(self.t, LARGEST * LARGEST))
        room.align = VECTOR
        own = b.bitcast(room, self.t.as_pointer())

        def element(i: Any, j: Any) -> None:
            x = b.load(b.gep(a, [b.add(b.mul(i, leading), j)]))
            b.store(x, b.gep(own, [b.add(b.mul(j, _int(LARGEST)), i)]))

        with b.if_then(b.not_(plain)):
            loop(b, self.m, lambda i: loop(b, self.k, lambda j: element(i, j)))
        return b.select(plain, a, own), b.select(plain, leading, _int(LARGEST))

    def rows(self, top: Any) -> None:
        """The results in a vector of rows, from `top` on."""
        b = self.b
        lanes = ir.Constant(ir.VectorType(I64, self.lanes), list(range(self.lanes)))
        left = self.splat(b.sub(self.m, top))
        mask = b.icmp_signed("<", lanes, left)
        whole = b.sdiv(self.n, _int(COLUMNS))
        loop(b, whole, lambda block: self.columns(top, mask, b.mul(block, _int(COLUMNS)), COLUMNS))
        done = b.mul(whole, _int(COLUMNS))
        loop(b, b.sub(self.n, done), lambda j: self.columns(top, mask, b.add(done, j), 1))

    def columns(self, top: Any, mask: Any, first: Any, count: int) -> None:
        """The results in some columns from `first` on."""
        b = self.b
        sums = self.sums(top, mask, first, count)
        for j, total in enumerate(sums):
            at = b.gep(self.c, [b.add(b.mul(b.add(first, _int(j)), self.c_leading), top)])
            found = b.fmul(self.alpha, total)
            before = b.block
            with b.if_then(self.adds):
                more = b.fadd(self.load(at, mask), found)
                inside = b.block
            result = b.phi(self.vector)
            result.add_incoming(found, before)
            result.add_incoming(more, inside)
            self.store(result, at, mask)

    def sums(self, top: Any, mask: Any, first: Any, count: int) -> Sequence[Any]:
        """The sums of products over k."""
        b = self.b
        before = b.block
        head, inside, after = (b.append_basic_block(name) for name in ("head", "inside", "after"))
        b.branch(head)
        b.position_at_end(head)
        p = b.phi(I64)
        totals = [b.phi(self.vector) for _ in range(count)]
        b.cbranch(b.icmp_signed("<", p, self.k), inside, after)
        b.position_at_end(inside)
        column = self.load(b.gep(self.a, [b.add(b.mul(p, self.a_leading), top)]), mask)
        row = b.mul(p, self.down)
        fma = self.intrinsic("fma", ir.FunctionType(self.vector, [self.vector] * 3))
        new = []
        for j, total in enumerate(totals):
            at = b.add(row, b.mul(b.add(first, _int(j)), self.across))
            new.append(b.call(fma, [column, self.splat(b.load(b.gep(self.second, [at]))), total]))
        b.branch(head)
        p.add_incoming(_int(0), before)
        p.add_incoming(_plus_one(b, p, inside), inside)
        for total, x in zip(totals, new):
            total.add_incoming(ir.Constant(self.vector, [0.0] * self.lanes), before)
            total.add_incoming(x, inside)
        b.position_at_end(after)
        return totals

    def splat(self, x: Any) -> Any:
        """`x` in all lanes."""
        return splat(self.b, x, self.lanes)

    def load(self, at: Any, mask: Any) -> Any:
        pointer = self.vector.as_pointer()
        types = [pointer, I32, self.mask, self.vector]
        zero = ir.Constant(self.vector, [0.0] * self.lanes)
        function = self.intrinsic("masked.load", ir.FunctionType(self.vector, types))
        return self.b.call(function, [self.b.bitcast(at, pointer), self.align, mask, zero])

    def store(self, x: Any, at: Any, mask: Any) -> None:
        pointer = self.vector.as_pointer()
        function = self.intrinsic(
            "masked.store", ir.FunctionType(ir.VoidType(), [self.vector, pointer, I32, self.mask])
        )
        self.b.call(function, [x, self.b.bitcast(at, pointer), self.align, mask])

    @property
    def align(self) -> Any:
        return ir.Constant(I32, VECTOR // self.lanes)

    def intrinsic(self, what: str, signature: Any) -> Any:
        name = f"llvm.{what}.v{self.lanes}f{8 * VECTOR // self.lanes}" + (".p0" if "masked" in what else "")
        return self.module.globals.get(name) or ir.Function(self.module, signature, name)


def _plus_one(b: ir.IRBuilder, p: Any, block: Any) -> Any:
    with b.goto_block(block):
        return b.add(p, _int(1))


def _int(value: int) -> Any:
    return ir.Constant(I64, value)
