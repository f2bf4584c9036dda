"""Scatters of one element into each row of zeros, for kernels that go through the rows.

The cotangent of `z[np.arange(n), labels]` is all zeros but for one element of each row. Kernels that read such an array
row by row ask in each row where that is: so there is no array that is written and read again, and no step that writes
it between kernels that could go through the rows together.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tracegrad.codegen.loopir.kernel import (
    Check,
    Compute,
    Guard,
    Index,
    Kernel,
    Load,
    Loop,
    Operand,
    Reduce,
    accesses,
    flattened,
)
from tracegrad.codegen.loopir.polynomial import ONE, ZERO, Poly
from tracegrad.codegen.loopir.steps import Launch

if TYPE_CHECKING:
    from tracegrad.codegen.plan.planner import Plan

__all__ = ["ask_in_rows", "leave_out"]

MOST_READERS = 2  # kernels that ask, instead of reading an array


def ask_in_rows(made: Plan) -> None:
    """Leave out the scatters of a plan whose results kernels can do without."""
    for scatter in [step for step in made.steps if isinstance(step, Launch)]:
        placed = _placed(made, scatter)
        if placed is None:
            continue
        readers = [step for step in made.steps if placed.target in step.buffers and step is not scatter]
        loops = [placed.loops_of(step) for step in readers]
        if 0 < len(readers) <= MOST_READERS and None not in loops and _unchanged(made, scatter, readers):
            for step, variables in zip(readers, loops):
                placed.ask(step.kernel, variables)  # type: ignore[union-attr, arg-type]
            leave_out(made, scatter, placed.target)


def _placed(made: Plan, step: Launch) -> _Placed | None:
    """The scatter that a kernel is, if it puts one element into each row of a temporary array, and nothing else."""
    *before, last = step.kernel.body or [None]
    if not isinstance(last, Reduce) or last.combiner != "scatter" or last.size == ZERO:
        return None
    if made.memory[last.buffer] != "temp" or not all(isinstance(x, Load | Index | Compute | Check) for x in before):
        return None
    computed = {x.out.name for x in before}
    for check in [x for x in before if isinstance(x, Check)]:
        begin = last.address - Poly.symbol(check.out.name)
        if begin.symbols.isdisjoint(computed) and check.size.evaluate(made.arguments.sizes):
            return _Placed(step.kernel, last, check, begin)
    return None


def _unchanged(made: Plan, scatter: Launch, readers: list[Any]) -> bool:
    """Whether what the scatter reads is still there when its result is read."""
    reads = set(scatter.buffers) - scatter.writes
    first, last = made.steps.index(scatter), max(made.steps.index(x) for x in readers)
    return all(reads.isdisjoint(step.writes) for step in made.steps[first : last + 1])


def leave_out(made: Plan, step: Launch, target: str) -> None:
    """Leave a step out of a plan, and its result."""
    at = made.steps.index(step)
    planned = made.schedule.steps[at]
    for other in made.schedule.steps:
        if planned in other.deps:
            other.deps = other.deps - {planned} | planned.deps
    del made.steps[at], made.schedule.steps[at], made.memory[target]
    for node in [x for x, name in made.buffers.items() if name == target]:
        del made.buffers[node]


class _Placed:
    """A kernel that puts an element into each row: `check` says into which column, `begin` where the row begins."""

    def __init__(self, kernel: Kernel, last: Reduce, check: Check, begin: Poly):
        self.kernel, self.last, self.check, self.begin = kernel, last, check, begin
        self.target = last.buffer

    def loops_of(self, step: Any) -> dict[str, Poly] | None:
        """The loops of a kernel that reads the array row by row, by the loops of the scatter; "" is that of columns."""
        if not isinstance(step, Launch) or step.serial or step.base:
            return None
        loads = [x for x in accesses(step.kernel.body) if x.buffer == self.target]
        if not loads or not all(x in step.kernel.body and isinstance(x, Load) for x in loads):
            return None
        address = loads[0].address
        found: dict[str, Poly] = {}
        for loop in [*self.kernel.loops, Loop("", self.check.size)]:
            step_of = self.begin.coefficient(loop.var) if loop.var else ONE
            alike = [x.var for x in step.kernel.loops if x.extent == loop.extent]
            own = [var for var in alike if address.coefficient(var) == step_of and step_of != ZERO]
            if len(own) != 1:
                return None
            found[loop.var] = Poly.symbol(own[0])
        same = address == self.begin.substitute(found) + found[""]
        return found if same and all(x.address == address for x in loads) else None

    def ask(self, kernel: Kernel, variables: dict[str, Poly]) -> None:
        """Have a kernel ask where the element is, instead of reading the array."""
        body: list[Any] = []
        for x in kernel.body:
            if isinstance(x, Load) and x.buffer == self.target:
                body += self._asked(x.out, variables, _numbers([*kernel.body, *body]))
            else:
                body.append(x)
        kernel.body[:] = body
        del kernel.buffers[self.target]
        for name, use in self.kernel.buffers.items():
            if name != self.target:
                kernel.buffers.setdefault(name, use)
        kernel.cost += 1

    def _asked(self, out: Operand, variables: dict[str, Poly], number: int) -> list[Any]:
        """What gives the element, or zero; its own values are numbered from `number` on."""
        *before, _ = self.kernel.body
        names = {x.out.name: f"v{number + k}" for k, x in enumerate(before)}
        places = variables | {old: Poly.symbol(new) for old, new in names.items()}
        body = [_renamed(x, names, places) for x in before]
        column, own = Poly.symbol(names[self.check.out.name]), variables[""]
        fill = Operand("", out.dtype, "0.0" if out.dtype[0] == "f" else "0")
        value = _now(self.last.value, names)
        return [*body, Guard(out, ((column, own, column + 1, ONE),), [], value, fill)]


def _numbers(body: list[Any]) -> int:
    """The number behind those of all values."""
    return max([int(x.out.name[1:]) for x in flattened(body) if hasattr(x, "out")], default=-1) + 1


def _now(operand: Operand, names: dict[str, str]) -> Operand:
    return operand._replace(name=names.get(operand.name, operand.name))


def _renamed(x: Any, names: dict[str, str], places: dict[str, Poly]) -> Any:
    x = replace(x, out=_now(x.out, names))
    match x:
        case Load():
            return replace(x, address=x.address.substitute(places))
        case Index():
            return replace(x, value=x.value.substitute(places))
        case Check():
            return replace(x, value=_now(x.value, names))
    return replace(x, args=tuple([_now(arg, names) for arg in x.args]))
