"""Emit transposing kernels, with or without cheap arithmetic (`a + a.T`), tile by tile in registers.

Without tiles, each element would be a load of its own. A square tile loads contiguous vectors, transposes them in
registers, and stores the columns as rows. If the number of rows is not a multiple of the tile, the last tile overlaps
the tile before and writes some elements twice.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tracegrad import llvmir as ir
from tracegrad.avals import dtype_named
from tracegrad.codegen.instr.scalar import I64, constant, memory_type
from tracegrad.codegen.instr.support import loop
from tracegrad.codegen.kernels.fma import computed
from tracegrad.codegen.kernels.vectorize import LIGHTEST, vector_bytes
from tracegrad.codegen.loopir.kernel import Compute, Kernel, Load, Operand, Store
from tracegrad.codegen.vecmath.lanes import of_lanes, splat
from tracegrad.target.cache_lines import LINE
from tracegrad.target.tuning import TUNING

if TYPE_CHECKING:
    from tracegrad.codegen.kernels.scalar_kernel import KernelEmitter

I32 = ir.IntType(32)
GROUP = TUNING.transposition.interleaved_bytes
TILE_VECTOR_BYTES = TUNING.transposition.vector_bytes
MAX_TRANSPOSED_ARRAYS = TUNING.transposition.max_arrays
STRIP = TUNING.transposition.strip_columns
_NEEDED = frozenset({"transpose-tiling", "vectorization"})
SMALL = TUNING.transposition.small_edge


class Tiles(NamedTuple):
    """The edge of a tile in elements, the columns of a strip, and the number of rows read as whole cache lines."""

    edge: int
    strip: int
    rows: int


def tiles_of(kernel: Kernel) -> Tiles | None:
    """The tiling of a kernel's two innermost loops, or None if it does not transpose."""
    if len(kernel.loops) < 2 or not vector_bytes() or not kernel.disabled.isdisjoint(_NEEDED):
        return None
    if any(each.extent.value is not None for each in kernel.loops[-2:]):
        return None
    if not all(isinstance(x, Load | Store | Compute) for x in kernel.body) or not _is_out_of_place(kernel):
        return None
    row, column = (each.var for each in kernel.loops[-2:])
    every = [x for x in kernel.body if isinstance(x, Load | Store)]
    transposed = [x for x in every if _is_across(x, row, column)]
    if not 1 <= len(transposed) <= MAX_TRANSPOSED_ARRAYS or not all(
        x in transposed or _is_along(x, row, column) for x in every
    ):
        return None
    size, *others = {dtype_named((x.out if isinstance(x, Load) else x.value).dtype).itemsize for x in every}
    if size >= 4 and not others and kernel.cost <= LIGHTEST:
        return Tiles(TILE_VECTOR_BYTES // size, STRIP, LINE // size)
    return Tiles(GROUP // size, LINE // size, LINE // size) if len(kernel.body) == 2 and not others else None


def _is_across(x: Load | Store, row: str, column: str) -> bool:
    """Whether an array is contiguous along the rows of the tiles, while the results are contiguous along columns."""
    if not isinstance(x, Load) or x.address.coefficient(row) != 1 or x.address.coefficient(column).value in (0, 1):
        return False
    return not x.address.coefficient(column).symbols & {row, column}


def _is_along(x: Load | Store, row: str, column: str) -> bool:
    """Whether an array is accessed contiguously along the columns, or has one element for all of them."""
    stride = x.address.coefficient(column).value
    return (stride == 1 or (stride == 0 and isinstance(x, Load))) and not x.address.coefficient(row).symbols & {
        row,
        column,
    }


def _is_out_of_place(kernel: Kernel) -> bool:
    """Whether stored buffers are not loaded, so that writing an element twice gives the same value."""
    read = {x.buffer for x in kernel.body if isinstance(x, Load)}
    return not any(isinstance(x, Store) and x.buffer in read for x in kernel.body)


def in_tiles(
    outer: KernelEmitter, tiles: Tiles, rows: tuple[ir.IRValue, ir.IRValue], columns: tuple[ir.IRValue, ir.IRValue]
) -> ir.IRValue:
    """Emit all tiles, if the matrix has one; returns whether it does. If large tiles do not fit, small ones may."""
    b, edge = outer.b, I64(tiles.edge)
    (first, last), (left, right) = rows, columns
    fits = b.icmp_signed(">=", b.sub(last, first), edge)
    fits = b.and_(fits, b.icmp_signed(">=", b.sub(right, left), edge))
    if tiles.edge <= SMALL:
        with b.if_then(fits):
            _all(outer, tiles, rows, columns)
        return fits
    with b.if_else(fits) as (large, otherwise):
        with large:
            _all(outer, tiles, rows, columns)
            written = b.block
        with otherwise:
            some = in_tiles(outer, tiles._replace(edge=SMALL), rows, columns)
            small_block = b.block
    return b.merge((some.type(1), written), (some, small_block))


def _all(
    outer: KernelEmitter, tiles: Tiles, rows: tuple[ir.IRValue, ir.IRValue], columns: tuple[ir.IRValue, ir.IRValue]
) -> None:
    """Emit the tiles strip by strip of columns, and within a strip from the first row to the last."""
    b, edge = outer.b, I64(tiles.edge)
    row, column = (each.var for each in outer.kernel.loops[-2:])
    strip = I64(tiles.strip)

    def count(low: ir.IRValue, high: ir.IRValue, width: ir.IRValue) -> ir.IRValue:
        return b.sdiv(b.add(b.sub(high, low), b.sub(width, I64(1))), width)

    def start(low: ir.IRValue, high: Any, k: ir.Phi) -> ir.IRValue:
        at, latest = b.add(low, b.mul(k, edge)), b.sub(high, edge)
        return b.select(b.icmp_signed("<", at, latest), at, latest)

    def one_strip(k: ir.Phi) -> None:
        begin = b.add(columns[0], b.mul(k, strip))
        end = b.add(begin, strip)
        end = b.select(b.icmp_signed("<", end, columns[1]), end, columns[1])

        def one_row(k: Any) -> None:
            outer.env[row] = start(*rows, k)

            def one_tile(k: ir.Phi) -> None:
                outer.env[column] = start(begin, columns[1], k)
                _one(outer, tiles, row, column)

            loop(b, count(begin, end, edge), one_tile)

        loop(b, count(*rows, edge), one_row)

    loop(b, count(*columns, strip), one_strip)


def _one(outer: KernelEmitter, tiles: Tiles, row: str, column: str) -> None:
    b, rows = outer.b, range(tiles.edge)
    table: dict[str, list[ir.IRValue]] = {}  # the vectors of all rows

    def value(k: int, x: Operand) -> Any:
        if not x.name:
            return constant(x.value, x.dtype, tiles.edge)
        return table[x.name][k] if x.name in table else splat(b, outer.env[x.name], tiles.edge)

    for x in outer.kernel.body:
        match x:
            case Load():
                table[x.out.name] = _loaded(outer, tiles, x, row, column)
            case Compute():
                table[x.out.name] = [computed(b, x, partial(value, k), outer.products) for k in rows]
            case Store():
                for k, pointer in enumerate(_row_pointers(outer, tiles, x, row)):
                    b.store(value(k, x.value), pointer, align=dtype_named(x.value.dtype).itemsize)


def _row_pointers(outer: KernelEmitter, tiles: Tiles, x: Load | Store, var: str) -> list[ir.IRValue]:
    """Pointers to the vectors of a tile, with the stride of the loop over `var`."""
    b, dtype = outer.b, (x.out if isinstance(x, Load) else x.value).dtype
    results = [b.gep(outer.pointers[x.buffer], [outer.polys.emit(b, x.address)])]
    stride = outer.polys.emit(b, x.address.coefficient(var))
    while len(results) < tiles.edge:
        results.append(b.gep(results[-1], [stride]))
    vector = of_lanes(memory_type(dtype), tiles.edge).as_pointer()
    return [b.bitcast(pointer, vector) for pointer in results]


def _loaded(outer: KernelEmitter, tiles: Tiles, x: Load, row: str, column: str) -> list[ir.IRValue]:
    """Load the rows of a tile of an array."""
    b, size, t = outer.b, dtype_named(x.out.dtype).itemsize, memory_type(x.out.dtype)
    if _is_across(x, row, column):
        vectors = [b.load(pointer, align=size) for pointer in _row_pointers(outer, tiles, x, column)]
        return transposed(b, vectors, min(GROUP // size, tiles.edge))
    same = x.address.coefficient(row) == 0
    pointers = _row_pointers(outer, tiles, x, row)[: 1 if same else None]
    if x.address.coefficient(column) == 0:
        results = [splat(b, b.load(b.bitcast(pointer, t.as_pointer())), tiles.edge) for pointer in pointers]
    else:
        results = [b.load(pointer, align=size) for pointer in pointers]
    return results * tiles.edge if same else results


def transposed(b: ir.IRBuilder, vectors: list[Any], group: int) -> list[ir.IRValue]:
    """Transpose a square of elements whose rows are vectors.

    Groups of `group` neighbours are transposed by interleaving two vectors at a time, and then exchanged.
    """
    vectors, edge = list(vectors), len(vectors)
    lanes = range(edge)
    for base in range(0, edge, group):
        block = vectors[base : base + group]
        half, stages = group // 2, group.bit_length() - 1
        for _ in range(stages):
            block = [
                _shuffled(
                    b,
                    block[k],
                    block[k + half],
                    [x - x % group + upper * half + x % group // 2 + x % 2 * edge for x in lanes],
                )
                for k in range(half)
                for upper in (0, 1)
            ]
        vectors[base : base + group] = block
    while group < edge:
        for k in (k for k in lanes if not k & group):
            one, other = vectors[k], vectors[k + group]
            vectors[k] = _shuffled(b, one, other, [x + edge - group if x & group else x for x in lanes])
            vectors[k + group] = _shuffled(b, one, other, [x + edge if x & group else x + group for x in lanes])
        group *= 2
    return vectors


def _shuffled(b: ir.IRBuilder, one: ir.IRValue, other: ir.IRValue, lanes: list[int]) -> ir.IRValue:
    return b.shuffle_vector(one, other, ir.IRConstant(of_lanes(I32, len(lanes)), lanes))
