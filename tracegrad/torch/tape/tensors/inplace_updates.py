"""In-place updates and views: the changes of the tape when shared memory is written (`CopySlices`).

A view knows its base, the array that owns the memory, and the steps from the base to the view. An in-place update is
first computed, then checked, then written; the version of the memory increases by one. If the update is recorded, the
base gets a new node (`CopySlices` if a view was written). The nodes of all live views are rebuilt at their next use.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tracegrad.errors import READ_ONLY, located
from tracegrad.ops.core.memory_order import UNKNOWN
from tracegrad.ops.shape.linear import cast, full
from tracegrad.torch.modes import STATE
from tracegrad.torch.tape.backward import dual
from tracegrad.torch.tape.recording.node import MaskedCotangent, Node, Spec, next_number, rewrap, unmasked
from tracegrad.torch.tape.recording.op_node import summed_to
from tracegrad.torch.tape.recording.saved_tensor import short_name
from tracegrad.torch.tape.tensors.aliasing import steps_of

if TYPE_CHECKING:
    from tracegrad.torch.tape.recording.recorded_array import Recorded
    from tracegrad.typing import Array, NDArray

    View = TypeVar("View", bound=Recorded)


class Stale:
    """Invalid edge of a view whose base was updated in place. The view was output `number` of the node `maker`."""

    __slots__ = ("maker", "number")

    def __init__(self, maker: str = "", number: int = 0):
        self.maker, self.number = maker, number

    def __bool__(self) -> bool:
        return False


STALE = Stale()


class AsStridedBackward0(Node):
    """Node of a view of a base that was updated in place: `nodes` are the path from the view to the base."""

    __slots__ = ("nodes",)

    def __init__(self, nodes: Sequence[Node], base: Any):
        self.nodes, self.edges, self.hooks, self.number = nodes, (base,), None, next_number()

    def pull(self, ct: Any, recording: bool) -> Sequence[Array]:
        for node in self.nodes:
            (ct,) = node.pull((ct,) if node.is_multi_result else ct, recording)
        return (ct,)


def restore(view: Recorded) -> None:
    """Rebuild the edge of a stale view from its updated base."""
    base = view._base
    if not base._requires:
        view._requires, view._edge = False, None
        return
    if view._kind_of_view:
        raise _refused(view, "its base or another view of its base has been")
    again = base
    mode, STATE.enabled = STATE.enabled, True
    try:
        for step in steps_of(view):
            again = step(again)
    finally:
        STATE.enabled = mode
    source, edge, nodes = base._edge_of(), again._edge, []
    while edge is not source:
        nodes.append(edge)
        edge = edge.edges[0]
    view._edge = AsStridedBackward0(nodes, source)
    if view._retains:
        retain(view)


# -- updates in place ----------------------------------------------------------------------------------------------
def update(x: Any, new: Any) -> None:
    """Write the value `new` into the memory of `x`, and record it if the mode and `new` require it."""
    if new.shape != x.shape:
        raise RuntimeError(
            located(f"output with shape {list(x.shape)} doesn't match the broadcast shape {list(new.shape)}")
        )
    if new.dtype != x.dtype:
        if not np.can_cast(new.dtype, x.dtype, "same_kind"):
            raise RuntimeError(located(f"result type {new.dtype} can't be cast to the desired output type {x.dtype}"))
        new = cast(new, dtype=x.dtype.name)
    if STATE.enabled and not new._requires and _is_recorded(x):
        overwrite(x, new, "CopyBackwards")
        return
    recording = STATE.enabled and new._requires
    node = new.grad_fn if recording else None
    check(x, recording)
    old = x._edge_of()
    if node is not None:
        _protect(node, x)
    _copy_saved_result(x if x._base is None else x._base)
    if STATE.level is not None:
        dual.protect(new, x)
    x._store(new.array)
    bump(x)
    if node is not None:
        node.relocate_result(new.array, x)
    if recording:
        rebase(x, old, new)
    else:
        _outdate(x if x._base is None else x._base)
    if STATE.level is not None:
        _move_tangents(x, new)


def _move_tangents(x: Any, new: Any) -> None:
    """Update the tangents of `x` and of all views that share its tangent's memory, after `new` has overwritten `x`."""
    base = x if x._base is None else x._base
    views = [view for r in base._views or () if (view := r()) is not None]
    above = {id(link) for link in _links(x)}
    roots = [v for v in views if v._dual is not None and v._dual.root and id(v._steps) in above]
    root = max(roots, key=lambda v: len(_links(v)), default=base)
    before, t = dual.tangent_of(root), dual.tangent_of(new)
    if t is None and before is None:
        return
    with dual.paused():
        if before is None:
            before = base._like(np.zeros(root.shape, root.dtype))
        elif before._requires or (t is not None and t._requires):
            before = before.clone()  # the tape may have saved it
        below = [
            v for v in (*views, base) if v is root or root._steps is None or any(k is root._steps for k in _links(v))
        ]
        parts = [_picked(before, root, v) for v in below]
        _picked(before, root, x).copy_(0.0 if t is None else t)
    for view, part in zip(below, parts):
        if view is root or view._dual is None or not view._dual.root:
            dual.set_tangent(view, part, view is root and view is not base)


