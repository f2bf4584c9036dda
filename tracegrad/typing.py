"""Types that all layers share: arrays of any carrier, axes, shapes and dtypes.

An annotation names what a value is:

- `Array`: an array of any kind that users see: an ndarray, a Tensor, or an array of a trace. Functions written in ops
  take and return it. Carriers without operators, which know ops only, are a `Carrier` (`tracegrad.ops.core.dispatch`).
- `NDArray`: an ndarray, where NumPy computes, as in the implementation of an op.
- `Number`: a Python number, which is weak: it takes the dtype of the arrays that it meets.
- `ArrayLike`: what a public function takes for an array: also NumPy's scalars, numbers, and sequences of all these.
- `Axes`: what NumPy takes as `axis` and PyTorch as `dim`: one axis, some, or None for all.
- `Shape`, `DType`: the shape and the dtype of an array. `DTypeLike`: what names a dtype, or None for the default.
- `DeviceLike`: what names a device, or None for the default.
- `Sizes`: one size for all dimensions, or the size of each.
- `Casting`: NumPy's rules of `casting=`.
- `Results`: what an op returns: an `Array`, or a tuple of them.
- `Rule`: a function that a decorator returns as it is; `Args`: the parameters of a function that is wrapped.

They are for the type checker. Code that depends on the class of a value asks `isinstance`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt
    from typing_extensions import TypeVar

    from tracegrad.tensor_dtype import TensorDType

    Results = TypeVar("Results", default=Any)
else:
    from typing import TypeVar

    Results = TypeVar("Results")

Rule = TypeVar("Rule", bound=Callable[..., object])
Args = ParamSpec("Args")

__all__ = [
    "Args",
    "Array",
    "ArrayLike",
    "Axes",
    "Casting",
    "DType",
    "DTypeLike",
    "DeviceLike",
    "NDArray",
    "Number",
    "Results",
    "Rule",
    "Shape",
    "Sizes",
]

Number: TypeAlias = bool | int | float | complex
DType: TypeAlias = "np.dtype[Any] | TensorDType"
NDArray: TypeAlias = np.ndarray[Any, Any]
Axes: TypeAlias = int | Sequence[int] | None
Shape: TypeAlias = tuple[int, ...]
DTypeLike: TypeAlias = "npt.DTypeLike | None"
DeviceLike: TypeAlias = str | int | None
Sizes: TypeAlias = int | Sequence[int]
Casting: TypeAlias = Literal["no", "equiv", "safe", "same_kind", "unsafe"]


class Array(Protocol):
    """An array of any kind, with NumPy's operators. They take anything, because both operands have a say."""

    @property
    def shape(self) -> Shape: ...

    @property
    def ndim(self) -> int: ...

    @property
    def dtype(self) -> DType: ...

    @property
    def T(self) -> Array: ...

    def reshape(self, size: int, /, *sizes: int) -> Array: ...

    def __array__(self, dtype: Any = None, /) -> NDArray: ...

    def astype(self, dtype: Any, /) -> Any: ...

    def __len__(self) -> int: ...

    def __bool__(self) -> bool: ...

    def __int__(self) -> int: ...

    def __float__(self) -> float: ...

    def __iter__(self) -> Iterator[Array]: ...

    def __getitem__(self, index: Any, /) -> Array: ...

    def __neg__(self) -> Array: ...

    def __abs__(self) -> Array: ...

    def __invert__(self) -> Array: ...

    def __add__(self, other: Any, /) -> Array: ...

    def __radd__(self, other: Any, /) -> Array: ...

    def __sub__(self, other: Any, /) -> Array: ...

    def __rsub__(self, other: Any, /) -> Array: ...

    def __mul__(self, other: Any, /) -> Array: ...

    def __rmul__(self, other: Any, /) -> Array: ...

    def __truediv__(self, other: Any, /) -> Array: ...

    def __rtruediv__(self, other: Any, /) -> Array: ...

    def __pow__(self, other: Any, /) -> Array: ...

    def __rpow__(self, other: Any, /) -> Array: ...

    def __matmul__(self, other: Any, /) -> Array: ...

    def __rmatmul__(self, other: Any, /) -> Array: ...

    def __mod__(self, other: Any, /) -> Array: ...

    def __floordiv__(self, other: Any, /) -> Array: ...

    def __and__(self, other: Any, /) -> Array: ...

    def __or__(self, other: Any, /) -> Array: ...

    def __xor__(self, other: Any, /) -> Array: ...

    def __eq__(self, other: object, /) -> Any: ...

    def __ne__(self, other: object, /) -> Any: ...

    def __lt__(self, other: Any, /) -> Array: ...

    def __le__(self, other: Any, /) -> Array: ...

    def __gt__(self, other: Any, /) -> Array: ...

    def __ge__(self, other: Any, /) -> Array: ...


ArrayLike: TypeAlias = "Array | np.generic | Number | Sequence[ArrayLike]"
