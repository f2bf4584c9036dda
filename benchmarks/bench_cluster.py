"""What do workers bring? A compute-bound loss over 16 chunks, by Dask on two local workers, on one, and without Dask.

The loss is that of a network of tanh layers, on one thread in each worker. All must give the same bits as the walk
through the chunks in this process, which is expected to be right.
"""

from __future__ import annotations

import functools
import itertools
import logging
import tempfile
from typing import Any

import numpy as np

from benchmarks.harness import Case, Factory, Run, Settings
from benchmarks.peers import need

PACKAGES = ("tracegrad", "dask", "distributed")
CHUNKS, ROWS, WIDTHS = 16, 8192, (64, 256, 256, 1)


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


def cases(settings: Settings) -> list[Case]:
    params, x, y = data()
    peers: dict[str, Factory] = {
        "tracegrad": lambda: cluster(2, params, x, y),
        "one worker": lambda: cluster(1, params, x, y),
        "this process": lambda: functools.partial(walk, params, x, y),
    }
    name = f"cluster: network of tanh layers, {CHUNKS} chunks of {ROWS} rows, two workers"
    return [Case(name, peers, lambda: walk(params, x, y), once=True, tolerance=0.0)]
