"""Replace views in the state of a loop by separate arrays, so that every iteration can carry them as values.

After the loop, each array that no iteration has changed becomes the view again. If the array is written to, returned,
or its layout is read, the trace ends. The next trace carries the view together with its base
(`tracegrad.reroll.online.frame_state`).
"""

from __future__ import annotations

from collections.abc import Collection
from operator import is_
from typing import Any

from tracegrad.cpython.references import COUNT_OF_ATTRIBUTE, reference_count
from tracegrad.ir.builder import node_of
from tracegrad.ops.shape.linear import fresh
from tracegrad.trace.builder.builder import TraceBuilder
from tracegrad.trace.builder.facts import LoopFactKind
from tracegrad.trace.bytecode.code_queries import compares_by_identity
from tracegrad.trace.bytecode.frame_locals import set_variables, variables
from tracegrad.trace.loops.control_flow import LoopJump
from tracegrad.trace.values.number import Number
from tracegrad.trace.values.traced_memory import TracedMemory
from tracegrad.trace.values.tracer import Tracer
from tracegrad.trace.values.views import SeparatedArray


def separate_views(builder: TraceBuilder, jump: LoopJump, own_names: Collection[str]) -> None:
    """Replace views in local variables, and the values of the variables `own_names`, by separate arrays; they are views
    again after the loop unless they or their bases are updated."""
    if jump.fact(LoopFactKind.VIEWS) in builder.world.facts or compares_by_identity(jump.frame.f_code):
        return
    new: dict[str, Any] = {}
    for name, x in variables(jump.frame).items():
        result = x if name in jump.dead else _separated(builder, jump, x, name in own_names)
        if result is not x:
            new[name] = result
    if new:
        set_variables(jump.frame, new)


def _separated(builder: TraceBuilder, jump: LoopJump, x: Any, is_own: bool = False) -> Any:
    """The separate array for `x`; `x` itself if it is no view and need not be `is_own`."""
    if type(x) is tuple:
        children = tuple([_separated(builder, jump, each) for each in x])
        return x if all(map(is_, children, x)) else children
    if not isinstance(x, Tracer) or x.builder is not builder:
        return x
    view, array = _is_view(x), bool(x.shape) or x.is_array
    if is_own and not view and not array and type(x) in (Number, Tracer):
        return type(x)(builder, node_of(fresh(x, tag=builder.new_tag())))
    if not view and not (is_own and array):
        return x
    copy = x.copied()
    if not view:
        copy.node = node_of(fresh(x, tag=builder.new_tag()))
    iterations = jump.fact(LoopFactKind.VIEWS)
    builder.loops.separated[id(copy)] = SeparatedArray(copy, iterations, (x,), jump.frame, jump.within, copy.node)
    while True:
        builder.loops.separated.setdefault(id(x), SeparatedArray(x, iterations))
        if x.origin is None:
            return copy
        x = x.origin.base


def _is_view(x: Tracer) -> bool:
    return x.origin is not None and (x.origin.shared or bool(x.origin.layout_inputs))


def has_views(x: Tracer) -> bool:
    """Whether there are views of an array, except views that loops have replaced."""
    return any(view is not None and id(view) not in x.builder.loops.separated for view in [r() for r in x.views])


class Ends:
    """Possible arrays in the state of a loop at the end of its iterations, by position in the state, each with the
    views that it may stand for."""

    def __init__(self, first: dict[int, SeparatedArray]):
        self._first = first  # the separate arrays at the beginning of the loop
        self._separated: dict[int, list[SeparatedArray]] = {}
        self._same: set[int] = set()  # positions of arrays that an iteration leaves unchanged

    def like(self, other: Ends) -> None:
        """Copy the possible ends of a loop that was entered elsewhere."""
        self._separated, self._same = {k: [*x] for k, x in other._separated.items()}, set(other._same)

    def add(self, builder: TraceBuilder, before: Collection[int], now: Collection[Tracer], transposed: bool) -> None:
        """Record the end of a path that began with the arrays of these ids and ended with these arrays. The flag says
        that at least one iteration runs, so the arrays end as on some path."""
        for k, (old, x) in enumerate(zip(before, now)):
            known, ends, first = (
                builder.loops.separated.get(id(x)),
                self._separated.setdefault(k, []),
                self._first.get(k),
            )
            if old == id(x):
                self._same.add(k)
            elif known is not None and known.views:
                ends.append(known)
            may_be = [*ends, first] if first is not None and (k in self._same or not transposed) else ends
            views = {id(v): v for each in may_be for v in each.views}
            if views and not (first is not None and first.array is x and len(views) == 1):
                builder.loops.separated[id(x)] = SeparatedArray(x, may_be[0].iterations, tuple(views.values()))


def restore_views(builder: TraceBuilder, jump: LoopJump, condition: bool) -> None:
    """Restore the views of variables whose loops end where traced code continues."""
    target = jump.target(condition)
    ended = {
        key: x
        for key, x in builder.loops.separated.items()
        if x.node is x.array.node and x.frame is jump.frame and target not in x.within
    }
    if not ended:
        return
    new = {name: result for name, x in variables(jump.frame).items() if (result := _whole(x, ended)) is not x}
    if new:
        set_variables(jump.frame, new)
    # Drop arrays without other references, and then bases without separate views.
    for key in [key for key, x in ended.items() if reference_count(x.array) == COUNT_OF_ATTRIBUTE]:
        del builder.loops.separated[key]
    needed = set[int]()
    for each in [v for x in builder.loops.separated.values() for v in x.views]:
        base: TracedMemory | None = each
        while base is not None:
            needed.add(id(base))
            base = None if base.origin is None else base.origin.base
    for key in [key for key, x in builder.loops.separated.items() if not x.views and key not in needed]:
        del builder.loops.separated[key]


def _whole(x: object, ended: dict[int, SeparatedArray]) -> Any:
    if type(x) is tuple:
        children = tuple([_whole(each, ended) for each in x])
        return x if all(map(is_, children, x)) else children
    known = ended.get(id(x))
    return x if known is None else known.views[0]
