"""Datasets: samples by index, samples one after another, and datasets that are made of others."""

from __future__ import annotations

import bisect
import itertools
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tracegrad.torch.functions.core.generator import Generator
from tracegrad.torch.tape.tensors.random import randperm

if TYPE_CHECKING:
    from tracegrad.torch.tape.tensors.tensor import Tensor
    from tracegrad.typing import Array


__all__ = [
    "ChainDataset",
    "ConcatDataset",
    "Dataset",
    "IterableDataset",
    "StackDataset",
    "Subset",
    "TensorDataset",
    "random_split",
]

T = TypeVar("T", covariant=True)


class Dataset(Generic[T]):
    """Base class of datasets whose samples have an index.

    A subclass defines `__getitem__`, and mostly `__len__`. With `__getitems__(indices)`, which returns a list of
    samples, a `DataLoader` asks once for each batch. The sum of two datasets is their `ConcatDataset`.

    Examples
    --------
    >>> class Squares(Dataset):
    ...     def __getitem__(self, index):
    ...         return index * index
    ...
    ...     def __len__(self):
    ...         return 3
    >>> len(Squares() + Squares()), (Squares() + Squares())[4]
    (6, 1)
    """

    def __getitem__(self, index: object) -> T:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Any) -> Any:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T]):
    """Base class of datasets whose samples come one after another.

    A subclass defines `__iter__`. Each worker of a `DataLoader` iterates over a copy of the dataset;
    `get_worker_info()` tells it which part is its own.

    Examples
    --------
    >>> class Count(IterableDataset):
    ...     def __iter__(self):
    ...         return iter(range(2))
    >>> list(Count() + Count())
    [0, 1, 0, 1]
    """

    def __iter__(self) -> Iterator[T]:
        raise NotImplementedError("Subclasses of IterableDataset should implement __iter__.")

    def __add__(self, other: Any) -> Any:
        return ChainDataset([self, other])


class TensorDataset(Dataset[Any]):
    """Dataset of Tensors: sample `i` is the tuple of their rows `i`.

    Parameters
    ----------
    *tensors : Tensor
        Tensors with the same first size.

    Raises
    ------
    AssertionError
        If the first sizes differ.

    Examples
    --------
    >>> from tracegrad import arange
    >>> TensorDataset(arange(3), arange(3.0))[1]
    (tensor(1), tensor(1.))
    """

    def __init__(self, *tensors: Array):
        if any(tensors[0].shape[0] != tensor.shape[0] for tensor in tensors):
            raise AssertionError("Size mismatch between tensors")
        self.tensors = tensors

    def __getitem__(self, index: object) -> tuple[Array, ...]:
        return tuple([tensor[index] for tensor in self.tensors])

    def __len__(self) -> int:
        return int(self.tensors[0].shape[0])


class StackDataset(Dataset[Any]):
    """Dataset whose sample `i` has the samples `i` of other datasets: a tuple, or a dict.

    The arguments are the datasets of a tuple, or the keyword arguments those of a dict.

    Raises
    ------
    ValueError
        If there are no datasets, or both kinds of them, or if their lengths differ.

    Examples
    --------
    >>> StackDataset(image=[1, 2], label=[3, 4])[0]
    {'image': 1, 'label': 3}
    """

    def __init__(self, *args: Any, **kwargs: Any):
        if args and kwargs:
            raise ValueError(
                "Supported either ``tuple``- (via ``args``) or"
                "``dict``- (via ``kwargs``) like input/output, but both types are given."
            )
        if not args and not kwargs:
            raise ValueError("At least one dataset should be passed")
        self.datasets: Any = args or kwargs
        parts = list(args or kwargs.values())
        self._length = len(parts[0])
        if any(len(each) != self._length for each in parts):
            raise ValueError("Size mismatch between datasets")

    def __getitem__(self, index: object) -> Any:
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple(dataset[index] for dataset in self.datasets)

    def __getitems__(self, indices: list[int]) -> list[object]:
        """Return the samples of a batch."""
        if isinstance(self.datasets, dict):
            names, parts = list(self.datasets), list(self.datasets.values())
            return [dict(zip(names, row)) for row in zip(*(_nested_samples(each, indices) for each in parts))]
        return list(zip(*(_nested_samples(each, indices) for each in self.datasets)))

    def __len__(self) -> int:
        return self._length


def samples_at(dataset: Any, indices: list[Tensor]) -> list[Any]:
    """Return samples of a dataset, by one call if it has a method for it."""
    get = getattr(dataset, "__getitems__", None)
    if callable(get):
        samples: list[Any] = get(indices)
        return samples
    return [dataset[i] for i in indices]


