"""Factory functions of Tensors, with PyTorch's names, arguments and errors.

Each takes `dtype`, `device` (only the CPU) and `requires_grad`, which needs a floating or complex dtype (RuntimeError
otherwise). Python floats become the default dtype, ints int64, bools bool; ndarrays and NumPy scalars keep their dtype.
In a trace the result is a value of the trace, not a constant. Tensors in place of numbers are read without history.
"""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tracegrad.avals import supported
from tracegrad.errors import ShapeError, located
from tracegrad.numpy_api import creation
from tracegrad.ops.core.op import Carrier
from tracegrad.ops.core.recorders import active_recorder
from tracegrad.ops.shape import linear
from tracegrad.torch.functions.core.device import check_device
from tracegrad.torch.functions.core.dims import fitting
from tracegrad.torch.functions.core.promotion import number_dtype, promote_types
from tracegrad.torch.tape.tensors.docs import TENSOR_DOCS
from tracegrad.torch.tape.tensors.dtypes import check_requires_grad, get_default_dtype
from tracegrad.torch.tape.tensors.tensor import Tensor, of_array
from tracegrad.typing import DType, NDArray, Sizes

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from tracegrad.typing import Array, DeviceLike, DTypeLike, Number


__all__ = [
    "as_tensor",
    "asarray",
    "empty",
    "empty_like",
    "eye",
    "from_dlpack",
    "from_numpy",
    "frombuffer",
    "full",
    "full_like",
    "is_tensor",
    "ones",
    "ones_like",
    "scalar_tensor",
    "tensor",
    "zeros",
    "zeros_like",
]


F = TypeVar("F", bound=Callable[..., Any] | property)


# -- arguments and results -------------------------------------------------------------------------------------------
def tracing() -> bool:
    """Whether a trace is active in this thread."""
    return active_recorder() is not None


def tensor_method(*names: str) -> Callable[[F], F]:
    """Make a function a method of Tensors, under `names`."""

    def declare(fn: F) -> F:
        for name in names:
            setattr(Tensor, name, fn)
        return fn

    return declare


def wrap(array: Array, requires_grad: bool = False) -> Tensor:
    """Make a leaf Tensor that holds `array`: an ndarray, or a value of the active trace."""
    check_requires_grad(array.dtype, requires_grad)
    return of_array(array, requires_grad)


def is_tensor(obj: Array | list[float]) -> bool:
    """Return whether an object is a Tensor.

    >>> is_tensor(np.ones(2))
    False
    """
    return isinstance(obj, Tensor)


def plain(x: object) -> Any:
    """Replace Tensors in `x`, at any depth of lists and tuples, by their arrays."""
    if isinstance(x, Tensor):
        return x.array
    if isinstance(x, list | tuple):
        return [plain(each) for each in x]
    return x


def shape_of(name: str, sizes: tuple[Any, ...], size: object = None) -> tuple[int, ...]:
    """Return the shape passed to the function `name` as sizes, or as one list or tuple of them."""
    if size is not None:
        sizes = (size,)
    elif not sizes:
        raise TypeError(located(f'{name}() missing 1 required positional arguments: "size"'))
    if isinstance(sizes[0], list | tuple):
        if len(sizes) > 1:
            raise TypeError(located(f"{name}() takes 1 positional argument but {len(sizes)} were given"))
        sizes = tuple(sizes[0])
    try:
        shape = tuple(map(operator.index, sizes))
    except TypeError:
        kinds = ", ".join(type(n).__name__ for n in sizes)
        raise TypeError(located(f"{name}(): argument 'size' must be tuple of ints, not ({kinds})")) from None
    if any(n < 0 for n in shape):
        raise RuntimeError(located(f"{name}: Trying to create tensor with negative dimension {min(shape)}: {shape}"))
    return shape


def dtype_of(dtype: DTypeLike) -> DType:
    return supported(get_default_dtype() if dtype is None else dtype, "dtype=")


