"""Carries that a region updates in place.

The output that becomes a carry may have the memory of the input that the carry was, if the old value is dead when the
new one is written: a kernel writes it element by element, reading the old value at the same index only, and no step
after that reads the old value. Steps are put into an order for which that holds, where there is one. A product by BLAS
that is only added to such a carry is added by BLAS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracegrad.codegen.loops import Compute, Guard, Load, Store, operands
from tracegrad.codegen.nested import on_stack
from tracegrad.codegen.steps import Launch, Matmul

if TYPE_CHECKING:
    from tracegrad.codegen.dims import Dims
    from tracegrad.codegen.plan import Plan

__all__ = ["update_in_place"]


def update_in_place(made: Plan, dims: Dims) -> None:
    """Give outputs the memory of the inputs that they replace, where that is safe; `made.in_place` says which."""
    for k in range(made.carries):
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
        _add_product(made, old)


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


def _add_product(made: Plan, carry: str) -> None:
    """If a kernel adds a product to `carry`, and does nothing else with either, have BLAS add it."""
    at = next(i for i, step in enumerate(made.steps) if carry in step.writes)
    adder = made.steps[at]
    assert isinstance(adder, Launch)
    body = adder.kernel.body
    stored = next(x for x in body if isinstance(x, Store) and x.buffer == carry)
    loads = {x.out: x for x in body if isinstance(x, Load)}
    sums = [x for x in body if isinstance(x, Compute) and x.out == stored.value and x.op == "add"]
    if len(sums) != 1 or not all(a in loads for a in sums[0].args):
        return
    old, product = sorted((loads[a] for a in sums[0].args), key=lambda x: x.buffer != carry)
    makers = [step for step in made.steps if product.buffer in step.buffers and step is not adder]
    read = [o for x in body for o in operands([x]) if o in (old.out, product.out, stored.value)]
    if old.buffer != carry or old.address != product.address or len(read) != 3 or len(makers) != 1:
        return
    (maker,) = makers
    if not isinstance(maker, Matmul) or made.memory[product.buffer] != "temp" or _overwritten(made, maker, at):
        return
    gone = (old, product, sums[0], stored)
    body[:] = [x for x in body if x not in gone]
    adder.kernel.buffers = {b: use for b, use in adder.kernel.buffers.items() if b not in (carry, product.buffer)}
    maker.out, maker.adds = carry, True
    first = made.steps.index(maker)
    for steps in (made.steps, made.schedule.steps):
        _move(steps, first, at)
        if not body:
            del steps[at - 1]
    del made.memory[product.buffer]
    made.buffers = {node: carry if name == product.buffer else name for node, name in made.buffers.items()}


def _overwritten(made: Plan, maker: Matmul, at: int) -> bool:
    """Whether a step between the product and step `at` writes what the product reads."""
    between = made.steps[made.steps.index(maker) + 1 : at]
    return any(step.writes & set(maker.buffers) for step in between)
