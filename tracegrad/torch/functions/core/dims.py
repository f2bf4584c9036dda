"""Dimension arguments: normalize and check them as PyTorch does, with its errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, SupportsIndex

import numpy as np

from tracegrad.errors import ShapeError, located
from tracegrad.numpy_api.operands import arrays
from tracegrad.ops.core.op import Carrier
from tracegrad.ops.shape import linear
from tracegrad.typing import Array, ArrayLike, DType, DTypeLike


class SizeError(RuntimeError, ShapeError):
    """Shapes that do not fit together, which PyTorch's users know as a RuntimeError and NumPy's as a ValueError."""

    _numpys = RuntimeError


class DimensionError(IndexError, ShapeError):
    """A dimension that a value does not have, or an index beyond its end: an IndexError, as PyTorch's users know it."""

    _numpys = IndexError


def index_error(message: str) -> DimensionError:
    """Return the error for a dimension or index that does not exist; it names the user's line."""
    return DimensionError(located(message))


def size_error(message: str) -> SizeError:
    """Return the error for shapes that do not fit; it names the user's line."""
    return SizeError(located(message))


# PyTorch's names of dtypes, which are parts of others: `FloatTensor`, `FloatStorage`.
TYPE_NAMES = {
    "float64": "Double",
    "float32": "Float",
    "float16": "Half",
    "complex128": "ComplexDouble",
    "complex64": "ComplexFloat",
    "int64": "Long",
    "int32": "Int",
    "int16": "Short",
    "int8": "Char",
    "uint8": "Byte",
    "bool": "Bool",
}


def type_name(dtype: DTypeLike) -> str:
    """Return the name of a dtype in PyTorch's messages.

    >>> type_name("int64")
    'Long'
    """
    name = str(getattr(dtype, "name", dtype))
    return TYPE_NAMES.get(name, name)


def not_real(kind: str) -> RuntimeError:
    """Return the error for a complex number where the real type `kind` is required; it has PyTorch's type name."""
    names = {"float64": "double", "float32": "float", "float16": "c10::Half", "int32": "int"}
    name = names.get(kind, f"{kind}_t" if kind.startswith(("int", "uint")) else kind)
    return RuntimeError(located(f"value cannot be converted to type {name} without overflow"))


def fitting(value: Any, dtype: DType) -> Any:
    """Return `value`; RuntimeError if it is a number that the dtype cannot hold.

    >>> fitting(1e300, np.dtype("float64"))
    1e+300
    """
    if type(value) is complex and dtype.kind != "c":
        raise not_real(dtype.name)
    if type(value) not in (int, float) or dtype.kind not in "fiu" or (dtype.kind == "f" and not math.isfinite(value)):
        return value
    limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    most = float(limits.max)  # negative numbers wrap around in unsigned dtypes
    if not (-most if dtype.kind == "u" else float(limits.min)) <= value <= most:
        raise not_real(dtype.name)
    return value


def as_pytorchs(error: ShapeError, operands: Sequence[object]) -> ShapeError:
    """Convert a shape error to the error for Tensors: PyTorch's broadcasting error if the shapes cannot be broadcast,
    else the same error as a RuntimeError."""
    if isinstance(error, RuntimeError | IndexError):
        return error
    try:
        broadcast_shapes(*[x.shape for x in operands if hasattr(x, "shape")])
    except SizeError as other:
        return other
    return SizeError(*error.args)


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that `shapes` broadcast to; a `SizeError` names the sizes that differ.

    >>> broadcast_shapes((3, 1), (4,))
    (3, 4)
    """
    rank = max(map(len, shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for k, n in reversed(list(enumerate(shape, rank - len(shape)))):
            if result[k] != n and result[k] != 1 and n != 1:
                raise size_error(
                    f"The size of tensor a ({result[k]}) must match the size of tensor b ({n}) at non-singleton "
                    f"dimension {k}"
                )
            result[k] = n if result[k] == 1 else result[k]
    return tuple(result)


def dim_of(dim: SupportsIndex, rank: int) -> int:
    """Normalize `dim` to count from the front; a value without axes has the dimensions 0 and -1, as in PyTorch.

    `DimensionError` for a dimension that does not exist, TypeError for non-integers.

    >>> dim_of(-1, 3)
    2
    """
    if type(dim) is not int and not hasattr(dim, "__index__"):
        raise TypeError(located(f"'dim' must be int, not {type(dim).__name__}"))
    k: int = dim if type(dim) is int else dim.__index__()
    n = rank or 1
    if not -n <= k < n:
        raise index_error(f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {k})")
    return k % n


def dims_of(dims: SupportsIndex | Sequence[SupportsIndex], rank: int) -> tuple[int, ...]:
    """Return the dimensions that an integer or a sequence of integers names, in its order; none may be repeated.

    >>> dims_of((-1, 0), 3)
    (2, 0)
    """
    results = tuple(dim_of(d, rank) for d in (dims if isinstance(dims, tuple | list) else (dims,)))
    for k in results:
        if results.count(k) > 1:
            raise size_error(f"dim {k} appears multiple times in the list of dims")
    return results


def integers(args: tuple[Any, ...]) -> tuple[int, ...]:
    """Return sizes or dimensions as a tuple; they are passed one by one, or as one sequence.

    >>> integers((2, 3)), integers(([2, 3],)), integers((2,))
    ((2, 3), (2, 3), (2,))
    """
    if len(args) == 1 and not hasattr(args[0], "__index__"):
        args = tuple(args[0])
    return tuple(n.__index__() for n in args)


def lengths(shape: tuple[int, ...]) -> str:
    """Format a shape as PyTorch's messages do.

    >>> lengths((2, 3))
    '[2, 3]'
    """
    return str(list(shape))


def one(x: ArrayLike) -> Array:
    """Convert an argument to an array: numbers and sequences become arrays, carriers stay unchanged."""
    if isinstance(x, Carrier):
        return x
    return arrays(x)[0]


def copied(x: Array) -> Array:
    """Return the same values in separate memory."""
    return linear.cast(x, dtype=x.dtype.name)
