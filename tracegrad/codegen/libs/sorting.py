"""Emit native sort, argsort, searchsorted, nonzero, isin and packbits calls (`native_call.py`).

    tg_step.sorted_values.<dtype>   elements in order
    tg_step.argsort.<dtype>         the indices that sort them
    tg_step.searchsorted.<dtype>    the insertion points of values in sorted elements
    tg_step.repeated_index.bool     the indices of the true elements
    tg_step.is_member.<dtype>       which integers are among others
    tg_step.pack_bits.bool          eight booleans in a byte, and back (`packbits.py`)
    tg_step.unpack_bits.u8

Of the operands (`native_call.NATIVE_CALL`), `side` is the number of interleaved rows, and `extra` whether counting sort
is allowed. In a search, `side` is the number of values per row, and `extra` the distance of the next row. For booleans,
`side` is the number of indices or bytes; for members, the number of queries.

Integers in a range no larger than their number are sorted by counting. Other integers, and floats, are sorted by
NumPy's own routine of the dtype, the one of `np.sort`, without the GIL. It sorts contiguous rows in memory.
Strided rows are copied, several interleaved rows at a time. The callback is called if there is no routine, or no
memory.

The index of each boolean is stored after the indices of true elements. The next index overwrites it if the boolean was
false.

Membership of integers in a narrow range uses a table of marks. NumPy's criterion decides whether a range is narrow, and
NumPy is called for a wide one.

A search halves its interval the same number of times for each value, so several values are searched at a time, without
a branch.
"""

from __future__ import annotations

import math

from tracegrad import llvmir as ir
from tracegrad.avals import short_name
from tracegrad.codegen.instr.scalar import I64
from tracegrad.codegen.instr.support import loop
from tracegrad.codegen.libs.native_call import I8, I32, POINTER, NativeCallEmitter, whole
from tracegrad.codegen.libs.packbits import Pack, Unpack
from tracegrad.ir import GraphNode
from tracegrad.ops.elementwise.bits import pack_bits, unpack_bits
from tracegrad.ops.reduce.isin import is_member
from tracegrad.ops.reduce.sorting import argsort, searchsorted, sorted_values
from tracegrad.ops.shape.repeat_index import repeated_index
from tracegrad.settings import disabled
from tracegrad.target.tuning import TUNING

_OPS = (sorted_values, argsort, searchsorted, repeated_index, is_member, pack_bits, unpack_bits)
ORDERING = tuple(f"tg_step.{op.name}." for op in _OPS)
SORTS = ("tg_sort.", "tg_argsort.")  # followed by a dtype, and ".stable" for a stable sort
COPIED_ROWS = TUNING.routines.copied_rows
COUNTED = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool")
SAMPLED_VALUES = TUNING.routines.sampled_values
MAX_TABLE_FACTOR = TUNING.routines.max_table_factor
AT_A_TIME = TUNING.routines.interleaved_searches

SORT = ir.FunctionType(I32, [POINTER, I64, POINTER])
ARGSORT = ir.FunctionType(I32, [POINTER, POINTER, I64, POINTER])


def is_ordering(node: GraphNode) -> bool:
    """Whether a call has a native routine of this module."""
    if node.op not in _OPS or disabled("native-sorting"):
        return False
    x = node.operands[0].aval
    wanted = all(x.aval.size > 0 for x in node.operands) if node.op is is_member else x.size > 0
    return wanted and (node.op is not repeated_index or x.dtype.kind == "b")


