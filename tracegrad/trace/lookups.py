"""Dicts that are asked for a value that is being differentiated.

What a dict from outside has under that value was computed before, by another call, so it is a number without a
derivative: of a function that remembers what it has computed, the derivative would be 0 from the second call on. That
is a `LostDerivativeError`. What traced code has put there itself has its derivative, and whether a key is there is a
question like others. Lent dicts know what they give; of other containers, which C code looks into, it is seen that they
ask whether a key of theirs is equal to the value, after its hash.
"""

from __future__ import annotations

import opcode
from typing import Any

import numpy as np

from tracegrad import tree
from tracegrad.errors import lost, user_frame
from tracegrad.ir import Value
from tracegrad.trace.texts import numbers_in, spells

__all__ = ["Key", "asks_for_key", "recalled"]

_METHODS = frozenset(["get", "pop", "setdefault"])
_SUBSCRIPT, _CALLS = opcode.opmap["BINARY_SUBSCR"], {opcode.opmap[x] for x in ("CALL", "CALL_KW") if x in opcode.opmap}


def _is_differentiated(key: Any) -> bool:
    if type(key) is tuple:
        return any(map(_is_differentiated, key))
    if isinstance(key, Value):
        carried: Any = key
        return bool(carried._is_differentiated())
    return isinstance(key, str) and spells(key)


def recalled(key: Any, found: Any) -> None:
    """A dict from outside has something under a key."""
    if _is_differentiated(key) and any(isinstance(x, Value) or [*numbers_in(x)] for x in tree.leaves(found)):
        raise _lost()


def _lost() -> Exception:
    what = "is asked for a value that is being differentiated, and has numbers without a derivative"
    instead = "say stop_gradient(x) if a constant is meant, or let functools.cache remember what was computed"
    return lost("a dict of what was computed before", what, instead)


def _step() -> tuple[int, int, bool]:
    """The instruction of the user's that is under way, and whether it gives what a container has under a key."""
    frame = user_frame()
    if frame is None:
        return 0, 0, False
    does, names = frame.f_code.co_code[frame.f_lasti], frame.f_code.co_names
    return id(frame), frame.f_lasti, does == _SUBSCRIPT or (does in _CALLS and not _METHODS.isdisjoint(names))


class Key:
    """A value of a trace, which may be a key."""

    __slots__ = ()

    def __hash__(self) -> int:
        x: Any = self
        if x.shape or x.is_array:
            raise TypeError("unhashable type: 'numpy.ndarray'")
        found = hash(x._plain("hash()"))
        if x.builder.open and x._is_differentiated():
            x.builder.hashed = _step()
        return found

    def __eq__(self, other: Any) -> Any:
        asks_for_key(self, other)
        return super().__eq__(other)


def asks_for_key(x: Any, other: Any) -> None:
    """A value is compared with something, perhaps by a container that it is looked up in, with a key of that."""
    before = x.builder.hashed
    if before is None or not before[2] or not isinstance(other, float | np.floating):
        return
    if before == _step() and x._is_differentiated():
        raise _lost()
