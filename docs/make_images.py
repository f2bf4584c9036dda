"""Makes the pictures of this folder: `python docs/make_images.py`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import tracegrad as tg
from tracegrad.pictures import Picture

FOLDER = Path(__file__).parent / "images"


def chain() -> Picture:
    """A product, a sum and a square."""
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    w = tg.tensor([3.0, 4.0], requires_grad=True)
    b = tg.tensor([0.5, 1.0])
    y = ((x * w + b) ** 2).sum()
    return tg.visualize(y, title="y = ((x * w + b) ** 2).sum()", names={"x": x, "w": w, "b": b, "y": y})


def unbind() -> Picture:
    """An operation with three outputs."""
    a = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    p, q, r = (a * 2).unbind()
    z = p * q + r.exp()
    return tg.visualize(z, names={"a": a, "p": p, "q": q, "r": r, "z": z})


def network() -> Picture:
    """Seven layers, a loss and a penalty: some sixty nodes."""
    rng = np.random.default_rng(0)
    x, target = tg.tensor(rng.normal(size=(8, 5))), tg.tensor(rng.integers(0, 5, 8))
    names = {"x": x, "target": target}
    hidden, penalty = x, 0.0
    for k in range(7):
        w = tg.tensor(rng.normal(size=(5, 5)), requires_grad=True)
        b = tg.tensor(rng.normal(size=5), requires_grad=True)
        names |= {f"w{k}": w, f"b{k}": b}
        hidden = hidden @ w + b
        if k < 6:
            hidden = tg.tanh(hidden)
        penalty = penalty + (w**2).sum()
    loss = tg.nn.functional.cross_entropy(hidden, target) + 0.01 * penalty
    return tg.visualize(loss, names={**names, "loss": loss}, title="a network of seven layers")


def gradient() -> Picture:
    """The graph of a compiled gradient."""

    def loss(w, x):
        return np.mean(np.tanh(x @ w) ** 2)

    return tg.visualize(tg.grad(loss), np.ones(4), np.ones((8, 4)))


PICTURES = {"chain": chain, "unbind": unbind, "network": network, "gradient": gradient}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, make in PICTURES.items():
        make().save(FOLDER / f"{name}.svg")
