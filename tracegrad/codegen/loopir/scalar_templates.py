"""Expand scalar templates: the expression that an elementwise op declares, as loop IR.

A template is parsed once per op. A literal in it takes the dtype of its operands. `FUNCTIONS` lists the functions that
a template may call. `supports` says for which dtypes a function can be generated; an op with other dtypes (integer
power, for instance) is called in NumPy instead.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from typing import Any

from tracegrad.codegen.loopir.kernel import Operand, immediate
from tracegrad.target.tuning import TUNING

COMPARISONS = frozenset({"lt", "le", "eq", "ne", "gt", "ge"})


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ANY = COMPARISONS | _names(
    "add sub mul neg maximum minimum where absolute sign floor_divide remainder isfinite isinf floor ceil trunc rint"
)
_BOOLEAN = _names(
    "logical_and logical_or logical_not eq ne where add mul maximum minimum bit_and bit_or bit_xor absolute floor ceil "
    "trunc isfinite isinf"
)
_FUNCTIONS = _names(
    "exp exp2 expm1 log log2 log10 log1p sin cos tan arcsin arccos arctan arctan2 sinh cosh tanh arcsinh arccosh "
    "arctanh sech2 sigmoid erf erfc ndtr gauss gauss_half power cbrt silu silu_derivative gelu_tanh "
    "gelu_tanh_derivative "
    "x_ndtr x_ndtr_derivative sinc_derivative"
)
_WRITTEN = _names("nextafter spacing mantissa exponent round_to_half half_bits")
_FLOAT = _FUNCTIONS | _WRITTEN | {"copysign", "div", "sqrt"}
_INTEGER = _names("bit_and bit_or bit_xor shift_left shift_right popcount half_value")

FUNCTIONS = _ANY | _BOOLEAN | _FLOAT | _INTEGER

# Functions whose result has another dtype than the arguments.
_RESULTS = {"isfinite": "bool", "isinf": "bool", "exponent": "i32", "half_bits": "u16", "half_value": "f32"}

# Rough costs of one scalar operation, in cost units; an unlisted one costs 1.
COST = dict.fromkeys(_FUNCTIONS, TUNING.costs.function) | dict.fromkeys(_WRITTEN, TUNING.costs.bits)
COST |= dict(TUNING.costs.others)

_BINARY = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div"}
_COMPARE = {ast.Lt: "lt", ast.LtE: "le", ast.Eq: "eq", ast.NotEq: "ne", ast.Gt: "gt", ast.GtE: "ge"}


@cache
def _parsed(template: str) -> ast.expr:
    return ast.parse(template, mode="eval").body


@cache
def functions_of(template: str) -> tuple[str, ...]:
    """The functions that one evaluation calls, with repetition."""
    results = []
    for tree in ast.walk(_parsed(template)):
        if isinstance(tree, ast.BinOp):
            results.append(_BINARY[type(tree.op)])
        elif isinstance(tree, ast.UnaryOp):
            results.append("neg")
        elif isinstance(tree, ast.Compare):
            results.append(_COMPARE[type(tree.ops[0])])
        elif isinstance(tree, ast.Call):
            assert isinstance(tree.func, ast.Name)
            results.append(tree.func.id)
    return tuple(results)


@cache
def template_cost(template: str | None) -> int:
    """The rough cost of one evaluation."""
    return sum(COST.get(name, 1) for name in functions_of(template)) if template else 0


@cache
def lowerable(template: str | None, dtypes: tuple[str, ...]) -> bool:
    """Whether the template can be generated for operands of the dtypes `dtypes`."""
    if template is None:
        return False
    if dtypes[0] == "bool" and "where" in functions_of(template):
        dtypes = dtypes[1:]  # its condition
    kinds = {"b" if d == "bool" else d[0] for d in dtypes}
    for name in functions_of(template):
        if (name in _FLOAT and kinds != {"f"}) or (name in _INTEGER and not kinds <= {"b", "i", "u"}):
            return False
        if name in _WRITTEN and not set(dtypes) <= {"f32", "f64"}:
            return False
        if "b" in kinds and name not in _BOOLEAN and name not in COMPARISONS:
            return False
    return True


Emit = Callable[[str, tuple[Operand, ...], str], Operand]
_ExprEmitter = Callable[[dict[str, Operand], Emit], Any]  # emits a part of a template; a number stays one


def evaluate(template: str, operands: dict[str, Operand], emit: Emit) -> Operand:
    """Emit the template for `operands`; `emit(function, args, dtype)` appends one instruction."""
    result = _emitter(template)(operands, emit)
    assert isinstance(result, Operand)
    return result


@cache
def _emitter(template: str) -> _ExprEmitter:
    return _expr_emitter(_parsed(template))


def _expr_emitter(tree: ast.expr) -> _ExprEmitter:
    match tree:
        case ast.Name(id=name):
            return lambda operands, emit: operands[name]
        case ast.Constant(value=value):
            return lambda operands, emit: value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _negated(_expr_emitter(operand))
        case ast.BinOp(left=left, op=op, right=right):
            return _applied(_BINARY[type(op)], [left, right])
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _applied(_COMPARE[type(op)], [left, right], "bool")
        case ast.Call(func=ast.Name(id="where"), args=[mask, *choices]):
            return _chosen(_expr_emitter(mask), [*map(_expr_emitter, choices)])
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _applied(name, arguments, _RESULTS.get(name, ""))
    raise ValueError(f"not a scalar template: {ast.unparse(tree)}")


def _applied(name: str, arguments: list[ast.expr], dtype: str = "") -> _ExprEmitter:
    """A call of a scalar function, whose result has this dtype, or else the dtype of its arguments."""
    emitters = [*map(_expr_emitter, arguments)]

    def emitter(operands: dict[str, Operand], emit: Emit) -> Operand:
        args = _typed([x(operands, emit) for x in emitters])
        return emit(name, args, dtype or args[0].dtype)

    return emitter


def _chosen(mask: _ExprEmitter, choices: list[_ExprEmitter]) -> _ExprEmitter:
    def emitter(operands: dict[str, Operand], emit: Emit) -> Operand:
        args = (mask(operands, emit), *_typed([x(operands, emit) for x in choices]))
        return emit("where", args, args[1].dtype)

    return emitter


def _negated(of: _ExprEmitter) -> _ExprEmitter:
    def emitter(operands: dict[str, Operand], emit: Emit) -> Any:
        x = of(operands, emit)
        return emit("neg", (x,), x.dtype) if isinstance(x, Operand) else -x

    return emitter


def _typed(values: list[object]) -> tuple[Operand, ...]:
    """The values as operands: a number becomes an immediate of the dtype of the others."""
    dtype = next(x.dtype for x in values if type(x) is Operand)
    return tuple([x if type(x) is Operand else Operand("", dtype, immediate(x, dtype)) for x in values])
