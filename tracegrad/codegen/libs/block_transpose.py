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
from tracegrad.codegen.kernels.transpose_tiling import GROUP, TILE_VECTOR_BYTES, transposed
from tracegrad.codegen.vecmath.lanes import of_lanes
from tracegrad.target.tuning import TUNING

__all__ = ["MIRROR", "each_tile", "load_tile", "mirror_module", "store_tile", "transpose", "transposed"]

MIRROR = "tg_mirror."
BLOCK = TUNING.transposition.block_edge


def transpose(
    b: ir.IRBuilder,
    to: ir.IRValue,
    to_leading: ir.IRValue,
    source: ir.IRValue,
    leading: ir.IRValue,
    rows: ir.IRValue,
    columns: ir.IRValue,
) -> None:
    """Emit the transposition of a matrix with `rows` and `columns`; the result has the row stride `to_leading`."""

    def tile(i: ir.IRValue, j: ir.IRValue, edge: int) -> None:
        store_tile(b, to, to_leading, j, i, transposed_tile(b, load_tile(b, source, leading, i, j, edge)))

    each_tile(b, source.type.pointee, rows, columns, tile)


def mirror_module(name: str) -> str:
    """Emit the module of a function that makes a matrix symmetric, as text:

        void tg_mirror.<dtype>(to, source, leading, rows, columns)

    It copies the transpose of a part of one triangle into the other triangle. If `to` is `source`, it copies the
    elements above the diagonal of a square to the elements below.
    """
    t = ir.DoubleType() if name.endswith("f64") else ir.FloatType()
    module = ir.IRModule(name)
    kind = ir.FunctionType(ir.VoidType(), [t.as_pointer()] * 2 + [I64] * 3)
    function = ir.IRFunction(module, kind, name)
    b = ir.IRBuilder(function.append_basic_block("entry"))
    to, source, leading, rows, columns = function.args

    def mirror_columns(k: ir.Phi) -> None:
        """Mirror some columns, down to the diagonal."""
        left = b.mul(k, I64(BLOCK))
        width = smaller(b, b.sub(columns, left), I64(BLOCK))
        above, target = b.gep(source, [left]), b.gep(to, [b.mul(left, leading)])
        transpose(b, target, leading, above, leading, left, width)
        above, target = b.gep(above, [b.mul(left, leading)]), b.gep(target, [left])

        def element(i: ir.IRValue, j: ir.Phi) -> None:
            b.store(b.load(b.gep(above, [b.add(b.mul(j, leading), i)])), b.gep(target, [b.add(b.mul(i, leading), j)]))

        loop(b, width, lambda i: loop(b, i, partial(element, i)))

    with b.if_else(b.icmp_unsigned("==", to, source)) as (then, otherwise):
        with then:
            loop(b, b.sdiv(b.add(columns, I64(BLOCK - 1)), I64(BLOCK)), mirror_columns)
        with otherwise:
            transpose(b, to, leading, source, leading, rows, columns)
    b.ret_void()
    return str(module)


def each_tile(
    b: ir.IRBuilder, t: ir.IRType, rows: ir.IRValue, columns: ir.IRValue, tile: Callable[..., object]
) -> None:
    """Emit `square(i, j, edge)` for squares that cover a matrix of elements of type `t`; each begins at `i` and `j`."""
    edge = TILE_VECTOR_BYTES // _bytes(t)
    has_full_tiles = b.and_(*[b.icmp_signed(">=", size, I64(edge)) for size in (rows, columns)])
    with b.if_else(has_full_tiles) as (then, otherwise):
        with then:
            _blocks(b, rows, columns, edge, tile)
        with otherwise:
            loop(b, rows, lambda i: loop(b, columns, lambda j: tile(i, j, 1)))


def _blocks(b: ir.IRBuilder, rows: ir.IRValue, columns: ir.IRValue, edge: int, tile: Callable[..., object]) -> None:
    def count(size: ir.IRValue, each: int) -> Any:
        return b.sdiv(b.add(size, I64(each - 1)), I64(each))

    def tile_loop(begin: ir.IRValue, size: ir.IRValue, body: Callable[..., object]) -> None:
        """Emit all squares of a block along one axis."""
        last = b.sub(size, I64(edge))
        some = count(smaller(b, b.sub(size, begin), I64(BLOCK)), edge)
        loop(b, some, lambda k: body(smaller(b, b.add(begin, b.mul(k, I64(edge))), last)))

    def block(p: ir.IRValue, q: ir.IRValue) -> None:
        top, left = b.mul(p, I64(BLOCK)), b.mul(q, I64(BLOCK))
        tile_loop(top, rows, lambda i: tile_loop(left, columns, lambda j: tile(i, j, edge)))

    across = count(columns, BLOCK)
    loop(b, count(rows, BLOCK), lambda p: loop(b, across, lambda q: block(p, q)))


def load_tile(
    b: ir.IRBuilder, a: ir.IRValue, leading: ir.IRValue, i: ir.IRValue, j: ir.IRValue, edge: int
) -> list[ir.IRValue]:
    """Load the rows of a square."""
    return [b.load(pointer, align=_bytes(a.type.pointee)) for pointer in _tile_row_pointers(b, a, leading, i, j, edge)]


def store_tile(
    b: ir.IRBuilder, a: ir.IRValue, leading: ir.IRValue, i: ir.IRValue, j: ir.IRValue, rows: list[ir.IRValue]
) -> None:
    """Store the rows of a square."""
    for row, pointer in zip(rows, _tile_row_pointers(b, a, leading, i, j, len(rows))):
        b.store(row, pointer, align=_bytes(a.type.pointee))


def transposed_tile(b: ir.IRBuilder, rows: list[ir.IRValue]) -> list[ir.IRValue]:
    """Transpose a square: its columns."""
    return transposed(b, rows, GROUP // _bytes(rows[0].type.element)) if len(rows) > 1 else rows


def _tile_row_pointers(
    b: ir.IRBuilder, a: ir.IRValue, leading: ir.IRValue, i: ir.IRValue, j: ir.IRValue, edge: int
) -> list[ir.IRValue]:
    results = [b.gep(a, [b.add(b.mul(i, leading), j)])]
    while len(results) < edge:
        results.append(b.gep(results[-1], [leading]))
    return [b.bitcast(pointer, of_lanes(a.type.pointee, edge).as_pointer()) for pointer in results]


def _bytes(t: ir.IRType) -> int:
    return 8 if isinstance(t, ir.DoubleType) else 4
