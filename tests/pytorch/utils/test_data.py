"""Datasets, samplers, collation, and the loader in one process. What is expected is what PyTorch does."""

from __future__ import annotations

import collections
import warnings
from typing import Any, NamedTuple

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.torch.utils import data
from tracegrad.torch.utils.data import DataLoader


class Rows(data.Dataset[Any]):
    """Sample i is (a Tensor of i, i)."""

    def __init__(self, count: int = 10):
        self.count = count

    def __getitem__(self, index: int) -> Any:
        return tg.full((2,), float(index)), index

    def __len__(self) -> int:
        return self.count


class Stream(data.IterableDataset[int]):
    def __init__(self, count: int = 7):
        self.count = count

    def __iter__(self) -> Any:
        return iter(range(self.count))


class Pair(NamedTuple):
    x: Any
    y: Any


# -- the namespace ----------------------------------------------------------------------------------------------------
def test_the_modules_have_pytorchs_names() -> None:
    from tracegrad.utils.data.sampler import Sampler

    import tracegrad.utils.checkpoint
    import tracegrad.utils.data
    from tracegrad.utils.data import DataLoader as Loader

    assert tracegrad.utils.data is tg.utils.data is data
    assert Loader is DataLoader
    assert Sampler is data.Sampler
    assert tg.utils.checkpoint.__name__ == "tracegrad.torch.utils.checkpoint"
    with pytest.raises(AttributeError, match=r"tracegrad\.utils has no 'tensorboard'"):
        _ = tg.utils.tensorboard


# -- datasets ---------------------------------------------------------------------------------------------------------
def test_tensor_datasets() -> None:
    rows = data.TensorDataset(tg.arange(6).reshape(3, 2), tg.arange(3.0))
    assert len(rows) == 3
    assert [x.tolist() for x in rows[1]] == [[2, 3], 1.0]
    assert [x.tolist() for x in rows[:2]] == [[[0, 1], [2, 3]], [0.0, 1.0]]
    with pytest.raises(AssertionError, match="Size mismatch between tensors"):
        data.TensorDataset(tg.zeros(2), tg.zeros(3))


def test_datasets_of_datasets() -> None:
    both = Rows(2) + Rows(3)
    assert isinstance(both, data.ConcatDataset)
    assert len(both) == 5
    assert both.cumulative_sizes == [2, 5]
    assert [both[i][1] for i in (0, 1, 2, 4, -1, -5)] == [0, 1, 0, 2, 2, 0]
    with pytest.raises(ValueError, match="absolute value of index should not exceed dataset length"):
        both[-6]
    with pytest.raises(AssertionError, match="datasets should not be an empty iterable"):
        data.ConcatDataset([])
    with pytest.raises(AssertionError, match="ConcatDataset does not support IterableDataset"):
        data.ConcatDataset([Stream()])
    chain = Stream(2) + Stream(3)
    assert list(chain) == [0, 1, 0, 1, 2]
    with pytest.raises(AssertionError, match="ChainDataset only supports IterableDataset"):
        list(data.ChainDataset([Rows()]))
    subset = data.Subset(Rows(), [3, 5])
    assert (len(subset), subset[1][1], [y for _, y in subset.__getitems__([1, 0])]) == (2, 5, [5, 3])
    for base in (data.Dataset[int](), data.IterableDataset[int]()):
        with pytest.raises(NotImplementedError, match=r"Subclasses of .*Dataset should implement"):
            base[0] if type(base) is data.Dataset else iter(base)  # type: ignore[call-overload]


def test_stacked_datasets() -> None:
    pairs, named = data.StackDataset(Rows(3), range(3)), data.StackDataset(x=Rows(3), y=range(3))
    assert (len(pairs), pairs[2][1], named[2]["y"]) == (3, 2, 2)
    assert [y for _, y in pairs.__getitems__([2, 0])] == [2, 0]
    assert [row["y"] for row in named.__getitems__([2, 0])] == [2, 0]
    for args, kwargs, text in (
        ((range(2),), {"y": range(2)}, "both types are given"),
        ((), {}, "At least one dataset should be passed"),
        ((range(2), range(3)), {}, "Size mismatch between datasets"),
    ):
        with pytest.raises(ValueError, match=text):
            data.StackDataset(*args, **kwargs)


