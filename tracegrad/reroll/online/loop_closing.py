"""Detect and close loops during tracing: a path that returns to an earlier frame state is a loop.

The loop begins and ends at a conditional jump (`tracegrad.reroll.online.frame_state`). Its effect on the tracers of
the state is the body of a `while_loop`. This loop runs while its condition and the conditions on the path have their
recorded values. The tracers then get the final values of the loop, and tracing continues at the jump, where later
conditions are read as usual. The trip count is therefore not part of the trace.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from tracegrad.ir import GraphNode, GraphValue, recording
from tracegrad.ir.builder import node_of
from tracegrad.ops.elementwise.table import logical_and
from tracegrad.ops.shape.linear import fresh, full
from tracegrad.reroll.intervals import is_sure
from tracegrad.reroll.online.frame_state import (
    FrameState,
    capture_state,
    difference,
    drop_dead_views,
    facts_at,
    restore_bounds,
    widen,
    widen_at_once,
    widen_bounds,
    widen_entrance,
    widen_kinds,
)
from tracegrad.reroll.online.path_loop import Begin, InductionVariable, LoopPath, PathCondition, PathLoop, may_raise
from tracegrad.trace.builder.builder import TraceBuilder
from tracegrad.trace.builder.facts import LoopFact, LoopFactKind, TraceFact
from tracegrad.trace.builder.value_guards import ValueGuard
from tracegrad.trace.bytecode.exception_regions import within_try
from tracegrad.trace.loops.appended_list import growing, require_not_written, restore_lists
from tracegrad.trace.loops.control_flow import (
    LoopJump,
    condition_jump,
    count_jump,
    counters_of_condition,
    entered_jump,
)
from tracegrad.trace.loops.range_counter import Counter, fold_around
from tracegrad.trace.loops.separate_views import restore_views
from tracegrad.trace.loops.varying_scalars import scalars_differ
from tracegrad.trace.random.generator_state import require_for_iterations

__all__ = ["LoopDetector"]

# Limits: states taken at a jump before a loop is closed there, paths of a loop, and conditions on a path.
MAX_CLOSE_ATTEMPTS, MAX_LOOP_PATHS, MAX_PATH_CONDITIONS = 8, 6, 100
# Limit: how often another path is added to a loop.
MAX_PATH_CHANGES = 2 * MAX_LOOP_PATHS


class _Start:
    """A possible start of a path: the state and the condition there, and the recording position."""

    def __init__(
        self,
        builder: TraceBuilder,
        state: FrameState,
        condition: GraphNode,
        loop: _ClosedLoop | None,
        counter: Counter | None,
    ):
        self.state, self.condition, self.loop, self.counts = state, condition, loop, counter is not None
        self.count = None if counter is None else _count(counter)
        self.nodes, self.guards, self.inner = len(builder.nodes), len(builder.guards), 0
        self.n_frozen, self.location = len(builder.constant_nodes), builder.locate()
        self.bounds, self.appended = dict(builder.bounds), len(builder.elements.appended)
        self.outcome = False
        self.enters = False  # whether this is a loop entry, without a condition
        self.is_first_iteration = (
            counter is not None and not counter.iterations
        )  # whether a counted loop is at its first iteration


def _count(counter: Counter) -> InductionVariable:
    """The induction variable of a loop from here on."""
    numbers = None
    if counter.length is not None and not counter.looped:
        first = counter.start + counter.step * counter.iterations
        numbers = range(first, counter.start + counter.step * counter.length, counter.step)
    stop = counter.stop.node if isinstance(counter.stop, GraphValue) else counter.stop
    return InductionVariable(counter.at.node, counter.step, stop, numbers)


class _UnguardedCondition(NamedTuple):
    """A condition of a folded loop that no guard holds, and the recording positions of it and of the loop. `nodes` are
    the nodes it depends on if the loop begins anew; `sure`: it has the same result for all their values."""

    at: int
    condition: GraphNode
    loop_start: int
    nodes: list[GraphNode]
    sure: bool


class _ClosedLoop:
    """A closed loop, and its start."""

    def __init__(self, start: _Start, paths: list[LoopPath], begin: Begin):
        self.start, self.paths, self.begin, self.changes = start, paths, begin, 0

    @property
    def loop(self) -> PathLoop:
        return PathLoop(self.paths, self.begin)

    def with_path(self, path: LoopPath) -> _ClosedLoop:
        """The loop with another path, which replaces an equal path through inner loops with fewer paths."""
        closed = _ClosedLoop(self.start, [*(x for x in self.paths if x.signature != path.signature), path], self.begin)
        closed.changes = self.changes + 1
        return closed

    @property
    def is_possible(self) -> bool:
        """Whether this loop can be built."""
        return len(self.paths) <= MAX_LOOP_PATHS and self.changes <= MAX_PATH_CHANGES and self.loop.is_possible


class _Frame:
    """Loop detection state of a frame; the reference to the frame makes its id unique."""

    def __init__(self, frame: Any):
        self.frame = frame
        self.starts: dict[int, _Start] = {}
        self.attempts: dict[int, int] = {}
        self.exit_jumps: set[int] = set()  # jumps with a branch that does not lead back
        self.entered: dict[int, int] = {}  # jumps of entered loops, with the instruction of the entry
        self.differed: dict[int, int] = {}  # number of iterations with a different end state, by jump

    def around(self, number: int) -> list[int]:
        """The innermost entered loop that contains this jump."""
        return sorted(x for x, at in self.entered.items() if at < number <= x)[:1]


class LoopDetector:
    """Online loop detector of one trace."""

    def __init__(self, builder: TraceBuilder):
        self.builder = builder
        self.frames: dict[int, _Frame] = {}
        self.has_traced_values = False  # whether tracers replace values that Python would know
        self.jump: LoopJump | None = None
        self.start: _Start | None = None
        self.unguarded: list[_UnguardedCondition] = []
        self.loops: dict[tuple[tuple[CodeType, int], bool], _ClosedLoop] = {}  # by jump, and whether it is in a `try`

    def process_condition(self, condition: GraphNode) -> tuple[GraphNode, bool | None]:
        """Process a condition that traced code evaluates. Returns it and None; if a loop is closed here, the condition
        after the loop, and its value if it is determined."""
        self.start, self.jump = None, None
        if self.builder.has_tensors:
            return condition, None
        for counter in counters_of_condition():
            counter.note_read()
        self.jump = condition_jump()
        if self.jump is None:
            return condition, None
        frame, at = self._frame(self.jump), self.jump.number
        if frame.attempts.get(at, 0) >= MAX_CLOSE_ATTEMPTS or self._is_irregular(self.jump):
            return condition, None
        drop_dead_views(self.jump)
        frame.attempts[at] = frame.attempts.get(at, 0) + 1
        condition, known = self._try_close(self.jump, condition)
        if known is not None:
            self._take_branch(self.jump, known)
        return condition, known

    def enter(self, frame: Any, number: int) -> None:
        """Process a loop entry: the target of the conditional jump with this number when it continues the loop."""
        builder, jump = self.builder, entered_jump(frame, number)
        if jump is None or builder.has_tensors or self._is_irregular(jump):
            return
        known = self._frame(jump)
        if jump.fact(LoopFactKind.ENTERED) not in builder.world.facts:
            known.entered[number] = frame.f_lasti
        if not self._starts_at_entry(jump):
            return
        known.starts.pop(number, None)
        state = self._widened_state(jump, enters=True)
        if state is None:
            return
        outcome = jump.leads_back(True)
        condition = node_of(fresh(full(shape=(), value=outcome, dtype="bool"), tag=builder.new_tag()))
        self.start = start = _Start(builder, state, condition, None, None)
        self.jump, start.enters = jump, True
        start.loop = self._known_loop(start, jump)
        self.process_outcome(outcome)

    def _known_loop(self, start: _Start, jump: LoopJump) -> _ClosedLoop | None:
        """The loop that begins here, if its paths are known from an earlier entry."""
        loop = self.loops.get((jump.instruction, within_try()))
        if loop is None or loop.start.counts is not start.counts or not start.state.is_within(loop.start.state):
            return None
        start.state.ends.like(loop.start.state.ends)
        # Other iterations may reach the bounds of the known loop.
        start.state.bounds = loop.start.state.bounds
        known = zip(start.state.nodes, start.state.bounds)
        self.builder.bounds.update({node: limits for node, limits in known if limits is not None})
        state = _distinct(start.state.nodes)
        if start.counts:
            state.append(node_of(fresh(_true(), tag=self.builder.new_tag())))
            start.nodes = len(self.builder.nodes)
        return _ClosedLoop(start, loop.paths, Begin(state, start.condition))

    def _starts_at_entry(self, jump: LoopJump) -> bool:
        """Whether the loop at this jump begins with its first iteration."""
        facts = self.builder.world.facts
        return jump.fact(LoopFactKind.ENTERED) in facts and jump.fact(LoopFactKind.PEELED) not in facts

    def _widened_state(self, jump: LoopJump, enters: bool = False) -> FrameState | None:
        """The state at a jump, with traced numbers for numbers that varied there before."""
        state = capture_state(self.builder, jump, enters)
        if state is not None and widen_at_once(state):
            self.has_traced_values = True
            state = capture_state(self.builder, jump)
        return state

    def iteration(self, counter: Counter, condition: GraphNode) -> bool:
        """Whether a folded loop has another iteration, from its condition."""
        builder, jump = self.builder, count_jump()
        if jump is None:
            raise builder.restarts(counter.fact(LoopFactKind.ITERATION_BY_ITERATION))
        self.start, self.jump = None, jump
        if counter.iterations >= MAX_CLOSE_ATTEMPTS:
            raise self._iteration_by_iteration()
        if not counter.iterations:
            self._frame(jump).starts.pop(jump.number, None)
        drop_dead_views(jump)
        with builder.outside():
            condition, known = self._try_close(jump, condition, counter)
            outcome = self._read_condition(condition, counter) if known is None else known
        if outcome and self.start is None:
            raise self._iteration_by_iteration()
        self.process_outcome(outcome)
        return outcome

    def _read_condition(self, condition: GraphNode, counter: Counter) -> bool:
        builder, guards = self.builder, len(self.builder.guards)
        outcome = builder.has_next_iteration(condition)
        if len(builder.guards) == guards:
            nodes = [condition] if counter.looped else counter.span[1]
            self.unguarded.append(
                _UnguardedCondition(len(builder.nodes), condition, counter.first_node, nodes, counter.is_sure)
            )
        return outcome

    def _iteration_by_iteration(self) -> BaseException:
        """The restart exception that records the iterations of this loop one by one. Short inner loops that were folded
        for the sake of this loop come first."""
        assert self.jump is not None
        facts = self.builder.world.facts
        (code, number), within = self.jump.instruction, self.jump.within
        folded = [x for x in facts if isinstance(x, LoopFact) and x.kind is LoopFactKind.WITHIN]
        short = [x.instruction for x in folded if x.code == code and x.instruction in within]
        inner = [LoopFact(LoopFactKind.ITERATION_BY_ITERATION, code, at) for at in short]
        own = LoopFact(LoopFactKind.ITERATION_BY_ITERATION, code, number)
        return self.builder.restarts(next((x for x in inner if x not in facts), own))

    def _try_close(
        self, jump: LoopJump, condition: GraphNode, counter: Counter | None = None
    ) -> tuple[GraphNode, bool | None]:
        """Close a loop that ends here, and note a possible start of another one."""
        frame, at = self._frame(jump), jump.number
        before = frame.starts.pop(at, None)
        is_first = counter is not None and not counter.iterations
        state = self._widened_state(jump, is_first) if before is None else capture_state(self.builder, jump)
        if state is None:
            self._report(self.builder.not_closed, frame.attempts.get(at, 0))
            return condition, None
        known: bool | None = None
        loop: _ClosedLoop | None = None
        require_for_iterations(self.builder, before, state, jump.counters)
        if before is not None and self.builder.elements.appended:
            self.builder.elements.iteration(before.appended, before.state.objects, state.objects)
        if before is not None and state.follows(before.state) and not widen_bounds(before.state, state):
            if self.builder.listed:
                require_not_written(self.builder, before.state.objects, state.objects)
            loop = self._closed(before, state, condition) if self._is_best(frame, before) else None
            if loop is not None:
                self._enter_better(frame, jump)
                self.loops[jump.instruction, within_try()] = loop
                self._forget(loop.start)
                self.has_traced_values, frame.attempts[at] = True, 0
                condition, known = self._end(loop, before.state, state)
                fold_around(self.builder, counter)
            elif not jump.counters:
                restore_bounds(before.state, state)
        elif before is not None:
            state = self._widen_state(before, state, frame)
        if state is not None and known is None:
            self.start = _Start(self.builder, state, condition, loop, counter)
            if counter is not None and loop is None:
                self.start.loop = self._known_loop(self.start, jump)
        return condition, known

    def _widen_state(self, before: _Start, state: FrameState, frame: _Frame) -> FrameState | None:
        """The present state, with traced numbers for numbers that differ from the earlier state (widening)."""
        jump, facts = state.jump, self.builder.world.facts
        # The first iterations may have changed less, for example because their steps were rejected.
        start = before if before.loop is None else before.loop.start
        grown = growing(self.builder, jump, before.state.lengths) or scalars_differ(before.state, state)
        if grown:
            facts |= grown
            raise self.builder.restarts(grown.pop(), "a list or a scalar that iterations change is traced in the loop")
        if (start.enters or start.is_first_iteration) and widen_entrance(start.state, state):
            raise self.builder.restarts(jump.fact(LoopFactKind.ENTERED) if start.enters else TraceFact.FOLDED)
        if before.enters:
            raise self.builder.restarts(jump.fact(LoopFactKind.PEELED))
        if widen(before.state, state):
            self.has_traced_values = True
            return capture_state(self.builder, jump)
        again = frame.differed.get(jump.number, 0)
        frame.differed[jump.number] = again + 1
        if widen_kinds(before.state, state, before.counts, again > 0):
            # The kinds may differ at the loop entry too.
            facts |= {LoopFact(LoopFactKind.ENTERED, jump.instruction[0], at) for at in frame.around(jump.number)}
            raise self.builder.restarts(TraceFact.KINDS, "the kinds of floats differ from iteration to iteration")
        self._report(difference(before.state, state), frame.attempts.get(jump.number, 0))
        return state

    def _enter_better(self, frame: _Frame, jump: LoopJump) -> None:
        """Restart the trace if a loop that begins after its first iteration can begin with it."""
        facts, code = self.builder.world.facts, jump.instruction[0]
        for at in frame.around(jump.number):
            entered = LoopFact(LoopFactKind.ENTERED, code, at)
            if entered not in facts:
                facts |= facts_at(facts, jump, at)
                raise self.builder.restarts(entered, "a loop begins with its first iteration")

    def _is_irregular(self, jump: LoopJump) -> bool:
        """Whether an earlier trace has found no loop here, because each iteration takes another path."""
        known = jump.fact(LoopFactKind.ITERATION_BY_ITERATION) in self.builder.world.facts
        if known:
            self._report("goes another way in each iteration")
        return known

    def _report(self, why: str, attempts: int = MAX_CLOSE_ATTEMPTS) -> None:
        """Record why the loop at this jump stays unrolled, after the last attempt."""
        if attempts == MAX_CLOSE_ATTEMPTS and self.jump is not None:
            code, line = self.jump.frame.f_code, self.jump.frame.f_lineno
            self.builder.unrolled.setdefault(f"{code.co_filename}:{line}", f"it asks for values, and {why}")

    def process_outcome(self, outcome: bool) -> None:
        """Process the value of the last condition."""
        jump = self.jump
        if jump is not None:
            self._take_branch(jump, outcome)
        start = self.start
        if start is None or jump is None or not jump.leads_back(outcome):
            return
        start.outcome, start.inner = outcome, len(self.builder.guards)
        start.state.forget()
        self.builder.reset_numbering()
        frame = self._frame(jump)
        frame.starts[jump.number] = start
        if not jump.leads_back(not outcome):
            frame.exit_jumps.add(jump.number)

    def _take_branch(self, jump: LoopJump, outcome: bool) -> None:
        """Process the branch that traced code takes at a jump."""
        restore_lists(self.builder, jump, outcome)
        if not jump.leads_back(outcome):
            self.start = None  # it holds references to the values of the state
            restore_views(self.builder, jump, outcome)

    def close(self) -> None:
        """Release all state at the end of the trace."""
        self.frames, self.start, self.jump, self.unguarded, self.loops = {}, None, None, [], {}

    def _frame(self, jump: LoopJump) -> _Frame:
        """The state of the frame of a jump; states of finished frames are dropped."""
        alive, frame = set(), sys._getframe(1)
        while frame is not None:
            alive.add(id(frame))
            frame = frame.f_back  # type: ignore[assignment]
        self.frames = {key: x for key, x in self.frames.items() if key in alive}
        return self.frames.setdefault(id(jump.frame), _Frame(jump.frame))

    def _is_best(self, frame: _Frame, start: _Start) -> bool:
        """Whether no jump on the path is a better loop head: one with a branch that leaves the loop."""
        assert self.jump is not None
        later = [k for k, x in frame.starts.items() if x.nodes >= start.nodes]
        return self.jump.number in frame.exit_jumps or frame.exit_jumps.isdisjoint(later)

    def _forget(self, start: _Start) -> None:
        """Drop starts later than the start of the closed loop."""
        for frame in self.frames.values():
            frame.starts = {k: x for k, x in frame.starts.items() if x.nodes < start.nodes}

    # -- the loop ------------------------------------------------------------------------------------
    def _closed(self, start: _Start, now: FrameState, condition: GraphNode) -> _ClosedLoop | None:
        """The loop of the path from `start` to now and of the known paths, if it can be built."""
        builder = self.builder
        guards = builder.guards[start.inner :]
        if len(guards) > MAX_PATH_CONDITIONS or not all(map(_is_simple, guards)):
            return None
        first = PathCondition(start.condition, start.location, start.outcome)
        guards = [x for x in guards if not is_sure(x.node, start.state.nodes, builder.bounds)]
        usual = [x for x in guards if x.implicit and start.counts and x.value]
        path = LoopPath(
            _distinct(start.state.nodes),
            _distinct(now.nodes),
            [first, *(PathCondition(x.node, x.location, x.value.item()) for x in guards if x not in usual)],
            condition,
            builder.nodes[start.nodes :],
            builder.constant_nodes[start.n_frozen :],
        )
        if start.counts:
            self._carry_conditions(path, [x.node for x in usual])
        before, single = start.loop, _ClosedLoop(start, [path], Begin(path.before, start.condition))
        closed = single if before is None else before.with_path(path)
        if before is not None and not closed.is_possible:
            if (
                not (start.counts or start.enters)
                or len(closed.paths) > MAX_LOOP_PATHS
                or closed.changes > MAX_PATH_CHANGES
            ):
                # Iterations differ in another way, so this is no loop over values.
                raise self._iteration_by_iteration()
            closed = self._without_first(start, path) or single  # its first iterations differ
        loop, recorded = closed.loop, {x for each in closed.paths for x in each.nodes}
        raising = [x for x in builder.raising if x in recorded and may_raise(x)]
        if not loop.is_possible or not all(map(loop.raises, raising)) or self._conditions_vary(start, loop, recorded):
            return None
        replaced = set(builder.nodes[closed.start.nodes :])
        builder.raising = [x for x in builder.raising if x not in replaced]
        return closed

    def _without_first(self, start: _Start, path: LoopPath) -> _ClosedLoop | None:
        """The loop from the earlier start with this path alone, if every iteration takes it; earlier paths went through
        inner loops with unknown paths."""
        before = start.loop
        assert before is not None
        closed = _ClosedLoop(before.start, [path], before.begin)
        alike = start.counts and before.start.state.is_within(start.state)
        if not alike or not closed.is_possible or not closed.loop.ends_at_condition:
            return None
        before.start.state.bounds = start.state.bounds
        return closed

    def _conditions_vary(self, start: _Start, loop: PathLoop, recorded: Collection[GraphNode]) -> bool:
        """Whether a condition that no guard holds may differ in other iterations."""
        late = [x for x in self.unguarded if x.at > start.nodes or x.condition in recorded]
        starts_inside = [x.loop_start > start.nodes or self.builder.nodes[x.loop_start] in recorded for x in late]
        anew = [node for x, inside in zip(late, starts_inside) if inside and not x.sure for node in x.nodes]
        return any(map(loop.changes, [*anew, *(x.condition for x, inside in zip(late, starts_inside) if not inside)]))

    def _carry_conditions(self, path: LoopPath, conditions: Sequence[GraphNode]) -> None:
        """Carry whether these conditions have held in all iterations."""
        builder = self.builder
        path.before.append(node_of(fresh(_true(), tag=builder.new_tag())))
        held: Any = builder.value(path.before[-1])
        for x in conditions:
            held = logical_and(held, builder.value(x))
            path.nodes.append(held.node)
        path.after.append(held.node)

    def _end(self, closed: _ClosedLoop, before: FrameState, now: FrameState) -> tuple[GraphNode, bool | None]:
        """Record the loop, and give the tracers its final values. Returns the condition after it, and its value if it
        is determined."""
        builder, start = self.builder, closed.start
        loop = closed.loop
        counted = start.count if loop.ends_at_condition else None
        results, condition = loop.emit(builder.value) if counted is None else loop.emit_counted(builder.value, counted)
        builder.bounds = dict(start.bounds)
        positions = {x: k for k, x in enumerate(closed.paths[-1].after)}
        for counter in now.jump.counters:
            counter.looped |= isinstance(counter.at, GraphValue) and positions.get(counter.at.node) in results
        for tracer, limits, asks in zip(now.tracers, start.state.bounds, start.state.asks):
            k, tracer.layout_inputs = positions[tracer.node], asks
            tracer.node = results[k].node if k in results else closed.begin.state[k]
            if k in results and limits is not None:
                builder.bounds[tracer.node] = limits
                builder.of_loops.add(tracer.node)
        iterated = start.enters or (start.is_first_iteration and start.count is not None and bool(start.count.numbers))
        start.state.ends.add(builder, before.numbered, now.tracers, iterated)
        now.record_values()
        builder.retract(start.guards)
        # Conditions of inner loops are the same in all iterations of this loop, but maybe not of an outer loop.
        self.unguarded = [x for x in self.unguarded if x.at < start.nodes or x.loop_start >= start.nodes]
        held = len(closed.begin.state) - 1
        if start.counts and held in results and not builder.assume(results[held].node):
            raise self._iteration_by_iteration()
        if loop.ends_at_condition:
            return condition.node, not closed.paths[0].outcomes[0]
        with recording(None), np.errstate(all="ignore"):
            builder.know(condition.node, loop.condition_after(builder.compute))
        return condition.node, None


def _distinct(nodes: list[GraphNode]) -> list[GraphNode]:
    """The distinct nodes."""
    return list(dict.fromkeys(nodes))


def _true() -> Any:
    return full(shape=(), value=True, dtype="bool")


def _is_simple(guard: ValueGuard) -> bool:
    """Whether a loop can test the guard's value."""
    return guard.value.size == 1 and guard.value.dtype.kind in "bi" and guard.unless_raises is None
