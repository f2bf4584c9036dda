"""Makes the pictures of this folder: `python docs/make_images.py`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import tracegrad as tg
from tracegrad.utils import svg as drawing
from tracegrad.visualization import Picture

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


def kernels() -> Picture:
    """What is compiled of it, with a colour for each kernel."""

    def loss(w, x):
        return np.mean(np.tanh(x @ w) ** 2)

    return tg.visualize(tg.grad(loss), np.ones(4), np.ones((8, 4)), fused=True)


# What there is after each step, and the steps between.
PIPELINE = (
    ("function", "Python on NumPy arrays, and the arguments of a call"),
    ("tracer", "runs it once, on tracers: NumPy calls become nodes,", "questions that Python asks become guards"),
    ("graph", "arrays in single static assignment"),
    ("vjp", "sweeps the graph backwards, and adds the nodes", "of the derivative; again for each order"),
    ("graph, forward and backward", "one graph of both"),
    ("passes", "composites apart, small products to loops,", "algebra that holds for every float"),
    ("graph, simplified", "what is computed twice is there once"),
    ("schedule", "which values are stored, which ops share a loop;", "products of matrices go to the BLAS"),
    ("kernels", "loop nests over scalars; sizes are arguments"),
    ("LLVM", "object code by the text of each kernel,", "in memory and on disk"),
    ("entry point", "checks arrays, runs the program, returns arrays"),
)
CALLS = (
    ("call", "step(params, x, y)"),
    ("entry point", "are dtypes, shapes and memory those of the program?"),
    ("program", "kernels run; guards are outputs like others"),
    ("compare", "are the answers those that the trace was made with?"),
    ("result", "new arrays; what the function writes is written"),
)


def column(title: str, steps: tuple[tuple[str, ...], ...]) -> str:
    """An SVG of boxes below each other: things, and in round boxes between them what is done to these."""
    width, y, body = 430.0, 16.0, []
    for k, (name, *lines) in enumerate(steps):
        thing = k % 2 == 0
        height = 26.0 + 16.0 * len(lines)
        if k:
            body.append(f'<path class="line" d="M{width / 2} {y - 18}V{y - 5}"/>')
            body.append(f'<path class="arrow" d="M{width / 2 - 4} {y - 7}h8l-4 7z"/>')
        if thing:
            body.append(drawing.rectangle("op" if k < len(steps) - 1 else "result", 16.0, y, width - 32.0, height, 6.0))
        else:
            body.append(drawing.rectangle("backward", 16.0, y, width - 32.0, height, 18.0))
        body.append(drawing.text_element(name, width / 2, y + 17.0, "text title", "middle"))
        body += [
            drawing.text_element(line, width / 2, y + 34.0 + 16.0 * i, "pale", "middle") for i, line in enumerate(lines)
        ]
        y += height + 18.0
    frame = drawing.rectangle("page", 0.5, 0.5, width - 1.0, y - 3.0, 8.0)
    return drawing.document(title, width, y - 2.0, [frame, *body])


PICTURES = {"chain": chain, "unbind": unbind, "network": network, "gradient": gradient, "kernels": kernels}
COLUMNS = {
    "pipeline": column("from a function to its program", PIPELINE),
    "calls": column("a call that is known", CALLS),
}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    tg.settings.cache_traces = False  # graphs that are read from disk do not say which line a node came from
    for name, make in PICTURES.items():
        make().save(FOLDER / f"{name}.svg")
    for name, svg in COLUMNS.items():
        (FOLDER / f"{name}.svg").write_text(svg, encoding="utf-8")
