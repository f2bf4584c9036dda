"""Process of a worker: answer the tasks of the loader until it ends.

A task is a pair of the epoch and what the sampler has returned; its answer is a pair of the epoch and a pickled batch,
`WorkerError` or `EndOfSamples`. A new epoch starts with new iterators.
"""

from __future__ import annotations

import multiprocessing
import pickle
import queue
import random
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from tracegrad.settings import settings
from tracegrad.torch.tape.tensors.default_rng import manual_seed
from tracegrad.torch.utils.data.dataset import IterableDataset
from tracegrad.torch.utils.data.worker import INFO, EndOfSamples, Fetch, WorkerInfo, WorkerTask, fetcher

POLL_SECONDS = 5.0  # after which a process that waits looks whether the other one is alive


class WorkerError(NamedTuple):
    """Exception of a worker: its type, and the text of its traceback with what the worker did."""

    type: type[BaseException]
    text: str

    def reraise(self) -> None:
        """Raise the exception with the text of its traceback, or a RuntimeError if its type takes other arguments."""
        try:
            error = self.type(_KeyText(self.text) if self.type is KeyError else self.text)
        except Exception:
            raise RuntimeError(self.text) from None
        raise error


class _KeyText(str):
    """Text of a KeyError, which shows the `repr` of its argument."""

    def __repr__(self) -> str:
        return str(self)


def work(task: WorkerTask, tasks: object, answers: Any, done: Any) -> None:
    """Answer tasks until one is None, `done` is set, or the parent process is gone."""
    try:
        failed = _begun(task)
        epoch, fetch = None, None
        for at, index in _received(tasks, done):
            if failed is None and (fetch is None or at != epoch):
                epoch = at
                fetch, failed = _attempt(task, _fetcher, task)
            answer = failed if fetch is None else _answer(task, fetch, index)
            failed = None
            answers.put((at, _pickled(task, answer)))
    except KeyboardInterrupt:
        pass  # the main process raises it
    if done.is_set():
        answers.cancel_join_thread()


def _begun(task: WorkerTask) -> WorkerError | None:
    """Seed this process and call the user's `worker_init_fn`; returns its exception."""
    seed = task.base_seed + task.id
    settings.num_threads = 1
    random.seed(seed)
    manual_seed(seed)
    np.random.seed(np.random.SeedSequence((task.base_seed, task.id)).generate_state(4))  # noqa: NPY002
    INFO.append(WorkerInfo(task.id, task.num_workers, seed, task.dataset))
    return None if task.init_fn is None else _attempt(task, task.init_fn, task.id)[1]


def _fetcher(task: WorkerTask) -> Fetch:
    return fetcher(task.dataset, task.batched, task.collate_fn, task.drop_last)


def _received(tasks: Any, done: Any) -> Iterator[tuple[int, Any]]:
    parent = multiprocessing.parent_process()
    while parent is None or parent.is_alive():
        try:
            task = tasks.get(timeout=POLL_SECONDS)
        except queue.Empty:
            continue
        if task is None or done.is_set():
            return
        yield task


def _answer(task: WorkerTask, fetch: Fetch, index: int) -> Any:
    """Return a batch, EndOfSamples, or the exception that the user's code has raised."""
    try:
        return fetch(index)
    except StopIteration as error:
        return EndOfSamples if isinstance(task.dataset, IterableDataset) else _error(task, error)
    except Exception as error:
        return _error(task, error)


def _attempt(task: WorkerTask, function: Callable[[Any], Any], argument: object) -> tuple[Any, WorkerError | None]:
    try:
        return function(argument), None
    except Exception as error:
        return None, _error(task, error)


def _error(task: WorkerTask, error: Exception) -> WorkerError:
    trace = "".join(traceback.format_exception(error))
    where = f"in DataLoader worker process {task.id}"
    return WorkerError(type(error), f"Caught {type(error).__name__} {where}.\nOriginal {trace}")


def _pickled(task: WorkerTask, answer: Any) -> bytes:
    """Pickle an answer; what cannot be pickled is an error that can."""
    try:
        return pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        text = answer.text if isinstance(answer, WorkerError) else _error(task, error).text
        kind = type(error) if type(error).__module__ in ("builtins", "_pickle", "pickle") else RuntimeError
        return pickle.dumps(WorkerError(RuntimeError if isinstance(answer, WorkerError) else kind, text))
