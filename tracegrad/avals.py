"""Abstract values (avals): shape and dtype of an array without its elements, and dtype promotion.

An `Aval` is a shape and a dtype. A *literal* is a Python `bool`, `int`, `float` or `complex` written in the program. It
is weak, as in NumPy 2 (NEP 50): it takes the dtype of the arrays it meets. A value can also be weak without being a
literal, for example a Python number passed to a traced function; its attribute `weak` says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import DTypeError, located
from tracegrad.tensor_dtype import TensorDType
from tracegrad.utils.lazy_dataclass import record

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from tracegrad.typing import DType, NDArray

__all__ = [
    "LITERALS",
    "SIZES",
    "SUPPORTED",
    "Aval",
    "Size",
    "aval_of",
    "dtype_named",
    "is_constant",
    "is_huge",
    "is_literal",
    "is_plain_array",
    "literal_of",
    "name_of",
    "short_name",
    "supported",
    "weak_dtype",
]

Literal = bool | int | float | complex

LITERALS: frozenset[type] = frozenset({bool, int, float, complex})

_SHORT = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint64": "u64",
    "uint32": "u32",
    "uint16": "u16",
    "uint8": "u8",
    "bool": "bool",
    "complex128": "c128",
    "complex64": "c64",
}
_LONG = {short: np.dtype(name) for name, short in _SHORT.items()}
_SHORT_OF: dict[DType, str] = {dtype: short for short, dtype in _LONG.items()}

SUPPORTED: frozenset[np.dtype[Any]] = frozenset(_LONG.values())


@record(frozen=True, slots=True)
class Aval:
    """The shape and dtype of an array.

    >>> print(Aval((2, 3), np.dtype("float32")))
    f32[2,3]
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __str__(self) -> str:
        return f"{short_name(self.dtype)}[{','.join(map(str, self.shape))}]"

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def is_float(self) -> bool:
        return self.dtype.kind == "f"

    @property
    def is_inexact(self) -> bool:
        """Whether the array is differentiable: floating or complex."""
        return self.dtype.kind in "fc"


_new = tuple.__new__
_item = tuple.__getitem__


