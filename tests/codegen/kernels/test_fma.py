"""Products that are fused with sums: a value has the same bits in every kernel that computes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracegrad as tg


def with_square(z: Any) -> Any:
    """Of which `z * z` has another use in the derivative."""
    t = z * z
    return np.sqrt(t + 1.0), np.sin(t)


def with_product(z: Any) -> Any:
    t = z * z[:, :1]
    return z[:, :1] + t, t


VALUES = {"square": with_square, "product": with_product}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("of", ["max", "min"])
@pytest.mark.parametrize("name", VALUES)
def test_an_extremum_equals_the_element_that_it_is(name: str, of: str, dtype: str) -> None:
    """Wherever it is computed again, beside other uses of the product in it."""
    extremum = getattr(np, of)
    z = np.random.default_rng(0).standard_normal((7, 300)).astype(dtype)

    def hits(z: Any) -> Any:
        x, other = VALUES[name](z)
        return x == extremum(x, axis=0), np.sum(other, axis=1)

    def total(z: Any) -> Any:
        x, other = VALUES[name](z)
        return np.sum(extremum(x, axis=0)) + np.sum(other)

    result, _ = tg.trace(hits)(z)
    np.testing.assert_array_equal(np.sum(result, axis=0), 1)
    gradient = tg.grad(total)(z)
    with tg.disable_jit():
        np.testing.assert_allclose(gradient, tg.grad(total)(z), rtol=1e-9 if dtype == "float64" else 1e-3, atol=1e-5)


def test_a_product_is_the_same_where_it_is_used_once_and_twice() -> None:
    x, y = np.random.default_rng(1).standard_normal((2, 500))

    def f(x: Any, y: Any) -> Any:
        t = x * y
        s = t + x
        return np.sum(s), s - np.max(s), t

    _, off, _ = tg.trace(f)(x, y)
    assert np.max(off) == 0.0
