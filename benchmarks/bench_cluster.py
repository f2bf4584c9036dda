"""How much faster are workers? A compute-bound loss over 32 chunks, on two Dask workers, on one, and without Dask.

The loss is a network of tanh layers, on one thread in each worker. The expected result is that of this process, which
computes the chunks one after the other; all results must have its bits. Two processes with half of the chunks each,
which do not communicate before the end, show the possible gain on this machine.
"""

from __future__ import annotations

import functools
import itertools
import logging
import multiprocessing
import operator
import tempfile
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

from benchmarks.harness import Case, Factory, Run, Settings
from benchmarks.peers import need

PACKAGES = ("tracegrad", "dask", "distributed")
CHUNKS, ROWS, WIDTHS = 32, 8192, (64, 256, 256, 1)


def loss(params: Any, x: Any, y: Any) -> Any:
    """The sum of the squared errors of a network."""
    for w, b in params:
        x = np.tanh(x @ w + b)
    return np.sum((x[:, 0] - y) ** 2)


def data() -> tuple[Any, Any, Any]:
    """Parameters, and the chunks of inputs and targets."""
    rng = np.random.default_rng(0)
    params = [(rng.standard_normal((m, n)) / np.sqrt(m), np.zeros(n)) for m, n in itertools.pairwise(WIDTHS)]
    x = [rng.standard_normal((ROWS, WIDTHS[0])) for _ in range(CHUNKS)]
    return params, x, [np.sin(c[:, 0] + c[:, 1]) for c in x]


def walk(params: Any, x: Any, y: Any) -> Any:
    """The chunks one after the other, in this process."""
    return need("tracegrad").dask.value_and_grad(loss, batched_argnums=(1, 2))(params, x, y)


def cluster(workers: int, params: Any, x: Any, y: Any) -> Run:
    """The same by workers that have the chunks in memory."""
    distributed = need("distributed")
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    need("dask").config.set({"distributed.worker.profile.enabled": False})  # which looks at each worker every 10 ms
    folder = tempfile.TemporaryDirectory(prefix="cluster-")
    cluster = distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, dashboard_address=":0", silence_logs=50, local_directory=folder.name
    )
    client = distributed.Client(cluster, set_as_default=False)
    sent = [client.scatter(list(chunks), hash=False) for chunks in (x, y)]
    both = need("tracegrad").dask.value_and_grad(loss, batched_argnums=(1, 2), scheduler=client)

    def run() -> Any:
        assert folder  # it is there as long as this is
        return both(params, *sent)

    return run


def walk_half(barrier: Any, half: range) -> list[Any]:
    """Half of the chunks, in one thread of a process that waits for the other: the sums of groups of the tree."""
    need("tracegrad").settings.num_threads = 1
    params, x, y = _data()
    barrier.wait()
    return [walk(params, x[i : i + half.step], y[i : i + half.step]) for i in half]


_data = functools.cache(data)


def halves() -> Run:
    """The chunks in two processes, without a cluster."""
    spawn = multiprocessing.get_context("spawn")
    pool, manager = ProcessPoolExecutor(2, spawn), spawn.Manager()
    half = functools.partial(walk_half, manager.Barrier(2))
    group = need("tracegrad.dask.tree_reduction").GROUP  # neighbours that are added first
    parts = range(0, CHUNKS // 2, group), range(CHUNKS // 2, CHUNKS, group)
    add = functools.partial(need("tracegrad").tree.map, operator.add)

    def run() -> Any:
        assert manager  # which has the barrier
        return functools.reduce(add, itertools.chain(*pool.map(half, parts)))

    return run


def cases(settings: Settings) -> list[Case]:
    params, x, y = data()
    peers: dict[str, Factory] = {
        "tracegrad": lambda: cluster(2, params, x, y),
        "one worker": lambda: cluster(1, params, x, y),
        "two processes, no cluster": halves,
        "this process": lambda: functools.partial(walk, params, x, y),
    }
    name = f"cluster: network of tanh layers, {CHUNKS} chunks of {ROWS} rows, two workers"
    return [Case(name, peers, lambda: walk(params, x, y), once=True, tolerance=0.0)]
