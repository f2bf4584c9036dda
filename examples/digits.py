"""Train a neural network on real handwritten digits, in plain NumPy; tracegrad compiles the whole step.

The data are scikit-learn's 1,797 images of 8x8 pixels; one fifth is held out. The exit code is 1 if fewer
than 97 % of the held-out digits are read right.
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
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

import tracegrad as tg

SIZES, BATCH = (64, 128, 64, 10), 64
DECAY1, DECAY2, EPSILON = 0.9, 0.999, 1e-8


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


def adam(param, slope, mean, square, t, rate):
    """One array's new value and moments (Kingma and Ba, 2015, algorithm 1)."""
    mean = DECAY1 * mean + (1 - DECAY1) * slope
    square = DECAY2 * square + (1 - DECAY2) * slope**2
    step = (mean / (1 - DECAY1**t)) / (np.sqrt(square / (1 - DECAY2**t)) + EPSILON)
    return param - rate * step, mean, square


@tg.trace
def train_step(params, moments, t, rate, x, labels):
    """Loss, gradient and Adam's update, compiled as one program: plain functions of lists of arrays."""
    value, slopes = tg.value_and_grad(loss)(params, x, labels)
    new_params, new_moments = [], []
    for (w, b), (dw, db), (mw, sw, mb, sb) in zip(params, slopes, moments, strict=True):
        w, mw, sw = adam(w, dw, mw, sw, t, rate)
        b, mb, sb = adam(b, db, mb, sb, t, rate)
        new_params.append((w, b))
        new_moments.append((mw, sw, mb, sb))
    return value, new_params, new_moments


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
    rng = np.random.default_rng(seed)
    params, moments = [], []
    for m, n in itertools.pairwise(SIZES):
        w = (rng.standard_normal((m, n)) * np.sqrt(2.0 / (m + n))).astype(np.float32)
        params.append((w, np.zeros(n, np.float32)))
        moments.append(tuple(np.zeros(shape, np.float32) for shape in ((m, n), (m, n), n, n)))
    return params, moments


def train(epochs, seed=0):
    """Train, with a line for each epoch; gives back the held-out accuracy and the median time of a step."""
    x, labels, x_held_out, labels_held_out = load(seed)
    params, moments = initial(seed)
    rng, t, times = np.random.default_rng(seed), 0, []
    for epoch in range(1, epochs + 1):
        losses, rate = [], np.float32(3e-3 * 0.9**epoch)
        # The last batch is smaller: the step is traced anew for it, not compiled anew.
        for rows in np.split(rng.permutation(len(x)), range(BATCH, len(x), BATCH)):
            t += 1
            clock = time.perf_counter()
            value, params, moments = train_step(params, moments, np.float32(t), rate, x[rows], labels[rows])
            times.append(time.perf_counter() - clock)
            losses.append(float(value))
        accuracy = float(np.mean(predict(params, x_held_out) == labels_held_out))
        step = 1e6 * statistics.median(times[-len(losses) :])
        print(f"epoch {epoch:2}  loss {np.mean(losses):.4f}  accuracy {accuracy:.1%}  step {step:.0f} µs")
    return accuracy, statistics.median(times)


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
        print(first_call())
        return 0

    accuracy, compiled = train(options.epochs)
    print("\nthe same code eagerly, two epochs")
    with threadpool_limits(1), tg.disable_jit():  # for products this small, threads of NumPy's BLAS cost time
        _, eager = train(2)
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
