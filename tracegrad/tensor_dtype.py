"""Dtypes of Tensors: NumPy's dtypes with PyTorch's attributes and text. `TENSOR_DTYPES` has them by NumPy's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import DTypeError, located

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["TENSOR_DTYPES", "TensorDType"]


class TensorDType:
    """Dtype of a Tensor: NumPy's dtype with PyTorch's attributes and text. There is one object for each dtype.

    NumPy takes it for its own dtype: it is equal to it, has its hash and its other attributes, and `isinstance` says
    that it is one.

    Parameters
    ----------
    dtype : data-type
        What NumPy takes for a dtype, or the name of one that NumPy does not have: `bfloat16`. Programs can name that
        one; a Tensor of it raises DTypeError.

    Examples
    --------
    >>> dtype = TensorDType("float32")
    >>> dtype, dtype.is_floating_point, dtype.itemsize, dtype == np.float32
    (torch.float32, True, 4, True)
    """

    __slots__ = ("_dtype", "is_complex", "is_floating_point", "is_signed", "itemsize", "kind", "name")
    _dtype: np.dtype[Any] | None
    name: str
    kind: str
    itemsize: int
    is_floating_point: bool
    is_complex: bool
    is_signed: bool

    def __new__(cls, dtype: npt.DTypeLike) -> TensorDType:
        if type(dtype) is TensorDType:
            return dtype
        name = dtype.removeprefix("torch.") if isinstance(dtype, str) else dtype
        return _BFLOAT16 if name == "bfloat16" else TENSOR_DTYPES[np.dtype(name)]

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's dtype, for which NumPy asks; DTypeError if it has none."""
        if self._dtype is None:
            text = f"tracegrad does not support {self.name}; supported are float16, float32 and float64"
            raise DTypeError(located(text))
        return self._dtype

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return TensorDType if self._dtype is None else type(self._dtype)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"'torch.dtype' object has no attribute {name!r}")
        return getattr(self.dtype, name)

    def __eq__(self, other: object) -> bool:
        return self is other or (self._dtype is not None and bool(self._dtype == other))

    def __hash__(self) -> int:
        return hash(self.name if self._dtype is None else self._dtype)

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> tuple[type[TensorDType], tuple[str]]:
        return TensorDType, (self.name if self._dtype is None else self._dtype.str,)

    def to_complex(self) -> TensorDType:
        """The complex dtype of this precision; DTypeError for one that is not supported.

        >>> TensorDType("float32").to_complex()
        torch.complex64
        """
        if self.kind == "f" and self.itemsize < 4:
            raise DTypeError(located(f"tracegrad supports no complex dtype of {self.name} parts"))
        return TensorDType(f"c{2 * self.itemsize}") if self.kind == "f" else self

    def to_real(self) -> TensorDType:
        """The dtype of real and imaginary parts.

        >>> TensorDType("complex128").to_real()
        torch.float64
        """
        return TensorDType(f"f{self.itemsize // 2}") if self.kind == "c" else self


def _tensor_dtype(dtype: np.dtype[Any] | None, name: str, kind: str, itemsize: int) -> TensorDType:
    result = object.__new__(TensorDType)
    result._dtype, result.name, result.kind, result.itemsize = dtype, name, kind, itemsize
    result.is_floating_point, result.is_complex, result.is_signed = kind == "f", kind == "c", kind in "ifc"
    return result


class _TensorDTypes(dict[Any, TensorDType]):
    """The dtypes of Tensors by NumPy's."""

    def __missing__(self, dtype: np.dtype[Any]) -> TensorDType:
        return self.setdefault(dtype, _tensor_dtype(dtype, dtype.name, dtype.kind, dtype.itemsize))


TENSOR_DTYPES = _TensorDTypes()
_BFLOAT16 = _tensor_dtype(None, "bfloat16", "f", 2)
