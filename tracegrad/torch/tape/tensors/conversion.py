"""Conversion of Tensors: to other dtypes, copies, pickles, and other libraries.

Conversions to a dtype are methods and record one node `ToCopyBackward0`; a Tensor that has the dtype is returned
unchanged. The methods of Python's copy and pickle protocols, and of DLPack, are at the end.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import supported
from tracegrad.errors import located
from tracegrad.ops.core.op import Carrier, named
from tracegrad.ops.shape.linear import cast
from tracegrad.torch.functions.core.device import check_device, is_device
from tracegrad.torch.functions.core.dims import TYPE_NAMES
from tracegrad.torch.functions.core.formats import check_format
from tracegrad.torch.tape.tensors import dtypes
from tracegrad.torch.tape.tensors.dtypes import DTYPES
from tracegrad.torch.tape.tensors.factories import tensor_method
from tracegrad.torch.tape.tensors.tensor import Tensor, held
from tracegrad.typing import DType, NDArray

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tracegrad.typing import Array, DeviceLike, DTypeLike


__all__: list[str] = []


# -- to a dtype ------------------------------------------------------------------------------------------------------
def _converted(x: Tensor, dtype: DTypeLike, copy: bool = False) -> Tensor:
    kind = supported(dtype, "dtype=")
    if kind == x.dtype and not copy:
        return x
    copied: Any = x._alias() if kind == x.dtype else cast(x, dtype=kind.name)
    result: Tensor = named("ToCopyBackward0", copied)
    return result


@tensor_method("to")
def to(
    self: Tensor,
    *args: DType,
    dtype: DTypeLike = None,
    device: object = None,
    other: Array | None = None,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: object = None,
) -> Tensor:
    """Convert this Tensor: `to(dtype)`, `to(other)`, `to(device, dtype)`; itself if nothing changes.

    `copy=True` always copies. RuntimeError for a device other than the CPU.

    >>> from tracegrad import tensor
    >>> to(tensor([1.0, 2.0]), np.int64)
    tensor([1, 2])
    """
    check_format("to", memory_format)
    for inputs in args[:2]:
        if isinstance(inputs, Carrier | np.ndarray):
            other = inputs
        elif is_device(inputs):
            device = inputs
        elif not isinstance(inputs, bool):
            dtype = inputs if inputs is not None else dtype
    check_device(device)
    if dtype is None:
        dtype = self.dtype if other is None else other.dtype
    return _converted(self, dtype, copy)


def _to_dtype(name: str, dtype: DType) -> None:
    def convert(self: Tensor, memory_format: object = None) -> Tensor:
        check_format(name, memory_format)
        return _converted(self, dtype)

    convert.__name__ = convert.__qualname__ = name
    convert.__doc__ = f"This Tensor in dtype {dtype}; itself if it has that dtype."
    tensor_method(name)(convert)


for _name, _kind in {
    "float": "float32",
    "double": "float64",
    "int": "int32",
    "long": "int64",
    "short": "int16",
    "bool": "bool",
    "half": "float16",
    "byte": "uint8",
    "char": "int8",
    "cfloat": "complex64",
    "cdouble": "complex128",
}.items():
    _to_dtype(_name, DTYPES[_kind])


@tensor_method("bfloat16")
def bfloat16(self: Tensor, memory_format: object = None) -> Tensor:
    """Not supported: NumPy has no bfloat16."""
    return _converted(self, dtypes.bfloat16)


@tensor_method("astype")
def astype(self: Tensor, dtype: DTypeLike, copy: bool = True) -> Tensor:
    """Return a copy in another dtype, NumPy's name for `to(dtype, copy=True)`."""
    return _converted(self, dtype, copy)


@tensor_method("type_as")
def type_as(self: Tensor, other: Tensor) -> Tensor:
    """Return this Tensor in the dtype of `other`."""
    return _converted(self, other.dtype)


_TYPES = {**TYPE_NAMES, "uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64"}
_NAMED = {f"{stem}Tensor": name for name, stem in _TYPES.items()}


@tensor_method("type")
def type_(self: Tensor, dtype: DTypeLike = None, non_blocking: bool = False, memory_format: object = None) -> Any:
    """Return the type name of this Tensor ("tracegrad.DoubleTensor"), or convert it to `dtype`, also by a type name.

    >>> from tracegrad import tensor
    >>> type_(tensor([1.0]))
    'tracegrad.DoubleTensor'
    """
    check_format("type", memory_format)
    if dtype is None:
        return f"tracegrad.{_TYPES[self.dtype.name]}Tensor"
    if isinstance(dtype, str):
        name = _NAMED.get(dtype.rpartition(".")[2])
        if name is None:
            raise ValueError(located(f"invalid type: {dtype!r}"))
        dtype = np.dtype(name)
    return _converted(self, dtype)


