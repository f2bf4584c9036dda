"""States of loop capture, and the transitions between them.

The README of `tracegrad.trace.loops` shows the diagram.
"""

from __future__ import annotations

from enum import Enum


class LoopState(Enum):
    """What loop capture does. The module of the same name in this package does it."""

    RECORD = "record"
    ASK = "ask"
    CLOSE = "close"
    WIDEN = "widen"
    RESTART = "restart"


# Why one state follows another.
TRANSITIONS: dict[tuple[LoopState, LoopState], str] = {
    (LoopState.RECORD, LoopState.ASK): "traced code reads a condition in a loop, or enters a loop",
    (LoopState.ASK, LoopState.RECORD): "a path may begin here, or the frame state is not understood",
    (LoopState.ASK, LoopState.CLOSE): "the frame is in the state again in which the path began",
    (LoopState.ASK, LoopState.WIDEN): "the frame is in another state",
    (LoopState.CLOSE, LoopState.RECORD): "the iterations are a loop now, or cannot be one",
    (LoopState.WIDEN, LoopState.RECORD): "numbers that differ are traced now, or the loop stays unrolled",
    (LoopState.RECORD, LoopState.RESTART): "traced code does what the loop so far cannot represent",
    (LoopState.ASK, LoopState.RESTART): "the loop draws random numbers, or writes to elements of its lists",
    (LoopState.CLOSE, LoopState.RESTART): "the loop can begin earlier, or its iterations differ",
    (LoopState.WIDEN, LoopState.RESTART): "variables must be traced from the first iteration on",
    (LoopState.RESTART, LoopState.RECORD): "another attempt to trace the call knows one more fact",
}
