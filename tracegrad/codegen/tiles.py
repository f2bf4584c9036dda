"""Kernels that do nothing but transpose: tile by tile, in registers.

An element at a time, each is a load and a store. A tile is as many vectors, read along memory, as they have elements;
in registers rows become columns, and these are written along memory. Where the rows of the matrix are no multiple of a
tile, the last tile begins earlier, and writes some elements a second time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from llvmlite import ir

from tracegrad.avals import dtype_named
from tracegrad.codegen.lanes import of_lanes
from tracegrad.codegen.loops import Kernel, Load, Store
from tracegrad.codegen.scalar_llvm import I64, memory_type
from tracegrad.codegen.support import loop
from tracegrad.codegen.vectors import vector_bytes

if TYPE_CHECKING:
    from tracegrad.codegen.llvm import KernelEmitter

__all__ = ["Tiles", "in_tiles", "tiles_of", "transposed"]

I32 = ir.IntType(32)
GROUP = 16  # bytes within which neighbours are interleaved by one instruction
WORDS = 32  # bytes of vectors of elements of 4 and 8 bytes; longer ones lie in two lines of the cache each
STRIP = 256  # columns that are gone through row by row
LINE = 64  # bytes; shorter pieces of one are best written one after the other


class Tiles(NamedTuple):
    """What is transposed, how many elements the edge of a tile has, and how many columns a strip."""

    load: Load
    store: Store
    edge: int
    strip: int


def tiles_of(kernel: Kernel) -> Tiles | None:
    """How a kernel goes tile by tile over its two innermost loops, or None if it does something else."""
    if len(kernel.loops) < 2 or kernel.chunked == len(kernel.loops) - 1 or not vector_bytes():
        return None
    if any(each.extent.value is not None for each in kernel.loops[-2:]):
        return None
    match kernel.body:
        case [Load() as load, Store() as store] if store.value == load.out and store.buffer != load.buffer:
            row, column = (each.var for each in kernel.loops[-2:])
            for address, along, across in ((load.address, row, column), (store.address, column, row)):
                if address.coefficient(along) != 1 or address.coefficient(across).symbols & {row, column}:
                    return None
            size = dtype_named(load.out.dtype).itemsize
            return (
                Tiles(load, store, WORDS // size, STRIP)
                if size >= 4
                else Tiles(load, store, GROUP // size, LINE // size)
            )
    return None


def in_tiles(outer: KernelEmitter, tiles: Tiles, rows: tuple[Any, Any], columns: tuple[Any, Any]) -> Any:
    """Write all tiles, if the matrix has one; returns whether it does."""
    b, edge = outer.b, I64(tiles.edge)
    (first, last), (left, right) = rows, columns
    wide = b.icmp_signed(">=", b.sub(last, first), edge)
    wide = b.and_(wide, b.icmp_signed(">=", b.sub(right, left), edge))
    with b.if_then(wide):
        _all(outer, tiles, rows, columns)
    return wide


def _all(outer: KernelEmitter, tiles: Tiles, rows: tuple[Any, Any], columns: tuple[Any, Any]) -> None:
    """Strip by strip of columns, and in these from the first row to the last."""
    b, edge = outer.b, I64(tiles.edge)
    row, column = (each.var for each in outer.kernel.loops[-2:])
    strip = I64(tiles.strip)

    def count(low: Any, high: Any, width: Any) -> Any:
        return b.sdiv(b.add(b.sub(high, low), b.sub(width, I64(1))), width)

    def start(low: Any, high: Any, k: Any) -> Any:
        at, latest = b.add(low, b.mul(k, edge)), b.sub(high, edge)
        return b.select(b.icmp_signed("<", at, latest), at, latest)

    def one_strip(k: Any) -> None:
        begin = b.add(columns[0], b.mul(k, strip))
        end = b.add(begin, strip)
        end = b.select(b.icmp_signed("<", end, columns[1]), end, columns[1])

        def one_row(k: Any) -> None:
            outer.env[row] = start(*rows, k)

            def one_tile(k: Any) -> None:
                outer.env[column] = start(begin, columns[1], k)
                _one(outer, tiles, row, column)

            loop(b, count(begin, end, edge), one_tile)

        loop(b, count(*rows, edge), one_row)

    loop(b, count(*columns, strip), one_strip)


def _one(outer: KernelEmitter, tiles: Tiles, row: str, column: str) -> None:
    b, t = outer.b, memory_type(tiles.load.out.dtype)
    size, vector = dtype_named(tiles.load.out.dtype).itemsize, of_lanes(t, tiles.edge)

    def places(x: Load | Store, var: str) -> list[Any]:
        at = b.gep(outer.pointers[x.buffer], [outer.polys.emit(b, x.address)])
        step = outer.polys.emit(b, x.address.coefficient(var))
        found = [at]
        while len(found) < tiles.edge:
            found.append(b.gep(found[-1], [step]))
        return [b.bitcast(pointer, vector.as_pointer()) for pointer in found]

    vectors = [b.load(pointer, align=size) for pointer in places(tiles.load, column)]
    for value, pointer in zip(transposed(b, vectors, GROUP // size), places(tiles.store, row), strict=True):
        b.store(value, pointer, align=size)


def transposed(b: ir.IRBuilder, vectors: list[Any], group: int) -> list[Any]:
    """The columns of a square of elements whose rows are vectors.

    Groups of so many neighbours are transposed by interleaving two vectors at a time, and then changed for each other.
    """
    vectors, edge = list(vectors), len(vectors)
    lanes = range(edge)
    for base in range(0, edge, group):
        part = vectors[base : base + group]
        half, stages = group // 2, group.bit_length() - 1
        for _ in range(stages):
            part = [
                _shuffled(
                    b,
                    part[k],
                    part[k + half],
                    [x - x % group + upper * half + x % group // 2 + x % 2 * edge for x in lanes],
                )
                for k in range(half)
                for upper in (0, 1)
            ]
        vectors[base : base + group] = part
    while group < edge:
        for k in (k for k in lanes if not k & group):
            one, other = vectors[k], vectors[k + group]
            vectors[k] = _shuffled(b, one, other, [x + edge - group if x & group else x for x in lanes])
            vectors[k + group] = _shuffled(b, one, other, [x + edge if x & group else x + group for x in lanes])
        group *= 2
    return vectors


def _shuffled(b: ir.IRBuilder, one: Any, other: Any, lanes: list[int]) -> Any:
    return b.shuffle_vector(one, other, ir.Constant(of_lanes(I32, len(lanes)), lanes))
