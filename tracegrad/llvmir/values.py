"""Define the values of LLVM IR that are not numbers: constants as text, and results of instructions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracegrad.llvmir.types import IRConstant, IRType, IRValue

if TYPE_CHECKING:
    from tracegrad.llvmir.module import BasicBlock, Metadata


class TextConstant(IRConstant):
    """A constant as LLVM text: `poison`, `zeroinitializer`, `splat (double 0x...)`."""

    __slots__ = ()

    def __init__(self, t: IRType, text: str) -> None:
        self.type, self.constant, self.ref = t, text, text


class Instruction(IRValue):
    """An instruction: its text line, and its result, if it has one."""

    __slots__ = ("line",)

    def __init__(self, t: IRType, ref: str, line: str) -> None:
        self.type, self.ref, self.line = t, ref, line

    def set_metadata(self, name: str, node: Metadata) -> None:
        """Attach metadata to the instruction: `!name !node`."""
        self.line += f", !{name} {node.ref}"

    def __str__(self) -> str:
        return self.line

    def __repr__(self) -> str:
        return f"<{self}>"


class Phi(Instruction):
    """A phi: the value of a block that depends on the predecessor block."""

    __slots__ = ("incoming",)

    def __init__(self, t: IRType, ref: str) -> None:
        super().__init__(t, ref, f"{ref} = phi {t.text} ")
        self.incoming: list[tuple[IRValue, BasicBlock]] = []

    def add_incoming(self, value: IRValue, block: BasicBlock) -> None:
        """Set the `value` for the predecessor `block`."""
        self.incoming.append((value, block))

    def __str__(self) -> str:
        return self.line + ", ".join(f"[ {value.ref}, {block.ref} ]" for value, block in self.incoming)
