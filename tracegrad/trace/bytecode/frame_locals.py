"""Read and set the local and closure variables of frames of traced code."""

from __future__ import annotations

import ctypes
import functools
import gc
import sys
from types import FrameType
from typing import Any

from tracegrad.cpython.raw_memory import pointer_at


def variables(frame: FrameType) -> dict[str, Any]:
    """The local and closure variables of a frame."""
    table = dict(frame.f_locals)
    if sys.version_info < (3, 13):
        frame.f_locals.clear()  # the frame stores this dict, which would extend the lifetime of the values
    return table


def set_variables(frame: FrameType, new: dict[str, Any]) -> None:
    """Assign variables of a frame, whose old values may end with that."""
    held = frame.f_locals
    held.update(new)
    if sys.version_info < (3, 13):
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
        held.clear()
    elif sys.version_info >= (3, 14):
        _release_overwritten(frame)


# Since Python 3.14, the stack borrows local variables, and a frame keeps overwritten values until it ends. Code is
# traced where its stack borrows nothing that is used again (`jumps.py`), and old values would seem to be in use.
def _release_overwritten(frame: FrameType) -> None:
    offset = _overwritten_offset()
    field = 0 if offset is None else id(frame) + offset
    if field and (values := pointer_at(field)):
        ctypes.c_void_p.from_address(field).value = None
        ctypes.pythonapi.Py_DecRef(ctypes.c_void_p(values))


@functools.cache
def _overwritten_offset() -> int | None:
    """The offset of the tuple of overwritten values in a frame; None if it is not found."""
    frame, value = sys._getframe(), object()
    address, old = id(frame), id(value)
    frame.f_locals["value"] = None
    overwritten = [id(x) for x in gc.get_referents(frame) if type(x) is tuple and any([id(y) == old for y in x])]  # noqa: C419
    offsets = [offset for offset in range(16, sys.getsizeof(frame), 8) if pointer_at(address + offset) in overwritten]
    del frame  # a frame that refers to itself keeps its callers
    return offsets[0] if offsets else None
