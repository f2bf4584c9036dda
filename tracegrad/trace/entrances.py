"""Where traced code enters a `while` loop: behind the test that is made once before the loop, and before its body.

Python's compiler writes the test of a `while` twice, before the first turn and at the end of each. A question for a
truth is met at the second place only, so a loop could begin behind the first turn at the earliest. In traced code an
*entrance* stands behind the test before the loop: a constant that is negated, which is told so. The state there is that
in which the test at the end of a turn leads to the next one (`tracegrad.rolling.closing`).

>>> def f(x):
...     while x < 3:
...         x = x * 2
...     return x
>>> [x for x in entering(f.__code__).co_consts if isinstance(x, Entrance)]
[the entrance of a loop]

So there is before a `for` loop, which is asked what the loop is to go through: it has no other way to know of a list.
"""

from __future__ import annotations

import dis
import functools
import itertools
import sys
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

from tracegrad.trace.builder import current_trace
from tracegrad.trace.lent import LentList
from tracegrad.trace.tries import numbers_of

__all__ = ["Entrance", "entering", "without_entrances"]

# How tests are written twice, and what jumps look like, is that of this version.
_IS_KNOWN = sys.version_info[:2] == (3, 11)
_LOAD, _NEGATE, _DROP, _ITER = (dis.opmap[x] for x in ("LOAD_CONST", "UNARY_NEGATIVE", "POP_TOP", "GET_ITER"))
_LONG = dis.opmap["EXTENDED_ARG"]
_Lines = tuple[int | None, int | None, int | None, int | None]


class Entrance:
    """What is negated where loops are entered, and indexed by what others go through. `places` says by the instruction
    that does it which one asks at the end of the turns, and `code` is that without entrances."""

    __slots__ = ("code", "places")
    goes_through: Callable[[Any], Any]  # see `tracegrad.trace.rows`

    def __init__(self, code: CodeType, places: dict[int, int]):
        self.code, self.places = code, places

    def __neg__(self) -> None:
        builder = current_trace()
        if builder is None or not builder.open or builder.outer is not None or builder.inner is not None:
            return
        if builder.find_circles is not None:
            frame = sys._getframe(1)
            builder.find_circles(builder, within=True).enter(frame, self.places[frame.f_lasti])

    def __getitem__(self, x: Any) -> Any:
        return self.goes_through(x) if type(x) in (list, tuple, LentList) else x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entrance) and other.code == self.code

    def __hash__(self) -> int:
        return hash(self.code)

    def __repr__(self) -> str:
        return "the entrance of a loop"


@functools.lru_cache(maxsize=4096)
def entering(code: CodeType) -> CodeType:
    """The code with entrances of its loops; itself, if it has none."""
    known = _IS_KNOWN and len(code.co_consts) < 256
    if not known or (_ASKED.isdisjoint(ops := code.co_code[::2]) and not _goes_through(ops)):
        return code
    steps = _steps(code)
    _continue_at_the_end(steps)
    found, through = _tests(steps), _gone_through(steps)
    return _with_entrances(code, steps, found, through) if found or through else code


def without_entrances(code: CodeType) -> CodeType:
    """The code that `entering` was given."""
    return next((x.code for x in code.co_consts if isinstance(x, Entrance)), code)


class _Step:
    """An instruction, with what makes its argument longer before it and what it keeps behind it: where it began, if it
    is not new, and begins, and where it jumps to."""

    __slots__ = ("arg", "at", "caches", "code", "long", "name", "start", "target")

    def __init__(self, code: int, arg: int, start: int = -1, long: int = 0, caches: int = 0, target: int = -1):
        self.code, self.arg, self.name = code, arg, dis.opname[code]
        self.start, self.at, self.long, self.caches, self.target = start, start, long, caches, target

    @property
    def size(self) -> int:
        return 2 * (self.long + 1 + self.caches)

    @property
    def place(self) -> int:
        """Where a frame is that runs it."""
        return self.at + 2 * self.long

    def __bytes__(self) -> bytes:
        args = self.arg.to_bytes(self.long + 1, "big")
        return b"".join([bytes([_LONG, x]) for x in args[:-1]]) + bytes([self.code, args[-1]]) + bytes(2 * self.caches)


def _new(name: str) -> _Step:
    return _Step(dis.opmap[name], 0, caches=dis._inline_cache_entries[dis.opmap[name]])  # type: ignore[attr-defined]


