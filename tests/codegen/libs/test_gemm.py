"""Matrix products of our own: NumPy's for all sizes and layouts, in vectors of any width; parts have their bits too."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tracegrad.codegen.libs import gemm
from tracegrad.runtime.compile import jit

pytestmark = pytest.mark.usefixtures("optimized")

Gemm = Callable[..., None]
LETTERS = [*itertools.product(b"NT", repeat=2)]
# No rows, columns or terms; one; parts of vectors; whole strips; several groups of strips, stages and blocks.
SIZES = [(0, 3, 4), (3, 0, 4), (3, 4, 0), (1, 1, 1), (2, 7, 3), (5, 5, 5), (7, 3, 9), (8, 6, 4), (9, 13, 2)]
SIZES += [(12, 12, 12), (16, 16, 16), (17, 4, 31), (23, 25, 6), (31, 8, 40), (33, 33, 33), (70, 11, 259)]
SIZES += [(133, 161, 70), (65, 2, 513)]
# One vector, in twice the columns; few rows, which a transposed B iterations into columns.
SIZES += [(8, 12, 5), (4, 61, 300), (3, 47, 1), (2, 130, 20), (1, 33, 0), (7, 41, 258), (5, 16, 17)]


def made(dtype: str, registers: tuple[int, int], monkeypatch: Any) -> tuple[Gemm, Any]:
    """The function in vectors of so many bytes, on column-major arrays; and its code, which must stay."""
    monkeypatch.setattr(gemm, "_registers", lambda: registers)
    name = f"{gemm.GEMM}f{8 * np.dtype(dtype).itemsize}"
    code = jit.load_object(jit.compile_ir(gemm.gemm_module(name), name, "written", 1))
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 13)(code.address(name))

    def run(letters: Any, alpha: float, a: Any, b: Any, beta: float, c: Any, sizes: Any) -> None:
        m, n, k = (np.array(x, np.int32) for x in sizes)
        leading = [np.array(x.strides[1] // x.itemsize, np.int32) for x in (a, b, c)]
        alpha, beta = (np.array(x, c.dtype) for x in (alpha, beta))  # type: ignore[assignment]
        first, second = (np.array(x, np.uint8) for x in letters)
        arrays = (first, second, m, n, k, alpha, a, leading[0], b, leading[1], beta, c, leading[2])
        function(*[x.ctypes.data for x in arrays])  # type: ignore[attr-defined]

    return run, code


@pytest.fixture(params=[(32, 6), (64, 8), (16, 6)], ids=["AVX2", "AVX-512", "SSE"])
def registers(request: Any) -> tuple[int, int]:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=["float32", "float64"])
def dtype(request: Any) -> str:
    return request.param  # type: ignore[no-any-return]


def factors(rng: Any, letters: Any, sizes: tuple[int, int, int], dtype: str, pad: int = 3) -> list[Any]:
    """A and B as they lie in memory, in columns that are a little longer than they need be."""
    m, n, k = sizes
    shapes = [(m, k) if letters[0] == ord("N") else (k, m), (k, n) if letters[1] == ord("N") else (n, k)]
    return [rng.standard_normal((columns, rows + pad)).astype(dtype).T[:rows] for rows, columns in shapes]


def test_products_are_numpys_and_nothing_else_is_written(registers: Any, dtype: str, monkeypatch: Any) -> None:
    run, _code = made(dtype, registers, monkeypatch)
    rng, eps = np.random.default_rng(0), np.finfo(dtype).eps
    for sizes, letters in itertools.product(SIZES, LETTERS):
        m, n, k = sizes
        a, b = factors(rng, letters, sizes, dtype)
        for alpha, beta in ((1.0, 0.0), (-1.0, 1.0), (0.5, -0.25)):
            whole = rng.standard_normal((n + 1, m + 2)).astype(dtype)
            before, c = whole.copy(), whole.T[:m, :n]
            x, y = (z if letter == ord("N") else z.T for z, letter in zip((a, b), letters))
            expected = alpha * (x.astype(float) @ y.astype(float)) + beta * c.astype(float)
            if not beta:
                c[:] = np.nan
            run(letters, alpha, a, b, beta, whole.T, sizes)
            np.testing.assert_allclose(c, expected, rtol=0, atol=16 * (k + 4) * eps)
            assert np.array_equal(whole[n], before[n])
            assert np.array_equal(whole[:, m:], before[:, m:])


def test_columns_that_follow_each_other_are_written_and_nothing_behind(
    registers: Any, dtype: str, monkeypatch: Any
) -> None:
    """Vectors that are longer than columns are stored over what comes next, but not over what is another's."""
    run, _code = made(dtype, registers, monkeypatch)
    rng = np.random.default_rng(4)
    for (m, n, k), letters in itertools.product(
        [(3, 40, 5), (1, 9, 2), (7, 13, 300), (11, 25, 6), (31, 7, 4)], LETTERS
    ):
        a, b = factors(rng, letters, (m, n, k), dtype)
        x, y = (z if letter == ord("N") else z.T for z, letter in zip((a, b), letters))
        for beta in (0.0, 0.5):
            whole = rng.standard_normal((n + 9, m)).astype(dtype)
            before = whole.copy()
            run(letters, 1.0, a, b, beta, whole.T, (m, n, k))
            expected = x.astype(float) @ y.astype(float) + beta * before[:n].T
            np.testing.assert_allclose(whole[:n].T, expected, rtol=0, atol=16 * (k + 4) * np.finfo(dtype).eps)
            np.testing.assert_array_equal(whole[n:], before[n:])


