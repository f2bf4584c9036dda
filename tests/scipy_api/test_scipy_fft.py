"""The real transforms of `scipy.fft` in traced code: values and slopes."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest
from scipy import fft

import tracegrad as tg

M = np.array([[0.3, 1.2, -0.4, 0.8], [0.9, 0.1, 0.7, -0.2], [-1.1, 0.5, 0.2, 1.3]])


@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
@pytest.mark.parametrize("kind", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["dct", "idct", "dst", "idst"])
def test_a_transform_is_scipys_and_its_pullback_the_transpose(name: str, kind: int, norm: Any) -> None:
    transform = getattr(fft, name)

    def f(x: Any) -> Any:
        return transform(x, kind, norm=norm)

    f = types.FunctionType(f.__code__.replace(co_name=f"{name}{kind}{norm}"), globals(), name, None, f.__closure__)
    np.testing.assert_array_equal(tg.trace(f)(M), f(M))
    ct, t = np.cos(np.arange(12.0)).reshape(M.shape), np.sin(1.0 + np.arange(12.0)).reshape(M.shape)
    pulled = tg.grad(lambda x: np.sum(f(x) * ct))(M)
    matrix = f(np.eye(4))  # a row for what each element becomes
    np.testing.assert_allclose(pulled, ct @ matrix.T, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(tg.jvp(f, (M,), (t,))[1], f(t), rtol=1e-13)
    hessian = tg.hessian(lambda x: np.sum(f(x) ** 2))(M[0])
    np.testing.assert_allclose(hessian, 2.0 * matrix @ matrix.T, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: fft.dct(x, axis=0),
        lambda x: fft.dct(x, n=3),
        lambda x: fft.idst(x, n=6, axis=0, norm="ortho"),
        lambda x: fft.dctn(x, norm="ortho"),
        lambda x: fft.idctn(x, type=3, axes=(0,)),
        lambda x: fft.dstn(x, s=(2, 5)),
        lambda x: fft.dct(x.astype(np.float32)),
    ],
)
def test_axes_and_lengths_are_scipys(f: Any) -> None:
    y = f(M)
    np.testing.assert_allclose(tg.trace(f)(M), y, rtol=1e-6 if y.dtype == np.float32 else 1e-13, atol=1e-14)
    assert tg.trace(f)(M).dtype == y.dtype
    ct = np.cos(np.arange(y.size)).reshape(y.shape)
    t = np.sin(1.0 + np.arange(12.0)).reshape(M.shape)
    got = np.sum(tg.grad(lambda x: np.sum(f(x) * ct))(M) * t)
    assert got == pytest.approx(np.sum(f(t) * ct), rel=1e-5 if y.dtype == np.float32 else 1e-12)


def test_each_of_a_batch_is_transformed() -> None:
    derivative = tg.grad(lambda x: np.sum(fft.dct(x) ** 3))
    np.testing.assert_allclose(tg.vmap(derivative)(M), [derivative(x) for x in M], rtol=1e-12)
