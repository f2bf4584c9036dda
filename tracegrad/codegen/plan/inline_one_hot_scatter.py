"""Inline a one-hot scatter (one element per row of zeros) into the kernels that read its rows.

The cotangent of `z[np.arange(n), labels]` is zero except for one element of each row. A kernel that reads the array row
by row computes the index of that element instead. The array is then neither written nor read, and no scatter step
separates kernels that could share their rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracegrad.codegen.loopir.kernel import (
    BoundsCheck,
    Compute,
    Definition,
    GuardBlock,
    Index,
    Kernel,
    KernelLoop,
    Load,
    Operand,
    Reduce,
    Statement,
    ValueRenaming,
    accesses,
    flattened,
)
from tracegrad.codegen.loopir.polynomial import ONE, ZERO, Poly
from tracegrad.codegen.loopir.steps import Launch
from tracegrad.codegen.plan.overwrite import BufferUses
from tracegrad.target.tuning import TUNING

if TYPE_CHECKING:
    from tracegrad.codegen.plan.program_plan import Plan

MAX_ONE_HOT_READERS = TUNING.fusion.max_one_hot_readers


def inline_one_hot_scatters(plan: Plan) -> None:
    """Remove the scatters whose readers can compute the one-hot rows themselves."""
    for scatter in [step for step in plan.steps if isinstance(step, Launch)]:
        one_hot = _one_hot_scatter_of(plan, scatter)
        if one_hot is None:
            continue
        uses = BufferUses(plan)
        readers = uses.others(one_hot.target, scatter)
        loops = [one_hot.loops_of(step) for step in readers]
        if 0 < len(readers) <= MAX_ONE_HOT_READERS and None not in loops and _unchanged(plan, scatter, readers):
            for step, variables in zip(readers, loops):
                one_hot.inline_into(step.kernel, variables)  # type: ignore[union-attr, arg-type]
            uses.remove(scatter, one_hot.target)


def _one_hot_scatter_of(plan: Plan, step: Launch) -> _OneHotScatter | None:
    """The one-hot scatter of a kernel, if it only stores one element into each row of a temporary; else None."""
    if not step.kernel.body:
        return None
    *body, last = step.kernel.body
    if not isinstance(last, Reduce) or last.combiner != "scatter" or last.size == ZERO:
        return None
    before = [x for x in body if isinstance(x, Load | Index | Compute | BoundsCheck)]
    if not plan.is_temporary(last.buffer) or len(before) < len(body):
        return None
    computed = {x.out.name for x in before}
    for check in [x for x in before if isinstance(x, BoundsCheck)]:
        begin = last.address - Poly.symbol(check.out.name)
        if begin.symbols.isdisjoint(computed) and check.size.evaluate(plan.arguments.sizes):
            return _OneHotScatter(step.kernel, before, last, check, begin)
    return None


def _unchanged(plan: Plan, scatter: Launch, readers: list[Any]) -> bool:
    """Whether the operands of the scatter are unchanged when its result is read."""
    reads = set(scatter.buffers) - scatter.writes
    first, last = plan.steps.index(scatter), max(plan.steps.index(x) for x in readers)
    return all(reads.isdisjoint(step.writes) for step in plan.steps[first : last + 1])


class _OneHotScatter:
    """A one-hot scatter: `check` is the column of the element, `begin` the address of the row."""

    def __init__(
        self,
        kernel: Kernel,
        before: Sequence[Definition],
        last: Reduce,
        check: BoundsCheck,
        begin: Poly,
    ):
        self.kernel, self.before, self.last, self.check, self.begin = kernel, before, last, check, begin
        self.target = last.buffer

    def loops_of(self, step: object) -> dict[str, Poly] | None:
        """Map the loops of the scatter to the loops of a kernel that reads the array row by row; "" is the loop of
        columns. None if it does not."""
        if not isinstance(step, Launch) or step.serial or step.base:
            return None
        loads = [x for x in accesses(step.kernel.body) if x.buffer == self.target]
        if not loads or not all(x in step.kernel.body and isinstance(x, Load) for x in loads):
            return None
        address = loads[0].address
        table: dict[str, Poly] = {}
        for loop in [*self.kernel.loops, KernelLoop("", self.check.size)]:
            stride = self.begin.coefficient(loop.var) if loop.var else ONE
            alike = [x.var for x in step.kernel.loops if x.extent == loop.extent]
            matches = [var for var in alike if address.coefficient(var) == stride and stride != ZERO]
            if len(matches) != 1:
                return None
            table[loop.var] = Poly.symbol(matches[0])
        same = address == self.begin.substitute(table) + table[""]
        return table if same and all(x.address == address for x in loads) else None

    def inline_into(self, kernel: Kernel, variables: dict[str, Poly]) -> None:
        """Make a kernel compute the position of the element, instead of loading the array."""
        body: list[Statement] = []
        for x in kernel.body:
            if isinstance(x, Load) and x.buffer == self.target:
                body += self._element_code(x.out, variables, _numbers([*kernel.body, *body]))
            else:
                body.append(x)
        kernel.body[:] = body
        del kernel.buffers[self.target]
        for name, use in self.kernel.buffers.items():
            if name != self.target:
                kernel.buffers.setdefault(name, use)
        kernel.cost += 1

    def _element_code(self, out: Operand, variables: dict[str, Poly], number: int) -> list[Statement]:
        """The instructions that compute the element, or zero; their values are numbered from `number` on."""
        values = {x.out.name: x.out._replace(name=f"v{number + k}") for k, x in enumerate(self.before)}
        to = ValueRenaming(values, variables)
        column, current = Poly.symbol(values[self.check.out.name].name), variables[""]
        fill = Operand("", out.dtype, "0.0" if out.dtype[0] == "f" else "0")
        value = to.operand(self.last.value)
        return [*to.body(self.before), GuardBlock(out, ((column, current, column + 1, ONE),), [], value, fill)]


def _numbers(body: list[Any]) -> int:
    """The first unused value number."""
    return max([int(x.out.name[1:]) for x in flattened(body) if hasattr(x, "out")], default=-1) + 1
