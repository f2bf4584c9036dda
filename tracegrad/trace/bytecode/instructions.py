"""The instructions of code, which can be changed and added to, and the code that they make.

That jumps to the same instructions, handles the same exceptions and says the same of its lines and columns, whatever
has moved. Of the instructions that Python makes of two for local variables, each is a step of its own.

>>> def f(x):
...     return -x
>>> steps = steps_of(f.__code__)
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

__all__ = ["Step", "arranged", "attributes_in", "decoded", "steps_of", "truth_of"]

_LONG = dis.opmap["EXTENDED_ARG"]
Lines = tuple[int | None, int | None, int | None, int | None]


@functools.lru_cache(maxsize=128)
def decoded(code: CodeType) -> tuple[dis.Instruction, ...]:
    """The instructions as they are: a trace asks for those of the same code in many ways, one soon after the other.

    >>> [x.opname for x in decoded((lambda: None).__code__)][-1]
    'RETURN_VALUE'
    """
    return tuple(dis.get_instructions(code))


class Step:
    """An instruction, with what makes its argument longer before it and what it keeps behind it: its argument and what
    that stands for, where it began, if it is not new, and begins, which one it jumps to, and its lines and columns."""

    __slots__ = ("arg", "at", "caches", "lines", "long", "name", "start", "target", "value")

    def __init__(self, name: str, arg: int, lines: Lines, value: Any = None, start: int = -1):
        self.name, self.arg, self.lines, self.value = name, arg, lines, value
        self.start, self.at, self.long, self.caches = start, start, 0, _CACHES.get(name, 0)
        self.target: Step | None = None

    @property
    def size(self) -> int:
        return 2 * (self.long + 1 + self.caches)

    @property
    def place(self) -> int:
        """Where a frame is that runs it."""
        return self.at + 2 * self.long

    def become(self, name: str) -> None:
        """Be another instruction, with the same argument."""
        self.name, self.caches = name, _CACHES.get(name, 0)

    def __bytes__(self) -> bytes:
        *longer, arg = self.arg.to_bytes(self.long + 1, "big")
        before = b"".join([bytes([_LONG, x]) for x in longer])
        return before + bytes([dis.opmap[self.name], arg]) + bytes(2 * self.caches)


def steps_of(code: CodeType) -> list[Step]:
    """The instructions of the code."""
    lines, found, targets, long = list(code.co_positions()), list[Step](), dict[Step, int](), 0
    every = decoded(code)
    for x, end in zip(every, [*[x.offset for x in every[1:]], len(code.co_code)]):
        if x.opcode == _LONG:
            long += 1
            continue
        step = Step(x.opname, x.arg or 0, lines[x.offset // 2], x.argval, x.offset - 2 * long)
        step.long, step.caches = long, (end - x.offset) // 2 - 1
        if x.opcode in dis.hasjrel:
            targets[step] = x.argval
        found += _apart(step) if x.opname in _PAIRS else [step]
        long = 0
    beginning = {x.start: x for x in found}
    for step, start in targets.items():
        step.target = beginning[start]
    return found


# Since Python 3.13, what two instructions do for local variables is done by one where these have low numbers.
_PAIRS = {
    "_".join(pair): pair
    for pair in itertools.product(("LOAD_FAST", "STORE_FAST"), repeat=2)
    if "_".join(pair) in dis.opmap
}


def _apart(step: Step) -> list[Step]:
    parts = zip(_PAIRS[step.name], divmod(step.arg, 16), step.value, (step.start, -1))
    return [Step(name, arg, step.lines, value, start) for name, arg, value, start in parts]


def truth_of(name: str, arg: int) -> int:
    """How many values an instruction takes from the stack to ask for the truth of them, or of how they compare, for a
    jump: since Python 3.13 that is not the jump itself. 0 for one that asks for none."""
    if name == "COMPARE_OP" and sys.version_info >= (3, 13):
        return 2 if arg & 16 else 0
    return int(name.startswith(("POP_JUMP", "TO_BOOL")))


def _caches(*samples: Callable[..., Any]) -> dict[str, int]:
    """How much this version of Python has instructions keep, of those that the samples consist of."""
    return {step.name: step.caches for x in samples for step in steps_of(x.__code__)}


_CACHES: dict[str, int] = {}
_CACHES.update(_caches(lambda x, y: x in y, lambda x, y: x[y]))


def arranged(code: CodeType, steps: list[Step], **changes: Any) -> CodeType:
    """The code with these instructions, which are told where they are, and other changes."""
    moved = _arrange(steps)
    return code.replace(
        co_code=b"".join(map(bytes, steps)),
        co_linetable=b"".join(_line_table([x.lines for x in steps for _ in range(x.size // 2)], code.co_firstlineno)),
        co_exceptiontable=bytes(_exception_table(code.co_exceptiontable, {**moved, len(code.co_code): moved[-1]})),
        **changes,
    )


def _arrange(steps: list[Step]) -> dict[int, int]:
    """Let the steps lie one after the other, with arguments as long as they have to be: by where each began, where it
    begins."""
    grown = True
    while grown:
        grown, at = False, 0
        for x in steps:
            x.at = at
            at += x.size
        for x in steps:
            if x.target is not None:
                x.arg = abs(x.target.at - x.at - x.size) // 2
            long = (max(x.arg.bit_length(), 1) - 1) // 8
            grown |= long > x.long
            x.long = max(x.long, long)
    return {**{x.start: x.at for x in steps}, -1: at}


def _line_table(lines: list[Lines], first: int) -> Iterator[bytes]:
    """What code says of the lines and columns of its instructions."""
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
    """Six bits a byte, the lowest first."""
    found = []
    while x >= 64:
        found.append(x & 63 | 64)
        x >>= 6
    return [*found, x]


def _exception_table(table: bytes, moved: dict[int, int]) -> Iterator[int]:
    """The table of handlers, of what has moved."""
    numbers = numbers_of(table)
    for start, size, target, depth in zip(*[numbers] * 4):
        begin, end, handler = (moved[2 * x] // 2 for x in (start, start + size, target))
        for k, x in enumerate((begin, end - begin, handler, depth)):
            first, *rest = _highest_first(x)
            yield first if k else first | 128
            yield from rest


def _highest_first(x: int) -> list[int]:
    found = [x & 63]
    while x := x >> 6:
        found.append(x & 63 | 64)
    return found[::-1]


@functools.lru_cache(maxsize=4096)
def attributes_in(code: CodeType) -> tuple[tuple[str, str], ...]:
    """The names of variables from outside, each with an attribute that the code asks it for.

    >>> attributes_in((lambda: dis.opmap).__code__)
    (('dis', 'opmap'),)
    """
    return tuple([
        (x.argval, y.argval) for x, y in itertools.pairwise(decoded(code))
        if x.opname in ("LOAD_GLOBAL", "LOAD_DEREF") and y.opname in ("LOAD_ATTR", "LOAD_METHOD")
    ])  # fmt: skip
