"""Class `TapeArray`, a recorded array with NumPy's interface, for differentiated functions of ndarrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tracegrad.errors import READ_ONLY, located, lost
from tracegrad.numpy_api import ArrayMethods
from tracegrad.ops.shape.linear import cast, fresh, reshape
from tracegrad.torch.modes import STATE
from tracegrad.torch.tape.backward.hooks import Hooks
from tracegrad.torch.tape.recording.copy_on_write import is_saved, move
from tracegrad.torch.tape.recording.recorded_array import Recorded
from tracegrad.torch.tape.tensors.indexing import get_item
from tracegrad.torch.tape.tensors.inplace_views import set_shape
from tracegrad.torch.tape.tensors.tensor import Tensor
from tracegrad.typing import NDArray

if TYPE_CHECKING:
    from tracegrad.typing import Array, DTypeLike


_NUMBERS = frozenset({"float()", "complex()", "tolist()"})  # the questions whose answer is a number to compute with


class TapeArray(Recorded, ArrayMethods):
    """Recorded array with NumPy's methods, for differentiated functions of ndarrays."""

    _of_ufunc: dict[Any, Any]
    __array_ufunc__ = Tensor.__array_ufunc__
    _tracks_views = False

    def __init__(self, array: Any, requires_grad: bool = False):
        self.array = array
        self._counter = [0]
        if requires_grad:
            self._requires = True

    @property
    def _immutable_scalars(self) -> bool:  # type: ignore[override]
        return True

    def __array__(self, dtype: DTypeLike = None, copy: object = None) -> NDArray:
        if dtype is not None and np.dtype(dtype).kind in "biu":  # which have no derivative
            return np.array(self.array, dtype)
        return super().__array__(dtype, copy)

    def _is_differentiated(self) -> bool:
        return STATE.enabled and self.requires_grad

    def concrete(self, query: str) -> NDArray:
        if query in _NUMBERS and self._is_differentiated():
            raise lost(query)
        result: NDArray = self.array
        return result

    def __copy__(self) -> Self:
        return self._weakened(self._alias()) if self.weak else self._alias()

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self.__copy__()

    def stored(self, dtype: DTypeLike) -> NDArray:
        if self._is_differentiated():
            raise lost("an array of a trace")
        result: NDArray = self.array
        return result

    def _python_number(self, query: str) -> Any:
        if not self._is_differentiated():
            return super()._python_number(query)
        x = reshape(self, shape=()) if self.shape else self._alias()
        wanted = "float64" if self.dtype.kind == "f" else "complex128"
        return self._weakened(x if x.dtype == wanted else cast(x, dtype=wanted))

    def __getitem__(self, index: object) -> Any:
        return get_item(self, index)

    shape = property(lambda self: self.array.shape, set_shape)

    def _alias(self) -> Self:
        result: Self = self.bind(fresh, (self,), {"tag": 0})
        return result

    def _become(self, new: Any) -> Any:
        if not self.array.flags.writeable:
            raise ValueError(located(READ_ONLY))
        return super()._become(new)

    def _store(self, array: Array) -> None:
        if is_saved(self):
            move(self)
        super()._store(array)

    @property
    def flags(self) -> Any:
        """Return NumPy's memory flags of the array."""
        return self.array.flags

    @property
    def strides(self) -> tuple[int, ...]:
        """Return the bytes from one element to the next along each axis."""
        strides: tuple[int, ...] = self.array.strides
        return strides

    @property
    def base(self) -> object:
        """Return the array that this is a view of, or None."""
        return self._base

    def _weakened(self, result: Array) -> Any:
        for x in result if isinstance(result, tuple) else (result,):
            if isinstance(x, TapeArray):
                x.__class__ = WeakArray
        return result

    def _leaf_hooks(self) -> Hooks:
        self._hooks = self._hooks or Hooks()
        hooks: Hooks = self._hooks
        return hooks

    def __repr__(self) -> str:
        return f"TapeArray({np.array2string(self.array, separator=', ', prefix='TapeArray(')})"

    def __format__(self, spec: str) -> str:
        return format(self.array.item(), spec) if not self.shape and spec else repr(self)


class WeakArray(TapeArray):
    """Python number as a recorded array: it takes the dtype of the arrays it meets."""

    weak = True


TapeArray._public_class = TapeArray
