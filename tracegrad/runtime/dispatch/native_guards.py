"""Compile guards to native checks of the entry point: comparisons of pointers and dict items in memory.

A variable of an enclosing function is a pointer in its cell. The code of a function is a pointer in the function
object. A global variable or builtin is an item of a dict. The entry point compares the location with the traced object
in machine code, which is much faster than a check in Python. The offsets are found on live objects. If they are not
found, the guards stay in Python.
"""

from __future__ import annotations

import gc
import types
from collections.abc import Collection, Sequence
from typing import Any

from tracegrad.cpython.object_layout import cell_offset, code_offset, length_offset, mro_offset
from tracegrad.cpython.raw_memory import pointer_at
from tracegrad.trace.driver.trace import Trace
from tracegrad.trace.sources.sources import (
    ArgumentLeaf,
    Attribute,
    ClosureCell,
    Fixed,
    Item,
    ModuleGlobal,
    Source,
    Static,
)
from tracegrad.trace.sources.state_sources import Name
from tracegrad.trace.world.guards import SourceGuard

# The fields of `codegen.entry.signature.GuardSlot`.
SlotFields = tuple[int, int, int, int]
# Flags of NumPy's arrays (NPY_ARRAY_WRITEABLE, NPY_ARRAY_OWNDATA).
_WRITEABLE, _OWNS_DATA = 0x0400, 0x0004


def exact(guard: SourceGuard) -> bool:
    """Whether an equal object of the same type fulfills the guard."""
    expected = guard.expected
    known = type(expected) in (int, str, bytes) or (type(expected) is float and expected != 0)
    return guard.kind == "equals" and known and expected == expected


def empty(space: dict[Any, Any]) -> SlotFields | None:
    """The location that holds its expected value exactly if a dict is empty."""
    offset = length_offset()
    return None if offset is None else (0, id(space) + offset, 0, 0)


def guard_slots_of(guard: SourceGuard, held: list[tuple[tuple[type, ...], str]]) -> Sequence[SlotFields]:
    """The locations that hold their expected values exactly if the guard holds; empty if they are unknown. The caller
    must keep the guard, and the objects in `held`, alive."""
    if guard.kind not in ("is", "equals", "absent"):
        return ()
    source = guard.source
    wanted, equal = (0, 0) if guard.kind == "absent" else (id(guard.expected), int(exact(guard)))
    if type(source) is Name and type(source.name) is str:
        results = (id(source.beneath), id(source.name), wanted, equal)
        return ((id(source.parent), id(source.name), 0, 0), results)
    if type(source) is Static and guard.kind != "absent":
        return _of_class(source, wanted, equal, held)
    space = source.parent if type(source) is ModuleGlobal else _dict_of(source)
    if type(space) is dict and type(source.name) in (str, bytes):
        return ((id(space), id(source.name), wanted, equal),)
    address = _address(source)
    if guard.kind == "absent" or address is None or pointer_at(address) != wanted:
        return ()
    return ((0, address, wanted, equal),)


def _of_class(source: Static, wanted: int, equal: int, held: list[Any]) -> Sequence[SlotFields]:
    """The locations of a class attribute: the bases of the class, the name in its dict, and its absence in earlier
    bases."""
    cls, offset, name = source.parent, mro_offset(), source.name
    order = cls.__mro__
    if offset is None or pointer_at(id(cls) + offset) != id(order):
        return ()
    results: list[SlotFields] = [(0, id(cls) + offset, id(order), 0)]
    for each in order:
        space = gc.get_referents(vars(each))[0]
        if type(space) is not dict or space != vars(each):
            return ()
        present = name in space
        results.append((id(space), id(name), wanted if present else 0, equal if present else 0))
        if present:
            held.append((order, name))
            return results
    return ()


def _dict_of(source: Source) -> object:
    """The dict that contains the source, if it is fixed."""
    return source.parent.parent if type(source) is Item and type(source.parent) is Fixed else None


def _address(source: Source) -> int | None:
    """The address of the pointer to a source's value, if the pointer does not move."""
    if type(source) is ClosureCell and type(source.parent) is types.CellType:
        owner, offset = source.parent, cell_offset()
    elif type(source) is Attribute and source.name == "__code__" and type(source.parent) is Fixed:
        owner, offset = source.parent.read(), code_offset()
        if type(owner) is not types.FunctionType:
            return None
    else:
        return None
    return None if offset is None else id(owner) + offset


def disjoint_checks_of(
    trace: Trace, count: int, donors: Collection[int] = ()
) -> list[tuple[int, int, int, int, int]] | None:
    """The overlap checks (`signature.DisjointCheck`) for written and donated inputs, with `count` inputs from the
    arguments; None if another array is written."""
    input_index = {c.source.key: count + k for k, c in enumerate(trace.captures) if c.source is not None}
    for i in range(count):
        argument = ArgumentLeaf(None, i)
        input_index |= {argument.key: i, Attribute(argument, "array").key: i}
    if not all(source.key in input_index for source in trace.written):
        return None
    if not trace.written and not donors:
        return []
    sizes = {i: x.nbytes for i, x in enumerate(trace.graph.avals) if trace.kinds[i] == "array"}
    written = [(input_index[source.key], _WRITEABLE) for source in trace.written]
    written += [(i, _WRITEABLE | _OWNS_DATA) for i in donors]
    return [(i, k, sizes[i], size, flags) for i, flags in written for k, size in sizes.items()]
