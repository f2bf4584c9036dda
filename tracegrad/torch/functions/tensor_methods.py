"""Class `TensorMethods`: operators, methods and attributes of PyTorch's Tensor for a carried value.

Every function of this package that is registered as a method is one. It has a form `name_` that updates the value in
place if PyTorch has that form. NumPy's functions and ufuncs on such a value keep NumPy's meaning.

A subclass is a `Carrier` with `shape` and `dtype`, and defines

- `concrete(query)`: the value as an ndarray, for Python that needs a number; `query` names the operation ("bool()");
- `_lift(x)`: an ndarray, NumPy scalar or carrier of a lower level as a carrier of this kind;
- `_become(result) -> self`: give this object the value `result`, which has the object's shape and dtype;
- `_alias()`: another object for the same value; `clone()`: a copy of it.

`_concrete_masks` says whether boolean arrays can be used as indices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from tracegrad.avals import LITERALS, Size
from tracegrad.errors import ShapeError, located
from tracegrad.numpy_api import reductions, selection
from tracegrad.numpy_api.array_methods import ArrayMethods
from tracegrad.numpy_api.operands import to_dtype
from tracegrad.numpy_api.registry import dispatch_function, dispatch_ufunc
from tracegrad.ops.core.op import Carrier, named
from tracegrad.ops.shape import linear
from tracegrad.torch.functions.core import promotion, registry
from tracegrad.torch.functions.core.dims import (
    SizeError,
    broadcast_shapes,
    dim_of,
    lengths,
    not_real,
    size_error,
    type_name,
)
from tracegrad.torch.functions.core.formats import check_format
from tracegrad.torch.functions.indexing import slicing
from tracegrad.torch.functions.linalg import matmul
from tracegrad.torch.functions.math import complex as complex_numbers
from tracegrad.torch.functions.math.integer_operators import integer_power, refuse_bool
from tracegrad.torch.functions.registered_methods import RegisteredMethods
from tracegrad.typing import Array, DTypeLike, NDArray, Number

if TYPE_CHECKING:
    from tracegrad.ops.core.dispatch import Operand


Kind = TypeVar("Kind", bound="TensorMethods")

_ARRAYS = (np.ndarray, np.generic, list, tuple)


def _operator(name: str) -> Callable[[Kind, object], Kind]:
    """Wrap NumPy's operator; explain shape errors in PyTorch's terms."""
    operator: Callable[[Kind, object], Kind] = getattr(ArrayMethods, name)

    def apply(self: Kind, other: object) -> Kind:
        try:
            return operator(self, other)
        except ShapeError:
            _explain(self, other)
            raise

    return apply


def _explain(x: Any, other: object = None) -> None:
    """Raise the error of PyTorch for operands whose shapes cannot be broadcast."""
    if hasattr(other, "shape"):
        broadcast_shapes(x.shape, other.shape)


def _renamed(operator: Callable[[Kind, object], Kind], of_number: str, of_array: str) -> Callable[[Kind, object], Kind]:
    """Wrap an operator whose node is called `of_number` with a Python number and `of_array` with an array.

    With a number PyTorch saves the operand, so the result may be updated in place.
    """

    def apply(self: Kind, other: object) -> Kind:
        number = type(other) in LITERALS
        return named(of_number if number else of_array, operator(self, other), copies_result=number)

    return apply


def _is_operand(x: Array, other: Array | Number) -> bool:
    """Whether an operator of `x` takes `other`, rather than leaving it to the operators of `other`."""
    if isinstance(other, Carrier):
        return bool(other.level <= x.level)
    return type(other) in LITERALS or isinstance(other, _ARRAYS)


def _unary(name: str) -> Callable[[Kind], Kind]:
    operator: Callable[[Kind], Kind] = getattr(ArrayMethods, name)
    return operator


_product: Callable[..., Any] = matmul.matmul


def _matmul(self: Kind, other: Any) -> Kind:
    result: Kind = _product(self, other) if _is_operand(self, other) else NotImplemented
    return result


def _rmatmul(self: Kind, other: Any) -> Kind:
    result: Kind = _product(other, self) if _is_operand(self, other) else NotImplemented
    return result


def _in_place(operator: Callable[..., Array]) -> Callable[[Kind, object], Kind]:
    def apply(self: Kind, other: object) -> Kind:
        result = operator(self, other)
        return result if result is NotImplemented else self._update(result)

    return apply


def _difference(name: str, of_number: str = "", of_array: str = "") -> Callable[[Kind, object], Kind]:
    """Wrap the operator `-`, which has no booleans; its node is called `of_number` or `of_array` unless empty."""
    operator: Callable[[Kind, object], Kind] = getattr(ArrayMethods, name)

    def apply(self: Kind, other: object) -> Kind:
        if self.dtype.kind == "b" or type(other) is bool or getattr(other, "dtype", None) == np.bool_:
            refuse_bool(self, other)
        try:
            result = operator(self, other)
        except ShapeError:
            _explain(self, other)
            raise
        if not of_number:
            return result
        number = type(other) in LITERALS
        return named(of_number if number else of_array, result, copies_result=number)

    return apply


def _quotient(self: Kind, other: object) -> Kind:
    """Divide `other` by the Tensor; 1 / x is computed as its reciprocal times 1, as in PyTorch."""
    if other.__class__ in (int, float) and other == 1 and self.dtype.kind == "f":
        return self.reciprocal() * other
    result: Kind = _divided(self, other)
    return result


_divided: Callable[[Any, object], Any] = _operator("__rtruediv__")


def _power(name: str, of_number: str, reflected: bool = False) -> Callable[[Kind, object], Kind]:
    """Wrap a power operator; powers of two integers are PyTorch's."""
    operator: Callable[[Kind, object], Kind] = _operator(name)

    def apply(self: Kind, other: Any) -> Kind:
        number = type(other) in LITERALS
        if self.dtype.kind in "iu" and (type(other) is int or getattr(other, "common_dtype", None)):
            operands: Any = (other, self) if reflected else (self, other)
            result: Any = integer_power(*operands)
            return result  # type: ignore[no-any-return]
        return named(of_number if number else "PowBackward1", operator(self, other), copies_result=number)

    return apply


