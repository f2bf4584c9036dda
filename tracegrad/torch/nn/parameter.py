"""Parameters and buffers: Tensors with a mark, by which a `Module` finds them among its attributes.

A parameter is a Tensor whose class is `Tensor`, so that operations on it use the fast path of all Tensors. `isinstance`
checks the mark. Copies and pickles preserve the mark; results computed from a parameter have none.

An uninitialized parameter or buffer has a dtype and no shape. `materialize` gives it a shape and makes its class
`Tensor`; the object stays the same, so optimizers may hold it before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, SupportsIndex

import numpy as np

from tracegrad.errors import located
from tracegrad.torch.tape import Tensor
from tracegrad.torch.tape.tensors.dtypes import get_default_dtype
from tracegrad.torch.tape.tensors.factories import empty
from tracegrad.torch.tape.tensors.tensor import held, of_array

if TYPE_CHECKING:
    from tracegrad.avals import Size
    from tracegrad.typing import DeviceLike, DType, DTypeLike, NDArray, Sizes


__all__ = [
    "Buffer",
    "Parameter",
    "UninitializedBuffer",
    "UninitializedParameter",
    "UninitializedTensorMixin",
    "is_buffer",
    "is_lazy",
    "is_parameter",
]

_NO_SHAPE = (
    "Can't access the shape of an uninitialized parameter or buffer. This error usually happens in `load_state_dict` "
    "when trying to load an uninitialized parameter into an initialized one. Call `forward` to initialize the "
    "parameters before accessing their attributes."
)
_NO_VALUE = (
    "Attempted to use an uninitialized parameter. This error happens when you are using a `LazyModule` or explicitly "
    "manipulating `tracegrad.nn.parameter.{}` objects. When using LazyModules call `forward` with a dummy batch to "
    "initialize the parameters before calling functions on them"
)


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

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Self:
        out: Any = _leaf(data, requires_grad)
        out._is_param = True
        result: Self = out
        return result


class Buffer(Tensor, metaclass=_OfBuffers):
    """Buffer of the module of which it becomes an attribute: state that is no parameter.

    >>> import numpy as np
    >>> Buffer(np.zeros(2), persistent=False)
    tensor([0., 0.])
    """

    def __new__(cls, data: Any = None, *, persistent: bool = True) -> Self:
        out: Any = _leaf(data, bool(getattr(data, "requires_grad", False)))
        out._is_buffer, out.persistent = True, persistent
        result: Self = out
        return result


# -- without a shape -------------------------------------------------------------------------------------------------
def is_lazy(param: object) -> bool:
    """Whether `param` is an uninitialized parameter or buffer."""
    return isinstance(param, UninitializedTensorMixin)


class UninitializedTensorMixin(Tensor):
    """Tensor with a dtype and without a shape: its value may be converted, replaced and materialized, nothing else.

    `shape` raises RuntimeError, and functions of the Tensor raise ValueError.
    """

    _uninitialized = True

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        return object.__new__(cls)

    def materialize(self, shape: Sizes, device: DeviceLike = None, dtype: DTypeLike = None) -> None:
        """Allocate a value of this shape, uninitialized; the object becomes an ordinary parameter or buffer."""
        value = empty(shape, device=device, dtype=self.dtype if dtype is None else dtype)
        marks = {name: getattr(self, name) for name in ("_is_param", "_is_buffer") if hasattr(self, name)}
        self.__dict__.pop("_empty", None)
        self.__class__ = Tensor  # type: ignore[assignment]
        for name, mark in marks.items():
            setattr(self, name, mark)
        self.array = value.array

    @property
    def array(self) -> NDArray:
        """Raise ValueError: there is no value."""
        raise ValueError(located(_NO_VALUE.format(type(self).__name__)))

    @array.setter
    def array(self, value: NDArray) -> None:
        self.__dict__["_empty"] = value

    @property
    def shape(self) -> Size:
        """Raise RuntimeError: there is no shape."""
        raise RuntimeError(located(_NO_SHAPE))

    @property
    def dtype(self) -> DType:
        """Return the dtype of the value to come."""
        dtype: DType = self.__dict__["_empty"].dtype
        return dtype

    @property
    def data(self) -> Tensor:
        """Return a Tensor without elements, which has the dtype."""
        result: Tensor = of_array(self.__dict__["_empty"])
        return result

    @data.setter
    def data(self, value: Tensor) -> None:
        self.array = value.array

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Raise ValueError: there is no value; the constructor takes `requires_grad`."""
        raise ValueError(located(_NO_VALUE.format(type(self).__name__)))

    def share_memory_(self) -> Self:
        """Raise RuntimeError: there is no memory."""
        raise RuntimeError(
            located(
                "Can't share memory on an uninitialized parameter or buffer. Call `forward` to initialize the "
                "parameters before calling `module.share_memory()`."
            )
        )

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        copy = memo[id(self)] = type(self)(self._requires, dtype=self.dtype)
        return copy

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[object, ...]:
        return type(self), (self._requires, None, self.dtype)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """Parameter without a shape, which `materialize` sets.

    >>> parameter = UninitializedParameter(dtype="float32")
    >>> parameter, isinstance(parameter, Parameter)
    (<UninitializedParameter>, True)
    >>> parameter.materialize((2, 3))
    >>> parameter.shape, type(parameter).__name__
    (torch.Size([2, 3]), 'Tensor')
    """

    _is_param = True

    def __init__(self, requires_grad: bool = True, device: DeviceLike = None, dtype: DTypeLike = None):
        held(self, empty(0, device=device, dtype=dtype).array, requires_grad)


class UninitializedBuffer(UninitializedTensorMixin, Buffer):
    """Buffer without a shape, which `materialize` sets.

    >>> buffer = UninitializedBuffer()
    >>> buffer
    <UninitializedBuffer>
    >>> buffer.materialize(2, dtype="int64")
    >>> buffer.shape, buffer.dtype
    (torch.Size([2]), torch.int64)
    """

    _is_buffer = True

    def __init__(
        self,
        requires_grad: bool = False,
        device: DeviceLike = None,
        dtype: DTypeLike = None,
        persistent: bool = True,
    ):
        held(self, empty(0, device=device, dtype=dtype).array, requires_grad)
        self.persistent = persistent
