"""Emit interleaved (stride-2) loads and stores: two adjacent values per element, as in complex numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracegrad.codegen.loopir.kernel import Compute, Kernel, Load, Store, flattened
from tracegrad.codegen.loopir.polynomial import Poly

if TYPE_CHECKING:
    from tracegrad import llvmir as ir
    from tracegrad.codegen.kernels.vector_kernel import VectorLoop


class InterleavedAccesses:
    """The interleaved accesses of a loop over `var`: each iteration reads or writes the next two elements.

    `stores` maps both addresses of a store pair, whose buffer is not read, to the two stores, the lower first. `loads`
    maps both addresses of a load pair, whose buffer is not written, to the lower one. If there are no other accesses,
    `any_order` allows any order of elements in the lanes.
    """

    def __init__(self, kernel: Kernel, var: str):
        body, self.any_order = kernel.body, False
        self.stores: dict[tuple[str, Poly], tuple[Store, Store]] = {}
        self.loads: dict[tuple[str, Poly], Poly] = {}
        if "interleaved-access" in kernel.disabled:
            return
        every = [x for x in flattened(body) if isinstance(x, Load | Store)]
        loaded, stored = ({x.buffer for x in every if isinstance(x, kind)} for kind in (Load, Store))
        written = [x for x in body if isinstance(x, Store) and x.buffer not in loaded and _is_by_two(x, var)]
        placed = {(x.buffer, x.address): x for x in written}
        for low in written:
            high = placed.get((low.buffer, low.address + 1))
            if high is not None and self.stores.keys().isdisjoint((x.buffer, x.address) for x in (low, high)):
                self.stores[low.buffer, low.address] = self.stores[low.buffer, high.address] = low, high
        read = [x for x in body if isinstance(x, Load) and x.buffer not in stored and _is_by_two(x, var)]
        known = {(x.buffer, x.address) for x in read}
        for x in read:
            if (x.buffer, x.address + 1) in known and (x.buffer, x.address) not in self.loads:
                self.loads[x.buffer, x.address] = self.loads[x.buffer, x.address + 1] = x.address
        self.any_order = all(isinstance(x, Compute) or self._in_pairs(x, var) for x in body)
        self.any_order = self.any_order and len({x.value.dtype for x in body if isinstance(x, Store)}) == 1

    def _in_pairs(self, x: object, var: str) -> bool:
        """Whether an access is interleaved, or the same for all lanes."""
        if isinstance(x, Store):
            return (x.buffer, x.address) in self.stores
        if not isinstance(x, Load):
            return False
        return (x.buffer, x.address) in self.loads or not any(s == var or s[0] == "v" for s in x.address.symbols)


def _is_by_two(x: Load | Store, var: str) -> bool:
    dtype = (x.out if isinstance(x, Load) else x.value).dtype
    return x.address.coefficient(var).value == 2 and dtype != "bool"


def store_interleaved(loop: VectorLoop, x: Store, value: object, copy: int, k: int, mask: ir.IRValue | None) -> None:
    """Save the lanes of an interleaved store, and emit both stores once the lanes of the other are known."""
    low, high = loop.interleaved.stores[x.buffer, x.address]
    loop.values[id(x), copy, k] = value
    first, second = (loop.values.get((id(y), copy, k)) for y in (low, high))
    if first is not None and second is not None:
        pointer = loop._at(low, copy, k, 2)
        loop.memory.store_pairs(first, second, pointer, x.value.dtype, mask, loop.interleaved.any_order)


def read_strided(loop: VectorLoop, x: Load, stride: int, copy: int, k: int, mask: ir.IRValue | None) -> Any:
    """Load with a stride; two interleaved values are loaded at once."""
    low, dtype = loop.interleaved.loads.get((x.buffer, x.address)), x.out.dtype
    if low is None:
        if stride < 0:
            mask = loop.memory.reversed(mask)
        result = loop.memory.load_strided(loop._at(x, copy, k, stride), dtype, abs(stride), mask)
        return result if stride > 0 else loop.memory.reversed(result)
    key = ("pairs", x.buffer, low, loop._copy_of(low.symbols, copy), k, id(mask))
    if key not in loop.values:
        pointer = loop._at(Load(x.out, x.buffer, low), copy, k, 2)
        loop.values[key] = loop.memory.load_pairs(pointer, dtype, mask, loop.interleaved.any_order)
    return loop.values[key][int(x.address != low)]
