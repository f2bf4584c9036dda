"""The eager Tensor: an ndarray with a tape.

Values, dtypes and methods are NumPy's; the tape behaves as PyTorch's. A Tensor holds an ndarray (`array`); a Tensor
that came out of a recorded op has a `grad_fn`, one that the user made and that requires grad is a leaf.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.avals import Aval, supported
from tracegrad.eager import engine
from tracegrad.eager.modes import STATE
from tracegrad.eager.tape import CLASSES as _classes
from tracegrad.eager.tape import AccumulateGrad, node_class
from tracegrad.errors import TraceError, UnsupportedError, located, warn_of_constant
from tracegrad.numpy_api import ArrayMethods
from tracegrad.numpy_api.operands import peer_of
from tracegrad.numpy_api.registry import dispatch_ufunc
from tracegrad.ops import TABLE, elementwise
from tracegrad.ops.declare import Elementwise
from tracegrad.ops.linear import fresh
from tracegrad.ops.op import Carrier, Op
from tracegrad.quiet import QUIET, reset_traps, set_traps

__all__ = ["Tensor", "WeakTensor", "from_numpy", "tensor"]

_ndarray = np.ndarray
_new = object.__new__


def _fast_pair(op: Op, general: Any, general_reflected: Any) -> tuple[Any, Any]:
    """An operator and its reflected form, with a short way for operands that need no conversion."""

    def forward(self: Any, other: Any) -> Any:
        array = self.array
        if type(self) is Tensor and array.dtype.kind == "f":
            kind = type(other)
            if kind is float or kind is int:
                return self.bind(op, (self, float(other)), _NONE)
            if kind is Tensor and other.array.shape == array.shape and other.array.dtype is array.dtype:
                return self.bind(op, (self, other), _NONE)
        return general(self, other)

    def reflected(self: Any, other: Any) -> Any:
        if type(self) is Tensor and (type(other) is float or type(other) is int) and self.array.dtype.kind == "f":
            return self.bind(op, (float(other), self), _NONE)
        return general_reflected(self, other)

    return forward, reflected


_NONE: dict[str, Any] = {}
# Universal functions of one operand that are one op, for every floating dtype.
UNARY: dict[Any, Op] = {
    getattr(np, op.name): op
    for op in TABLE.values()
    if isinstance(op, Elementwise) and len(op.operands) == 1 and isinstance(getattr(np, op.name, None), np.ufunc)
}


class Tensor(Carrier, ArrayMethods):
    """An array that operations are recorded on; made by `tensor`."""

    __slots__ = ("__weakref__", "_accumulator", "_base", "_views", "array", "grad", "grad_fn", "requires_grad")
    level = 1
    _tracks_views = True
    _concrete_masks = True

    array: np.ndarray[Any, Any]
    grad: Any
    grad_fn: Any
    requires_grad: bool
    _accumulator: AccumulateGrad | None

    def __init__(self, array: np.ndarray[Any, Any], requires_grad: bool = False):
        self.array = array
        self.requires_grad = requires_grad
        self.grad = self.grad_fn = self._accumulator = None

    # -- what ops ask ----------------------------------------------------------------------------------------
    @property
    def shape(self) -> Any:
        return self.array.shape

    @property
    def dtype(self) -> Any:
        return self.array.dtype

    @property
    def aval(self) -> Aval:
        return Aval(self.array.shape, self.array.dtype)

    def bind(self, op: Op, operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        arrays = tuple([x.array if isinstance(x, Tensor) else x for x in operands])
        with_traps = set_traps(QUIET)
        try:
            answer = op.impl(*arrays, **params)
        finally:
            reset_traps(with_traps)
        if type(answer) is not _ndarray:
            answer = np.asarray(answer)
        if op.kind == "view" and any(answer is x for x in arrays):
            answer = answer.view()
        out = _new(Tensor)
        out.array = answer
        out.requires_grad = False
        out.grad = out.grad_fn = out._accumulator = None
        if STATE.enabled and answer.dtype.kind == "f":
            tracked = False
            parents: list[Any] = []
            for i, x in enumerate(operands):
                if isinstance(x, Tensor) and x.requires_grad and op.differentiable_in(i):
                    tracked = True
                    parents.append(x.grad_fn or x.node())
                else:
                    parents.append(None)
            if tracked:
                out.requires_grad = True
                out.grad_fn = (_classes.get(op) or node_class(op))(op, arrays, params, answer, parents)
        return out

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        op = UNARY.get(ufunc)
        if op is not None and method == "__call__" and not kwargs and self.array.dtype.kind == "f":
            return self.bind(op, inputs, {})
        return dispatch_ufunc(ufunc, method, inputs, kwargs)

    # Two Tensors of one floating dtype and shape, or one and a Python number, conform to these ops as they are.
    __add__, __radd__ = _fast_pair(elementwise.add, ArrayMethods.__add__, ArrayMethods.__radd__)
    __sub__, __rsub__ = _fast_pair(elementwise.subtract, ArrayMethods.__sub__, ArrayMethods.__rsub__)
    __mul__, __rmul__ = _fast_pair(elementwise.multiply, ArrayMethods.__mul__, ArrayMethods.__rmul__)
    __truediv__, __rtruediv__ = _fast_pair(elementwise.divide, ArrayMethods.__truediv__, ArrayMethods.__rtruediv__)

    @property
    def _immutable_scalars(self) -> bool:  # type: ignore[override]
        # Inside a transform a Tensor of no axes stands for a NumPy scalar; by itself it is an array, as in PyTorch.
        return self.weak or STATE.depth > 0

    # -- what NumPy's methods ask -----------------------------------------------------------------------------
    def concrete(self, asked: str) -> np.ndarray[Any, Any]:
        if self.requires_grad and STATE.depth and asked in ("float()", "item()", "tolist()"):
            warn_of_constant(asked)
        return self.array

    def _lift(self, x: Any) -> Any:
        if isinstance(x, Tensor):
            return x
        if isinstance(x, Carrier):
            raise TraceError(located(f"a {type(x).__name__} cannot become a Tensor"))
        supported(x.dtype)
        return Tensor(np.asarray(x))

    def _alias(self) -> Any:
        out = fresh(self, tag=0)
        out.array = out.array.copy()
        if out.grad_fn is not None:
            out.grad_fn.answer = out.array
        return out

    def _viewed(self, result: Any, put: Callable[[Any, Any], Any]) -> Any:
        result._base = self
        self._views = [*(r for r in getattr(self, "_views", ()) if r() is not None), weakref.ref(result)]
        return result

    def _assign(self, new: Any) -> None:
        if hasattr(self, "_base") or any(r() is not None for r in getattr(self, "_views", ())):
            raise UnsupportedError(located("in-place update of a Tensor that is a view, or has one; copy the view"))
        leaf = self.grad_fn is None and self.requires_grad
        if leaf and STATE.enabled:
            raise RuntimeError(located("a leaf Variable that requires grad is being used in an in-place operation."))
        if not isinstance(new, Tensor):
            new = Tensor(np.asarray(new))
        if new.requires_grad and new.grad_fn is None:
            new = fresh(new, tag=0)
        # What was recorded keeps the ndarray that it was recorded with: this Tensor gets another one.
        self.array, self._accumulator = (new.array.view() if new.grad_fn is None else new.array), None
        if not leaf:
            self.requires_grad, self.grad_fn = new.requires_grad, new.grad_fn

    def _weakened(self, result: Any) -> Any:
        for x in result if isinstance(result, tuple) else (result,):
            if isinstance(x, Tensor):
                x.__class__ = WeakTensor
        return result

    # -- what the engine asks ----------------------------------------------------------------------------------
    def node(self) -> Any:
        """The node that a recorded use of this Tensor leads back to, or None."""
        if self.grad_fn is not None:
            return self.grad_fn
        if not self.requires_grad:
            return None
        found = self._accumulator
        if found is None or found.answer is not self.array:
            found = self._accumulator = AccumulateGrad(self, self.array)
        return found

    @staticmethod
    def of(array: np.ndarray[Any, Any], node: Any = None) -> Tensor:
        """The Tensor for a value, which `node` made if it is on the tape."""
        if isinstance(node, AccumulateGrad):
            if node.variable.array is array:
                return node.variable  # type: ignore[no-any-return]
            out = Tensor(array, True)
            out._accumulator = node
            return out
        out = Tensor(array, node is not None)
        out.grad_fn = node
        return out

    # -- the tape ----------------------------------------------------------------------------------------------
    @property
    def is_leaf(self) -> bool:
        """Whether no recorded op made this Tensor."""
        return self.grad_fn is None

    @property
    def data(self) -> Tensor:
        """The value without the tape; shares memory."""
        return Tensor(self.array.view())

    @data.setter
    def data(self, value: Any) -> None:
        self.array = np.asarray(value.array if isinstance(value, Tensor) else value).view()
        self._accumulator = None

    def detach(self) -> Tensor:
        """The value without the tape; shares memory.

        >>> tensor([1.0], requires_grad=True).detach().requires_grad
        False
        """
        return Tensor(self.array.view())

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Set whether operations on this leaf are recorded."""
        if self.grad_fn is not None and not requires_grad:
            raise RuntimeError("you can only change requires_grad flags of leaf variables.")
        if requires_grad:
            _check_differentiable(self.array)
        self.requires_grad = requires_grad
        return self

    def backward(self, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False) -> None:
        """Add the derivative of this Tensor to the `grad` of the leaves it was computed from.

        `gradient` is the cotangent of this Tensor; one element needs none. With `create_graph` the gradients are
        recorded themselves. Without `retain_graph` the tape is freed.

        >>> x = tensor([2.0, 3.0], requires_grad=True)
        >>> (x * x).sum().backward()
        >>> x.grad
        tensor([4., 6.])
        """
        engine.backward([self], None if gradient is None else [gradient], retain_graph, create_graph)

    # -- the value ---------------------------------------------------------------------------------------------
    def numpy(self) -> np.ndarray[Any, Any]:
        """The ndarray; shares memory. Not while the Tensor requires grad."""
        if self.requires_grad:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
        return self.array

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array(self.numpy(), dtype, copy=copy)

    def __repr__(self) -> str:
        text = np.array2string(self.array, separator=", ", prefix="tensor(")
        dtype = "" if self.array.dtype in (np.float64, np.int64, np.bool_) else f", dtype={self.array.dtype}"
        if self.grad_fn is not None:
            return f"tensor({text}{dtype}, grad_fn=<{self.grad_fn.name()}>)"
        return f"tensor({text}{dtype}{', requires_grad=True' if self.requires_grad else ''})"

    def __format__(self, spec: str) -> str:
        return format(self.array.item(), spec) if not self.shape and spec else repr(self)


