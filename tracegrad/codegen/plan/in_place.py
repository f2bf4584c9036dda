"""Elide copies of partial updates and of loop carries (in-place update legality).

A step that writes a part of an array begins with a copy of the old array, its *base*. Examples are a kernel over a
window, and a loop that carries the array and updates it. The copy is elided if the base is a temporary, or the carry
itself, that no later step reads. The steps are reordered for that if possible. If a step also needs elements of the
base outside the updated part, they must be stored before: `read_too_late`.

An output that becomes a carry may reuse the memory of the input for that carry, if the old value is dead when the new
one is written. A kernel must write it element by element and read the old value at the same index only. No later step
may read the old value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracegrad.codegen.loopir.steps import Launch, near_order
from tracegrad.codegen.lower.form_rules import handler, same_block
from tracegrad.codegen.lower.materialize import EARLY
from tracegrad.codegen.plan.overwrite import BufferUses, overwrite, partial_updates, reads_at_written_index
from tracegrad.codegen.plan.places_and_values import ARENA, InputPlace
from tracegrad.codegen.plan.region_steps import on_stack
from tracegrad.ir import GraphNode
from tracegrad.settings import disabled

if TYPE_CHECKING:
    from tracegrad.codegen.plan.program_plan import Plan, PlanStep


# -- partial updates ---------------------------------------------------------------------------------------
def _may_be_written(plan: Plan, base: str) -> bool:
    place = plan.memory[base]
    return place is ARENA or (isinstance(place, InputPlace) and place.index < plan.carries)


def _wanted(plan: Plan) -> list[tuple[PlanStep, str, str]]:
    """The partial updates whose base may be overwritten: step, base, and result."""
    return [(step, *x) for step in plan.steps for x in partial_updates(step) if _may_be_written(plan, x[0])]


def write_in_place(plan: Plan) -> None:
    """Write partial updates into the memory of a dead base, and order the steps for that."""
    wanted = _wanted(plan)
    if not wanted:
        return
    order = _StepOrder(plan)
    free = [update for update in wanted if reads_at_written_index(*update[:2]) and order.order_last(*update[:2])]
    order.apply()
    saved: dict[str, str] = {}

    def now(name: str) -> str:
        while name in saved:
            name = saved[name]
        return name

    for _, base, result in free:
        base, result = now(base), now(result)
        if plan.is_temporary(base):
            remaining, removed = (base, result) if plan.is_temporary(result) else (result, base)
            saved[removed] = remaining
    BufferUses(plan).merge({name: now(name) for name in saved})


class _StepOrder:
    """The steps of a plan with their dependences, as one bitmask of predecessors per step."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.numbers = [step.group.number for step in plan.steps]
        self.before = [step.group.before for step in plan.steps]
        self.at = {id(step): i for i, step in enumerate(plan.steps)}
        self.using = plan.users()

    def order_last(self, step: object, base: str) -> bool:
        """Order `step` after all other readers of `base`; False if one of them depends on it."""
        at = self.at[id(step)]
        readers = [i for i in self.using[base] if i != at and base not in self.plan.steps[i].writes]
        if any(self.before[i] >> self.numbers[at] & 1 for i in readers):
            return False
        for i in readers:
            new = self.before[i] | 1 << self.numbers[i]
            if new & ~self.before[at]:
                after = self.numbers[at]
                self.before = [x | new if k == at or x >> after & 1 else x for k, x in enumerate(self.before)]
        return True

    def apply(self) -> None:
        """Reorder the plan close to its current order."""
        result = near_order(self.numbers, self.before)
        if result != sorted(result):
            self.plan.reorder(result)


def read_too_late(plan: Plan) -> dict[GraphNode, str]:
    """The values computed from a base that are read together with its partial update: if they are stored before, the
    copy can be elided."""
    if disabled("in-place-updates"):
        return {}
    table: dict[GraphNode, str] = {}
    updates = _wanted(plan)
    using = plan.users() if updates else {}
    for step, base, result in updates:
        own_roots = [] if reads_at_written_index(step, base) else step.group.roots
        readers = [x for i in using[base] if (x := plan.steps[i]).group.before >> step.group.number & 1]
        if (own_roots or readers) and all(isinstance(x, Launch) for x in (step, *readers)):
            roots = [*own_roots, *(root for x in readers for root in x.group.roots)]
            early = _Early(plan, base, result).of(roots)
            if sum(x.aval.size for x in early) <= max(x.aval.size for x in step.group.roots):
                table |= {x: EARLY for x in early if plan.schedule.storage.reason.get(x) != EARLY}
    return table


class _Early:
    """Search for values that are computed from a base and do not depend on the update."""

    def __init__(self, plan: Plan, base: str, result: str):
        self.buffers, self.base = plan.buffers, base
        self.reads: dict[GraphNode, bool] = {}
        self.after = {x for x, name in plan.buffers.items() if name == result}
        for node in plan.graph.nodes:
            if not self.after.isdisjoint(node.operands):
                self.after.add(node)

    def of(self, roots: list[GraphNode]) -> list[GraphNode]:
        """The largest early values needed by `roots`; none if a root needs the base itself."""
        table: dict[GraphNode, None] = {}
        for root in roots:
            first = handler(root).initialized_from(root)
            if root not in self.after:
                table |= dict.fromkeys([root] if any(map(self.reads_base, root.operands)) else [])
                continue
            if not all(self.has(x, table) for x in root.operands if x is not first):
                return []
        return list(table)

    def has(self, node: GraphNode, early: dict[GraphNode, None]) -> bool:
        """Whether the early values in the table cover all reads of the base by `node`; may add `node` to them."""
        if not self.reads_base(node) or node in early:
            return True
        if node in self.buffers:
            return False
        if node not in self.after and not same_block(node):
            early[node] = None
            return True
        return all(self.has(x, early) for x in node.operands)

    def reads_base(self, node: GraphNode) -> bool:
        """Whether computing `node` reads the base."""
        if node in self.buffers:
            return self.buffers[node] == self.base
        if node not in self.reads:
            self.reads[node] = any(self.reads_base(x) for x in node.operands)
        return self.reads[node]


# -- carries -------------------------------------------------------------------------------------------------
def update_in_place(plan: Plan) -> None:
    """Store outputs in the memory of the carries they replace, if that is safe; `in_place` of the plan lists them."""
    for k in range(plan.carries):
        x, y = plan.graph.inputs[k], plan.graph.outputs[k]
        is_small = on_stack(plan.schedule.dims.shape(x), x.aval)
        if not is_small and overwrite(plan, plan.buffers[x], plan.buffers[y]):
            plan.in_place.add(k)
