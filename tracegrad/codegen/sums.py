"""Products that are added to something: BLAS adds them where it stands, and no kernel goes over it once more.

A kernel that stores `old + product`, or `old - product`, loads both at the address where it stores. If it does nothing
else with the two, BLAS may add to the memory of `old`, if that is the memory of the result (a carry that is updated in
place) or may become it: `old` is a temporary value that nothing reads afterwards.

A kernel that goes on with such a sum, as with `x @ w + h @ u` in `tanh(x @ w + h @ u + b)`, loads it instead, where the
old value is one that nothing else reads from then on.
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
    for adder in _adders(made):
        for found in list(_sums(adder.kernel.body)):
            # Of two products, either may be the one that is there before.
            for old, product in found.terms:
                if _Addition(made, dims, adder, found, old, product).made():
                    break
        while any(_Inner(made, dims, adder, *terms).made() for terms in _inner_sums(adder.kernel.body)):
            pass


def _adders(made: Plan) -> list[Launch]:
    """The kernels that read a product."""
    products = {step.out for step in made.steps if isinstance(step, Matmul)}
    if not products:
        return []
    kernels = [step for step in made.steps if isinstance(step, Launch) and not step.base and not step.serial]
    return [step for step in kernels if not products.isdisjoint(step.kernel.buffers)]


class _Sum:
    """What a kernel stores of two values that it loads at the address where it stores."""

    def __init__(self, stored: Store, total: Compute, first: Load, second: Load):
        self.stored, self.total = stored, total
        self.terms = [(first, second), (second, first)][: 2 if total.op == "add" else 1]


def _sums(body: list[Any]) -> Iterator[_Sum]:
    values = {x.out.name: x for x in body if isinstance(x, Compute | Load)}
    for stored in body:
        total = values.get(stored.value.name) if isinstance(stored, Store) else None
        if isinstance(total, Compute) and total.op in ("add", "sub"):
            terms = [values.get(x.name) for x in total.args]
            if all(isinstance(x, Load) and x.address == stored.address for x in terms):
                yield _Sum(stored, total, *terms)  # type: ignore[arg-type]


def _inner_sums(body: list[Any]) -> Iterator[tuple[Compute, Load, Load]]:
    """The sums of two values that are loaded from one address, either of which may be there before."""
    loads = {x.out.name: x for x in body if isinstance(x, Load)}
    for total in [x for x in body if isinstance(x, Compute) and x.op in ("add", "sub")]:
        old, new = [loads.get(x.name) for x in total.args]
        if old is not None and new is not None and old.address == new.address and old.buffer != new.buffer:
            yield total, old, new
            if total.op == "add":
                yield total, new, old


class _Inner:
    """The addition of `product` to `old`, both temporary, in the midst of the kernel `adder`."""

    def __init__(self, plan: Plan, dims: Dims, adder: Launch, total: Compute, old: Load, product: Load):
        self.plan, self.dims, self.adder = plan, dims, adder
        self.total, self.old, self.product = total, old, product

    def made(self) -> bool:
        """Have BLAS do it, if that is right."""
        made, steps, old, product = self.plan, self.plan.steps, self.old.buffer, self.product.buffer
        makers = [x for x in steps if product in x.buffers and x is not self.adder]
        maker = makers[0] if len(makers) == 1 else None
        if not isinstance(maker, Matmul) or maker.adds or old in maker.buffers:
            return False
        if {made.memory[old], made.memory[product]} != {"temp"} or not (self._only_added() and self._of_one_size()):
            return False
        first, at = steps.index(maker), steps.index(self.adder)
        using = [i for i, step in enumerate(steps) if old in step.buffers]
        last = max((i for i in using if first < i < at), default=first)
        if using[-1] != at or any(steps[i].writes & {maker.x[0], maker.y[0]} for i in range(first + 1, last + 1)):
            return False
        self._add(maker, first, last)
        return True

    def _only_added(self) -> bool:
        """Whether the kernel accesses both for this sum only."""
        body = self.adder.kernel.body
        names = {self.old.buffer, self.product.buffer}
        accesses = [x for x in flattened(body) if isinstance(x, Load | Store | Reduce) and x.buffer in names]
        reads = [x for x in operands(body) if x in (self.old.out, self.product.out)]
        return len(accesses) == len(reads) == 2

    def _of_one_size(self) -> bool:
        names = {self.old.buffer, self.product.buffer}
        shapes = [self.dims.shape(node) for node, name in self.plan.buffers.items() if name in names]
        return len({math.prod(shape, start=ONE) for shape in shapes}) == 1

    def _add(self, maker: Matmul, first: int, last: int) -> None:
        made, kernel, total, old = self.plan, self.adder.kernel, self.total, self.old
        there = Load(total.out, old.buffer, old.address)
        body = [there if x is total else x for x in kernel.body]
        kernel.body[:] = [x for x in body if x is not old and x is not self.product]
        del kernel.buffers[self.product.buffer]
        for steps in (made.steps, made.schedule.steps):
            steps.insert(last, steps.pop(first))  # type: ignore[arg-type]
        maker.out, maker.adds = old.buffer, 1 if total.op == "add" else -1
        rename(made, {self.product.buffer: old.buffer})


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
