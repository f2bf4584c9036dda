"""Views by strides, and elements at indices into the flattened input."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided as strided_view

from tracegrad.errors import UnsupportedError, located
from tracegrad.numpy_api.joining import picked
from tracegrad.numpy_api.memory_layout import positions
from tracegrad.numpy_api.operands import arrays, constant, peer_of, raveled, size_of, to_dtype
from tracegrad.ops.core.op import Carrier, one_node
from tracegrad.ops.shape.linear import reshape
from tracegrad.torch.functions.core.dims import one, size_error, type_name
from tracegrad.torch.functions.core.promotion import require_one_dtype
from tracegrad.torch.functions.core.registry import FUNCTIONS, function
from tracegrad.typing import Array, ArrayLike, NDArray


def _offset(x: Any, storage_offset: int | None) -> int:
    """Return an offset from the first element of `x`, given one from the first element of its storage."""
    if storage_offset is None:
        return 0
    return int(storage_offset) - (x.storage_offset() if hasattr(x, "storage_offset") else 0)


def _checked_positions(
    name: str, x: Array, size: Sequence[int], stride: Sequence[int], storage_offset: int | None
) -> tuple[NDArray, int]:
    """Return the positions of a view of `x`, and its offset; errors if it is not within the elements of `x`."""
    if len(size) != len(stride):
        raise size_error("mismatch in length of strides and shape")
    if any(step < 0 for step in stride):
        raise size_error(f"{name}: Negative strides are not supported at the moment, got strides: {list(stride)}")
    layout: Any = x._visible_layouts(x)[0] if isinstance(x, Carrier) else x  # type: ignore[attr-defined]
    if not layout.flags.c_contiguous:
        raise UnsupportedError(located(f"{name} of a Tensor that is not contiguous; call contiguous() before"))
    offset = _offset(x, storage_offset)
    spots = positions(size, stride, offset)
    if spots.size and (spots.min() < 0 or spots.max() >= size_of(x)):
        needed, count = int(spots.max()) + 1, size_of(x)
        raise size_error(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset} require a storage of "
            f"{needed} elements, which are out of bounds for one of {count}"
        )
    return spots, offset


@function("as_strided")
def as_strided(input: ArrayLike, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Any:
    """View the memory of a contiguous input with other sizes and strides, in elements.

    RuntimeError for elements outside of the input, or updates of views that overlap. UnsupportedError for inputs that
    are not contiguous.

    >>> as_strided(np.arange(5), (2, 3), (2, 1)).tolist()
    [[0, 1, 2], [2, 3, 4]]
    """
    x: Any = one(input)
    size, stride = tuple(size), tuple(stride)
    spots, offset = _checked_positions("as_strided", x, size, stride, storage_offset)

    def make_view(x: NDArray) -> NDArray:
        flat = x.reshape(-1)[offset:]
        return strided_view(flat, size, [step * x.itemsize for step in stride])

    if isinstance(x, np.ndarray):
        return make_view(x)
    result = _elements_at(x, spots)
    if not hasattr(x, "_as_view"):
        return result
    view = partial(as_strided, size=size, stride=stride, storage_offset=storage_offset)
    return x._as_view(result, view, make_view)


@one_node("AsStridedBackward0")
def _elements_at(x: Array, spots: NDArray) -> Array:
    return picked(raveled(x), constant(spots, peer_of(x)), 0)


@function("as_strided_scatter")
def as_strided_scatter(
    input: Array, src: Array, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Any:
    """Return a copy of the input with `src` in place of the elements of `as_strided`.

    >>> as_strided_scatter(np.zeros(4), np.ones(2), (2,), (3,)).tolist()
    [1.0, 0.0, 0.0, 1.0]
    """
    x, values = arrays(input, src)
    spots, _ = _checked_positions("as_strided_scatter", x, tuple(size), tuple(stride), storage_offset)
    if values.shape != spots.shape:
        raise size_error(
            f"expected src to have a size equal to the slice of self. src size = {list(values.shape)}, slice size = "
            f"{list(spots.shape)}"
        )
    return put(x, constant(spots, peer_of(x)), values)


_PUT_DTYPES = "put_(): self and source expected to have the same dtype, but got self.dtype = {A} and source.dtype = {B}"


@function("put", in_place=True)
def put(input: Array, index: Array, source: Array, accumulate: bool = False) -> Any:
    """Return the input with elements of `source` at indices into the flattened input, added with `accumulate`.

    RuntimeError for two dtypes, numbers of elements that differ, or indices that are no int64.

    >>> put(np.zeros((2, 2)), np.array([0, 3]), np.array([1.0, 2.0])).tolist()
    [[1.0, 0.0], [0.0, 2.0]]
    """
    require_one_dtype(input, source, _PUT_DTYPES)
    x, index, values = arrays(input, index, source)
    if index.dtype != np.int64:
        raise RuntimeError(located(f"put_(): Expected a long tensor for index, but got {type_name(index.dtype)}"))
    if size_of(index) != size_of(values):
        raise size_error(
            "put_(): Expected source and index to have the same number of elements, but got source.numel() = "
            f"{size_of(values)}, index.numel() = {size_of(index)}"
        )
    flat, index, values = raveled(x), raveled(index), to_dtype(raveled(values), x.dtype)
    result = FUNCTIONS["index_put"](flat, (index,), values, accumulate)
    return reshape(result, shape=x.shape)
