"""How fast is a training step? A 784-256-128-10 network, batch 128, float32: value, gradient, SGD update.

A step takes the parameters and returns the loss and new parameters. The old ones do not change, so every call does the
same work.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import Case, Factory, Run, Settings
from benchmarks.peers import eager, jitted, need, torch_compiler

PACKAGES = ("tracegrad", "numba", "autograd", "torch", "jax")
SIZES = (784, 256, 128, 10)
BATCH = 128
RATE = np.float32(0.1)


def data() -> tuple[Any, Any, Any]:
    """Parameters (a list of weight and bias), images and labels."""
    rng = np.random.default_rng(0)
    parameters = [
        (
            (rng.standard_normal((m, n)) * np.sqrt(2.0 / m)).astype(np.float32),
            (0.1 * rng.standard_normal(n)).astype(np.float32),
        )
        for m, n in itertools.pairwise(SIZES)
    ]
    x = rng.standard_normal((BATCH, SIZES[0])).astype(np.float32)
    return parameters, x, rng.integers(0, SIZES[-1], BATCH)


def mlp(xp: Any) -> Callable[..., Any]:
    """Mean softmax cross-entropy of the network, in the array namespace `xp`."""

    def loss(parameters: Any, x: Any, labels: Any) -> Any:
        for w, b in parameters[:-1]:
            x = xp.maximum(x @ w + b, 0.0)
        w, b = parameters[-1]
        logits = x @ w + b
        logits = logits - xp.max(logits, axis=1, keepdims=True)
        norms = xp.log(xp.sum(xp.exp(logits), axis=1))
        return xp.mean(norms - logits[xp.arange(len(labels)), labels])

    return loss


def sgd_step(value_and_grad: Callable[..., Any], rate: Any = RATE) -> Callable[..., Any]:
    """The step that `value_and_grad` of the loss makes: (parameters, x, labels) -> (loss, parameters)."""

    def step(parameters: Any, x: Any, labels: Any) -> Any:
        value, gradient = value_and_grad(parameters, x, labels)
        update = [(w - rate * dw, b - rate * db) for (w, b), (dw, db) in zip(parameters, gradient, strict=True)]
        return value, update

    return step


def _value_and_grad_by_hand(parameters: Any, x: Any, labels: Any) -> Any:
    inputs = [x]
    for w, b in parameters[:-1]:
        inputs.append(np.maximum(inputs[-1] @ w + b, 0.0))
    w, b = parameters[-1]
    logits = inputs[-1] @ w + b
    logits -= np.max(logits, axis=1, keepdims=True)
    p = np.exp(logits)
    total = np.sum(p, axis=1, keepdims=True)
    rows = np.arange(labels.size)
    value = np.mean(np.log(total[:, 0]) - logits[rows, labels])
    p /= total
    p[rows, labels] -= 1.0
    ct = p / labels.size
    gradient = []
    for (w, _), h in zip(reversed(parameters), reversed(inputs), strict=True):
        gradient.append((h.T @ ct, np.sum(ct, axis=0)))
        if h is not x:
            ct = (ct @ w.T) * (h > 0.0)
    return value, gradient[::-1]


by_hand = sgd_step(_value_and_grad_by_hand)


def numba_layers(numba: Any) -> tuple[Any, Any, Any]:
    """A layer forwards, its cotangent backwards, its update; Numba fuses the array expressions."""
    rate, zero = RATE, np.float32(0)

    @numba.njit
    def forward(h, w, b, relu):  # type: ignore[no-untyped-def]
        z = np.dot(h, w)
        for i in range(z.shape[0]):
            for j in range(z.shape[1]):
                v = z[i, j] + b[j]
                z[i, j] = max(v, zero) if relu else v
        return z

    @numba.njit
    def back(h, w, ct):  # type: ignore[no-untyped-def]
        d = np.dot(ct, w.T)
        for i in range(d.shape[0]):
            for j in range(d.shape[1]):
                if h[i, j] <= zero:
                    d[i, j] = zero
        return d

    @numba.njit
    def update(h, w, b, ct):  # type: ignore[no-untyped-def]
        return w - rate * np.dot(h.T, ct), b - rate * ct.sum(axis=0)

    return forward, back, update


def numba_cross_entropy(numba: Any) -> Any:
    """The loss of the logits, which are overwritten by their cotangent."""
    one = np.float32(1)

    @numba.njit
    def cross_entropy(z, labels):  # type: ignore[no-untyped-def]
        value = one - one
        for i in range(z.shape[0]):
            top = z[i].max()
            chosen = z[i, labels[i]] - top
            z[i] = np.exp(z[i] - top)
            total = z[i].sum()
            value += np.log(total) - chosen
            z[i] /= total * np.float32(z.shape[0])
            z[i, labels[i]] -= one / np.float32(z.shape[0])
        return value / z.shape[0]

    return cross_entropy


def numba_by_hand(parameters: Any, x: Any, labels: Any) -> Run:
    """The step as loops around BLAS calls."""
    numba = need("numba")
    forward, back, update = numba_layers(numba)
    cross_entropy = numba_cross_entropy(numba)

    @numba.njit(fastmath=False)
    def step(w0, b0, w1, b1, w2, b2, x, labels):  # type: ignore[no-untyped-def]
        h0 = forward(x, w0, b0, True)
        h1 = forward(h0, w1, b1, True)
        c2 = forward(h1, w2, b2, False)
        value = cross_entropy(c2, labels)
        c1 = back(h1, w2, c2)
        c0 = back(h0, w1, c1)
        return value, (update(x, w0, b0, c0), update(h0, w1, b1, c1), update(h1, w2, b2, c2))

    flat = [array for pair in parameters for array in pair]
    return functools.partial(step, *flat, x, labels)


def torch_loss(module: Any) -> Callable[..., Any]:
    """The loss in PyTorch's own functions."""

    def loss(parameters: Any, x: Any, labels: Any) -> Any:
        for w, b in parameters[:-1]:
            x = module.relu(module.addmm(b, x, w))
        w, b = parameters[-1]
        return module.nn.functional.cross_entropy(module.addmm(b, x, w), labels)

    return loss


