"""Encode the steps of a plan as bytecode: instruction functions and their operands (`interpreter.py`).

Everything that depends on sizes is computed here, once per program: locations of buffers, rows of a chunk, arguments of
BLAS. An address among the operands is still the name of a shared function, or a compilation unit. The caller that runs
the program resolves it to an address.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tracegrad.avals import dtype_named, short_name
from tracegrad.codegen.instr.scalar import identity
from tracegrad.codegen.kernels.parallel_kernel import EACH_CHUNK
from tracegrad.codegen.libs.gemm import GEMM, is_small_product
from tracegrad.codegen.libs.linear_algebra import flags_of, is_native, routines_of
from tracegrad.codegen.libs.sorting import is_ordering, ordering_words
from tracegrad.codegen.loopir.kernel import Kernel, Reduce
from tracegrad.codegen.loopir.polynomial import Poly
from tracegrad.codegen.loopir.steps import Call, Launch, Matmul
from tracegrad.codegen.plan.donation import step_of_check
from tracegrad.codegen.plan.planner import Plan, plans_of
from tracegrad.codegen.plan.region_steps import Nested, Repeat, regions_of
from tracegrad.codegen.plan.strip_fusion import Band
from tracegrad.codegen.plan.wavefront import THREADS
from tracegrad.codegen.program.compilation_units import Piece, kernel_piece, part_piece
from tracegrad.codegen.program.interpreter import BAND, STEP
from tracegrad.codegen.program.region_function import Part, place_of
from tracegrad.target.tuning import TUNING
from tracegrad.utils.lazy_dataclass import record

__all__ = ["CALLBACK", "C_LIBRARY", "Order", "orders_of", "pieces_of", "products_in_chunk"]

CALLBACK = "callback"
C_LIBRARY = ("malloc", "free")
LEAST_SHARED = TUNING.blas.min_shared_work
SHARES = TUNING.blas.min_shares
LARGE = TUNING.blas.min_threaded_product
FEW = TUNING.blas.max_threaded_products
Word = int | str | Piece


@record(eq=False)
class Order:
    """An instruction of the program: its function, and its operands; `steps` are the plan steps that it runs."""

    function: str | Piece
    words: list[Word]
    steps: range

    def uses(self) -> list[tuple[Piece, Sequence[int]]]:
        """The compilation units that the instruction calls, each with its plan steps."""
        pieces = pieces_of(self)
        if self.function != BAND:
            return [(piece, self.steps) for piece in pieces]
        steps: dict[Piece, list[int]] = {}
        for step, piece in zip(self.steps, pieces):
            steps.setdefault(piece, []).append(step)
        return [(piece, steps[piece]) for piece in pieces]


def orders_of(plan: Plan, optimize: int = 2) -> list[Order]:
    """Encode a plan as instructions; `optimize` says how its compilation units are compiled."""
    writer = _Writer(plan, optimize)
    bands = {band.first: band for band in plan.bands}
    parts = list(_parts(plan.steps, {band.first: band.last for band in plan.bands}))
    results = [
        list(writer.band(bands[first]) if first in bands else writer.orders(first, last)) for first, last in parts
    ]
    if plan.check >= 0:
        place = [len(plan.graph.inputs) + len(plan.graph.outputs) - 1, plan.check]
        at = step_of_check(plan) if plan.donors else len(plan.steps) - 1  # before an input is overwritten
        next(orders for orders, (_, last) in zip(results, parts) if last >= at).append(
            Order(f"{STEP}check", [*place], range(0))
        )
    return [order for orders in results for order in orders]


def pieces_of(order: Order) -> list[Piece]:
    """The compilation units that an instruction names."""
    return [x for x in (order.function, *order.words) if isinstance(x, Piece)]


def _parts(steps: Sequence[Any], bands: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """The first and last numbers of the steps of each part, single step, or band.

    Kernels of a few elements are merged into one part, with the step with regions that follows or precedes them.
    """
    i = 0
    while i < len(steps):
        end = i
        while end < len(steps) and _is_small(steps[end]):
            end += 1
        if end < len(steps) and isinstance(steps[end], Nested):
            behind = end + 1
            while behind < len(steps) and _is_small(steps[behind]):
                behind += 1
            next_is_nested = behind < len(steps) and isinstance(steps[behind], Nested)
            end = end + 1 if next_is_nested else behind
        end = max(end, bands.get(i, i) + 1)
        yield i, end - 1
        i = end


def _is_small(step: Any) -> bool:
    """Whether a step is a kernel over small constant sizes, or a compiled random draw."""
    if isinstance(step, Call):
        return step.native is not None
    return isinstance(step, Launch) and step.chunks == 1 and all(x.extent.value is not None for x in step.kernel.loops)


class _Writer:
    """Encoder of the steps of a plan."""

    def __init__(self, plan: Plan, optimize: int):
        self.made, self.optimize = plan, optimize
        self._known_places: dict[str, list[Word]] = {}
        self._known_sizes: dict[Poly, int] = {}
        self.arena = len(plan.graph.inputs) + len(plan.graph.outputs) - (plan.check >= 0)

    def orders(self, first: int, last: int) -> list[Order]:
        """The instructions of a part or a single step."""
        step, steps = self.made.steps[first], range(first, last + 1)
        match step:
            case Matmul():
                return [Order(f"{STEP}matmul", self._matmul(step), steps)]
            case Call() if step.native is None:
                if is_ordering(step.node):
                    return [self._ordering(step, steps)]
                native = is_native(step.node) and all(step.outs)
                return [self._native(step, steps) if native else self._call(step, steps)]
            case Launch() if not _is_small(step):
                return list(self._launch(first, step))
            case _:
                return [self._part(first, last)]

    def _place(self, buffer: str) -> list[Word]:
        """The location of a buffer: the number of a pointer of the program, and an offset in bytes."""
        result = self._known_places.get(buffer)
        if result is None:
            result = self._known_places[buffer] = self._found(buffer)
        return result

    def _found(self, buffer: str) -> list[Word]:
        if buffer == "arena":
            return [self.arena, 0]
        kind, _, number = self.made.memory[buffer].partition(" ")
        if kind == "check":
            return [self.arena, self.made.check]
        if kind == "temp":
            return [self.arena, self.made.values[f"offset.{buffer}"]]
        return [int(number) + (len(self.made.graph.inputs) if kind == "output" else 0), 0]

    def _size(self, size: Poly) -> int:
        result = self._known_sizes.get(size)
        if result is None:
            result = self._known_sizes[size] = size.evaluate(self.made.arguments.sizes)
        return result

    # -- kernels -------------------------------------------------------------------------------------
    def _launch(self, i: int, step: Launch) -> Iterator[Order]:
        steps, kernel = range(i, i + 1), step.kernel
        yield from self._fills(i)
        if step.copies:
            (out,) = step.writes
            words = [*self._place(out), *self._place(step.base), self._size(step.bytes)]
            yield Order(f"{STEP}copy", words, steps)
        piece, words, places = self._kernel(kernel)
        if step.chunks == 1:
            yield Order(piece, words, steps)
        else:
            yield from self._forked(i, step, piece, words, places)

    def _fills(self, i: int) -> Iterator[Order]:
        for buffer, dtype, combiner, size in self.made.fills.get(i, ()):
            start = _bits(dtype, identity(combiner, dtype).constant)
            yield Order(f"{STEP}fill.{dtype}", [*self._place(buffer), start, self._size(size)], range(i, i + 1))

    def _kernel(self, kernel: Kernel) -> tuple[Piece, list[Word], dict[str, int]]:
        """The compilation unit of a kernel, its operands for all rows, and the position of each name in them."""
        piece, names = kernel_piece(kernel, self.optimize)
        words: list[Word] = [0, self._size(kernel.loops[kernel.chunked].extent)]
        places: dict[str, int] = {}
        for name in names:
            places[name] = len(words)
            words += self._place(name) if name in kernel.buffers else [self.made.values[name]]
        return piece, words, places

    def _forked(self, i: int, step: Launch, piece: Piece, words: list[Word], places: dict[str, int]) -> Iterator[Order]:
        """The instructions of a kernel in chunks. Reductions write partial results, which are combined in the order of
        the chunks."""
        steps, rows = range(i, i + 1), words[1]
        partials: list[Word] = []
        for name, size in step.partials.items():
            begin, each = self.made.values[f"partial.{i}.{name}"], dtype_named(step.kernel.buffers[name][0]).itemsize
            partials += [places[name], self.arena, begin, self._size(size) * each]
        cut: list[Word] = [EACH_CHUNK[step.parallel], step.chunks, step.rows, rows]
        yield Order(f"{STEP}fork", [piece, *cut, len(words), len(step.partials), *partials, *words], steps)
        yield from self._combined(i, step)

    def _combined(self, i: int, step: Launch) -> Iterator[Order]:
        """The instructions that combine the partial results of a step."""
        for name, size in step.partials.items():
            parts = [self.arena, self.made.values[f"partial.{i}.{name}"], self._size(size), step.chunks]
            words = [*self._place(name), *parts, f"tg_combine.{_combiner(step, name)}"]
            yield Order(f"{STEP}combine", words, range(i, i + 1))

    # -- bands ---------------------------------------------------------------------------------------
    def band(self, band: Band) -> Iterator[Order]:
        """The instructions of a band (`tracegrad.codegen.program.strip_fusion`)."""
        steps = [(i, step) for i in band.steps if isinstance(step := self.made.steps[i], Launch)]
        for i in band.steps:
            yield from self._fills(i)
        kernels = [word for (i, step), unit in zip(steps, band.units) for word in self._of_band(band, i, step, unit)]
        _, step = steps[0]
        functions: list[Word] = [EACH_CHUNK[step.parallel], *C_LIBRARY]
        cut = [step.chunks, step.rows // band.units[0], band.rows, band.strip]
        yield Order(
            BAND, [*functions, *cut, band.bytes, self.arena + 1, len(steps), len(kernels), *kernels], band.steps
        )
        if step.chunks > 1:
            for i, step in steps:
                yield from self._combined(i, step)

    def _of_band(self, band: Band, i: int, step: Launch, unit: int) -> list[Word]:
        """The operands of one kernel of a band."""
        piece, words, places = self._kernel(step.kernel)
        own = [name for name in step.kernel.buffers if name in band.local]
        records: list[Word] = [x for name in own for x in (places[name], band.offsets[name], band.local[name])]
        for name, size in step.partials.items():
            where = [self.arena, self.made.values[f"partial.{i}.{name}"]] if step.chunks > 1 else self._place(name)
            each = self._size(size) * dtype_named(step.kernel.buffers[name][0]).itemsize
            merger = f"tg_merge.{_combiner(step, name)}"
            records += [places[name], *where, each, band.offsets[name], self._size(size), merger]
        return [piece, unit, len(own), len(step.partials), len(words), *records, *words]

    # -- products and calls ----------------------------------------------------------------------------
    def _matmul(self, step: Matmul) -> list[Word]:
        """Row-major C = A B is column-major C' = B' A'; leading dimensions are at least 1, also of empty matrices."""
        batch, m, n, k, within = [self._size(x) for x in (*step.sizes, step.within)]
        each = dtype_named(step.dtype).itemsize
        share = products_in_chunk(batch, m * n * k)
        chunks = max(1, -(-batch // share))
        letters = "".join("T" if flipped else "N" for _, flipped in (step.y, step.x))
        is_ours = batch > 1 and step.tiles and is_small_product(n, m, k, letters)
        routine = GEMM + step.dtype if is_ours else step.routine
        words: list[Word] = [routine, batch, share, chunks, EACH_CHUNK[1] if chunks > 1 else 0]
        words.append(max(within, 1))
        x, y, out = step.lies
        for buffer, lie in ((step.y[0], y), (step.x[0], x), (step.out, out)):
            apart = (self._size(lie.outer) * each, self._size(lie.inner) * each) if batch > 1 else (0, 0)
            words += [*self._place(buffer), *apart]
        words += [ord(letter) for letter in letters]
        words += [n, m, k, *[max(self._size(lie.leading), 1) for lie in (y, x, out)]]
        return [*words, *[_bits(step.dtype, x) for x in (step.adds or 1, abs(step.adds))]]

    def _call(self, step: Call, steps: range) -> Order:
        return Order(f"{STEP}call", [CALLBACK, step.number, *self._places(step)], steps)

    def _places(self, step: Call) -> list[Word]:
        """The number of buffers of a call, and their addresses."""
        buffers = [*step.operands, *filter(None, step.outs)]
        return [len(buffers), *(word for b in buffers for word in self._place(b))]

    def _native(self, step: Call, steps: range) -> Order:
        """The instruction of a call with a LAPACK routine, or of the callback."""
        node = step.node
        *lead, n, k = node.operands[-1].aval.shape
        count, dtype = math.prod(lead), short_name(node.operands[0].aval.dtype)
        each_chunk = EACH_CHUNK[n * n * k >= LEAST_SHARED]
        head: list[Word] = [CALLBACK, step.number, *routines_of(node), each_chunk, count, n, k]
        return Order(f"{STEP}{node.name}.{dtype}", [*head, *flags_of(node), *self._places(step)], steps)

    def _ordering(self, step: Call, steps: range) -> Order:
        """The instruction of a call with a native routine."""
        node = step.node
        name = f"{STEP}{node.name}.{short_name(node.operands[0].aval.dtype)}"
        return Order(name, [CALLBACK, step.number, *ordering_words(node), *self._places(step)], steps)

    # -- parts -------------------------------------------------------------------------------------------
    def _part(self, first: int, last: int) -> Order:
        piece, part = part_piece(self.made, first, last, self.optimize)
        values: dict[str, Word] = dict(part.values)
        for buffer in ("arena", *part.buffers):
            values |= zip(place_of(buffer), self._place(buffer))
        used = _functions_used(part)
        values |= {name: function for name in values if (function := name.rpartition("/")[2]) in used}
        return Order(piece, list(values.values()), range(first, last + 1))


def _functions_used(part: Part) -> set[str]:
    """The functions that a part calls for the sizes of the plan; other functions are not loaded for it."""
    regions = [result for step in part.steps for _, region in regions_of(step) for result in plans_of(region)]
    everything: list[Part | Plan] = [part, *regions]
    steps = [step for result in everything for step in result.steps if isinstance(step, Launch | Repeat)]
    names = {name.rpartition("/")[2] for name in part.values}
    used = names & {CALLBACK, "tg_look"}
    if any(step.chunks > 1 for step in steps) or any(fill for result in everything for fill in result.fills.values()):
        used |= {name for name in names if name.startswith("tg_")} - {EACH_CHUNK[1], THREADS}
    if any(isinstance(step, Repeat) and step.waves and step.waves.depth > 1 for step in steps):
        used.add(THREADS)
    return used | {EACH_CHUNK[1]} if any(step.parallel for step in steps) else used


def products_in_chunk(count: int, work: int) -> int:
    """The number of the `count` products of a batch, of `work` multiply-adds each, that a thread takes at a time.

    A product is one call of BLAS on any thread, so bits do not depend on the number. A few large products run one after
    the other, because the routine itself uses threads (`tracegrad.runtime.blas.library`), except inside a thread of the
    pool.
    """
    if count * work < LEAST_SHARED or (count < FEW and work >= LARGE):
        return max(count, 1)
    return -(-LEAST_SHARED // (SHARES * work))


def _combiner(step: Launch, buffer: str) -> str:
    """The combiner and the dtype of a kernel's reduction into a buffer."""
    reductions = [x for x in step.kernel.body if isinstance(x, Reduce) and x.buffer == buffer]
    return f"{reductions[0].combiner}.{reductions[0].value.dtype}"


def _bits(dtype: str, value: Any) -> int:
    """The int64 whose first bytes are the bits of the number."""
    if dtype[0] == "f":
        packed = struct.pack("<d" if dtype == "f64" else "<f", value)
    else:
        packed = struct.pack("<Q", int(value) % 2**64)
    return int(struct.unpack("<q", packed.ljust(8, b"\0"))[0])
