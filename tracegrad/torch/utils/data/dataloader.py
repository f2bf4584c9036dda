"""Loader of batches: a dataset, a sampler and a collation, in this process or in workers."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from tracegrad.torch.functions.core.generator import Generator
from tracegrad.torch.utils.data.collate import default_collate, default_convert
from tracegrad.torch.utils.data.dataset import IterableDataset
from tracegrad.torch.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler, random_seed
from tracegrad.torch.utils.data.worker import EndOfSamples, WorkerTask, fetcher

__all__ = ["DataLoader"]

T = TypeVar("T", covariant=True)
# What a loader cannot change after it has been made.
_FIXED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")


class DataLoader(Generic[T]):
    """Iterable over the batches of a dataset.

    Parameters
    ----------
    dataset : Dataset or IterableDataset
        Samples.
    batch_size : int or None, default 1
        Number of samples of a batch. With None, each sample is loaded alone.
    shuffle : bool, optional
        Whether samples are in a new random order in each epoch.
    sampler : Sampler or iterable, optional
        Indices, in place of `shuffle`.
    batch_sampler : Sampler or iterable, optional
        Lists of indices, in place of `batch_size`, `shuffle`, `sampler` and `drop_last`.
    num_workers : int, default 0
        Number of processes that load samples; 0 loads them in this process.
    collate_fn : callable, optional
        Function that joins a list of samples; by default `default_collate`.
    pin_memory : bool, default False
        Without effect, because Tensors are on the CPU; True gives a UserWarning.
    drop_last : bool, default False
        Whether a last batch that is smaller is left out.
    timeout : float, default 0
        Seconds to wait for a batch of a worker; 0 waits as long as it is alive.
    worker_init_fn : callable, optional
        Function of the number of the worker, called at the start of each.
    multiprocessing_context : str or context, optional
        How workers start: "fork", "spawn" or "forkserver"; by default as in `multiprocessing`.
    generator : Generator, optional
        Source of random numbers of the order, and of the seeds of workers; by default the default generator.
    prefetch_factor : int, optional
        Number of batches that each worker loads in advance; by default 2.
    persistent_workers : bool, default False
        Whether the workers stay for the next epoch.
    pin_memory_device : str, default ""
        Without effect.
    in_order : bool, default True
        Without effect: batches are in the order of the sampler.

    Raises
    ------
    ValueError
        For options that exclude each other, or are negative.

    Examples
    --------
    >>> [batch.tolist() for batch in DataLoader(range(5), batch_size=2)]
    [[0, 1], [2, 3], [4]]
    """

    _ready = False

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ):
        self.dataset, self.num_workers, self.timeout = dataset, num_workers, timeout
        self.prefetch_factor, self.persistent_workers = prefetch_factor, persistent_workers
        self.worker_init_fn, self.generator, self.pin_memory = worker_init_fn, generator, pin_memory
        self.pin_memory_device, self.in_order = pin_memory_device, in_order
        self.multiprocessing_context = multiprocessing_context
        self._check_workers()
        iterable = isinstance(dataset, IterableDataset)
        if iterable:
            _check_iterable(shuffle, sampler, batch_sampler)
        _check_exclusive(batch_size, bool(shuffle), sampler, batch_sampler, drop_last)
        if sampler is None:
            sampler = _Forever() if iterable else _sampler_of(dataset, shuffle, generator)
        if batch_sampler is not None:
            batch_size = None
        elif batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size, self.drop_last = batch_size, drop_last
        self.sampler, self.batch_sampler = sampler, batch_sampler
        self.collate_fn = collate_fn or (default_convert if batch_sampler is None else default_collate)
        self._pool: Any = None
        self._ready = True

    def __setattr__(self, name: str, value: object) -> None:
        if self._ready and name in _FIXED:
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)

    def _check_workers(self) -> None:
        """Raise ValueError for options of workers that cannot be, and set the default of `prefetch_factor`."""
        if self.num_workers < 0:
            raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
        if self.timeout < 0:
            raise ValueError("timeout option should be non-negative")
        if self.num_workers == 0 and self.prefetch_factor is not None:
            raise ValueError(
                "prefetch_factor option could only be specified in multiprocessing."
                "let num_workers > 0 to enable multiprocessing, otherwise set prefetch_factor to None."
            )
        if self.prefetch_factor is not None and self.prefetch_factor < 0:
            raise ValueError("prefetch_factor option should be non-negative")
        if self.persistent_workers and self.num_workers == 0:
            raise ValueError("persistent_workers option needs num_workers > 0")
        if self.num_workers > 0:
            self.prefetch_factor = 2 if self.prefetch_factor is None else self.prefetch_factor
            self._context()
        elif self.multiprocessing_context is not None:
            raise ValueError(
                "multiprocessing_context can only be used with multi-process loading (num_workers > 0), but got "
                f"num_workers={self.num_workers}"
            )

    def _context(self) -> Any:
        from tracegrad.torch.utils.data.worker_pool import context_of

        return context_of(self.multiprocessing_context)

    def __iter__(self) -> Iterator[object]:
        if self.pin_memory:
            text = "'pin_memory' argument is set as true but no accelerator is found"
            warnings.warn(f"{text}, then device pinned memory won't be used.", UserWarning, stacklevel=2)
        batches = _WorkerBatches(self) if self.num_workers else _batches(self)
        return _LengthChecked(self, batches) if isinstance(self.dataset, IterableDataset) else batches

    def __len__(self) -> int:
        if not isinstance(self.dataset, IterableDataset):
            return len(self._indices())  # type: ignore[arg-type]
        count = len(self.dataset)  # type: ignore[arg-type]
        if self.batch_size is None:
            return count
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

    def _indices(self) -> Iterable[Any]:
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def _workers(self, base_seed: int) -> Any:
        """Start worker processes, or return those of the last epoch."""
        from tracegrad.torch.utils.data.worker_pool import WorkerPool

        if self._pool is not None and self._pool.close.alive:
            return self._pool

        def task(k: int) -> WorkerTask:
            options = self.dataset, self.batch_sampler is not None, self.collate_fn, self.drop_last
            return WorkerTask(*options, base_seed, self.worker_init_fn, k, self.num_workers)

        pool = WorkerPool(self._context(), self.num_workers, task, self.timeout)
        if self.persistent_workers:
            self._pool = pool
        return pool


def _check_iterable(shuffle: bool | None, sampler: object, batch_sampler: object) -> None:
    """Raise ValueError for an order of samples that have none."""
    options = (
        ("shuffle", shuffle, shuffle not in (None, False)),
        ("sampler", sampler, sampler is not None),
        ("batch_sampler", batch_sampler, batch_sampler is not None),
    )
    for name, value, wrong in options:
        if wrong:
            text = f"expected unspecified {name} option, but got {name}={value}"
            raise ValueError(f"DataLoader with IterableDataset: {text}")


def _check_exclusive(
    batch_size: int | None, shuffle: bool, sampler: object, batch_sampler: object, drop_last: bool
) -> None:
    """Raise ValueError for options of which only one can be."""
    if sampler is not None and shuffle:
        raise ValueError("sampler option is mutually exclusive with shuffle")
    if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
        raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last")
    if batch_size is None and drop_last:
        raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")


def _sampler_of(dataset: Any, shuffle: Any, generator: Generator | None) -> Any:
    return RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)


class _Forever:
    """Sampler of an iterable dataset, whose samples have no index."""

    def __iter__(self) -> Iterator[None]:
        return itertools.repeat(None)


def _batches(loader: DataLoader[Any]) -> Iterator[object]:
    """Return an iterator over the batches of a loader, in this process."""
    random_seed(loader.generator)  # the generator goes on as if there were workers
    batched = loader.batch_sampler is not None
    fetch = fetcher(loader.dataset, batched, loader.collate_fn, loader.drop_last)
    return map(fetch, loader._indices())


class _WorkerBatches:
    """Iterator over the batches of a loader, which worker processes load in advance."""

    def __init__(self, loader: DataLoader[Any]):
        self.indices = iter(loader._indices())
        self.pool = loader._workers(random_seed(loader.generator))
        self.pool.start()
        self.epoch, self.persistent = self.pool.epoch, loader.persistent_workers
        for _ in range((loader.prefetch_factor or 0) * loader.num_workers):
            self._put()

    def __iter__(self) -> Iterator[object]:
        return self

    def __next__(self) -> Any:
        if self.pool is None or self.pool.epoch != self.epoch:
            raise StopIteration
        if not self.pool.pending:
            self._put()
        while self.pool.pending:
            try:
                batch = self.pool.get()
            finally:
                self._put()
            if batch is not EndOfSamples:
                return batch
        self._finish()
        raise StopIteration

    def _put(self) -> None:
        """Send the next task, if there is one, and a worker that has samples."""
        if self.pool.active and self.pool.close.alive:
            for index in itertools.islice(self.indices, 1):
                self.pool.put(index)

    def _finish(self) -> None:
        if not self.persistent:
            self.pool.close()
        self.pool = None


class _LengthChecked:
    """Iterator over batches that warns if there are more than the length of the iterable dataset says."""

    def __init__(self, loader: DataLoader[Any], batches: Iterator[Any]):
        self.loader, self.batches, self.count = loader, batches, 0
        self.length = len(loader) if hasattr(loader.dataset, "__len__") else None

    def __iter__(self) -> Iterator[object]:
        return self

    def __next__(self) -> Any:
        batch = next(self.batches)
        self.count += 1
        if self.length is not None and self.count > self.length:
            warnings.warn(
                f"Length of IterableDataset {self.loader.dataset} was reported to be {self.length} (when accessing "
                f"len(dataloader)), but {self.count} samples have been fetched. ",
                UserWarning,
                stacklevel=2,
            )
        return batch
