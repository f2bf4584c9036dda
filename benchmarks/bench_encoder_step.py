"""How fast is a training step of a transformer encoder? Forward, `loss.backward()` and `optimizer.step()` of AdamW.

The encoder has four layers of width 128 with four heads, sequences of 64, batch 16, float32, and 52 parameters. The
modules are written once for tracegrad and PyTorch. Each timed call updates the parameters and the optimizer state in
place. The check compares the loss and all parameters after five steps.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import Case, Factory, Run, Settings, Skip
from benchmarks.peers import eager, need, torch_compiler

PACKAGES = ("tracegrad", "torch")
LAYERS, WIDTH, HEADS, LENGTH, BATCH, CLASSES = 4, 128, 4, 64, 16, 10
RATE = 1e-3
STEPS = 5  # ahead of the comparison


def data() -> tuple[Any, Any]:
    """Sequences of vectors, and their classes."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((BATCH, LENGTH, WIDTH)).astype(np.float32)
    return x, rng.integers(0, CLASSES, BATCH)


def encoder(lib: Any) -> Any:
    """The encoder in the modules of `lib`, with parameters that do not depend on it."""
    nn, functional = lib.nn, lib.nn.functional
    linear, norm = (functools.partial(layer, dtype=lib.float32) for layer in (nn.Linear, nn.LayerNorm))

    class Layer(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = linear(WIDTH, 3 * WIDTH), linear(WIDTH, WIDTH)
            self.up, self.down = linear(WIDTH, 4 * WIDTH), linear(4 * WIDTH, WIDTH)
            self.first, self.second = norm(WIDTH), norm(WIDTH)

        def forward(self, x: Any) -> Any:
            heads = (*x.shape[:2], HEADS, WIDTH // HEADS)
            q, k, v = (part.reshape(heads).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
            attended = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
            x = self.first(x + self.out(attended))
            return self.second(x + self.down(functional.relu(self.up(x))))

    class Encoder(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([Layer() for _ in range(LAYERS)])
            self.norm, self.head = norm(WIDTH), linear(WIDTH, CLASSES)

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x)
            return self.head(self.norm(x).mean(1))

    model, rng = Encoder(), np.random.default_rng(1)
    with lib.no_grad():
        for p in model.parameters():
            shape = tuple(p.shape)
            start = rng.standard_normal(shape) / np.sqrt(shape[1]) if len(shape) == 2 else np.full(shape, 0.5)
            p.copy_(lib.from_numpy(start.astype(np.float32)))
    return model


def training(lib: Any, around: Callable[[Any], Any] = lambda model: model) -> tuple[Any, Any, Callable[..., Any]]:
    """The model, the arguments of a step, and the step, as tutorials have it; `around` is applied to the model."""
    model = encoder(lib)
    optimizer = lib.optim.AdamW(model.parameters(), lr=RATE)
    forward = around(model)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = lib.nn.functional.cross_entropy(forward(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, tuple(lib.from_numpy(a) for a in data()), step


def run(model: Any, arguments: Any, step: Callable[..., Any]) -> Run:
    """Steps, of which the fifth returns the loss and the parameters, for the comparison."""
    count = 0

    def call() -> Any:
        nonlocal count
        loss = step(*arguments)
        count += 1
        return loss if count > 1 else first(loss)

    def first(loss: Any) -> Any:
        for _ in range(STEPS - 1):
            loss = step(*arguments)
        return loss, [p.detach().numpy().copy() for p in model.parameters()]

    return call


def tracegrad() -> Run:
    tg = need("tracegrad")
    model, arguments, step = training(tg)
    return run(model, arguments, tg.trace(step))


def torch(compile: bool) -> Run:
    module = torch_compiler() if compile else need("torch")
    if not compile:
        return run(*training(module))
    module._dynamo.reset()
    return run(*training(module, functools.partial(module.compile, fullgraph=True)))


def expected() -> Any:
    """What PyTorch computes operation by operation, or tracegrad where there is none."""
    try:
        return torch(compile=False)()
    except Skip:
        return eager(tracegrad())()


def cases(settings: Settings) -> list[Case]:
    peers: dict[str, Factory] = {
        "tracegrad": tracegrad,
        "tracegrad eager": lambda: eager(tracegrad()),
        "torch": lambda: torch(compile=False),
        "torch.compile": lambda: torch(compile=True),
    }
    name = f"encoder step: {LAYERS} layers, width {WIDTH}, sequence {LENGTH}, batch {BATCH}, float32, AdamW"
    return [Case(name, peers, expected, tolerance=2e-3)]