def _links(view: Any) -> list[object]:
    """Return the links of the chain of steps to a view, in reverse order."""
    links, link = [], view._steps
    while link is not None:
        links.append(link)
        link = link[0]
    return links


def _picked(whole: Array, root: Array, view: Array) -> Any:
    """Return the part of `whole` that `view` is of `root`."""
    for step in steps_of(view)[len(_links(root)) :]:
        whole = step(whole)
    return whole


# Nodes that read their result, but not in PyTorch: there the result may be updated in place.
_READ_THEIR_RESULT = {
    "AdaptiveMaxPool1DBackward0",
    "AdaptiveMaxPool2DBackward0",
    "AdaptiveMaxPool3DBackward0",
    "ErfinvBackward0",
    "MaxPool1DWithIndicesBackward0",
    "MaxPool2DWithIndicesBackward0",
    "MaxPool3DWithIndicesBackward0",
}


def _copy_saved_result(x: Recorded) -> None:
    """Copy the result `x` that its node has saved, before `x` is overwritten, for nodes of `_READ_THEIR_RESULT`."""
    node = x._edge[0] if x._edge.__class__ is tuple else x._edge
    if node and type(node).__name__ in _READ_THEIR_RESULT:
        node.protect(x)


def _protect(node: Node, x: Any) -> None:
    node.protect(x)
    if getattr(node, "op", None) is cast and node.edges[0]:  # the node before the conversion may have saved `x`
        source = node.edges[0]
        _protect(source[0] if source.__class__ is tuple else source, x)


def _is_recorded(x: Recorded) -> bool:
    """Whether an update of `x` concerns the tape."""
    return x._requires or (x._base is not None and x._base._requires)


def bump(x: Recorded) -> None:
    """Increment the version of the memory of `x`, which was written."""
    if x._counter is not None:
        x._counter[0] += 1


def check(x: Recorded, recorded: bool) -> None:
    """Raise if `x` must not be updated in place; `recorded`: the update is recorded on the tape."""
    if x._counter is None and not STATE.inference:
        raise RuntimeError(
            located(
                "Inplace update to inference tensor outside InferenceMode is not allowed. You can make a clone to get "
                "a normal tensor before doing inplace update."
            )
        )
    frozen = _frozen(x)
    if frozen is READ_ONLY:
        raise ValueError(READ_ONLY)
    if frozen:
        raise RuntimeError(located(f"in-place update of {frozen}; copy it first"))
    if recorded and x._base is not None:
        check_view(x)
    if recorded and x._requires and x._edge is None:
        raise RuntimeError(located("a leaf Variable that requires grad is being used in an in-place operation."))
    if 0 not in x.shape and _overlaps(x):
        raise RuntimeError(
            located(
                "unsupported operation: more than one element of the written-to tensor refers to a single memory "
                "location. Please clone() the tensor before performing the operation."
            )
        )


