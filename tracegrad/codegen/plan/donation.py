"""Alias outputs with donated inputs (input buffer donation).

An output may reuse the memory of a donated input of the same shape and dtype. The old value must be dead when the new
one is written. Carries that a region updates have the same conditions (`tracegrad.codegen.plan.in_place`). In addition,
no later step may fail, because a failed call is computed again from the original inputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracegrad.codegen.loopir.kernel import BoundsCheck, flattened
from tracegrad.codegen.loopir.steps import CallStep, Launch
from tracegrad.codegen.lower.symbolic_shapes import SMALL
from tracegrad.codegen.plan.overwrite import overwrite
from tracegrad.codegen.plan.places_and_values import OutputPlace
from tracegrad.codegen.plan.region_steps import Nested, WhileStep, regions_of

if TYPE_CHECKING:
    from tracegrad.codegen.plan.program_plan import Plan, PlanStep


def donate(plan: Plan) -> None:
    """Alias outputs with donated inputs, if that is safe; `donors` of the plan records the aliases.

    Inputs of a few elements are excluded: their kernels are part of larger compilation units, and need little memory.
    """
    for j in plan.donated:
        x = plan.graph.inputs[j]
        large = max(x.aval.shape, default=0) > SMALL
        for k, output in enumerate(plan.graph.outputs):
            old, new = plan.buffers[x], plan.buffers[output]
            fits = output.aval == x.aval and large and k not in plan.donors and plan.memory[new] == OutputPlace(k)
            if fits and overwrite(plan, old, new):
                plan.donors[k] = j
                break


def fails_late(plan: Plan, checked: bool) -> bool:
    """Whether a step that can fail runs together with or after the first step that overwrites a donated input."""
    operands = {plan.buffers[plan.graph.inputs[j]] for j in plan.donors.values()}
    written = [i for i, step in enumerate(plan.steps) if not operands.isdisjoint(step.writes)]
    if not written:
        return False
    # The kernel of the check may be in one compilation unit with the loop after it, or in its strip fusion.
    first = min([fusion.first for fusion in plan.strip_fusions if written[0] in fusion.steps], default=written[0])
    before = first - isinstance(plan.steps[first], Nested)
    return any(map(_can_fail, plan.steps[written[0] :])) or (checked and check_step_index(plan) >= before)


def check_step_index(plan: Plan) -> int:
    """The number of the last step that writes the program's check, its last output."""
    name = plan.buffers[plan.graph.outputs[-1]]
    return max([i for i, step in enumerate(plan.steps) if name in step.writes], default=-1)


def _can_fail(step: PlanStep) -> bool:
    if isinstance(step, Launch):
        return any(isinstance(x, BoundsCheck) for x in flattened(step.kernel.body))
    inside = [each for _, region in regions_of(step) for each in region.steps]
    return (
        isinstance(step, CallStep)
        or (isinstance(step, WhileStep) and bool(step.stacked))
        or any(map(_can_fail, inside))
    )
