"""Transposed copies go tile by tile, and are what NumPy's are, for all numbers of rows and columns."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from llvmlite import ir

import tracegrad as tg
from tracegrad.codegen.lanes import of_lanes
from tracegrad.codegen.loops import Kernel
from tracegrad.codegen.plan import Launch, plan
from tracegrad.codegen.tiles import tiles_of, transposed
from tracegrad.codegen.vectors import vector_bytes
from tracegrad.runtime import native

SIZES = (1, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 64, 67, 130)


def turned(a: Any) -> Any:
    return np.copy(a.T, order="C")


def kernels(f: Any, *args: Any) -> list[Kernel]:
    return [x.kernel for x in plan(tg.trace(f).explain(*args).optimized).steps if isinstance(x, Launch)]


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int32", "int16", "uint8", "bool"])
def test_the_copy_of_a_transposed_matrix_is_numpys_for_all_sizes(dtype: str) -> None:
    rng, compiled = np.random.default_rng(0), tg.trace(turned, tiered=False)
    for rows in SIZES:
        for columns in SIZES:
            a = rng.integers(0, 2 if dtype == "bool" else 100, (rows, columns)).astype(dtype)
            np.testing.assert_array_equal(compiled(a), a.T)


def test_so_are_those_of_a_stack_of_matrices_and_of_many_rows_in_chunks() -> None:
    rng, compiled = np.random.default_rng(0), tg.trace(lambda a: np.copy(a.swapaxes(1, 2)), tiered=False)
    for shape in ((5, 20, 17), (3, 9, 40), (2, 4, 5)):
        a = rng.standard_normal(shape)
        np.testing.assert_array_equal(compiled(a), a.swapaxes(1, 2))
    a = rng.standard_normal((1203, 911))
    np.testing.assert_array_equal(tg.trace(turned, tiered=False)(a), a.T)


@pytest.mark.parametrize(
    ("t", "size"), [(ir.DoubleType(), 8), (ir.FloatType(), 4), (ir.IntType(16), 2), (ir.IntType(8), 1)]
)
@pytest.mark.parametrize("bytes_", [16, 32, 64])
def test_the_columns_of_a_tile_are_the_rows_of_its_transpose(t: Any, size: int, bytes_: int) -> None:
    edge = min(bytes_ // size, 16)
    module, vector = ir.Module(), of_lanes(t, edge)
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [vector.as_pointer()] * 2), "turn")
    b = ir.IRBuilder(function.append_basic_block())
    given, to = function.args
    rows = [b.load(b.gep(given, [ir.IntType(64)(k)]), align=size) for k in range(edge)]
    for k, row in enumerate(transposed(b, rows, 16 // size)):
        b.store(row, b.gep(to, [ir.IntType(64)(k)]), align=size)
    b.ret_void()
    code = native.load_object(native.compile_ir(module, "turn", "vectors"))
    a = np.arange(edge * edge).astype({8: "f8", 4: "f4", 2: "i2", 1: "u1"}[size]).reshape(edge, edge)
    out = np.empty_like(a)
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2)(code.address("turn"))(a.ctypes.data, out.ctypes.data)
    np.testing.assert_array_equal(out, a.T)


@pytest.mark.skipif(not vector_bytes(), reason="needs AVX2")
def test_only_what_is_transposed_and_nothing_else_goes_by_tiles() -> None:
    a, b = np.ones((40, 30)), np.ones((30, 40))
    for dtype, edge in (("f8", 4), ("f4", 8), ("i2", 8), ("?", 16)):
        (found,) = map(tiles_of, kernels(turned, a.astype(dtype)))
        assert found is not None
        assert found.edge == edge
    for f in (lambda a, b: a + b.T, lambda a, b: np.copy(a), lambda a, b: np.copy(a.T[::2]), lambda a, b: -a.T):
        assert [tiles_of(kernel) for kernel in kernels(f, a, b)] == [None], f