def _filled(shape: tuple[int, ...], value: object, dtype: DType) -> Array:
    """Make an array of `shape` with all elements `value`: a node of the active trace, or an ndarray."""
    number = np.asarray(value).astype(dtype).item()
    if tracing():
        return linear.full(shape=shape, value=number, dtype=dtype.name)
    return np.full(shape, number, dtype) if number else np.zeros(shape, dtype)


# -- from values -----------------------------------------------------------------------------------------------------
def _literal_dtype(data: object) -> DType | None:
    """Return the dtype for numbers, or nested sequences of numbers, if NumPy's choice may differ; None otherwise."""
    is_array = isinstance(data, np.ndarray | np.generic) or (isinstance(data, Carrier) and not _is_weak(data))
    return None if is_array or get_default_dtype() == np.float64 else _element_dtype(data)


def _element_dtype(x: object) -> DType:
    """Return the dtype that all elements of a nested sequence promote to; Python's floats have the default dtype."""
    if isinstance(x, list | tuple):
        return functools.reduce(promote_types, {_element_dtype(each) for each in x} or {get_default_dtype()})
    if type(x) in _NUMBERS.values():
        return number_dtype(type(x))
    dtype: DType = x.dtype if isinstance(x, Carrier) else np.asarray(x).dtype
    if dtype.kind not in "biufc":
        return get_default_dtype()  # the conversion raises
    return number_dtype(_NUMBERS[dtype.kind]) if _is_weak(x) else dtype


_NUMBERS: dict[str, type] = {"b": bool, "i": int, "f": float, "c": complex}


def _is_weak(x: object) -> bool:
    """Whether `x` is a Python number of a trace."""
    return bool(getattr(x, "weak", False))


def _to_array(data: object, dtype: DTypeLike, copy: bool | None) -> Any:
    """Convert `data` to a new array object, which may share memory with `data`."""
    values = plain(data)
    if not isinstance(values, list | Carrier | np.ndarray | np.generic | bool | int | float | complex):
        values = _foreign(values)
    kind = _literal_dtype(values) if dtype is None else supported(dtype, "dtype=")
    try:
        array: Any = creation.array(values, kind, copy=copy)
    except ShapeError:
        raise
    except ValueError:
        _check_even(values)
        raise
    if isinstance(array, Carrier):
        return array
    if array.dtype.kind == "O":  # Python integers out of range of all dtypes: the next line raises NumPy's error
        array = np.array(values, np.int64)
    array = array.astype(supported(array.dtype, "tensor"), copy=False)
    return array.view() if array is values else array


def _foreign(x: str | None) -> Any:
    """Convert a foreign object to an ndarray, or raise if it cannot be one."""
    if isinstance(x, str | bytes):
        raise TypeError(located(f"tensor: invalid data type '{type(x).__name__}'"))
    array = np.asarray(x)
    if array.dtype.kind not in "biufc":
        raise RuntimeError(located(f"Could not infer dtype of {type(x).__name__}"))
    return array


def _check_even(data: object, dim: int = 1) -> None:
    """Raise ShapeError if lists of one level differ in length; `dim` is the level of the items of `data`."""
    if isinstance(data, list):
        lengths = [len(each) if isinstance(each, list) else 0 for each in data]
        for length in lengths:
            if length != lengths[0]:
                raise ShapeError(located(f"expected sequence of length {lengths[0]} at dim {dim} (got {length})"))
        for each in data:
            _check_even(each, dim + 1)


def tensor(
    data: object, dtype: DTypeLike = None, device: DeviceLike = None, requires_grad: bool = False, pin_memory: int = 0
) -> Tensor:
    """Make a leaf Tensor with a copy of data.

    A Tensor gives a UserWarning. ShapeError if sequences differ in length, DTypeError for a dtype not supported.

    >>> tensor([1.0, 2.0], requires_grad=True)
    tensor([1., 2.], requires_grad=True)
    """
    check_device("cuda" if pin_memory else device)  # only CUDA needs pinned memory
    if isinstance(data, Tensor):
        warnings.warn(located(_COPY), UserWarning, stacklevel=2)
    return wrap(_to_array(data, dtype, True), requires_grad)


_COPY = (
    "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
    "sourceTensor.detach().clone().requires_grad_(True), rather than tensor(sourceTensor)."
)


