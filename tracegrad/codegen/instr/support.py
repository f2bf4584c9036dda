"""Emit support functions that programs share: fill, combination of partial results, and the serial chunk loop.

    void tg_fill.<dtype>(T *out, T value, i64 count)
    void tg_combine.<combiner>.<dtype>(T *out, T *partial, i64 size, i64 chunks)
    void tg_merge.<combiner>.<dtype>(T *out, T *more, i64 size)
    void tg_chunks(void (*task)(void *context, i64 chunk), void *context, i64 chunks)

`tg_combine` folds `chunks` results of `size` elements each, in the order of the chunks. `tg_merge` folds one more
result into `out`. Both functions of one combiner and dtype are one module. Their loops are emitted as vectors, so LLVM
has little to optimize.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracegrad import llvmir as ir
from tracegrad.avals import dtype_named
from tracegrad.codegen.instr.scalar import BOOL, I64, combine, memory_type
from tracegrad.codegen.vecmath.lanes import splat
from tracegrad.target.tuning import TUNING

EACH_CHUNK = ("tg_chunks", "tg_parallel_for")  # run a task for each chunk: serially, or by the thread pool
THREADS = "tg_threads"  # the number of threads: i64 ()
MERGED = ("tg_merge", "tg_combine")
_LANES = {name: TUNING.vectorization.merged_bytes // dtype_named(name).itemsize for name in ("f32", "f64")}
_POINTER = ir.IntType(8).as_pointer()
TASK = ir.FunctionType(ir.VoidType(), [_POINTER, I64])
INSTRUCTION_TYPE = ir.FunctionType(
    ir.IntType(32), [I64.as_pointer(), _POINTER.as_pointer()]
)  # see `tracegrad.codegen.program.interpreter`


def signature(name: str) -> ir.FunctionType:
    """The type of a support function, or of the thread pool's `tg_parallel_for`, which has the type of `tg_chunks`."""
    if name in EACH_CHUNK:
        return ir.FunctionType(ir.VoidType(), [TASK.as_pointer(), _POINTER, I64])
    t = memory_type(name.rpartition(".")[2])
    pointer = t.as_pointer()
    if name.startswith("tg_fill"):
        return ir.FunctionType(ir.VoidType(), [pointer, t, I64])
    return ir.FunctionType(ir.VoidType(), [pointer, pointer, I64] + [I64] * name.startswith("tg_combine"))


def support_module(name: str) -> str:
    """Emit the module that defines a support function, as text."""
    module = ir.IRModule(name)
    merges = name.startswith(MERGED)
    for each in [f"{prefix}.{name.partition('.')[2]}" for prefix in MERGED] if merges else [name]:
        _define(ir.IRFunction(module, signature(each), each))
    return str(module)


def _define(function: ir.IRFunction) -> None:
    b = ir.IRBuilder(function.append_basic_block("entry"))
    if function.name == "tg_chunks":
        task, context, chunks = function.args
        loop(b, chunks, lambda c: b.call(task, [context, c]))
    elif function.name.startswith("tg_fill"):
        fill(b, function.name.rpartition(".")[2], *function.args)
    elif function.name.startswith("tg_merge"):
        _, combiner, dtype = function.name.split(".")
        _merge(b, combiner, dtype, *function.args)
    else:
        merge = function.module.globals[function.name.replace("tg_combine", "tg_merge")]
        _combine(b, merge, *function.args)
    b.ret_void()


def fill(b: ir.IRBuilder, dtype: str, out: ir.IRValue, value: ir.IRValue, count: ir.IRValue) -> None:
    """Store `value`, in its memory type, `count` times, one cache line at a time."""
    lanes = 64 // dtype_named(dtype).itemsize
    line, vector_pointer = splat(b, value, lanes), ir.VectorType(value.type, lanes).as_pointer()
    lines = b.udiv(count, ir.IRConstant(I64, lanes))
    whole = b.mul(lines, ir.IRConstant(I64, lanes))
    at = b.bitcast(out, vector_pointer)
    loop(b, lines, lambda i: b.store(line, b.gep(at, [i]), align=1))
    loop(b, b.sub(count, whole), lambda i: b.store(value, b.gep(out, [b.add(whole, i)])))