def test_random_splits() -> None:
    parts = data.random_split(range(10), [7, 3], generator=tg.Generator().manual_seed(1))
    again = data.random_split(range(10), [7, 3], generator=tg.Generator().manual_seed(1))
    assert [list(part.indices) for part in parts] == [list(part.indices) for part in again]
    assert sorted(i for part in parts for i in part.indices) == list(range(10))
    assert [len(part) for part in data.random_split(range(11), [0.3, 0.3, 0.4])] == [4, 3, 4]
    with pytest.raises(ValueError, match="Sum of input lengths does not equal the length of the input dataset!"):
        data.random_split(range(10), [7, 2])
    with pytest.raises(ValueError, match="Fraction at index 0 is not between 0 and 1"):
        data.random_split(range(10), [-0.5, 1.5])
    with pytest.warns(UserWarning, match="Length of split at index 1 is 0"):
        data.random_split(range(1), [0.5, 0.5])


# -- samplers ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("count", "drop_last", "expected"),
    [
        (7, False, [[0, 3, 6], [1, 4, 0], [2, 5, 1]]),
        (7, True, [[0, 3], [1, 4], [2, 5]]),
        (6, True, [[0, 3], [1, 4], [2, 5]]),
        (1, False, [[0], [0], [0]]),
        (1, True, [[], [], []]),
        (0, False, [[], [], []]),
    ],
)
def test_processes_share_a_dataset(count: int, drop_last: bool, expected: list[list[int]]) -> None:
    def samplers(**settings: Any) -> list[Any]:
        settings |= {"num_replicas": 3, "drop_last": drop_last}
        return [data.DistributedSampler(range(count), rank=rank, **settings) for rank in range(3)]

    assert [list(x) for x in samplers(shuffle=False)] == expected
    shuffled = samplers(seed=3)
    drawn = [i for x in shuffled for i in x]
    assert [len(x) for x in shuffled] == [len(part) for part in expected]
    assert set(drawn) == set(range(count)) or drop_last
    assert [i for x in shuffled for i in x] == drawn
    shuffled[0].set_epoch(1)
    assert list(shuffled[0]) == list(data.DistributedSampler(range(count), 3, 0, seed=4, drop_last=drop_last))


def test_a_sampler_of_processes_has_to_be_told_which_there_are() -> None:
    with pytest.raises(RuntimeError, match=r"torch\.distributed, which knows them in PyTorch, is not there"):
        data.DistributedSampler(range(3))
    with pytest.raises(ValueError, match=r"Invalid rank 3, rank should be in the interval \[0, 2\]"):
        data.DistributedSampler(range(3), num_replicas=3, rank=3)


