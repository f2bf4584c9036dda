"""Replace views in the state of a loop by separate arrays, so that every iteration can carry them as values.

After the loop, each array that no iteration has changed becomes the view again. If the array is written to, returned,
or its layout is read, the trace ends. The next trace carries the view together with its base
(`tracegrad.reroll.online.frame_state`).
"""

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
    """Replace views in local variables, and the values of the variables `own`, by separate arrays; they are views again
    after the loop unless they or their bases are updated."""
    if (VIEWS, *place.instruction) in builder.world.varying or tells_apart(place.frame.f_code):
        return
    new: dict[str, Any] = {}
    for name, x in variables(place.frame).items():
        result = x if name in place.dead else _apart(builder, place, x, name in own)
        if result is not x:
            new[name] = result
    if new:
        set_variables(place.frame, new)


def _apart(builder: TraceBuilder, place: Place, x: Any, own: bool = False) -> Any:
    """The separate array for `x`; `x` itself if it is no view and need not be `own`."""
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
    iterations = (VIEWS, *place.instruction)
    builder.apart[id(copy)] = Apart(copy, iterations, (x,), place.frame, place.within, copy.node)
    while True:
        builder.apart.setdefault(id(x), Apart(x, iterations))
        if x.origin is None:
            return copy
        x = x.origin.base


def _is_view(x: Tracer) -> bool:
    return x.origin is not None and (x.origin.shared or bool(x.origin.asks))


def has_views(x: Tracer) -> bool:
    """Whether there are views of an array, except views that loops have replaced."""
    return any(view is not None and id(view) not in x.builder.apart for view in [r() for r in x.views])


class Ends:
    """Possible arrays in the state of a loop at the end of its iterations, by position in the state, each with the
    views that it may stand for."""

    def __init__(self, first: dict[int, Apart]):
        self._first = first  # the separate arrays at the beginning of the loop
        self._apart: dict[int, list[Apart]] = {}
        self._same: set[int] = set()  # positions of arrays that an iteration leaves unchanged

    def like(self, other: Ends) -> None:
        """Copy the possible ends of a loop that was entered elsewhere."""
        self._apart, self._same = {k: [*x] for k, x in other._apart.items()}, set(other._same)

    def add(self, builder: TraceBuilder, before: Collection[int], now: Collection[Tracer], transposed: bool) -> None:
        """Record the end of a path that began with the arrays of these ids and ended with these arrays. The flag says
        that at least one iteration runs, so the arrays end as on some path."""
        for k, (old, x) in enumerate(zip(before, now)):
            known, ends, first = builder.apart.get(id(x)), self._apart.setdefault(k, []), self._first.get(k)
            if old == id(x):
                self._same.add(k)
            elif known is not None and known.views:
                ends.append(known)
            may_be = [*ends, first] if first is not None and (k in self._same or not transposed) else ends
            views = {id(v): v for each in may_be for v in each.views}
            if views and not (first is not None and first.array is x and len(views) == 1):
                builder.apart[id(x)] = Apart(x, may_be[0].iterations, tuple(views.values()))


def put_back(builder: TraceBuilder, place: Place, answer: bool) -> None:
    """Restore the views of variables whose loops end where traced code continues."""
    target = place.target(answer)
    left = {
        key: x for key, x in builder.apart.items()
        if x.node is x.array.node and x.frame is place.frame and target not in x.within
    }  # fmt: skip
    if not left:
        return
    new = {name: result for name, x in variables(place.frame).items() if (result := _whole(x, left)) is not x}
    if new:
        set_variables(place.frame, new)
    # Drop arrays without other references, and then bases without separate views.
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
