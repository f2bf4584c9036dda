"""Parameters and buffers: Tensors with a mark, by which a `Module` finds them among its attributes.

A parameter is a Tensor whose class is `Tensor`, so that operations on it use the fast path of all Tensors. `isinstance`
checks the mark. Copies and pickles preserve the mark; results computed from a parameter have none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracegrad.errors import located
from tracegrad.torch.tape import Tensor
from tracegrad.torch.tape.tensors.dtypes import get_default_dtype
from tracegrad.torch.tape.tensors.tensor import of_array

__all__ = ["Buffer", "Parameter", "is_buffer", "is_parameter"]


def is_parameter(x: object) -> bool:
    """Whether `x` is a parameter."""
    return isinstance(x, Tensor) and getattr(x, "_is_param", False)


def is_buffer(x: object) -> bool:
    """Whether `x` is a Tensor that was marked as a buffer."""
    return isinstance(x, Tensor) and getattr(x, "_is_buffer", False)


class _OfParameters(type):
    def __instancecheck__(cls, x: object) -> bool:
        return is_parameter(x) if cls is Parameter else super().__instancecheck__(x)


class _OfBuffers(type):
    def __instancecheck__(cls, x: object) -> bool:
        return is_buffer(x) if cls is Buffer else super().__instancecheck__(x)


def _leaf(data: Any, requires_grad: bool) -> Any:
    """Make a leaf that shares the memory of `data`."""
    if data is None:
        data = np.empty(0, get_default_dtype())
    if not isinstance(data, Tensor | np.ndarray):
        raise TypeError(located(f"a parameter or buffer is made of a Tensor or ndarray, got a {type(data).__name__}"))
    array = data.array if isinstance(data, Tensor) else data
    if requires_grad and array.dtype.kind not in "fc":
        raise RuntimeError(
            located("Only Tensors of floating point and complex dtype can require gradients: pass requires_grad=False")
        )
    return of_array(array, requires_grad)


class Parameter(Tensor, metaclass=_OfParameters):
    """Parameter of the module of which it becomes an attribute: a leaf Tensor that requires grad.

    TypeError for data that are no array; RuntimeError if `requires_grad` and the dtype is neither floating nor complex.

    >>> import numpy as np
    >>> Parameter(np.ones(2))
    Parameter containing:
    tensor([1., 1.], requires_grad=True)
    """

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Any:
        out = _leaf(data, requires_grad)
        out._is_param = True
        return out


class Buffer(Tensor, metaclass=_OfBuffers):
    """Buffer of the module of which it becomes an attribute: state that is no parameter.

    >>> import numpy as np
    >>> Buffer(np.zeros(2), persistent=False)
    tensor([0., 0.])
    """

    def __new__(cls, data: Any = None, *, persistent: bool = True) -> Any:
        out = _leaf(data, bool(getattr(data, "requires_grad", False)))
        out._is_buffer, out.persistent = True, persistent
        return out
