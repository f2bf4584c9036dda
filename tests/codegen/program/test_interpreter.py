"""The functions of words, by which programs run: each alone, called from Python, against NumPy."""

from __future__ import annotations

import ctypes
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import REAL
from native_calls import OF_WORDS, address, run

import tracegrad as tg
from tracegrad.codegen.libs.gemm import GEMM
from tracegrad.codegen.plan.planner import plan
from tracegrad.codegen.program import instructions
from tracegrad.codegen.program.encode import encode, encode_program
from tracegrad.codegen.program.interpreter import FAILED_CHECK, STEP, WALK
from tracegrad.runtime.blas import library
from tracegrad.runtime.compile.code_store import shared_function

rng = np.random.default_rng(0)


def test_the_readme_has_the_table_of_instructions() -> None:
    text = Path(instructions.__file__).with_name("README.md").read_text(encoding="utf-8")
    assert instructions.instruction_table() in text


def test_an_instruction_reads_each_of_its_operands() -> None:
    folder = Path(instructions.__file__).parent
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.ll")))
    for name in ("FILL", "COPY", "CHECK", "CALL", "MATMUL", "FORK", "COMBINE"):
        for operand in getattr(instructions, name).operands:
            assert operand.words == 0 or f"${name.lower()}.{operand.name}" in text, (name, operand)


def test_a_record_is_encoded_by_the_names_of_its_operands() -> None:
    words = encode(instructions.FORK_PARTIAL, chunk_bytes=16, first=[3, 640], position=4)
    assert words == [4, 3, 640, 16]
    assert instructions.FORK_PARTIAL.offsets == {"position": 0, "first": 1, "chunk_bytes": 3}
    with pytest.raises(KeyError, match="first"):
        encode(instructions.FORK_PARTIAL, chunk_bytes=16, position=4)
    with pytest.raises(AssertionError, match="more"):
        encode(instructions.CHECK, condition=[0, 0], more=1)


def bits(x: Any) -> int:
    return int(np.frombuffer(np.asarray(x).tobytes().ljust(8, b"\0"), np.int64)[0])


@pytest.mark.parametrize("statuses", [[], [0], [0, 0, 0], [0, 3, 0], [7, 0], [0, 0, -1]])
def test_a_walk_runs_its_steps_in_order_until_one_fails(statuses: list[int]) -> None:
    seen = []

    def step(words: Any, pointers: Any) -> int:
        seen.append((words[0], words[1], pointers[0]))
        return statuses[words[0]]

    function, x = OF_WORDS(step), np.zeros(1)
    words = [len(statuses)]
    for k in range(len(statuses)):  # each has words of its own, as many as it wants
        words += [2 + k, address(function), k, 100 + k, *range(k)]
    failing = next((k for k, status in enumerate(statuses) if status), None)
    assert run(WALK, words, x) == (0 if failing is None else statuses[failing])
    ran = range(len(statuses) if failing is None else failing + 1)
    assert seen == [(k, 100 + k, x.ctypes.data) for k in ran]


@pytest.mark.parametrize("dtype", sorted(REAL, key=str), ids=str)
def test_a_fill_writes_its_number_and_nothing_else(dtype: Any) -> None:
    name = "bool" if dtype.kind == "b" else f"{dtype.kind}{8 * dtype.itemsize}"
    x = np.zeros(40, dtype)
    value = np.array(-3 if dtype.kind == "i" else 1).astype(dtype)
    assert run(f"{STEP}fill.{name}", [0, 2 * dtype.itemsize, bits(value), 33], x) == 0
    np.testing.assert_array_equal(x, [0] * 2 + [value] * 33 + [0] * 5)


def test_a_copy_goes_from_one_place_to_another() -> None:
    x, y = np.arange(10.0), np.zeros(10)
    assert run(f"{STEP}copy", [1, 16, 0, 8, 24], x, y) == 0
    np.testing.assert_array_equal(y, [0, 0, 1, 2, 3, 0, 0, 0, 0, 0])


def test_a_check_fails_where_its_boolean_is_false() -> None:
    x = np.array([True, False])
    assert [run(f"{STEP}check", [0, k], x) for k in range(2)] == [0, FAILED_CHECK]


def test_a_call_gives_the_callback_its_places() -> None:
    seen = []
    callback = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.POINTER(ctypes.c_void_p))(
        lambda number, pointers: seen.append((number, pointers[:3])) or 5  # type: ignore[func-returns-value]
    )
    x, y = np.zeros(4), np.zeros(4)
    assert run(f"{STEP}call", [address(callback), 9, 3, 1, 0, 0, 8, 1, 24], x, y) == 5
    assert seen == [(9, [y.ctypes.data, x.ctypes.data + 8, y.ctypes.data + 24])]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("count", "share"), [(0, 1), (1, 1), (3, 3), (3, 2), (3, 1)])
