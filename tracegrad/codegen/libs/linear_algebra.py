"""Emit native routines for factorizations and linear solvers: bytecode primitives of `interpreter.py`.

    tg_step.cholesky.<dtype>            the lower factor of the symmetric part of each matrix
    tg_step.cholesky_pullback.<dtype>   the cotangent of each matrix from a cotangent of its factor
    tg_step.lu.<dtype>                  the factors of each matrix, and the row exchanges (pivots)
    tg_step.lu_solve.<dtype>            the solutions of systems, given these factors
    tg_step.solve.<dtype>               the solutions of systems with one or more right-hand sides
    tg_step.solve_triangular.<dtype>    the solutions of triangular systems

If LAPACK cannot factor a matrix, the callback is called, which raises NumPy's error. Matrices are row-major here
and column-major in LAPACK. A general matrix is transposed, so that its rows are exchanged as in NumPy. For symmetric
and triangular matrices see `recursive_factorizations.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad import llvmir as ir
from tracegrad.codegen.instr.operands import load_operand
from tracegrad.codegen.instr.scalar import I64
from tracegrad.codegen.instr.support import INSTRUCTION_TYPE, load_addresses, loop
from tracegrad.codegen.libs.block_transpose import each_tile, load_tile, store_tile, transpose, transposed_tile
from tracegrad.codegen.libs.recursive_factorizations import LAPACK_CALL, NO, ROUTINES, YES, Halves
from tracegrad.codegen.vecmath.lanes import number, of_lanes
from tracegrad.ir import GraphNode
from tracegrad.ops.linalg.factorizations import cholesky, cholesky_pullback
from tracegrad.ops.linalg.solve import lu, lu_solve, solve, solve_triangular
from tracegrad.settings import disabled
from tracegrad.target.tuning import TUNING

I8, I32 = ir.IntType(8), ir.IntType(32)
POINTER = I8.as_pointer()
CALLBACK = ir.FunctionType(I32, [I64, POINTER.as_pointer()])
MAX_ROWS = TUNING.factorization.max_rows

_OPS = (cholesky, cholesky_pullback, lu, lu_solve, solve, solve_triangular)
NATIVE = tuple(f"tg_step.{op.name}." for op in _OPS)


def is_native(node: GraphNode) -> bool:
    """Whether a call has a native routine of this module."""
    if node.op not in _OPS or disabled("native-factorizations"):
        return False
    x = node.operands[0].aval
    results = node.aval if isinstance(node.aval, tuple) else (node.aval,)
    return x.dtype.kind == "f" and (x.shape[-1] <= MAX_ROWS or node.op is not solve) and results[0].size > 0


def routines_of(node: GraphNode) -> dict[str, str]:
    """The names of the LAPACK and BLAS routines for a call."""
    kind = "d" if node.operands[0].aval.dtype == np.float64 else "s"
    return {name: f"tg_{kind}{name}" for name in ROUTINES}


def flags_of(node: GraphNode) -> dict[str, int]:
    """The flags of a triangular matrix."""
    params = dict(node.params)
    return {name: int(params.get(name, False)) for name in ("lower", "transposed", "unit")}


def lapack_module(name: str) -> str:
    """Emit the module that defines the routine `name`, as text."""
    routine, dtype = name.split(".")[1:]
    emitter = _LapackEmitter(name, ir.DoubleType() if dtype == "f64" else ir.FloatType())
    emitter.define(_BODIES[routine])
    return str(emitter.module)


class _LapackEmitter:
    """Emitter of one routine: `each(i)` is the work on matrix `i`, whose addresses are `at(place, i, bytes)`."""

    def __init__(self, name: str, t: ir.IRType):
        self.module, self.t, self.pointer = ir.IRModule(name), t, t.as_pointer()
        self.each_byte = 8 if isinstance(t, ir.DoubleType) else 4
        self.run = ir.IRFunction(self.module, INSTRUCTION_TYPE, name)
        operands, pointers = self.run.args
        self.b = b = ir.IRBuilder(self.run.append_basic_block("entry"))
        self.operands = operands
        self.callback, self.number = map(self.operand, ("callback", "number"))
        self.count, self.n, self.k = map(self.operand, ("count", "rows", "columns"))
        flags = [self.operand(name) for name in ("lower", "transposed", "unit")]
        self.flags = [b.icmp_signed("!=", flag, _int(0)) for flag in flags]
        self.slots = load_addresses(b, operands, pointers, self.operand("num_arrays"), LAPACK_CALL.offsets["arrays"])
        self.halves = Halves(self.module, t)
        self.info = self._slot(I32)
        b.store(ir.IRConstant(I32, 0), self.info)
        self.area = b.mul(self.n, self.n)
        self.sides = b.mul(self.n, self.k)

    def define(self, body: Callable[[_LapackEmitter, ir.IRValue], None]) -> None:
        b, status = self.b, self._slot(I32)
        b.store(ir.IRConstant(I32, 0), status)

        def each(i: ir.IRValue) -> None:
            body(self, i)
            failed = b.or_(b.load(status), b.load(self.info))
            b.store(failed, status)

        loop(b, self.count, each)
        good = b.icmp_signed("==", b.load(status), ir.IRConstant(I32, 0))
        with b.if_then(good):
            b.ret(ir.IRConstant(I32, 0))
        function = b.inttoptr(self.callback, CALLBACK.as_pointer())
        b.ret(b.call(function, [self.number, self.slots]))

    def operand(self, name: str) -> ir.IRValue:
        return load_operand(self.b, self.operands, LAPACK_CALL, name)

    def at(self, slot: int, i: ir.IRValue, size: ir.IRValue) -> ir.IRValue:
        """The address of matrix `i` of `size` elements."""
        begin = self.b.bitcast(self.b.load(self.b.gep(self.slots, [_int(slot)])), self.pointer)
        return self.b.gep(begin, [self.b.mul(i, size)])

    def copy(self, to: ir.IRValue, source: ir.IRValue, count: ir.IRValue) -> None:
        loop(self.b, count, lambda i: self.b.store(self.b.load(self.b.gep(source, [i])), self.b.gep(to, [i])))

    def transpose(self, to: ir.IRValue, source: ir.IRValue, rows: ir.IRValue, columns: ir.IRValue) -> None:
        transpose(self.b, to, rows, source, columns, rows, columns)

    def scratch(self, size: ir.IRValue) -> ir.IRValue:
        """Allocate `size` bytes of memory."""
        malloc = self._external("malloc", ir.FunctionType(POINTER, [I64]))
        return self.b.call(malloc, [size])

    def free(self, memory: ir.IRValue) -> None:
        self.b.call(self._external("free", ir.FunctionType(ir.VoidType(), [POINTER])), [memory])

    def _external(self, name: str, signature: ir.FunctionType) -> ir.IRValue:
        return self.module.declared(name, signature)

    def _slot(self, kind: ir.IRType) -> ir.IRValue:
        with self.b.goto_entry_block():
            return self.b.alloca(kind)


def _int(value: int) -> ir.IRValue:
    return ir.IRConstant(I64, value)


# -- the work on one matrix -------------------------------------------------------------------------------------
def _cholesky(w: _LapackEmitter, i: ir.IRValue) -> None:
    b, x, out = w.b, w.at(0, i, w.area), w.at(1, i, w.area)
    with b.if_else(w.flags[0]) as (then, otherwise):
        with then:
            w.copy(out, x, w.area)
        with otherwise:
            _symmetric_part(w, x, out)
    b.store(b.call(w.halves.cholesky(), [w.operands, w.n, out, w.n]), w.info)

    def clear(p: ir.Phi) -> None:
        first = b.add(p, _int(1))
        row = b.gep(out, [b.add(b.mul(p, w.n), first)])
        loop(b, b.sub(w.n, first), lambda q: b.store(ir.IRConstant(w.t, 0.0), b.gep(row, [q])))

    loop(b, w.n, clear)


def _symmetric_part(w: _LapackEmitter, x: ir.IRValue, out: ir.IRValue) -> None:
    b = w.b

    def add_tile(p: ir.IRValue, q: ir.IRValue, edge: int) -> None:
        half = number(of_lanes(w.t, edge), 0.5)
        tiles = load_tile(b, x, w.n, p, q, edge), transposed_tile(b, load_tile(b, x, w.n, q, p, edge))
        halves = [[b.fmul(row, half) for row in tile] for tile in tiles]
        store_tile(b, out, w.n, p, q, [b.fadd(*rows) for rows in zip(*halves)])

    each_tile(b, w.t, w.n, w.n, add_tile)


def _cholesky_pullback(w: _LapackEmitter, i: ir.Phi) -> None:
    b, factor, ct, out = w.b, *[w.at(slot, i, w.area) for slot in range(3)]
    half = ir.IRConstant(w.t, 0.5)
    loop(b, w.area, lambda at: b.store(b.fmul(b.load(b.gep(ct, [at])), half), b.gep(out, [at])))
    b.call(w.halves.pullback(), [w.operands, w.n, factor, w.n, out, w.n])


def _solve(w: _LapackEmitter, i: ir.IRValue) -> None:
    b, size = w.b, _int(w.each_byte)
    a, right, out = w.at(0, i, w.area), w.at(1, i, w.sides), w.at(2, i, w.sides)
    matrix, transposed, pivots = (w.scratch(b.mul(x, size)) for x in (w.area, w.sides, w.n))
    w.transpose(b.bitcast(matrix, w.pointer), a, w.n, w.n)
    w.transpose(b.bitcast(transposed, w.pointer), right, w.n, w.k)
    w.halves.b = b
    n, k = w.halves.slot(w.n), w.halves.slot(w.k)
    w.halves.fortran(w.operands, "gesv", n, k, matrix, n, pivots, transposed, n, w.info)
    w.transpose(out, b.bitcast(transposed, w.pointer), w.k, w.n)
    for memory in (matrix, transposed, pivots):
        w.free(memory)


def _lu(w: _LapackEmitter, i: ir.IRValue) -> None:
    a, out = w.at(0, i, w.area), w.at(1, i, w.area)
    w.transpose(out, a, w.n, w.n)
    w.b.call(w.halves.lu(), [w.operands, w.n, w.n, out, w.n, _pivots(w, 2, i)])


def _pivots(w: _LapackEmitter, slot: int, i: ir.IRValue) -> ir.IRValue:
    begin = w.b.bitcast(w.b.load(w.b.gep(w.slots, [_int(slot)])), I32.as_pointer())
    return w.b.gep(begin, [w.b.mul(i, w.n)])


def _lu_solve(w: _LapackEmitter, i: ir.IRValue) -> None:
    b, a, right, out = w.b, w.at(0, i, w.area), w.at(2, i, w.sides), w.at(3, i, w.sides)
    pivots, transposed = _pivots(w, 1, i), w.flags[1]
    b.store(ir.IRConstant(I32, 0), w.info)

    def check(j: ir.IRValue) -> None:
        pivot = b.load(b.gep(a, [b.mul(j, b.add(w.n, _int(1)))]))
        zero = b.zext(b.fcmp_ordered("==", pivot, ir.IRConstant(w.t, 0.0)), I32)
        b.store(b.or_(b.load(w.info), zero), w.info)

    def exchange(j: ir.IRValue) -> None:
        j = b.select(transposed, b.sub(b.sub(w.n, j), _int(1)), j)
        other = b.sub(b.sext(b.load(b.gep(pivots, [j])), I64), _int(1))
        rows = [b.gep(out, [b.mul(row, w.k)]) for row in (j, other)]

        def element(q: ir.IRValue) -> None:
            pointers = [b.gep(row, [q]) for row in rows]
            values = [b.load(pointer) for pointer in pointers]
            for value, pointer in zip(values, pointers[::-1]):
                b.store(value, pointer)

        with b.if_then(b.icmp_signed("!=", j, other)):
            loop(b, w.k, element)

    # For the transposed matrix, the upper factor, with the diagonal, is solved first.
    factors = [(NO, YES), (YES, NO)]
    loop(b, w.n, check)
    w.copy(out, right, w.sides)
    with b.if_else(transposed) as (then, otherwise):
        with then:
            for lower, unit in factors[::-1]:
                b.call(w.halves.shared_solve(right=False), [w.operands, lower, NO, unit, w.n, w.k, a, w.n, out, w.k])
            loop(b, w.n, exchange)
        with otherwise:
            loop(b, w.n, exchange)
            for lower, unit in factors:
                b.call(w.halves.shared_solve(right=False), [w.operands, lower, YES, unit, w.n, w.k, a, w.n, out, w.k])


def _solve_triangular(w: _LapackEmitter, i: ir.IRValue) -> None:
    a, right, out = w.at(0, i, w.area), w.at(1, i, w.sides), w.at(2, i, w.sides)
    w.copy(out, right, w.sides)
    w.b.call(w.halves.shared_solve(right=False), [w.operands, *w.flags, w.n, w.k, a, w.n, out, w.k])


_BODIES: dict[str, Callable[[_LapackEmitter, Any], None]] = {
    "cholesky": _cholesky,
    "cholesky_pullback": _cholesky_pullback,
    "lu": _lu,
    "lu_solve": _lu_solve,
    "solve": _solve,
    "solve_triangular": _solve_triangular,
}