def torch_tensors(parameters: Any, x: Any, labels: Any) -> Any:
    tensor = need("torch").from_numpy
    return [(tensor(w), tensor(b)) for w, b in parameters], tensor(x), tensor(labels)


def torch(*arrays: Any, compile: bool) -> Run:
    module = torch_compiler() if compile else need("torch")
    parameters, x, labels = torch_tensors(*arrays)
    leaves = [p.requires_grad_() for pair in parameters for p in pair]
    forward = torch_loss(module)
    if compile:
        module._dynamo.reset()
        forward = module.compile(forward, fullgraph=True)

    def step() -> Any:
        value = forward(parameters, x, labels)
        gradient = module.autograd.grad(value, leaves)
        with module.no_grad():
            new = module._foreach_add(leaves, gradient, alpha=-float(RATE))
        return value, list(zip(new[::2], new[1::2], strict=True))

    return step


def torch_joint(*arrays: Any) -> Run:
    """The whole step as one compiled graph."""
    module = torch_compiler()
    module._dynamo.reset()
    grad_and_value = module.func.grad_and_value(torch_loss(module))

    def value_and_grad(*arguments: Any) -> Any:
        gradient, value = grad_and_value(*arguments)
        return value, gradient

    step = module.compile(sgd_step(value_and_grad, float(RATE)), fullgraph=True)
    return functools.partial(step, *torch_tensors(*arrays))


def tracegrad(*arrays: Any) -> Run:
    tg = need("tracegrad")
    return functools.partial(tg.trace(sgd_step(tg.value_and_grad(mlp(np)))), *arrays)


def autograd(*arrays: Any) -> Run:
    module = need("autograd")
    return functools.partial(sgd_step(module.value_and_grad(mlp(module.numpy))), *arrays)


def jax(*arrays: Any) -> Run:
    module = need("jax")
    return jitted(sgd_step(module.value_and_grad(mlp(module.numpy))), *arrays)


def cases(settings: Settings) -> list[Case]:
    arrays = data()
    peers: dict[str, Factory] = {
        "tracegrad": lambda: tracegrad(*arrays),
        "tracegrad eager": lambda: eager(tracegrad(*arrays)),
        "numpy by hand": lambda: functools.partial(by_hand, *arrays),
        "numba by hand": lambda: numba_by_hand(*arrays),
        "autograd": lambda: autograd(*arrays),
        "torch": lambda: torch(*arrays, compile=False),
        "torch.compile": lambda: torch(*arrays, compile=True),
        "torch.compile joint": lambda: torch_joint(*arrays),
        "jax": lambda: jax(*arrays),
    }
    name = f"MLP step: {'-'.join(map(str, SIZES))}, batch {BATCH}, float32, value, gradient and SGD update"
    return [Case(name, peers, lambda: by_hand(*arrays))]
