"""Build instructions: `IRBuilder` has one method per instruction, which appends its line to a block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from tracegrad.llvmir.module import BasicBlock, IRFunction, IRModule
from tracegrad.llvmir.types import (
    IntType,
    IRConstant,
    IRType,
    IRValue,
    LiteralStructType,
    PointerType,
    VectorType,
    VoidType,
)
from tracegrad.llvmir.values import Instruction, Phi

_BOOL, _BYTE, _I32, _VOID = IntType(1), IntType(8), IntType(32), VoidType()
_SIGNED = {"==": "eq", "!=": "ne", "<": "slt", "<=": "sle", ">": "sgt", ">=": "sge"}
_UNSIGNED = {"==": "eq", "!=": "ne", "<": "ult", "<=": "ule", ">": "ugt", ">=": "uge"}
_ORDERED = {"==": "oeq", "!=": "one", "<": "olt", "<=": "ole", ">": "ogt", ">=": "oge", "ord": "ord"}
_UNORDERED = {"==": "ueq", "!=": "une", "<": "ult", "<=": "ule", ">": "ugt", ">=": "uge", "uno": "uno"}
_RARE, _LIKELY = (1, 99), (99, 1)


def _binary(name: str) -> Callable[..., IRValue]:
    """The method that appends a binary instruction of this name."""

    def instruction(self: IRBuilder, x: IRValue, y: IRValue, flags: Sequence[str] = ()) -> IRValue:
        t = x.type
        mnemonic = f"{name} {' '.join(flags)}" if flags else name
        return self._value(t, f"{mnemonic} {t.text} {x.ref}, {y.ref}")

    return instruction


def _conversion(name: str) -> Callable[..., IRValue]:
    """The method that appends a conversion of this name; a conversion to the same type returns the operand."""

    def instruction(self: IRBuilder, x: IRValue, t: IRType) -> IRValue:
        if x.type is t:
            return x
        return self._value(t, f"{name} {x.type.text} {x.ref} to {t.text}")

    return instruction


class IRBuilder:
    """Appends instructions to `block`, before its terminator.

    >>> from tracegrad.llvmir import IRFunction, FunctionType, IntType, IRModule
    >>> module, i64 = IRModule("twice"), IntType(64)
    >>> function = IRFunction(module, FunctionType(i64, [i64]), "f")
    >>> b = IRBuilder(function.append_basic_block("entry"))
    >>> b.ret(b.add(function.args[0], function.args[0]))
    <ret i64 %.0>
    >>> print(module)
    ; ModuleID = 'twice'
    define i64 @f(i64 %.a0) {
    entry:
    %.0 = add i64 %.a0, %.a0
    ret i64 %.0
    }
    """

    __slots__ = ("_body", "_names", "block")

    def __init__(self, block: BasicBlock) -> None:
        self.position_at_end(block)

    @property
    def function(self) -> IRFunction:
        """The function of the current block."""
        return self.block.function

    @property
    def module(self) -> IRModule:
        """The module of the current function."""
        return self.block.function.module

    # -- position ------------------------------------------------------------------------------------------------
    def append_basic_block(self, name: str = "block") -> BasicBlock:
        """Append a new block to the function."""
        return self.function.append_basic_block(name)

    def position_at_end(self, block: BasicBlock) -> None:
        """Continue at the end of a block."""
        self.block, self._body, self._names = block, block.body, block.function.names

    @contextmanager
    def goto_block(self, block: BasicBlock) -> Iterator[None]:
        """Append to another block within the context."""
        before = self.block
        self.position_at_end(block)
        yield
        self.position_at_end(before)

    def goto_entry_block(self) -> AbstractContextManager[None]:
        """Append to the entry block within the context."""
        return self.goto_block(self.function.entry_basic_block)

    @contextmanager
    def if_then(self, condition: IRValue, likely: bool | None = None) -> Iterator[BasicBlock]:
        """Emit a conditional block, and continue after it."""
        then, after = self.append_basic_block("if"), self.append_basic_block("endif")
        self.cbranch(condition, then, after, likely)
        with self._until(then, after):
            yield after
        self.position_at_end(after)

    @contextmanager
    def if_else(
        self, condition: IRValue
    ) -> Iterator[tuple[AbstractContextManager[None], AbstractContextManager[None]]]:
        """Emit two conditional blocks, one context for each, and continue after both."""
        then, otherwise, after = map(self.append_basic_block, ("if", "else", "endif"))
        self.cbranch(condition, then, otherwise)
        yield self._until(then, after), self._until(otherwise, after)
        self.position_at_end(after)

    @contextmanager
    def _until(self, block: BasicBlock, after: BasicBlock) -> Iterator[None]:
        """Emit a block that branches to `after`, unless it has another terminator."""
        self.position_at_end(block)
        yield
        if self.block.terminator is None:
            self.branch(after)

    # -- instructions --------------------------------------------------------------------------------------------
    def _value(self, t: IRType, text: str) -> Instruction:
        ref = f"%.{next(self._names)}"
        instruction = Instruction(t, ref, f"{ref} = {text}")
        self._body.append(instruction)
        return instruction

    def _effect(self, text: str) -> Instruction:
        instruction = Instruction(_VOID, "", text)
        self._body.append(instruction)
        return instruction

    def _end(self, text: str) -> Instruction:
        if self.block.terminator is not None:
            raise ValueError(f"block {self.block.label} has ended with {self.block.terminator}")
        self.block.terminator = instruction = Instruction(_VOID, "", text)
        return instruction

    # -- arithmetic ----------------------------------------------------------------------------------------------
    add, sub, mul = _binary("add"), _binary("sub"), _binary("mul")
    sdiv, srem, udiv, urem = _binary("sdiv"), _binary("srem"), _binary("udiv"), _binary("urem")
    and_, or_, xor = _binary("and"), _binary("or"), _binary("xor")
    shl, lshr, ashr = _binary("shl"), _binary("lshr"), _binary("ashr")
    fadd, fsub, fmul, fdiv, frem = map(_binary, ("fadd", "fsub", "fmul", "fdiv", "frem"))

    def neg(self, x: IRValue) -> IRValue:
        """Negate an integer."""
        return self.sub(IRConstant(x.type, None if isinstance(x.type, VectorType) else 0), x)

    def not_(self, x: IRValue) -> IRValue:
        """Invert all bits of an integer."""
        t = x.type
        ones = IRConstant(t, [-1] * t.count if isinstance(t, VectorType) else -1)
        return self.xor(x, ones)

    def fneg(self, x: IRValue) -> IRValue:
        """Negate a float."""
        return self._value(x.type, f"fneg {x.type.text} {x.ref}")

    trunc, zext, sext = _conversion("trunc"), _conversion("zext"), _conversion("sext")
    fptrunc, fpext, fptosi = _conversion("fptrunc"), _conversion("fpext"), _conversion("fptosi")
    sitofp, uitofp = _conversion("sitofp"), _conversion("uitofp")
    inttoptr, ptrtoint = _conversion("inttoptr"), _conversion("ptrtoint")

    def bitcast(self, x: IRValue, t: IRType) -> IRValue:
        """Reinterpret the bits of `x` as another type, or change the pointee of a pointer."""
        if x.type is t:
            return x
        if isinstance(t, PointerType) and isinstance(x.type, PointerType):
            return IRValue(t, x.ref)
        return self._value(t, f"bitcast {x.type.text} {x.ref} to {t.text}")

    def icmp_signed(self, sign: str, x: IRValue, y: IRValue) -> IRValue:
        """Compare signed integers."""
        return self._compared(f"icmp {_SIGNED[sign]}", x, y)

    def icmp_unsigned(self, sign: str, x: IRValue, y: IRValue) -> IRValue:
        """Compare unsigned integers, or pointers."""
        return self._compared(f"icmp {_UNSIGNED[sign]}", x, y)

    def fcmp_ordered(self, sign: str, x: IRValue, y: IRValue, flags: Sequence[str] = ()) -> IRValue:
        """Compare floats; false if one is NaN. "ord" tests that none is NaN."""
        return self._compared(" ".join(("fcmp", *flags, _ORDERED[sign])), x, y)

    def fcmp_unordered(self, sign: str, x: IRValue, y: IRValue, flags: Sequence[str] = ()) -> IRValue:
        """Compare floats; true if one is NaN. "uno" tests that one is NaN."""
        return self._compared(" ".join(("fcmp", *flags, _UNORDERED[sign])), x, y)

    def _compared(self, mnemonic: str, x: IRValue, y: IRValue) -> IRValue:
        t = x.type
        result = VectorType(_BOOL, t.count) if isinstance(t, VectorType) else _BOOL
        return self._value(result, f"{mnemonic} {t.text} {x.ref}, {y.ref}")

    def select(self, condition: IRValue, x: IRValue, y: IRValue, flags: Sequence[str] = ()) -> Instruction:
        """Select `x` if the condition holds, else `y`."""
        mnemonic = f"select {' '.join(flags)}" if flags else "select"
        t = x.type
        return self._value(t, f"{mnemonic} {condition.type.text} {condition.ref}, {t.text} {x.ref}, {t.text} {y.ref}")

    def ctlz(self, x: IRValue, zero_is_poison: IRValue) -> IRValue:
        """Count leading zeros."""
        return self._counted("ctlz", x, zero_is_poison)

    def cttz(self, x: IRValue, zero_is_poison: IRValue) -> IRValue:
        """Count trailing zeros."""
        return self._counted("cttz", x, zero_is_poison)

    def ctpop(self, x: IRValue) -> IRValue:
        """Count the bits that are 1."""
        return self._counted("ctpop", x)

    def _counted(self, name: str, x: IRValue, *extra: IRValue) -> IRValue:
        t = x.type
        return self.call(self.module.intrinsic(name, [t], t, [t, *[y.type for y in extra]]), [x, *extra])

    # -- vectors and structures ----------------------------------------------------------------------------------
    def extract_element(self, vector: IRValue, lane: IRValue) -> IRValue:
        """Extract one lane."""
        return self._value(vector.type.element, f"extractelement {vector.typed}, {lane.typed}")

    def insert_element(self, vector: IRValue, x: IRValue, lane: IRValue) -> IRValue:
        """Replace one lane of a vector by `x`."""
        return self._value(vector.type, f"insertelement {vector.typed}, {x.typed}, {lane.typed}")

    def shuffle_vector(self, x: IRValue, y: IRValue, lanes: IRValue) -> IRValue:
        """Shuffle the lanes of two vectors, by lane numbers."""
        t = VectorType(x.type.element, lanes.type.count)
        return self._value(t, f"shufflevector {x.typed}, {y.typed}, {lanes.typed}")

    def extract_value(self, x: IRValue, k: int) -> IRValue:
        """Extract member `k` of a structure."""
        return self._value(x.type.elements[k], f"extractvalue {x.typed}, {k}")

    # -- memory --------------------------------------------------------------------------------------------------
    def alloca(self, t: IRType, size: IRValue | int | None = None, align: int | None = None) -> IRValue:
        """Allocate stack memory for one value, or for `size` values."""
        text = f"alloca {t.text}"
        if size is not None:
            text += f", {(_I32(size) if isinstance(size, int) else size).typed}"
        if align is not None:
            text += f", align {align}"
        return self._value(t.as_pointer(), text)

    def load(self, at: IRValue, align: int | None = None, typ: IRType | None = None) -> Instruction:
        """Load the pointee, or a value of another type `typ`."""
        t = typ or at.type.pointee
        suffix = f", align {align}" if align else ""
        return self._value(t, f"load {t.text}, ptr {at.ref}{suffix}")

    def store(self, x: IRValue, at: IRValue, align: int | None = None) -> Instruction:
        """Store `x`."""
        suffix = f", align {align}" if align else ""
        return self._effect(f"store {x.type.text} {x.ref}, ptr {at.ref}{suffix}")

    def gep(self, at: IRValue, indices: Sequence[IRValue]) -> IRValue:
        """Compute an address (getelementptr): the first index counts values, further ones select a member or an
        element. A vector of indices gives a vector of addresses."""
        base = t = at.type.pointee
        for k in indices[1:]:
            t = t.elements[int(k.ref)] if isinstance(t, LiteralStructType) else t.element
        index_text = "".join([f", {k.type.text} {k.ref}" for k in indices])
        result: IRType = t.as_pointer()
        lanes = indices[0].type
        if isinstance(lanes, VectorType):
            result = VectorType(result, lanes.count)
        return self._value(result, f"getelementptr {base.text}, ptr {at.ref}{index_text}")

    def load_atomic(self, at: IRValue, ordering: str, align: int) -> Instruction:
        """Load atomically."""
        t = at.type.pointee
        return self._value(t, f"load atomic {t.text}, ptr {at.ref} {ordering}, align {align}")

    def store_atomic(self, x: IRValue, at: IRValue, ordering: str, align: int) -> Instruction:
        """Store `x` atomically."""
        return self._effect(f"store atomic {x.typed}, ptr {at.ref} {ordering}, align {align}")

    def atomic_rmw(self, operation: str, at: IRValue, x: IRValue, ordering: str) -> Instruction:
        """Combine memory with `x` atomically (atomicrmw); returns the old value."""
        return self._value(x.type, f"atomicrmw {operation} ptr {at.ref}, {x.typed} {ordering}")

    def cmpxchg(self, at: IRValue, expected: IRValue, x: IRValue, ordering: str, failing: str) -> Instruction:
        """Store `x` atomically if the old value is `expected` (compare and exchange); returns the old value, and
        whether `x` was stored."""
        t = LiteralStructType([x.type, _BOOL])
        return self._value(t, f"cmpxchg ptr {at.ref}, {expected.typed}, {x.typed} {ordering} {failing}")

    def memcpy(self, to: IRValue, source: IRValue, size: IRValue) -> None:
        """Copy `size` bytes between disjoint blocks."""
        self._bytes("memcpy", to, source, size)

    def memset(self, to: IRValue, byte: IRValue, size: IRValue) -> None:
        """Set `size` bytes."""
        self._bytes("memset", to, byte, size)

    def _bytes(self, name: str, to: IRValue, source: IRValue, size: IRValue) -> None:
        types = [x.type for x in (to, source, size)]
        overloaded = [t for t in types if t is not _BYTE]
        function = self.module.intrinsic(name, overloaded, _VOID, [*types, _BOOL])
        self.call(function, [to, source, size, _BOOL(0)])

    # -- control -------------------------------------------------------------------------------------------------
    def call(self, function: IRValue, args: Sequence[IRValue], fastmath: Sequence[str] = ()) -> Instruction:
        """Call a function, or a pointer to one."""
        t = function.type.pointee.return_type
        mnemonic = f"{' '.join(('call', *fastmath))} {t.text}" if fastmath else f"call {t.text}"
        inputs = ", ".join([f"{x.type.text} {x.ref}" for x in args])
        text = f"{mnemonic} {function.ref}({inputs})"
        return self._effect(text) if t is _VOID else self._value(t, text)

    def phi(self, t: IRType) -> Phi:
        """Append a phi; `add_incoming` adds its value for each predecessor block."""
        result = Phi(t, f"%.{next(self._names)}")
        self.block.phis.append(result)
        return result

    def merge(self, *incoming: tuple[IRValue, BasicBlock]) -> Phi:
        """Append a phi with these values and predecessor blocks; a loop adds the value at its end later."""
        result = self.phi(incoming[0][0].type)
        result.incoming += incoming
        return result

    def branch(self, block: BasicBlock) -> Instruction:
        """Branch to a block."""
        return self._end(f"br label {block.ref}")

    def cbranch(
        self, condition: IRValue, then: BasicBlock, otherwise: BasicBlock, likely: bool | None = None
    ) -> Instruction:
        """Branch to one of two blocks."""
        result = self._end(f"br i1 {condition.ref}, label {then.ref}, label {otherwise.ref}")
        if likely is not None:
            weights = map(_I32, _LIKELY if likely else _RARE)
            result.set_metadata("prof", self.module.add_metadata(["branch_weights", *weights]))
        return result

    def switch(self, x: IRValue, cases: Sequence[tuple[IRValue, BasicBlock]], otherwise: BasicBlock) -> Instruction:
        """Branch to the block of the case equal to `x`."""
        each = " ".join(f"{value.typed}, label {block.ref}" for value, block in cases)
        return self._end(f"switch {x.typed}, label {otherwise.ref} [ {each} ]")

    def ret(self, x: IRValue) -> Instruction:
        """Return `x`."""
        return self._end(f"ret {x.typed}")

    def ret_void(self) -> Instruction:
        """Return without a value."""
        return self._end("ret void")
