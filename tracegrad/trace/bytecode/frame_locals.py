"""Read and set the local and closure variables of frames of traced code."""

from __future__ import annotations

import ctypes
import sys
from typing import Any


def variables(frame: Any) -> dict[str, Any]:
    """The local and closure variables of a frame."""
    table = dict(frame.f_locals)
    if sys.version_info < (3, 13):
        frame.f_locals.clear()  # the frame stores this dict, which would extend the lifetime of the values
    return table


def set_variables(frame: Any, new: dict[str, Any]) -> None:
    """Assign variables of a frame."""
    held = frame.f_locals
    held.update(new)
    if sys.version_info < (3, 13):
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
        held.clear()
