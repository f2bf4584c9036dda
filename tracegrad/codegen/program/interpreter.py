"""Emit the bytecode interpreter of programs, and the primitive instructions that programs share.

Each instruction calls an *instruction function*, `i32 function(i64 *words, void **pointers)`. `words` are the int64
operands of the instruction. `pointers` are the program's inputs, outputs and arena. A result other than 0 ends the
program. A *location* is two operands: the number of a pointer and an offset in bytes. The operands, in order, are

    tg_walk                 the number of instructions; for each the number of operands, the function, the operands
    tg_step.fill.<dtype>    a location, the bits of a number, the number of elements
    tg_step.copy            the locations of the copy and of the original, bytes
    tg_step.check           the location of a boolean; the program fails if it is false
    tg_step.call            the address of the callback, the number of the call, the number of locations, the locations
    tg_step.matmul          the address of the BLAS routine, the number of products, products of a chunk, chunks, the
                            address of a function of `EACH_CHUNK` if there is more than one, products of a run; for
                            each factor and the result: a location, and the strides of runs and of products in bytes;
                            the arguments of BLAS
    tg_step.fork            the address of a kernel, the address of a function of `EACH_CHUNK`, chunks, rows of a chunk,
                            rows, the numbers of operands of the kernel and of partial results; for each partial result
                            the number of its operand, its location and its bytes; the operands of the kernel
    tg_step.combine         the locations of a result and of the partial results, elements, chunks, the combiner
    tg_step.band            see `tracegrad.codegen.program.strip_fusion`

The functions are compiled once, the ones of `TOGETHER` as one module, and cached on disk. A program has only operands
and kernels of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from tracegrad.codegen.program.strip_fusion import band_module
from tracegrad.llvmir.template import ir_template

__all__ = ["BAND", "FAILED_CHECK", "STEP", "TOGETHER", "WALK", "interpreter_module", "interpreter_operands"]

WALK, STEP = "tg_walk", "tg_step."
BAND = f"{STEP}band"
TOGETHER = (WALK, *(STEP + what for what in ("copy", "check", "call", "matmul", "fork", "combine")))
FAILED_CHECK = 4

_TYPES = {"f64": "double", "f32": "float", "bool": "i8"}


def interpreter_module(name: str) -> str:
    """Emit the module that defines a function, as text: one of `TOGETHER`, a fill, or the function of bands."""
    if name == BAND:
        return band_module(BAND)
    helpers = ir_template("codegen/program/operands.ll")
    if name in TOGETHER:
        return helpers + ir_template("codegen/program/instructions.ll", failed=FAILED_CHECK)
    dtype = name.removeprefix(f"{STEP}fill.")
    return helpers + ir_template("codegen/program/fill.ll", name=name, type=_TYPES.get(dtype, f"i{dtype[1:]}"))


def interpreter_operands(instructions: Sequence[tuple[int, Sequence[int]]]) -> list[int]:
    """The operands of `WALK` for steps, each with its address and operands."""
    results = [len(instructions)]
    for address, operands in instructions:
        results += (len(operands), address, *operands)
    return results
