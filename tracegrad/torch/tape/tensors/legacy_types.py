"""Legacy Tensor types of PyTorch, by dtype: `LongTensor([1, 2])`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.torch.tape.tensors.dtypes import DTYPES
from tracegrad.torch.tape.tensors.factories import tensor, zeros
from tracegrad.torch.tape.tensors.tensor import Tensor
from tracegrad.typing import DType

__all__ = [
    "BoolTensor",
    "ByteTensor",
    "CharTensor",
    "DoubleTensor",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "ShortTensor",
]


class _TensorTypeMeta(type):
    """Metaclass of the Tensor types of one dtype: calls make Tensors, and Tensors of this dtype are instances."""

    dtype: DType

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor) and instance.dtype == cls.dtype

    def __call__(cls, *args: Any) -> Any:
        if args and all(isinstance(n, int | np.integer) for n in args):
            return zeros(*args, dtype=cls.dtype)
        return tensor(args[0] if args else [], dtype=cls.dtype)


_DOC = """Class of the Tensors of dtype {dtype}; a call makes one of data, or one of zeros of sizes.

Examples
--------
>>> {name}(2).dtype
torch.{dtype}
"""


def _kind(name: str, dtype: str) -> type:
    text = _DOC.format(name=name, dtype=dtype)
    return _TensorTypeMeta(name, (), {"dtype": DTYPES[dtype], "__doc__": text, "__module__": __name__})


BoolTensor, ByteTensor = _kind("BoolTensor", "bool"), _kind("ByteTensor", "uint8")
CharTensor, ShortTensor = _kind("CharTensor", "int8"), _kind("ShortTensor", "int16")
IntTensor, LongTensor = _kind("IntTensor", "int32"), _kind("LongTensor", "int64")
HalfTensor, FloatTensor = _kind("HalfTensor", "float16"), _kind("FloatTensor", "float32")
DoubleTensor = _kind("DoubleTensor", "float64")
