"""Measure the peaks of this machine (roofline): memory bandwidth and floating-point throughput.

`bandwidth` is the bytes per second that the sum of two arrays reads and writes if neither fits in a cache. `peak` is
the operations per second of a product of two large matrices. Both are the best of some runs, with the number of threads
that kernels use, and are measured once.
"""

from __future__ import annotations

import time
from functools import cache

import numpy as np

from tracegrad.ir import parse
from tracegrad.runtime.execution.program import compile_program
from tracegrad.settings import settings
from tracegrad.target.tuning import TUNING
from tracegrad.utils.lazy_dataclass import record

LONG = TUNING.diagnostics.bandwidth_elements
MATRIX_ROWS = TUNING.diagnostics.peak_rows
RUNS = TUNING.diagnostics.min_peak_runs
SECONDS = TUNING.diagnostics.min_peak_time

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
    """Bytes and operations per second, for this number of threads; peaks are per dtype, "f32" or "f64"."""

    threads: int
    bandwidth: float
    peaks: dict[str, float]


def machine() -> Machine:
    """The peaks of this machine with the current number of threads; the first call measures them.

    >>> here = machine()
    >>> here.bandwidth > 1e8 and here.peaks["f64"] > 1e8
    True
    """
    threads = settings.thread_count()
    return Machine(threads, bandwidth(threads), {dtype: peak(threads, dtype) for dtype in ("f32", "f64")})


@cache
def bandwidth(threads: int) -> float:
    """Bytes per second of memory traffic."""
    x, y = np.ones(LONG), np.ones(LONG)
    return 3 * x.nbytes / _quickest(_SUM.format(n=LONG), x, y)


@cache
def peak(threads: int, dtype: str) -> float:
    """Operations per second of a large matrix product."""
    x = np.ones((MATRIX_ROWS, MATRIX_ROWS), "f4" if dtype == "f32" else "f8")
    return 2 * MATRIX_ROWS**3 / _quickest(_PRODUCT.format(n=MATRIX_ROWS, t=dtype), x, x)


def _quickest(text: str, *arrays: object) -> float:
    program = compile_program(parse(text), ("array",) * len(arrays), True, "machine")
    program.run(arrays)
    results: list[float] = []
    while len(results) < RUNS or sum(results) < SECONDS:
        start = time.perf_counter()
        program.run(arrays)
        results.append(time.perf_counter() - start)
    return min(results)
