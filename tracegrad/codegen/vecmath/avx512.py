"""Emit AVX-512 instructions (scale, exponent) for vectors that fill a register."""

from __future__ import annotations

from tracegrad import llvmir as ir
from tracegrad.codegen.vecmath.expr import Format, Real
from tracegrad.codegen.vecmath.lanes import lanes_of
from tracegrad.target.cpu import features

ROUNDING = 4  # rounding mode of the control register


def has_instructions(form: Format) -> bool:
    """Whether the target has the instructions of this module for values of a format."""
    bits = lanes_of(form.real) * form.width
    return (bits == 512 and "avx512f" in features()) or (bits in (128, 256) and {"avx512f", "avx512vl"} <= features())


def scale(x: Real, k: Real) -> Real:
    """x * 2**k for an integral number k, through overflow and denormals, rounded once."""
    return _instruction("scalef", x, k)


def exponent_of(x: Real) -> Real:
    """The exponent of a positive normal number, as a number."""
    return _instruction("getexp", x)


def _instruction(name: str, *operands: Real) -> Real:
    builder, form = operands[0].builder, operands[0].format
    t, lanes = form.real, lanes_of(form.real)
    bits = lanes * form.width
    mask = ir.IntType(max(lanes, 8))
    arguments = [*(x.value for x in operands), ir.TextConstant(t, "zeroinitializer"), ir.IRConstant(mask, -1)]
    if bits == 512:
        arguments.append(ir.IRConstant(ir.IntType(32), ROUNDING))
    kind = {"f64": "pd", "f32": "ps"}[form.name]
    symbol = f"llvm.x86.avx512.mask.{name}.{kind}.{bits}"
    signature = ir.FunctionType(t, [argument.type for argument in arguments])
    function = builder.module.declared(symbol, signature)
    return Real(builder, form, builder.call(function, arguments))
