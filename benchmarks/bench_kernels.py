"""Does any kernel lose to unfused NumPy? One function at a time, forward only, where fusion cannot help."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.harness import QUICK, Case, Factory, Settings
from benchmarks.peers import need

PACKAGES = ("tracegrad",)


def softmax(x: Any) -> Any:
    e = np.exp(x - np.max(x, axis=1, keepdims=True))
    return e / np.sum(e, axis=1, keepdims=True)


def sigmoid(x: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-x))


def kernels(dtype: str, size: int) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Each function with the arrays it is called on; `size` is the side of the square matrices."""
    rng = np.random.default_rng(0)
    a, b, c = rng.standard_normal((3, size, size)).astype(dtype)
    x, y, z = a.ravel(), b.ravel(), c.ravel()
    positive = np.abs(x) + x.dtype.type(0.1)
    index = rng.integers(0, size, size)
    return {
        "exp": (np.exp, (x,)),
        "log": (np.log, (positive,)),
        "log1p": (np.log1p, (positive,)),
        "expm1": (np.expm1, (x,)),
        "tanh": (np.tanh, (x,)),
        "sin": (np.sin, (x,)),
        "sqrt": (np.sqrt, (positive,)),
        "power": (lambda x: x**3, (x,)),
        "sigmoid": (sigmoid, (x,)),
        "divide": (np.divide, (x, positive)),
        "x*y + z": (lambda x, y, z: x * y + z, (x, y, z)),
        "where": (lambda x, y: np.where(x > 0, x, y), (x, y)),
        "sum": (np.sum, (x,)),
        "sum axis 0": (lambda a: np.sum(a, axis=0), (a,)),
        "sum axis 1": (lambda a: np.sum(a, axis=1), (a,)),
        "max": (np.max, (x,)),
        "argmax axis 1": (lambda a: np.argmax(a, axis=1), (a,)),
        "var axis 1": (lambda a: np.var(a, axis=1), (a,)),
        "cumsum": (np.cumsum, (x,)),
        "a + b.T": (lambda a, b: a + b.T, (a, b)),
        "concatenate": (lambda a, b: np.concatenate([a, b], axis=1), (a, b)),
        "gather rows": (lambda a, index: a[index], (a, index)),
        "softmax rows": (softmax, (a,)),
        "matmul": (np.matmul, (a, b)),
        "matvec": (np.matmul, (a, b[0])),
    }


def case(name: str, dtype: str, size: int) -> Case:
    function, arrays = kernels(dtype, size)[name]
    peers: dict[str, Factory] = {
        "tracegrad": lambda: functools.partial(need("tracegrad").trace(function), *arrays),
        "numpy": lambda: functools.partial(function, *arrays),
    }
    settle = None if name.startswith("mat") else 0.001
    title = f"kernel: {name}, {dtype}, {size}x{size}"
    return Case(title, peers, lambda: function(*arrays), settle_seconds=settle, brief=True)


def cases(settings: Settings) -> Iterator[Case]:
    # One at a time: together the arrays would fill the memory.
    for dtype in ("float64", "float32"):
        for size in [30] if settings == QUICK else [30, 1000]:
            for name in kernels(dtype, 2):
                yield case(name, dtype, size)
