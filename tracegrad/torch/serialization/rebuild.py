"""Functions that a pickle of PyTorch calls, under the names that it has for them.

Their arguments come from a file, so they are checked: a view is made within the bounds of its storage.
"""

from __future__ import annotations

import codecs
import pickle
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracegrad.avals import Size
from tracegrad.errors import located
from tracegrad.torch.functions.core.device import device
from tracegrad.torch.functions.core.formats import strided
from tracegrad.torch.nn.parameter import Parameter
from tracegrad.torch.serialization.storage_types import BFLOAT16, DTYPE_NAMES, STORAGE_TYPES, typed
from tracegrad.torch.tape import Tensor
from tracegrad.torch.tape.tensors.tensor import of_array
from tracegrad.typing import NDArray

if TYPE_CHECKING:
    from tracegrad.typing import Array, DTypeLike


class FileStorage(NamedTuple):
    """Storage of a file: its array, and the order of bytes in the file."""

    array: NDArray
    byteorder: str


def _view(array: Any, offset: Any, size: Any, stride: Any) -> NDArray:
    """Return a view of an array with one axis; UnpicklingError if it is not within the array."""
    numbers = (offset, *size, *stride)
    if type(array) is not np.ndarray or any(type(n) is not int or n < 0 for n in numbers) or len(size) != len(stride):
        raise pickle.UnpicklingError(located("load: a tensor has no valid storage, offset, size or stride"))
    if 0 in size:
        return np.empty(size, array.dtype)
    try:
        width = array.dtype.itemsize
        return np.ndarray(tuple(size), array.dtype, array, offset * width, tuple(n * width for n in stride))
    except (TypeError, ValueError, OverflowError) as error:
        text = f"load: a tensor of size {tuple(size)} and stride {tuple(stride)} is outside of its storage"
        raise pickle.UnpicklingError(located(text)) from error


def _rebuild_tensor(storage: FileStorage, storage_offset: int, size: object, stride: object) -> Tensor:
    array = storage.array if isinstance(storage, FileStorage) else None
    return of_array(_view(array, storage_offset, size, stride))


def _rebuild_tensor_v2(
    storage: FileStorage,
    storage_offset: int,
    size: object,
    stride: object,
    requires_grad: bool,
    backward_hooks: object,
    metadata: object = None,
) -> Tensor:
    tensor = _rebuild_tensor(storage, storage_offset, size, stride)
    return tensor.requires_grad_(True) if requires_grad is True else tensor


def _rebuild_tensor_v3(
    storage: FileStorage,
    storage_offset: int,
    size: object,
    stride: object,
    requires_grad: bool,
    backward_hooks: object,
    dtype: DTypeLike,
    metadata: object = None,
) -> Any:
    kind = BFLOAT16 if dtype is DTYPE_NAMES["torch.bfloat16"] else np.dtype(dtype).name
    if isinstance(storage, FileStorage):
        storage = FileStorage(typed(storage.array, kind, storage.byteorder), storage.byteorder)
    return _rebuild_tensor_v2(storage, storage_offset, size, stride, requires_grad, backward_hooks)


def _rebuild_parameter(data: Any, requires_grad: bool, backward_hooks: object) -> Tensor:
    return Parameter(data, requires_grad=requires_grad is True)


def _rebuild_parameter_with_state(data: Array, requires_grad: bool, backward_hooks: object, state: object) -> Any:
    return _with_attributes(_rebuild_parameter(data, requires_grad, backward_hooks), state)


def _rebuild_from_type_v2(function: Any, kind: type, arguments: Any, state: Any) -> Any:
    if not any(function is each for each in _REBUILDS) or not (kind is Tensor or kind is Parameter):
        raise pickle.UnpicklingError(located("load: a tensor of a class of its own needs weights_only=False"))
    return _with_attributes(function(*arguments), state)


def _with_attributes(tensor: Any, state: Any) -> Any:
    """Set the attributes of a Tensor that the user has set on it; those of the package stay."""
    state = state[0] if isinstance(state, tuple) else state
    for name, value in state.items():
        if hasattr(tensor, name):
            raise pickle.UnpicklingError(located(f"load: a tensor has the attribute {name!r} already"))
        setattr(tensor, name, value)
    return tensor


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """Return the bytes that a pickle of protocol 2 has as text."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(located("load: bytes are not encoded as latin1"))
    return codecs.encode(text, "latin1")


_REBUILDS: tuple[Callable[..., Any], ...] = (
    _rebuild_tensor,
    _rebuild_tensor_v2,
    _rebuild_tensor_v3,
    _rebuild_parameter,
    _rebuild_parameter_with_state,
)

# What a file may name, by its names: what can be called, and what is only a value.
CALLABLES: dict[str, Callable[..., Any]] = {
    **{f"torch._utils.{function.__name__}": function for function in _REBUILDS},
    "torch._tensor._rebuild_from_type_v2": _rebuild_from_type_v2,
    "torch.Size": Size,
    "torch.device": device,
    "torch.serialization._get_layout": lambda name: strided,
    "collections.OrderedDict": OrderedDict,
    "collections.Counter": Counter,
    "_codecs.encode": _encode,
    **{
        f"{module}.{kind.__name__}": kind
        for kind in (set, frozenset, complex, bytearray, bytes)
        for module in ("builtins", "__builtin__")
    },
}
VALUES: dict[str, Any] = {
    **STORAGE_TYPES,
    **DTYPE_NAMES,
    "torch.Tensor": Tensor,
    "torch.nn.parameter.Parameter": Parameter,
    "torch.nn.Parameter": Parameter,
}
