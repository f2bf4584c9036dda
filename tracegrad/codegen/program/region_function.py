"""Assemble the LLVM module of a part of a plan: its region functions and the kernels that they call.

The part is an instruction function (`tracegrad.codegen.program.interpreter`). A region has the same signature. A kernel
with little work for the sizes of the call is called directly. A longer one runs in chunks (`parallel_kernel.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracegrad import llvmir as ir
from tracegrad.codegen.instr.address import PolyEmitter
from tracegrad.codegen.instr.scalar import I64, constant_of, identity, llvm_type, memory_type
from tracegrad.codegen.instr.support import EACH_CHUNK, INSTRUCTION_TYPE, TASK, loop, signature
from tracegrad.codegen.kernels.early_exit import searching
from tracegrad.codegen.kernels.loop_order import is_serial
from tracegrad.codegen.kernels.parallel_kernel import PartialResult, each_chunk, fork_function
from tracegrad.codegen.kernels.scalar_kernel import declared_kernel, kernel_function
from tracegrad.codegen.kernels.transpose_tiling import tiles_of
from tracegrad.codegen.kernels.vectorize import vectors_of
from tracegrad.codegen.libs.random_streams import write_draw
from tracegrad.codegen.loopir.blocking import STRIPS, WAVEFRONTS
from tracegrad.codegen.loopir.kernel import BoundsCheck, Kernel, Reduce, flattened
from tracegrad.codegen.loopir.steps import CallStep, Launch, Matmul
from tracegrad.codegen.plan.places_and_values import (
    InputPlace,
    OutputPlace,
    StackPlace,
    ValueName,
    location_names,
    offset_name,
)
from tracegrad.codegen.plan.program_plan import Plan, PlanStep
from tracegrad.codegen.plan.region_steps import Nested, ScanStep
from tracegrad.codegen.program.regions import run_nested
from tracegrad.codegen.vecmath.cold_paths import share_rare_functions
from tracegrad.utils.lazy_dataclass import record

if TYPE_CHECKING:
    from tracegrad.codegen.loopir.polynomial import Poly
    from tracegrad.llvmir.module import IRFunction


I8, I32 = ir.IntType(8), ir.IntType(32)
POINTER = I8.as_pointer()


@record(eq=False)
class PlanSegment:
    """Consecutive steps of a plan from number `first` on, with their buffers and run-time values. `own_kernels` are the
    kernels of the part and its regions that are not separate compilation units."""

    first: int
    steps: list[PlanStep]
    buffers: list[str]
    values: dict[ValueName, int]
    own_kernels: list[Kernel]


def has_llvm_loops(kernel: Kernel) -> bool:
    """Whether LLVM may vectorize or unroll loops of a kernel: not if it is already vectorized, has no loops, or its
    only loop is serial."""
    if len(kernel.loops) < 2 and (not kernel.loops or is_serial(kernel)):
        return False
    result, _ = searching(kernel, vectors_of(kernel))
    return result is None and tiles_of(kernel) is None


def define_segment(segment: PlanSegment, module: ir.IRModule, name: str) -> None:
    """Define `segment` in `module` as a function of this name. A module has only one part."""
    _FunctionBodyEmitter(segment, _SharedFunctions(module, not any(map(has_llvm_loops, segment.own_kernels))), name)


def unit_module(name: str) -> ir.IRModule:
    """A module for compilation units; cold paths are in separate modules."""
    module = ir.IRModule(name)
    share_rare_functions(module)
    return module


class _SharedFunctions:
    """The functions that a part shares: kernels, tasks, and region functions by their text. With `inlines`, they and
    kernels without loops are marked for inlining, because no other pass inlines them."""

    def __init__(self, module: ir.IRModule, inlines: bool) -> None:
        self.module, self.inlines = module, inlines
        self.kernels: dict[str, ir.IRFunction] = {}
        self.forks: dict[ir.IRFunction, ir.IRFunction] = {}
        self.regions: dict[tuple[str, bool], ir.IRFunction] = {}
        self.poll: ir.IRFunction | None = None

    def kernel(self, signature: str, kernel: Kernel) -> ir.IRFunction:
        """The function of a kernel of this module."""
        if signature not in self.kernels:
            self.kernels[signature] = kernel_function(self.module, kernel, f"kernel{len(self.kernels)}")
            if self.inlines and not kernel.loops:
                self.kernels[signature].attributes.add("alwaysinline")
        return self.kernels[signature]


class _RuntimeValues(dict[str | ValueName, Any]):
    """The run-time values of a function; each is loaded at its first use. Symbols and functions are looked up by their
    field."""

    def __init__(self, program: _FunctionBodyEmitter):
        self.program = program

    def __missing__(self, name: str | ValueName) -> Any:
        self[name] = self.program.load_value(name if isinstance(name, ValueName) else ValueName(name))
        return self[name]


class _FunctionBodyEmitter:
    """Emitter of the function of a part or region; with `strip`, for rows [low, high) of a region."""

    strip: tuple[ir.IRValue, ...] = ()
    iterations: tuple[ir.IRValue, ...] = ()

    def __init__(self, plan: Plan | PlanSegment, shared: _SharedFunctions, name: str, strip: bool = False):
        self.plan, self.shared, self.module = plan, shared, shared.module
        signature = ir.FunctionType(I32, [*INSTRUCTION_TYPE.args, *[I64, I64] * strip])
        self.run = ir.IRFunction(self.module, signature, name)
        self.nested = isinstance(plan, Plan)
        self.b = ir.IRBuilder(self.run.append_basic_block("entry"))
        self.values, pointers, *rows = self.run.args
        self.strip = tuple(rows)
        self.value_index = {name: i for i, name in enumerate(plan.values)}
        self.env: dict[str | ValueName, Any] = _RuntimeValues(self)
        self.pointers = self._buffers(pointers)
        self.polys = PolyEmitter(self.env)
        self.status = self.b.alloca(I32)
        self.b.store(ir.IRConstant(I32, 0), self.status)
        for i, step in enumerate(plan.steps, 0 if isinstance(plan, Plan) else plan.first):
            match step:
                case Launch():
                    self._launch(i, step)
                    if any(isinstance(x, BoundsCheck) for x in flattened(step.kernel.body)):
                        self.return_if_failed(self.b.load(self.status))  # before a checked index is used as an address
                case Matmul():
                    self._matmul(step)
                case CallStep():
                    self._call(step)
                case Nested():
                    run_nested(self, i, step)
        self.b.ret(self.b.load(self.status))

    def load_value(self, name: ValueName) -> ir.IRValue:
        """A run-time value, loaded in the entry block."""
        with self.b.goto_entry_block():
            value = self.b.load(self.b.gep(self.values, [ir.IRConstant(I64, self.value_index[name])]))
        if self.nested:  # so that a loop loads it once
            value.set_metadata("invariant.load", self.module.add_metadata([]))
        return value

    def _buffers(self, pointers: ir.IRValue) -> dict[str, Any]:
        if isinstance(self.plan, PlanSegment):
            self.arena = self._buffer_address("arena", pointers)
            return {name: self._buffer_address(name, pointers) for name in self.plan.buffers}
        inputs, outputs = len(self.plan.graph.inputs), len(self.plan.graph.outputs)
        arena = self.b.load(self.b.gep(pointers, [ir.IRConstant(I64, inputs + outputs)]))
        table: dict[str, Any] = {}
        for name, place in self.plan.memory.items():
            match place:
                case InputPlace() | OutputPlace():
                    position = ir.IRConstant(I64, place.pointer(inputs))
                    table[name] = self.b.load(self.b.gep(pointers, [position]))
                case StackPlace():
                    table[name] = self.stack(place.bytes)
                case _:
                    table[name] = self.b.gep(arena, [self.env[offset_name(name)]])
        self.arena = arena
        return table

    def _buffer_address(self, name: str, pointers: ir.IRValue) -> ir.IRValue:
        index, offset = (self.env[each] for each in location_names(name))
        return self.b.gep(self.b.load(self.b.gep(pointers, [index])), [offset])

    def stack(self, size: int) -> Any:
        """Stack memory of `size` bytes, allocated in the entry block."""
        with self.b.goto_entry_block():
            return self.b.bitcast(self.b.alloca(ir.ArrayType(I8, max(size, 1)), align=16), POINTER)

    def region(self, plan: Plan, strip: bool = False) -> ir.IRFunction:
        """The function of a region; with `strip`, or inside one, for some of its rows."""
        strip = strip or bool(self.strip)
        key = (plan.text(), strip)
        if key not in self.shared.regions:
            function = _FunctionBodyEmitter(plan, self.shared, self.module.get_unique_name("region"), strip).run
            function.linkage = "internal"
            if self.shared.inlines:
                function.attributes.add("alwaysinline")
            self.shared.regions[key] = function
        return self.shared.regions[key]

    def poll_function(self) -> ir.IRFunction:
        """The safepoint function, `i32 look(i64 address)`; it does nothing if the address is 0."""
        if self.shared.poll is None:
            self.shared.poll = poll = ir.IRFunction(self.module, ir.FunctionType(I32, [I64]), "look")
            poll.linkage = "internal"
            for attribute in (
                "cold",
                "noinline",
                "nounwind",
                "inaccessiblememonly",
            ):  # no memory of the loop
                poll.attributes.add(attribute)
            b = ir.IRBuilder(poll.append_basic_block("entry"))
            with b.if_then(b.icmp_unsigned("==", poll.args[0], ir.IRConstant(I64, 0))):
                b.ret(ir.IRConstant(I32, 0))
            b.ret(b.call(b.inttoptr(poll.args[0], ir.FunctionType(I32, []).as_pointer()), []))
        return self.shared.poll

    def region_operands(self, step: int, region: str) -> ir.IRValue:
        """The run-time values of a region of a step: a pointer to its block."""
        first = next((i for name, i in self.value_index.items() if name.regions[:1] == ((step, region),)), 0)
        return self.b.gep(self.values, [ir.IRConstant(I64, first)])

    # -- kernels -------------------------------------------------------------------------------------
    def _launch(self, i: int, step: Launch) -> None:
        kernel = step.kernel
        for fill in step.fills:
            self._fill(*fill)
        if step.copies:
            (out,) = step.writes
            self.b.memcpy(self.pointers[out], self.pointers[step.base], self.polys.emit(self.b, step.bytes))
        signature, names = kernel.signature()
        is_separate = step.is_separate_function and not self.strip
        in_wavefronts = isinstance(self.plan, Plan) and self.plan.blocking.strategy == WAVEFRONTS
        is_declared = is_separate or (
            step.is_separate_function and in_wavefronts
        )  # shared iterations call the same function
        function = declared_kernel(self.module, kernel) if is_declared else self.shared.kernel(signature, kernel)
        constants = kernel.constants()
        args = [self._argument(n, kernel, constants) for n in names]
        rows = self.polys.emit(self.b, kernel.loops[kernel.chunked].extent) if kernel.loops else ir.IRConstant(I64, 1)
        zero = ir.IRConstant(I64, 0)
        if not is_separate:
            whole = not self.strip or step.serial or all(loop.extent.value is not None for loop in kernel.loops)
            self.b.call(function, [*args, self.status, *((zero, rows) if whole else self.strip)])
            return
        once = self.b.icmp_signed("<=", self.env[ValueName("chunks", i)], ir.IRConstant(I64, 1))
        with self.b.if_else(once) as (then, otherwise):
            with then:
                self.b.call(function, [*args, self.status, zero, rows])
            with otherwise:
                self._forked(i, step, function, dict(zip(names, args)), rows)

    def _argument(self, name: str, kernel: Kernel, constants: dict[str, str]) -> ir.IRValue:
        if name in kernel.buffers:
            return self._typed(self.pointers[name], kernel.buffers[name][0])
        return constant_of(self.b, self.env[name], constants[name]) if name in constants else self.env[name]

    def _typed(self, pointer: ir.IRValue, dtype: str) -> ir.IRValue:
        return self.b.bitcast(pointer, memory_type(dtype).as_pointer())

    def _forked(
        self, i: int, step: Launch, function: ir.IRFunction, args: dict[str, ir.IRValue], rows: ir.IRValue
    ) -> None:
        """Run a kernel in chunks."""
        reductions = {x.buffer: x for x in step.kernel.body if isinstance(x, Reduce)}
        positions = {name: k for k, name in enumerate(args)}
        partials = [
            PartialResult(positions[b], f"tg_combine.{reductions[b].combiner}.{reductions[b].value.dtype}")
            for b in step.partials
        ]
        forks = self.shared.forks
        if function not in forks:
            forks[function] = fork_function(self.module, function, partials)
        step_operands = self.b.gep(self.values, [ir.IRConstant(I64, self.value_index[ValueName("rows", i)])])
        functions = [self.env[name] for name in (*EACH_CHUNK, *(p.combiner for p in partials))]
        sizes = [self.polys.emit(self.b, size) for size in step.partials.values()]
        self.b.call(forks[function], [*args.values(), self.status, rows, step_operands, self.arena, *functions, *sizes])

    def _fill(self, buffer: str, dtype: str, combiner: str, size: Poly) -> None:
        start = identity(combiner, dtype)
        start = ir.IRConstant(I8, start.constant) if dtype == "bool" else start
        pointer = self._typed(self.pointers[buffer], dtype)
        self.b.call(self._support(f"tg_fill.{dtype}"), [pointer, start, self.polys.emit(self.b, size)])

    def _support(self, name: str) -> ir.IRValue:
        """A function whose address is a run-time value, so that only shapes that need it load it."""
        return self.b.inttoptr(self.env[name], signature(name).as_pointer())

    def _external(self, name: str, signature: ir.FunctionType) -> IRFunction:
        return self.module.declared(name, signature)

    # -- contractions ----------------------------------------------------------------------------------
    def _matmul(self, step: Matmul) -> None:
        """Row-major C = A B is column-major C' = B' A'; BLAS's Fortran interface takes everything by address."""
        t = llvm_type(step.dtype)
        batch, m, n, k = (self.polys.emit(self.b, p) for p in step.sizes)
        out, x, y = (self._typed(self.pointers[b], step.dtype) for b in (step.out, step.x[0], step.y[0]))
        x_flipped, y_flipped = step.x[1], step.y[1]
        alpha, beta = (self._slot(ir.IRConstant(t, float(x))) for x in (step.adds or 1, abs(step.adds)))
        layouts = [
            [self.polys.emit(self.b, p) for p in (layout.leading, layout.outer, layout.inner)]
            for layout in step.strides
        ]
        x_layout, y_layout, out_layout = layouts
        integers = [n, m, k, y_layout[0], x_layout[0], out_layout[0]]
        n32, m32, k32, ldy, ldx, ldc = (
            self._slot(self.b.trunc(self._at_least_one(v, at), I32)) for at, v in enumerate(integers)
        )
        letters = [self._slot(ir.IRConstant(I8, ord("T" if flipped else "N"))) for flipped in (y_flipped, x_flipped)]
        pointer, integer = t.as_pointer(), I32.as_pointer()
        matrices = [pointer, pointer, integer, pointer, integer, pointer, pointer, integer]
        gemm_type = ir.FunctionType(ir.VoidType(), [POINTER, POINTER, *[integer] * 3, *matrices])
        gemm = self._external(step.routine, gemm_type)
        within = self.polys.emit(self.b, step.within)

        def at(start: ir.IRValue, layout: list[ir.IRValue], run: ir.IRValue, i: ir.IRValue) -> ir.IRValue:
            offset = self.b.mul(run, layout[1])
            return self.b.gep(start, [offset if step.within == 1 else self.b.add(offset, self.b.mul(i, layout[2]))])

        def one_matrix(run: ir.IRValue, i: ir.IRValue) -> None:
            a, b, c = (at(start, layout, run, i) for start, layout in ((y, y_layout), (x, x_layout), (out, out_layout)))
            self.b.call(gemm, [*letters, n32, m32, k32, alpha, a, ldy, b, ldx, beta, c, ldc])

        zero = ir.IRConstant(I64, 0)
        if step.sizes[0] == 1:
            one_matrix(zero, zero)
        elif step.within == 1:
            loop(self.b, batch, lambda i: one_matrix(i, zero))
        else:
            loop(self.b, batch, lambda i: one_matrix(self.b.sdiv(i, within), self.b.srem(i, within)))

    def _at_least_one(self, value: ir.IRValue, position: int) -> ir.IRValue:
        """Leading dimensions are at least 1, also of empty matrices."""
        if position < 3:
            return value
        return self.b.select(self.b.icmp_signed("<", value, ir.IRConstant(I64, 1)), ir.IRConstant(I64, 1), value)

    def _slot(self, value: ir.IRValue) -> ir.IRValue:
        with self.b.goto_entry_block():
            slot = self.b.alloca(value.type)
        self.b.store(value, slot)
        return slot

    # -- calls of NumPy ----------------------------------------------------------------------------------
    def _call(self, step: CallStep) -> None:
        """Emit a compiled random draw, or a call of NumPy."""
        native = step.native
        if native is None:
            self._call_numpy(step)
            return
        outs = [self.pointers[name] if name else None for name in step.outs]
        write_draw(self.b, native, self.pointers[step.operands[0]], outs, lambda: self._call_numpy(step))

    def _call_numpy(self, step: CallStep) -> None:
        """Emit `i32 callback(i64 number, void **pointers)`, with pointers to the operands and the used results."""
        names = [*step.operands, *filter(None, step.outs)]
        array = ir.ArrayType(POINTER, len(names))
        with self.b.goto_entry_block():
            slots = self.b.alloca(array)
        for k, name in enumerate(names):
            self.b.store(self.pointers[name], self.b.gep(slots, [ir.IRConstant(I32, 0), ir.IRConstant(I32, k)]))
        signature = ir.FunctionType(I32, [I64, POINTER.as_pointer()])
        callback = self.b.inttoptr(self.env["callback"], signature.as_pointer())
        first = self.b.gep(slots, [ir.IRConstant(I32, 0), ir.IRConstant(I32, 0)])
        number: ir.IRValue = ir.IRConstant(I64, step.number)
        number = self.b.add(number, self.env["calls"]) if self.nested else number
        self.return_if_failed(self.b.call(callback, [number, first]))

    def return_if_failed(self, status: ir.IRValue) -> None:
        """Return `status` unless it is 0."""
        failed = self.b.icmp_signed("!=", status, ir.IRConstant(I32, 0))
        with self.b.if_then(failed, likely=False):
            self.b.ret(status)

    # -- loops that threads share ----------------------------------------------------------------------------
    def shared_out(self, i: int, step: ScanStep) -> None:
        """Run the strips, or shares of iterations, of step `i` serially, or on threads."""
        names = list(dict.fromkeys(step.buffers))
        free = self._slot(ir.IRConstant(I64, -1))
        fields = [self.values, self.status, self.arena, free, *(self.pointers[name] for name in names)]
        with self.b.goto_entry_block():
            context = self.b.alloca(ir.ArrayType(POINTER, len(fields)))
        for k, x in enumerate(fields):
            self.b.store(
                self.b.bitcast(x, POINTER), self.b.gep(context, [ir.IRConstant(I32, 0), ir.IRConstant(I32, k)])
            )
        task = _SharedLoopTask(self, i, step, names).run
        _, _, count = step.blocking.value_names
        opaque, shares = self.b.bitcast(context, POINTER), self.env[ValueName(count, i)]
        with self.b.if_else(self.b.icmp_signed("<=", shares, ir.IRConstant(I64, 1))) as (then, otherwise):
            with then:
                self.b.call(task, [opaque, ir.IRConstant(I64, 0)])
            with otherwise:
                in_iteration, shared, threaded = (self.env[name] for name in (*EACH_CHUNK, ValueName("parallel", i)))
                each_chunk(self.b, in_iteration, shared, threaded, (task, opaque, shares))
        self.return_if_failed(self.b.load(self.status))


class _SharedLoopTask(_FunctionBodyEmitter):
    """The task of a loop that threads share: all iterations on one strip, or one share of the iterations.

    Iterations have temporaries. There is one block of memory per share, and a bitmask of free blocks. A task takes the
    first free block, so that few blocks are reused if there are few threads.
    """

    def __init__(self, outer: _FunctionBodyEmitter, i: int, step: ScanStep, names: list[str]):
        self.plan, self.shared, self.module, self.nested = outer.plan, outer.shared, outer.module, True
        self.run = ir.IRFunction(self.module, TASK, self.module.get_unique_name("share"))
        self.run.linkage = "internal"
        self.b = ir.IRBuilder(self.run.append_basic_block("entry"))
        context, number = self.run.args
        context = self.b.bitcast(context, POINTER.as_pointer())
        fields = [self.b.load(self.b.gep(context, [ir.IRConstant(I64, k)])) for k in range(4 + len(names))]
        values, status, self.arena, free, *pointers = fields
        self.values, self.status = self.b.bitcast(values, I64.as_pointer()), self.b.bitcast(status, I32.as_pointer())
        self.pointers = dict(zip(names, pointers))
        self.value_index = outer.value_index
        self.env: dict[str | ValueName, Any] = _RuntimeValues(self)
        self.polys = PolyEmitter(self.env)
        extent, size, _ = step.blocking.value_names
        each, whole = (self.env[ValueName(name, i)] for name in (size, extent))
        low = self.b.mul(number, each)
        high = self.b.add(low, each)
        bounds = (low, self.b.select(self.b.icmp_signed("<", high, whole), high, whole))
        if step.blocking.strategy == STRIPS:
            self.strip = bounds
            run_nested(self, i, step)
        else:
            self._return_if_others_failed()
            bit = self._acquire_block(self.b.bitcast(free, I64.as_pointer()))
            self.iterations = (
                *bounds,
                self.b.mul(self.b.cttz(bit, ir.IRConstant(ir.IntType(1), 1)), self.env[ValueName("room", i)]),
            )
            run_nested(self, i, step)
            self.b.atomic_rmw("or", self.b.bitcast(free, I64.as_pointer()), bit, "release")
        self.b.ret_void()

    def _return_if_others_failed(self) -> None:
        status = self.b.load_atomic(self.status, "monotonic", 4)
        with self.b.if_then(self.b.icmp_signed("!=", status, ir.IRConstant(I32, 0)), likely=False):
            self.b.ret_void()

    def _acquire_block(self, free: ir.IRValue) -> ir.IRValue:
        """Take the first free block; returns its bit. A failing task does not free it: there are enough blocks."""
        before, attempt, acquired = (
            self.b.block,
            self.b.append_basic_block("attempt"),
            self.b.append_basic_block("taken"),
        )
        initial = self.b.load_atomic(free, "monotonic", 8)
        self.b.branch(attempt)
        self.b.position_at_end(attempt)
        free_bits = self.b.merge((initial, before))
        rest = self.b.and_(free_bits, self.b.sub(free_bits, ir.IRConstant(I64, 1)))
        result = self.b.cmpxchg(free, free_bits, rest, "acquire", "monotonic")
        free_bits.add_incoming(self.b.extract_value(result, 0), attempt)
        self.b.cbranch(self.b.extract_value(result, 1), acquired, attempt)
        self.b.position_at_end(acquired)
        return self.b.xor(free_bits, rest)

    def return_if_failed(self, status: ir.IRValue) -> None:
        failed = self.b.icmp_signed("!=", status, ir.IRConstant(I32, 0))
        with self.b.if_then(failed, likely=False):
            self.b.store(status, self.status)
            self.b.ret_void()
