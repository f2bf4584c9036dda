"""Emit masked and strided vector loads and stores, and the masks of their lanes.

A mask has a lane for each element of the longest vector in memory. Lanes beyond a shorter vector are never set. LLVM
widens vectors that are shorter than a register, and then reads bits of a spilled mask that were never cleared (LLVM 20:
a move that clears them counts as a copy).
"""

from __future__ import annotations

from typing import Any

from tracegrad import llvmir as ir
from tracegrad.avals import dtype_named
from tracegrad.codegen.instr.scalar import BOOL, I64, combine, memory_type
from tracegrad.codegen.vecmath.lanes import number, of_lanes
from tracegrad.target.cpu import stores_slowly_with_masks

I32 = ir.IntType(32)
# Bytes of the shortest vectors that LLVM does not widen in memory; for wider ones it may use mask bits that are not
# set.
REGISTER = 16
ZERO = "zeroinitializer"


class VectorMemory:
    """Loads and stores of vectors of `lanes` values, whose elements have at least `least` bytes."""

    def __init__(self, b: ir.IRBuilder, lanes: int, least: int):
        self.b, self.lanes = b, lanes
        self.mask_width = max(lanes, REGISTER // least)
        self.of_iteration: tuple[ir.IRValue, ir.IRValue, ir.IRValue] | None = (
            None  # the mask of an iteration, whether it is fixed, its constant
        )

    # -- masks ---------------------------------------------------------------------------------------
    def lanes_below(self, rest: ir.IRValue) -> ir.IRValue:
        """The mask of the lanes with a number below `rest`, which is below the number of lanes, or up to 32."""
        width = ir.IntType(64 if self.mask_width >= 32 else 32)
        rest = self.b.trunc(rest, width) if width != I64 else rest
        bits = self.b.sub(self.b.shl(width(1), rest), width(1))
        if self.mask_width < width.width:
            bits = self.b.trunc(bits, ir.IntType(self.mask_width))
        return self.b.bitcast(bits, of_lanes(BOOL, self.mask_width))

    def first_lanes(self, count: int) -> Any:
        """The mask of the first `count` lanes."""
        return ir.IRConstant(of_lanes(BOOL, self.mask_width), [int(lane < count) for lane in range(self.mask_width)])

    def first(self, vector: ir.IRValue, count: int) -> Any:
        """The first `count` lanes of a vector; missing lanes are poison, or false in a mask."""
        if vector.type.count == count:
            return vector
        others = ir.TextConstant(vector.type, ZERO if vector.type.element == BOOL else "poison")
        lanes = [min(k, vector.type.count) for k in range(count)]
        return self.b.shuffle_vector(vector, others, ir.IRConstant(of_lanes(I32, count), lanes))

    def reversed(self, vector: ir.IRValue | None) -> Any:
        """Reverse the lanes of a vector, or of a mask if there is one."""
        if vector is None:
            return None
        lanes = [*range(self.lanes)[::-1], *range(self.lanes, vector.type.count)]
        return self.b.shuffle_vector(vector, vector, ir.IRConstant(of_lanes(I32, len(lanes)), lanes))

    # -- loads and stores ----------------------------------------------------------------------------
    def load(self, pointer: Any, dtype: str, mask: Any) -> Any:
        """Load a vector at `pointer` into its register type; masked lanes are 0."""
        t, size = self._type(dtype, mask)
        if mask is None:
            return self._register(self.b.load(pointer, align=size, typ=t), dtype)
        mask = self.first(mask, t.count)
        function = self.b.module.intrinsic("masked.load", [t, pointer.type], t, [pointer.type, I32, mask.type, t])
        value = self.b.call(function, [pointer, I32(size), mask, ir.TextConstant(t, ZERO)])
        return self._register(self.first(value, self.lanes), dtype)

    def load_strided(self, pointer: ir.IRValue, dtype: str, stride: int, mask: ir.IRValue | None) -> ir.IRValue:
        """Load every `stride`-th element from `pointer` on by whole vectors; memory after the last element is not
        touched."""
        if mask is None:
            return self._register(self._every(pointer, dtype, stride), dtype)
        width = self.lanes * stride
        t, size, operands = of_lanes(memory_type(dtype), width), dtype_named(dtype).itemsize, mask
        mask_lanes = [
            min(k // stride, operands.type.count - 1) if k % stride == 0 else operands.type.count for k in range(width)
        ]
        none = ir.TextConstant(operands.type, ZERO)
        wanted = self.b.shuffle_vector(operands, none, ir.IRConstant(of_lanes(I32, width), mask_lanes))
        function = self.b.module.intrinsic("masked.load", [t, pointer.type], t, [pointer.type, I32, wanted.type, t])
        every = self.b.call(function, [pointer, I32(size), wanted, ir.TextConstant(t, ZERO)])
        lanes = ir.IRConstant(of_lanes(I32, self.lanes), [k * stride for k in range(self.lanes)])
        return self._register(self.b.shuffle_vector(every, ir.TextConstant(t, "poison"), lanes), dtype)

    def _every(self, pointer: ir.IRValue, dtype: str, stride: int) -> ir.IRValue:
        """Load every `stride`-th element by vectors of the result's length, the last of which ends with the last
        element; if each vector would hold one wanted element, load the elements one by one."""
        t, size, lanes = of_lanes(memory_type(dtype), self.lanes), dtype_named(dtype).itemsize, self.lanes
        start = self.b.bitcast(pointer, t.element.as_pointer())
        result: ir.IRValue = ir.TextConstant(t, "poison")
        if lanes < 2 * stride:
            for k in range(lanes):
                element = self.b.load(self.b.gep(start, [I64(k * stride)]), align=size)
                result = self.b.insert_element(result, element, I32(k))
            return result
        wanted = [k * stride for k in range(lanes)]
        for first in [*range(0, wanted[-1] + 1 - lanes, lanes), wanted[-1] + 1 - lanes]:
            address = self.b.bitcast(self.b.gep(start, [I64(first)]), t.as_pointer())
            subvector = self.b.load(address, align=size, typ=t)
            picked = [lanes + at - first if first <= at < first + lanes else k for k, at in enumerate(wanted)]
            result = self.b.shuffle_vector(result, subvector, ir.IRConstant(of_lanes(I32, lanes), picked))
        return result

    def gather(self, pointer: ir.IRValue, offsets: ir.IRValue, dtype: str, mask: ir.IRValue | None) -> ir.IRValue:
        """Gather the elements at the offsets `offsets` from `pointer`."""
        t, size = self._type(dtype, None)
        mask = number(of_lanes(BOOL, self.lanes), 1) if mask is None else self.first(mask, self.lanes)
        pointers = self.b.gep(pointer, [offsets])
        types = [pointers.type, I32, mask.type, t]
        function = self.b.module.intrinsic("masked.gather", [t, pointers.type], t, types)
        return self._register(self.b.call(function, [pointers, I32(size), mask, ir.TextConstant(t, ZERO)]), dtype)

    def store(self, value: Any, pointer: Any, dtype: str, mask: ir.IRValue | None) -> None:
        """Store a vector at `pointer`."""
        if mask is None or not stores_slowly_with_masks():
            self._store(value, pointer, dtype, mask)
        elif isinstance(mask, ir.IRConstant):
            self.store_first(value, pointer, dtype, sum(bit.constant for bit in mask.constant[: self.lanes]))
        elif self.of_iteration is not None and mask is self.of_iteration[0]:
            with self.b.if_else(self.of_iteration[1]) as (then, otherwise):
                with then:
                    self.store(value, pointer, dtype, self.of_iteration[2])
                with otherwise:
                    self._store(value, pointer, dtype, mask)
        else:
            self._store(value, pointer, dtype, mask)

    def store_first(self, value: ir.IRValue, pointer: ir.IRValue, dtype: str, count: int) -> None:
        """Store the first `count` lanes at `pointer`, in pieces of a power of two."""
        t, size, done = memory_type(dtype), dtype_named(dtype).itemsize, 0
        if dtype == "bool":
            value = self.b.zext(value, of_lanes(t, self.lanes))
        start = self.b.bitcast(pointer, t.as_pointer())
        for width in (1 << k for k in reversed(range(count.bit_length())) if count >> k & 1):
            lanes = ir.IRConstant(of_lanes(I32, width), [*range(done, done + width)])
            subvector = self.b.shuffle_vector(value, value, lanes)
            address = self.b.bitcast(self.b.gep(start, [I64(done)]), of_lanes(t, width).as_pointer())
            self.b.store(subvector, address, align=size)
            done += width

    def _store(self, value: ir.IRValue, pointer: ir.IRValue, dtype: str, mask: ir.IRValue | None) -> None:
        t, size = self._type(dtype, mask)
        if dtype == "bool":
            value = self.b.zext(value, of_lanes(t.element, self.lanes))
        if mask is None:
            self.b.store(value, self.b.bitcast(pointer, t.as_pointer()), align=size)
            return
        value, mask = self.first(value, t.count), self.first(mask, t.count)
        types = [t, pointer.type, I32, mask.type]
        function = self.b.module.intrinsic("masked.store", [t, pointer.type], ir.VoidType(), types)
        self.b.call(function, [value, pointer, I32(size), mask])

    def _of_pairs(self, mask: ir.IRValue) -> ir.IRValue:
        """The mask of interleaved pairs from the mask of lanes."""
        mask, width = self.first(mask, self.lanes), 2 * self.lanes
        return self.b.shuffle_vector(mask, mask, ir.IRConstant(of_lanes(I32, width), [k // 2 for k in range(width)]))

    def load_pairs(
        self, pointer: ir.IRValue, dtype: str, mask: ir.IRValue | None, any_order: bool
    ) -> tuple[ir.IRValue, ir.IRValue]:
        """Load interleaved pairs at `pointer` as two vectors."""
        t, size = of_lanes(memory_type(dtype), 2 * self.lanes), dtype_named(dtype).itemsize
        if mask is None:
            value = self.b.load(self.b.bitcast(pointer, t.as_pointer()), align=size, typ=t)
        else:
            mask = self._of_pairs(mask)
            function = self.b.module.intrinsic("masked.load", [t, pointer.type], t, [pointer.type, I32, mask.type, t])
            value = self.b.call(function, [pointer, I32(size), mask, ir.TextConstant(t, ZERO)])
        pairs = self._pairs_of_lanes(size, any_order)
        low, high = (
            self.b.shuffle_vector(value, value, ir.IRConstant(of_lanes(I32, self.lanes), [2 * k + j for k in pairs]))
            for j in (0, 1)
        )
        return low, high

    def store_pairs(
        self,
        low: ir.IRValue,
        high: ir.IRValue,
        pointer: ir.IRValue,
        dtype: str,
        mask: ir.IRValue | None,
        any_order: bool,
    ) -> None:
        """Store two vectors interleaved at `pointer`."""
        width = 2 * self.lanes
        t, size = of_lanes(memory_type(dtype), width), dtype_named(dtype).itemsize
        pairs = self._pairs_of_lanes(size, any_order)
        iterations = [pairs.index(k // 2) + k % 2 * self.lanes for k in range(width)]
        value = self.b.shuffle_vector(low, high, ir.IRConstant(of_lanes(I32, width), iterations))
        if mask is None:
            self.b.store(value, self.b.bitcast(pointer, t.as_pointer()), align=size)
            return
        mask = self._of_pairs(mask)
        types = [t, pointer.type, I32, mask.type]
        function = self.b.module.intrinsic("masked.store", [t, pointer.type], ir.VoidType(), types)
        self.b.call(function, [value, pointer, I32(size), mask])

    def _pairs_of_lanes(self, size: int, any_order: bool) -> list[int]:
        """The numbers of the pairs held by the lanes. In any order, they stay in their parts of two vectors, so that
        one instruction extracts them and another one restores them."""
        each = max(REGISTER // (2 * size), 1)
        groups = [list(range(k, k + each)) for k in range(0, self.lanes, each)]
        half = len(groups) // 2
        if any_order and half:
            groups = [x for pair in zip(groups[:half], groups[half:]) for x in pair]
        return [k for group in groups for k in group]

    def add_rest(self, value: ir.IRValue, pointer: ir.IRValue, dtype: str, rest: ir.IRValue, combiner: str) -> None:
        """Combine the first `rest` lanes with memory at `pointer`, or store them if there is no combiner.

        The lanes are split into pieces of 8, 4, 2 and 1, or fewer. Each piece has a branch, with the same outcome for
        each row of a kernel. A masked store would delay later loads of the bytes of the whole vector, which may belong
        to the next row.
        """
        size = dtype_named(dtype).itemsize
        count = self.lanes // 2
        while count:
            is_set = self.b.icmp_signed("!=", self.b.and_(rest, I64(count)), I64(0))
            with self.b.if_then(is_set):
                subvector, address = self.b.extract_element(value, I32(0)), pointer
                if count > 1:
                    subvector = self.first(value, count)
                    address = self.b.bitcast(pointer, of_lanes(memory_type(dtype), count).as_pointer())
                if combiner:
                    subvector = combine(
                        self.b, combiner, self._register(self.b.load(address, align=size), dtype), subvector, dtype
                    )
                if dtype == "bool":
                    subvector = self.b.zext(subvector, of_lanes(memory_type(dtype), count if count > 1 else 0))
                self.b.store(subvector, address, align=size)
            if count > 1:
                lanes = [min(k + count, self.lanes - 1) for k in range(self.lanes)]
                moved = self.b.shuffle_vector(value, value, ir.IRConstant(of_lanes(I32, self.lanes), lanes))
                value = self.b.select(is_set, moved, value)
                pointer = self.b.gep(pointer, [self.b.select(is_set, I64(count), I64(0))])
            count //= 2

    def _type(self, dtype: str, mask: ir.IRValue | None) -> tuple[ir.VectorType, int]:
        """The type of a vector in memory, and the size of its elements in bytes."""
        size = dtype_named(dtype).itemsize
        return of_lanes(memory_type(dtype), self.lanes if mask is None else max(self.lanes, REGISTER // size)), size

    def _register(self, value: ir.IRValue, dtype: str) -> ir.IRValue:
        return self.b.icmp_unsigned("!=", value, number(value.type, 0)) if dtype == "bool" else value
