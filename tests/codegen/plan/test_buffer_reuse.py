"""Results in the memory of temporary values: where that is so, and that values are right where it must not be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from plans import plan_of

import tracegrad as tg
from tracegrad.codegen.plan.places_and_values import OutputPlace
from tracegrad.runtime.threads import pool
from tracegrad.settings import settings

rng = np.random.default_rng(0)
x, y = rng.standard_normal((2, 90, 90))
row = rng.standard_normal(90)


def in_results(fun: Any, *args: Any) -> list[str]:
    """The ops whose values are in the memory of results, in order."""
    plan = plan_of(fun, *args)
    return [node.name for node, buffer in plan.buffers.items() if isinstance(plan.memory[buffer], OutputPlace)]


def temporary(fun: Any, *args: Any) -> int:
    plan = plan_of(fun, *args)
    return sum(map(plan.is_temporary, plan.memory))


def test_a_product_is_in_the_memory_of_what_is_computed_of_it() -> None:
    fun = tg.trace(lambda x, y, row: np.tanh(x @ y + row))
    np.testing.assert_allclose(fun(x, y, row), np.tanh(x @ y + row), rtol=1e-12)
    assert in_results(fun, x, y, row) == ["matmul", "tanh"]
    assert temporary(fun, x, y, row) == 0


def test_a_chain_of_values_needs_one_place() -> None:
    def layers(x: Any, y: Any) -> Any:
        for _ in range(4):
            x = np.tanh(x @ y)
        return x

    fun = tg.trace(layers)
    np.testing.assert_allclose(fun(x, y), layers(x, y), rtol=1e-9)
    plan = plan_of(fun, x, y)
    assert plan.arena_bytes < 2.1 * x.nbytes  # a product's factor and the product


def batch_norm(x: Any, scale: Any) -> Any:
    d = x - np.mean(x, axis=0)
    return np.sum(np.tanh(scale * d / np.sqrt(np.mean(d * d, axis=0) + 1e-5)))


def test_the_derivative_of_batch_norm_needs_no_more_than_its_result() -> None:
    fun = tg.value_and_grad(batch_norm, argnums=(0, 1))
    big, scale, t = rng.standard_normal((2000, 64)), rng.standard_normal(64), rng.standard_normal((2000, 64))
    _, (derivative, of_scale) = fun(big, scale)
    step = 1e-6
    difference = (batch_norm(big + step * t, scale) - batch_norm(big - step * t, scale)) / (2 * step)
    np.testing.assert_allclose(np.sum(derivative * t), difference, rtol=1e-6)
    difference = (batch_norm(big, scale + step) - batch_norm(big, scale - step)) / (2 * step)
    np.testing.assert_allclose(np.sum(of_scale), difference, rtol=1e-6)
    assert plan_of(fun, big, scale).arena_bytes < big.nbytes // 10


# Each reads a product where its memory must not be written, or not by this result.
NOT_IN_PLACE: dict[str, Callable[..., Any]] = {
    "turned": lambda p: np.tanh(p).T * p,
    "rolled": lambda p: np.roll(p, 1, axis=0) * p,
    "other rows": lambda p: p[::-1] + p,
    "its sums": lambda p: p / p.sum(axis=1, keepdims=True) + p[0],
    "widened": lambda p: p[:1] + np.zeros((90, 90)),
    "read again": lambda p: (np.tanh(p), np.cumsum(p, axis=0)),
    "a result itself": lambda p: (p, np.tanh(p)),
    "another dtype": lambda p: np.tanh(p).astype(np.float32),
    "a comparison": lambda p: p > 0.5,
    "padded": lambda p: np.concatenate([p[:, 45:], p[:, :45]], axis=1) + p,
    "two results": lambda p: (np.sin(p), np.cos(p), np.exp(-p * p)),
    "gathered": lambda p: p[np.arange(90)[::-1], np.arange(90)] + p,
    "a square": lambda p: p @ p + np.tanh(p),
    "in a loop": lambda p: tg.fori_loop(0, 3, lambda k, c: c + p[k], p) + p,
}


@pytest.mark.parametrize("case", NOT_IN_PLACE)
def test_values_are_right_where_memory_is_still_needed(case: str) -> None:
    def fun(x: Any, y: Any) -> Any:
        return NOT_IN_PLACE[case](x @ y)

    for a, b in zip(tg.tree.leaves(tg.trace(fun)(x, y)), tg.tree.leaves(fun(x, y)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6 if a.dtype == np.float32 else 1e-10, atol=1e-12)
        assert a.dtype == b.dtype


@pytest.mark.parametrize("case", NOT_IN_PLACE)
def test_derivatives_are_right_where_memory_is_still_needed(case: str) -> None:
    def fun(x: Any) -> Any:
        result = tg.tree.leaves(NOT_IN_PLACE[case](x @ y + row))
        return sum([np.sum(np.sin(z * 0.1)) for z in result if z.dtype == np.float64])

    t = rng.standard_normal(x.shape)
    step = 1e-6
    derivative = tg.grad(lambda x: fun(x) + 0.0 * np.sum(x))(x)
    difference = (fun(x + step * t) - fun(x - step * t)) / (2 * step)
    np.testing.assert_allclose(np.sum(derivative * t), difference, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("shape", [(4096, 100), (3000, 17), (700, 3), (5, 40_000)], ids=str)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_bits_do_not_depend_on_threads(shape: tuple[int, int], dtype: str) -> None:
    x, scale = rng.standard_normal(shape).astype(dtype), rng.standard_normal(shape[1]).astype(dtype)
    fun = tg.value_and_grad(batch_norm, argnums=(0, 1))
    fun(x, scale)
    results = []
    before = settings.thread_count()
    try:
        for count in (1, 2, 3):
            pool.set_num_threads(count)
            value, derivatives = fun(x, scale)
            results.append([np.asarray(z).tobytes() for z in (value, *derivatives)])
    finally:
        pool.set_num_threads(before)
    assert results[0] == results[1] == results[2]
