"""Compile a graph for its shapes to a program, and call it.

`compile_program` optimizes the graph, plans it, finds the machine code of each compilation unit (in memory, on disk, or
by compiling it) and makes a callable for these shapes. Programs share their common units: a new batch size costs a
plan, not a compilation. A program that cannot finish (an index out of range) has no result. `run` then interprets the
graph to find the error to raise.

Before its machine code exists, a program may be interpreted by NumPy (`tracegrad.runtime.execution.tiers`).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import passes
from tracegrad.avals import SUPPORTED, Aval, is_constant
from tracegrad.codegen.plan.planner import plan
from tracegrad.codegen.plan.program_plan import Plan
from tracegrad.codegen.program.compilation_units import CompilationUnit
from tracegrad.errors import CapacityError, TracegradError
from tracegrad.ir import Graph, run
from tracegrad.locks import cached_property
from tracegrad.ops.core.half import in_bits
from tracegrad.ops.core.recorders import RECORDERS
from tracegrad.ops.elementwise.complex import memory_aval
from tracegrad.runtime.compile import jit
from tracegrad.runtime.compile.code_store import CodeOrigin, Loaded, machine_code, machine_code_count, still_missing
from tracegrad.runtime.compile.progress import compiling
from tracegrad.runtime.execution import plan_cache
from tracegrad.runtime.execution.entry_callable import MISS
from tracegrad.runtime.execution.image import NumPyCallback, ProgramImage, addressed, build_image, linked
from tracegrad.runtime.execution.strided_inputs import InputLayouts, Strides, with_strided_inputs
from tracegrad.runtime.execution.tiers import Missing, Tier, missing_of, tier_of
from tracegrad.settings import leaving_out, left_out
from tracegrad.utils.deferred_signals import uninterrupted
from tracegrad.utils.lazy_dataclass import record
from tracegrad.utils.log import log

if TYPE_CHECKING:
    from tracegrad.typing import Array


__all__ = [
    "MISS",
    "Program",
    "Report",
    "RestoredProgram",
    "Unplanned",
    "compile_program",
    "conformed",
    "machine_code_count",
]


@record()
class Report:
    """The compilation report of a graph, made on demand; `seconds` are per stage."""

    optimized: Graph
    plan: Plan
    units: list[tuple[list[int], CodeOrigin]] | None  # compilation units, with the steps that each runs
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """A key that is equal for programs with the same machine code."""
        return hashlib.sha256(f"{jit.cpu_key()}\n{self.plan.text()}".encode()).hexdigest()

    @property
    def cache(self) -> str:
        """The origin of the machine code: "compiled" or "disk" if a unit of it was, else "memory"; "replay" if there is
        none yet."""
        return "replay" if self.units is None else _whence([origin for _, origin in self.units])


def _whence(origins: Iterable[CodeOrigin]) -> str:
    sources = {origin.source for origin in origins}
    return next((source for source in ("compiled", "disk") if source in sources), "memory")


_UNUSED = np.zeros((), np.int64)
_CANONICAL = {dtype: dtype for dtype in SUPPORTED}


def conformed(x: Any) -> Any:
    """A leaf as programs take it: a float, or a row-major array.

    Complex numbers of Python, and integers of more than 64 bits, are constants of their trace.
    """
    if type(x) is float:
        return x
    array = x
    if type(x) is not np.ndarray:
        if is_constant(x):
            return _UNUSED
        array = np.asarray(x)
    dtype = _CANONICAL[array.dtype]  # long long becomes long
    if type(array) is np.ndarray and array.dtype is dtype and array.flags.c_contiguous and array.flags.aligned:
        return array
    return np.require(array, dtype, ("C", "A")).view(np.ndarray).view(dtype)


def conformed_inputs(inputs: Sequence[Any], layouts: InputLayouts) -> list[Any]:
    """Inputs as a program takes them; arrays with strides in `layouts` are not copied."""
    return [
        x if layout and layout.strides else conformed(x) for x, layout in zip(inputs, layouts or (None,) * len(inputs))
    ]


class Program:
    """A compiled graph, or one to be compiled.

    `entry(*leaves)` returns the output (or the tuple of outputs), or `MISS` if a leaf does not fit the compiled
    signature, which it checks itself. Before there is machine code it returns `MISS`, and `tier` answers calls.
    """

    # Whether it was restored from disk.
    restored = False

    def __init__(
        self,
        graph: Graph,
        kinds: tuple[str, ...],
        single: bool,
        name: str,
        checked: bool = False,
        first_call: str = "compile",
        optimize: int = 2,
        donated: Collection[int] = (),
        strides: Sequence[Strides | None] = (),
    ):
        self.graph, self.kinds, self.single, self.name, self.checked = graph, kinds, single, name, checked
        self.first_call, self.optimize, self._donated, self._strides = first_call, optimize, donated, strides
        self._left_out = left_out()
        self._callback: NumPyCallback | None = None
        self._callbacks: list[NumPyCallback] = []
        self.entry: Any = _not_yet
        self._seconds: dict[str, float] = {}
        self._origins: dict[CompilationUnit, CodeOrigin] | None = None
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
        """Run the program on leaves of the right dtype, shape and memory order; raises what the ops raise."""
        result, error = self._attempt(leaves)
        if result is not MISS:
            return result
        outputs = tuple(x[()] if x.ndim == 0 else x for x in run(self.graph, leaves))
        if error is not None:
            raise error
        args, wanted = ", ".join(map(_described, leaves)), ", ".join(map(str, self.graph.avals))
        raise TracegradError(
            f"program {self.name or 'without a name'} takes {wanted} and was given {args}, for which the reference "
            f"gives {outputs!r}; if these leaves are what it takes, please report this"
        )

    def attempt(self, leaves: list[Array | float]) -> object:
        """As `run`, but None if an op raises: the caller runs the function as plain Python and sees the exception."""
        result, _ = self._attempt(leaves)
        return None if result is MISS else result

    def _attempt(self, leaves: Sequence[Any]) -> tuple[Any, BaseException | None]:
        tier = self.tier  # None once another thread has compiled
        if tier is not None:
            tier_result = tier.run_call(self, leaves)
            if tier_result is not None:
                return tier_result.result, None
        self._failure()  # discard the failure of a call of `entry`, which returned MISS
        result = self.entry(*leaves)
        if result is not MISS:
            return result, None
        error = self._failure()
        if isinstance(error, CapacityError):
            raise error
        return MISS, error

    def _failure(self) -> BaseException | None:
        """The exception of the last call of an op in this thread; an interrupt or an exit is raised here."""
        if self._callback is None:
            return None
        error, self._callback.failed.error = self._callback.failed.error, None
        if error is not None and not isinstance(error, Exception):
            raise error
        return error

    def _prepare(self) -> None:
        """Find the image of an equal graph, or plan the graph."""
        clock = _Clock(self._seconds)
        with leaving_out(self._left_out):
            how = self.kinds, self.single, self.checked, self.optimize, self._donated, self._strides
            key, size = plan_cache.key_of(self.graph, *how)
            result = plan_cache.known(key)
            if result is None:
                optimized, output = self._planned(clock)
                foreseen = sum([n.op is not None and n.op.form.foreseen for n in optimized.nodes])
                result = plan_cache.Planned(self._build_image(output), foreseen)
                plan_cache.note(key, size, result)
            clock.stage("plan")
            self.image, self.foreseen = result.image, result.foreseen

    def _build_image(self, plan: Plan) -> ProgramImage:
        return build_image(plan, self.graph, self.kinds, self.single, self.checked, self.optimize, self._strides)

    def _planned(self, clock: _Clock) -> tuple[Graph, Plan]:
        graph = with_strided_inputs(self.graph, self._strides) if self._strides else self.graph
        optimized = passes.optimize(passes.without_half(passes.without_complex(graph)))
        clock.stage("passes")
        return optimized, plan(optimized, self.checked, _donatable(self.graph, self._donated))

    @cached_property
    def report(self) -> Report:
        """The compilation report. The graph is planned again, because plans are large and not retained."""
        before = RECORDERS.current
        try:
            with leaving_out(self._left_out):
                optimized, result = self._planned(_Clock({}))
                self.image = self._build_image(result)
        except BaseException:
            RECORDERS.current = before
            raise
        return Report(optimized, result, self._unit_origins(), self._seconds)

    def _unit_origins(self) -> list[tuple[list[int], CodeOrigin]] | None:
        """The compilation units with their origins, by steps; None without machine code."""
        origins = self._origins
        if origins is None:
            return None
        uses = self.image.uses
        if uses.keys() != origins.keys():
            origins = {unit: origins.get(unit, origin) for unit, (_, origin) in machine_code(uses).items()}
        return [(steps, origins[unit]) for unit, steps in uses.items()]

    @property
    def cache(self) -> str:
        """The origin of the machine code, as `Report.cache`."""
        return "replay" if self._origins is None else _whence(self._origins.values())

    def compile(self) -> None:
        """Find or make the machine code, unless it exists. Threads may call it at the same time: each unit is compiled
        once, and the last thread installs the entry."""
        if self.entry is not _not_yet:
            return
        start, image = time.perf_counter(), self.image
        with compiling(self.name), uninterrupted(), leaving_out(self._left_out):
            clock = _Clock(self._seconds)
            image.define_symbols()
            result = machine_code(image.uses)
            origins = {unit: origin for unit, (_, origin) in result.items()}
            clock.stage("compile" if _whence(origins.values()) == "compiled" else "load")
            entry = self._entry(image, {unit: code for unit, (code, _) in result.items()})
            clock.stage("link")
            if self.tier is not None:
                log("compile", "%s: compiled in %.1f ms", self.name, 1e3 * (time.perf_counter() - start))
            self._origins, self.entry, self.tier = origins, entry, None
            if "report" in vars(self):
                self.report.units = self._unit_origins()

    def _entry(self, image: ProgramImage, units: dict[CompilationUnit, Loaded]) -> object:
        return linked(image, units, self._callback_address, self.name or "program")

    def linked(self, released: bool | None = None) -> tuple[list[tuple[range, tuple[int, list[int]]]], object]:
        """The linked instructions of a call, in order: plan steps, function address, operands; and the objects that
        must live as long as they are called. `released` says whether callers have released the GIL, if not as for
        `entry`."""
        self.compile()
        image = self.image if released is None else replace(self.image, released=released)
        with uninterrupted():
            units = {unit: code for unit, (code, _) in machine_code(self.image.uses).items()}
        step_ranges = [order.steps for order in image.orders]
        return list(zip(step_ranges, addressed(image, units, self._callback_address))), (self, units)

    def _callback_address(self) -> int:
        if not self._callbacks:
            self._callbacks.append(NumPyCallback(self.image.calls))
        self._callback = self._callbacks[0]  # the callback of the first thread
        return self._callback.address


class RestoredProgram(Program):
    """A program restored from disk, whose graph is parsed only if something goes wrong. Its machine code must be
    cached."""

    restored = True

    def __init__(self, image: ProgramImage, graph: Callable[[], Graph], checked: bool, name: str, optimize: int):
        self.image, self.single, self.checked, self.name, self._graph = image, image.single, checked, name, graph
        self.first_call, self.optimize = "compile", optimize
        self.kinds = tuple([kind for _, kind in image.inputs])
        self._callback, self._callbacks, self.tier, self._left_out = None, [], None, left_out()
        with uninterrupted():
            image.define_symbols()
            self.entry = self._entry(image, {unit: code for unit, (code, _) in machine_code(image.uses).items()})

    @cached_property
    def graph(self) -> Graph:  # type: ignore[override]
        """The graph of the program."""
        return self._graph()

    @cached_property
    def report(self) -> Report:
        """The report of a program made from the same graph in this process."""
        result = compile_program(self.graph, self.kinds, self.single, self.name, self.checked, optimize=self.optimize)
        return result.report


class Unplanned(Program):
    """A program restored from disk without machine code: it is planned when it is compiled.

    `missing` are the known compile costs of its units, and `spent` is the time that processes have spent on first
    calls.
    """

    restored = True

    def __init__(
        self,
        graph: Graph,
        kinds: tuple[str, ...],
        single: bool,
        name: str,
        checked: bool,
        first_call: str,
        optimize: int,
        missing: Mapping[str, float],
        spent: float,
    ):
        self.graph, self.kinds, self.single, self.name, self.checked = graph, kinds, single, name, checked
        self._donated, self._strides, self._left_out = (), (), left_out()
        self.first_call, self.optimize = first_call, optimize
        self._callback, self._callbacks, self.entry = None, [], _not_yet
        self._seconds, self._origins = {}, None
        self.tier = tier_of(first_call, self.graph, lambda: _still(missing), spent)
        if self.tier is None:
            self.compile()

    @cached_property
    def image(self) -> ProgramImage:  # type: ignore[override]
        """The image of the program, planned at first use."""
        before = RECORDERS.current
        try:
            self._prepare()
        except BaseException:
            RECORDERS.current = before
            raise
        result: ProgramImage = vars(self)["image"]
        return result


def _donatable(graph: Graph, donated: Collection[int]) -> Collection[int]:
    """The `donated` inputs that cannot be confused with an output of another dtype: the plan represents complex arrays
    by their parts, and half precision by bits."""
    if not donated or all(x.dtype.char not in "eFD" for x in (*graph.avals, *graph.results)):
        return donated
    return [j for j in donated if not any(_is_confusable(x, graph.avals[j]) for x in graph.results)]


def _is_confusable(x: Aval, y: Aval) -> bool:
    """Whether two values of different dtypes look the same to the plan."""
    return x != y and in_bits(memory_aval(x)) == in_bits(memory_aval(y))


def _still(missing: Mapping[str, float]) -> Missing:
    """The units that are still missing."""
    return Missing({key: missing[key] for key in still_missing(missing)})


def _described(x: object) -> str:
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
    """Compile a graph to a program.

    `kinds` says for every input whether it is an "array" or a Python "float" (a 0-d float64 value); with `single` the
    only output is returned by itself, else a tuple. With `checked` the last output is a boolean that is not returned:
    `entry` returns MISS if it is False. `first_call` and `optimize` are as in `settings`. Inputs that are `donated` may
    be overwritten: some results, of the same shape and dtype, are then these arrays. `strides` are the memory layouts
    of the inputs, one for each: see `strided_inputs.with_strided_inputs`.
    """
    before = RECORDERS.current
    try:
        return Program(graph, kinds, single, name, checked, first_call, optimize, donated, strides)
    except BaseException:
        RECORDERS.current = before  # a signal may have interrupted the restoration
        raise


def _not_yet(*leaves: object) -> object:
    """The entry of a program without machine code."""
    return MISS
