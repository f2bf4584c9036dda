"""Numbers of `codegen` and `runtime` that are no tuning constants; `tracegrad.target` has those."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from paths import ROOT

# Packages of coefficients of polynomials, and of the ranges on which they hold.
COEFFICIENTS = ("codegen/vecmath/",)
# Facts about formats and ABIs, words of records, status codes, levels of LLVM, and limits of correctness.
FACTS = {
    "codegen/entry/entry_point.py": {"HUGE_BYTES"},
    "codegen/entry/signature.py": {"SLOT_BYTES"},
    "codegen/instr/float_bits.py": {"_BIAS", "_HALF_OF_ONE"},
    "codegen/instr/safepoints.py": {"INTERRUPTED"},
    "codegen/kernels/vector_memory.py": {"REGISTER"},
    "codegen/kernels/vectorize.py": {"STRIDES"},
    "codegen/libs/packbits.py": {"AT_A_TIME", "EACH"},
    "codegen/libs/random_streams.py": {"_MARGIN", "_MULTIPLIER"},
    "codegen/loopir/random_draws.py": {"_MAX_INTEGER_RANGE"},
    "codegen/plan/fused_arg_reduction.py": {"LONGEST", "MIN_INDEXED_BYTES"},
    "codegen/plan/work_estimate.py": {"_THIRDS"},
    "codegen/program/interpreter.py": {"FAILED_CHECK"},
    "codegen/program/regions.py": {"CAPACITY"},
    "codegen/program/strip_fusion.py": {"NO_MEMORY"},
    "runtime/blas/parallel_gemm.py": {"_BYTES", "_NEVER"},
    "runtime/compile/disk_cache.py": {"_DAY", "_FORMAT"},
    "runtime/compile/pass_pipelines.py": {"_EACH", "_KNOWN", "_PIPELINES", "_TO_BEGIN"},
    "runtime/dispatch/native_guards.py": {"_OWNS_DATA", "_WRITEABLE"},
    "runtime/execution/entry_callable.py": {"_ARRAY_TYPE", "_METH_FASTCALL", "_NUMPY_FUNCTIONS"},
    "runtime/execution/numpy_sort_addresses.py": {"_CASTS", "_OTHERS", "_TABLE_OF_DTYPE"},
}


def is_numeric(node: ast.AST) -> bool:
    """Whether an expression is a number, arithmetic of numbers and names, or a collection with numbers in it."""
    match node:
        case ast.Constant(value=value):
            return type(value) in (int, float)
        case ast.UnaryOp(operand=operand):
            return is_numeric(operand)
        case ast.BinOp(left=left, right=right):
            return is_numeric(left) or is_numeric(right)
        case ast.IfExp(body=one, orelse=other):
            return is_numeric(one) or is_numeric(other)
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts) | ast.Dict(values=parts):
            return any(map(is_numeric, parts))
        case ast.Call(func=ast.Name(id="dict" | "float" | "frozenset" | "int" | "max" | "min"), args=args):
            return any(map(is_numeric, args))
        case ast.Call(func=ast.Attribute(attr="fromkeys"), args=[_, value]):
            return is_numeric(value)
    return False


def numeric_constants(tree: ast.Module) -> Iterator[str]:
    """The names of a module in upper case that are bound to numbers."""
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                pairs = list(zip(targets, values, strict=True))
            case ast.Assign(targets=targets, value=value):
                pairs = [(target, value) for target in targets]
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                pairs = [(target, value)]
            case _:
                continue
        for target, value in pairs:
            if isinstance(target, ast.Name) and target.id.isupper() and is_numeric(value):
                yield target.id


def test_numbers_of_modules_are_facts_and_no_tuning_constants() -> None:
    package = ROOT / "tracegrad"
    results = {}
    for path in sorted(path for folder in ("codegen", "runtime") for path in (package / folder).rglob("*.py")):
        name = path.relative_to(package).as_posix()
        if not name.startswith(COEFFICIENTS):
            results[name] = set(numeric_constants(ast.parse(path.read_text(encoding="utf-8"))))
    assert {name: names for name, names in results.items() if names} == FACTS


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("MOST = 8", ["MOST"]),
        ("_MOST: int = 2**20", ["_MOST"]),
        ("MOST, NAME = 1 << 20, 'x'", ["MOST"]),
        ("LONG = SHORT * 2", ["LONG"]),
        ("COST = dict.fromkeys(NAMES, 20) | COST", ["COST"]),
        ("COST = {'div': 4, 'mul': ONE}", ["COST"]),
        ("LARGE = 2**22 if linux else NONE", ["LARGE"]),
        ("STRIDES = (2, -2)", ["STRIDES"]),
        ("JAM = TUNING.unrolling.jam_factor", []),
        ("_count = 0", []),
        ("I64 = ir.IntType(64)", []),
        ("NAMES = ('x', 'y')", []),
        ("def f():\n MOST = 8", []),
    ],
)
def test_the_reader_of_numbers_sees_them_all(source: str, expected: list[str]) -> None:
    assert [*numeric_constants(ast.parse(source))] == expected
