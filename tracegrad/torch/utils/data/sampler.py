"""Samplers: the order in which a loader takes the samples of a dataset."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

import numpy as np

from tracegrad.torch.functions.core.generator import Generator
from tracegrad.torch.tape.tensors.factories import as_tensor
from tracegrad.torch.tape.tensors.random import multinomial, randint, randperm

__all__ = [
    "BatchSampler",
    "DistributedSampler",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "SubsetRandomSampler",
    "WeightedRandomSampler",
]

T = TypeVar("T", covariant=True)
_BLOCK = 32  # indices that are drawn at once, with replacement


class Sampler(Generic[T]):
    """Base class of samplers: iterables over indices, or over lists of them.

    A subclass defines `__iter__`, and `__len__` if the length is known.

    Parameters
    ----------
    data_source : Dataset, optional
        Without effect.

    Examples
    --------
    >>> class Backwards(Sampler):
    ...     def __init__(self, count):
    ...         self.count = count
    ...
    ...     def __iter__(self):
    ...         return iter(range(self.count - 1, -1, -1))
    >>> list(Backwards(3))
    [2, 1, 0]
    """

    def __init__(self, data_source: Any = None): ...

    def __iter__(self) -> Iterator[T]:
        raise NotImplementedError


class SequentialSampler(Sampler[int]):
    """Sampler of all indices in their order.

    Parameters
    ----------
    data_source : Dataset
        Dataset with a length.

    Examples
    --------
    >>> list(SequentialSampler("abc"))
    [0, 1, 2]
    """

    def __init__(self, data_source: Sized):
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """Sampler of indices in random order, or with replacement.

    Parameters
    ----------
    data_source : Dataset
        Dataset with a length.
    replacement : bool, default False
        Whether an index may be drawn more than once.
    num_samples : int, optional
        Number of indices; by default the length.
    generator : Generator, optional
        Source of random numbers. By default a new one, seeded by the default generator.

    Raises
    ------
    TypeError
        If `replacement` is not a bool.
    ValueError
        If `num_samples`, or the length, is not positive.

    Examples
    --------
    >>> sorted(RandomSampler("abc"))
    [0, 1, 2]
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ):
        if not isinstance(replacement, bool):
            raise TypeError(f"replacement should be a boolean value, but got replacement={replacement}")
        self.data_source, self.replacement, self.generator = data_source, replacement, generator
        self._num_samples = num_samples
        _check_count("num_samples", self.num_samples)

    @property
    def num_samples(self) -> int:
        """Number of indices."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        count, wanted = len(self.data_source), self.num_samples
        generator = Generator().manual_seed(random_seed()) if self.generator is None else self.generator
        if self.replacement:
            sizes = [_BLOCK] * (wanted // _BLOCK) + [wanted % _BLOCK]
            for size in sizes:
                yield from randint(0, count, (size,), generator=generator).tolist()
        else:
            while wanted > 0:
                yield from randperm(count, generator=generator).tolist()[:wanted]
                wanted -= count

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """Sampler of indices of a sequence in random order.

    Parameters
    ----------
    indices : sequence of int
        Indices.
    generator : Generator, optional
        Source of random numbers; by default the default generator.

    Examples
    --------
    >>> sorted(SubsetRandomSampler([4, 2]))
    [2, 4]
    """

    def __init__(self, indices: Sequence[Any], generator: Generator | None = None):
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[Any]:
        for i in randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Sampler of indices with probabilities in proportion to weights.

    Parameters
    ----------
    weights : sequence of float, shape (n,)
        Weights, which need not sum to 1.
    num_samples : int
        Number of indices.
    replacement : bool, default True
        Whether an index may be drawn more than once.
    generator : Generator, optional
        Source of random numbers; by default the default generator.

    Raises
    ------
    ValueError
        If `num_samples` is not positive, `replacement` is not a bool, or `weights` is not a sequence of numbers.

    Examples
    --------
    >>> list(WeightedRandomSampler([0.0, 1.0], 3))
    [1, 1, 1]
    """

    def __init__(
        self,
        weights: Sequence[float],
        num_samples: int,
        replacement: bool = True,
        generator: Generator | None = None,
    ):
        _check_count("num_samples", num_samples)
        if not isinstance(replacement, bool):
            raise ValueError(f"replacement should be a boolean value, but got replacement={replacement}")
        self.weights = as_tensor(weights, dtype=np.float64)
        if len(self.weights.shape) != 1:
            shape = tuple(self.weights.shape)
            raise ValueError(f"weights should be a 1d sequence but given weights have shape {shape}")
        self.num_samples, self.replacement, self.generator = num_samples, replacement, generator

    def __iter__(self) -> Iterator[int]:
        drawn = multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator)
        return iter(drawn.tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Sampler of lists of indices, each for a batch.

    Parameters
    ----------
    sampler : Sampler or iterable
        Indices.
    batch_size : int
        Number of indices of a batch.
    drop_last : bool
        Whether a last list that is shorter is left out.

    Raises
    ------
    ValueError
        If `batch_size` is not a positive number, or `drop_last` is not a bool.

    Examples
    --------
    >>> list(BatchSampler(range(3), batch_size=2, drop_last=False))
    [[0, 1], [2]]
    """

    def __init__(self, sampler: Iterable[Any], batch_size: int, drop_last: bool):
        _check_count("batch_size", batch_size)
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[list[Any]]:
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        count = len(self.sampler)  # type: ignore[arg-type]
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


class DistributedSampler(Sampler[int]):
    """Sampler of the indices of one of several processes that share a dataset.

    All processes get the same number of indices: some indices come twice, or with `drop_last` the last ones are left
    out. `set_epoch` before each epoch gives it another order.

    Parameters
    ----------
    dataset : Dataset
        Dataset with a length.
    num_replicas : int
        Number of processes. PyTorch's default, the size of the process group, is not there.
    rank : int
        Number of this process, from 0 on.
    shuffle : bool, default True
        Whether the order is random, the same one in all processes.
    seed : int, default 0
        Seed of the order.
    drop_last : bool, default False
        Whether the last indices are left out, instead of taking others twice.

    Raises
    ------
    RuntimeError
        If `num_replicas` or `rank` is missing.
    ValueError
        If `rank` is not the number of a process.

    Examples
    --------
    >>> [list(DistributedSampler(range(5), num_replicas=2, rank=rank, shuffle=False)) for rank in (0, 1)]
    [[0, 2, 4], [1, 3, 0]]
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ):
        if num_replicas is None or rank is None:
            raise RuntimeError(
                "DistributedSampler requires num_replicas and rank: torch.distributed, which knows them in PyTorch, is "
                "not there (tracegrad.dask computes gradients over chunks of data)"
            )
        if not 0 <= rank < num_replicas:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.epoch, self.shuffle, self.seed, self.drop_last = 0, shuffle, seed, drop_last
        count = len(dataset)
        self.num_samples = count // num_replicas if drop_last else -(-count // num_replicas)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self) -> Iterator[int]:
        indices = list(range(len(self.dataset)))
        if self.shuffle:
            generator = Generator().manual_seed(self.seed + self.epoch)
            indices = randperm(len(indices), generator=generator).tolist()
        indices = list(itertools.islice(itertools.cycle(indices), self.total_size))
        return iter(indices[self.rank :: self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the epoch, which belongs to the seed of the order."""
        self.epoch = epoch


def _check_count(name: str, count: int) -> None:
    """Raise ValueError unless a number is a positive int."""
    if not isinstance(count, int) or isinstance(count, bool) or count <= 0:
        raise ValueError(f"{name} should be a positive integer value, but got {name}={count}")


def random_seed(generator: Generator | None = None) -> int:
    """Draw a seed from a generator; by default from the default one."""
    seed: int = randint(0, (1 << 63) - 1, (), generator=generator).item()
    return seed