def _steps(code: CodeType) -> list[_Step]:
    found, begin = list[_Step](), 0
    all_steps = [x for x in dis.get_instructions(code) if x.opcode != _LONG]
    for x in all_steps:
        caches = dis._inline_cache_entries[x.opcode]  # type: ignore[attr-defined]
        target = x.argval if x.opcode in dis.hasjrel else -1
        found.append(_Step(x.opcode, x.arg or 0, begin, (x.offset - begin) // 2, caches, target))
        begin += found[-1].size
    return found


def _tests(steps: list[_Step]) -> dict[int, int]:
    """By the number of the instruction before which a loop is entered, that of the jump that asks the same at the end
    of turns.

    A test of several questions has as many entrances: behind each of them nothing but the others lie before the turn.
    """
    numbers = {x.start: k for k, x in enumerate(steps)}
    found: dict[int, int] = {}
    for k, step in enumerate(steps):
        if step.name in _BACK and numbers[step.target]:
            for first, last in _pairs(steps, numbers[step.target] - 1, k):
                found.setdefault(first + 1, last)
    return found


_BACK = {
    "POP_JUMP_BACKWARD_IF_TRUE": "POP_JUMP_FORWARD_IF_FALSE",
    "POP_JUMP_BACKWARD_IF_FALSE": "POP_JUMP_FORWARD_IF_TRUE",
}
_ASKED = {dis.opmap.get(x, -1) for x in _BACK}


def _goes_through(ops: bytes) -> bool:
    """Whether there may be such an instruction as `_gone_through` looks for: much cheaper to ask."""
    at = ops.find(_ITER)
    while at > 0:
        before = ops[:at].rstrip(bytes([dis.opmap["CACHE"]]))
        if ops[at + 1] in (_LONG, dis.opmap["FOR_ITER"]) and before[-1] != dis.opmap["CALL"]:
            return True
        at = ops.find(_ITER, at + 1)
    return False


def _gone_through(steps: list[_Step]) -> set[int]:
    """The numbers of the instructions that ask for the iterator of a `for` loop, but for those of what a call gives."""
    return {
        k for k in range(1, len(steps) - 1)
        if steps[k].code == _ITER and steps[k + 1].name == "FOR_ITER" and steps[k - 1].name != "CALL"
    }  # fmt: skip


def _pairs(steps: list[_Step], first: int, last: int) -> Iterator[tuple[int, int]]:
    """The jumps that ask the same, before a loop and at the end of its turns, where these are the last of them."""
    if steps[first].name != _BACK[steps[last].name]:
        return
    yield first, last
    while first:
        first, last = first - 1, last - 1
        if not _is_same(steps[first], steps[last]):
            return
        if steps[first].name in _BACK.values():
            yield first, last


def _is_same(a: _Step, b: _Step) -> bool:
    """Whether the instructions of two tests do the same."""
    asks = a.name in _BACK.values()
    return a.name == b.name and (asks or a.target < 0) and (a.target == b.target if asks else a.arg == b.arg)


def _continue_at_the_end(steps: list[_Step]) -> None:
    """Let a `continue` lead to the test at the end of the turn, instead of to the one before the loop.

    So turns that end early and others end with the same question.
    """
    numbers = {x.start: k for k, x in enumerate(steps)}
    for last, step in enumerate(steps):
        first = numbers[step.target] - 1 if step.name in _BACK else -1
        # Where the loop ends, both lead to the same place.
        if first < 0 or steps[first].target < 0 or numbers[steps[first].target] != last + 1:
            continue
        same = 1
        while first >= same and _is_same(steps[first - same], steps[last - same]):
            same += 1
        for x in steps[first + 1 : last]:
            if x.name in _FORWARD and 0 <= first - numbers[x.target] < same:
                at = last - first + numbers[x.target]
                x.code, x.name, x.target = dis.opmap[_FORWARD[x.name]], _FORWARD[x.name], steps[at].start


# Jumps back, and what leads forward.
_FORWARD = {"JUMP_BACKWARD": "JUMP_FORWARD", **{x: x.replace("BACK", "FOR") for x in _BACK}}


# -- code with more instructions --------------------------------------------------------------------------------
def _with_entrances(code: CodeType, steps: list[_Step], found: dict[int, int], through: set[int]) -> CodeType:
    lines = list(code.co_positions())
    made: list[tuple[_Step, _Lines]] = []
    places: list[tuple[_Step, _Step]] = []
    for k, step in enumerate(steps):
        if k in found:
            new = [_Step(x, len(code.co_consts) if x == _LOAD else 0) for x in (_LOAD, _NEGATE, _DROP)]
            made += [(x, lines[steps[k - 1].place // 2]) for x in new]
            places.append((new[1], steps[found[k]]))
        if k in through:
            new = [_Step(_LOAD, len(code.co_consts)), _Step(dis.opmap["SWAP"], 2), _new("BINARY_SUBSCR")]
            made += [(x, lines[step.place // 2]) for x in new]
        made.append((step, lines[step.place // 2]))
    moved = _arrange([x for x, _ in made])
    entrance = Entrance(code, {new.place: jump.place for new, jump in places})
    return code.replace(
        co_code=b"".join([bytes(x) for x, _ in made]), co_consts=(*code.co_consts, entrance),
        co_stacksize=code.co_stacksize + 1,
        co_linetable=b"".join(_line_table([y for x, y in made for _ in range(x.size // 2)], code.co_firstlineno)),
        co_exceptiontable=bytes(_exception_table(code.co_exceptiontable, {**moved, len(code.co_code): moved[-1]})),
    )  # fmt: skip


def _arrange(steps: list[_Step]) -> dict[int, int]:
    """Let the steps lie one after the other, with jumps as long as they have to be: by where each began, where it
    begins."""
    grown = True
    while grown:
        grown, at = False, 0
        for x in steps:
            x.at = at
            at += x.size
        moved = {x.start: x.at for x in steps if x.start >= 0}
        for x in steps:
            if x.target >= 0:
                x.arg = abs(moved[x.target] - x.at - x.size) // 2
                long = (max(x.arg.bit_length(), 1) - 1) // 8
                grown |= long > x.long
                x.long = max(x.long, long)
    return {**moved, -1: at}


def _line_table(lines: list[_Lines], first: int) -> Iterator[bytes]:
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
