"""Namespace of the Python array API standard, version 2024.12, with Tensors as arrays.

`x.__array_namespace__()` of a Tensor returns it. Its functions are NumPy's main namespace, which has the standard's
names and signatures, over the same ops; so they have derivatives, and their results are Tensors. Two attributes of a
Tensor are PyTorch's, not the standard's: `size` is a method (`numel()` counts the elements), and "cpu" is the only name
of a device.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import located
from tracegrad.ops.core.op import Carrier
from tracegrad.tensor_dtype import TensorDType
from tracegrad.torch.functions.core.return_types import return_type
from tracegrad.torch.functions.indexing import sorting
from tracegrad.torch.tape.tensors import factories

if TYPE_CHECKING:
    from types import ModuleType

    from tracegrad.torch.tape.tensors.tensor import Tensor
    from tracegrad.typing import Array, DeviceLike, DType, DTypeLike


__array_api_version__ = "2024.12"

e, inf, nan, pi, newaxis = math.e, math.inf, math.nan, math.pi, None

_DTYPES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float32",
    "float64",
    "complex64",
    "complex128",
)
_FUNCTIONS = """
    abs acos acosh add all any arange argmax argmin asin asinh atan atan2 atanh bitwise_and bitwise_invert
    bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor broadcast_arrays broadcast_to ceil clip
    concat conj copysign cos cosh count_nonzero cumulative_prod cumulative_sum diff divide empty empty_like equal exp
    expand_dims expm1 eye finfo flip floor floor_divide full full_like greater greater_equal hypot iinfo imag isdtype
    isfinite isinf isnan less less_equal linspace log log10 log1p log2 logaddexp logical_and logical_not logical_or
    logical_xor matmul matrix_transpose max maximum mean meshgrid min minimum moveaxis multiply negative nextafter
    nonzero not_equal ones ones_like permute_dims positive pow prod real reciprocal remainder repeat reshape
    result_type roll round searchsorted sign signbit sin sinh sqrt square squeeze stack std subtract sum take
    take_along_axis tan tanh tensordot tile tril triu trunc unstack var vecdot where zeros zeros_like
"""
_LINALG = """
    cholesky cross det diagonal eigh eigvalsh inv matmul matrix_norm matrix_power matrix_rank matrix_transpose outer
    pinv qr slogdet solve svd svdvals tensordot trace vecdot vector_norm
"""
_FFT = """
    fft fftfreq fftn fftshift hfft ifft ifftn ifftshift ihfft irfft irfftn rfft rfftfreq rfftn
"""
_FIELDS = {
    "eigh": ("eigenvalues", "eigenvectors"),
    "qr": ("Q", "R"),
    "slogdet": ("sign", "logabsdet"),
    "svd": ("U", "S", "Vh"),
}

__all__ = [  # noqa: PLE0604
    "argsort",
    "asarray",
    "astype",
    "can_cast",
    "e",
    "fft",
    "from_dlpack",
    "inf",
    "linalg",
    "nan",
    "newaxis",
    "pi",
    "sort",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
    *_DTYPES,
    *_FUNCTIONS.split(),
]


_DOC = """`{name}` of the array API standard, computed on Tensors.

Parameters
----------
*args, **kwargs
    Arguments of `numpy.{name}`, with Tensors as arrays.

Returns
-------
Tensor, or what `numpy.{name}` returns
    Result, with Tensors as arrays.
