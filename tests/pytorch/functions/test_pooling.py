"""Pooling: what compiled code makes of windows that tile an array and of those that overlap, and ties."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.torch.functions.nn.pooling import avg_pool2d, max_pool1d, max_pool2d, max_pool3d

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
    want, derivatives = np.empty_like(got), np.zeros_like(X)
    for at in np.ndindex(2, 3):
        for place, places, elements in windows(X[at], *window, -np.inf):
            want[at][place] = max(elements)
            derivatives[at][places[elements.index(max(elements))]] += seeds[at][place]
    np.testing.assert_array_equal(got, want)
    np.testing.assert_allclose(tg.grad(lambda x: np.sum(of(pooled)(x) * seeds))(X), derivatives, rtol=1e-14)


@pytest.mark.parametrize("window", [w for w in WINDOWS if w[3] == 1])
def test_means_of_windows(window: Any) -> None:
    size, stride, padding, _ = window
    got = tg.trace(lambda x: avg_pool2d(x, size, stride, padding))(X)
    for at in np.ndindex(2, 3):
        for place, _, elements in windows(X[at], *window, 0.0):
            np.testing.assert_allclose(got[at][place], np.mean(elements), rtol=1e-14, atol=1e-15)


def test_a_nan_is_the_maximum_and_has_the_derivative() -> None:
    x = np.array([[1.0, np.nan, 3.0, 2.0]])
    value, derivative = tg.value_and_grad(lambda x: np.sum(max_pool1d(x, 2)))(x)
    assert np.isnan(value)
    np.testing.assert_array_equal(derivative, [[0.0, 1.0, 1.0, 0.0]])


def test_other_dimensions_and_second_derivatives() -> None:
    x = np.random.default_rng(2).normal(size=(1, 2, 4, 6, 4))
    f = tg.grad(lambda x: np.sum(max_pool3d(x, 2) ** 3))
    result = tg.jvp(f, (x,), (np.ones_like(x),))[1]
    top = x.reshape(1, 2, 2, 2, 3, 2, 2, 2).max((3, 5, 7))
    best = np.isin(x, top)
    np.testing.assert_allclose(result, np.where(best, 6 * x, 0.0), rtol=1e-14)


def derivatives_of(x: Any, seeds: Any, size: int, stride: int, padding: int, of_max: bool) -> Any:
    """The gradient: what each element of the windows has, the first of all windows before the second of any."""
    wide = np.pad(x, [(0, 0)] * 2 + [(padding, padding)] * 2, constant_values=-np.inf if of_max else 0)
    spans = [stride * (n - 1) + 1 for n in seeds.shape[2:]]
    parts = [
        np.s_[:, :, a : a + spans[0] : stride, b : b + spans[1] : stride] for a in range(size) for b in range(size)
    ]
    elements = np.stack([wide[p] for p in parts])
    first = ((elements == elements.max(0)) | np.isnan(elements)).argmax(0)
    result = np.zeros_like(wide)
    for k, p in enumerate(parts):
        result[p] += np.where(first == k, seeds, seeds.dtype.type(0)) if of_max else seeds / seeds.dtype.type(size**2)
    return result[:, :, padding : padding + x.shape[2], padding : padding + x.shape[3]]


OVERLAPPING = [(3, 2, 0), (3, 2, 1), (4, 3, 1), (4, 2, 2), (5, 3, 1), (2, 3, 0), (3, 1, 1)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("window", OVERLAPPING)
@pytest.mark.parametrize("pool", [max_pool2d, avg_pool2d])
def test_gradients_of_overlapping_windows_are_sums_in_the_order_of_their_elements(
    pool: Any, window: Any, dtype: str
) -> None:
    """To the bit, in rows of less than a vector and of several, with ties and nan."""
    rng = np.random.default_rng(3)
    for shape in (1, 2, 12, 15), (2, 3, 21, 57):
        x = rng.integers(-3, 4, shape).astype(dtype)
        x[0, 1, 3, 2:5] = np.nan
        seeds = rng.normal(size=pool(x, *window).shape).astype(dtype)
        got = tg.grad(lambda x, seeds: np.sum(pool(x, *window) * seeds))(x, seeds)
        np.testing.assert_array_equal(got, derivatives_of(x, seeds, *window, of_max=pool is max_pool2d))


@pytest.mark.parametrize("pool", [max_pool2d, avg_pool2d])
@pytest.mark.parametrize(("size", "stride"), [(3, 2), (4, 3)])
def test_gradients_of_overlapping_windows_ask_no_element_which_element_of_a_window_it_is(
    pool: Any, size: int, stride: int
) -> None:
    """They are written so many at a time as windows are apart."""
    x = np.zeros((4, 8, 56, 56), np.float32)
    result = tg.grad(lambda x: np.sum(pool(x, size, stride) ** 2)).explain(x)
    text = "\n".join(result.kernels)
    assert " step " not in text
    assert "floor_divide" not in text
    assert max(kernel.count("store") for kernel in result.kernels) == stride**2


@pytest.mark.parametrize("pool", [max_pool2d, avg_pool2d])
def test_windows_that_tile_an_array_are_read_where_they_lie(pool: Any) -> None:
    """No window is copied, and no element is asked in which window it is."""
    x = np.zeros((4, 8, 28, 28), np.float32)
    result = tg.value_and_grad(lambda x: np.sum(pool(x, 2) ** 2)).explain(x)
    text = "\n".join(result.kernels)
    assert "guard" not in text
    assert "floor_divide" not in text
    assert not any(name in str(result.optimized) for name in ("concatenate", "patches", "gather", "pad("))


def test_overlapping_windows_are_read_where_they_lie() -> None:
    result = tg.trace(lambda x: max_pool2d(x, 3, 1)).explain(np.zeros((4, 8, 28, 28), np.float32))
    (kernel,) = result.kernels
    assert "guard" not in kernel
    assert "reduce" not in kernel
    assert kernel.count("load") == 9