@pytest.mark.parametrize("letters", LETTERS)
def test_parts_of_a_product_have_the_bits_of_the_whole(dtype: str, letters: Any, monkeypatch: Any) -> None:
    """So it may be cut for threads anywhere, and a row of a batch does not depend on the others."""
    run, _code = made(dtype, gemm._registers(), monkeypatch)
    sizes = (m, n, k) = 150, 170, 300
    a, b = factors(np.random.default_rng(1), letters, sizes, dtype)
    whole, part = np.empty((2, n, m), dtype)
    run(letters, 1.0, a, b, 0.0, whole.T, sizes)
    cuts = [(0, 150, 0, 64), (0, 150, 64, 170), (0, 1, 0, 1), (3, 20, 7, 8), (16, 150, 12, 36), (149, 150, 0, 170)]
    for top, end, left, right in cuts:
        part[:] = np.nan
        x = a[top:end] if letters[0] == ord("N") else a[:, top:end]
        y = b[:, left:right] if letters[1] == ord("N") else b[left:right]
        run(letters, 1.0, x, y, 0.0, part.T, (end - top, right - left, k))
        np.testing.assert_array_equal(part[: right - left, : end - top], whole[left:right, top:end])


def test_nan_and_infinity_stay_in_their_rows_and_columns(registers: Any, dtype: str, monkeypatch: Any) -> None:
    """Strips that are not whole are filled up with zeros or with other rows: nothing of that is seen."""
    run, _code = made(dtype, registers, monkeypatch)
    for letters in LETTERS:
        sizes = (m, n, _) = 21, 9, 17
        a, b = factors(np.random.default_rng(2), letters, sizes, dtype)
        x, y = (z if letter == ord("N") else z.T for z, letter in zip((a, b), letters))
        x[20, 3], x[4, 16], y[2, 8], x[7] = np.nan, np.inf, -np.inf, -0.0
        y[:, 0] = 1.0
        c = np.empty((n, m), dtype)
        run(letters, 1.0, a, b, 0.0, c.T, sizes)
        with np.errstate(invalid="ignore"):
            expected = x.astype(float) @ y.astype(float)
        np.testing.assert_allclose(c.T, expected, rtol=1e-4, atol=1e-4)


def test_columns_that_share_places_in_the_cache_and_large_transposed_factors(dtype: str, monkeypatch: Any) -> None:
    """What is copied: strips of an A whose columns lie far apart, a transposed B, in blocks if it is long."""
    run, _code = made(dtype, gemm._registers(), monkeypatch)
    monkeypatch.setattr(gemm, "BLOCK_BYTES", gemm.BLOCK_BYTES // 16)
    short, _short_code = made(dtype, gemm._registers(), monkeypatch)
    for letters, sizes in itertools.product(
        LETTERS,
        [
            *[(512, 8, 300), (140, 300, 257), (256, 128, 64), (131, 7, 300), (4, 25, 1024), (70, 1024, 20)],
            *[(1024, 20, 30), (605, 20, 200)],  # strips that are copied by AVX-512
        ],
    ):
        m, n, _ = sizes
        a, b = factors(np.random.default_rng(3), letters, sizes, dtype, pad=0 if m % 8 == 0 or 1024 in sizes else 5)
        x, y = (z if letter == ord("N") else z.T for z, letter in zip((a, b), letters))
        result, again = np.full((2, n, m), np.nan, dtype)
        run(letters, 1.0, a, b, 0.0, result.T, sizes)
        short(letters, 1.0, a, b, 0.0, again.T, sizes)
        np.testing.assert_allclose(result.T, x.astype(float) @ y.astype(float), rtol=0, atol=1e4 * np.finfo(dtype).eps)
        np.testing.assert_array_equal(result, again)
