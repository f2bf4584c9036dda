"""The jumps of traced code that ask for a truth within a loop, as its instructions have them."""

from __future__ import annotations

import dis
import functools
import inspect
import itertools
import sys
from types import CodeType
from typing import Any

from tracegrad.trace.tries import Namespace

__all__ = ["Place", "place_of_question", "within_loop"]

_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
# After these does not come the next instruction.
_ENDS = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_NO_INTERRUPT", "RETURN", "RAISE", "RERAISE")


class Place:
    """A jump of the code of a frame."""

    def __init__(self, frame: Any):
        self.frame, self.number = frame, frame.f_lasti

    def leads_back(self, answer: bool) -> bool:
        """Whether the jump may be reached again, within the innermost loop around it, if the truth is this."""
        return answer in _jumps(self.frame.f_code)[self.number]


def place_of_question() -> Place | None:
    """Where traced code asks for a truth now; None if that is not a jump within a loop, with nothing on the stack."""
    frame: Any = sys._getframe(1)
    while frame is not None and not isinstance(frame.f_globals, Namespace):
        frame = frame.f_back
    if frame is None or frame.f_code.co_flags & _SUSPENDED or not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return None
    return Place(frame) if frame.f_lasti in _jumps(frame.f_code) else None


def within_loop() -> bool:
    """Whether traced code asks at such a place.

    >>> within_loop()  # this is no traced code
    False
    """
    return place_of_question() is not None


@functools.lru_cache(maxsize=4096)
def _jumps(code: CodeType) -> dict[int, frozenset[bool]]:
    """The instructions within loops that ask for the truth of the one value on the stack, and the answers that may lead
    back to them."""
    steps = list(dis.get_instructions(code))
    follows = {a.offset: b.offset for a, b in itertools.pairwise(steps)}
    depth, edges = _flow(steps, follows)
    loops = _loops([range(y, x + 1) for x, ys in edges.items() for y in ys if y <= x])
    found = {}
    for step in steps:
        around = [loop for loop in loops if step.offset in loop]
        if not around or depth.get(step.offset) != 1 or not step.opname.startswith(("POP_JUMP", "TO_BOOL")):
            continue
        jump = step if step.opname != "TO_BOOL" else next(x for x in steps if x.offset == follows[step.offset])
        if "NONE" in jump.opname:
            continue
        if_jumps = "TRUE" in jump.opname
        ends = {if_jumps: jump.argval, not if_jumps: follows[jump.offset]}
        inside = min(around, key=len)
        back = [answer for answer, start in ends.items() if step.offset in _reached(edges, start, inside)]
        if back:
            found[step.offset] = frozenset(back)
    return found


def _flow(steps: list[Any], follows: dict[int, int]) -> tuple[dict[int, int], dict[int, list[int]]]:
    """How many values lie on the stack at each instruction, and where it leads; but for handlers of exceptions."""
    known = {step.offset: step for step in steps}
    depth, edges, waiting = {0: 0}, dict[int, list[int]](), [0]
    while waiting:
        step = known[waiting.pop()]
        targets = []
        if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
            targets.append((step.argval, dis.stack_effect(step.opcode, step.arg, jump=True)))
        if not step.opname.startswith(_ENDS):
            targets.append((follows[step.offset], dis.stack_effect(step.opcode, step.arg, jump=False)))
        edges[step.offset] = [offset for offset, _ in targets]
        for offset, effect in targets:
            if offset not in depth:
                depth[offset] = depth[step.offset] + effect
                waiting.append(offset)
    return depth, edges


def _loops(circles: list[range]) -> list[range]:
    """The ranges with those as one that overlap, neither within the other."""
    found: list[range] = []
    for new in sorted(circles, key=len):
        for old in [x for x in found if _overlap(x, new) or _overlap(new, x)]:
            found.remove(old)
            new = range(min(old.start, new.start), max(old.stop, new.stop))
        found.append(new)
    return found


def _overlap(x: range, y: range) -> bool:
    return x.start < y.start < x.stop < y.stop


def _reached(edges: dict[int, list[int]], start: int, inside: range) -> set[int]:
    """The instructions of a range that are reached from one without leaving it."""
    found, waiting = set[int](), [start]
    while waiting:
        at = waiting.pop()
        if at in inside and at not in found:
            found.add(at)
            waiting += edges.get(at, [])
    return found