def _merge(b: ir.IRBuilder, combiner: str, dtype: str, out: ir.IRValue, partial: ir.IRValue, size: object) -> None:
    done: ir.IRValue = ir.IRConstant(I64, 0)
    if dtype in _LANES:
        vector_pointer = ir.VectorType(memory_type(dtype), _LANES[dtype]).as_pointer()

        def lanes(k: ir.Phi) -> None:
            at = b.mul(k, ir.IRConstant(I64, _LANES[dtype]))
            address, other = (b.bitcast(b.gep(pointer, [at]), vector_pointer) for pointer in (out, partial))
            total = combine(b, combiner, b.load(address, align=1), b.load(other, align=1), dtype)
            b.store(total, address, align=1)

        count = b.udiv(size, ir.IRConstant(I64, _LANES[dtype]))
        loop(b, count, lanes)
        done = b.mul(count, ir.IRConstant(I64, _LANES[dtype]))

    def register(value: ir.IRValue) -> ir.IRValue:
        return b.trunc(value, BOOL) if dtype == "bool" else value

    def element(k: ir.IRValue) -> None:
        address, other = (b.gep(pointer, [b.add(done, k)]) for pointer in (out, partial))
        total = combine(b, combiner, register(b.load(address)), register(b.load(other)), dtype)
        b.store(b.zext(total, memory_type("bool")) if dtype == "bool" else total, address)

    loop(b, b.sub(size, done), element)


def _combine(
    b: ir.IRBuilder, merge: ir.IRFunction, out: ir.IRValue, partial: ir.IRValue, size: ir.IRValue, chunks: ir.IRValue
) -> None:
    bytes_of = b.ptrtoint(b.gep(ir.IRConstant(out.type, None), [size]), I64)
    b.memcpy(b.bitcast(out, _POINTER), b.bitcast(partial, _POINTER), bytes_of)
    one = ir.IRConstant(I64, 1)
    others = b.sub(chunks, one)
    loop(b, others, lambda c: b.call(merge, [out, b.gep(partial, [b.mul(b.add(c, one), size)]), size]))


def smaller(b: ir.IRBuilder, x: Any, y: ir.IRValue) -> ir.IRValue:
    """The minimum of two integers."""
    return b.select(b.icmp_signed("<", x, y), x, y)


def loop(b: ir.IRBuilder, count: Any, body: Callable[..., object]) -> None:
    """Emit `for i in range(count): body(i)`."""
    before = b.block
    head, inside, after = (b.append_basic_block(n) for n in ("head", "inside", "after"))
    b.branch(head)
    b.position_at_end(head)
    i = b.merge((ir.IRConstant(I64, 0), before))
    b.cbranch(b.icmp_signed("<", i, count), inside, after)
    b.position_at_end(inside)
    body(i)
    i.add_incoming(b.add(i, ir.IRConstant(I64, 1)), b.block)
    b.branch(head)
    b.position_at_end(after)


def load_addresses(
    b: ir.IRBuilder, operands: ir.IRValue, pointers: ir.IRValue, count: ir.IRValue, first: int
) -> ir.IRValue:
    """Load `count` addresses from the words that begin with number `first`."""
    slots = b.alloca(_POINTER, count)

    def fetch(i: ir.Phi) -> None:
        at = b.add(b.mul(i, ir.IRConstant(I64, 2)), ir.IRConstant(I64, first))
        index, offset = (b.load(b.gep(operands, [b.add(at, ir.IRConstant(I64, j))])) for j in range(2))
        b.store(b.gep(b.load(b.gep(pointers, [index])), [offset]), b.gep(slots, [i]))

    loop(b, count, fetch)
    return slots
