"""Loaders with worker processes: the order of batches, exceptions, seeds, and the end of the processes."""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
from typing import Any

import numpy as np
import pytest

import tracegrad as tg
from tracegrad.torch.utils import data
from tracegrad.torch.utils.data import DataLoader, get_worker_info

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")  # beside threads of other tests
METHODS = [name for name in ("fork", "spawn") if name in multiprocessing.get_all_start_methods()]
FAST = METHODS[0]


class Slow(data.Dataset[Any]):
    """The first samples take longest."""

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.02 * (index < 2))
        return tg.full((2,), float(index)), {"index": index}

    def __len__(self) -> int:
        return 9


class Parts(data.IterableDataset[int]):
    """Each worker has every n-th number."""

    def __iter__(self) -> Any:
        info = get_worker_info()
        assert info is not None
        return iter(range(info.id, 7, info.num_workers))


class Words(data.IterableDataset[str]):
    """Texts that say what a worker could say of itself."""

    def __iter__(self) -> Any:
        return iter(["begin", "end", "None", "after the end"])


class Reluctant(data.IterableDataset[int]):
    """The first iteration of a copy fails."""

    begun = 0

    def __iter__(self) -> Any:
        self.begun += 1
        if self.begun == 1:
            raise ValueError("not yet")
        return iter(range(self.begun, 4))


class Failing(Slow):
    def __init__(self, kind: str):
        self.kind = kind

    def __getitem__(self, index: int) -> Any:
        if index == 3:
            if self.kind == "exit":
                os._exit(5)
            if self.kind == "wait":
                time.sleep(30)
            if self.kind == "unpicklable":
                return lambda: index
            raise {"value": ValueError, "key": KeyError, "odd": OddError}[self.kind](
                "three", *[1] * (self.kind == "odd")
            )
        return index


class OddError(Exception):
    def __init__(self, first: Any, second: Any):
        super().__init__(first, second)


class Seeds(data.Dataset[Any]):
    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        assert info is not None
        return [info.id, info.num_workers, info.seed, tg.rand(1).item(), float(np.random.rand()), os.getpid()]  # noqa: NPY002

    def __len__(self) -> int:
        return 4


def refuses_to_start(worker: int) -> None:
    raise RuntimeError(f"not worker {worker}")


def as_list(batch: Any) -> Any:
    return batch


@pytest.mark.parametrize("method", METHODS)
def test_batches_are_in_the_order_of_the_sampler(method: str) -> None:
    loader = DataLoader(Slow(), batch_size=2, num_workers=2, multiprocessing_context=method)
    batches = list(loader)
    assert len(batches) == len(loader) == 5
    assert [rest["index"].tolist() for _, rest in batches] == [[0, 1], [2, 3], [4, 5], [6, 7], [8]]
    assert batches[-1][0].tolist() == [[8.0, 8.0]]
    assert get_worker_info() is None


def test_iterable_datasets_give_what_each_worker_has_in_turn() -> None:
    options: dict[str, Any] = {"num_workers": 2, "multiprocessing_context": FAST}
    assert [x.tolist() for x in DataLoader(Parts(), batch_size=2, **options)] == [[0, 2], [1, 3], [4, 6], [5]]
    assert [x.tolist() for x in DataLoader(Parts(), batch_size=3, drop_last=True, **options)] == [[0, 2, 4], [1, 3, 5]]
    assert list(DataLoader(Parts(), batch_size=None, num_workers=3)) == [0, 1, 2, 3, 4, 5, 6]


def test_no_sample_ends_the_worker() -> None:
    assert list(DataLoader(Words(), batch_size=None, num_workers=1)) == ["begin", "end", "None", "after the end"]


@pytest.mark.parametrize(
    ("kind", "error", "text"),
    [
        ("value", ValueError, r"(?s)^Caught ValueError in DataLoader worker process 1.\nOriginal Traceback.*three"),
        ("key", KeyError, r"(?s)Caught KeyError in DataLoader worker process 1.\nOriginal Traceback.*__getitem__"),
        ("odd", RuntimeError, r"(?s)Caught OddError in DataLoader worker process 1.*Original Traceback"),
        ("unpicklable", Exception, r"(?s)in DataLoader worker process 1.*pickle"),
        ("exit", RuntimeError, r"DataLoader worker \(pid\(s\) \d+\) exited unexpectedly, with exit code 5"),
    ],
)
def test_an_exception_has_the_traceback_of_the_worker(kind: str, error: type, text: str) -> None:
    batches = iter(DataLoader(Failing(kind), batch_size=2, num_workers=2, collate_fn=as_list))
    assert next(batches) == [0, 1]
    with pytest.raises(error, match=text):
        next(batches)
    if kind != "exit":
        assert next(batches) == [4, 5]


def test_a_worker_that_cannot_start_says_so() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)Caught RuntimeError in DataLoader worker process 0.*not worker 0"):
        list(DataLoader(Slow(), num_workers=1, worker_init_fn=refuses_to_start))


def test_an_iteration_that_cannot_start_is_tried_again() -> None:
    loader = DataLoader(Reluctant(), batch_size=None, num_workers=1, persistent_workers=True)
    batches = iter(loader)
    with pytest.raises(ValueError, match=r"(?s)Caught ValueError in DataLoader worker process 0.*not yet"):
        next(batches)
    assert list(batches) == [2, 3]
    assert list(loader) == [3]


def test_a_batch_that_takes_too_long_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0\.5 seconds"):
        list(DataLoader(Failing("wait"), batch_size=4, num_workers=1, timeout=0.5))


def test_workers_have_seeds_of_their_own_which_the_generator_decides() -> None:
    def run() -> Any:
        generator = tg.Generator().manual_seed(4)
        return [row for (row,) in DataLoader(Seeds(), num_workers=2, collate_fn=as_list, generator=generator)]

    first, second = run(), run()
    assert [row[:2] for row in first] == [[0, 2], [1, 2], [0, 2], [1, 2]]
    assert first[1][2] == first[0][2] + 1
    assert len({row[3] for row in first}) == len({row[4] for row in first}) == 4
    assert [row[:5] for row in first] == [row[:5] for row in second]


def test_persistent_workers_stay_for_the_next_epoch() -> None:
    loader = DataLoader(Seeds(), num_workers=2, persistent_workers=True, collate_fn=as_list)
    epochs = [[row[5] for (row,) in loader] for _ in range(2)]
    assert epochs[0] == epochs[1]
    begun = iter(loader)
    next(begun)
    assert [row[5] for (row,) in loader] == epochs[0]
    assert list(begun) == []
    pool: Any = loader._pool
    del loader, begun
    gc.collect()
    pool.close()
    assert not any(process.is_alive() for process in pool.processes)


def test_workers_end_with_their_iterator() -> None:
    batches: Any = iter(DataLoader(Slow(), num_workers=2, prefetch_factor=1))
    next(batches)
    processes = batches.pool.processes
    assert all(process.is_alive() for process in processes)
    del batches
    gc.collect()
    assert not any(process.is_alive() for process in processes)
