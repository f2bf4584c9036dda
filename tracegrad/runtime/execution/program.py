"""Programs: a graph compiled for its shapes, and called.

`compile_program` optimises the graph, plans it, finds the machine code of each of its pieces (in memory, on disk, or by
compiling it) and makes a callable of them for these shapes. What programs have in common they share: a new batch size
costs a plan, not a compilation. A program that cannot finish (an index out of range) leaves no result; `run` then asks
the reference meaning of the graph for the error to raise.

A program whose machine code is not known may be answered by a replay at first (`tracegrad.runtime.execution.tiers`).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from tracegrad import passes
from tracegrad.avals import SUPPORTED, Aval, is_constant
from tracegrad.codegen.plan.planner import Plan, plan
from tracegrad.codegen.program.compilation_units import Piece
from tracegrad.errors import CapacityError, TracegradError
from tracegrad.ir import Graph, run
from tracegrad.ir.builder import RECORDERS
from tracegrad.locks import cached_property
from tracegrad.ops.core.half import in_bits
from tracegrad.ops.elementwise.complex import lies
from tracegrad.runtime.compile import jit as native
from tracegrad.runtime.compile.code_store import Loaded, Origin, machine_code, machine_code_count, still_missing
from tracegrad.runtime.compile.progress import compiling
from tracegrad.runtime.execution import plan_cache as planned
from tracegrad.runtime.execution.entry_callable import MISS
from tracegrad.runtime.execution.image import Image, NumPyCalls, addressed, image_of, linked
from tracegrad.runtime.execution.strided_inputs import Lies, Strides, laid
from tracegrad.runtime.execution.tiers import Missing, Tier, missing_of, tier_of
from tracegrad.utils.deferred_signals import uninterrupted
from tracegrad.utils.lazy_dataclass import record
from tracegrad.utils.log import log

__all__ = ["MISS", "Program", "Recalled", "Report", "Unplanned", "compile_program", "conformed", "machine_code_count"]


@record()
class Report:
    """What happened to a graph on its way to machine code; `seconds` by stage. It is made when it is asked for."""

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
        return "replay" if self.pieces is None else _whence([origin for _, origin in self.pieces])


def _whence(origins: Iterable[Origin]) -> str:
    sources = {origin.source for origin in origins}
    return next((source for source in ("compiled", "disk") if source in sources), "memory")


_UNUSED = np.zeros((), np.int64)
_CANONICAL = {dtype: dtype for dtype in SUPPORTED}


def conformed(x: Any) -> Any:
    """A leaf as programs take it: a float, or an array that is nothing but its elements in a row.

    Complex numbers of Python's, and integers of more than 64 bits, are constants of their trace.
    """
    if type(x) is float:
        return x
    array = x
    if type(x) is not np.ndarray:
        if is_constant(x):
            return _UNUSED
        array = np.asarray(x)
    dtype = _CANONICAL[array.dtype]  # a long long is a long
    if type(array) is np.ndarray and array.dtype is dtype and array.flags.c_contiguous and array.flags.aligned:
        return array
    return np.require(array, dtype, ("C", "A")).view(np.ndarray).view(dtype)


def as_taken(inputs: Sequence[Any], lies: Lies) -> list[Any]:
    """Inputs as a program takes them that reads some arrays as they lie; `lies` says which, or nothing if none."""
    return [x if lie and lie.strides else conformed(x) for x, lie in zip(inputs, lies or (None,) * len(inputs))]


class Program:
    """A compiled graph, or one that is going to be.

    `entry(*leaves)` returns the output (or the tuple of outputs), or `MISS` when a leaf is not exactly what the program
    was compiled for; it checks everything itself and costs a few hundred nanoseconds at most. While there is no machine
    code it returns `MISS`, and `tier` says how calls are answered.
    """

    # Whether another process has made it.
    recalled = False

    def __init__(
        self, graph: Graph, kinds: tuple[str, ...], single: bool, name: str, checked: bool = False,
        first_call: str = "compile", optimize: int = 2, donated: Collection[int] = (),
        strides: Sequence[Strides | None] = (),
    ):  # fmt: skip
        self.graph, self.kinds, self.single, self.name, self.checked = graph, kinds, single, name, checked
        self.first_call, self.optimize, self._donated, self._strides = first_call, optimize, donated, strides
        self._callback: NumPyCalls | None = None
        self._callbacks: list[NumPyCalls] = []
        self.entry: Any = _not_yet
        self._seconds: dict[str, float] = {}
        self._origins: dict[Piece, Origin] | None = None
        with compiling(name):
            self._prepare()
            self.tier: Tier | None = tier_of(first_call, graph, lambda: missing_of(self.image))
            if self.tier is None:
                self.compile()

    @property
    def donors(self) -> Collection[int]:
        """The inputs that a call overwrites."""
        return [j for _, j in self.image.donors]

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

    def _prepare(self) -> None:
        """Find the image, of an equal graph or by planning."""
        clock = _Clock(self._seconds)
        how = self.kinds, self.single, self.checked, self.optimize, self._donated, self._strides
        key, size = planned.key_of(self.graph, *how)
        found = planned.known(key)
        if found is None:
            optimized, made = self._planned(clock)
            foreseen = sum([n.op is not None and n.op.form.foreseen for n in optimized.nodes])
            found = planned.Planned(self._image_of(made), foreseen)
            planned.note(key, size, found)
        clock.stage("plan")
        self.image, self.foreseen = found.image, found.foreseen

    def _image_of(self, made: Plan) -> Image:
        return image_of(made, self.graph, self.kinds, self.single, self.checked, self.optimize, self._strides)

    def _planned(self, clock: _Clock) -> tuple[Graph, Plan]:
        graph = laid(self.graph, self._strides) if self._strides else self.graph
        optimized = passes.optimize(passes.without_half(passes.without_complex(graph)))
        clock.stage("passes")
        return optimized, plan(optimized, self.checked, _given_away(self.graph, self._donated))

    @cached_property
    def report(self) -> Report:
        """What has happened to the graph, for who asks: it is planned again, for a plan is larger than its program."""
        before = RECORDERS.current
        try:
            optimized, made = self._planned(_Clock({}))
        except BaseException:
            RECORDERS.current = before
            raise
        self.image = self._image_of(made)
        return Report(optimized, made, self._pieces(), self._seconds)

    def _pieces(self) -> list[tuple[list[int], Origin]] | None:
        """The pieces of machine code, if there is any, by the steps that they are for."""
        origins = self._origins
        if origins is None:
            return None
        uses = self.image.uses
        if uses.keys() != origins.keys():
            origins = {piece: origins.get(piece, origin) for piece, (_, origin) in machine_code(uses).items()}
        return [(steps, origins[piece]) for piece, steps in uses.items()]

    @property
    def cache(self) -> str:
        """Where the machine code came from, as `Report.cache`."""
        return "replay" if self._origins is None else _whence(self._origins.values())

    def compile(self) -> None:
        """Find or make the machine code, if that has not been done. Threads may do so at once: each piece is made once,
        and who is last says what is called."""
        if self.entry is not _not_yet:
            return
        start, image = time.perf_counter(), self.image
        with compiling(self.name), uninterrupted():
            clock = _Clock(self._seconds)
            image.define_symbols()
            found = machine_code(image.uses)
            origins = {piece: origin for piece, (_, origin) in found.items()}
            clock.stage("compile" if _whence(origins.values()) == "compiled" else "load")
            entry = self._entry(image, {piece: code for piece, (code, _) in found.items()})
            clock.stage("link")
            if self.tier is not None:
                log("compile", "%s: compiled in %.1f ms", self.name, 1e3 * (time.perf_counter() - start))
            self._origins, self.entry, self.tier = origins, entry, None
            if "report" in vars(self):
                self.report.pieces = self._pieces()

    def _entry(self, image: Image, pieces: dict[Piece, Loaded]) -> Any:
        return linked(image, pieces, self._address_of_calls, self.name or "program")

    def linked(self, released: bool | None = None) -> tuple[list[tuple[range, tuple[int, list[int]]]], object]:
        """What a call does, in order: the steps of the plan, the address of the function that runs them, its words; and
        what has to live as long as one of these is called. `released` says whether callers have no GIL, where that is
        not as it is with calls of `entry`."""
        self.compile()
        image = self.image if released is None else replace(self.image, released=released)
        with uninterrupted():
            pieces = {piece: code for piece, (code, _) in machine_code(self.image.uses).items()}
        steps = [order.steps for order in image.orders]
        return list(zip(steps, addressed(image, pieces, self._address_of_calls))), (self, pieces)

    def _address_of_calls(self) -> int:
        if not self._callbacks:
            self._callbacks.append(NumPyCalls(self.image.calls))
        self._callback = self._callbacks[0]  # that of the thread that was first
        return self._callback.address


class Recalled(Program):
    """A program that another process has made, of a graph that is asked for when something goes wrong. Its machine code
    has to be known."""

    recalled = True

    def __init__(self, image: Image, graph: Callable[[], Graph], checked: bool, name: str, optimize: int):
        self.image, self.single, self.checked, self.name, self._graph = image, image.single, checked, name, graph
        self.first_call, self.optimize = "compile", optimize
        self.kinds = tuple([kind for _, kind in image.inputs])
        self._callback, self._callbacks, self.tier = None, [], None
        with uninterrupted():
            image.define_symbols()
            self.entry = self._entry(image, {piece: code for piece, (code, _) in machine_code(image.uses).items()})

    @cached_property
    def graph(self) -> Graph:  # type: ignore[override]
        """The graph of the program."""
        return self._graph()

    @cached_property
    def report(self) -> Report:
        """The report of the program that is made of the same graph in this process."""
        made = compile_program(self.graph, self.kinds, self.single, self.name, self.checked, optimize=self.optimize)
        return made.report


class Unplanned(Program):
    """A program of a graph that another process has traced and replayed: it is planned when it is compiled.

    `missing` says what it costs to compile the pieces that had to be, as far as is known, and `spent` is what processes
    have spent on first calls.
    """

    recalled = True

    def __init__(
        self, graph: Graph, kinds: tuple[str, ...], single: bool, name: str, checked: bool, first_call: str,
        optimize: int, missing: Mapping[str, float], spent: float,
    ):  # fmt: skip
        self.graph, self.kinds, self.single, self.name, self.checked = graph, kinds, single, name, checked
        self._donated, self._strides = (), ()
        self.first_call, self.optimize = first_call, optimize
        self._callback, self._callbacks, self.entry = None, [], _not_yet
        self._seconds, self._origins = {}, None
        self.tier = tier_of(first_call, self.graph, lambda: _still(missing), spent)
        if self.tier is None:
            self.compile()

    @cached_property
    def image(self) -> Image:  # type: ignore[override]
        """The program as data."""
        before = RECORDERS.current
        try:
            self._prepare()
        except BaseException:
            RECORDERS.current = before
            raise
        found: Image = vars(self)["image"]
        return found


def _given_away(graph: Graph, donated: Collection[int]) -> Collection[int]:
    """Those of the inputs that are `donated` for which no output of another dtype can be taken: the plan knows complex
    arrays by their parts, and those of half precision by their bits."""
    if not donated or all(x.dtype.char not in "eFD" for x in (*graph.avals, *graph.results)):
        return donated
    return [j for j in donated if not any(_looks_like(x, graph.avals[j]) for x in graph.results)]


def _looks_like(x: Aval, y: Aval) -> bool:
    """Whether two that are not of one dtype are to the plan."""
    return x != y and in_bits(lies(x)) == in_bits(lies(y))


def _still(missing: Mapping[str, float]) -> Missing:
    """What is missing still."""
    return Missing({key: missing[key] for key in still_missing(missing)})


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


def compile_program(
    graph: Graph,
    kinds: tuple[str, ...],
    single: bool,
    name: str = "",
    checked: bool = False,
    first_call: str = "compile",
    optimize: int = 2,
    donated: Collection[int] = (),
    strides: Sequence[Strides | None] = (),
) -> Program:
    """The program of `graph`.

    `kinds` says for every input whether it is an "array" or a Python "float" (a 0-d float64 value); with `single` the
    only output is returned by itself, else a tuple. With `checked` the last output is a boolean that is not returned:
    `entry` returns MISS where it is False. `first_call` and `optimize` are as in `settings`. Inputs that are `donated`
    may be overwritten: some results, of the same shape and dtype, are then these arrays. Inputs with `strides`, one for
    each input, lie in memory by these: see `layouts.laid`.
    """
    before = RECORDERS.current
    try:
        return Program(graph, kinds, single, name, checked, first_call, optimize, donated, strides)
    except BaseException:
        RECORDERS.current = before  # a signal may have come while it was about to be restored
        raise


def _not_yet(*leaves: Any) -> Any:
    """What is called of a program that has no machine code."""
    return MISS
