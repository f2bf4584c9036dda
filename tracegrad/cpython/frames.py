"""Read the frames of CPython: the caller, its variables, and the instruction that it runs.

`f_lasti` is the offset of an instruction in the code of the frame, in bytes. A specialized instruction is read back by
`co_code` as the general one. `frame_at(0)` is the caller of `frame_at` itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from operator import attrgetter
from types import CodeType, FrameType, TracebackType
from typing import Any

from tracegrad.cpython.instruction_set import (
    ATTRIBUTE_OPCODES,
    CACHE,
    CALL_OPCODES,
    RAISE_OPCODES,
    is_remainder,
    is_subscript,
)

frame_at: Callable[[int], FrameType] = sys._getframe
instruction_of: Callable[[FrameType], int] = attrgetter("f_lasti")
local_variables: Callable[[FrameType], dict[str, Any]] = attrgetter("f_locals")


def _running(frame: FrameType) -> bytes:
    """The code of the frame from the instruction that it runs. During a call of a Python function, `f_lasti` may be at
    the last inline cache of the instruction."""
    code, at = frame.f_code.co_code, frame.f_lasti
    while code[at] == CACHE and at:
        at -= 2
    return code[at:]


def formats_text(frame: FrameType) -> bool:
    """Whether the frame runs `%`, which formats a number as text in `"%g" % x`."""
    code = _running(frame)
    return is_remainder(code[0], code[1])


def loads_attribute(frame: FrameType) -> bool:
    """Whether the frame loads an attribute or a method."""
    return _running(frame)[0] in ATTRIBUTE_OPCODES


def reads_item(frame: FrameType, methods: frozenset[str]) -> bool:
    """Whether the frame indexes an object, or makes a call where its code names one of these methods."""
    code = _running(frame)
    return is_subscript(code[0], code[1]) or (code[0] in CALL_OPCODES and not methods.isdisjoint(frame.f_code.co_names))


def traceback_of(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    """The frames that an exception has passed, outermost first, each with the instruction that it ended."""
    traceback: TracebackType | None = error.__traceback__
    while traceback is not None:
        yield traceback.tb_frame, traceback.tb_lasti
        traceback = traceback.tb_next


def is_raised_by_statement(code: CodeType, instruction: int) -> bool:
    """Whether the instruction is a `raise` or a failed `assert`, not an operation."""
    return code.co_code[instruction] in RAISE_OPCODES
