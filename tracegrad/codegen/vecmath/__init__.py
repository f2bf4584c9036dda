"""Emit elementary functions as LLVM IR that the loop vectorizer can inline (vector math library).

`call` emits the call of a scalar function of its own module, which is inlined: straight-line code of FMAs, selects and
integer operations on bits, in float64 or float32 throughout. A loop over it vectorizes on any machine, and the vector
body and the scalar tail give the same bits. NaN, infinities, -0.0 and denormals, in and out, are as in NumPy. No
fast-math flag is set and the control register is not touched. The floating-point exception flags are meaningless.

The error is at most 1 ulp for exp and log, 4 ulp for erfc, ndtr, sech2, silu, gelu_tanh and x_ndtr, and 8 ulp for the
derivatives. It is 2 ulp for all others. The bounds hold over the whole range, in both formats. All functions are
polynomials of this package (`exp`, `log`, `trig`, `erf`, `derivatives`, `power`), and none calls the C library. A rare
argument is computed out of line, lane by lane: sin, cos and tan of a huge argument (from 2**40 on, 2**17 in float32),
and sinc_derivative very close to its roots. A power in a vector is computed out of line, unless it is a normal power of
a positive normal number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tracegrad import llvmir as ir
from tracegrad.codegen.vecmath.derivatives import (
    gelu_tanh,
    gelu_tanh_derivative,
    silu,
    silu_derivative,
    sinc_derivative,
    x_ndtr,
    x_ndtr_derivative,
)
from tracegrad.codegen.vecmath.erf import erf, erfc, gauss, gauss_half, ndtr
from tracegrad.codegen.vecmath.exp import cosh, exp, exp2, expm1, sech2, sigmoid, sinh, tanh
from tracegrad.codegen.vecmath.expr import FORMATS, Format, Real, format_of
from tracegrad.codegen.vecmath.lanes import lanes_of
from tracegrad.codegen.vecmath.log import arccosh, arcsinh, arctanh, log, log1p, log2, log10
from tracegrad.codegen.vecmath.power import cbrt, power
from tracegrad.codegen.vecmath.trig import arccos, arcsin, arctan, arctan2, cos, sin, tan

__all__ = ["FUNCTIONS", "RARE", "call", "rare_module"]


FUNCTIONS: Final[dict[str, Callable[..., Real]]] = {
    "arccos": arccos,
    "arccosh": arccosh,
    "arcsin": arcsin,
    "arcsinh": arcsinh,
    "arctan": arctan,
    "arctan2": arctan2,
    "arctanh": arctanh,
    "cbrt": cbrt,
    "cos": cos,
    "cosh": cosh,
    "erf": erf,
    "erfc": erfc,
    "exp": exp,
    "exp2": exp2,
    "expm1": expm1,
    "gauss": gauss,
    "gauss_half": gauss_half,
    "gelu_tanh": gelu_tanh,
    "gelu_tanh_derivative": gelu_tanh_derivative,
    "log": log,
    "log10": log10,
    "log1p": log1p,
    "log2": log2,
    "ndtr": ndtr,
    "power": power,
    "sech2": sech2,
    "sigmoid": sigmoid,
    "silu": silu,
    "silu_derivative": silu_derivative,
    "sin": sin,
    "sinc_derivative": sinc_derivative,
    "sinh": sinh,
    "tan": tan,
    "tanh": tanh,
    "x_ndtr": x_ndtr,
    "x_ndtr_derivative": x_ndtr_derivative,
}

# Functions with an out-of-line part (huge arguments, or arguments close to a root), which modules may share.
RARE: Final = ("sin", "cos", "tan", "sinc_derivative")


def call(builder: ir.IRBuilder, name: str, *args: ir.IRValue) -> ir.IRValue:
    """Emit `name`(*args) at the builder's position, for arguments all double or all float, or all vectors of one type.

    The function is `tg.<name>.<f64|f32>`, with the suffix `x<lanes>` for vectors. It is private to the builder's module
    and defined there at first use. Raises KeyError for a name that is not in `FUNCTIONS` and for an argument of another
    type.

    >>> module = ir.IRModule()
    >>> signature = ir.FunctionType(ir.DoubleType(), [ir.DoubleType()])
    >>> function = ir.IRFunction(module, signature, "f")
    >>> builder = ir.IRBuilder(function.append_basic_block())
    >>> result = builder.ret(call(builder, "exp", function.args[0]))
    >>> [f.name for f in module.functions if not f.is_declaration]
    ['f', 'tg.exp.f64']
    """
    form, lanes = format_of(args[0].type), lanes_of(args[0].type)
    symbol = f"tg.{name}.{form.name}{f'x{lanes}' if lanes else ''}"
    function = builder.module.globals.get(symbol)
    if function is None:
        function = _define(builder.module, symbol, FUNCTIONS[name], form, len(args))
    return builder.call(function, args)


def _define(module: ir.IRModule, symbol: str, body: Callable[..., Real], form: Format, arity: int) -> ir.IRFunction:
    function = ir.IRFunction(module, ir.FunctionType(form.real, [form.real] * arity), symbol)
    function.linkage = "internal"
    function.attributes.add("alwaysinline")
    function.attributes.add("nounwind")
    builder = ir.IRBuilder(function.append_basic_block())
    result = body(*(Real(builder, form, argument) for argument in function.args))
    builder.ret(result.value)
    return function


def rare_module(symbol: str) -> str:
    """Emit the module that defines `tg.rare_<name>.<format>` for the modules that share it, as text.

    >>> "define double @tg.rare_sin.f64" in rare_module("tg.rare_sin.f64")
    True
    """
    name, _, form = symbol.removeprefix("tg.rare_").partition(".")
    module = ir.IRModule(symbol)
    _define(module, f"tg.{name}.{form}", FUNCTIONS[name], FORMATS[form], 1)
    module.globals[symbol].linkage = ""
    return str(module)