def ordering_operands(node: GraphNode) -> dict[str, int | str]:
    """The operands of a call that describe the work."""
    x, params = node.operands[0].aval, dict(node.params)
    if node.op is is_member:
        n = node.operands[1].aval.shape[-1]
        rows = node.operands[1].aval.size // n
        return _work(rows, n, x.size // rows)
    if node.op in (pack_bits, unpack_bits):
        n = x.shape[-1]
        return _work(x.size // n, n, node.aval.shape[-1], flag=params["big"])
    if node.op is searchsorted:
        *batch_shape, n = x.shape
        rows = math.prod(batch_shape)
        each = node.aval.size // rows if rows else 0
        return _work(rows, n, each, extra=n if batch_shape else 0, flag=params["right"])
    if node.op is repeated_index:
        return _work(x.size // x.shape[-1], x.shape[-1], params["size"])
    axis = params["axis"]
    rows, side = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    kind = SORTS[node.op is argsort]
    routine = f"{kind}{short_name(x.dtype)}{'.stable' * bool(params['stable'])}"
    counted = node.op is sorted_values or params["stable"] is not False  # else NumPy decides the order of equals
    return _work(rows, x.shape[axis], side, routine=routine, extra=counted, flag=params["descending"])


def _work(
    rows: int, row_size: int, side: int, *, routine: int | str = 0, extra: int = 0, flag: bool = False
) -> dict[str, int | str]:
    """The operands of `NATIVE_CALL` between the number of the call and its arrays."""
    numbers = {"rows": rows, "row_size": row_size, "side": side, "extra": int(extra), "flag": int(flag)}
    return {"routine": routine, **numbers}


def ordering_module(name: str) -> str:
    """Emit the module that defines the routine `name`, as text."""
    routine, dtype = name.split(".")[1:]
    return str(_WRITERS[routine](name, dtype).module)


class _Sort(NativeCallEmitter):
    indices = False  # whether indices are sorted instead of elements

    def run(self, rows: ir.IRValue) -> None:
        b = self.b
        with b.if_else(b.icmp_signed("==", self.routine, whole(0))) as (missing, known):
            with missing:
                self.note(ir.IRConstant(I32, 1))
            with known:
                straight = b.and_(b.icmp_signed("==", self.side, whole(1)), b.not_(self.flag))
                with b.if_else(straight) as (then, otherwise):
                    with then:
                        loop(b, rows, self.sort_contiguous)
                    with otherwise:
                        self.sort_copies(rows)

    def sort_contiguous(self, row: ir.Phi) -> None:
        """Sort a row whose result is contiguous."""
        begin = self.b.mul(row, self.n)
        x = self.at(self.addresses[0], self.t, begin)
        out = self.at(self.out, I64 if self.indices else self.t, begin)
        if self.dtype in COUNTED:
            self.counted(x, out)
        else:
            self.called(x, out)

    def called(self, x: ir.IRValue, out: ir.IRValue) -> None:
        """Sort a row with NumPy's routine."""
        if not self.indices:
            self.copy(x, out)
        self.sort(x, out)

    def copy(self, x: ir.IRValue, out: ir.IRValue) -> None:
        b = self.b
        b.memcpy(b.bitcast(out, POINTER), b.bitcast(x, POINTER), b.mul(self.n, whole(self.bytes)))

    def counted(self, x: ir.IRValue, out: ir.IRValue) -> None:
        """Sort a row of integers, by counting if their range is narrow."""
        b = self.b
        results = [b.alloca(I64) for _ in range(2)]
        counts = b.alloca(POINTER)
        b.store(ir.IRConstant(POINTER, None), counts)

        def is_narrow_range(count: ir.IRValue) -> ir.IRValue:
            low, high = self.ends(x, count)
            for value, slot in zip((low, b.sub(high, low)), results):
                b.store(value, slot)
            return b.icmp_unsigned("<", b.load(results[1]), self.n)

        is_short = b.icmp_signed("<", self.n, whole(SAMPLED_VALUES))
        may = b.icmp_signed("!=", self.extra, whole(0))
        with (
            b.if_then(may),
            b.if_then(is_narrow_range(b.select(is_short, self.n, whole(SAMPLED_VALUES)))),
            b.if_then(is_narrow_range(self.n)),
        ):
            b.store(self.zeros(b.add(b.load(results[1]), whole(1)), 8), counts)
        memory = b.load(counts)
        with b.if_else(b.icmp_unsigned("==", memory, ir.IRConstant(POINTER, None))) as (far, known):
            with far:
                self.called(x, out)
            with known:
                self.count(x, out, b.load(results[0]), b.load(results[1]), b.bitcast(memory, I64.as_pointer()))
        self.free(memory)

    def count(self, x: ir.IRValue, out: ir.IRValue, low: ir.IRValue, width: ir.IRValue, counts: ir.IRValue) -> None:
        b = self.b
        written = b.alloca(I64)
        b.store(whole(0), written)

        def one(k: ir.Phi) -> None:
            counter = self.counter(x, k, low, counts)
            b.store(b.add(b.load(counter), whole(1)), counter)

        loop(b, self.n, one)
        self.write(x, out, low, width, counts, written)

    def counter(self, x: ir.IRValue, k: ir.Phi, low: ir.IRValue, counts: ir.IRValue) -> ir.IRValue:
        """The address of the counter of element `k`."""
        return self.b.gep(counts, [self.b.sub(self.as_i64(self.b.load(self.b.gep(x, [k]))), low)])

    def write(
        self,
        x: ir.IRValue,
        out: ir.IRValue,
        low: ir.IRValue,
        width: ir.IRValue,
        counts: ir.IRValue,
        written: ir.IRValue,
    ) -> None:
        """Store each element as often as it was counted."""
        b = self.b

        def write(k: ir.IRValue) -> None:
            value, begin, count = b.add(low, k), b.load(written), b.load(b.gep(counts, [k]))
            value = value if self.t == I64 else b.trunc(value, self.t)
            loop(b, count, lambda i: b.store(value, b.gep(out, [b.add(begin, i)])))
            b.store(b.add(begin, count), written)

        loop(b, b.add(width, whole(1)), write)

    def sort_copies(self, rows: ir.IRValue) -> None:
        """Sort copies of strided rows, several interleaved rows at a time."""
        b, each = self.b, self.bytes + 8 * self.indices
        malloc = self.external("malloc", ir.FunctionType(POINTER, [I64]))
        memory = b.call(malloc, [b.mul(self.n, whole(COPIED_ROWS * each))])
        with b.if_else(b.icmp_unsigned("==", memory, ir.IRConstant(POINTER, None))) as (missing, known):
            with missing:
                self.note(ir.IRConstant(I32, 1))
            with known:
                copies = b.bitcast(memory, self.t.as_pointer())
                orders = b.gep(memory, [b.mul(self.n, whole(COPIED_ROWS * self.bytes))])
                blocks = b.sdiv(b.add(self.side, whole(COPIED_ROWS - 1)), whole(COPIED_ROWS))
                loop(b, rows, lambda row: loop(b, blocks, lambda k: self.block(row, k, copies, orders)))
        self.free(memory)

    def block(self, row: ir.IRValue, k: ir.Phi, copies: ir.IRValue, orders: ir.IRValue) -> None:
        b, first = self.b, self.b.mul(k, whole(COPIED_ROWS))
        rest = b.sub(self.side, first)
        width = b.select(b.icmp_signed("<", rest, whole(COPIED_ROWS)), rest, whole(COPIED_ROWS))
        begin = b.add(b.mul(row, b.mul(self.n, self.side)), first)
        result, t = (b.bitcast(orders, I64.as_pointer()), I64) if self.indices else (copies, self.t)

        def flipped_index(i: ir.IRValue) -> ir.IRValue:
            return b.select(self.flag, b.sub(b.sub(self.n, whole(1)), i), i)

        def fetch(i: ir.Phi, j: ir.Phi) -> None:
            x = b.load(self.at(self.addresses[0], self.t, b.add(b.add(begin, b.mul(flipped_index(i), self.side)), j)))
            b.store(x, b.gep(copies, [b.add(b.mul(j, self.n), i)]))

        def store_result(i: ir.Phi, j: ir.Phi) -> None:
            value = b.load(b.gep(result, [b.add(b.mul(j, self.n), flipped_index(i))]))
            target = self.at(self.out, t, b.add(b.add(begin, b.mul(i, self.side)), j))
            b.store(flipped_index(value) if self.indices else value, target)

        def order(j: ir.Phi) -> None:
            begin = b.mul(j, self.n)
            self.sort(b.gep(copies, [begin]), b.gep(result, [begin]))

        loop(b, self.n, lambda i: loop(b, width, lambda j: fetch(i, j)))
        loop(b, width, order)
        loop(b, self.n, lambda i: loop(b, width, lambda j: store_result(i, j)))

    def sort(self, x: ir.IRValue, out: ir.IRValue) -> None:
        """Sort `out` in place, or the indices of `x` into `out`."""
        b, nothing = self.b, ir.IRConstant(POINTER, None)
        if self.indices:
            loop(b, self.n, lambda i: b.store(i, b.gep(out, [i])))
        arguments = [b.bitcast(pointer, POINTER) for pointer in ([x, out] if self.indices else [out])]
        routine = b.inttoptr(self.routine, (ARGSORT if self.indices else SORT).as_pointer())
        self.note(b.call(routine, [*arguments, self.n, nothing]))

    @property
    def bytes(self) -> int:
        return 1 if self.dtype == "bool" else int(self.dtype[1:]) // 8


class _Argsort(_Sort):
    indices = True

    def write(
        self,
        x: ir.IRValue,
        out: ir.IRValue,
        low: ir.IRValue,
        width: ir.IRValue,
        counts: ir.IRValue,
        written: ir.IRValue,
    ) -> None:
        """Store each index after the indices of smaller elements and of earlier equal ones."""
        b = self.b

        def begin(k: ir.Phi) -> None:
            counter, before = b.gep(counts, [k]), b.load(written)
            b.store(b.add(before, b.load(counter)), written)
            b.store(before, counter)

        def store_index(k: ir.Phi) -> None:
            counter = self.counter(x, k, low, counts)
            b.store(k, b.gep(out, [b.load(counter)]))
            b.store(b.add(b.load(counter), whole(1)), counter)

        loop(b, b.add(width, whole(1)), begin)
        loop(b, self.n, store_index)


class _BinarySearch(NativeCallEmitter):
    def run(self, rows: ir.IRValue) -> None:
        b = self.b
        groups = b.sdiv(self.side, whole(AT_A_TIME))
        done = b.mul(groups, whole(AT_A_TIME))

        def row(i: ir.Phi) -> None:
            x = self.at(self.addresses[0], self.t, b.mul(i, self.extra))
            begin = b.mul(i, self.side)
            loop(b, groups, lambda k: self.search_group(x, b.add(begin, b.mul(k, whole(AT_A_TIME))), AT_A_TIME))
            loop(b, b.sub(self.side, done), lambda k: self.search_group(x, b.add(begin, b.add(done, k)), 1))

        with b.if_else(self.flag) as sides:
            for side, self.right in zip(sides, (True, False)):
                with side:
                    loop(b, rows, row)

    def search_group(self, x: ir.IRValue, first: ir.IRValue, count: int) -> None:
        """Search for several consecutive values."""
        b = self.b
        values = [b.load(self.at(self.addresses[1], self.t, b.add(first, whole(k)))) for k in range(count)]
        before = b.block
        head, inside, after = (b.append_basic_block(name) for name in ("halve", "inside", "found"))
        b.branch(head)
        b.position_at_end(head)
        length, *result = (b.merge((start, before)) for start in (self.n, *[whole(0)] * count))
        b.cbranch(b.icmp_signed(">", length, whole(1)), inside, after)
        b.position_at_end(inside)
        half = b.lshr(length, whole(1))
        length.add_incoming(b.sub(length, half), inside)
        for position, value in zip(result, values):
            further = b.add(position, half)
            probe = b.load(b.gep(x, [b.sub(further, whole(1))]))
            chosen = b.select(self.precedes(probe, value), further, position)
            chosen.set_metadata("unpredictable", self.module.add_metadata([]))
            position.add_incoming(chosen, inside)
        b.branch(head)
        b.position_at_end(after)
        for k, (position, value) in enumerate(zip(result, values)):
            last = b.zext(self.precedes(b.load(b.gep(x, [position])), value), I64)
            b.store(b.add(position, last), self.at(self.out, I64, b.add(first, whole(k))))

    def precedes(self, element: ir.IRValue, value: ir.IRValue) -> ir.IRValue:
        """Whether the value belongs after the element; nan is the largest number."""
        return self.b.not_(self.less(value, element)) if self.right else self.less(element, value)

    def less(self, one: ir.IRValue, other: ir.IRValue) -> ir.IRValue:
        b = self.b
        if self.dtype[0] != "f":
            return (b.icmp_signed if self.dtype[0] == "i" else b.icmp_unsigned)("<", one, other)
        # not (other <= one), except for nan on the right of a number
        return b.and_(b.fcmp_unordered("<", one, other), b.fcmp_ordered("ord", one, one))


class _Chosen(NativeCallEmitter):
    def run(self, rows: ir.IRValue) -> None:
        self.match_count = self.b.alloca(I64)
        loop(self.b, rows, self.emit_row)

    def emit_row(self, row: ir.Phi) -> None:
        b = self.b
        x = b.bitcast(self.at(self.addresses[0], I8, b.mul(row, self.n)), POINTER)
        out = self.at(self.out, I64, b.mul(row, self.side))
        b.store(whole(0), self.match_count)

        def test_group(k: ir.Phi) -> None:
            """Test several booleans at once, all of which may be false, while there is room for all of them."""
            first = b.mul(k, whole(AT_A_TIME))
            word = b.load(b.bitcast(b.gep(x, [first]), I64.as_pointer()), align=1)
            with b.if_then(b.icmp_unsigned("!=", word, whole(0))):
                room = b.icmp_signed("<=", b.add(b.load(self.match_count), whole(AT_A_TIME)), self.side)
                with b.if_else(room) as (then, otherwise):
                    with then:
                        result: ir.IRValue = b.load(self.match_count)
                        for i in range(AT_A_TIME):
                            index = b.add(first, whole(i))
                            b.store(index, b.gep(out, [result]))
                            result = b.add(result, self.boolean(x, index))
                        b.store(result, self.match_count)
                    with otherwise:
                        loop(b, whole(AT_A_TIME), lambda i: one(b.add(first, i)))

        def one(index: ir.IRValue) -> None:
            result = b.load(self.match_count)
            with b.if_then(b.icmp_signed("<", result, self.side)):
                b.store(index, b.gep(out, [result]))
                b.store(b.add(result, self.boolean(x, index)), self.match_count)

        groups = b.sdiv(self.n, whole(AT_A_TIME))
        done = b.mul(groups, whole(AT_A_TIME))
        loop(b, groups, test_group)
        loop(b, b.sub(self.n, done), lambda k: one(b.add(done, k)))
        result = b.load(self.match_count)
        loop(b, b.sub(self.side, result), lambda k: b.store(whole(0), b.gep(out, [b.add(result, k)])))

    def boolean(self, x: ir.IRValue, index: ir.IRValue) -> object:
        return self.b.zext(self.b.icmp_unsigned("!=", self.b.load(self.b.gep(x, [index])), ir.IRConstant(I8, 0)), I64)


class _Member(NativeCallEmitter):
    def run(self, rows: ir.IRValue) -> None:
        loop(self.b, rows, self.emit_row)

    def emit_row(self, row: ir.Phi) -> None:
        b = self.b
        x = self.at(self.addresses[0], self.t, b.mul(row, self.side))
        tests = self.at(self.addresses[1], self.t, b.mul(row, self.n))
        out = self.at(self.out, I8, b.mul(row, self.side))
        low, high = self.ends(tests, self.n)
        width = b.sub(high, low)
        near = b.icmp_unsigned("<=", width, b.mul(b.add(self.n, self.side), whole(MAX_TABLE_FACTOR)))
        with b.if_else(near) as (then, otherwise):
            with then:
                self.test_members(x, tests, out, low, width)
            with otherwise:
                self.note(ir.IRConstant(I32, 1))

    def test_members(
        self, x: ir.IRValue, tests: ir.IRValue, out: ir.IRValue, low: ir.IRValue, width: ir.IRValue
    ) -> None:
        b, one = self.b, ir.IRConstant(I8, 1)
        table = self.zeros(b.add(width, whole(1)), 1)
        with b.if_else(b.icmp_unsigned("==", table, ir.IRConstant(POINTER, None))) as (missing, known):
            with missing:
                self.note(ir.IRConstant(I32, 1))
            with known:

                def test(k: ir.Phi) -> None:
                    offset = self.distance_from(low, x, k)
                    inside = b.icmp_unsigned("<=", offset, width)
                    result = b.load(b.gep(table, [b.select(inside, offset, whole(0))]))
                    b.store(b.select(inside, result, ir.IRConstant(I8, 0)), b.gep(out, [k]))

                loop(b, self.n, lambda k: b.store(one, b.gep(table, [self.distance_from(low, tests, k)])))
                loop(b, self.side, test)
        self.free(table)

    def distance_from(self, low: ir.IRValue, x: ir.IRValue, k: ir.Phi) -> ir.IRValue:
        return self.b.sub(self.as_i64(self.b.load(self.b.gep(x, [k]))), low)


_WRITERS: dict[str, type[NativeCallEmitter]] = {
    "sorted_values": _Sort,
    "argsort": _Argsort,
    "searchsorted": _BinarySearch,
    "repeated_index": _Chosen,
    "is_member": _Member,
    "pack_bits": Pack,
    "unpack_bits": Unpack,
}
