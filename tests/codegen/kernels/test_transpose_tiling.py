"""What is transposed goes tile by tile, and is what NumPy's is, for all numbers of rows and columns."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad import llvmir as ir
from tracegrad.codegen.kernels.scalar_kernel import kernel_function
from tracegrad.codegen.kernels.transpose_tiling import tiles_of, transposed
from tracegrad.codegen.kernels.vectorize import vector_bytes
from tracegrad.codegen.loopir.kernel import Kernel
from tracegrad.codegen.loopir.steps import Launch
from tracegrad.codegen.plan.planner import plan
from tracegrad.codegen.vecmath.lanes import of_lanes
from tracegrad.runtime.compile import jit

pytestmark = pytest.mark.usefixtures("optimized")

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
    module, vector = ir.IRModule(), of_lanes(t, edge)
    function = ir.IRFunction(module, ir.FunctionType(ir.VoidType(), [vector.as_pointer()] * 2), "iteration")
    b = ir.IRBuilder(function.append_basic_block())
    args, to = function.args
    rows = [b.load(b.gep(args, [ir.IntType(64)(k)]), align=size) for k in range(edge)]
    for k, row in enumerate(transposed(b, rows, 16 // size)):
        b.store(row, b.gep(to, [ir.IntType(64)(k)]), align=size)
    b.ret_void()
    code = jit.load_object(jit.compile_ir(module, "iteration", "vectors"))
    a = np.arange(edge * edge).astype({8: "f8", 4: "f4", 2: "i2", 1: "u1"}[size]).reshape(edge, edge)
    out = np.empty_like(a)
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2)(code.address("iteration"))(a.ctypes.data, out.ctypes.data)
    np.testing.assert_array_equal(out, a.T)


# By name: of two matrices, a row and a column, what is computed of a transposed one besides.
BESIDE: dict[str, Callable[..., Any]] = {
    "a.T + b": lambda a, b, row, column: a.T + b,
    "b - a.T": lambda a, b, row, column: b - a.T,
    "backwards": lambda a, b, row, column: a.T * 3 - b[::-1, ::-1],
    "two turned": lambda a, b, row, column: np.copy((a.T * (a[:, ::-1].T[::-1] + 1)), order="C"),
    "a row": lambda a, b, row, column: a.T * row + b,
    "a column": lambda a, b, row, column: a.T * column + b,
    "both, and a number": lambda a, b, row, column: (a.T + column) * row + b * 2 + a[0, 0],
    "two results": lambda a, b, row, column: (a.T + b, a.T - b),
    "chosen": lambda a, b, row, column: np.where(b < a.T, a.T, b),
    "extremum": lambda a, b, row, column: np.maximum(a.T, b),
    "a constant": lambda a, b, row, column: np.maximum(a.T, 0.7) - b,
}


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int32"])
@pytest.mark.parametrize("name", BESIDE)
def test_light_arithmetic_beside_a_transposed_matrix_is_numpys(name: str, dtype: str) -> None:
    rng, f = np.random.default_rng(0), BESIDE[name]
    compiled = tg.trace(f, tiered=False)
    for rows, columns in ((1, 5), (3, 4), (4, 4), (8, 8), (9, 8), (17, 31), (33, 130), (300, 65)):
        a, b = rng.integers(-50, 50, (columns, rows)), rng.integers(-50, 50, (rows, columns))
        args = [x.astype(dtype) for x in (a, b, b[0], b[:, :1])]
        for got, want in zip(np.atleast_3d(compiled(*args)), np.atleast_3d(f(*args)), strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_axes_are_numpys_in_any_order(order: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    compiled = tg.trace(lambda a: np.ascontiguousarray(np.transpose(a, order)), tiered=False)
    moved = tg.trace(lambda a, b: np.transpose(a, order) + b, tiered=False)
    for shape in ((3, 4, 5), (17, 9, 33), (8, 100, 16), (70, 64, 65)):
        for dtype in ("f8", "f4", "i2", "?"):
            a = rng.integers(0, 2 if dtype == "?" else 100, shape).astype(dtype)
            transposed = a.transpose(order)
            np.testing.assert_array_equal(compiled(a), transposed)
            np.testing.assert_array_equal(moved(a, np.ones(transposed.shape, dtype)), transposed + np.ones((), dtype))


def test_a_matrix_that_its_own_transpose_is_added_to_is_numpys() -> None:
    a = np.random.default_rng(0).normal(size=(67, 67))

    def added(a: Any) -> Any:
        a += a.T
        return a

    np.testing.assert_array_equal(tg.trace(added, tiered=False)(a.copy()), a + a.T)
    derivatives = tg.grad(lambda a: np.sum((a + a.T) ** 2))(a)
    np.testing.assert_allclose(derivatives, 4 * (a + a.T), rtol=1e-15)


@pytest.mark.skipif(not vector_bytes(), reason="needs AVX2")
def test_what_is_transposed_goes_by_tiles_alone_or_beside_light_arithmetic() -> None:
    a, b = np.ones((40, 30)), np.ones((30, 40))
    for dtype, edge in (("f8", 4), ("f4", 8), ("i2", 8), ("?", 16)):
        (result,) = map(tiles_of, kernels(turned, a.astype(dtype)))
        assert result is not None
        assert result.edge == edge
    for name, f in BESIDE.items():
        (result,) = map(tiles_of, kernels(f, a, b, b[0], b[:, :1]))
        assert (result is None) == (name == "backwards")
    for f in (
        lambda a, b: np.copy(a),
        lambda a, b: np.copy(a.T[::2]),  # no whole vectors of it lie along memory
        lambda a, b: np.exp(a.T) * b,  # dear
        lambda a, b: np.sum(a.T * b, axis=1),  # reduced
        lambda a, b: (a.T + b).astype(np.float32),  # of two sizes
        lambda a, b: a.T * a[::-1].T * a[:, ::-1].T + b,  # three are more than registers hold
    ):
        assert [tiles_of(kernel) for kernel in kernels(f, a, b)] == [None]


@pytest.mark.skipif(not vector_bytes(), reason="needs AVX2")
@pytest.mark.parametrize("dtype", ["float64", "float32", "int16", "bool"])
@pytest.mark.parametrize("threads", [1, 3])
def test_few_long_rows_are_cut_across(dtype: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # As many as a tile has are together where the columns are cut; a chunk of some rows would have no tile.
    rng, compiled = np.random.default_rng(0), tg.trace(turned, tiered=False)
    beside = tg.trace(lambda a, b: a.T + b, tiered=False)
    monkeypatch.setattr(tg.settings, "num_threads", threads)
    for rows in (9, 10, 15, 17, 31):
        for columns in (4095, 4096, 20_003, 200_001 // rows):
            a = rng.integers(0, 2, (columns, rows)).astype(dtype)
            np.testing.assert_array_equal(compiled(a), a.T)
            np.testing.assert_array_equal(beside(a, a.T.copy()), a.T + a.T)
    (kernel,) = kernels(turned, a)
    assert kernel.chunked == 1
    assert tiles_of(kernel) is not None


@pytest.mark.skipif(not vector_bytes(), reason="needs AVX2")
def test_bytes_have_smaller_tiles_where_large_ones_do_not_fit() -> None:
    (kernel,) = kernels(turned, np.ones((4000, 10), "uint8"))
    text = str(kernel_function(ir.IRModule(), kernel, "bytes"))
    assert text.count("load <16 x i8>") == 16
    assert text.count("load <8 x i8>") == 8
