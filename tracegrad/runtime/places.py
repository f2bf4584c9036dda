"""Guards that the entry point of a program checks itself, by a look at a place in memory.

A variable of an enclosing function is a pointer in its cell, the code of a function one in the function object. That
such a pointer is the one that the trace has seen is a comparison in machine code; in Python it costs a tenth of a small
call. The offsets are found on live objects; where they are not, the guards stay Python's.
"""

from __future__ import annotations

import ctypes
import types
from functools import cache
from typing import Any

from tracegrad.trace.captures import Guard
from tracegrad.trace.sources import Attribute, Cell, Fixed

__all__ = ["address_of"]

_POINTER = ctypes.sizeof(ctypes.c_void_p)


def _offset(found: Any, *examples: tuple[Any, Any]) -> int | None:
    """Where all of these objects have the address of what is beside them; None if there is no such place."""
    for offset in range(2 * _POINTER, object.__sizeof__(found), _POINTER):
        if all(ctypes.c_void_p.from_address(id(x) + offset).value == id(held) for x, held in examples):
            return offset
    return None


@cache
def _of_cells() -> int | None:
    one, two = object(), object()
    a, b = types.CellType(one), types.CellType(two)
    return _offset(a, (a, one), (b, two))


@cache
def _of_code() -> int | None:
    def first() -> None: ...
    def second() -> None: ...

    return _offset(first, (first, first.__code__), (second, second.__code__))


def address_of(guard: Guard) -> int | None:
    """The address of the pointer to what a guard expects, if it is one that stays where it is."""
    source = guard.source
    if guard.kind not in ("is", "equals"):
        return None
    if type(source) is Cell and type(source.parent) is types.CellType:
        owner, offset = source.parent, _of_cells()
    elif type(source) is Attribute and source.name == "__code__" and type(source.parent) is Fixed:
        owner, offset = source.parent.read(), _of_code()
        if type(owner) is not types.FunctionType:
            return None
    else:
        return None
    if offset is None or ctypes.c_void_p.from_address(id(owner) + offset).value != id(guard.expected):
        return None
    return id(owner) + offset
