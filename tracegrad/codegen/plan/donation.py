"""Outputs in the memory of inputs that the caller gives away.

An output of the same shape and dtype as such an input may have its memory, if the old value is dead when the new one is
written: the conditions are those of carries that a region updates (`tracegrad.codegen.plan.in_place`). And nothing that
can fail may come after that: a call that a program leaves is computed again, from what the inputs were.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from tracegrad.codegen.loopir.kernel import Check, flattened
from tracegrad.codegen.loopir.steps import Call, Launch
from tracegrad.codegen.lower.symbolic_shapes import SMALL
from tracegrad.codegen.plan.in_place import is_safe, overwrite
from tracegrad.codegen.plan.region_steps import Nested, While, regions_of

if TYPE_CHECKING:
    from tracegrad.codegen.plan.planner import Plan

__all__ = ["donate", "fails_late", "step_of_check"]


def donate(made: Plan, inputs: Collection[int]) -> None:
    """Give outputs the memory of these inputs, where that is safe; `made.donors` says which.

    Kernels over a few elements are parts of others' machine code, and their memory is not worth it."""
    for j in inputs:
        x = made.graph.inputs[j]
        large = max(x.aval.shape, default=0) > SMALL
        for k, output in enumerate(made.graph.outputs):
            old, new = made.buffers[x], made.buffers[output]
            fits = output.aval == x.aval and large and k not in made.donors and made.memory[new] == f"output {k}"
            if fits and is_safe(made, old, new):
                overwrite(made, old, new)
                made.donors[k] = j
                break


def fails_late(made: Plan, checked: bool) -> bool:
    """Whether something that can fail comes after an input that is given away has been overwritten, or with that."""
    given = {made.buffers[made.graph.inputs[j]] for j in made.donors.values()}
    written = [i for i, step in enumerate(made.steps) if not given.isdisjoint(step.writes)]
    if not written:
        return False
    # The kernel that finds what is checked may be one piece of machine code with the loop behind it, or of its band.
    first = min([band.first for band in made.bands if written[0] in band.steps], default=written[0])
    before = first - isinstance(made.steps[first], Nested)
    return any(map(_can_fail, made.steps[written[0] :])) or (checked and step_of_check(made) >= before)


def step_of_check(made: Plan) -> int:
    """The number of the last step that writes the boolean without which the program has failed, its last output."""
    name = made.buffers[made.graph.outputs[-1]]
    return max([i for i, step in enumerate(made.steps) if name in step.writes], default=-1)


def _can_fail(step: Any) -> bool:
    if isinstance(step, Launch):
        return any(isinstance(x, Check) for x in flattened(step.kernel.body))
    inside = [each for _, region in regions_of(step) for each in region.steps]
    return isinstance(step, Call) or (isinstance(step, While) and bool(step.stacked)) or any(map(_can_fail, inside))
