"""Carries that a region updates in place.

The output that becomes a carry may have the memory of the input that the carry was, if the old value is dead when the
new one is written: a kernel writes it element by element, reading the old value at the same index only, and no step
after that reads the old value. Steps are put into an order for which that holds, where there is one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracegrad.codegen.loops import Guard, Load, Store
from tracegrad.codegen.nested import on_stack
from tracegrad.codegen.steps import Launch

if TYPE_CHECKING:
    from tracegrad.codegen.dims import Dims
    from tracegrad.codegen.plan import Plan

__all__ = ["update_in_place"]


def update_in_place(made: Plan, dims: Dims, carries: int) -> None:
    """Give outputs the memory of the inputs that they replace, where that is safe; `made.in_place` says which."""
    for k in range(carries):
        old, new = (made.buffers[values[k]] for values in (made.graph.inputs, made.graph.outputs))
        if on_stack(dims.shape(made.graph.inputs[k]), made.graph.inputs[k].aval) or not _is_safe(made, old, new):
            continue
        for step in made.steps:
            step.rename(new, old)
            if isinstance(step, Launch):
                step.kernel.body.sort(key=lambda x: isinstance(x, Store) and x.buffer == old)
        made.buffers = {node: old if name == new else name for node, name in made.buffers.items()}
        del made.memory[new]
        made.in_place.add(k)


def _is_safe(made: Plan, old: str, new: str) -> bool:
    """Whether `new` may be written into the memory of `old`, with the steps ordered for it."""
    at = next(i for i, step in enumerate(made.steps) if new in step.writes)
    writer = made.steps[at]
    if not isinstance(writer, Launch) or writer.serial or not _at_same_index(writer, old, new):
        return False
    readers = [i for i, step in enumerate(made.steps) if i > at and old in step.buffers]
    if readers:
        between = made.steps[at + 1 : readers[-1] + 1]
        if any(set(step.buffers) & writer.writes or set(writer.buffers) & step.writes for step in between):
            return False
        for steps in (made.steps, made.schedule.steps):
            _move(steps, at, readers[-1])
    return True


def _move(steps: Any, first: int, last: int) -> None:
    steps.insert(last, steps.pop(first))


def _at_same_index(writer: Launch, old: str, new: str) -> bool:
    """Whether the kernel stores `new`, once, and reads `old` at that address only."""
    body = writer.kernel.body
    stored = [x.address for x in body if isinstance(x, Store) and x.buffer == new]
    return len(stored) == 1 and all(x.address == stored[0] for x in _loads(body) if x.buffer == old)


def _loads(body: list[Any]) -> list[Load]:
    return [y for x in body for y in ([x] if isinstance(x, Load) else _loads(x.body) if isinstance(x, Guard) else [])]
