"""Close a loop: the recorded path, and the known paths, become a loop in the graph (state CLOSE)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from tracegrad.ir import GraphNode, GraphValue, recording
from tracegrad.ir.builder import node_of
from tracegrad.ops.elementwise.table import logical_and
from tracegrad.ops.shape.linear import fresh, full
from tracegrad.reroll.intervals import is_sure
from tracegrad.reroll.online.frame_state import FrameState
from tracegrad.reroll.online.loop_states import LoopState
from tracegrad.reroll.online.path_loop import Begin, LoopPath, PathCondition, PathLoop, may_raise
from tracegrad.reroll.online.record import ClosedLoop, FrameRecord, LoopMachine, PathStart
from tracegrad.reroll.online.restart import restart_at_first_iteration, without_loop
from tracegrad.reroll.online.widen import restore_bounds
from tracegrad.trace.builder.builder import TraceBuilder
from tracegrad.trace.builder.value_guards import ValueGuard
from tracegrad.trace.bytecode.exception_regions import within_try
from tracegrad.trace.loops.range_counter import Counter, fold_around

# Limit: conditions on a path.
MAX_PATH_CONDITIONS = 100


def close_loop(
    machine: LoopMachine,
    frame: FrameRecord,
    start: PathStart,
    now: FrameState,
    condition: GraphNode,
    counter: Counter | None,
) -> tuple[ClosedLoop | None, GraphNode, bool | None]:
    """Close the loop of the path from `start` to now. Returns it, the condition after it, and the value of the
    condition if it is determined; None and the present condition if no loop can be made."""
    jump, known = now.jump, None
    loop = _closed(machine, start, now, condition) if _is_best(machine, frame, start) else None
    if loop is None:
        if not jump.counters:
            restore_bounds(start.state, now)
        machine.move(LoopState.RECORD, "the iterations cannot be a loop")
        return None, condition, None
    restart_at_first_iteration(machine, frame, jump)
    machine.loops[jump.instruction, within_try()] = loop
    machine.forget_later(loop.start)
    machine.has_traced_values, frame.attempts[jump.number] = True, 0
    condition, known = _emit(machine, loop, start.state, now)
    fold_around(machine.builder, counter)
    machine.move(LoopState.RECORD, f"the iterations are a loop; paths: {len(loop.paths)}")
    return loop, condition, known


def _is_best(machine: LoopMachine, frame: FrameRecord, start: PathStart) -> bool:
    """Whether no jump on the path is a better loop head: one with a branch that leaves the loop."""
    assert machine.jump is not None
    later = [k for k, x in frame.starts.items() if x.nodes >= start.nodes]
    return machine.jump.number in frame.exit_jumps or frame.exit_jumps.isdisjoint(later)


def _closed(machine: LoopMachine, start: PathStart, now: FrameState, condition: GraphNode) -> ClosedLoop | None:
    """The loop of the path from `start` to now and of the known paths, if it can be built."""
    builder = machine.builder
    guards = builder.guards[start.inner :]
    if len(guards) > MAX_PATH_CONDITIONS or not all(map(_is_simple, guards)):
        return None
    first = PathCondition(start.condition, start.location, start.outcome)
    guards = [x for x in guards if not is_sure(x.node, start.state.nodes, builder.bounds)]
    usual = [x for x in guards if x.implicit and start.counts and x.value]
    path = LoopPath(
        distinct(start.state.nodes),
        distinct(now.nodes),
        [first, *(PathCondition(x.node, x.location, x.value.item()) for x in guards if x not in usual)],
        condition,
        builder.nodes[start.nodes :],
        builder.loops.constant_nodes[start.n_frozen :],
    )
    if start.counts:
        _carry_conditions(machine.builder, path, [x.node for x in usual])
    before, single = start.loop, ClosedLoop(start, [path], Begin(path.before, start.condition))
    closed = single if before is None else before.with_path(path)
    if before is not None and not closed.is_possible:
        if not (start.counts or start.enters) or not closed.has_room:
            # Iterations differ in another way, so this is no loop over values.
            raise without_loop(machine, now.jump)
        closed = _without_first(start, path) or single  # its first iterations differ
    loop, recorded = closed.loop, {x for each in closed.paths for x in each.nodes}
    raising = [x for x in builder.raising if x in recorded and may_raise(x)]
    if not loop.is_possible or not all(map(loop.raises, raising)) or _conditions_vary(machine, start, loop, recorded):
        return None
    replaced = set(builder.nodes[closed.start.nodes :])
    builder.raising = [x for x in builder.raising if x not in replaced]
    return closed


def _without_first(start: PathStart, path: LoopPath) -> ClosedLoop | None:
    """The loop from the earlier start with this path alone, if every iteration takes it; earlier paths went through
    inner loops with unknown paths."""
    before = start.loop
    assert before is not None
    closed = ClosedLoop(before.start, [path], before.begin)
    alike = start.counts and before.start.state.is_within(start.state)
    if not alike or not closed.is_possible or not closed.loop.ends_at_condition:
        return None
    before.start.state.bounds = start.state.bounds
    return closed


def _conditions_vary(machine: LoopMachine, start: PathStart, loop: PathLoop, recorded: Collection[GraphNode]) -> bool:
    """Whether a condition that no guard holds may differ in other iterations."""
    late = [x for x in machine.unguarded if x.at > start.nodes or x.condition in recorded]
    starts_inside = [x.loop_start > start.nodes or machine.builder.nodes[x.loop_start] in recorded for x in late]
    anew = [node for x, inside in zip(late, starts_inside) if inside and not x.sure for node in x.nodes]
    return any(map(loop.changes, [*anew, *(x.condition for x, inside in zip(late, starts_inside) if not inside)]))


def _carry_conditions(builder: TraceBuilder, path: LoopPath, conditions: Sequence[GraphNode]) -> None:
    """Carry whether these conditions have held in all iterations."""
    path.before.append(node_of(fresh(_true(), tag=builder.new_tag())))
    held: Any = builder.value(path.before[-1])
    for x in conditions:
        held = logical_and(held, builder.value(x))
        path.nodes.append(held.node)
    path.after.append(held.node)


def _emit(
    machine: LoopMachine, closed: ClosedLoop, before: FrameState, now: FrameState
) -> tuple[GraphNode, bool | None]:
    """Record the loop, and give the tracers its final values. Returns the condition after it, and its value if it
    is determined."""
    builder, start = machine.builder, closed.start
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
            builder.loops.varying.add(tracer.node)
    iterated = start.enters or (start.is_first_iteration and start.count is not None and bool(start.count.numbers))
    start.state.ends.add(builder, before.numbered, now.tracers, iterated)
    now.record_values()
    builder.guards.retract(start.guards)
    # Conditions of inner loops are the same in all iterations of this loop, but maybe not of an outer loop.
    machine.unguarded = [x for x in machine.unguarded if x.at < start.nodes or x.loop_start >= start.nodes]
    held = len(closed.begin.state) - 1
    if start.counts and held in results and not builder.assume(results[held].node):
        raise without_loop(machine, now.jump)
    if loop.ends_at_condition:
        return condition.node, not closed.paths[0].outcomes[0]
    with recording(None), np.errstate(all="ignore"):
        builder.know(condition.node, loop.condition_after(builder.compute))
    return condition.node, None


def distinct(nodes: list[GraphNode]) -> list[GraphNode]:
    """The distinct nodes."""
    return list(dict.fromkeys(nodes))


def _true() -> Any:
    return full(shape=(), value=True, dtype="bool")


def _is_simple(guard: ValueGuard) -> bool:
    """Whether a loop can test the guard's value."""
    return guard.value.size == 1 and guard.value.dtype.kind in "bi" and guard.unless_raises is None
