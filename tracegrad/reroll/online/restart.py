"""Restart the trace with a fact about a loop (state RESTART)."""

from __future__ import annotations

from tracegrad.reroll.online.record import FrameRecord, LoopMachine
from tracegrad.reroll.online.widen import facts_at
from tracegrad.trace.builder.facts import Fact, LoopFact, LoopFactKind
from tracegrad.trace.loops.control_flow import LoopJump


def without_loop(machine: LoopMachine, jump: LoopJump) -> BaseException:
    """The restart exception that records the iterations of this loop one by one. Short inner loops that were folded for
    the sake of this loop come first."""
    return machine.builder.restarts(_unrolled_fact(machine.builder.world.facts, jump), "its iterations differ")


def _unrolled_fact(facts: set[Fact], jump: LoopJump) -> LoopFact:
    folded = [x for x in facts if isinstance(x, LoopFact) and x.kind is LoopFactKind.WITHIN]
    code, number = jump.instruction
    short = [x.instruction for x in folded if x.code == code and x.instruction in jump.within]
    each = [LoopFact(LoopFactKind.ITERATION_BY_ITERATION, code, at) for at in (*short, number)]
    return next((x for x in each if x not in facts), each[-1])


def restart_at_first_iteration(machine: LoopMachine, frame: FrameRecord, jump: LoopJump) -> None:
    """Restart the trace if a loop that begins after its first iteration can begin with it."""
    facts = machine.builder.world.facts
    for at in frame.around(jump.number):
        entered = LoopFact(LoopFactKind.ENTERED, jump.instruction[0], at)
        if entered not in facts:
            facts |= facts_at(facts, jump, at)
            raise machine.builder.restarts(entered, "a loop begins with its first iteration")


def is_irregular(machine: LoopMachine, jump: LoopJump) -> bool:
    """Whether an earlier trace has found no loop here, because each iteration takes another path."""
    is_known = jump.fact(LoopFactKind.ITERATION_BY_ITERATION) in machine.builder.world.facts
    if is_known:
        machine.report("goes another way in each iteration")
    return is_known
