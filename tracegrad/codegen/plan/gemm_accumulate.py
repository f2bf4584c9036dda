"""Accumulate a matrix product into an existing array in BLAS (GEMM with beta = 1) instead of in a kernel.

A kernel that stores `old + product`, or `old - product`, loads both at the address where it stores. If it has no other
use of the two, BLAS may add to the memory of `old`. That memory must be the memory of the result (a carry updated in
place), or `old` must be a temporary that no later step reads.

A kernel that uses the sum further, as `tanh(x @ w + h @ u + b)` uses `x @ w + h @ u`, loads the sum instead. The old
value must have no later use.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tracegrad.codegen.loopir.kernel import Compute, Load, Store, accesses, operands
from tracegrad.codegen.loopir.steps import Launch, Matmul
from tracegrad.codegen.plan.overwrite import BufferUses

if TYPE_CHECKING:
    from tracegrad.codegen.plan.program_plan import Plan


def accumulate_products(plan: Plan) -> None:
    """Accumulate the products of a plan in BLAS, where that is legal."""
    adders = _adders(plan)
    if not adders:
        return
    uses = BufferUses(plan)
    for adder in adders:
        for sums in (_stored_sums, _inner_sums):
            while any(_Addition(plan, uses, adder, *result).apply() for result in sums(adder.kernel.body)):
                pass


def _adders(plan: Plan) -> list[Launch]:
    """The kernels that load a product."""
    products = {step.out for step in plan.steps if isinstance(step, Matmul)}
    if not products:
        return []
    kernels = [step for step in plan.steps if isinstance(step, Launch) and not step.base and not step.serial]
    return [step for step in kernels if step.kernel.loops and not products.isdisjoint(step.kernel.buffers)]


_SUMS = ("add", "sub")
_Sum = tuple[Compute, Load, Load, Store | None]  # sum, old value, product, store of the sum


def _stored_sums(body: Sequence[object]) -> Iterator[_Sum]:
    """The sums of two loaded values whose loads and store share one address."""
    stores = {x.value.name: x for x in body if type(x) is Store}
    for total, old, product, _ in _inner_sums(body):
        stored = stores.get(total.out.name)
        if stored is not None and stored.address == old.address:
            yield total, old, product, stored


def _inner_sums(body: Sequence[object]) -> Iterator[_Sum]:
    """The sums of two values loaded from one address, either of which may be the product."""
    loads = {x.out.name: x for x in body if type(x) is Load}
    for total in [x for x in body if type(x) is Compute and x.op in _SUMS]:
        old, new = [loads.get(x.name) for x in total.args]
        if old is not None and new is not None and old.address == new.address and old.buffer != new.buffer:
            yield total, old, new, None
            if total.op == "add":
                yield total, new, old, None


class _Addition:
    """The addition of `product` to `old` by the kernel `adder`, which stores or uses the sum."""

    def __init__(
        self,
        plan: Plan,
        uses: BufferUses,
        adder: Launch,
        total: Compute,
        old: Load,
        product: Load,
        stored: Store | None,
    ):
        self.plan, self.uses, self.adder, self.stored = plan, uses, adder, stored
        self.total, self.loads = total, (old, product)
        self.old, self.product, self.result = old.buffer, product.buffer, (stored or old).buffer

    def apply(self) -> bool:
        """Accumulate the product in BLAS if that is legal; returns whether it was."""
        steps = self.plan.steps
        makers = self.uses.others(self.product, self.adder)
        maker = makers[0] if len(makers) == 1 else None
        if not isinstance(maker, Matmul) or maker.adds:
            return False
        factors = {maker.x[0], maker.y[0]}
        if not self.plan.is_temporary(self.product) or not factors.isdisjoint((self.old, self.result)):
            return False
        if not (self._only_added() and self._of_one_size() and self._may_be_in_place()):
            return False
        first, at = steps.index(maker), steps.index(self.adder)
        touching = [*self.uses.positions(self.old), *self.uses.positions(self.result)]
        last = max([i for i in touching if first <= i < at], default=first)
        if any(not factors.isdisjoint(steps[i].writes) for i in range(first + 1, last + 1)):
            return False
        self._add(maker, first, last)
        return True

    def _only_added(self) -> bool:
        """Whether the kernel uses the buffers for this sum only, and only stores a stored sum."""
        body = self.adder.kernel.body
        allowed: tuple[Any, ...] = (*self.loads, self.stored)
        values = [x.out for x in self.loads] + [self.total.out] * (self.stored is not None)
        reads = [x for x in operands(body) if x in values]
        buffers = (self.old, self.product, self.result)
        return all(x in allowed for x in accesses(body) if x.buffer in buffers) and len(reads) == len(values)

    def _of_one_size(self) -> bool:
        """Whether the buffers are equally large, and, for a stored sum, have as many elements as the kernel has
        iterations."""
        size = self.adder.kernel.iterations if self.stored is not None else None
        return self.uses.have_size((self.old, self.product, self.result), size)

    def _may_be_in_place(self) -> bool:
        """Whether the result may reuse the memory of the old value."""
        if self.stored is not None and self.old == self.result:
            return True
        steps = self.plan.steps
        at = steps.index(self.adder)
        first = self.uses.positions(self.old)[0]
        dead = self.uses.dies_at(self.old, at)
        return dead and (self.stored is None or not any(self.result in x.buffers for x in steps[first:at]))

    def _add(self, maker: Matmul, first: int, last: int) -> None:
        result, kernel, (old, product) = self.plan, self.adder.kernel, self.loads
        if self.stored is None:
            kernel.body[:] = [Load(x.out, self.old, old.address) if x is self.total else x for x in kernel.body]
        removed = (self.total, self.stored, old, product)
        buffers = {self.product} if self.stored is None else {self.old, self.product, self.result}
        kernel.body[:] = [x for x in kernel.body if x not in removed]
        kernel.buffers = {name: use for name, use in kernel.buffers.items() if name not in buffers}
        if not kernel.body:
            at = result.steps.index(self.adder)
            del result.steps[at]
        result.move(first, last)
        maker.out, maker.adds = self.result, 1 if self.total.op == "add" else -1
        self.uses.update_order()
        self.uses.merge({name: self.result for name in (self.old, self.product) if name != self.result})
