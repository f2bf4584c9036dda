"""Time the steps of a program with clock instructions between them.

The clock is read by instructions of its own, which no other call runs, so normal calls pay nothing. The program runs
repeatedly on memory of its own, and only reads the inputs.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from tracegrad.codegen.plan.planner import RELEASE_GIL_COST
from tracegrad.codegen.program.interpreter import WALK, interpreter_operands
from tracegrad.errors import TracegradError, located
from tracegrad.llvmir.template import ir_template
from tracegrad.runtime.compile import jit
from tracegrad.runtime.compile.code_store import shared_function
from tracegrad.runtime.execution.program import Program, conformed_inputs
from tracegrad.runtime.execution.strided_inputs import InputLayouts
from tracegrad.runtime.threads.pool import clock_source
from tracegrad.target.tuning import TUNING
from tracegrad.utils.lazy_dataclass import record

if TYPE_CHECKING:
    from tracegrad.typing import NDArray


MIN_RUNS = TUNING.diagnostics.min_timed_runs
MAX_RUNS = TUNING.diagnostics.max_timed_runs


@record(frozen=True)
class Timing:
    """Times in seconds, each the median of `runs`: per instruction (or group of instructions of the same steps), and
    per call."""

    steps: list[tuple[range, float]]
    call: float
    runs: int


def timed(program: Program, leaves: Sequence[Any], seconds: float = 0.5, layouts: InputLayouts = ()) -> Timing:
    """Time each instruction of a program for these leaves, for about `seconds`; `layouts` are the layouts of arrays
    that are not in row-major order.

    Raises `TracegradError` if the program fails, as for an index out of range.
    """
    args = conformed_inputs(leaves, layouts)
    run, orders, keepalive = _prepared(program, args)
    run_times: list[np.ndarray[Any, Any]] = []
    call_times: list[float] = []
    run()  # warm up
    program.entry(*args)
    end = time.perf_counter() + seconds
    while len(run_times) < MIN_RUNS or (time.perf_counter() < end and len(run_times) < MAX_RUNS):
        run_times.append(np.diff(run()))
        start = time.perf_counter()
        program.entry(*args)
        call_times.append(time.perf_counter() - start)
    del keepalive
    passed = np.array(run_times)
    clock_cost = np.median(passed[:, 0])  # the time of reading the clock
    each = np.maximum(np.median(passed[:, 1:], axis=0) - clock_cost, 0.0) * 1e-9
    together: dict[range, float] = {}
    whole = sorted({steps for steps, _ in orders}, key=len, reverse=True)  # a step may belong to a strip fusion
    for (steps, _), spent in zip(orders, each):
        holder = next(x for x in whole if x == steps or (steps and set(steps) <= set(x)))
        together[holder] = together.get(holder, 0.0) + float(spent)
    return Timing(list(together.items()), float(np.median(call_times)), len(run_times))


def _prepared(program: Program, args: list[NDArray]) -> tuple[Any, Any, Any]:
    """A function that runs the program once and returns the times before the first instruction, once more, and after
    each; the instructions; and the objects that must live as long as it is called."""
    result = program.report.plan
    orders, keepalive = program.linked()
    note, clock = _code().address("tg_note"), _clock()
    times = np.zeros(len(orders) + 2, np.int64)
    notes = [(note, [clock, times.ctypes.data + 8 * k]) for k in range(len(times))]
    instructions = notes[:2] + [
        instruction for (_, order), noted in zip(orders, notes[2:]) for instruction in (order, noted)
    ]
    block = np.array(interpreter_operands(instructions), np.int64)
    results = program.graph.outputs[:-1] if program.checked else program.graph.outputs
    arrays = [np.asarray(x) for x in args] + [np.empty(x.aval.shape, x.aval.dtype) for x in results]
    scratch = np.empty(result.arena_bytes + 64, np.uint8)
    addresses = [byte_bounds(x)[0] for x in arrays] + [-(-scratch.ctypes.data // 64) * 64]
    pointers = (ctypes.c_void_p * len(addresses))(*addresses)
    prototype = ctypes.CFUNCTYPE if result.cost >= RELEASE_GIL_COST else ctypes.PYFUNCTYPE
    walk: Any = prototype(ctypes.c_int32, *[ctypes.c_void_p] * 2)(shared_function(WALK))

    def run() -> np.ndarray[Any, Any]:
        if walk(block.ctypes.data, pointers):
            error = f"program {program.name or 'without a name'} fails for these arguments, so there is nothing to time"
            raise TracegradError(located(error))
        return times

    return run, orders, (keepalive, arrays, scratch)


@cache
def _code() -> jit.NativeCode:
    return jit.load_ir(_source, "tg_note", "cold")


def _source() -> str:
    clock = clock_source()
    read_clock = ir_template("runtime/diagnostics/read_clock.ll") if clock else ""
    return ir_template("runtime/diagnostics/note_time.ll") + clock + read_clock


@cache
def _python_clock() -> Any:
    return ctypes.CFUNCTYPE(ctypes.c_int64)(time.perf_counter_ns)


def _clock() -> int:
    """The address of a function that returns nanoseconds."""
    if "tg_now" in _code():
        return _code().address("tg_now")
    return ctypes.cast(_python_clock(), ctypes.c_void_p).value or 0
