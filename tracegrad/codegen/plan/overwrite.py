"""Decide which value may overwrite another one, and merge their buffers (aliasing and liveness).

A value may overwrite an old one that is dead when it is written. A kernel must store it once and load the old value at
the same index only, so that each element is read before it is overwritten. The passes that update in place, donate
inputs, reuse temporaries, and add to existing arrays all ask here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tracegrad.codegen.loopir.kernel import Kernel, Load, Reduce, Store, accesses
from tracegrad.codegen.loopir.steps import Launch
from tracegrad.codegen.plan.places_and_values import ARENA
from tracegrad.codegen.plan.region_steps import Looping

if TYPE_CHECKING:
    from tracegrad.codegen.loopir.polynomial import Poly
    from tracegrad.codegen.plan.program_plan import Plan, PlanStep
    from tracegrad.ir import GraphNode


class BufferUses:
    """The steps that read or write each buffer of a plan, and the values that it holds (liveness)."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.steps: dict[str, list[PlanStep]] = {name: [] for name in plan.memory}
        for step in plan.steps:
            for name in dict.fromkeys(step.buffers):
                self.steps[name].append(step)
        self.nodes: dict[str, list[GraphNode]] = {name: [] for name in plan.memory}
        for node, name in plan.buffers.items():
            self.nodes[name].append(node)
        self.update_order()

    def update_order(self) -> None:
        """Note the positions of the steps, after some have moved."""
        self._positions = {id(step): i for i, step in enumerate(self.plan.steps)}

    def positions(self, name: str) -> list[int]:
        """The positions of the steps that use a buffer, in order."""
        return sorted(map(self._positions.__getitem__, map(id, self.steps[name])))

    def others(self, name: str, step: PlanStep) -> list[PlanStep]:
        """The steps that use a buffer, without `step`."""
        return [x for x in self.steps[name] if x is not step]

    def dies_at(self, name: str, position: int) -> bool:
        """Whether a buffer is a temporary whose last use is the step at this position."""
        return self.plan.memory[name] is ARENA and self.positions(name)[-1] == position

    def have_size(self, names: tuple[str, ...], size: Poly | None = None) -> bool:
        """Whether all values in these buffers have this number of elements, or one number."""
        sizes = self.plan.sizes([node for name in names for node in self.nodes[name]])
        return len(sizes) == 1 if size is None else sizes == {size}

    def remove(self, step: PlanStep, name: str) -> None:
        """Remove a step from the plan, together with the buffer that it writes."""
        self.plan.steps.remove(step)
        del self.plan.memory[name]
        for node in self.nodes[name]:
            del self.plan.buffers[node]

    def merge(self, names: dict[str, str]) -> None:
        """Merge the memory of buffers: each name is replaced by another one."""
        for step in {id(step): step for name in names for step in self.steps[name]}.values():
            for name in dict.fromkeys(step.buffers):
                if name in names:
                    step.rename(name, names[name])
        for old, new in names.items():
            for node in self.nodes[old]:
                self.plan.buffers[node] = new
            del self.plan.memory[old]
            self.nodes[new] += self.nodes.pop(old)
            users = {id(step): step for step in (*self.steps.pop(old), *self.steps[new])}
            self.steps[new] = [step for step in users.values() if new in step.buffers]


class KernelAccesses:
    """The addresses at which a kernel loads and stores its buffers."""

    def __init__(self, step: Launch):
        self.step = step
        self.loaded: dict[str, set[Poly]] = {}
        self.stored: dict[str, list[Poly]] = {}
        for x in accesses(step.kernel.body):
            if isinstance(x, Load):
                self.loaded.setdefault(x.buffer, set()).add(x.address)
            elif isinstance(x, Store):
                self.stored.setdefault(x.buffer, []).append(x.address)
        self._reduced = {x.buffer for x in step.kernel.body if isinstance(x, Reduce)}

    def may_overwrite(self, old: str, new: str) -> bool:
        """Whether the kernel stores `new` once, and loads `old`, of the same dtype, at the same index only."""
        stored, buffers = self.stored.get(new, []), self.step.kernel.buffers
        if self.step.base or self.step.serial or len(stored) != 1 or new in self._reduced or old in self.step.writes:
            return False
        same_dtype = old not in buffers or buffers[old][0] == buffers[new][0]
        return same_dtype and self.loaded.get(old, set()) <= {*stored}


def reads_at_written_index(step: PlanStep, base: str) -> bool:
    """Whether the kernel of `step` reads the base only at the address it writes, or is no kernel with loops."""
    if not isinstance(step, Launch) or not step.kernel.loops:
        return True
    result = KernelAccesses(step)
    (stored, *_), *_ = [*result.stored.values(), [None]]
    return result.loaded.get(base, set()) <= {stored}


def partial_updates(step: PlanStep) -> Iterator[tuple[str, str]]:
    """The base and the result of each array that `step` writes partially."""
    if isinstance(step, Launch) and step.copies:
        (result,) = step.writes
        yield step.base, result
    elif isinstance(step, Looping):
        read = [x.buffer for x in step.operands]
        for k, (init, carried) in enumerate(zip(step.inits, step.carried)):
            is_updated = carried.buffer and not carried.on_stack and step.in_place(k)
            if is_updated and init.buffer != carried.buffer and read.count(init.buffer) == 1:
                yield init.buffer, carried.buffer


def overwrite(plan: Plan, old: str, new: str) -> bool:
    """Write `new` into the memory of `old` if that is safe, after ordering the steps for it; returns whether it is."""
    at = next(i for i, step in enumerate(plan.steps) if new in step.writes)
    writer = plan.steps[at]
    if (old, new) in partial_updates(writer):
        fits = reads_at_written_index(writer, old)
    else:
        fits = isinstance(writer, Launch) and KernelAccesses(writer).may_overwrite(old, new)
    readers = [i for i, step in enumerate(plan.steps) if i > at and old in step.buffers]
    if fits and readers:
        between = plan.steps[at + 1 : readers[-1] + 1]
        fits = not any(set(step.buffers) & writer.writes or set(writer.buffers) & step.writes for step in between)
    if fits:
        plan.move(at, readers[-1] if readers else at)
        BufferUses(plan).merge({new: old})
        for step in plan.steps:
            if isinstance(step, Launch):
                load_before_store(step.kernel, old)
    return fits


def load_before_store(kernel: Kernel, buffer: str) -> None:
    """Move the stores to a buffer to the end of a kernel."""
    kernel.body.sort(key=lambda x: isinstance(x, Store) and x.buffer == buffer)
