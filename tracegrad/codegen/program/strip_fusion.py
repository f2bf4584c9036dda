"""Emit the instruction that runs a strip fusion: several kernels, strip by strip (strip-fused kernels).

A chunk has memory for one strip of the local buffers, and passes it to the kernels as an additional pointer. The C
library allocates the memory, because stacks of threads may be small. At most as many chunks run at a time as there are
threads. The first strip of a chunk reduces into the partial result of the chunk. Each other strip reduces into the
strip's memory, which is then merged.
"""

from __future__ import annotations

from typing import Any

from tracegrad import llvmir as ir
from tracegrad.codegen.instr.operands import OperandLayout, load_operand
from tracegrad.codegen.instr.scalar import I64
from tracegrad.codegen.instr.support import INSTRUCTION_TYPE, TASK, loop, smaller
from tracegrad.codegen.program.instructions import FUSED_KERNEL, FUSED_LOCAL, FUSED_PARTIAL, STRIP_FUSION
from tracegrad.target.cache_lines import LINE

I8, I32 = ir.IntType(8), ir.IntType(32)
POINTER, I64_POINTER = I8.as_pointer(), I64.as_pointer()
NO_MEMORY = 5  # the status of a chunk without memory


def strip_fusion_module(name: str) -> str:
    """Emit the module that defines the function, as text."""
    module = ir.IRModule(name)
    task = _Task(module).function
    function = ir.IRFunction(module, INSTRUCTION_TYPE, name)
    b, (operands, pointers) = ir.IRBuilder(function.append_basic_block("entry")), function.args
    context = b.alloca(_CONTEXT)
    for k, x in enumerate((operands, pointers, ir.IRConstant(I32, 0))):
        b.store(x, _field(b, context, k))
    each = _function(
        b, load_operand(b, operands, STRIP_FUSION, "each_chunk"), ir.VoidType(), TASK.as_pointer(), POINTER, I64
    )
    b.call(each, [task, b.bitcast(context, POINTER), load_operand(b, operands, STRIP_FUSION, "chunks")])
    b.ret(b.load(_field(b, context, 2)))
    return str(module)


_CONTEXT = ir.LiteralStructType([I64_POINTER, POINTER.as_pointer(), I32])


def _field(b: ir.IRBuilder, struct: ir.IRValue, k: int) -> ir.IRValue:
    return b.gep(struct, [ir.IRConstant(I32, 0), ir.IRConstant(I32, k)])


def _at(b: ir.IRBuilder, operands: Any, k: Any) -> ir.IRValue:
    return b.gep(operands, [ir.IRConstant(I64, k) if isinstance(k, int) else k])


