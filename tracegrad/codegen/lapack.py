"""Factorizations and solvers that compiled code calls without Python: functions of words, as those of `walker`.

    tg_step.cholesky.<dtype>            the lower factor of the symmetric part of each matrix
    tg_step.solve.<dtype>               the solutions of systems with one or more right sides
    tg_step.solve_triangular.<dtype>    the same, of triangular systems

In order, their words: the address of Python's callback, the number of the call, the address of LAPACK's (or BLAS's)
routine, that of a function of `EACH_CHUNK`, how many matrices, their rows n, the columns k of right sides, three
letters (which triangle, whether transposed, whether its diagonal is ones; as Fortran sees it), how many places, these.

Where LAPACK finds a matrix that it cannot factor, the callback is called: it raises what NumPy raises. Matrices are
row-major here and column-major there. Of a symmetric one that is the other triangle; a triangular system is solved
from the right, with the transposed of all; a general one is transposed, so that its rows are exchanged as NumPy's are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir

from tracegrad.codegen.scalar_llvm import I64
from tracegrad.codegen.support import OF_WORDS, TASK, loop
from tracegrad.ir import Node
from tracegrad.ops.factorizations import cholesky
from tracegrad.ops.linalg import solve, solve_triangular

__all__ = ["NATIVE", "is_native", "lapack_module", "letters_of", "routine_of"]

I8, I32 = ir.IntType(8), ir.IntType(32)
POINTER = I8.as_pointer()
CALLBACK = ir.FunctionType(I32, [I64, POINTER.as_pointer()])
FIRST = 11  # words before the places
TILE = 16  # edge of the blocks in which a matrix is transposed
COLUMNS = 128  # right sides that a thread solves at a time
LARGEST = 1024  # rows of a matrix that one thread factors as fast as NumPy's several

_ROUTINES = {cholesky: "potrf", solve: "gesv", solve_triangular: "trsm"}
NATIVE = tuple(f"tg_step.{op.name}." for op in _ROUTINES)


def is_native(node: Node) -> bool:
    """Whether a call is one of these."""
    if node.op not in _ROUTINES:
        return False
    x = node.operands[0].aval
    small = x.shape[-1] <= LARGEST or node.op is solve_triangular
    return x.dtype.kind == "f" and small and node.aval.size > 0


def routine_of(node: Node) -> str:
    """The name of LAPACK's routine."""
    assert node.op is not None
    return ("d" if node.operands[0].aval.dtype == np.float64 else "s") + _ROUTINES[node.op]


def letters_of(node: Node) -> list[int]:
    """Which triangle, whether transposed, whether its diagonal is ones."""
    params = dict(node.params)
    lower, transposed, unit = (params.get(name, node.op is cholesky) for name in ("lower", "transposed", "unit"))
    return [ord("U" if lower else "L"), ord("T" if transposed else "N"), ord("U" if unit else "N")]


def lapack_module(name: str) -> str:
    """The module that defines one of these functions, as text."""
    what, dtype = name.split(".")[1:]
    writer = _Writer(name, ir.DoubleType() if dtype == "f64" else ir.FloatType())
    writer.define(_BODIES[what])
    return str(writer.module)


