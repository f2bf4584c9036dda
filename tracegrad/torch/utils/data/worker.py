"""Worker of a loader: what it has to do, what it says of itself, and how it makes a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from tracegrad.torch.utils.data.dataset import IterableDataset, samples_at

__all__ = ["get_worker_info"]

Fetch = Callable[[Any], Any]


class EndOfSamples:
    """Answer of a worker without more samples: the class itself, so that no sample is taken for it."""


class WorkerInfo(NamedTuple):
    """What a worker process is: its number, the number of workers, its seed, and its copy of the dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


class WorkerTask(NamedTuple):
    """What a worker needs to begin: the loader's settings, and its place among the workers."""

    dataset: Any
    batched: bool
    collate_fn: Callable[[Any], Any]
    drop_last: bool
    base_seed: int
    init_fn: Callable[[int], Any] | None
    id: int
    num_workers: int


INFO: list[WorkerInfo] = []  # that of this process


def get_worker_info() -> WorkerInfo | None:
    """Return what this worker process is; None in the main process.

    Returns
    -------
    WorkerInfo or None
        Its `id`, `num_workers`, `seed` and `dataset`.

    Examples
    --------
    >>> get_worker_info() is None
    True
    """
    return INFO[-1] if INFO else None


# -- how a batch is made -----------------------------------------------------------------------------------------------
def fetcher(dataset: Any, batched: bool, collate_fn: Callable[[Any], Any], drop_last: bool) -> Fetch:
    """Make the function that turns what a sampler returns into a batch; it raises StopIteration at the end."""
    if not isinstance(dataset, IterableDataset):
        return lambda index: collate_fn(samples_at(dataset, index) if batched else dataset[index])
    samples = iter(dataset)
    if not batched:
        return lambda index: collate_fn(next(samples))
    return lambda indices: collate_fn(_next_samples(samples, len(indices), drop_last))


def _next_samples(samples: Iterator[Any], count: int, drop_last: bool) -> list[object]:
    batch = list(islice(samples, count))
    if not batch or (drop_last and len(batch) < count):
        raise StopIteration
    return batch
