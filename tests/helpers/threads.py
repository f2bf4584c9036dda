"""Run work in threads that start at the same moment."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


def together(count: int, work: Callable[[int], T]) -> list[T]:
    """The results of `work(i)` in `count` threads that start at the same moment; raises what the first raises."""
    start = threading.Barrier(count)

    def run(i: int) -> T:
        start.wait()
        return work(i)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


@contextmanager
def frequent_switches(seconds: float = 1e-5) -> Iterator[None]:
    """Let Python switch between threads often, where it has a GIL."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
