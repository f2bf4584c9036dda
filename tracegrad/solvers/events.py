"""Events of initial value problems: derivatives of the times at which a function of the solution becomes 0.

SciPy computes the times. If g(t, z(t)) = 0, the implicit function theorem gives the derivatives of t. They equal the
derivatives of a Newton step from t, whose length is 0. A second step adds the second and third derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.ir import Graph
from tracegrad.ir.batch import replay_batched
from tracegrad.ops.calls.custom_call import opaque
from tracegrad.ops.core.recorders import aside
from tracegrad.ops.elementwise.table import add, divide, subtract
from tracegrad.ops.shape.batching import repeated
from tracegrad.ops.shape.linear import concatenate, full, slice, stop_gradient
from tracegrad.solvers.callbacks import Callback
from tracegrad.solvers.ode_sensitivity import System, of_length, one_element, solution
from tracegrad.solvers.solver_node import OpaqueCall
from tracegrad.transforms.jvp_graph import pushed
from tracegrad.typing import NDArray

if TYPE_CHECKING:
    from tracegrad.typing import Array


class Event:
    """Event function: a graph of the time, the state and the values of a system, which is 0 at an event.

    It also has SciPy's attributes of the user's function: `terminal` (whether, or at which occurrence) and `direction`.
    """

    def __init__(self, graph: Graph, function: object):
        self.graph, self._callback = graph, Callback(graph, "scipy.integrate.solve_ivp", 2)
        self.terminal = getattr(function, "terminal", None)
        self.direction = getattr(function, "direction", 0)

    def __repr__(self) -> str:
        return f"{self.graph} {self.terminal} {self.direction}"

    def to_scipy(self, values: Sequence[NDArray]) -> Callable[[float, NDArray], float]:
        of = self._callback.at(values)

        def call(t: float, z: NDArray) -> float:
            return float(of(t, z))

        vars(call).update(terminal=self.terminal, direction=self.direction)
        return call


class _EventSearch(OpaqueCall):
    """Opaque call of SciPy that counts the times and events of a solution.

    It also returns the status and the event that ends the solution. With known `counts`, it computes the times, the
    event times, and the solver's counts.
    """

    def __init__(self, system: System, events: Sequence[Event], timed: bool, counts: Sequence[int] | None = None):
        self.system, self.events, self.timed, self.counts = system, events, timed, counts
        self.name = f"{system.name} {events!r} {timed} {counts}"

    def __call__(self, first: NDArray, last: NDArray, *rest: NDArray) -> tuple[NDArray, ...]:
        rest = tuple([np.asarray(x, order="C") for x in rest])
        times, values = (rest[0], rest[1:]) if self.timed else (None, rest)
        with aside():
            events = [event.to_scipy(values) for event in self.events]
            result = self.system.run((float(first), float(last)), times, values, events=events)
        marks = [np.asarray(x) for x in result.t_events]
        if self.counts is None:
            ending_event = self._ended_by(marks, float(last) >= float(first)) if result.status == 1 else -1
            return (np.array([len(result.t), result.status, ending_event, *map(len, marks)], np.int64),)
        count, _, _, *sizes = self.counts
        each = [of_length(x, n) for x, n in zip(marks, sizes)]
        facts = np.array([result.nfev, result.njev, result.nlu, result.status], np.int64)
        return of_length(np.asarray(result.t, np.float64), count), np.concatenate(each), facts

    def _ended_by(self, marks: Sequence[Array], forward: bool) -> int:
        """Return the index of the event that ends the solution: the terminal event with the last time."""
        ends = {k: x[-1] for k, x in enumerate(marks) if len(x) and self.events[k].terminal}
        return (max if forward else min)(ends, key=lambda k: ends[k])


class Events:
    """Solution with events.

    `times` are the output times, `y` is the solution at the times, and `facts` are the solver's counts. `marks` are two
    lists with an item for each event: its times, and its states.
    """

    def __init__(
        self,
        system: System,
        events: Sequence[Event],
        ends: Sequence[Array],
        times: Array | None,
        values: Sequence[Array],
    ):
        self._of = system, ends, values
        args = [*ends, *([] if times is None else [times]), *values]
        timed, kinds = times is not None, ((3 + len(events),), "i64")
        counted: Any
        (counted,) = opaque(*args, results=(kinds,), call=_EventSearch(system, events, timed))
        query = "the number of events of scipy.integrate.solve_ivp"
        count, status, ending_event, *sizes = (int(n) for n in counted.concrete(query).tolist())
        search = _EventSearch(system, events, timed, (count, status, ending_event, *sizes))
        results = (((count,), "f64"), ((sum(sizes),), "f64"), ((4,), "i64"))
        steps, result, self.facts = opaque(*args, results=results, call=search)
        event_times, start = [], 0
        for event, size in zip(events, sizes):
            times_of = slice(result, start=(start,), stop=(start + size,), step=(1,))
            event_times.append(self._moved(event, self._moved(event, times_of)) if size else times_of)
            start += size
        if times is not None:
            self.times = slice(times, start=(0,), stop=(count,), step=(1,))
        else:
            last = event_times[ending_event][-1] if ending_event >= 0 else ends[1]
            inner = slice(steps, start=(1,), stop=(count - 1,), step=(1,))
            self.times = concatenate(one_element(ends[0]), inner, one_element(last), axis=0)
        self.y = self._states(self.times)
        self.marks = event_times, [self._states(t) if size else t for t, size in zip(event_times, sizes)]

    def _states(self, times: Array) -> Array:
        system, ends, values = self._of
        return solution(system, ends, times, values)[1]

    def _moved(self, event: Event, times: Array) -> Array:
        """Take a Newton step from event times: the values are equal, with derivatives."""
        system, _, values = self._of
        n, y, still = times.shape[0], self._states(times), [False] * len(values)
        (derivatives, *_), (is_batched, *_) = replay_batched(
            system.derivative, n, [True, True, *still], [times, y, *values]
        )
        derivatives = derivatives if is_batched else repeated(n, [False], [derivatives])[0]
        both, _ = pushed(event.graph, [0, 1])
        ones = full(shape=(n,), value=1.0, dtype="float64")
        flags = [True, True, *still, True, True]
        (height, derivative), _ = replay_batched(both, n, flags, [times, y, *values, ones, derivatives])
        step = divide(height, derivative)
        return add(times, subtract(stop_gradient(step), step))
