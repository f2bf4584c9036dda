"""Train on the handwritten digits of `digits.py` as in PyTorch's tutorials: `tg.nn`, `tg.optim`, `loss.backward()`.

One `@tg.trace` around the training step compiles forward pass, backward pass, dropout and Adam's update. The exit code
is 1 unless 97 % of the held-out digits are read correctly, and the compiled steps give the losses of eager steps. It
prints the time of a step both ways, and saves `digits_nn.png` with the misread digits.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

import tracegrad as tg
from tracegrad import nn

BATCH, SEED = 64, 0


def learner():
    """A network, and its training step."""
    tg.manual_seed(SEED)
    network = nn.Sequential(
        nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)
    )
    optimizer = tg.optim.Adam(network.parameters(), lr=5e-3)
    loss_of = nn.CrossEntropyLoss()

    def step(x, y):
        optimizer.zero_grad()
        loss = loss_of(network(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return network, step


def train(step, x, y, epochs, name):
    """The losses of all steps, and the seconds per step."""
    rng = np.random.default_rng(SEED)
    losses, seconds = [], []
    for epoch in range(epochs):
        order = rng.permutation(len(x))
        for start in range(0, len(x) - BATCH + 1, BATCH):
            rows = order[start : start + BATCH]
            clock = time.perf_counter()
            losses.append(step(x[rows], y[rows]).item())
            seconds.append(time.perf_counter() - clock)
        print(f"\r{name}: epoch {epoch + 1} of {epochs}, loss {losses[-1]:.4f}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return losses, np.median(seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--accuracy", type=float, default=0.97, help="what held-out accuracy the exit code asks for")
    wanted = parser.parse_args()
    images, labels = load_digits(return_X_y=True)
    x, x_held, y, y_held = train_test_split(images / 16, labels, test_size=360, random_state=SEED, stratify=labels)
    x, x_held, y = tg.tensor(x), tg.tensor(x_held), tg.tensor(y)

    network, step = learner()
    clock = time.perf_counter()
    losses, compiled = train(tg.trace(step), x, y, wanted.epochs, "compiled")
    elapsed = time.perf_counter() - clock
    _, eager_step = learner()
    with threadpool_limits(1):  # for products this small, threads of NumPy's BLAS cost time
        expected, eager = train(eager_step, x, y, 2, "eager")
    wrong = np.max(np.abs(np.array(losses[: len(expected)]) - expected))

    network.eval()
    with tg.no_grad():
        read = network(x_held).numpy()
    right = np.argmax(read, axis=1) == y_held
    print(f"training, first call and all            {elapsed:6.2f} s, {len(losses)} steps")
    print(f"a step, compiled                        {1e3 * compiled:6.2f} ms")
    print(f"a step, eager                           {1e3 * eager:6.2f} ms")
    print(f"greatest difference of a loss           {wrong:.1e}")
    print(f"held-out accuracy                       {np.mean(right):.1%}")

    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right_half = figure.subfigures(1, 2)
    axes = left.subplots()
    axes.semilogy(losses, lw=0.5)
    axes.set(title="Loss of each batch", xlabel="step")
    right_half.suptitle("Read wrongly")
    for axes, k in zip(right_half.subplots(2, 4).ravel(), np.flatnonzero(~right)):
        axes.imshow(x_held[int(k)].numpy().reshape(8, 8), cmap="gray_r")
        axes.set(title=f"{y_held[k]} as {np.argmax(read[k])}", xticks=[], yticks=[])
    figure.savefig("digits_nn.png", dpi=120)
    return 0 if np.mean(right) >= wanted.accuracy and wrong < 1e-9 else 1


if __name__ == "__main__":
    sys.exit(main())
