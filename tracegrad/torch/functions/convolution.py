"""Convolution and pooling over one, two or three dimensions, with PyTorch's signatures.

Inputs have shape (N, C, d1, ...) or (C, d1, ...); sizes, strides, paddings and dilations are one number or one for each
dimension. A window is made of strided slices of the padded input, one for each of its places; so a convolution is a
matrix product, and pooling a reduction.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tracegrad.errors import located
from tracegrad.numpy_api.operands import arrays, constant, peer_of, promoted, to_float
from tracegrad.numpy_api.registry import refuse
from tracegrad.ops import linear, reduction
from tracegrad.ops.contraction import matmul_any
from tracegrad.ops.elementwise import add, divide
from tracegrad.ops.linear import concatenate, reduce_sum, reshape, transpose
from tracegrad.ops.op import named
from tracegrad.torch.functions.arguments import as_node, floating
from tracegrad.torch.functions.dims import integers, lengths, size_error

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "conv1d", "conv2d",
    "conv3d", "max_pool1d", "max_pool2d", "max_pool3d",
]  # fmt: skip

Sizes = tuple[int, ...]


def _each(value: Any, count: int) -> Sizes:
    """One number for each of `count` dimensions."""
    found = integers((value,)) if isinstance(value, tuple | list) else (value.__index__(),)
    if len(found) not in (1, count):
        raise size_error(f"expected one number or {count}, got {lengths(found)}")
    return found * count if len(found) == 1 else found


def _batched(x: Any, count: int, name: str) -> tuple[Any, bool]:
    """`x` with a dimension for the batch, and whether it had one."""
    if len(x.shape) == count + 2:
        return x, True
    if len(x.shape) != count + 1:
        raise size_error(
            f"Expected {count + 1}D (unbatched) or {count + 2}D (batched) input to {name}, but got input of size: "
            f"{lengths(x.shape)}"
        )
    return reshape(x, shape=(1, *x.shape)), False


def _windows(x: Any, kernel: Sizes, stride: Sizes, dilation: Sizes, out: Sizes) -> Any:
    """The elements of all windows of `x`, (N, C, d1, ...), as (N, C, places of a window, windows...)."""
    lead = x.shape[:2]
    parts = []
    for place in itertools.product(*map(range, kernel)):
        start = tuple(i * d for i, d in zip(place, dilation))
        stop = tuple(a + (n - 1) * s + 1 for a, n, s in zip(start, out, stride))
        part = linear.slice(x, start=(0, 0, *start), stop=(*lead, *stop), step=(1, 1, *stride))
        parts.append(reshape(part, shape=(*lead, 1, *out)))
    return concatenate(*parts, axis=2) if len(parts) > 1 else parts[0]


def _padded(x: Any, low: Sizes, high: Sizes, value: float) -> Any:
    if not any(low) and not any(high):
        return x
    none = (0,) * len(x.shape)
    return linear.pad(x, low=(0, 0, *low), high=(0, 0, *high), interior=none, value=value)


# -- convolution ---------------------------------------------------------------------------------------------------
def _convolution(input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int,
                 count: int) -> Any:  # fmt: skip
    x, w, *rest = promoted([to_float(v) for v in arrays(*(v for v in (input, weight, bias) if v is not None))])
    x, batched = _batched(x, count, f"conv{count}d")
    strides, dilations = _each(stride, count), _each(dilation, count)
    if len(w.shape) != count + 2 or x.shape[1] != w.shape[1] * groups or w.shape[0] % groups:
        raise size_error(
            f"Given groups={groups}, weight of size {lengths(w.shape)}, expected input{lengths(x.shape)} to have "
            f"{w.shape[1] * groups} channels, but got {x.shape[1]} channels instead"
        )
    spans = tuple(d * (k - 1) for d, k in zip(dilations, w.shape[2:]))
    low, high = _paddings(padding, strides, spans)
    out = tuple((n + a + b - s) for n, a, b, s in zip(x.shape[2:], low, high, spans))
    if min(out) <= 0:
        raise size_error(
            f"Calculated padded input size per channel: {lengths(tuple(n + s for n, s in zip(out, spans)))}. Kernel "
            f"size: {lengths(w.shape[2:])}. Kernel size can't be greater than actual input size"
        )
    out = tuple(-(-n // s) for n, s in zip(out, strides))

    def convolve(x: Any, w: Any, bias: Any) -> Any:
        n, outputs = x.shape[0], w.shape[0]
        depth = math.prod(w.shape[1:])
        patches = _windows(_padded(x, low, high, 0.0), w.shape[2:], strides, dilations, out)
        columns = reshape(patches, shape=(n, groups, depth, math.prod(out)))
        rows = reshape(w, shape=(groups, outputs // groups, depth))
        result = reshape(matmul_any(rows, columns), shape=(n, outputs, *out))
        return result if bias is None else add(result, reshape(bias, shape=(outputs, *(1,) * count)))

    result = as_node("ConvolutionBackward0", convolve, x, w, rest[0] if rest else None)
    return result if batched else named("SqueezeBackward1", reshape(result, shape=result.shape[1:]))


def _paddings(padding: Any, stride: Sizes, spans: Sizes) -> tuple[Sizes, Sizes]:
    """What is added before and after each dimension."""
    if padding == "valid":
        return (0,) * len(spans), (0,) * len(spans)
    if padding == "same":
        if any(s != 1 for s in stride):
            raise size_error("padding='same' is not supported for strided convolutions")
        return tuple(s // 2 for s in spans), tuple(s - s // 2 for s in spans)
    if isinstance(padding, str):
        raise ValueError(located(f"Invalid padding string {padding!r}, should be one of 'valid', 'same'"))
    each = _each(padding, len(spans))
    return each, each


def conv1d(input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
           groups: int = 1) -> Any:  # fmt: skip
    """The correlation of `input`, (N, C, d), with `weight`, (O, C / groups, k), plus `bias`, (O).

    >>> conv1d(np.array([[[1.0, 2.0, 4.0]]]), np.array([[[1.0, -1.0]]])).tolist()
    [[[-1.0, -2.0]]]
    """
    return _convolution(input, weight, bias, stride, padding, dilation, groups, 1)


def conv2d(input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
           groups: int = 1) -> Any:  # fmt: skip
    """The correlation of `input`, (N, C, d1, d2), with `weight`, (O, C / groups, k1, k2), plus `bias`, (O).

    `padding` may be "valid", none, or "same", as much as keeps the sizes. RuntimeError if the sizes do not fit.
    """
    return _convolution(input, weight, bias, stride, padding, dilation, groups, 2)


def conv3d(input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
           groups: int = 1) -> Any:  # fmt: skip
    """As `conv2d`, over three dimensions."""
    return _convolution(input, weight, bias, stride, padding, dilation, groups, 3)


# -- pooling -------------------------------------------------------------------------------------------------------
def _pooled_size(n: int, span: int, stride: int, padding: int, ceil_mode: bool) -> int:
    rest = n + 2 * padding - span
    if not ceil_mode:
        return rest // stride + 1
    out = -(-rest // stride) + 1
    # A window that would begin in the padding behind is left out.
    return out - 1 if (out - 1) * stride >= n + padding else out


def _pool(name: str, node: str, input: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool,
          count: int, value: float, combine: Callable[..., Any]) -> Any:  # fmt: skip
    x = floating(input)
    whole, batched = _batched(x, count, name)
    sizes, pads, dilations = _each(kernel, count), _each(padding, count), _each(dilation, count)
    strides = sizes if stride is None or (isinstance(stride, tuple | list) and not stride) else _each(stride, count)
    if any(2 * p > k for p, k in zip(pads, sizes)):
        raise size_error(f"pad should be at most half of effective kernel size, but got pad={pads[0]} and "
                         f"kernel_size={sizes[0]}")  # fmt: skip
    spans = tuple(d * (k - 1) + 1 for d, k in zip(dilations, sizes))
    shape = whole.shape[2:]
    out = tuple(_pooled_size(*v, ceil_mode) for v in zip(shape, spans, strides, pads))
    if min(out) <= 0:
        raise size_error(f"{name}: the output would have the size {lengths(out)}, which is too small")
    high = tuple(max((m - 1) * s + k - n - p, 0) for m, s, k, n, p in zip(out, strides, spans, shape, pads))

    def pool(x: Any) -> Any:
        windows = _windows(_padded(_batched(x, count, name)[0], pads, high, value), sizes, strides, dilations, out)
        result = combine(windows, lambda inside: _counts(shape, pads, high, sizes, strides, out, inside))
        return result if batched else reshape(result, shape=result.shape[1:])

    return as_node(node, pool, x)


def _counts(shape: Sizes, low: Sizes, high: Sizes, kernel: Sizes, stride: Sizes, out: Sizes, inside: bool) -> Any:
    """How many elements each window has: of the input, if `inside`, or with what `padding` adds to it."""
    marks = np.ones((1, 1, *shape))
    around = [(0, 0), (0, 0), *((a, min(a, b)) for a, b in zip(low, high))]
    marks = np.pad(marks, around, constant_values=0.0 if inside else 1.0)
    marks = np.pad(marks, [(0, 0), (0, 0), *((0, max(b - a, 0)) for a, b in zip(low, high))])
    return reduce_sum(_windows(marks, kernel, stride, (1,) * len(kernel), out), axes=(2,))


def _max_pool(count: int, input: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool,
              return_indices: bool) -> Any:  # fmt: skip
    if return_indices:
        raise refuse(f"max_pool{count}d with return_indices=True")

    def largest(windows: Any, counts: Any) -> Any:
        return reduction.pick(windows, reduction.argmax(windows, axis=2), axis=2)

    return _pool(f"max_pool{count}d", f"MaxPool{count}DWithIndicesBackward0", input, kernel_size, stride, padding,
                 dilation, ceil_mode, count, -math.inf, largest)  # fmt: skip


def max_pool1d(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
               ceil_mode: bool = False, return_indices: bool = False) -> Any:  # fmt: skip
    """The maximum of each window; of equal ones the first has the derivative. `stride` is the size unless given."""
    return _max_pool(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool2d(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
               ceil_mode: bool = False, return_indices: bool = False) -> Any:  # fmt: skip
    """The maximum of each window; of equal ones the first has the derivative. `stride` is the size unless given.

    >>> max_pool2d(np.arange(16.0).reshape(1, 4, 4), 2).tolist()
    [[[5.0, 7.0], [13.0, 15.0]]]
    """
    return _max_pool(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool3d(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
               ceil_mode: bool = False, return_indices: bool = False) -> Any:  # fmt: skip
    """As `max_pool2d`, over three dimensions."""
    return _max_pool(3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def _avg_pool(count: int, input: Any, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool,
              count_include_pad: bool, divisor_override: int | None) -> Any:  # fmt: skip
    def average(windows: Any, counts: Callable[[bool], Any]) -> Any:
        total = reduce_sum(windows, axes=(2,))
        if divisor_override is not None:
            return divide(total, divisor_override)
        divisor = counts(not count_include_pad)
        if np.all(divisor == windows.shape[2]):
            return divide(total, float(windows.shape[2]))
        return divide(total, constant(divisor.astype(windows.dtype), peer_of(windows)))

    return _pool(f"avg_pool{count}d", f"AvgPool{count}DBackward0", input, kernel_size, stride, padding, 1, ceil_mode,
                 count, 0.0, average)  # fmt: skip


def avg_pool1d(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
               count_include_pad: bool = True) -> Any:  # fmt: skip
    """The mean of each window; `count_include_pad` says that the zeros of the padding count."""
    return _avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


def avg_pool2d(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
               count_include_pad: bool = True, divisor_override: int | None = None) -> Any:  # fmt: skip
    """The mean of each window; `count_include_pad` says that the zeros of the padding count.

    >>> avg_pool2d(np.arange(16.0).reshape(1, 4, 4), 2).tolist()
    [[[2.5, 4.5], [10.5, 12.5]]]
    """
    return _avg_pool(2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def avg_pool3d(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
               count_include_pad: bool = True, divisor_override: int | None = None) -> Any:  # fmt: skip
    """As `avg_pool2d`, over three dimensions."""
    return _avg_pool(3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


# -- adaptive pooling ----------------------------------------------------------------------------------------------
def _adaptive(input: Any, output_size: Any, count: int) -> Any:
    x = floating(input)
    shape = x.shape[len(x.shape) - count :]
    given = output_size if isinstance(output_size, tuple | list) else (output_size,) * count
    out = tuple(n if m is None else m.__index__() for n, m in zip(shape, given))
    tables = [_means(n, m).astype(x.dtype) for n, m in zip(shape, out)]
    name = "MeanBackward1" if out == (1, 1) else f"AdaptiveAvgPool{count}DBackward0"
    return as_node(name, _averaged, x, tables)


def _means(n: int, out: int) -> Any:
    """The matrix that takes `n` elements to the means of `out` windows, which cover them."""
    table = np.zeros((n, out))
    for i in range(out):
        first, last = i * n // out, -(-(i + 1) * n // out)
        table[first:last, i] = 1 / (last - first)
    return table


def _averaged(x: Any, tables: list[Any]) -> Any:
    # Each table is applied to the last dimension, which then comes first of those pooled.
    rank, count = len(x.shape), len(tables)
    lead = tuple(range(rank - count))
    for table in reversed(tables):
        x = matmul_any(x, constant(table, peer_of(x)))
        x = transpose(x, perm=(*lead, rank - 1, *range(rank - count, rank - 1)))
    return x


def adaptive_avg_pool1d(input: Any, output_size: Any) -> Any:
    """The means of `output_size` windows that cover the last dimension.

    >>> adaptive_avg_pool1d(np.array([[1.0, 2.0, 3.0]]), 2).tolist()
    [[1.5, 2.5]]
    """
    return _adaptive(input, output_size, 1)


def adaptive_avg_pool2d(input: Any, output_size: Any) -> Any:
    """The means of windows that cover the last two dimensions, as many as `output_size` says; None leaves one as it
    is."""
    return _adaptive(input, output_size, 2)
