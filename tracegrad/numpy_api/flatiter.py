"""Attribute `x.flat`: elements in row-major order, read and written by position."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.numpy_api import indexing
from tracegrad.numpy_api.memory_layout import in_memory_order
from tracegrad.numpy_api.operands import size_of
from tracegrad.ops.shape.linear import reshape
from tracegrad.typing import ArrayLike

if TYPE_CHECKING:
    from tracegrad.numpy_api.array_methods import ArrayMethods
    from tracegrad.typing import Array


class Flat:
    """Value of `x.flat` for a carrier `x`."""

    def __init__(self, base: ArrayMethods):
        self.base = base

    def __len__(self) -> int:
        return size_of(self.base)

    def _flattened(self) -> Array:
        return reshape(self.base, shape=(len(self),))

    def __getitem__(self, index: object) -> Array:
        result: Array = indexing.getitem(self.copy(), index)
        return result

    def __setitem__(self, index: object, value: ArrayLike) -> None:
        new = indexing.setitem(self._flattened(), index, value)
        self.base._assign(reshape(new, shape=self.base.shape))

    def __iter__(self) -> Iterator[Array]:
        return iter(self[i] for i in range(len(self)))

    def copy(self) -> Array:
        """Return the elements as an array of one axis."""
        elements: Any = self._flattened()
        return in_memory_order(elements._alias(), "C")

    def __array_function__(
        self, function: Callable[..., object], types: object, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        inputs = [x._flattened() if isinstance(x, Flat) else x for x in args]
        return function(*inputs, **kwargs)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return np.asarray(self._flattened(), *args, **kwargs)
