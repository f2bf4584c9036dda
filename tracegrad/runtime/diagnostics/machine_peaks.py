"""What this machine can do, measured: the two numbers that the speed of a kernel is compared with.

`bandwidth` is what the sum of two arrays that fit in no cache reads and writes in a second; `peak` what a product of
two large matrices computes. Both are the best of some runs, by as many threads as kernels have, and measured once.
"""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import numpy as np

from tracegrad.ir import parse
from tracegrad.runtime.execution.program import compile_program
from tracegrad.runtime.threads.pool import num_threads
from tracegrad.utils.lazy_dataclass import record

__all__ = ["Machine", "bandwidth", "machine", "peak"]

LONG = 2**23  # elements: 64 MiB, of which a sum touches three times as much
WIDE = 1024
RUNS, SECONDS = 4, 0.15

_SUM = """
graph(%0: f64[{n}], %1: f64[{n}]) {{
  %2 = multiply(%0, 3.0) : f64[{n}]
  %3 = add(%2, %1) : f64[{n}]
  return %3
}}
"""
_PRODUCT = """
graph(%0: {t}[{n},{n}], %1: {t}[{n},{n}]) {{
  %2 = matmul(%0, %1) : {t}[{n},{n}]
  return %2
}}
"""


@record(frozen=True)
class Machine:
    """Bytes and operations in a second, by this number of threads; the peak is that of a dtype, "f32" or "f64"."""

    threads: int
    bandwidth: float
    peaks: dict[str, float]


def machine() -> Machine:
    """What this machine can do with the threads that kernels have now; the first call measures for some 0.5 s.

    >>> here = machine()
    >>> here.bandwidth > 1e8 and here.peaks["f64"] > 1e8
    True
    """
    threads = num_threads()
    return Machine(threads, bandwidth(threads), {dtype: peak(threads, dtype) for dtype in ("f32", "f64")})


@cache
def bandwidth(threads: int) -> float:
    """Bytes in a second that go through memory."""
    x, y = np.ones(LONG), np.ones(LONG)
    return 3 * x.nbytes / _quickest(_SUM.format(n=LONG), x, y)


@cache
def peak(threads: int, dtype: str) -> float:
    """Operations in a second of a large product."""
    x = np.ones((WIDE, WIDE), "f4" if dtype == "f32" else "f8")
    return 2 * WIDE**3 / _quickest(_PRODUCT.format(n=WIDE, t=dtype), x, x)


def _quickest(text: str, *arrays: Any) -> float:
    program = compile_program(parse(text), ("array",) * len(arrays), True, "machine")
    program.run(arrays)
    found: list[float] = []
    while len(found) < RUNS or sum(found) < SECONDS:
        start = time.perf_counter()
        program.run(arrays)
        found.append(time.perf_counter() - start)
    return min(found)
