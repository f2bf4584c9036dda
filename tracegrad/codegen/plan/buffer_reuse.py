"""Results in the memory of temporary values that die where they are computed.

A kernel that goes through a temporary value element by element, as the last that reads it, may write a result of the
same size to the same place: the value is then in the memory of that result from the beginning, be it an output or
temporary. So a program needs less memory, and what it writes is in the cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracegrad.codegen.loopir.kernel import Load, Reduce, Store, accesses
from tracegrad.codegen.loopir.steps import Launch

if TYPE_CHECKING:
    from tracegrad.codegen.loopir.polynomial import Poly
    from tracegrad.codegen.plan.planner import Plan
    from tracegrad.ir import Node

__all__ = ["write_over_dying"]


def write_over_dying(made: Plan) -> None:
    """Give results the memory of temporary values that are read for the last time where they are written."""
    users = {name: found for name, found in made.users().items() if found}
    first = {name: found[0] for name, found in users.items()}
    nodes: dict[str, list[Node]] = {name: [] for name in users}
    for node, name in made.buffers.items():
        if name in nodes:
            nodes[name].append(node)
    taken: dict[str, str] = {}
    for i, step in reversed(list(enumerate(made.steps))):
        if not isinstance(step, Launch) or not step.stands_alone:
            continue
        kernel = step.kernel
        dying = [x for x in kernel.buffers if users[x][-1] == i and first[x] < i and made.memory[x] == "temp"]
        own = [x for x, (_, use) in kernel.buffers.items() if use == "out" and first[x] == i and _is_own(made, x)]
        if not dying or not own:
            continue
        fitting, whole = _Fitting(step), {kernel.iterations}
        for new in own:
            for old in dying:
                if fitting.may_be_over(old, new) and made.sizes([*nodes[old], *nodes[new]]) == whole:
                    for k in users[old]:
                        made.steps[k].rename(old, new)
                    del made.memory[old]
                    taken[old] = new
                    kernel.body.sort(key=_is_store)  # what is overwritten is read before
                    first[new] = first[old]
                    dying.remove(old)
                    break
    made.buffers = {node: taken.get(name, name) for node, name in made.buffers.items()}


def _is_store(x: Any) -> bool:
    return isinstance(x, Store)


def _is_own(made: Plan, name: str) -> bool:
    """Whether a buffer has memory that nothing uses before the program writes it."""
    kind = made.memory[name].partition(" ")[0]
    return kind in ("temp", "output")


class _Fitting:
    """Where a kernel reads and writes its buffers."""

    def __init__(self, step: Launch):
        self.kernel, self.writes, self.begun = step.kernel, step.writes, bool(step.base)
        self.reduced = {x.buffer for x in step.kernel.body if isinstance(x, Reduce)}
        self.read: dict[str, set[Poly]] = {}
        self.stored: dict[str, list[Poly]] = {}
        for x in accesses(step.kernel.body):
            if isinstance(x, Load):
                self.read.setdefault(x.buffer, set()).add(x.address)
        for x in step.kernel.body:
            if isinstance(x, Store):
                self.stored.setdefault(x.buffer, []).append(x.address)

    def may_be_over(self, old: str, new: str) -> bool:
        """Whether the kernel does nothing with `new` but store it, once, and reads `old` at the same index only."""
        stored, buffers = self.stored.get(new, []), self.kernel.buffers
        if self.begun or len(stored) != 1 or new in self.reduced or old in self.writes:
            return False
        return buffers[old][0] == buffers[new][0] and self.read.get(old, set()) <= {*stored}
