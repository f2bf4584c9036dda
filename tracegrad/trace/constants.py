"""`x is True` and its like in traced code: comparisons of identity with a constant, that a traced number is asked for.

No code can stand in for `is`. But `x in c` is an instruction of the same size, and the constant `c` says itself what is
in it. Code is rewritten so where nothing jumps between the two instructions; `match` compares with truths by the same.

>>> def f(x):
...     return x is True
>>> asking(f.__code__).co_consts[-1]
is True
>>> plain(asking(f.__code__)) == f.__code__
True
"""

from __future__ import annotations

import dis
import functools
import sys
from types import CodeType
from typing import Any

from tracegrad.trace.identity import has_identity
from tracegrad.trace.tracer import Tracer

__all__ = ["asking", "comparisons", "plain"]

_IS, _IN = dis.opmap["IS_OP"], dis.opmap["CONTAINS_OP"]
_CONST, _LONG = dis.opmap["LOAD_CONST"], dis.opmap["EXTENDED_ARG"]
_SAME_SIZE = sys.version_info < (3, 13)


class _Constant:
    """What has just one object in it."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value

    def __contains__(self, x: Any) -> bool:
        if isinstance(x, Tracer) and x.weak:
            if x.dtype.kind == "b" and type(self.value) is bool:
                x = bool(x)
            elif x.dtype.kind == "i" and type(self.value) is int:
                x = x._plain("int()")
        return x is self.value

    def __repr__(self) -> str:
        return f"is {self.value!r}"


@functools.lru_cache(maxsize=1024, typed=True)
def _constant(value: Any) -> _Constant:
    return _Constant(value)


@functools.lru_cache(maxsize=4096)
def comparisons(code: CodeType) -> frozenset[int]:
    """Where the code compares with a truth or a whole number by `is`, so that it can be rewritten."""
    if not _SAME_SIZE or not has_identity(code) or not any(type(x) in (bool, int) for x in code.co_consts):
        return frozenset()
    steps, targets = code.co_code, set(dis.findlabels(code.co_code))  # type: ignore[arg-type]
    found = set()
    for k in range(2, len(steps), 2):
        known = steps[k] == _IS and steps[k - 2] == _CONST and k not in targets and steps[max(k - 4, 0)] != _LONG
        if known and type(code.co_consts[steps[k - 1]]) in (bool, int):
            found.add(k)
    return frozenset(found)


def asking(code: CodeType) -> CodeType:
    """The code in which traced numbers are asked for where they are compared with constants by `is`."""
    places = comparisons(code)
    if not places or len(code.co_consts) + len(places) > 255:
        return code
    steps, consts = bytearray(code.co_code), list(code.co_consts)
    for k in places:
        made = _constant(consts[steps[k - 1]])
        if made not in consts:
            consts.append(made)
        steps[k], steps[k - 1] = _IN, consts.index(made)
    return code.replace(co_code=bytes(steps), co_consts=tuple(consts))


def plain(code: CodeType) -> CodeType:
    """The code that `asking` was given."""
    count = next((k for k, x in enumerate(code.co_consts) if isinstance(x, _Constant)), None)
    if count is None:
        return code
    steps, consts = bytearray(code.co_code), code.co_consts[:count]
    keys = [(type(x), x) for x in consts]
    for k in range(2, len(steps), 2):
        if steps[k] == _IN and steps[k - 2] == _CONST and steps[k - 1] >= count:
            value = code.co_consts[steps[k - 1]].value
            steps[k], steps[k - 1] = _IS, keys.index((type(value), value))
    return code.replace(co_code=bytes(steps), co_consts=consts)
