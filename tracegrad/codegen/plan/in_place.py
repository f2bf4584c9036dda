"""What is written in place: arrays of which a step writes a part, and carries that a region updates.

A step that writes a part of an array begins with a copy of what the array was, its *base* (a kernel over a window, or a
loop that carries the array and writes it in place). There is no copy where the base is a temporary value, or the carry
itself, that no step reads after that. Steps are put into an order for which that holds, where there is one; and where
a step needs an element of the base beside what has been written, that is a value to be stored before: `read_too_late`.

The output that becomes a carry may have the memory of the input that the carry was, if the old value is dead when the
new one is written: a kernel writes it element by element, reading the old value at the same index only, and no step
after that reads the old value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tracegrad.codegen.loopir.kernel import Load, Store, accesses
from tracegrad.codegen.loopir.steps import Launch, near_order
from tracegrad.codegen.lower.form_rules import handler, same_block
from tracegrad.codegen.lower.materialize import EARLY
from tracegrad.codegen.plan.region_steps import Looping, on_stack
from tracegrad.ir import Node

if TYPE_CHECKING:
    from tracegrad.codegen.lower.symbolic_shapes import Dims
    from tracegrad.codegen.plan.planner import Plan

__all__ = [
    "is_safe",
    "overwrite",
    "read_too_late",
    "reads_at_same_index",
    "rename",
    "update_in_place",
    "write_in_place",
]


# -- arrays that are written in part -----------------------------------------------------------------------
def _parts(step: Any) -> Iterator[tuple[str, str]]:
    """The base and the result of each array that `step` writes in part."""
    if isinstance(step, Launch) and step.copies:
        (result,) = step.writes
        yield step.base, result
    elif isinstance(step, Looping):
        read = [x.buffer for x in step.operands]
        for k, (init, carried) in enumerate(zip(step.inits, step.carried)):
            own = carried.buffer and not carried.on_stack and step.in_place(k)
            if own and init.buffer != carried.buffer and read.count(init.buffer) == 1:
                yield init.buffer, carried.buffer


def _may_be_written(made: Plan, base: str) -> bool:
    kind, _, number = made.memory[base].partition(" ")
    return kind == "temp" or (kind == "input" and int(number) < made.carries)


def write_in_place(made: Plan) -> None:
    """Let steps write into the memory of a base that is not needed any more, and order the steps for it."""
    wanted = [(step, *part) for step in made.steps for part in _parts(step) if _may_be_written(made, part[0])]
    if not wanted:
        return
    order = _Order(made)
    free = [part for part in wanted if _reads_only_there(*part[:2]) and order.put_last(*part[:2])]
    order.settle()
    kept: dict[str, str] = {}

    def now(name: str) -> str:
        while name in kept:
            name = kept[name]
        return name

    for _, base, result in free:
        base, result = now(base), now(result)
        if made.memory[base] == "temp":
            stays, goes = (base, result) if made.memory[result] == "temp" else (result, base)
            kept[goes] = stays
    rename(made, {name: now(name) for name in kept})


def rename(made: Plan, names: dict[str, str], steps: Iterable[Any] | None = None) -> None:
    """Give buffers the names, and so the memory, of others; `steps` are those that read or write them, if known."""
    if not names:
        return
    for step in made.steps if steps is None else steps:
        held = step.buffers
        for name in () if names.keys().isdisjoint(held) else dict.fromkeys(held):
            if name in names:
                step.rename(name, names[name])
    for node, name in made.buffers.items():
        if name in names:
            made.buffers[node] = names[name]
    for name in names:
        del made.memory[name]


def _reads_only_there(step: Any, base: str) -> bool:
    """Whether the kernel of `step`, if it is one, reads the base only where it writes, or before it writes at all."""
    if not isinstance(step, Launch) or not step.kernel.loops:
        return True
    stored = [x.address for x in step.kernel.body if isinstance(x, Store)]
    return all(x.address == stored[0] for x in _loads(step.kernel.body) if x.buffer == base)


class _Order:
    """The steps of a plan, with what must come before each: a bit for the number of every such step."""

    def __init__(self, made: Plan):
        self.made = made
        self.numbers = [step.number for step in made.schedule.steps]
        self.before = [step.before for step in made.schedule.steps]
        self.at = {id(step): i for i, step in enumerate(made.steps)}
        self.using = made.users()

    def put_last(self, step: Any, base: str) -> bool:
        """Have `step` run behind all others that read `base`; or False if one of them needs it."""
        at = self.at[id(step)]
        readers = [i for i in self.using[base] if i != at and base not in self.made.steps[i].writes]
        if any(self.before[i] >> self.numbers[at] & 1 for i in readers):
            return False
        for i in readers:
            new = self.before[i] | 1 << self.numbers[i]
            if new & ~self.before[at]:
                after = self.numbers[at]
                self.before = [x | new if k == at or x >> after & 1 else x for k, x in enumerate(self.before)]
        return True

    def settle(self) -> None:
        """Put the steps of the plan into an order near to theirs."""
        found = near_order(self.numbers, self.before)
        if found != sorted(found):
            self.made.reorder(found)


def read_too_late(made: Plan) -> dict[Node, str]:
    """Values that are computed of a base, where what has been written in part is read too: if they are stored before,
    there need be no copy."""
    found: dict[Node, str] = {}
    planned_steps = list(zip(made.steps, made.schedule.steps))
    parts = [(*both, *part) for both in planned_steps for part in _parts(both[0]) if _may_be_written(made, part[0])]
    using = made.users() if parts else {}
    for step, planned, base, result in parts:
        own = [] if _reads_only_there(step, base) else planned.roots
        late = [i for i in using[base] if made.schedule.steps[i].before >> planned.number & 1]
        readers = [made.steps[i] for i in late]
        if (own or readers) and all(isinstance(x, Launch) for x in (step, *readers)):
            roots = [*own, *(root for x in readers for root in x.roots)]  # type: ignore[union-attr]
            early = _Early(made, base, result).of(roots)
            if sum(x.aval.size for x in early) <= max(x.aval.size for x in planned.roots):
                found |= {x: EARLY for x in early if made.schedule.storage.reason.get(x) != EARLY}
    return found


class _Early:
    """Finds what is computed of a base and does not depend on what is written over it."""

    def __init__(self, made: Plan, base: str, result: str):
        self.buffers, self.base = made.buffers, base
        self.reads: dict[Node, bool] = {}
        self.after = {x for x, name in made.buffers.items() if name == result}
        for node in made.graph.nodes:
            if not self.after.isdisjoint(node.operands):
                self.after.add(node)

    def of(self, roots: list[Node]) -> list[Node]:
        """The largest such values that are computed where `roots` are; none if a root needs the base itself."""
        found: dict[Node, None] = {}
        for root in roots:
            first = handler(root).begins(root)
            if root not in self.after:
                found |= dict.fromkeys([root] if any(map(self.reads_base, root.operands)) else [])
                continue
            if not all(self.has(x, found) for x in root.operands if x is not first):
                return []
        return list(found)

    def has(self, node: Node, found: dict[Node, None]) -> bool:
        """Whether `found` has, or gets, all of the base that `node` is computed of."""
        if not self.reads_base(node) or node in found:
            return True
        if node in self.buffers:
            return False
        if node not in self.after and not same_block(node):
            found[node] = None
            return True
        return all(self.has(x, found) for x in node.operands)

    def reads_base(self, node: Node) -> bool:
        """Whether the base is read where `node` is computed."""
        if node in self.buffers:
            return self.buffers[node] == self.base
        if node not in self.reads:
            self.reads[node] = any(self.reads_base(x) for x in node.operands)
        return self.reads[node]


# -- carries -------------------------------------------------------------------------------------------------
def update_in_place(made: Plan, dims: Dims) -> None:
    """Give outputs the memory of the inputs that they replace, where that is safe; `made.in_place` says which."""
    for k in range(made.carries):
        old, new = (made.buffers[values[k]] for values in (made.graph.inputs, made.graph.outputs))
        if on_stack(dims.shape(made.graph.inputs[k]), made.graph.inputs[k].aval) or not is_safe(made, old, new):
            continue
        overwrite(made, old, new)
        made.in_place.add(k)


def overwrite(made: Plan, old: str, new: str) -> None:
    """Write `new` into the memory of `old`: what is read of it is read before."""
    rename(made, {new: old})
    for step in made.steps:
        if isinstance(step, Launch):
            step.kernel.body.sort(key=lambda x: isinstance(x, Store) and x.buffer == old)


def is_safe(made: Plan, old: str, new: str) -> bool:
    """Whether `new` may be written into the memory of `old`, with the steps ordered for it."""
    at = next(i for i, step in enumerate(made.steps) if new in step.writes)
    writer = made.steps[at]
    part = (old, new) in _parts(writer)
    if not (_reads_only_there(writer, old) if part else reads_at_same_index(writer, old, new)):
        return False
    readers = [i for i, step in enumerate(made.steps) if i > at and old in step.buffers]
    if readers:
        between = made.steps[at + 1 : readers[-1] + 1]
        if any(set(step.buffers) & writer.writes or set(writer.buffers) & step.writes for step in between):
            return False
        made.move(at, readers[-1])
    return True


def reads_at_same_index(writer: Any, old: str, new: str) -> bool:
    """Whether a step is a kernel that stores `new`, once, and reads `old` at that address only."""
    if not isinstance(writer, Launch) or writer.base or writer.serial:
        return False
    body = writer.kernel.body
    stored = [x.address for x in body if isinstance(x, Store) and x.buffer == new]
    return len(stored) == 1 and all(x.address == stored[0] for x in _loads(body) if x.buffer == old)


def _loads(body: list[Any]) -> list[Load]:
    return [x for x in accesses(body) if isinstance(x, Load)]
