"""Programs: a graph compiled for its shapes, and called.

`compile_program` optimises the graph, plans it, finds the machine code of each of its pieces (in memory, on disk, or by
compiling it) and makes a callable of them for these shapes. What programs have in common they share: a new batch size
costs a plan, not a compilation. A program that cannot finish (an index out of range) leaves no result; `run` then asks
the reference meaning of the graph for the error to raise.

A program whose machine code is not known may be answered by a replay at first (`tracegrad.runtime.tiers`).
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from tracegrad import passes
from tracegrad.avals import COMPILED, is_huge
from tracegrad.codegen.entry import RUN, EntrySpec, InputSpec, OutputSpec
from tracegrad.codegen.nested_llvm import CAPACITY
from tracegrad.codegen.orders import CALLBACK, ROUTINES, Order, orders_of, pieces_of
from tracegrad.codegen.pieces import Piece
from tracegrad.codegen.plan import RELEASE_GIL_COST, Plan, calls_of, plan, plans_of, rare_functions
from tracegrad.codegen.steps import Matmul
from tracegrad.codegen.walker import WALK
from tracegrad.errors import CapacityError, TracegradError
from tracegrad.ir import Graph, run
from tracegrad.ir.builder import RECORDERS
from tracegrad.logs import log
from tracegrad.records import record
from tracegrad.runtime import blas, native, threads
from tracegrad.runtime.entry import MISS, make_callable
from tracegrad.runtime.looks import look_address
from tracegrad.runtime.machine_code import Loaded, Origin, machine_code, machine_code_count, missing, shared_function
from tracegrad.runtime.progress import compiling
from tracegrad.runtime.tiers import Tier, tier_of
from tracegrad.signals import uninterrupted

__all__ = ["MISS", "Program", "Report", "compile_program", "conformed", "machine_code_count"]


@record()
class Report:
    """What happened to a graph on its way to machine code; `seconds` by stage."""

    optimized: Graph
    plan: Plan
    pieces: list[tuple[list[int], Origin]] | None  # of machine code: the numbers of the steps that each runs
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """What programs have in common that consist of the same machine code."""
        return hashlib.sha256(f"{native.cpu_key()}\n{self.plan.text()}".encode()).hexdigest()

    @property
    def cache(self) -> str:
        """Where the machine code came from: "compiled" or "disk" if a piece of it did, else "memory"; or "replay" while
        there is none."""
        if self.pieces is None:
            return "replay"
        sources = {origin.source for _, origin in self.pieces}
        return next((source for source in ("compiled", "disk") if source in sources), "memory")


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
    """A compiled graph, or one that is going to be.

    `entry(*leaves)` returns the output (or the tuple of outputs), or `MISS` when a leaf is not exactly what the program
    was compiled for; it checks everything itself and costs a few hundred nanoseconds at most. While there is no machine
    code it returns `MISS`, and `tier` says how calls are answered.
    """

    def __init__(
        self, graph: Graph, kinds: tuple[str, ...], single: bool, name: str, checked: bool = False,
        first_call: str = "compile", optimize: int = 2,
    ):  # fmt: skip
        self.graph, self.kinds, self.single, self.name, self.checked = graph, kinds, single, name, checked
        self.optimize = optimize
        self._callback: _NumPyCalls | None = None
        self._callbacks: list[_NumPyCalls] = []
        self.entry: Any = _not_yet
        with compiling(name):
            self.report = self._planned()
            self.tier: Tier | None = tier_of(first_call, graph, lambda: missing(_uses(self._orders)))
            if self.tier is None:
                self.compile()

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
        tier = self.tier  # which goes when another thread has compiled
        if tier is not None:
            found = tier.answers(self, leaves)
            if found is not None:
                return found.result, None
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

    def _planned(self) -> Report:
        seconds: dict[str, float] = {}
        clock = _Clock(seconds)
        optimized = passes.optimize(self.graph)
        clock.stage("passes")
        made = plan(optimized, self.checked)
        self._orders = orders_of(made, self.optimize)
        clock.stage("plan")
        return Report(optimized, made, None, seconds)

    def compile(self) -> None:
        """Find or make the machine code, if that has not been done. Threads may do so at once: each piece is made once,
        and who is last says what is called."""
        report, orders = self.report, self._orders
        if self.entry is not _not_yet:
            return
        start, uses = time.perf_counter(), _uses(orders)
        with compiling(self.name), uninterrupted():
            clock = _Clock(report.seconds)
            _define_symbols(report.plan)
            found = machine_code(uses)
            pieces = [(steps, found[piece][1]) for piece, steps in uses.items()]
            clock.stage("compile" if any(origin.source == "compiled" for _, origin in pieces) else "load")
            entry = self._callable(report.plan, orders, {piece: code for piece, (code, _) in found.items()})
            clock.stage("link")
            if self.tier is not None:
                log("compile", "%s: compiled in %.1f ms", self.name, 1e3 * (time.perf_counter() - start))
            report.pieces, self.entry, self.tier = pieces, entry, None
            self._orders = []

    def _callable(self, made: Plan, orders: Sequence[Order], pieces: dict[Piece, Loaded]) -> Any:
        graph = made.graph
        inputs = tuple(InputSpec(a.dtype, a.ndim, kind) for a, kind in zip(graph.avals, self.kinds))  # type: ignore[arg-type]
        results = graph.outputs[:-1] if self.checked else graph.outputs
        outputs = tuple(OutputSpec(x.aval.dtype, x.aval.ndim) for x in results)
        released = made.cost >= RELEASE_GIL_COST

        values: list[int] = [len(orders)]
        for address, words in self._addressed(made, orders, pieces):
            values += [len(words), address, *words]
        if len(orders) == 1:
            _, _, run, *values = values
        else:
            run = shared_function(WALK)
        return make_callable(
            _Code(run, tuple(pieces.values())),
            EntrySpec(inputs, outputs, returns_tuple=not self.single),
            input_shapes=[a.shape for a in graph.avals],
            output_shapes=[x.aval.shape for x in results],
            arena_bytes=made.arena_bytes,
            values=values,
            release_gil=released,
            name=self.name or "program",
        )

    def _addressed(
        self, made: Plan, orders: Sequence[Order], pieces: dict[Piece, Loaded]
    ) -> Iterator[tuple[int, list[int]]]:
        """For each order the address of its function, and its words."""
        released = made.cost >= RELEASE_GIL_COST

        def address(of: str | Piece) -> int:
            return self._address(of, made, released) if isinstance(of, str) else pieces[of].address

        for order in orders:
            words = [word if type(word) is int else address(word) for word in order.words]  # type: ignore[arg-type]
            yield address(order.function), words

    def linked(self) -> tuple[list[tuple[range, int, list[int]]], object]:
        """What a call does, in order: the steps of the plan, the address of the function that runs them, its words; and
        what has to live as long as one of these is called."""
        self.compile()
        made = self.report.plan
        orders = orders_of(made, self.optimize)
        with uninterrupted():
            pieces = {piece: code for piece, (code, _) in machine_code(_uses(orders)).items()}
        found = [(o.steps, *each) for o, each in zip(orders, self._addressed(made, orders, pieces))]
        return found, (self, pieces)

    def _address(self, name: str, made: Plan, released: bool) -> int:
        """The address of a function that is no piece of the program."""
        if name == CALLBACK:
            self._callbacks.append(_NumPyCalls(made))
            self._callback = self._callbacks[0]  # that of the thread that was first
            return self._callback.address
        if name == "tg_look":
            return look_address(released)
        if name == "tg_parallel_for":
            return threads.parallel_for_address()
        routine = name.removeprefix("tg_")
        return blas.address(routine) if routine in blas.ROUTINES else shared_function(name)


def _uses(orders: Sequence[Order]) -> dict[Piece, list[int]]:
    """The pieces that orders lead to, with the numbers of the steps that each is for."""
    uses: dict[Piece, list[int]] = {}
    for order in orders:
        for piece in pieces_of(order):
            for each in (*piece.needs, piece):
                uses.setdefault(each, []).extend(order.steps_of(piece))
    return uses


class _Code:
    """What a program runs: the address of a function of words, and the pieces that it leads to."""

    def __init__(self, address: int, keep: tuple[Loaded, ...]):
        self._addresses, self._keep = {RUN: address}, keep

    def address(self, symbol: str) -> int:
        return self._addresses[symbol]


def _define_symbols(made: Plan) -> None:
    """Give code that is about to be loaded the addresses of BLAS and of the functions that it shares with others."""
    for symbol in rare_functions(made):
        native.define_symbol(symbol, shared_function(symbol))
    for step in [s for each in plans_of(made) for s in each.steps]:
        if isinstance(step, Matmul):
            symbol = ROUTINES[step.dtype]
            native.define_symbol(symbol, blas.address(symbol.removeprefix("tg_")))


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


def compile_program(
    graph: Graph,
    kinds: tuple[str, ...],
    single: bool,
    name: str = "",
    checked: bool = False,
    first_call: str = "compile",
    optimize: int = 2,
) -> Program:
    """The program of `graph`.

    `kinds` says for every input whether it is an "array" or a Python "float" (a 0-d float64 value); with `single` the
    only output is returned by itself, else a tuple. With `checked` the last output is a boolean that is not returned:
    `entry` returns MISS where it is False. `first_call` and `optimize` are as in `settings`.
    """
    before = RECORDERS.current
    try:
        return Program(graph, kinds, single, name, checked, first_call, optimize)
    except BaseException:
        RECORDERS.current = before  # a signal may have come while it was about to be restored
        raise


def _not_yet(*leaves: Any) -> Any:
    """What is called of a program that has no machine code."""
    return MISS
