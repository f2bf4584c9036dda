"""What does eager mode cost? Small ops with the tape, a small gradient, and a long chain.

The peers are eager too: PyTorch on one thread, and HIPS autograd. Tensors are float64 with ten elements, so the time is
nearly all bookkeeping.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.bench_call_overhead import X, by_hand, rosenbrock
from benchmarks.harness import Case, Factory, Run, Settings, Timed
from benchmarks.peers import need, torch_alone

PACKAGES = ("tracegrad", "autograd", "torch")
A, B = np.linspace(0.5, 2.0, 10), np.linspace(1.0, 3.0, 10)
CHAIN = 100_000

OPS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "x * y": (lambda x, y: x * y, np.multiply),
    "x * 2.0": (lambda x, y: x * 2.0, lambda x, y: x * 2.0),
    "1.0 - x": (lambda x, y: 1.0 - x, lambda x, y: 1.0 - x),
    "x ** 2": (lambda x, y: x**2, lambda x, y: x**2),
    "x.tanh()": (lambda x, y: x.tanh(), lambda x, y: np.tanh(x)),
    "x.exp()": (lambda x, y: x.exp(), lambda x, y: np.exp(x)),
    "x.sum()": (lambda x, y: x.sum(), lambda x, y: x.sum()),
    "x[2:5]": (lambda x, y: x[2:5], lambda x, y: x[2:5]),
    "x.reshape(5, 2)": (lambda x, y: x.reshape(5, 2), lambda x, y: x.reshape(5, 2)),
    "x @ y": (lambda x, y: x @ y, lambda x, y: x @ y),
}


def _leaf(package: str, array: np.ndarray[Any, Any]) -> Any:
    """A Tensor of the package that requires grad."""
    module = torch_alone() if package == "torch" else need(package)
    return module.tensor(array, requires_grad=True)


def op(package: str, fn: Callable[[Any, Any], Any]) -> Run:
    """The op on leaves that require grad: a new Tensor and a new node."""
    return functools.partial(fn, _leaf(package, A), _leaf(package, B))


def gradient(package: str) -> Run:
    """Value and gradient of the Rosenbrock function by `backward`."""
    x = _leaf(package, X)

    def run() -> Any:
        x.grad = None
        value = rosenbrock(x)
        value.backward()
        return value, x.grad

    return run


def hips() -> Run:
    return functools.partial(need("autograd").value_and_grad(rosenbrock), X)


def chain(package: str) -> Run:
    """The backward pass alone of a chain of 100,000 ops, and what it gives."""
    x = _leaf(package, X)

    def run() -> Timed:
        x.grad = None
        y = x
        for _ in range(CHAIN):
            y = y * 1.00001
        total = y.sum()
        start = time.perf_counter()
        total.backward()
        return Timed(time.perf_counter() - start, x.grad)

    return run


def cases(settings: Settings) -> list[Case]:
    results = []
    for name, (fn, plain) in OPS.items():
        peers: dict[str, Factory] = {
            "tracegrad": functools.partial(op, "tracegrad", fn),
            "torch": functools.partial(op, "torch", fn),
            "numpy, no tape": lambda plain=plain: functools.partial(plain, A, B),
        }
        results.append(Case(f"eager op: {name}", peers, lambda plain=plain: plain(A, B), brief=True))
    small: dict[str, Factory] = {
        "tracegrad": functools.partial(gradient, "tracegrad"),
        "torch": functools.partial(gradient, "torch"),
        "autograd": hips,
        "numpy by hand": lambda: functools.partial(by_hand, X),
    }
    results.append(Case("eager: 10-vector Rosenbrock, value and gradient", small, lambda: by_hand(X)))
    long: dict[str, Factory] = {p: functools.partial(chain, p) for p in ("tracegrad", "torch")}
    results.append(
        Case("eager: backward of a chain of 100,000 ops", long, lambda: np.full(10, 1.00001**CHAIN), once=True)
    )
    return results
