"""Ask whether a frame is in a state again in which a path began (state ASK)."""

from __future__ import annotations

from tracegrad.ir import GraphNode
from tracegrad.ir.builder import node_of
from tracegrad.ops.shape.linear import fresh, full
from tracegrad.reroll.online.close import close_loop, distinct
from tracegrad.reroll.online.frame_state import FrameState, capture_state
from tracegrad.reroll.online.loop_states import LoopState
from tracegrad.reroll.online.path_loop import Begin
from tracegrad.reroll.online.record import ClosedLoop, LoopMachine, PathStart
from tracegrad.reroll.online.widen import widen_at_once, widen_bounds, widen_or_restart
from tracegrad.trace.builder.facts import LoopFactKind
from tracegrad.trace.bytecode.exception_regions import within_try
from tracegrad.trace.loops.appended_list import require_not_written
from tracegrad.trace.loops.control_flow import LoopJump
from tracegrad.trace.loops.range_counter import Counter
from tracegrad.trace.random.generator_state import require_for_iterations


def ask_at_jump(
    machine: LoopMachine, jump: LoopJump, condition: GraphNode, counter: Counter | None = None
) -> tuple[GraphNode, bool | None]:
    """Close a loop that ends here, and note a possible start of another path. Returns the condition, or that after the
    loop, and its value if it is determined."""
    builder = machine.builder
    machine.move(LoopState.ASK)
    frame, at = machine.frame_of(jump), jump.number
    before = frame.starts.pop(at, None)
    is_first = counter is not None and not counter.iterations
    now = _widened_state(machine, jump, is_first) if before is None else capture_state(builder, jump)
    if now is None:
        machine.report(builder.loops.not_closed, frame.attempts.get(at, 0))
        machine.move(LoopState.RECORD, builder.loops.not_closed)
        return condition, None
    known: bool | None = None
    loop: ClosedLoop | None = None
    state: FrameState | None = now
    require_for_iterations(builder, before, now, jump.counters)
    if before is None:
        machine.move(LoopState.RECORD, "a path may begin here")
    else:
        if builder.loops.elements.appended:
            builder.loops.elements.iteration(before.appended, before.state.objects, now.objects)
        if now.follows(before.state) and not widen_bounds(before.state, now):
            if builder.loops.listed:
                require_not_written(builder, before.state.objects, now.objects)
            machine.move(LoopState.CLOSE)
            loop, condition, known = close_loop(machine, frame, before, now, condition, counter)
        else:
            machine.move(LoopState.WIDEN)
            state = widen_or_restart(machine, before, now, frame)
    if state is not None and known is None:
        machine.start = PathStart(builder, state, condition, loop, counter)
        if counter is not None and loop is None:
            machine.start.loop = _known_loop(machine, machine.start, jump)
    return condition, known


def ask_at_entry(machine: LoopMachine, jump: LoopJump) -> bool | None:
    """Note a loop entry as the start of a path. Returns the condition that continues the loop; None if the frame state
    is not understood."""
    builder = machine.builder
    machine.move(LoopState.ASK)
    state = _widened_state(machine, jump, enters=True)
    machine.move(
        LoopState.RECORD, builder.loops.not_closed if state is None else "a loop begins with its first iteration"
    )
    if state is None:
        return None
    outcome = jump.leads_back(True)
    condition = node_of(fresh(full(shape=(), value=outcome, dtype="bool"), tag=builder.new_tag()))
    machine.start = start = PathStart(builder, state, condition, None, None)
    machine.jump, start.enters = jump, True
    start.loop = _known_loop(machine, start, jump)
    return outcome


def starts_at_entry(machine: LoopMachine, jump: LoopJump) -> bool:
    """Whether the loop at this jump begins with its first iteration."""
    facts = machine.builder.world.facts
    return jump.fact(LoopFactKind.ENTERED) in facts and jump.fact(LoopFactKind.PEELED) not in facts


def _known_loop(machine: LoopMachine, start: PathStart, jump: LoopJump) -> ClosedLoop | None:
    """The loop that begins here, if its paths are known from an earlier entry."""
    builder = machine.builder
    loop = machine.loops.get((jump.instruction, within_try()))
    if loop is None or loop.start.counts is not start.counts or not start.state.is_within(loop.start.state):
        return None
    start.state.ends.like(loop.start.state.ends)
    # Other iterations may reach the bounds of the known loop.
    start.state.bounds = loop.start.state.bounds
    known = zip(start.state.nodes, start.state.bounds)
    builder.bounds.update({node: limits for node, limits in known if limits is not None})
    state = distinct(start.state.nodes)
    if start.counts:
        state.append(node_of(fresh(full(shape=(), value=True, dtype="bool"), tag=builder.new_tag())))
        start.nodes = len(builder.nodes)
    return ClosedLoop(start, loop.paths, Begin(state, start.condition))


def _widened_state(machine: LoopMachine, jump: LoopJump, enters: bool = False) -> FrameState | None:
    """The state at a jump, with traced numbers for numbers that varied there before."""
    state = capture_state(machine.builder, jump, enters)
    if state is not None and widen_at_once(state):
        machine.has_traced_values = True
        state = capture_state(machine.builder, jump)
    return state
