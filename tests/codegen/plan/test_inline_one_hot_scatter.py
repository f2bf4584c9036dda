"""Scatters of one element into each row: kernels ask where it is, where they go through the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from plans import plan_of

import tracegrad as tg
from tracegrad.codegen.loopir.kernel import Reduce
from tracegrad.codegen.loopir.steps import Launch
from tracegrad.runtime.threads import pool
from tracegrad.settings import settings

rng = np.random.default_rng(0)


def scatters(fun: Any, *args: Any) -> int:
    """How many kernels of the program scatter."""
    kernels = [step.kernel for step in plan_of(fun, *args).steps if isinstance(step, Launch)]
    return sum(isinstance(x, Reduce) and x.combiner == "scatter" for kernel in kernels for x in kernel.body)


def loss(z: Any, labels: Any, weights: Any) -> Any:
    """Cross-entropy as many write it; the maximum has a derivative, so the cotangent is read twice."""
    d = z - np.max(z, axis=1, keepdims=True)
    return np.sum(weights * (np.log(np.sum(np.exp(d), axis=1)) - d[np.arange(len(z)), labels]))


def true_derivative(z: Any, labels: Any, weights: Any) -> Any:
    shares = np.exp(z - np.max(z, axis=1, keepdims=True))
    shares /= np.sum(shares, axis=1, keepdims=True)
    shares[np.arange(len(z)), labels] -= 1
    return shares * weights[:, None]


@pytest.mark.parametrize("shape", [(3000, 40), (40, 3000), (700, 700), (4096, 9), (9, 1), (1, 9), (0, 9)], ids=str)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_cross_entropy_needs_no_array_of_zeros(shape: tuple[int, int], dtype: str) -> None:
    z, weights = rng.standard_normal(shape).astype(dtype), rng.standard_normal(shape[0]).astype(dtype)
    labels = rng.integers(-shape[1], shape[1], shape[0])
    fun = tg.grad(loss)
    rtol = 1e-11 if dtype == "float64" else 1e-4
    np.testing.assert_allclose(fun(z, labels, weights), true_derivative(z, labels, weights), rtol=rtol, atol=rtol)
    if min(shape) > 8:
        assert scatters(fun, z, labels, weights) == 0


def test_a_label_that_does_not_exist_is_an_error() -> None:
    z, labels, weights = rng.standard_normal((3000, 40)), rng.integers(0, 40, 3000), np.ones(3000)
    fun = tg.grad(loss)
    fun(z, labels, weights)
    for wrong in (40, -41):
        labels[1234] = wrong
        with pytest.raises(IndexError):
            fun(z, labels, weights)
    labels[1234] = -40
    np.testing.assert_allclose(fun(z, labels, weights), true_derivative(z, labels, weights), rtol=1e-11, atol=1e-15)


def test_bits_do_not_depend_on_threads() -> None:
    z, labels, weights = rng.standard_normal((9000, 51)), rng.integers(0, 51, 9000), rng.standard_normal(9000)
    fun, result, before = tg.value_and_grad(loss), [], settings.thread_count()
    fun(z, labels, weights)
    try:
        for count in (1, 2, 3):
            pool.set_num_threads(count)
            value, derivative = fun(z, labels, weights)
            result.append((np.asarray(value).tobytes(), derivative.tobytes()))
    finally:
        pool.set_num_threads(before)
    assert result[0] == result[1] == result[2]


def read_twice(ct: Any) -> Any:
    """Something that reads a cotangent element by element, and its sums."""
    return np.tanh(ct) * 2.0 + ct - np.sum(ct, axis=-1, keepdims=True)


def placed(shape: tuple[int, ...], index: Any, values: Any) -> Any:
    """The cotangent of `x[index]`."""
    return tg.grad(lambda x: np.sum(x[index] * values))(np.zeros(shape))


def zeros_with(shape: tuple[int, ...], index: Any, values: Any) -> Any:
    out = np.zeros(shape)
    np.add.at(out, index, values)
    return out


MANY = np.arange(60)
CASES = {
    "one of each row": ((60, 70), (MANY, rng.integers(-70, 70, 60)), True),
    "one of each row of a stack": (
        (20, 30, 40),
        (np.arange(20)[:, None], np.arange(30), rng.integers(0, 40, (20, 30))),
        False,
    ),
    "square": ((60, 60), (MANY, rng.integers(0, 60, 60)), True),
    "some rows twice": ((60, 70), (rng.integers(0, 60, 60), rng.integers(0, 70, 60)), False),
    "several of each row": ((60, 70), (MANY[:, None], rng.integers(0, 70, (60, 11))), False),
    "every second row": ((120, 70), (2 * MANY, rng.integers(0, 70, 60)), False),
    "one of each column": ((70, 60), (rng.integers(0, 70, 60), MANY), False),
    "some rows": ((100, 70), (MANY, rng.integers(0, 70, 60)), False),
    "rows backwards": ((60, 70), (MANY[::-1].copy(), rng.integers(0, 70, 60)), False),
}


@pytest.mark.parametrize("case", CASES)
def test_elements_are_where_they_are_put(case: str) -> None:
    shape, index, once = CASES[case]
    values = rng.standard_normal(np.broadcast_shapes(*(np.shape(x) for x in index)))
    fun = tg.trace(lambda values, *index: read_twice(placed(shape, index, values)))
    true = zeros_with(shape, index, values)
    np.testing.assert_allclose(fun(values, *index), read_twice(true), rtol=1e-12, atol=1e-13)

    def slope(x: Any, values: Any, last: Any) -> Any:
        place = (np.arange(len(x)), last) if once else (*index[:-1], last)
        return read_twice(tg.grad(lambda x: np.sum((x[place] + (np.sum(x, axis=-1) if once else 0.0)) * values))(x))

    inside = tg.trace(slope)
    result = inside(np.zeros(shape), values, index[-1])
    true = true + values[..., None] if once else true
    np.testing.assert_allclose(result, read_twice(true), rtol=1e-11, atol=1e-12)
    assert (scatters(inside, np.zeros(shape), values, index[-1]) == 0) >= once


def test_what_is_written_in_between_is_not_what_was_put() -> None:
    def fun(z: Any, labels: Any, values: Any) -> Any:
        ct = placed((60, 70), (np.arange(60), labels), values)
        values[:] = np.cumsum(np.sum(ct * z, axis=1))
        return read_twice(ct) * z + values[:, None]

    z, labels, values = rng.standard_normal((60, 70)), rng.integers(0, 70, 60), rng.standard_normal(60)
    after, mine = values.copy(), values.copy()
    true = read_twice(zeros_with((60, 70), (np.arange(60), labels), values))
    after[:] = np.cumsum(values * z[np.arange(60), labels])
    np.testing.assert_allclose(tg.trace(fun)(z, labels, mine), true * z + after[:, None], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(mine, after, rtol=1e-10)
