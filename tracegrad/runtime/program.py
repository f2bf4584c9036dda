"""Programs: a graph compiled for its shapes, and called.

`compile_program` optimises the graph, plans it, finds the machine code of the plan's text (in memory, on disk, or by
compiling it) and makes a callable of it for these shapes. Graphs whose plans read the same share machine code, so a new
batch size costs a plan, not a compilation. A program that cannot finish (an index out of range) leaves no result; `run`
then asks the reference meaning of the graph for the error to raise.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
import time
from collections.abc import Sequence
from dataclasses import field
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from tracegrad import passes
from tracegrad.avals import COMPILED, is_huge
from tracegrad.codegen.entry import EntrySpec, InputSpec, OutputSpec
from tracegrad.codegen.module import build_module
from tracegrad.codegen.nested import Repeat
from tracegrad.codegen.nested_llvm import CAPACITY
from tracegrad.codegen.plan import RELEASE_GIL_COST, Plan, calls_of, plan, plans_of, rare_functions
from tracegrad.codegen.steps import Launch, Matmul
from tracegrad.codegen.support import support_module
from tracegrad.codegen.vecmath import rare_module
from tracegrad.errors import CapacityError, TracegradError
from tracegrad.ir import Graph, run
from tracegrad.ir.builder import RECORDERS
from tracegrad.records import record
from tracegrad.runtime import blas, native, threads
from tracegrad.runtime.cache import default_cache
from tracegrad.runtime.entry import MISS, make_callable
from tracegrad.runtime.looks import look_address
from tracegrad.signals import uninterrupted

__all__ = ["MISS", "Program", "Report", "compile_program", "conformed", "machine_code_count"]


@record()
class Report:
    """What happened to a graph on its way to machine code; `seconds` by stage."""

    optimized: Graph
    plan: Plan
    key: str
    cache: str  # "memory", "disk" or "compiled"
    seconds: dict[str, float] = field(default_factory=dict)


_UNUSED = np.zeros((), np.int64)
_CANONICAL = {dtype: dtype for dtype in COMPILED}


def conformed(x: Any) -> Any:
    """A leaf as programs take it: a float, or an array that is nothing but its elements in a row.

    Integers of more than 64 bits are constants of their trace.
    """
    if type(x) is float:
        return x
    array = x
    if type(x) is not np.ndarray:
        if is_huge(x):
            return _UNUSED
        array = np.asarray(x)
    dtype = _CANONICAL[array.dtype]  # entry points know dtypes by identity
    if type(array) is np.ndarray and array.dtype is dtype and array.flags.c_contiguous and array.flags.aligned:
        return array
    return np.require(array, dtype, ("C", "A")).view(np.ndarray).view(dtype)


class Program:
    """A compiled graph.

    `entry(*leaves)` returns the output (or the tuple of outputs), or `MISS` when a leaf is not exactly what the program
    was compiled for; it checks everything itself and costs a few hundred nanoseconds at most.
    """

    def __init__(self, graph: Graph, kinds: tuple[str, ...], single: bool, name: str, checked: bool = False):
        self.graph, self.kinds, self.single, self.name, self.checked = graph, kinds, single, name, checked
        self._callback: _NumPyCalls | None = None
        self.report = self._compile()

    def run(self, leaves: Sequence[Any]) -> Any:
        """The outputs for leaves of the right dtype, shape and memory order; raises what the ops raise."""
        result, error = self._attempt(leaves)
        if result is not MISS:
            return result
        outputs = tuple(x[()] if x.ndim == 0 else x for x in run(self.graph, leaves))
        if error is not None:
            raise error
        given, wanted = ", ".join(map(_described, leaves)), ", ".join(map(str, self.graph.avals))
        raise TracegradError(
            f"program {self.name or 'without a name'} takes {wanted} and was given {given}, for which the reference "
            f"gives {outputs!r}; if these leaves are what it takes, please report this"
        )

    def attempt(self, leaves: Sequence[Any]) -> Any:
        """As `run`, but None when an op raises: who runs the function as it is will see the exception."""
        result, _ = self._attempt(leaves)
        return None if result is MISS else result

    def _attempt(self, leaves: Sequence[Any]) -> tuple[Any, BaseException | None]:
        self._failure()  # of a call of `entry`, which could only return MISS
        result = self.entry(*leaves)
        if result is not MISS:
            return result, None
        error = self._failure()
        if isinstance(error, CapacityError):
            raise error
        return MISS, error

    def _failure(self) -> BaseException | None:
        """What the last call of an op raised in this thread; raises it here if it is an interrupt or an exit."""
        if self._callback is None:
            return None
        error, self._callback.failed.error = self._callback.failed.error, None
        if error is not None and not isinstance(error, Exception):
            raise error
        return error

    def _compile(self) -> Report:
        seconds: dict[str, float] = {}
        clock = _Clock(seconds)
        optimized = passes.optimize(self.graph)
        clock.stage("passes")
        made = plan(optimized, self.checked)
        clock.stage("plan")
        with uninterrupted():
            code, key, cached = _machine_code(made)
            clock.stage("compile" if cached == "compiled" else "load")
            self.entry = self._callable(made, code)
            clock.stage("link")
        return Report(optimized, made, key, cached, seconds)

    def _callable(self, made: Plan, code: native.NativeCode) -> Any:
        graph = made.graph
        inputs = tuple(InputSpec(a.dtype, a.ndim, kind) for a, kind in zip(graph.avals, self.kinds))  # type: ignore[arg-type]
        results = graph.outputs[:-1] if self.checked else graph.outputs
        outputs = tuple(OutputSpec(x.aval.dtype, x.aval.ndim) for x in results)
        addresses = _support_addresses(made)
        called = _functions(made)
        if "callback" in called.values():
            self._callback = _NumPyCalls(made)
            addresses["callback"] = self._callback.address
        released = made.cost >= RELEASE_GIL_COST
        if "tg_look" in called.values():
            addresses["tg_look"] = look_address(released)
        values = {name: addresses.get(called[name], value) for name, value in made.values.items()}
        return make_callable(
            code,
            EntrySpec(inputs, outputs, returns_tuple=not self.single),
            input_shapes=[a.shape for a in graph.avals],
            output_shapes=[x.aval.shape for x in results],
            arena_bytes=made.arena_bytes,
            values=list(values.values()),
            release_gil=released,
            name=self.name or "program",
        )


def _described(x: Any) -> str:
    if not isinstance(x, np.ndarray):
        return type(x).__name__
    flaw = "" if x.flags.c_contiguous and x.flags.aligned else " (not in row-major order, or not aligned)"
    return f"{type(x).__name__} of {x.dtype}{list(x.shape)}{flaw}"


class _Clock:
    def __init__(self, seconds: dict[str, float]):
        self._seconds, self._last = seconds, time.perf_counter()

    def stage(self, name: str) -> None:
        now = time.perf_counter()
        self._seconds[name], self._last = now - self._last, now


class _NumPyCalls:
    """The callback through which compiled code calls ops that have no codegen data."""

    def __init__(self, made: Plan):
        self._calls = calls_of(made)
        self.failed = _Failure()
        prototype = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.POINTER(ctypes.c_void_p))
        self._function = prototype(self._call)
        self.address: int = ctypes.cast(self._function, ctypes.c_void_p).value or 0

    def _call(self, number: int, pointers: Any) -> int:
        try:
            if number == CAPACITY:
                raise CapacityError("while_loop: more turns than there is room for their results")
            step = self._calls[number]
            node = step.node
            assert node.op is not None
            results = node.aval if node.several else (node.aval,)
            used = [i for i, out in enumerate(step.outs) if out]
            avals = [*(x.aval for x in node.operands), *(results[i] for i in used)]  # type: ignore[index]
            arrays = iter([_view(pointers[k], aval) for k, aval in enumerate(avals)])
            operands = [next(arrays) if hasattr(x, "aval") else x for x in node.inputs]
            with np.errstate(all="ignore"):
                answer = node.op.impl(*operands, **dict(node.params))
            for i, out in zip(used, arrays):
                out[...] = answer[i] if node.several else answer
        except BaseException as error:  # `Program.run` raises it again
            self.failed.error = error.with_traceback(None)  # whose frames hold views of memory that is gone
            return 2
        return 0


class _Failure(threading.local):
    """What a called op raised, by thread."""

    error: BaseException | None = None


def _view(address: int, aval: Any) -> Any:
    buffer = (ctypes.c_char * max(aval.size * aval.dtype.itemsize, 1)).from_address(address)
    return np.frombuffer(buffer, aval.dtype, aval.size).reshape(aval.shape)


# -- machine code ----------------------------------------------------------------------------------------
_loaded: WeakValueDictionary[str, native.NativeCode] = WeakValueDictionary()  # code lives as long as its programs
_lock = threading.Lock()
_in_progress: dict[str, threading.Lock] = {}
_compiled = 0
_support: dict[str, native.NativeCode] = {}
_support_lock = threading.Lock()


def machine_code_count() -> int:
    """How many pieces of machine code this process has compiled (not loaded from the disk cache)."""
    return _compiled


def _machine_code(made: Plan) -> tuple[native.NativeCode, str, str]:
    """The machine code of a plan, its key, and where it came from; several threads compile one key once."""
    text = made.text()
    key = hashlib.sha256(f"{native.cpu_key()}\n{text}".encode()).hexdigest()
    with _lock:
        if (code := _loaded.get(key)) is not None:
            return code, key, "memory"
        mine = _in_progress.setdefault(key, threading.Lock())
    with mine:
        if (code := _loaded.get(key)) is not None:
            return code, key, "memory"
        try:
            _define_symbols(made)
            code, origin = _from_disk_or_compiler(made, key)
            with _lock:
                _loaded[key] = code
        finally:
            _in_progress.pop(key, None)
        return code, key, origin


def _from_disk_or_compiler(made: Plan, key: str) -> tuple[native.NativeCode, str]:
    global _compiled
    found = default_cache().get(key)
    if found is not None:
        return native.load_object(found[1]), "disk"
    data = native.compile_ir(build_module(made), f"tracegrad.{key[:16]}")
    default_cache().put(key, {"kind": "program"}, data)
    with _lock:
        _compiled += 1
    return native.load_object(data), "compiled"


def _define_symbols(made: Plan) -> None:
    """Give the code the addresses of BLAS and of the functions it shares, loaded when first needed."""
    for symbol in rare_functions(made):
        native.define_symbol(symbol, _support_code(symbol).address(symbol))
    for step in [s for each in plans_of(made) for s in each.steps]:
        if isinstance(step, Matmul):
            routine = "dgemm" if step.dtype == "f64" else "sgemm"
            native.define_symbol(f"tg_{routine}", blas.address(routine))


def _support_addresses(made: Plan) -> dict[str, int]:
    """The addresses of the functions that these shapes use; the others are not loaded for them."""
    plans = list(plans_of(made))
    launches = [s for each in plans for s in each.steps if isinstance(s, Launch | Repeat)]
    if not any(s.chunks > 1 for s in launches) and not any(each.fills[i] for each in plans for i in each.fills):
        return {}
    names = dict.fromkeys(_functions(made).values())
    shared = [name for name in names if name.startswith("tg_") and name not in ("tg_parallel_for", "tg_look")]
    found = {name: _support_code(name).address(name) for name in shared}
    if any(s.parallel for s in launches):
        found["tg_parallel_for"] = threads.parallel_for_address()
    return found


def _functions(made: Plan) -> dict[str, str]:
    """The names of all words without those of the regions that they belong to: what a function is called in each."""
    return {name: name.rpartition("/")[2] if "/" in name else name for name in made.values}


def _support_code(name: str) -> native.NativeCode:
    """A function that programs share, as machine code; loaded once, since programs keep its address only."""
    make = rare_module if name.startswith("tg.rare_") else support_module
    with _support_lock:
        if name not in _support:
            _support[name] = native.load_ir(lambda: make(name), name)
        return _support[name]


def compile_program(
    graph: Graph, kinds: tuple[str, ...], single: bool, name: str = "", checked: bool = False
) -> Program:
    """The program of `graph`.

    `kinds` says for every input whether it is an "array" or a Python "float" (a 0-d float64 value); with `single` the
    only output is returned by itself, else a tuple. With `checked` the last output is a boolean that is not returned:
    `entry` returns MISS where it is False.
    """
    before = RECORDERS.current
    try:
        return Program(graph, kinds, single, name, checked)
    except BaseException:
        RECORDERS.current = before  # a signal may have come while it was about to be restored
        raise