def _frozen(x: Recorded) -> str:
    frozen: str = x._frozen or ("" if x._base is None else x._base._frozen)
    return frozen


def as_frozen(x: Recorded, alias: View) -> View:
    """Freeze `alias`, a Tensor in the memory of `x`, if `x` is frozen; return it."""
    if frozen := _frozen(x):
        alias._frozen = frozen
    return alias


def check_all(xs: Sequence[Recorded]) -> None:
    """Raise if one of `xs` must not be updated in place without recording."""
    for x in xs:
        if x._counter is None or x._frozen or x._base is not None or 0 in x.array.strides:
            check(x, False)


def _strides(x: Recorded) -> tuple[int, ...]:
    if getattr(x.array, "layout_inputs", 0) & UNKNOWN:  # an unknown memory layout, for example of a region argument
        return ()
    return getattr(x.array, "strides", ())


def _overlaps(x: Recorded) -> bool:
    """Whether elements may overlap: the stride of an axis is not longer than the extent of the axes within it."""
    reach = 0
    for stride, n in sorted([(abs(s), n) for s, n in zip(_strides(x), x.shape) if n > 1]):
        if stride <= reach:
            return True
        reach += stride * (n - 1)
    return False


def check_view(x: Recorded) -> None:
    """Raise if an update of the view `x` cannot be recorded."""
    if x._kind_of_view:
        raise _refused(x, "is being")
    if x._base._requires and x._base._edge is None:
        raise RuntimeError(
            located("a view of a leaf Variable that requires grad is being used in an in-place operation.")
        )


def _refused(view: Recorded, modified: str) -> RuntimeError:
    """Return the error for an in-place update of a view without a history; `modified` is the verb phrase."""
    maker, number = _origin(view)
    kind = view._kind_of_view
    view_of = f"Output {number} of {maker} is a view of a view which was" if maker else "A view was"
    mode, now = ("inference", "in normal mode") if kind == "inference" else ("no_grad", "with grad mode enabled")
    message = f"{view_of} created in {mode} mode and {modified} modified inplace {now}."
    if kind in ("several", "custom") and maker:
        message = f"Output {number} of {maker} is a view and {modified} modified inplace."
    why = _OF_FUNCTION if kind == "custom" else _OF_UNRECORDED.format("inference_mode" if kind == "inference" else mode)
    if kind == "several":
        why = (
            "This view is the output of a function that returns multiple views. Such functions do not allow the output "
            "views to be modified inplace. You should replace the inplace operation by an out-of-place one."
        )
    return RuntimeError(located(f"{message} {why}"))


_OF_UNRECORDED = (
    "Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your code by moving both "
    "the view and the inplace either both inside the {} block (if you don't want the inplace to be tracked) or "
    "both outside (if you want the inplace to be tracked)."
)

_OF_FUNCTION = (
    "This view was created inside a custom Function (or because an input was returned as-is) and the autograd logic to "
    "handle view+inplace would override the custom backward associated with the custom Function, leading to incorrect "
    "gradients. This behavior is forbidden. You can fix this by cloning the output of the custom Function."
)


def _origin(view: Recorded) -> tuple[str, int]:
    """Return the name of the node that made a view, and the output number; the name is empty without one."""
    edge = view._edge
    if isinstance(edge, Stale):
        return edge.maker, edge.number
    node, number = edge if edge.__class__ is tuple else (edge, 0)
    return (short_name(node), number) if node else ("", 0)


