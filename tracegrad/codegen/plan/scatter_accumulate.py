"""Accumulate a scatter-add into an existing buffer instead of into zeros that are added to it.

The cotangent of `z[rows, labels]` is zero except for some elements. If a kernel only adds the array to a stored sum,
the kernel stores the rest of the sum, and the scatter follows it. No zeros are written and read. A sum over repeated
indices may round differently.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tracegrad.codegen.loopir.kernel import Compute, Load, Operand, Reduce, Store, flattened, operands
from tracegrad.codegen.loopir.polynomial import ZERO
from tracegrad.codegen.loopir.steps import Launch
from tracegrad.codegen.plan.overwrite import BufferUses

if TYPE_CHECKING:
    from tracegrad.codegen.plan.program_plan import Plan


def accumulate_scatters(plan: Plan) -> None:
    """Accumulate scatters into existing buffers, where that is legal."""
    scatters = [step for step in plan.steps if isinstance(step, Launch) and _target(step)]
    if not scatters:
        return
    uses = BufferUses(plan)
    for scatter in scatters:
        target = _target(scatter)
        users = uses.others(target, scatter)
        adder = users[0] if len(users) == 1 else None
        if not plan.is_temporary(target) or not isinstance(adder, Launch) or adder.serial or adder.base:
            continue
        stored = _stored_sum(adder, target)
        if stored is None or stored.buffer in scatter.buffers:  # it would read overwritten memory
            continue
        if uses.have_size((target, stored.buffer), adder.kernel.iterations):
            _accumulate_into(plan, scatter, adder, target)
            uses.merge({target: stored.buffer})


def _target(step: Launch) -> str:
    """The array of zeros that a kernel accumulates into, if that is its only result; else ""."""
    results = [x for x in step.kernel.body if isinstance(x, Store | Reduce)]
    one = (
        len(results) == 1
        and isinstance(results[0], Reduce)
        and results[0].combiner == "scatter"
        and results[0].size != ZERO
    )
    return results[0].buffer if one else ""


def _stored_sum(adder: Launch, target: str) -> Store | None:
    """The store of a sum with the term `target`, if the kernel has no other use of either; else None."""
    body = flattened(adder.kernel.body)
    loads = [x for x in adder.kernel.body if isinstance(x, Load) and x.buffer == target]
    if len(loads) != 1 or sum(getattr(x, "buffer", "") == target for x in body) > 1:
        return None
    value = loads[0].out
    while True:
        users = [x for x in body if value in operands([x])]
        last = users[0] if len(users) == 1 else None
        if isinstance(last, Compute) and last.op == "add" and last.args[0] != last.args[1]:
            value = last.out
        elif isinstance(last, Store) and last.address == loads[0].address:
            return last if sum(getattr(x, "buffer", "") == last.buffer for x in body) == 1 else None
        else:
            return None


def _accumulate_into(plan: Plan, scatter: Launch, adder: Launch, target: str) -> None:
    """Move the scatter after the kernel that adds its result, and accumulate it into the result of that kernel."""
    kernel = adder.kernel
    (load,) = (x for x in kernel.body if isinstance(x, Load) and x.buffer == target)
    zero = Operand("", load.out.dtype, "0.0" if load.out.dtype[0] == "f" else "0")  # -0.0 + 0.0 is 0.0
    kernel.body[:] = [_with(x, load.out, zero) for x in kernel.body if x is not load]
    del kernel.buffers[target]
    body = scatter.kernel.body
    body[:] = [replace(x, size=ZERO) if isinstance(x, Reduce) else x for x in body]
    plan.move(plan.steps.index(scatter), plan.steps.index(adder))


def _with(x: object, old: Operand, new: Operand) -> Any:
    return replace(x, args=tuple(new if y == old else y for y in x.args)) if isinstance(x, Compute) else x
