"""Choose the execution tier of a program without machine code: interpret first, compile second or in background.

Compilation is slow, and useless for a function that is called once. If NumPy is faster for one call
(`tracegrad.runtime.execution.cost_model`), it interprets the first call op by op, and the second call compiles.
Alternatively NumPy answers all calls until another thread has compiled. Both tiers compute the same graph, so results
differ by rounding only.
"""

from __future__ import annotations

import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracegrad.errors import CapacityError, PerformanceWarning, located
from tracegrad.ir import Graph, replayer
from tracegrad.ir.interpreter import WATCHED
from tracegrad.locks import reentrant_lock
from tracegrad.platform.processes import at_fork
from tracegrad.runtime.compile.code_store import machine_code, missing, unknown
from tracegrad.runtime.execution.cost_model import (
    COMPILE,
    FIRST_TOUCH,
    SHARED,
    Effort,
    TooLong,
    alive_bytes,
    to_compile,
    to_replay,
)
from tracegrad.runtime.execution.entry_callable import MISS, retain_memory
from tracegrad.runtime.execution.numpy_executor import execute_graph
from tracegrad.runtime.memory.allocator import release_idle
from tracegrad.settings import disabled, waits_for_compiler
from tracegrad.target.tuning import TUNING

if TYPE_CHECKING:
    from tracegrad.runtime.execution.image import ProgramImage

MAX_REPLAY_RATIO = TUNING.first_call.max_replay_ratio
LARGE = TUNING.first_call.min_retained_bytes
READ = TUNING.first_call.restored_node_time
TOGETHER = TUNING.first_call.units_between_breaks
BREAK = TUNING.first_call.break_time


class TierResult(NamedTuple):
    """The outputs as a program returns them, or `MISS` if it would fail."""

    result: Any


_NOTHING: Mapping[str, float] = {}


class Missing(NamedTuple):
    """The compile costs of the missing units of a program, by key, and the other costs of a call without
    interpretation."""

    unit_costs: Mapping[str, float]
    other_cost: float = 0.0

    @property
    def price(self) -> float:
        return sum(self.unit_costs.values()) + self.other_cost if self.unit_costs else 0.0


def missing_of(image: ProgramImage) -> Missing:
    """The missing units of a program, the shared functions it needs, and the cost of its memory."""
    unit_costs = {key: to_compile(unit.text, regions=not unit.kernel) for key, unit in missing(image.uses).items()}
    memory = image.arena_bytes + sum([x.size * x.dtype.itemsize for x in image.outputs])
    return Missing(unit_costs, SHARED * len(unknown(image.functions)) + FIRST_TOUCH * memory)


# The keys of units that were missing when a program was interpreted, and their maximum number.
_seen_units: set[str] = set()
MAX_SEEN_UNITS = TUNING.caches.missing_units


def tier_of(first_call: str, graph: Graph, missing: Callable[[], Missing], spent: float = 0.0) -> Tier | None:
    """The tier of a program whose units are `missing`; None to compile it now.

    If all units were already missing in an earlier call, the same code is called again, for another shape or in another
    function. It is then compiled, because a caller with a new shape in each call would never get machine code. It is
    also compiled if other processes have `spent` as much on first calls as the compilation costs.
    """
    if first_call == "compile" or waits_for_compiler() or disabled("call-replay"):
        return None
    result = missing()
    price = result.price
    if first_call == "background" and _compiler.busy:
        price = max(price, COMPILE)  # units on disk are loaded only when the compiler thread is done
    budget = MAX_REPLAY_RATIO * price
    if not budget or (cost := to_replay(graph)) > budget:
        return None
    spent += cost + READ * len(graph.nodes)
    if first_call == "background":
        return BackgroundTier(budget, result.unit_costs, spent)
    if _seen_units.issuperset(result.unit_costs) or spent > price:
        return None
    if len(_seen_units) > MAX_SEEN_UNITS:
        _seen_units.clear()
    _seen_units.update(result.unit_costs)
    return (IterationTier if first_call == "iterations" else Tier)(budget, result.unit_costs, spent)


