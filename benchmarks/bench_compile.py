"""How long does compiling take: for a new small function, a new batch size, a deeper network?

Each round of the first case compiles a new function, the same ten ops in another order, so no cache has it. "called
once" is a first call by NumPy, the default; the second call compiles. Each round of the second case calls one function
with a new batch size. Each round of the third case differentiates a network with one more layer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.harness import Case, Factory, Run, Settings
from benchmarks.peers import need, torch_compiled, torch_compiler

PACKAGES = ("tracegrad", "numba", "autograd", "torch", "jax")
OPS = ("sin", "tanh", "exp", "cos", "sqrt")
X = np.linspace(0.1, 1.0, 64)
W = np.linspace(0.5, 1.5, 64)


def orders() -> Iterator[tuple[str, ...]]:
    """Orders of the ops that keep the argument of sqrt positive."""
    return (order for order in itertools.permutations(OPS) if order.index("sqrt") in (0, order.index("exp") + 1))


def function(xp: Any, order: tuple[str, ...]) -> Callable[[Any], Any]:
    """sum(last(...second(w * first(x)))), weighted with a constant of the peer's own kind."""
    first, *rest = [getattr(xp, name) for name in order]
    w = xp.asarray(W)

    def small(x: Any) -> Any:
        y = first(x) * w + 0.1
        for op in rest:
            y = op(y)
        return (y * y).sum()

    return small


def by_hand(order: tuple[str, ...]) -> tuple[Any, Any]:
    """Value and gradient by the chain rule."""
    partials: dict[str, Callable[[Any, Any], Any]] = {
        "sin": lambda x, y: np.cos(x),
        "cos": lambda x, y: -np.sin(x),
        "tanh": lambda x, y: 1.0 - y * y,
        "exp": lambda x, y: y,
        "sqrt": lambda x, y: 0.5 / y,
    }
    y = getattr(np, order[0])(X)
    derivative = partials[order[0]](X, y) * W
    y = y * W + 0.1
    for name in order[1:]:
        x, y = y, getattr(np, name)(y)
        derivative = derivative * partials[name](x, y)
    return np.sum(y * y), 2.0 * y * derivative


def each_new(build: Callable[[tuple[str, ...]], Run]) -> Run:
    """A peer whose every call builds the next function and calls it once."""
    first, *rest = orders()
    # What another peer has compiled is known; these two meet in the first function alone.
    remaining = iter([first, *(reversed(rest) if build is called_once else rest)])
    return lambda: build(next(remaining))()


def tracegrad(order: tuple[str, ...]) -> Run:
    compiled = need("tracegrad").value_and_grad(function(np, order))
    return lambda: compiled(X)


def called_once(order: tuple[str, ...]) -> Run:
    module = need("tracegrad")
    small = module.value_and_grad(function(np, order))

    def run() -> Any:
        with module.settings.override(first_call="replay"):
            return small(X)

    return run


def jax(order: tuple[str, ...]) -> Run:
    module = need("jax")
    compiled, x = module.jit(module.value_and_grad(function(module.numpy, order))), module.numpy.asarray(X)
    return lambda: module.block_until_ready(compiled(x))


def torch(order: tuple[str, ...]) -> Run:
    return torch_compiled(function(need("torch"), order), X)


NUMBA_LINES = {
    "sin": ("{y} = np.sin({x})", "d *= np.cos({x})"),
    "cos": ("{y} = np.cos({x})", "d *= -np.sin({x})"),
    "tanh": ("{y} = np.tanh({x})", "d *= 1.0 - {y} * {y}"),
    "exp": ("{y} = np.exp({x})", "d *= {y}"),
    "sqrt": ("{y} = np.sqrt({x})", "d *= 0.5 / {y}"),
}


def numba_by_hand(order: tuple[str, ...]) -> Run:
    """The fused loop one would write by hand, for njit to compile by an explicit signature."""
    numba = need("numba")
    body = ["d = 1.0", "y0 = x[i]"]
    for k, name in enumerate(order):
        names = {"x": "s" if k == 1 else f"y{k}", "y": f"y{k + 1}"}
        body += [line.format(**names) for line in NUMBA_LINES[name]]
        body += ["d *= w[i]", "s = y1 * w[i] + 0.1"] if k == 0 else []
    last = f"y{len(order)}"
    body += [f"value += {last} * {last}", f"gradient[i] = 2.0 * {last} * d"]
    lines = ["def kernel(x, w):", " gradient = np.empty_like(x)", " value = 0.0", " for i in range(x.size):"]
    source = "\n".join([*lines, *(f"  {line}" for line in body), " return value, gradient"])
    scope: dict[str, Any] = {"np": np}
    exec(source, scope)
    compiled = numba.njit("Tuple((float64, float64[::1]))(float64[::1], float64[::1])")(scope["kernel"])
    return lambda: compiled(X, W)


def softmax_loss(xp: Any) -> Callable[..., Any]:
    """A linear classifier's mean cross-entropy against one-hot rows."""

    def loss(w: Any, x: Any, y: Any) -> Any:
        z = x @ w
        return xp.log(xp.exp(z).sum(1)).mean() - (z * y).sum(1).mean()

    return loss


