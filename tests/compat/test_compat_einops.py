"""einops on Tensors: values and derivatives are those of ndarrays and of differences, eager and traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg

einops = pytest.importorskip("einops")

X = np.sin(np.arange(24.0)).reshape(2, 3, 4)
CALLS: dict[str, Callable[[Any], Any]] = {
    "rearrange": lambda x: einops.rearrange(x, "a b c -> c (a b)"),
    "several": lambda x: einops.rearrange([x, x], "k a b c -> a b (k c)"),
    "mean": lambda x: einops.reduce(x, "a b c -> a c", "mean"),
    "max": lambda x: einops.reduce(x, "a (b d) c -> a b", "max", d=3),
    "prod": lambda x: einops.reduce(x, "a b c -> b", "prod"),
    "repeat": lambda x: einops.repeat(x, "a b c -> a b d c", d=2),
    "einsum": lambda x: einops.einsum(x, x, "a b c, a b d -> c d"),
    "pack": lambda x: einops.pack([x, x], "a * c")[0],
}


@pytest.mark.parametrize("name", CALLS)
def test_einops_takes_tensors(name: str) -> None:
    pytest.importorskip("tracegrad.compat.einops")
    call, want = CALLS[name], CALLS[name](X)
    x = tg.tensor(X, requires_grad=True)
    result = call(x)
    np.testing.assert_allclose(result.detach().numpy(), want, rtol=1e-12)
    np.testing.assert_allclose(tg.trace(call)(tg.tensor(X)).numpy(), want, rtol=1e-12)
    (result**2).sum().backward()
    traced = tg.func.grad(lambda v: (call(v) ** 2).sum())(tg.tensor(X))
    h = np.zeros_like(X)
    h[1, 2, 3] = 1e-6
    difference = ((call(X + h) ** 2).sum() - (call(X - h) ** 2).sum()) / 2e-6
    assert x.grad[1, 2, 3].item() == pytest.approx(difference, rel=1e-6, abs=1e-8)
    np.testing.assert_allclose(traced.numpy(), x.grad.numpy(), rtol=1e-12)


def test_arrays_and_tensors_become_each_other() -> None:
    pytest.importorskip("tracegrad.compat.einops")
    assert einops.asnumpy(tg.tensor(X, requires_grad=True)).tolist() == X.tolist()
    assert einops.reduce(tg.tensor([[True, False]]), "a b -> a", "any").tolist() == [True]
