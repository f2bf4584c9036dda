"""Dtypes under PyTorch's names, predicates on them, and the default floating dtype.

`DTYPES` is the table of exported names. As in PyTorch, its `float` is float32 and its `int` is int32. Elsewhere in the
module `float`, `int` and `bool` are Python's types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.avals import weak_dtype
from tracegrad.errors import located
from tracegrad.tensor_dtype import TENSOR_DTYPES, TensorDType
from tracegrad.torch.functions.core import promotion
from tracegrad.torch.functions.core.promotion import default_dtype
from tracegrad.torch.modes import DEFAULT
from tracegrad.torch.tape.tensors.docs import TENSOR_DOCS
from tracegrad.typing import DType

if TYPE_CHECKING:
    from tracegrad.typing import Array, DTypeLike


__all__ = [
    "DTYPES",
    "bfloat16",
    "can_cast",
    "finfo",
    "get_default_dtype",
    "iinfo",
    "is_complex",
    "is_floating_point",
    "promote_types",
    "result_type",
    "set_default_dtype",
]

DType = DType

DTYPES: dict[str, DType] = {
    name: TensorDType(name)
    for name in (
        "float16",
        "float32",
        "float64",
        "complex64",
        "complex128",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "bool",
    )
}
DTYPES.update(
    {
        other: DTYPES[name]
        for other, name in (
            ("half", "float16"),
            ("float", "float32"),
            ("double", "float64"),
            ("cfloat", "complex64"),
            ("cdouble", "complex128"),
            ("short", "int16"),
            ("int", "int32"),
            ("long", "int64"),
        )
    }
)


bfloat16 = TensorDType("bfloat16")


def get_default_dtype() -> DType:
    """Return the dtype of Tensors of Python floats; float64 unless it has been set.

    >>> get_default_dtype()
    torch.float64
    """
    return TENSOR_DTYPES[default_dtype()]


def set_default_dtype(dtype: DTypeLike) -> None:
    """Set the dtype of Tensors of Python floats.

    TypeError for a dtype that is not floating.

    >>> set_default_dtype(np.float32)
    >>> get_default_dtype()
    torch.float32
    >>> set_default_dtype(np.float64)
    """
    args = np.dtype(dtype)
    if args not in (DTYPES["float16"], DTYPES["float32"], DTYPES["float64"]):
        raise TypeError(located("only floating-point types are supported as the default type"))
    DEFAULT.dtype = args


# -- properties of a dtype -----------------------------------------------------------------------------------------
def finfo(dtype: DTypeLike = None) -> np.finfo[Any]:
    """Return the limits of a floating or complex dtype.

    TypeError for another dtype.

    >>> float(finfo(np.float32).eps)
    1.1920928955078125e-07
    """
    kind = np.dtype(get_default_dtype() if dtype is None else dtype)
    if kind.kind not in "fc":
        raise TypeError(located("finfo() requires a floating point input type. Use iinfo to handle integers"))
    return np.finfo(kind)


def iinfo(dtype: DTypeLike) -> np.iinfo[Any]:
    """Return the limits of an integer dtype.

    TypeError for another dtype.

    >>> iinfo(np.int8).max
    127
    """
    kind = np.dtype(dtype)
    if kind.kind not in "iu":
        raise TypeError(located("iinfo() requires an integer input type. Use finfo to handle floating point"))
    return np.iinfo(kind)


def _promotion_dtype(x: Any) -> DType | type:
    """Return an argument's type for promotion: a dtype, or a Python type for a weak number."""
    if isinstance(x, complex) and not isinstance(x, np.generic):
        return complex
    dtype: DType | type = weak_dtype(x) if hasattr(x, "dtype") or isinstance(x, bool | int | float) else np.dtype(x)
    return dtype


def result_type(*xs: Array) -> DType:
    """Return the dtype of an operation on operands, by PyTorch's rules.

    >>> result_type(np.ones(2, "float32"), 1.5)
    torch.float32
    >>> result_type(1, 2.5)
    torch.float64
    """
    return TENSOR_DTYPES[promotion.common_dtype([(_promotion_dtype(x), len(getattr(x, "shape", (1,)))) for x in xs])]


def promote_types(type1: DType, type2: DType) -> DType:
    """Return the smallest dtype that two dtypes promote to, by PyTorch's rules.

    Floating dtypes keep their precision with integers.

    >>> promote_types(np.int32, np.float32)
    torch.float32
    """
    return TENSOR_DTYPES[promotion.promote_types(np.dtype(type1), np.dtype(type2))]


_KINDS = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}


def can_cast(from_: DType | type, to: DType | type) -> bool:
    """Return whether a result of one dtype may be stored as another dtype.

    It may not from floating to integer, from complex to real, or from numbers to bool.

    >>> can_cast(np.float64, np.float32), can_cast(np.float64, np.int64)
    (True, False)
    """
    return _KINDS[np.dtype(from_).kind] <= _KINDS[np.dtype(to).kind]


# -- properties of a Tensor ------------------------------------------------------------------------------------------
def _dtype_of(name: str, x: Array) -> DType:
    dtype = getattr(x, "dtype", x)
    if not isinstance(dtype, np.dtype):
        raise TypeError(located(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(x).__name__}"))
    return dtype


def is_floating_point(input: Array) -> bool:
    """Return whether a Tensor, array or dtype is floating.

    >>> is_floating_point(np.ones(2))
    True
    """
    return _dtype_of("is_floating_point", input).kind == "f"


def is_complex(input: Array) -> bool:
    """Return whether a Tensor, array or dtype is complex.

    >>> is_complex(np.ones(2))
    False
    """
    return _dtype_of("is_complex", input).kind == "c"


def check_requires_grad(dtype: DType, requires_grad: bool) -> None:
    """Raise RuntimeError for `requires_grad` with a dtype that has no derivatives."""
    if requires_grad and dtype.kind not in "fc":
        raise RuntimeError(located("Only Tensors of floating point and complex dtype can require gradients"))


TENSOR_DOCS.document(globals(), __all__)
