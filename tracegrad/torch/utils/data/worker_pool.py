"""Worker processes of one loader: tasks go round, and their answers come back in the same order."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import queue
import time
import weakref
from collections import deque
from collections.abc import Callable
from multiprocessing.context import BaseContext
from typing import Any

from tracegrad.torch.utils.data.worker import EndOfSamples, WorkerTask
from tracegrad.torch.utils.data.worker_process import POLL_SECONDS, WorkerError, work

_JOIN_SECONDS = 5.0  # that a worker has to end by itself


def context_of(context: object) -> Any:
    """Return the context of the standard library that starts workers, by its name; by default that of the system."""
    if isinstance(context, str):
        methods = multiprocessing.get_all_start_methods()
        if context not in methods:
            raise ValueError(
                "multiprocessing_context option should specify a valid start method in "
                f"{methods!r}, but got multiprocessing_context={context!r}"
            )
        return multiprocessing.get_context(context)
    if context is not None and not isinstance(context, BaseContext):
        raise TypeError(
            "multiprocessing_context option should be a valid context object or a string specifying the start "
            f"method, but got multiprocessing_context={context}"
        )
    return context or multiprocessing.get_context()


class WorkerPool:
    """Worker processes with a queue of tasks and one of answers for each.

    `start` begins an epoch, `put` sends a task to the next worker, and `get` waits for the answer of the oldest task.
    A worker without more samples gets no more tasks in that epoch.
    """

    def __init__(self, context: Any, count: int, task: Callable[[int], WorkerTask], timeout: float):
        self.epoch, self.timeout, self.count = 0, timeout, count
        self.done = context.Event()
        self.tasks = [context.Queue() for _ in range(count)]
        self.answers = [context.Queue() for _ in range(count)]
        self.processes = []
        self.active = list(range(count))
        self.pending: deque[int] = deque()
        self.at = 0
        for k in range(count):
            self.tasks[k].cancel_join_thread()
            arguments = (task(k), self.tasks[k], self.answers[k], self.done)
            process = context.Process(target=work, args=arguments, daemon=True)
            process.start()
            self.processes.append(process)
        self.close = weakref.finalize(self, _close, os.getpid(), self.done, self.tasks, self.answers, self.processes)

    def start(self) -> None:
        """Begin an epoch. Answers of the last one that are still to come are dropped."""
        self.epoch += 1
        self.pending.clear()
        self.active, self.at = list(range(self.count)), 0

    def put(self, index: int) -> None:
        """Send a task to the next active worker."""
        worker = self.active[self.at % len(self.active)]
        self.at = (self.at + 1) % len(self.active)
        self.pending.append(worker)
        self.tasks[worker].put((self.epoch, index))

    def get(self) -> Any:
        """Return the answer of the oldest task: a batch or EndOfSamples; raises the exception of the worker."""
        worker = self.pending.popleft()
        epoch, data = self._received(worker)
        while epoch != self.epoch:
            epoch, data = self._received(worker)
        answer = pickle.loads(data)
        if isinstance(answer, WorkerError):
            answer.reraise()
        if answer is EndOfSamples and worker in self.active:
            place = self.active.index(worker)
            self.active.remove(worker)
            self.at = (self.at - (place < self.at)) % max(len(self.active), 1)
        return answer

    def _received(self, worker: int) -> Any:
        end = time.monotonic() + self.timeout if self.timeout > 0 else float("inf")
        while True:
            seconds = min(POLL_SECONDS, max(end - time.monotonic(), 0.0))
            try:
                return self.answers[worker].get(timeout=seconds)
            except queue.Empty:
                self._check_alive(worker)
            if time.monotonic() >= end:
                raise RuntimeError(f"DataLoader timed out after {self.timeout} seconds")

    def _check_alive(self, worker: int) -> None:
        process = self.processes[worker]
        if process.is_alive() or not self.answers[worker].empty():
            return
        self.close()
        text = f"DataLoader worker (pid(s) {process.pid}) exited unexpectedly, with exit code {process.exitcode}"
        raise RuntimeError(f"{text}; with num_workers=0 the samples are loaded in this process")


def _close(owner: int, done: Any, tasks: list[Any], answers: list[Any], processes: list[Any]) -> None:
    """End the workers: each sees that `done` is set after its task, and is killed if it takes too long."""
    if os.getpid() != owner:
        return  # a fork of the process has no workers
    done.set()
    for each in tasks:
        each.put(None)
        each.close()
    end = time.monotonic() + _JOIN_SECONDS
    for process in processes:
        process.join(max(end - time.monotonic(), 0.0))
        if process.is_alive():
            process.terminate()
            process.join()
    for each in answers:
        each.close()
