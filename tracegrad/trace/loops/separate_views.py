"""Views in the state of a loop: local variables have arrays of their own instead, which are values that turns change as
any others. Where the loop is left, those that no turn has changed are the views again. One that is written to, handed
out, or asked how it lies in memory ends the trace, for one whose loop has the view, and what it is of, in its state
(`Moment._relatives`)."""

from __future__ import annotations

import sys
from collections.abc import Collection
from operator import is_
from typing import Any

from tracegrad.ops.shape.linear import fresh
from tracegrad.trace.builder.abort import VIEWS
from tracegrad.trace.builder.builder import TraceBuilder
from tracegrad.trace.bytecode.frame_locals import set_variables, variables
from tracegrad.trace.loops.control_flow import Place, tells_apart
from tracegrad.trace.values.number import Number
from tracegrad.trace.values.tracer import Tracer
from tracegrad.trace.values.views import Apart

__all__ = ["Ends", "has_views", "put_back", "take_apart"]


def take_apart(builder: TraceBuilder, place: Place, own: Collection[str]) -> None:
    """Let views in local variables, and what the variables `own` have, be arrays of their own, until one of them or
    what they are of is updated."""
    if (VIEWS, *place.instruction) in builder.world.varying or tells_apart(place.frame.f_code):
        return
    new: dict[str, Any] = {}
    for name, x in variables(place.frame).items():
        made = x if name in place.dead else _apart(builder, place, x, name in own)
        if made is not x:
            new[name] = made
    if new:
        set_variables(place.frame, new)


def _apart(builder: TraceBuilder, place: Place, x: Any, own: bool = False) -> Any:
    """What a variable has instead of `x`, which is `x` itself where that is no view and need not be its `own`."""
    if type(x) is tuple:
        parts = tuple([_apart(builder, place, each) for each in x])
        return x if all(map(is_, parts, x)) else parts
    if not isinstance(x, Tracer) or x.builder is not builder:
        return x
    view, array = _is_view(x), bool(x.shape) or x.is_array
    if own and not view and not array and type(x) in (Number, Tracer):
        return type(x)(builder, fresh(x, tag=builder.new_tag()).node)
    if not view and not (own and array):
        return x
    copy = x.copied()
    if not view:
        copy.node = fresh(x, tag=builder.new_tag()).node
    turns = (VIEWS, *place.instruction)
    builder.apart[id(copy)] = Apart(copy, turns, (x,), place.frame, place.within, copy.node)
    while True:
        builder.apart.setdefault(id(x), Apart(x, turns))
        if x.origin is None:
            return copy
        x = x.origin.base


def _is_view(x: Tracer) -> bool:
    return x.origin is not None and (x.origin.shared or bool(x.origin.asks))


def has_views(x: Tracer) -> bool:
    """Whether there are views of an array, but for those that loops have others instead of."""
    return any(view is not None and id(view) not in x.builder.apart for view in [r() for r in x.views])


class Ends:
    """What the arrays in the state of a loop may be at the end of its turns, by their numbers in the state: what others
    that are taken for their own may be."""

    def __init__(self, first: dict[int, Apart]):
        self._first = first  # what that is where the loop begins
        self._apart: dict[int, list[Apart]] = {}
        self._same: set[int] = set()  # those which a turn leaves as they were where the loop began

    def like(self, other: Ends) -> None:
        """What was begun elsewhere may end as it has there."""
        self._apart, self._same = {k: [*x] for k, x in other._apart.items()}, set(other._same)

    def add(self, builder: TraceBuilder, before: Collection[int], now: Collection[Tracer], turned: bool) -> None:
        """A way is over that began with the arrays of these ids, and has ended with these arrays; `turned`: there is a
        turn, so that they end as one way does."""
        for k, (old, x) in enumerate(zip(before, now)):
            known, ends, first = builder.apart.get(id(x)), self._apart.setdefault(k, []), self._first.get(k)
            if old == id(x):
                self._same.add(k)
            elif known is not None and known.views:
                ends.append(known)
            may_be = [*ends, first] if first is not None and (k in self._same or not turned) else ends
            views = {id(v): v for each in may_be for v in each.views}
            if views and not (first is not None and first.array is x and len(views) == 1):
                builder.apart[id(x)] = Apart(x, may_be[0].turns, tuple(views.values()))


def put_back(builder: TraceBuilder, place: Place, answer: bool) -> None:
    """Traced code goes on from a place: variables whose loops end there have their views again."""
    target = place.target(answer)
    left = {
        key: x for key, x in builder.apart.items()
        if x.node is x.array.node and x.frame is place.frame and target not in x.within
    }  # fmt: skip
    if not left:
        return
    new = {name: made for name, x in variables(place.frame).items() if (made := _whole(x, left)) is not x}
    if new:
        set_variables(place.frame, new)
    # What nothing else has any more is of no importance, nor what it was a view of.
    for key in [key for key, x in left.items() if sys.getrefcount(x.array) == _ALONE]:
        del builder.apart[key]
    needed = set[int]()
    for each in [v for x in builder.apart.values() for v in x.views]:
        base: Tracer | None = each
        while base is not None:
            needed.add(id(base))
            base = None if base.origin is None else base.origin.base
    for key in [key for key, x in builder.apart.items() if not x.views and key not in needed]:
        del builder.apart[key]


def _whole(x: Any, left: dict[int, Apart]) -> Any:
    if type(x) is tuple:
        parts = tuple([_whole(each, left) for each in x])
        return x if all(map(is_, parts, x)) else parts
    known = left.get(id(x))
    return x if known is None else known.views[0]


def _references(x: Apart) -> int:
    return sys.getrefcount(x.array)


_ALONE = _references(Apart(object(), None))  # type: ignore[arg-type]
