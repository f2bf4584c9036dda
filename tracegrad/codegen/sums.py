"""Products that are added to something: BLAS adds them where it stands, and no kernel goes over it once more.

A kernel that stores `old + product`, or `old - product`, loads both at the address where it stores. If it does nothing
else with the two, BLAS may add to the memory of `old`, if that is the memory of the result (a carry that is updated in
place) or may become it: `old` is a temporary value that nothing reads afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tracegrad.codegen.in_place import rename
from tracegrad.codegen.loops import Compute, Load, Reduce, Store, flattened, operands
from tracegrad.codegen.poly import ONE, Poly
from tracegrad.codegen.steps import Launch, Matmul

if TYPE_CHECKING:
    from tracegrad.codegen.dims import Dims
    from tracegrad.codegen.plan import Plan

__all__ = ["add_products"]


def add_products(made: Plan, dims: Dims) -> None:
    """Have BLAS add the products of `made` that it may."""
    if not any(isinstance(step, Matmul) for step in made.steps):
        return
    for adder in [step for step in made.steps if isinstance(step, Launch) and not step.base and not step.serial]:
        for found in list(_sums(adder.kernel.body)):
            # Of two products, either may be the one that is there before.
            for old, product in found.terms:
                if _Addition(made, dims, adder, found, old, product).made():
                    break


class _Sum:
    """What a kernel stores of two values that it loads at the address where it stores."""

    def __init__(self, stored: Store, total: Compute, first: Load, second: Load):
        self.stored, self.total = stored, total
        self.terms = [(first, second), (second, first)][: 2 if total.op == "add" else 1]


def _sums(body: list[Any]) -> Iterator[_Sum]:
    values = {x.out: x for x in body if isinstance(x, Compute | Load)}
    for stored in body:
        total = values.get(stored.value) if isinstance(stored, Store) else None
        if isinstance(total, Compute) and total.op in ("add", "sub"):
            terms = [values.get(x) for x in total.args]
            if all(isinstance(x, Load) and x.address == stored.address for x in terms):
                yield _Sum(stored, total, *terms)  # type: ignore[arg-type]


class _Addition:
    """The addition of `product` to `old` by the kernel `adder`; `made` has BLAS do it instead, if that is right."""

    def __init__(self, plan: Plan, dims: Dims, adder: Launch, found: _Sum, old: Load, product: Load):
        self.plan, self.dims, self.adder, self.total = plan, dims, adder, found.total
        self.gone: tuple[Store, Compute, Load, Load] = (found.stored, found.total, old, product)
        self.old, self.product, self.result = old.buffer, product.buffer, found.stored.buffer

    def made(self) -> bool:
        steps = self.plan.steps
        makers = [x for x in steps if self.product in x.buffers and x is not self.adder]
        maker = makers[0] if len(makers) == 1 else None
        if not isinstance(maker, Matmul) or maker.adds:
            return False
        if self.plan.memory[self.product] != "temp" or {self.old, self.result} & {maker.x[0], maker.y[0]}:
            return False
        if not (self._only_added() and self._of_one_size() and self._may_be_in_place()):
            return False
        first, at = steps.index(maker), steps.index(self.adder)
        last = max((i for i in range(first, at) if self._touched(i)), default=first)
        if any(steps[i].writes & {maker.x[0], maker.y[0]} for i in range(first + 1, last + 1)):
            return False
        self._add(maker, first, last)
        return True

    def _touched(self, i: int) -> bool:
        return not {self.old, self.result}.isdisjoint(self.plan.steps[i].buffers)

    def _only_added(self) -> bool:
        """Whether the kernel reads and writes the three buffers for this sum only."""
        body = flattened(self.adder.kernel.body)
        accesses = [x for x in body if isinstance(x, Load | Store | Reduce)]
        own = [x for x in accesses if x.buffer in (self.old, self.product, self.result)]
        names = [x.out for x in self.gone[1:]]
        reads = [x for x in operands(self.adder.kernel.body) if x in names]
        alone = all(x in self.gone for x in own) and len(reads) == 3
        return alone and self.old != self.product and len(self.adder.kernel.loops) > 0

    def _of_one_size(self) -> bool:
        """Whether the buffers have as many elements as the kernel has iterations: it may read a part."""
        size = math.prod((loop.extent for loop in self.adder.kernel.loops), start=ONE)
        sizes: list[Poly] = [
            math.prod(self.dims.shape(node), start=ONE)
            for node, name in self.plan.buffers.items()
            if name in (self.old, self.product, self.result)
        ]
        return all(x == size for x in sizes)

    def _may_be_in_place(self) -> bool:
        """Whether the result may have the memory of the old value."""
        if self.old == self.result:
            return True
        steps = self.plan.steps
        at = steps.index(self.adder)
        using = [i for i, step in enumerate(steps) if self.old in step.buffers]
        between = steps[using[0] : at]
        dead = self.plan.memory[self.old] == "temp" and using[-1] == at
        return dead and not any(self.result in step.buffers for step in between)

    def _add(self, maker: Matmul, first: int, last: int) -> None:
        made, kernel = self.plan, self.adder.kernel
        gone = {self.old, self.product, self.result}
        kernel.body[:] = [x for x in kernel.body if x not in self.gone]
        kernel.buffers = {name: use for name, use in kernel.buffers.items() if name not in gone}
        at = made.steps.index(self.adder)
        for steps in (made.steps, made.schedule.steps):
            if not kernel.body:
                del steps[at]
            steps.insert(last, steps.pop(first))  # type: ignore[arg-type]
        maker.out, maker.adds = self.result, 1 if self.total.op == "add" else -1
        rename(made, dict.fromkeys(gone - {self.result}, self.result))
