"""Train a neural network on handwritten digits, in plain NumPy; tracegrad compiles the whole step.

The data are scikit-learn's 1,797 images of 8x8 pixels; one fifth is held out. The exit code is 1 if fewer than 97 % of
the held-out digits are read correctly.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

import tracegrad as tg

SIZES, BATCH, DECAY1, DECAY2, EPSILON = (64, 128, 64, 10), 64, 0.9, 0.999, 1e-8


def logits(params, x):
    """Ten scores for each image."""
    for w, b in params[:-1]:
        x = np.maximum(x @ w + b, 0.0)
    w, b = params[-1]
    return x @ w + b


def loss(params, x, labels):
    """Mean softmax cross-entropy."""
    z = logits(params, x)
    z = z - np.max(z, axis=1, keepdims=True)
    return np.mean(np.log(np.sum(np.exp(z), axis=1)) - z[np.arange(len(labels)), labels])


@tg.trace
def train_step(params, means, squares, t, rate, x, labels):
    """Loss, gradient and Adam's update (Kingma and Ba, 2015, algorithm 1), compiled as one program."""
    value, slopes = tg.value_and_grad(loss)(params, x, labels)
    means = tg.tree.map(lambda m, g: DECAY1 * m + (1 - DECAY1) * g, means, slopes)
    squares = tg.tree.map(lambda s, g: DECAY2 * s + (1 - DECAY2) * g**2, squares, slopes)
    rate, weight = rate / (1 - DECAY1**t), 1 / (1 - DECAY2**t)
    params = tg.tree.map(lambda p, m, s: p - rate * m / (np.sqrt(weight * s) + EPSILON), params, means, squares)
    return value, params, means, squares


@tg.trace
def predict(params, x):
    """The most probable digit of each image."""
    return np.argmax(logits(params, x), axis=1)


def load(seed=0):
    """Images scaled to [0, 1] as float32, and labels; one fifth held out."""
    x, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(x))
    x, labels, held_out = (x[order] / 16.0).astype(np.float32), labels[order], len(x) // 5
    return x[held_out:], labels[held_out:], x[:held_out], labels[:held_out]


def initial(seed=0):
    """Parameters (Glorot and Bengio, 2010) and Adam's moments, all zero."""
    rng, params = np.random.default_rng(seed), []
    for m, n in itertools.pairwise(SIZES):
        w = rng.standard_normal((m, n)) * np.sqrt(2.0 / (m + n))
        params.append((w.astype(np.float32), np.zeros(n, np.float32)))
    return params, tg.tree.map(np.zeros_like, params), tg.tree.map(np.zeros_like, params)


def train(epochs, seed=0):
    """Train, with a line for each epoch: parameters, the losses, held-out accuracy and the median time of a step."""
    x, labels, x_held_out, labels_held_out = load(seed)
    state, rng, losses, times = initial(seed), np.random.default_rng(seed), [], []
    for epoch in range(1, epochs + 1):
        before, rate = len(losses), np.float32(3e-3 * 0.9**epoch)
        # The last batch is smaller: the step is traced again for it, but not compiled again.
        for rows in np.split(rng.permutation(len(x)), range(BATCH, len(x), BATCH)):
            clock = time.perf_counter()
            value, *state = train_step(*state, np.float32(len(losses) + 1), rate, x[rows], labels[rows])
            times.append(time.perf_counter() - clock)
            losses.append(float(value))
        accuracy = float(np.mean(predict(state[0], x_held_out) == labels_held_out))
        value, step = np.mean(losses[before:]), 1e6 * statistics.median(times[before:])
        print(f"epoch {epoch:2}  loss {value:.4f}  accuracy {accuracy:.1%}  step {step:.0f} µs")
    return state[0], losses, accuracy, statistics.median(times)


def draw(params, losses):
    """Draw the losses, and the mean derivatives of each digit's score by the pixels of its images."""
    x, labels, *_ = load()
    slopes = tg.grad(lambda x: np.sum(logits(params, x)[np.arange(len(x)), labels]))(x).reshape(-1, 8, 8)
    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subfigures(1, 2)
    left.subplots().semilogy(losses, lw=0.5)
    left.suptitle("Loss of each batch")
    right.suptitle("Where ink makes it more that digit (red), and less (blue)")
    for digit, axes in enumerate(right.subplots(2, 5).ravel()):
        axes.imshow(np.mean(slopes[labels == digit], axis=0), cmap="RdBu_r", vmin=-3, vmax=3)
        axes.set(title=digit, xticks=[], yticks=[])
    figure.savefig("digits.png", dpi=120)


def first_call():
    """Seconds that the first step of this process takes."""
    (x, labels, *_), state, one = load(), initial(), np.float32(1)
    clock = time.perf_counter()
    return train_step(*state, one, one, x[:BATCH], labels[:BATCH]) and time.perf_counter() - clock


def first_call_in_new_process(folder, answered_by):
    """The same, in a new process with its disk cache in `folder`."""
    environment = {**os.environ, "TRACEGRAD_CACHE_DIR": folder, "TRACEGRAD_FIRST_CALL": answered_by}
    return float(subprocess.check_output([sys.executable, __file__, "--first-call"], env=environment))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--accuracy", type=float, default=0.97, help="the least held-out accuracy to accept")
    parser.add_argument("--first-call", action="store_true", help="print the seconds of one first step, end")
    options = parser.parse_args()
    if options.first_call:
        return print(first_call())
    params, losses, accuracy, compiled = train(options.epochs)
    draw(params, losses)
    print("\nthe same code eagerly, two epochs")
    with threadpool_limits(1), tg.disable_jit():  # for products this small, threads of NumPy's BLAS cost time
        *_, eager = train(2)
    with tempfile.TemporaryDirectory() as folder:
        replayed, cold, warm = [first_call_in_new_process(folder, by) for by in ("replay", "compile", "compile")]
    print(f"""
time per step, eager                  {1e6 * eager:8.0f} µs
time per step, compiled               {1e6 * compiled:8.0f} µs   {eager / compiled:.1f} times as fast
first call, new process, empty cache  {1e3 * replayed:8.1f} ms   traces, NumPy answers; the second compiles
first call, TRACEGRAD_FIRST_CALL=compile {1e3 * cold:5.1f} ms   traces and compiles
first call, new process, full cache   {1e3 * warm:8.1f} ms   traces and loads
held-out accuracy                     {accuracy:8.1%}""")
    return 0 if accuracy >= options.accuracy else 1


if __name__ == "__main__":
    sys.exit(main())
