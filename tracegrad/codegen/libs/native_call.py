"""What writes a function of words, as those of `walker`, that answers a call without Python.

In order, its words: the address of Python's callback, the number of the call, the address of NumPy's routine, four
numbers and a flag that say what there is to do (`tracegrad.codegen.libs.sorting`), how many places there are, these.
"""

from __future__ import annotations

from typing import Any

from tracegrad import llvmir as ir
from tracegrad.codegen.instr.scalar import I64, memory_type
from tracegrad.codegen.instr.support import OF_WORDS, fetch_places, loop
from tracegrad.codegen.libs.linear_algebra import CALLBACK

__all__ = ["I8", "I32", "POINTER", "Answer", "whole"]

I8, I32 = ir.IntType(8), ir.IntType(32)
POINTER = I8.as_pointer()
FIRST = 8  # the word that says how many places there are


class Answer:
    """Writes a function whose work is `run(rows)`; what fails there NumPy is asked for."""

    def __init__(self, name: str, dtype: str):
        self.module, self.dtype, self.t = ir.Module(name), dtype, memory_type(dtype)
        function = ir.Function(self.module, OF_WORDS, name)
        words, pointers = function.args
        self.b = b = ir.IRBuilder(function.append_basic_block("entry"))
        callback, number, routine, rows, self.n, self.side, self.apart, flag, count = (
            b.load(b.gep(words, [whole(at)])) for at in range(FIRST + 1)
        )
        self.routine, self.flag = routine, b.icmp_signed("!=", flag, whole(0))
        slots = fetch_places(b, words, pointers, count, FIRST + 1)
        self.places = [b.load(b.gep(slots, [whole(i)])) for i in range(2)]
        self.out = b.load(b.gep(slots, [b.sub(count, whole(1))]))
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
        return self.module.declared(name, signature)

    def zeros(self, count: Any, size: int) -> Any:
        """Memory for so many elements of a size, all zero."""
        calloc = self.external("calloc", ir.FunctionType(POINTER, [I64, I64]))
        return self.b.call(calloc, [count, whole(size)])

    def free(self, memory: Any) -> None:
        self.b.call(self.external("free", ir.FunctionType(ir.VoidType(), [POINTER])), [memory])


def whole(value: int) -> Any:
    """A constant."""
    return ir.Constant(I64, value)
