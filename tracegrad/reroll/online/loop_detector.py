"""Detect and close loops during tracing: a path that returns to an earlier frame state is a loop.

The loop begins and ends at a conditional jump (`tracegrad.reroll.online.frame_state`). Its effect on the tracers of
the state is the body of a `while_loop`. This loop runs while its condition and the conditions on the path have their
recorded values. The tracers then get the final values of the loop, and tracing continues at the jump, where later
conditions are read as usual. The trip count is therefore not part of the trace.
"""

from __future__ import annotations

from types import FrameType

from tracegrad.cpython.frames import instruction_of
from tracegrad.ir import GraphNode
from tracegrad.reroll.online.ask import ask_at_entry, ask_at_jump, starts_at_entry
from tracegrad.reroll.online.frame_state import drop_dead_views
from tracegrad.reroll.online.loop_states import LoopState
from tracegrad.reroll.online.record import MAX_CLOSE_ATTEMPTS, LoopMachine, begin_path, leave_or_stay, read_condition
from tracegrad.reroll.online.restart import is_irregular, without_loop
from tracegrad.trace.builder.facts import LoopFactKind
from tracegrad.trace.loops.control_flow import condition_jump, count_jump, counters_of_condition, entered_jump
from tracegrad.trace.loops.range_counter import Counter


class LoopDetector(LoopMachine):
    """Online loop detector of one trace: what traced code does in loops, as events of the state machine."""

    def process_condition(self, condition: GraphNode) -> tuple[GraphNode, bool | None]:
        """Process a condition that traced code evaluates. Returns it and None; if a loop is closed here, the condition
        after the loop, and its value if it is determined."""
        self.start, self.jump, self.state = None, None, LoopState.RECORD  # an exception may have ended another state
        if self.builder.has_tensors:
            return condition, None
        for counter in counters_of_condition():
            counter.note_read()
        self.jump = condition_jump()
        if self.jump is None:
            return condition, None
        frame, at = self.frame_of(self.jump), self.jump.number
        if frame.attempts.get(at, 0) >= MAX_CLOSE_ATTEMPTS or is_irregular(self, self.jump):
            return condition, None
        drop_dead_views(self.jump)
        frame.attempts[at] = frame.attempts.get(at, 0) + 1
        condition, known = ask_at_jump(self, self.jump, condition)
        if known is not None:
            leave_or_stay(self, self.jump, known)
        return condition, known

    def process_outcome(self, outcome: bool) -> None:
        """Process the value of the last condition."""
        if self.jump is not None:
            leave_or_stay(self, self.jump, outcome)
        begin_path(self, outcome)

    def enter(self, frame: FrameType, number: int) -> None:
        """Process a loop entry: the target of the conditional jump with this number when it continues the loop."""
        builder, jump, self.state = self.builder, entered_jump(frame, number), LoopState.RECORD
        if jump is None or builder.has_tensors or is_irregular(self, jump):
            return
        known = self.frame_of(jump)
        if jump.fact(LoopFactKind.ENTERED) not in builder.world.facts:
            known.entered[number] = instruction_of(frame)
        if not starts_at_entry(self, jump):
            return
        known.starts.pop(number, None)
        outcome = ask_at_entry(self, jump)
        if outcome is not None:
            self.process_outcome(outcome)

    def iteration(self, counter: Counter, condition: GraphNode) -> bool:
        """Whether a folded loop has another iteration, from its condition."""
        builder, jump, self.state = self.builder, count_jump(), LoopState.RECORD
        if jump is None:
            raise builder.restarts(counter.fact(LoopFactKind.ITERATION_BY_ITERATION))
        self.start, self.jump = None, jump
        if counter.iterations >= MAX_CLOSE_ATTEMPTS:
            raise without_loop(self, jump)
        if not counter.iterations:
            self.frame_of(jump).starts.pop(jump.number, None)
        drop_dead_views(jump)
        with builder.outside():
            condition, known = ask_at_jump(self, jump, condition, counter)
            outcome = read_condition(self, condition, counter) if known is None else known
        if outcome and self.start is None:
            raise without_loop(self, jump)
        self.process_outcome(outcome)
        return outcome

    def close(self) -> None:
        """Release all state at the end of the trace."""
        self.frames, self.start, self.jump, self.unguarded, self.loops = {}, None, None, [], {}
