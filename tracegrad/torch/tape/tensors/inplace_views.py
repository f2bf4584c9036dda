"""In-place view methods: `t_`, `transpose_`, `squeeze_`, `unsqueeze_` and the like.

No element moves. Other views of the Tensor stay views of the same memory: if the Tensor has views, they and the Tensor
become views of a new base.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import UnsupportedError, located
from tracegrad.ops.core.op import named
from tracegrad.torch.functions.indexing import shapes
from tracegrad.torch.modes import STATE
from tracegrad.torch.tape.tensors import inplace_updates

if TYPE_CHECKING:
    from tracegrad.typing import Array


def _method(name: str, fn: Callable[..., object], node: str) -> Callable[..., object]:
    def call(self: Array, *args: int, **kwargs: object) -> Any:
        return _become(self, name, node, lambda x: fn(x, *args, **kwargs))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"`{name[:-1]}`, in place: this Tensor becomes the view."
    return call


def _become(x: Any, name: str, node: str, step: Callable[[Any], Any]) -> Any:
    _check(x, name)
    whole = _whole(x) if x._base is None and any(r() is not None for r in x._views or ()) else x
    # If `x` has a node, the view needs an edge to it in `no_grad` and inference mode too.
    mode, inference, unusual = STATE.enabled, STATE.inference, STATE.unusual
    if x._edge is not None:
        STATE.enabled, STATE.inference, STATE.unusual = True, False, STATE.is_unusual(False)
    try:
        view = step(whole)
        if view is whole:
            view = shapes.reshape(whole, whole.shape)
        view = named(node, view)
    finally:
        STATE.enabled, STATE.inference, STATE.unusual = mode, inference, unusual
    x.array = view.array
    if x._base is not None or whole is not x:
        if whole is not x:
            x._base, x._views = whole, None
            whole._views.append(weakref.ref(x))
        x._steps = view._steps
    x._requires, x._edge = view._requires or x._requires, view._edge
    inplace_updates.bump(x)
    if x._retains:
        inplace_updates.retain(x)
    return x


def _whole(x: Any) -> Any:
    """Make a Tensor that replaces `x` as the base of its views."""
    whole = x._like(x.array)
    whole._counter, whole._requires, whole._edge = x._counter, x._requires, x._edge
    whole._views = x._views
    for reference in x._views:
        view = reference()
        if view is not None:
            view._base = whole
    return whole


def _check(x: Any, name: str) -> None:
    inplace_updates.check(x, STATE.enabled and x._requires and x._edge is None)
    if STATE.enabled and x._base is not None and x._base._requires:
        inplace_updates.check_view(x)
    if STATE.level is not None and x._dual is not None:
        raise UnsupportedError(located(f"{name} of a Tensor that has a tangent is not supported; use {name[:-1]}"))
    if getattr(x, "_outside", None) is not None:
        raise UnsupportedError(
            located(f"{name} of a Tensor from outside of the traced function is not supported; use {name[:-1]}")
        )


def set_shape(x: Any, shape: object) -> None:
    """Set the shape of an array in place, as assignment to `shape` does."""
    if not x.array.flags.c_contiguous:
        view = x.array.view()
        view.shape = shape  # raises NumPy's error if the shape needs a copy
    sizes = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    _become(x, "reshape_", "ViewBackward0", lambda whole: shapes.reshape(whole, sizes))


class BecomesView:
    """Methods that make a Tensor a view of its old value."""

    t_ = _method("t_", shapes.t, "TBackward1")
    transpose_ = _method("transpose_", shapes.transpose, "TransposeBackward1")
    swapaxes_ = _method("swapaxes_", shapes.transpose, "TransposeBackward1")
    swapdims_ = _method("swapdims_", shapes.transpose, "TransposeBackward1")
    unsqueeze_ = _method("unsqueeze_", shapes.unsqueeze, "UnsqueezeBackward1")

    def squeeze_(self: object, dim: Any = None) -> Any:
        """`squeeze`, in place: this Tensor becomes the view."""
        node = f"SqueezeBackward{3 if dim is None else 5 if isinstance(dim, tuple | list) else 4}"
        return _become(self, "squeeze_", node, lambda x: shapes.squeeze(x, dim))

    def _resized(self: Any, shape: tuple[int, ...]) -> Any:
        """Allocate separate memory of another shape, with undefined values."""
        inplace_updates.check(self, False)
        empty = np.zeros(shape, self.dtype)
        self.array = getattr(self.array, "_lift", np.asarray)(empty)
        return self
