"""In-place methods that change the shape: views (`t_`, `transpose_`, `squeeze_`, ...), and `resize_` and `set_`.

No element moves. Other views of the Tensor stay views of the same memory: if the Tensor has views, they and the Tensor
become views of a new base.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import UnsupportedError, located
from tracegrad.ops.core.op import named
from tracegrad.torch.functions.core.dims import integers, type_name
from tracegrad.torch.functions.core.formats import check_format
from tracegrad.torch.functions.indexing import shapes
from tracegrad.torch.modes import STATE
from tracegrad.torch.tape.tensors import inplace_updates

if TYPE_CHECKING:
    from tracegrad.torch.tape.recording.recorded_array import Recorded
    from tracegrad.typing import Array, NDArray


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


def _whole(x: Recorded) -> Recorded:
    """Make a Tensor that replaces `x` as the base of its views."""
    whole = x._like(x.array)
    whole._counter, whole._requires, whole._edge = x._counter, x._requires, x._edge
    whole._views = x._views
    for reference in x._views:
        view = reference()
        if view is not None:
            view._base = whole
    return whole


def _check(x: Recorded, name: str) -> None:
    inplace_updates.check(x, STATE.enabled and x._requires and x._edge is None)
    if STATE.enabled and x._base is not None and x._base._requires:
        inplace_updates.check_view(x)
    if STATE.level is not None and x._dual is not None:
        raise UnsupportedError(located(f"{name} of a Tensor that has a tangent is not supported; use {name[:-1]}"))
    if getattr(x, "_outside", None) is not None:
        raise UnsupportedError(
            located(f"{name} of a Tensor from outside of the traced function is not supported; use {name[:-1]}")
        )


def set_shape(x: Recorded, shape: object) -> None:
    """Set the shape of an array in place, as assignment to `shape` does."""
    if not x.array.flags.c_contiguous:
        view = x.array.view()
        view.shape = shape  # raises NumPy's error if the shape needs a copy
    sizes = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    _become(x, "reshape_", "ViewBackward0", lambda whole: shapes.reshape(whole, sizes))


def _check_alone(x: Any, name: str, allowed: object) -> None:
    """Raise unless `x` has an ndarray, no base, and no view other than `allowed`."""
    inplace_updates.check(x, False)
    if not isinstance(x.array, np.ndarray) or getattr(x, "_outside", None) is not None:
        raise UnsupportedError(located(f"{name} inside a traced function is not supported"))
    others = [view for r in x._views or () if (view := r()) is not None and view is not allowed]
    if x._base is not None or others:
        raise UnsupportedError(located(f"{name} of a view, or of a Tensor that has views, is not supported"))


def _resized_array(array: NDArray, shape: tuple[int, ...]) -> NDArray:
    """Return an array of this shape in the memory from the first element of `array` on, or a longer copy of it."""
    count = math.prod(shape)
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    if owner.dtype == array.dtype and owner.flags.c_contiguous:
        start = (array.ctypes.data - owner.ctypes.data) // array.itemsize if array.size else 0
        memory = owner.reshape(-1)[start:]
    else:
        memory = array.reshape(-1)
    if memory.size < count:
        longer = np.zeros(count, array.dtype)
        longer[: memory.size] = memory
        memory = longer
    return memory[:count].reshape(shape)


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

    def resize_(self: Any, *sizes: Any, memory_format: object = None) -> Any:
        """Give this Tensor another shape, with the elements in its memory, and undefined ones after them.

        RuntimeError if it requires grad; UnsupportedError for views, for Tensors with views, and in a trace.
        """
        check_format("resize_", memory_format)
        shape = integers(sizes)
        if self.requires_grad and not STATE.inference:
            raise RuntimeError(located("cannot resize variables that require grad"))
        if min(shape, default=0) < 0:
            raise RuntimeError(located(f"resize_: sizes must not be negative, got {shape}"))
        if shape != tuple(self.shape):
            _check_alone(self, "resize_", None)
            self.array = _resized_array(self.array, shape)
            inplace_updates.bump(self)
        return self

    def resize_as_(self: Any, the_template: Any, *, memory_format: object = None) -> Any:
        """Give this Tensor the shape of another one, as `resize_` does."""
        return self.resize_(tuple(the_template.shape), memory_format=memory_format)

    def set_(self: Any, source: Any = None) -> Any:
        """Take the memory and shape of `source`, a Tensor of this dtype; without it, become empty.

        RuntimeError for another dtype, and for a leaf that requires grad, except in `no_grad`. UnsupportedError for
        other recorded calls, views, Tensors with views, and in a trace.
        """
        if source is not None and not hasattr(source, "_edge"):
            raise TypeError(located(f"set_: the source must be a Tensor, got {type(source).__name__}"))
        new = np.empty(0, self.dtype) if source is None else source.array
        if new.dtype != self.dtype:
            names = type_name(new.dtype), type_name(self.dtype)
            raise RuntimeError(located("Could not set tensor of type {} to a tensor of type {}".format(*names)))
        if STATE.enabled and (self._edge or getattr(source, "_requires", False)):
            raise UnsupportedError(
                located("set_ is not recorded; call it in no_grad, or on what does not require grad")
            )
        inplace_updates.check(self, STATE.enabled and self._requires)
        _check_alone(self, "set_", source)
        if source is not None and source._base is self:
            source._base, source._steps = None, None
        self.array, self._views, self._edge, self._accumulator = new, None, None, None
        inplace_updates.bump(self)
        return self

    def _resized(self: Any, shape: tuple[int, ...]) -> Any:
        """Allocate separate memory of another shape, with undefined values."""
        inplace_updates.check(self, False)
        empty = np.zeros(shape, self.dtype)
        self.array = getattr(self.array, "_lift", np.asarray)(empty)
        return self