def rebase(x: Recorded, old: Node | None, new: Recorded) -> None:
    """Set the history of `x`, whose edge was `old`, to the history of `new`, which has overwritten it."""
    base = x._base
    if base is None:
        x._requires, x._edge = True, new._edge_of()
    else:
        node = CopySlices(base, old, new._edge_of(), steps_of(x))
        base._requires, base._edge = True, node
    owner = x if base is None else base
    owner._counter[1:] = [short_name(owner._edge[0] if owner._edge.__class__ is tuple else owner._edge)]
    if owner._retains:
        retain(owner)
    for reference in owner._views or ():
        view = reference()
        if view is not None:
            view._requires, view._edge = True, _outdated(view)


def _outdate(owner: Recorded) -> None:
    """Mark the edges of the owner's views for rebuilding, after an unrecorded write to its memory."""
    for reference in owner._views or ():
        view = reference()
        if view is not None and view._edge:
            view._edge = _outdated(view)


def _outdated(view: Recorded) -> Stale:
    return Stale(*_origin(view)) if view._kind_of_view else STALE


def retain(x: Recorded) -> None:
    """Make the node of `x` retain its cotangent in `x.grad`."""
    edge = x._edge
    node, number = edge if edge.__class__ is tuple else (edge, 0)
    node._hooks().retained[number] = weakref.ref(x)


def writeable(array: NDArray) -> NDArray:
    """Make an array writeable that NumPy made read-only by broadcasting, if its base is writeable."""
    if not array.flags.writeable and array.base is not None and array.base.flags.writeable:
        array.flags.writeable = True
    return array


class CopySlices(Node):
    """In-place update of a view, as a node of its base.

    `inner` is the node that computed the written value. Its cotangent is the part of the base's cotangent at the view;
    the cotangent of the view's old value replaces this part. The edges are the base's, then those of the other
    operands.
    """

    __slots__ = ("axes", "inner", "steps", "view_position")

    def __init__(self, base: Any, old: Any, new: Any, steps: tuple[Callable[[Any], Any], ...]):
        self.inner, number = new if new.__class__ is tuple else (new, 0)
        edges = self.inner.edges
        self.view_position = (
            next((k for k, e in enumerate(edges) if e is old), -1) if old is not None and not number else -1
        )
        if self.view_position < 0 and (old is not None or number or self.inner.count > 1):
            self.inner, edges = _Through(new), (new,)
        first = 1 if old is None and len(edges) > 1 and not edges[0] else 0
        others = [e for k, e in enumerate(edges) if k != self.view_position and k >= first]
        self.edges, self.number, self.steps = (base._edge_of(), *others), next_number(), steps
        self.hooks = None
        if self.inner.hooks is not None:
            self.metadata.update(self.inner.metadata)
        self.axes = _axes_in_memory(base.array)

    def pull(self, ct: Any, recording: bool) -> Sequence[Any]:
        mask = ct.mask if ct.__class__ is MaskedCotangent and isinstance(ct.mask, np.ndarray) else None
        ct = unmasked(ct)
        if isinstance(ct, np.ndarray | np.generic):
            rest, masks = self._with_base_layout(np.asarray(ct)), None if mask is None else self._with_base_layout(mask)
            region = self._region(rest)
            inside = region.copy()
            result = self._inner(
                inside if masks is None else MaskedCotangent(inside, self._region(masks).copy()), recording
            )
            before = result[self.view_position] if self.view_position >= 0 else None
            writeable(region)[...] = 0 if before is None else unmasked(before)
            if masks is not None:
                writeable(self._region(masks))[...] = (
                    before.mask if before.__class__ is MaskedCotangent else before is not None
                )
            return [rest if masks is None else MaskedCotangent(rest, masks), *self._others(result)]
        rest = (ct if recording else rewrap(ct, None)).clone()
        if isinstance(rest.array, np.ndarray):
            rest.array = self._with_base_layout(rest.array)
        region = self._region(rest)
        inside = region.clone()
        result = self._inner(inside if recording else inside.array, recording)
        before = unmasked(result[self.view_position]) if self.view_position >= 0 else None
        region.copy_(0.0 if before is None else before if recording else rewrap(before, None))
        return [rest if recording else rest.array, *self._others(result)]

    def _with_base_layout(self, array: NDArray) -> NDArray:
        """Copy with the base's order of axes in memory: a view of the base is then a view of the copy."""
        if self.axes is None:
            return np.array(array, order="C")
        return np.array(array.transpose(self.axes), order="C").transpose(np.argsort(self.axes))

    def _inner(self, ct: Array | MaskedCotangent, recording: bool) -> Sequence[Any]:
        results: Sequence[Any] = self.inner.pull((ct,) if self.inner.is_multi_result else ct, recording)
        return results

    def _others(self, results: Sequence[Array]) -> list[Any]:
        others = [x for k, x in enumerate(results) if k != self.view_position]
        return others[len(others) - len(self.edges) + 1 :]

    def _region(self, x: Array) -> Any:
        for step in self.steps:
            x = step(x)
        return x

    def release(self) -> None:
        # If the pass runs `inner` as a node of its own, it frees the saved values there.
        if STATE.sweep is None or self.inner not in STATE.sweep.nodes:
            self.inner.release()


