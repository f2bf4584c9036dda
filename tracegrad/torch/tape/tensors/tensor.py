"""Class `Tensor`, a recorded array with PyTorch's interface.

The caller's arguments decide: a function differentiated for ndarrays computes on `TapeArray`s, whose methods are
NumPy's; a Tensor has PyTorch's methods, attributes and promotion. Both have NumPy's values, and share the tape.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tracegrad.avals import LITERALS
from tracegrad.errors import WARNED, located
from tracegrad.numpy_api.protocols import decides, is_array_class
from tracegrad.numpy_api.registry import dispatch_function, dispatch_ufunc
from tracegrad.ops.core.dispatch import TensorCarrier
from tracegrad.ops.core.op import Carrier, DispatchLevel
from tracegrad.ops.shape.linear import fresh
from tracegrad.torch.functions.core.dims import broadcast_shapes, fitting
from tracegrad.torch.functions.core.formats import check_format
from tracegrad.torch.functions.tensor_methods import TensorMethods
from tracegrad.torch.modes import STATE
from tracegrad.torch.tape.backward import engine
from tracegrad.torch.tape.backward.hooks import Hooks, RemovableHandle
from tracegrad.torch.tape.recording.node import AccumulateGrad, DualArray, wrapper
from tracegrad.torch.tape.recording.recorded_array import Recorded
from tracegrad.torch.tape.tensors import inplace_updates, numpy_protocol
from tracegrad.torch.tape.tensors.dtypes import get_default_dtype
from tracegrad.torch.tape.tensors.indexing import get_item, set_item
from tracegrad.torch.tape.tensors.inplace_views import BecomesView
from tracegrad.torch.tape.tensors.printing import format_of, html_of, text_of
from tracegrad.typing import NDArray

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand
    from tracegrad.typing import Array, DTypeLike


_new = object.__new__
_NO_LEAF = (
    "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't be "
    "populated during autograd.backward(). If you indeed want the .grad field to be populated for a non-leaf Tensor, "
    "use .retain_grad() on the non-leaf Tensor. If you access the non-leaf Tensor by mistake, make sure you access the "
    "leaf Tensor instead."
)
_NO_NUMPY = "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."


class Tensor(Recorded, BecomesView, TensorMethods, TensorCarrier):
    """Array with PyTorch's methods, on which operations are recorded. `tensor` makes it.

    Parameters
    ----------
    array : array_like
        Data, as for PyTorch's constructor `Tensor(data)`.
    requires_grad : bool
        Whether operations are recorded.
    *sizes : int
        Shape of an uninitialized Tensor.

    Examples
    --------
    >>> from tracegrad import tensor
    >>> x = tensor([2.0, 3.0], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad
    tensor([4., 6.])
    """

    level = DispatchLevel.TENSOR
    _counter: Any

    def __init__(self, array: Any = (), requires_grad: bool = False, *sizes: int):
        if not isinstance(array, Carrier):
            array, requires_grad = _legacy_constructor((array, requires_grad, *sizes))
        held(self, array, requires_grad)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: object, **kwargs: object) -> Any:
        recorder = self._of_ufunc.get(ufunc)
        if recorder is not None and method == "__call__" and not kwargs:
            return recorder(*inputs)
        if decides("__array_ufunc__", inputs):
            return NotImplemented
        if kwargs or method == "at":
            written = numpy_protocol.of_ufunc(ufunc, method, inputs, kwargs)
            if written is not numpy_protocol.NOT_HANDLED:
                return written
        return dispatch_ufunc(ufunc, method, inputs, kwargs)

    _of_ufunc: dict[Any, Any]

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if not all(map(is_array_class, types)):
            return NotImplemented
        written = numpy_protocol.of_function(func, args, kwargs)
        return dispatch_function(func, args, kwargs) if written is numpy_protocol.NOT_HANDLED else written

    # -- attributes of the tape ----------------------------------------------------------------------------------
    @property
    def grad(self) -> Any:
        """Return the accumulated gradient, a Tensor, or None; a warning if there will be none."""
        if self._grad is None and self._edge and not self._retains:
            warnings.warn(located(_NO_LEAF), UserWarning, stacklevel=2)
        return self._grad

    @grad.setter
    def grad(self, value: Array | None) -> None:
        if value is not None:
            if not isinstance(value, Tensor):
                raise TypeError(
                    located(
                        f"assigned grad expected to be a Tensor or None but got grad of type {type(value).__name__}"
                    )
                )
            if value is self:
                raise RuntimeError(located("can't assign Variable as its own grad"))
            if value.dtype != self.dtype:
                raise RuntimeError(
                    located(
                        f"attempting to assign a gradient with dtype '{value.dtype}' to a tensor with dtype "
                        f"'{self.dtype}'. Please ensure that the gradient and the tensor have the same dtype"
                    )
                )
            if value.shape != self.shape:
                raise RuntimeError(
                    located(
                        f"attempting to assign a gradient of size '{list(value.shape)}' to a tensor of size "
                        f"'{list(self.shape)}'. Please ensure that the gradient and the tensor are the same size"
                    )
                )
        self._grad = value

    @grad.deleter
    def grad(self) -> None:
        self._grad = None

    @property
    def requires_grad(self) -> bool:
        """Whether operations on this Tensor are recorded, or on the base of this view."""
        base = self._base
        return self._requires or (base is not None and base._requires and base._counter is not None)

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if value and self.dtype.kind not in "fc":
            raise RuntimeError(located("only Tensors of floating point and complex dtype can require gradients"))
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Set whether operations on this leaf are recorded.

        RuntimeError for dtypes that are neither floating nor complex, and for non-leaves.
        """
        if not requires_grad and self.grad_fn is not None:
            raise RuntimeError(
                located(
                    "you can only change requires_grad flags of leaf variables. If you want to use a computed variable "
                    "in a subgraph that doesn't require differentiation use var_no_grad = var.detach()."
                )
            )
        if requires_grad:
            if self.dtype.kind not in "fc":
                raise RuntimeError(located("only Tensors of floating point dtype can require gradients"))
            if self._counter is None and not STATE.inference:
                raise RuntimeError(
                    located("Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.")
                )
        self._requires = bool(requires_grad)
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether no recorded operation made this Tensor."""
        return not self._requires or self.grad_fn is None

    @property
    def retains_grad(self) -> bool:
        """Whether a backward pass keeps the gradient of this Tensor though it is not a leaf."""
        return self._retains

    def retain_grad(self) -> None:
        """Keep the gradient of this Tensor in `grad`, as of a leaf."""
        if not self._requires:
            raise RuntimeError(located("can't retain_grad on Tensor that has requires_grad=False"))
        if self.grad_fn is not None:
            self._retains = True
            inplace_updates.retain(self)

    @property
    def _version(self) -> int:
        """Return the number of in-place updates of this Tensor's memory."""
        if self._counter is None:
            raise RuntimeError(located("Inference tensors do not track version counter."))
        return int(self._counter[0])

    def is_inference(self) -> bool:
        """Return whether the Tensor was made in inference mode.

        Returns
        -------
        bool
            True for an inference tensor.

        Examples
        --------
        >>> from tracegrad import tensor
        >>> tensor([1.0]).is_inference()
        False
        """
        return self._counter is None

    def data_ptr(self) -> int:
        """Return the address of the first element."""
        return int(self.concrete("data_ptr()").ctypes.data)

    def _is_view(self) -> bool:
        """Whether this Tensor is a view of another one."""
        return self._base is not None

    @property
    def device(self) -> str:
        """Return the device of the Tensor: the CPU."""
        return "cpu"

    # -- the value without the tape --------------------------------------------------------------------------------
    @property
    def data(self) -> Tensor:
        """Return the value without the tape, in the same memory; its updates are not noticed."""
        return inplace_updates.as_frozen(self, of_array(self.array))

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise TypeError(located(f"Variable data has to be a tensor, but got {type(value).__name__}"))
        if self._requires and value.dtype.kind not in "fc":
            text = "data set to a tensor that requires gradients must be floating point or complex dtype"
            raise RuntimeError(located(text))
        self.array = value.array

    def detach(self) -> Tensor:
        """Return the value without the tape, in the same memory, with the same version counter.

        >>> from tracegrad import tensor
        >>> tensor([1.0], requires_grad=True).detach().requires_grad
        False
        """
        out: Tensor = of_array(self.array)
        out._counter = self._counter
        return inplace_updates.as_frozen(self, out)

    def detach_(self) -> Tensor:
        """Make this Tensor a leaf."""
        if self._base is not None:
            raise RuntimeError(located("Can't detach views in-place. Use detach() instead"))
        self._edge, self._requires, self._dual = None, False, None
        return self

    def clone(self, *, memory_format: object = None) -> Self:
        """Return a copy, which derivatives flow through."""
        check_format("clone", memory_format)
        copy: Self = self._result(fresh, (self,), (self.array,), {"tag": 0}, self._copied()).named("CloneBackward0")
        return copy

    _alias = clone

    def _copied(self) -> Array:
        result: Array = self.array.copy()
        return result

    def numpy(self, *, force: bool = False) -> NDArray:
        """Return the ndarray, sharing memory. RuntimeError for `requires_grad`, except in `no_grad` or by `force`."""
        if self._requires and STATE.enabled and not force:
            raise RuntimeError(located(_NO_NUMPY))
        array: NDArray = self.array
        if not isinstance(array, np.ndarray):
            array = self.concrete("numpy()")
        return array

    def __array__(self, dtype: DTypeLike = None, copy: bool | None = None) -> NDArray:
        if self._requires and STATE.enabled:
            WARNED.refused += 1
            raise RuntimeError(located(f"{_NO_NUMPY} {numpy_protocol.no_ndarray()}"))
        array = self.array if isinstance(self.array, np.ndarray) else self.concrete("numpy()")
        return np.array(array, dtype, copy=copy)

    # -- backward ----------------------------------------------------------------------------------------------------
    def backward(
        self,
        gradient: object = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: object = None,
    ) -> None:
        """Add the derivative of this Tensor to the `grad` of the leaves it was computed from, or of `inputs`.

        `gradient` is the cotangent of this Tensor; one element needs none. With `create_graph` the gradients are
        recorded themselves. Without `retain_graph` the tape is freed.

        >>> from tracegrad import tensor
        >>> x = tensor([2.0, 3.0], requires_grad=True)
        >>> (x * x).sum().backward()
        >>> x.grad
        tensor([4., 6.])
        """
        engine.backward(self, gradient, retain_graph, create_graph, inputs)

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
        """Call `hook(grad)` whenever a gradient of this Tensor is computed; its result replaces the gradient."""
        if not self._requires:
            raise RuntimeError(located("cannot register a hook on a tensor that doesn't require gradient"))
        node = self.grad_fn
        hooks = self._leaf_hooks() if node is None else node._hooks()
        return RemovableHandle(hooks.tensor.setdefault(self.output_nr, {}), hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], object]) -> RemovableHandle:
        """Call `hook(tensor)` after a backward pass has added to `grad` of this leaf."""
        if not self._requires:
            raise RuntimeError(located("cannot register a hook on a tensor that doesn't require gradient"))
        if self.grad_fn is not None:
            raise RuntimeError(located("post accumulate grad hooks cannot be registered on non-leaf tensors"))
        return RemovableHandle(self._leaf_hooks().accumulated, hook)

    def _leaf_hooks(self) -> Hooks:
        if self._hooks is None:
            self._hooks = Hooks()
            node = self._accumulator() if self._accumulator is not None else None
            if node is not None:
                node.hooks = self._hooks
        hooks: Hooks = self._hooks
        return hooks

    @property
    def _hooked(self) -> tuple[tuple[Callable[..., object], ...], ...]:
        """Return tuples of hooks of this leaf: on the gradient, after accumulation, before and after the node."""
        hooks = self._leaf_hooks()
        kinds = (hooks.tensor.get(0, {}), hooks.accumulated, hooks.before, hooks.after)
        return tuple([tuple(kind.values()) for kind in kinds])

    # -- updates in place --------------------------------------------------------------------------------------------
    def copy_(self, src: Array, non_blocking: bool = False) -> Tensor:
        """Take the values of `src`, broadcast to this shape and converted to this dtype."""
        new = self._lift(_as_operand(src))
        if new.shape != self.shape:
            broadcast_shapes(self.shape, new.shape)
        return self._overwrite(new, "CopyBackwards")

    def fill_(self, value: Tensor | float) -> Tensor:
        """Set all elements to `value`, a number or a Tensor of no dimensions."""
        if isinstance(value, Carrier) and value.aval.shape:
            raise RuntimeError(
                located(
                    f"fill_ only supports 0-dimension value tensor but got tensor with {value.aval.ndim} dimensions."
                )
            )
        fitting(value, self.dtype)
        name = "FillBackward3" if isinstance(value, Carrier) else "FillBackward2"
        return self._overwrite(self._lift(_as_operand(value)), name)

    def zero_(self) -> Tensor:
        """Set all elements to 0."""
        return self._overwrite(self._lift(np.asarray(0)), "ZeroBackward0")

    def _overwrite(self, new: Recorded, name: str) -> Tensor:
        inplace_updates.overwrite(self, new, name)
        return self

    def __getitem__(self, index: object) -> Tensor:
        result: Tensor = get_item(self, index)
        return result

    def __setitem__(self, index: object, value: object) -> None:
        set_item(self, index, value)

    def __repr__(self) -> str:
        return text_of(self)

    def _repr_html_(self) -> str:
        return html_of(self)

    def __format__(self, spec: str) -> str:
        return format_of(self, spec)


