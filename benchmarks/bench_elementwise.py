"""How fast is a fused elementwise chain? Value and gradient of sum(tanh(x*w + b) * exp(-x**2)) by x.

The operands w and b are scalars, or vectors as long as x; the dtypes are float64 and float32; x has two sizes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import QUICK, Case, Factory, Run, Settings
from benchmarks.peers import eager, jitted, need, torch_compiled, torch_joint, torch_value_and_grad

PACKAGES = ("tracegrad", "numba", "autograd", "torch", "jax")


def chain(xp: Any) -> Callable[..., Any]:
    """The function, in the array namespace `xp`."""

    def loss(x: Any, w: Any, b: Any) -> Any:
        return xp.sum(xp.tanh(x * w + b) * xp.exp(-(x**2)))

    return loss


def by_hand(x: Any, w: Any, b: Any) -> tuple[Any, Any]:
    """Value and gradient as one writes them in NumPy."""
    t, e = np.tanh(x * w + b), np.exp(-x * x)
    te = t * e
    return np.sum(te), (1 - t * t) * w * e - 2 * x * te


def numba_by_hand(parallel: bool, x: Any, w: Any, b: Any) -> Run:
    numba = need("numba")
    real = numba.from_dtype(x.dtype)
    one, two = x.dtype.type(1), x.dtype.type(2)
    vector = isinstance(w, np.ndarray)
    at = numba.njit(lambda a, i: a[i]) if vector else numba.njit(lambda a, i: a)
    weight = real[::1] if vector else real
    signature = numba.types.Tuple((real, real[::1]))(real[::1], weight, weight)

    @numba.njit(signature, fastmath=False, parallel=parallel)
    def kernel(x, w, b):  # type: ignore[no-untyped-def]
        gradient = np.empty_like(x)
        value = one - one
        for i in numba.prange(x.size):
            t, e = np.tanh(x[i] * at(w, i) + at(b, i)), np.exp(-x[i] * x[i])
            value += t * e
            gradient[i] = (one - t * t) * at(w, i) * e - two * x[i] * t * e
        return value, gradient

    return functools.partial(kernel, x, w, b)


def tracegrad(*arrays: Any) -> Run:
    return functools.partial(need("tracegrad").value_and_grad(chain(np)), *arrays)


def autograd(*arrays: Any) -> Run:
    module = need("autograd")
    return functools.partial(module.value_and_grad(chain(module.numpy)), *arrays)


def jax(*arrays: Any) -> Run:
    module = need("jax")
    return jitted(module.value_and_grad(chain(module.numpy)), *arrays)


def peers(*arrays: Any) -> dict[str, Factory]:
    return {
        "tracegrad": lambda: tracegrad(*arrays),
        "tracegrad eager": lambda: eager(tracegrad(*arrays)),
        "numpy by hand": lambda: functools.partial(by_hand, *arrays),
        "numba by hand": lambda: numba_by_hand(False, *arrays),
        "numba parallel": lambda: numba_by_hand(True, *arrays),
        "autograd": lambda: autograd(*arrays),
        "torch": lambda: torch_value_and_grad(chain(need("torch")), *arrays),
        "torch.compile": lambda: torch_compiled(chain(need("torch")), *arrays),
        "torch.compile joint": lambda: torch_joint(chain(need("torch")), *arrays),
        "jax": lambda: jax(*arrays),
    }


def case(n: int, dtype: str, vectors: bool) -> Case:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(n).astype(dtype)
    # Positive w and b, so that the sum does not cancel and can be compared in float32.
    w, b = rng.uniform(0.5, 1.5, (2, n)).astype(dtype)
    arrays = (x, w, b) if vectors else (x, x.dtype.type(0.7), x.dtype.type(0.1))
    kind = "vector" if vectors else "scalar"
    name = f"elementwise: sum(tanh(x*w+b)*exp(-x**2)), value and gradient, {kind} w and b, {dtype}, n={n}"
    return Case(name, peers(*arrays), lambda: by_hand(*arrays))


def cases(settings: Settings) -> list[Case]:
    sizes = [10**5] if settings == QUICK else [10**5, 10**6]
    return [case(n, t, v) for v in (False, True) for t in ("float64", "float32") for n in sizes]
