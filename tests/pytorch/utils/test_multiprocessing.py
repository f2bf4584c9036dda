"""`torch.multiprocessing`: the standard library's names, and processes by `spawn`."""

from __future__ import annotations

import multiprocessing
import os
from typing import Any

import pytest

import tracegrad as tg
from tracegrad import multiprocessing as mp

FAST = multiprocessing.get_all_start_methods()[0]


def fill(index: int, queue: Any, x: Any) -> None:
    queue.put((index, x * index))


def fail(index: int) -> None:
    if index == 1:
        raise ValueError("one")


def leave(index: int) -> None:
    os._exit(3)


def test_the_names_are_those_of_the_standard_library() -> None:
    assert mp.Process is multiprocessing.Process
    assert mp.get_start_method() == multiprocessing.get_start_method()
    assert mp.get_sharing_strategy() in mp.get_all_sharing_strategies()
    mp.set_sharing_strategy("file_system")
    with pytest.raises(AttributeError):
        _ = mp.nothing
    with pytest.raises(tg.UnsupportedError, match="Tensors are copied to other processes"):
        tg.ones(2).share_memory_()


def test_processes_get_and_give_tensors() -> None:
    queue = mp.get_context(FAST).SimpleQueue()
    assert mp.spawn(fill, args=(queue, tg.ones(2)), nprocs=2, start_method=FAST) is None
    results = dict(queue.get() for _ in range(2))
    assert {k: x.tolist() for k, x in results.items()} == {0: [0.0, 0.0], 1: [1.0, 1.0]}


def test_what_happens_to_a_process_is_raised() -> None:
    with pytest.raises(mp.ProcessRaisedException, match=r"(?s)Process 1 terminated with .*Traceback.*ValueError: one"):
        mp.spawn(fail, nprocs=2, start_method=FAST)
    with pytest.raises(mp.ProcessExitedException, match="process 0 terminated with exit code 3") as caught:
        mp.spawn(leave, start_method=FAST)
    assert (caught.value.error_index, caught.value.exit_code) == (0, 3)
    context = mp.spawn(fail, nprocs=1, join=False, start_method=FAST)
    assert context is not None
    while not context.join(timeout=1.0):
        pass
    assert len(context.pids()) == 1
