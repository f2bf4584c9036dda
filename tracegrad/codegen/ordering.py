"""Sorting and searching that compiled code does without Python: functions of words, as those of `walker`.

    tg_step.sorted_values.<dtype>   elements in order
    tg_step.argsort.<dtype>         the indices that put them in order
    tg_step.searchsorted.<dtype>    where values belong among elements that are in order
    tg_step.repeated_index.bool     the indices of those that are true
    tg_step.is_member.<dtype>       which integers are among others

In order, their words: the address of Python's callback, the number of the call, the address of NumPy's routine; how
many rows of elements there are, how many elements each has, how many rows lie side by side (in a search: how many
values belong to a row, and how many elements on the next row begins; of truths: how many indices; of members: how many
there are to ask about); a word that is not 0 for descending order, or to search on the right of equal elements; how
many places, these.

Integers that are no further apart than there are many are counted. Of others, and of floats, NumPy's own routines sort
a row in memory. There is one for each dtype, which is what `np.sort` calls, without the GIL; they are given rows that
lie in other directions as copies, some side by side at a time. Where there is no such routine, or no memory, the
callback is called.

The index of each truth is written behind those that are found, where the next one is written over it if it was none.

Where the integers to be looked for are not far apart, each leaves a mark in a table, and the others look there. What is
not far is NumPy's choice, which is called where they are.

A search halves what is left until nothing is, as often for each value; so several values go at a time, without a
branch.
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir

from tracegrad.avals import short_name
from tracegrad.codegen.lapack import CALLBACK
from tracegrad.codegen.scalar_llvm import BOOL, I64, memory_type
from tracegrad.codegen.support import OF_WORDS, fetch_places, loop
from tracegrad.ir import Node
from tracegrad.ops.membership import is_member
from tracegrad.ops.repeats import repeated_index
from tracegrad.ops.sorting import argsort, searchsorted, sorted_values

__all__ = ["ORDERING", "SORTS", "is_ordering", "ordering_module", "ordering_words"]

_OPS = (sorted_values, argsort, searchsorted, repeated_index, is_member)
ORDERING = tuple(f"tg_step.{op.name}." for op in _OPS)
SORTS = ("tg_sort.", "tg_argsort.")  # and then a dtype, and whether equal elements keep their order
TOGETHER = 8  # rows copied side by side: a line of memory each time
COUNTED = ("i32", "i64", "u32", "u64")  # dtypes for which NumPy compares elements
FEW = 16  # integers that may say that there is no use in counting
APART = 6  # times as many as there are integers of both kinds: how far apart they may be for a table, as in NumPy
AT_A_TIME = 8  # values that are searched for, and truths that are looked at

I8, I32 = ir.IntType(8), ir.IntType(32)
POINTER = I8.as_pointer()
SORT = ir.FunctionType(I32, [POINTER, I64, POINTER])
ARGSORT = ir.FunctionType(I32, [POINTER, POINTER, I64, POINTER])
FIRST = 8  # the word that says how many places there are


def is_ordering(node: Node) -> bool:
    """Whether a call is one of these."""
    if node.op not in _OPS:
        return False
    x = node.operands[0].aval
    wanted = all(x.aval.size > 0 for x in node.operands) if node.op is is_member else x.size > 0
    return wanted and (node.op is not repeated_index or x.dtype.kind == "b")


def ordering_words(node: Node) -> list[int | str]:
    """What a call is told, between its number and its places."""
    x, params = node.operands[0].aval, dict(node.params)
    if node.op is is_member:
        n = node.operands[1].aval.shape[-1]
        rows = node.operands[1].aval.size // n
        return [0, rows, n, x.size // rows, 0, 0]
    if node.op is searchsorted:
        *lead, n = x.shape
        rows = math.prod(lead)
        each = node.aval.size // rows if rows else 0
        return [0, rows, n, each, n if lead else 0, int(params["right"])]
    if node.op is repeated_index:
        return [0, x.size // x.shape[-1], x.shape[-1], params["size"], 0, 0]
    axis = params["axis"]
    rows, side = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    kind = SORTS[node.op is argsort]
    routine = f"{kind}{short_name(x.dtype)}{'.stable' * params['stable']}"
    return [routine, rows, x.shape[axis], side, 0, int(params["descending"])]


def ordering_module(name: str) -> str:
    """The module that defines one of these functions, as text."""
    what, dtype = name.split(".")[1:]
    return str(_WRITERS[what](name, dtype).module)


class _Writer:
    """Writes a function whose work is `run(rows)`; what fails there NumPy is asked for."""

    def __init__(self, name: str, dtype: str):
        self.module, self.dtype, self.t = ir.Module(name), dtype, memory_type(dtype)
        function = ir.Function(self.module, OF_WORDS, name)
        words, pointers = function.args
        self.b = b = ir.IRBuilder(function.append_basic_block("entry"))
        callback, number, routine, rows, self.n, self.side, self.apart, flag, count = (
            b.load(b.gep(words, [_int(at)])) for at in range(FIRST + 1)
        )
        self.routine, self.flag = routine, b.icmp_signed("!=", flag, _int(0))
        slots = fetch_places(b, words, pointers, count, FIRST + 1)
        self.places = [b.load(b.gep(slots, [_int(i)])) for i in range(2)]
        self.out = b.load(b.gep(slots, [b.sub(count, _int(1))]))
        self.status = b.alloca(I32)
        b.store(ir.Constant(I32, 0), self.status)
        self.run(rows)
        with b.if_then(b.icmp_signed("==", b.load(self.status), ir.Constant(I32, 0))):
            b.ret(ir.Constant(I32, 0))
        b.ret(b.call(b.inttoptr(callback, CALLBACK.as_pointer()), [number, slots]))

    def run(self, rows: Any) -> None:
        raise NotImplementedError

    def at(self, begin: Any, t: Any, index: Any) -> Any:
        """The address of an element of an array that begins there."""
        return self.b.gep(self.b.bitcast(begin, t.as_pointer()), [index])

    def note(self, status: Any) -> None:
        self.b.store(self.b.or_(self.b.load(self.status), status), self.status)

    def ends(self, x: Any, count: Any) -> tuple[Any, Any]:
        """The least and the greatest of integers, which are some."""
        b = self.b
        ends = [b.alloca(self.t) for _ in range(2)]
        for end in ends:
            b.store(b.load(x), end)
        compare = b.icmp_signed if self.dtype[0] == "i" else b.icmp_unsigned

        def one(k: Any) -> None:
            value = b.load(b.gep(x, [k]))
            for end, sign in zip(ends, "<>"):
                best = b.load(end)
                b.store(b.select(compare(sign, value, best), value, best), end)

        loop(b, count, one)
        low, high = (self.wide(b.load(end)) for end in ends)
        return low, high

    def wide(self, value: Any) -> Any:
        if self.t == I64:
            return value
        return (self.b.sext if self.dtype[0] == "i" else self.b.zext)(value, I64)

    def external(self, name: str, signature: Any) -> Any:
        return self.module.globals.get(name) or ir.Function(self.module, signature, name)

    def zeros(self, count: Any, size: int) -> Any:
        """Memory for so many elements of a size, all zero."""
        calloc = self.external("calloc", ir.FunctionType(POINTER, [I64, I64]))
        return self.b.call(calloc, [count, _int(size)])

    def free(self, memory: Any) -> None:
        self.b.call(self.external("free", ir.FunctionType(ir.VoidType(), [POINTER])), [memory])


class _Sort(_Writer):
    indices = False  # instead of elements

    def run(self, rows: Any) -> None:
        b = self.b
        with b.if_else(b.icmp_signed("==", self.routine, _int(0))) as (missing, known):
            with missing:
                self.note(ir.Constant(I32, 1))
            with known:
                straight = b.and_(b.icmp_signed("==", self.side, _int(1)), b.not_(self.flag))
                with b.if_else(straight) as (then, otherwise):
                    with then:
                        loop(b, rows, self.straight)
                    with otherwise:
                        self.aside(rows)

    def straight(self, row: Any) -> None:
        """Sort a row that is to be where its elements lie one behind the other."""
        begin = self.b.mul(row, self.n)
        x = self.at(self.places[0], self.t, begin)
        if self.indices:
            out = self.at(self.out, I64, begin)
        else:
            out = self.at(self.out, self.t, begin)
            if self.dtype in COUNTED:
                self.counted(x, out)
                return
            self.copy(x, out)
        self.sort(x, out)

    def copy(self, x: Any, out: Any) -> None:
        b = self.b
        copy = self.module.declare_intrinsic("llvm.memcpy", [POINTER, POINTER, I64])
        size = b.mul(self.n, _int(self.bytes))
        b.call(copy, [b.bitcast(out, POINTER), b.bitcast(x, POINTER), size, ir.Constant(BOOL, 0)])

    def counted(self, x: Any, out: Any) -> None:
        """Sort integers: where they are not far apart, by how many there are of each."""
        b = self.b
        found = [b.alloca(I64) for _ in range(2)]
        counts = b.alloca(POINTER)
        b.store(ir.Constant(POINTER, None), counts)

        def near(count: Any) -> Any:
            low, high = self.ends(x, count)
            for value, place in zip((low, b.sub(high, low)), found):
                b.store(value, place)
            return b.icmp_unsigned("<", b.load(found[1]), self.n)

        few = b.icmp_signed("<", self.n, _int(FEW))
        with b.if_then(near(b.select(few, self.n, _int(FEW)))), b.if_then(near(self.n)):
            b.store(self.zeros(b.add(b.load(found[1]), _int(1)), 8), counts)
        memory = b.load(counts)
        with b.if_else(b.icmp_unsigned("==", memory, ir.Constant(POINTER, None))) as (far, known):
            with far:
                self.copy(x, out)
                self.sort(x, out)
            with known:
                self.count(x, out, b.load(found[0]), b.load(found[1]), b.bitcast(memory, I64.as_pointer()))
        self.free(memory)

    def count(self, x: Any, out: Any, low: Any, width: Any, counts: Any) -> None:
        b = self.b
        written = b.alloca(I64)
        b.store(_int(0), written)

        def one(k: Any) -> None:
            place = b.gep(counts, [b.sub(self.wide(b.load(b.gep(x, [k]))), low)])
            b.store(b.add(b.load(place), _int(1)), place)

        def write(k: Any) -> None:
            value, begin, count = b.add(low, k), b.load(written), b.load(b.gep(counts, [k]))
            value = value if self.t == I64 else b.trunc(value, self.t)
            loop(b, count, lambda i: b.store(value, b.gep(out, [b.add(begin, i)])))
            b.store(b.add(begin, count), written)

        loop(b, self.n, one)
        loop(b, b.add(width, _int(1)), write)

    def aside(self, rows: Any) -> None:
        """Sort copies of the rows, some of those that lie side by side at a time."""
        b, each = self.b, self.bytes + 8 * self.indices
        malloc = self.external("malloc", ir.FunctionType(POINTER, [I64]))
        memory = b.call(malloc, [b.mul(self.n, _int(TOGETHER * each))])
        with b.if_else(b.icmp_unsigned("==", memory, ir.Constant(POINTER, None))) as (missing, known):
            with missing:
                self.note(ir.Constant(I32, 1))
            with known:
                copies = b.bitcast(memory, self.t.as_pointer())
                orders = b.gep(memory, [b.mul(self.n, _int(TOGETHER * self.bytes))])
                blocks = b.sdiv(b.add(self.side, _int(TOGETHER - 1)), _int(TOGETHER))
                loop(b, rows, lambda row: loop(b, blocks, lambda k: self.block(row, k, copies, orders)))
        self.free(memory)

    def block(self, row: Any, k: Any, copies: Any, orders: Any) -> None:
        b, first = self.b, self.b.mul(k, _int(TOGETHER))
        rest = b.sub(self.side, first)
        width = b.select(b.icmp_signed("<", rest, _int(TOGETHER)), rest, _int(TOGETHER))
        begin = b.add(b.mul(row, b.mul(self.n, self.side)), first)
        result, t = (b.bitcast(orders, I64.as_pointer()), I64) if self.indices else (copies, self.t)

        def turned(i: Any) -> Any:
            return b.select(self.flag, b.sub(b.sub(self.n, _int(1)), i), i)

        def fetch(i: Any, j: Any) -> None:
            x = b.load(self.at(self.places[0], self.t, b.add(b.add(begin, b.mul(turned(i), self.side)), j)))
            b.store(x, b.gep(copies, [b.add(b.mul(j, self.n), i)]))

        def put(i: Any, j: Any) -> None:
            value = b.load(b.gep(result, [b.add(b.mul(j, self.n), turned(i))]))
            place = self.at(self.out, t, b.add(b.add(begin, b.mul(i, self.side)), j))
            b.store(turned(value) if self.indices else value, place)

        def order(j: Any) -> None:
            begin = b.mul(j, self.n)
            self.sort(b.gep(copies, [begin]), b.gep(result, [begin]))

        loop(b, self.n, lambda i: loop(b, width, lambda j: fetch(i, j)))
        loop(b, width, order)
        loop(b, self.n, lambda i: loop(b, width, lambda j: put(i, j)))

    def sort(self, x: Any, out: Any) -> None:
        """Sort `out`, or the indices of `x` into it."""
        b, nothing = self.b, ir.Constant(POINTER, None)
        if self.indices:
            loop(b, self.n, lambda i: b.store(i, b.gep(out, [i])))
        arguments = [b.bitcast(place, POINTER) for place in ([x, out] if self.indices else [out])]
        routine = b.inttoptr(self.routine, (ARGSORT if self.indices else SORT).as_pointer())
        self.note(b.call(routine, [*arguments, self.n, nothing]))

    @property
    def bytes(self) -> int:
        return 1 if self.dtype == "bool" else int(self.dtype[1:]) // 8


class _Argsort(_Sort):
    indices = True


class _Search(_Writer):
    def run(self, rows: Any) -> None:
        b = self.b
        groups = b.sdiv(self.side, _int(AT_A_TIME))
        done = b.mul(groups, _int(AT_A_TIME))

        def row(i: Any) -> None:
            x = self.at(self.places[0], self.t, b.mul(i, self.apart))
            begin = b.mul(i, self.side)
            loop(b, groups, lambda k: self.several(x, b.add(begin, b.mul(k, _int(AT_A_TIME))), AT_A_TIME))
            loop(b, b.sub(self.side, done), lambda k: self.several(x, b.add(begin, b.add(done, k)), 1))

        with b.if_else(self.flag) as sides:
            for side, self.right in zip(sides, (True, False)):
                with side:
                    loop(b, rows, row)

    def several(self, x: Any, first: Any, count: int) -> None:
        """Search for values that follow each other."""
        b = self.b
        values = [b.load(self.at(self.places[1], self.t, b.add(first, _int(k)))) for k in range(count)]
        before = b.block
        head, inside, after = (b.append_basic_block(name) for name in ("halve", "inside", "found"))
        b.branch(head)
        b.position_at_end(head)
        left, *found = (b.phi(I64) for _ in range(count + 1))
        for phi, start in zip((left, *found), (self.n, *[_int(0)] * count)):
            phi.add_incoming(start, before)
        b.cbranch(b.icmp_signed(">", left, _int(1)), inside, after)
        b.position_at_end(inside)
        half = b.lshr(left, _int(1))
        left.add_incoming(b.sub(left, half), inside)
        for place, value in zip(found, values):
            further = b.add(place, half)
            probe = b.load(b.gep(x, [b.sub(further, _int(1))]))
            chosen = b.select(self.precedes(probe, value), further, place)
            chosen.set_metadata("unpredictable", self.module.add_metadata([]))
            place.add_incoming(chosen, inside)
        b.branch(head)
        b.position_at_end(after)
        for k, (place, value) in enumerate(zip(found, values)):
            last = b.zext(self.precedes(b.load(b.gep(x, [place])), value), I64)
            b.store(b.add(place, last), self.at(self.out, I64, b.add(first, _int(k))))

    def precedes(self, element: Any, value: Any) -> Any:
        """Whether the value belongs behind the element; nan is the largest of all numbers."""
        return self.b.not_(self.less(value, element)) if self.right else self.less(element, value)

    def less(self, one: Any, other: Any) -> Any:
        b = self.b
        if self.dtype[0] != "f":
            return (b.icmp_signed if self.dtype[0] == "i" else b.icmp_unsigned)("<", one, other)
        # Not (other <= one), but for nan at the right of a number.
        return b.and_(b.fcmp_unordered("<", one, other), b.fcmp_ordered("ord", one, one))


class _Chosen(_Writer):
    def run(self, rows: Any) -> None:
        self.found = self.b.alloca(I64)
        loop(self.b, rows, self.row)

    def row(self, row: Any) -> None:
        b = self.b
        x = b.bitcast(self.at(self.places[0], I8, b.mul(row, self.n)), POINTER)
        out = self.at(self.out, I64, b.mul(row, self.side))
        b.store(_int(0), self.found)

        def several(k: Any) -> None:
            """Look at some of which none may be true, while there is room for all of them."""
            first = b.mul(k, _int(AT_A_TIME))
            word = b.load(b.bitcast(b.gep(x, [first]), I64.as_pointer()), align=1)
            with b.if_then(b.icmp_unsigned("!=", word, _int(0))):
                room = b.icmp_signed("<=", b.add(b.load(self.found), _int(AT_A_TIME)), self.side)
                with b.if_else(room) as (then, otherwise):
                    with then:
                        found = b.load(self.found)
                        for i in range(AT_A_TIME):
                            index = b.add(first, _int(i))
                            b.store(index, b.gep(out, [found]))
                            found = b.add(found, self.truth(x, index))
                        b.store(found, self.found)
                    with otherwise:
                        loop(b, _int(AT_A_TIME), lambda i: one(b.add(first, i)))

        def one(index: Any) -> None:
            found = b.load(self.found)
            with b.if_then(b.icmp_signed("<", found, self.side)):
                b.store(index, b.gep(out, [found]))
                b.store(b.add(found, self.truth(x, index)), self.found)

        groups = b.sdiv(self.n, _int(AT_A_TIME))
        done = b.mul(groups, _int(AT_A_TIME))
        loop(b, groups, several)
        loop(b, b.sub(self.n, done), lambda k: one(b.add(done, k)))
        found = b.load(self.found)
        loop(b, b.sub(self.side, found), lambda k: b.store(_int(0), b.gep(out, [b.add(found, k)])))

    def truth(self, x: Any, index: Any) -> Any:
        return self.b.zext(self.b.icmp_unsigned("!=", self.b.load(self.b.gep(x, [index])), ir.Constant(I8, 0)), I64)


class _Member(_Writer):
    def run(self, rows: Any) -> None:
        loop(self.b, rows, self.row)

    def row(self, row: Any) -> None:
        b = self.b
        x = self.at(self.places[0], self.t, b.mul(row, self.side))
        tests = self.at(self.places[1], self.t, b.mul(row, self.n))
        out = self.at(self.out, I8, b.mul(row, self.side))
        low, high = self.ends(tests, self.n)
        width = b.sub(high, low)
        near = b.icmp_unsigned("<=", width, b.mul(b.add(self.n, self.side), _int(APART)))
        with b.if_else(near) as (then, otherwise):
            with then:
                self.look_up(x, tests, out, low, width)
            with otherwise:
                self.note(ir.Constant(I32, 1))

    def look_up(self, x: Any, tests: Any, out: Any, low: Any, width: Any) -> None:
        b, one = self.b, ir.Constant(I8, 1)
        table = self.zeros(b.add(width, _int(1)), 1)
        with b.if_else(b.icmp_unsigned("==", table, ir.Constant(POINTER, None))) as (missing, known):
            with missing:
                self.note(ir.Constant(I32, 1))
            with known:

                def ask(k: Any) -> None:
                    place = self.apart_from(low, x, k)
                    inside = b.icmp_unsigned("<=", place, width)
                    found = b.load(b.gep(table, [b.select(inside, place, _int(0))]))
                    b.store(b.select(inside, found, ir.Constant(I8, 0)), b.gep(out, [k]))

                loop(b, self.n, lambda k: b.store(one, b.gep(table, [self.apart_from(low, tests, k)])))
                loop(b, self.side, ask)
        self.free(table)

    def apart_from(self, low: Any, x: Any, k: Any) -> Any:
        return self.b.sub(self.wide(self.b.load(self.b.gep(x, [k]))), low)


def _int(value: int) -> Any:
    return ir.Constant(I64, value)


_WRITERS: dict[str, type[_Writer]] = {
    "sorted_values": _Sort, "argsort": _Argsort, "searchsorted": _Search, "repeated_index": _Chosen,
    "is_member": _Member,
}  # fmt: skip
