"""Generate the LLVM function of a kernel of the loop IR.

    void kernel(buffers, sizes and constants in order of first use, i32 *status, i64 low, i64 high)

The function runs iterations [low, high) of the chunked loop, which is the outermost unless the kernel says otherwise.
The innermost loop is emitted as vectors (`vectorize.py`, `vector_kernel.py`), or as a plain loop that LLVM's vectorizer
may vectorize. That works because buffers do not alias and only `guard` branches. A reduction over the innermost loops
accumulates in a register, a reduction over outer loops in memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from tracegrad import llvmir as ir
from tracegrad.codegen.instr.address import PolyEmitter
from tracegrad.codegen.instr.scalar import (
    BOOL,
    I64,
    combine,
    constant,
    extremum,
    first,
    identity,
    is_extremum,
    llvm_type,
    memory_type,
    reduction_result,
    registers,
)
from tracegrad.codegen.instr.support import fill
from tracegrad.codegen.kernels.bound_tightening import clip_of, row_mask_of
from tracegrad.codegen.kernels.carried_totals import begin_loop, end_iteration, join
from tracegrad.codegen.kernels.conflict_blocking import in_conflict_blocks, strides_across
from tracegrad.codegen.kernels.early_exit import LaneCount, LaneSearch, searching
from tracegrad.codegen.kernels.fma import computed, factors_of, products_of
from tracegrad.codegen.kernels.interior_split import LoopSegment, holds, loop_segments
from tracegrad.codegen.kernels.loop_order import is_serial
from tracegrad.codegen.kernels.multi_row_vectors import multi_row_loop
from tracegrad.codegen.kernels.scalar_replacement import carried_of
from tracegrad.codegen.kernels.search_kernel import emit_innermost_loop
from tracegrad.codegen.kernels.transpose_tiling import in_tiles, tiles_of
from tracegrad.codegen.kernels.unroll_and_jam import unroll_and_jam_of
from tracegrad.codegen.kernels.vectorize import LIGHTEST, is_across, vectors_of
from tracegrad.codegen.loopir.kernel import (
    FIRST,
    BoundsCheck,
    Compute,
    GuardBlock,
    Index,
    Kernel,
    Load,
    Operand,
    Reduce,
    Store,
)
from tracegrad.codegen.loopir.polynomial import Poly
from tracegrad.target.tuning import TUNING

if TYPE_CHECKING:
    from tracegrad.llvmir.module import Metadata


I32 = ir.IntType(32)
STACK_ALIGNMENT = TUNING.memory.stack_alignment


def kernel_function(module: ir.IRModule, kernel: Kernel, name: str) -> ir.IRFunction:
    """Define `kernel` in `module`."""
    return KernelEmitter(module, kernel, name).function


def kernel_symbol(text: str) -> str:
    """The symbol of a kernel with this text (see `Kernel.signature`), under which other modules call it."""
    return f"kernel.{hashlib.sha256(text.encode()).hexdigest()[:24]}"


def declared_kernel(module: ir.IRModule, kernel: Kernel) -> ir.IRFunction:
    """Declare the function of a kernel that another module defines."""
    text, names = kernel.signature()
    symbol = kernel_symbol(text)
    return module.declared(symbol, _type(kernel, names))


def _type(kernel: Kernel, names: list[str]) -> ir.FunctionType:
    constants = kernel.constants()

    def parameter(name: str) -> ir.IRType:
        if name in kernel.buffers:
            return memory_type(kernel.buffers[name][0]).as_pointer()
        return llvm_type(constants[name]) if name in constants else I64

    return ir.FunctionType(ir.VoidType(), [*map(parameter, names), I32.as_pointer(), I64, I64])


class _OuterLoop(NamedTuple):
    """The loop around the innermost one, while its body is emitted: its bounds, blocks, and running pointers."""

    var: str
    low: ir.IRValue
    copies: int
    before: ir.BasicBlock
    head: ir.BasicBlock
    pointers: list[tuple[ir.Phi, ir.IRValue]]  # with their increments per iteration


class KernelEmitter:
    """Emitter of the loops of one kernel."""

    def __init__(self, module: ir.IRModule, kernel: Kernel, name: str):
        self.kernel = kernel
        _, names = kernel.signature()
        self.function = ir.IRFunction(module, _type(kernel, names), name)
        self.function.linkage = "internal"
        self.function.attributes.add("nounwind")
        self.function.attributes.add(f"alignstack({STACK_ALIGNMENT})")
        args = list(self.function.args)
        options = dict(zip(names, args))
        self.pointers = {b: options[b] for b in kernel.buffers}
        for pointer in self.pointers.values():
            pointer.add_attribute("noalias")
        self.b = ir.IRBuilder(self.function.append_basic_block("entry"))
        self.env: dict[str, ir.IRValue] = options
        self.status, self.low, self.high = args[-3:]
        self.polys = PolyEmitter(self.env)
        self.reductions = [x for x in kernel.body if isinstance(x, Reduce)]
        self.products = {} if "fma-contraction" in kernel.disabled else products_of(kernel.body)
        self.serial = is_serial(kernel)
        self.vectors, self.search = searching(kernel, vectors_of(kernel))
        self._depth = {id(x): self._register_depth(x) for x in self.reductions}
        self.carried = carried_of(kernel) if self.vectors is None else {}
        self.totals: dict[int, list[Any]] = {}
        self.copies: list[Any] = []
        self._copy = 0
        self.segment: LoopSegment | None = None  # of a plain innermost loop
        self._outer_loop: _OuterLoop | None = None
        self.unroll_and_jam = (
            None if self.search is not None else unroll_and_jam_of(kernel, self.vectors, list(self._depth.values()))
        )
        self.mask = row_mask_of(kernel)
        self._fill_memory()
        self._clip()
        self.tiles = tiles_of(kernel)
        self.before_loops = self.b.block
        self.block_bounds: tuple[ir.IRValue, ir.IRValue] | None = None
        strides = strides_across(kernel) if self.search is None and self.tiles is None else []
        if strides:
            stride_values = [self.polys.emit(self.b, stride) for stride in strides]
            in_conflict_blocks(self.b, self._bounds(len(kernel.loops) - 1)[1], stride_values, self._nest_in_block)
        else:
            self._nest(0)
        self.b.ret_void()

    def _nest_in_block(self, first: ir.IRValue, last: ir.IRValue) -> None:
        self.block_bounds, self.before_loops = (first, last), self.b.block
        self._nest(0)

    # -- loops -------------------------------------------------------------------------------------
    def _register_depth(self, x: Reduce) -> int:
        """The depth from which all inner loops are reduced over: the register is initialized there."""
        depth = len(self.kernel.loops)
        if x.scatters:
            return depth
        while depth and self.kernel.loops[depth - 1].var in x.over:
            depth -= 1
        return depth

    def in_memory(self, x: Reduce) -> bool:
        """Whether the reduction accumulates in memory."""
        if x.scatters:
            return True
        return any(loop.var in x.over for loop in self.kernel.loops[: self._depth[id(x)]]) or (
            self._depth[id(x)] == len(self.kernel.loops) and bool(x.over)
        )

    def _fill_memory(self) -> None:
        """Initialize the memory accumulators that belong to this chunk alone. The program initializes the others."""
        for x in self.reductions:
            per_chunk = self.kernel.across_chunks in x.over
            if x.scatters or (self.in_memory(x) and per_chunk):
                start = self.stored(identity(x.combiner, x.value.dtype), x.value.dtype)
                fill(self.b, x.value.dtype, self.pointers[x.buffer], start, self.polys.emit(self.b, x.size))

    def _clip(self) -> None:
        """Skip the iterations without an effect (bound tightening)."""
        if (clip := clip_of(self.kernel)) is None:
            return
        self.block(clip.instructions)
        bound = self._value(clip.bound)
        if clip.op in ("gt", "le"):
            # The greatest integer has no successor, and no index beyond it.
            greatest = ir.IRConstant(I64, 2**63 - 1)
            next_one = self.b.add(bound, ir.IRConstant(I64, 1))
            bound = self.b.select(self.b.icmp_signed("==", bound, greatest), greatest, next_one)
        if clip.op in ("lt", "le"):
            self.high = self.b.select(self.b.icmp_signed("<", bound, self.high), bound, self.high)
        else:
            self.low = self.b.select(self.b.icmp_signed(">", bound, self.low), bound, self.low)

    def _nest(self, depth: int) -> None:
        starting = [x for x in self.reductions if self._depth[id(x)] == depth and x.over]
        for x in starting:
            self.totals[id(x)] = self.identities(x) * max(len(self.copies), 1)
        if depth == len(self.kernel.loops):
            self._emit_body()
        elif self.vectors is not None and self.vectors.rows and depth == len(self.kernel.loops) - 2:
            multi_row_loop(self, self.vectors, *self._bounds(depth))
        elif self.tiles is not None and depth == len(self.kernel.loops) - 2:
            tiles, self.tiles = self.tiles, None
            with self.b.if_then(self.b.not_(in_tiles(self, tiles, self._bounds(depth), self._bounds(depth + 1)))):
                self._loop(depth, None, 1)
        elif depth == len(self.kernel.loops) - 1:
            self._innermost_loop(depth)
        elif self.unroll_and_jam is not None and depth == len(self.kernel.loops) - 2:
            self._loop(depth, self._loop(depth, None, self.unroll_and_jam.copies), 1)
        else:
            self._loop(depth, None, 1)
        for x in starting:
            self._finish(x)

    def _innermost_loop(self, depth: int) -> None:
        """Emit the innermost loop, guarded by the mask of its row."""
        for x in [x for x in self.kernel.body if isinstance(x, GuardBlock) and id(x) in self.carried]:
            self.env[self.kernel.loops[depth].var] = self._bounds(depth)[0]
            self._guard(x)
            self.totals[id(self.carried[id(x)])] = [self._value(x.out)]
        write: Any = partial(self._plain, depth)
        if self.vectors is not None:
            write = partial(emit_innermost_loop, self, self.vectors, self.search, *self._bounds(depth))
        if self.mask is None:
            write()
            return
        masks: list[ir.IRValue] = []
        for _ in self._each_copy():
            self.block([self.mask])
            masks.append(self._value(self.mask.out))
        totals, before = dict(self.totals), self.b.block
        with self.b.if_then(reduce(self.b.or_, masks)):
            write()
            inside = self.b.block
        self.totals |= join(self.b, [(before, totals), (inside, self.totals)])

    def _plain(self, depth: int) -> None:
        """Emit the innermost loop as a scalar loop, which LLVM may vectorize."""
        emit = partial(self.polys.emit, self.b)
        for segment in loop_segments(self.b, emit, self.kernel, *self._bounds(depth)):
            self.segment = segment
            self._loop(depth, segment.low, 1, segment.high)
        self.segment = None

    def _emit_body(self) -> None:
        """Emit the body once for each copy of the unroll-and-jam loop."""
        for _ in self._each_copy():
            self.block(self.kernel.body)

    def _each_copy(self) -> Iterator[int]:
        """Iterate over the copies of the jammed loop, and set its variable for each copy."""
        for copy in range(max(len(self.copies), 1)):
            self._copy = copy
            if self.copies:
                self.env[self.kernel.loops[-2].var] = self.copies[copy]
            yield copy

    def _loop(self, depth: int, low: Any, copies: int, high: Any = None) -> ir.IRValue:
        """Emit one loop from `low` to `high` (its bounds, if None), `copies` iterations at a time; returns its final
        index."""
        loop = self.kernel.loops[depth]
        first, last = self._bounds(depth) if copies == 1 else self._jammed_bounds(depth)
        low, high = first if low is None else low, last if high is None else high
        running: list[Any] = [x for x in self.reductions if id(x) in self.totals and self._depth[id(x)] <= depth]
        running += [x for x in self.carried.values() if depth == len(self.kernel.loops) - 1]
        before = self.b.block
        head, inside, after = (self.function.append_basic_block(f"{n}.{loop.var}") for n in ("head", "inside", "after"))
        self.b.branch(head)
        self.b.position_at_end(head)
        i = self.b.merge((low, before))
        phis = begin_loop(self.b, {id(x): self.totals[id(x)] for x in running}, before)
        self.totals |= {key: list(values) for key, values in phis.items()}
        last = i if copies == 1 else self.b.add(i, ir.IRConstant(I64, copies - 1))
        self.b.cbranch(self.b.icmp_signed("<", last, high), inside, after)
        self.b.position_at_end(inside)
        self.env[loop.var] = i
        around = None
        if self.vectors is not None and depth == len(self.kernel.loops) - 2:
            around = self._outer_loop = _OuterLoop(loop.var, low, copies, before, head, [])
        if copies > 1:
            self.copies = [self.b.add(i, ir.IRConstant(I64, k)) for k in range(copies)]
        self._nest(depth + 1)
        if copies > 1:
            self.copies = []
        i.add_incoming(self.b.add(i, ir.IRConstant(I64, copies), flags=("nsw", "nuw")), self.b.block)
        for pointer, increment in around.pointers if around else ():
            pointer.add_incoming(self.b.gep(pointer, [increment]), self.b.block)
        end_iteration(self.b, phis, self.totals)
        self.totals |= {key: list(values) for key, values in phis.items()}
        back = self.b.branch(head)
        if loop.extent.value is None:
            back.set_metadata("llvm.loop", self._loop_hints(depth))
        self.b.position_at_end(after)
        return i

    def running_pointer(self, buffer: str, address: Poly) -> ir.IRValue | None:
        """A running pointer to the `address` of the first copy, incremented with the surrounding loop; None if
        impossible."""
        around = self._outer_loop
        if around is None:
            return None
        stride, rest = address.coefficient(around.var), address.without(around.var)
        outside = {loop.var for loop in self.kernel.loops[:-2]}
        if any(s[0] not in "sk" and s not in outside for s in stride.symbols | rest.symbols):
            return None
        with self.b.goto_block(around.before):
            at = self.polys.emit(self.b, rest)
            if stride == 0:
                return self.b.gep(self.pointers[buffer], [at])
            by = self.polys.emit(self.b, stride)
            start = self.b.gep(self.pointers[buffer], [self.b.add(at, self.b.mul(by, around.low))])
            by = self.b.mul(by, I64(around.copies))
        with self.b.goto_block(around.head):
            pointer = self.b.merge((start, around.before))
        around.pointers.append((pointer, by))
        return pointer

    def _bounds(self, depth: int) -> tuple[Any, Any]:
        """The first index of a loop and its end; they do not depend on the surrounding loops."""
        if depth == self.kernel.chunked:
            return self.low, self.high
        if self.block_bounds is not None and depth == len(self.kernel.loops) - 1:
            return self.block_bounds
        with self.b.goto_block(self.before_loops):
            return ir.IRConstant(I64, 0), self.polys.emit(self.b, self.kernel.loops[depth].extent)

    def _jammed_bounds(self, depth: int) -> tuple[ir.IRValue, ir.IRValue]:
        """The bounds of the jammed loop, empty if its iterations are long and only wait for additions. Several distant
        memory streams are slower than one, and a long iteration hides the latency of its last addition."""
        first, high = self._bounds(depth)
        if self.unroll_and_jam is None or not self.unroll_and_jam.brief:
            return first, high
        _, size = self._bounds(depth + 1)
        with self.b.goto_block(self.before_loops):
            is_long = self.b.icmp_signed(">", size, ir.IRConstant(I64, self.unroll_and_jam.brief))
            return first, self.b.select(is_long, first, high)

    def _loop_hints(self, depth: int) -> Metadata:
        """Loop metadata: symbolic loops are vectorized but not unrolled as well, which saves compile time.

        Short bodies interleave several vectors, so that a reduction does not wait for its last addition.
        """
        module = self.b.module
        innermost = depth == len(self.kernel.loops) - 1
        if innermost and is_across(self.kernel):
            return module.loop_id([["llvm.loop.unroll.count", I32(8)], ["llvm.loop.vectorize.enable", BOOL(0)]])
        hints: list[list[str | ir.IRValue]] = [["llvm.loop.unroll.disable"]]
        if self.segment is not None and not self.segment.long:
            hints.append(["llvm.loop.vectorize.enable", BOOL(0)])
        elif innermost and self.kernel.cost <= LIGHTEST:
            hints.append(["llvm.loop.interleave.count", I32(4)])
        return module.loop_id(hints)

    # -- reductions ----------------------------------------------------------------------------------
    def identities(self, x: Reduce) -> list[ir.IRValue]:
        """The initial registers of a reduction: vectors, if the innermost loop is vectorized."""
        lanes = self.vectors.lanes if self.vectors and self._depth[id(x)] < len(self.kernel.loops) else 0
        return registers(x, 0 if isinstance(self.search, LaneCount | LaneSearch) else lanes)

    def _finish(self, x: Reduce) -> None:
        totals = self.totals.pop(id(x))
        if self._depth[id(x)] == len(self.kernel.loops):
            return
        for copy in self._each_copy():
            pointer = self._at(x.buffer, x.address)
            width = len(totals) // max(len(self.copies), 1)
            value = reduction_result(self.b, x, totals[width * copy : width * (copy + 1)])
            if self.in_memory(x):
                value = combine(self.b, x.combiner, self.loaded(pointer, x.value.dtype), value, x.value.dtype)
            self.b.store(self.stored(value, x.value.dtype), pointer)

    def _reduce(self, x: Reduce) -> None:
        value, dtype = self._value(x.value), x.value.dtype
        factors = factors_of(x, self._value, self.products)
        if not x.over and not x.scatters:
            self.b.store(self.stored(value, dtype), self._at(x.buffer, x.address))
        elif self._depth[id(x)] == len(self.kernel.loops):
            pointer = self._at(x.buffer, x.address)
            total = combine(self.b, x.combiner, self.loaded(pointer, dtype), value, dtype, factors)
            self.b.store(self.stored(total, dtype), pointer)
        else:
            totals, at = self.totals[id(x)], self._copy
            if x.combiner in FIRST:
                totals[:] = first(self.b, x, totals, value, self.env[self.kernel.loops[-1].var])
            elif is_extremum(x):
                totals[2 * at : 2 * at + 2] = extremum(self.b, x.combiner, totals[2 * at : 2 * at + 2], value)
            else:
                totals[at] = combine(self.b, x.combiner, totals[at], value, dtype, factors)

    # -- instructions ----------------------------------------------------------------------------------
    @contextmanager
    def within(self, env: dict[str, ir.IRValue]) -> Iterator[None]:
        """Use the names of `env` within the context."""
        outer = self.env
        self.env = self.polys.env = env
        yield
        self.env = self.polys.env = outer

    def block(self, body: Sequence[object]) -> None:
        """Emit instructions."""
        for x in body:
            match x:
                case Compute():
                    self._define(x.out, computed(self.b, x, self._value, self.products))
                case Load():
                    self._define(x.out, self.loaded(self._at(x.buffer, x.address), x.out.dtype))
                case Index():
                    self._define(x.out, self.polys.emit(self.b, x.value))
                case Store():
                    value = self._value(x.value)
                    self.b.store(self.stored(value, x.value.dtype), self._at(x.buffer, x.address))
                    self.totals[id(x)] = [value]
                case Reduce():
                    self._reduce(x)
                case BoundsCheck():
                    self._check(x)
                case GuardBlock() if id(x) in self.carried:
                    self._define(x.out, self.totals[id(self.carried[id(x)])][0])
                case GuardBlock():
                    self._guard(x)

    def _guard(self, x: GuardBlock) -> None:
        if self.segment is not None and id(x) in self.segment.known:
            known = self.segment.known[id(x)]
            self.block(x.body if known else [])
            self._define(x.out, self._value(x.result if known else x.fill))
            return
        inside = holds(self.b, partial(self.polys.emit, self.b), x)
        fill = self._value(x.fill)
        before = self.b.block
        then, after = self.function.append_basic_block("guarded"), self.function.append_basic_block("joined")
        self.b.cbranch(inside, then, after)
        self.b.position_at_end(then)
        outer = dict(self.env)
        self.block(x.body)
        result = self._value(x.result)
        end = self.b.block
        self.env.clear()
        self.env.update(outer)
        self.b.branch(after)
        self.b.position_at_end(after)
        self._define(x.out, self.b.merge((fill, before), (result, end)))

    def _check(self, x: BoundsCheck) -> None:
        value = self._value(x.value)
        if value.type.width < 64:
            value = self.b.sext(value, I64) if x.value.dtype[0] == "i" else self.b.zext(value, I64)
        size, zero = self.polys.emit(self.b, x.size), ir.IRConstant(I64, 0)
        wrapped = value
        if x.value.dtype[0] == "i":
            wrapped = self.b.select(self.b.icmp_signed("<", value, zero), self.b.add(value, size), value)
        good = self.b.icmp_unsigned("<", wrapped, size)
        bad_block, after = (self.function.append_basic_block(n) for n in ("bad", "checked"))
        self.b.cbranch(good, after, bad_block)
        self.b.position_at_end(bad_block)
        self.b.store(ir.IRConstant(I32, 1), self.status)
        self.b.ret_void()
        self.b.position_at_end(after)
        self._define(x.out, wrapped)

    def _define(self, out: Operand, value: ir.IRValue) -> None:
        self.env[out.name] = value

    def _value(self, x: Operand) -> Any:
        return self.env[x.name] if x.name else constant(x.value, x.dtype)

    def _at(self, buffer: str, address: Poly) -> ir.IRValue:
        return self.b.gep(self.pointers[buffer], [self.polys.emit(self.b, address)])

    def loaded(self, pointer: ir.IRValue, dtype: str) -> ir.IRValue:
        """Load the value at `pointer` into its register type."""
        if self.serial and dtype == "u16":
            # LLVM would load half precision into a part of a register, which waits for the previous iteration.
            return self.b.load_atomic(pointer, "unordered", 2)
        value = self.b.load(pointer)
        return self.b.trunc(value, BOOL) if dtype == "bool" else value

    def stored(self, value: ir.IRValue, dtype: str) -> ir.IRValue:
        """Convert `value` to its memory type."""
        return self.b.zext(value, memory_type("bool")) if dtype == "bool" else value
