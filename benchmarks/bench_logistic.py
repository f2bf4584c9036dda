"""How fast is a loss with a matrix product? Logistic regression, value and gradient, 10,000 by 50."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import Case, Factory, Run, Settings
from benchmarks.peers import eager, jitted, need, torch_compiled, torch_joint, torch_value_and_grad

PACKAGES = ("tracegrad", "numba", "autograd", "torch", "jax")
PENALTY = 1e-3


def logistic(xp: Any) -> Callable[..., Any]:
    """Mean logistic loss of labels 0 and 1 with an L2 penalty, in the array namespace `xp`."""

    def loss(w: Any, x: Any, y: Any) -> Any:
        z = x @ w
        softplus = xp.maximum(z, 0.0 * z) + xp.log1p(xp.exp(-abs(z)))
        return xp.mean(softplus - y * z) + PENALTY * xp.sum(w**2)

    return loss


def by_hand(w: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """Value and gradient as one writes them in NumPy."""
    z = x @ w
    e = np.exp(-np.abs(z))
    value = np.mean(np.maximum(z, 0.0) + np.log1p(e) - y * z) + PENALTY * np.sum(w**2)
    probability = np.where(z >= 0.0, 1.0, e) / (1.0 + e)
    return value, (probability - y) @ x / y.size + 2.0 * PENALTY * w


def numba_by_hand(*arrays: Any) -> Run:
    numba = need("numba")

    @numba.njit("Tuple((float64, float64[::1]))(float64[::1], float64[:, ::1], float64[::1])", fastmath=False)
    def kernel(w, x, y):  # type: ignore[no-untyped-def]
        z = np.dot(x, w)
        value = 0.0
        for i in range(z.size):
            e = np.exp(-abs(z[i]))
            value += max(z[i], 0.0) + np.log1p(e) - y[i] * z[i]
            z[i] = (1.0 if z[i] >= 0.0 else e) / (1.0 + e) - y[i]
        gradient = np.dot(z, x) / y.size + 2.0 * PENALTY * w
        return value / y.size + PENALTY * np.dot(w, w), gradient

    return functools.partial(kernel, *arrays)


def tracegrad(*arrays: Any) -> Run:
    return functools.partial(need("tracegrad").value_and_grad(logistic(np)), *arrays)


def autograd(*arrays: Any) -> Run:
    module = need("autograd")
    return functools.partial(module.value_and_grad(logistic(module.numpy)), *arrays)


def jax(*arrays: Any) -> Run:
    module = need("jax")
    return jitted(module.value_and_grad(logistic(module.numpy)), *arrays)


def cases(settings: Settings) -> list[Case]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((10_000, 50))
    arrays = (0.3 * rng.standard_normal(50), x, (x @ rng.standard_normal(50) > 0.0).astype(np.float64))

    peers: dict[str, Factory] = {
        "tracegrad": lambda: tracegrad(*arrays),
        "tracegrad eager": lambda: eager(tracegrad(*arrays)),
        "numpy by hand": lambda: functools.partial(by_hand, *arrays),
        "numba by hand": lambda: numba_by_hand(*arrays),
        "autograd": lambda: autograd(*arrays),
        "torch": lambda: torch_value_and_grad(logistic(need("torch")), *arrays),
        "torch.compile": lambda: torch_compiled(logistic(need("torch")), *arrays),
        "torch.compile joint": lambda: torch_joint(logistic(need("torch")), *arrays),
        "jax": lambda: jax(*arrays),
    }
    return [Case("logistic regression: 10000x50, float64, value and gradient", peers, lambda: by_hand(*arrays))]
