"""Emit the function that runs a kernel in chunks, serially or on the thread pool (parallel-for outlining).

    void fork.<kernel>(the kernel's arguments, i64 rows, i64 *words, i8 *arena, the functions, sizes of partial results)

`words` are the operands of the step: rows of a chunk, number of chunks, whether to use threads, addresses of the
partial results. Each chunk is a call of the kernel's task, `void task(void *context, i64 chunk)`. A reduction writes
one partial result per chunk. Partial results are combined in the order of the chunks, so bits do not depend on the
number of threads.

LLVM does not optimize the fork and task functions. Their kernels take far longer than a call, and optimization was a
large part of the compile time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tracegrad import llvmir as ir
from tracegrad.codegen.instr.scalar import I64
from tracegrad.codegen.instr.support import EACH_CHUNK, TASK, signature

I32 = ir.IntType(32)
POINTER = ir.IntType(8).as_pointer()


class PartialResult(NamedTuple):
    """A partial result of a chunked reduction: the position of the kernel's argument, and its combiner."""

    position: int
    combiner: str


def fork_function(module: ir.IRModule, kernel: ir.IRFunction, partials: Sequence[PartialResult]) -> ir.IRFunction:
    """Emit the function that runs `kernel` in chunks; its function arguments are `EACH_CHUNK`, then the combiners."""
    *operands, _low, _high = kernel.function_type.args
    functions = len(EACH_CHUNK) + len(partials)
    types = [*operands, I64, I64.as_pointer(), POINTER, *[I64] * (functions + len(partials))]
    function = ir.IRFunction(module, ir.FunctionType(ir.VoidType(), types), f"fork.{kernel.name}")
    _disable_optimization(function)
    b = ir.IRBuilder(function.append_basic_block("entry"))
    args, (total, step_operands, arena, *rest) = function.args[: len(operands)], function.args[len(operands) :]
    (in_iteration, shared, *combiners), sizes = rest[:functions], rest[functions:]
    chunk_size, chunks, threaded, *offsets = (
        b.load(b.gep(step_operands, [ir.IRConstant(I64, k)])) for k in range(3 + len(partials))
    )
    results = [b.bitcast(b.gep(arena, [at]), operands[p.position]) for at, p in zip(offsets, partials)]
    inner: list[ir.IRValue] = list(args)
    for result, p in zip(results, partials):
        inner[p.position] = result
    fields = [*inner, chunk_size, total, *sizes]
    context = b.alloca(ir.LiteralStructType([x.type for x in fields]))
    for k, x in enumerate(fields):
        b.store(x, b.gep(context, [ir.IRConstant(I32, 0), ir.IRConstant(I32, k)]))
    task = _task(module, kernel, context.type, [p.position for p in partials])
    each_chunk(b, in_iteration, shared, threaded, (task, b.bitcast(context, POINTER), chunks))
    for result, size, address, p in zip(results, sizes, combiners, partials):
        combine = b.inttoptr(address, signature(p.combiner).as_pointer())
        b.call(combine, [args[p.position], result, size, chunks])
    b.ret_void()
    return function


def each_chunk(
    b: ir.IRBuilder,
    in_iteration: ir.IRValue,
    shared: ir.IRValue,
    threaded: ir.IRValue,
    args: tuple[ir.IRFunction, ir.IRValue, ir.IRValue],
) -> None:
    """Run a task for each chunk, on the thread pool or serially."""
    parallel = b.icmp_signed("!=", threaded, ir.IRConstant(I64, 0))
    b.call(b.inttoptr(b.select(parallel, shared, in_iteration), signature(EACH_CHUNK[0]).as_pointer()), args)


def _task(
    module: ir.IRModule, kernel: ir.IRFunction, context_type: ir.IRType, positions: Sequence[int]
) -> ir.IRFunction:
    task = ir.IRFunction(module, TASK, f"task.{kernel.name}")
    _disable_optimization(task)
    b = ir.IRBuilder(task.append_basic_block("entry"))
    context, chunk = task.args
    typed = b.bitcast(context, context_type)
    count = len(context_type.pointee.elements)
    fields: list[ir.IRValue] = [
        b.load(b.gep(typed, [ir.IRConstant(I32, 0), ir.IRConstant(I32, k)])) for k in range(count)
    ]
    end = count - 2 - len(positions)
    operands, (chunk_size, total, *sizes) = fields[:end], fields[end:]
    for size, position in zip(sizes, positions):
        operands[position] = b.gep(operands[position], [b.mul(chunk, size)])
    low = b.mul(chunk, chunk_size)
    high = b.add(low, chunk_size)
    b.call(kernel, [*operands, low, b.select(b.icmp_signed("<", high, total), high, total)])
    b.ret_void()
    return task


def _disable_optimization(function: ir.IRFunction) -> None:
    function.linkage = "internal"
    for attribute in ("noinline", "optnone", "nounwind"):
        function.attributes.add(attribute)
