"""Replay views after an update of their base, and assign shapes in place.

The module also records the arrays that loops carry instead of views (`tracegrad.trace.loops.separate_views`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, NamedTuple

from tracegrad.avals import is_literal
from tracegrad.errors import UnsupportedError, located
from tracegrad.ir import GraphNode
from tracegrad.trace.builder.builder import TraceBuilder
from tracegrad.trace.builder.facts import Fact

if TYPE_CHECKING:
    from tracegrad.trace.values.traced_memory import TracedMemory


class ViewOrigin(NamedTuple):
    """Origin of a view: its base, the function that writes to it (None: read-only), and the nodes of base and view when
    it was created.

    `layout_inputs` are the inputs whose layouts decide whether it is a view; if it is a copy, it is not `shared`.
    `starts` are computed offsets of the view in the base, with the bytes from one to the next.
    """

    base: TracedMemory
    view_update: Callable[[Any, Any], Any] | None
    node: GraphNode
    result: GraphNode
    layout_inputs: int
    shared: bool
    starts: tuple[tuple[TracedMemory, int], ...] = ()


class SeparatedArray(NamedTuple):
    """Separate array that a loop uses instead of a view, or the base of this view; and the fact with which the
    loop uses the view.

    `views` are the views that it may be after the loop; empty for a base. It may be the original view unless an
    iteration has changed it. The other fields then describe its creation: the frame, the instructions of the loop, and
    the node.
    """

    array: TracedMemory
    iterations: Fact
    views: tuple[TracedMemory, ...] = ()
    frame: Any = None
    within: Collection[int] = ()
    node: GraphNode | None = None


def require_not_separated(x: TracedMemory) -> None:
    """End the trace on an update of an array if a loop has separated it or a view of it, or appended it to a list."""
    known: Any = x.builder.loops.separated.get(id(x)) or x.builder.loops.listed.get(id(x))
    if known is not None:
        raise x.builder.restarts(known[1])


def require_whole(x: TracedMemory) -> None:
    """End the trace on a read of an array's layout if the view that a loop has replaced by it has another layout."""
    known = x.builder.loops.separated.get(id(x))
    if known is not None and known.views:
        raise x.builder.restarts(known.iterations)


def require_views(builder: TraceBuilder, handed: Collection[Any]) -> None:
    """End the trace if an escaping array must be a view, but a loop has used a separate array instead. A view is needed
    if it shares memory with an outside array or another result, or is read-only."""
    if not builder.loops.separated:
        return
    arrays = {id(x): x for x in handed if hasattr(x, "origin") and (x.shape or x.is_array)}
    results = [(x, builder.loops.separated.get(key)) for key, x in arrays.items()]
    views = [(known, known.views if known is not None and known.views else (x,)) for x, known in results]
    roots = [{id(v._root()) for v in each} for _, each in views]
    for k, (known, each) in enumerate(views):
        is_unshared = all(base_ids.isdisjoint(roots[k]) for i, base_ids in enumerate(roots) if i != k)
        if known is None or not known.views or (is_unshared and not any(map(_is_shared, each))):
            continue
        raise builder.restarts(known.iterations, "a view that a loop does not change leaves the function")


def _is_shared(x: TracedMemory) -> bool:
    return x._root().outside or not x._layout().flags.writeable


def itself(base: object, new: object) -> Any:
    """The array with all its elements replaced by `new`."""
    return new


def replayed(builder: TraceBuilder, result: GraphNode, old: GraphNode, new: GraphNode) -> GraphNode:
    """Recompute `result`, which was computed from `old`, from `new`."""
    if result is old:
        return new
    if result.result_index is not None:
        whole = replayed(builder, result.operands[0], old, new)
        return result if whole is result.operands[0] else builder.valued(whole)[result.result_index].node
    if not result.operands:
        return result
    # The other operands select a part of the first.
    first = replayed(builder, result.operands[0], old, new)
    if first is result.operands[0]:
        return result
    others = [x if is_literal(x) else builder.value(x) for x in result.inputs[1:]]
    output = builder.emit(result.op, (builder.value(first), *others), dict(result.params))  # type: ignore[arg-type]
    node: GraphNode = output[0].node.operands[0] if type(output) is tuple else output.node
    return node


# -- x.shape = ... -------------------------------------------------------------------------------------------------
def set_shape(x: Any, shape: Any) -> None:
    """Change the shape of an array in place, as an assignment to `shape`: it and its views stay views of one memory."""
    x = x.join()
    if not x.shape and not x.is_array:
        raise AttributeError("attribute 'shape' of a NumPy scalar is not writable")
    if x.outside or x.frozen or x.builder.inner is not None:
        message = "assigning to the shape of an array from outside of the traced function is not supported"
        raise UnsupportedError(located(f"{message}; use reshape"))
    view = x.reshape(shape)
    origin = view.origin
    if origin is None or not origin.shared:
        if x.origin is not None or any(r() not in (None, view) for r in x.views):
            message = (
                "Incompatible shape for in-place modification. Use `.reshape()` to make a copy with the desired shape."
            )
            raise AttributeError(located(message))
        x.node, x.stand_in, x.layout_inputs, x.is_array = view.node, view.stand_in, view.layout_inputs, True
        return
    whole = _whole(x)
    for name in ("node", "stand_in", "layout_inputs", "starts"):
        setattr(x, name, getattr(view, name))
    x.origin, x.views, x.is_array = origin._replace(base=whole), (), True
    whole.views = [*[r for r in whole.views if r() is not view], weakref.ref(x)]


def _whole(x: Any) -> Any:
    """The array that replaces `x` among the arrays that share its memory."""
    whole = type(x)(x.builder, x.node)
    for name in ("layout_inputs", "frozen", "is_array", "origin", "outside", "stand_in", "starts", "views"):
        setattr(whole, name, getattr(x, name))
    for reference in x.views:
        view = reference()
        if view is not None:
            view.origin = view.origin._replace(base=whole)
    if x.origin is not None:
        base = x.origin.base
        base.views = [*[r for r in base.views if r() is not x], weakref.ref(whole)]
    return whole
