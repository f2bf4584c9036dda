"""Types that all layers share: arrays of any carrier, axes, shapes and dtypes.

An annotation names what a value is:

- `Array`: an array of any carrier, with a shape and a dtype: an ndarray, a NumPy scalar, or a `Carrier`. Functions
  written in ops take and return it. It has no operators, because some carriers know ops only.
- `OperatorArray`: an array that also has NumPy's operators: an ndarray, a Tensor, or an array of a trace.
- `NDArray`: an ndarray, where NumPy computes, as in the implementation of an op.
- `Number`: a Python number, which is weak: it takes the dtype of the arrays that it meets.
- `Operand`: what an op takes: an array or a number.
- `ArrayLike`: what a public function takes for an array: also a sequence of such values.
- `Axes`: what NumPy takes as `axis` and PyTorch as `dim`: one axis, some, or None for all.
- `Shape`, `DType`: the shape and the dtype of an array. `DTypeLike`: what names a dtype.

They are for the type checker. Code that depends on the class of a value asks `isinstance`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = [
    "Array",
    "ArrayLike",
    "Axes",
    "DType",
    "DTypeLike",
    "NDArray",
    "Number",
    "Operand",
    "OperatorArray",
    "Shape",
]

Number: TypeAlias = bool | int | float | complex
DType: TypeAlias = np.dtype[Any]
NDArray: TypeAlias = np.ndarray[Any, Any]
Axes: TypeAlias = int | Sequence[int] | None
Shape: TypeAlias = tuple[int, ...]
DTypeLike: TypeAlias = "npt.DTypeLike"


class Array(Protocol):
    """An array of any carrier."""

    @property
    def shape(self) -> Shape: ...

    @property
    def dtype(self) -> DType: ...


class OperatorArray(Array, Protocol):
    """An array with NumPy's operators. They take anything, because the class of each operand has a say."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...

    def __getitem__(self, index: Any, /) -> OperatorArray: ...

    def __neg__(self) -> OperatorArray: ...

    def __add__(self, other: Any, /) -> OperatorArray: ...

    def __radd__(self, other: Any, /) -> OperatorArray: ...

    def __sub__(self, other: Any, /) -> OperatorArray: ...

    def __rsub__(self, other: Any, /) -> OperatorArray: ...

    def __mul__(self, other: Any, /) -> OperatorArray: ...

    def __rmul__(self, other: Any, /) -> OperatorArray: ...

    def __truediv__(self, other: Any, /) -> OperatorArray: ...

    def __rtruediv__(self, other: Any, /) -> OperatorArray: ...

    def __pow__(self, other: Any, /) -> OperatorArray: ...

    def __rpow__(self, other: Any, /) -> OperatorArray: ...

    def __matmul__(self, other: Any, /) -> OperatorArray: ...

    def __rmatmul__(self, other: Any, /) -> OperatorArray: ...


Operand: TypeAlias = Array | Number
ArrayLike: TypeAlias = "Array | Number | Sequence[ArrayLike]"