class Tier:
    """A tier that interprets the first call and compiles at the second."""

    # Whether a call has been interpreted, so that the next one compiles; whether freed memory is retained.
    started = retains_memory = False

    def __init__(self, budget: float, missing: Mapping[str, float] = _NOTHING, spent: float = 0.0):
        self.budget, self.missing, self.spent = budget, missing, spent

    def run_call(self, program: Any, leaves: Sequence[Any]) -> TierResult | None:
        """The result of a call; None once the program is compiled."""
        if self.started or waits_for_compiler():
            if self.retains_memory:
                release_idle()  # the compiler needs memory
            program.compile()
            return None
        self.started = True
        return self.replayed(program, leaves)

    def replayed(self, program: Any, leaves: Sequence[Any]) -> TierResult | None:
        """The result by interpretation; None if it takes too long, and the program is compiled."""
        before, watch = WATCHED.by, Effort(self.budget).spend
        try:
            WATCHED.by = watch
            self.retains_memory = alive_bytes(program.graph) >= LARGE
            with retain_memory() if self.retains_memory else nullcontext():
                outputs = execute_graph(program.graph, leaves)
        except TooLong:
            program.compile()
            return None
        except CapacityError:
            raise
        except Exception:  # plain Python will raise it again
            return TierResult(MISS)
        finally:
            WATCHED.by = before
        if program.checked and not outputs.pop():
            return TierResult(MISS)
        return TierResult(outputs[0] if program.single else tuple(outputs))


class IterationTier(Tier):
    """A tier that interprets calls until they have taken as long as a compilation, in all."""

    iteration: Callable[[Sequence[Any]], list[Any]] | None = None

    def run_call(self, program: Any, leaves: Sequence[Any]) -> TierResult | None:
        if waits_for_compiler():
            program.compile()
            return None
        if self.iteration is None:
            self.iteration, self.effort = replayer(program.graph), Effort(self.budget)
        before = WATCHED.by
        try:
            WATCHED.by = self.effort.spend
            (result,) = self.iteration([np.asarray(x) for x in leaves])
        except TooLong:
            program.compile()
            return None
        finally:
            WATCHED.by = before
        return TierResult(np.array(result) if result.ndim else result[()])


class BackgroundTier(Tier):
    """A tier that interprets all calls until another thread has compiled."""

    def __init__(self, budget: float, missing: Mapping[str, float] = _NOTHING, spent: float = 0.0):
        super().__init__(budget, missing, spent)
        self.error: BaseException | None = None

    def begin(self, program: object) -> None:
        """Queue the program for the compiler thread, once."""
        if not self.started:
            self.started = True
            _compiler.add(program)

    def run_call(self, program: Any, leaves: Sequence[Any]) -> TierResult | None:
        if waits_for_compiler():
            program.compile()
            return None
        self.begin(program)
        error, self.error = self.error, None
        if error is not None:
            text = f"{program.name or 'a program'} is not compiled, and runs op by op: {type(error).__name__}: {error}"
            warnings.warn(located(text), PerformanceWarning, stacklevel=2)
        return self.replayed(program, leaves)


def _compile(reference: weakref.ref[Any]) -> None:
    """Compile a program, some units at a time: in between, other threads may load theirs, and the rest may become
    unnecessary."""
    program = reference()
    if program is None or program.tier is None:
        return
    image = program.image
    del program
    units, saved = [*image.uses], []
    image.define_symbols()
    for i in range(0, len(units), TOGETHER):
        saved.append(machine_code({x for unit in units[i : i + TOGETHER] for x in (*unit.needs, unit)}))
        time.sleep(BREAK)
        if reference() is None or not threading.main_thread().is_alive():
            return
    program = reference()
    if program is not None:
        program.compile()


class _Compiler:
    """The compiler thread, which compiles the live programs of its queue. It ends with an empty queue, or with the
    interpreter, which does not start further programs."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._lock = reentrant_lock()
        self._waiting: deque[weakref.ref[Any]] = deque()
        self._thread: threading.Thread | None = None
        self._now: weakref.ref[Any] | None = None

    @property
    def busy(self) -> bool:
        """Whether a program is being compiled."""
        return self._thread is not None

    def add(self, program: Any) -> None:
        with self._lock:
            self._waiting.append(weakref.ref(program))
            if self._thread is not None:
                return
            self._thread = threading.Thread(target=self._run, name="tracegrad compiler")
            try:
                self._thread.start()
                return
            except RuntimeError:  # no more threads can start, or the interpreter is exiting
                self._thread = None
                self._waiting.clear()
        program.compile()

    def _next(self) -> weakref.ref[object] | None:
        with self._lock:
            while self._waiting and threading.main_thread().is_alive():
                self._now = self._waiting.popleft()
                if self._now() is not None:
                    return self._now
            self._thread = self._now = None
            self._waiting.clear()
            return None

    def _run(self) -> None:
        while (reference := self._next()) is not None:
            try:
                _compile(reference)
            except BaseException as error:
                tier = getattr(reference(), "tier", None)
                if tier is not None:
                    tier.error = error.with_traceback(None)

    def forked(self) -> None:
        """Reset the queue in a forked child, which has only the forking thread: programs are queued again at their next
        call."""
        waiting = [*self._waiting, *([self._now] if self._now is not None else [])]
        self._begin()
        for reference in waiting:
            program = reference()
            if program is not None and program.tier is not None:
                program.tier.started = False


_compiler = _Compiler()

at_fork(in_child=lambda: _compiler.forked())
