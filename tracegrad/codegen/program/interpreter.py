"""Emit the bytecode interpreter of programs, and the primitive instructions that programs share.

Each instruction calls an *instruction function*, `i32 function(i64 *words, void **pointers)`. `words` are the int64
operands of the instruction (`instructions.py`). `pointers` are the program's inputs, outputs and arena. A result other
than 0 ends the program.

The functions are compiled once, the ones of `TOGETHER` as one module, and cached on disk. A program has only operands
and kernels of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from tracegrad.codegen.program import instructions as layouts
from tracegrad.codegen.program.instructions import STEP
from tracegrad.codegen.program.strip_fusion import strip_fusion_module
from tracegrad.llvmir.template import ir_template

__all__ = ["FAILED_CHECK", "FUSED_STRIPS", "STEP", "TOGETHER", "WALK", "interpreter_module", "interpreter_operands"]

WALK, FUSED_STRIPS = "tg_walk", f"{STEP}strip_fusion"
TOGETHER = (WALK, *(STEP + what for what in ("copy", "check", "call", "matmul", "fork", "combine")))
FAILED_CHECK = 4

_TYPES = {"f64": "double", "f32": "float", "bool": "i8"}


def interpreter_module(name: str) -> str:
    """Emit the module that defines a function, as text: one of `TOGETHER`, a fill, or the function of strip fusions."""
    if name == FUSED_STRIPS:
        return strip_fusion_module(FUSED_STRIPS)
    helpers = ir_template("codegen/program/operands.ll")
    if name in TOGETHER:
        return helpers + ir_template(
            "codegen/program/instructions.ll",
            program=layouts.PROGRAM.offsets,
            instruction=layouts.INSTRUCTION.offsets,
            copy=layouts.COPY.offsets,
            check=layouts.CHECK.offsets,
            call=layouts.CALL.offsets,
            matmul=layouts.MATMUL.offsets,
            fork=layouts.FORK.offsets,
            partial=layouts.FORK_PARTIAL.offsets,
            partial_size=layouts.FORK_PARTIAL.size,
            combine=layouts.COMBINE.offsets,
            failed=FAILED_CHECK,
        )
    dtype = name.removeprefix(f"{STEP}fill.")
    element = _TYPES.get(dtype, f"i{dtype[1:]}")
    return helpers + ir_template("codegen/program/fill.ll", name=name, type=element, fill=layouts.FILL.offsets)


def interpreter_operands(instructions: Sequence[tuple[int, Sequence[int]]]) -> list[int]:
    """The operands of `WALK` for steps, each with its address and operands."""
    results = [len(instructions)]
    for address, operands in instructions:
        results += (len(operands), address, *operands)
    return results
