"""What a program takes its time for: its orders with a clock between them.

The clock is read by a walk of its own, which no other call runs: what is not measured pays nothing for it. The program
is run on memory of its own, again and again; inputs are only read.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from functools import cache
from string import Template
from typing import Any

import numpy as np

from tracegrad.codegen.plan import RELEASE_GIL_COST
from tracegrad.errors import TracegradError, located
from tracegrad.records import record
from tracegrad.runtime import native
from tracegrad.runtime.program import Program, conformed

__all__ = ["Timing", "timed"]

FEWEST, MOST = 5, 10_000  # runs that are measured

_WALK = """
declare i32 @clock_gettime(i32, ptr)

define i64 @tg_now() {
  %time = alloca [2 x i64]                           ; seconds and nanoseconds: struct timespec
  %status = call i32 @clock_gettime(i32 $clock, ptr %time)
  %seconds = load i64, ptr %time
  %fraction = getelementptr i64, ptr %time, i32 1
  %nanoseconds = load i64, ptr %fraction
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %nanoseconds
  ret i64 %sum
}

; As tg_walk, but the time is noted before the first order, once more, and after each.
define i32 @tg_timed_walk(ptr %words, ptr %pointers, ptr %clock, ptr %times) {
entry:
  %count = load i64, ptr %words
  %first = getelementptr i64, ptr %words, i64 1
  %begin = call i64 %clock()
  store i64 %begin, ptr %times
  %second = getelementptr i64, ptr %times, i64 1
  %again = call i64 %clock()
  store i64 %again, ptr %second
  br label %head
head:
  %left = phi i64 [ %count, %entry ], [ %less, %next ]
  %at = phi ptr [ %first, %entry ], [ %after, %next ]
  %noted = phi ptr [ %second, %entry ], [ %note, %next ]
  %none = icmp eq i64 %left, 0
  br i1 %none, label %leave, label %step
step:
  %code.at = getelementptr i64, ptr %at, i64 1
  %own = getelementptr i64, ptr %at, i64 2
  %code = load ptr, ptr %code.at
  %status = call i32 %code(ptr %own, ptr %pointers)
  %good = icmp eq i32 %status, 0
  br i1 %good, label %next, label %leave
next:
  %now = call i64 %clock()
  %note = getelementptr i64, ptr %noted, i64 1
  store i64 %now, ptr %note
  %size = load i64, ptr %at
  %after = getelementptr i64, ptr %own, i64 %size
  %less = sub i64 %left, 1
  br label %head
leave:
  %result = phi i32 [ 0, %head ], [ %status, %step ]
  ret i32 %result
}
"""


@record(frozen=True)
class Timing:
    """Seconds, each the median of `runs`: of the orders that belong to the same steps of the plan, and of a call."""

    steps: list[tuple[range, float]]
    call: float
    runs: int


def timed(program: Program, leaves: Sequence[Any], seconds: float = 0.5) -> Timing:
    """The time that each order of a program takes for these leaves, measured for some `seconds`.

    Raises `TracegradError` where the program fails, as where an index is out of range.
    """
    run, orders, keep = _prepared(program, leaves)
    given = [conformed(x) for x in leaves]
    times = np.zeros(len(orders) + 2, np.int64)
    rows: list[np.ndarray[Any, Any]] = []
    calls: list[float] = []
    run(times)  # what is new to caches and memory
    program.entry(*given)
    end = time.perf_counter() + seconds
    while len(rows) < FEWEST or (time.perf_counter() < end and len(rows) < MOST):
        run(times)
        rows.append(np.diff(times))
        start = time.perf_counter()
        program.entry(*given)
        calls.append(time.perf_counter() - start)
    del keep
    passed = np.array(rows)
    own = np.median(passed[:, 0])  # what it takes to read the clock
    each = np.maximum(np.median(passed[:, 1:], axis=0) - own, 0.0) * 1e-9
    together: dict[range, float] = {}
    whole = sorted({steps for steps, _, _ in orders}, key=len, reverse=True)  # a step may be one of a band
    for (steps, _, _), spent in zip(orders, each):
        holder = next(x for x in whole if x == steps or (steps and set(steps) <= set(x)))
        together[holder] = together.get(holder, 0.0) + float(spent)
    return Timing(list(together.items()), float(np.median(calls)), len(rows))


def _prepared(program: Program, leaves: Sequence[Any]) -> tuple[Any, Any, Any]:
    """A function that runs the program once and notes the times; its orders; what must live as long as it is called."""
    made = program.report.plan
    orders, keep = program.linked()
    values = [len(orders)]
    for _, address, words in orders:
        values += [len(words), address, *words]
    block = np.array(values, np.int64)
    results = program.graph.outputs[:-1] if program.checked else program.graph.outputs
    arrays = [np.asarray(conformed(x)) for x in leaves] + [np.empty(x.aval.shape, x.aval.dtype) for x in results]
    scratch = np.empty(made.arena_bytes + 64, np.uint8)
    addresses = [x.ctypes.data for x in arrays] + [-(-scratch.ctypes.data // 64) * 64]
    pointers = (ctypes.c_void_p * len(addresses))(*addresses)
    prototype = ctypes.CFUNCTYPE if made.cost >= RELEASE_GIL_COST else ctypes.PYFUNCTYPE
    walk: Any = prototype(ctypes.c_int32, *[ctypes.c_void_p] * 4)(_code().address("tg_timed_walk"))
    clock = _clock()

    def run(times: np.ndarray[Any, Any]) -> None:
        if walk(block.ctypes.data, pointers, clock, times.ctypes.data):
            error = f"program {program.name or 'without a name'} fails for these arguments, so there is nothing to time"
            raise TracegradError(located(error))

    return run, orders, (keep, arrays, scratch)


@cache
def _code() -> native.NativeCode:
    clock = getattr(time, "CLOCK_MONOTONIC", None)
    text = _WALK if clock is not None else _WALK[_WALK.index("; As tg_walk") :]
    return native.load_ir(lambda: Template(text).substitute(clock=clock), "tg_timed_walk", "cold")


@cache
def _python_clock() -> Any:
    return ctypes.CFUNCTYPE(ctypes.c_int64)(time.perf_counter_ns)


def _clock() -> int:
    """The address of a function that gives nanoseconds."""
    if "tg_now" in _code():
        return _code().address("tg_now")
    return ctypes.cast(_python_clock(), ctypes.c_void_p).value or 0
