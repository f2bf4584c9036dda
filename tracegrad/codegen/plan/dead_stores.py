"""Remove the stores of temporaries that are only used in the kernel that computes them (dead store elimination)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracegrad.codegen.loopir.kernel import Store, accesses
from tracegrad.codegen.loopir.steps import Launch

if TYPE_CHECKING:
    from tracegrad.codegen.plan.program_plan import Plan

__all__ = ["remove_dead_stores"]


def remove_dead_stores(plan: Plan) -> None:
    """Remove the stores of temporaries that no other step reads."""
    unread: dict[str, int] = {}
    for name, users in plan.users().items():
        step = plan.steps[users[0]] if len(users) == 1 and plan.is_temporary(name) else None
        if not isinstance(step, Launch) or step.base:
            continue
        if all(isinstance(x, Store) for x in accesses(step.kernel.body) if x.buffer == name):
            unread[name] = users[0]
    for name, i in unread.items():
        step = plan.steps[i]
        assert isinstance(step, Launch)
        kernel = step.kernel
        kernel.body[:] = [x for x in kernel.body if not (isinstance(x, Store) and x.buffer == name)]
        del kernel.buffers[name], plan.memory[name]
        kernel.cost -= 1
        removed = [x for x, buffer in plan.buffers.items() if buffer == name]
        step.group.roots = [x for x in step.group.roots if x not in removed]
        for x in removed:
            del plan.buffers[x]
