"""The peers: their imports, if they are installed, and the fastest way to call each.

`need` imports a package once, sets the options of a fair comparison (float64 in JAX), and compiles one trivial function
with it. A cold time is then the time of the function, without the start of the compiler. A missing package is a `Skip`
with the reason.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import platform
import shutil
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Any

import numpy as np

from benchmarks.harness import Run, Skip

DISTRIBUTIONS = (
    "numpy",
    "numba",
    "llvmlite",
    "scipy",
    "tracegrad",
    "jax",
    "jaxlib",
    "torch",
    "autograd",
    "pytensor",
    "dask",
)


def _prime_jax(jax: Any) -> None:
    jax.config.update("jax_enable_x64", True)
    jax.jit(lambda x: x + 1)(np.ones(3)).block_until_ready()


def _prime_numba(numba: Any) -> None:
    numba.njit("float64(float64)")(lambda x: x + 1)


def _prime_tracegrad(tg: Any) -> None:
    tg.value_and_grad(lambda x: np.sum(x + 1.0))(np.ones(3))


PRIMES: dict[str, Callable[[Any], None]] = {
    "jax": _prime_jax,
    "numba": _prime_numba,
    "tracegrad": _prime_tracegrad,
}


@functools.cache
def _load(name: str) -> Any:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        return Skip(f"{name} is not installed" if error.name == name else str(error))
    PRIMES.get(name, lambda module: None)(module)
    return module


def need(name: str) -> Any:
    """The imported and started package, or `Skip`."""
    module = _load(name)
    if isinstance(module, Skip):
        raise module
    return module


@functools.cache
def _torch_compiler_fault() -> str:
    torch = need("torch")
    if not any(shutil.which(name) for name in (os.environ.get("CXX", "c++"), "g++", "clang++")):
        return "torch.compile needs a C++ compiler"
    try:
        torch.compile(lambda x: x + 1)(torch.ones(3))
    except Exception as error:
        return f"torch.compile: {error}".partition("\n")[0]
    return ""


def torch_compiler() -> Any:
    """PyTorch, once its compiler is known to work here."""
    torch = need("torch")
    if fault := _torch_compiler_fault():
        raise Skip(fault)
    return torch


def torch_alone() -> Any:
    """PyTorch on one thread: of several it makes no use for ten elements, and they take the processor from others."""
    torch = need("torch")
    torch.set_num_threads(1)
    return torch


def start(names: tuple[str, ...]) -> None:
    """Import and start packages ahead of the clock; what fails is left for `need` to tell."""
    for name in names:
        with contextlib.suppress(Exception):
            torch_compiler() if name == "torch" else need(name)


def eager(run: Run) -> Run:
    """`run` under `tg.disable_jit()`."""
    disable_jit = need("tracegrad").disable_jit

    def call() -> Any:
        with disable_jit():
            return run()

    return call


def jitted(function: Callable[..., Any], *arrays: Any) -> Run:
    """A call of `jax.jit(function)` on arrays of its own that returns when the result is there."""
    jax = need("jax")
    compiled = jax.jit(function)
    arguments = jax.tree.map(jax.numpy.asarray, arrays)
    leaves = jax.tree.leaves

    def call() -> Any:
        result = compiled(*arguments)
        leaves(result)[-1].block_until_ready()
        return result

    return call


def torch_value_and_grad(function: Callable[..., Any], x: Any, *rest: Any) -> Run:
    """PyTorch's eager value and gradient by x, on tensors that share memory with the ndarrays."""
    torch = need("torch")
    leaf, others = torch.from_numpy(x).requires_grad_(), _torch_arguments(rest)

    def call() -> Any:
        value = function(leaf, *others)
        return value, torch.autograd.grad(value, leaf)[0]

    return call


def torch_compiled(function: Callable[..., Any], x: Any, *rest: Any) -> Run:
    """As `torch_value_and_grad`, with `torch.compile` for the function: two graphs and the engine between."""
    torch = torch_compiler()
    torch._dynamo.reset()
    return torch_value_and_grad(torch.compile(function, fullgraph=True), x, *rest)


def torch_joint(function: Callable[..., Any], x: Any, *rest: Any) -> Run:
    """As `torch_compiled`, but `torch.compile` sees forward and backward as one graph, by `torch.func`."""
    torch = torch_compiler()
    torch._dynamo.reset()
    joint = torch.compile(torch.func.grad_and_value(function), fullgraph=True)
    leaf, others = torch.from_numpy(x), _torch_arguments(rest)

    def call() -> Any:
        gradient, value = joint(leaf, *others)
        return value, gradient

    return call


def _torch_arguments(arguments: tuple[Any, ...]) -> list[Any]:
    """Tensors for ndarrays, Python numbers for scalars."""
    torch = need("torch")
    return [torch.from_numpy(a) if isinstance(a, np.ndarray) else a.item() for a in arguments]


def versions() -> dict[str, str]:
    """The versions of Python and of the packages compared, installed ones only."""
    table = {"python": platform.python_version()}
    for name in DISTRIBUTIONS:
        try:
            table[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return table


def cpu_name() -> str:
    """The processor's own name where the system tells it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def threads() -> dict[str, Any]:
    """How many cores this process may use, and what limits the peers' threads."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    names = (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "NUMBA_NUM_THREADS",
        "TRACEGRAD_NUM_THREADS",
        "XLA_FLAGS",
    )
    table: dict[str, Any] = {
        "cores": cores,
        "environment": {n: os.environ[n] for n in names if n in os.environ},
    }
    for name in ("torch", "numba"):
        if name in sys.modules:
            table[name] = sys.modules[name].get_num_threads()
    return table


def machine() -> dict[str, Any]:
    """What a reader of the JSON needs to judge the times by."""
    return {"cpu": cpu_name(), "system": platform.platform(), "threads": threads(), "versions": versions()}
