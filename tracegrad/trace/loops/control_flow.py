"""Find the conditional jump that traced code is at, with the counters of the loops around it.

At a conditional jump, the stack of the frame holds only the condition and the iterators of the enclosing loops
(`tracegrad.trace.bytecode.jumps`).
"""

from __future__ import annotations

import inspect
from types import CodeType, FrameType

from tracegrad.cpython.frames import frame_at, instruction_of
from tracegrad.trace.builder.facts import LoopFact, LoopFactKind
from tracegrad.trace.bytecode.exception_regions import Namespace
from tracegrad.trace.bytecode.jumps import Jump, jumps_of
from tracegrad.trace.loops.range_counter import Counter, counter_of

_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class LoopJump:
    """A conditional jump in a frame, with the counters of the enclosing loops."""

    def __init__(self, frame: FrameType, number: int, jump: Jump, counters: list[Counter]):
        self.frame, self.number, self.counters, self._jump = frame, number, counters, jump

    @property
    def instruction(self) -> tuple[CodeType, int]:
        """The code object and the offset of the jump."""
        return self.frame.f_code, self.number

    def fact(self, kind: LoopFactKind) -> LoopFact:
        """A fact about the loop of the jump."""
        return LoopFact(kind, self.frame.f_code, self.number)

    @property
    def dead(self) -> frozenset[str]:
        """The local variables that are dead after the jump (liveness)."""
        return self._jump.dead

    @property
    def within(self) -> frozenset[int]:
        """The instructions of the innermost loop around the jump."""
        return self._jump.within

    @property
    def appended(self) -> frozenset[str]:
        """The local variables that this loop only appends to and reads single elements of."""
        return self._jump.appended

    @property
    def read(self) -> frozenset[str]:
        """The local variables that this loop reads elements of."""
        return self._jump.read

    @property
    def only_read(self) -> frozenset[str]:
        """The local variables that this loop only reads single elements of, or measures by `len`."""
        return self._jump.only_read

    def target(self, condition: bool) -> int:
        """The instruction where the code continues, given the condition."""
        return self._jump.ends[condition]

    def leads_back(self, condition: bool) -> bool:
        """Whether the jump may be reached again within its innermost loop, given the condition."""
        return condition in self._jump.back


def condition_jump() -> LoopJump | None:
    """The jump for which traced code evaluates a condition now; None if it is not a jump in a loop, or the stack holds
    more."""
    frame = _user_frame()
    return None if frame is None else _loop_jump(frame, instruction_of(frame))


def counters_of_condition() -> list[Counter]:
    """The counters of the loops around the jump for which traced code evaluates a condition now, innermost first."""
    frame = _user_frame()
    jump = None if frame is None else jumps_of(frame.f_code).asking.get(instruction_of(frame))
    result = [] if jump is None else [counter_of(frame, at) for at in reversed(jump.counted)]
    return [x for x in result if x is not None]


def entered_jump(frame: FrameType, number: int) -> LoopJump | None:
    """The conditional jump with this number, as if traced code had evaluated it to reach the present instruction."""
    loop_jump = _loop_jump(frame, number) if _runs_to_its_end(frame) else None
    return (
        loop_jump
        if loop_jump is not None and not (loop_jump.leads_back(True) and loop_jump.leads_back(False))
        else None
    )


def _loop_jump(frame: FrameType, number: int) -> LoopJump | None:
    jump = jumps_of(frame.f_code).asking.get(number)
    if jump is None:
        return None
    counters = [x for at in jump.counted if (x := counter_of(frame, at)) is not None and x.shows_all]
    return LoopJump(frame, number, jump, counters) if len(counters) == len(jump.counted) else None


def count_jump() -> LoopJump | None:
    """The jump that begins the present iteration of a counted loop; None in suspended code (generators)."""
    frame = _user_frame()
    if frame is None:
        return None
    number = instruction_of(frame)
    jump, counter = jumps_of(frame.f_code).counting.get(number), counter_of(frame, number)
    return None if counter is None or jump is None else LoopJump(frame, number, jump, [counter])


def _user_frame() -> FrameType | None:
    """The calling frame of traced code, if its function is not a generator or coroutine."""
    frame: FrameType | None = frame_at(2)
    while frame is not None and not isinstance(frame.f_globals, Namespace):
        frame = frame.f_back
    return frame if frame is not None and _runs_to_its_end(frame) else None


def _runs_to_its_end(frame: FrameType) -> bool:
    flags = frame.f_code.co_flags
    return not flags & _SUSPENDED and bool(flags & inspect.CO_OPTIMIZED)


def within_loop() -> bool:
    """Whether traced code evaluates a condition inside a loop.

    >>> within_loop()  # this is no traced code
    False
    """
    return bool(counters_of_condition()) or condition_jump() is not None
