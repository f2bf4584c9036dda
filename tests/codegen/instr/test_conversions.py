"""Floats that no unsigned integer is: what they become is the instruction set's, as for NumPy's C code."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from tracegrad import llvmir as ir
from tracegrad.codegen.instr import scalar
from tracegrad.runtime.compile import jit

TOP = 2.0**64
C = {"f64": ctypes.c_double, "f32": ctypes.c_float, "u64": ctypes.c_uint64, "u32": ctypes.c_uint32}


def converter(old: str, new: str) -> tuple[Any, jit.NativeCode]:
    """A function of C that converts a number."""
    module = ir.IRModule()
    function = ir.IRFunction(module, ir.FunctionType(scalar.llvm_type(new), [scalar.llvm_type(old)]), "convert")
    b = ir.IRBuilder(function.append_basic_block())
    b.ret(scalar.cast(b, function.args[0], old, new))
    code = jit.load_object(jit.compile_ir(module, "convert"))
    return ctypes.CFUNCTYPE(C[new], C[old])(code.address("convert")), code


@pytest.mark.parametrize("old", ["f64", "f32"])
@pytest.mark.parametrize("saturates", [False, True])
@pytest.mark.parametrize("new", ["u64", "u32"])
def test_numbers_in_range_are_cut_off(old: str, new: str, saturates: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scalar, "_SATURATES", saturates)
    convert, _code = converter(old, new)
    half = 2.0 ** (31 if new == "u32" else 63)
    for x in (0.0, -0.0, 0.99, -0.99, 7.5, half, 1.5 * half):
        assert convert(x) == int(x)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("f64", "u64", [0, 0, 2**64 - 1, 0]),
        ("f32", "u64", [0, 0, 2**64 - 1, 0]),
        ("f32", "u32", [0, 0, 2**32 - 1, 0]),
        ("f64", "u32", [2**32 - 1, 2**32 - 300]),
    ],
)
def test_arm_takes_the_nearest_integer(
    old: str, new: str, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scalar, "_SATURATES", True)
    convert, _code = converter(old, new)
    assert [convert(x) for x in (-1.5, -300.0, 2 * TOP, float("nan"))[: len(expected)]] == expected


@pytest.mark.parametrize("old", ["f64", "f32"])
def test_x86_wraps_negative_numbers(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scalar, "_SATURATES", False)
    for new, bits in (("u64", 64), ("u32", 32)):
        convert, _code = converter(old, new)
        assert [convert(x) for x in (-1.5, -300.0)] == [2**bits - 1, 2**bits - 300]
