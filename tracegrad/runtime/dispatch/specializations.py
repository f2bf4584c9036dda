"""Hold the leaves of the trace tree: a path is a program for one key, captured state, and guard values."""

from __future__ import annotations

import contextlib
import operator
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import CapacityError
from tracegrad.ir import Graph, evaluate
from tracegrad.locks import new_lock
from tracegrad.runtime.dispatch.call_class import class_with_call
from tracegrad.runtime.dispatch.fast_path import generate_fast_path
from tracegrad.runtime.dispatch.fast_path_header import Header, of_function, of_method
from tracegrad.runtime.execution.entry_callable import MISS, can_watch, release_arena
from tracegrad.runtime.execution.numpy_executor import execute_graph
from tracegrad.runtime.execution.program import Program, compile_program, conformed, conformed_inputs
from tracegrad.runtime.execution.strided_inputs import InputLayouts, copied, layouts_of, strides_of
from tracegrad.settings import disabled, settings
from tracegrad.target.tuning import TUNING
from tracegrad.trace.builder.facts import Fact
from tracegrad.trace.builder.value_guards import GuardValues, value_key
from tracegrad.trace.driver.trace import Trace
from tracegrad.trace.effects.effects import are_disjoint
from tracegrad.trace.sources.signature import Binder, BoundCall
from tracegrad.trace.world.view_bases import views_of

if TYPE_CHECKING:
    from tracegrad.runtime.dispatch.compiled_backward import OnTape
    from tracegrad.runtime.dispatch.dispatcher import Dispatcher
    from tracegrad.runtime.dispatch.trace_store import TraceRecords
    from tracegrad.typing import NDArray

ROOM = TUNING.dispatch.residual_rows
MAX_DONATED_PAIRS = TUNING.dispatch.max_donated_pairs
LEAST_CHECKED = TUNING.dispatch.min_strided_bytes
MAX_FAST_PATHS = TUNING.dispatch.max_fast_paths
MAX_LAYOUTS = TUNING.dispatch.max_layouts
COMPILE_NEXT = object()  # placeholder of a program that the next call makes