class Size(tuple[int, ...]):
    """Shape of a Tensor: a tuple with the number of elements. Its slices and sums are such tuples too.

    Parameters
    ----------
    sizes : iterable of int
        Sizes.

    Examples
    --------
    >>> x = Size([2, 3])
    >>> x[:1] + (4,), x.numel(), x == (2, 3)
    (torch.Size([2, 4]), 6, True)
    """

    __slots__ = ()

    def __new__(cls, sizes: Iterable[Any] = ()) -> Size:
        return _new(cls, [n if n.__class__ is int else _length(n, k) for k, n in enumerate(sizes)])

    def numel(self) -> int:
        """Return the number of elements of an array of this shape."""
        return math.prod(self)

    def __getitem__(self, index: Any) -> Any:
        result = _item(self, index)
        return _new(Size, result) if result.__class__ is tuple else result

    def __add__(self, other: Any) -> Any:
        if isinstance(other, tuple):
            return Size((*self, *other))
        if hasattr(other, "__array_ufunc__"):
            return NotImplemented  # an array adds the sizes
        raise TypeError(located(f"can only concatenate tuple (not {type(other).__name__}) to torch.Size"))

    def __radd__(self, other: list[int] | tuple[int, ...]) -> object:
        return Size((*other, *self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, times: object) -> Any:
        if not hasattr(times, "__index__") or getattr(times, "ndim", False):
            return NotImplemented
        return _new(Size, tuple.__mul__(self, times))

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return f"torch.Size({[*self]})"

    def __reduce__(self) -> tuple[type, tuple[tuple[int, ...], ...]]:
        return Size, (tuple(self),)


def _length(n: object, k: int) -> object:
    """Convert a size that is no plain int to an int; a number of a trace stays unchanged."""
    dtype = getattr(n, "dtype", None)
    if hasattr(n, "__index__") and (dtype is None or dtype.kind in "biu"):
        return n if getattr(n, "weak", False) else n.__index__()
    raise TypeError(located(f"torch.Size() takes an iterable of 'int' (item {k} is '{type(n).__name__}')"))


class _SizeCache(dict[tuple[int, ...], Size]):
    """Cache of `Size` objects by shape, because a lookup is faster than construction."""

    def __missing__(self, shape: tuple[int, ...]) -> Size:
        if len(self) >= _MAX_SIZES:
            self.clear()
        size = self[shape] = _new(Size, shape)
        return size


_MAX_SIZES = 4096
SIZES = _SizeCache()


def short_name(dtype: DType) -> str:
    """Return the short name of a supported dtype in text forms: `f64`, `i32`, `bool`."""
    return _SHORT_OF[dtype]


_NAMES: dict[DType, str] = {}


def name_of(dtype: DType) -> str:
    """Return `dtype.name`, cached because NumPy computes it at each read."""
    result = _NAMES.get(dtype)
    if result is None:
        result = _NAMES[dtype] = dtype.name
    return result


def dtype_named(short: str) -> np.dtype[Any]:
    """Return the dtype that prints as `short` in the text form (`f64`, `i32`, `bool`)."""
    return _LONG[short]


def supported(dtype: Any, owner: str = "an array") -> np.dtype[Any]:
    """Return `dtype` in native byte order; raise a `DTypeError` that names its owner."""
    dtype = np.dtype(dtype)
    native = dtype.newbyteorder("=") if dtype.kind in "fiuc" else dtype
    for each in SUPPORTED:
        if each == native:
            return each
    names = ", ".join(sorted(d.name for d in SUPPORTED))
    raise DTypeError(located(f"{owner} has dtype {dtype}, which tracegrad does not support; supported are {names}"))


def aval_of(x: Any) -> Aval:
    """Return the abstract value of an ndarray, a NumPy scalar or any carrier of a value."""
    if isinstance(x, np.ndarray | np.generic):
        return Aval(x.shape, x.dtype)
    aval: Aval = x.aval
    return aval


# ndarray, and subclasses whose arrays of numbers compute as ndarrays do.
_COMPUTE_ALIKE = frozenset({np.ndarray, np.memmap, np.recarray})


def is_plain_array(x: Any) -> bool:
    """Whether `x`, an array or a NumPy scalar, behaves like an ndarray of its elements.

    It has no unit and no mask, is no matrix, and has no methods of its own.

    >>> is_plain_array(np.ones(2)), is_plain_array(np.float32(1)), is_plain_array(np.ma.ones(2))
    (True, True, False)
    """
    cls = type(x)
    return cls in _COMPUTE_ALIKE or (cls.__module__ == "numpy" and isinstance(x, np.generic))


def is_literal(x: object) -> TypeIs[Literal]:
    """Whether `x` is exactly a Python bool, int, float or complex (NumPy's scalars are arrays of no axes)."""
    return type(x) in LITERALS


def is_huge(x: object) -> bool:
    """Whether `x` is a Python integer of more than 64 bits, which programs do not support."""
    return type(x) is int and not -(2**63) <= x < 2**63


def is_constant(x: NDArray | float) -> bool:
    """Whether a Python number is a constant of a program: a huge integer, or a complex number."""
    return type(x) is complex or is_huge(x)


_WEAK: dict[str, type] = {"b": bool, "i": int, "u": int, "f": float, "c": complex}


def weak_dtype(x: Any) -> Any:
    """Return the type of `x` for NumPy's promotion: a dtype, or a Python type when `x` is weak."""
    if type(x) in LITERALS:
        return type(x)
    if getattr(x, "weak", False):
        return _WEAK[x.dtype.kind]
    dtype = x.dtype
    return dtype.dtype if type(dtype) is TensorDType else dtype


def literal_of(x: Literal, dtype: DType) -> Literal:
    """Convert `x` to the Python number of an op that computes in `dtype`; OverflowError as in NumPy."""
    if dtype.kind == "f":
        return float(x)  # type: ignore[arg-type]
    if dtype.kind == "c":
        return complex(x)
    if dtype.kind == "b":
        return bool(x)
    return int(dtype.type(int(x)))  # type: ignore[arg-type]
