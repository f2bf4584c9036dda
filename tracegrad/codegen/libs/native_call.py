"""Write a native routine that evaluates a NumPy call without Python (base class of bytecode primitives)."""

from __future__ import annotations

from tracegrad import llvmir as ir
from tracegrad.codegen.instr.operands import OperandLayout, load_operand, rest, word
from tracegrad.codegen.instr.scalar import I64, memory_type
from tracegrad.codegen.instr.support import INSTRUCTION_TYPE, load_addresses, loop
from tracegrad.codegen.libs.linear_algebra import CALLBACK

I8, I32 = ir.IntType(8), ir.IntType(32)
POINTER = I8.as_pointer()

NATIVE_CALL = OperandLayout(
    word("callback", "address of a function of Python"),
    word("number", "number of the call"),
    word("routine", "address of a routine of NumPy, or 0"),
    word("rows", "rows"),
    word("row_size", "elements of a row"),
    word("side", "interleaved rows, or elements of a row of the result (`libs/sorting.py`)"),
    word("extra", "whether integers may be counted, or elements to the next sorted row"),
    word("flag", "descending order, the right side of equal elements, or the highest bit first"),
    word("count", "arrays"),
    rest("arrays", "their locations"),
)


class NativeCallEmitter:
    """Emitter of a native routine whose work is `run(rows)`; NumPy is called for the rows that fail."""

    def __init__(self, name: str, dtype: str):
        self.module, self.dtype, self.t = ir.IRModule(name), dtype, memory_type(dtype)
        function = ir.IRFunction(self.module, INSTRUCTION_TYPE, name)
        operands, pointers = function.args
        self.b = b = ir.IRBuilder(function.append_basic_block("entry"))
        callback, number, routine, rows, self.n, self.side, self.extra, flag, count = (
            load_operand(b, operands, NATIVE_CALL, name) for name in list(NATIVE_CALL.offsets)[:-1]
        )
        self.routine, self.flag = routine, b.icmp_signed("!=", flag, whole(0))
        slots = load_addresses(b, operands, pointers, count, NATIVE_CALL.offsets["arrays"])
        self.addresses = [b.load(b.gep(slots, [whole(i)])) for i in range(2)]
        self.out = b.load(b.gep(slots, [b.sub(count, whole(1))]))
        self.status = b.alloca(I32)
        b.store(ir.IRConstant(I32, 0), self.status)
        self.run(rows)
        with b.if_then(b.icmp_signed("==", b.load(self.status), ir.IRConstant(I32, 0))):
            b.ret(ir.IRConstant(I32, 0))
        b.ret(b.call(b.inttoptr(callback, CALLBACK.as_pointer()), [number, slots]))

    def run(self, rows: ir.IRValue) -> None:
        raise NotImplementedError

    def at(self, begin: ir.IRValue, t: ir.IRType, index: ir.IRValue) -> ir.IRValue:
        """The address of element `index` of an array."""
        return self.b.gep(self.b.bitcast(begin, t.as_pointer()), [index])

    def note(self, status: ir.IRValue) -> None:
        self.b.store(self.b.or_(self.b.load(self.status), status), self.status)

    def ends(self, x: ir.IRValue, count: ir.IRValue) -> tuple[ir.IRValue, ir.IRValue]:
        """The minimum and the maximum of a nonempty array of integers."""
        b = self.b
        ends = [b.alloca(self.t) for _ in range(2)]
        for end in ends:
            b.store(b.load(x), end)
        compare = b.icmp_signed if self.dtype[0] == "i" else b.icmp_unsigned

        def one(k: ir.IRValue) -> None:
            value = b.load(b.gep(x, [k]))
            for end, sign in zip(ends, "<>"):
                best = b.load(end)
                b.store(b.select(compare(sign, value, best), value, best), end)

        loop(b, count, one)
        low, high = (self.as_i64(b.load(end)) for end in ends)
        return low, high

    def as_i64(self, value: ir.IRValue) -> ir.IRValue:
        if self.t == I64:
            return value
        return (self.b.sext if self.dtype[0] == "i" else self.b.zext)(value, I64)

    def external(self, name: str, signature: ir.FunctionType) -> ir.IRValue:
        return self.module.declared(name, signature)

    def zeros(self, count: ir.IRValue, size: int) -> ir.IRValue:
        """Allocate zeroed memory for `count` elements."""
        calloc = self.external("calloc", ir.FunctionType(POINTER, [I64, I64]))
        return self.b.call(calloc, [count, whole(size)])

    def free(self, memory: ir.IRValue) -> None:
        self.b.call(self.external("free", ir.FunctionType(ir.VoidType(), [POINTER])), [memory])


def whole(value: int) -> ir.IRValue:
    """An integer constant."""
    return ir.IRConstant(I64, value)
