"""Factor matrices and solve triangular systems recursively, so that most of the work is GEMM.

OpenBLAS factors and solves slower than it multiplies, and in one thread. A matrix is therefore split in two until its
parts are small. The work between the parts is a gemm, which uses threads itself, or a solve with many right-hand sides,
which threads share. The split depends on sizes alone, and so do the bits of the result.

All matrices are row-major, with any row stride. Only the named triangle of a triangular matrix is read, and the other
triangle may be overwritten.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracegrad import llvmir as ir
from tracegrad.codegen.instr.operands import OperandLayout, load_operand, rest, word
from tracegrad.codegen.instr.scalar import BOOL, I64
from tracegrad.codegen.instr.support import TASK, loop
from tracegrad.codegen.libs.block_transpose import transpose
from tracegrad.target.tuning import TUNING

ROUTINES = ("potrf", "trsm", "gemm", "gesv", "getrf")
LAPACK_CALL = OperandLayout(
    word("callback", "address of a function of Python"),
    word("number", "number of the call"),
    *(word(name, "address of the routine") for name in ROUTINES),
    word("each_chunk", "address of a function of `EACH_CHUNK`"),
    word("count", "matrices"),
    word("rows", "rows of a matrix"),
    word("columns", "right-hand sides"),
    word("lower", "whether a triangle is the lower one"),
    word("transposed", "whether it is transposed"),
    word("unit", "whether its diagonal is 1"),
    word("num_arrays", "arrays"),
    rest("arrays", "their locations"),
)

LEAF_ROWS = TUNING.factorization.leaf_rows
FULL_PRODUCT_ROWS = TUNING.factorization.full_product_rows
SOLVED_COLUMNS = TUNING.factorization.solved_columns
MIN_FORKED_WORK = TUNING.factorization.min_forked_work

I8, I32, VOID = ir.IntType(8), ir.IntType(32), ir.VoidType()
POINTER = I8.as_pointer()
NO, YES = ir.IRConstant(BOOL, 0), ir.IRConstant(BOOL, 1)
SYSTEM = [BOOL, BOOL, BOOL, I64, I64]  # arguments of a triangular solve: flags of the triangle, rows, right-hand sides


class Halves:
    """Definitions of recursive routines in a module, on demand. Their first argument is the pointer to the words."""

    def __init__(self, module: ir.IRModule, t: ir.IRType):
        self.module, self.t, self.number = module, t, t.as_pointer()
        self.matrix = [self.number, I64]  # its address, and its row stride
        self.b: Any = None

    # -- writing functions -------------------------------------------------------------------------------------
    def defined(
        self, name: str, types: list[ir.IRType], body: Callable[..., None], result: ir.IRType = VOID
    ) -> ir.IRValue:
        """The function of this name; `body` emits it at first use."""
        function = self.module.globals.get(name)
        if function is None:
            function = ir.IRFunction(self.module, ir.FunctionType(result, [I64.as_pointer(), *types]), name)
            function.linkage = "internal"
            before, self.b = self.b, ir.IRBuilder(function.append_basic_block("entry"))
            body(*function.args)
            if result is VOID:
                self.b.ret_void()
            self.b = before
        return function

    def letter(self, letter: str) -> ir.IRValue:
        """The address of a constant letter."""
        name = f"letter.{letter}"
        result = self.module.globals.get(name)
        if result is None:
            result = ir.GlobalVariable(self.module, I8, name)
            result.linkage, result.global_constant = "internal", True
            result.initializer = ir.IRConstant(I8, ord(letter))
        return result

    def choice(self, condition: ir.IRValue, yes: str, no: str) -> Any:
        return self.b.select(condition, self.letter(yes), self.letter(no))

    def slot(self, x: ir.IRValue) -> Any:
        """The address of a number as a Fortran argument; integers have 32 bits."""
        x = self.b.trunc(x, I32) if x.type == I64 else x
        with self.b.goto_entry_block():
            slot = self.b.alloca(x.type)
        self.b.store(x, slot)
        return slot

    def fortran(self, call_operands: ir.IRValue, name: str, *arguments: ir.IRValue) -> None:
        operands = [self.b.bitcast(x, POINTER) for x in arguments]
        signature = ir.FunctionType(VOID, [POINTER] * len(operands))
        self.b.call(
            self.b.inttoptr(load_operand(self.b, call_operands, LAPACK_CALL, name), signature.as_pointer()), operands
        )

    def constant(self, x: float) -> ir.IRValue:
        return ir.IRConstant(self.t, x)

    def at(self, a: ir.IRValue, leading: ir.IRValue, row: ir.IRValue, column: ir.IRValue | None = None) -> Any:
        """The address of an element of a matrix."""
        offset = self.b.mul(row, leading)
        return self.b.gep(a, [offset if column is None else self.b.add(offset, column)])

    def halves(self, n: ir.IRValue) -> tuple[ir.IRValue, ir.IRValue]:
        """The numbers of rows of the two halves of a matrix; the first is a multiple of a block."""
        b = self.b
        upper = b.mul(b.sdiv(b.add(n, _int(2 * LEAF_ROWS - 1)), _int(2 * LEAF_ROWS)), _int(LEAF_ROWS))
        return upper, b.sub(n, upper)

    def is_small(self, n: ir.IRValue) -> Any:
        return self.b.icmp_signed("<=", n, _int(LEAF_ROWS))

    # -- products ----------------------------------------------------------------------------------------------
    def gemm(self) -> ir.IRValue:
        """gemm(words, whether A and B are transposed, m, n, k, alpha, A, B, C): C += alpha A B."""

        def body(
            call_operands: ir.IRValue,
            a_transposed: ir.IRValue,
            b_transposed: ir.IRValue,
            m: ir.IRValue,
            n: ir.IRValue,
            k: ir.IRValue,
            alpha: ir.IRValue,
            *matrices: ir.IRValue,
        ) -> None:
            letters = [self.choice(transposed, "T", "N") for transposed in (b_transposed, a_transposed)]
            x, x_leading, y, y_leading, out, out_leading = [
                self.slot(each) if each.type == I64 else each for each in matrices
            ]
            sizes = [self.slot(each) for each in (n, m, k)]
            one = self.slot(self.constant(1.0))
            self.fortran(
                call_operands,
                "gemm",
                *letters,
                *sizes,
                self.slot(alpha),
                y,
                y_leading,
                x,
                x_leading,
                one,
                out,
                out_leading,
            )

        return self.defined("gemm", [BOOL, BOOL, I64, I64, I64, self.t, *self.matrix * 3], body)

    def subtract(
        self,
        call_operands: ir.IRValue,
        transposed: tuple[ir.IRValue, ir.IRValue],
        sizes: tuple[ir.IRValue, ir.IRValue, ir.IRValue],
        *matrices: Any,
    ) -> None:
        """C -= A B; each matrix is an address and a row stride."""
        operands = [x for matrix in matrices for x in matrix]
        self.b.call(self.gemm(), [call_operands, *transposed, *sizes, self.constant(-1.0), *operands])

    def square(self) -> ir.IRValue:
        """square(words, whether A.T B or A B.T, n, k, A, B, C): the lower triangle of C -= the product."""

        def body(
            call_operands: ir.IRValue, first: ir.IRValue, n: ir.IRValue, k: ir.IRValue, *matrices: ir.IRValue
        ) -> None:
            b, (x, xl, y, yl, out, ol) = self.b, matrices
            transposed = (first, b.not_(first))
            with b.if_else(b.icmp_signed("<=", n, _int(FULL_PRODUCT_ROWS))) as (then, otherwise):
                with then:
                    self.subtract(call_operands, transposed, (n, n, k), (x, xl), (y, yl), (out, ol))
                with otherwise:
                    upper, lower = self.halves(n)
                    offsets = [b.select(first, upper, b.mul(leading, upper)) for leading in (xl, yl)]
                    below = [b.gep(each, [offset]) for each, offset in zip((x, y), offsets)]
                    left = self.at(out, ol, upper)
                    self.subtract(call_operands, transposed, (lower, upper, k), (below[0], xl), (y, yl), (left, ol))
                    b.call(self.square(), [call_operands, first, upper, k, x, xl, y, yl, out, ol])
                    corner = b.gep(left, [upper])
                    b.call(self.square(), [call_operands, first, lower, k, below[0], xl, below[1], yl, corner, ol])

        return self.defined("square", [BOOL, I64, I64, *self.matrix * 3], body)

    # -- triangular systems ------------------------------------------------------------------------------------
    def solve(self, right: bool) -> ir.IRValue:
        """solve(words, whether A is lower, transposed, unit-diagonal, n, k, A, B): A X = B, or X A = B if `right`, for
        k right-hand sides; X overwrites B."""

        def body(
            call_operands: ir.IRValue,
            lower: Any,
            transposed: ir.IRValue,
            unit: ir.IRValue,
            n: ir.IRValue,
            k: ir.IRValue,
            *matrices: Any,
        ) -> None:
            with self.b.if_else(self.is_small(n)) as (then, otherwise):
                with then:
                    self._solve_small(call_operands, right, (lower, transposed, unit), n, k, matrices)
                with otherwise:
                    self._solve_halves(call_operands, right, (lower, transposed, unit), n, k, matrices)

        return self.defined(f"solve.{'right' if right else 'left'}", SYSTEM + self.matrix * 2, body)

    def _solve_small(
        self,
        call_operands: ir.IRValue,
        right: bool,
        kind: tuple[ir.IRValue, ir.IRValue, ir.IRValue],
        n: ir.IRValue,
        k: ir.IRValue,
        matrices: tuple[ir.IRValue, ir.IRValue, ir.IRValue, ir.IRValue],
    ) -> None:
        (lower, transposed, unit), (a, a_leading, x, x_leading) = kind, matrices
        letters = [self.choice(lower, "U", "L"), self.choice(transposed, "T", "N"), self.choice(unit, "U", "N")]
        sizes = [self.slot(each) for each in ((n, k) if right else (k, n))]
        one = self.slot(self.constant(1.0))
        self.fortran(
            call_operands,
            "trsm",
            self.letter("L" if right else "R"),
            *letters,
            *sizes,
            one,
            a,
            self.slot(a_leading),
            x,
            self.slot(x_leading),
        )

    def _solve_halves(
        self,
        call_operands: ir.IRValue,
        right: bool,
        kind: tuple[ir.IRValue, ir.IRValue, ir.IRValue],
        n: ir.IRValue,
        k: ir.IRValue,
        matrices: tuple[ir.IRValue, ir.IRValue, ir.IRValue, ir.IRValue],
    ) -> None:
        b, (lower, transposed, _), (a, al, x, xl) = self.b, kind, matrices
        upper, below = self.halves(n)
        # Whether the first unknowns are solved first (forward substitution).
        downwards = b.xor(b.xor(lower, transposed), ir.IRConstant(BOOL, int(right)))
        off = b.select(lower, self.at(a, al, upper), b.gep(a, [upper]))
        second = b.gep(x, [upper]) if right else self.at(x, xl, upper)
        blocks = [(upper, a, x), (below, b.gep(self.at(a, al, upper), [upper]), second)]

        def chosen(index: int) -> list[ir.IRValue]:
            return [b.select(downwards, p, q) for p, q in zip(blocks[index], blocks[1 - index])]

        (m, corner, solved), (rest, other, unsolved) = chosen(0), chosen(1)
        b.call(self.solve(right), [call_operands, *kind, m, k, corner, al, solved, xl])
        if right:
            self.subtract(call_operands, (NO, transposed), (k, rest, m), (solved, xl), (off, al), (unsolved, xl))
        else:
            self.subtract(call_operands, (transposed, NO), (rest, k, m), (off, al), (solved, xl), (unsolved, xl))
        b.call(self.solve(right), [call_operands, *kind, rest, k, other, al, unsolved, xl])

    def shared_solve(self, right: bool) -> ir.IRValue:
        """`solve`, on several threads if that is profitable."""

        def body(call_operands: ir.IRValue, *args: ir.IRValue) -> None:
            b, (n, k) = self.b, args[3:5]
            work = b.mul(b.mul(n, n), k)
            with b.if_else(b.icmp_signed("<", work, _int(MIN_FORKED_WORK))) as (then, otherwise):
                with then:
                    b.call(self.solve(right), [call_operands, *args])
                with otherwise:
                    with b.goto_entry_block():
                        context = b.alloca(I64, len(args) + 1)
                    for i, x in enumerate([call_operands, *args]):
                        b.store(self._packed(x), b.gep(context, [_int(i)]))
                    chunks = b.sdiv(b.add(k, _int(SOLVED_COLUMNS - 1)), _int(SOLVED_COLUMNS))
                    kind = ir.FunctionType(VOID, [TASK.as_pointer(), POINTER, I64])
                    fork = b.inttoptr(load_operand(b, call_operands, LAPACK_CALL, "each_chunk"), kind.as_pointer())
                    b.call(fork, [self._share(right), b.bitcast(context, POINTER), chunks])

        return self.defined(f"shared.{'right' if right else 'left'}", SYSTEM + self.matrix * 2, body)

    def _packed(self, x: ir.IRValue) -> Any:
        if x.type == I64:
            return x
        return self.b.zext(x, I64) if x.type == BOOL else self.b.ptrtoint(x, I64)

    def _unpacked(self, x: ir.IRValue, kind: ir.IRType) -> Any:
        if kind == I64:
            return x
        return self.b.trunc(x, BOOL) if kind == BOOL else self.b.inttoptr(x, kind)

    def _share(self, right: bool) -> ir.IRValue:
        """The task that solves for some of the right-hand sides."""
        b_before = self.b
        task = ir.IRFunction(self.module, TASK, f"share.{'right' if right else 'left'}")
        task.linkage = "internal"
        context, chunk = task.args
        self.b = b = ir.IRBuilder(task.append_basic_block("entry"))
        fields = b.bitcast(context, I64.as_pointer())
        kinds = [I64.as_pointer(), *SYSTEM, *self.matrix * 2]
        operands = [self._unpacked(b.load(b.gep(fields, [_int(i)])), kind) for i, kind in enumerate(kinds)]
        k, x, leading = operands[5], operands[8], operands[9]
        first = b.mul(chunk, _int(SOLVED_COLUMNS))
        rest = b.sub(k, first)
        operands[5] = b.select(b.icmp_signed("<", rest, _int(SOLVED_COLUMNS)), rest, _int(SOLVED_COLUMNS))
        operands[8] = self.at(x, leading, first) if right else b.gep(x, [first])
        b.call(self.solve(right), operands)
        b.ret_void()
        self.b = b_before
        return task

    # -- Cholesky ----------------------------------------------------------------------------------------------
    def cholesky(self) -> ir.IRValue:
        """cholesky(words, n, A): overwrites the lower triangle with the factor; nonzero if there is none."""

        def body(call_operands: ir.IRValue, n: ir.IRValue, a: ir.IRValue, leading: ir.IRValue) -> None:
            b = self.b
            with b.if_then(self.is_small(n)):
                info = self.slot(ir.IRConstant(I32, 0))
                rows = self.slot(n)
                self.fortran(call_operands, "potrf", self.letter("U"), rows, a, self.slot(leading), info)
                b.ret(b.load(info))
            upper, lower = self.halves(n)
            failed = b.call(self.cholesky(), [call_operands, upper, a, leading])
            with b.if_then(b.icmp_signed("!=", failed, ir.IRConstant(I32, 0))):
                b.ret(failed)
            left = self.at(a, leading, upper)
            corner = b.gep(left, [upper])
            b.call(self.shared_solve(True), [call_operands, YES, YES, NO, upper, lower, a, leading, left, leading])
            b.call(self.square(), [call_operands, NO, lower, upper, *[left, leading] * 2, corner, leading])
            b.ret(b.call(self.cholesky(), [call_operands, lower, corner, leading]))

        return self.defined("cholesky", [I64, *self.matrix], body, I32)

    def pullback(self) -> ir.IRValue:
        """pullback(words, n, L, C): overwrites the lower triangle of C, a cotangent of L, with twice the symmetric
        cotangent of L @ L.T.

        I. Murray, "Differentiation of the Cholesky decomposition" (2016), arXiv:1602.07527: the reverse sweep of
        `cholesky`, with twice its operations.
        """

        def body(
            call_operands: ir.IRValue, n: ir.IRValue, a: ir.IRValue, al: ir.IRValue, c: ir.IRValue, cl: ir.IRValue
        ) -> None:
            b = self.b
            with b.if_else(self.is_small(n)) as (then, otherwise):
                with then:
                    self._pullback_rows(n, a, al, c, cl)
                with otherwise:
                    upper, lower = self.halves(n)
                    left, ct_left = self.at(a, al, upper), self.at(c, cl, upper)
                    corner = b.gep(ct_left, [upper])
                    b.call(self.pullback(), [call_operands, lower, b.gep(left, [upper]), al, corner, cl])
                    self.subtract(
                        call_operands, (NO, NO), (lower, upper, lower), (corner, cl), (left, al), (ct_left, cl)
                    )
                    b.call(self.shared_solve(True), [call_operands, YES, NO, NO, upper, lower, a, al, ct_left, cl])
                    b.call(self.square(), [call_operands, YES, upper, lower, ct_left, cl, left, al, c, cl])
                    b.call(self.pullback(), [call_operands, upper, a, al, c, cl])
                    self._mirror(lower, upper, ct_left, b.gep(c, [upper]), cl)

        return self.defined("pullback", [I64, *self.matrix * 2], body)

    def _pullback_rows(self, n: ir.IRValue, a: ir.IRValue, al: ir.IRValue, c: ir.IRValue, cl: ir.IRValue) -> None:
        """`pullback`, row by row (unblocked)."""
        b = self.b
        total = self.slot(self.constant(0.0))

        def row(back: ir.IRValue) -> None:
            j = b.sub(b.sub(n, back), _int(1))
            pivot = b.load(self.at(a, al, j, j))
            factor_row, ct_row = self.at(a, al, j), self.at(c, cl, j)
            b.store(b.load(b.gep(ct_row, [j])), total)

            def below(i: ir.IRValue) -> tuple[ir.IRValue, ir.IRValue]:
                i = b.add(b.add(i, j), _int(1))
                return self.at(a, al, i), self.at(c, cl, i)

            def divide(i: ir.IRValue) -> None:
                other_factor, other_ct = below(i)
                ct = b.fdiv(b.load(b.gep(other_ct, [j])), pivot)
                b.store(ct, b.gep(other_ct, [j]))
                b.store(ct, b.gep(ct_row, [b.add(b.add(i, j), _int(1))]))
                b.store(b.fsub(b.load(total), b.fmul(ct, b.load(b.gep(other_factor, [j])))), total)

            def update(i: ir.IRValue) -> None:
                other_factor, other_ct = below(i)
                ct = b.load(b.gep(other_ct, [j]))

                def element(q: ir.IRValue) -> None:
                    for target, factor in ((ct_row, other_factor), (other_ct, factor_row)):
                        at = b.gep(target, [q])
                        b.store(b.fsub(b.load(at), b.fmul(ct, b.load(b.gep(factor, [q])))), at)

                loop(b, j, element)

            loop(b, back, divide)
            ct = b.fdiv(b.load(total), pivot)
            b.store(ct, b.gep(ct_row, [j]))

            def last(q: ir.IRValue) -> None:
                at = b.gep(ct_row, [q])
                b.store(b.fsub(b.load(at), b.fmul(ct, b.load(b.gep(factor_row, [q])))), at)

            loop(b, j, last)
            loop(b, back, update)

        loop(b, n, row)

    # -- general matrices --------------------------------------------------------------------------------------
    def lu(self) -> ir.IRValue:
        """lu(words, m, n, A, pivots): LU factorization of n columns with m elements each, stored as the rows of A, and
        the pivots, counted from one; nonzero if a pivot is zero."""

        def body(
            call_operands: ir.IRValue, m: ir.IRValue, n: ir.IRValue, a: ir.IRValue, al: ir.IRValue, pivots: ir.IRValue
        ) -> None:
            b = self.b
            with b.if_then(self.is_small(n)):
                info = self.slot(ir.IRConstant(I32, 0))
                self.fortran(call_operands, "getrf", self.slot(m), self.slot(n), a, self.slot(al), pivots, info)
                b.ret(b.load(info))
            first, rest = self.halves(n)
            failed = b.call(self.lu(), [call_operands, m, first, a, al, pivots])
            below, across = self.at(a, al, first), b.gep(a, [first])
            corner, others = b.gep(below, [first]), b.gep(pivots, [first])
            self._exchange(rest, below, al, pivots, first)
            b.call(self.shared_solve(True), [call_operands, NO, NO, YES, first, rest, a, al, below, al])
            self.subtract(
                call_operands, (NO, NO), (rest, b.sub(m, first), first), (below, al), (across, al), (corner, al)
            )
            again = b.call(self.lu(), [call_operands, b.sub(m, first), rest, corner, al, others])
            self._exchange(first, across, al, others, rest)
            by = b.trunc(first, I32)

            def move(i: ir.IRValue) -> None:
                at = b.gep(others, [i])
                b.store(b.add(b.load(at), by), at)

            loop(b, rest, move)
            b.ret(b.or_(failed, again))

        return self.defined("lu", [I64, I64, *self.matrix, I32.as_pointer()], body, I32)

    def _exchange(
        self, rows: ir.IRValue, a: ir.IRValue, leading: ir.IRValue, pivots: ir.IRValue, count: ir.IRValue
    ) -> None:
        """Exchange the elements of each row by the pivots of a factorization."""
        b = self.b

        def row(r: ir.IRValue) -> None:
            begin = self.at(a, leading, r)

            def element(i: ir.IRValue) -> None:
                other = b.sub(b.sext(b.load(b.gep(pivots, [i])), I64), _int(1))
                pointers = [b.gep(begin, [at]) for at in (i, other)]
                values = [b.load(pointer) for pointer in pointers]
                for value, pointer in zip(values, pointers[::-1]):
                    b.store(value, pointer)

            loop(b, count, element)

        loop(b, rows, row)

    # -- the rest ----------------------------------------------------------------------------------------------
    def _mirror(
        self, rows: ir.IRValue, columns: ir.IRValue, source: ir.IRValue, to: ir.IRValue, leading: ir.IRValue
    ) -> None:
        """Transpose a part of a matrix into another part."""
        transpose(self.b, to, leading, source, leading, rows, columns)


def _int(value: int) -> ir.IRValue:
    return ir.IRConstant(I64, value)
