"""How fast are the programs of `workloads`, warm?

Each is one function of an array namespace; each peer differentiates it by its own transforms. The expected result comes
from the first independent peer that is installed, in float64.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.harness import QUICK, Case, Factory, Run, Settings, Skip, leaves
from benchmarks.peers import jitted, need, torch_compiler
from benchmarks.workloads import Workload, workloads

PACKAGES = ("tracegrad", "numba", "autograd", "torch", "jax", "pytensor")

# The longest loops that a compiler gets which compiles each iteration.
MOST_ITERATIONS = 64


def mapped(convert: Callable[[Any], Any], value: Any) -> Any:
    """A tree of tuples and lists with what is no number converted."""
    if isinstance(value, tuple | list):
        return type(value)(mapped(convert, x) for x in value)
    return value if isinstance(value, float) else convert(value)


def called(module: Any, workload: Workload, xp: Any) -> Callable[..., Any]:
    """What the workload asks for, by the transforms of `module`."""
    fun = functools.partial(workload.fun, xp)
    return module.value_and_grad(fun) if workload.derived is None else workload.derived(module, fun)


# -- peers -------------------------------------------------------------------------------------------------------
def tracegrad(workload: Workload) -> Run:
    tg = need("tracegrad")
    return functools.partial(tg.trace(called(tg, workload, np)), *workload.data())


def jax(workload: Workload) -> Run:
    module = need("jax")
    return jitted(called(module, workload, module.numpy), *workload.data())


def hips() -> Any:
    """HIPS autograd by the names of JAX: `value_and_grad` with `has_aux`, from `grad_and_aux`."""
    module = need("autograd")

    def value_and_grad(fun: Callable[..., Any], has_aux: bool = False) -> Callable[..., Any]:
        if not has_aux:
            return module.value_and_grad(fun)

        def with_result(*arguments: Any) -> Any:
            result = fun(*arguments)
            return result[0], importlib.import_module("autograd.builtins").tuple(result)

        def call(*arguments: Any) -> Any:
            gradient, result = module.grad_and_aux(with_result)(*arguments)
            return result, gradient

        return call

    return SimpleNamespace(value_and_grad=value_and_grad, grad=module.grad, hessian=module.hessian)


def autograd(workload: Workload) -> Run:
    module = need("autograd")
    return functools.partial(called(hips(), workload, module.numpy), *workload.data())


def torch_transforms() -> Any:
    """`torch.func` by the names of JAX."""
    torch = need("torch")

    def value_and_grad(fun: Callable[..., Any], has_aux: bool = False) -> Callable[..., Any]:
        reversed_pair = torch.func.grad_and_value(fun, has_aux=has_aux)

        def call(*arguments: Any) -> Any:
            gradient, value = reversed_pair(*arguments)
            return value, gradient

        return call

    return SimpleNamespace(value_and_grad=value_and_grad, grad=torch.func.grad, hessian=torch.func.hessian)


def torch(workload: Workload, compile: bool) -> Run:
    module = torch_compiler() if compile else need("torch")
    run = called(torch_transforms(), workload, module)
    if compile:
        if workload.iterations > MOST_ITERATIONS:
            raise Skip(f"compiles each of {workload.iterations:,} iterations")
        module._dynamo.reset()
        run = module.compile(run, fullgraph=True)
    return functools.partial(run, *mapped(module.from_numpy, workload.data()))


def torch_eager(workload: Workload) -> Run:
    """The tape, where value and gradient are asked for; it is faster than `torch.func`."""
    module = need("torch")
    if workload.derived is not None:
        return torch(workload, compile=False)
    first, *rest = mapped(module.from_numpy, workload.data())
    parameters: list[Any] = []

    def leaf(x: Any) -> Any:
        parameters.append(x.requires_grad_())
        return x

    first = mapped(leaf, first)

    def call() -> Any:
        value = workload.fun(module, first, *rest)
        return value, module.autograd.grad(value, parameters)

    return call


def symbolic() -> Any:
    """PyTensor's derivatives by the names of JAX; what they return are symbols."""
    gradient = need("pytensor").gradient

    def grad_of(value: Any, x: Any) -> Any:
        derivatives = iter(gradient.grad(value, _symbols(x)))
        return mapped(lambda _: next(derivatives), x)

    def value_and_grad(fun: Callable[..., Any], has_aux: bool = False) -> Callable[..., Any]:
        def call(x: Any, *rest: Any) -> Any:
            result = fun(x, *rest)
            return result, grad_of(result[0] if has_aux else result, x)

        return call

    return SimpleNamespace(
        value_and_grad=value_and_grad,
        grad=lambda fun: lambda x, *rest: grad_of(fun(x, *rest), x),
        hessian=lambda fun: lambda x, *rest: gradient.hessian(fun(x, *rest), x),
    )


def _symbols(value: Any) -> list[Any]:
    return [x for part in value for x in _symbols(part)] if isinstance(value, tuple | list) else [value]


def pytensor(workload: Workload) -> Run:
    module, data = need("pytensor"), workload.data()
    xp = importlib.import_module("pytensor.tensor")
    inputs: list[Any] = []
    arrays = [x for x in _symbols(data) if not isinstance(x, float)]

    def symbol(x: Any) -> Any:
        inputs.append(xp.tensor(dtype=x.dtype, shape=x.shape))
        return inputs[-1]

    width = "float32" if any(x.dtype == np.float32 for x in arrays) else "float64"  # of Python's numbers
    with module.config.change_flags(floatX=width):
        results = _symbols(called(symbolic(), workload, xp)(*mapped(symbol, data)))
        run = module.function(inputs, [xp.as_tensor(x) for x in results], on_unused_input="ignore", trust_input=True)
    return functools.partial(run, *arrays)


def in_numpy(workload: Workload) -> Run:
    assert workload.in_numpy is not None
    return functools.partial(workload.in_numpy, *workload.data())


def by_hand(workload: Workload) -> Run:
    assert workload.by_hand is not None
    return functools.partial(need("numba").njit(workload.by_hand), *workload.data())


PEERS: dict[str, Callable[[Workload], Run]] = {
    "tracegrad": tracegrad,
    "numba by hand": by_hand,
    "autograd": autograd,
    "torch": torch_eager,
    "torch.compile": functools.partial(torch, compile=True),
    "jax": jax,
    "pytensor": pytensor,
    "numpy by hand": in_numpy,
}


def right(workload: Workload) -> Any:
    """What the workload asks for, in float64, by a peer, or else by tracegrad's tape; in the dtypes of the data."""
    data = workload.data()
    narrow = any(x.dtype == np.float32 for x in leaves(data) if x.ndim)
    wide = workload._replace(data=lambda: mapped(lambda x: x.astype(float) if x.dtype == np.float32 else x, data))
    installed = [name for name in ("torch", "jax", "autograd") if importlib.util.find_spec(name)]
    if installed:
        result = PEERS[installed[0]](wide)()
    else:
        tg = need("tracegrad")
        with tg.disable_jit():
            result = called(tg, wide, np)(*wide.data())
    return [x.astype(np.float32) if narrow else x for x in leaves(result)]


def warm_case(workload: Workload) -> Case:
    makers: dict[str, Factory] = {name: functools.partial(make, workload) for name, make in PEERS.items()}
    for name, written in (("numba by hand", workload.by_hand), ("numpy by hand", workload.in_numpy)):
        if written is None:
            del makers[name]
    return Case(workload.name, makers, lambda: right(workload))


def cases(settings: Settings) -> Iterator[Case]:
    yield from map(warm_case, workloads(settings is QUICK))
