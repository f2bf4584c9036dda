"""Allocate the buffers of a plan, and list its run-time values.

Temporaries and partial results live in the arena, where buffers with disjoint live intervals share memory. Small
temporaries of a region are on the stack.
"""

from __future__ import annotations

import numpy as np

from tracegrad.codegen.loopir.steps import CallStep, Launch
from tracegrad.codegen.plan.arena import Arena
from tracegrad.codegen.plan.places_and_values import ARENA, StackPlace, ValueName, offset_name, partial_name, value_bits
from tracegrad.codegen.plan.program_plan import Plan, calls_of, functions_of
from tracegrad.codegen.plan.region_steps import Nested, on_stack, regions_of
from tracegrad.codegen.plan.strip_fusion import allocate_locals
from tracegrad.settings import disabled

_FIRST_CALL = ValueName("calls")  # the program-wide number of the first call of a region


def move_to_stack(plan: Plan) -> None:
    """Put the small temporaries of a region on the stack, where LLVM promotes them to registers."""
    for node, name in plan.buffers.items():
        if plan.memory[name] is ARENA and on_stack(plan.schedule.dims.shape(node), node.aval):
            plan.memory[name] = StackPlace(node.aval.nbytes)


def allocate(plan: Plan) -> None:
    """Allocate temporaries and partial results in the arena, and list all values."""
    arena = Arena()
    values = _offsets(plan, arena)
    values |= arena.improve()
    for fusion in plan.strip_fusions:
        allocate_locals(plan, fusion)
    plan.arena_bytes = arena.top
    constants = {name: _constant_bits(*constant) for name, constant in plan.arguments.constants.items()}
    symbols = {**plan.arguments.sizes, **constants}
    plan.values = {ValueName(name): value for name, value in symbols.items()} | values
    plan.values |= {ValueName(name): 0 for step in plan.steps for name in functions_of(step)}
    if plan.is_region and any(isinstance(step, CallStep) for step in plan.steps):
        plan.values[_FIRST_CALL] = 0
    _add_region_values(plan)


def _offsets(plan: Plan, arena: Arena) -> dict[ValueName, int]:
    """The values of steps and buffers: arena offsets of temporaries and partial results, and the partition of steps."""
    needed = {name: n.aval.nbytes for n, name in plan.buffers.items() if plan.memory[name] is ARENA}
    # All steps of a strip fusion end together.
    ends = {i: fusion.last for fusion in plan.strip_fusions for i in fusion.steps}
    temps = [[n for n in step.buffers if n in needed] for step in plan.steps]
    ending: dict[int, list[ValueName]] = {}
    for name, i in {name: ends.get(i, i) for i, names in enumerate(temps) for name in names}.items():
        ending.setdefault(i, []).append(offset_name(name))
    local = {name for fusion in plan.strip_fusions for name in fusion.local}
    allocated = set[str]()
    values: dict[ValueName, int] = {}
    reuses = not disabled("arena-reuse")
    for i, step in enumerate(plan.steps):
        for name in sorted({n for n in temps[i] if n not in allocated}):
            value_name = offset_name(name)
            values[value_name] = 0 if name in local else arena.allocate(value_name, needed[name])
        allocated.update(temps[i])
        if isinstance(step, Launch):
            values |= _chunk_values(plan, i, step, arena)
            if step.partials:
                ending.setdefault(ends.get(i, i), []).extend([partial_name(i, name) for name in step.partials])
        elif isinstance(step, Nested):
            values |= _nested_values(plan, i, step, arena)
        if i in ending and reuses:
            arena.free_all(ending[i])
    return values


def _nested_values(plan: Plan, i: int, step: Nested, arena: Arena) -> dict[ValueName, int]:
    """The run-time values of step `i` itself, and the offsets of its memory while it runs."""
    values = {ValueName(name, i): value for name, value in step.runtime_values().items()}
    scratch = {ValueName(name, i): size.evaluate(plan.arguments.sizes) for name, size in step.scratch().items()}
    scratch[ValueName("arena", i)] = step.arena_bytes
    for name, size in scratch.items():
        values[name] = arena.allocate(name, size)
    for name in scratch:
        arena.free(name)
    return values


def _add_region_values(plan: Plan) -> None:
    """Append the run-time values of each region as a block."""
    calls = sum(isinstance(step, CallStep) for step in plan.steps)
    for i, step in enumerate(plan.steps):
        for region, inner in regions_of(step):
            for name, value in inner.values.items():
                first_call = calls if name.field == _FIRST_CALL.field else 0
                plan.values[name.within(i, region)] = value + first_call
            calls += len(calls_of(inner))


def _chunk_values(plan: Plan, i: int, step: Launch, arena: Arena) -> dict[ValueName, int]:
    """The partition of step `i`, and the offsets of its partial results, which live until the step, or its strip
    fusion, has run."""
    blocks = step.blocks
    partition = {"rows": blocks.size, "chunks": blocks.number, "parallel": int(blocks.parallel)}
    values = {ValueName(name, i): value for name, value in partition.items()}
    for name, size in step.partials.items():
        needed = blocks.number * size.evaluate(plan.arguments.sizes) * 8 if blocks.number > 1 else 0
        value_name = partial_name(i, name)
        values[value_name] = arena.allocate(value_name, needed)
    return values


def _constant_bits(dtype: str, value: float) -> int:
    """The value of a constant; a float is a double (`tracegrad.codegen.instr.scalar.constant_of`)."""
    if dtype[0] != "f":
        return value_bits(dtype, value)
    return value_bits("f64", float(np.float32(value)) if dtype == "f32" else value)
