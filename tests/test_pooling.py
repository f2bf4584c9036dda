"""Pooling: what compiled code makes of windows that tile an array and of those that overlap, and ties."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.torch.functions.pooling import avg_pool2d, max_pool1d, max_pool2d, max_pool3d

X = np.random.default_rng(0).integers(-3, 4, (2, 3, 11, 14)).astype(np.float64)  # with many equal elements
WINDOWS = [(2, None, 0, 1), ((3, 2), None, 0, 1), (3, 2, 1, 1), (3, 1, 0, 1), (2, 3, 0, 2), (2, 2, 1, 1)]


def windows(x: Any, size: Any, stride: Any, padding: int, dilation: int, fill: float) -> Any:
    """Each window's rows and columns, by loops: the place of its first element, and its elements with their places."""
    kh, kw = (size, size) if isinstance(size, int) else size
    sh, sw = (kh, kw) if stride is None else (stride, stride)
    h, w = (n + 2 * padding - dilation * (k - 1) for n, k in zip(x.shape, (kh, kw)))
    for i, top in enumerate(range(0, h, sh)):
        for j, left in enumerate(range(0, w, sw)):
            places = [
                (top + a * dilation - padding, left + b * dilation - padding) for a in range(kh) for b in range(kw)
            ]
            inside = [0 <= p < x.shape[0] and 0 <= q < x.shape[1] for p, q in places]
            yield (i, j), places, [x[p] if there else fill for p, there in zip(places, inside)]


@pytest.mark.parametrize("of", [lambda f: f, tg.trace], ids=["eager", "compiled"])
@pytest.mark.parametrize("window", WINDOWS)
def test_the_first_of_equal_elements_has_the_derivative(window: Any, of: Callable[..., Any]) -> None:
    def pooled(x: Any) -> Any:
        return max_pool2d(x, window[0], window[1], window[2], window[3])

    got = of(pooled)(X)
    seeds = np.random.default_rng(1).normal(size=got.shape)
    want, slopes = np.empty_like(got), np.zeros_like(X)
    for at in np.ndindex(2, 3):
        for place, places, elements in windows(X[at], *window, -np.inf):
            want[at][place] = max(elements)
            slopes[at][places[elements.index(max(elements))]] += seeds[at][place]
    np.testing.assert_array_equal(got, want)
    np.testing.assert_allclose(tg.grad(lambda x: np.sum(of(pooled)(x) * seeds))(X), slopes, rtol=1e-14)


@pytest.mark.parametrize("window", [w for w in WINDOWS if w[3] == 1])
def test_means_of_windows(window: Any) -> None:
    size, stride, padding, _ = window
    got = tg.trace(lambda x: avg_pool2d(x, size, stride, padding))(X)
    for at in np.ndindex(2, 3):
        for place, _, elements in windows(X[at], *window, 0.0):
            np.testing.assert_allclose(got[at][place], np.mean(elements), rtol=1e-14, atol=1e-15)


def test_a_nan_is_the_maximum_and_has_the_derivative() -> None:
    x = np.array([[1.0, np.nan, 3.0, 2.0]])
    value, slope = tg.value_and_grad(lambda x: np.sum(max_pool1d(x, 2)))(x)
    assert np.isnan(value)
    np.testing.assert_array_equal(slope, [[0.0, 1.0, 1.0, 0.0]])


def test_other_dimensions_and_second_derivatives() -> None:
    x = np.random.default_rng(2).normal(size=(1, 2, 4, 6, 4))
    f = tg.grad(lambda x: np.sum(max_pool3d(x, 2) ** 3))
    found = tg.jvp(f, (x,), (np.ones_like(x),))[1]
    top = x.reshape(1, 2, 2, 2, 3, 2, 2, 2).max((3, 5, 7))
    best = np.isin(x, top)
    np.testing.assert_allclose(found, np.where(best, 6 * x, 0.0), rtol=1e-14)


@pytest.mark.parametrize("pool", [max_pool2d, avg_pool2d])
def test_windows_that_tile_an_array_are_read_where_they_lie(pool: Any) -> None:
    """No window is copied, and no element is asked in which window it is."""
    x = np.zeros((4, 8, 28, 28), np.float32)
    made = tg.value_and_grad(lambda x: np.sum(pool(x, 2) ** 2)).explain(x)
    text = "\n".join(made.kernels)
    assert "guard" not in text
    assert "floor_divide" not in text
    assert not any(name in str(made.optimized) for name in ("concatenate", "patches", "gather", "pad("))


def test_overlapping_windows_are_read_where_they_lie() -> None:
    made = tg.trace(lambda x: max_pool2d(x, 3, 1)).explain(np.zeros((4, 8, 28, 28), np.float32))
    (kernel,) = made.kernels
    assert "guard" not in kernel
    assert "reduce" not in kernel
    assert kernel.count("load") == 9
