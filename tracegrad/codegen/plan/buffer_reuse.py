"""Reuse buffers: store a result in the buffer of a temporary whose last use is the same kernel.

The kernel must read the temporary element by element and have a result of the same size. The temporary is then stored
in the buffer of the result, an output or another temporary, from the beginning. The program needs less memory, and the
memory it writes is already in the cache.

A temporary that only its own kernel uses is not stored at all (dead store elimination).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracegrad.codegen.loopir.kernel import Store, accesses
from tracegrad.codegen.loopir.steps import Launch
from tracegrad.codegen.plan.overwrite import BufferUses, KernelAccesses
from tracegrad.codegen.plan.places_and_values import ARENA, ArenaPlace, OutputPlace

if TYPE_CHECKING:
    from tracegrad.codegen.plan.program_plan import Plan

_OWNED = (ArenaPlace, OutputPlace)  # memory that is unused before the program writes it


def remove_dead_stores(plan: Plan) -> None:
    """Remove the stores of temporaries that no other step reads."""
    unread: dict[str, int] = {}
    for name, users in plan.users().items():
        step = plan.steps[users[0]] if len(users) == 1 and plan.memory[name] is ARENA else None
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


def reuse_dying_buffers(plan: Plan) -> None:
    """Store results in the buffers of temporaries whose last use is the same step."""
    uses = BufferUses(plan)
    for i, step in reversed(list(enumerate(plan.steps))):
        if not isinstance(step, Launch) or not step.is_separate_function:
            continue
        kernel = step.kernel
        used = {x: uses.positions(x) for x in kernel.buffers}
        dying = [x for x, at in used.items() if plan.memory[x] is ARENA and at[0] < i == at[-1]]
        written = [x for x, (_, use) in kernel.buffers.items() if use == "out" and isinstance(plan.memory[x], _OWNED)]
        accesses = KernelAccesses(step)
        for new in [x for x in written if dying and used[x][0] == i]:
            for old in dying:
                if accesses.may_overwrite(old, new) and uses.have_size((old, new), kernel.iterations):
                    uses.merge({old: new})
                    kernel.body.sort(key=_is_store)  # load before the overwriting store
                    dying.remove(old)
                    break


def _is_store(x: object) -> bool:
    return isinstance(x, Store)