def test_samplers() -> None:
    assert list(data.SequentialSampler("abc")) == [0, 1, 2]
    order = data.RandomSampler(range(5), num_samples=12, generator=tg.Generator().manual_seed(0))
    drawn = list(order)
    assert (len(order), len(drawn)) == (12, 12)
    assert sorted(drawn[:5]) == sorted(drawn[5:10]) == list(range(5))
    assert len(set(drawn[10:])) == 2
    assert len(list(data.RandomSampler(range(5), replacement=True, num_samples=70))) == 70
    assert sorted(data.SubsetRandomSampler([7, 5])) == [5, 7]
    assert set(data.WeightedRandomSampler([0.0, 1.0, 1.0], 50)) == {1, 2}
    assert sorted(data.WeightedRandomSampler([0.1, 0.7, 0.2], 3, replacement=False)) == [0, 1, 2]
    assert list(data.BatchSampler(range(5), 2, drop_last=True)) == [[0, 1], [2, 3]]
    assert list(data.BatchSampler(iter([3, 1, 2]), 2, drop_last=False)) == [[3, 1], [2]]
    assert [len(data.BatchSampler(range(5), 2, drop)) for drop in (True, False)] == [2, 3]


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: data.RandomSampler(range(2), replacement=1), TypeError, "replacement should be a boolean value"),
        (lambda: data.RandomSampler([]), ValueError, "num_samples should be a positive integer value, .*=0"),
        (lambda: data.WeightedRandomSampler([1.0], 0), ValueError, "num_samples should be a positive integer"),
        (lambda: data.WeightedRandomSampler([[1.0]], 1), ValueError, r"weights have shape \(1, 1\)"),
        (lambda: data.BatchSampler(range(2), 0, False), ValueError, "batch_size should be a positive integer"),
        (lambda: data.BatchSampler(range(2), True, False), ValueError, "batch_size should be a positive integer"),
        (lambda: data.BatchSampler(range(2), 1, 0), ValueError, "drop_last should be a boolean value"),
    ],
)
def test_samplers_that_cannot_be(make: Any, error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        make()


# -- collation --------------------------------------------------------------------------------------------------------
def test_samples_become_batches() -> None:
    samples = [(tg.ones(2) * i, np.full(3, i, np.float32), i, i / 2, f"s{i}", True, np.float32(i)) for i in range(2)]
    batch = data.default_collate(samples)
    assert type(batch) is list
    kinds = ["float64", "float32", "int64", "float64", None, "bool", "float32"]
    assert [getattr(getattr(x, "dtype", None), "name", None) for x in batch] == kinds
    assert [getattr(x, "shape", None) for x in batch[:4]] == [(2, 2), (2, 3), (2,), (2,)]
    assert batch[4] == ("s0", "s1")
    nested = data.default_collate([{"a": [1, 2], "p": Pair(1, 2.0)}, {"a": [3, 4], "p": Pair(3, 4.0)}])
    assert [x.tolist() for x in nested["a"]] == [[1, 3], [2, 4]]
    assert type(nested["p"]) is Pair
    assert nested["p"].x.tolist() == [1, 3]
    ordered = data.default_collate([collections.OrderedDict(a=1), collections.OrderedDict(a=2)])
    assert type(ordered) is collections.OrderedDict
    with pytest.raises(RuntimeError, match="each element in list of batch should be of equal size"):
        data.default_collate([[1], [1, 2]])
    with pytest.raises(TypeError, match="batch must contain tensors, numpy arrays, numbers, dicts or lists; found"):
        data.default_collate([None, None])
    with pytest.raises(TypeError, match="found <U1"):
        data.default_collate([np.array(["a"])])
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
        data.default_collate([tg.zeros(2), tg.zeros(3)])


def test_float_samples_are_float64_whatever_the_default_dtype() -> None:
    tg.set_default_dtype(tg.float32)
    try:
        assert data.default_collate([0.5, 1.5]).dtype == tg.float64
    finally:
        tg.set_default_dtype(tg.float64)


def test_arrays_in_samples_become_tensors() -> None:
    sample = {"x": np.zeros(2), "t": (np.float32(1), "a"), "p": Pair(np.ones(1), None), "s": np.array(["a"])}
    out = data.default_convert(sample)
    assert isinstance(out["x"], tg.Tensor)
    assert (out["t"][0].dtype, out["t"][1]) == (tg.float32, "a")
    assert type(out["p"]) is Pair
    assert isinstance(out["s"], np.ndarray)


# -- the loader -------------------------------------------------------------------------------------------------------
def test_batches_of_a_loader() -> None:
    loader = DataLoader(Rows(), batch_size=4)
    batches = list(loader)
    assert len(loader) == len(batches) == 3
    assert [y.tolist() for _, y in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert batches[2][0].tolist() == [[8.0, 8.0], [9.0, 9.0]]
    assert len(DataLoader(Rows(), batch_size=4, drop_last=True)) == 2
    assert [y for _, y in DataLoader(Rows(2), batch_size=None)] == [0, 1]
    assert list(DataLoader(Rows(2), collate_fn=len)) == [1, 1]
    by_batch = DataLoader(Rows(), batch_sampler=[[1, 2], [5]])
    assert [y.tolist() for _, y in by_batch] == [[1, 2], [5]]
    assert len(by_batch) == 2
    assert [y.tolist() for _, y in DataLoader(Rows(), sampler=[3, 4], batch_size=2)] == [[3, 4]]
    assert [x.tolist() for x in DataLoader(data.Subset(range(9), [8, 2]), batch_size=2)] == [[8, 2]]


def test_a_shuffled_loader_has_another_order_in_each_epoch() -> None:
    def epochs() -> list[list[int]]:
        loader = DataLoader(Rows(50), batch_size=50, shuffle=True, generator=tg.Generator().manual_seed(3))
        return [next(y.tolist() for _, y in loader) for _ in range(2)]

    first, second = epochs()
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second
    assert epochs() == [first, second]


def test_a_trace_takes_no_batch_from_outside() -> None:
    batches = iter(DataLoader(Rows(), batch_size=2))
    with pytest.raises(tg.UnsupportedError, match="from outside of the traced function"):
        tg.trace(lambda x: x + next(batches)[0].sum())(tg.ones(1))
    assert next(batches)[1].tolist() == [0, 1]


def test_a_loader_asks_once_for_a_batch_if_it_can() -> None:
    class Whole(Rows):
        def __getitems__(self, indices: list[int]) -> list[int]:
            return [10 * i for i in indices]

    assert [x.tolist() for x in DataLoader(Whole(3), batch_size=2)] == [[0, 10], [20]]


def test_loaders_of_iterable_datasets() -> None:
    assert [x.tolist() for x in DataLoader(Stream(5), batch_size=2)] == [[0, 1], [2, 3], [4]]
    assert [x.tolist() for x in DataLoader(Stream(5), batch_size=2, drop_last=True)] == [[0, 1], [2, 3]]
    assert list(DataLoader(Stream(3), batch_size=None)) == [0, 1, 2]
    with pytest.raises(TypeError, match="has no len"):
        len(DataLoader(Stream(3)))

    class Short(Stream):
        def __len__(self) -> int:
            return 3

    assert len(DataLoader(Short(), batch_size=2)) == 2
    with pytest.warns(UserWarning, match=r"was reported to be 2 .*, but 3 samples have been fetched"):
        list(DataLoader(Short(6), batch_size=2))


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"num_workers": -1}, ValueError, "num_workers option should be non-negative"),
        ({"timeout": -1}, ValueError, "timeout option should be non-negative"),
        ({"prefetch_factor": 2}, ValueError, "prefetch_factor option could only be specified in multiprocessing"),
        ({"prefetch_factor": -2, "num_workers": 1}, ValueError, "prefetch_factor option should be non-negative"),
        ({"persistent_workers": True}, ValueError, "persistent_workers option needs num_workers > 0"),
        ({"multiprocessing_context": "fork"}, ValueError, "can only be used with multi-process loading"),
        ({"multiprocessing_context": "no", "num_workers": 1}, ValueError, "should specify a valid start method"),
        ({"multiprocessing_context": 3, "num_workers": 1}, TypeError, "should be a valid context object or a string"),
        ({"sampler": [1], "shuffle": True}, ValueError, "sampler option is mutually exclusive with shuffle"),
        ({"batch_sampler": [[1]], "batch_size": 2}, ValueError, "batch_sampler option is mutually exclusive"),
        ({"batch_size": None, "drop_last": True}, ValueError, "batch_size=None option disables auto-batching"),
        ({"dataset": Stream(), "shuffle": True}, ValueError, "IterableDataset: expected unspecified shuffle option"),
        ({"dataset": Stream(), "sampler": [1]}, ValueError, "IterableDataset: expected unspecified sampler option"),
    ],
)
def test_loaders_that_cannot_be(options: dict[str, Any], error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        DataLoader(**{"dataset": Rows(), **options})


def test_a_loader_stays_what_it_is() -> None:
    loader = DataLoader(Rows())
    with pytest.raises(ValueError, match="batch_size attribute should not be set after DataLoader is initialized"):
        loader.batch_size = 3
    loader.collate_fn = len
    assert next(iter(loader)) == 1


def test_pinned_memory_has_no_effect() -> None:
    with pytest.warns(UserWarning, match="no accelerator is found"):
        assert len(list(DataLoader(Rows(3), pin_memory=True))) == 3


def test_a_model_learns_from_a_loader() -> None:
    tg.manual_seed(0)
    x = tg.linspace(-1.0, 1.0, 32).reshape(-1, 1)
    loader = DataLoader(data.TensorDataset(x, 3 * x - 1), batch_size=8, shuffle=True)
    model = tg.nn.Linear(1, 1)
    optimizer = tg.optim.SGD(model.parameters(), lr=0.2)

    @tg.trace
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = tg.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        losses = [step(*batch).item() for _ in range(20) for batch in loader]
    assert losses[-1] < 1e-3 < losses[0]
