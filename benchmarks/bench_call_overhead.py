"""What does one call cost from Python? Value and gradient of the Rosenbrock function of ten variables.

The arithmetic takes some tens of nanoseconds; the rest is call overhead.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from benchmarks.harness import Case, Factory, Run, Settings
from benchmarks.peers import eager, jitted, need, torch_compiled, torch_joint, torch_value_and_grad

X = np.linspace(-1.2, 1.2, 10)
PACKAGES = ("tracegrad", "numba", "autograd", "torch", "jax", "pytensor")


def rosenbrock(x: Any) -> Any:
    """The function, in operators and methods that every peer has."""
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()


def by_hand(x: Any) -> tuple[Any, Any]:
    """Value and gradient as one writes them in NumPy."""
    left = x[:-1]
    d, e = x[1:] - left * left, 1.0 - left
    gradient = np.zeros_like(x)
    gradient[:-1] = -400.0 * left * d - 2.0 * e
    gradient[1:] += 200.0 * d
    return 100.0 * (d @ d) + e @ e, gradient


def numba_by_hand() -> Run:
    numba = need("numba")

    @numba.njit("Tuple((float64, float64[::1]))(float64[::1])", fastmath=False)
    def kernel(x):  # type: ignore[no-untyped-def]
        gradient = np.zeros_like(x)
        value = 0.0
        for i in range(x.size - 1):
            d, e = x[i + 1] - x[i] * x[i], 1.0 - x[i]
            value += 100.0 * d * d + e * e
            gradient[i] -= 400.0 * x[i] * d + 2.0 * e
            gradient[i + 1] += 200.0 * d
        return value, gradient

    return functools.partial(kernel, X)


def tracegrad() -> Run:
    return functools.partial(need("tracegrad").value_and_grad(rosenbrock), X)


def autograd() -> Run:
    return functools.partial(need("autograd").value_and_grad(rosenbrock), X)


def jax() -> Run:
    return jitted(need("jax").value_and_grad(rosenbrock), X)


def pytensor() -> Run:
    module = need("pytensor")
    x = module.tensor.dvector("x")
    value = rosenbrock(x)
    function = module.function([x], [value, module.grad(value, x)])
    function.trust_input = True
    return functools.partial(function, X)


def cases(settings: Settings) -> list[Case]:
    peers: dict[str, Factory] = {
        "tracegrad": tracegrad,
        "tracegrad eager": lambda: eager(tracegrad()),
        "numpy by hand": lambda: functools.partial(by_hand, X),
        "numba by hand": numba_by_hand,
        "autograd": autograd,
        "torch": lambda: torch_value_and_grad(rosenbrock, X),
        "torch.compile": lambda: torch_compiled(rosenbrock, X),
        "torch.compile joint": lambda: torch_joint(rosenbrock, X),
        "jax": jax,
        "pytensor": pytensor,
    }
    return [Case("call overhead: 10-vector Rosenbrock, value and gradient", peers, lambda: by_hand(X))]