class _Writer:
    """Writes one function: `each(i)` is the work on matrix `i`, whose places are `at(place, i, bytes)`."""

    def __init__(self, name: str, t: Any):
        self.module, self.t, self.pointer = ir.Module(name), t, t.as_pointer()
        self.each_byte = 8 if isinstance(t, ir.DoubleType) else 4
        self.run = ir.Function(self.module, OF_WORDS, name)
        words, pointers = self.run.args
        self.b = b = ir.IRBuilder(self.run.append_basic_block("entry"))
        self.words = words
        self.callback, self.number, self.routine, self.fork = map(self.word, range(4))
        self.count, self.n, self.k = map(self.word, range(4, 7))
        self.letters = [b.bitcast(b.gep(words, [_int(at)]), POINTER) for at in (7, 8, 9)]
        places = self.word(10)
        self.slots = b.alloca(POINTER, places)

        def fetch(i: Any) -> None:
            at = b.add(b.mul(i, _int(2)), _int(FIRST))
            index, behind = (b.load(b.gep(words, [b.add(at, _int(j))])) for j in range(2))
            b.store(b.gep(b.load(b.gep(pointers, [index])), [behind]), b.gep(self.slots, [i]))

        loop(b, places, fetch)
        self.n32, self.k32, self.info = (self._slot(I32) for _ in range(3))
        b.store(b.trunc(self.n, I32), self.n32)
        b.store(b.trunc(self.k, I32), self.k32)
        b.store(ir.Constant(I32, 0), self.info)
        self.area = b.mul(self.n, self.n)
        self.sides = b.mul(self.n, self.k)

    def define(self, body: Callable[[_Writer, Any], None]) -> None:
        b, status = self.b, self._slot(I32)
        b.store(ir.Constant(I32, 0), status)

        def each(i: Any) -> None:
            body(self, i)
            failed = b.or_(b.load(status), b.load(self.info))
            b.store(failed, status)

        loop(b, self.count, each)
        good = b.icmp_signed("==", b.load(status), ir.Constant(I32, 0))
        with b.if_then(good):
            b.ret(ir.Constant(I32, 0))
        function = b.inttoptr(self.callback, CALLBACK.as_pointer())
        b.ret(b.call(function, [self.number, self.slots]))

    def word(self, at: int) -> Any:
        return self.b.load(self.b.gep(self.words, [_int(at)]))

    def at(self, place: int, i: Any, size: Any) -> Any:
        """Matrix `i`, of so many elements, at a place."""
        begin = self.b.bitcast(self.b.load(self.b.gep(self.slots, [_int(place)])), self.pointer)
        return self.b.gep(begin, [self.b.mul(i, size)])

    def call(self, *arguments: Any) -> None:
        """Call the routine; Fortran takes everything by address."""
        given = [self.b.bitcast(x, POINTER) for x in arguments]
        signature = ir.FunctionType(ir.VoidType(), [POINTER] * len(given))
        self.b.call(self.b.inttoptr(self.routine, signature.as_pointer()), given)

    def copy(self, to: Any, source: Any, count: Any) -> None:
        loop(self.b, count, lambda i: self.b.store(self.b.load(self.b.gep(source, [i])), self.b.gep(to, [i])))

    def transpose(self, to: Any, source: Any, rows: Any, columns: Any) -> None:
        b = self.b

        def element(i: Any, j: Any) -> None:
            x = b.load(b.gep(source, [b.add(b.mul(i, columns), j)]))
            b.store(x, b.gep(to, [b.add(b.mul(j, rows), i)]))

        self.tiled(rows, columns, element)

    def tiled(self, rows: Any, columns: Any, element: Callable[[Any, Any], None]) -> None:
        """Run `element(i, j)` for all elements of a matrix, block by block."""
        b, tile = self.b, _int(TILE)

        def blocks(size: Any) -> Any:
            return b.sdiv(b.add(size, _int(TILE - 1)), tile)

        def end(start: Any, size: Any) -> Any:
            rest = b.sub(size, start)
            return b.select(b.icmp_signed("<", rest, tile), rest, tile)

        def block(p: Any, q: Any) -> None:
            top, left = b.mul(p, tile), b.mul(q, tile)
            width = end(left, columns)
            loop(b, end(top, rows), lambda i: loop(b, width, lambda j: element(b.add(top, i), b.add(left, j))))

        across = blocks(columns)
        loop(b, blocks(rows), lambda p: loop(b, across, lambda q: block(p, q)))

    def scratch(self, size: Any) -> Any:
        """Memory for so many bytes."""
        malloc = self._external("malloc", ir.FunctionType(POINTER, [I64]))
        return self.b.call(malloc, [size])

    def free(self, memory: Any) -> None:
        self.b.call(self._external("free", ir.FunctionType(ir.VoidType(), [POINTER])), [memory])

    def _external(self, name: str, signature: Any) -> Any:
        return self.module.globals.get(name) or ir.Function(self.module, signature, name)

    def _slot(self, kind: Any) -> Any:
        with self.b.goto_entry_block():
            return self.b.alloca(kind)


def _int(value: int) -> Any:
    return ir.Constant(I64, value)


