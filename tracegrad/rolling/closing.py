"""Closes loops while they are recorded: where traced code comes back to the state that it was in, it has gone around.

The circle begins and ends at a question for a truth (`tracegrad.trace.moments`). What it does to the tracers in the
state is the body of a `while_loop`, which runs as long as this question, and those asked on the way, have the answers
that they had. Then the tracers get what the loop leaves in them, and the code goes on from the question: whatever it
finds there is asked for as anything else is. So the number of turns is no part of the trace.
"""

from __future__ import annotations

import sys
from typing import Any

from tracegrad.ir import Node
from tracegrad.ops.failures import failure
from tracegrad.rolling.circles import Loop, Question, Way
from tracegrad.trace.builder import TraceBuilder
from tracegrad.trace.endings import TURN_BY_TURN
from tracegrad.trace.guards import ValueGuard
from tracegrad.trace.jumps import Place, place_of_question
from tracegrad.trace.moments import Moment, difference, moment, widen, widen_at_once, widen_bounds

__all__ = ["Circles"]

# How often a place in a frame is looked at without a loop being found, and along how many ways a loop may go.
MOST_LOOKS, MOST_WAYS = 8, 6


class _Start:
    """Where a way may begin: the state and the question there, and what had been recorded until then."""

    def __init__(self, builder: TraceBuilder, state: Moment, question: Node, loop: _Closed | None):
        self.state, self.question, self.loop = state, question, loop
        self.nodes, self.guards, self.inner = len(builder.nodes), len(builder.guards), 0
        self.settled, self.location = len(builder.settled), builder.locate()
        self.bounds = dict(builder.bounds)
        self.answer = False


class _Closed:
    """A loop that has been made, and where it begins."""

    def __init__(self, start: _Start, ways: list[Way]):
        self.start, self.ways = start, ways


class _Frame:
    """The places of a frame, which is kept so that no other one can be taken for it."""

    def __init__(self, frame: Any):
        self.frame = frame
        self.starts: dict[int, _Start] = {}
        self.looks: dict[int, int] = {}
        self.leading: set[int] = set()  # the places with an answer that does not lead back


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
        if frame.looks.get(at, 0) >= MOST_LOOKS or self._goes_other_ways(self.place):
            return question, None
        frame.looks[at] = frame.looks.get(at, 0) + 1
        before, state = frame.starts.pop(at, None), moment(self.builder, self.place)
        if state is not None and before is None and widen_at_once(state):
            self.found = True
            state = moment(self.builder, self.place)
        if state is None:
            self._tell(self.builder.not_closed, frame.looks[at])
            return question, None
        known: bool | None = None
        loop: _Closed | None = None
        if before is not None and before.state.words == state.words and not widen_bounds(before.state, state):
            loop = self._closed(before, state, question) if self._is_best(frame, before) else None
            if loop is not None:
                self._forget(loop.start)
                self.found, frame.looks[at] = True, 0
                question, known = self._end(loop, state)
        elif before is not None and widen(before.state, state):
            self.found = True
            state = moment(self.builder, self.place)
        elif before is not None:
            self._tell(difference(before.state, state), frame.looks[at])
        if state is not None and known is None:
            self.start = _Start(self.builder, state, question, loop)
        return question, known

    def _goes_other_ways(self, place: Place) -> bool:
        """Whether a trace before has found no loop here, for each turn is another."""
        known = (TURN_BY_TURN, *place.instruction) in self.builder.world.varying
        if known:
            self._tell("goes another way in each turn")
        return known

    def _tell(self, why: str, looks: int = MOST_LOOKS) -> None:
        """Note why the loop that asks here is left as it is, if it is not looked at any more."""
        if looks == MOST_LOOKS and self.place is not None:
            code, line = self.place.frame.f_code, self.place.frame.f_lineno
            self.builder.unrolled.setdefault(f"{code.co_filename}:{line}", f"it asks for values, and {why}")

    def answered(self, answer: bool) -> None:
        """What the answer to the question was that was met last."""
        start, place = self.start, self.place
        if start is None or place is None or not place.leads_back(answer):
            return
        start.answer, start.inner = answer, len(self.builder.guards)
        start.state.forget()
        self.builder.tell_apart()
        frame = self._frame(place)
        frame.starts[place.number] = start
        if not place.leads_back(not answer):
            frame.leading.add(place.number)

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

    def _is_best(self, frame: _Frame, start: _Start) -> bool:
        """Whether no place on the way is better to begin a loop at: one with an answer that ends it."""
        assert self.place is not None
        later = [k for k, x in frame.starts.items() if x.nodes >= start.nodes]
        return self.place.number in frame.leading or frame.leading.isdisjoint(later)

    def _forget(self, start: _Start) -> None:
        """Forget what began later than the loop that has been made."""
        for frame in self.frames.values():
            frame.starts = {k: x for k, x in frame.starts.items() if x.nodes < start.nodes}

    # -- the loop ------------------------------------------------------------------------------------
    def _closed(self, start: _Start, now: Moment, question: Node) -> _Closed | None:
        """The loop along the way from `start` to now, and along those that it is known to go along, if there may be
        one."""
        builder = self.builder
        inner = builder.guards[start.inner :]
        if not all(map(_is_simple, inner)):
            return None
        first = Question(start.question, start.location, start.answer)
        way = Way(
            _several(start.state.nodes), _several(now.nodes),
            [first, *(Question(x.node, x.location, x.seen.item()) for x in inner)], question,
            builder.nodes[start.nodes :], builder.settled[start.settled :],
        )  # fmt: skip
        before = start.loop
        ways = [way] if before is None else [*before.ways, way]
        if before is not None and (len(ways) > MOST_WAYS or not Loop(ways).is_possible):
            # Whatever it is that differs from turn to turn, this is no loop over values.
            assert self.place is not None
            raise builder.restarts((TURN_BY_TURN, *self.place.instruction))
        loop, recorded = Loop(ways), {x for each in ways for x in each.nodes}
        raising = [x for x in builder.raising if x in recorded]
        if not loop.is_possible or not all(map(loop.raises, raising)):
            return None
        builder.raising = [x for x in builder.raising if x not in recorded]
        return _Closed(start if before is None else before.start, ways)

    def _end(self, closed: _Closed, now: Moment) -> tuple[Node, bool | None]:
        """Record the loop, and leave in the tracers what it leaves: the question behind it, and its answer if it has
        but one."""
        builder, start = self.builder, closed.start
        loop = Loop(closed.ways)
        results, question = loop.emit(builder.value)
        builder.bounds = dict(start.bounds)
        places = {x: k for k, x in enumerate(closed.ways[-1].after)}
        for tracer, limits in zip(now.tracers, start.state.bounds):
            k = places[tracer.node]
            if k in results:
                tracer.node = results[k].node
                if limits is not None:
                    builder.bounds[tracer.node] = limits
        now.settle()
        builder.retract(start.guards)
        answer = closed.ways[0].answers[0]
        return question.node, not answer if loop.ends_at_question else None


def _several(nodes: list[Node]) -> list[Node]:
    """The nodes that are not one another."""
    return list(dict.fromkeys(nodes))


def _is_simple(guard: ValueGuard) -> bool:
    """Whether a loop can compare the answer."""
    known = guard.seen.size == 1 and guard.seen.dtype.kind in "bi" and guard.unless_raises is None
    return known and guard.node.op is not failure