class WeakTensor(Tensor):
    """A Python number as a Tensor: it takes the dtype of the arrays it meets."""

    __slots__ = ()
    weak = True


def _check_differentiable(array: np.ndarray[Any, Any]) -> None:
    if array.dtype.kind != "f":
        raise RuntimeError(located("only Tensors of floating point dtype can require gradients"))


def tensor(data: Any, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """A new leaf Tensor with a copy of `data`: a number, nested sequence, ndarray or Tensor.

    The dtype is NumPy's choice unless given (float64 for Python floats). RuntimeError if `requires_grad` is asked of a
    dtype that is not floating.

    >>> tensor([1.0, 2.0], requires_grad=True)
    tensor([1., 2.], requires_grad=True)
    """
    if isinstance(data, list | tuple) and (peer := peer_of(data)) is not None:
        data = peer._lift(_values(data))
    plain = data.array if isinstance(data, Tensor) else data
    array = np.array(plain, dtype)
    array = array.astype(supported(array.dtype, "tensor"), copy=False)
    if requires_grad:
        _check_differentiable(array)
    return Tensor(array, requires_grad)


def _values(data: Any) -> Any:
    if isinstance(data, list | tuple):
        return np.array([_values(x) for x in data])
    return data.array if isinstance(data, Tensor) else data


def from_numpy(array: np.ndarray[Any, Any]) -> Tensor:
    """A Tensor of the dtype and shape of `array` that shares its memory; DTypeError for dtypes not supported.

    >>> import numpy as np
    >>> x = np.zeros(2)
    >>> t = from_numpy(x)
    >>> x[0] = 1.0
    >>> t
    tensor([1., 0.])
    """
    supported(array.dtype, "from_numpy")
    return Tensor(array.view())