def as_tensor(data: object, dtype: DTypeLike = None, device: DeviceLike = None) -> Tensor:
    """Convert data to a Tensor: a Tensor of the dtype itself, a view of an ndarray, or a copy.

    >>> x = tensor([1.0])
    >>> as_tensor(x) is x
    True
    """
    check_device(device)
    if isinstance(data, Tensor):
        args: Any = data
        result: Tensor = args if dtype is None else args.to(dtype)
        return result
    return wrap(_to_array(data, dtype, None))


def asarray(
    obj: object,
    *,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
    copy: bool | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """Convert an object to a Tensor that shares its memory if possible; ValueError if it must, and cannot.

    >>> asarray(np.zeros(2), copy=True)
    tensor([0., 0.])
    """
    check_device(device)
    if isinstance(obj, Tensor):
        return _as_array_of(obj, dtype, copy, requires_grad)
    if copy is False:
        _check_alias(obj, dtype)
    return wrap(_to_array(obj, dtype, copy), bool(requires_grad))


def _check_alias(obj: object, dtype: DTypeLike) -> None:
    """Raise ValueError if a Tensor of `dtype` cannot share memory with `obj`."""
    if not isinstance(obj, np.ndarray | Carrier):
        raise ValueError(located("can't alias arbitrary sequence into a tensor."))
    args: Any = obj
    if dtype is not None and np.dtype(dtype) != args.dtype:
        raise ValueError(located(f"can't alias tensor with dtype {args.dtype} into dtype {np.dtype(dtype)}."))


def _as_array_of(x: Any, dtype: DTypeLike, copy: bool | None, requires_grad: bool | None) -> Tensor:
    if copy is False:
        _check_alias(x, dtype)
    out = x if dtype is None else x.to(dtype)
    out = out.clone() if copy and out is x else out
    if requires_grad is None or requires_grad == out.requires_grad:
        output: Tensor = out
        return output
    result: Tensor = out.detach().requires_grad_(requires_grad)
    return result


def from_numpy(ndarray: NDArray) -> Tensor:
    """Make a Tensor that shares the memory of an ndarray; TypeError for other objects.

    >>> x = np.zeros(2)
    >>> t = from_numpy(x)
    >>> x[0] = 1.0
    >>> t
    tensor([1., 0.])
    """
    if isinstance(ndarray, Tensor) or not isinstance(ndarray, np.ndarray | Carrier):
        raise TypeError(located(f"expected np.ndarray (got {type(ndarray).__name__})"))
    supported(ndarray.dtype, "from_numpy")
    return wrap(ndarray.view())


def frombuffer(
    buffer: Buffer, *, dtype: DTypeLike, count: int = -1, offset: int = 0, requires_grad: bool = False
) -> Tensor:
    """Make a Tensor, of one dimension, that shares the memory of an object with a buffer.

    ValueError for sizes that do not fit; a UserWarning for a buffer that cannot be written, whose memory is copied.

    >>> frombuffer(bytearray(b"\\x01\\x02\\x03"), dtype="uint8", offset=1)
    tensor([2, 3], dtype=uint8)
    """
    kind, size = dtype_of(dtype), memoryview(buffer).nbytes
    after = f"buffer length ({size - offset} bytes) after offset ({offset} bytes)"
    texts = {
        f"offset ({offset} bytes) must be in a buffer of length {size} bytes": not 0 <= offset < size,
        f"both buffer length ({size}) and count ({count}) must not be 0": count == 0 or count < -1,
        f"{after} must be a multiple of element size ({kind.itemsize})": count < 0 and (size - offset) % kind.itemsize,
        f"requested {count} * {kind.itemsize} bytes, but {after}": count * kind.itemsize > size - offset,
    }
    if any(texts.values()):
        raise ValueError(located(next(text for text, is_wrong in texts.items() if is_wrong)))
    array = np.frombuffer(memoryview(buffer), np.dtype(kind), count, offset)
    if not array.flags.writeable:
        warnings.warn(located("frombuffer copies a buffer that is not writable"), UserWarning, stacklevel=2)
    return wrap(array if array.flags.writeable else array.copy(), requires_grad)


def from_dlpack(ext_tensor: Any) -> Tensor:
    """Make a Tensor that shares the memory of an array of another library.

    >>> from_dlpack(np.zeros(2))
    tensor([0., 0.])
    """
    return from_numpy(np.from_dlpack(ext_tensor))


# -- constants -------------------------------------------------------------------------------------------------------
def zeros(
    *sizes: Sizes,
    size: Sizes | None = None,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make a Tensor of zeros.

    >>> zeros(2, 3).shape
    torch.Size([2, 3])
    """
    check_device(device)
    return wrap(_filled(shape_of("zeros", sizes, size), 0, dtype_of(dtype)), requires_grad)


def ones(
    *sizes: Sizes,
    size: Sizes | None = None,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make a Tensor of ones.

    >>> ones(2, dtype=np.int64)
    tensor([1, 1])
    """
    check_device(device)
    return wrap(_filled(shape_of("ones", sizes, size), 1, dtype_of(dtype)), requires_grad)


def scalar_tensor(
    s: Number | Tensor, *, dtype: DTypeLike = None, device: DeviceLike = None, requires_grad: bool = False
) -> Tensor:
    """Make a Tensor without dimensions of a number, by default in the default dtype.

    >>> scalar_tensor(3)
    tensor(3.)
    """
    return full((), s, dtype=dtype_of(dtype), device=device, requires_grad=requires_grad)


def empty(
    *sizes: Sizes,
    size: Sizes | None = None,
    dtype: DTypeLike = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make an uninitialized Tensor; in a trace it has zeros.

    >>> empty((2, 3)).shape
    torch.Size([2, 3])
    """
    check_device(device)
    shape, kind = shape_of("empty", sizes, size), dtype_of(dtype)
    return wrap(_filled(shape, 0, kind) if tracing() else np.empty(shape, kind), requires_grad)


def _number(name: str, value: object) -> Any:
    """Convert a Python or NumPy scalar, or an array without axes, to a number without history."""
    if isinstance(value, bool | int | float | complex | np.generic):
        return value
    if getattr(value, "requires_grad", False) or getattr(value, "shape", None) != ():
        raise TypeError(located(f"{name}(): argument 'fill_value' must be Number, not {type(value).__name__}"))
    return plain(value)


def _filled_with(shape: tuple[int, ...], value: object, dtype: DType) -> Array:
    if isinstance(value, Carrier):
        return creation.full(shape, value, dtype)
    if np.asarray(value).dtype.kind == "c" and dtype.kind != "c":
        raise RuntimeError(located(f"value cannot be converted to type {dtype} without overflow"))
    return _filled(shape, value, dtype)


def full(
    size: Sizes,
    fill_value: object,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Make a Tensor with one value everywhere, which gives the dtype unless `dtype` is passed.

    >>> full((2,), 3)
    tensor([3, 3])
    """
    check_device(device)
    if not isinstance(size, list | tuple):
        raise TypeError(located(f"full(): argument 'size' must be tuple of ints, not {type(size).__name__}"))
    value = _number("full", fill_value)
    value = value.item() if isinstance(value, np.generic) else value  # a NumPy scalar counts as a Python number
    if dtype is None:
        dtype = _literal_dtype(value) or getattr(value, "dtype", None) or np.asarray(value).dtype
    return wrap(
        _filled_with(shape_of("full", (size,)), fitting(value, dtype_of(dtype)), dtype_of(dtype)), requires_grad
    )


def eye(
    n: int, m: int | None = None, *, dtype: DTypeLike = None, device: DeviceLike = None, requires_grad: bool = False
) -> Tensor:
    """Make a matrix with ones on its diagonal, and zeros elsewhere.

    >>> eye(2)
    tensor([[1., 0.],
            [0., 1.]])
    """
    check_device(device)
    for name, count in (("n", n), ("m", m)):
        if count is not None and operator.index(count) < 0:
            raise RuntimeError(located(f"eye: {name} must be greater or equal to 0, got {count}"))
    return wrap(creation.eye(n, m, dtype=dtype_of(dtype)), requires_grad)


# -- with the shape and dtype of another array -----------------------------------------------------------------------
def like(name: str, x: object, dtype: DTypeLike) -> tuple[tuple[int, ...], DType]:
    """Return the shape of `x`, and its dtype unless `dtype` is passed; TypeError if it is not an array."""
    if not isinstance(x, Carrier | np.ndarray):
        raise TypeError(located(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(x).__name__}"))
    args: Any = x
    return tuple(args.shape), supported(args.dtype if dtype is None else dtype, "dtype=")


def zeros_like(
    input: Array, *, dtype: DTypeLike = None, device: DeviceLike = None, requires_grad: bool = False
) -> Tensor:
    """Make a Tensor of zeros, with the shape and dtype of `input`.

    >>> zeros_like(tensor([1, 2]))
    tensor([0, 0])
    """
    shape, kind = like("zeros_like", input, dtype)
    return zeros(shape, dtype=kind, device=device, requires_grad=requires_grad)


def ones_like(
    input: Array, *, dtype: DTypeLike = None, device: DeviceLike = None, requires_grad: bool = False
) -> Tensor:
    """Make a Tensor of ones, with the shape and dtype of `input`.

    >>> ones_like(tensor([1, 2]), dtype=np.float64)
    tensor([1., 1.])
    """
    shape, kind = like("ones_like", input, dtype)
    return ones(shape, dtype=kind, device=device, requires_grad=requires_grad)


def empty_like(
    input: Array, *, dtype: DTypeLike = None, device: DeviceLike = None, requires_grad: bool = False
) -> Tensor:
    """Make an uninitialized Tensor, with the shape and dtype of `input`.

    >>> empty_like(tensor([1, 2])).shape
    torch.Size([2])
    """
    shape, kind = like("empty_like", input, dtype)
    return empty(shape, dtype=kind, device=device, requires_grad=requires_grad)


def full_like(
    input: Array, fill_value: float, *, dtype: DTypeLike = None, device: DeviceLike = None, requires_grad: bool = False
) -> Tensor:
    """Make a Tensor with one value everywhere, with the shape and dtype of `input`.

    >>> full_like(tensor([1.0, 2.0]), 3)
    tensor([3., 3.])
    """
    shape, kind = like("full_like", input, dtype)
    return full(shape, _number("full_like", fill_value), dtype=kind, device=device, requires_grad=requires_grad)


# -- methods: new Tensors of the dtype of this one -------------------------------------------------------------------
@tensor_method("new_zeros")
def new_zeros(self: Tensor, *sizes: Sizes, dtype: DTypeLike = None, **options: Any) -> Tensor:
    """Zeros of the dtype of this Tensor."""
    return zeros(*sizes, dtype=self.dtype if dtype is None else dtype, **options)


@tensor_method("new_ones")
def new_ones(self: Tensor, *sizes: Sizes, dtype: DTypeLike = None, **options: Any) -> Tensor:
    """Ones of the dtype of this Tensor."""
    return ones(*sizes, dtype=self.dtype if dtype is None else dtype, **options)


@tensor_method("new_empty")
def new_empty(self: Tensor, *sizes: Sizes, dtype: DTypeLike = None, **options: Any) -> Tensor:
    """Make an uninitialized Tensor of the dtype of this one."""
    return empty(*sizes, dtype=self.dtype if dtype is None else dtype, **options)


@tensor_method("new_full")
def new_full(self: Any, size: Any, fill_value: Any, *, dtype: Any = None, **options: Any) -> Tensor:
    """One number everywhere, in the dtype of this Tensor."""
    return full(size, fill_value, dtype=self.dtype if dtype is None else dtype, **options)


@tensor_method("new_tensor")
def new_tensor(self: Tensor, data: object, *, dtype: DTypeLike = None, **options: Any) -> Tensor:
    """Copy `data` to a new Tensor, in the dtype of this one."""
    return tensor(data, dtype=self.dtype if dtype is None else dtype, **options)


TENSOR_DOCS.document(globals(), __all__)
