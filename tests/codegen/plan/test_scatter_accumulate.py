"""Scatters that add to an array where it is: what they were added to before, as zeros with some other elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from plans import plan_of

import tracegrad as tg
from tracegrad.codegen.loopir.kernel import Reduce

rng = np.random.default_rng(0)


def scatters(fun: Any, *args: Any) -> list[bool]:
    """For each scatter of the program, whether it adds to what is there."""
    kernels = [step.kernel for step in plan_of(fun, *args).steps]  # type: ignore[union-attr]
    return [x.size == 0 for k in kernels for x in k.body if isinstance(x, Reduce) and x.combiner == "scatter"]


def added(x: Any, rows: Any, columns: Any, values: Any) -> Any:
    """exp(x) with `values` added at some places; its derivative by y is a gather."""
    derivative = tg.grad(lambda y: np.sum(y[rows, columns] * values) + np.sum(np.exp(x) * y))
    return derivative(x)


def true_sum(x: Any, rows: Any, columns: Any, values: Any) -> Any:
    out = np.exp(x)
    np.add.at(out, (rows, columns), values)
    return out


@pytest.mark.parametrize("shape", [(3000, 40), (40, 3000), (9, 1), (1, 9), (700, 700)], ids=str)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_elements_that_are_hit_often_are_added_up(shape: tuple[int, int], dtype: str) -> None:
    x = rng.standard_normal(shape).astype(dtype)
    rows, columns = (rng.integers(-n, n, 5000) for n in shape)
    values = rng.standard_normal(5000).astype(dtype)
    fun = tg.trace(added)
    assert scatters(fun, x, rows, columns, values) == [True]
    rtol = 1e-12 if dtype == "float64" else 1e-3
    np.testing.assert_allclose(fun(x, rows, columns, values), true_sum(x, rows, columns, values), rtol=rtol, atol=rtol)
    assert fun(x, rows[:0], columns[:0], values[:0]).tobytes() == tg.trace(np.exp)(x).tobytes()


def test_no_zeros_are_written_for_the_derivative_of_a_cross_entropy() -> None:
    def loss(z: Any, rows: Any, labels: Any) -> Any:
        top = np.max(z, axis=1)
        return np.mean(top + np.log(np.sum(np.exp(z - top[:, None]), axis=1)) - z[rows, labels])

    z, labels = rng.standard_normal((2000, 100)), rng.integers(0, 100, 2000)
    fun = tg.grad(loss)
    assert scatters(fun, z, np.arange(2000), labels) == [True]
    assert plan_of(fun, z, np.arange(2000), labels).arena_bytes < z.nbytes // 50
    shares = np.exp(z) / np.sum(np.exp(z), axis=1, keepdims=True)
    shares[np.arange(2000), labels] -= 1
    np.testing.assert_allclose(fun(z, np.arange(2000), labels), shares / 2000, rtol=1e-11, atol=1e-16)
    labels[77] = 100
    with pytest.raises(IndexError):
        fun(z, np.arange(2000), labels)


def test_what_is_used_for_something_else_is_made_of_zeros() -> None:
    x, rows = rng.standard_normal((500, 30)), rng.integers(0, 500, 90)
    values = rng.standard_normal((90, 30))

    def twice(x: Any, values: Any) -> Any:
        part = tg.grad(lambda y: np.sum(y[rows] * values))(x)
        return part, part + x

    def turned(x: Any, values: Any) -> Any:
        part = tg.grad(lambda y: np.sum(y[rows] * values))(x)
        return part[::-1] + x

    def squared(x: Any, values: Any) -> Any:
        part = tg.grad(lambda y: np.sum(y[rows] * values))(x)
        return part * part + x

    part = np.zeros_like(x)
    np.add.at(part, rows, values)
    for fun, true in ((twice, part + x), (turned, part[::-1] + x), (squared, part * part + x)):
        output = tg.trace(fun)
        assert scatters(output, x, values) == [False]
        result = output(x, values)
        np.testing.assert_allclose(result[1] if fun is twice else result, true, rtol=1e-12, atol=1e-12)


def test_zeros_that_are_added_make_a_negative_zero_positive() -> None:
    x = np.full((64, 20), -0.0)
    fun = tg.trace(lambda x, rows: tg.grad(lambda y: np.sum(y[rows]))(x) + x)
    result = fun(x, np.array([3, 5, 3]))
    true = np.zeros((64, 20))
    np.add.at(true, [3, 5, 3], 1.0)
    assert result.tobytes() == true.tobytes()