@tensor_method("cpu")
def cpu(self: Tensor, memory_format: object = None) -> Tensor:
    """Return this Tensor: there is no other device."""
    check_format("cpu", memory_format)
    return self


@tensor_method("cuda")
def cuda(self: Tensor, device: DeviceLike = None, non_blocking: bool = False, memory_format: object = None) -> Any:
    """Raise RuntimeError: there is no CUDA device."""
    check_device("cuda")


# -- to copies and bytes ---------------------------------------------------------------------------------------------
def _remade(cls: Any, array: NDArray, requires_grad: bool, state: Mapping[str, object]) -> Tensor:
    """Return a leaf of class `cls`, with the attributes `state` that the user has set."""
    out = held(cls.__new__(cls), array, requires_grad)
    vars(out).update(state)
    return out


def _state(self: Tensor) -> dict[str, Any]:
    """Return the attributes that the user has set on a Tensor."""
    return {name: x for name, x in vars(self).items() if name not in _INTERNAL_ATTRS and not hasattr(Tensor, name)}


_INTERNAL_ATTRS = frozenset({"array", "_counter"})


@tensor_method("__reduce__")
def reduce_tensor(self: Tensor) -> tuple[Callable[..., object], tuple[type, NDArray, bool, dict[str, bool]]]:
    """`Tensor.__reduce__`: pickle the value and `requires_grad`, without the history and `grad`."""
    return _remade, (type(self), self.concrete("pickle"), self.requires_grad, _state(self))


@tensor_method("__copy__")
def copy_tensor(self: Tensor) -> Tensor:
    """`Tensor.__copy__`: a leaf that shares the memory."""
    return _remade(type(self), self.array.view(), self.requires_grad, _state(self))


def place_of(array: NDArray) -> tuple[NDArray, int]:
    """Return the array whose memory an array is a view of, and where the view begins in it, in bytes."""
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    return owner, array.__array_interface__["data"][0] - owner.__array_interface__["data"][0]


def _copied(array: NDArray, memo: dict[int, Any]) -> NDArray:
    """Copy an array by a copy of its base memory, which `memo` stores for other arrays of that memory."""
    if not isinstance(array, np.ndarray):
        return array.copy()
    owner, offset = place_of(array)
    if not owner.flags.forc:
        return array.copy()
    copy = memo.get(id(owner))
    if copy is None:
        copy = memo[id(owner)] = owner.copy("K")
    if owner is array:
        return copy.view()
    return np.ndarray(array.shape, array.dtype, copy.ravel("K").data, offset, array.strides)


@tensor_method("__deepcopy__")
def deepcopy_tensor(self: Tensor, memo: dict[int, Any]) -> Tensor:
    """`Tensor.__deepcopy__`: a leaf with copies of the value and `grad`; RuntimeError for a Tensor with a history."""
    if id(self) in memo:
        result: Tensor = memo[id(self)]
        return result
    if self.grad_fn is not None:
        raise RuntimeError(
            located(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the "
                "moment; take detach() of this one first, or clone() to keep its history"
            )
        )
    out = memo[id(self)] = _remade(type(self), _copied(self.array, memo), self.requires_grad, {})
    if self.grad is not None:
        # With a `memo` of its own: the detached Tensor is temporary, so its id may be reused.
        out.grad = deepcopy_tensor(self.grad.detach(), {})
    vars(out).update({name: deepcopy(x, memo) for name, x in _state(self).items()})
    return out


# -- to other libraries ----------------------------------------------------------------------------------------------
@tensor_method("__dlpack__")
def dlpack(self: Any, **options: object) -> Any:
    """`Tensor.__dlpack__`: the memory for another library; BufferError if it would lose a derivative."""
    if self.requires_grad:
        raise BufferError(located("Can't export tensors that require gradient, use tensor.detach()"))
    return self.concrete("__dlpack__()").__dlpack__(**options)


@tensor_method("__dlpack_device__")
def dlpack_device(self: Tensor) -> tuple[int, int]:
    """`Tensor.__dlpack_device__`: the CPU."""
    return (1, 0)