class TracePath:
    """A program for one key, one state of the captured variables, and one sequence of guard values."""

    def __init__(self, trace: Trace, program: Any, seconds: dict[str, float], on_tape: OnTape | None = None):
        self.trace, self.program, self.seconds, self.on_tape = trace, program, seconds, on_tape
        self.keys = tuple(map(value_key, trace.script))
        self._writes = bool(trace.groups or trace.written)
        self.fast_paths: dict[Any, Any] = {}
        self._last: list[Any] = []
        self._generators: tuple[int, ...] = ()
        self._entries: dict[Any, Any] = {}
        # Programs for strided inputs, by strides.
        self._strided_programs: dict[Any, Any] = {}
        self._disabled = settings.disable
        self.stored_stage = 0  # stage in the disk cache: 1 is its graph, 2 its program
        self.record = b""  # its stored record

    def may_hold(self, guard_values: GuardValues) -> bool:
        """Whether the path may hold for a call with these first guard values."""
        keys = guard_values.keys
        return self.trace.facts != guard_values.facts or self.keys[: len(keys)] == keys

    def repeats_generators(self, call: BoundCall) -> bool:
        """Whether the call has the random generators of the last call, or none. A fast path
        is bound to its generators, so it is made only for repeated ones."""
        if not call.generators:
            return True
        result = call.passed_generators()
        same = len(result) == len(self._last) and all(map(operator.is_, result, self._last))
        self._last, self._generators = result, tuple(map(id, result))
        return same and len(self.fast_paths) < MAX_FAST_PATHS

    def has_fast_path(self, form: tuple[Any, ...]) -> bool:
        """Whether a fast path exists for calls of this form, with the generators of the last one."""
        return (*form, *self._generators) in self.fast_paths

    def fast_path(
        self,
        binder: Binder,
        call: BoundCall,
        plain: type,
        name: str,
        donated: tuple[int, ...] = (),
        layouts: InputLayouts = (),
    ) -> Any:
        """The fast path for calls like `call`: a subclass of `plain` with another `__call__`, which Python calls with
        the least overhead. Leaves that are `donated` may be overwritten; `layouts` are the layouts of arrays."""
        form = (len(call.args), *call.kwargs, *layouts, *self._generators)
        if form not in self.fast_paths:
            header = of_method(binder.signature, len(call.args), list(call.kwargs))
            result, output = None, self._code(call, header, donated, layouts)
            if output is not None:
                output.__qualname__ = name  # for Python's error messages about arguments
                result = class_with_call(plain, output)
            self.fast_paths[form] = result
        return self.fast_paths[form] or plain

    def cache_entry(self, call: BoundCall, donated: tuple[int, ...] = (), layouts: InputLayouts = ()) -> Any:
        """The same as a function of the dispatcher and all argument values that returns MISS on a mismatch; None if
        there is none. It overwrites nothing if the call does not own the donated leaves."""
        form = (len(call.args), *call.kwargs, *layouts, *self._generators)
        may_donate = not donated or all(owns_memory(call.leaves[i]) for i in donated)
        key = (*form, may_donate)
        if key not in self._entries:
            result: Any = self._code(
                call, of_function(len(call.args), list(call.kwargs)), donated if may_donate else (), layouts
            )
            self._entries[key] = result
            if result is not None:
                result.key, result.fast_class = (call.key, layouts), self.fast_paths[form] if may_donate else None
                if result.fast_class is not None:
                    result.fast_class.entry = result
        return self._entries[key]

    def arrays(self, leaves: Sequence[int]) -> tuple[int, ...]:
        """The leaves that are arrays with axes."""
        kinds, avals = self.trace.kinds, self.trace.graph.avals
        return tuple([i for i in leaves if kinds[i] == "array" and avals[i].ndim])

    def _code(self, call: BoundCall, header: Header, donated: tuple[int, ...], layouts: InputLayouts) -> Any:
        if not layouts:
            program = self._donating_program(donated) if donated else self.program
            return generate_fast_path(self.trace, program, call, header, self.on_tape)
        if self._writes or self.on_tape is not None or len(self.fast_paths) > 2 * MAX_LAYOUTS:
            return None
        program = self._known(layouts)
        return generate_fast_path(self.trace, program, call, header, None, layouts, self._strided_programs)

    def layouts(self, inputs: Sequence[Any]) -> InputLayouts:
        """The layouts of the arrays of a call, leaves first, for which programs exist; empty if all are row-major."""
        result = layouts_of(inputs, self.trace.layouts)
        return result if not result or strides_of(result) in self._strided_programs else copied(result)

    def _known(self, layouts: InputLayouts) -> Any:
        """The program for calls with these layouts; `COMPILE_NEXT` if the next call makes one."""
        return self._strided_programs.get(strides_of(layouts), self.program)

    def program_and_layouts(self, inputs: Sequence[Any]) -> tuple[Any, InputLayouts]:
        """The program that has run a call with these inputs, and its layouts."""
        layouts = self.layouts(inputs)
        program = self._known(layouts)
        return (self.program, copied(layouts)) if program is COMPILE_NEXT else (program, layouts)

    def ready(self, layouts: InputLayouts) -> bool:
        """Whether calls with these layouts may have a fast path: machine code exists, and the setting is as it was when
        the path was made."""
        program = self._known(layouts)
        compiled = program is not COMPILE_NEXT and program.tier is None
        return compiled and not disabled("fast-path") and self._disabled == settings.disable

    def _program_for(self, layouts: InputLayouts, inputs: Sequence[Any]) -> Any:
        """The program for these layouts, from the second call on; None if copies are better."""
        strides = strides_of(layouts)
        result = self._strided_programs.get(strides)
        if result is None and len(self._strided_programs) < MAX_LAYOUTS and self._is_profitable(layouts, inputs):
            self._strided_programs[strides] = COMPILE_NEXT
        if result is COMPILE_NEXT:
            like = self.program
            how = "background" if like.first_call == "background" else "compile", like.optimize
            result = self._strided_programs[strides] = compile_program(
                like.graph, like.kinds, like.single, like.name, like.checked, *how, strides=strides
            )
        return result

    def _is_profitable(self, layouts: InputLayouts, inputs: Sequence[Any]) -> bool:
        """Whether a program for strided inputs is profitable."""
        if self.on_tape is not None or self._writes or not isinstance(self.program, Program):
            return False
        if disabled("strided-inputs"):
            return False
        size = sum([x.nbytes for layout, x in zip(layouts, inputs) if layout and layout.strides])
        return bool(size and size >= LEAST_CHECKED * (8 + len(self.program.graph.nodes)))

    def _donating_program(self, donated: tuple[int, ...]) -> Any:
        """The program that overwrites donated inputs, if results fit there; else the one that does not.

        A call that may be passed on to another path, or to Python, needs its arguments unchanged.
        """
        trace, program = self.trace, self.program
        simple = not (trace.explicit_guards(program.checked) or self._writes or self.on_tape)
        too_many = len(donated) * len(trace.kinds) > MAX_DONATED_PAIRS
        if too_many or not simple or not can_watch(program.entry):
            return program
        like = program.graph, program.kinds, program.single, program.name, program.checked
        result = compile_program(*like, optimize=program.optimize, donated=donated)
        if not result.donors:
            return program
        release_arena(program.entry)  # no longer needed
        return result

    def run(self, leaves: Sequence[Any], captured: Sequence[Any]) -> tuple[Sequence[Any] | None, GuardValues | None]:
        """The outputs of the graph, guard values last, or None if the call must run as plain Python; and the guard
        values up to the first mismatch, or None if all match."""
        inputs = (*leaves, *captured)
        layouts = layouts_of(inputs, self.trace.layouts)
        program = self._program_for(layouts, inputs) if layouts else None
        if program is not None:
            return self._attempt(program, conformed_inputs(inputs, layouts), inputs)
        args = [conformed(x) for x in inputs]
        tier = None if self.program is None else self.program.tier
        if tier is not None and tier.started and self.trace.guards:
            # The program is compiled, or interpreted again, only for a call of this path.
            diverged = self.trace.diverges(self._guard_values(args))
            if diverged is not None:
                return None, diverged
        outputs, diverged = self._attempt(self.program, args, args)
        if tier is not None and diverged is not None and outputs is not None and self.waits:
            # The assumed guard values come from compiled code, which rounds differently from NumPy.
            self.program.compile()
            return self._attempt(self.program, args, args)
        return outputs, diverged

    def _attempt(
        self, program: Any, args: Sequence[Any], inputs: Sequence[Any]
    ) -> tuple[Sequence[Any] | None, GuardValues | None]:
        """The outputs of a program for the converted inputs, and the first guard value that differs."""
        outputs = None if program is None else program.attempt(args)
        if outputs is None:
            return None, self.trace.diverges(self._guard_values(inputs))
        outputs = (outputs,) if program.single else outputs
        if not self.trace.guards:
            return outputs, None
        return outputs, self.trace.diverges(self.trace.guard_values(outputs, program.checked))

    @property
    def waits(self) -> bool:
        """Whether the program has no machine code yet."""
        return self.program is not None and self.program.tier is not None

    @property
    def stage(self) -> str:
        """The current execution tier of this path, in words."""
        if self.program is None:
            return "plain Python"
        return "NumPy, op by op" if self.waits or isinstance(self.program, Interpreted) else "machine code"

    def overlaps(self, call: BoundCall, captured: Sequence[Any]) -> bool:
        """Whether the call writes to an alias of another operand, or to a read-only array, which the graph does not
        model. Used within `on_call`."""
        if not self._writes:
            return False
        if self.trace.mixes():
            return True
        written = [source.read() for source in self.trace.written]
        return bool(written) and not are_disjoint(
            written, [x for x in (*call.leaves, *captured) if isinstance(x, np.ndarray)]
        )

    def views(self, call: BoundCall, captured: Sequence[Any]) -> frozenset[Fact]:
        """The aliases between written arrays and other operands, as facts for another trace."""
        if not self.overlaps(call, captured):
            return frozenset()
        return views_of(self.trace.captures, captured) - self.trace.facts

    def _guard_values(self, args: Sequence[Any]) -> Iterator[Any]:
        """The guard values computed by NumPy, lazily, up to the first exception."""
        computed = dict(zip(self.trace.graph.inputs, map(np.asarray, args)))
        with contextlib.suppress(Exception):  # the call raises it again
            for guard in self.trace.guards:
                yield evaluate(guard.node, computed)