# -- what each does with one matrix ----------------------------------------------------------------------------
def _cholesky(w: _Writer, i: Any) -> None:
    b, x, out = w.b, w.at(0, i, w.area), w.at(1, i, w.area)

    def element(p: Any, q: Any) -> None:
        at = b.add(b.mul(p, w.n), q)
        halves = [b.fmul(b.load(b.gep(x, [place])), ir.Constant(w.t, 0.5)) for place in (at, b.add(b.mul(q, w.n), p))]
        below = b.icmp_signed("<=", q, p)
        b.store(b.select(below, b.fadd(*halves), ir.Constant(w.t, 0.0)), b.gep(out, [at]))

    w.tiled(w.n, w.n, element)
    w.call(w.letters[0], w.n32, out, w.n32, w.info)


def _solve(w: _Writer, i: Any) -> None:
    b, size = w.b, _int(w.each_byte)
    a, right, out = w.at(0, i, w.area), w.at(1, i, w.sides), w.at(2, i, w.sides)
    matrix, turned, pivots = (w.scratch(b.mul(x, size)) for x in (w.area, w.sides, w.n))
    w.transpose(b.bitcast(matrix, w.pointer), a, w.n, w.n)
    w.transpose(b.bitcast(turned, w.pointer), right, w.n, w.k)
    w.call(w.n32, w.k32, matrix, w.n32, pivots, turned, w.n32, w.info)
    w.transpose(out, b.bitcast(turned, w.pointer), w.k, w.n)
    for memory in (matrix, turned, pivots):
        w.free(memory)


def _solve_triangular(w: _Writer, i: Any) -> None:
    b, a, right, out = w.b, w.at(0, i, w.area), w.at(1, i, w.sides), w.at(2, i, w.sides)
    w.copy(out, right, w.sides)
    one = w._slot(w.t)
    b.store(ir.Constant(w.t, 1.0), one)
    fields = [w.words, w.n32, w.k32, one, a, out]
    with b.goto_entry_block():
        context = b.alloca(POINTER, len(fields))
    for at, x in enumerate(fields):
        b.store(b.bitcast(x, POINTER), b.gep(context, [_int(at)]))
    chunks = b.sdiv(b.add(w.k, _int(COLUMNS - 1)), _int(COLUMNS))
    fork = b.inttoptr(w.fork, ir.FunctionType(ir.VoidType(), [TASK.as_pointer(), POINTER, I64]).as_pointer())
    b.call(fork, [_columns(w), b.bitcast(context, POINTER), chunks])


def _columns(w: _Writer) -> Any:
    """The task that solves for some of the right sides."""
    task = ir.Function(w.module, TASK, "columns")
    task.linkage = "internal"
    context, chunk = task.args
    b = ir.IRBuilder(task.append_basic_block("entry"))
    fields = b.bitcast(context, POINTER.as_pointer())
    words, n32, k32, one, a, out = (b.load(b.gep(fields, [_int(at)])) for at in range(6))
    words, wide = b.bitcast(words, I64.as_pointer()), b.bitcast(k32, I32.as_pointer())
    begin = b.mul(chunk, _int(COLUMNS))
    rest = b.sub(b.sext(b.load(wide), I64), begin)
    width = b.select(b.icmp_signed("<", rest, _int(COLUMNS)), rest, _int(COLUMNS))
    slot, side = b.alloca(I32), b.alloca(I8)
    b.store(b.trunc(width, I32), slot)
    b.store(ir.Constant(I8, ord("R")), side)
    first = b.bitcast(b.gep(b.bitcast(out, w.pointer), [begin]), POINTER)
    letters = [b.bitcast(b.gep(words, [_int(at)]), POINTER) for at in (7, 8, 9)]
    routine = b.inttoptr(b.load(b.gep(words, [_int(2)])), ir.FunctionType(ir.VoidType(), [POINTER] * 11).as_pointer())
    b.call(routine, [side, *letters, b.bitcast(slot, POINTER), n32, one, a, n32, first, k32])
    b.ret_void()
    return task


_BODIES: dict[str, Callable[[_Writer, Any], None]] = {
    "cholesky": _cholesky, "solve": _solve, "solve_triangular": _solve_triangular
}  # fmt: skip