_pow = _power("__pow__", "PowBackward0")
_mod = _renamed(_operator("__mod__"), "RemainderBackward0", "RemainderBackward1")


class TensorMethods(RegisteredMethods):
    """Methods of a Tensor, for a carrier."""

    __slots__ = ()
    __array_priority__ = 1000.0
    __hash__ = object.__hash__
    _tracks_views = False
    _concrete_masks = True
    _immutable_scalars = False
    common_dtype = staticmethod(promotion.common_dtype)

    # -- hooks ---------------------------------------------------------------------------------------------
    shape: Any
    dtype: Any

    if TYPE_CHECKING:

        def __getitem__(self, index: object, /) -> Self: ...

        def __array__(self, dtype: DTypeLike = None, /) -> NDArray: ...

    def concrete(self, query: str) -> np.ndarray[Any, Any]:
        """The value as an ndarray."""
        raise NotImplementedError

    def _numbers(self, query: str) -> NDArray:
        """An array whose elements are Python numbers without a derivative."""
        return self.concrete(query)

    def _lift(self, x: Array) -> Array:
        raise NotImplementedError

    def _become(self, result: Array) -> Self:
        raise NotImplementedError

    def _alias(self) -> Self:
        raise NotImplementedError

    def clone(self) -> Self:
        """A copy, which derivatives flow through."""
        return self._alias()

    # -- queries of NumPy's functions ----------------------------------------------------------------------
    def _known(self) -> np.ndarray[Any, Any] | None:
        """Return the value, for an index that determines shapes; None if it may differ between calls."""
        return self.concrete("a boolean index") if self._concrete_masks else None

    def _constant(self, x: NDArray) -> Array:
        return self._lift(x)

    def _assign(self, new: Array) -> None:
        self._become(new)

    def _update(self, new: Array, name: str = "") -> Self:
        """Take the value `new` of an in-place update, whose shape and dtype must fit."""
        if new.shape != self.shape:
            raise size_error(
                f"output with shape {lengths(self.shape)} doesn't match the broadcast shape {lengths(new.shape)}"
            )
        if not np.can_cast(new.dtype, self.dtype, "same_kind"):
            raise RuntimeError(
                located(
                    f"result type {type_name(new.dtype)} can't be cast to the desired output type "
                    f"{type_name(self.dtype)}"
                )
            )
        return self._become(to_dtype(new, self.dtype))

    # -- operators -----------------------------------------------------------------------------------------
    __add__, __radd__ = _operator("__add__"), _operator("__radd__")
    __sub__, __rsub__ = _difference("__sub__"), _difference("__rsub__", "RsubBackward1", "SubBackward0")
    __mul__, __rmul__ = _operator("__mul__"), _operator("__rmul__")
    __truediv__, __rtruediv__ = _operator("__truediv__"), _quotient
    __floordiv__, __rfloordiv__ = _operator("__floordiv__"), _operator("__rfloordiv__")
    __mod__, __rmod__ = _mod, _renamed(_operator("__rmod__"), "RemainderBackward1", "RemainderBackward1")
    __divmod__, __rdivmod__ = ArrayMethods.__divmod__, ArrayMethods.__rdivmod__
    __pow__, __rpow__ = _pow, _power("__rpow__", "PowBackward2", reflected=True)
    __matmul__, __rmatmul__ = _matmul, _rmatmul
    __and__, __rand__ = _operator("__and__"), _operator("__rand__")
    __or__, __ror__ = _operator("__or__"), _operator("__ror__")
    __xor__, __rxor__ = _operator("__xor__"), _operator("__rxor__")
    __lshift__, __rlshift__ = _operator("__lshift__"), _operator("__rlshift__")
    __rshift__, __rrshift__ = _operator("__rshift__"), _operator("__rrshift__")
    __lt__, __le__, __gt__, __ge__ = _operator("__lt__"), _operator("__le__"), _operator("__gt__"), _operator("__ge__")
    __eq__, __ne__ = _operator("__eq__"), _operator("__ne__")  # type: ignore[assignment]
    __neg__, __abs__, __invert__ = _unary("__neg__"), _unary("__abs__"), _unary("__invert__")

    __iadd__, __isub__ = _in_place(__add__), _in_place(__sub__)
    __imul__, __itruediv__ = _in_place(__mul__), _in_place(__truediv__)
    __ifloordiv__, __imod__ = _in_place(__floordiv__), _in_place(__mod__)
    __ipow__, __imatmul__ = _in_place(__pow__), _in_place(__matmul__)
    __ilshift__, __irshift__ = _in_place(__lshift__), _in_place(__rshift__)
    __iand__, __ior__, __ixor__ = _in_place(__and__), _in_place(__or__), _in_place(__xor__)

    def __pos__(self) -> Self:
        return ArrayMethods.__pos__(self) if self.dtype.kind == "b" else self

    # -- attributes ----------------------------------------------------------------------------------------
    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return int(self.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.itemsize * self.numel()

    @property
    def T(self: Array) -> Array:
        """A view with the dimensions reversed."""
        return linear.transpose(self, perm=tuple(range(len(self.shape) - 1, -1, -1)))

    @property
    def mT(self) -> Self:
        """A view with the last two dimensions exchanged."""
        if self.ndim < 2:
            raise size_error(
                f"tensor.mT is only supported on matrices or batches of matrices. Got {self.ndim}-D tensor."
            )
        n = self.ndim
        view: Any = linear.transpose(self, perm=(*range(n - 2), n - 1, n - 2))
        result: Self = named("TransposeBackward0", view)
        return result

    @property
    def H(self: Any) -> Array:
        """The conjugate of a matrix, transposed."""
        if self.ndim not in (0, 2):
            raise size_error(
                f"tensor.H is only supported on matrices (2-D tensors). Got {self.ndim}-D tensor. "
                "For batches of matrices, consider using tensor.mH"
            )
        return complex_numbers.conj(self.mT if self.ndim else self)

    @property
    def mH(self) -> Array:
        """The conjugate of matrices, transposed."""
        if self.ndim < 2:
            raise size_error(
                f"tensor.mH is only supported on matrices or batches of matrices. Got {self.ndim}-D tensor."
            )
        return complex_numbers.conj(self.mT)

    @property
    def real(self) -> Array:
        """The real part, a view; a real Tensor is its own."""
        return complex_numbers.real(self)

    @real.setter
    def real(self, value: Array) -> None:
        part: Any = self.real
        part.copy_(value)

    @property
    def imag(self) -> Array:
        """The imaginary part, a view; RuntimeError for real Tensors."""
        return complex_numbers.imag(self)

    @imag.setter
    def imag(self, value: Array) -> None:
        part: Any = self.imag
        part.copy_(value)

    # -- metadata ------------------------------------------------------------------------------------------
    def size(self, dim: int | None = None) -> Any:
        """The shape, or the length of one dimension."""
        return self.shape if dim is None else self.shape[dim_of(dim, self.ndim)]

    def numel(self) -> int:
        """Return the number of elements.

        Returns
        -------
        int
            Number of elements.
        """
        return math.prod(self.shape)

    def nelement(self) -> int:
        """The number of elements."""
        return self.numel()

    def dim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def ndimension(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def element_size(self) -> int:
        """Bytes per element."""
        return self.itemsize

    def is_floating_point(self) -> bool:
        """Whether the dtype is one of floating point."""
        return bool(self.dtype.kind == "f")

    def is_signed(self) -> bool:
        """Whether the dtype has negative numbers."""
        return bool(self.dtype.kind not in "ub")

    def is_same_size(self, other: Array) -> bool:
        """Whether the other has the same shape."""
        return bool(tuple(self.shape) == tuple(other.shape))

    def stride(self, dim: int | None = None) -> tuple[Array, Array]:
        """Return the distance in elements of neighbours along each axis, or along `dim`."""
        array = self.array if self.numel() else np.empty([max(n, 1) for n in self.shape], self.dtype)  # type: ignore[attr-defined]
        strides = tuple([n // self.dtype.itemsize for n in array.strides])
        return strides if dim is None else strides[dim_of(dim, len(strides))]

    def is_contiguous(self, memory_format: object = None) -> bool:
        """Whether the elements are in row-major order in memory; a trace knows the memory order of its arrays."""
        check_format("is_contiguous", memory_format)
        flags = getattr(getattr(self, "array", None), "flags", None)
        return True if flags is None else bool(flags.c_contiguous)

    def contiguous(self, memory_format: object = None) -> Array:
        """The Tensor itself if it is contiguous, else a copy."""
        check_format("contiguous", memory_format)
        return self if self.is_contiguous() else self.clone()

    # -- Python's protocols --------------------------------------------------------------------------------
    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        length: int = self.shape[0]
        return length

    def __iter__(self) -> Iterator[Self]:
        if not self.shape:
            raise TypeError("iteration over a 0-d tensor")
        return iter(slicing.unbind(self))

    def __contains__(self, value: Array | Number) -> bool:
        if not isinstance(value, Carrier) and type(value) not in LITERALS and not isinstance(value, np.generic):
            raise RuntimeError(
                located(f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(value)}.")
            )
        return bool(reductions.any_(self == value))

    def _scalar(self, query: str) -> Any:
        if self.numel() != 1:
            raise ValueError(located("only one element tensors can be converted to Python scalars"))
        number = self.concrete(query).item()
        if type(number) is complex and query != "complex()":
            raise not_real("float64" if query == "float()" else "int64")
        return number

    def __bool__(self) -> bool:
        n = self.numel()
        if n != 1:
            raise RuntimeError(
                located(f"Boolean value of Tensor with {'more than one value' if n else 'no values'} is ambiguous")
            )
        return bool(self.concrete("bool()").item())

    def __int__(self) -> int:
        return int(self._scalar("int()"))

    def __float__(self) -> float:
        return float(self._scalar("float()"))

    def __complex__(self) -> complex:
        return complex(self._scalar("complex()"))

    def __index__(self) -> int:
        if self.numel() != 1 or self.dtype.kind not in "iub":
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(self.concrete("an index").item())

    def __round__(self, ndigits: int | None = None) -> Any:
        return selection.round(self, ndigits or 0)

    def item(self) -> Any:
        """The only element as a Python number; RuntimeError if there are none or several."""
        if self.numel() != 1:
            raise RuntimeError(located(f"a Tensor with {self.numel()} elements cannot be converted to Scalar"))
        result: Array = self._numbers("item()").item()
        return result

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers; of a Tensor of no dimensions, the number."""
        return self._numbers("tolist()").tolist()

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: object, **kwargs: object) -> Any:
        return dispatch_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: object, args: Any, kwargs: Any) -> Any:
        return dispatch_function(func, args, kwargs)


# -- the functions of this package as methods ----------------------------------------------------------------------
def _method(name: str, function: Callable[..., object]) -> Callable[..., object]:
    def call(self: Operand, *args: Array | Size, **kwargs: object) -> Any:
        try:
            return function(self, *args, **kwargs)
        except SizeError:
            raise
        except ShapeError:
            _explain(self, *args[:1])
            raise

    # The examples are in the docstring of the function.
    call.__name__, call.__doc__ = name, (function.__doc__ or f"The function `{name}`.").partition(">>>")[0].rstrip()
    return call


def _updating_method(name: str, function: Callable[..., object]) -> Callable[..., object]:
    plain = _method(name, function)

    def call(self: Any, *args: Operand, **kwargs: object) -> Array:
        result: Array = self._update(plain(self, *args, **kwargs))
        return result

    call.__name__, call.__doc__ = f"{name}_", f"`{name}`, in place."
    return call


for _name, _function in registry.METHODS.items():
    if _name not in vars(TensorMethods):
        setattr(TensorMethods, _name, _method(_name, _function))
    if _name in registry.IN_PLACE:
        setattr(TensorMethods, f"{_name}_", _updating_method(_name, _function))
