"""Record which loops were long, so that a trace of a similar function folds them from the first iteration.

The key of a loop is the fact that folds it, and the kinds of the variables around it; the value is its trip count. A
hint may be wrong: the loop is then recorded iteration by iteration, like any folded loop that cannot stay folded.
"""

from __future__ import annotations

import types
from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.trace.builder.facts import Fact, LoopFact, LoopFactKind
from tracegrad.trace.bytecode.frame_locals import variables
from tracegrad.trace.values.tracer import Tracer

if TYPE_CHECKING:
    from types import FrameType


LoopSignature = tuple[Hashable, ...]

_MAX_HINTS = 1000  # hints
_known: dict[tuple[LoopFact, LoopSignature], int] = {}  # the least trip count, by the key of the loop and its variables


def loop_signature(frame: FrameType) -> LoopSignature:
    """The kinds of the variables where a loop begins, as a key.

    >>> def begins(x):
    ...     import sys
    ...     return loop_signature(sys._getframe())[:1]
    >>> begins(np.zeros(3)) == begins(np.ones(7)), begins(np.zeros(3)) == begins(1.0)
    (True, False)
    """
    return tuple([(name, _kind(x)) for name, x in variables(frame).items()])


def _kind(x: Any) -> Hashable:
    if isinstance(x, np.ndarray | Tracer):
        return type(x).__qualname__, x.dtype, len(x.shape)
    return x.__code__ if type(x) is types.FunctionType else type(x).__qualname__


def note_long(folded: LoopFact, alike: LoopSignature, iterations: int) -> None:
    """Record that a loop with this trip count is long."""
    if len(_known) >= _MAX_HINTS:
        _known.clear()
    _known[folded, alike] = min(iterations, _known.get((folded, alike), iterations))


def was_long(folded: LoopFact, alike: LoopSignature, iterations: int) -> bool:
    """Whether a similar loop with no more iterations was long."""
    known = _known.get((folded, alike))
    return known is not None and known <= iterations


def forget_short(facts: Iterable[Fact]) -> None:
    """Forget the loops that had to be recorded iteration by iteration."""
    unfolded = [x for x in facts if isinstance(x, LoopFact) and x.kind is LoopFactKind.ITERATION_BY_ITERATION]
    folded = {replace(x, kind=LoopFactKind.FOLDED) for x in unfolded}
    for each in [x for x in list(_known) if x[0] in folded] if folded else ():
        _known.pop(each, None)
