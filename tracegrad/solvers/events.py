"""Events of initial value problems: when something becomes 0 along a solution.

SciPy finds the times. Where g(t, z(t)) = 0, the implicit function theorem has their derivatives: those of a step of
Newton's from there, whose length is 0. The second of two steps has the second derivatives too, and the third.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracegrad.ir import Graph
from tracegrad.ir.batch import replay_batched
from tracegrad.ops.calls.custom_call import opaque
from tracegrad.ops.elementwise.table import add, divide, subtract
from tracegrad.ops.shape.batching import repeated
from tracegrad.ops.shape.linear import concatenate, full, slice, stop_gradient
from tracegrad.solvers.callbacks import Callback
from tracegrad.solvers.ode_sensitivity import System, of_length, row, solution
from tracegrad.solvers.solver_node import aside
from tracegrad.transforms.jvp_graph import pushed

__all__ = ["Event", "Events"]


class Event:
    """A graph of the time, the state and the values of a system, which is 0 at an event, with what SciPy reads of the
    user's function: whether, or at which occurrence, it is terminal, and its direction."""

    def __init__(self, graph: Graph, function: Any):
        self.graph, self._callback = graph, Callback(graph, "scipy.integrate.solve_ivp", 2)
        self.terminal = getattr(function, "terminal", None)
        self.direction = getattr(function, "direction", 0)

    def __repr__(self) -> str:
        return f"{self.graph} {self.terminal} {self.direction}"

    def on_host(self, values: Sequence[Any]) -> Any:
        of = self._callback.at(values)

        def call(t: Any, z: Any) -> float:
            return float(of(t, z))

        vars(call).update(terminal=self.terminal, direction=self.direction)
        return call


class _Search:
    """What SciPy finds: how many times and events of each kind there are, its status, and which event ended it; or,
    where these `counts` are known, the times, those of the events, and facts."""

    def __init__(self, system: System, events: Sequence[Event], timed: bool, counts: Sequence[int] | None = None):
        self.system, self.events, self.timed, self.counts = system, events, timed, counts

    def __repr__(self) -> str:
        return repr(f"{self.system.name} {self.events!r} {self.timed} {self.counts}")

    def __call__(self, first: Any, last: Any, *rest: Any) -> tuple[Any, ...]:
        rest = tuple([np.asarray(x, order="C") for x in rest])
        times, values = (rest[0], rest[1:]) if self.timed else (None, rest)
        with aside():
            events = [event.on_host(values) for event in self.events]
            found = self.system.run((float(first), float(last)), times, values, events=events)
        marks = [np.asarray(x) for x in found.t_events]
        if self.counts is None:
            which = self._ended_by(marks, float(last) >= float(first)) if found.status == 1 else -1
            return (np.array([len(found.t), found.status, which, *map(len, marks)], np.int64),)
        rows, _, _, *sizes = self.counts
        each = [of_length(x, n) for x, n in zip(marks, sizes)]
        facts = np.array([found.nfev, found.njev, found.nlu, found.status], np.int64)
        return of_length(np.asarray(found.t, np.float64), rows), np.concatenate(each), facts

    def _ended_by(self, marks: Sequence[Any], forward: bool) -> int:
        """The number of the event at which the solution ends: a terminal one, and the last of all."""
        ends = {k: x[-1] for k, x in enumerate(marks) if len(x) and self.events[k].terminal}
        return (max if forward else min)(ends, key=lambda k: ends[k])


class Events:
    """A solution with events: its `times`, the solution `y` at these, `facts` of the solver, and as `marks` for each
    event the times and the states."""

    def __init__(self, system: System, events: Sequence[Event], ends: Sequence[Any], times: Any, values: Sequence[Any]):
        self._of = system, ends, values
        given = [*ends, *([] if times is None else [times]), *values]
        timed, kinds = times is not None, ((3 + len(events),), "i64")
        (counted,) = opaque(*given, results=(kinds,), call=_Search(system, events, timed))
        asked = "the number of events of scipy.integrate.solve_ivp"
        rows, status, which, *sizes = (int(n) for n in counted.concrete(asked).tolist())
        search = _Search(system, events, timed, (rows, status, which, *sizes))
        results = (((rows,), "f64"), ((sum(sizes),), "f64"), ((4,), "i64"))
        steps, found, self.facts = opaque(*given, results=results, call=search)
        moments, start = [], 0
        for event, size in zip(events, sizes):
            part = slice(found, start=(start,), stop=(start + size,), step=(1,))
            moments.append(self._moved(event, self._moved(event, part)) if size else part)
            start += size
        if times is not None:
            self.times = slice(times, start=(0,), stop=(rows,), step=(1,))
        else:
            last = moments[which][-1] if which >= 0 else ends[1]
            inner = slice(steps, start=(1,), stop=(rows - 1,), step=(1,))
            self.times = concatenate(row(ends[0]), inner, row(last), axis=0)
        self.y = self._states(self.times)
        self.marks = moments, [self._states(t) if size else t for t, size in zip(moments, sizes)]

    def _states(self, times: Any) -> Any:
        system, ends, values = self._of
        return solution(system, ends, times, values)[1]

    def _moved(self, event: Event, times: Any) -> Any:
        """The same times, with derivatives."""
        system, _, values = self._of
        n, y, still = times.shape[0], self._states(times), [False] * len(values)
        (slopes, *_), (many, *_) = replay_batched(system.slope, n, [True, True, *still], [times, y, *values])
        slopes = slopes if many else repeated(n, [False], [slopes])[0]
        both, _ = pushed(event.graph, [0, 1])
        ones = full(shape=(n,), value=1.0, dtype="float64")
        flags = [True, True, *still, True, True]
        (height, slope), _ = replay_batched(both, n, flags, [times, y, *values, ones, slopes])
        step = divide(height, slope)
        return add(times, subtract(stop_gradient(step), step))
