"""Rename the buffers, sizes and constants of a kernel (alpha-renaming)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracegrad.codegen.loopir.kernel import (
    BoundsCheck,
    Compute,
    GuardBlock,
    Index,
    Kernel,
    KernelLoop,
    Load,
    Operand,
    Reduce,
    Store,
)
from tracegrad.codegen.loopir.polynomial import Poly

__all__ = ["renamed"]


def renamed(kernel: Kernel, names: dict[str, str]) -> Kernel:
    """A copy of a kernel with renamed buffers, sizes and constants; the new names must be distinct."""
    get, renaming = names.get, _Renaming(names)
    return Kernel(
        {get(name, name): use for name, use in kernel.buffers.items()},
        [KernelLoop(var, renaming.poly(extent)) for var, extent in kernel.loops],
        renaming.body(kernel.body),
        kernel.cost,
        kernel.chunked,
        kernel.disabled,
    )


class _Renaming:
    def __init__(self, names: dict[str, str]):
        self.names = names
        self._polys: dict[Poly, Poly] = {}

    def poly(self, p: Poly) -> Poly:
        result = self._polys.get(p)
        if result is None:
            result = self._polys[p] = p.renamed(self.names)
        return result

    def operand(self, x: Operand) -> Operand:
        name = self.names.get(x.name)
        return x if name is None else Operand(name, x.dtype, x.value)

    def body(self, body: list[Any]) -> list[Any]:
        return [_RENAMED[type(x)](self, x) for x in body]

    def _compute(self, x: Compute) -> Compute:
        for a in x.args:
            if a.name in self.names:
                return Compute(x.out, x.op, tuple(map(self.operand, x.args)), x.rounded)
        return x

    def _load(self, x: Load) -> Load:
        return Load(x.out, self.names.get(x.buffer, x.buffer), self.poly(x.address))

    def _index(self, x: Index) -> Index:
        return Index(x.out, self.poly(x.value))

    def _check(self, x: BoundsCheck) -> BoundsCheck:
        return BoundsCheck(x.out, self.operand(x.value), self.poly(x.size))

    def _guard(self, x: GuardBlock) -> GuardBlock:
        ranges = tuple([tuple(map(self.poly, four)) for four in x.ranges])
        return GuardBlock(x.out, ranges, self.body(x.body), self.operand(x.result), self.operand(x.fill))  # type: ignore[arg-type]

    def _store(self, x: Store) -> Store:
        return Store(self.names.get(x.buffer, x.buffer), self.poly(x.address), self.operand(x.value))

    def _reduce(self, x: Reduce) -> Reduce:
        buffer, address = self.names.get(x.buffer, x.buffer), self.poly(x.address)
        return Reduce(buffer, address, x.combiner, self.operand(x.value), x.over, self.poly(x.size))


_RENAMED: dict[type, Callable[[_Renaming, Any], Any]] = {
    Compute: _Renaming._compute,
    Load: _Renaming._load,
    Index: _Renaming._index,
    BoundsCheck: _Renaming._check,
    GuardBlock: _Renaming._guard,
    Store: _Renaming._store,
    Reduce: _Renaming._reduce,
}