"""


# -- NumPy's functions ---------------------------------------------------------------------------------------------
def _to_tensors(result: Any) -> Any:
    """Convert a result of NumPy: Tensors for its arrays."""
    if isinstance(result, Carrier):
        return result
    if isinstance(result, np.ndarray | np.generic) and result.dtype.kind in "biufc":
        return factories.tensor(np.array(result))
    return type(result)(map(_to_tensors, result)) if type(result) in (tuple, list) else result


def _of_numpys(space: str, name: str) -> Callable[..., object]:
    fields = _FIELDS.get(name) if space else None

    def call(*args: Tensor, **kwargs: Any) -> Any:
        result = getattr(getattr(np, space) if space else np, name)(*args, **kwargs)
        if fields is not None:
            return return_type(f"array_api_{name}", *fields)(*map(_to_tensors, result))
        return _to_tensors(result)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = _DOC.format(name=f"{space}.{name}" if space else name)
    return call


globals().update({name: _of_numpys("", name) for name in _FUNCTIONS.split()})
globals().update({name: TensorDType(name) for name in _DTYPES})
linalg = SimpleNamespace(**{name: _of_numpys("linalg", name) for name in _LINALG.split()})
fft = SimpleNamespace(**{name: _of_numpys("fft", name) for name in _FFT.split()})


# -- functions that differ from NumPy's ----------------------------------------------------------------------------
def asarray(obj: object, /, *, dtype: DTypeLike = None, device: object = None, copy: bool | None = None) -> Any:
    """Convert numbers, nested sequences of numbers, or an array to a Tensor.

    Parameters
    ----------
    obj : array_like
        Numbers. A Tensor of the same dtype is returned itself, unless `copy` is True.
    dtype : dtype, optional
        Dtype of the result.
    device : str, optional
        Device, which is "cpu".
    copy : bool, optional
        Whether to copy. None: only if it is necessary.

    Returns
    -------
    Tensor
        Tensor with these elements.

    Raises
    ------
    ValueError
        If `copy` is False and a copy is necessary.
    """
    _on_cpu(device)
    if isinstance(obj, Carrier):
        same: bool = dtype is None or obj.dtype == np.dtype(dtype)
        if same:
            return obj.clone() if copy else obj  # type: ignore[attr-defined]
        if copy is False:
            raise ValueError(located("Unable to avoid copy while creating an array as requested."))
        output: Tensor = obj.to(np.dtype(dtype))  # type: ignore[attr-defined]
        return output
    result = np.asarray(obj, dtype=dtype)
    if copy is False:
        return factories.from_numpy(result)
    return factories.tensor(np.array(result))


def _on_cpu(device: object) -> None:
    if device not in (None, "cpu") and str(device) != "cpu":
        raise ValueError(located(f"there is no device {device!r}; the only one is 'cpu'"))


def from_dlpack(x: Any, /, *, device: DeviceLike = None, copy: bool | None = None) -> Tensor:
    """Make a Tensor of an object that another library exports by DLPack.

    Parameters
    ----------
    x : object
        Object with `__dlpack__`.
    device : str, optional
        Device, which is "cpu".
    copy : bool, optional
        Whether to copy.

    Returns
    -------
    Tensor
        Tensor with these elements.
    """
    result: Tensor = asarray(np.from_dlpack(x), device=device, copy=copy)
    return result


def astype(x: Array, dtype: DTypeLike, /, *, copy: bool = True, device: DeviceLike = None) -> Tensor:
    """Convert a Tensor to another dtype.

    Parameters
    ----------
    x : Tensor
        Tensor.
    dtype : dtype
        Dtype of the result.
    copy : bool
        Whether the result is a copy even if the dtype is the same.
    device : str, optional
        Device, which is "cpu".

    Returns
    -------
    Tensor
        Converted Tensor.
    """
    result: Tensor = asarray(x, dtype=dtype, device=device, copy=True if copy and x.dtype == np.dtype(dtype) else None)
    return result


def can_cast(from_: DType | type, to: DType | type, /) -> bool:
    """Return whether the promotion of the standard leads from one dtype to another.

    It never leads to another kind of dtype, except from real to complex numbers.

    Parameters
    ----------
    from_ : dtype or Tensor
        First dtype.
    to : dtype
        Second dtype.

    Returns
    -------
    bool
        True if the conversion is a promotion.
    """
    source, target = np.dtype(from_ if isinstance(from_, type) else getattr(from_, "dtype", from_)), np.dtype(to)
    return _KINDS[source.kind] == _KINDS[target.kind] and np.can_cast(source, target)


_KINDS = {"b": "bool", "i": "integer", "u": "integer", "f": "floating", "c": "floating"}


def _qr(x: Tensor, /, *, mode: str = "reduced") -> Any:
    """The standard's `linalg.qr`; `mode="complete"` of a tall matrix, which has no derivative, is NumPy's."""
    tall = mode == "complete" and x.shape[-2] > x.shape[-1]
    return _qr_of_numpys(x.numpy() if tall and not x.requires_grad else x, mode=mode)


def _frequencies(name: str) -> Callable[..., object]:
    def call(n: int, /, *, d: float = 1.0, dtype: DTypeLike = None, device: DeviceLike = None) -> Any:
        _on_cpu(device)
        return asarray(getattr(np.fft, name)(n, d), dtype=dtype)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"The standard's `fft.{name}`: the frequencies of a transform of `n` samples that are `d` apart."
    return call


_qr_of_numpys = linalg.qr
_qr.__name__ = _qr.__qualname__ = "qr"
linalg.qr = _qr
vars(fft).update({name: _frequencies(name) for name in ("fftfreq", "rfftfreq")})


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Sort the elements along an axis.

    Parameters
    ----------
    x : Tensor
        Tensor.
    axis : int
        Axis.
    descending : bool
        Whether the order is descending.
    stable : bool
        Without effect: equal elements keep their order.

    Returns
    -------
    Tensor
        Sorted elements.
    """
    result: Tensor = sorting.sort(x, axis, descending)[0]
    return result


