"""Serialize the facts of a trace: what other traces of the function must know.

Most facts (`tracegrad.trace.builder.facts`) are about loops, and name positions in traced code. Traced code is
generated in each process, so a position is stored relative to the user's code that it was made from.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable
from dataclasses import fields
from enum import Enum
from typing import Any

from tracegrad.runtime.compile.fingerprint import Unkept
from tracegrad.runtime.persistence.object_refs import ObjectReader, ObjectWriter
from tracegrad.trace.builder.facts import (
    AppendedListFact,
    ContainerSchema,
    Fact,
    IndexedListFact,
    LeafSchema,
    LoopFact,
    LoopFactKind,
    NumberFact,
    TraceFact,
    VariableFact,
    Variation,
    ViewFact,
)
from tracegrad.trace.bytecode.nested_code import code_objects
from tracegrad.trace.driver.trace import Trace
from tracegrad.trace.rewriting.call_sites import marked

_ENUMS = {cls.__name__: cls for cls in (TraceFact, LoopFactKind, Variation)}
_OF_LOOPS: dict[str, Any] = {cls.__name__: cls for cls in (LoopFact, VariableFact, AppendedListFact, IndexedListFact)}
_OF_SOURCES: dict[str, type[NumberFact | ViewFact]] = {"NumberFact": NumberFact, "ViewFact": ViewFact}
_SCHEMAS: dict[str, Callable[..., Hashable]] = {
    "tuple": lambda *parts: parts,
    "LeafSchema": LeafSchema,
    "ContainerSchema": ContainerSchema,
}


def serialize_facts(to: ObjectWriter, trace: Trace) -> list[object]:
    """Serialize all facts. The assumptions about functions must be written before."""
    if not trace.facts:
        return []
    sources = [*[x.source for x in trace.captures], *[x.source for x in trace.world.guards]]
    sources_by_key = {source.key: source for source in sources if source is not None}
    users = [x for x in to.held if isinstance(x, types.CodeType)]
    codes = {marked(code): [to.number(x), i] for x in users for i, code in enumerate(code_objects(x))}

    def serialized(x: Any) -> object:
        name = type(x).__name__
        if isinstance(x, Enum):
            return [name, x.name]
        if isinstance(x, NumberFact | ViewFact):
            if x.source not in sources_by_key:
                raise Unkept("a number that was an input, and is not read any more")
            return [name, to.source(sources_by_key[x.source])]
        if name in _OF_LOOPS:
            return [name, *[serialized(getattr(x, field.name)) for field in fields(x)]]
        if name in _SCHEMAS:
            return [name, *map(serialized, x)]
        return ["code", *codes[x]] if isinstance(x, types.CodeType) and x in codes else to.value(x)

    return [serialized(fact) for fact in sorted(trace.facts, key=repr)]


def restore_fact(of: ObjectReader, x: object) -> Fact:
    """Restore one fact of the list."""
    result: Fact = _restored(of, x)
    return result


def _restored(of: ObjectReader, x: Any) -> Any:
    kind, *parts = x if type(x) is list else ("", x)
    if kind in _ENUMS:
        return _ENUMS[kind][parts[0]]
    if kind in _OF_SOURCES:
        return _OF_SOURCES[kind](of.source(parts[0]).key)
    if kind == "code":
        return marked([*code_objects(of.held[parts[0]])][parts[1]])
    make = _OF_LOOPS.get(kind) or _SCHEMAS.get(kind)
    return of.value(x) if make is None else make(*[_restored(of, part) for part in parts])
