"""Dispatch calls of traced functions (`trace`, `grad`, ...) to specializations, paths and programs.

The fast path passes the arguments to the last program's entry point, which checks the guards. A mismatch is a MISS, and
the slow path decides: another program of the same function, another path of the trace tree, a new trace, or an error.

One function holds many *specializations*, by the key of the call (structure, dtypes, shapes, static values). Each has
*paths*: programs that assume certain values of captured variables, and certain answers to questions the Python code
asked (value guards). Programs return the guard values together with their results. If they differ from the assumed
ones, the values up to the first difference select the next path: the paths of a specialization are the leaves of a
tree.

A call in which an op or the function raises is run again as plain Python, so the exception, its location, and the side
effects before it are Python's own. A path that ends with an exception has guards and no program.
"""

from __future__ import annotations

import functools
import time
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad import tree
from tracegrad.control.while_op import ROOMS, room_for
from tracegrad.cpython.frames import frame_at
from tracegrad.cpython.references import COUNT_IN_GET, is_lent, reference_count
from tracegrad.errors import CapacityError, TraceError, located, plainly
from tracegrad.locks import new_lock
from tracegrad.ops import Carrier, DispatchLevel
from tracegrad.ops.core.recorders import RECORDERS
from tracegrad.runtime.diagnostics.nan_origin import check_outputs
from tracegrad.runtime.dispatch.bound_method import BoundMethod
from tracegrad.runtime.dispatch.call_class import switch_class
from tracegrad.runtime.dispatch.disabled_jit import eagerly, once, run_aliased
from tracegrad.runtime.dispatch.fast_path_registry import register
from tracegrad.runtime.dispatch.plain_python_policy import CacheInfo, Pace, Unmet
from tracegrad.runtime.dispatch.python_support import require_known_python
from tracegrad.runtime.dispatch.retrace_reasons import Warnings, limited, log_compile, report_retrace
from tracegrad.runtime.dispatch.specializations import (
    Interpreted,
    PathResult,
    Specialization,
    SpecializationStore,
    TracePath,
    tape_of,
)
from tracegrad.runtime.dispatch.trace_store import restore_traces, store_path
from tracegrad.runtime.execution.entry_callable import MISS
from tracegrad.runtime.execution.program import Unplanned, compile_program
from tracegrad.settings import disabled, jit_disabled, settings, unusual
from tracegrad.target.tuning import TUNING
from tracegrad.torch.modes import STATE
from tracegrad.trace.builder.builder import ESCAPED, current_trace
from tracegrad.trace.builder.gc_pause import patient
from tracegrad.trace.builder.inlinable import Inlinable
from tracegrad.trace.builder.value_guards import GuardValues
from tracegrad.trace.driver.trace import trace_call
from tracegrad.trace.proxies.function_proxies import has_user_attributes
from tracegrad.trace.random.draws import rewind
from tracegrad.trace.sources.describe import describe
from tracegrad.trace.sources.signature import Binder, BoundCall
from tracegrad.trace.sources.sources import CURRENT, on_call
from tracegrad.utils.errstate import noted, restore_traps, sprung, traps
from tracegrad.utils.log import log

if TYPE_CHECKING:
    from tracegrad.runtime.dispatch.closure_families import Family

MAX_SPECIALIZATIONS = TUNING.dispatch.max_specializations
MAX_PATHS = TUNING.dispatch.max_paths
MAX_INSTANCES = TUNING.dispatch.max_instances
_VALUES = (np.ndarray, Carrier, float, int)
MAX_ATTEMPTS = TUNING.dispatch.max_attempts
MAX_CACHE_ENTRIES = TUNING.dispatch.max_inline_cache
HITS_TO_FRONT = TUNING.dispatch.hits_to_front
_COUNT_LOCK = new_lock()  # held while a hit is counted, which does not wait for a thread that traces


