"""Loops that were found to be long: another function that runs one with the like is traced with it folded at once.

What is known of a loop is where it stands, what the variables around it were, and of how many turns it was. It is a
guess, which is found to be wrong as any folded loop is that has to be recorded turn by turn.
"""

from __future__ import annotations

import types
from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np

from tracegrad.trace.builder.abort import FOLDED, TURN_BY_TURN
from tracegrad.trace.bytecode.frame_locals import variables
from tracegrad.trace.values.tracer import Tracer

__all__ = ["forget_short", "look", "note_long", "was_long"]

Look = tuple[Hashable, ...]

_MOST = 1000
_known: dict[tuple[Hashable, Look], int] = {}  # the least number of turns, by the key of the loop and the look of it


def look(frame: Any) -> Look:
    """What the variables are like where a loop begins.

    >>> def begins(x):
    ...     import sys
    ...     return look(sys._getframe())[:1]
    >>> begins(np.zeros(3)) == begins(np.ones(7)), begins(np.zeros(3)) == begins(1.0)
    (True, False)
    """
    return tuple([(name, _kind(x)) for name, x in variables(frame).items()])


def _kind(x: Any) -> Hashable:
    if isinstance(x, np.ndarray | Tracer):
        return type(x).__qualname__, x.dtype, len(x.shape)
    return x.__code__ if type(x) is types.FunctionType else type(x).__qualname__


def note_long(key: Hashable, alike: Look, turns: int) -> None:
    """A loop of so many turns is long."""
    if len(_known) >= _MOST:
        _known.clear()
    _known[key, alike] = min(turns, _known.get((key, alike), turns))


def was_long(key: Hashable, alike: Look, turns: int) -> bool:
    """Whether one that looked like this, of no more turns, was long."""
    known = _known.get((key, alike))
    return known is not None and known <= turns


def forget_short(varying: Iterable[Any]) -> None:
    """Forget the loops that had to be recorded turn by turn after all."""
    turn_by_turn = {(FOLDED, *x[1:]) for x in varying if isinstance(x, tuple) and x[0] == TURN_BY_TURN}
    for each in [x for x in list(_known) if x[0] in turn_by_turn] if turn_by_turn else ():
        _known.pop(each, None)
