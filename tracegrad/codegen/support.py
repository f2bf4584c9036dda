"""Loops that programs share, each compiled once: fills, the combination of partial results, chunks run in order.

    void tg_fill.<dtype>(T *out, T value, i64 count)
    void tg_combine.<combiner>.<dtype>(T *out, T *partial, i64 size, i64 chunks)
    void tg_merge.<combiner>.<dtype>(T *out, T *more, i64 size)
    void tg_chunks(void (*task)(void *context, i64 chunk), void *context, i64 chunks)

`tg_combine` folds `chunks` results of `size` elements each, in order of the chunks; `tg_merge` one more result with
those that are in `out`.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from tracegrad.codegen.scalar_llvm import BOOL, I64, combine, memory_type

__all__ = ["OF_WORDS", "TASK", "loop", "signature", "support_module"]

_POINTER = ir.IntType(8).as_pointer()
TASK = ir.FunctionType(ir.VoidType(), [_POINTER, I64])
OF_WORDS = ir.FunctionType(ir.IntType(32), [I64.as_pointer(), _POINTER.as_pointer()])  # see `tracegrad.codegen.walker`


def signature(name: str) -> Any:
    """The type of one of these functions, or of the thread pool's `tg_parallel_for`, which is that of `tg_chunks`."""
    if name in ("tg_chunks", "tg_parallel_for"):
        return ir.FunctionType(ir.VoidType(), [TASK.as_pointer(), _POINTER, I64])
    t = memory_type(name.rpartition(".")[2])
    pointer = t.as_pointer()
    if name.startswith("tg_fill"):
        return ir.FunctionType(ir.VoidType(), [pointer, t, I64])
    return ir.FunctionType(ir.VoidType(), [pointer, pointer, I64] + [I64] * name.startswith("tg_combine"))


def support_module(name: str) -> str:
    """The module that defines one of these functions, as text."""
    module = ir.Module(name)
    _define(ir.Function(module, signature(name), name))
    return str(module)


def _define(function: ir.Function) -> None:
    b = ir.IRBuilder(function.append_basic_block("entry"))
    if function.name == "tg_chunks":
        task, context, chunks = function.args
        loop(b, chunks, lambda c: b.call(task, [context, c]))
    elif function.name.startswith("tg_fill"):
        out, value, count = function.args
        loop(b, count, lambda i: b.store(value, b.gep(out, [i])))
    else:
        _combine(b, function, *function.name.split("."))
    b.ret_void()


def _combine(b: ir.IRBuilder, function: ir.Function, name: str, combiner: str, dtype: str) -> None:
    out, partial, size, *chunks = function.args
    for pointer in (out, partial):
        pointer.add_attribute("noalias")  # half the code, and half the time to compile it

    def register(value: Any) -> Any:
        return b.trunc(value, BOOL) if dtype == "bool" else value

    def first(e: Any) -> None:
        b.store(b.load(b.gep(partial, [e])), b.gep(out, [e]))

    def row(at: Any) -> None:
        def element(e: Any) -> None:
            place = b.gep(out, [e])
            more = b.load(b.gep(partial, [b.add(at, e)]))
            total = combine(b, combiner, register(b.load(place)), register(more), dtype)
            b.store(b.zext(total, memory_type("bool")) if dtype == "bool" else total, place)

        loop(b, size, element)

    if name == "tg_merge":
        row(ir.Constant(I64, 0))
    else:
        loop(b, size, first)
        others = b.sub(chunks[0], ir.Constant(I64, 1))
        loop(b, others, lambda c: row(b.mul(b.add(c, ir.Constant(I64, 1)), size)))


def loop(b: ir.IRBuilder, count: Any, body: Any) -> None:
    """Emit `for i in range(count): body(i)`."""
    before = b.block
    head, inside, after = (b.append_basic_block(n) for n in ("head", "inside", "after"))
    b.branch(head)
    b.position_at_end(head)
    i = b.phi(I64)
    i.add_incoming(ir.Constant(I64, 0), before)
    b.cbranch(b.icmp_signed("<", i, count), inside, after)
    b.position_at_end(inside)
    body(i)
    i.add_incoming(b.add(i, ir.Constant(I64, 1)), b.block)
    b.branch(head)
    b.position_at_end(after)