class Dispatcher(Inlinable):
    """A traced function: it is traced and compiled when it is called; `tracegrad.trace` makes one."""

    # Whether the function's effects on outside Tensors are repeated at each call.
    effects = True
    __class_getitem__: Any = classmethod(types.GenericAlias)
    # The fast path of this class as a function, if it is known.
    entry: Any = None
    __slots__ = (
        "_cache_hits",
        "_counts",
        "_donated",
        "_inline_caches",
        "_lock",
        "_methods",
        "_pace",
        "_plain",
        "_shared",
        "_store",
        "_strong_instances",
        "_unmet",
        "binder",
        "body",
        "fun",
        "name",
        "optimize",
        "retrace_warnings",
        "tiered",
    )

    def __init__(
        self,
        fun: Callable[..., Any],
        *,
        body: Any = None,
        signature: Any = None,
        static_argnums: Any = (),
        static_argnames: Any = (),
        name: str = "",
        tiered: bool | None = None,
        optimize: int | None = None,
        donate_argnums: object = (),
        donate_argnames: object = (),
    ):
        # The attributes of a callable object are state; the attributes of a function are labels.
        functools.update_wrapper(self, fun, updated=("__dict__",) if isinstance(fun, types.FunctionType) else ())
        self.fun, self.body = fun, body if body is not None else fun
        self.name, self.tiered, self.optimize = name or describe(fun).name, tiered, optimize
        self.binder = Binder(fun if signature is None else signature, static_argnums, static_argnames)
        self._donated = self.binder.donated(donate_argnums, donate_argnames)
        # The polymorphic inline caches, by the number of positional arguments and the keywords in canonical form; and
        # the hits of each entry.
        self._inline_caches: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._cache_hits = 0
        self._plain: Any = type(self)
        self._lock = new_lock()
        self._methods: dict[int, Any] = {}
        self._strong_instances: list[tuple[int, Any]] = []
        self._shared = False
        self._store = SpecializationStore()
        self.retrace_warnings, self._unmet, self._pace = Warnings(), Unmet(), Pace()
        self._counts = {"traces": 0, "retraces": 0, "hits": 0, "misses": 0}
        register(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.call_slowly(args, kwargs)

    def call_slowly(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Handle a call that the fast path rejects."""
        while args and args[-1] is MISS:  # omitted arguments
            args = args[:-1]
        form = (len(args), *kwargs)
        for entry in self._inline_caches.get(form, ()):
            if entry is not self.__class__.entry:
                result = entry(self, *args, *kwargs.values())
                if result is not MISS:
                    self._cache_hits += 1
                    if not self._cache_hits % HITS_TO_FRONT:
                        self._prefer(entry, form)
                    return result
        if not unusual and noted():  # fast paths do not handle it
            return self(*args, **kwargs)
        if unusual:
            return self._call(args, kwargs)
        start = time.thread_time()
        result = self._call(args, kwargs)
        self._pace.record_call(self, time.thread_time() - start)
        return result

    def _prefer(self, entry: Any, form: tuple[Any, ...]) -> None:
        """Try this fast path first from now on."""
        others = [x for x in self._inline_caches.get(form, ()) if x is not entry]
        self._inline_caches[form] = (entry, *others)
        if entry.fast_class is not None:
            switch_class(self, entry.fast_class)

    def _add_fast_path(self, path: TracePath, call: BoundCall, captured: Sequence[Any]) -> None:
        """Install fast paths for calls like this one: a single one, or one among alternating calls."""
        layouts = path.layouts([*call.leaves, *captured])
        if not path.ready(layouts) or (path.trace.effects and not self.effects) or not path.repeats_generators(call):
            return
        form = (len(call.args), *call.kwargs)
        again = (len(form) > 1 or path.has_fast_path(form)) and not disabled("inline-caches")
        donated = path.arrays(self.binder.leaf_numbers(call, self._donated)) if self._donated else ()
        switch_class(self, path.fast_path(self.binder, call, self._plain, self.name, donated, layouts))
        entry = path.cache_entry(call, donated, layouts) if again else None
        if entry is not None:
            others = [x for x in self._inline_caches.get(form, ()) if x is not entry]
            alike = [x for x in others if x.key == entry.key][1:]  # each may run a program in vain
            self._inline_caches[form] = (entry, *[x for x in others if x not in alike][: MAX_CACHE_ENTRIES - 1])

    def __get__(self, instance: object, owner: object = None) -> Any:
        if instance is None:
            return self
        alone = reference_count(instance) <= COUNT_IN_GET and not is_lent(frame_at(1))
        if tree.is_node(instance) or alone:  # only the method keeps it alive
            return functools.partial(self, instance)
        return self._method_of(instance)

    def share(self, family: Family) -> None:
        """Share the programs of a family. Its first function uses private programs, whose captured variables are found
        faster."""
        if family.has_member:
            self._store, self._lock, self._shared = family.store, family.lock, True
        family.has_member = True

    def _is_method_call(self, args: tuple[Any, ...]) -> bool:
        """Whether the first argument is the instance, or class, of this method: `Model.forward(model, x)`."""
        if not args or isinstance(args[0], _VALUES) or self.body is not self.fun:  # a derivative is no method
            return False
        plain = isinstance(self.fun, types.FunctionType) and 0 not in self.binder.static_nums
        return plain and not tree.is_node(args[0]) and has_user_attributes(args[0])

    def _method_of(self, instance: object) -> Any:
        """The traced method bound to an instance, whose attributes are captured variables."""
        with self._lock:
            result = self._methods.get(id(instance))
            if result is None:
                key = id(instance)
                method = BoundMethod(self.fun, instance, lambda _: self._methods.pop(key, None))
                if not method.weak:  # a strong reference to the instance
                    self._strong_instances = [*self._strong_instances[-MAX_INSTANCES + 1 :], (key, instance)]
                    self._methods = {
                        k: m for k, m in self._methods.items() if m.fun.weak or k in dict(self._strong_instances)
                    }
                result = self._methods[key] = self._plain(
                    method,
                    static_argnums=tuple([n - 1 for n in self.binder.static_nums if n]),
                    static_argnames=tuple(self.binder.static_names),
                    name=self.name,
                    **self.options,
                    donate_argnums=tuple([n - 1 for n in self._donated if type(n) is int and n]),
                    donate_argnames=tuple([n for n in self._donated if type(n) is str]),
                )
            return result

    def __repr__(self) -> str:
        return f"<traced {self.name}>"

    # -- user interface ------------------------------------------------------------------------
    def cache_info(self) -> CacheInfo:
        """Counts of traces and of slow-path calls since the last `clear`."""
        with self._lock:
            kinds = max(self._unmet.limited, int(self._pace.rests))
            return CacheInfo(**self._counts, specializations=len(self._specializations), limited=kinds)

    def waiting(self, call: BoundCall) -> list[TracePath]:
        """The paths for calls like this one that are interpreted and have no machine code yet."""
        result = self._specializations.get(call.key)
        return [path for path in result.paths if path.waits] if result is not None else []

    def clear(self) -> None:
        """Forget all traces and programs of this function."""
        with self._lock:
            self.cool()
            self._store = SpecializationStore()
            self._counts = dict.fromkeys(self._counts, 0)

    def cool(self) -> None:
        """Remove the fast paths, and forget what calls until now tell about retraces and times."""
        self._inline_caches = {}
        switch_class(self, self._plain)
        self._unmet, self._pace = Unmet(), Pace()

    @property
    def options(self) -> dict[str, Any]:
        """The compilation options, which derived functions inherit."""
        return {"tiered": self.tiered, "optimize": self.optimize}

    @property
    def first_call(self) -> str:
        """The tier of the first call of a new program, as `settings.first_call`."""
        return settings.first_call if self.tiered is None else "background" if self.tiered else "compile"

    def how(self) -> tuple[str, int]:
        """The tier of first calls and the optimization level: `settings.first_call` and `settings.optimize`, or own
        options."""
        return self.first_call, settings.optimize if self.optimize is None else self.optimize

    # -- the slow path -----------------------------------------------------------------------------
    def inlined(self, world: Any) -> Any:
        """The body that a call inside a trace runs: it is recorded into that trace."""
        return world.inline(self.body)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        trace = current_trace()
        if trace is not None:
            return self.inlined(trace.world)(*args, **kwargs)
        if jit_disabled() or STATE.level is not None or sprung():  # the tape handles tangents, and NumPy handles traps
            return eagerly(self, args, kwargs)
        if self._is_method_call(args):
            return self._method_of(args[0])(*args[1:], **kwargs)
        call = self.binder.bind(args, kwargs)
        if call.carriers:
            if any(x.level > DispatchLevel.TENSOR for x in call.carriers):
                raise TraceError(located(ESCAPED))
            return self.body(*args, **kwargs)
        if self.retrace_warnings.plain(self.name, call.plainly) or self.is_limited(call):
            result = eagerly(self, args, kwargs, call.plainly, call)
            self._pace.ran_plainly = call.plainly or limited()
            return result
        path, outputs, captured = self.find(call, plainly=True)
        if outputs is None:
            rewind(call)
            return self._plainly(path, call, args, kwargs)
        before, CURRENT.call = CURRENT.call, call
        try:
            if path.overlaps(call, captured):
                rewind(call)
                return run_aliased(self, call, args, kwargs, path.trace)
            if STATE.watching:
                check_outputs(self, call, path, outputs, captured)
            tape, effects = path.on_tape, self.effects
            result = tape.finish(call, captured, outputs, self) if tape else path.trace.finish(outputs, effects=effects)
        finally:
            CURRENT.call = before
        self._add_fast_path(path, call, captured)
        return result

    def _plainly(self, path: TracePath, call: BoundCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call that raises, or in which an op raises, as plain Python; a derivative is recorded instead."""
        if self.body is not self.fun:
            result = once(self, call, args, kwargs, path.trace.raised)
        else:
            with plainly(path.trace.raised):
                result = self.body(*args, **kwargs)
        self.retrace_warnings.plain(self.name, path.trace.raised)
        self._pace.ran_plainly = path.trace.raised
        return result

    @property
    def has_plain(self) -> bool:
        """Whether plain Python computes the same: the function is neither a derivative nor a backward pass."""
        return self.body is self.fun and self.effects

    def is_limited(self, call: BoundCall) -> bool:
        """Whether calls like this one run as plain Python after too many retraces. Derivatives are not limited."""
        return call in self._unmet and self.has_plain

    def why_limited(self, call: BoundCall) -> str:
        """Why calls like this one run as plain Python although programs may exist; "" if they do not."""
        return limited() if self.is_limited(call) else self._pace.why if self._pace.rests else ""

    @property
    def _specializations(self) -> dict[Any, Specialization]:
        return self._store.table

    def _specialization(self, key: object) -> Specialization:
        with self._lock:
            return self._store.at(key, MAX_SPECIALIZATIONS)

    def derive(self, fun: Callable[..., Any], name: str) -> Dispatcher:
        """Make a traced function with the same options."""
        result: Dispatcher = self._plain(fun, name=name, **self.options)
        return result

    def find(self, call: BoundCall, plainly: bool = False) -> PathResult:
        """Find the path for `call`, traced and compiled if necessary, and its outputs. With `plainly`, a call that
        would exceed the maximum number of paths gets any path without outputs, and runs as plain Python."""
        result: PathResult = self._guarded(call, lambda: self._find(call, plainly))
        return result

    def _guarded(self, call: BoundCall, search: Callable[[], Any]) -> Any:
        """Run `search` for a call; an exception restores the modes."""
        errors, before = traps(), (RECORDERS.current, CURRENT.call, ROOMS.iterations)
        call.function = self.fun
        try:
            with on_call(call):
                return search()
        except BaseException:
            # A signal may have interrupted the restoration.
            RECORDERS.current, CURRENT.call, ROOMS.iterations = before
            restore_traps(errors)
            raise

    def find_in_full(self, call: BoundCall) -> PathResult:
        """As `find`, but the path is compiled and has source lines: a trace restored from disk is traced again."""
        result = self.find(call)
        if getattr(result[0].program, "restored", False):
            with settings.override(cache_traces=False), self._lock:
                spec = self._specialization(call.key)
                spec.paths = tuple([p for p in spec.paths if not getattr(p.program, "restored", False)])
                result = self.find(call)
        rewind(call)
        if result[0].waits:
            result[0].program.compile()
        return result

    def _find(self, call: BoundCall, plainly: bool) -> PathResult:
        spec = self._specialization(call.key)
        while True:
            try:
                return self._known_or_new(spec, call, plainly)
            except CapacityError:
                spec.enlarge()

    def _hit(self, call: BoundCall, result: PathResult) -> PathResult:
        with _COUNT_LOCK:
            self._counts["hits"] += 1
        self._unmet.discard(call)
        return result

    def _known_or_new(self, spec: Specialization, call: BoundCall, plainly: bool) -> PathResult:
        known = spec.paths
        result, guard_values = self._follow(spec, call, GuardValues())
        if result is not None:
            return self._hit(call, result)
        with self._lock:
            if spec.paths is not known:
                result, guard_values = self._follow(spec, call, GuardValues())
                if result is not None:
                    return self._hit(call, result)
            result, guard_values = self._follow_restored(spec, call, guard_values)
            if result is not None:
                return self._hit(call, result)
            self._counts["misses"] += 1
            self._unmet.add(call)
            if self.is_limited(call):
                self.retrace_warnings.limited(self.name)
            if len(spec.paths) >= MAX_PATHS and not spec.forget(guard_values, self.body is not self.fun) and plainly:
                return spec.paths[0], None, ()
            try:
                return self._extend(spec, call, guard_values)
            except CapacityError:
                raise
            except BaseException:
                if not spec.paths:
                    self._specializations.pop(call.key, None)
                raise

    def _follow(
        self, spec: Specialization, call: BoundCall, guard_values: GuardValues
    ) -> tuple[PathResult | None, GuardValues]:
        """Run paths until one holds: `((path, outputs, captured), no answers)`, or `(None, the known answers)`."""
        for path in spec.paths:
            if not path.may_hold(guard_values):
                continue
            captured = path.trace.world.read(path.trace.captures)
            if captured is None or (path.trace.layouts and not path.trace.fits([*call.leaves, *captured])):
                continue
            outputs, diverged = spec.run(path, call, captured)
            if diverged is None:
                spec.promote(path)
                self._store_path(spec, call, path)
                return (path, outputs, captured), GuardValues()
            guard_values = diverged
        return None, guard_values

    def _store_path(self, spec: Specialization, call: BoundCall, path: TracePath) -> None:
        """Store a path in the disk cache, and again when it has machine code."""
        stage = 1 if path.waits else 2
        if path.stored_stage < stage:
            path.stored_stage = stage
            with patient():
                store_path(self, call, spec, path)

    def _follow_restored(
        self, spec: Specialization, call: BoundCall, guard_values: GuardValues
    ) -> tuple[PathResult | None, GuardValues]:
        """As `_follow`, along paths restored from the disk cache."""
        for trace, record, make in restore_traces(self, call, spec):
            path, start = TracePath(trace, None, {"trace": 0.0}), time.perf_counter()
            if not path.may_hold(guard_values):
                continue
            captured = trace.world.read(trace.captures)
            if captured is None or not trace.fits([*call.leaves, *captured]):
                spec.facts.update(trace.world.changed_numbers())
                continue
            path.program, path.on_tape = make()
            path.record = record
            path.stored_stage = 0 if isinstance(path.program, Unplanned) else 2
            path.seconds["program"] = time.perf_counter() - start
            if path.program is None:
                continue
            spec.facts.update(trace.facts)
            spec.promote(path)
            log("compile", "%s: from the disk cache in %.2f ms", self.name, 1e3 * path.seconds["program"])
            outputs, diverged = spec.run(path, call, captured)
            if diverged is None:
                self._store_path(spec, call, path)
                return (path, outputs, captured), GuardValues()
            guard_values = diverged
        return None, guard_values

    def _extend(self, spec: Specialization, call: BoundCall, guard_values: GuardValues) -> PathResult:
        """Trace another path, starting with the `guard_values` that programs have computed."""
        for _ in range(MAX_ATTEMPTS):
            with patient():
                path = self._trace(spec, call, guard_values)
            captured = [c.release_array() for c in path.trace.captures]
            if len(spec.paths) < MAX_PATHS:
                spec.promote(path)
            error, path.trace.error = path.trace.error, None
            if error is not None:
                path.trace.world.printed.finish(True)
                raise error
            outputs, diverged = spec.run(path, call, captured)
            results: PathResult | None = (path, outputs, captured)
            if diverged is None:
                self._store_path(spec, call, path)
            else:
                results, guard_values = self._follow(spec, call, diverged)
            path.trace.world.printed.finish(results is not None and results[1] is not None)
            if results is not None:
                return results
        return path, outputs, captured

    def _trace(self, spec: Specialization, call: BoundCall, guard_values: GuardValues) -> TracePath:
        for known in spec.paths:
            spec.facts.update(known.trace.world.changed_numbers())
        retrace = bool(self._counts["traces"])
        if retrace:
            report_retrace(self, spec, call, guard_values)
        start = time.perf_counter()
        require_known_python()
        with room_for(spec.room):
            trace = trace_call(self.fun, self.body, call, guard_values, spec.facts, self._shared)
        middle = time.perf_counter()
        on_tape = tape_of(trace, self, self.how())
        graph = trace.graph if on_tape is None else on_tape.graph
        checked = trace.implicit and on_tape is None
        single = len(graph.outputs) == 1
        if trace.raised:
            program: Any = None
        elif len(spec.paths) < MAX_PATHS:
            single = trace.arrays + len(trace.explicit_guards(True)) == 1 if checked else single
            graph = trace.checked() if checked else graph
            program = compile_program(graph, trace.kinds, single, self.name, checked, *self.how())
            if not trace.can_fail(program):
                program = None
        else:
            program = Interpreted(graph)
        end = time.perf_counter()
        log_compile(self.name, trace, program, middle - start, end - middle)
        path = TracePath(trace, program, {"trace": middle - start, "program": end - middle}, on_tape)
        if not trace.raised:
            self._counts["traces"] += 1
            self._counts["retraces"] += retrace
        return path
