"""Define the values of LLVM IR: constants, and results of instructions."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from tracegrad.llvmir.types import DoubleType, FloatType, HalfType, IRType, LiteralStructType

if TYPE_CHECKING:
    from tracegrad.llvmir.module import Metadata

__all__ = ["IRConstant", "IRValue", "Instruction", "Phi", "TextConstant"]


class IRValue:
    """An operand of instructions: its type, and its text `ref`.

    >>> IRConstant(FloatType(), 0.5).typed
    'float 0x3fe0000000000000'
    """

    __slots__ = ("ref", "type")

    def __init__(self, t: Any, ref: str) -> None:
        self.type, self.ref = t, ref

    @property
    def typed(self) -> str:
        """The text of the value with its type."""
        return f"{self.type.text} {self.ref}"

    def __repr__(self) -> str:
        return f"<{self.typed}>"


class IRConstant(IRValue):
    """A constant: a number, a list of constants (or numbers) for lanes or elements, the bytes of an array, or None if
    all bits are 0."""

    __slots__ = ("constant",)

    def __init__(self, t: Any, constant: Any) -> None:
        if isinstance(constant, (list, tuple)):
            kinds = t.elements if isinstance(t, LiteralStructType) else [t.element] * len(constant)
            constant = [x if isinstance(x, IRValue) else IRConstant(kind, x) for kind, x in zip(kinds, constant)]
        self.type, self.constant = t, constant
        self.ref = str(constant) if type(constant) is int else _constant_text(t, constant)


IRType._constant = IRConstant


class TextConstant(IRConstant):
    """A constant as LLVM text: `poison`, `zeroinitializer`, `splat (double 0x...)`."""

    __slots__ = ()

    def __init__(self, t: Any, text: str) -> None:
        self.type, self.constant, self.ref = t, text, text


_FLOATS = (HalfType(), FloatType(), DoubleType())


def _constant_text(t: Any, constant: Any) -> str:
    if constant is None:
        return "null" if t.text == "ptr" else "zeroinitializer"
    if t in _FLOATS:
        return _float(t, constant)
    if isinstance(constant, list):
        left, right = tuple(t.brackets)
        return f"{left}{', '.join([x.typed for x in constant])}{right}"
    if isinstance(constant, (bytes, bytearray)):
        return 'c"{}"'.format("".join(f"\\{byte:02x}" for byte in constant))
    return str(int(constant))


def _float(t: Any, value: Any) -> str:
    """A float written by its bits; a shorter format is written as the equal double."""
    if t is not _FLOATS[-1]:
        kind = "<e" if t is _FLOATS[0] else "<f"
        value = struct.unpack(kind, struct.pack(kind, value))[0]
    return f"0x{int.from_bytes(struct.pack('<d', value), 'little'):016x}"


class Instruction(IRValue):
    """An instruction: its text line, and its result, if it has one."""

    __slots__ = ("line",)

    def __init__(self, t: Any, ref: str, line: str) -> None:
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

    def __init__(self, t: Any, ref: str) -> None:
        super().__init__(t, ref, f"{ref} = phi {t.text} ")
        self.incoming: list[tuple[IRValue, Any]] = []

    def add_incoming(self, value: IRValue, block: Any) -> None:
        """Set the `value` for the predecessor `block`."""
        self.incoming.append((value, block))

    def __str__(self) -> str:
        return self.line + ", ".join(f"[ {value.ref}, {block.ref} ]" for value, block in self.incoming)