def tape_of(trace: Trace, function: Dispatcher, how: tuple[str, int] | None) -> OnTape | None:
    """The data for calls of a function on Tensors; None for a trace without Tensors."""
    if trace.tape is None:
        return None
    from tracegrad.runtime.dispatch.compiled_backward import OnTape

    return OnTape(trace, function.name, function.body, how)


def owns_memory(x: object) -> bool:
    """Whether an array may be overwritten unobserved: it is no view, and writable."""
    return type(x) is np.ndarray and x.flags.owndata and x.flags.writeable


# A path that holds for a call; the outputs of its program, or None if the call must run as plain Python; and its
# captured arrays.
PathResult = tuple[TracePath, Sequence[Any] | None, Sequence[Any]]


# Held while paths of any specialization are put in another order, for which calls take no lock of the dispatcher.
_PATHS_LOCK = new_lock()


class Specialization:
    """The paths of one key, the most recently used first."""

    def __init__(self) -> None:
        self.paths: tuple[TracePath, ...] = ()
        self.facts: set[Fact] = set()
        self.room = ROOM
        self.records: TraceRecords | None = None  # its records in the disk cache

    def promote(self, path: TracePath) -> None:
        if self.paths and self.paths[0] is path and path.program is not None:
            return
        with _PATHS_LOCK:
            others = tuple([p for p in self.paths if p is not path])
            # A path without a program is tried last, because its guard values must be interpreted.
            self.paths = (*others, path) if path.program is None else (path, *others)

    def run(
        self, path: TracePath, call: BoundCall, captured: Sequence[Any]
    ) -> tuple[Sequence[Any] | None, GuardValues | None]:
        """Run a path. If the call writes to an alias of another operand, and a trace can model the views, another trace
        replaces the path."""
        outputs, diverged = path.run(call.leaves, captured)
        views = path.views(call, captured) if diverged is None else frozenset()
        if not views:
            return outputs, diverged
        with _PATHS_LOCK:
            self.facts = self.facts | views  # a set that another thread may iterate over
            self.paths = tuple([p for p in self.paths if p is not path])
        return None, GuardValues()

    def forget(self, guard_values: GuardValues, derived: bool) -> bool:
        """Evict the least recently used path, unless a path has led to `guard_values` and plain Python can run the
        call.
        Returns whether a path was evicted."""
        if guard_values.keys and not derived:
            return False
        with _PATHS_LOCK:
            self.paths = self.paths[:-1]
        return True

    def enlarge(self) -> None:
        """Discard the programs with too little memory for the residuals of loops, and enlarge it."""
        self.room *= 16
        self.records = None
        self.paths = ()


