"""Command `bench`: speed of gradients on this machine, compiled, eager, and of the plain NumPy function.

Before any timing, gradients are compared with finite differences, and eager gradients with compiled ones.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracegrad import api, tree
from tracegrad.cli.errors import Lines
from tracegrad.settings import disable_jit, settings
from tracegrad.utils.formatting import columns, duration

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand
    from tracegrad.typing import Array


__all__ = ["add_to"]


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    result = commands.add_parser("bench", help="compiled code, eager mode and NumPy on this machine, in some seconds")
    result.add_argument("--seconds", type=float, default=0.3, help="for each number (0.3)")
    result.set_defaults(run=_bench)


class Workload(NamedTuple):
    """A scalar function of its first argument, and its arguments."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]


def _chain(x: Array) -> Operand:
    return np.sum(np.exp(-0.5 * x * x) * np.sin(x) / (1.0 + x * x))


def _network(params: dict[str, Array], x: Array, y: Array) -> Any:
    h = np.tanh(x @ params["w"] + params["b"])
    return np.mean((h @ params["v"] - y) ** 2)


def _logistic(w: Array, x: Array, y: Array) -> Any:
    return np.mean(np.log1p(np.exp(-y * (x @ w)))) + 0.01 * np.sum(w * w)


def _mixture(means: Array, x: Array) -> Any:
    distances = np.sum((x[:, None, :] - means) ** 2, axis=2)
    smallest = np.min(distances, axis=1, keepdims=True)
    return np.sum(smallest[:, 0] - np.log(np.sum(np.exp(smallest - distances), axis=1)))


def _heat(u: Array) -> Any:
    for _ in range(200):
        u = u + 0.1 * (np.roll(u, 1) - 2.0 * u + np.roll(u, -1))
    return np.sum(u * u)


def _small(x: Any) -> Any:
    return x[0] * x[1] + np.sin(x[2])


def _workloads() -> Iterator[Workload]:
    rng = np.random.default_rng(0)
    normal = rng.standard_normal
    labels = np.sign(normal(5000))
    params = {"w": normal((64, 128)), "b": normal(128), "v": normal((128, 10))}
    yield Workload("3 elements", _small, (normal(3),))
    yield Workload("elementwise, 1e6", _chain, (normal(1_000_000),))
    yield Workload("network, 256 x 64", _network, (params, normal((256, 64)), normal((256, 10))))
    yield Workload("logistic, 5000 x 50", _logistic, (normal(50), normal((5000, 50)), labels))
    yield Workload("mixture, 2000 x 25", _mixture, (normal((25, 10)), normal((2000, 10))))
    yield Workload("200 iterations of 1000", _heat, (normal(1000),))


_HEAD = ("workload", "first call", "value and gradient", "eager", "", "value", "NumPy", "")


def _bench(options: argparse.Namespace) -> Lines:
    yield f"medians, {settings.thread_count()} threads; the factors say how much faster compiled code is"
    rows = [_row(workload, options.seconds) for workload in _workloads()]
    yield from columns([_HEAD, *rows], left_aligned={0})
    return 0


def _row(workload: Workload, seconds: float) -> tuple[str, ...]:
    name, function, args = workload
    traced = api.trace(function, tiered=False)  # so that the first call compiles
    both, value = api.value_and_grad(traced), traced
    start = time.perf_counter()
    result = both(*args)
    first = time.perf_counter() - start
    _check(workload, result)

    def eager() -> tuple[np.float64, Array]:
        with disable_jit():
            return both(*args)

    compiled = _median(lambda: both(*args), seconds)
    taped = _median(eager, seconds)
    forward, plain = _median(lambda: value(*args), seconds), _median(lambda: function(*args), seconds)
    factors = f"{taped / compiled:.1f} x", f"{plain / forward:.1f} x"
    times = duration(first), duration(compiled), duration(taped), factors[0], duration(forward), duration(plain)
    return name, *times, factors[1]


def _check(workload: Workload, result: Any) -> None:
    """Compare the derivative along a direction with a finite difference, and eager results with compiled ones."""
    name, function, (x, *others) = workload
    leaves, structure = tree.flatten(x)
    derivatives = tree.leaves(result[1])
    rng = np.random.default_rng(1)
    along = [rng.standard_normal(leaf.shape) for leaf in leaves]
    step = 1e-6

    def moved(by: float) -> Any:
        return function(
            tree.unflatten(structure, [leaf + by * direction for leaf, direction in zip(leaves, along)]), *others
        )

    derivative = sum(float(np.sum(a * b)) for a, b in zip(derivatives, along))
    difference = float(moved(step) - moved(-step)) / (2 * step)
    with disable_jit():
        eager = api.value_and_grad(function)(x, *others)
    scale = sum(float(np.linalg.norm(a) * np.linalg.norm(b)) for a, b in zip(derivatives, along)) + abs(
        float(result[0])
    )
    if abs(derivative - difference) > 1e-5 * scale or not np.isclose(float(eager[0]), float(result[0]), rtol=1e-9):
        raise AssertionError(f"{name}: a slope of {derivative}, but {difference} by differences; please report this")


def _median(run: Callable[..., object], seconds: float) -> float:
    run()
    run()
    results: list[float] = []
    end = time.perf_counter() + seconds
    while len(results) < 3 or (time.perf_counter() < end and len(results) < 100_000):
        start = time.perf_counter()
        run()
        results.append(time.perf_counter() - start)
    return float(np.median(results))
