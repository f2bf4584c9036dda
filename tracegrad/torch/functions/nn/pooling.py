"""Pooling and unpooling over one, two or three dimensions, with PyTorch's signatures.

Inputs have shape (N, C, d1, ...) or (C, d1, ...); sizes, strides, paddings and dilations are one number, or one for
each dimension. Pooling is a reduction over the offsets of a window, as in `convolution.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tracegrad.errors import located
from tracegrad.numpy_api.joining import picked
from tracegrad.numpy_api.operands import arrays, constant, peer_of
from tracegrad.ops.core.op import named
from tracegrad.ops.elementwise.table import absolute, add, divide, multiply, power, sign
from tracegrad.ops.linalg.contraction import matmul_any
from tracegrad.ops.reduce import reductions
from tracegrad.ops.reduce.first_max import first_max, first_max_index
from tracegrad.ops.shape import linear
from tracegrad.ops.shape.linear import broadcast_to, cast, reduce_sum, reshape, transpose
from tracegrad.torch.functions.core.dims import integers, lengths, one, size_error
from tracegrad.torch.functions.core.operands import as_node, floating, is_whole
from tracegrad.torch.functions.indexing.index_update import written
from tracegrad.torch.functions.nn.activations import relu
from tracegrad.torch.functions.nn.windows import Sizes, Windows, for_each, window_count, with_batch
from tracegrad.typing import Array, ArrayLike

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracegrad.ops.core.dispatch import Holder
    from tracegrad.typing import NDArray


# -- windows of one size -------------------------------------------------------------------------------------------
def _pool(
    name: str,
    node: str,
    input: Array,
    kernel: Any,
    stride: object,
    padding: object,
    dilation: int | Sequence[int],
    ceil_mode: bool,
    count: int,
    combine: Callable[..., object],
) -> Any:
    x = one(input)
    integral = is_whole(x)
    x = cast(x, dtype="float64") if integral else floating(x)
    whole, batched = with_batch(x, count, name)
    if 0 in whole.shape[1:]:
        kinds = f"{count + 1}D or {count + 2}D (batch mode) tensor with optional 0 dim batch size for input"
        raise size_error(f"{name}: Expected {kinds}, but got:{lengths(x.shape)}")
    sizes, pads, dilations = for_each(kernel, count), for_each(padding, count), for_each(dilation, count)
    strides = sizes if stride is None or (isinstance(stride, tuple | list) and not stride) else for_each(stride, count)
    for what, least in (("kernel_size", min(sizes)), ("stride", min(strides)), ("dilation", min(dilations))):
        if least <= 0:
            raise size_error(f"{name}() {what} must be greater than zero, but got {least}")
    if min(pads) < 0:
        raise size_error(f"{name}() padding must be non-negative, but got {min(pads)}")
    if any(2 * p > k for p, k in zip(pads, sizes)):
        raise size_error(
            f"pad should be at most half of effective kernel size, but got pad={pads[0]} and kernel_size={sizes[0]}"
        )
    spans = tuple(d * (k - 1) + 1 for d, k in zip(dilations, sizes))
    shape = whole.shape[2:]
    out = tuple(window_count(*v, ceil_mode) for v in zip(shape, spans, strides, pads))
    if min(out) <= 0:
        raise size_error(f"{name}: the output would have the size {lengths(out)}, which is too small")
    high = tuple(max((m - 1) * s + k - n - p, 0) for m, s, k, n, p in zip(out, strides, spans, shape, pads))
    windows = Windows(shape, sizes, strides, dilations, pads, high, out)

    def pool(x: Array) -> Any:
        result = combine(with_batch(x, count, name)[0], windows)
        return result if batched else _without_batch(result)

    result = as_node(node, pool, x)
    if not integral:
        return result
    if isinstance(result, tuple):
        return cast(result[0], dtype=input.dtype.name), *result[1:]
    return cast(result, dtype=input.dtype.name)


def _without_batch(result: Any) -> Any:
    if isinstance(result, tuple):
        return tuple(map(_without_batch, result))
    return reshape(result, shape=result.shape[1:])


def _max_pool(
    count: int,
    input: Array,
    kernel_size: object,
    stride: int | Sequence[int] | None,
    padding: int | str | Sequence[int],
    dilation: int | Sequence[int],
    ceil_mode: bool,
    return_indices: bool,
) -> Any:
    def largest(x: Array, windows: Windows) -> Any:
        elements, axes = windows.of(x, -math.inf)
        result = first_max(elements, axes=axes)
        return (result, windows.numbers(first_max_index(elements, result, axes))) if return_indices else result

    return _pool(
        f"max_pool{count}d",
        f"MaxPool{count}DWithIndicesBackward0",
        input,
        kernel_size,
        stride,
        padding,
        dilation,
        ceil_mode,
        count,
        largest,
    )


def max_pool1d(
    input: Array,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Return the maxima of windows of the last dimension.

    The default stride is the size of a window. Of equal elements, the first one has the derivative.
    """
    return _max_pool(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool2d(
    input: Array,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Return the maxima of windows of the last two dimensions.

    The default stride is the size of a window. Of equal elements, the first one has the derivative. Indices count the
    elements of the pooled dimensions in row-major order.

    >>> max_pool2d(np.arange(16.0).reshape(1, 4, 4), 2).tolist()
    [[[5.0, 7.0], [13.0, 15.0]]]
    """
    return _max_pool(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool3d(
    input: Array,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Return the maxima of windows of the last three dimensions, as `max_pool2d`."""
    return _max_pool(3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def _avg_pool(
    count: int,
    input: Array,
    kernel_size: object,
    stride: object,
    padding: int | str | Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    def average(x: Array, windows: Windows) -> Array:
        elements, axes = windows.of(x, 0.0)
        total = reduce_sum(elements, axes=axes)
        if divisor_override == 0:
            raise RuntimeError(located("divisor must be not zero"))
        if divisor_override is not None:
            return divide(total, divisor_override)
        divisor, size = windows.counts(not count_include_pad), math.prod(windows.kernel)
        if np.all(divisor == size):
            return divide(total, float(size))
        return divide(total, constant(divisor.astype(x.dtype), peer_of(x)))

    return _pool(
        f"avg_pool{count}d",
        f"AvgPool{count}DBackward0",
        input,
        kernel_size,
        stride,
        padding,
        1,
        ceil_mode,
        count,
        average,
    )


def avg_pool1d(
    input: Array,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | str | Sequence[int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Array:
    """Average windows of the last dimension."""
    result: Array = _avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)
    return result


def avg_pool2d(
    input: Array,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | str | Sequence[int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Array:
    """Average windows of the last two dimensions.

    >>> avg_pool2d(np.arange(16.0).reshape(1, 4, 4), 2).tolist()
    [[[2.5, 4.5], [10.5, 12.5]]]
    """
    result: Array = _avg_pool(2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return result


def avg_pool3d(
    input: Array,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | str | Sequence[int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Array:
    """Average windows of the last three dimensions."""
    result: Array = _avg_pool(3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return result


def _lp_pool(
    count: int,
    input: Array,
    norm_type: float,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None,
    ceil_mode: bool,
) -> Array:
    powers = power(floating(input), norm_type)
    mean = _avg_pool(count, powers, kernel_size, stride, 0, ceil_mode, True, None)
    total = multiply(multiply(sign(mean), relu(absolute(mean))), math.prod(for_each(kernel_size, count)))
    return named("PowBackward0", power(total, 1.0 / norm_type))


def lp_pool1d(
    input: Array,
    norm_type: float,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    ceil_mode: bool = False,
) -> Array:
    """Return the norms of windows of the last dimension: the sum of powers to the power 1 / `norm_type`.

    >>> lp_pool1d(np.array([[3.0, 4.0]]), 2, 2).tolist()
    [[5.0]]
    """
    return _lp_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(
    input: Array,
    norm_type: float,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    ceil_mode: bool = False,
) -> Array:
    """Return the norms of windows of the last two dimensions, as `lp_pool1d`."""
    return _lp_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(
    input: Array,
    norm_type: float,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    ceil_mode: bool = False,
) -> Array:
    """Return the norms of windows of the last three dimensions, as `lp_pool1d`."""
    return _lp_pool(3, input, norm_type, kernel_size, stride, ceil_mode)


# -- adaptive pooling ----------------------------------------------------------------------------------------------
def _pooled_sizes(name: str, x: Array, output_size: int | Sequence[int], count: int) -> tuple[Sizes, Sizes]:
    """Return the sizes of the last `count` dimensions, and those after pooling; RuntimeError if these do not fit."""
    if len(x.shape) not in (count + 1, count + 2):
        raise size_error(f"{name}(): Expected {count + 1}D or {count + 2}D tensor, but got {lengths(x.shape)}")
    shape = x.shape[len(x.shape) - count :]
    sizes = output_size if isinstance(output_size, tuple | list) else (output_size,) * count
    if len(sizes) != count:
        raise size_error(f"{name}: output_size must be {count}")
    out = tuple(n if m is None else m.__index__() for n, m in zip(shape, sizes))
    if min(out) < 0:
        raise size_error(
            f"{name}: elements of output_size must be greater than or equal to 0 but received {lengths(out)}"
        )
    return shape, out


def _bounds(n: int, out: int) -> list[tuple[int, int]]:
    """Return the starts and ends of `out` windows that cover `n` elements."""
    return [(i * n // out, -(-(i + 1) * n // out)) for i in range(out)]


def _adaptive(input: Array, output_size: int | Sequence[int], count: int) -> Array:
    x = floating(input)
    shape, out = _pooled_sizes(f"adaptive_avg_pool{count}d", x, output_size, count)
    tables = [_means(n, m).astype(x.dtype) for n, m in zip(shape, out)]
    name = "MeanBackward1" if out == (1, 1) else f"AdaptiveAvgPool{count}DBackward0"
    return as_node(name, _averaged, x, tables)


def _means(n: int, out: int) -> NDArray:
    """Return the matrix that maps `n` elements to the means of `out` windows, which cover them."""
    table = np.zeros((n, out))
    for i, (first, last) in enumerate(_bounds(n, out)):
        table[first:last, i] = 1 / (last - first)
    return table


def _averaged(x: Array, tables: list[NDArray]) -> Array:
    # Each table is applied to the last dimension, which then becomes the first pooled dimension.
    rank, count = len(x.shape), len(tables)
    batch_dims = tuple(range(rank - count))
    for table in reversed(tables):
        x = matmul_any(x, constant(table, peer_of(x)))
        x = transpose(x, perm=(*batch_dims, rank - 1, *range(rank - count, rank - 1)))
    return x


def adaptive_avg_pool1d(input: Array, output_size: int | Sequence[int]) -> Array:
    """Average `output_size` windows that cover the last dimension.

    >>> adaptive_avg_pool1d(np.array([[1.0, 2.0, 3.0]]), 2).tolist()
    [[1.5, 2.5]]
    """
    return _adaptive(input, output_size, 1)


def adaptive_avg_pool2d(input: Array, output_size: int | Sequence[int]) -> Array:
    """Average windows that cover the last two dimensions.

    `output_size` has the numbers of windows. None keeps a size.
    """
    return _adaptive(input, output_size, 2)


def adaptive_avg_pool3d(input: Array, output_size: int | Sequence[int]) -> Array:
    """Average windows that cover the last three dimensions, as `adaptive_avg_pool2d`."""
    return _adaptive(input, output_size, 3)


def _adaptive_max(count: int, input: Array, output_size: int | Sequence[int], return_indices: bool) -> Any:
    x = floating(input)
    shape, out = _pooled_sizes(f"adaptive_max_pool{count}d", x, output_size, count)
    numbers = _numbers(shape, out)

    def largest(x: Holder) -> Any:
        batch_shape = x.shape[: len(x.shape) - count]
        table = constant(numbers, peer_of(x))
        elements = picked(reshape(x, shape=(*batch_shape, math.prod(shape))), table, len(batch_shape))
        positions = reductions.argmax(elements, axis=len(elements.shape) - 1)
        result = reductions.pick(elements, positions, axis=len(elements.shape) - 1)
        if not return_indices:
            return result
        every = broadcast_to(table, shape=elements.shape)
        return result, reductions.pick(every, positions, axis=len(elements.shape) - 1)

    return as_node(f"AdaptiveMaxPool{count}DBackward0", largest, x)


def _numbers(shape: Sizes, out: Sizes) -> NDArray:
    """Return the row-major numbers of the elements of each window; smaller windows repeat some numbers."""
    rank = len(shape)
    total = np.zeros((1,) * (2 * rank), np.int64)
    for k, (n, m) in enumerate(zip(shape, out)):
        bounds = _bounds(n, m)
        width = max((last - first for first, last in bounds), default=0)
        table = np.array([[min(first + i, last - 1) for i in range(width)] for first, last in bounds], np.int64)
        table_shape = [1] * (2 * rank)
        table_shape[k], table_shape[rank + k] = m, width
        total = total + table.reshape(table_shape) * math.prod(shape[k + 1 :])
    return total.reshape(*out, -1)


def adaptive_max_pool1d(input: Array, output_size: int | Sequence[int], return_indices: bool = False) -> Any:
    """Return the maxima of `output_size` windows that cover the last dimension.

    >>> adaptive_max_pool1d(np.array([[1.0, 2.0, 3.0]]), 2).tolist()
    [[2.0, 3.0]]
    """
    return _adaptive_max(1, input, output_size, return_indices)


def adaptive_max_pool2d(input: Array, output_size: int | Sequence[int], return_indices: bool = False) -> Any:
    """Return the maxima of windows that cover the last two dimensions; None keeps a size."""
    return _adaptive_max(2, input, output_size, return_indices)


def adaptive_max_pool3d(input: Array, output_size: int | Sequence[int], return_indices: bool = False) -> Any:
    """Return the maxima of windows that cover the last three dimensions; None keeps a size."""
    return _adaptive_max(3, input, output_size, return_indices)


# -- unpooling of maxima -------------------------------------------------------------------------------------------
def _max_unpool(
    count: int,
    input: ArrayLike,
    indices: ArrayLike,
    kernel_size: Any,
    stride: Any,
    padding: int | str | Sequence[int],
    output_size: object,
) -> Array:
    x, index = arrays(input, indices)
    if x.shape != index.shape:
        raise size_error(
            f"Expected shape of indices to be same as that of the input tensor ({lengths(x.shape)}) but got indices "
            f"tensor with shape: {lengths(index.shape)}"
        )
    kernel, pads = for_each(kernel_size, count), for_each(padding, count)
    strides = kernel if stride is None else for_each(stride, count)
    batch_shape = x.shape[: len(x.shape) - count]
    out = tuple((n - 1) * s - 2 * p + k for n, s, p, k in zip(x.shape[len(batch_shape) :], strides, pads, kernel))
    if output_size is not None:
        out = integers((output_size,))[-count:]
    return as_node(f"MaxUnpool{count}DBackward0", _unpooled, x, index, len(batch_shape), out)


def _unpooled(x: Array, index: Array, count: int, out: Sizes) -> Array:
    size, peer = math.prod(out), peer_of(x)
    channels = np.arange(math.prod(x.shape[:count])) * size
    starts = constant(channels.reshape(*x.shape[:count], *(1 for _ in out)), peer)
    indices = reshape(add(index, starts), shape=(math.prod(x.shape),))
    zeros = constant(linear.full(shape=(len(channels) * size,), value=0, dtype=x.dtype.name), peer)
    flat = written(zeros, indices, reshape(x, shape=indices.shape))
    return reshape(flat, shape=(*x.shape[:count], *out))


def max_unpool1d(
    input: Array,
    indices: Array,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | str | Sequence[int] = 0,
    output_size: int | Sequence[int] | None = None,
) -> Array:
    """Invert `max_pool1d`: write each element of the input to its index, and zeros elsewhere.

    >>> max_unpool1d(np.array([[5.0, 7.0]]), np.array([[1, 2]]), 2).tolist()
    [[0.0, 5.0, 7.0, 0.0]]
    """
    return _max_unpool(1, input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(
    input: Array,
    indices: Array,
    kernel_size: object,
    stride: object = None,
    padding: int | Sequence[int] = 0,
    output_size: object = None,
) -> Array:
    """Invert `max_pool2d`: write each element of the input to its index, and zeros elsewhere."""
    return _max_unpool(2, input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(
    input: Array,
    indices: Array,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    output_size: int | Sequence[int] | None = None,
) -> Array:
    """Invert `max_pool3d`: write each element of the input to its index, and zeros elsewhere."""
    return _max_unpool(3, input, indices, kernel_size, stride, padding, output_size)
