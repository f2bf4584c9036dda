"""Several short rows in one vector, at the very edge of memory that may be touched; short reductions written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from vector_kernels import numbers, ran, v, with_vectors_of

import tracegrad as tg
from tracegrad.codegen.kernels import vectorize
from tracegrad.codegen.kernels.loop_order import arrange
from tracegrad.codegen.kernels.vectorize import vectors_of
from tracegrad.codegen.loopir.kernel import (
    Compute,
    GuardBlock,
    Index,
    Kernel,
    KernelLoop,
    Load,
    Operand,
    Reduce,
    Store,
    flattened,
)
from tracegrad.codegen.loopir.polynomial import ONE, ZERO, Poly, poly

pytestmark = pytest.mark.usefixtures("optimized")

o, r, k = (Poly.symbol(s) for s in ("i0", "i1", "i2"))
n, m = (Poly.symbol(s) for s in ("s0", "s1"))
ROWS = [*range(12), 33]
SHORT = range(2, 9)
DTYPES = ("f64", "f32", "i32", "u8", "bool")


def kernel_of(size: int, body: list[Any], cost: int = 5, **buffers: str) -> Kernel:
    """A kernel over rows of a fixed size that is made of vectors."""
    loops = [KernelLoop("i1", n), KernelLoop("i2", poly(size))]
    kernel = Kernel({name: tuple(text.split()) for name, text in buffers.items()}, loops, body, cost)  # type: ignore[misc]
    assert vectors_of(kernel) is not None or vectorize.vector_bytes() < 8 * size  # where but one row of sums would fit
    return kernel


@pytest.fixture(params=[64, 32], autouse=True)
def width(request: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    """The bytes of a vector, as machines have them."""
    return with_vectors_of(request.param, monkeypatch)


@pytest.mark.parametrize("size", SHORT)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_that_lie_row_behind_row(dtype: str, size: int) -> None:
    """b3 = max(b0 + b1, b2): elements, what all rows have in common, and what each row has once."""
    op = "logical_or" if dtype == "bool" else "add"
    body = [
        Load(v(0, dtype), "b0", k + size * r),
        Load(v(1, dtype), "b1", k),
        Load(v(2, dtype), "b2", r),
        Compute(v(3, dtype), op, (v(0, dtype), v(1, dtype))),
        Compute(v(4, dtype), "maximum", (v(3, dtype), v(2, dtype))),
        Store("b3", k + size * r, v(4, dtype)),
    ]
    for cost in (5, 20, 100):
        kernel = kernel_of(size, body, cost, **{f"b{i}": f"{dtype} {'out' if i == 3 else 'in'}" for i in range(4)})
        for rows in ROWS:
            x, y, z = numbers(dtype, rows, size), numbers(dtype, size), numbers(dtype, rows)
            options = {"b0": x, "b1": y, "b2": z, "b3": np.zeros_like(x)}
            got = ran(kernel, {"s0": rows, "rows": rows}, options, rows % 2 == 0)
            want = np.maximum(x | y if dtype == "bool" else x + y, z[:, None])
            assert np.array_equal(got["b3"], want)


@pytest.mark.parametrize("size", SHORT)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_that_are_written_where_they_were_read(dtype: str, size: int) -> None:
    """Also as sums over images, which go through all rows again and again."""
    here = k + size * r
    body = [
        Load(v(0, dtype), "b0", here + size * n * o),
        Load(v(1, dtype), "b1", here),
        Compute(v(2, dtype), "maximum", (v(0, dtype), v(1, dtype))),
    ]
    images = [KernelLoop("i0", m), KernelLoop("i1", n), KernelLoop("i2", poly(size))]
    op = "logical_or" if dtype == "bool" else "add"
    for end, loops in (
        (Store("b1", here, v(2, dtype)), images[1:]),
        (Reduce("b2", here, op, v(2, dtype), ("i0",), size * n), images),
    ):
        body[0] = Load(v(0, dtype), "b0", here + (size * n * o if len(loops) > 2 else 0))
        written = "b2" if len(loops) > 2 else "b1"
        buffers = {b: (dtype, "out" if b == written else "in") for b in ("b0", "b1", "b2")[: len(loops)]}
        kernel = Kernel(buffers, loops, [*body, end], 5)
        assert vectors_of(kernel) is not None
        for rows in ROWS[1:]:
            x, y = numbers(dtype, 3 if len(loops) > 2 else 1, rows, size), numbers(dtype, rows, size)
            options = dict(zip(buffers, (x, y, np.zeros_like(y))))
            sizes = {"s0": rows, "s1": 3, "rows": len(x) if len(loops) > 2 else rows}
            got = ran(kernel, sizes, options, rows % 2 == 0)[written]
            best = np.maximum(x, y)
            assert np.array_equal(got, best.any(axis=0) if dtype == "bool" else best.sum(axis=0, dtype=x.dtype))


@pytest.mark.parametrize("size", range(3, 9))
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("apart", [1, 2, 20])
def test_rows_that_lie_apart(dtype: str, size: int, apart: int) -> None:
    """What lies between rows of the result stays as it was."""
    step, known = size + apart, apart < 20
    wide = poly(step) if known else m
    body = [
        Load(v(0, dtype), "b0", k + wide * r),
        Load(v(1, dtype), "b1", 2 * r),
        Compute(v(2, dtype), "maximum", (v(0, dtype), v(1, dtype))),
        Store("b2", k + wide * r, v(2, dtype)),
    ]
    kernel = kernel_of(size, body, b0=f"{dtype} in", b1=f"{dtype} in", b2=f"{dtype} out")
    for rows in ROWS[1:]:
        flat = numbers(dtype, (rows - 1) * step + size)
        y = numbers(dtype, 2 * rows - 1)
        options = {"b0": flat, "b1": y, "b2": flat.copy()}
        sizes = {"s0": rows, "rows": rows} | ({} if known else {"s1": step})
        got = ran(kernel, sizes, options, rows % 2 == 0)
        want = flat.copy()
        for row in range(rows):
            part = slice(row * step, row * step + size)
            want[part] = np.maximum(flat[part], y[2 * row])
        assert np.array_equal(got["b2"], want)


@pytest.mark.parametrize("size", SHORT)
@pytest.mark.parametrize(("combiner", "dtype"), [("add", "f64"), ("maximum", "f32"), ("mul", "i32"), ("add", "u8")])
def test_sums_over_rows_and_over_all(combiner: str, dtype: str, size: int) -> None:
    """Into an element for each place of a row, and into one."""
    body = [
        Load(v(0, dtype), "b0", k + size * r),
        Reduce("b1", k, combiner, v(0, dtype), ("i1",), poly(size)),
        Reduce("b2", ZERO, combiner, v(0, dtype), ("i1", "i2"), ONE),
    ]
    reduced = {"add": np.add, "maximum": np.maximum, "mul": np.multiply}[combiner].reduce
    for cost in (5, 100):
        kernel = kernel_of(size, body, cost, b0=f"{dtype} in", b1=f"{dtype} out", b2=f"{dtype} out")
        for rows in ROWS[1:]:
            x = numbers(dtype, rows, size)
            options = {"b0": x, "b1": np.ones(size, x.dtype), "b2": np.ones(1, x.dtype)}
            got = ran(kernel, {"s0": rows, "rows": rows}, options, rows % 2 == 0)
            assert np.array_equal(got["b1"], reduced(x, axis=0, dtype=x.dtype))
            assert got["b2"][0] == reduced(x, axis=None, dtype=x.dtype)


@pytest.mark.parametrize("dtype", ["f64", "f32"])
def test_extrema_over_rows_keep_nans(dtype: str) -> None:
    body = [Load(v(0, dtype), "b0", k + 5 * r), Reduce("b1", k, "minimum", v(0, dtype), ("i1",), poly(5))]
    kernel = kernel_of(5, body, b0=f"{dtype} in", b1=f"{dtype} out")
    for rows in ROWS[1:]:
        for where in (0, rows - 1):
            x = numbers(dtype, rows, 5)
            x[where, 2] = np.nan
            got = ran(kernel, {"s0": rows, "rows": rows}, {"b0": x, "b1": np.ones(5, x.dtype)}, True)["b1"]
            assert np.array_equal(got, x.min(axis=0), equal_nan=True)


@pytest.mark.parametrize("size", SHORT)
@pytest.mark.parametrize("dtype", ["f64", "f32", "u8"])
def test_padding_and_indices(dtype: str, size: int) -> None:
    """b2 = b0[r - 1] where that is, else 7; and what an index of both loops makes of it."""
    seven = Operand("", dtype, "7.0" if dtype[0] == "f" else "7")
    inside = ((ZERO, r - 1, n - 2, ONE),)
    body = [
        GuardBlock(v(1, dtype), inside, [Load(v(0, dtype), "b0", k + size * (r - 1))], v(0, dtype), seven),
        GuardBlock(v(3, dtype), inside, [Load(v(2, dtype), "b1", r - 1)], v(2, dtype), seven),
        Index(v(4, "i64"), 3 * r + k),
        Compute(v(5, dtype), "cast", (v(4, "i64"),)),
        Compute(v(6, dtype), "maximum", (v(1, dtype), v(3, dtype))),
        Compute(v(7, dtype), "add", (v(6, dtype), v(5, dtype))),
        Store("b2", k + size * r, v(7, dtype)),
    ]
    kernel = kernel_of(size, body, 100, b0=f"{dtype} in", b1=f"{dtype} in", b2=f"{dtype} out")
    for rows in ROWS[2:]:
        x, y = numbers(dtype, rows - 2, size), numbers(dtype, rows - 2)
        options = {"b0": x, "b1": y, "b2": np.zeros((rows, size), x.dtype)}
        got = ran(kernel, {"s0": rows, "rows": rows}, options, rows % 2 == 0)["b2"]
        padded = np.pad(np.maximum(x, y[:, None]), ((1, 1), (0, 0)), constant_values=7)
        assert np.array_equal(got, padded + (3 * np.arange(rows)[:, None] + np.arange(size)).astype(x.dtype))


def test_a_row_may_begin_and_end_anywhere() -> None:
    """Chunks of rows are what the whole is."""
    x = numbers("f32", 40, 3)
    body = [Load(v(0, "f32"), "b0", k + 4 * r), Store("b1", k + 3 * r, v(0, "f32"))]
    kernel = kernel_of(3, body, b0="f32 in", b1="f32 out")
    wide = np.concatenate([x, x[:, :1]], axis=1)
    for rows in range(1, 40):
        options = {"b0": wide.ravel()[: 4 * rows - 1], "b1": np.zeros((rows, 3), "f4")}
        assert np.array_equal(ran(kernel, {"s0": rows, "rows": rows}, options, True)["b1"], x[:rows])


# -- short reductions --------------------------------------------------------------------------------------------------
def pooled(op: str, dtype: str) -> Kernel:
    """The windows of two by two of images of several channels, reduced."""
    loops = [
        KernelLoop("i0", n),
        KernelLoop("i1", poly(2)),
        KernelLoop("i2", m),
        KernelLoop("i3", poly(2)),
        KernelLoop("i4", poly(5)),
    ]
    i3, i4 = Poly.symbol("i3"), Poly.symbol("i4")
    body = [
        Load(v(0, dtype), "b0", i4 + 5 * i3 + 10 * k + 10 * m * r + 20 * m * o),
        Reduce("b1", i4 + 5 * k + 5 * m * o, op, v(0, dtype), ("i1", "i3"), 5 * n * m),
    ]
    return arrange(Kernel({"b0": (dtype, "in"), "b1": (dtype, "out")}, loops, body, 2))


@pytest.mark.parametrize("op", ["maximum", "add"])
def test_windows_are_written_out(op: str) -> None:
    kernel = pooled(op, "f64")
    assert [loop.var for loop in kernel.loops] == ["i0", "i2", "i4"]
    assert not any(isinstance(x, Reduce) for x in kernel.body)
    for rows, columns in ((1, 1), (3, 4), (2, 7)):
        x = rng_with_nans(rows, 2, columns, 2, 5)
        options = {"b0": x, "b1": np.zeros((rows, columns, 5))}
        got = ran(kernel, {"s0": rows, "s1": columns, "rows": rows}, options, True)["b1"]
        want = x.max(axis=(1, 3)) if op == "maximum" else x.sum(axis=(1, 3))
        np.testing.assert_allclose(got, want, rtol=1e-15, atol=1e-15)


def rng_with_nans(*shape: int) -> Any:
    x = np.random.default_rng(1).normal(size=shape)
    x.flat[3] = np.nan
    return x


@pytest.mark.parametrize("op", ["maximum", "add"])
def test_pairs_of_a_window_are_written_out(op: str) -> None:
    """b1[i, j] = the best of b0[i, :, j, :]: both elements of a pair are loaded with all other pairs of a row."""
    i3, i4 = Poly.symbol("i3"), Poly.symbol("i4")
    loops = [KernelLoop("i0", n), KernelLoop("i3", poly(2)), KernelLoop("i2", m), KernelLoop("i4", poly(2))]
    load = Load(v(0, "f64"), "b0", i4 + 2 * k + 2 * m * i3 + 4 * m * o)
    body = [load, Reduce("b1", k + m * o, op, v(0, "f64"), ("i3", "i4"), n * m)]
    kernel = arrange(Kernel({"b0": ("f64", "in"), "b1": ("f64", "out")}, loops, body, 2))
    assert [loop.var for loop in kernel.loops] == ["i0", "i2"]
    assert vectors_of(kernel) is not None
    for rows, columns in ((1, 1), (3, 4), (2, 19)):
        x = rng_with_nans(rows, 2, columns, 2)
        options = {"b0": x, "b1": np.zeros((rows, columns))}
        got = ran(kernel, {"s0": rows, "s1": columns, "rows": rows}, options, True)["b1"]
        want = x.max(axis=(1, 3)) if op == "maximum" else x.sum(axis=(1, 3))
        np.testing.assert_allclose(got, want, rtol=1e-15, atol=1e-15)


def test_guards_that_ask_for_an_element_of_a_window_are_answered() -> None:
    """b2[i] = the sum over t < 3 of b0[i] for t = 0, else b1[i + t]; or of 1 for each t where i >= s1."""
    t, one = Poly.symbol("i3"), Operand("", "f64", "1.0")
    late = GuardBlock(v(1, "f64"), ((ONE, t, poly(3), ONE),), [Load(v(0, "f64"), "b1", r + t)], v(0, "f64"), one)
    early = GuardBlock(v(3, "f64"), ((ZERO, t, ONE, ONE),), [Load(v(2, "f64"), "b0", r)], v(2, "f64"), v(1, "f64"))
    inside = GuardBlock(v(4, "f64"), ((ZERO, r, m, ONE), (ZERO, t, poly(3), ONE)), [late, early], v(3, "f64"), one)
    loops = [KernelLoop("i3", poly(3)), KernelLoop("i1", n)]
    body = [inside, Reduce("b2", r, "add", v(4, "f64"), ("i3",), n)]
    kernel = arrange(Kernel({"b0": ("f64", "in"), "b1": ("f64", "in"), "b2": ("f64", "out")}, loops, body, 4))
    assert [loop.var for loop in kernel.loops] == ["i1"]
    assert [x.ranges for x in flattened(kernel.body) if isinstance(x, GuardBlock)] == [((ZERO, r, m, ONE),)] * 3
    for rows in ROWS[1:]:
        x, y = numbers("f64", rows), numbers("f64", rows + 2)
        options = {"b0": x, "b1": y, "b2": np.zeros(rows)}
        got = ran(kernel, {"s0": rows, "s1": 9, "rows": rows}, options, rows % 2 == 0)["b2"]
        want = np.where(np.arange(rows) < 9, x + y[1 : rows + 1] + y[2:], 3.0)
        np.testing.assert_allclose(got, want, rtol=1e-14, atol=1e-15)


def test_what_runs_along_memory_is_no_window() -> None:
    """A sum of short rows that lie one behind the other stays a loop along memory."""
    body = [Load(v(0, "f64"), "b0", k + 4 * r), Reduce("b1", r, "add", v(0, "f64"), ("i2",), n)]
    kernel = Kernel(
        {"b0": ("f64", "in"), "b1": ("f64", "out")}, [KernelLoop("i1", n), KernelLoop("i2", poly(4))], body, 2
    )
    assert len(arrange(kernel).loops) == 2


def test_results_for_each_iteration_of_a_short_loop_are_written_out() -> None:
    """b2[i, j] = the sum of b0[r + i] * b1[r, j]: a total for each of three rows, which one load of b1 serves."""
    t = Poly.symbol("i3")
    body = [
        Load(v(0, "f64"), "b0", r + t),
        Load(v(1, "f64"), "b1", k + 4 * r),
        Compute(v(2, "f64"), "mul", (v(0, "f64"), v(1, "f64"))),
        Reduce("b2", k + 4 * t, "add", v(2, "f64"), ("i1",), poly(12)),
    ]
    loops = [KernelLoop("i1", n), KernelLoop("i3", poly(3)), KernelLoop("i2", poly(4))]
    kernel = arrange(Kernel({"b0": ("f64", "in"), "b1": ("f64", "in"), "b2": ("f64", "out")}, loops, body, 4))
    assert [loop.var for loop in kernel.loops] == ["i1", "i2"]
    assert sum(isinstance(x, Reduce) for x in kernel.body) == 3
    assert sum(isinstance(x, Load) and x.buffer == "b1" for x in kernel.body) == 1
    for rows in ROWS[1:]:
        x, y = numbers("f64", rows + 2), numbers("f64", rows, 4)
        got = ran(kernel, {"s0": rows, "rows": rows}, {"b0": x, "b1": y, "b2": np.ones((3, 4))}, rows % 2 == 0)["b2"]
        assert np.array_equal(got, [x[i : i + rows] @ y for i in range(3)])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_gradients_of_short_rows(dtype: str, size: int) -> None:
    """Bias, windows and sums over rows together, against differences along a direction."""

    def loss(x: Any, b: Any) -> Any:
        y = np.tanh(x * b + b)
        top = y.reshape(-1, 2, size).max(axis=1)
        return np.sum(np.cos(top[1:] * top[:-1])) + np.sum(np.mean(y, axis=0) ** 2)

    rng = np.random.default_rng(size)
    x, b, dx, db = (rng.normal(size=s).astype(dtype) for s in ((34, size), size, (34, size), size))
    gx, gb = tg.grad(loss, argnums=(0, 1))(x, b)
    f = np.float64
    e = 1e-6
    derivative = (loss(x + e * f(1) * dx, b + e * f(1) * db) - loss(x - e * f(1) * dx, b - e * f(1) * db)) / (2 * e)
    assert abs(np.sum(gx * dx) + np.sum(gb * db) - derivative) < (2e-3 if dtype == "float32" else 1e-6) * (
        1 + abs(derivative)
    )


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("size", range(2, 10))
def test_sums_of_short_rows_with_something_in_common(size: int, dtype: str) -> None:
    traced = tg.trace(lambda x, v: (x @ v, np.max(x - v, axis=1)))
    rng = np.random.default_rng(size)
    for rows in (1, 3, 4, 15, 16, 17, 100, 1003):
        x, v = rng.standard_normal((rows, size)).astype(dtype), rng.standard_normal(size).astype(dtype)
        product, largest = traced(x, v)
        np.testing.assert_allclose(product, x @ v, rtol=0, atol=1e-5 if dtype == "float32" else 1e-13)
        np.testing.assert_array_equal(largest, np.max(x - v, axis=1))