def _legacy_constructor(args: tuple[Any, ...]) -> tuple[NDArray, bool]:
    """Make the array of `Tensor(...)`, from data or sizes, in the default dtype; prefer `tensor`."""
    data, requires_grad, *sizes = args
    if isinstance(data, np.ndarray) and (data.dtype == get_default_dtype() or data.dtype.kind == "c"):
        return data, requires_grad
    if not hasattr(data, "__index__") or isinstance(data, np.ndarray):
        return np.array(data, get_default_dtype()), requires_grad
    rest = [] if requires_grad is False else [requires_grad, *sizes]
    return np.zeros([data.__index__(), *(n.__index__() for n in rest)], get_default_dtype()), False


def _as_operand(x: Operand) -> Any:
    return np.asarray(x) if type(x) in LITERALS or isinstance(x, list | tuple) else x


Tensor._public_class = Tensor


def of_array(array: Any, requires_grad: bool = False) -> Tensor:
    """Return a leaf Tensor that holds `array`: an ndarray, or a value of a trace."""
    if isinstance(array, Carrier):
        from tracegrad.torch.tape.tensors.traced_tensor import TracedTensor

        return TracedTensor(array, requires_grad)
    return held(_new(Tensor), array, requires_grad)


def held(tensor: Tensor, array: Array, requires_grad: bool) -> Tensor:
    """Turn a new Tensor into a leaf that holds `array`."""
    tensor.array, tensor._counter = array, None if STATE.inference else [0]
    if requires_grad:
        tensor._requires = True
    return tensor


def _on_tape(array: Any, edge: Any) -> Tensor:
    """Return a value of the tape as a Tensor: the leaf itself if it belongs to one."""
    moving = None
    if array.__class__ is DualArray:
        array, moving = array.array, array.dual
    if edge.__class__ is AccumulateGrad and edge.variable._holds(array) and edge.variable._dual is moving:
        result: Tensor = edge.variable
        return result
    out = of_array(array if isinstance(array, Carrier | np.ndarray) else np.asarray(array))
    if edge:
        out._requires, out._edge = True, edge
    out._dual = moving
    return out


wrapper.append(_on_tape)
