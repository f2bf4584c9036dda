"""Kernels that go through the same rows together: which do, and that nothing but memory and time shows it."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from native_calls import OF_WORDS, address, run
from plans import plan_of

import tracegrad as tg
from tracegrad.codegen.loopir.footprints import Footprint, footprints
from tracegrad.codegen.loopir.kernel import BoundsCheck, Kernel, KernelLoop, Load, Operand, Store
from tracegrad.codegen.loopir.polynomial import Poly
from tracegrad.codegen.plan.arena import Arena
from tracegrad.codegen.plan.places_and_values import OutputPlace
from tracegrad.codegen.program.interpreter import FUSED_STRIPS
from tracegrad.runtime.compile.code_store import shared_function
from tracegrad.runtime.threads import pool
from tracegrad.settings import settings

rng = np.random.default_rng(0)


def together(fun: Any, *args: Any) -> list[list[set[str]]]:
    """For each fusion of the program, the ops that each of its kernels stores."""
    plan = plan_of(fun, *args)
    return [[{x.name for x in plan.steps[i].group.roots} for i in fusion.steps] for fusion in plan.strip_fusions]


# -- programs ----------------------------------------------------------------------------------------------------------
def softmax(x: Any) -> Any:
    e = np.exp(x - np.max(x, axis=1, keepdims=True))
    return e / np.sum(e, axis=1, keepdims=True)


def log_softmax(x: Any) -> Any:
    d = x - np.max(x, axis=1, keepdims=True)
    return d - np.log(np.sum(np.exp(d), axis=1, keepdims=True))


def layer_norm(x: Any) -> Any:
    d = x - np.mean(x, axis=1, keepdims=True)
    return d / np.sqrt(np.mean(d * d, axis=1, keepdims=True) + 1e-5)


def moments(x: Any) -> Any:
    """Sums of rows, of columns, and of all, of what a row is divided by."""
    s = softmax(x) * layer_norm(x)
    return np.sum(s, axis=0), np.sum(s * s), np.max(s, axis=0), np.min(s, axis=1)


FUNCTIONS: list[Callable[[Any], Any]] = [softmax, log_softmax, layer_norm, moments]
SHAPES = [(4096, 100), (100, 5000), (35, 20_011), (100_000, 1), (50_021, 3), (0, 7), (7, 0), (1, 300_000), (16, 40_000)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("fun", FUNCTIONS, ids=lambda f: f.__name__)
def test_rows_of_all_sizes(fun: Callable[[Any], Any], shape: tuple[int, int]) -> None:
    x = rng.standard_normal(shape)
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
            true = fun(x)
    except ValueError:  # the extremum of nothing
        with pytest.raises(ValueError, match="zero-size"):
            tg.trace(fun)(x)
        return
    result = tg.trace(fun)(x)
    for a, b in zip(*(z if isinstance(z, tuple) else (z,) for z in (result, true))):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("fun", FUNCTIONS, ids=lambda f: f.__name__)
def test_rows_with_nan_and_infinity_stay_by_themselves(fun: Callable[[Any], Any], dtype: str) -> None:
    x = rng.standard_normal((3000, 50)).astype(dtype)
    x[10, 3], x[700, 0], x[2999, 49], x[5] = np.nan, np.inf, -np.inf, -np.inf
    with np.errstate(all="ignore"):
        true = fun(x.astype(float))
    rtol = 1e-10 if dtype == "float64" else 2e-3
    for a, b in zip(*(z if isinstance(z, tuple) else (z,) for z in (tg.trace(fun)(x), true))):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol / 50)


@pytest.mark.parametrize("fun", FUNCTIONS[:3], ids=lambda f: f.__name__)
def test_derivatives_are_those_of_differences(fun: Callable[[Any], Any]) -> None:
    x, w, t = (rng.standard_normal((2000, 60)) for _ in range(3))
    derivative = tg.grad(lambda x: np.sum(fun(x) * w))
    assert len(plan_of(derivative, x).strip_fusions) == 1
    step = 1e-5
    difference = np.sum((fun(x + step * t) - fun(x - step * t)) * w) / (2 * step)
    np.testing.assert_allclose(np.sum(derivative(x) * t), difference, rtol=1e-6)


def cross_entropy(z: Any, labels: Any) -> Any:
    return -np.mean(log_softmax(z)[np.arange(len(z)), labels])


def test_cross_entropy_reads_its_logits_row_by_row() -> None:
    z, labels = rng.standard_normal((3000, 40)), rng.integers(0, 40, 3000)
    value, derivative = tg.value_and_grad(cross_entropy)(z, labels)
    true = softmax(z)
    true[np.arange(3000), labels] -= 1
    np.testing.assert_allclose(value, cross_entropy(z, labels), rtol=1e-12)
    np.testing.assert_allclose(derivative, true / 3000, rtol=1e-10, atol=1e-15)
    labels[2345] = 40
    with pytest.raises(IndexError):
        tg.value_and_grad(cross_entropy)(z, labels)


# -- which kernels are a strip fusion -------------------------------------------------------------------------------
def test_softmax_is_one_fusion_and_keeps_a_strip() -> None:
    x = np.ones((4096, 200))
    fun = tg.trace(softmax)
    assert together(fun, x) == [[{"reduce_max"}, {"exp", "reduce_sum"}, {"divide"}]]
    plan = plan_of(fun, x)
    (fusion,) = plan.strip_fusions
    saved = {x.name for x, buffer in plan.buffers.items() if buffer in fusion.local}
    assert saved == {"reduce_max", "reduce_sum"}
    assert {x.name for x, buffer in plan.buffers.items() if plan.memory[buffer] == OutputPlace(0)} == {"exp", "divide"}
    assert fusion.bytes < x.nbytes // 20
    assert plan.arena_bytes < 1000
    assert "steps 0 to 2 run together" in str(fun.explain(x))


def test_of_what_no_result_has_the_memory_of_there_is_a_strip() -> None:
    x = np.ones((4096, 200))
    plan = plan_of(tg.trace(lambda x: softmax(x).astype(np.float32)), x)
    (fusion,) = plan.strip_fusions
    assert {x.name for x, buffer in plan.buffers.items() if buffer in fusion.local} == {
        "reduce_max",
        "exp",
        "reduce_sum",
    }
    assert fusion.bytes < x.nbytes // 20
    assert plan.arena_bytes < 1000


def test_a_fusion_is_no_part_of_machine_code() -> None:
    fun = tg.trace(softmax)
    small, large = (plan_of(fun, np.ones((n, 200))) for n in (20, 4096))
    assert [len(small.strip_fusions), len(large.strip_fusions)] == [0, 1]
    assert small.text() == large.text()


def test_kernels_that_were_cut_for_their_size_are_a_band() -> None:
    iterations: list[Callable[[Any], Any]] = [np.sin, np.tanh, lambda x: np.exp(-x * x), lambda x: np.log1p(x * x)]
    order = np.random.default_rng(1).integers(0, 4, 60).tolist()  # in which nothing repeats itself

    def chain(x: Any) -> Any:
        for k in order:
            x = x + iterations[k](x)
        return x

    x = rng.standard_normal(100_000)
    fun = tg.trace(chain)
    (fusion,) = plan_of(fun, x).strip_fusions
    assert len(fusion.steps) == len(plan_of(fun, x).steps) > 3
    np.testing.assert_allclose(fun(x), chain(x), rtol=1e-9, atol=1e-12)


def columns(x: Any) -> Any:
    e = np.exp(x)
    return e / np.sum(e, axis=0)


def rows_above(x: Any) -> Any:
    e = softmax(x)
    return e[1:] * np.exp(e[:-1])


def transposed(x: Any) -> Any:
    return np.max(np.sqrt(softmax(x)).T - softmax(x.T), axis=1)


def reversed_rows(x: Any) -> Any:
    e = softmax(x)
    return e * e[::-1]


@pytest.mark.parametrize("fun", [columns, rows_above, transposed, reversed_rows], ids=lambda f: f.__name__)
def test_what_needs_other_rows_is_in_no_fusion_with_them(fun: Callable[[Any], Any]) -> None:
    x = rng.standard_normal((900, 900))
    result = tg.trace(fun)
    plan = plan_of(result, x)
    last = plan.steps.index(next(step for step in plan.steps if plan.buffers[plan.graph.outputs[0]] in step.writes))
    assert not any(last in fusion.steps and len(fusion.local) > 2 for fusion in plan.strip_fusions)
    np.testing.assert_allclose(result(x), fun(x), rtol=1e-11)


def test_kernels_over_few_rows_make_no_long_rows_of_those_of_a_band() -> None:
    x, weights = rng.standard_normal((10_000, 25)), rng.standard_normal(25)

    def mixed(x: Any, weights: Any) -> Any:
        terms = x + weights
        largest = np.max(terms, axis=1, keepdims=True)
        sums = np.log(np.sum(np.exp(terms - largest), axis=1)) + largest[:, 0]
        return np.sum(sums) - 10_000 * np.log(np.sum(np.exp(weights - np.max(weights))))

    derivative = tg.grad(mixed, argnums=(0, 1))
    assert [fusion.rows for fusion in plan_of(derivative, x, weights).strip_fusions] == [10_000]
    of_x, of_weights = derivative(x, weights)
    np.testing.assert_allclose(of_x, softmax(x + weights), rtol=1e-10)
    true = np.sum(softmax(x + weights), axis=0) - 10_000 * softmax(weights[None])[0]
    true[np.argmax(weights)] += 10_000  # of the maximum, which is not subtracted again
    np.testing.assert_allclose(of_weights, true, rtol=1e-9, atol=1e-8)


def test_two_bands_with_a_product_between_them() -> None:
    x, w = rng.standard_normal((2000, 64)), rng.standard_normal((64, 64))
    fun = tg.trace(lambda x: softmax(softmax(x) @ w))
    assert len(plan_of(fun, x).strip_fusions) == 2
    np.testing.assert_allclose(fun(x), softmax(softmax(x) @ w), rtol=1e-10)


# -- threads -----------------------------------------------------------------------------------------------------------
@pytest.fixture
def thread_counts() -> Iterator[tuple[int, ...]]:
    before = settings.thread_count()
    yield 1, 2, 3
    pool.set_num_threads(before)


@pytest.mark.parametrize("fun", FUNCTIONS, ids=lambda f: f.__name__)
def test_bits_do_not_depend_on_the_number_of_threads(fun: Any, thread_counts: tuple[int, ...]) -> None:
    x = rng.standard_normal((20_011, 51))
    output, results = tg.trace(fun), []
    assert plan_of(output, x).strip_fusions
    for n in thread_counts:
        pool.set_num_threads(n)
        result = output(x)
        results.append([y.tobytes() for y in (result if isinstance(result, tuple) else (result,))])
    assert results[0] == results[1] == results[2]


# -- where kernels read and write --------------------------------------------------------------------------------------
def test_footprints_are_the_elements_of_an_iteration() -> None:
    i, j, n, v = (Poly.symbol(name) for name in ("i0", "i1", "s0", "v1"))

    def loaded(number: int, buffer: str, place: Poly) -> Load:
        return Load(Operand(f"v{number}", "f64"), buffer, place)

    index, checked = Operand("v0", "i64"), Operand("v1", "i64")
    body = [
        Load(index, "b0", i),
        BoundsCheck(checked, index, n),
        loaded(2, "b1", i * n + v),
        loaded(3, "b1", i * n + n - 1 - j),
        loaded(4, "b2", i + 1),
        loaded(5, "b3", i * j),
        loaded(6, "b4", j),
        Store("b5", i * n + j, Operand("v6", "f64")),
    ]
    kernel = Kernel(
        dict.fromkeys(("b0", "b1", "b2", "b3", "b4", "b5"), ("f64", "in")), [KernelLoop("i0", n), KernelLoop("i1", n)]
    )
    kernel.body = body
    assert footprints(kernel, {"s0": 10}) == {
        "b0": [Footprint(1, 0, 0)],
        "b1": [Footprint(10, 0, 9), Footprint(10, 0, 9)],
        "b2": [Footprint(1, 1, 1)],
        "b3": [None],
        "b4": [Footprint(0, 0, 9)],
        "b5": [Footprint(10, 0, 9)],
    }


# -- the function that runs a strip fusion --------------------------------------------------------------------------
def call_strip_fusion(kernels: list[Any], sizes: list[int], arrays: list[Any], each: str = "tg_chunks") -> int:
    """Run a strip fusion of `kernels`, lists of words; `sizes`: chunks, rows of each, rows, rows of a strip, bytes."""
    functions = [shared_function(name) for name in (each, "malloc", "free")]
    words = [word for kernel in kernels for word in kernel]
    return run(FUSED_STRIPS, [*functions, *sizes, len(arrays), len(kernels), len(words), *words], *arrays)


def test_all_kernels_run_for_a_strip_and_then_for_the_next() -> None:
    seen: list[Any] = []

    def kernel(name: str, status: int = 0) -> Any:
        def step(words: Any, pointers: Any) -> int:
            seen.append((name, words[0], words[1], words[2]))
            return status

        return OF_WORDS(step)

    first, second = kernel("first"), kernel("second", 3)
    words = [[address(first), 1, 0, 0, 3, 0, 0, 77], [address(second), 10, 0, 0, 3, 0, 0, 88]]
    assert call_strip_fusion(words, [2, 4, 7, 3, 0], [np.zeros(1)]) == 3
    assert seen == [
        (name, unit * low, unit * high, own)
        for low, high in ((0, 3), (3, 4), (4, 7))
        for name, unit, own in (("first", 1, 77), ("second", 10, 88))
    ]


def test_local_buffers_begin_with_the_strip_and_partial_results_are_merged() -> None:
    x, out, parts = np.arange(14.0), np.zeros(14), np.zeros(2)
    at = 8 * 3

    def pointer(words: Any, pointers: Any, k: int) -> Any:
        return ctypes.cast(pointers[words[k]] + words[k + 1], ctypes.POINTER(ctypes.c_double))

    def write(words: Any, pointers: Any) -> int:
        local = pointer(words, pointers, 2)
        for k in range(words[0], words[1]):
            local[k] = 2 * x[k]
        return 0

    def read(words: Any, pointers: Any) -> int:
        local, result, total = (pointer(words, pointers, k) for k in (2, 4, 6))
        total[0] = sum(local[k] for k in range(words[0], words[1]))
        for k in range(words[0], words[1]):
            result[k] = local[k] + 1
        return 0

    first, second = OF_WORDS(write), OF_WORDS(read)
    merge = shared_function("tg_merge.add.f64")
    kernels = [
        [address(first), 2, 1, 0, 4, 2, 64, 2 * 8, 0, 0, 0, 0],
        [address(second), 2, 1, 1, 8, 2, 64, 2 * 8, 6, 1, 0, 8, at, 1, merge, 0, 0, 0, 0, 0, 0, 0, 0],
    ]
    assert call_strip_fusion(kernels, [2, 4, 7, 3, 64 + 48], [out, parts]) == 0
    np.testing.assert_array_equal(out, 2 * x + 1)
    np.testing.assert_array_equal(parts, [2 * x[:8].sum(), 2 * x[8:].sum()])


# -- memory ------------------------------------------------------------------------------------------------------------
def test_large_blocks_of_one_size_begin_at_different_places_of_a_page() -> None:
    arena = Arena()
    places = [arena.allocate(k, 4096 * 5) for k in range(64)]
    assert len({place % 4096 for place in places}) == 64
    arena.free(3)
    assert arena.allocate("again", 4096 * 5) == places[3]
    assert arena.allocate("small", 8) + 64 == arena.allocate("next", 8)


def test_what_only_its_own_kernel_uses_is_not_stored() -> None:
    def prices(s: Any, k: Any, t: Any, v: Any) -> Any:
        sigma = v * np.sqrt(t)
        d = (np.log(s / k) + 0.5 * v * v * t) / sigma
        return np.sum(s * np.tanh(d) - k * np.tanh(d - sigma) * np.exp(-t))

    args = tuple(1 + rng.random(2000) for _ in range(4))
    plan = plan_of(tg.value_and_grad(prices, argnums=(0, 1, 2, 3)), *args)
    read = {name for step in plan.steps for name, (_, use) in step.kernel.buffers.items() if use == "in"}  # type: ignore[union-attr]
    assert all(name in read for name in plan.memory if plan.is_temporary(name))
    for step in plan.steps:
        assert step.writes == {plan.buffers[x] for x in step.group.roots}
