"""Write the header of a fast path: argument binding, and the fallback to the slow path.

The `__call__` of a class takes arguments as the user's function does, by position or by name, so that Python binds
them. An omitted argument is MISS, and no program computes with it.
"""

from __future__ import annotations

import builtins
import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tracegrad.runtime.execution.entry_callable import MISS

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_BUILT_IN = frozenset(vars(builtins))
# Numbered names of the code, by what they stand for.
_NUMBERED = re.compile("(argument|keyword|object|item|read|input|tensor|array|captured|holder|value|shared)_[0-9]+")
# Other names reserved by the code, besides builtins and capitals.
_RESERVED = frozenset([
    "self", "more", "keywords", "fits", "out", "outputs", "node", "call", "entry", "record", "tape", "like", "tensor",
    "spent", "check", "apart", "asarray", "is_", "ndarray", "unusual", "sprung", "set_attribute", "delete_attribute",
    "update_tensor", "without_gaps", "rows", "laid",
])  # fmt: skip


class Header(NamedTuple):
    """The header of a fast path: the names of positional and keyword arguments in canonical form, the `def` line, the
    checks for other kinds of calls, the lines after them, and the fallback."""

    args: Sequence[str]
    kwargs: Mapping[str, str]
    line: str
    trouble: Sequence[str]
    ready: Sequence[str]
    otherwise: str


def of_function(count: int, keywords: Sequence[str]) -> Header:
    """The header of a function of the dispatcher, `count` positional arguments and these keywords; its fallback is
    MISS."""
    args = [f"argument_{i}" for i in range(count)]
    kwargs = {k: f"keyword_{i}" for i, k in enumerate(keywords)}
    return Header(args, kwargs, f"def call({', '.join(['self', *args, *kwargs.values()])}):", (), (), "MISS")


def of_method(signature: inspect.Signature | None, count: int, keywords: Sequence[str]) -> Header:
    """The header of the `__call__` of a class, for `count` positional arguments and these keywords in canonical form;
    its fallback is the dispatcher."""
    parameters = list(signature.parameters.values()) if signature else []
    kinds = {p.name: p.kind for p in parameters}
    known = [p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD and _is_free(p.name) for p in parameters[:count]]
    unnamed = max([i + 1 for i, free in enumerate(known) if not free], default=0) if len(known) == count else count
    args = [f"argument_{i}" for i in range(unnamed)] + [p.name for p in parameters[unnamed:count]]
    named = [k for k in keywords if kinds.get(k) in _BY_NAME and _is_free(k)]
    others = [k for k in keywords if k not in named]
    kwargs = {k: k for k in named} | {k: f"keyword_{i}" for i, k in enumerate(others)}
    text = "".join(f"{a}=MISS, " for a in args[:unnamed]) + ("/, " if unnamed else "")
    text += "".join(f"{a}=MISS, " for a in args[unnamed:]) + "*more, " + "".join(f"{k}=MISS, " for k in named)
    ready = [f"{', '.join(kwargs[k] for k in others)}, = keywords.values()"] if others else []
    inputs = "".join(f"{a}, " for a in args)
    pairs = "".join(f"({k!r}, {k}), " for k in named)
    otherwise = f"self.call_slowly(({inputs}*more,), keywords)"
    if unnamed < count or named:
        renamed_call = f"without_gaps(({inputs}), {tuple(args)!r}, more, keywords, ({pairs}))"
        whole = " and ".join(f"{a} is not MISS" for a in [*args, *named])
        again = f"({inputs}*more,), {{{''.join(f'{k!r}: {k}, ' for k in named)}**keywords}}"
        otherwise = f"self.call_slowly(*(({again}) if {whole} else {renamed_call}))"
    first = "self, /, " if not unnamed else "self, "
    return Header(
        args,
        kwargs,
        f"def call({first}{text}**keywords):",
        ("more", f"[*keywords] != {others!r}" if others else "keywords"),
        ready,
        otherwise,
    )


def _is_free(name: str) -> bool:
    return not (name in _RESERVED or name in _BUILT_IN or name.isupper() or _NUMBERED.fullmatch(name))


def name_after_missing(
    values: tuple[object, ...],
    names: Sequence[str],
    varargs: tuple[object, ...],
    keywords: dict[str, object],
    named: Sequence[tuple[str, Any]],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments for another call: arguments after an omitted one (MISS) are passed by name."""
    args, result = (*values, *varargs), {}
    for i, x in enumerate(values):
        if x is MISS:
            args = tuple(values[:i])
            named = (*zip(names[i:], values[i:]), *named)
            break
    for name, x in named:
        if x is not MISS:
            result[name] = x
    return args, result | keywords if result else keywords