def _axes_in_memory(array: object) -> tuple[int, ...] | None:
    """Return the axes by descending stride; None for a contiguous array."""
    if not isinstance(array, np.ndarray) or array.flags.c_contiguous:
        return None
    return tuple(sorted(range(array.ndim), key=lambda k: -abs(array.strides[k])))


class _Through(Node):
    """Node of an identity: it passes its cotangent on."""

    __slots__ = ()

    def __init__(self, edge: Any):
        self.edges, self.hooks, self.number = (edge,), None, 0

    def pull(self, ct: Any, recording: bool) -> Sequence[Array]:
        return [ct]


class Overwritten(Node):
    """In-place update by values independent of the old ones: the cotangent goes to the source, 0 to the old values."""

    __slots__ = ("spec",)

    spec: Spec

    def pull(self, ct: Any, recording: bool) -> Sequence[Any]:
        zeros = self._zeros(unmasked(ct), recording) if self.edges[0] else None
        if len(self.edges) == 1 or not self.edges[1]:
            return [zeros, None][: len(self.edges)]
        result = summed_to(unmasked(ct), self.spec)
        return [
            zeros,
            MaskedCotangent(result, ct.mask)
            if ct.__class__ is MaskedCotangent and result.shape == ct.mask.shape
            else result,
        ]

    @staticmethod
    def _zeros(ct: Any, recording: bool) -> Any:
        zeros = full(shape=ct.shape, value=0.0, dtype=ct.dtype.name)
        return rewrap(zeros, None) if recording else zeros


def overwrite(x: Any, new: Any, name: str) -> None:
    """Write the values `new`, broadcast and converted, into `x`, and record the operation `name`."""
    if STATE.enabled and (new._requires or _is_recorded(x)):
        node = _overwriting(name)()
        node.edges = (x._edge_of(), new._edge_of()) if name in ("CopyBackwards", "FillBackward3") else (x._edge_of(),)
        node.hooks, node.number, node.spec = None, next_number(), Spec(new.shape, new.dtype)
        value = x._like(new._converted(x.shape, x.dtype))
        value._requires, value._edge = True, node
    else:
        value = x._like(new._converted(x.shape, x.dtype))
    if STATE.level is not None:
        dual.converted(value, new)
    update(x, value)


def _overwriting(name: str) -> type[Overwritten]:
    result = _OVERWRITING.get(name)
    if result is None:
        result = _OVERWRITING[name] = type(name, (Overwritten,), {"__slots__": ()})
    return result


_OVERWRITING: dict[str, type[Overwritten]] = {}