def argsort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """Return the indices that sort the elements along an axis.

    Parameters
    ----------
    x : Tensor
        Tensor.
    axis : int
        Axis.
    descending : bool
        Whether the order is descending.
    stable : bool
        Without effect: equal elements keep their order.

    Returns
    -------
    Tensor of int64
        Indices.
    """
    return sorting.argsort(x, axis, descending)


def _unique(x: Array) -> tuple[Any, Any, Any, Any]:
    values, indices, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, equal_nan=False
    )
    return values, indices, inverse.reshape(x.shape), counts


def unique_all(x: Tensor, /) -> Any:
    """Return the different values, and where they occur.

    Parameters
    ----------
    x : Tensor
        Tensor.

    Returns
    -------
    named tuple (values, indices, inverse_indices, counts)
        Values in ascending order, the first index of each value, the number of the value of each element, and how often
        each value occurs.
    """
    return return_type("unique_all", "values", "indices", "inverse_indices", "counts")(*map(_to_tensors, _unique(x)))


def unique_counts(x: Tensor, /) -> Any:
    """Return the different values, and how often each of them occurs.

    Parameters
    ----------
    x : Tensor
        Tensor.

    Returns
    -------
    named tuple (values, counts)
        Values in ascending order, and their counts.
    """
    values, _, _, counts = map(_to_tensors, _unique(x))
    return return_type("unique_counts", "values", "counts")(values, counts)


def unique_inverse(x: Tensor, /) -> Any:
    """Return the different values, and the number of the value of each element.

    Parameters
    ----------
    x : Tensor
        Tensor.

    Returns
    -------
    named tuple (values, inverse_indices)
        Values in ascending order, and the number of the value of each element.
    """
    values, _, inverse, _ = map(_to_tensors, _unique(x))
    return return_type("unique_inverse", "values", "inverse_indices")(values, inverse)


def unique_values(x: Array, /) -> Tensor:
    """Return the different values.

    Parameters
    ----------
    x : Tensor
        Tensor.

    Returns
    -------
    Tensor
        Values in ascending order.
    """
    result: Tensor = _to_tensors(_unique(x)[0])
    return result


# -- inspection of the namespace -----------------------------------------------------------------------------------
class _Info:
    """Result of `__array_namespace_info__()`: capabilities, devices and dtypes, as in NumPy."""

    def __init__(self) -> None:
        self._numpys = np.__array_namespace_info__()

    def capabilities(self) -> dict[str, Any]:
        """Masks as indices, shapes that depend on values, and the most dimensions there are."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """The device of a new Tensor."""
        return "cpu"

    def devices(self) -> list[str]:
        """All devices."""
        return ["cpu"]

    def default_dtypes(self, *, device: DeviceLike = None) -> dict[str, Any]:
        """The dtypes that functions choose if none is given."""
        return dict(self._numpys.default_dtypes())

    def dtypes(self, *, device: DeviceLike = None, kind: Any = None) -> dict[str, Any]:
        """The dtypes of a kind, by their names."""
        return {name: dtype for name, dtype in self._numpys.dtypes(kind=kind).items() if name in _DTYPES}


def __array_namespace_info__() -> _Info:
    return _Info()


def namespace_of(x: Array, *, api_version: str | None = None) -> ModuleType:
    """Return this namespace, for `Tensor.__array_namespace__`; ValueError for an unknown version of the standard."""
    if api_version not in (None, "2021.12", "2022.12", "2023.12", __array_api_version__):
        raise ValueError(located(f"there is no version {api_version!r} of the array API here"))
    return sys.modules[__name__]


def _to_device(x: Array, device: DeviceLike, /, *, stream: object = None) -> Array:
    """Return the Tensor itself: the CPU is the only device."""
    _on_cpu(device)
    return x


factories.tensor_method("__array_namespace__")(namespace_of)
factories.tensor_method("to_device")(_to_device)
