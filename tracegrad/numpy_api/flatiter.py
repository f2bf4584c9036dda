"""Attribute `x.flat`: elements in row-major order, read and written by position."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.numpy_api import indexing
from tracegrad.numpy_api.memory_layout import in_memory_order
from tracegrad.numpy_api.operands import size_of
from tracegrad.ops.shape.linear import reshape

if TYPE_CHECKING:
    from tracegrad.typing import Array, Number


class Flat:
    """Value of `x.flat` for a carrier `x`."""

    def __init__(self, base: Any):
        self.base = base

    def __len__(self) -> int:
        return size_of(self.base)

    def _flattened(self) -> Any:
        return reshape(self.base, shape=(len(self),))

    def __getitem__(self, index: Any) -> Any:
        return indexing.getitem(self.copy(), index)

    def __setitem__(self, index: Any, value: Array | Number) -> None:
        new = indexing.setitem(self._flattened(), index, value)
        self.base._assign(reshape(new, shape=self.base.shape))

    def __iter__(self) -> Iterator[Any]:
        return iter(self[i] for i in range(len(self)))

    def copy(self) -> Any:
        """Return the elements as an array of one axis."""
        return in_memory_order(self._flattened()._alias(), "C")

    def __array_function__(self, function: Any, types: object, args: Any, kwargs: Any) -> Any:
        inputs = [x._flattened() if isinstance(x, Flat) else x for x in args]
        return function(*inputs, **kwargs)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return np.asarray(self._flattened(), *args, **kwargs)