class SpecializationStore:
    """The specializations of a function, or of a family, by the keys of calls; a table for each `settings.disable`."""

    def __init__(self) -> None:
        self._tables: dict[frozenset[str], OrderedDict[Any, Specialization]] = {}

    @property
    def table(self) -> OrderedDict[Any, Specialization]:
        """The specializations for the present setting, the most recently used last."""
        result = self._tables.get(settings.disable)
        return self._tables.setdefault(settings.disable, OrderedDict()) if result is None else result

    def at(self, key: object, max_entries: int) -> Specialization:
        """The specialization with this key, made if there is none; the table then keeps at `max_entries` so many."""
        table = self.table
        result = table.get(key)
        if result is None:
            result = table[key] = Specialization()
            if len(table) > max_entries:
                table.popitem(last=False)
        else:
            table.move_to_end(key)
        return result


class Interpreted:
    """A program that interprets its graph once, for a specialization with too many paths to compile."""

    report, checked, tier = None, False, None

    def __init__(self, graph: Graph):
        self.graph, self.single = graph, False

    def entry(self, *leaves: object) -> Any:
        return MISS

    def run(self, leaves: Sequence[Any]) -> Any:
        return tuple(execute_graph(self.graph, leaves))

    def attempt(self, leaves: list[NDArray | float]) -> object:
        try:
            return self.run(leaves)
        except CapacityError:
            raise
        except Exception:  # the call raises it again
            return None
