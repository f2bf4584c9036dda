"""Disassemble CPython bytecode into editable instructions and assemble it again.

The assembled code has the same jump targets, exception handlers, lines and columns for every moved instruction. A
superinstruction for two local variables is split into two steps.

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

import dis
import functools
import itertools
import sys
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

from tracegrad.trace.bytecode.exception_regions import numbers_of

_LONG = dis.opmap["EXTENDED_ARG"]
Lines = tuple[int | None, int | None, int | None, int | None]


@functools.lru_cache(maxsize=128)
def decoded(code: CodeType) -> tuple[dis.Instruction, ...]:
    """The instructions of the code, cached, because a trace decodes the same code several times.

    >>> [x.opname for x in decoded((lambda: None).__code__)][-1]
    'RETURN_VALUE'
    """
    return tuple(dis.get_instructions(code))


class BytecodeInstruction:
    """An instruction, including its EXTENDED_ARG prefixes and its inline caches: its argument and argument value, its
    original start (negative if new) and new start, its jump target, and its lines and columns."""

    __slots__ = ("arg", "at", "caches", "lines", "long", "name", "start", "target", "value")

    def __init__(self, name: str, arg: int, lines: Lines, value: Any = None, start: int = -1):
        self.name, self.arg, self.lines, self.value = name, arg, lines, value
        self.start, self.at, self.long, self.caches = start, start, 0, _CACHES.get(name, 0)
        self.target: BytecodeInstruction | None = None

    @property
    def size(self) -> int:
        return 2 * (self.long + 1 + self.caches)

    @property
    def frame_offset(self) -> int:
        """The instruction offset of a frame that runs it."""
        return self.at + 2 * self.long

    def become(self, name: str) -> None:
        """Change the opcode, with the same argument."""
        self.name, self.caches = name, _CACHES.get(name, 0)

    def __bytes__(self) -> bytes:
        *longer, arg = self.arg.to_bytes(self.long + 1, "big")
        before = b"".join([bytes([_LONG, x]) for x in longer])
        return before + bytes([dis.opmap[self.name], arg]) + bytes(2 * self.caches)


def instructions_of(code: CodeType) -> list[BytecodeInstruction]:
    """The instructions of the code."""
    lines, result, targets, long = (
        list(code.co_positions()),
        list[BytecodeInstruction](),
        dict[BytecodeInstruction, int](),
        0,
    )
    every = decoded(code)
    for x, end in zip(every, [*[x.offset for x in every[1:]], len(code.co_code)]):
        if x.opcode == _LONG:
            long += 1
            continue
        instruction = BytecodeInstruction(x.opname, x.arg or 0, lines[x.offset // 2], x.argval, x.offset - 2 * long)
        instruction.long, instruction.caches = long, (end - x.offset) // 2 - 1
        if x.opcode in dis.hasjrel:
            targets[instruction] = x.argval
        result += _split_pair(instruction) if x.opname in _PAIRS else [instruction]
        long = 0
    beginning = {x.start: x for x in result}
    for instruction, start in targets.items():
        instruction.target = beginning[start]
    return result


# Since Python 3.13, one superinstruction replaces two instructions on local variables with low numbers.
_PAIRS = {
    "_".join(pair): pair
    for pair in itertools.product(("LOAD_FAST", "STORE_FAST"), repeat=2)
    if "_".join(pair) in dis.opmap
}


def _split_pair(fused: BytecodeInstruction) -> list[BytecodeInstruction]:
    halves = zip(_PAIRS[fused.name], divmod(fused.arg, 16), fused.value, (fused.start, -1))
    return [BytecodeInstruction(name, arg, fused.lines, value, start) for name, arg, value, start in halves]


def boolean_of(name: str, arg: int) -> int:
    """The number of stack values that an instruction tests or compares for a jump; 0 if it tests none. Since Python
    3.13 the jump is a separate instruction."""
    if name == "COMPARE_OP" and sys.version_info >= (3, 13):
        return 2 if arg & 16 else 0
    return int(name.startswith(("POP_JUMP", "TO_BOOL")))


def _caches(*samples: Callable[..., Any]) -> dict[str, int]:
    """The number of inline cache entries per opcode in this version of Python, for the opcodes of the samples."""
    return {instruction.name: instruction.caches for x in samples for instruction in instructions_of(x.__code__)}


_CACHES: dict[str, int] = {}
_CACHES.update(_caches(lambda x, y: x in y, lambda x, y: x[y]))


def arranged(code: CodeType, instructions: list[BytecodeInstruction], **changes: Any) -> CodeType:
    """Assemble code from these instructions, whose positions are updated, with other changes."""
    moved = _arrange(instructions)
    return code.replace(
        co_code=b"".join(map(bytes, instructions)),
        co_linetable=b"".join(
            _line_table([x.lines for x in instructions for _ in range(x.size // 2)], code.co_firstlineno)
        ),
        co_exceptiontable=bytes(_exception_table(code.co_exceptiontable, {**moved, len(code.co_code): moved[-1]})),
        **changes,
    )


def _arrange(instructions: list[BytecodeInstruction]) -> dict[int, int]:
    """Assign offsets to the steps, with arguments as long as needed. Returns new offsets by old offset."""
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
    return {**{x.start: x.at for x in instructions}, -1: at}


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


def _exception_table(table: bytes, moved: dict[int, int]) -> Iterator[int]:
    """Encode the exception table with moved offsets."""
    numbers = numbers_of(table)
    for start, size, target, depth in zip(*[numbers] * 4):
        begin, end, handler = (moved[2 * x] // 2 for x in (start, start + size, target))
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
            if x.opname in ("LOAD_GLOBAL", "LOAD_DEREF") and y.opname in ("LOAD_ATTR", "LOAD_METHOD")
        ]
    )
