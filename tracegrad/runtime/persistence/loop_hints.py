"""Serialize the loop hints of a trace: what a retrace must treat as dynamic (`varying`).

Most hints (`tracegrad.trace.builder.abort`) are about loops, and name positions in traced code. Traced code is
generated in each process, so a position is stored relative to the user's code that it was made from.
"""

from __future__ import annotations

import types
from collections.abc import Hashable
from typing import Any

from tracegrad.runtime.compile.fingerprint import Unkept, inner_codes
from tracegrad.runtime.persistence.object_refs import ObjectReader, ObjectWriter
from tracegrad.trace.driver.trace import Trace
from tracegrad.trace.loops.element_schema import FORMS
from tracegrad.trace.rewriting.call_sites import marked

__all__ = ["restore_fact", "serialize_facts"]

_TUPLES: dict[str, Any] = {"tuple": lambda *parts: parts, **{cls.__name__: cls for cls in FORMS}}


def serialize_facts(to: ObjectWriter, trace: Trace) -> list[Any]:
    """Serialize all hints. The assumptions about functions must be written before."""
    if not trace.facts:
        return []
    sources = [*[x.source for x in trace.captures], *[x.source for x in trace.world.guards]]
    sources_by_key = {source.key: source for source in sources if source is not None}
    users = [x for x in to.held if isinstance(x, types.CodeType)]
    codes = {marked(code): [to.number(x), i] for x in users for i, code in enumerate(inner_codes(x))}

    def serialized(x: Any) -> Any:
        if isinstance(x, types.CodeType) and x in codes:
            return ["traced", *codes[x]]
        return [type(x).__name__, *map(serialized, x)] if type(x).__name__ in _TUPLES else to.value(x)

    result, keys = [], list[Any](trace.facts)
    for key in sorted(keys, key=repr):
        if key in sources_by_key:
            result.append(["at", to.source(sources_by_key[key])])
        elif isinstance(key, str) or isinstance(key[0], str):
            result.append(serialized(key))
        else:
            raise Unkept("a number that was an input, and is not read any more")
    return result


def restore_fact(of: ObjectReader, x: Any) -> Hashable:
    """Restore one hint of the list."""
    kind, *rest = x if type(x) is list else ("", x)
    if kind == "at":
        return of.source(rest[0]).key
    if kind == "traced":
        return marked([*inner_codes(of.held[rest[0]])][rest[1]])
    if kind in _TUPLES:
        result: Hashable = _TUPLES[kind](*[restore_fact(of, item) for item in rest])
        return result
    value: Hashable = of.value(x)
    return value