def test_a_product_is_that_of_numpy(dtype: str, count: int, share: int) -> None:
    """Row-major C = A B is column-major C' = B' A'."""
    m, n, k = 4, 5, 6
    each = np.dtype(dtype).itemsize
    routine = library.address("dgemm" if each == 8 else "sgemm")
    for a_flipped, b_flipped, (alpha, beta) in itertools.product((0, 1), (0, 1), ((1, 0), (-1, 1))):
        a = rng.random((3, k, m) if a_flipped else (3, m, k)).astype(dtype)
        b = rng.random((3, n, k) if b_flipped else (3, k, n)).astype(dtype)
        c = rng.random((3, m, n)).astype(dtype)
        product = (a.swapaxes(1, 2) if a_flipped else a) @ (b.swapaxes(1, 2) if b_flipped else b)
        want = np.concatenate([(alpha * product + beta * c)[:count], c[count:]])
        places = [1, 0, k * n * each, 0, 0, 0, m * k * each, 0, 2, 0, m * n * each, 0]
        letters = [ord("T" if flipped else "N") for flipped in (b_flipped, a_flipped)]
        sizes = [n, m, k, k if b_flipped else n, m if a_flipped else k, n]
        factors = [bits(np.array(x, dtype)) for x in (alpha, beta)]
        head = [routine, count, share, -(-count // share), shared_function("tg_chunks"), 1]
        assert run(f"{STEP}matmul", [*head, *places, *letters, *sizes, *factors], a, b, c) == 0
        np.testing.assert_allclose(c, want, rtol=1e-13 if each == 8 else 1e-5)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 1, 1), (4, 4, 4), (5, 7, 3), (8, 8, 8), (9, 16, 2), (16, 9, 16), (16, 16, 16), (3, 15, 0)]
)
def test_a_small_product_is_that_of_numpy(m: int, n: int, k: int, dtype: str) -> None:
    """Also where the matrices lie apart; what is between them stays."""
    each = np.dtype(dtype).itemsize
    routine = shared_function(f"{GEMM}f{8 * each}")
    count, room = 5, 20
    for a_flipped, b_flipped, (alpha, beta) in itertools.product((0, 1), (0, 1), ((1, 0), (-1, 1), (1, 1))):
        a, b, c = rng.normal(size=(3, count, room, room)).astype(dtype)
        x = (a.swapaxes(1, 2) if a_flipped else a)[:, :m, :k]
        y = (b.swapaxes(1, 2) if b_flipped else b)[:, :k, :n]
        want = c.copy()
        want[:, :m, :n] = alpha * (x @ y) + beta * c[:, :m, :n]
        if not beta:
            c[:, :m, :n] = np.nan
        places = [word for place in (1, 0, 2) for word in (place, 0, room * room * each, 0)]
        letters = [ord("T" if flipped else "N") for flipped in (b_flipped, a_flipped)]
        factors = [bits(np.array(x, dtype)) for x in (alpha, beta)]
        words = [routine, count, count, 1, 0, 1, *places, *letters, n, m, k, *[room] * 3, *factors]
        assert run(f"{STEP}matmul", words, a, b, c) == 0
        np.testing.assert_allclose(c, want, rtol=1e-12 if each == 8 else 1e-5, atol=1e-13 if each == 8 else 1e-5)


def test_nan_and_inf_go_through_a_small_product_as_through_any() -> None:
    x, y = rng.normal(size=(20, 7, 6)), rng.normal(size=(20, 6, 9))
    x[1, 2, 3], y[2, 3, 4], x[3, 1, 1], y[3, 1, 2], x[4] = np.inf, np.nan, -np.inf, 0.0, -0.0
    transposed = np.ascontiguousarray(y.swapaxes(1, 2))  # whose product is our own whatever the CPU is
    product = tg.trace(lambda x, y: x @ y.swapaxes(1, 2))
    with np.errstate(invalid="ignore"):
        for result in (tg.trace(np.matmul)(x, y), product(x, transposed)):
            np.testing.assert_allclose(result, x @ y, rtol=1e-12)
    orders = encode_program(plan(product.explain(x, transposed).optimized))
    assert [order.operands[0] for order in orders] == [f"{GEMM}f64"]


@pytest.mark.parametrize(("rows", "total"), [(10, 30), (7, 30), (30, 30), (4, 3)])
@pytest.mark.parametrize("failing", [None, 1])
def test_a_fork_cuts_the_rows_of_a_kernel_and_places_its_partial_results(
    rows: int, total: int, failing: int | None
) -> None:
    seen = []

    def kernel(words: Any, pointers: Any) -> int:
        seen.append(words[:7])
        return 6 if len(seen) - 1 == failing else 0

    function = OF_WORDS(kernel)
    chunks = -(-total // rows)
    args = [0, total, 4, 44, 5, 55, 99]  # the rows, two places, and a size; the second is a partial result
    head = [address(function), shared_function("tg_chunks"), chunks, rows, total, len(args), 1]
    status = run(f"{STEP}fork", [*head, 4, 8, 640, 16, *args], np.zeros(1))
    assert status == (6 if failing is not None and failing < chunks else 0)
    assert seen == [[k * rows, min(total, (k + 1) * rows), 4, 44, 8, 640 + 16 * k, 99] for k in range(chunks)]


def test_parts_are_combined_in_their_order() -> None:
    x, partial = np.zeros(2), rng.random((4, 2))
    words = [0, 0, 1, 0, 2, 4, shared_function("tg_combine.add.f64")]
    assert run(f"{STEP}combine", words, x, partial) == 0
    np.testing.assert_array_equal(x, ((partial[0] + partial[1]) + partial[2]) + partial[3])