def _nested_samples(dataset: Any, indices: list[Any]) -> list[Any]:
    """Return samples of a dataset in another one; ValueError if they are not as many as the indices."""
    samples = samples_at(dataset, indices)
    if len(samples) != len(indices):
        text = f"Nested dataset's output size mismatch. Expected {len(indices)}, got {len(samples)}"
        raise ValueError(text)
    return samples


class ConcatDataset(Dataset[T]):
    """Dataset of the samples of several datasets, one after another.

    Parameters
    ----------
    datasets : iterable of Dataset
        Datasets with an index.

    Raises
    ------
    AssertionError
        If there are no datasets, or iterable ones.

    Examples
    --------
    >>> ConcatDataset([[1, 2], [3]])[2]
    3
    """

    def __init__(self, datasets: Iterable[Any]):
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        if any(isinstance(each, IterableDataset) for each in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = list(itertools.accumulate(map(len, self.datasets)))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: Any) -> Any:
        if index < 0:
            if -index > len(self):
                raise ValueError("absolute value of index should not exceed dataset length")
            index += len(self)
        at = bisect.bisect_right(self.cumulative_sizes, index)
        return self.datasets[at][index if at == 0 else index - self.cumulative_sizes[at - 1]]


class ChainDataset(IterableDataset[Any]):
    """Iterable dataset of the samples of several iterable datasets, one after another.

    Parameters
    ----------
    datasets : iterable of IterableDataset
        Datasets.

    Raises
    ------
    AssertionError
        During iteration, for a dataset that is not iterable.

    Examples
    --------
    >>> class Count(IterableDataset):
    ...     def __iter__(self):
    ...         return iter(range(2))
    >>> list(ChainDataset([Count(), Count()]))
    [0, 1, 0, 1]
    """

    def __init__(self, datasets: Iterable[Any]):
        self.datasets = datasets

    def __iter__(self) -> Iterator[object]:
        for each in self._checked():
            yield from each

    def __len__(self) -> int:
        return sum(len(each) for each in self._checked())

    def _checked(self) -> Iterator[Any]:
        for each in self.datasets:
            if not isinstance(each, IterableDataset):
                raise AssertionError("ChainDataset only supports IterableDataset")
            yield each


class Subset(Dataset[T]):
    """Dataset of the samples of another dataset at some indices.

    Parameters
    ----------
    dataset : Dataset
        Dataset.
    indices : sequence of int
        Indices in `dataset`.

    Examples
    --------
    >>> Subset("abc", [2, 0])[0]
    'c'
    """

    def __init__(self, dataset: Any, indices: Sequence[Any]):
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: list[int]) -> list[object]:
        """Return the samples of a batch."""
        return _nested_samples(self.dataset, [self.indices[i] for i in indices])

    def __len__(self) -> int:
        return len(self.indices)


def random_split(dataset: Any, lengths: Sequence[float], generator: Generator | None = None) -> list[Subset[Any]]:
    """Split a dataset into subsets of random samples without overlap.

    Parameters
    ----------
    dataset : Dataset
        Dataset with a length.
    lengths : sequence of int or float
        Lengths of the subsets, or their fractions of the dataset, which sum to 1.
    generator : Generator, optional
        Source of random numbers; by default the default generator.

    Returns
    -------
    list of Subset
        Subsets.

    Raises
    ------
    ValueError
        If the lengths do not sum to the length of the dataset, or a fraction is not between 0 and 1.

    Examples
    --------
    >>> [len(part) for part in random_split(range(10), [0.7, 0.3])]
    [7, 3]
    """
    sizes: list[Any] = list(lengths)
    if math.isclose(sum(sizes), 1) and sum(sizes) <= 1:
        sizes = _sizes_of(sizes, len(dataset))
    if sum(sizes) != len(dataset):
        raise ValueError("Sum of input lengths does not equal the length of the input dataset!")
    order = randperm(int(sum(sizes)), generator=generator).tolist()
    ends = itertools.accumulate(sizes)
    return [Subset(dataset, order[end - size : end]) for end, size in zip(ends, sizes)]


def _sizes_of(fractions: list[float], count: int) -> list[int]:
    """Return the lengths of parts by their fractions: what is left over is one more for each of the first ones."""
    for i, fraction in enumerate(fractions):
        if not 0 <= fraction <= 1:
            raise ValueError(f"Fraction at index {i} is not between 0 and 1")
    sizes = [math.floor(count * fraction) for fraction in fractions]
    for i in range(count - sum(sizes)):
        sizes[i % len(sizes)] += 1
    for i, size in enumerate(sizes):
        if size == 0:
            text = f"Length of split at index {i} is 0. This might result in an empty dataset."
            warnings.warn(text, UserWarning, stacklevel=3)
    return sizes
