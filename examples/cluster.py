"""Softmax regression on a cluster of processes, from files that are larger than the memory of a worker.

Noisy copies of scikit-learn's 1,797 handwritten digits fill 65 files of 8 MB. A worker has 500 MB, half of which Python
takes. Workers read one file after the other and return losses and gradients; `tg.scipy.minimize` runs in this process.
The last gradient is computed twice more: while a worker is killed, and by one process that reads all files. The exit
code is 1 unless all three have the same bits, and 95 % of the held-out digits are read correctly. It saves
`cluster.png`, and takes half a minute.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import dask
import numpy as np
from dask.distributed import Client, LocalCluster
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

import tracegrad as tg

ROWS = 30_000  # of 65 numbers of 4 bytes: 8 MB
PENALTY = 1e-3


def loss(params, data):
    """Mean cross-entropy of rows (a label and 64 pixels), and a penalty, which a mean counts once."""
    scores = data[:, 1:] @ params["w"] + params["b"]
    scores = scores - np.max(scores, axis=1, keepdims=True)
    chosen = np.arange(10) == data[:, :1]
    entropy = np.log(np.sum(np.exp(scores), axis=1)) - np.sum(np.where(chosen, scores, 0.0), axis=1)
    return np.mean(entropy) + PENALTY * np.sum(params["w"] ** 2)


def varied(images, labels, rng):
    """Rows of a file: labels, then digits drawn from the data with noise."""
    drawn = rng.integers(len(images), size=ROWS)
    pixels = images[drawn] + rng.normal(scale=0.2, size=(ROWS, 64))
    return np.hstack([labels[drawn, None], pixels]).astype(np.float32)


def write(folder, count):
    """Write the files; return their paths, and digits that are in no file."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    images, labels = images[order] / 16.0, labels[order]
    paths = [Path(folder, f"digits-{i:02}.npy") for i in range(count)]
    for i, path in enumerate(paths):
        np.save(path, varied(images[360:], labels[360:], np.random.default_rng(i + 1)))
        print(f"\rwrote {i + 1} of {count} files", end="", file=sys.stderr, flush=True)
    return paths, images[:360], labels[:360]


def equal(first, second):
    """Whether value and gradient have the same bits."""
    pairs = zip(tg.tree.leaves(first), tg.tree.leaves(second), strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


def draw(params, losses):
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(2, 3))
    axes = left.subplots()
    axes.plot(losses)
    axes.set(title="Loss over all files", xlabel="gradient", ylabel="mean cross-entropy")
    right.suptitle("Weights of the ten digits")
    for digit, axes in enumerate(right.subplots(2, 5).flat):
        axes.imshow(params["w"][:, digit].reshape(8, 8), cmap="RdBu", vmin=-2, vmax=2)
        axes.set(title=str(digit), xticks=[], yticks=[])
    figure.savefig("cluster.png", dpi=120)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=65)
    parser.add_argument("--memory", type=int, default=500, help="megabytes that a worker may have")
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--accuracy", type=float, default=0.95, help="the least held-out accuracy to accept")
    options = parser.parse_args()
    given = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": options.memory * 10**6, "dashboard_address": ":0"}
    with tempfile.TemporaryDirectory() as folder:
        paths, images, labels = write(folder, options.files)
        size = sum(path.stat().st_size for path in paths)
        print(f": {size / 1e6:.0f} MB, for workers of {options.memory} MB", file=sys.stderr)
        files = [dask.delayed(np.load)(path) for path in paths]
        over_files = tg.dask.value_and_grad(loss, batched_argnums=1, reduction="mean")
        losses = []

        def told(params, files):
            value, slope = over_files(params, files)
            losses.append(float(value))
            print(f"\rgradient {len(losses):3}  loss {value:.6f}", end="", file=sys.stderr, flush=True)
            return value, slope

        with LocalCluster(local_directory=folder, silence_logs=50, **given) as cluster, Client(cluster) as client:
            start, clock = {"w": np.zeros((64, 10)), "b": np.zeros(10)}, time.perf_counter()
            limit = {"maxiter": options.iterations}
            fit = tg.scipy.minimize(told, start, (files,), method="L-BFGS-B", jac=True, options=limit)
            elapsed = time.perf_counter() - clock
            print(file=sys.stderr)
            last = over_files(fit.x, files)

            victim = next(iter(client.run(os.getpid).values()))
            delayed = tg.dask.value_and_grad(loss, batched_argnums=1, reduction="mean", compute=False)
            under_way = client.compute(dask.delayed(tuple)(delayed(fit.x, files)))
            time.sleep(0.1)
            os.kill(victim, getattr(signal, "SIGKILL", signal.SIGTERM))  # Windows ends it by any signal
            survived = under_way.result()
        alone = tg.dask.value_and_grad(loss, batched_argnums=1, reduction="mean", scheduler="synchronous")
        walked = alone(fit.x, files)

    accuracy = np.mean(np.argmax(images @ fit.x["w"] + fit.x["b"], axis=1) == labels)
    same, same_without = equal(walked, last), equal(survived, last)
    print(f"{len(losses)} gradients over {options.files} files   {elapsed:6.2f} s")
    print(f"memory of a worker over size of the files {options.memory * 1e6 / size:6.2f}")
    print(f"held-out digits read                      {accuracy:6.1%}")
    print(f"bits of one process                       {'the same' if same else 'others'}")
    print(f"bits where a worker was killed            {'the same' if same_without else 'others'}")
    draw(fit.x, losses)
    return 0 if same and same_without and accuracy >= options.accuracy and size > options.memory * 1e6 else 1


if __name__ == "__main__":
    sys.exit(main())
