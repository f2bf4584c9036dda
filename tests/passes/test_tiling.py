"""Loops over elements that run block by block: gradients are those that they are without blocks, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.passes.loops import tiling

rng = np.random.default_rng(0)


def cubic(x: Any) -> Any:
    for _ in range(100):
        x = x + 0.01 * (x - x * x * x)
    return np.sum(x * x)


def oscillating(x: Any) -> Any:
    v, t = np.zeros_like(x), 0.0
    for _ in range(60):
        v = v - 0.01 * np.sin(x) * (1.0 + t)
        x, t = x + 0.01 * v, t + 0.01
    return np.sum(np.where(x > 0.5, x * v, x))


def scheduled(x: Any, rates: Any) -> Any:
    for rate in rates:
        x = x - rate * x * x
    return np.sum(x)


def gradient(f: Callable[..., Any], *args: Any) -> tuple[Any, int]:
    """The gradient, and the number of loops of the program that are not within others."""
    g = tg.grad(f)
    return g(*args), sum(node.name == "scan" for node in g.explain(*args).optimized.nodes)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], int]] = {
    "one array": (cubic, (rng.random(6001),), 1),
    "a whole number of blocks": (cubic, (rng.random(6400),), 1),
    "a matrix": (cubic, (rng.random((50, 121)),), 1),
    "single precision": (cubic, (rng.random(11_003).astype("float32"),), 1),
    "two arrays and a number": (oscillating, (rng.random(9000),), 1),
    "a number for each iteration": (scheduled, (rng.random(6000), np.linspace(0.02, 0.01, 100)), 1),
    "as many numbers as elements": (scheduled, (rng.random(800), np.linspace(0.02, 0.01, 800)), 2),
    "few elements": (cubic, (rng.random(300),), 2),
    "a sum of all in each iteration": (
        lambda x: tg.fori_loop(0, 200, lambda i, x: x - 0.01 * x * np.mean(x), x).sum(),
        (rng.random(4000),),
        2,
    ),
}


@pytest.mark.parametrize(("f", "args", "loops"), CASES.values(), ids=CASES)
def test_gradients_in_blocks(f: Any, args: Any, loops: int, monkeypatch: pytest.MonkeyPatch) -> None:
    result, count = gradient(f, *args)
    assert count == loops
    with tg.disable_jit():
        want = tg.grad(f)(*args)
    np.testing.assert_allclose(result, want, rtol=1e-4 if want.dtype == "float32" else 1e-11)
    monkeypatch.setattr(tiling, "LARGE", 10**12)
    plain, count = gradient(lambda *args: f(*args), *args)
    assert count == 2
    assert np.array_equal(result, plain)
