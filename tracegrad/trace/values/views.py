"""Views in a trace: where a view comes from, how it is computed anew when that has been updated, and where loops have
had an array of its own instead of one (`tracegrad.trace.loops.separate_views`)."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

from tracegrad.avals import is_literal
from tracegrad.errors import UnsupportedError, located
from tracegrad.ir import Node
from tracegrad.trace.builder.builder import TraceBuilder

if TYPE_CHECKING:
    from tracegrad.trace.values.tracer import Tracer

__all__ = ["Apart", "Origin", "itself", "replayed", "require_not_apart", "require_views", "require_whole", "take_shape"]


class Origin(NamedTuple):
    """Of a view: its base, how to write to it (None: not at all), and the nodes of base and view when it was made.

    `asks` are the inputs that decide by their layout whether it is a view; if it is a copy, it is not `shared`.
    `starts` are computed places of the view in the base, with the bytes from one to the next.
    """

    base: Tracer
    put: Callable[[Any, Any], Any] | None
    node: Node
    result: Node
    asks: int
    shared: bool
    starts: tuple[tuple[Tracer, int], ...] = ()


class Apart(NamedTuple):
    """An array that a loop has instead of a view, or what such a view is of; and what is `varying` of a loop that has
    the view.

    `views` are those that it may be in the end; none if it is no such array. If it is the one that it was made of,
    unless turns have changed that, the others are where that was done: in which frame, until which instructions are
    left, and with which node.
    """

    array: Tracer
    turns: Hashable
    views: tuple[Tracer, ...] = ()
    frame: Any = None
    within: Collection[int] = ()
    node: Node | None = None


def require_not_apart(x: Tracer) -> None:
    """An array is updated: end the trace if a loop has taken it, or a view of it, for an array of its own, or has
    appended it to a list."""
    known: Any = x.builder.apart.get(id(x)) or x.builder.listed.get(id(x))
    if known is not None:
        raise x.builder.restarts(known[1])


def require_whole(x: Tracer) -> None:
    """It is asked how an array lies in memory: end the trace if that is another one where it is the view that a loop
    has had it instead of."""
    known = x.builder.apart.get(id(x))
    if known is not None and known.views:
        raise x.builder.restarts(known.turns)


def require_views(builder: TraceBuilder, handed: Collection[Any]) -> None:
    """The trace ends, and these are handed out: end it in vain if one of them, which a loop has had instead of a view,
    would share memory with what is outside, or with another one, or be read-only."""
    if not builder.apart:
        return
    arrays = {id(x): x for x in handed if hasattr(x, "origin") and (x.shape or x.is_array)}
    found = [(x, builder.apart.get(key)) for key, x in arrays.items()]
    views = [(known, known.views if known is not None and known.views else (x,)) for x, known in found]
    roots = [{id(v._root()) for v in each} for _, each in views]
    for k, (known, each) in enumerate(views):
        alone = all(mine.isdisjoint(roots[k]) for i, mine in enumerate(roots) if i != k)
        if known is None or not known.views or (alone and not any(map(_is_shared, each))):
            continue
        raise builder.restarts(known.turns, "a view that a loop does not change leaves the function")


def _is_shared(x: Tracer) -> bool:
    return x._root().outside or not x._place().flags.writeable


def itself(base: Any, new: Any) -> Any:
    """What an array is with `new` in the place of a view of all of it."""
    return new


def replayed(builder: TraceBuilder, result: Node, old: Node, new: Node) -> Node:
    """`result`, which was computed from `old`, computed from `new` in the same way."""
    if result is old:
        return new
    if result.picks is not None:
        whole = replayed(builder, result.operands[0], old, new)
        return result if whole is result.operands[0] else builder.valued(whole)[result.picks].node
    if not result.operands:
        return result
    # The other operands say which part of the first it is.
    first = replayed(builder, result.operands[0], old, new)
    if first is result.operands[0]:
        return result
    others = [x if is_literal(x) else builder.value(x) for x in result.inputs[1:]]
    made = builder.emit(result.op, (builder.value(first), *others), dict(result.params))  # type: ignore[arg-type]
    node: Node = made[0].node.operands[0] if type(made) is tuple else made.node
    return node


# -- x.shape = ... -------------------------------------------------------------------------------------------------
def take_shape(x: Any, shape: Any) -> None:
    """Let an array have another shape, as assigning to its `shape` does: it and its views stay views of one memory."""
    x = x.join()
    if not x.shape and not x.is_array:
        raise AttributeError("attribute 'shape' of a NumPy scalar is not writable")
    if x.outside or x.frozen or x.builder.inner is not None:
        what = "assigning to the shape of an array from outside of the traced function is not supported"
        raise UnsupportedError(located(f"{what}; use reshape"))
    view = x.reshape(shape)
    origin = view.origin
    if origin is None or not origin.shared:
        if x.origin is not None or any(r() not in (None, view) for r in x.views):
            what = (
                "Incompatible shape for in-place modification. Use `.reshape()` to make a copy with the desired shape."
            )
            raise AttributeError(located(what))
        x.node, x.stand_in, x.asks, x.is_array = view.node, view.stand_in, view.asks, True
        return
    whole = _whole(x)
    for name in ("node", "stand_in", "asks", "starts"):
        setattr(x, name, getattr(view, name))
    x.origin, x.views, x.is_array = origin._replace(base=whole), (), True
    whole.views = [*[r for r in whole.views if r() is not view], weakref.ref(x)]


def _whole(x: Any) -> Any:
    """An array that takes the place of `x` among the arrays that share its memory."""
    whole = type(x)(x.builder, x.node)
    for name in ("asks", "frozen", "is_array", "origin", "outside", "stand_in", "starts", "views"):
        setattr(whole, name, getattr(x, name))
    for reference in x.views:
        view = reference()
        if view is not None:
            view.origin = view.origin._replace(base=whole)
    if x.origin is not None:
        base = x.origin.base
        base.views = [*[r for r in base.views if r() is not x], weakref.ref(whole)]
    return whole
