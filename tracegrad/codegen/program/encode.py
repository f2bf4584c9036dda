"""Encode the steps of a plan as bytecode: instruction functions and their operands (`interpreter.py`).

Everything that depends on sizes is computed here, once per program: locations of buffers, rows of a chunk, arguments of
BLAS. An address among the operands is still the name of a shared function, or a compilation unit. The caller that runs
the program resolves it to an address.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from tracegrad.avals import dtype_named, short_name
from tracegrad.codegen.instr.operands import OperandLayout
from tracegrad.codegen.instr.scalar import identity
from tracegrad.codegen.instr.support import EACH_CHUNK, THREADS
from tracegrad.codegen.libs.gemm import GEMM, is_small_product
from tracegrad.codegen.libs.linear_algebra import flags_of, is_native, routines_of
from tracegrad.codegen.libs.native_call import NATIVE_CALL
from tracegrad.codegen.libs.recursive_factorizations import LAPACK_CALL
from tracegrad.codegen.libs.sorting import is_ordering, ordering_operands
from tracegrad.codegen.loopir.blocking import WAVEFRONTS
from tracegrad.codegen.loopir.kernel import Kernel, Reduce
from tracegrad.codegen.loopir.polynomial import Poly
from tracegrad.codegen.loopir.steps import CallStep, Launch, Matmul
from tracegrad.codegen.plan.donation import check_step_index
from tracegrad.codegen.plan.places_and_values import (
    CheckPlace,
    InputPlace,
    OutputPlace,
    ValueName,
    location_names,
    offset_name,
    partial_name,
    value_bits,
)
from tracegrad.codegen.plan.program_plan import Plan, plans_of
from tracegrad.codegen.plan.region_steps import Nested, ScanStep, regions_of
from tracegrad.codegen.plan.strip_fusion import StripFusion
from tracegrad.codegen.program.compilation_units import CompilationUnit, unit_of_kernel, unit_of_segment
from tracegrad.codegen.program.instructions import (
    CALL,
    CHECK,
    COMBINE,
    COPY,
    FILL,
    FORK,
    FORK_PARTIAL,
    FUSED_KERNEL,
    FUSED_LOCAL,
    FUSED_PARTIAL,
    MATMUL,
    STEP,
    STRIP_FUSION,
)
from tracegrad.codegen.program.interpreter import FUSED_STRIPS
from tracegrad.codegen.program.region_function import PlanSegment
from tracegrad.target.tuning import TUNING
from tracegrad.utils.lazy_dataclass import record

CALLBACK = "callback"
C_LIBRARY = ("malloc", "free")
MIN_SHARED_WORK = TUNING.blas.min_shared_work
MIN_SHARES = TUNING.blas.min_shares
MIN_THREADED_PRODUCT = TUNING.blas.min_threaded_product
MAX_THREADED_PRODUCTS = TUNING.blas.max_threaded_products
EncodedOperand = int | str | CompilationUnit
OperandWords = EncodedOperand | list[EncodedOperand]  # of an operand of one word, and of a location or a list


@record(eq=False)
class ProgramInstruction:
    """An instruction of the program: its function, and its operands; `steps` are the plan steps that it runs."""

    function: str | CompilationUnit
    operands: list[EncodedOperand]
    steps: range

    def uses(self) -> list[tuple[CompilationUnit, Sequence[int]]]:
        """The compilation units that the instruction calls, each with its plan steps."""
        units = units_of(self)
        if self.function != FUSED_STRIPS:
            return [(unit, self.steps) for unit in units]
        steps: dict[CompilationUnit, list[int]] = {}
        for step, unit in zip(self.steps, units):
            steps.setdefault(unit, []).append(step)
        return [(unit, steps[unit]) for unit in units]


def encode_program(plan: Plan, optimize: int = 2) -> list[ProgramInstruction]:
    """Encode a plan as instructions; `optimize` says how its compilation units are compiled."""
    encoder = _ProgramEncoder(plan, optimize)
    fusions = {fusion.first: fusion for fusion in plan.strip_fusions}
    step_ranges = list(_instruction_ranges(plan.steps, {fusion.first: fusion.last for fusion in plan.strip_fusions}))
    results = [
        list(encoder.fusion(fusions[first]) if first in fusions else encoder.instructions(first, last))
        for first, last in step_ranges
    ]
    if plan.check >= 0:
        location: list[EncodedOperand] = [len(plan.graph.inputs) + len(plan.graph.outputs) - 1, plan.check]
        at = check_step_index(plan) if plan.donors else len(plan.steps) - 1  # before an input is overwritten
        next(instructions for instructions, (_, last) in zip(results, step_ranges) if last >= at).append(
            ProgramInstruction(f"{STEP}check", encode(CHECK, condition=location), range(0))
        )
    return [instruction for instructions in results for instruction in instructions]


def encode(layout: OperandLayout, **values: OperandWords) -> list[EncodedOperand]:
    """The words of an instruction or a record, given the words of each operand."""
    words: list[EncodedOperand] = []
    for name in layout.offsets:
        value = values.pop(name)
        if isinstance(value, list):
            words += value
        else:
            words.append(value)
    assert not values, f"no operands {values}"
    return words


def units_of(instruction: ProgramInstruction) -> list[CompilationUnit]:
    """The compilation units that an instruction names."""
    return [x for x in (instruction.function, *instruction.operands) if isinstance(x, CompilationUnit)]


def _instruction_ranges(steps: Sequence[object], fusions: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """The first and last numbers of the steps of each part, single step, or fusion.

    Kernels of a few elements are merged into one part, with the step with regions that follows or precedes them.
    """
    i = 0
    while i < len(steps):
        end = i
        while end < len(steps) and _is_small(steps[end]):
            end += 1
        if end < len(steps) and isinstance(steps[end], Nested):
            after = end + 1
            while after < len(steps) and _is_small(steps[after]):
                after += 1
            next_is_nested = after < len(steps) and isinstance(steps[after], Nested)
            end = end + 1 if next_is_nested else after
        end = max(end, fusions.get(i, i) + 1)
        yield i, end - 1
        i = end


def _is_small(step: object) -> bool:
    """Whether a step is a kernel over small constant sizes, or a compiled random draw."""
    if isinstance(step, CallStep):
        return step.native is not None
    return (
        isinstance(step, Launch)
        and step.blocks.number == 1
        and all(x.extent.value is not None for x in step.kernel.loops)
    )


class _ProgramEncoder:
    """Encoder of the steps of a plan."""

    def __init__(self, plan: Plan, optimize: int):
        self.plan, self.optimize = plan, optimize
        self._known_locations: dict[str, list[EncodedOperand]] = {}
        self._known_sizes: dict[Poly, int] = {}
        self.arena = len(plan.graph.inputs) + len(plan.graph.outputs) - (plan.check >= 0)

    def instructions(self, first: int, last: int) -> list[ProgramInstruction]:
        """The instructions of a part or a single step."""
        step, steps = self.plan.steps[first], range(first, last + 1)
        match step:
            case Matmul():
                return [ProgramInstruction(f"{STEP}matmul", self._matmul(step), steps)]
            case CallStep() if step.native is None:
                return [self._call(step, steps)]
            case Launch() if not _is_small(step):
                return list(self._launch(first, step))
            case _:
                return [self._segment(first, last)]

    def _location(self, buffer: str) -> list[EncodedOperand]:
        """The location of a buffer: the number of a pointer of the program, and an offset in bytes."""
        result = self._known_locations.get(buffer)
        if result is None:
            result = self._known_locations[buffer] = self._compute_location(buffer)
        return result

    def _compute_location(self, buffer: str) -> list[EncodedOperand]:
        if buffer == "arena":
            return [self.arena, 0]
        match self.plan.memory[buffer]:
            case InputPlace() | OutputPlace() as place:
                return [place.pointer(len(self.plan.graph.inputs)), 0]
            case CheckPlace():
                return [self.arena, self.plan.check]
        return [self.arena, self.plan.values[offset_name(buffer)]]

    def _size(self, size: Poly) -> int:
        result = self._known_sizes.get(size)
        if result is None:
            result = self._known_sizes[size] = size.evaluate(self.plan.arguments.sizes)
        return result

    # -- kernels -------------------------------------------------------------------------------------
    def _launch(self, i: int, step: Launch) -> Iterator[ProgramInstruction]:
        steps, kernel = range(i, i + 1), step.kernel
        yield from self._fills(i, step)
        if step.copies:
            (out,) = step.writes
            target, source = self._location(out), self._location(step.base)
            operands = encode(COPY, target=target, source=source, bytes=self._size(step.bytes))
            yield ProgramInstruction(f"{STEP}copy", operands, steps)
        code_unit, operands, positions = self._kernel(kernel)
        if step.blocks.number == 1:
            yield ProgramInstruction(code_unit, operands, steps)
        else:
            yield from self._forked(i, step, code_unit, operands, positions)

    def _fills(self, i: int, step: Launch) -> Iterator[ProgramInstruction]:
        for buffer, dtype, combiner, size in step.fills:
            start = value_bits(dtype, identity(combiner, dtype).constant)
            operands = encode(FILL, target=self._location(buffer), value=start, count=self._size(size))
            yield ProgramInstruction(f"{STEP}fill.{dtype}", operands, range(i, i + 1))

    def _kernel(self, kernel: Kernel) -> tuple[CompilationUnit, list[EncodedOperand], dict[str, int]]:
        """The compilation unit of a kernel, its operands for all rows, and the position of each name in them."""
        code_unit, names = unit_of_kernel(kernel, self.optimize)
        operands: list[EncodedOperand] = [0, self._size(kernel.loops[kernel.chunked].extent)]
        positions: dict[str, int] = {}
        for name in names:
            positions[name] = len(operands)
            operands += self._location(name) if name in kernel.buffers else [self.plan.values[ValueName(name)]]
        return code_unit, operands, positions

    def _forked(
        self,
        i: int,
        step: Launch,
        code_unit: CompilationUnit,
        operands: list[EncodedOperand],
        positions: dict[str, int],
    ) -> Iterator[ProgramInstruction]:
        """The instructions of a kernel in chunks. Reductions write partial results, which are combined in the order of
        the chunks."""
        steps, rows = range(i, i + 1), operands[1]
        partials: list[EncodedOperand] = []
        for name, size in step.partials.items():
            chunk_bytes = self._size(size) * dtype_named(step.kernel.buffers[name][0]).itemsize
            first = self._partials(i, name)
            partials += encode(FORK_PARTIAL, position=positions[name], first=first, chunk_bytes=chunk_bytes)
        fork = encode(
            FORK,
            kernel=code_unit,
            each_chunk=EACH_CHUNK[step.blocks.parallel],
            chunks=step.blocks.number,
            chunk_rows=step.blocks.size,
            rows=rows,
            count=len(operands),
            num_partials=len(step.partials),
            partials=partials,
            operands=operands,
        )
        yield ProgramInstruction(f"{STEP}fork", fork, steps)
        yield from self._combined(i, step)

    def _combined(self, i: int, step: Launch) -> Iterator[ProgramInstruction]:
        """The instructions that combine the partial results of a step."""
        for name, size in step.partials.items():
            operands = encode(
                COMBINE,
                target=self._location(name),
                partials=self._partials(i, name),
                count=self._size(size),
                chunks=step.blocks.number,
                combiner=f"tg_combine.{_combiner(step, name)}",
            )
            yield ProgramInstruction(f"{STEP}combine", operands, range(i, i + 1))

    def _partials(self, i: int, name: str) -> list[EncodedOperand]:
        """The location of the partial results of a step in a buffer."""
        return [self.arena, self.plan.values[partial_name(i, name)]]

    # -- fusions ---------------------------------------------------------------------------------------
    def fusion(self, fusion: StripFusion) -> Iterator[ProgramInstruction]:
        """The instructions of a strip fusion (`tracegrad.codegen.program.strip_fusion`)."""
        steps = [(i, step) for i in fusion.steps if isinstance(step := self.plan.steps[i], Launch)]
        for i, step in steps:
            yield from self._fills(i, step)
        kernels = [
            operand
            for (i, step), unit in zip(steps, fusion.units)
            for operand in self._of_fusion(fusion, i, step, unit)
        ]
        operands = encode(
            STRIP_FUSION,
            each_chunk=EACH_CHUNK[fusion.blocks.parallel],
            malloc="malloc",
            free="free",
            chunks=fusion.blocks.number,
            chunk_rows=fusion.blocks.size,
            rows=fusion.rows,
            strip_rows=fusion.strip,
            strip_bytes=fusion.bytes,
            num_pointers=self.arena + 1,
            num_kernels=len(steps),
            size=len(kernels),
            kernels=kernels,
        )
        yield ProgramInstruction(FUSED_STRIPS, operands, fusion.steps)
        if fusion.blocks.number > 1:
            for i, step in steps:
                yield from self._combined(i, step)

    def _of_fusion(self, fusion: StripFusion, i: int, step: Launch, unit: int) -> list[EncodedOperand]:
        """The operands of one kernel of a strip fusion."""
        code_unit, operands, positions = self._kernel(step.kernel)
        names = [name for name in step.kernel.buffers if name in fusion.local]
        local_buffers = [
            encode(FUSED_LOCAL, position=positions[name], offset=fusion.offsets[name], row_bytes=fusion.local[name])
            for name in names
        ]
        partials = [
            encode(
                FUSED_PARTIAL,
                position=positions[name],
                first=self._partials(i, name) if step.blocks.number > 1 else self._location(name),
                chunk_bytes=self._size(size) * dtype_named(step.kernel.buffers[name][0]).itemsize,
                offset=fusion.offsets[name],
                count=self._size(size),
                merger=f"tg_merge.{_combiner(step, name)}",
            )
            for name, size in step.partials.items()
        ]
        return encode(
            FUSED_KERNEL,
            kernel=code_unit,
            row_iterations=unit,
            num_locals=len(local_buffers),
            num_partials=len(partials),
            count=len(operands),
            locals=list(itertools.chain(*local_buffers)),
            partials=list(itertools.chain(*partials)),
            operands=operands,
        )

    # -- products and calls ----------------------------------------------------------------------------
    def _matmul(self, step: Matmul) -> list[EncodedOperand]:
        """Row-major C = A B is column-major C' = B' A'; leading dimensions are at least 1, also of empty matrices."""
        batch, m, n, k, within = [self._size(x) for x in (*step.sizes, step.within)]
        each = dtype_named(step.dtype).itemsize
        share = products_in_chunk(batch, m * n * k)
        chunks = max(1, -(-batch // share))
        letters = "".join("T" if flipped else "N" for _, flipped in (step.y, step.x))
        is_builtin_gemm = batch > 1 and step.tiles and is_small_product(n, m, k, letters)
        matrices: dict[str, OperandWords] = {}
        x, y, out = step.strides
        for name, buffer, layout in (("a", step.y[0], y), ("b", step.x[0], x), ("c", step.out, out)):
            matrices |= {
                name: self._location(buffer),
                f"{name}_run_stride": self._size(layout.outer) * each if batch > 1 else 0,
                f"{name}_stride": self._size(layout.inner) * each if batch > 1 else 0,
                f"ld{name}": max(self._size(layout.leading), 1),
            }
        return encode(
            MATMUL,
            **matrices,
            routine=GEMM + step.dtype if is_builtin_gemm else step.routine,
            count=batch,
            chunk_count=share,
            chunks=chunks,
            each_chunk=EACH_CHUNK[1] if chunks > 1 else 0,
            run=max(within, 1),
            transa=ord(letters[0]),
            transb=ord(letters[1]),
            height=n,
            width=m,
            depth=k,
            alpha=value_bits(step.dtype, step.adds or 1),
            beta=value_bits(step.dtype, abs(step.adds)),
        )

    def _call(self, step: CallStep, steps: range) -> ProgramInstruction:
        buffers = [*step.operands, *filter(None, step.outs)]
        head: dict[str, OperandWords] = {"callback": CALLBACK, "number": step.number}
        arrays = [operand for buffer in buffers for operand in self._location(buffer)]
        node = step.node
        name = f"{STEP}{node.name}.{short_name(node.operands[0].aval.dtype)}" if node.operands else ""
        if is_ordering(node):
            work = ordering_operands(node)
            operands = encode(NATIVE_CALL, **head, **work, count=len(buffers), arrays=arrays)
        elif is_native(node) and all(step.outs):
            *batch_shape, n, k = node.operands[-1].aval.shape
            operands = encode(
                LAPACK_CALL,
                **head,
                **routines_of(node),
                each_chunk=EACH_CHUNK[n * n * k >= MIN_SHARED_WORK],
                count=math.prod(batch_shape),
                rows=n,
                columns=k,
                **flags_of(node),
                num_arrays=len(buffers),
                arrays=arrays,
            )
        else:
            name, operands = f"{STEP}call", encode(CALL, **head, count=len(buffers), arrays=arrays)
        return ProgramInstruction(name, operands, steps)

    # -- parts -------------------------------------------------------------------------------------------
    def _segment(self, first: int, last: int) -> ProgramInstruction:
        code_unit, segment = unit_of_segment(self.plan, first, last, self.optimize)
        values: dict[ValueName, EncodedOperand] = dict(segment.values)
        for buffer in ("arena", *segment.buffers):
            values |= zip(location_names(buffer), self._location(buffer))
        used = _functions_used(segment)
        values |= {name: name.field for name in values if name.field in used}
        return ProgramInstruction(code_unit, list(values.values()), range(first, last + 1))


def _functions_used(segment: PlanSegment) -> set[str]:
    """The functions that a part calls for the sizes of the plan; other functions are not loaded for it."""
    regions = [result for step in segment.steps for _, region in regions_of(step) for result in plans_of(region)]
    everything: list[PlanSegment | Plan] = [segment, *regions]
    steps = [step for result in everything for step in result.steps if isinstance(step, Launch | ScanStep)]
    names = {name.field for name in segment.values}
    used = names & {CALLBACK, "tg_poll"}
    if any(map(_runs_chunks, steps)):
        used |= {name for name in names if name.startswith("tg_")} - {EACH_CHUNK[1], THREADS}
    if any(isinstance(step, ScanStep) and step.blocking.depth > 1 for step in steps):
        used.add(THREADS)
    return used | {EACH_CHUNK[1]} if any(step.blocks.parallel for step in steps) else used


def _runs_chunks(step: Launch | ScanStep) -> bool:
    """Whether a step initializes accumulators, or runs tasks."""
    if isinstance(step, ScanStep):
        return step.blocking.strategy != WAVEFRONTS and step.blocks.number > 1
    return step.blocks.number > 1 or bool(step.fills)


def products_in_chunk(count: int, work: int) -> int:
    """The number of the `count` products of a batch, of `work` multiply-adds each, that a thread takes at a time.

    A product is one call of BLAS on any thread, so bits do not depend on the number. A few large products run one after
    the other, because the routine itself uses threads (`tracegrad.runtime.blas.library`), except inside a thread of the
    pool.
    """
    if count * work < MIN_SHARED_WORK or (count < MAX_THREADED_PRODUCTS and work >= MIN_THREADED_PRODUCT):
        return max(count, 1)
    return -(-MIN_SHARED_WORK // (MIN_SHARES * work))


def _combiner(step: Launch, buffer: str) -> str:
    """The combiner and the dtype of a kernel's reduction into a buffer."""
    reductions = [x for x in step.kernel.body if isinstance(x, Reduce) and x.buffer == buffer]
    return f"{reductions[0].combiner}.{reductions[0].value.dtype}"
