"""Disassemble CPython bytecode into editable instructions and assemble it again.

The assembled code has the same jump targets, exception handlers, lines and columns for every moved instruction.
Instructions have the names of `tracegrad.cpython.instruction_set`, in every version of Python.

>>> def f(x):
...     return -x
>>> steps = instructions_of(f.__code__)
>>> [step] = [x for x in steps if x.name == "UNARY_NEGATIVE"]
>>> step.become("UNARY_INVERT")
>>> f.__code__ = arranged(f.__code__, steps)
>>> f(5)
-6
"""

from __future__ import annotations

import bisect
import dis
import functools
import itertools
from collections.abc import Iterator
from types import CodeType
from typing import Any

from tracegrad.cpython.instruction_set import (
    EXTENDED_ARG,
    LOADS_ATTRIBUTE,
    caches_of,
    decode,
    written,
)
from tracegrad.trace.bytecode.exception_regions import numbers_of

_LOADS_OUTSIDE = ("LOAD_GLOBAL", "LOAD_DEREF")
Lines = tuple[int | None, int | None, int | None, int | None]


@functools.lru_cache(maxsize=128)
def decoded(code: CodeType) -> tuple[dis.Instruction, ...]:
    """The instructions of the code, cached, because a trace decodes the same code several times.

    >>> [x.opname for x in decoded((lambda x: x).__code__)][-1]
    'RETURN_VALUE'
    """
    return tuple(decode(code))


class BytecodeInstruction:
    """An instruction, including its EXTENDED_ARG prefixes and its inline caches: what it does (`name`), the opcode and
    the argument that say so in this version of Python, its argument value, its original start (negative if new) and new
    start, its jump target, and its lines and columns."""

    __slots__ = ("arg", "at", "caches", "lines", "long", "name", "opcode", "start", "target", "value")
    arg: int

    def __init__(self, name: str, arg: int, lines: Lines, value: Any = None, start: int = -1, long: int = 0):
        self.lines, self.value, self.start, self.at, self.long = lines, value, start, start, long
        self.target: BytecodeInstruction | None = None
        self.become(name, arg)

    @property
    def size(self) -> int:
        return 2 * (self.long + 1 + self.caches)

    @property
    def frame_offset(self) -> int:
        """The instruction offset of a frame that runs it."""
        return self.at + 2 * self.long

    def become(self, name: str, arg: int | None = None) -> None:
        """Change what the instruction does, with the same argument or another."""
        self.name = name
        self.opcode, self.arg = written(name, self.arg if arg is None else arg)
        self.caches = caches_of(self.opcode)

    def __bytes__(self) -> bytes:
        *longer, arg = self.arg.to_bytes(self.long + 1, "big")
        before = b"".join([bytes([EXTENDED_ARG, x]) for x in longer])
        return before + bytes([self.opcode, arg]) + bytes(2 * self.caches)


def instructions_of(code: CodeType) -> list[BytecodeInstruction]:
    """The instructions of the code."""
    lines, result, targets, long = list(code.co_positions()), list[BytecodeInstruction](), dict[int, int](), 0
    for x in decoded(code):
        if x.opcode == EXTENDED_ARG:
            long += 1
            continue
        if x.opcode in dis.hasjrel:
            targets[len(result)] = x.argval
        result.append(
            BytecodeInstruction(x.opname, x.arg or 0, lines[x.offset // 2], x.argval, x.offset - 2 * long, long)
        )
        result[-1].opcode, result[-1].arg, result[-1].caches = x.opcode, x.arg or 0, caches_of(x.opcode)
        long = 0
    starts = [x.start for x in result]
    for k, start in targets.items():
        result[k].target = result[bisect.bisect_left(starts, start)]
    return result


def arranged(code: CodeType, instructions: list[BytecodeInstruction], **changes: Any) -> CodeType:
    """Assemble code from these instructions, whose positions are updated, with other changes."""
    _arrange(instructions)
    return code.replace(
        co_code=b"".join(map(bytes, instructions)),
        co_linetable=b"".join(
            _line_table([x.lines for x in instructions for _ in range(x.size // 2)], code.co_firstlineno)
        ),
        co_exceptiontable=bytes(_exception_table(code.co_exceptiontable, instructions)),
        **changes,
    )


def _arrange(instructions: list[BytecodeInstruction]) -> None:
    """Assign offsets to the instructions, with arguments as long as needed."""
    grown = True
    while grown:
        grown, at = False, 0
        for x in instructions:
            x.at = at
            at += x.size
        for x in instructions:
            if x.target is not None:
                x.arg = abs(x.target.at - x.at - x.size) // 2
            long = (max(x.arg.bit_length(), 1) - 1) // 8
            grown |= long > x.long
            x.long = max(x.long, long)


def _line_table(lines: list[Lines], first: int) -> Iterator[bytes]:
    """Encode the line table: the lines and columns of the instructions."""
    before = first
    for (line, end, column, end_column), group in itertools.groupby(lines):
        count = len(list(group))
        while count:
            n = min(count, 8)
            count -= n
            if line is None or end is None:
                yield bytes([0x80 | 15 << 3 | n - 1])
            elif column is None or end_column is None:
                yield bytes([0x80 | 13 << 3 | n - 1, *_signed(line - before)])
            else:
                numbers = [*_number(end - line), *_number(column + 1), *_number(end_column + 1)]
                yield bytes([0x80 | 14 << 3 | n - 1, *_signed(line - before), *numbers])
            before = before if line is None or end is None else line


def _signed(x: int) -> list[int]:
    return _number(-x << 1 | 1 if x < 0 else x << 1)


def _number(x: int) -> list[int]:
    """Encode a number with six bits per byte, the lowest first."""
    results = []
    while x >= 64:
        results.append(x & 63 | 64)
        x >>= 6
    return [*results, x]


def _exception_table(table: bytes, instructions: list[BytecodeInstruction]) -> Iterator[int]:
    """Encode the exception table with the new offsets of instructions."""
    original = [x for x in instructions if x.start >= 0]
    starts, ends = [x.start for x in original], [*[x.at for x in original], instructions[-1].at + instructions[-1].size]
    numbers = numbers_of(table)
    for start, size, target, depth in zip(*[numbers] * 4):
        begin, end, handler = (ends[bisect.bisect_left(starts, 2 * x)] // 2 for x in (start, start + size, target))
        for k, x in enumerate((begin, end - begin, handler, depth)):
            first, *rest = _highest_first(x)
            yield first if k else first | 128
            yield from rest


def _highest_first(x: int) -> list[int]:
    results = [x & 63]
    while x := x >> 6:
        results.append(x & 63 | 64)
    return results[::-1]


def line_of(code: CodeType, offset: int) -> str:
    """The file and the line of the instruction at this offset.

    >>> line_of((lambda: None).__code__, 0).startswith("<doctest")
    True
    """
    line = next(itertools.islice(code.co_positions(), offset // 2, None))[0]
    return f"{code.co_filename}:{line}"


@functools.lru_cache(maxsize=4096)
def attributes_in(code: CodeType) -> tuple[tuple[str, str], ...]:
    """The names of outside variables, each with an attribute that the code reads from it.

    >>> attributes_in((lambda: dis.opmap).__code__)
    (('dis', 'opmap'),)
    """
    return tuple(
        [
            (x.argval, y.argval)
            for x, y in itertools.pairwise(decoded(code))
            if x.opname in _LOADS_OUTSIDE and y.opname in LOADS_ATTRIBUTE
        ]
    )
