"""Closes loops while they are recorded: where traced code comes back to the state that it was in, it has gone around.

The circle begins and ends at a question for a truth (`tracegrad.trace.moments`). What it does to the tracers in the
state is the body of a `while_loop`, which runs as long as this question, and those asked on the way, have the answers
that they had. Then the tracers get what the loop leaves in them, and the code goes on from the question: whatever it
finds there is asked for as anything else is. So the number of turns is no part of the trace.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from tracegrad.control.regions import run_region
from tracegrad.control.until import while_loop
from tracegrad.ir import Graph, Node, build
from tracegrad.ir.builder import sliced
from tracegrad.ops.elementwise import equal, logical_and, logical_not
from tracegrad.ops.failures import failure
from tracegrad.ops.linear import reshape
from tracegrad.trace.builder import TraceBuilder
from tracegrad.trace.guards import ValueGuard
from tracegrad.trace.jumps import Place, place_of_question
from tracegrad.trace.moments import Moment, moment, widen, widen_bounds

__all__ = ["Circles"]

# How often a place in a frame is looked at without a loop being found, and how many loops are made of it.
MOST_LOOKS, MOST_LOOPS = 8, 4


class _Start:
    """Where a circle may begin: the state and the question there, and what had been recorded until then."""

    def __init__(self, builder: TraceBuilder, state: Moment, question: Node):
        self.state, self.question = state, question
        self.nodes, self.guards, self.inner = len(builder.nodes), len(builder.guards), 0
        self.settled = len(builder.settled)
        self.bounds = dict(builder.bounds)
        self.answer = False


class _Frame:
    """The places of a frame, which is kept so that no other one can be taken for it."""

    def __init__(self, frame: Any):
        self.frame = frame
        self.starts: dict[int, _Start] = {}
        self.looks: dict[int, int] = {}
        self.loops: dict[int, int] = {}


class Circles:
    """The circles of one trace."""

    def __init__(self, builder: TraceBuilder):
        self.builder = builder
        self.frames: dict[int, _Frame] = {}
        self.found = False  # whether there are tracers for what Python would know
        self.place: Place | None = None
        self.start: _Start | None = None

    def meet(self, question: Node) -> tuple[Node, bool | None]:
        """The question that traced code is asking, and None; or, where a loop is made, what the question is behind it,
        and the answer if it has but one."""
        self.start, self.place = None, None if self.builder.has_tensors else place_of_question()
        if self.place is None:
            return question, None
        frame, at = self._frame(self.place), self.place.number
        if frame.looks.get(at, 0) >= MOST_LOOKS or frame.loops.get(at, 0) >= MOST_LOOPS:
            return question, None
        frame.looks[at] = frame.looks.get(at, 0) + 1
        before, state = frame.starts.pop(at, None), moment(self.builder, self.place)
        if state is None:
            return question, None
        if before is not None and before.state.words == state.words and not widen_bounds(before.state, state):
            made = self._closed(before, state, question)
            if made is not None:
                self._forget(before)
                self.found = True
                frame.looks[at], frame.loops[at] = 0, frame.loops.get(at, 0) + 1
                return made
        elif before is not None and widen(before.state, state):
            self.found = True
            state = moment(self.builder, self.place)
        if state is not None:
            self.start = _Start(self.builder, state, question)
        return question, None

    def answered(self, answer: bool) -> None:
        """What the answer to the question was that was met last."""
        start, place = self.start, self.place
        if start is None or place is None or not place.leads_back(answer):
            return
        start.answer, start.inner = answer, len(self.builder.guards)
        start.state.forget()
        self.builder.tell_apart()
        self._frame(place).starts[place.number] = start

    def close(self) -> None:
        """The trace ends."""
        self.frames, self.start, self.place = {}, None, None

    def _frame(self, place: Place) -> _Frame:
        """What is known of the frame of a place; that of frames which are gone is forgotten."""
        alive, frame = set(), sys._getframe(1)
        while frame is not None:
            alive.add(id(frame))
            frame = frame.f_back  # type: ignore[assignment]
        self.frames = {key: x for key, x in self.frames.items() if key in alive}
        return self.frames.setdefault(id(place.frame), _Frame(place.frame))

    def _forget(self, start: _Start) -> None:
        """Forget what began later than the circle that is a loop now."""
        for frame in self.frames.values():
            frame.starts = {k: x for k, x in frame.starts.items() if x.nodes < start.nodes}

    # -- the loop ------------------------------------------------------------------------------------
    def _closed(self, start: _Start, now: Moment, question: Node) -> tuple[Node, bool | None] | None:
        """Put a loop into the place of what has been recorded since `start`, if that is possible."""
        builder = self.builder
        moved = {x: y for x, y in zip(start.state.nodes, now.nodes) if x is not y}
        fixed = {x for x, y in zip(start.state.nodes, now.nodes) if x is y}
        inner = builder.guards[start.inner :]
        recorded = builder.nodes[start.nodes :]
        body = sliced([], recorded, [*moved.values(), question])
        asked = sliced([], recorded, [x.node for x in inner])
        outside = dict.fromkeys(x for graph in (body, asked) for x in _read(graph) if x not in moved)
        if not all(x.op is None or x in fixed for x in outside) or not all(map(_is_simple, inner)):
            return None
        carried = set(moved)
        if any(x.depends_on(carried) for x in builder.settled[start.settled :]):
            return None
        # Rules of the user's that run where a derivative is taken know the values of the turn that was recorded.
        if any(name == "rule" for x in recorded for name, _ in x.params):
            return None
        if any(x.op.form.raises for x in asked.nodes) or not self._take_raising(recorded, body):  # type: ignore[union-attr]
            return None
        found = self._loop(start, body, asked, inner, list(moved), list(outside))
        results = dict(zip(moved, found))
        builder.bounds = dict(start.bounds)
        for x, tracer, limits in zip(start.state.nodes, now.tracers, start.state.bounds):
            if x in results:
                tracer.node = results[x].node
                if limits is not None:
                    builder.bounds[tracer.node] = limits
        builder.retract(start.guards)
        if not inner:
            return question, not start.answer
        goes_on = found[len(moved)]
        return (goes_on if start.answer else logical_not(goes_on)).node, None

    def _take_raising(self, recorded: Sequence[Node], body: Graph) -> bool:
        """Whether what may raise in a turn is in the body, which is then to raise it."""
        turn, live = set(recorded), set(body.nodes)
        mine = [x for x in self.builder.raising if x in turn]
        if any(x not in live for x in mine):
            return False
        self.builder.raising = [x for x in self.builder.raising if x not in turn]
        return True

    def _loop(self, start: _Start, body: Graph, asked: Graph, inner: Sequence[ValueGuard], carries: Sequence[Node],
              outside: Sequence[Node]) -> Sequence[Any]:  # fmt: skip
        """The results of the loop: the carries, whether it would have gone on but for the inner questions, a count."""
        value, count = self.builder.value, len(carries)
        step = Graph((*carries, *outside), body.nodes, body.outputs)
        asks = Graph((*carries, *outside), asked.nodes, asked.outputs)

        def turn(*args: Any) -> list[Any]:
            *new, question = run_region(step, [*args[:count], *args[count + 1 :]])
            return [*new, _agrees(question, start.answer)]

        def goes_on(*args: Any) -> list[Any]:
            answers = run_region(asks, [*args[:count], *args[count + 1 :]])
            holds = args[count]
            for guard, answer in zip(inner, answers):
                holds = logical_and(holds, _agrees(answer, guard.seen.item()))
            return [holds]

        first = _agrees(value(start.question), start.answer)
        operands = [*map(value, carries), first, *map(value, outside)]
        avals = [x.aval for x in operands]
        results: Sequence[Any] = while_loop(
            *operands, cond=build(goes_on, avals), body=build(turn, avals), carries=count + 1, capacity=0
        )
        return results


def _read(graph: Graph) -> list[Node]:
    """What the graph reads from outside."""
    inside = set(graph.nodes)
    return [x for x in (*(x for n in graph.nodes for x in n.operands), *graph.outputs) if x not in inside]


def _is_simple(guard: ValueGuard) -> bool:
    """Whether a loop can compare the answer."""
    known = guard.seen.size == 1 and guard.seen.dtype.kind in "bi" and guard.unless_raises is None
    return known and guard.node.op is not failure


def _agrees(x: Any, answer: Any) -> Any:
    """Whether a question has this answer."""
    x = reshape(x, shape=()) if x.shape else x
    if x.dtype.kind != "b":
        return equal(x, answer)
    return x if answer else logical_not(x)
