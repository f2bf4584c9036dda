"""Reuse buffers: store a result in the buffer of a temporary whose last use is the same kernel.

The kernel must read the temporary element by element and have a result of the same size. The temporary is then stored
in the buffer of the result, an output or another temporary, from the beginning. The program needs less memory, and the
memory it writes is already in the cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracegrad.codegen.loopir.kernel import Load, Reduce, Store, accesses
from tracegrad.codegen.loopir.steps import Launch
from tracegrad.codegen.plan.buffer_places import ArenaPlace, OutputPlace

if TYPE_CHECKING:
    from tracegrad.codegen.loopir.polynomial import Poly
    from tracegrad.codegen.plan.program_plan import Plan
    from tracegrad.ir import GraphNode

__all__ = ["reuse_dying_buffers"]

_OWNED = (ArenaPlace, OutputPlace)  # memory that is unused before the program writes it


def reuse_dying_buffers(plan: Plan) -> None:
    """Store results in the buffers of temporaries whose last use is the same step."""
    users = {name: result for name, result in plan.users().items() if result}
    first = {name: result[0] for name, result in users.items()}
    nodes: dict[str, list[GraphNode]] = {name: [] for name in users}
    for node, name in plan.buffers.items():
        if name in nodes:
            nodes[name].append(node)
    reused: dict[str, str] = {}
    for i, step in reversed(list(enumerate(plan.steps))):
        if not isinstance(step, Launch) or not step.is_separate_function:
            continue
        kernel = step.kernel
        dying = [x for x in kernel.buffers if users[x][-1] == i and first[x] < i and plan.is_temporary(x)]
        new_buffers = [
            x
            for x, (_, use) in kernel.buffers.items()
            if use == "out" and first[x] == i and isinstance(plan.memory[x], _OWNED)
        ]
        if not dying or not new_buffers:
            continue
        fitting, whole = _Fitting(step), {kernel.iterations}
        for new in new_buffers:
            for old in dying:
                if fitting.may_be_over(old, new) and plan.sizes([*nodes[old], *nodes[new]]) == whole:
                    for k in users[old]:
                        plan.steps[k].rename(old, new)
                    del plan.memory[old]
                    reused[old] = new
                    kernel.body.sort(key=_is_store)  # load before the overwriting store
                    first[new] = first[old]
                    dying.remove(old)
                    break
    plan.buffers = {node: reused.get(name, name) for node, name in plan.buffers.items()}


def _is_store(x: Any) -> bool:
    return isinstance(x, Store)


class _Fitting:
    """The addresses at which a kernel reads and writes its buffers."""

    def __init__(self, step: Launch):
        self.kernel, self.writes, self.has_base = step.kernel, step.writes, bool(step.base)
        self.reduced = {x.buffer for x in step.kernel.body if isinstance(x, Reduce)}
        self.read: dict[str, set[Poly]] = {}
        self.stored: dict[str, list[Poly]] = {}
        for x in accesses(step.kernel.body):
            if isinstance(x, Load):
                self.read.setdefault(x.buffer, set()).add(x.address)
        for y in step.kernel.body:
            if isinstance(y, Store):
                self.stored.setdefault(y.buffer, []).append(y.address)

    def may_be_over(self, old: str, new: str) -> bool:
        """Whether the kernel only stores `new`, once, and loads `old` at the same index only."""
        stored, buffers = self.stored.get(new, []), self.kernel.buffers
        if self.has_base or len(stored) != 1 or new in self.reduced or old in self.writes:
            return False
        return buffers[old][0] == buffers[new][0] and self.read.get(old, set()) <= {*stored}
