"""Kernels that run in chunks: the function that runs a kernel chunk by chunk, or gives the chunks to the thread pool.

    void fork.<kernel>(the kernel's arguments, i64 rows, i64 *words, i8 *arena, the functions, sizes of partial results)

`words` are those of the step: rows of a chunk, chunks, whether threads share them, where the partial results lie. Each
chunk is a call of the kernel's task, `void task(void *context, i64 chunk)`. What chunks reduce, they write as partial
results, which are combined in order of the chunks: bits do not depend on the number of threads.

These functions run for kernels that take longer than a call of a function, so LLVM leaves them as they are: optimised
as part of the programs that call them, they took a third of the time to compile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tracegrad import llvmir as ir
from tracegrad.codegen.instr.scalar import I64
from tracegrad.codegen.instr.support import TASK, signature

__all__ = ["EACH_CHUNK", "Partial", "each_chunk", "fork_function"]

I32 = ir.IntType(32)
POINTER = ir.IntType(8).as_pointer()
EACH_CHUNK = ("tg_chunks", "tg_parallel_for")


class Partial(NamedTuple):
    """A result that chunks reduce: which argument of the kernel it is, and the function that combines the parts."""

    position: int
    combiner: str


def fork_function(module: ir.Module, kernel: ir.Function, partials: Sequence[Partial]) -> ir.Function:
    """The function that runs `kernel` in chunks; functions are those of `EACH_CHUNK`, and then the combiners."""
    *given, _low, _high = kernel.function_type.args
    functions = len(EACH_CHUNK) + len(partials)
    types = [*given, I64, I64.as_pointer(), POINTER, *[I64] * (functions + len(partials))]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), types), f"fork.{kernel.name}")
    _leave_as_it_is(function)
    b = ir.IRBuilder(function.append_basic_block("entry"))
    args, (total, words, arena, *rest) = function.args[: len(given)], function.args[len(given) :]
    (in_turn, shared, *combiners), sizes = rest[:functions], rest[functions:]
    rows, chunks, threaded, *offsets = (b.load(b.gep(words, [ir.Constant(I64, k)])) for k in range(3 + len(partials)))
    parts = [b.bitcast(b.gep(arena, [at]), given[p.position]) for at, p in zip(offsets, partials)]
    inner: list[ir.Value] = list(args)
    for part, p in zip(parts, partials):
        inner[p.position] = part
    fields = [*inner, rows, total, *sizes]
    context = b.alloca(ir.LiteralStructType([x.type for x in fields]))
    for k, x in enumerate(fields):
        b.store(x, b.gep(context, [ir.Constant(I32, 0), ir.Constant(I32, k)]))
    task = _task(module, kernel, context.type, [p.position for p in partials])
    each_chunk(b, in_turn, shared, threaded, (task, b.bitcast(context, POINTER), chunks))
    for part, size, address, p in zip(parts, sizes, combiners, partials):
        combine = b.inttoptr(address, signature(p.combiner).as_pointer())
        b.call(combine, [args[p.position], part, size, chunks])
    b.ret_void()
    return function


def each_chunk(b: ir.IRBuilder, in_turn: Any, shared: Any, threaded: Any, args: Sequence[Any]) -> None:
    """Give a task to the thread pool, or run it on one chunk after the other."""
    parallel = b.icmp_signed("!=", threaded, ir.Constant(I64, 0))
    b.call(b.inttoptr(b.select(parallel, shared, in_turn), signature(EACH_CHUNK[0]).as_pointer()), args)


def _task(module: ir.Module, kernel: ir.Function, context_type: Any, positions: Sequence[int]) -> ir.Function:
    task = ir.Function(module, TASK, f"task.{kernel.name}")
    _leave_as_it_is(task)
    b = ir.IRBuilder(task.append_basic_block("entry"))
    context, chunk = task.args
    typed = b.bitcast(context, context_type)
    count = len(context_type.pointee.elements)
    fields: list[ir.Value] = [b.load(b.gep(typed, [ir.Constant(I32, 0), ir.Constant(I32, k)])) for k in range(count)]
    end = count - 2 - len(positions)
    given, (rows, total, *sizes) = fields[:end], fields[end:]
    for size, position in zip(sizes, positions):
        given[position] = b.gep(given[position], [b.mul(chunk, size)])
    low = b.mul(chunk, rows)
    high = b.add(low, rows)
    b.call(kernel, [*given, low, b.select(b.icmp_signed("<", high, total), high, total)])
    b.ret_void()
    return task


def _leave_as_it_is(function: ir.Function) -> None:
    function.linkage = "internal"
    for attribute in ("noinline", "optnone", "nounwind"):
        function.attributes.add(attribute)
