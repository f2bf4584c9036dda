"""Emit the innermost loop of a kernel as vectors (SIMD code generation).

    while i + several vectors <= high:  several vectors without a mask in cheap loops, two in expensive ones
    while i < high:                     one vector, with a mask for the lanes below high

Loop-invariant values are computed before the loop. A reduction has a vector of partial results, which `horizontal`
combines. In cheap loops each of the several vectors has its own partial results, so no addition waits for another.
Masked lanes touch no memory. Their results are not used, and integers are not divided by zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Any

from tracegrad import llvmir as ir
from tracegrad.codegen.instr.scalar import BOOL, I64, combine, constant, extremum, identity, is_extremum
from tracegrad.codegen.kernels.carried_totals import begin_loop, end_iteration, join
from tracegrad.codegen.kernels.fma import computed, factors_of
from tracegrad.codegen.kernels.interior_split import interior_bounds, interior_of
from tracegrad.codegen.kernels.interleaved_access import InterleavedAccesses, read_strided, store_interleaved
from tracegrad.codegen.kernels.prefetch import fetch_ahead, is_compute_bound
from tracegrad.codegen.kernels.vector_memory import VectorMemory
from tracegrad.codegen.kernels.vectorize import MAX_UNMASKED_COST, Vectors, dependent, stride_of, unit_stride_of
from tracegrad.codegen.loopir.kernel import Compute, GuardBlock, Index, Load, Operand, Reduce, Store, flattened
from tracegrad.codegen.loopir.polynomial import Poly
from tracegrad.codegen.vecmath.lanes import number, numbered, of_lanes, splat
from tracegrad.target.cpu import stores_slowly_with_masks

if TYPE_CHECKING:
    from tracegrad.codegen.kernels.scalar_kernel import KernelEmitter
    from tracegrad.llvmir.module import BasicBlock

I32 = ir.IntType(32)


def vector_loop(outer: KernelEmitter, vectors: Vectors, low: ir.IRValue, high: ir.IRValue) -> None:
    """Emit the innermost loop of a kernel, from `low` to `high`; `outer.totals` are the totals after it."""
    VectorLoop(outer, vectors, high).emit(low)


class VectorLoop:
    """Emitter of one vectorized innermost loop."""

    def __init__(self, outer: KernelEmitter, vectors: Vectors, high: Any):
        self.outer, self.b, self.high = outer, outer.b, high
        self.kernel, self.lanes, self.varying = outer.kernel, vectors.lanes, vectors.varying
        self.step = vectors.lanes  # increment of the loop variable per vector
        self.var = self.kernel.loops[-1].var
        self.variables, self.is_compute_bound = [self.var], is_compute_bound(self.kernel)
        self.length = self.kernel.loops[-1].extent.value
        # Each jammed iteration of the surrounding loop has its own values.
        self.per_copy = dependent(self.kernel.body, self.kernel.loops[-2].var) if outer.copies else frozenset[str]()
        self.copies = range(max(len(outer.copies), 1))
        self.memory = VectorMemory(self.b, vectors.lanes, vectors.least)
        # Jammed iterations are enough parallelism. A short remainder needs no unmasked loop, except if stored values
        # are soon loaded again, which is slow with a mask.
        not_jammed = outer.unroll_and_jam is None or (outer.unroll_and_jam.brief and not outer.copies)
        again = any(outer.in_memory(x) for x in outer.reductions)
        self.unroll = vectors.at_once if not_jammed else min(vectors.at_once, int(bool(outer.copies) or again))
        self.reductions = [x for x in outer.reductions if id(x) in outer.totals]
        self.scalars: list[dict[str, ir.IRValue]] = []  # loop-invariant values of each copy
        self.totals: dict[Any, list[Any]] = {}  # by reduction, copy and number of the vector
        self.fixed: dict[object, ir.IRValue] = {}  # vectors of scalars, built before the loops
        self.values: dict[object, Any] = {}  # values of one iteration
        self.sums: dict[object, ir.IRValue] = {}  # accumulators in memory that copies share
        self.i: Any = None
        self.rest: Any = None  # number of lanes in the remainder of a row
        self.loaded = {x.buffer for x in flattened(self.kernel.body) if isinstance(x, Load)}
        self.interleaved = InterleavedAccesses(self.kernel, self.var)
        plain = self.unroll > 1 and self.length is None and not outer.copies and not outer.reductions
        self.interior = interior_of(self.kernel, self.var, self.varying) if plain else None
        self.holding = frozenset[int]()  # the guards that hold
        self.may_pass = False  # whether the masked loop may also process whole vectors

    # -- loops -------------------------------------------------------------------------------------
    def emit(self, low: Any) -> None:
        for x in self.reductions:
            operands, width = self.outer.totals[id(x)], 2 if is_extremum(x) else 1
            for copy in self.copies:
                self.totals[id(x), copy, 0] = operands[copy * width : (copy + 1) * width]
        self._loops(low) if self.length is None else self._straight(self.length)
        for x in self.reductions:
            self.outer.totals[id(x)] = [v for copy in self.copies for v in self.totals[id(x), copy, 0]]

    def _straight(self, length: int) -> None:
        """Emit the vectors of a few elements without a loop; the last vector may be masked."""
        self.begin = self.b.block
        for copy in self.copies:
            self._hoist(copy)
        self.begin = self.b.block
        for start in range(0, length, self.lanes):
            whole = start + self.lanes <= length
            self._iteration(I64(start), 1, None if whole else self.memory.first_lanes(length - start))

    def _loops(self, low: ir.IRValue) -> None:
        end, whole, rest = self._loop_bounds(low)
        start, before = self.b.block, dict(self.totals)
        begin, after = self._new_block("begin"), self._new_block("after")
        self.b.cbranch(self.b.icmp_signed("<", low, self.high), begin, after)
        self.b.position_at_end(begin)
        for copy in self.copies:
            self._hoist(copy)
        self.begin = self.b.block
        incoming = [(start, before)]
        masked = self._new_block("masked")
        if self.unroll:
            if self.interior is not None:
                first, end = interior_bounds(self.b, self.scalar, self.interior, low, end, self.unroll * self.step)
                low, self.holding = self._unmasked(low, first, after, incoming), self.interior.guards
            low, self.holding = self._unmasked(low, end, after, incoming), frozenset()
            incoming.append((self.b.block, dict(self.totals)))
            self.b.cbranch(self.b.icmp_signed("<", low, self.high), masked, after)
        else:
            self.b.branch(masked)
        self.b.position_at_end(masked)
        if self.unroll == 1 and not self.may_pass:
            self.rest = self.b.sub(self.high, low)
            self._iteration(low, 1, rest)
        else:
            self._masked(low, whole, rest)
        self.b.branch(after)
        incoming.append((self.b.block, dict(self.totals)))
        self.b.position_at_end(after)
        self.totals |= join(self.b, incoming)

    def _whole(self, low: ir.IRValue, width: int) -> ir.IRValue:
        """The end of the last whole part of `width` elements."""
        return self.b.add(low, self.b.and_(self.b.sub(self.high, low), I64(-width)))

    def _loop_bounds(self, low: ir.IRValue) -> tuple[ir.IRValue, ir.IRValue, ir.IRValue]:
        """The end of the loop of several vectors, the end of the last whole vector, and the mask of the remainder.

        They are computed before all loops of the kernel, because they are known there.
        """
        with self.b.goto_block(self.outer.before_loops):
            end = self._whole(low, max(self.unroll, 1) * self.step)
            whole = self._whole(low, self.step) if self.unroll > 1 else end
            return end, whole, self._mask_of_rest(self.b.sub(self.high, whole))

    def _mask_of_rest(self, rest: ir.IRValue) -> ir.IRValue:
        return self.memory.lanes_below(rest)

    def _mask_of_all(self) -> Any:
        return self.memory.first_lanes(self.lanes)

    def _unmasked(self, low: ir.IRValue, end: ir.IRValue, after: BasicBlock, incoming: list[Any]) -> ir.IRValue:
        """Emit the loop of several vectors; returns its final index. An early exit to `after` is added to
        `incoming`."""
        before, loop, full, rest = self.b.block, *map(self._new_block, ("several", "full", "rest"))
        untouched = dict(self.totals)
        self.b.cbranch(self.b.icmp_signed("<", low, end), loop, rest)
        self._begin_totals()
        self.b.position_at_end(loop)
        i = self.b.merge((low, before))
        phis = self._begin_loop(before)
        self._iteration(i, self.unroll, None)
        self._again(i, self.unroll * self.step, end, phis, loop, full)
        self.b.position_at_end(full)
        self._end_totals()
        self.b.branch(rest)
        self.b.position_at_end(rest)
        self.totals |= join(self.b, [(before, untouched), (full, dict(self.totals))])
        return end

    def _begin_totals(self) -> None:
        """Initialize separate totals for each vector of an iteration after the first."""
        for x in self.reductions:
            for copy in self.copies:
                for k in range(1, self.unroll):
                    self.totals[id(x), copy, k] = self._identities(x)

    def _end_totals(self) -> None:
        for x in self.reductions:
            for copy in self.copies:
                for k in range(1, self.unroll):
                    self._add_up(x, copy, self.totals.pop((id(x), copy, k)))

    def _identities(self, x: Reduce) -> list[ir.IRValue]:
        return self.outer.identities(x)

    def _add_up(self, x: Reduce, copy: int, other: list[ir.IRValue]) -> None:
        totals = self.totals[id(x), copy, 0]
        if is_extremum(x):
            best, _ = extremum(self.b, x.combiner, totals, other[0])
            self.totals[id(x), copy, 0] = [best, self.b.or_(totals[1], other[1])]
        else:
            self.totals[id(x), copy, 0] = [combine(self.b, x.combiner, totals[0], other[0], x.value.dtype)]

    def _masked(self, low: ir.IRValue, whole: ir.IRValue, rest: ir.IRValue) -> None:
        """Emit the loop of one vector. It runs twice, for the whole vectors and for the remainder, each with a fixed
        mask."""
        before, again, loop, ended, last, after = (
            self.b.block,
            *map(self._new_block, ("again", "one", "ended", "last", "done")),
        )
        some = self.b.icmp_signed("<", low, whole)
        first = self.b.select(some, self._mask_of_all(), rest)
        first_end = self.b.select(some, whole, self.high)
        self.b.branch(again)
        self.b.position_at_end(again)
        start, mask, end, full = (self.b.merge((x, before)) for x in (low, first, first_end, some))
        around = self._begin_loop(before)
        self.b.branch(loop)
        self.b.position_at_end(loop)
        i = self.b.merge((start, again))
        phis = self._begin_loop(again)
        self.memory.of_iteration = (mask, full, self._mask_of_all())
        self._iteration(i, 1, mask)
        self._again(i, self.step, end, phis, loop, ended)
        self.b.position_at_end(ended)
        self.b.cbranch(self.b.icmp_signed("<", end, self.high), last, after)
        self.b.position_at_end(last)
        self.b.branch(again)
        for phi, value in ((start, end), (mask, rest), (end, self.high), (full, BOOL(0))):
            phi.add_incoming(value, last)
        end_iteration(self.b, around, self.totals)
        self.b.position_at_end(after)

    def _again(self, i: Any, width: int, end: ir.IRValue, phis: Any, loop: BasicBlock, after: BasicBlock) -> None:
        """Emit the end of an iteration: continue at `i + width`, or exit."""
        following = self.b.add(i, I64(width))
        i.add_incoming(following, self.b.block)
        end_iteration(self.b, phis, self.totals)
        self._no_unrolling(self.b.cbranch(self.b.icmp_signed("<", following, end), loop, after))

    def _new_block(self, name: str) -> BasicBlock:
        return self.outer.function.append_basic_block(f"{name}.{self.var}")

    def _begin_loop(self, before: ir.BasicBlock) -> dict[ir.IRValue, list[ir.Phi]]:
        """Make the totals loop-carried values (phis)."""
        phis = begin_loop(self.b, self.totals, before)
        self.totals = {key: list(values) for key, values in phis.items()}
        return phis

    def _no_unrolling(self, branch: Any) -> None:
        hints: list[list[str | ir.IRValue]] = [["llvm.loop.isvectorized", I32(1)], ["llvm.loop.unroll.disable"]]
        branch.set_metadata("llvm.loop", self.b.module.loop_id(hints))

    # -- loop-invariant code ---------------------------------------------------------------------------
    def _hoist(self, copy: int) -> None:
        env = dict(self.outer.env)
        if self.outer.copies:
            env[self.kernel.loops[-2].var] = self.outer.copies[copy]
        self.scalars.append(env)
        with self.outer.within(env):
            self._hoist_block(self.kernel.body, copy)

    def _hoist_block(self, body: list[Any], copy: int) -> None:
        for x in body:
            if isinstance(x, Store | Reduce):
                continue
            if x.out.name in self.varying:
                if isinstance(x, GuardBlock):
                    self._hoist_block(x.body, copy)
            elif copy and x.out.name not in self.per_copy:
                self.scalars[copy][x.out.name] = self.scalars[0][x.out.name]
            else:
                self.outer.block([x])

    @contextmanager
    def _before(self) -> Iterator[None]:
        """Emit code before the loops within the context."""
        with self.b.goto_block(self.begin):
            yield

    def _copy_of(self, names: Any, copy: int) -> int:
        return copy if self.per_copy & names else 0

    def scalar(self, p: Poly, copy: int = 0) -> ir.IRValue:
        """Emit a loop-invariant polynomial."""
        copy = self._copy_of(p.symbols, copy)
        key = ("scalar", p, copy)
        if key not in self.fixed:
            with self._before(), self.outer.within(self.scalars[copy]):
                self.fixed[key] = self.outer.polys.emit(self.b, p)
        return self.fixed[key]

    def _base(self, buffer: str, address: Poly, copy: int) -> ir.IRValue:
        """The pointer to an access at index 0."""
        rest = address.without(self.var)
        copy = self._copy_of(rest.symbols, copy)
        key = ("base", buffer, rest, copy)
        if key not in self.fixed:
            around = self.kernel.loops[-2].var if len(self.kernel.loops) > 1 else ""
            result = None
            if not (rest.symbols & self.per_copy) - {around}:
                result = self._base(buffer, address, 0) if copy else self.outer.running_pointer(buffer, rest)
            if result is None or copy:
                start = self.outer.pointers[buffer] if result is None else result
                at = self.scalar(rest, copy) if result is None else self.scalar(rest.coefficient(around) * copy, 0)
                with self._before():
                    result = self.b.gep(start, [at])
            self.fixed[key] = result
        return self.fixed[key]

    def _everywhere(self, key: object, x: ir.IRValue) -> ir.IRValue:
        """Broadcast a loop-invariant scalar to all lanes."""
        if (key := ("splat", key)) not in self.fixed:
            with self._before():
                self.fixed[key] = splat(self.b, x, self.lanes)
        return self.fixed[key]

    # -- one iteration -----------------------------------------------------------------------------------
    def _iteration(self, i: ir.IRValue, unroll: int, mask: ir.IRValue | None) -> None:
        self.i, self.values = i, {}
        together = unroll > 1 and self.kernel.cost > MAX_UNMASKED_COST  # interleaved, so that neither waits
        for group in [[x] for x in self.kernel.body] if together else [self.kernel.body]:
            for k in range(unroll):
                for copy in self.copies:
                    self._block(group, copy, k, mask)

    def _block(self, body: list[Any], copy: int, k: int, mask: Any) -> None:
        for x in body:
            match x:
                case Store():
                    self._store(x, self._value(x.value, copy, k), copy, k, mask)
                    continue
                case Reduce():
                    self._reduce(x, copy, k, mask)
                    continue
            if x.out.name not in self.varying or (copy and x.out.name not in self.per_copy):
                continue
            match x:
                case Compute():
                    value = computed(self.b, x, lambda a: self._value(a, copy, k), self.outer.products)
                case Load():
                    value = self._load(x, copy, k, mask)
                case Index():
                    value = self._lanes_of(x.value, copy, k)
                case GuardBlock():
                    value = self._guard(x, copy, k, mask)
            self.values[x.out.name, self._copy_of({x.out.name}, copy), k] = value

    def _value(self, x: Operand, copy: int, k: int) -> Any:
        if not x.name:
            return constant(x.value, x.dtype, self.lanes)
        copy = self._copy_of({x.name}, copy)
        if x.name in self.varying:
            return self.values[x.name, copy, k]
        return self._everywhere((x.name, copy), self.scalars[copy][x.name])

    def _guard(self, x: GuardBlock, copy: int, k: int, mask: ir.IRValue) -> Any:
        if id(x) in self.holding:
            self._block(x.body, copy, k, mask)
            return self._value(x.result, copy, k)
        inside: Any = None
        for low, value, high, _ in x.ranges:
            test = self._in_range(low, value, high, copy, k)
            inside = test if inside is None else self.b.and_(inside, test)
        within = self.memory.first(inside, self.memory.mask_width)
        self._block(x.body, copy, k, within if mask is None else self.b.and_(mask, within))
        return self.b.select(inside, self._value(x.result, copy, k), self._value(x.fill, copy, k))

    def _in_range(self, low: Poly, value: Poly, high: Poly, copy: int, k: int) -> ir.IRValue:
        """Whether low <= value < high, in each lane."""
        size = high - low
        if size.symbols & self.varying:
            v, lo, hi = (self._lanes_of(p, copy, k) for p in (value, low, high))
            return self.b.and_(self.b.icmp_signed(">=", v, lo), self.b.icmp_signed("<", v, hi))
        key = ("size", size, self._copy_of(size.symbols, copy))
        if key not in self.fixed:
            whole = self.scalar(size, copy)
            with self._before():
                self.fixed[key] = self.b.select(self.b.icmp_signed(">", whole, I64(0)), whole, I64(0))
        return self.b.icmp_unsigned("<", self._lanes_of(value - low, copy, k), self._everywhere(key, self.fixed[key]))

    def _lanes_of(self, p: Poly, copy: int, k: int) -> Any:
        """An integer polynomial in each lane."""
        key = ("lanes", p, self._copy_of(p.symbols, copy), k)
        if key not in self.values:
            fixed = Poly({m: c for m, c in p.terms.items() if not self.varying & set(m)})
            terms = [self._term(m, c, copy, k) for m, c in p.terms.items() if self.varying & set(m)]
            if fixed.terms or not terms:
                terms.append(self._fixed_lanes(fixed, copy))
            self.values[key] = reduce(self.b.add, terms)
        return self.values[key]

    def _term(self, monomial: tuple[str, ...], c: int, copy: int, k: int) -> Any:
        factor = Poly({tuple(s for s in monomial if s not in self.varying): c})
        total = None if factor == 1 else self._fixed_lanes(factor, copy)
        for s in monomial:
            if s in self.varying:
                lanes = self._variable(s, k) if s in self.variables else self.values[s, self._copy_of({s}, copy), k]
                total = lanes if total is None else self.b.mul(total, lanes)
        return total

    def _fixed_lanes(self, p: Poly, copy: int) -> ir.IRValue:
        return self._everywhere((p, self._copy_of(p.symbols, copy)), self.scalar(p, copy))

    def _variable(self, name: str, k: int) -> Any:
        """The variable of the loop in each lane."""
        key = ("variable", name, k)
        if key not in self.values:
            t = of_lanes(I64, self.lanes)
            if k:
                self.values[key] = self.b.add(self._variable(name, 0), number(t, k * self.lanes))
            else:
                self.values[key] = self.b.add(splat(self.b, self.i, self.lanes), numbered(t))
        return self.values[key]

    # -- memory --------------------------------------------------------------------------------------------
    def _at(self, x: Any, copy: int, k: int, by: int = 1) -> ir.IRValue:
        """The pointer to the lanes of an access with stride `by` between lanes, lowest address first."""
        base = self._base(x.buffer, x.address, copy)
        key = ("at", x.buffer, x.address, self._copy_of(x.address.symbols, copy))
        if key not in self.values:
            i = self.i if by == 1 else self.b.mul(self.i, I64(by))
            self.values[key] = self.b.gep(base, [i if by > 0 else self.b.add(i, I64(by * (self.lanes - 1)))])
        return self.values[key] if not k else self.b.gep(self.values[key], [I64(by * k * self.lanes)])

    def _load(self, x: Load, copy: int, k: int, mask: ir.IRValue) -> Any:
        unit_stride = unit_stride_of(x.address, self.var, self.varying)
        if unit_stride is None and (stride := stride_of(x.address, self.var, self.varying)) is not None:
            return read_strided(self, x, stride, copy, k, mask)
        if unit_stride is None:
            offsets = self._lanes_of(x.address, copy, k)
            return self.memory.gather(self.outer.pointers[x.buffer], offsets, x.out.dtype, mask)
        if unit_stride == 1:
            pointer = self._at(x, copy, k)
            fetch_ahead(self, x, pointer, copy)
            return self.memory.load(pointer, x.out.dtype, mask)
        in_reverse = self.memory.load(self._at(x, copy, k, -1), x.out.dtype, self.memory.reversed(mask))
        return self.memory.reversed(in_reverse)

    # -- reductions --------------------------------------------------------------------------------------------
    def _reduce(self, x: Reduce, copy: int, k: int, mask: ir.IRValue) -> None:
        value, dtype, key = self._value(x.value, copy, k), x.value.dtype, (id(x), copy, k)
        if mask is not None and key in self.totals:
            mask = self.memory.first(mask, self.lanes)
        if key not in self.totals:
            self._reduce_into_memory(x, value, copy, k, mask)
        elif is_extremum(x):
            if mask is not None:
                value = self.b.select(mask, value, identity(x.combiner, dtype, self.lanes))
            self.totals[key] = extremum(self.b, x.combiner, self.totals[key], value)
        else:
            (total,) = self.totals[key]
            combined = combine(self.b, x.combiner, total, value, dtype, self._factors(x, copy, k))
            self.totals[key] = [combined if mask is None else self.b.select(mask, combined, total)]

    def _factors(self, x: Reduce, copy: int, k: int) -> list[ir.IRValue]:
        return factors_of(x, lambda a: self._value(a, copy, k), self.outer.products)

    def _reduce_into_memory(self, x: Reduce, value: ir.IRValue, copy: int, k: int, mask: ir.IRValue) -> None:
        """Combine with memory; copies that share the accumulator load and store it once."""
        dtype, pointer = x.value.dtype, self._at(x, copy, k)
        if x.over:
            if not (x.address.symbols & self.per_copy):
                if copy:
                    factors = self._factors(x, copy, k)
                    value = combine(self.b, x.combiner, self.sums[id(x), k], value, dtype, factors)
                self.sums[id(x), k] = value
                if copy != self.copies[-1]:
                    return
            if self.rest is not None:
                self.memory.add_rest(value, pointer, dtype, self.rest, x.combiner)
                return
            value = combine(self.b, x.combiner, self.memory.load(pointer, dtype, mask), value, dtype)
        self.memory.store(value, pointer, dtype, mask)

    def _store(self, x: Store, value: ir.IRValue, copy: int, k: int, mask: ir.IRValue) -> None:
        if (x.buffer, x.address) in self.interleaved.stores:
            store_interleaved(self, x, value, copy, k, mask)
            return
        pointer, dtype = self._at(x, copy, k), x.value.dtype
        is_slow = x.buffer in self.loaded or stores_slowly_with_masks()
        if self.rest is not None and is_slow and len(self.kernel.loops) > 1:
            self.memory.add_rest(value, pointer, dtype, self.rest, "")
        else:
            self.memory.store(value, pointer, dtype, mask)
