"""Declare the operands of program instructions: int64 words with names, in order.

One declaration serves the encoder, the LLVM IR that reads the operands, and the documentation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tracegrad import llvmir as ir
from tracegrad.codegen.instr.scalar import I64


class InstructionOperand(NamedTuple):
    """An operand of so many words; 0 for a list, as long as other operands say."""

    name: str
    meaning: str
    words: int


def word(name: str, meaning: str) -> InstructionOperand:
    """An operand of one word."""
    return InstructionOperand(name, meaning, 1)


def location(name: str, meaning: str) -> InstructionOperand:
    """A location: the number of a pointer of the program, and an offset in bytes."""
    return InstructionOperand(name, f"location of {meaning}", 2)


def rest(name: str, meaning: str) -> InstructionOperand:
    """A list of words, after all operands of a fixed number."""
    return InstructionOperand(name, meaning, 0)


class OperandLayout:
    """The operands of an instruction, or of a record among them.

    >>> copy = OperandLayout(location("target", "the copy"), location("source", "the original"), word("bytes", "bytes"))
    >>> copy.offsets, copy.size
    ({'target': 0, 'source': 2, 'bytes': 4}, 5)
    """

    __slots__ = ("offsets", "operands", "size")

    def __init__(self, *operands: InstructionOperand):
        self.operands = operands
        self.offsets: dict[str, int] = {}
        self.size = 0  # words, without lists
        for operand in operands:
            self.offsets[operand.name] = self.size
            self.size += operand.words

    def __iter__(self) -> Iterator[InstructionOperand]:
        return iter(self.operands)


def load_operand(b: ir.IRBuilder, words: ir.IRValue, layout: OperandLayout, name: str) -> ir.IRValue:
    """Load an operand of one word from the record at an address."""
    return b.load(b.gep(words, [ir.IRConstant(I64, layout.offsets[name])]))
