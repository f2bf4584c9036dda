"""Order the loops of a kernel's nest (loop interchange) and coalesce adjacent loops.

The innermost loop should run along contiguous memory, or reduce into a register. The next loop should run along the
memory that the innermost loop strides across. Adjacent loops are coalesced when every access runs through them as
through one. Kernels are valid in any loop order, so the order affects speed only.
"""

from __future__ import annotations

from tracegrad.codegen.kernels.full_unroll import unroll_choices, unroll_reductions
from tracegrad.codegen.loopir.kernel import (
    ACCESSES,
    GuardBlock,
    Index,
    Kernel,
    KernelLoop,
    Load,
    Reduce,
    Statement,
    Store,
    Substitution,
    accesses,
)
from tracegrad.codegen.loopir.polynomial import Poly
from tracegrad.settings import disabled


def arrange(kernel: Kernel) -> Kernel:
    """Interchange and coalesce the loops of a kernel, in place."""
    if len(kernel.loops) < 2:
        return kernel
    if not disabled("full-unrolling"):
        unroll_reductions(kernel)
        unroll_choices(kernel)
    if not disabled("loop-interchange"):
        _choose_innermost(kernel)
    if not disabled("loop-coalescing"):
        for position in range(len(kernel.loops) - 2, -1, -1):
            _merge(kernel, position)
    if not disabled("loop-interchange"):
        _move_contiguous_loop(kernel)
    return kernel


def is_serial(kernel: Kernel) -> bool:
    """Whether iterations depend on each other through memory, so that the kernel must run in order."""
    if [x for x in kernel.body if isinstance(x, Reduce) and x.scatters]:
        return True
    every = accesses(kernel.body)
    read = [x for x in every if isinstance(x, Load) and kernel.buffers[x.buffer][1] == "out"]
    if not read:
        return False
    written: dict[str, set[Poly | None]] = {x.buffer: set() for x in read}
    for x in every:
        if not isinstance(x, Load) and x.buffer in written:
            written[x.buffer].add(x.address if isinstance(x, Store) else None)  # an address that iterations may share
    return any(written[x.buffer] != {x.address} for x in read)


def _choose_innermost(kernel: Kernel) -> None:
    every = accesses(kernel.body)
    reductions = [x for x in every if type(x) is Reduce]
    others = [x for x in every if type(x) is not Reduce]
    best, best_cost = len(kernel.loops) - 1, float("inf")
    for position in range(len(kernel.loops) - 1, -1, -1):
        var = kernel.loops[position].var
        reduced = {x.buffer: _cost(x, var) for x in reductions}  # a buffer counts once if its reduction is unrolled
        cost = sum([_cost(x, var) for x in others]) + sum(reduced.values())
        if cost < best_cost:
            best, best_cost = position, cost
    kernel.loops.append(kernel.loops.pop(best))


def _move_contiguous_loop(kernel: Kernel) -> None:
    """Move a loop that is contiguous for loads which the innermost loop strides across, next to the innermost (see
    `transpose_tiling`)."""
    every, inner = accesses(kernel.body), kernel.loops[-1].var
    if Reduce in map(type, every):
        return
    across = [x for x in every if isinstance(x, Load) and x.address.coefficient(inner).value not in (-1, 0, 1)]
    along = [k for k, each in enumerate(kernel.loops) if any(x.address.coefficient(each.var) == 1 for x in across)]
    if along and len(kernel.loops) - 2 not in along:
        kernel.loops.insert(-1, kernel.loops.pop(along[-1]))


def _cost(access: Load | Store | Reduce, var: str) -> float:
    coefficient = access.address.coefficient(var).value
    if coefficient == 0:
        return 0.0
    if coefficient == 1:
        return 0.3 if type(access) is Reduce else 0.0
    return 0.5 if coefficient == -1 else 2.0 if type(access) is Store else 1.0


def _merge(kernel: Kernel, position: int) -> None:
    outer, inner = kernel.loops[position], kernel.loops[position + 1]
    if not _mergeable(kernel.body, outer.var, inner):
        return
    kernel.body[:] = _Coalescing(outer.var).body(kernel.body)
    kernel.loops[position : position + 2] = [KernelLoop(inner.var, outer.extent * inner.extent)]


def _mergeable(body: list[Statement], outer: str, inner: KernelLoop) -> bool:
    return all([_alike(x, outer, inner) for x in body])  # noqa: C419 (a list is faster here, in a hot function)


def _alike(x: Statement, outer: str, inner: KernelLoop) -> bool:
    """Whether an instruction is the same in the coalesced loop as in the two loops."""
    if isinstance(x, ACCESSES):
        if type(x) is Reduce and (outer in x.over) != (inner.var in x.over):
            return False
        return x.address.coefficient(outer) == x.address.coefficient(inner.var) * inner.extent
    both = {outer, inner.var}
    if type(x) is GuardBlock:
        tested = [p for r in x.ranges for p in r if p.symbols & both]
        return not tested and _mergeable(x.body, outer, inner)
    return type(x) is not Index or x.value.symbols.isdisjoint(both)


class _Coalescing(Substitution):
    """Removes the variable of a loop that the next loop absorbs."""

    def __init__(self, var: str):
        super().__init__()
        self.var = var

    def poly(self, p: Poly) -> Poly:
        return p.without(self.var)

    def over(self, loops: tuple[str, ...]) -> tuple[str, ...]:
        return tuple([var for var in loops if var != self.var])
