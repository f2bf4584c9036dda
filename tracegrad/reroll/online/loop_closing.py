"""Detect and close loops during tracing: a path that returns to an earlier frame state is a loop.

The loop begins and ends at a conditional jump (`tracegrad.reroll.online.frame_state`). Its effect on the tracers of
the state is the body of a `while_loop`. This loop runs while its condition and the conditions on the path have their
recorded values. The tracers then get the final values of the loop, and tracing continues at the jump, where later
conditions are read as usual. The trip count is therefore not part of the trace.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tracegrad.ir import Node, Value, recording
from tracegrad.ops.calls.failure import failure
from tracegrad.ops.elementwise.table import logical_and
from tracegrad.ops.shape.linear import fresh, full
from tracegrad.reroll.intervals import is_sure
from tracegrad.reroll.online.frame_state import (
    Moment,
    difference,
    differing,
    keep_bounds,
    let_go,
    moment,
    widen,
    widen_at_once,
    widen_bounds,
    widen_entrance,
    widen_kinds,
)
from tracegrad.reroll.online.path_loop import Begin, Count, Loop, Question, Way, may_raise
from tracegrad.trace.builder.abort import ENTERED, FOLDED, ITERATION_BY_ITERATION, KINDS, PEELED, WITHIN
from tracegrad.trace.builder.builder import TraceBuilder
from tracegrad.trace.builder.value_guards import ValueGuard
from tracegrad.trace.bytecode.exception_regions import within_try
from tracegrad.trace.loops.appended_list import growing, leave, require_not_written
from tracegrad.trace.loops.control_flow import (
    Place,
    counters_of_question,
    place_entered,
    place_of_count,
    place_of_question,
)
from tracegrad.trace.loops.range_counter import Counter, fold_around
from tracegrad.trace.loops.separate_views import put_back
from tracegrad.trace.loops.varying_scalars import scalars_differ
from tracegrad.trace.random.generator_state import require_for_iterations

__all__ = ["Circles"]

# Limits: states taken at a jump before a loop is closed there, paths of a loop, and conditions on a path.
MOST_LOOKS, MOST_WAYS, MOST_QUESTIONS = 8, 6, 100
# Limit: how often another path is added to a loop.
MOST_CHANGES = 2 * MOST_WAYS


class _Start:
    """A possible start of a path: the state and the condition there, and the recording position."""

    def __init__(
        self, builder: TraceBuilder, state: Moment, question: Node, loop: _Closed | None, counter: Counter | None
    ):
        self.state, self.question, self.loop, self.counts = state, question, loop, counter is not None
        self.count = None if counter is None else _count(counter)
        self.nodes, self.guards, self.inner = len(builder.nodes), len(builder.guards), 0
        self.settled, self.location = len(builder.settled), builder.locate()
        self.bounds, self.appended = dict(builder.bounds), len(builder.elements.appended)
        self.answer = False
        self.enters = False  # whether this is a loop entry, without a condition
        self.begins = counter is not None and not counter.iterations  # whether a counted loop is at its first iteration


def _count(counter: Counter) -> Count:
    """The induction variable of a loop from here on."""
    numbers = None
    if counter.length is not None and not counter.looped:
        first = counter.start + counter.step * counter.iterations
        numbers = range(first, counter.start + counter.step * counter.length, counter.step)
    stop = counter.stop.node if isinstance(counter.stop, Value) else counter.stop
    return Count(counter.at.node, counter.step, stop, numbers)


class _Asked(NamedTuple):
    """A condition of a folded loop that no guard holds, and the recording positions of it and of the loop. `nodes` are
    the nodes it depends on if the loop begins anew; `sure`: it has the same result for all their values."""

    at: int
    question: Node
    begun: int
    nodes: list[Node]
    sure: bool


class _Closed:
    """A closed loop, and its start."""

    def __init__(self, start: _Start, ways: list[Way], begin: Begin):
        self.start, self.ways, self.begin, self.changes = start, ways, begin, 0

    @property
    def loop(self) -> Loop:
        return Loop(self.ways, self.begin)

    def with_way(self, way: Way) -> _Closed:
        """The loop with another path, which replaces an equal path through inner loops with fewer paths."""
        closed = _Closed(self.start, [*(x for x in self.ways if x.asked != way.asked), way], self.begin)
        closed.changes = self.changes + 1
        return closed

    @property
    def may_be(self) -> bool:
        """Whether this loop can be built."""
        return len(self.ways) <= MOST_WAYS and self.changes <= MOST_CHANGES and self.loop.is_possible


class _Frame:
    """Loop detection state of a frame; the reference to the frame makes its id unique."""

    def __init__(self, frame: Any):
        self.frame = frame
        self.starts: dict[int, _Start] = {}
        self.looks: dict[int, int] = {}
        self.leading: set[int] = set()  # jumps with a branch that does not lead back
        self.entered: dict[int, int] = {}  # jumps of entered loops, with the instruction of the entry
        self.differed: dict[int, int] = {}  # number of iterations with a different end state, by jump

    def around(self, number: int) -> list[int]:
        """The innermost entered loop that contains this jump."""
        return sorted(x for x, at in self.entered.items() if at < number <= x)[:1]


class Circles:
    """Online loop detector of one trace."""

    def __init__(self, builder: TraceBuilder):
        self.builder = builder
        self.frames: dict[int, _Frame] = {}
        self.found = False  # whether tracers replace values that Python would know
        self.place: Place | None = None
        self.start: _Start | None = None
        self.asked: list[_Asked] = []
        self.loops: dict[Hashable, _Closed] = {}  # by entry, and by whether it is within a `try`

    def meet(self, question: Node) -> tuple[Node, bool | None]:
        """Process a condition that traced code evaluates. Returns it and None; if a loop is closed here, the condition
        after the loop, and its value if it is determined."""
        self.start, self.place = None, None
        if self.builder.has_tensors:
            return question, None
        for counter in counters_of_question():
            counter.asks()
        self.place = place_of_question()
        if self.place is None:
            return question, None
        frame, at = self._frame(self.place), self.place.number
        if frame.looks.get(at, 0) >= MOST_LOOKS or self._goes_other_ways(self.place):
            return question, None
        let_go(self.place)
        frame.looks[at] = frame.looks.get(at, 0) + 1
        question, known = self._look(self.place, question)
        if known is not None:
            self._leave(self.place, known)
        return question, known

    def enter(self, frame: Any, number: int) -> None:
        """Process a loop entry: the target of the conditional jump with this number when it continues the loop."""
        builder, place = self.builder, place_entered(frame, number)
        if place is None or builder.has_tensors or self._goes_other_ways(place):
            return
        known, key = self._frame(place), (ENTERED, *place.instruction)
        if key not in builder.world.varying:
            known.entered[number] = frame.f_lasti
        if not self._begins(place):
            return
        known.starts.pop(number, None)
        state = self._wide(place, enters=True)
        if state is None:
            return
        answer = place.leads_back(True)
        asked = fresh(full(shape=(), value=answer, dtype="bool"), tag=builder.new_tag()).node
        self.start = start = _Start(builder, state, asked, None, None)
        self.place, start.enters = place, True
        start.loop = self._met_before(start, place)
        self.answered(answer)

    def _met_before(self, start: _Start, place: Place) -> _Closed | None:
        """The loop that begins here, if its paths are known from an earlier entry."""
        loop = self.loops.get(((ENTERED, *place.instruction), within_try()))
        if loop is None or loop.start.counts is not start.counts or not start.state.is_within(loop.start.state):
            return None
        start.state.ends.like(loop.start.state.ends)
        # Other iterations may reach the bounds of the known loop.
        start.state.bounds = loop.start.state.bounds
        known = zip(start.state.nodes, start.state.bounds)
        self.builder.bounds.update({node: limits for node, limits in known if limits is not None})
        state = _several(start.state.nodes)
        if start.counts:
            state.append(fresh(_true(), tag=self.builder.new_tag()).node)
            start.nodes = len(self.builder.nodes)
        return _Closed(start, loop.ways, Begin(state, start.question))

    def _begins(self, place: Place) -> bool:
        """Whether the loop at this jump begins with its first iteration."""
        varying = self.builder.world.varying
        return (ENTERED, *place.instruction) in varying and (PEELED, *place.instruction) not in varying

    def _wide(self, place: Place, enters: bool = False) -> Moment | None:
        """The state at a jump, with traced numbers for numbers that varied there before."""
        state = moment(self.builder, place, enters)
        if state is not None and widen_at_once(state):
            self.found = True
            state = moment(self.builder, place)
        return state

    def iteration(self, counter: Counter, question: Node) -> bool:
        """Whether a folded loop has another iteration, from its condition."""
        builder, place = self.builder, place_of_count()
        if place is None:
            raise builder.restarts(counter.key(ITERATION_BY_ITERATION))
        self.start, self.place = None, place
        if counter.iterations >= MOST_LOOKS:
            raise self._iteration_by_iteration()
        if not counter.iterations:
            self._frame(place).starts.pop(place.number, None)
        let_go(place)
        with builder.outside():
            question, known = self._look(place, question, counter)
            answer = self._goes_on(question, counter) if known is None else known
        if answer and self.start is None:
            raise self._iteration_by_iteration()
        self.answered(answer)
        return answer

    def _goes_on(self, question: Node, counter: Counter) -> bool:
        builder, guards = self.builder, len(self.builder.guards)
        answer = builder.goes_on(question)
        if len(builder.guards) == guards:
            nodes = [question] if counter.looped else counter.span[1]
            self.asked.append(_Asked(len(builder.nodes), question, counter.begun, nodes, counter.is_sure))
        return answer

    def _iteration_by_iteration(self) -> BaseException:
        """The restart exception that records the iterations of this loop one by one. Short inner loops that were folded
        for the sake of this loop come first."""
        assert self.place is not None
        varying = self.builder.world.varying
        (code, number), within = self.place.instruction, self.place.within
        short = {x[1:] for x in varying if isinstance(x, tuple) and x[:2] == (WITHIN, code) and x[2] in within}
        longer = [x for x in short if (ITERATION_BY_ITERATION, *x) not in varying]
        return self.builder.restarts((ITERATION_BY_ITERATION, *(longer[0] if longer else (code, number))))

    def _look(self, place: Place, question: Node, counter: Counter | None = None) -> tuple[Node, bool | None]:
        """Close a loop that ends here, and note a possible start of another one."""
        frame, at = self._frame(place), place.number
        before = frame.starts.pop(at, None)
        begins = counter is not None and not counter.iterations
        state = self._wide(place, begins) if before is None else moment(self.builder, place)
        if state is None:
            self._tell(self.builder.not_closed, frame.looks.get(at, 0))
            return question, None
        known: bool | None = None
        loop: _Closed | None = None
        require_for_iterations(self.builder, before, state, place.counters)
        if before is not None and self.builder.elements.appended:
            self.builder.elements.iteration(before.appended, before.state.objects, state.objects)
        if before is not None and state.follows(before.state) and not widen_bounds(before.state, state):
            if self.builder.listed:
                require_not_written(self.builder, before.state.objects, state.objects)
            loop = self._closed(before, state, question) if self._is_best(frame, before) else None
            if loop is not None:
                self._enter_better(frame, place)
                self.loops[(ENTERED, *place.instruction), within_try()] = loop
                self._forget(loop.start)
                self.found, frame.looks[at] = True, 0
                question, known = self._end(loop, before.state, state)
                fold_around(self.builder, counter)
            elif not place.counters:
                keep_bounds(before.state, state)
        elif before is not None:
            state = self._widened(before, state, frame)
        if state is not None and known is None:
            self.start = _Start(self.builder, state, question, loop, counter)
            if counter is not None and loop is None:
                self.start.loop = self._met_before(self.start, place)
        return question, known

    def _widened(self, before: _Start, state: Moment, frame: _Frame) -> Moment | None:
        """The present state, with traced numbers for numbers that differ from the earlier state (widening)."""
        place, varying = state.place, self.builder.world.varying
        # The first iterations may have changed less, for example because their steps were rejected.
        start = before if before.loop is None else before.loop.start
        grown = growing(self.builder, place, before.state.lengths) or scalars_differ(before.state, state)
        if grown:
            varying |= grown
            raise self.builder.restarts(grown.pop(), "a list or a scalar that turns change is traced in the loop")
        if (start.enters or start.begins) and widen_entrance(start.state, state):
            raise self.builder.restarts((ENTERED, *place.instruction) if start.enters else FOLDED)
        if before.enters:
            raise self.builder.restarts((PEELED, *place.instruction))
        if widen(before.state, state):
            self.found = True
            return moment(self.builder, place)
        again = frame.differed.get(place.number, 0)
        frame.differed[place.number] = again + 1
        if widen_kinds(before.state, state, before.counts, again > 0):
            # The kinds may differ at the loop entry too.
            varying |= {(ENTERED, place.instruction[0], at) for at in frame.around(place.number)}
            raise self.builder.restarts(KINDS, "the kinds of floats differ from turn to turn")
        self._tell(difference(before.state, state), frame.looks.get(place.number, 0))
        return state

    def _enter_better(self, frame: _Frame, place: Place) -> None:
        """Restart the trace if a loop that begins after its first iteration can begin with it."""
        varying, code = self.builder.world.varying, place.instruction[0]
        for at in frame.around(place.number):
            if (ENTERED, code, at) not in varying:
                varying |= differing(varying, place, at)
                raise self.builder.restarts((ENTERED, code, at), "a loop begins with its first turn")

    def _goes_other_ways(self, place: Place) -> bool:
        """Whether an earlier trace has found no loop here, because each iteration takes another path."""
        known = (ITERATION_BY_ITERATION, *place.instruction) in self.builder.world.varying
        if known:
            self._tell("goes another way in each turn")
        return known

    def _tell(self, why: str, looks: int = MOST_LOOKS) -> None:
        """Record why the loop at this jump stays unrolled, after the last attempt."""
        if looks == MOST_LOOKS and self.place is not None:
            code, line = self.place.frame.f_code, self.place.frame.f_lineno
            self.builder.unrolled.setdefault(f"{code.co_filename}:{line}", f"it asks for values, and {why}")

    def answered(self, answer: bool) -> None:
        """Process the value of the last condition."""
        place = self.place
        if place is not None:
            self._leave(place, answer)
        start = self.start
        if start is None or place is None or not place.leads_back(answer):
            return
        start.answer, start.inner = answer, len(self.builder.guards)
        start.state.forget()
        self.builder.tell_apart()
        frame = self._frame(place)
        frame.starts[place.number] = start
        if not place.leads_back(not answer):
            frame.leading.add(place.number)

    def _leave(self, place: Place, answer: bool) -> None:
        """Process the branch that traced code takes at a jump."""
        leave(self.builder, place, answer)
        if not place.leads_back(answer):
            self.start = None  # it holds references to the values of the state
            put_back(self.builder, place, answer)

    def close(self) -> None:
        """Release all state at the end of the trace."""
        self.frames, self.start, self.place, self.asked, self.loops = {}, None, None, [], {}

    def _frame(self, place: Place) -> _Frame:
        """The state of the frame of a jump; states of finished frames are dropped."""
        alive, frame = set(), sys._getframe(1)
        while frame is not None:
            alive.add(id(frame))
            frame = frame.f_back  # type: ignore[assignment]
        self.frames = {key: x for key, x in self.frames.items() if key in alive}
        return self.frames.setdefault(id(place.frame), _Frame(place.frame))

    def _is_best(self, frame: _Frame, start: _Start) -> bool:
        """Whether no jump on the path is a better loop head: one with a branch that leaves the loop."""
        assert self.place is not None
        later = [k for k, x in frame.starts.items() if x.nodes >= start.nodes]
        return self.place.number in frame.leading or frame.leading.isdisjoint(later)

    def _forget(self, start: _Start) -> None:
        """Drop starts later than the start of the closed loop."""
        for frame in self.frames.values():
            frame.starts = {k: x for k, x in frame.starts.items() if x.nodes < start.nodes}

    # -- the loop ------------------------------------------------------------------------------------
    def _closed(self, start: _Start, now: Moment, question: Node) -> _Closed | None:
        """The loop of the path from `start` to now and of the known paths, if it can be built."""
        builder = self.builder
        inner = builder.guards[start.inner :]
        if len(inner) > MOST_QUESTIONS or not all(map(_is_simple, inner)):
            return None
        first = Question(start.question, start.location, start.answer)
        inner = [x for x in inner if not is_sure(x.node, start.state.nodes, builder.bounds)]
        usual = [x for x in inner if x.implicit and start.counts and x.seen]
        way = Way(
            _several(start.state.nodes), _several(now.nodes),
            [first, *(Question(x.node, x.location, x.seen.item()) for x in inner if x not in usual)], question,
            builder.nodes[start.nodes :], builder.settled[start.settled :],
        )  # fmt: skip
        if start.counts:
            self._carry_conditions(way, [x.node for x in usual])
        before, alone = start.loop, _Closed(start, [way], Begin(way.before, start.question))
        closed = alone if before is None else before.with_way(way)
        if before is not None and not closed.may_be:
            if not (start.counts or start.enters) or len(closed.ways) > MOST_WAYS or closed.changes > MOST_CHANGES:
                # Iterations differ in another way, so this is no loop over values.
                raise self._iteration_by_iteration()
            closed = self._without_first(start, way) or alone  # its first iterations differ
        loop, recorded = closed.loop, {x for each in closed.ways for x in each.nodes}
        raising = [x for x in builder.raising if x in recorded and may_raise(x)]
        if not loop.is_possible or not all(map(loop.raises, raising)) or self._asks_otherwise(start, loop, recorded):
            return None
        replaced = set(builder.nodes[closed.start.nodes :])
        builder.raising = [x for x in builder.raising if x not in replaced]
        return closed

    def _without_first(self, start: _Start, way: Way) -> _Closed | None:
        """The loop from the earlier start with this path alone, if every iteration takes it; earlier paths went through
        inner loops with unknown paths."""
        before = start.loop
        assert before is not None
        closed = _Closed(before.start, [way], before.begin)
        alike = start.counts and before.start.state.is_within(start.state)
        if not alike or not closed.may_be or not closed.loop.ends_at_question:
            return None
        before.start.state.bounds = start.state.bounds
        return closed

    def _asks_otherwise(self, start: _Start, loop: Loop, recorded: Collection[Node]) -> bool:
        """Whether a condition that no guard holds may differ in other iterations."""
        late = [x for x in self.asked if x.at > start.nodes or x.question in recorded]
        begun = [x.begun > start.nodes or self.builder.nodes[x.begun] in recorded for x in late]
        anew = [node for x, inside in zip(late, begun) if inside and not x.sure for node in x.nodes]
        return any(map(loop.changes, [*anew, *(x.question for x, inside in zip(late, begun) if not inside)]))

    def _carry_conditions(self, way: Way, conditions: Sequence[Node]) -> None:
        """Carry whether these conditions have held in all iterations."""
        builder = self.builder
        way.before.append(fresh(_true(), tag=builder.new_tag()).node)
        held = builder.value(way.before[-1])
        for x in conditions:
            held = logical_and(held, builder.value(x))
            way.nodes.append(held.node)
        way.after.append(held.node)

    def _end(self, closed: _Closed, before: Moment, now: Moment) -> tuple[Node, bool | None]:
        """Record the loop, and give the tracers its final values. Returns the condition after it, and its value if it
        is determined."""
        builder, start = self.builder, closed.start
        loop = closed.loop
        counted = start.count if loop.ends_at_question else None
        results, question = loop.emit(builder.value) if counted is None else loop.emit_counted(builder.value, counted)
        builder.bounds = dict(start.bounds)
        places = {x: k for k, x in enumerate(closed.ways[-1].after)}
        for counter in now.place.counters:
            counter.looped |= isinstance(counter.at, Value) and places.get(counter.at.node) in results
        for tracer, limits, asks in zip(now.tracers, start.state.bounds, start.state.asks):
            k, tracer.asks = places[tracer.node], asks
            tracer.node = results[k].node if k in results else closed.begin.state[k]
            if k in results and limits is not None:
                builder.bounds[tracer.node] = limits
                builder.of_loops.add(tracer.node)
        iterated = start.enters or (start.begins and start.count is not None and bool(start.count.numbers))
        start.state.ends.add(builder, before.numbered, now.tracers, iterated)
        now.settle()
        builder.retract(start.guards)
        # Conditions of inner loops are the same in all iterations of this loop, but maybe not of an outer loop.
        self.asked = [x for x in self.asked if x.at < start.nodes or x.begun >= start.nodes]
        held = len(closed.begin.state) - 1
        if start.counts and held in results and not builder.assume(results[held].node):
            raise self._iteration_by_iteration()
        if loop.ends_at_question:
            return question.node, not closed.ways[0].answers[0]
        with recording(None), np.errstate(all="ignore"):
            builder.know(question.node, loop.behind(builder.compute))
        return question.node, None


def _several(nodes: list[Node]) -> list[Node]:
    """The distinct nodes."""
    return list(dict.fromkeys(nodes))


def _true() -> Any:
    return full(shape=(), value=True, dtype="bool")


def _is_simple(guard: ValueGuard) -> bool:
    """Whether a loop can test the guard's value."""
    known = guard.seen.size == 1 and guard.seen.dtype.kind in "bi" and guard.unless_raises is None
    return known and guard.node.op is not failure
