"""Verify a plan: `VerifyError` says which rule of its steps and buffers a pass has broken."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tracegrad.codegen.loopir.kernel import Kernel, Load, Reduce, accesses, verify_kernel
from tracegrad.codegen.loopir.polynomial import ZERO
from tracegrad.codegen.loopir.steps import CallStep, Launch, Matmul
from tracegrad.codegen.plan.places_and_values import InputPlace, offset_name
from tracegrad.codegen.plan.program_plan import Plan, PlanStep
from tracegrad.errors import VerifyError


class VerifiedKernels:
    """Kernels as they were when they were verified: passes change them in place, and leave most of them as they are."""

    def __init__(self) -> None:
        self._states: dict[int, tuple[object, ...]] = {}

    def verify(self, kernel: Kernel) -> None:
        """Verify a kernel that is new, or has other loops, buffers or (frozen) statements than when it was verified."""
        state = (kernel, [*kernel.body], [*kernel.loops], {**kernel.buffers})  # it lives on: its id is not used again
        if self._states.get(id(kernel)) != state:
            verify_kernel(kernel)
            self._states[id(kernel)] = state


def verify_plan(plan: Plan, pass_name: str, kernels: VerifiedKernels | None = None) -> None:
    """Verify a plan after a pass. `kernels` are those that were verified before this pass.

    Every buffer of a step has a place, and a place of a temporary has a step. A step reads what an earlier step has
    written, or an input. An input is only written if it is an updated carry, or donated. Steps that run together are
    consecutive kernels, and calls are numbered in their order. Buffers that live at the same time do not overlap.
    """
    steps = _of_steps(plan, kernels or VerifiedKernels())
    for problem in itertools.chain(steps, _of_buffers(plan), _of_fusions(plan), _of_memory(plan)):
        raise VerifyError(f"plan after {pass_name}: {problem}")


def _reads(step: PlanStep) -> set[str]:
    """The buffers whose values a step needs."""
    match step:
        case Launch():
            inputs = {name for name, (_, use) in step.kernel.buffers.items() if use == "in"}
            is_alone = step.serial or step.kernel.iterations == ZERO  # a serial kernel reads what it has stored
            updated = set() if is_alone else {x.buffer for x in accesses(step.kernel.body) if _needs_value(x)}
            return inputs | updated | ({step.base} - {""})
        case Matmul():
            return {step.x[0], step.y[0], *([step.out] if step.adds else ())}
        case CallStep():
            return set(step.operands)
    return {x.buffer for x in step.operands}


def _needs_value(x: object) -> bool:
    return isinstance(x, Load) or (isinstance(x, Reduce) and x.scatters and x.size == ZERO)


def _of_steps(plan: Plan, kernels: VerifiedKernels) -> Iterator[str]:
    written = {name for name, place in plan.memory.items() if isinstance(place, InputPlace)}
    calls = 0
    for i, step in enumerate(plan.steps):
        if isinstance(step, Launch):
            kernels.verify(step.kernel)
        for name in step.buffers:
            if name not in plan.memory:
                yield f"buffer {name} of step {i} has no place"
        for name in sorted(_reads(step) - written):
            yield f"step {i} reads buffer {name}, which no step has written"
        written |= step.writes
        if isinstance(step, CallStep):
            if step.number != calls:
                yield f"step {i} is call {step.number}, and not {calls}"
            calls += 1


def _of_buffers(plan: Plan) -> Iterator[str]:
    users = plan.users()
    changed = {plan.graph.inputs[k] for k in (*plan.in_place, *plan.donors.values())}
    updated = {plan.buffers[x] for x in changed}
    for name, place in plan.memory.items():
        writers = [i for i in users[name] if name in plan.steps[i].writes]
        if not users[name] and plan.is_temporary(name):
            yield f"no step uses buffer {name}"
        if isinstance(place, InputPlace) and writers and name not in updated:
            yield f"step {writers[0]} overwrites buffer {name}, {place}"
    for k, output in enumerate(plan.graph.outputs):
        if not any(plan.buffers[output] in plan.steps[i].writes for i in users[plan.buffers[output]]):
            yield f"no step writes output {k}"


def _of_fusions(plan: Plan) -> Iterator[str]:
    last = -1
    for fusion in plan.strip_fusions:
        if not last < fusion.first < fusion.last < len(plan.steps):
            yield f"steps {fusion.first} to {fusion.last} are no strip fusion"
        last = fusion.last
        if not all(isinstance(plan.steps[i], Launch) for i in fusion.steps):
            yield f"steps {fusion.first} to {fusion.last} are not all kernels"


def _of_memory(plan: Plan) -> Iterator[str]:
    """Buffers that overlap in the arena while both live, after the arena is allocated."""
    ends = {i: fusion.last for fusion in plan.strip_fusions for i in fusion.steps}
    local = {name for fusion in plan.strip_fusions for name in fusion.local}
    sizes = {name: node.aval.nbytes for node, name in plan.buffers.items()}
    spans = []
    for name, users in plan.users().items():
        if users and plan.is_temporary(name) and name not in local and offset_name(name) in plan.values:
            offset = plan.values[offset_name(name)]
            spans.append((offset, offset + sizes[name], users[0], ends.get(users[-1], users[-1]), name))
    spans.sort()
    for k, (_, high, first, last, name) in enumerate(spans):
        for low, _, begin, end, other in spans[k + 1 :]:
            if low >= high:
                break
            if first <= end and begin <= last:
                yield f"buffers {name} and {other} overlap"
