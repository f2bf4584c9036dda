"""Convolutions written as sums of products of windows: one product, with its derivatives, and what is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.ops import TABLE
from tracegrad.runtime.threads import pool
from tracegrad.settings import settings

rng = np.random.default_rng(0)
X, W = rng.normal(size=(3, 9, 8, 4)), rng.normal(size=(3, 3, 4, 5))


def plain(x: Any, w: Any) -> Any:
    height, width = x.shape[1] - 2, x.shape[2] - 2
    return sum(x[:, i : i + height, j : j + width] @ w[i, j] for i in range(3) for j in range(3))


def turned(x: Any, w: Any) -> Any:
    """Columns first, from the last to the first, and with something added."""
    total = 0.0
    for j in (2, 1, 0):
        for i in range(3):
            total = total + x[:, i : i + 7, j : j + 6] @ w[i, j]
    return total + w[0, 0, 0]


def strided(x: Any, w: Any) -> Any:
    return sum(x[:, i : i + 6 : 2, j : j + 5 : 3] @ w[i, j] for i in range(3) for j in range(3))


def dilated(x: Any, w: Any) -> Any:
    return sum(x[:, 2 * i : 2 * i + 5, j : j + 6] @ w[i, j] for i in range(3) for j in range(3))


def mirrored(x: Any, w: Any) -> Any:
    """The weights lie in another order than the windows."""
    return sum(x[:, i : i + 7, j : j + 6] @ w[2 - i, 2 - j] for i in range(3) for j in range(3))


def computed(x: Any, w: Any) -> Any:
    """Weights that are made of others."""
    return sum(x[:, i : i + 7, j : j + 6] @ np.tanh(w[i, j] * (i + 1.0)) for i in range(3) for j in range(3))


CONVOLUTIONS = [plain, turned, strided, dilated, mirrored, computed]


@pytest.mark.parametrize("convolved", CONVOLUTIONS)
def test_a_convolution_is_one_product_and_has_its_derivatives(convolved: Callable[..., Any]) -> None:
    def loss(x: Any, w: Any) -> Any:
        return np.sum(np.sin(convolved(x, w)))

    both = tg.grad(loss, argnums=(0, 1))
    names = [node.name for node in both.graph(X, W).everywhere()]
    assert names.count("patches") == 1
    assert names.count("matmul") == 3
    np.testing.assert_allclose(tg.trace(convolved)(X, W), convolved(X, W), rtol=1e-12, atol=1e-12)
    gx, gw = both(X, W)
    for _ in range(3):
        dx, dw = rng.normal(size=X.shape), rng.normal(size=W.shape)
        derivative = (loss(X + 1e-6 * dx, W + 1e-6 * dw) - loss(X - 1e-6 * dx, W - 1e-6 * dw)) / 2e-6
        np.testing.assert_allclose(np.sum(gx * dx) + np.sum(gw * dw), derivative, rtol=1e-6, atol=1e-6)


def test_second_derivatives_and_batches() -> None:
    def loss(w: Any) -> Any:
        return np.sum(np.tanh(plain(X, w)) ** 2)

    dw = rng.normal(size=W.shape)
    derivative = (tg.grad(loss)(W + 1e-5 * dw) - tg.grad(loss)(W - 1e-5 * dw)) / 2e-5
    np.testing.assert_allclose(tg.jvp(tg.grad(loss), (W,), (dw,))[1], derivative, rtol=1e-5, atol=1e-6)
    many = np.stack([W, 2 * W])
    np.testing.assert_allclose(
        tg.vmap(lambda w: plain(X, w))(many), [plain(X, w) for w in many], rtol=1e-12, atol=1e-12
    )


def inner(x: Any, w: Any) -> Any:
    """Something reads what has been added up on the way."""
    parts = [x[:, i : i + 7, j : j + 6] @ w[i, j] for i in range(3) for j in range(3)]
    total, seen = parts[0], 0.0
    for part in parts[1:]:
        total = total + part
        seen = seen + np.sum(total)
    return total + seen


def uneven(x: Any, w: Any) -> Any:
    """The windows begin at no grid."""
    starts = [(0, 0), (0, 1), (1, 0), (1, 2), (2, 0), (2, 1), (0, 2), (1, 1), (0, 0)]
    return sum(x[:, i : i + 7, j : j + 6] @ w[k // 3, k % 3] for k, (i, j) in enumerate(starts))


@pytest.mark.parametrize("other", [inner, uneven])
def test_what_is_no_convolution_stays_what_it_is(other: Callable[..., Any]) -> None:
    names = [node.name for node in tg.trace(other).graph(X, W).everywhere()]
    assert "patches" not in names
    np.testing.assert_allclose(tg.trace(other)(X, W), other(X, W), rtol=1e-12, atol=1e-12)


def test_nans_and_infinities_stay_in_the_windows_that_have_them() -> None:
    x = X.copy()
    x[0, 4, 3, 1], x[1, 0, 0, 0] = np.nan, np.inf
    with np.errstate(all="ignore"):
        want = plain(x, W)
    np.testing.assert_allclose(tg.trace(plain)(x, W), want, rtol=1e-12, atol=1e-12)


def test_windows_that_take_too_much_room_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracegrad.reroll.convolution_idiom.ROOM", 100)
    names = [node.name for node in tg.trace(lambda x, w: plain(x, w) * 2).graph(X, W).everywhere()]
    assert "patches" not in names


def test_shapes_that_patches_refuses() -> None:
    patches = TABLE["patches"]
    plain = {"start": (0, 0), "step": (1, 1), "gap": (1, 1)}
    with pytest.raises(tg.errors.ShapeError, match="beyond the end"):
        tg.trace(lambda x: patches(x, counts=(4, 3), sizes=(1, 4), **plain))(np.ones((4, 5)))
    with pytest.raises(tg.errors.ShapeError, match="each axis"):
        tg.trace(lambda x: patches(x, counts=(4,), sizes=(1, 4), **plain))(np.ones((4, 5)))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("images", "columns"), [(3, 5), (40, 8), (41, 3), (2, 2)])
def test_small_windows_are_read_in_place(images: int, columns: int, dtype: str) -> None:
    """One channel: nothing is stored but the result, and the gradient adds up in registers, chunk by chunk."""
    x, w = rng.normal(size=(images, 30, 31, 1)).astype(dtype), rng.normal(size=(3, 3, 1, columns)).astype(dtype)
    t = rng.normal(size=(images, 28, 29, columns)).astype(dtype)

    def loss(x: Any, w: Any) -> Any:
        return np.sum(plain(x, w) * t)

    assert not any("matmul" in str(k) for k in tg.trace(plain).explain(x, w).kernels)
    gx, gw = tg.grad(loss, argnums=(0, 1))(x, w)
    wide = [a.astype("f8") for a in (x, w, t)]
    windows = np.lib.stride_tricks.sliding_window_view(wide[0][..., 0], (3, 3), axis=(1, 2))
    rtol = 1e-4 if dtype == "float32" else 1e-11
    np.testing.assert_allclose(tg.trace(plain)(x, w), plain(*wide[:2]), rtol=rtol, atol=rtol)
    np.testing.assert_allclose(gw[:, :, 0], np.einsum("nyxij,nyxc->ijc", windows, wide[2]), rtol=rtol, atol=100 * rtol)
    padded = np.pad(wide[2], ((0, 0), (2, 2), (2, 2), (0, 0)))
    around = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    want = np.einsum("nyxcij,ijc->nyx", around, wide[1][::-1, ::-1, 0])
    np.testing.assert_allclose(gx[..., 0], want, rtol=rtol, atol=rtol)


def test_bits_do_not_depend_on_the_number_of_threads() -> None:
    x, w = rng.normal(size=(64, 40, 40, 1)), rng.normal(size=(3, 3, 1, 8))
    step = tg.grad(lambda w: np.sum(np.sin(plain(x, w))))
    before = settings.thread_count()
    results = []
    try:
        for count in (1, 2, 3):
            pool.set_num_threads(count)
            results.append(step(w))
    finally:
        pool.set_num_threads(before)
    assert all(np.array_equal(results[0], x) for x in results)
