"""Results in the memory of temporary values that die where they are computed.

A kernel that goes through a temporary value element by element, as the last that reads it, may write a result of the
same size to the same place: the value is then in the memory of that result from the beginning, be it an output or
temporary. So a program needs less memory, and what it writes is in the cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracegrad.codegen.in_place import reads_at_same_index
from tracegrad.codegen.loops import Reduce, Store
from tracegrad.codegen.steps import Launch

if TYPE_CHECKING:
    from tracegrad.codegen.plan import Plan
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
        if not isinstance(step, Launch):
            continue
        kernel = step.kernel
        dying = [x for x in kernel.buffers if users[x][-1] == i and first[x] < i and made.memory[x] == "temp"]
        if not dying or not step.stands_alone:
            continue
        own = [x for x, (_, use) in kernel.buffers.items() if use == "out" and first[x] == i and _is_own(made, x)]
        for new in own:
            for old in dying:
                if _fits(step, old, new) and made.sizes(nodes[old] + nodes[new]) == {kernel.iterations}:
                    for k in users[old]:
                        made.steps[k].rename(old, new)
                    del made.memory[old]
                    taken[old] = new
                    stores = [x for x in kernel.body if isinstance(x, Store)]  # what is overwritten is read before
                    kernel.body[:] = [*[x for x in kernel.body if not isinstance(x, Store)], *stores]
                    first[new] = first[old]
                    dying.remove(old)
                    break
    made.buffers = {node: taken.get(name, name) for node, name in made.buffers.items()}


def _is_own(made: Plan, name: str) -> bool:
    """Whether a buffer has memory that nothing uses before the program writes it."""
    kind = made.memory[name].partition(" ")[0]
    return kind in ("temp", "output")


def _fits(step: Launch, old: str, new: str) -> bool:
    """Whether the kernel does nothing with `new` but store it, and reads `old` at the same index only."""
    kernel = step.kernel
    reduced = [x for x in kernel.body if isinstance(x, Reduce) and x.buffer == new]
    same = kernel.buffers[old][0] == kernel.buffers[new][0]
    return same and not reduced and old not in step.writes and reads_at_same_index(step, old, new)
