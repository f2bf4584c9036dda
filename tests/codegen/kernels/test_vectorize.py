"""Kernels as vectors: every number of elements, at the very edge of memory that may be touched."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from vector_kernels import DTYPES, numbers, ran, rng, v, with_vectors_of

import tracegrad as tg
from tracegrad import llvmir as ir
from tracegrad.codegen.instr import scalar
from tracegrad.codegen.kernels import vectorize
from tracegrad.codegen.kernels.scalar_kernel import kernel_function
from tracegrad.codegen.kernels.vectorize import vectors_of
from tracegrad.codegen.loopir.kernel import (
    BoundsCheck,
    Compute,
    GuardBlock,
    Index,
    Kernel,
    KernelLoop,
    Load,
    Operand,
    Reduce,
    Store,
)
from tracegrad.codegen.loopir.polynomial import ONE, ZERO, Poly, poly
from tracegrad.codegen.loopir.steps import Launch
from tracegrad.codegen.plan.planner import plan
from tracegrad.codegen.program.compilation_units import unit_of_segment
from tracegrad.codegen.program.region_function import has_llvm_loops, unit_module
from tracegrad.passes import optimize
from tracegrad.runtime.compile import jit
from tracegrad.target.cpu import features

pytestmark = pytest.mark.usefixtures("optimized")

i, j, n, m = (Poly.symbol(s) for s in ("i0", "i1", "s0", "s1"))
SIZES = [*range(34), 63, 64, 65, 130]
LIGHT, HEAVY = 5, 100
FLOATS = ("f64", "f32")
INTEGERS = ("i64", "i32", "i8", "u64", "u16")


# -- memory between two pages that may not be touched ------------------------------------------------------------------


@pytest.fixture(params=[64, 32, 0])
def width(request: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    """The bytes of a vector, as machines have them; for none, LLVM makes the vectors."""
    return with_vectors_of(request.param, monkeypatch)


def kernel_of(loops: list[KernelLoop], body: list[Any], cost: int, **buffers: str) -> Kernel:
    """A kernel whose buffers are given as "f64 in"; it is one that vectors are made of, where there are any."""
    kernel = Kernel({k: tuple(v.split()) for k, v in buffers.items()}, loops, body, cost)  # type: ignore[misc]
    assert vectors_of(kernel) is not None or not vectorize.vector_bytes() or vectorize.narrowest_bytes() > 1
    return kernel


# -- one loop ----------------------------------------------------------------------------------------------------------
NUMPY = {
    "add": np.add,
    "mul": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
}
COMBINERS = [(c, d) for d in (*FLOATS, *INTEGERS) for c in ("add", "mul", "maximum", "minimum")]
COMBINERS += [("logical_and", "bool"), ("logical_or", "bool")]


def reduced(combiner: str, x: Any, axis: Any = None) -> Any:
    """What NumPy makes of it; of nothing, what a reduction begins with."""
    if not x.size:
        x = np.concatenate([x.ravel(), [_nothing(combiner, x.dtype)]]).astype(x.dtype)
    saved = {} if combiner.startswith("logical") else {"dtype": x.dtype}
    return NUMPY[combiner].reduce(x, axis=axis, **saved)


def _nothing(combiner: str, dtype: Any) -> Any:
    if combiner in ("maximum", "minimum"):
        edge = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
        value = edge.min if combiner == "maximum" else edge.max
        return value * np.inf if dtype.kind == "f" else value
    return combiner in ("mul", "logical_and")


@pytest.mark.parametrize("cost", [LIGHT, HEAVY])
@pytest.mark.parametrize(("combiner", "dtype"), COMBINERS)
def test_rows_of_every_length_are_reduced_and_stored(combiner: str, dtype: str, cost: int) -> None:
    body = [
        Load(v(0, dtype), "b0", i),
        Load(v(1, dtype), "b1", i),
        Compute(v(2, dtype), "maximum", (v(0, dtype), v(1, dtype))),
        Store("b2", i, v(2, dtype)),
        Reduce("b3", ZERO, combiner, v(0, dtype), ("i0",), ONE),
    ]
    buffers = {"b0": f"{dtype} in", "b1": f"{dtype} in", "b2": f"{dtype} out", "b3": f"{dtype} out"}
    kernel = kernel_of([KernelLoop("i0", n)], body, cost, **buffers)
    for size in SIZES:
        x, y = numbers(dtype, size), numbers(dtype, size)
        options = {"b0": x, "b1": y, "b2": np.zeros_like(x), "b3": np.ones(1, x.dtype)}
        for at_end in (True, False):
            got = ran(kernel, {"s0": size, "rows": size}, options, at_end)
            assert np.array_equal(got["b2"], np.maximum(x, y))
            assert got["b3"][0] == reduced(combiner, x), size


@pytest.mark.parametrize("cost", [LIGHT, HEAVY])
@pytest.mark.parametrize("dtype", FLOATS)
def test_extrema_keep_nans_and_sums_of_nothing_but_minus_zero_are_zero(dtype: str, cost: int) -> None:
    body = [
        Load(v(0, dtype), "b0", i),
        Reduce("b1", ZERO, "maximum", v(0, dtype), ("i0",), ONE),
        Reduce("b2", ZERO, "minimum", v(0, dtype), ("i0",), ONE),
        Reduce("b3", ZERO, "add", v(0, dtype), ("i0",), ONE),
    ]
    names = ("b1", "b2", "b3")
    kernel = kernel_of([KernelLoop("i0", n)], body, cost, b0=f"{dtype} in", **dict.fromkeys(names, f"{dtype} out"))
    for size in SIZES[1:]:
        for where in {-1, 0, size // 2, size - 1}:
            x = np.full(size, -0.0, dtype=DTYPES[dtype])
            if where >= 0:
                x[where] = np.nan
            args = {"b0": x} | {name: np.ones(1, x.dtype) for name in names}
            got = ran(kernel, {"s0": size, "rows": size}, args, True)
            results = [got[name][0] for name in names]
            if where >= 0:
                assert np.isnan(results).all()
            else:
                assert results == [0, 0, 0]
                assert not np.signbit(results[2])


@pytest.mark.usefixtures("width")
def test_dtypes_of_several_widths_in_one_kernel() -> None:
    body = [
        Load(v(0, "f32"), "b0", i),
        Load(v(1, "i8"), "b1", i),
        Load(v(2, "bool"), "b2", i),
        Compute(v(3, "f64"), "cast", (v(0, "f32"),)),
        Compute(v(4, "f64"), "cast", (v(1, "i8"),)),
        Compute(v(5, "f64"), "where", (v(2, "bool"), v(3, "f64"), v(4, "f64"))),
        Index(v(6, "i64"), 3 * i + 1),
        Compute(v(7, "f64"), "cast", (v(6, "i64"),)),
        Compute(v(8, "bool"), "lt", (v(5, "f64"), v(7, "f64"))),
        Store("b3", i, v(8, "bool")),
        Compute(v(9, "i64"), "cast", (v(8, "bool"),)),
        Reduce("b4", ZERO, "add", v(9, "i64"), ("i0",), ONE),
    ]
    buffers = {"b0": "f32 in", "b1": "i8 in", "b2": "bool in", "b3": "bool out", "b4": "i64 out"}
    for cost in (LIGHT, HEAVY):
        kernel = kernel_of([KernelLoop("i0", n)], body, cost, **buffers)
        for size in SIZES:
            x, y, mask = numbers("f32", size) * 20, numbers("i8", size) * 9, numbers("bool", size)
            options = {"b0": x, "b1": y, "b2": mask, "b3": np.zeros(size, bool), "b4": np.zeros(1, np.int64)}
            got = ran(kernel, {"s0": size, "rows": size}, options, size % 2 == 0)
            want = np.where(mask, x, y) < 3 * np.arange(size) + 1
            assert np.array_equal(got["b3"], want)
            assert got["b4"][0] == want.sum()


@pytest.mark.usefixtures("width")
def test_what_runs_backwards_what_is_padded_and_what_is_gathered() -> None:
    """b3[i] = b0[n - 1 - i] + (b1[i - 2] where that is, else 7) + b0[b2[i]]."""
    body = [
        Load(v(0, "f64"), "b0", n - 1 - i),
        GuardBlock(
            v(2, "f64"),
            ((ZERO, i - 2, n - 2, ONE),),
            [Load(v(1, "f64"), "b1", i - 2)],
            v(1, "f64"),
            Operand("", "f64", "7.0"),
        ),
        Load(v(3, "i64"), "b2", i),
        Load(v(4, "f64"), "b0", Poly.symbol("v3")),
        Compute(v(5, "f64"), "add", (v(0, "f64"), v(2, "f64"))),
        Compute(v(6, "f64"), "add", (v(5, "f64"), v(4, "f64"))),
        Store("b3", i, v(6, "f64")),
    ]
    kernel = kernel_of([KernelLoop("i0", n)], body, HEAVY, b0="f64 in", b1="f64 in", b2="i64 in", b3="f64 out")
    for size in SIZES:
        x, y = numbers("f64", size), numbers("f64", max(size - 2, 0))
        at = rng.permutation(size)
        for at_end in (True, False):
            options = {"b0": x, "b1": y, "b2": at, "b3": np.zeros(size)}
            got = ran(kernel, {"s0": size, "rows": size}, options, at_end)
            assert np.array_equal(got["b3"], x[::-1] + np.concatenate([np.full(2, 7.0), y])[:size] + x[at])


def test_masks_that_are_kept_on_the_stack() -> None:
    """With so many constants that registers do not suffice, a byte for each lane is stored, and no more."""
    x = v(0, "f64")
    body: list[Any] = [Load(x, "b0", i)]
    for k, name in enumerate(("arctan", "sinh", "cosh"), 1):
        body += [Compute(v(k, "f64"), name, (x,)), Store(f"b{k}", i, v(k, "f64"))]
    body += [Compute(v(4, "bool"), "isfinite", (x,)), Store("b4", i, v(4, "bool"))]
    names = ("b1", "b2", "b3")
    kernel = kernel_of(
        [KernelLoop("i0", n)], body, HEAVY, b0="f64 in", b4="bool out", **dict.fromkeys(names, "f64 out")
    )
    for size in SIZES:
        x = rng.normal(size=size)
        args = {"b0": x} | {name: np.zeros(size) for name in names} | {"b4": np.zeros(size, bool)}
        for at_end in (True, False):
            got = ran(kernel, {"s0": size, "rows": size}, args, at_end)
            assert got["b4"].all()
            np.testing.assert_allclose(got["b3"], np.cosh(x), rtol=1e-14)


def test_short_elements_have_scalar_loops_where_masks_are_of_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(dtype: str) -> Any:
        body = [Load(v(0, dtype), "b0", i), Store("b1", i, v(0, dtype))]
        return vectors_of(Kernel({"b0": (dtype, "in"), "b1": (dtype, "out")}, [KernelLoop("i0", n)], body, LIGHT))

    monkeypatch.setattr(vectorize, "vector_bytes", lambda: 32)
    for narrowest, those in (1, ("f64", "f32", "i16", "bool")), (4, ("f64", "f32")):
        monkeypatch.setattr(vectorize, "narrowest_bytes", lambda narrowest=narrowest: narrowest)
        assert [dtype for dtype in ("f64", "f32", "i16", "bool") if made(dtype) is not None] == list(those)


@pytest.mark.parametrize("dtype", ["bool", "int16"])
@pytest.mark.parametrize(("columns", "one_by_one"), [(5, False), (8, False), (10, True), (300, True)])
def test_short_elements_that_lie_far_apart_are_moved_one_by_one(columns: int, one_by_one: bool, dtype: str) -> None:
    x = rng.integers(0, 2, (333, columns)).astype(dtype)
    result = tg.trace(lambda x: x[:, 1].copy(), tiered=False)
    np.testing.assert_array_equal(result(x), x[:, 1])
    (step,) = plan(result.explain(x).optimized).steps
    assert isinstance(step, Launch)
    module = ir.IRModule()
    kernel_function(module, step.kernel, "column")
    assert ("vectorize.enable" in str(module)) == (one_by_one and step.kernel.loops[-1].extent.value is None)


def test_booleans_that_are_reduced_lie_in_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectorize, "vector_bytes", lambda: 32)
    monkeypatch.setattr(vectorize, "narrowest_bytes", lambda: 4)
    x, known = v(0, "f64"), v(1, "bool")
    body = [
        Load(x, "b0", i),
        Compute(known, "eq", (x, x)),
        Reduce("b1", poly(0), "maximum", x, ("i0",), poly(1)),
        Reduce("b2", poly(0), "logical_or", known, ("i0",), poly(1)),
    ]
    buffers = {"b0": ("f64", "in"), "b1": ("f64", "out"), "b2": ("bool", "out")}
    assert vectors_of(Kernel(buffers, [KernelLoop("i0", n)], body, LIGHT)) is not None


def test_booleans_of_numbers_are_a_vector_at_a_time_where_masks_are_of_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectorize, "vector_bytes", lambda: 32)
    monkeypatch.setattr(vectorize, "narrowest_bytes", lambda: 4)
    x, known = v(0, "f64"), v(1, "bool")
    body = [Load(x, "b0", i), Compute(known, "eq", (x, x)), Store("b1", i, known)]
    buffers = {"b0": ("f64", "in"), "b1": ("bool", "out")}
    result = vectors_of(Kernel(buffers, [KernelLoop("i0", n)], body, LIGHT))
    assert result is not None
    assert (result.lanes, result.at_once) == (32, 1)
    at = Poly.symbol("i0") * 9 + Poly.symbol("i1")
    rows = [Load(x, "b0", at), body[1], Store("b1", at, known)]
    assert (
        vectors_of(Kernel(buffers, [KernelLoop("i0", n), KernelLoop("i1", n)], rows, LIGHT)) is None
    )  # which may be short


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int32"])
def test_booleans_of_as_many_numbers_as_there_are(dtype: str) -> None:
    compared = tg.trace(lambda x, y: ((x > y) & (x < 1), x != y))
    rng = np.random.default_rng(0)
    for size in (1, 9, 31, 32, 33, 63, 64, 65, 100, 129):
        x, y = ((rng.standard_normal(size) * 3).astype(dtype) for _ in range(2))
        x[::5], y[::3] = np.nan if dtype[0] == "f" else 1, x[::3]
        for got, want in zip(compared(x, y), ((x > y) & (x < 1), x != y)):
            np.testing.assert_array_equal(got, want)


ON_AVX2 = """
import numpy as np, tracegrad as tg
from tracegrad.codegen.kernels import vectorize as vectors
from tracegrad.torch.functions.nn.pooling import max_pool2d
assert (vectors.vector_bytes(), vectors.narrowest_bytes()) == (32, 4)
rng = np.random.default_rng(0)
functions = [
    lambda x, y: np.sin(x) * np.exp(-y * y),
    lambda x, y: np.where(x > y, x, 2 * y)[::-1].sum() + np.pad(x, 2),
    lambda x, y: (x > y, np.argmax(x), np.any(y > 9), np.stack([x, y], 1), x[::2], np.cumsum(y)),
    lambda x, y: x[(np.abs(y) * 2 % x.size).astype(int)],
]
for dtype in np.float32, np.float64:
    for size in 1, 3, 7, 8, 33, 100:
        x, y = rng.standard_normal((2, size)).astype(dtype)
        for f in functions:
            got, want = tg.trace(f)(x, y), f(x, y)
            for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (got, want))):
                np.testing.assert_allclose(a, b, rtol=1e-5 if dtype == np.float32 else 1e-13, atol=1e-6)
    for n in 9, 33:
        x, found = rng.standard_normal((2, n, n)).astype(dtype), np.zeros((2, n, n))
        for p in np.ndindex(2, n // 2, n // 2):
            window = x[p[0], 2 * p[1] : 2 * p[1] + 3, 2 * p[2] : 2 * p[2] + 3]
            a, b = np.unravel_index(np.argmax(window), (3, 3))
            found[p[0], 2 * p[1] + a, 2 * p[2] + b] += 1
        np.testing.assert_array_equal(tg.grad(lambda x: np.sum(max_pool2d(x, 3, 2)))(x), found)
print("fine")
"""


@pytest.mark.skipif("avx2" not in features(), reason="needs AVX2")
def test_code_for_a_machine_that_has_avx2_and_no_more(tmp_path: Any) -> None:
    saved = [name for name in sorted(features()) if not name.startswith(("avx512", "avx10", "amx"))]
    without = [f"-{name}" for name in sorted(features() - {*saved})]
    result = subprocess.run(
        [sys.executable, "-c", ON_AVX2],
        env=os.environ
        | {
            "NUMBA_CPU_NAME": "haswell",
            "NUMBA_CPU_FEATURES": ",".join([*(f"+{name}" for name in saved), *without]),
            "TRACEGRAD_FIRST_CALL": "compile",
            "TRACEGRAD_CACHE_DIR": str(tmp_path),
        },
        capture_output=True,
        text=True,
    )
    assert result.stdout == "fine\n", result.stderr


def long_kernel(dtype: str) -> Kernel:
    """Functions of functions: stored beside others, in the place of what was read, and added up."""
    body: list[Any] = [Load(v(0, dtype), "b0", i), Load(v(1, dtype), "b1", i)]
    for k, name in enumerate(("tanh", "exp", "log", "exp", "log", "tanh"), 2):
        body.append(Compute(v(k, dtype), name, (v(k - 1, dtype),)))
    body += [Compute(v(8, dtype), "mul", (v(7, dtype), v(0, dtype))), Store("b0", i, v(8, dtype))]
    body += [Store("b2", i, v(6, dtype)), Reduce("b3", ZERO, "add", v(7, dtype), ("i0",), ONE)]
    buffers = {"b0": f"{dtype} out", "b1": f"{dtype} in", "b2": f"{dtype} out", "b3": f"{dtype} out"}
    return kernel_of([KernelLoop("i0", n)], body, HEAVY, **buffers)


@pytest.mark.parametrize("dtype", FLOATS)
def test_long_kernels_compute_two_vectors_side_by_side(dtype: str) -> None:
    kernel = long_kernel(dtype)
    result = vectors_of(kernel)
    assert not vectorize.vector_bytes() or (result is not None and result.at_once == 2)
    accuracy = 64 * np.finfo(DTYPES[dtype]).eps
    for size in SIZES:
        x, y = (rng.normal(size=size).astype(DTYPES[dtype]) for _ in range(2))
        options = {"b0": x, "b1": y, "b2": np.zeros_like(x), "b3": np.zeros(1, x.dtype)}
        inner = np.tanh(y.astype("f8"))
        for at_end in (True, False):
            got = ran(kernel, {"s0": size, "rows": size}, options, at_end)
            np.testing.assert_allclose(got["b2"], inner, rtol=0, atol=accuracy)
            np.testing.assert_allclose(got["b0"], np.tanh(inner) * x, rtol=0, atol=accuracy * 4)
            np.testing.assert_allclose(got["b3"][0], np.tanh(inner).sum(), rtol=0, atol=accuracy * max(size, 1))


@pytest.mark.parametrize("dtype", FLOATS)
def test_huge_angles_in_some_lanes(dtype: str) -> None:
    body: list[Any] = [
        Load(v(0, dtype), "b0", i),
        Compute(v(1, dtype), "sin", (v(0, dtype),)),
        Store("b1", i, v(1, dtype)),
    ]
    kernel = kernel_of([KernelLoop("i0", n)], body, HEAVY, b0=f"{dtype} in", b1=f"{dtype} out")
    for size in SIZES:
        x = rng.normal(size=size).astype(DTYPES[dtype])
        x[rng.random(size) < 0.3] *= DTYPES[dtype].type(1e30)
        got = ran(kernel, {"s0": size, "rows": size}, {"b0": x, "b1": np.zeros_like(x)}, True)
        np.testing.assert_allclose(got["b1"], np.sin(x.astype("f8")), rtol=0, atol=1e-6 if dtype == "f32" else 1e-15)


def test_integers_divide_by_what_masked_lanes_do_not_have() -> None:
    """The kernel is scalar, or the lanes behind the end divide by something: the process goes on."""
    args = (v(0, "i64"), v(1, "i64"))
    body = [Load(v(0, "i64"), "b0", i), Load(v(1, "i64"), "b1", i), Compute(v(2, "i64"), "floor_divide", args)]
    kernel = Kernel(
        {"b0": ("i64", "in"), "b1": ("i64", "in"), "b2": ("i64", "out")},
        [KernelLoop("i0", n)],
        [*body, Store("b2", i, v(2, "i64"))],
        HEAVY,
    )
    for size in SIZES:
        x, y = numbers("i64", size), numbers("i64", size)
        got = ran(kernel, {"s0": size, "rows": size}, {"b0": x, "b1": y, "b2": x * 0}, True)
        assert np.array_equal(got["b2"], np.floor_divide(x, y, out=x * 0, where=y != 0))


# -- two loops ---------------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("width")
@pytest.mark.parametrize("cost", [LIGHT, HEAVY])
@pytest.mark.parametrize("dtype", ["f64", "f32", "i32"])
def test_rows_and_columns(dtype: str, cost: int) -> None:
    """A row's sum in a register, a column's in memory, and all with what stands in a row and in a column."""
    at = j + i * m
    body = [
        Load(v(0, dtype), "b0", at),
        Load(v(1, dtype), "b1", j),
        Compute(v(2, dtype), "mul", (v(0, dtype), v(1, dtype))),
    ]
    row = Reduce("b2", i, "add", v(2, dtype), ("i1",), n)
    column = Reduce("b2", j, "add", v(2, dtype), ("i0",), m)
    total = Reduce("b2", ZERO, "maximum", v(2, dtype), ("i0", "i1"), ONE)
    for end, length in (([row], "n"), ([column], "m"), ([Store("b2", at, v(2, dtype))], "nm"), ([total], "1")):
        buffers = {"b0": f"{dtype} in", "b1": f"{dtype} in", "b2": f"{dtype} out"}
        kernel = kernel_of([KernelLoop("i0", n), KernelLoop("i1", m)], [*body, *end], cost, **buffers)
        for rows in (0, 1, 3, 4, 5, 8, 13):
            for columns in (*range(18), 33):
                x, y = numbers(dtype, rows, columns), numbers(dtype, columns)
                shape = {"n": rows, "m": columns, "nm": (rows, columns), "1": 1}[length]
                options = {"b0": x, "b1": y, "b2": np.zeros(shape, x.dtype)}
                sizes = {"s0": rows, "s1": columns, "rows": rows}
                got = ran(kernel, sizes, options, (rows + columns) % 2 == 0)["b2"]
                if length == "1":
                    assert got[0] == reduced("maximum", x * y)
                else:
                    assert np.array_equal(got, {"n": x @ y, "m": (x * y).sum(0), "nm": x * y}[length])


@pytest.mark.parametrize("n", [5, 40, 64, 65, 200])
def test_rows_of_rows_are_reduced(n: int) -> None:
    """Several at a time, if they are short: how long they are, the kernel finds out before all of its loops."""
    x = rng.standard_normal((4, 11, n))
    np.testing.assert_allclose(tg.trace(lambda x: np.sum(x, axis=(0, 2)), tiered=False)(x), x.sum((0, 2)), rtol=1e-12)
    np.testing.assert_allclose(tg.trace(lambda x: np.max(x, axis=(0, 2)), tiered=False)(x), x.max((0, 2)))


def test_a_row_that_an_index_chooses() -> None:
    """The check does not vary along the row, and is done before it, if there are elements."""
    body = [
        Load(v(0, "i64"), "b0", i),
        BoundsCheck(v(1, "i64"), v(0, "i64"), poly(5)),
        Load(v(2, "f64"), "b1", j + Poly.symbol("v1") * m),
        Store("b2", j + i * m, v(2, "f64")),
    ]
    kernel = kernel_of([KernelLoop("i0", n), KernelLoop("i1", m)], body, LIGHT, b0="i64 in", b1="f64 in", b2="f64 out")
    for columns in SIZES[:20]:
        table, at = numbers("f64", 5, columns), np.array([3, -1, 0, 4]) if columns else np.array([99, 99, 99, 99])
        options = {"b0": at, "b1": table, "b2": np.zeros((4, columns))}
        got = ran(kernel, {"s0": 4, "s1": columns, "rows": 4}, options, True)
        if columns:
            assert np.array_equal(got["b2"], table[at])


def test_kernels_that_are_not_made_of_vectors() -> None:
    """What LLVM would do lane by lane, and what reads what other iterations write."""
    x, y = v(0, "f64"), v(1, "f64")
    divided = [Load(x, "b0", i), Compute(y, "remainder", (x, x)), Store("b1", i, y)]
    assert vectors_of(Kernel({"b0": ("f64", "in"), "b1": ("f64", "out")}, [KernelLoop("i0", n)], divided, 20)) is None
    running = [Load(x, "b0", i), Store("b0", i + 1, x)]
    assert vectors_of(Kernel({"b0": ("f64", "out")}, [KernelLoop("i0", n)], running, 20)) is None
    few = [Load(x, "b0", i), Store("b1", i, x)]
    assert vectors_of(Kernel({"b0": ("f64", "in"), "b1": ("f64", "out")}, [KernelLoop("i0", poly(7))], few, 20)) is None


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("n", [*range(9, 50, 4), 64, 130])
def test_stencils_of_all_widths(n: int, dtype: str) -> None:
    """Several vectors in an iteration, each with masks of its own, and a rest."""

    def f(u: Any) -> Any:
        u = u.copy()
        u[1:-1, 1:-1] += 0.1 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1])
        return u

    u = np.random.default_rng(n).normal(size=(11, n)).astype(dtype)
    np.testing.assert_allclose(tg.trace(f, tiered=False)(u), f(u), rtol=0, atol=8 * np.finfo(dtype).eps)


PADDED: dict[str, Any] = {
    "near the ends": lambda u: np.pad(u[:, 1:], ((0, 0), (0, 1))) + np.pad(u[:, :-1], ((0, 0), (1, 0))),
    "far from the ends": lambda u: np.pad(u[3:, 7:], ((3, 0), (0, 7))) - np.pad(u[:-1, :-9], ((0, 1), (9, 0))),
    "no element has both": lambda u: (
        np.pad(u[:, :5], ((0, 0), (0, u.shape[1] - 5))) + np.pad(u[:, 5:], ((0, 0), (5, 0)))
    ),
    "no row has both": lambda u: np.pad(u[:4, 1:], ((7, 0), (1, 0))) + np.pad(u[:7, 1:], ((0, 4), (0, 1))),
}


@pytest.mark.parametrize("dtype", ["float64", "int8", "int16"])
@pytest.mark.parametrize("n", [*range(9, 60, 3), 130])
@pytest.mark.parametrize("f", PADDED.values(), ids=PADDED)
def test_the_part_in_which_all_guards_hold(f: Any, n: int, dtype: str) -> None:
    """Of vectors with masks, and of a plain loop, for which short elements have none on CPUs with AVX2."""
    u = (np.random.default_rng(n).normal(size=(11, n)) * 50).astype(dtype)
    np.testing.assert_allclose(tg.trace(f, tiered=False)(u), f(u), rtol=1e-15)


@pytest.mark.parametrize("dtype", ["bool", "int16", "float16"])
@pytest.mark.parametrize("shape", [(0, 9), (9, 0), (1, 9), (9, 1), (11, 40), (3, 200)])
def test_padded_rows_of_short_elements(shape: tuple[int, int], dtype: str) -> None:
    u = rng.integers(0, 2, shape).astype(dtype)
    for widths in (((0, 0), (0, 70)), ((70, 3), (0, 0)), ((1, 2), (30, 40)), ((0, 1), (50, 0))):
        got = tg.trace(lambda u, widths=widths: np.pad(u, widths, constant_values=1), tiered=False)(u)
        np.testing.assert_array_equal(got, np.pad(u, widths, constant_values=1))


def test_a_plain_loop_asks_no_guard_where_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectorize, "narrowest_bytes", lambda: 4)
    for f, asked in ((lambda u: np.pad(u, 1), 0), (PADDED["near the ends"], 4)):
        (step,) = plan(tg.trace(f).explain(np.ones((11, 40), "int8")).optimized).steps
        assert isinstance(step, Launch)
        text = str(kernel_function(ir.IRModule(), step.kernel, "padded"))
        assert (text.count("\nguarded"), text.count("\ninside.i1")) == (asked, 3)


@pytest.mark.skipif("avx2" not in features(), reason="needs AVX2")
def test_the_inner_part_of_a_stencil_has_no_masks() -> None:
    f = tg.trace(PADDED["near the ends"], tiered=False)
    (step,) = plan(f.explain(np.ones((11, 40))).optimized).steps
    assert isinstance(step, Launch)
    blocks = str(kernel_function(ir.IRModule(), step.kernel, "stencil")).split("\nseveral.")[1:]
    assert [block.partition("br i1")[0].count("masked.load") for block in blocks] == [4, 0]


# -- what LLVM is given to do ----------------------------------------------------------------------------------------
def test_llvm_looks_for_loops_where_there_are_any() -> None:
    def made(loops: int, *body: Any) -> Kernel:
        dtypes = {x.out.dtype for x in body if isinstance(x, Load)}
        buffers = {name: (*dtypes, way) for name, way in (("b0", "in"), ("b1", "out"))}
        return Kernel(buffers, [KernelLoop(name, n) for name in ("i0", "i1")[:loops]], [*body], LIGHT)

    x, y, total = (v(k, "f64") for k in range(3))
    sums = [Load(x, "b0", i), Load(y, "b1", i - 1), Compute(total, "add", (x, y)), Store("b1", i, total)]
    one = [Load(x, "b0", ZERO), Store("b1", ZERO, x)]
    assert [has_llvm_loops(kernel) for kernel in (made(1, *sums), made(2, *sums), made(0, *one))] == [
        False,
        True,
        False,
    ]
    expected = v(0, "bool")
    for kernel in (
        made(1, Load(x, "b0", i), Store("b1", i, x)),
        made(1, Load(expected, "b0", i), Store("b1", i, expected)),
    ):
        assert has_llvm_loops(kernel) == (vectors_of(kernel) is None)


def test_a_loop_over_numbers_is_one_function() -> None:
    def pendulum(x: Any) -> Any:
        def turn(i: Any, state: Any) -> Any:
            angle, speed = state
            return angle + 0.01 * speed, speed - 0.01 * np.sin(angle)

        return tg.fori_loop(0, 100, turn, (x, x * 0.0))

    result = plan(optimize(tg.trace(pendulum).graph(0.5)))
    piece, _ = unit_of_segment(result, 0, len(result.steps) - 1)
    assert piece.kind == "iterations"
    module = unit_module("part")
    piece.define(module, "part")
    code = jit.optimized_ir(str(module), "part", piece.kind)
    assert not {"region", "kernel0"} & set(re.findall(r"@([\w.]+)\(", code))


@pytest.mark.parametrize(("of_bytes", "lanes"), [(True, "<4 x i1>"), (False, "<4 x i64>")])
def test_whether_there_was_a_nan_is_kept_as_comparisons_give_it(
    of_bytes: bool, lanes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scalar, "has_masks_of_bytes", lambda: of_bytes)
    monkeypatch.setattr(vectorize, "vector_bytes", lambda: 32)
    (step,) = plan(tg.trace(lambda x: np.max(x, axis=1)).explain(np.ones((20, 300))).optimized).steps
    assert isinstance(step, Launch)
    assert set(re.findall(r"= or (<4 x i\d+>)", str(kernel_function(ir.IRModule(), step.kernel, "rows")))) == {lanes}
