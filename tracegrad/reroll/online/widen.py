"""Widen variables that differ between iterations: they become traced values of the loop (state WIDEN)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tracegrad.ir.builder import node_of
from tracegrad.ops.shape.linear import fresh
from tracegrad.reroll.online.frame_state import FrameState, capture_state, difference, known_variations
from tracegrad.reroll.online.loop_states import LoopState
from tracegrad.reroll.online.record import FrameRecord, LoopMachine, PathStart
from tracegrad.trace.builder.facts import Fact, LoopFact, LoopFactKind, TraceFact, VariableFact, Variation
from tracegrad.trace.loops.appended_list import growing
from tracegrad.trace.loops.control_flow import LoopJump
from tracegrad.trace.loops.range_counter import number_of_loop
from tracegrad.trace.loops.varying_scalars import scalars_differ
from tracegrad.trace.values.float_or_scalar import Either, is_float
from tracegrad.trace.values.number import Number
from tracegrad.trace.values.python_arithmetic import bounds
from tracegrad.trace.values.tracer import Tracer

_OF_NUMPY = (Tracer, Either)


def widen_or_restart(
    machine: LoopMachine, before: PathStart, state: FrameState, frame: FrameRecord
) -> FrameState | None:
    """The present state, with traced numbers for numbers that differ from the earlier state (widening). The trace
    restarts if variables must be traced from the first iteration on."""
    builder, jump, facts = machine.builder, state.jump, machine.builder.world.facts
    # The first iterations may have changed less, for example because their steps were rejected.
    start = before if before.loop is None else before.loop.start
    grown = growing(builder, jump, before.state.lengths) or scalars_differ(before.state, state)
    if grown:
        facts |= grown
        raise machine.builder.restarts(grown.pop(), "a list or a scalar that iterations change is traced in the loop")
    if (start.enters or start.is_first_iteration) and _widen_entrance(start.state, state):
        raise machine.builder.restarts(jump.fact(LoopFactKind.ENTERED) if start.enters else TraceFact.FOLDED)
    if before.enters:
        raise machine.builder.restarts(jump.fact(LoopFactKind.PEELED))
    if _widen_numbers(before.state, state):
        machine.has_traced_values = True
        machine.move(LoopState.RECORD, "numbers that differ are traced now")
        return capture_state(builder, jump)
    again = frame.differed.get(jump.number, 0)
    frame.differed[jump.number] = again + 1
    if _widen_kinds(before.state, state, before.counts, again > 0):
        # The kinds may differ at the loop entry too.
        facts |= {LoopFact(LoopFactKind.ENTERED, jump.instruction[0], at) for at in frame.around(jump.number)}
        raise machine.builder.restarts(TraceFact.KINDS, "the kinds of floats differ from iteration to iteration")
    why = difference(before.state, state)
    machine.report(why, frame.attempts.get(jump.number, 0))
    machine.move(LoopState.RECORD, why)
    return state


def _widen_numbers(before: FrameState, now: FrameState) -> bool:
    """Make traced numbers of numbers that differ, if the states are otherwise equal (widening). Returns whether it
    did."""
    other = [k for k, (x, y) in enumerate(zip(before.tokens, now.tokens)) if x != y]
    same_kinds = all(
        k in before.numbers and k in now.numbers and type(before.numbers[k][1]) is type(now.numbers[k][1])
        for k in other
    )
    if len(before.tokens) != len(now.tokens) or not other or not same_kinds:
        return False
    facts = now.builder.world.facts
    for k in other:
        (_, x), (target, y) = before.numbers[k], now.numbers[k]
        low, high = _wider((x, x), (y, y)) if type(y) is int else (0, 0)
        now.numbers[k] = target, number_of_loop(now.builder, y, low, high)
        if type(target) is str:
            facts.add(now.fact(Variation.NUMBER, target, low, high))
    now.exchange(other)
    return True


def _widen_kinds(before: FrameState, now: FrameState, counts: bool, again: bool) -> bool:
    """Whether the states differ only in kinds of floats; the next trace of the loop then allows either kind. In an
    uncounted loop this applies only to floats that already are of either kind, because its first iteration differs. In
    a counted loop, or if states have differed here before (`again`), integers become traced numbers; with `again`
    booleans do too."""
    other = [k for k, (x, y) in enumerate(zip(before.tokens[: before.size], now.tokens)) if x != y]
    floats = [k for k in other if k in before.floats and k in now.floats]
    integers = [k for k in other if (counts or again) and k in before.integers and k in now.integers]
    flags = [k for k in other if again and k in before.flags and k in now.flags]
    if before.size != now.size or len(other) > len(floats) + len(integers) + len(flags):
        return False
    kinds = [k for k in floats if counts or again or Either in (before.floats[k][1], type(now.floats[k][1]))]
    names = [*[now.floats[k][0] for k in kinds], *[now.flags[k][0] for k in flags]]
    known: set[Fact] = {now.fact(Variation.KIND, name) for name in names}
    for k in integers:
        name, (low, high) = now.integers[k]
        low, high = min(low, before.integers[k][1][0]), max(high, before.integers[k][1][1])
        known.add(now.fact(Variation.NUMBER, name, low, high))
    result = not known <= now.builder.world.facts
    now.builder.world.facts |= known
    return result


def _widen_entrance(before: FrameState, now: FrameState) -> bool:
    """Whether the states at the loop entry and after the first iteration differ only in values that can be widened at
    the entry; the next trace does so."""
    other = [k for k, (x, y) in enumerate(zip(before.tokens[: before.size], now.tokens)) if x != y]
    # A widened value becomes an object of its own, and is no alias any more.
    again = {k for k in other for x in other if before.tokens[k] == ("again", x)}
    new = {_entered_wider(before, now, k) for k in other if k not in again}
    if before.size != now.size or None in new or new <= now.builder.world.facts:
        return False
    now.builder.world.facts |= new
    return True


def _entered_wider(before: FrameState, now: FrameState, k: int) -> VariableFact | None:
    """The fact that widens a local variable at a loop entry; None if widening does not help."""
    absent: tuple[Any, Any] = (None, None)
    name, y = now.names.get(k - 1, absent)
    number, kind, last = before.numbers.get(k, absent)[1], before.floats.get(k, absent)[1], type(y)
    if kind is not None and is_float(y) and (kind is not last or kind is Either):
        if kind in _OF_NUMPY or last in _OF_NUMPY:
            return now.fact(Variation.KIND, name)
        return now.fact(Variation.NUMBER, name) if kind is float else None
    if type(number) is int and (last is int or (last is Number and y.dtype.kind == "i")):
        return now.fact(Variation.NUMBER, name, *_wider((number, number), bounds(y)))
    is_separate = last in (Number, Tracer) and _is_another(before.tokens, now.tokens, k)
    return now.fact(Variation.SEPARATE, name) if is_separate else None


def _is_another(before: list[Any], now: list[Any], k: int) -> bool:
    """Whether an input, or an alias of another variable, has become a separate value of the same kind."""
    old, new = before[k], now[k]
    old = before[old[1]] if type(old) is tuple and old[0] == "again" else old
    known = type(old) is type(new) is tuple and len(old) == len(new) == 6
    return known and old[:2] == new[:2] and old[3] == new[3] and not new[4] and bool(new[5] == k)


def widen_at_once(now: FrameState) -> bool:
    """Make traced numbers of local variables that varied at this jump in an earlier trace. Returns whether it did."""
    known, result = known_variations(now.builder, now.jump, Variation.NUMBER), []
    for k, (target, x) in now.numbers.items():
        if type(target) is str and target in known:
            low, high = min(each.low for each in known[target]), max(each.high for each in known[target])
            now.numbers[k] = target, number_of_loop(now.builder, x, min(x, low), max(x, high))
            result.append(k)
    now.exchange(result)
    return bool(result)


def facts_at(facts: Iterable[Fact], jump: LoopJump, number: int) -> set[Fact]:
    """The facts about variables at a jump, for another jump of the code."""
    known = [x for x in facts if isinstance(x, VariableFact) and (x.code, x.instruction) == jump.instruction]
    return {replace(x, instruction=number) for x in known}


def widen_bounds(before: FrameState, now: FrameState) -> bool:
    """Whether integers have left their bounds; each gets a new node with wider bounds."""
    result = False
    for x, old, new in zip(now.tracers, before.bounds, now.bounds):
        if old is not None and new is not None and not (old[0] <= new[0] and new[1] <= old[1]):
            x.node = node_of(fresh(x, tag=now.builder.new_tag()))
            now.builder.bounds[x.node] = _wider(old, new)
            now.builder.loops.varying.add(x.node)
            result = True
    return result


def restore_bounds(before: FrameState, now: FrameState) -> None:
    """Restore the earlier bounds of integers if they are wider, because other iterations may reach them."""
    for k, (x, old, new) in enumerate(zip(now.tracers, before.bounds, now.bounds)):
        if old is not None and new is not None:
            now.bounds[k] = now.builder.bounds[x.node] = min(old[0], new[0]), max(old[1], new[1])


def _wider(before: tuple[int, int], now: tuple[int, int]) -> tuple[int, int]:
    """Widened bounds, valid if the values go on growing on the same side (widening)."""
    return before[0] if now[0] >= before[0] else -(2**63), before[1] if now[1] <= before[1] else 2**63 - 1