def softmax_by_hand(w: Any, x: Any, y: Any) -> Any:
    z = x @ w
    e = np.exp(z)
    total = e.sum(1, keepdims=True)
    value = np.log(total).mean() - (z * y).sum(1).mean()
    return value, x.T @ (e / total - y) / len(x)


def batch(size: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(size)
    y = np.eye(10)[rng.integers(0, 10, size)]
    return 0.1 * rng.standard_normal((20, 10)), rng.standard_normal((size, 20)), y


FIRST_BATCH, SECOND_BATCH = 32, 48


def each_batch(convert: Callable[[Any], Any], call: Callable[..., Any]) -> Run:
    """A peer that has met one batch size, and meets another at every call."""
    call(*map(convert, batch(FIRST_BATCH)))
    sizes = itertools.count(SECOND_BATCH, 16)
    arrays = (tuple(map(convert, batch(size))) for size in sizes)
    return lambda: call(*next(arrays))


def batch_tracegrad() -> Run:
    return each_batch(np.asarray, need("tracegrad").value_and_grad(softmax_loss(np)))


def batch_jax() -> Run:
    module = need("jax")
    compiled = module.jit(module.value_and_grad(softmax_loss(module.numpy)))
    return each_batch(module.numpy.asarray, lambda *a: module.block_until_ready(compiled(*a)))


def batch_torch() -> Run:
    module = torch_compiler()
    module._dynamo.reset()
    compiled = module.compile(softmax_loss(module), fullgraph=True)

    def call(w: Any, x: Any, y: Any) -> Any:
        w = w.requires_grad_()
        value = compiled(w, x, y)
        return value, module.autograd.grad(value, w)[0]

    return each_batch(module.from_numpy, call)


FEWEST_LAYERS = 4


def network(xp: Any) -> Callable[[Any, Any], Any]:
    """The mean square of what a network gives that has a layer for each matrix."""

    def loss(weights: Any, x: Any) -> Any:
        for w in weights:
            x = xp.tanh(x @ w)
        return (x * x).mean()

    return loss


def network_by_hand(weights: Any, x: Any) -> Any:
    """Value and gradient, backwards."""
    states = [x]
    for w in weights:
        states.append(np.tanh(states[-1] @ w))
    last = states[-1]
    value, derivative, gradient = np.mean(last * last), 2.0 * last / last.size, []
    for w, before, after in zip(weights[::-1], states[-2::-1], states[:0:-1]):
        derivative = derivative * (1.0 - after * after)
        gradient.append(before.T @ derivative)
        derivative = derivative @ w.T
    return value, gradient[::-1]


def layers(count: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(count)
    return [rng.standard_normal((32, 32)) / 6 for _ in range(count)], rng.standard_normal((64, 32))


def deeper(convert: Callable[[Any], Any], call: Callable[[Any, Any], Any]) -> Run:
    """A peer that has met one network, and meets a deeper one at every call."""

    def arguments(count: int) -> tuple[Any, Any]:
        weights, x = layers(count)
        return list(map(convert, weights)), convert(x)

    call(*arguments(FEWEST_LAYERS - 1))
    networks = map(arguments, itertools.count(FEWEST_LAYERS))
    return lambda: call(*next(networks))


def deeper_tracegrad() -> Run:
    return deeper(np.asarray, need("tracegrad").value_and_grad(network(np)))


def deeper_jax() -> Run:
    module = need("jax")
    compiled = module.jit(module.value_and_grad(network(module.numpy)))
    return deeper(module.numpy.asarray, lambda *a: module.block_until_ready(compiled(*a)))


def deeper_torch() -> Run:
    module = torch_compiler()
    module._dynamo.reset()
    compiled = module.compile(network(module), fullgraph=True)

    def call(weights: Any, x: Any) -> Any:
        weights = [w.requires_grad_() for w in weights]
        value = compiled(weights, x)
        return value, list(module.autograd.grad(value, weights))

    return deeper(module.from_numpy, call)


def cases(settings: Settings) -> list[Case]:
    builders: dict[str, Callable[[tuple[str, ...]], Run]] = {
        "tracegrad called once": called_once,
        "tracegrad": tracegrad,
        "numba by hand": numba_by_hand,
        "jax": jax,
        "torch.compile": torch,
    }
    batches: dict[str, Factory] = {
        "tracegrad": batch_tracegrad,
        "jax": batch_jax,
        "torch.compile": batch_torch,
    }

    def starter(name: str) -> Factory:
        def factory() -> Run:
            torch_compiler() if name.startswith("torch") else need(name.partition(" ")[0])
            return each_new(builders[name])

        return factory

    first = next(orders())
    return [
        Case(
            "compile: a small function never seen before, value and gradient, first call",
            {name: starter(name) for name in builders},
            lambda: by_hand(first),
            once=True,
        ),
        Case(
            "new batch size: softmax regression, value and gradient, first call with the new size",
            batches,
            lambda: softmax_by_hand(*batch(SECOND_BATCH)),
            once=True,
        ),
        Case(
            "another layer: tanh network, value and gradient, first call with a layer more",
            {"tracegrad": deeper_tracegrad, "jax": deeper_jax, "torch.compile": deeper_torch},
            lambda: network_by_hand(*layers(FEWEST_LAYERS)),
            once=True,
        ),
    ]
