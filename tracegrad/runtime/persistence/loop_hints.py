"""Serialize the loop hints of a trace: what a retrace must treat as dynamic (`varying`).

Most hints (`tracegrad.trace.builder.abort`) are about loops, and name positions in traced code. Traced code is
generated in each process, so a position is stored relative to the user's code that it was made from.
"""

from __future__ import annotations

import types
from collections.abc import Hashable
from typing import Any

from tracegrad.runtime.compile.fingerprint import Unkept, inner_codes
from tracegrad.runtime.persistence.object_refs import Reader, Writer
from tracegrad.trace.driver.trace import Trace
from tracegrad.trace.loops.element_schema import FORMS
from tracegrad.trace.rewriting.call_sites import marked

__all__ = ["read_varying", "spell_varying"]

_TUPLES: dict[str, Any] = {"tuple": lambda *parts: parts, **{cls.__name__: cls for cls in FORMS}}


def spell_varying(to: Writer, trace: Trace) -> list[Any]:
    """Serialize all hints. The assumptions about functions must be written before."""
    if not trace.varying:
        return []
    sources = [*[x.source for x in trace.captures], *[x.source for x in trace.world.guards]]
    places = {source.key: source for source in sources if source is not None}
    users = [x for x in to.held if isinstance(x, types.CodeType)]
    codes = {marked(code): [to.number(x), i] for x in users for i, code in enumerate(inner_codes(x))}

    def spelled(x: Any) -> Any:
        if isinstance(x, types.CodeType) and x in codes:
            return ["traced", *codes[x]]
        return [type(x).__name__, *map(spelled, x)] if type(x).__name__ in _TUPLES else to.value(x)

    result, keys = [], list[Any](trace.varying)
    for key in sorted(keys, key=repr):
        if key in places:
            result.append(["at", to.source(places[key])])
        elif isinstance(key, str) or isinstance(key[0], str):
            result.append(spelled(key))
        else:
            raise Unkept("a number that was an input, and is not read any more")
    return result


def read_varying(of: Reader, x: Any) -> Hashable:
    """Restore one hint of the list."""
    kind, *rest = x if type(x) is list else ("", x)
    if kind == "at":
        return of.source(rest[0]).key
    if kind == "traced":
        return marked([*inner_codes(of.held[rest[0]])][rest[1]])
    if kind in _TUPLES:
        result: Hashable = _TUPLES[kind](*[read_varying(of, part) for part in rest])
        return result
    value: Hashable = of.value(x)
    return value
