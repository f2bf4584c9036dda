"""Pickle of objects under PyTorch's names: Tensors refer to storages, which are records of their own.

The pickler is that of Python's standard library in Python, because the one in C cannot write a name that is not there.
"""

from __future__ import annotations

import pickle
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np

from tracegrad.avals import Size
from tracegrad.errors import located
from tracegrad.torch.functions.core.device import device
from tracegrad.torch.functions.core.dims import TYPE_NAMES
from tracegrad.torch.nn.parameter import Parameter
from tracegrad.torch.tape import Tensor
from tracegrad.torch.tape.tensors.conversion import place_of
from tracegrad.torch.tape.tensors.dtypes import bfloat16
from tracegrad.typing import DType, NDArray

_PROTOCOL = 2


class GlobalName(NamedTuple):
    """Name in a pickle, of something that need not be in this process."""

    module: str
    name: str

    def __call__(self) -> None:
        """Do nothing: `pickle` wants what makes an object to be callable."""


# Classes that have another name in PyTorch.
_CLASSES: dict[type, GlobalName] = {
    Tensor: GlobalName("torch", "Tensor"),
    Parameter: GlobalName("torch.nn.parameter", "Parameter"),
}


class _NumPyDType(NamedTuple):
    """Dtype of an ndarray, which is NumPy's in the file too."""

    dtype: DType


class _StorageKey(NamedTuple):
    """Persistent id of a storage."""

    type: GlobalName
    key: str
    numel: int


_Pickler: Any = pickle._Pickler


class TensorPickler(_Pickler):  # type: ignore[misc]
    """Pickler that collects the storages of Tensors: arrays of one axis, by their keys."""

    def __init__(self, file: Any, protocol: int = _PROTOCOL):
        super().__init__(file, protocol)
        self.storages: dict[str, NDArray] = {}
        self._keys: dict[tuple[int, int], tuple[str, str]] = {}
        self._memory: list[Any] = []  # that of the keys, so that no other array gets their addresses

    def persistent_id(self, obj: object) -> object:
        """Return the id of a storage; None for other objects."""
        if type(obj) is not _StorageKey:
            return None
        return ("storage", obj.type, obj.key, "cpu", obj.numel)

    def save(self, obj: object, save_persistent_id: bool = True) -> None:
        """Write an object; names and dtypes as names of `torch`."""
        if isinstance(obj, np.dtype) and obj.names is None and obj.kind in "biufc":
            obj = GlobalName("torch", obj.name)
        elif obj is bfloat16:
            obj = GlobalName("torch", "bfloat16")
        elif isinstance(obj, type):
            obj = _CLASSES.get(obj, obj)
        if type(obj) is GlobalName:
            self.write(pickle.GLOBAL + f"{obj.module}\n{obj.name}\n".encode())
        elif type(obj) is _NumPyDType:
            self.save_reduce(*obj.dtype.__reduce__())
        else:
            super().save(obj, save_persistent_id)

    def reducer_override(self, obj: Any) -> Any:
        """Return how a Tensor, a size, a device, or an array of NumPy is made again."""
        kind = type(obj)
        if isinstance(obj, Tensor):
            return self._tensor(obj)
        if kind is Size:
            return GlobalName("torch", "Size"), (tuple(obj),)
        if kind is device:
            return GlobalName("torch", "device"), obj.__reduce__()[1]
        if kind is np.ndarray or isinstance(obj, np.generic):
            return _with_numpy_dtypes(obj.__reduce__())
        return NotImplemented

    def _tensor(self, tensor: Any) -> Any:
        """Return how a Tensor is made: from its storage, and its attributes if it has some."""
        _, (cls, array, requires_grad, attributes) = tensor.__reduce__()
        marks = {name: attributes.pop(name, None) for name in ("_is_param", "_is_buffer", "persistent")}
        storage, offset, strides = self._storage(array)
        arguments: tuple[Any, ...] = storage, offset, tuple(array.shape), strides, requires_grad, OrderedDict()
        name = "_rebuild_tensor_v2"
        if array.dtype.name not in TYPE_NAMES:
            name, arguments = "_rebuild_tensor_v3", (*arguments, array.dtype)
        rebuild = GlobalName("torch._utils", name)
        if marks["_is_param"]:
            data = _Reduced(rebuild, (*arguments[:4], False, *arguments[5:]))
            if attributes:
                function = GlobalName("torch._utils", "_rebuild_parameter_with_state")
                return function, (data, requires_grad, OrderedDict(), attributes)
            return GlobalName("torch._utils", "_rebuild_parameter"), (data, requires_grad, OrderedDict())
        if cls is not Tensor or attributes:
            function = GlobalName("torch._tensor", "_rebuild_from_type_v2")
            return function, (rebuild, cls, arguments, attributes)
        return rebuild, arguments

    def _storage(self, array: NDArray) -> tuple[_StorageKey, int, tuple[int, ...]]:
        """Return the storage of an array, and the array's offset and strides in it, in elements."""
        dtype, width = array.dtype, array.dtype.itemsize
        owner, offset = place_of(array)
        steps = array.strides
        whole = owner.nbytes % width == offset % width == 0 and all(n >= 0 and n % width == 0 for n in steps)
        if not whole or not owner.flags.forc:
            array = owner = np.ascontiguousarray(array)
            offset, steps = 0, array.strides
        at = owner.__array_interface__["data"][0], owner.nbytes
        known = self._keys.get(at) if owner.nbytes else None
        if known is None:
            known = self._keys[at] = str(len(self.storages)), dtype.name
            flat = owner.ravel("K").view(np.uint8)
            self.storages[known[0]] = flat
            self._memory.append(owner)
        key, kind = known
        if kind != dtype.name:
            text = "Cannot save multiple tensors or storages that view the same data as different types"
            raise RuntimeError(located(text))
        stem = TYPE_NAMES.get(dtype.name)
        if stem is None:  # a dtype without a type of storages
            storage = _StorageKey(GlobalName("torch.storage", "UntypedStorage"), key, owner.nbytes)
        else:
            storage = _StorageKey(GlobalName("torch", f"{stem}Storage"), key, owner.nbytes // width)
        return storage, offset // width, tuple(n // width for n in steps)


class _Reduced:
    """Object that is made by a call, inside of the arguments of another one."""

    def __init__(self, function: Any, arguments: tuple[object, ...]):
        self.how = function, arguments

    def __reduce__(self) -> Any:
        return self.how


def _with_numpy_dtypes(x: object) -> object:
    if isinstance(x, tuple):
        return tuple(map(_with_numpy_dtypes, x))
    return _NumPyDType(x) if isinstance(x, np.dtype) else x