class _Task:
    """`void task(void *context, i64 chunk)`, which runs all kernels for one chunk."""

    def __init__(self, module: ir.IRModule):
        self.function = ir.IRFunction(module, TASK, "task")
        self.function.linkage = "internal"
        self.b = b = ir.IRBuilder(self.function.append_basic_block("entry"))
        raw, self.chunk = self.function.args
        self.context = b.bitcast(raw, _CONTEXT.as_pointer())
        operands, pointers = b.load(_field(b, self.context, 0)), b.load(_field(b, self.context, 1))
        rows, total, self.strip, memory, self.count, self.kernels, size = (
            load_operand(b, operands, STRIP_FUSION, name)
            for name in ("chunk_rows", "rows", "strip_rows", "strip_bytes", "num_pointers", "num_kernels", "size")
        )
        self.operands, self.pointers = b.alloca(I64, size), b.alloca(POINTER, b.add(self.count, ir.IRConstant(I64, 1)))
        self.position = b.alloca(I64)
        block = b.call(
            _function(b, load_operand(b, operands, STRIP_FUSION, "malloc"), POINTER, I64),
            [b.add(memory, ir.IRConstant(I64, LINE))],
        )
        with b.if_then(b.icmp_unsigned("==", block, ir.IRConstant(POINTER, None)), likely=False):
            self._fail(ir.IRConstant(I32, NO_MEMORY))
            b.ret_void()
        aligned = b.and_(b.add(b.ptrtoint(block, I64), ir.IRConstant(I64, LINE)), ir.IRConstant(I64, -LINE))
        self.memory = b.inttoptr(aligned, POINTER)
        loop(
            b,
            size,
            lambda k: b.store(
                b.load(_at(b, operands, b.add(k, I64(STRIP_FUSION.offsets["kernels"])))), _at(b, self.operands, k)
            ),
        )
        loop(b, self.count, lambda k: b.store(b.load(b.gep(pointers, [k])), b.gep(self.pointers, [k])))
        b.store(self.memory, b.gep(self.pointers, [self.count]))
        self.low = b.mul(self.chunk, rows)
        self.end = smaller(self.b, b.add(self.low, rows), total)
        rounded = b.add(b.sub(self.end, self.low), b.sub(self.strip, ir.IRConstant(I64, 1)))
        loop(b, b.sdiv(rounded, self.strip), self._strip)
        b.call(_function(b, load_operand(b, operands, STRIP_FUSION, "free"), ir.VoidType(), POINTER), [block])
        b.ret_void()

    def _fail(self, status: ir.IRValue) -> None:
        self.b.store_atomic(status, _field(self.b, self.context, 2), "monotonic", 4)

    def _strip(self, number: ir.IRValue) -> None:
        b = self.b
        low = b.add(self.low, b.mul(number, self.strip))
        high = smaller(self.b, b.add(low, self.strip), self.end)
        b.store(ir.IRConstant(I64, 0), self.position)
        loop(b, self.kernels, lambda _: self._kernel(number, low, high))

    def _kernel(self, number: ir.IRValue, low: ir.IRValue, high: ir.IRValue) -> None:
        b = self.b
        at = _at(b, self.operands, b.load(self.position))
        address, unit, locals_, partials, size = (
            load_operand(b, at, FUSED_KERNEL, name)
            for name in ("kernel", "row_iterations", "num_locals", "num_partials", "count")
        )
        of_locals = _at(b, at, FUSED_KERNEL.offsets["locals"])
        of_partials = _at(b, of_locals, b.mul(locals_, I64(FUSED_LOCAL.size)))
        operands = _at(b, of_partials, b.mul(partials, I64(FUSED_PARTIAL.size)))
        b.store(b.mul(low, unit), _at(b, operands, 0))
        b.store(b.mul(high, unit), _at(b, operands, 1))
        is_first = b.icmp_signed("==", number, ir.IRConstant(I64, 0))
        loop(b, locals_, lambda k: self._local(_record(b, of_locals, k, FUSED_LOCAL), operands, low))
        loop(b, partials, lambda k: self._partial(_record(b, of_partials, k, FUSED_PARTIAL), operands, is_first))
        status = b.call(b.inttoptr(address, INSTRUCTION_TYPE.as_pointer()), [operands, self.pointers])
        with b.if_then(b.icmp_signed("!=", status, ir.IRConstant(I32, 0))):
            self._fail(status)
        later = b.select(is_first, ir.IRConstant(I64, 0), partials)
        loop(b, later, lambda k: self._merge(_record(b, of_partials, k, FUSED_PARTIAL)))
        end = b.add(b.ptrtoint(operands, I64), b.mul(size, ir.IRConstant(I64, 8)))
        begin = b.ptrtoint(self.operands, I64)
        b.store(b.sdiv(b.sub(end, begin), ir.IRConstant(I64, 8)), self.position)

    def _local(self, record: Any, operands: object, low: object) -> None:
        """Set the location of a local buffer to the virtual location of its row 0, so that the rows of this strip are
        in the memory of the strip."""
        b = self.b
        number, begin, row_bytes = (load_operand(b, record, FUSED_LOCAL, name) for name in FUSED_LOCAL.offsets)
        self._set_location(operands, number, self.count, b.sub(begin, b.mul(low, row_bytes)))

    def _partial(self, record: Any, operands: ir.IRValue, is_first: ir.IRValue) -> None:
        b = self.b
        number = load_operand(b, record, FUSED_PARTIAL, "position")
        index, begin = self._location(record)
        each, scratch = (load_operand(b, record, FUSED_PARTIAL, name) for name in ("chunk_bytes", "offset"))
        of_chunk = b.add(begin, b.mul(self.chunk, each))
        self._set_location(
            operands, number, b.select(is_first, index, self.count), b.select(is_first, of_chunk, scratch)
        )

    def _location(self, record: object) -> tuple[Any, Any]:
        """The location of the partial result of the first chunk."""
        first = _at(self.b, record, FUSED_PARTIAL.offsets["first"])
        return self.b.load(first), self.b.load(_at(self.b, first, 1))

    def _set_location(self, operands: object, number: object, index: ir.IRValue, offset: ir.IRValue) -> None:
        location = _at(self.b, operands, number)
        self.b.store(index, location)
        self.b.store(offset, _at(self.b, location, 1))

    def _merge(self, record: Any) -> None:
        b = self.b
        index, begin = self._location(record)
        each, scratch, size, address = (
            load_operand(b, record, FUSED_PARTIAL, name) for name in ("chunk_bytes", "offset", "count", "merger")
        )
        of_chunk = b.gep(b.load(b.gep(self.pointers, [index])), [b.add(begin, b.mul(self.chunk, each))])
        b.call(
            _function(b, address, ir.VoidType(), POINTER, POINTER, I64), [of_chunk, b.gep(self.memory, [scratch]), size]
        )


def _function(b: ir.IRBuilder, address: ir.IRValue, result: ir.IRType, *args: ir.IRType) -> ir.IRValue:
    return b.inttoptr(address, ir.FunctionType(result, args).as_pointer())


def _record(b: ir.IRBuilder, records: ir.IRValue, k: ir.Phi, layout: OperandLayout) -> object:
    return _at(b, records, b.mul(k, I64(layout.size)))
