"""Emit the control flow of scan, while and cond steps around calls of their region functions.

A region function, `i32 region(i64 *words, void **pointers)`, receives its run-time values, and pointers to its inputs,
outputs and arena. A result other than 0 ends the program. It usually has one call site and is inlined there. The
pointers and the carries on the stack then become registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tracegrad import llvmir as ir
from tracegrad.codegen.instr.scalar import I64
from tracegrad.codegen.instr.support import THREADS, loop, smaller
from tracegrad.codegen.loopir.blocking import SHARES, STRIPS, WAVEFRONTS
from tracegrad.codegen.loopir.polynomial import Poly
from tracegrad.codegen.plan.places_and_values import ValueName
from tracegrad.codegen.plan.region_steps import BranchStep, Looping, Nested, RegionBuffer, RunStep, ScanStep, WhileStep

if TYPE_CHECKING:
    from tracegrad.llvmir.module import BasicBlock


I8, I32 = ir.IntType(8), ir.IntType(32)
POINTER = I8.as_pointer()
ZERO, ONE = ir.IRConstant(I64, 0), ir.IRConstant(I64, 1)
CAPACITY = -1  # the call number that reports a loop with more iterations than its capacity


class FunctionEmitter(Protocol):
    """Interface of the function under construction: see `tracegrad.codegen.program.region_function`."""

    b: ir.IRBuilder
    env: dict[str | ValueName, Any]
    pointers: dict[str, Any]
    arena: Any
    polys: Any
    run: ir.IRFunction
    module: ir.IRModule
    nested: bool
    strip: tuple[ir.IRValue, ...]  # the rows [low, high) that it computes; () if all
    iterations: tuple[ir.IRValue, ...]  # the iterations [low, high) that it runs, and their arena; () if all

    def stack(self, size: int) -> ir.IRValue: ...
    def region(self, result: Any, strip: bool = False) -> ir.IRFunction: ...
    def region_operands(self, step: int, region: str) -> ir.IRValue: ...
    def return_if_failed(self, status: ir.IRValue) -> None: ...
    def poll_function(self) -> ir.IRFunction: ...
    def shared_out(self, i: int, step: ScanStep) -> None: ...


def run_nested(program: FunctionEmitter, i: int, step: Nested) -> None:
    """Emit step `i` of `program`."""
    match step:
        case ScanStep() if _is_shared(program, step):
            program.shared_out(i, step)
        case ScanStep() if step.blocking.strategy == WAVEFRONTS:
            _in_wavefronts(program, i, step)
        case ScanStep():
            _RepeatEmitter(program, i, step).emit()
        case WhileStep():
            _WhileEmitter(program, i, step).emit()
        case BranchStep():
            _BranchEmitter(program, i, step).emit()
        case RunStep():
            _OnceEmitter(program, i, step).emit()


def _is_shared(program: FunctionEmitter, step: ScanStep) -> bool:
    """Whether threads may share the strips or iterations of a loop; a small loop inside another one runs serially."""
    if program.strip or program.iterations:
        return False
    blocking = step.blocking
    return blocking.strategy == STRIPS or (
        blocking.strategy == SHARES and (blocking.symbolic_sizes or not program.nested)
    )


def _in_wavefronts(program: FunctionEmitter, i: int, step: ScanStep) -> None:
    """Emit a loop that runs in wavefronts if that is profitable and there is one thread; else by iterations."""
    b = program.b
    begin, query, decide = b.block, *(b.append_basic_block(f"{name}.{i}") for name in ("ask", "decide"))
    b.cbranch(b.icmp_signed(">", program.env[ValueName("depth", i)], ONE), query, decide)
    b.position_at_end(query)
    threads = b.call(b.inttoptr(program.env[THREADS], ir.FunctionType(I64, []).as_pointer()), [])
    is_one = b.icmp_signed("<=", threads, ONE)
    b.branch(decide)
    b.position_at_end(decide)
    is_serial = b.merge((ir.IRConstant(ir.IntType(1), 0), begin), (is_one, query))
    with b.if_else(is_serial) as (then, otherwise):
        with then:
            _WavefrontEmitter(program, i, step).emit()
        with otherwise:
            _RepeatEmitter(program, i, step).emit()


class _Emitter:
    """Base class of the emitters of loops and branches."""

    def __init__(self, program: FunctionEmitter, i: int, step: Nested):
        self.program, self.i, self.b = program, i, program.b
        self.strip = program.strip
        self.functions = {name: program.region(result) for name, result in step.regions.items()}
        self.operands = {name: program.region_operands(i, name) for name in step.regions}
        self.arena = self._scratch("arena")
        self.consts = [self._pointer(x) for x in step.consts]
        self.results = [
            self._pointer(x) if x.buffer else self._scratch(f"result {k}") for k, x in enumerate(step.results)
        ]
        max_pointers = max(len(result.graph.inputs) + len(result.graph.outputs) for result in step.regions.values()) + 1
        self.slots = program.stack(8 * max_pointers)

    def _pointer(self, block: RegionBuffer) -> Any:
        return self.program.pointers[block.buffer]

    def _runtime_value(self, name: str) -> Any:
        return self.program.env[ValueName(name, self.i)]

    def _scratch(self, name: str) -> ir.IRValue:
        return self.b.gep(self.program.arena, [self._runtime_value(name)])

    def _bytes(self, size: Poly) -> Any:
        return self.program.polys.emit(self.b, size)

    def _row_address(self, base: ir.IRValue, block: RegionBuffer, i: ir.IRValue) -> ir.IRValue:
        """The address of row `i`; unused rows share one address."""
        return self.b.gep(base, [self.b.mul(i, self._bytes(block.bytes))]) if block.buffer else base

    def _call(self, region: str, pointers: list[ir.IRValue]) -> None:
        slots = self.b.bitcast(self.slots, POINTER.as_pointer())
        for k, pointer in enumerate((*pointers, self.arena)):
            self.b.store(pointer, self.b.gep(slots, [ir.IRConstant(I64, k)]))
        args = [self.operands[region], slots, *self.strip]
        self.program.return_if_failed(self.b.call(self.functions[region], args))

    def _copy(self, target: ir.IRValue, source: ir.IRValue, size: Poly) -> None:
        """Copy a block; if it is not on the stack, only the rows of the strip."""
        count = self._bytes(size)
        if self.program.strip and size.value is None:
            low, high = self.program.strip
            rows = self._runtime_value("rows")
            each = self.b.udiv(count, self.b.select(self.b.icmp_signed("<", rows, ONE), ONE, rows))
            target, source = (self.b.gep(p, [self.b.mul(low, each)]) for p in (target, source))
            count = self.b.mul(self.b.sub(high, low), each)
        self.b.memcpy(target, source, count)

    def _block(self, name: str) -> BasicBlock:
        return self.program.run.append_basic_block(name)

    def _if(self, condition: ir.IRValue) -> Any:
        return self.b.if_then(condition)


class _CarryEmitter:
    """The addresses of one carry: `source` before an iteration, `target` after it."""

    def __init__(self, emitter: _LoopEmitter, step: Looping, k: int, odd: ir.IRValue):
        self.emitter, self.b = emitter, emitter.b
        self.size = step.carried[k].bytes
        self.result = emitter.results[k]
        self.wanted = bool(step.carried[k].buffer)
        self.on_stack = step.carried[k].on_stack
        self.alternates = not self.on_stack and not step.in_place(k)
        self.init = emitter._pointer(step.inits[k])
        self.other: Any = None
        self.phis: list[ir.Phi] = []
        if self.on_stack:
            size = self.size.value or 0
            self.source, self.target = emitter.program.stack(size), emitter.program.stack(size)
            emitter._copy(self.source, self.init, self.size)
        elif self.alternates:
            # A loop of known length starts with the block for which the last iteration writes the result.
            other = emitter._scratch(f"carry {k}")
            self.source = self.init
            self.target = self.b.select(odd, self.result, other)
            self.other = self.b.select(odd, other, self.result)
        else:
            self.source = self.target = self.result
            if step.inits[k].buffer != step.carried[k].buffer:
                emitter._copy(self.result, self.init, self.size)

    def begin(self, before: ir.BasicBlock) -> None:
        """Emit the phis at the loop head."""
        if self.alternates:
            self.phis = [self.b.merge((value, before)) for value in (self.source, self.target, self.other)]
            self.source, self.target, self.other = self.phis

    def iteration(self) -> None:
        """Emit the update at the end of an iteration."""
        if self.on_stack:
            self.emitter._copy(self.source, self.target, self.size)
        for phi, value in zip(self.phis, (self.target, self.other, self.target)):
            phi.add_incoming(value, self.b.block)

    def end(self) -> None:
        """Emit the final copy after the loop."""
        if self.on_stack and self.wanted:
            self.emitter._copy(self.result, self.source, self.size)
        elif self.alternates and self.wanted:
            with self.emitter._if(self.b.icmp_unsigned("!=", self.source, self.result)):
                self.emitter._copy(self.result, self.source, self.size)


class _LoopEmitter(_Emitter):
    """A loop `while test(): iteration()`, with carries between iterations."""

    step: Looping

    def loop(self, odd: ir.IRValue, first: ir.IRValue = ZERO) -> Any:
        """Emit the loop, from iteration `first` on; returns the number of iterations."""
        self.carries = [_CarryEmitter(self, self.step, k, odd) for k in range(len(self.step.carried))]
        self.begin(first)
        before = self.b.block
        head, inside, after = (self._block(f"{name}.{self.i}") for name in ("head", "inside", "after"))
        self.b.branch(head)
        self.b.position_at_end(head)
        iteration = self.b.merge((first, before))
        for carry in self.carries:
            carry.begin(before)
        self.b.cbranch(self.test(iteration), inside, after)
        self.b.position_at_end(inside)
        self.iteration(iteration)
        if not self.program.strip:  # if threads share the iterations
            self._poll(iteration)
        for carry in self.carries:
            carry.iteration()
        iteration.add_incoming(self.b.add(iteration, ONE, flags=("nsw", "nuw")), self.b.block)
        self.b.branch(head)
        self.b.position_at_end(after)
        self.end()
        return iteration

    def begin(self, first: object) -> None:
        """Emit code before iteration `first`."""

    def end(self) -> None:
        """Emit code after the loop."""
        for carry in self.carries:
            carry.end()

    def _poll(self, iteration: ir.IRValue) -> None:
        """Emit the safepoint poll, once per group of iterations."""
        mask = self._runtime_value("look")
        due = self.b.icmp_unsigned("==", self.b.and_(iteration, mask), mask)
        with self.b.if_then(due, likely=False):
            self.program.return_if_failed(self.b.call(self.program.poll_function(), [self.program.env["tg_poll"]]))

    def test(self, iteration: object) -> ir.IRValue:
        raise NotImplementedError

    def iteration(self, iteration: object) -> None:
        raise NotImplementedError


class _RepeatEmitter(_LoopEmitter):
    def __init__(self, program: FunctionEmitter, i: int, step: ScanStep):
        super().__init__(program, i, step)
        self.step: ScanStep = step
        self.xs = [self._pointer(x) for x in step.xs]
        self.length = self._runtime_value("length")

        self.first: ir.IRValue = ZERO
        self.last = self.length
        if program.iterations:
            self.first, self.last, arena_offset = program.iterations
            self.arena = self.b.gep(self.arena, [arena_offset])

    def emit(self) -> None:
        odd = self.b.trunc(self.length, ir.IntType(1))
        self.loop(odd, self.first)

    def begin(self, first: object) -> None:
        """Initialize the induction variables for iteration `first`."""
        for k, growth in self.step.blocking.counters.items() if self.program.iterations else ():
            counter = self.b.bitcast(self.carries[k].source, I64.as_pointer())
            grown = self.b.mul(first, ir.IRConstant(I64, growth))
            self.b.store(self.b.add(self.b.load(counter), grown), counter)

    def end(self) -> None:
        if not self.program.iterations:
            super().end()
            return
        with self._if(self.b.icmp_signed("==", self.last, self.length)):
            super().end()

    def test(self, iteration: Any) -> ir.IRValue:
        return self.b.icmp_signed("<", iteration, self.last)

    def iteration(self, iteration: Any) -> None:
        self.run(iteration, [c.source for c in self.carries], [c.target for c in self.carries])

    def run(self, iteration: ir.IRValue, sources: Sequence[Any], targets: Sequence[Any]) -> None:
        """Emit an iteration, from the carries it reads to the carries it writes."""
        i = self.b.sub(self.b.sub(self.length, ONE), iteration) if self.step.reverse else iteration
        xs = map(self._row_address, self.xs, self.step.xs, [i] * len(self.xs))
        stacked = self.results[len(self.carries) :]
        rows = map(self._row_address, stacked, self.step.stacked, [i] * len(stacked))
        self._call("body", [*sources, *xs, *self.consts, *targets, *rows])


class _WavefrontEmitter(_RepeatEmitter):
    """A loop that runs in wavefronts (`tracegrad.codegen.plan.iteration_blocking`), whose carries all alternate between
    two blocks."""

    def __init__(self, program: FunctionEmitter, i: int, step: ScanStep):
        super().__init__(program, i, step)
        self.functions = {"body": program.region(step.regions["body"], strip=True)}

    def emit(self) -> None:
        odd = self.b.trunc(self.length, ir.IntType(1))
        self.carries = [_CarryEmitter(self, self.step, k, odd) for k in range(len(self.step.carried))]
        self.depth, self.chunks = self._runtime_value("depth"), self._runtime_value("chunks")
        groups = self.b.sdiv(self.b.add(self.length, self.b.sub(self.depth, ONE)), self.depth)
        loop(self.b, groups, self._group)
        for carry in self.carries:
            carry.source = self.b.select(self.b.icmp_signed("==", self.length, ZERO), carry.init, carry.result)
        self.end()

    def _group(self, number: ir.IRValue) -> None:
        """Run a group of iterations in wavefronts."""
        first = self.b.mul(number, self.depth)
        iterations = smaller(self.b, self.depth, self.b.sub(self.length, first))
        wavefronts = self.b.add(self.chunks, self.b.sub(iterations, ONE))
        loop(self.b, wavefronts, lambda wavefront: self._wavefront(first, iterations, wavefront))

    def _wavefront(self, first: object, iterations: object, wavefront: object) -> None:
        """Run the iterations that have a chunk in this wavefront; the later the iteration, the earlier the chunk."""
        over = self.b.sub(wavefront, self.b.sub(self.chunks, ONE))
        begin = self.b.select(self.b.icmp_signed(">", over, ZERO), over, ZERO)
        count = self.b.sub(smaller(self.b, iterations, self.b.add(wavefront, ONE)), begin)

        def one(k: ir.Phi) -> None:
            iteration = self.b.add(begin, k)
            self._chunk(self.b.add(first, iteration), self.b.sub(wavefront, iteration))

        loop(self.b, count, one)
        self.program.return_if_failed(self.b.call(self.program.poll_function(), [self.program.env["tg_poll"]]))

    def _chunk(self, iteration: ir.IRValue, chunk: ir.IRValue) -> None:
        low = self.b.mul(chunk, self._runtime_value("chunk"))
        self.strip = (low, smaller(self.b, self.b.add(low, self._runtime_value("chunk")), self._runtime_value("rows")))
        is_odd, is_first = self.b.trunc(iteration, ir.IntType(1)), self.b.icmp_signed("==", iteration, ZERO)
        targets = [self.b.select(is_odd, x.other, x.target) for x in self.carries]
        before = [self.b.select(is_odd, x.target, x.other) for x in self.carries]
        sources = [self.b.select(is_first, x.init, source) for x, source in zip(self.carries, before)]
        self.run(iteration, sources, targets)


class _WhileEmitter(_LoopEmitter):
    def __init__(self, program: FunctionEmitter, i: int, step: WhileStep):
        super().__init__(program, i, step)
        self.step: WhileStep = step
        self.flag = program.stack(1)
        self.stacked = self.results[len(step.carried) + 1 :]

    def emit(self) -> None:
        count = self.loop(ir.IRConstant(ir.IntType(1), 0))
        self.b.store(count, self.b.bitcast(self.results[len(self.carries)], I64.as_pointer()))
        if any(block.buffer for block in self.step.stacked):
            with self._if(self.b.icmp_signed("<", count, self._runtime_value("capacity"))):
                self._clear_last()

    def _clear_last(self) -> None:
        """Store zeros to the last rows; unused rows before them are never read, and remain uninitialized."""
        last = self.b.sub(self._runtime_value("capacity"), ONE)
        for base, block in zip(self.stacked, self.step.stacked):
            if block.buffer:
                row, size = self._row_address(base, block, last), self._bytes(block.bytes)
                self.b.memset(row, ir.IRConstant(I8, 0), size)

    def test(self, iteration: object) -> ir.IRValue:
        self._call("cond", [*(c.source for c in self.carries), *self.consts, self.flag])
        return self.b.icmp_unsigned("!=", self.b.load(self.flag), ir.IRConstant(I8, 0))

    def iteration(self, iteration: Any) -> None:
        if self.stacked:
            with self._if(self.b.icmp_signed(">=", iteration, self._runtime_value("capacity"))):
                signature = ir.FunctionType(I32, [I64, POINTER.as_pointer()])
                callback = self.b.inttoptr(self.program.env["callback"], signature.as_pointer())
                nothing = ir.IRConstant(POINTER.as_pointer(), None)
                self.b.ret(self.b.call(callback, [ir.IRConstant(I64, CAPACITY), nothing]))
        rows = map(self._row_address, self.stacked, self.step.stacked, [iteration] * len(self.stacked))
        self._call("body", [*(c.source for c in self.carries), *self.consts, *(c.target for c in self.carries), *rows])


class _BranchEmitter(_Emitter):
    def __init__(self, program: FunctionEmitter, i: int, step: BranchStep):
        super().__init__(program, i, step)
        self.index = self._pointer(step.index)

    def emit(self) -> None:
        """Emit the branches; an index below the first selects the first, one above the last selects the last."""
        index = self.b.load(self.b.bitcast(self.index, I64.as_pointer()))
        blocks = [self._block(f"branch.{self.i}.{k}") for k in range(len(self.functions))]
        after, others = self._block(f"after.{self.i}"), self._block(f"others.{self.i}")
        self.b.switch(index, [(ir.IRConstant(I64, k), block) for k, block in enumerate(blocks)], others)
        self.b.position_at_end(others)
        self.b.cbranch(self.b.icmp_signed("<", index, ZERO), blocks[0], blocks[-1])
        for name, block in zip(self.functions, blocks):
            self.b.position_at_end(block)
            self._call(name, [*self.consts, *self.results])
            self.b.branch(after)
        self.b.position_at_end(after)


class _OnceEmitter(_Emitter):
    def emit(self) -> None:
        self._call("body", [*self.consts, *self.results])
