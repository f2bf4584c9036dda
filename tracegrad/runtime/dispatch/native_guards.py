"""What the entry point of a program checks itself, by a look at a place in memory, and takes apart itself.

A variable of an enclosing function is a pointer in its cell, the code of a function one in the function object, a
global variable or a built-in an item of a dict. That such a place holds what the trace has seen is a comparison in
machine code; in Python it costs a tenth of a small call, and the keys of a dict of parameters cost half of one. The
offsets are found on live objects; where they are not, the guards stay Python's.
"""

from __future__ import annotations

import gc
import types
from collections.abc import Collection, Sequence
from ctypes import c_ssize_t, c_void_p
from functools import cache
from typing import Any

from tracegrad.runtime.execution.entry_callable import cell_offset, offset_of
from tracegrad.trace.driver.trace import Trace
from tracegrad.trace.sources.sources import Argument, Attribute, Cell, Fixed, Global, Item, Source, Static
from tracegrad.trace.sources.state_sources import Name
from tracegrad.trace.world.guards import Guard

__all__ = ["Place", "apart_of", "empty", "exact", "places_of"]

# As `codegen.entry.Place`, for the machine.
Place = tuple[int, int, int, int]
# Flags of NumPy's arrays (NPY_ARRAY_WRITEABLE, NPY_ARRAY_OWNDATA).
_WRITEABLE, _OWNS_DATA = 0x0400, 0x0004
# Where all objects with a length have it.
_LENGTH = 16


def exact(guard: Guard) -> bool:
    """Whether an object equal to the one that is expected, and of its type, will do."""
    expected = guard.expected
    known = type(expected) in (int, str, bytes) or (type(expected) is float and expected != 0)
    return guard.kind == "equals" and known and expected == expected


@cache
def _length_offset() -> int | None:
    """Where a dict has its length."""
    examples = [dict.fromkeys(range(n)) for n in (0, 3, 1000)]
    fits = all(c_ssize_t.from_address(id(x) + _LENGTH).value == len(x) for x in examples)
    return _LENGTH if fits else None


def empty(space: dict[Any, Any]) -> Place | None:
    """The place that holds what it does just where a dict is empty."""
    offset = _length_offset()
    return None if offset is None else (0, id(space) + offset, 0, 0)


@cache
def _of_code() -> int | None:
    def first() -> None: ...
    def second() -> None: ...

    return offset_of(first, (first, first.__code__), (second, second.__code__))


@cache
def _of_mro() -> int | None:
    class First: ...

    class Second(First): ...

    return offset_of(First, (First, First.__mro__), (Second, Second.__mro__))


def places_of(guard: Guard, held: list[Any]) -> Sequence[Place]:
    """The places that hold what they do just where the guard holds; none if it is not known where to look. Who looks
    has to keep alive the guard, and what is `held` here."""
    if guard.kind not in ("is", "equals", "absent"):
        return ()
    source = guard.source
    wanted, equal = (0, 0) if guard.kind == "absent" else (id(guard.expected), int(exact(guard)))
    if type(source) is Name and type(source.name) is str:
        found = (id(source.beneath), id(source.name), wanted, equal)
        return ((id(source.parent), id(source.name), 0, 0), found)
    if type(source) is Static and guard.kind != "absent":
        return _of_class(source, wanted, equal, held)
    space = source.parent if type(source) is Global else _dict_of(source)
    if type(space) is dict and type(source.name) in (str, bytes):
        return ((id(space), id(source.name), wanted, equal),)
    address = _address(source)
    if guard.kind == "absent" or address is None or c_void_p.from_address(address).value != wanted:
        return ()
    return ((0, address, wanted, equal),)


def _of_class(source: Static, wanted: int, equal: int, held: list[Any]) -> Sequence[Place]:
    """The places where a class has something: its bases, the name in its dict, and its absence in those before."""
    cls, offset, name = source.parent, _of_mro(), source.name
    order = cls.__mro__
    if offset is None or c_void_p.from_address(id(cls) + offset).value != id(order):
        return ()
    found: list[Place] = [(0, id(cls) + offset, id(order), 0)]
    for each in order:
        space = gc.get_referents(vars(each))[0]
        if type(space) is not dict or space != vars(each):
            return ()
        present = name in space
        found.append((id(space), id(name), wanted if present else 0, equal if present else 0))
        if present:
            held.append((order, name))
            return found
    return ()


def _dict_of(source: Source) -> Any:
    """The object that the source is an item of, if it is always the same."""
    return source.parent.parent if type(source) is Item and type(source.parent) is Fixed else None


def _address(source: Source) -> int | None:
    """The address of the pointer to what a source leads to, if it is one that stays where it is."""
    if type(source) is Cell and type(source.parent) is types.CellType:
        owner, offset = source.parent, cell_offset()
    elif type(source) is Attribute and source.name == "__code__" and type(source.parent) is Fixed:
        owner, offset = source.parent.read(), _of_code()
        if type(owner) is not types.FunctionType:
            return None
    else:
        return None
    return None if offset is None else id(owner) + offset


def apart_of(trace: Trace, count: int, donors: Collection[int] = ()) -> list[tuple[int, int, int, int, int]] | None:
    """What the entry point checks of inputs that a call writes to, and of those that are given away, as
    `codegen.entry.Apart`, with `count` inputs from the arguments; None if something else is written to."""
    places = {c.source.key: count + k for k, c in enumerate(trace.captures) if c.source is not None}
    for i in range(count):
        argument = Argument(None, i)
        places |= {argument.key: i, Attribute(argument, "array").key: i}
    if not all(source.key in places for source in trace.written):
        return None
    if not trace.written and not donors:
        return []
    sizes = {i: x.nbytes for i, x in enumerate(trace.graph.avals) if trace.kinds[i] == "array"}
    written = [(places[source.key], _WRITEABLE) for source in trace.written]
    written += [(i, _WRITEABLE | _OWNS_DATA) for i in donors]
    return [(i, k, sizes[i], size, flags) for i, flags in written for k, size in sizes.items()]
