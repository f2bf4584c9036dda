"""Transpose matrices block by block, square by square in registers (`transpose_tiling.transposed`).

The squares of a block are consecutive, so its cache lines stay until they are used up. The last squares of a matrix
overlap the squares before, and write some elements twice. A matrix smaller than a square is copied by squares of one
element. All matrices are row-major, with any row stride.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tracegrad import llvmir as ir
from tracegrad.codegen.instr.scalar import I64
from tracegrad.codegen.instr.support import loop, smaller
from tracegrad.codegen.kernels.transpose_tiling import GROUP, WORDS, transposed
from tracegrad.codegen.vecmath.lanes import of_lanes
from tracegrad.target.tuning import TUNING

__all__ = ["MIRROR", "each_square", "loaded", "mirror_module", "stored", "transpose", "transposed"]

MIRROR = "tg_mirror."
BLOCK = TUNING.transposition.block_edge


def transpose(b: Any, to: Any, apart: Any, source: Any, leading: Any, rows: Any, columns: Any) -> None:
    """Emit the transposition of a matrix with `rows` and `columns`; the result has the row stride `apart`."""

    def square(i: Any, j: Any, edge: int) -> None:
        stored(b, to, apart, j, i, turned(b, loaded(b, source, leading, i, j, edge)))

    each_square(b, source.type.pointee, rows, columns, square)


def mirror_module(name: str) -> str:
    """Emit the module of a function that makes a matrix symmetric, as text:

        void tg_mirror.<dtype>(to, source, leading, rows, columns)

    It copies the transpose of a part of one triangle into the other triangle. If `to` is `source`, it copies the
    elements above the diagonal of a square to the elements below.
    """
    t = ir.DoubleType() if name.endswith("f64") else ir.FloatType()
    module = ir.Module(name)
    kind = ir.FunctionType(ir.VoidType(), [t.as_pointer()] * 2 + [I64] * 3)
    function = ir.Function(module, kind, name)
    b = ir.IRBuilder(function.append_basic_block("entry"))
    to, source, leading, rows, columns = function.args

    def part(k: Any) -> None:
        """Mirror some columns, down to the diagonal."""
        left = b.mul(k, I64(BLOCK))
        many = smaller(b, b.sub(columns, left), I64(BLOCK))
        above, beside = b.gep(source, [left]), b.gep(to, [b.mul(left, leading)])
        transpose(b, beside, leading, above, leading, left, many)
        above, beside = b.gep(above, [b.mul(left, leading)]), b.gep(beside, [left])

        def element(i: Any, j: Any) -> None:
            b.store(b.load(b.gep(above, [b.add(b.mul(j, leading), i)])), b.gep(beside, [b.add(b.mul(i, leading), j)]))

        loop(b, many, lambda i: loop(b, i, partial(element, i)))

    with b.if_else(b.icmp_unsigned("==", to, source)) as (then, otherwise):
        with then:
            loop(b, b.sdiv(b.add(columns, I64(BLOCK - 1)), I64(BLOCK)), part)
        with otherwise:
            transpose(b, to, leading, source, leading, rows, columns)
    b.ret_void()
    return str(module)


def each_square(b: Any, t: Any, rows: Any, columns: Any, square: Callable[[Any, Any, int], None]) -> None:
    """Emit `square(i, j, edge)` for squares that cover a matrix of elements of type `t`; each begins at `i` and `j`."""
    edge = WORDS // _bytes(t)
    wide = b.and_(*[b.icmp_signed(">=", size, I64(edge)) for size in (rows, columns)])
    with b.if_else(wide) as (then, otherwise):
        with then:
            _blocks(b, rows, columns, edge, square)
        with otherwise:
            loop(b, rows, lambda i: loop(b, columns, lambda j: square(i, j, 1)))


def _blocks(b: Any, rows: Any, columns: Any, edge: int, square: Callable[[Any, Any, int], None]) -> None:
    def count(size: Any, each: int) -> Any:
        return b.sdiv(b.add(size, I64(each - 1)), I64(each))

    def squares(begin: Any, size: Any, body: Callable[[Any], None]) -> None:
        """Emit all squares of a block along one axis."""
        last = b.sub(size, I64(edge))
        some = count(smaller(b, b.sub(size, begin), I64(BLOCK)), edge)
        loop(b, some, lambda k: body(smaller(b, b.add(begin, b.mul(k, I64(edge))), last)))

    def block(p: Any, q: Any) -> None:
        top, left = b.mul(p, I64(BLOCK)), b.mul(q, I64(BLOCK))
        squares(top, rows, lambda i: squares(left, columns, lambda j: square(i, j, edge)))

    across = count(columns, BLOCK)
    loop(b, count(rows, BLOCK), lambda p: loop(b, across, lambda q: block(p, q)))


def loaded(b: Any, a: Any, leading: Any, i: Any, j: Any, edge: int) -> list[Any]:
    """Load the rows of a square."""
    return [b.load(place, align=_bytes(a.type.pointee)) for place in _rows(b, a, leading, i, j, edge)]


def stored(b: Any, a: Any, leading: Any, i: Any, j: Any, rows: list[Any]) -> None:
    """Store the rows of a square."""
    for row, place in zip(rows, _rows(b, a, leading, i, j, len(rows))):
        b.store(row, place, align=_bytes(a.type.pointee))


def turned(b: Any, rows: list[Any]) -> list[Any]:
    """Transpose a square: its columns."""
    return transposed(b, rows, GROUP // _bytes(rows[0].type.element)) if len(rows) > 1 else rows


def _rows(b: Any, a: Any, leading: Any, i: Any, j: Any, edge: int) -> list[Any]:
    results = [b.gep(a, [b.add(b.mul(i, leading), j)])]
    while len(results) < edge:
        results.append(b.gep(results[-1], [leading]))
    return [b.bitcast(place, of_lanes(a.type.pointee, edge).as_pointer()) for place in results]


def _bytes(t: Any) -> int:
    return 8 if isinstance(t, ir.DoubleType) else 4
